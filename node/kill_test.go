package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/node/ask"
	"muster/node/settings"
	"muster/wire"
)

// Whatever is killed, no process, no shared memory and no socket is left, and
// the others learn of it.
func TestKill(t *testing.T) {
	for _, worker := range []string{"worker", "real worker"} {
		t.Run(worker, func(t *testing.T) {
			t.Setenv("MUSTER_TEST_WORKER", worker)
			testKill(t)
		})
	}
}

func testKill(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		socket := freshSocket()
		daemon := process(t, "daemon", socket)
		client := process(t, "client", socket)
		f := &fixture{socket: socket}
		if s := statusOf(t, f); len(s.Clients) != 1 || s.Clients[0].Pid != int32(client.Process.Pid) {
			t.Fatalf("%+v", s)
		}
		kill(t, client)
		eventually(t, "the client is forgotten", func() bool {
			s := statusOf(t, f)
			return len(s.Clients) == 0 && s.Devices[0].Free == s.Devices[0].Memory
		})
		eventually(t, "only warm workers are left", func() bool { return len(childrenOf(daemon.Process.Pid)) <= settings.Default().Warm })
		for _, pid := range childrenOf(daemon.Process.Pid) {
			if files := sharedMemory(pid); len(files) > 0 {
				t.Errorf("a warm worker has %v", files)
			}
		}
	})
	t.Run("worker", func(t *testing.T) {
		socket := freshSocket()
		daemon := process(t, "daemon", socket)
		p, err := connect(socket, hello(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.leave()
		p.synchronise(t)
		var worker string
		for _, pid := range childrenOf(daemon.Process.Pid) {
			if len(sharedMemory(pid)) == 2 { // the daemon maps the ring too, and so may a child that is about to be a worker
				worker = pid
			}
		}
		var number int
		if _, err := fmt.Sscan(worker, &number); err != nil {
			t.Fatalf("the worker was not found: %q", worker)
		}
		if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, err = p.Call(&wire.Synchronise{}, nil)
		var closed *wire.ClosedError
		if !errors.As(err, &closed) || closed.Reason != "its worker has ended: signal: killed" {
			t.Error(err)
		}
	})
	t.Run("daemon", func(t *testing.T) {
		socket := freshSocket()
		daemon := process(t, "daemon", socket)
		process(t, "client", socket)
		p, err := connect(socket, hello(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.leave()
		workers := childrenOf(daemon.Process.Pid)
		if len(workers) < 2 {
			t.Fatalf("%d workers", len(workers))
		}
		kill(t, daemon)
		if _, err := p.conn.Read(make([]byte, 1)); err != io.EOF {
			t.Error("the program hears", err)
		}
		eventually(t, "the workers are gone", func() bool {
			for _, pid := range workers {
				if isAlive(pid) {
					return false
				}
			}
			return true
		})
		if _, err := ask.Status(socket); !errors.Is(err, ask.ErrNoNode) {
			t.Error(err)
		}
		process(t, "daemon", socket) // at the same place, at once
	})
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func childrenOf(pid int) []string {
	var all []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

// isAlive says whether a process runs; one that nobody has waited for does not.
func isAlive(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

// sharedMemory lists the client memory that a process has mapped.
func sharedMemory(pid string) []string {
	text, _ := os.ReadFile("/proc/" + pid + "/maps")
	var found []string
	for _, name := range []string{"muster-ring", "muster-arena"} {
		if bytes.Contains(text, []byte(name)) {
			found = append(found, name)
		}
	}
	return found
}
