package emulate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// processesOf finds the processes of a node: slurmd and slurmstepd, which write to the node's log;
// the tasks, whose environment names the node; and all descendants of these.
func (c *inner) processesOf(node string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil || pid == 1 {
			continue
		}
		if parent, alive := parentOf(pid); alive {
			children[parent] = append(children[parent], pid)
			if c.runsOn(pid, node) {
				pids = append(pids, pid)
			}
		}
	}
	for i := 0; i < len(pids); i++ {
		for _, child := range children[pids[i]] {
			if !slices.Contains(pids, child) {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// parentOf is the parent of a process, and whether the process is more than a zombie.
func parentOf(pid int) (parent int, alive bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name in brackets may itself contain brackets.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	var state string
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		return 0, false
	}
	return parent, state != "Z" && state != "X"
}

func (c *inner) runsOn(pid int, node string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	if strings.Contains("\x00"+string(text), "\x00SLURMD_NODENAME="+node+"\x00") {
		return true
	}
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // a slurmd that has just begun has no environment yet
	if err == nil && strings.Contains(string(words), "slurmd\x00-D\x00-N\x00"+node+"\x00") {
		return true
	}
	log := c.path("log/" + node + ".log")
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return err == nil && slices.ContainsFunc(open, func(fd string) bool {
		target, err := os.Readlink(fd)
		return err == nil && target == log
	})
}
