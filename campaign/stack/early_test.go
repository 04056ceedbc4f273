package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// early waits until a client comes to the device while another still leaves it, and returns both.
func (n *theNode) early() (comes, leaves uint64) {
	n.Helper()
	granted := regexp.MustCompile(`grant client (\d+) device 0 slot \d+ memory \d+ of \d+`)
	freed := regexp.MustCompile(`"client":(\d+),"kind":"freed"`)
	n.eventually("one comes while the other leaves", func() bool {
		log := n.log.String()
		grant, free := granted.FindStringSubmatch(log), freed.FindStringSubmatch(log)
		if grant == nil || free == nil {
			return false
		}
		comes, _ = strconv.ParseUint(grant[1], 10, 64)
		leaves, _ = strconv.ParseUint(free[1], 10, 64)
		return true
	})
	return comes, leaves
}

// killWorkerOf kills the worker of a client.
func (n *theNode) killWorkerOf(client uint64) {
	n.Helper()
	for _, c := range n.status().Clients {
		if c.ID != client {
			continue
		}
		of := sharedMemory(int(c.Pid))
		for worker := range n.workers() {
			for memory := range sharedMemory(worker) {
				if of[memory] {
					_ = syscall.Kill(worker, syscall.SIGKILL)
					return
				}
			}
		}
	}
}

// Two programs that do not fit together take turns. While one brings its memory to the room that the
// other has freed so far, a worker of theirs is killed, or the daemon, which another one follows.
// Both programs compute what they would have computed alone.
func TestKilledWhileMemoryIsHandedOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		kill func(n *theNode, again func() *theNode, comes, leaves uint64) *theNode
	}{
		{"the one that leaves", func(n *theNode, _ func() *theNode, _, leaves uint64) *theNode {
			n.killWorkerOf(leaves)
			return n
		}},
		{"the one that comes", func(n *theNode, _ func() *theNode, comes, _ uint64) *theNode {
			n.killWorkerOf(comes)
			return n
		}},
		{"the daemon", func(n *theNode, again func() *theNode, _, _ uint64) *theNode {
			n.kill()
			return again()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			dir := t.TempDir()
			config := filepath.Join(dir, "node.yaml")
			// Moves of 24 MiB, in two steps, take an eighth of a second.
			text := "devices:\n  - soft: {memory: 48MiB, copy_bandwidth: 200MB/s}\nquantum: 20ms\n"
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"--config", config, "--state", filepath.Join(dir, "state"), "--orphan-grace", "1m", "--log-level", "debug"}
			n := w.start(args...)
			var programs []*program
			for range 2 {
				programs = append(programs, n.launch(made("small"), "sums", fmt.Sprint(9<<20), "2"))
			}
			comes, leaves := n.early()
			n = c.kill(n, func() *theNode { return n.again(args...) }, comes, leaves)
			for _, p := range programs {
				p.right()
			}
			n.idle()
		})
	}
}
