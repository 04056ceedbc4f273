package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// findCgroup finds a control group (version 2) below which tasks can have theirs, and
// enables its controllers. It returns "" and the reason if there is none: this process's
// group must be writable, as it is for root and for services with Delegate=yes.
func findCgroup(base string) (string, error) {
	if base == "" {
		own, err := ownCgroup()
		if err != nil {
			return "", err
		}
		base = own
	}
	if _, err := os.Stat(filepath.Join(base, "cgroup.procs")); err != nil {
		return "", fmt.Errorf("%s is no control group of version 2: %w", base, err)
	}
	tasks := filepath.Join(base, "muster-tasks")
	if err := os.Mkdir(tasks, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(tasks, "cgroup.kill")); err != nil {
		return "", fmt.Errorf("this system cannot kill a control group (Linux 5.14 can): %w", err)
	}
	// Control groups below one that has processes itself cannot have controllers.
	if !isRootGroup(base) {
		if err := leaveGroup(base); err != nil {
			return "", err
		}
	}
	for _, group := range []string{base, tasks} {
		for _, controller := range []string{"+memory", "+cpu", "+cpuset"} {
			_ = os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte(controller), 0) // best effort: without it tasks lack that controller
		}
	}
	return tasks, nil
}

// isRootGroup says whether a group is the root group, which alone has no type.
func isRootGroup(group string) bool {
	_, err := os.Stat(filepath.Join(group, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}

// leaveGroup moves this process and its descendants from a group into a child group. Other
// processes stay, as in the login session of a user who started the agent by hand: then
// there are no controllers, and the rest works.
func leaveGroup(group string) error {
	leaf := filepath.Join(group, "muster-agent")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	own := map[string]bool{strconv.Itoa(os.Getpid()): true}
	for _, p := range descendants(os.Getpid()) {
		own[strconv.Itoa(p.pid)] = true
	}
	for _, pid := range strings.Fields(string(text)) {
		if !own[pid] {
			continue
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(pid), 0); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// ownCgroup is the group of this process.
func ownCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	at := ""
	for _, line := range strings.Split(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			at = f[1]
			break
		}
	}
	if at == "" {
		return "", errors.New("no control groups of version 2 are mounted")
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(groups), "\n") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			// A restarted agent may be below its service's group already.
			return filepath.Join(at, strings.TrimSuffix(path, "/muster-agent")), nil
		}
	}
	return "", errors.New("this process is in no control group of version 2")
}

// cgroup is a task's control group.
type cgroup struct {
	dir    string
	fd     *os.File
	memory bool // it counts and limits memory
	cpuset bool
}

// cgroupDir is the folder of the task's control group. Another agent (of another cluster,
// or with a spool that was wiped since) may use the same parent group and have a task of
// the same name. The incarnation keeps the two apart, so that neither ends the other's
// task.
func (f *taskFile) cgroupDir() string {
	return filepath.Join(f.Cgroup, f.start.Task.String()+"-"+f.start.Incarnation)
}

// makeCgroup makes the control group of a task.
func makeCgroup(dir string, memory int64, cores []int) (*cgroup, error) {
	g := &cgroup{dir: dir}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	g.memory = g.has("memory.max")
	g.cpuset = g.has("cpuset.cpus")
	if g.memory && memory > 0 {
		if err := g.write("memory.max", strconv.FormatInt(memory, 10)); err != nil {
			return nil, err
		}
		_ = g.write("memory.swap.max", "0") // a system without swap has no such file
		_ = g.write("memory.oom.group", "1")
	}
	if err := g.setCores(cores); err != nil {
		return nil, err
	}
	fd, err := os.Open(g.dir)
	g.fd = fd
	return g, err
}

func (g *cgroup) has(name string) bool {
	_, err := os.Stat(filepath.Join(g.dir, name))
	return err == nil
}

func (g *cgroup) write(name, text string) error {
	return os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0)
}

func (g *cgroup) setCores(cores []int) error {
	if !g.cpuset || len(cores) == 0 {
		return nil
	}
	return g.write("cpuset.cpus", coreList(cores))
}

func coreList(cores []int) string {
	var list strings.Builder
	for i, n := range cores {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strconv.Itoa(n))
	}
	return list.String()
}

// kill kills all processes in the group.
func (g *cgroup) kill() error { return g.write("cgroup.kill", "1") }

// freeze stops all processes in the group, or lets them go on.
func (g *cgroup) freeze(yes bool) error {
	text := "0"
	if yes {
		text = "1"
	}
	return g.write("cgroup.freeze", text)
}

// freezeTime is how long a group may take to freeze: a process that waits for a disk
// freezes only when that wait is over.
const freezeTime = time.Second

// awaitFrozen waits until all processes in the group stand still, because others get its
// cores then.
func (g *cgroup) awaitFrozen() {
	for end := time.Now().Add(freezeTime); g.number("cgroup.events", "frozen") == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// number reads a number of one of the group's files with names and numbers.
func (g *cgroup) number(file, name string) int64 {
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	for _, line := range bytes.Split(text, []byte{'\n'}) {
		if key, value, _ := strings.Cut(string(line), " "); key == name {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

func (g *cgroup) isPopulated() bool { return g.number("cgroup.events", "populated") != 0 }

// outOfMemory says whether the system has killed a process because of the group's limit.
func (g *cgroup) outOfMemory() bool { return g.memory && g.number("memory.events", "oom_kill") > 0 }

func (g *cgroup) peak() int64 {
	text, err := os.ReadFile(filepath.Join(g.dir, "memory.peak"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

func (g *cgroup) cpu() time.Duration {
	return time.Duration(g.number("cpu.stat", "usage_usec")) * time.Microsecond
}

// remove removes the group. It must have no processes any more.
func (g *cgroup) remove() error {
	if g.fd != nil {
		g.fd.Close()
	}
	err := os.Remove(g.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
