package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
		if p == nil || isZombie(pid) {
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

// isZombie says whether a process has ended and only waits for its parent to notice.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := bytes.Cut(text, []byte(") "))
	return len(after) == 0 || after[0] == 'Z' || after[0] == 'X'
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

// vitals are what a daemon takes while nobody uses it.
type vitals struct {
	descriptors map[string]int // by kind
	threads     int
	resident    int // KiB
	sharedKiB   int // of that, memory shared with others
}

// readVitals looks at a process.
func readVitals(pid int) (vitals, error) {
	v := vitals{descriptors: map[string]int{}}
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return v, err
	}
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil {
			v.descriptors[descriptorKind(to)]++
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return v, fmt.Errorf("looking at the daemon: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		number, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch key {
		case "Threads":
			v.threads = number
		case "VmRSS":
			v.resident = number
		case "RssShmem":
			v.sharedKiB = number
		}
	}
	return v, nil
}

// descriptorKind is what a descriptor is, without its number.
func descriptorKind(to string) string {
	kind, _, numbered := strings.Cut(to, ":[")
	switch {
	case numbered && !strings.HasPrefix(to, "anon_inode"):
		return kind
	case strings.HasPrefix(to, "/memfd:"):
		name, _, _ := strings.Cut(to, " ")
		return name
	}
	return digits.ReplaceAllString(to, "N") // each start has a log of its own
}

var digits = regexp.MustCompile(`[0-9]+`)

// Memory that a daemon may have more than in the beginning: Go gives what it has
// freed back to the system when it likes.
const (
	residentSlack = 64 << 10 // KiB
	sharedSlack   = 1 << 10  // KiB
	threadSlack   = 32
)

// grown says what a daemon has more of than in the beginning.
func grown(before, now vitals) []string {
	var more []string
	for kind, n := range now.descriptors {
		if was := before.descriptors[kind]; n > was {
			more = append(more, fmt.Sprintf("%d descriptors of %s, and %d in the beginning", n, kind, was))
		}
	}
	if now.threads > before.threads+threadSlack {
		more = append(more, fmt.Sprintf("%d threads, and %d in the beginning", now.threads, before.threads))
	}
	if now.resident > before.resident+residentSlack {
		more = append(more, fmt.Sprintf("%d KiB of memory, and %d KiB in the beginning", now.resident, before.resident))
	}
	if now.sharedKiB > before.sharedKiB+sharedSlack {
		more = append(more, fmt.Sprintf("%d KiB of shared memory, and %d KiB in the beginning", now.sharedKiB, before.sharedKiB))
	}
	return more
}

// most is the larger of each of two sets of vitals.
func most(a, b vitals) vitals {
	m := vitals{map[string]int{}, max(a.threads, b.threads), max(a.resident, b.resident), max(a.sharedKiB, b.sharedKiB)}
	for _, v := range []vitals{a, b} {
		for kind, n := range v.descriptors {
			m.descriptors[kind] = max(m.descriptors[kind], n)
		}
	}
	return m
}
