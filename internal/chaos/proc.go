package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"muster/internal/chaos/vitals"
)

// What marks the processes of an episode, and those of one of its programs: a
// variable in their environment, which their children have too.
const (
	markVariable    = "MUSTER_CHAOS_EPISODE"
	programVariable = "MUSTER_CHAOS_PROGRAM"
)

// role is what a process of an episode is.
type role int

const (
	isDaemon role = iota + 1
	isWorker
	isProgram
	isOther // as muster run is before it becomes its program
)

// process is one of an episode's.
type process struct {
	pid     int
	role    role
	program int             // its number, if it is a program's
	shared  map[string]bool // the shared memory of Muster's that it has
}

// look finds the processes of an episode. What it knows already of a process it does
// not read again, but for shared memory that it had none of. What looked like a daemon may
// have been a worker that the daemon was about to start.
func look(mark string, known map[int]*process) map[int]*process {
	found := map[int]*process{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p := known[pid]
		if p == nil || p.role == isOther || p.role == isDaemon {
			p = identify(pid, mark)
		}
		if p == nil || vitals.IsZombie(pid) {
			continue
		}
		if len(p.shared) == 0 {
			p.shared = sharedMemory(pid)
		}
		found[pid] = p
	}
	return found
}

// identify tells what a process is; nil if it is not of the episode.
func identify(pid int, mark string) *process {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(environment, []byte(markVariable+"="+mark+"\x00")) {
		return nil
	}
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	p := &process{pid: pid, role: isOther}
	line := strings.Split(string(words), "\x00")
	switch {
	case filepath.Base(line[0]) == "muster" && len(line) > 1 && line[1] == "worker":
		p.role = isWorker
	case filepath.Base(line[0]) == "muster" && len(line) > 1 && line[1] == "node":
		p.role = isDaemon
	case filepath.Base(line[0]) != "muster":
		for _, setting := range bytes.Split(environment, []byte{0}) {
			if number, ok := bytes.CutPrefix(setting, []byte(programVariable+"=")); ok {
				p.role = isProgram
				p.program, _ = strconv.Atoi(string(number))
			}
		}
	}
	return p
}

// sharedMemory returns what a process has mapped of the rings and arenas that
// programs share with workers, by their inodes.
func sharedMemory(pid int) map[string]bool {
	found := map[string]bool{}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) > 5 && (strings.HasPrefix(fields[5], "/memfd:muster-ring") || strings.HasPrefix(fields[5], "/memfd:muster-arena")) {
			found[fields[4]] = true
		}
	}
	return found
}

// owner returns the number of the program that a worker serves; 0 if it serves none,
// or one that cannot be told.
func owner(worker *process, all map[int]*process) int {
	for _, p := range all {
		if p.role != isProgram {
			continue
		}
		for inode := range worker.shared {
			if p.shared[inode] {
				return p.program
			}
		}
	}
	return 0
}
