package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
	"muster/wire/status"
)

// again starts the node that follows another, at the same socket.
func (n *theNode) again(args ...string) *theNode {
	n.Helper()
	next := n.start(append(args, "--socket", n.socket)...)
	next.socket = n.socket
	return next
}

// back waits until all workers of an earlier daemon have reconnected.
func (n *theNode) back(programs []*program) map[int32]status.Client {
	n.Helper()
	clients := map[int32]status.Client{}
	n.eventually("all workers are back", func() bool {
		clear(clients)
		for _, c := range n.status().Clients {
			if c.Away {
				return false
			}
			clients[c.Pid] = c
		}
		return true
	})
	for _, p := range programs {
		if _, ok := clients[int32(p.cmd.Process.Pid)]; !ok {
			n.Fatalf("%s is not there: %s", p.name, p.output)
		}
	}
	return clients
}

// compute starts programs that do not fit on the device together, and that compute until their
// standard input is closed.
func (n *theNode) compute(count int) []*program {
	n.Helper()
	var programs []*program
	for i := range count {
		programs = append(programs, n.launch(made("small"), "until", fmt.Sprint(300_000*(i+1)), "3"))
	}
	n.eventually("all programs compute", func() bool {
		busy := 0
		for _, c := range n.status().Clients {
			if c.Kernels > 3 {
				busy++
			}
		}
		return busy == len(programs)
	})
	return programs
}

// more waits until the programs have run the given number of further kernels.
func (n *theNode) more(kernels uint64) {
	n.Helper()
	sum := func() (all uint64) {
		for _, c := range n.status().Clients {
			all += c.Kernels
		}
		return all
	}
	before := sum()
	n.eventually("programs go on", func() bool { return sum() >= before+kernels })
}

// The daemon is killed repeatedly, at random moments, under programs that swap. They end with the
// right results, and the last daemon has the same records of them as the first.
func TestDaemonKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	const seed = 1
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	state, swap := filepath.Join(t.TempDir(), "state"), t.TempDir()
	args := []string{"--devices", "soft:memory=8M,workers=1", "--vgpus", "2", "--max-idle", "1ms",
		"--orphan-grace", "1m", "--state", state, "--swap-dir", swap}
	n := w.start(args...)
	programs := n.compute(4)
	first := n.back(programs)
	for range need.Rounds(5, 50) {
		n.more(uint64(random.IntN(40)))
		n.kill()
		n = n.again(args...)
		if random.IntN(3) == 0 {
			continue // before all of them have reconnected
		}
		n.back(programs)
	}
	last := n.back(programs)
	n.more(20)
	for pid, was := range first {
		if is := last[pid]; is.ID != was.ID || is.Kernels < was.Kernels || is.Waits < was.Waits || is.CopiedIn < was.CopiedIn || is.BusyTime < was.BusyTime || is.Since <= was.Since {
			t.Errorf("it was %+v\nand is %+v", was, is)
		}
	}
	if n.total("muster_swaps_total") == 0 {
		t.Error("nobody has swapped")
	}
	for _, p := range programs {
		if got := p.right(); got != "right\n" {
			t.Errorf("%s said %q", p.name, got)
		}
	}
	n.idle()
	n.finish()
	for _, dir := range []string{state, swap} {
		if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
			t.Errorf("files were left: %v", left)
		}
	}
}

// A node is upgraded under load: it hands over, programs that start in between wait, and running
// ones do not notice. The state is in its default place.
func TestHandoverUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []string{"--devices", "soft:memory=8M,workers=1", "--vgpus", "2", "--max-idle", "1ms", "--orphan-grace", "1m"}
	n := w.start(args...)
	programs := n.compute(3)
	later := n.launch(made("small"), "later")
	later.says("waiting")
	first := n.back(programs)
	for range 3 {
		if got := w.muster("node", "stop", "--handover", "--socket", n.socket); got != "" {
			t.Errorf("muster node stop says %q", got)
		}
		<-n.exited
		n.killed = true
		if code := n.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the daemon ended with %d", code)
		}
		byRun := n.launch(made("small"), "sums")
		byRun.says("is being started again: waiting for it")
		direct := w.executeWith([]string{"MUSTER_SOCKET=" + n.socket, "LD_LIBRARY_PATH=" + made("lib")}, made("small"), "sums")
		n = n.again(args...)
		last := n.back(programs)
		for pid, was := range first {
			if is := last[pid]; is.ID != was.ID || is.Kernels < was.Kernels {
				t.Errorf("it was %+v\nand is %+v", was, is)
			}
		}
		if got := direct.right(); got != "right\n" {
			t.Errorf("a program that came in between says %q", got)
		}
		if got := byRun.right(); !strings.HasSuffix(got, "\nright\n") {
			t.Errorf("a program that came in between says %q", got)
		}
		n.more(10)
	}
	for _, p := range append(programs, later) {
		p.right()
	}
	n.idle()
	n.finish()
	if _, err := os.Stat("/run/muster/" + n.socket); err == nil {
		t.Error("the state is left")
	}
}

// The library finds the state of a node by its socket, whatever that is called.
func TestProgramsWaitAtAnySocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []string{"--devices", "soft:memory=8M", "--orphan-grace", "1m", "--socket"}
	for _, socket := range []string{filepath.Join(w.temp, "a b.c%+\u00f6"), fmt.Sprintf("@muster stack/%d..\u00f6", os.Getpid())} {
		n := w.start(append(args, socket)...)
		n.socket = socket
		n.kill()
		p := w.executeWith([]string{"MUSTER_SOCKET=" + socket, "LD_LIBRARY_PATH=" + made("lib")}, made("small"), "sums")
		next := n.again(args[:4]...)
		p.right()
		next.finish()
		// A node that was stopped does not come back, so programs do not wait for it.
		late := w.executeWith([]string{"MUSTER_SOCKET=" + socket, "LD_LIBRARY_PATH=" + made("lib")}, made("small"), "sums")
		if code := late.wait(); code != 1 || !strings.Contains(late.output.String(), "muster: no daemon at") {
			t.Errorf("it ended with %d: %s", code, late.output)
		}
	}
}

// Programs that use the node from another machine end with its daemon, and are told.
func TestRemoteProgramsEndWithTheDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	args := []string{"--devices", "soft:memory=32M", "--listen", "127.0.0.1:0", "--tls-dir", certs, "--orphan-grace", "1m"}
	for _, how := range []string{"handover", "kill"} {
		n := w.start(args...)
		here := n.compute(1)
		p := w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, made("small"), "endless", "100000")
		n.eventually("it computes", func() bool {
			clients := n.status().Clients
			return len(clients) == 2 && clients[1].Kernels > 3
		})
		want := "; what the program had there is lost: "
		if how == "handover" {
			w.muster("node", "stop", "--handover", "--socket", n.socket)
			<-n.exited
			n.killed = true
			want = "muster: the node is shutting down"
		} else {
			n.kill()
		}
		if code := p.wait(); code != 1 || !strings.Contains(p.output.String(), want) || strings.Count(p.output.String(), "muster: ") != 1 {
			t.Errorf("%s: the remote program ended with %d: %s", how, code, p.output)
		}
		n = n.again(args...)
		n.back(here)
		n.eventually("only the program of this machine is left", func() bool { return len(n.status().Clients) == 1 })
		here[0].right()
		n.finish()
	}
}

// A user's worker reconnects: to a node of root, as that user, with a number that no other client
// gets meanwhile, and to a node of the user, whose state is in the user's default place.
func TestWorkersOfUsersComeBack(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can be another user")
	}
	const uid = 4321
	user := &syscall.Credential{Uid: uid, Gid: uid}
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, c := range []struct {
		name  string
		owner *syscall.Credential
		state string
	}{{"of root's", nil, "/run/muster"}, {"of the user's own", user, fmt.Sprint("/tmp/muster-", uid)}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for _, dir := range []string{built.dir, filepath.Join(built.dir, "lib")} {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"--devices", "soft:memory=16M,workers=1", "--orphan-grace", "1m"}
			n := w.startAs(c.owner, args...)
			state := filepath.Join(c.state, n.socket)
			cmd := exec.Command(made("small"), "until", "100000", "3")
			cmd.Dir = "/"
			cmd.Env = w.environment("MUSTER_SOCKET="+n.socket, "LD_LIBRARY_PATH="+made("lib"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			n.eventually("it computes", func() bool {
				clients := n.status().Clients
				return len(clients) == 1 && clients[0].Kernels > 3
			})
			before := lentNumber(t, state)
			n.kill()
			next := w.startAs(c.owner, append(args, "--socket", n.socket)...)
			next.socket = n.socket
			clients := next.back(nil)
			if len(clients) != 1 || clients[int32(cmd.Process.Pid)].User != fmt.Sprint(uid) {
				t.Errorf("clients %+v", clients)
			}
			if now := lentNumber(t, state); now != before || (now == 0) != (c.owner != nil) {
				t.Errorf("the worker's number was %d, and is %d", before, now)
			}
			next.more(10)
			stdin.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("the program ended with %v", err)
			}
			next.idle()
			next.finish()
			if _, err := os.Stat(state); err == nil {
				t.Error("the state is left")
			}
		})
	}
}

// lentNumber is the user number that the first client's worker has for itself.
func lentNumber(t *testing.T, state string) uint32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(state, "client-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Worker struct {
			UID uint32 `json:"uid"`
		} `json:"worker"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f.Worker.UID
}

// A program whose worker was killed before the program sent anything continues in another worker,
// and notices when the whole node is killed: being told twice about its memory must not hide the
// end of its connection.
func TestWorkerKilledBeforeItsClientIsUsed(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		w := newWorld(t)
		state := filepath.Join(t.TempDir(), "state")
		n := w.start("--devices", "soft:memory=16M,workers=1", "--state", state, "--orphan-grace", "1m")
		p := n.launch(made("small"), "attached")
		p.says("attached")
		serving := func() int {
			var f struct {
				Worker struct {
					Pid int `json:"pid"`
				} `json:"worker"`
			}
			text, err := os.ReadFile(filepath.Join(state, "client-1.json"))
			if err == nil {
				err = json.Unmarshal(text, &f)
			}
			if err != nil {
				t.Fatal(err)
			}
			return f.Worker.Pid
		}
		first := serving()
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.eventually("it has another worker", func() bool { return serving() != first })
		if !all {
			p.right()
			n.finish()
			continue
		}
		second := serving()
		n.kill()
		if err := syscall.Kill(second, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have ended with the daemon
			t.Fatal(err)
		}
		// The second worker may not have had its connection yet, and says so itself.
		told := func(text string) bool { return strings.Contains(p.output.String(), text) }
		if code := p.wait(); code == 0 || !told("the connection to the daemon is lost") && !told("the node daemon ended") {
			t.Errorf("it ended with %d: %s", code, p.output)
		}
	}
}
