package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/need"
)

// Each command that the help lists has a page, which says what the help says, and which man reads
// without a complaint.
func TestManPages(t *testing.T) {
	folder := t.TempDir()
	root := newRoot(io.Discard, io.Discard, func(string) string { return "" })
	root.SetArgs([]string{"man", folder})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"muster", "muster-run", "muster-node", "muster-slurm-setup"} {
		if _, err := os.Stat(filepath.Join(folder, name+".1")); err != nil {
			t.Error(err)
		}
	}
	if hidden, _ := filepath.Glob(filepath.Join(folder, "muster-worker*")); len(hidden) > 0 {
		t.Errorf("pages of what is not for people: %q", hidden)
	}
	pages, _ := filepath.Glob(filepath.Join(folder, "*.1"))
	if len(pages) < 50 {
		t.Errorf("only %d pages", len(pages))
	}
	text, err := os.ReadFile(filepath.Join(folder, "muster-run.1"))
	if err != nil || !strings.Contains(string(text), `\fB\-\-node`) || !strings.Contains(string(text), ".SH SYNOPSIS\n.nf\nmuster run") {
		t.Errorf("the page of run is %s, %v", text, err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		need.Missing(t, need.Tools, "groff is not here to look at the pages")
	}
	out, err := exec.Command(groff, append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

func TestTroff(t *testing.T) {
	for text, want := range map[string]string{
		"a-b":          `a\-b`,
		`C:\x`:         `C:\ex`,
		".SH evil":     `\&.SH evil`,
		"ok\n'quoted'": "ok\n\\&'quoted'",
	} {
		if got := troff(text); got != want {
			t.Errorf("troff(%q) = %q, not %q", text, got, want)
		}
	}
}
