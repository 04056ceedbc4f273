package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

// ipcProgram is two programs that share memory and events, built once.
func ipcProgram(t *testing.T) string {
	t.Helper()
	if err := compile("ipc"); err != nil {
		t.Fatal(err)
	}
	return made("ipc")
}

// Two programs share memory, large and small, and that of cuMemCreate; each waits for events that
// the other has recorded.
func TestProgramsShareMemoryAndEvents(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M", "--swap-dir", t.TempDir())
	program := ipcProgram(t)
	for _, what := range []string{"memory", "events", "descriptors", "pools"} {
		t.Run(what, func(t *testing.T) {
			if got := n.launch(program, what).right(); !strings.HasSuffix(got, "right\n") {
				t.Errorf("it said %q", got)
			}
		})
	}
	n.idle()
}

// The programs do not fit on the device together and take turns. Both see the same shared memory.
func TestSharedMemoryOfProgramsThatTakeTurns(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=8M", "--swap-dir", t.TempDir())
	for _, what := range []string{"memory", "events"} {
		n.launchWith([]string{"--socket", n.socket, "--memory", "8M"}, ipcProgram(t), what).right()
	}
	n.idle()
}

// A program of another user that knows the handle gets no access.
func TestSharedMemoryIsNotForOtherUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can be two users")
	}
	n := newWorld(t).start("--devices", "soft:memory=64M")
	n.launch(ipcProgram(t), "stranger").right()
	n.idle()
}

// The program that shares its memory is killed. The other continues to use it, and does not wait
// for events of the dead one.
func TestSharedMemoryOutlivesItsProgram(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M")
	p := n.launch(ipcProgram(t), "killed")
	p.says("right\n")
	if code := p.wait(); code != 128+int(syscall.SIGKILL) && code != -1 {
		t.Errorf("it ended with %d: %s", code, p.output)
	}
	n.idle()
}

// Programs that share memory move to other devices, but cannot be saved. When the worker of one
// dies, that program ends, because the node cannot undo what the other has already seen; the other
// keeps its memory.
func TestSharedMemoryMovesAndIsNotRebuilt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(ipcProgram(t), "rounds")
	p.says("begun")
	for round := 1; round <= 4; round++ {
		fmt.Fprintln(p.stdin)
		p.says(fmt.Sprintf("round %d\n", round))
		for _, c := range n.status().Clients {
			for _, device := range []string{"a", "b"} { // each is on one of them
				n.tries("move", fmt.Sprint(c.ID), device, "--socket", n.socket)
			}
		}
	}
	if said, code := n.tries("checkpoint", "--socket", n.socket, fmt.Sprint(n.status().Clients[0].ID), filepath.Join(t.TempDir(), "saved")); code == 0 || !strings.Contains(said, "shares memory with other programs") {
		t.Errorf("a checkpoint was taken: %s", said)
	}
	fmt.Fprintln(p.stdin)
	p.says("round 5\n")
	for pid := range n.workers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	fmt.Fprintln(p.stdin)
	if code := p.wait(); code == 0 {
		t.Errorf("it went on: %s", p.output)
	}
	n.idle()
}

// Programs of another machine cannot share memory, and are told so.
func TestMemoryIsNotSharedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	p := w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, ipcProgram(t), "memory")
	if code := p.wait(); code != 1 || !strings.Contains(p.output.String(), "CUDA_ERROR_NOT_SUPPORTED") || !strings.Contains(p.output.String(), "programs of other machines share no memory") {
		t.Errorf("it ended with %d: %s", code, p.output)
	}
	n.idle()
}

// Another daemon takes over while programs share memory, and they continue.
func TestSharedMemoryOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []string{"--devices", "soft:memory=64M", "--orphan-grace", "1m", "--state", filepath.Join(t.TempDir(), "state")}
	n := w.start(args...)
	p := n.launch(ipcProgram(t), "rounds")
	p.says("begun")
	fmt.Fprintln(p.stdin)
	p.says("round 1\n")
	n.kill()
	n = n.again(args...)
	for round := 2; round <= 4; round++ {
		fmt.Fprintln(p.stdin)
		p.says(fmt.Sprintf("round %d\n", round))
	}
	p.stdin.Close()
	p.right()
	n.idle()
}
