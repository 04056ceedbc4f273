package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	wire "muster/wire/agent"
)

// gate is a job that notes each of its starts and goes on until it is let go.
func (h *head) gate(number uint64) wire.Start {
	return h.job(number, "sh", "-c", `echo $$ >> starts; while ! [ -e go ]; do sleep 0.01; done; exit 5`)
}

func (h *head) letGo(s wire.Start) {
	if err := os.WriteFile(filepath.Join(s.Spec.Directory, "go"), nil, 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *head) starts(s wire.Start) int {
	text, _ := os.ReadFile(filepath.Join(s.Spec.Directory, "starts"))
	return strings.Count(string(text), "\n")
}

// spawnWith starts an agent whose supervisors are started by a shell.
func (h *head) spawnWith(script string) {
	h.t.Helper()
	h.t.Setenv("AGENT_TEST_SUPERVISOR", script)
	h.spawn()
	h.t.Setenv("AGENT_TEST_SUPERVISOR", "")
}

// Whenever an agent is killed, its task runs once, and the head hears how it ended.
func TestAgentKilled(t *testing.T) {
	for _, c := range []struct {
		name string
		// What the first agent does when it starts a supervisor, and when it is killed
		// otherwise.
		supervisor string
		kill       func(h *head, s wire.Start)
	}{
		{"before the spool", "", func(h *head, s wire.Start) { h.kill() }},
		{"after the spool", "kill -9 $PPID", nil},
		{"when the supervisor starts", `kill -9 $PPID; exec "$@"`, nil},
		{"while it runs", "", func(h *head, s wire.Start) {
			h.send(s)
			h.awaitFile(s, "starts")
			h.kill()
		}},
		{"before it ends", "", func(h *head, s wire.Start) {
			h.send(s)
			pid := h.awaitFile(s, "starts")
			h.kill()
			h.letGo(s)
			h.isGone(pid)
		}},
		{"after the end", "", func(h *head, s wire.Start) {
			h.send(s)
			h.letGo(s)
			h.await(s.Task, wire.Ended)
			h.kill()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHead(t)
			h.spawnWith(c.supervisor)
			s := h.gate(1)
			if c.kill != nil {
				c.kill(h, s)
			} else {
				h.send(s)
				_ = h.process.Wait()
			}
			h.spawn()
			h.send(s)
			h.letGo(s)
			if end := h.await(s.Task, wire.Ended); end.Cause != wire.Exited || end.Exit != 5 {
				t.Errorf("%+v", *end)
			}
			if n := h.starts(s); n != 1 {
				t.Errorf("it was started %d times", n)
			}
			h.kill()
			h.spawn() // it is told until the head is done
			h.await(s.Task, wire.Ended)
			h.send(wire.Done{Task: s.Task})
			h.send(s)
			if end := h.await(s.Task, wire.Ended); end.Cause != wire.NotBegun || h.starts(s) != 1 {
				t.Errorf("%+v", *end)
			}
		})
	}
}

// An agent that takes over from one that is still there waits for it.
func TestTwoAgents(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "spool"), slog.New(slog.DiscardHandler)
	first, err := openSpool(t.Context(), dir, log)
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openSpool(late, dir, log); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second := make(chan error, 1)
	go func() {
		s, err := openSpool(t.Context(), dir, log)
		if err == nil {
			s.close()
		}
		second <- err
	}()
	first.close()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// A Stop that an agent took counts for the next one too.
func TestStopIsKept(t *testing.T) {
	h := newHead(t)
	h.spawnWith(`sleep 1000 & echo $! > ` + h.spool + `/sleeper; wait`) // a supervisor that does nothing
	s := h.gate(1)
	h.send(s)
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped, Reason: "enough"})
	h.send(wire.Stop{Task: wire.Task{Job: 2, Attempt: 1}, Cause: wire.Stopped, Reason: "never"})
	h.await(wire.Task{Job: 2, Attempt: 1}, wire.Unknown)
	sleeper := h.awaitPath(h.spool + "/sleeper")
	h.kill()
	h.spawn()
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.Stopped || end.Reason != "enough" {
		t.Errorf("%+v", *end)
	}
	late := h.gate(2)
	h.send(late)
	if end := h.await(late.Task, wire.Ended); end.Cause != wire.Stopped || end.Reason != "never" {
		t.Errorf("%+v", *end)
	}
	if h.starts(s)+h.starts(late) != 0 {
		t.Error("what was stopped has begun")
	}
	if n, err := parsePid([]byte(sleeper)); err == nil {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}

// When a supervisor is killed, all of its task die, and the task is lost.
func TestSupervisorKilled(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", `(setsid sh -c 'trap "" TERM; echo $$ > setsid; sleep 1000; :' &)
(setsid env -i /bin/sh -c 'echo $$ > bare; sleep 1000; :' & )
while ! [ -s setsid -a -s bare ]; do sleep 0.01; done; echo $$ > pid; sleep 1000; :`)
	s.Spec.Memory = 1 << 40
	h.send(s)
	h.awaitFile(s, "pid")
	dir := filepath.Join(h.spool, tasksName, s.Task.String())
	// One that has cleared its environment is known once the supervisor has looked.
	for bare := h.awaitFile(s, "bare"); ; time.Sleep(time.Millisecond) {
		if text, _ := os.ReadFile(filepath.Join(dir, processesName)); strings.Contains("\n"+string(text), "\n"+bare+" ") {
			break
		}
	}
	killSupervisor(t, dir)
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.NodeLost {
		t.Errorf("%+v", *end)
	}
	for _, name := range []string{"pid", "setsid", "bare"} {
		h.isGone(h.awaitFile(s, name))
	}
	// Also if nobody saw it die.
	again := h.job(2, "sh", "-c", `(setsid sh -c 'echo $$ > setsid; sleep 1000; :' &); while ! [ -s setsid ]; do sleep 0.01; done; echo $$ > pid; sleep 1000; :`)
	h.send(again)
	h.awaitFile(again, "pid")
	h.stop()
	killSupervisor(t, filepath.Join(h.spool, tasksName, again.Task.String()))
	h.run()
	if end := h.await(again.Task, wire.Ended); end.Cause != wire.NodeLost {
		t.Errorf("%+v", *end)
	}
	h.isGone(h.awaitFile(again, "setsid"))
}

func killSupervisor(t *testing.T, dir string) {
	t.Helper()
	pid, err := lockHolder(filepath.Join(dir, lockName))
	if err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// A full disk refuses new tasks, and loses no end of those that run.
func TestSpoolFull(t *testing.T) {
	h := newHead(t)
	smallDisk(t, h)
	h.run()
	s := h.gate(1)
	h.send(s)
	h.awaitFile(s, "starts")
	h.await(s.Task, wire.Running)
	fill := func(name string) {
		if err := os.WriteFile(filepath.Join(h.spool, name), make([]byte, 4<<20), 0o600); err == nil {
			t.Fatal("the disk is not full")
		}
	}
	fill("fill")
	refused := h.gate(2)
	h.send(refused)
	if end := h.await(refused.Task, wire.Ended); end.Cause != wire.NotReady || !strings.Contains(end.Reason, "no space left") {
		t.Errorf("%+v", *end)
	}
	h.letGo(s)
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.Exited || end.Exit != 5 {
		t.Errorf("%+v", *end)
	}
	// The head is done with it, but the mark has no room: it must be told again.
	fill("more")
	h.send(wire.Done{Task: s.Task})
	h.send(s)
	if end := h.await(s.Task, wire.Ended); end.Exit != 5 {
		t.Errorf("%+v", *end)
	}
	if err := os.Remove(filepath.Join(h.spool, "fill")); err != nil {
		t.Fatal(err)
	}
	h.send(wire.Done{Task: s.Task})
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Unknown)
}

// The head hears when the disk of the spool is full, before anybody's task fails there, and when it has
// room again. What the daemon serves is in the spool, or it does not serve it: the next agent would know
// nothing of it, and the devices would be lent for ever.
func TestFullSpoolIsTold(t *testing.T) {
	h, d := newHead(t), &daemon{}
	smallDisk(t, h)
	use := func(c *Config) { c.Grants = d }
	h.run(use)
	s := h.job(1, "true")
	s.Grant = testGrant()
	loan := s.Grant.Loan("n1")
	h.send(wire.Lend{Loan: loan})
	if l := h.awaitLent(loan.ID); l.Error != "" {
		t.Error(l)
	}
	filler := filepath.Join(h.spool, "fill")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	if trouble := h.awaitTrouble(); !strings.Contains(trouble, "is full") {
		t.Errorf("%q", trouble)
	}
	other := loan
	other.ID = "2.1.0"
	h.send(wire.Lend{Loan: other})
	if l := h.awaitLent(other.ID); !strings.Contains(l.Error, "no space left") {
		t.Errorf("%+v", l)
	}
	d.awaitLast(t, "revoke 2.1.0")
	h.stop()
	h.run(use)
	d.awaitLast(t, "admit 1.1.0 -1") // the loan from before, for which there is room
	if trouble := h.awaitTrouble(); !strings.Contains(trouble, "is full") {
		t.Errorf("%q", trouble)
	}
	h.send(wire.Lend{Loan: loan})
	if l := h.awaitLent(loan.ID); l.Error != "" {
		t.Error(l)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if trouble := h.awaitTrouble(); trouble != "" {
		t.Errorf("%q", trouble)
	}
	h.send(wire.Lend{Loan: other})
	if l := h.awaitLent(other.ID); l.Error != "" {
		t.Error(l)
	}
}

// awaitTrouble waits until the agent says whether it takes tasks.
func (h *head) awaitTrouble() string {
	h.t.Helper()
	for {
		if i, ok := h.next().(wire.Inventory); ok {
			return i.Trouble
		}
	}
}

// smallDisk has the spool on a disk of its own, of 1 MiB.
func smallDisk(t *testing.T, h *head) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root makes small disks")
	}
	if err := os.Mkdir(h.spool, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", h.spool, "tmpfs", 0, "size=1m"); err != nil {
		need.Missing(t, need.Mount, "no small disk: ", err)
	}
	t.Cleanup(func() {
		h.stop()
		h.endAll()
		if err := syscall.Unmount(h.spool, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// What is damaged in a spool is moved aside, and costs no more than the task it was of.
func TestDamagedSpool(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.gate(1)
	h.send(s)
	h.await(s.Task, wire.Running)
	pid := h.awaitFile(s, "starts")
	h.stop()
	for name, text := range map[string]string{
		"tasks/1.1.0/task": "{}", "tasks/nonsense/x": "", "tasks/2.1.0/task": "", "past/3.1.0": "[", "past/what": "", "loans/xyz": "{}", "tasks/.new-4.1.0/task": "{",
	} {
		path := filepath.Join(h.spool, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.run()
	for _, job := range []uint64{1, 2} {
		if end := h.await(wire.Task{Job: job, Attempt: 1}, wire.Ended); end.Cause != wire.NodeLost {
			t.Errorf("%+v", *end)
		}
	}
	h.isGone(pid)
	h.send(s)
	h.await(s.Task, wire.Ended)
	over := h.gate(3)
	h.send(over)
	h.await(over.Task, wire.Ended)
	if h.starts(s) != 1 || h.starts(over) != 0 {
		t.Error("a task whose folder was damaged has begun again")
	}
	if entries, err := os.ReadDir(filepath.Join(h.spool, damagedName)); err != nil || len(entries) != 5 {
		t.Errorf("%v %v", entries, err)
	}
	fresh := h.gate(10)
	h.send(fresh)
	h.letGo(fresh)
	h.await(fresh.Task, wire.Ended)
}

// What an agent leaves that is killed while it forgets a task, or writes a file, is gone when the next
// one has started; the scripts of tasks that it still has are not.
func TestSpoolIsSwept(t *testing.T) {
	dir := t.TempDir()
	s, err := openSpool(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, folder := range []string{scriptsName + "/7.1.0", scriptsName + "/8.1.0", tasksName + "/" + newPrefix + "7.1.0", tasksName + "/8.1.0"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{scriptsName + "/7.1.0/script", scriptsName + "/8.1.0/script", incarnationName + partSuffix} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("#!/bin/sh\necho secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.restore()
	for file, kept := range map[string]bool{scriptsName + "/7.1.0": false, scriptsName + "/8.1.0/script": true, incarnationName + partSuffix: false, tasksName + "/" + newPrefix + "7.1.0": false} {
		if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != kept {
			t.Errorf("%s: %v", file, err)
		}
	}
}
