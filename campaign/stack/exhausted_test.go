package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

// narrow makes a control group with a limit of bytes; enter puts a process there, with its future
// children. It requires root and writable control groups.
func (w *world) narrow(bytes int) (enter func(pid int)) {
	w.Helper()
	group, limit := memoryGroup()
	if group == "" {
		need.Missing(w, need.Cgroups, "there is no control group for memory that this process could divide")
	}
	group = filepath.Join(group, "muster-stack-"+strings.TrimPrefix(w.mark, "MUSTER_STACK_WORLD="))
	if err := os.Mkdir(group, 0o755); err != nil {
		need.Missing(w, need.Cgroups, "no control group can be made:", err)
	}
	w.Cleanup(func() {
		w.eventually("the control group is empty", func() bool { return !errors.Is(os.Remove(group), syscall.EBUSY) })
	})
	set := func(file string, value int) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(fmt.Sprint(value)), 0o644); err != nil {
			need.Missing(w, need.Cgroups, "the control group cannot be used:", err)
		}
	}
	set(limit, bytes)
	return func(pid int) { set("cgroup.procs", pid) }
}

// memoryGroup returns the folder of this process's control group for memory, and
// the file that has a group's limit: of version 1 or 2, whichever there is.
func memoryGroup() (folder, limit string) {
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		for _, c := range []struct{ controller, mount, limit string }{
			{"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"", "/sys/fs/cgroup", "memory.max"},
		} {
			folder := filepath.Join(c.mount, fields[2])
			if _, err := os.Stat(filepath.Join(folder, c.limit)); fields[1] == c.controller && err == nil {
				return folder, c.limit
			}
		}
	}
	return "", ""
}

// One program uses up the node's memory: by what is kept for it on the host, or by memory that it
// shares with its worker. That program loses its worker and is told; the one beside it continues.
// With recovery its memory survives its worker, so killing the worker does not help; docs/node.md
// says so.
func TestMemoryExhausted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	for _, what := range []string{"memory", "pinned"} {
		t.Run(what, func(t *testing.T) {
			// While the first worker is still freeing its memory, the system may kill a second one.
			// On a busy machine that happens and cannot be prevented, so the test allows several
			// tries.
			for range 5 {
				if greed(t, what) {
					return
				}
			}
			t.Error("the program beside it was ended each time")
		})
	}
}

// greed says whether the program beside a greedy one continues.
func greed(t *testing.T, what string) bool {
	w := newWorld(t)
	enter := w.narrow(256 << 20)
	n := w.start("--devices", "soft:memory=16M", "--vgpus", "4", "--warm", "0", "--swap", "1G", "--recover", "off")
	enter(n.cmd.Process.Pid)
	beside := n.launch(made("small"), "hold", "1000")
	beside.says("holding")
	for pid := range n.workers() {
		if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); err != nil || strings.TrimSpace(string(score)) != "500" {
			t.Errorf("the system would not end a worker first: %s, %v", score, err)
		}
	}
	greedy := w.launchWith([]string{"--socket", n.socket, "--memory", "512M"}, made("small"), what, fmt.Sprint(512<<20))
	const killed = "muster: its worker has ended: signal: killed"
	if code := greedy.wait(); code != 1 {
		t.Errorf("the greedy program ended with %d", code)
	}
	if got := greedy.output.String(); !strings.Contains(got, killed) || !strings.Contains(got, "CUDA_ERROR_") {
		t.Errorf("it said %q", got)
	}
	code := beside.wait()
	survived := code == 0
	if !survived && !strings.Contains(beside.output.String(), killed) {
		t.Errorf("the program beside it ended with %d: %s", code, beside.output)
	}
	n.launch(made("small"), "sums").right()
	n.idle()
	return survived
}
