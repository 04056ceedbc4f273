package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process identifies a process for as long as the machine runs; numbers alone are
// reused.
type process struct {
	pid   int
	start uint64 // in clock ticks since boot
}

// stat is what the system says of a process.
type stat struct {
	state  byte
	parent int
	start  uint64
	ran    time.Duration // on processors, with children that have ended
}

// statOf returns false if there is no such process.
func statOf(pid int) (stat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name in brackets may contain any character.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const state, parent, times, start = 0, 1, 11, 19
	if len(fields) <= start {
		return stat{}, false
	}
	p, _ := strconv.Atoi(string(fields[parent]))
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	var ran time.Duration
	for _, f := range fields[times : times+4] {
		n, _ := strconv.ParseInt(string(f), 10, 64)
		ran += time.Duration(n) * time.Second / clockTicks
	}
	return stat{fields[state][0], p, ticks, ran}, err == nil
}

// clockTicks are those of a second in /proc, on all systems that Muster runs on.
const clockTicks = 100

// descendants lists the living processes below one, itself left out. Processes that
// come and go meanwhile may be missing: a caller that must not miss any has to look
// again.
func descendants(pid int) []process {
	var all []process
	todo := []int{pid}
	seen := map[int]bool{pid: true}
	for len(todo) > 0 {
		parent := todo[0]
		todo = todo[1:]
		for _, child := range children(parent) {
			if seen[child] {
				continue
			}
			seen[child] = true
			todo = append(todo, child)
			if s, ok := statOf(child); ok && s.state != 'Z' && s.state != 'X' {
				all = append(all, process{child, s.start})
			}
		}
	}
	return all
}

// children lists the children of all threads of a process.
func children(pid int) (list []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, t := range threads {
		text, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// send sends a signal to a process, and not to another one that has got its number
// since. Only a system without pidfds cannot tell them apart.
func (p process) send(signal syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == syscall.ENOSYS {
		return syscall.Kill(p.pid, signal)
	}
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	if s, ok := statOf(p.pid); !ok || s.start != p.start {
		return syscall.ESRCH
	}
	return unix.PidfdSendSignal(fd, signal, nil, 0)
}

// killBelow kills all descendants of a process. They are stopped first, until a look
// finds no new ones, so that none can fork faster than it is killed.
func killBelow(pid int) {
	stopped := map[process]bool{}
	for range 20 {
		fresh := false
		for _, p := range descendants(pid) {
			if !stopped[p] {
				stopped[p], fresh = true, true
				_ = p.send(syscall.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	for p := range stopped {
		_ = p.send(syscall.SIGKILL)
	}
	for _, p := range descendants(pid) {
		_ = p.send(syscall.SIGKILL)
	}
}

// allProcesses lists the numbers of all processes.
func allProcesses() (list []int) {
	names, _ := readNames("/proc")
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// ---- memory ----

var pageSize = int64(os.Getpagesize())

// resident is the memory of processes, shared pages counted for each.
func resident(list []process) (sum int64) {
	for _, p := range list {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/statm")
		if err != nil {
			continue
		}
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			sum += pages * pageSize
		}
	}
	return sum
}

// proportional is the memory of processes, with shared pages divided among those that
// share them. It takes longer than resident.
func proportional(list []process) (sum int64) {
	for _, p := range list {
		pss, err := proportionalOf(p.pid)
		if err != nil {
			pss = resident([]process{p})
		}
		sum += pss
	}
	return sum
}

func proportionalOf(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			fields := strings.Fields(rest)
			if len(fields) == 2 {
				kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
				return kilobytes << 10, err
			}
		}
	}
	return 0, errors.New("no sum")
}

// ---- what a killed supervisor leaves ----

// saveProcesses writes down what is below a supervisor, for an agent that finds it
// dead. It does not wait for the disk: after a crash of the machine there are no
// processes to find.
func saveProcesses(dir string, list []process) {
	var text strings.Builder
	fmt.Fprintln(&text, bootID())
	for _, p := range list {
		fmt.Fprintf(&text, "%d %d\n", p.pid, p.start)
	}
	part := filepath.Join(dir, processesName+partSuffix)
	if os.WriteFile(part, []byte(text.String()), 0o600) == nil {
		_ = os.Rename(part, filepath.Join(dir, processesName))
	}
}

// bootID identifies this run of the machine: process numbers and start times begin
// again at each.
var bootID = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text))
})

// parseProcesses reads what saveProcesses wrote since the machine was booted. What is
// damaged is left out: it is compared with living processes anyway.
func parseProcesses(b []byte, boot string) map[process]bool {
	known := map[process]bool{}
	first, rest, _ := strings.Cut(string(b), "\n")
	if first != boot || boot == "" {
		return known
	}
	for _, line := range strings.Split(rest, "\n") {
		pid, start, ok := strings.Cut(line, " ")
		n, err := strconv.Atoi(pid)
		ticks, errTicks := strconv.ParseUint(start, 10, 64)
		if ok && err == nil && errTicks == nil && n > 1 {
			known[process{n, ticks}] = true
		}
	}
	return known
}

// marked says whether a process of this user, or of root, was started with a variable
// in its environment.
func marked(pid int, variable []byte, uid int) bool {
	var info syscall.Stat_t
	if err := syscall.Stat("/proc/"+strconv.Itoa(pid), &info); err != nil || (int(info.Uid) != uid && info.Uid != 0) {
		return false
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for _, v := range bytes.Split(text, []byte{0}) {
		if bytes.Equal(v, variable) {
			return true
		}
	}
	return false
}

// leftoverTime is how long an agent tries to kill what a killed supervisor left.
const leftoverTime = 10 * time.Second
