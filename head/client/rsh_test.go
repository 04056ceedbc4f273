package client

import (
	"strings"
	"testing"

	"muster/internal/misuse"
)

func TestParseRemoteShell(t *testing.T) {
	for _, c := range []struct {
		args, host, command string // host "" for a mistake
		noInput             bool
	}{
		{"n2 hostname", "n2", "hostname", false},
		{"alice@n2 cd /tmp && ls", "n2", "cd /tmp && ls", false},
		{"-x -p 22 -n n2 true", "n2", "true", true},
		{"-oBatchMode=yes -l alice n2 echo -n", "n2", "echo -n", false},
		{"-q -- n2 true", "n2", "true", false},
		{"n2", "", "", false},
		{"-p 22", "", "", false},
		{"", "", "", false},
	} {
		r, err := ParseRemoteShell(strings.Fields(c.args))
		if c.host == "" {
			if !misuse.Is(err) {
				t.Errorf("%q: %+v, %v", c.args, r, err)
			}
			continue
		}
		if err != nil || r.Host != c.host || strings.Join(r.Command, " ") != "/bin/sh -c "+c.command || r.NoInput != c.noInput {
			t.Errorf("%q: %+v, %v", c.args, r, err)
		}
	}
}

// A launcher's options for ssh are not taken for those of muster exec.
func TestAsRemoteShell(t *testing.T) {
	for argv, want := range map[string]string{
		"/usr/bin/muster-rsh -x n2 true": "exec --rsh -- -x n2 true",
		"muster exec --rsh -x n2 true":   "exec --rsh -- -x n2 true",
		"muster exec --rsh -- n2 true":   "exec --rsh -- n2 true",
		"muster exec 17 -- true":         "exec 17 -- true",
		"muster":                         "",
	} {
		if got := strings.Join(AsRemoteShell(strings.Fields(argv)), " "); got != want {
			t.Errorf("%s: %s, want %s", argv, got, want)
		}
	}
}
