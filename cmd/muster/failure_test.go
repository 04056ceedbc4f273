package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/cmd/muster/cli"
)

// A file that is not there is a failure, whichever command was to read or write it, and the text
// names the file and no system call.
func TestMissingFilesAreOneStatus(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{
		{"sim", "--cluster", missing, "--workload", "small", "--policy", "easy"},
		{"sim", "--cluster", "small", "--workload", missing, "--policy", "easy"},
		{"sim", "--cluster", "small", "--workload", "small", "--policy", "easy", "--priority", missing},
		{"sim", "--cluster", "small", "--workload", "small", "--policy", "easy", "--outages", missing},
		{"sim", "--cluster", "small", "--workload", "small", "--policy", "easy", "--html", filepath.Join(missing, "page.html")},
		{"sim", "kernels", "--cluster", missing},
		{"sim", "replay", missing},
		{"cluster", "show", missing},
		{"cluster", "check", missing},
		{"workload", "describe", missing},
		{"workload", "convert", missing},
		{"workload", "gen", "general", "-o", filepath.Join(missing, "log.swf")},
		{"policy", "check", missing + ".star"},
		{"ptx", "check", missing},
		{"check", missing},
		{"submit", missing},
		{"node", "--config", missing},
		{"head", "--config", missing},
		{"restore", missing},
	} {
		var told bytes.Buffer
		status := run(args, strings.NewReader(""), &told, &told, func(string) string { return "" })
		text := told.String()
		if status != cli.ExitFailed || !strings.Contains(text, missing) || strings.Contains(text, "open "+missing) || strings.Contains(text, ".partial") {
			t.Errorf("muster %s: status %d: %s", strings.Join(args, " "), status, text)
		}
	}
}

func TestPlainly(t *testing.T) {
	_, opened := os.Open("/none/file")
	renamed := os.Rename("/none/file", "/none/other")
	_, started := exec.LookPath("./none")
	_, searched := exec.LookPath("no-such-program")
	for want, err := range map[string]error{
		"something else":                                      errors.New("something else"),
		"/none/file: no such file or directory":               opened,
		"reading: /none/file: no such file or directory: do":  fmt.Errorf("reading: %w: do", opened),
		"/none/other: no such file or directory":              renamed,
		"./none: no such file or directory":                   started,
		"no-such-program: executable file not found in $PATH": searched,
	} {
		if got := cli.Plainly(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
