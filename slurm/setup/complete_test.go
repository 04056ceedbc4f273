package setup

import (
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/misuse"
	"muster/slurm/release"
)

// What is left out comes from the machine, and what the user says stays.
func TestComplete(t *testing.T) {
	var o Options
	if err := o.Complete(release.Newest().Name); err != nil {
		t.Fatal(err)
	}
	if o.Release != release.Newest() || !filepath.IsAbs(o.Muster) || o.Include == "" {
		t.Errorf("%+v", o)
	}
	o = Options{Muster: "/opt/muster", Include: "/opt/include"}
	if err := o.Complete(release.Newest().Name); err != nil || o.Muster != "/opt/muster" || o.Include != "/opt/include" {
		t.Errorf("%+v, %v", o, err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := o.Complete(""); err == nil || misuse.Is(err) || !strings.Contains(err.Error(), "--version") {
		t.Errorf("without scontrol: %v", err)
	}
}

func TestCompleteRefuses(t *testing.T) {
	for want, o := range map[string]Options{
		"--gpus -1":                 {GPUs: -1},
		"--muster and --library":    {Muster: "bin/muster"},
		"paths that begin with /":   {Library: "spank.so"},
		"give --agents, too":        {Authority: "/ca.pem"},
		"needs a path":              {Authority: "ca.pem", Agents: "h:1", Grants: "/g"},
		"--agents and --grants":     {Agents: "h:1"},
		"nodes lend, and jobs find": {Grants: "/g"},
	} {
		if err := o.Complete(release.Newest().Name); !misuse.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	var o Options
	if err := o.Complete("1.0"); !misuse.Is(err) {
		t.Errorf("an unknown release: %v", err)
	}
}

func TestWriteFindings(t *testing.T) {
	var b strings.Builder
	wrong, err := WriteFindings(&b, []Finding{{What: "the plug-in"}, {What: "the key", Wrong: true, Remedy: "make one"}, {What: "the time", Odd: true}})
	if want := "good   the plug-in\nwrong  the key\n       do: make one\nodd    the time\n"; err != nil || wrong != 1 || b.String() != want {
		t.Errorf("%d, %v, %q", wrong, err, b.String())
	}
}

func TestWriteSummary(t *testing.T) {
	changed := Plan{Changes: make([]Change, 2), Left: []string{"copy the folder"}}
	for _, c := range []struct {
		plan           Plan
		dryRun, remove bool
		want           string
	}{
		{Plan{}, false, false, "nothing is to be changed\n"},
		{changed, true, true, "2 files would be changed\nleft to you: copy the folder\n"},
		{changed, false, true, "2 files were changed; restart slurmctld: Slurm then does without Muster\nleft to you: copy the folder\n"},
		{changed, false, false, "2 files were changed; restart slurmctld, then run muster slurm doctor\nleft to you: copy the folder\n"},
	} {
		var b strings.Builder
		if err := c.plan.WriteSummary(&b, c.dryRun, c.remove); err != nil || b.String() != c.want {
			t.Errorf("%q, %v; want %q", b.String(), err, c.want)
		}
	}
}
