package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"muster/campaign/vitals"
)

// The environment variables that mark the processes of an episode, and those of one of its
// programs. Their children inherit them.
const (
	markVariable    = "MUSTER_CHAOS_EPISODE"
	programVariable = "MUSTER_CHAOS_PROGRAM"
)

// role is the role of a process in an episode.
type role int

const (
	isDaemon role = iota + 1
	isWorker
	isProgram
	isOther // such as muster run before it executes its program
)

// process is a process of an episode.
type process struct {
	pid     int
	role    role
	program int             // number of its program, if it belongs to one
	shared  map[string]bool // Muster's shared memory that it has mapped
}

// look finds the processes of an episode. It does not read again what it knows about a process,
// with two exceptions: shared memory, if the process had none before, and the role of a daemon,
// because a worker looks like the daemon until it has executed.
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

// identify determines the role of a process; nil if it does not belong to the episode.
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

// sharedMemory lists the rings and arenas that a process has mapped to share with programs or
// workers, by inode.
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

// owner is the number of the program that a worker serves; 0 if it serves none, or if that is not
// known.
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
