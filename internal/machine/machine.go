// Package machine says how much memory and how many processors this process may use: what the
// machine has, or less where control groups, of version 1 or 2, allow less. A limit counts wherever
// it is set: in the process's own group, or in a group above it. It knows nothing of who asks.
package machine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Memory is how many bytes of memory this process and those that it starts may have together.
func Memory() (uint64, error) {
	info, err := ask()
	return min(uint64(info.Totalram)*uint64(info.Unit), limits().memory()), err
}

// MemoryAndSwap is Memory with the system's own swap space.
func MemoryAndSwap() (uint64, error) {
	info, err := ask()
	return limits().memoryAndSwap(uint64(info.Totalram)*uint64(info.Unit), uint64(info.Totalswap)*uint64(info.Unit)), err
}

// FreeMemory is how many bytes of memory are free; ok is false if the system does not say.
func FreeMemory() (bytes uint64, ok bool) {
	info, err := ask()
	return min(uint64(info.Freeram)*uint64(info.Unit), limits().freeMemory()), err == nil
}

// CPUs is how many processors this process can keep busy, at least 1. It may run on more of them if
// its control group has less time than all of them offer.
func CPUs() int { return min(runtime.NumCPU(), limits().cpus()) }

func ask() (info syscall.Sysinfo_t, err error) {
	if err = syscall.Sysinfo(&info); err != nil {
		err = fmt.Errorf("asking how much memory the machine has: %w", err)
	}
	return info, err
}

// limits finds the control groups once. Limits that are set later are seen, and so is what is used.
var limits = sync.OnceValue(func() groups { return groupsBelow("/") })

// unlimited is more than any machine has.
const unlimited = math.MaxUint64

// groups are the folders of the control groups that hold this process, its own first and then those
// above it.
type groups struct {
	memoryV1, memoryV2, cpuV1, cpuV2 []string
}

// groupsBelow finds the control groups in the files of a machine, which are below root.
func groupsBelow(root string) (g groups) {
	own, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	mounts, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		place := func(controller string) []string { return upwards(root, m, pathOf(string(own), controller)) }
		switch {
		case m.kind == "cgroup2" && g.cpuV2 == nil:
			g.cpuV2 = place("")
			g.memoryV2 = g.cpuV2
		case m.kind == "cgroup" && m.has("memory") && g.memoryV1 == nil:
			g.memoryV1 = place("memory")
		}
		if m.kind == "cgroup" && m.has("cpu") && g.cpuV1 == nil {
			g.cpuV1 = place("cpu")
		}
	}
	return g
}

// mount is a mounted tree of control groups. The group at is the top of what can be seen of it.
type mount struct {
	at, folder, kind string
	controllers      []string
}

func (m *mount) has(controller string) bool { return slices.Contains(m.controllers, controller) }

// parseMount reads a line of /proc/self/mountinfo.
func parseMount(line string) (m mount, ok bool) {
	first, last, ok := strings.Cut(line, " - ")
	a, b := strings.Fields(first), strings.Fields(last)
	if !ok || len(a) < 5 || len(b) < 3 {
		return m, false
	}
	return mount{at: unescape(a[3]), folder: unescape(a[4]), kind: b[0], controllers: strings.Split(b[2], ",")}, true
}

// unescape undoes what the system does to spaces and the like in names: it writes three octal digits.
func unescape(name string) string {
	var plain strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '\\' && i+4 <= len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		plain.WriteByte(name[i])
	}
	return plain.String()
}

// pathOf finds this process's group of a controller of version 1, or with "" of version 2, in
// /proc/self/cgroup.
func pathOf(own, controller string) string {
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || (controller == "") != (f[1] == "") {
			continue
		}
		if slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2]
		}
	}
	return "/"
}

// upwards lists the folders of a group and of all above it, as far as they can be seen. In a
// container the mounted tree may begin at the container's group, and a group outside of what is
// mounted, which has no folder here, counts as that top.
func upwards(root string, m mount, path string) (folders []string) {
	below, ok := strings.CutPrefix(filepath.Clean(path)+"/", strings.TrimSuffix(m.at, "/")+"/")
	if !ok || strings.HasPrefix(below, "../") {
		below = ""
	}
	top := filepath.Join(root, m.folder)
	for folder := filepath.Join(top, below); ; folder = filepath.Dir(folder) {
		folders = append(folders, folder)
		if len(folder) <= len(top) {
			return folders
		}
	}
}

// read reads a number from a file of a group. What is missing, is none or says "max" is unlimited,
// and so is a negative number.
func read(folder, name string) uint64 {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return unlimited
	}
	return number(strings.TrimSpace(string(text)))
}

func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return unlimited
	}
	return n
}

// least is the smallest number in a file of the groups.
func least(folders []string, name string) uint64 {
	all := uint64(unlimited)
	for _, f := range folders {
		all = min(all, read(f, name))
	}
	return all
}

func (g groups) memory() uint64 {
	return min(least(g.memoryV2, "memory.max"), least(g.memoryV1, "memory.limit_in_bytes"))
}

// memoryAndSwap limits a machine's memory and its swap space. Version 1 limits their sum, version 2
// each of them.
func (g groups) memoryAndSwap(memory, swap uint64) uint64 {
	sum := min(memory, g.memory()) + min(swap, least(g.memoryV2, "memory.swap.max"))
	return min(sum, least(g.memoryV1, "memory.memsw.limit_in_bytes"))
}

// freeMemory is what the fullest of the groups may still use. Pages of files that nobody has used
// lately count as free: the system takes those back before it refuses memory.
func (g groups) freeMemory() uint64 {
	all := uint64(unlimited)
	look := func(folder, limit, usage, inactive string) {
		most := read(folder, limit)
		used := read(folder, usage)
		if most == unlimited || used == unlimited {
			return
		}
		used -= min(used, statistic(folder, inactive))
		all = min(all, most-min(most, used))
	}
	for _, f := range g.memoryV2 {
		look(f, "memory.max", "memory.current", "inactive_file")
	}
	for _, f := range g.memoryV1 {
		look(f, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
	}
	return all
}

// statistic is a number in memory.stat; 0 if it is not there.
func statistic(folder, name string) uint64 {
	text, _ := os.ReadFile(filepath.Join(folder, "memory.stat"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			if n := number(f[1]); n != unlimited {
				return n
			}
		}
	}
	return 0
}

// cpus is how many processors the groups may keep busy, rounded up.
func (g groups) cpus() int {
	all := uint64(math.MaxInt)
	look := func(quota, period uint64) {
		if quota != unlimited && period != unlimited && period > 0 {
			all = min(all, max(1, quota/period+min(1, quota%period)))
		}
	}
	for _, f := range g.cpuV2 {
		text, _ := os.ReadFile(filepath.Join(f, "cpu.max"))
		if words := strings.Fields(string(text)); len(words) == 2 {
			look(number(words[0]), number(words[1]))
		}
	}
	for _, f := range g.cpuV1 {
		look(read(f, "cpu.cfs_quota_us"), read(f, "cpu.cfs_period_us"))
	}
	return int(all)
}
