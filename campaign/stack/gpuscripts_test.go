package stack

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/need"
)

// Tests of the scripts for machines with a GPU, with small shell scripts in place of what they run:
// their messages and exit codes if something is missing or fails.

// pretend makes a repository with a copy of a script and the given files, all executable, and
// returns the script's output and exit status. The script finds only the commands that it needs: no
// compiler, no GPU.
func pretend(t *testing.T, script string, files map[string]string, environment ...string) (string, int) {
	t.Helper()
	root := t.TempDir()
	text, err := os.ReadFile("../../scripts/" + script)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put("scripts/"+script, string(text))
	for name, text := range files {
		put(name, "#!/bin/sh\n"+text)
	}
	for _, name := range []string{"awk", "basename", "bash", "cat", "dirname", "env", "grep", "head", "mkdir", "mktemp", "rm", "sed", "sh", "sleep", "tail", "tee", "timeout"} {
		path, err := exec.LookPath(name)
		if err != nil {
			need.Missing(t, need.Tools, "there is no "+name)
		}
		if err := os.MkdirAll(filepath.Join(root, "path"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(root, "path", name)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), filepath.Join(root, "path/bash"), filepath.Join(root, "scripts", script))
	c.Env = append([]string{"PATH=" + filepath.Join(root, "path")}, environment...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), c.ProcessState.ExitCode()
}

// A muster whose nodes end at once are none, and one whose nodes wait to be ended.
const (
	runsPrograms  = `case $1 in run) while [ "$1" != -- ]; do shift; done; shift; exec "$@";; devices) exit 0;; cert) exit 0;; delay) exec sleep 60;;`
	noNode        = runsPrograms + " node) echo no such GPU >&2; exit 1;; esac\n"
	nodesThatWait = runsPrograms + ` node) trap 'exit 0' TERM; while :; do sleep 0.01; done;; esac` + "\n"
)

func TestGPUBench(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	const bench = `echo '{"name": "launch", "unit": "us", "median": 1.5, "least": 1, "most": 2}'` + "\n"
	for _, c := range []struct {
		name, bench, muster string
		status              int
		says                string
	}{
		{"everything", bench, nodesThatWait, 0, "launch                                                   us           1.5        1.5        1.5        1.5        1.5        1.5        1.5\n"},
		{"no driver", "echo no libcuda.so.1 >&2; exit 1\n", nodesThatWait, 1, "no libcuda.so.1\nthe driver itself fails, so there is nothing to compare with"},
		{"no node", bench, strings.Replace(noNode, "devices) exit 0", "devices) exit 1", 1), 1, "no node: no such GPU\n"},
		{"no node, dashes", bench, strings.Replace(noNode, "devices) exit 0", "devices) exit 1", 1), 1, "launch                                                   us           1.5          -          -          -          -          -          -\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := pretend(t, "gpu-bench", map[string]string{"bin/bench/node": c.bench, "bin/bench/sharing": "exit 0\n", "bin/bench/crowd": "exit 0\n", "bin/muster": c.muster})
			if status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("status %d, want %d, and %q in\n%s", status, c.status, c.says, out)
			}
		})
	}
}

func TestGPUCheck(t *testing.T) {
	t.Parallel()
	t.Run("no GPU", func(t *testing.T) {
		out, status := pretend(t, "gpu-check", map[string]string{"device/cuda/data": "", "bin/muster": noNode,
			"bin/cuda.test": "cat data >/dev/null || exit 1\necho '    x.go:1: this needs an NVIDIA GPU: no driver'; echo '--- SKIP: TestConformance (0.00s)'\n"})
		want := "no nvidia-smi here: is there a GPU at all?\ndevice contract: skipped: no driver\nthere is no GPU here that can be used: nothing else is tried\nsomething failed; "
		if status != 1 || !strings.HasPrefix(out, want) {
			t.Errorf("status %d, and\n%s", status, out)
		}
	})
	t.Run("no GPU, and no contract", func(t *testing.T) {
		if _, err := os.Stat("/dev/nvidiactl"); err == nil {
			t.Skip("there is a GPU here")
		}
		out, status := pretend(t, "gpu-check", map[string]string{"bin/muster": noNode}, "GPU_CHECK_ONLY=driver")
		if status != 1 || !strings.HasPrefix(out, "there is no GPU here that can be used, and nothing is tried") {
			t.Errorf("status %d, and\n%s", status, out)
		}
	})
	// A test that failed long before the end is shown, and what needs no nvcc is tried without.
	t.Run("no nvcc", func(t *testing.T) {
		out, status := pretend(t, "gpu-check", map[string]string{"device/cuda/data": "", "bin/muster": noNode,
			"bin/cuda.test": "echo '    x.go:2: it is 3, not 4'; echo '--- FAIL: TestCopies (0.00s)'; for i in 1 2 3 4 5 6 7 8 9 10; do echo; echo; echo; done; exit 1\n"})
		for _, want := range []string{"x.go:2: it is 3, not 4\n--- FAIL: TestCopies", "device contract: failed: exit 1\n", "no nvcc: ", "no bin/examples (make examples): sharing is not checked\n", "\nsomething failed; "} {
			if status != 1 || !strings.Contains(out, want) {
				t.Errorf("status %d, want 1, and %q in\n%s", status, want, out)
			}
		}
	})
}
