package programs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster/node/ask"
	"muster/node/launch"
	"muster/wire/status"

	"golang.org/x/sys/unix"
)

// tree returns a process and all its descendants, sorted.
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

// statOf returns the fields of /proc/PID/stat from the state on.
func statOf(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	name := bytes.LastIndex(text, []byte(") ")) // the name before it may contain any character
	if name < 0 {
		return nil
	}
	return strings.Fields(string(text[name+2:]))
}

// inSessionOfOthers says whether a process's session leader is not saved with it, as
// with a program that was started from a shell.
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

// stdio lists the targets of the first three descriptors of a process.
func stdio(pid int) (names []string) {
	for i := range 3 {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, i))
		names = append(names, target)
	}
	return names
}

// servedHere refuses processes that have their device from elsewhere than the node at
// the socket, since only that node's clients are saved.
func servedHere(pids []int, clients []status.Client, socket string) error {
	for _, pid := range pids {
		named := variableOf(pid, "MUSTER_SOCKET")
		switch {
		case strings.HasPrefix(named, launch.Prefix(launch.Remote)):
			return fmt.Errorf("process %d has its device on another machine (muster run --node): such a program cannot be saved as a whole; it can save its device memory itself, with musterCheckpoint", pid)
		case named == "" || named == socket || strings.HasPrefix(named, launch.Prefix(launch.Private)) || hasClient(clients, pid):
			continue
		}
		// The variable may be stale: a restored program may have been started with
		// another socket. So that node is asked.
		if s, err := ask.Status(named); err == nil && hasClient(s.Clients, pid) {
			return fmt.Errorf("process %d has its device from the node at %s: give --socket %s", pid, named, named)
		}
	}
	return nil
}

func hasClient(clients []status.Client, pid int) bool {
	return slices.ContainsFunc(clients, func(c status.Client) bool { return int(c.Pid) == pid })
}

// variableOf is the value of a variable in the environment that a process was started
// with.
func variableOf(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// AdoptOrphans has the system give this process the children of those that end below it: CRIU starts
// the program, and ends.
func AdoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("asking the system for the children of processes that end: %w", err)
	}
	return nil
}
