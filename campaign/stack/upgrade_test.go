package stack

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

// previous is a folder with the muster of the commit before this one, and this one's libraries: MUSTER_PREVIOUS is
// a muster that was made already, and MUSTER_PREVIOUS_COMMIT another commit.
func previous(t *testing.T) string {
	t.Helper()
	dir, sources := t.TempDir(), t.TempDir()
	binary := os.Getenv("MUSTER_PREVIOUS")
	if binary == "" {
		commit := os.Getenv("MUSTER_PREVIOUS_COMMIT")
		if commit == "" {
			commit = "HEAD~1"
		}
		unpack := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive "$0" >"$1/all.tar" && tar xf "$1/all.tar" -C "$1"`, commit, sources)
		if out, err := unpack.CombinedOutput(); err != nil {
			need.Missing(t, need.Tools, "the commit before this one is not here (is it a whole clone?):", string(out))
		}
		binary = filepath.Join(sources, "muster")
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/muster")
		build.Dir = sources
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", commit, err, out)
		}
	}
	for _, argv := range [][]string{{"cp", binary, filepath.Join(dir, "muster")}, {"cp", "-r", made("lib"), dir}} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return filepath.Join(dir, "muster")
}

// Head and nodes of the version before this one are upgraded one after the other. Jobs run on meanwhile, one of
// them with a program that has a GPU; one that waits starts afterwards, and none runs twice.
func TestUpgrade(t *testing.T) {
	if os.Getenv("MUSTER_SOAK") == "" {
		need.Missing(t, need.Soak, "the version before is built: set MUSTER_SOAK")
	}
	old := previous(t)
	if err := buildDevices(); err != nil {
		t.Fatal(err)
	}
	h := newHosts(t)
	h.must(append(h.up, "--binary", old, "127.0.0.2", "127.0.0.3")...)
	if err := os.Chmod(h.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	in, gate, ran := filepath.Join(h.dir, "in"), filepath.Join(h.dir, "gate"), filepath.Join(h.dir, "ran")
	if err := syscall.Mkfifo(in, 0o600); err != nil {
		t.Fatal(err)
	}
	says, err := os.OpenFile(in, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer says.Close()
	submit := func(name string, options []string, script string) {
		h.must(append(append([]string{"submit", "-n1", "-t60", "-D", h.dir, "-o", name + ".out"}, options...), "--wrap", "echo "+name+" >>"+ran+"; "+script)...)
	}
	submit("gpu", []string{"--gres=gpu:1", "-w", "127.0.0.3"}, made("devices")+" <"+in)
	submit("plain", []string{"-w", "127.0.0.2"}, "until [ -e "+gate+" ]; do sleep 0.1; done")
	submit("waits", []string{"-d", "afterok:2"}, "true")
	wrote := func(file, text string) bool {
		out, _ := os.ReadFile(filepath.Join(h.dir, file))
		return strings.Contains(string(out), text)
	}
	h.eventually("both jobs have begun", func() bool { return wrote("gpu.out", "init 0\n") && wrote("ran", "plain\n") })
	tell := func(what, want string) {
		if _, err := io.WriteString(says, what); err != nil {
			t.Fatal(err)
		}
		h.eventually("the program says "+want, func() bool { return wrote("gpu.out", want) })
	}
	tell("use 0\nadd 0 5\n", "add 0: 0\n")
	if out := h.must(append(h.up, "--binary", made("muster"))...); strings.Count(out, "stopped") != 3 || strings.Count(out, "started") != 3 {
		t.Errorf("the upgrade says\n%s", out)
	}
	if out := h.must("queue", "-h", "-t", "R"); strings.Count(out, "\n") != 2 {
		t.Errorf("after the upgrade there run\n%s", out)
	}
	tell("add 0 6\nshow 0\n", "value 11 show 0: 0\n") // what it had on its GPU is there
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	says.Close() // nobody writes any more: the program's input ends
	h.eventually("all jobs have ended", func() bool { out, err := h.muster("queue", "-h", "-t", "PD,R"); return err == nil && out == "" })
	if out := h.must("history", "--json"); strings.Count(out, `"COMPLETED"`) != 3 {
		t.Errorf("they ended so:\n%s", out)
	}
	for _, name := range []string{"gpu", "plain", "waits"} {
		if text, _ := os.ReadFile(ran); strings.Count(string(text), name+"\n") != 1 {
			t.Errorf("%s did not run once:\n%s", name, text)
		}
	}
}
