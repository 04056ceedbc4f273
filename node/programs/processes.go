package programs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tree returns a process and all that descend from it, in order.
func tree(root int) ([]int, error) {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", root)); err != nil {
		return nil, fmt.Errorf("there is no process %d", root)
	}
	children := map[int][]int{}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		fields := statOf(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) < 4 || fields[0] == "Z" {
			continue // it has ended
		}
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	slices.Sort(all)
	return all, nil
}

// statOf returns what the system says of a process, from its state on.
func statOf(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	name := bytes.LastIndex(text, []byte(") ")) // its name may have anything in it
	if name < 0 {
		return nil
	}
	return strings.Fields(string(text[name+2:]))
}

// inSessionOfOthers says whether a process belongs to a session of processes that are
// not saved with it, as one that was started from a shell.
func inSessionOfOthers(root int, all []int) bool {
	fields := statOf(fmt.Sprintf("/proc/%d/stat", root))
	if len(fields) < 4 {
		return false
	}
	session, _ := strconv.Atoi(fields[3])
	return !slices.Contains(all, session)
}

// sockets returns the inodes of the sockets that a process has.
func sockets(pid int) []uint64 {
	var found []uint64
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range fds {
		target, _ := os.Readlink(path)
		number, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
			found = append(found, n)
		}
	}
	return found
}

// stdio is what the first three descriptors of a process are to the system.
func stdio(pid int) (names []string) {
	for i := range 3 {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, i))
		names = append(names, target)
	}
	return names
}
