package emulate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/slurm/fetch"
	"muster/slurm/release"
)

// madeUp is a cluster of which only the folder is there.
func madeUp(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{Folder: t.TempDir(), Nodes: []string{"n1", "n2"}, Tree: &fetch.Tree{Release: release.Newest(), Version: "99.1"}, User: "alice"}
	if err := os.Mkdir(c.Bin(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Bin(), "sinfo"), []byte("#!/bin/sh\necho $0 $SLURM_CONF $MORE; exit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

// A command of the cluster comes before one of the machine, has the cluster's variables and more, and
// its status is what a shell would say.
func TestRunBeside(t *testing.T) {
	c := madeUp(t)
	for _, step := range []struct {
		args   []string
		status int
		out    string
	}{
		{[]string{"sinfo"}, 3, filepath.Join(c.Bin(), "sinfo") + " " + c.Conf() + " x\n"},
		{[]string{"sh", "-c", "sinfo; cat"}, 0, c.Conf() + " x\ninput"},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM), ""},
	} {
		var out, wrong bytes.Buffer
		status, err := c.RunBeside(step.args, Surroundings{Environment: []string{"MORE=x"}, Stdin: strings.NewReader("input"), Stdout: &out, Stderr: &wrong})
		if err != nil || status != step.status || !strings.HasSuffix(out.String(), step.out) {
			t.Errorf("%q: %d, %v, %q%s", step.args, status, err, out.String(), wrong.String())
		}
	}
	if _, err := c.RunBeside([]string{"no-such-command"}, Surroundings{}); err == nil {
		t.Error("a command that is not there ran")
	}
}

func TestWriteUse(t *testing.T) {
	c := madeUp(t)
	var b strings.Builder
	if err := c.WriteUse(&b, Options{GPUs: 2, GPUNodes: 1}, []string{"MORE=x"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Slurm 99.1 with 2 nodes, n1 to n2, the first 1 with 2 GPUs each\n", "export PATH=" + c.Bin() + ":\"$PATH\"\n", "export SLURM_CONF=" + c.Conf() + "\n", "export MORE=x\n", "# logs: " + c.Folder + "/log\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) { // a shell reads it
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "export ") {
			t.Errorf("%q", line)
		}
	}
}

// A folder that is being made is not swept away by another start, nor kept from being locked.
func TestSweepBesideAStart(t *testing.T) {
	parent, ended, swept := t.TempDir(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		for {
			select {
			case <-ended:
				return
			default:
				sweep(parent)
			}
		}
	}()
	for range 2000 {
		folder, err := os.MkdirTemp(parent, folderPrefix)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := lockFolder(folder)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(folder, lockName)); err != nil {
			t.Fatal(err)
		}
		lock.Close() // from here on sweep removes it
	}
	close(ended)
	<-swept
	sweep(parent)
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("%d folders of clusters that have ended are left, %v", len(left), err)
	}
}
