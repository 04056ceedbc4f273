// Package vitals reads what the system knows about a process: whether it is alive, its command
// line, and its descriptors, threads and memory. Campaigns compare a daemon with its earlier state
// to find leaks.
package vitals

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// IsZombie says whether a process has ended and only waits for its parent to reap it.
func IsZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := bytes.Cut(text, []byte(") "))
	return len(after) == 0 || after[0] == 'Z' || after[0] == 'X'
}

// Words is the command line of a process.
func Words(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// Vitals are the resources that a daemon uses without clients.
type Vitals struct {
	descriptors map[string]int // by kind
	threads     int
	resident    int // KiB
	sharedKiB   int // the part of that which is shared memory
}

// Read reads the vitals of a process.
func Read(pid int) (Vitals, error) {
	v := Vitals{descriptors: map[string]int{}}
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

// descriptorKind is the kind of a descriptor, without its number.
func descriptorKind(to string) string {
	kind, _, numbered := strings.Cut(to, ":[")
	switch {
	case numbered && !strings.HasPrefix(to, "anon_inode"):
		return kind
	case strings.HasPrefix(to, "/memfd:"):
		name, _, _ := strings.Cut(to, " ")
		return name
	}
	return digits.ReplaceAllString(to, "N") // each start of a daemon has its own log
}

var digits = regexp.MustCompile(`[0-9]+`)

// Memory by which a daemon may grow, since Go returns freed memory to the system at its own pace.
const (
	residentSlack = 64 << 10 // KiB
	sharedSlack   = 1 << 10  // KiB
	threadSlack   = 32
)

// Allow permits some more descriptors of a kind.
func (v Vitals) Allow(kind string, more int) { v.descriptors[kind] += more }

// AllowInAll permits so many descriptors of files like this one, together with those there are.
func (v Vitals) AllowInAll(file string, n int) {
	kind := descriptorKind(file)
	v.descriptors[kind] = max(v.descriptors[kind], n)
}

// AllowShared permits some more shared memory.
func (v *Vitals) AllowShared(bytes int64) { v.sharedKiB += int(bytes >> 10) }

// Resident is the memory of the process, in KiB.
func (v Vitals) Resident() int { return v.resident }

// Grown says what a daemon has more of than before.
func Grown(before, now Vitals) []string {
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

// Most has the maximum of each value of two vitals.
func Most(a, b Vitals) Vitals {
	m := Vitals{map[string]int{}, max(a.threads, b.threads), max(a.resident, b.resident), max(a.sharedKiB, b.sharedKiB)}
	for _, v := range []Vitals{a, b} {
		for kind, n := range v.descriptors {
			m.descriptors[kind] = max(m.descriptors[kind], n)
		}
	}
	return m
}
