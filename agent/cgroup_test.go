package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	wire "muster/wire/agent"
)

const groupVariable = "AGENT_TEST_CGROUP"

// TestCgroups runs the tests that need control groups of version 2 where those can be
// seen, which need not be everywhere on the machine.
func TestCgroups(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root has control groups for sure")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestInCgroups$", "-test.v")
	cmd.Env = append(os.Environ(), groupVariable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		need.Missing(t, need.Mount, "this root may not have mounts of its own")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInCgroups(t *testing.T) {
	at := os.Getenv(groupVariable)
	if at == "" {
		t.Skip("TestCgroups runs it")
	}
	if err := syscall.Mount("none", at, "cgroup2", 0, ""); err != nil {
		need.Missing(t, need.Cgroups, "no control groups of version 2: ", err)
	}
	base := filepath.Join(at, "muster-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(base, 0o755); err != nil {
		need.Missing(t, need.Cgroups, err)
	}
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(base, "muster-tasks"))
		_ = os.Remove(filepath.Join(base, "muster-agent"))
		if err := os.Remove(base); err != nil {
			t.Error(err)
		}
	})
	if _, err := findCgroup(base); err != nil {
		need.Missing(t, need.Cgroups, err)
	}
	t.Run("life", func(t *testing.T) { testGroupLife(t, base) })
	t.Run("two agents", func(t *testing.T) { testGroupOfTwo(t, base) })
	t.Run("supervisor killed", func(t *testing.T) { testGroupOrphans(t, base) })
}

func groupHead(t *testing.T, base string) *head {
	h := newHead(t)
	h.cgroup = base
	h.run()
	return h
}

func testGroupLife(t *testing.T, base string) {
	h := groupHead(t, base)
	s := h.job(1, "sh", "-c", `echo $$ > pid; i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; done`)
	h.send(s)
	pid := h.awaitFile(s, "pid")
	groups, err := filepath.Glob(filepath.Join(base, "muster-tasks", "1.1.0-*"))
	if err != nil || len(groups) != 1 {
		t.Fatalf("%v %v", groups, err)
	}
	group := &cgroup{dir: groups[0]}
	if members, err := os.ReadFile(filepath.Join(group.dir, "cgroup.procs")); err != nil || len(members) == 0 {
		t.Fatalf("%s is not in its control group: %q %v", pid, members, err)
	}
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Suspended)
	if group.number("cgroup.events", "frozen") == 0 {
		t.Error("it is said to be suspended, and goes on")
	}
	h.send(wire.Resume{Task: s.Task})
	h.await(s.Task, wire.Running)
	before := h.awaitFile(s, "count")
	for h.awaitFile(s, "count") == before {
		time.Sleep(time.Millisecond)
	}
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Suspended)
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped, Grace: time.Minute})
	if end := h.await(s.Task, wire.Ended); end.Signal != int(syscall.SIGTERM) || end.CPU == 0 {
		t.Errorf("%+v", *end)
	}
	if _, err := os.Stat(group.dir); err == nil {
		t.Error("the control group is left")
	}
}

// Two agents in one group, as of two clusters, or of a node whose spool was wiped, have tasks
// of the same name. When one ends, the other goes on.
func testGroupOfTwo(t *testing.T, base string) {
	one, other := groupHead(t, base), groupHead(t, base)
	long := other.job(1, "sh", "-c", `echo begun > begun; read -r line < next; exit 5`)
	if err := syscall.Mkfifo(filepath.Join(long.Spec.Directory, "next"), 0o666); err != nil {
		t.Fatal(err)
	}
	other.send(long)
	other.awaitFile(long, "begun")
	short := one.job(1, "true")
	one.send(short)
	one.await(short.Task, wire.Ended)
	next, err := os.OpenFile(filepath.Join(long.Spec.Directory, "next"), os.O_RDWR, 0) // it does not wait for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if _, err := next.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if end := other.await(long.Task, wire.Ended); end.Cause != wire.Exited || end.Exit != 5 {
		t.Errorf("%+v", *end)
	}
}

// Even what has cleared its environment the moment before does not outlive its
// supervisor.
func testGroupOrphans(t *testing.T, base string) {
	h := groupHead(t, base)
	s := h.job(1, "sh", "-c", `(setsid env -i /bin/sh -c 'trap "" TERM; echo $$ > bare; sleep 1000; :' & ); sleep 1000; :`)
	h.send(s)
	bare := h.awaitFile(s, "bare")
	killSupervisor(t, filepath.Join(h.spool, tasksName, s.Task.String()))
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.NodeLost {
		t.Errorf("%+v", *end)
	}
	h.isGone(bare)
}
