package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/node/programs"
)

// Guard plays the demonstration in a child process, and cleans up behind it: inside has the
// arguments with which this program plays it in a folder (Play). Either of the two may be killed at
// any moment: the guard adopts whatever its child leaves, and the child is told by the system when
// its guard is gone.
func Guard(o *Options, inside func(dir string) []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if err := programs.AdoptOrphans(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, endSignals...)
	defer signal.Stop(signals)
	dir, err := os.MkdirTemp("", "muster-demo-")
	if err != nil {
		return err
	}
	cmd := exec.Command(self, inside(dir)...)
	cmd.Stdout, cmd.Stderr = o.Out, o.Errors
	// A Ctrl-C is passed on once. The system ties the child to the thread that started it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			return o.guarded(err, sweep(dir))
		}
	}
}

// endSignals are those that end the demonstration early.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// guarded is how the demonstration ended: err is of the child, left what it had left.
func (o *Options) guarded(err error, left []string) error {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		if exit.ExitCode() == o.Interrupted {
			fmt.Fprintln(o.Errors, "interrupted: everything is stopped, no process and no file is left")
		}
		return Status(exit.ExitCode())
	case err != nil:
		return fmt.Errorf("the demonstration ended early (%w); what it had left is removed", err)
	case len(left) > 0:
		return errors.New(leftText(left))
	}
	fmt.Fprintln(o.Out, "Everything is stopped: no process and no file is left.")
	return nil
}

// leftText says what was left over, and that it has been removed.
func leftText(left []string) string {
	return "this was left, and is removed now: " + strings.Join(left, "; ")
}

// sweep kills all processes below this one and removes the demonstration's folder and
// control groups. It returns what there was.
func sweep(dir string) (left []string) {
	for clean := 0; clean < 2; clean++ { // a process may have had a child while it was looked for
		below := descendants(os.Getpid())
		for _, p := range below {
			left = append(left, fmt.Sprintf("process %d (%s)", p, wordsOf(p)))
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		if len(below) > 0 {
			clean = -1
			time.Sleep(time.Millisecond) // until they are gone
		}
	}
	for _, group := range taskGroups(dir) {
		left = append(left, "control group "+group)
		removeGroup(group)
	}
	if _, err := os.Stat(dir); err == nil {
		left = append(left, "folder "+dir)
		if err := os.RemoveAll(dir); err != nil {
			left = append(left, err.Error())
		}
	}
	slices.Sort(left)
	return slices.Compact(left) // one that took a while to die was seen more than once
}

// killTree kills a process and all below it, as the end of a machine does. The first is
// stopped before, so that it starts nothing meanwhile.
func killTree(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, p := range append(descendants(pid), pid) {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

// descendants lists the living processes below one.
func descendants(pid int) (list []int) {
	below := map[int][]int{}
	dead := map[int]bool{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The program's name is in brackets, and may have any character in it.
		line := string(text)
		fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		var p, parent int
		if _, err := fmt.Sscan(line, &p); err != nil || len(fields) < 2 {
			continue
		}
		if _, err := fmt.Sscan(fields[1], &parent); err != nil {
			continue
		}
		below[parent] = append(below[parent], p)
		dead[p] = fields[0] == "Z" || fields[0] == "X"
	}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, p := range below[todo[0]] {
			if !dead[p] {
				list = append(list, p)
			}
			todo = append(todo, p)
		}
	}
	return list
}

func wordsOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// taskGroups lists the control groups of tasks that agents with a spool below a folder
// have made: their names end in the incarnation that the spool has.
func taskGroups(dir string) (groups []string) {
	var endings []string
	spools, _ := filepath.Glob(filepath.Join(dir, "*", "spool", "incarnation"))
	for _, file := range spools {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			endings = append(endings, "-"+strings.TrimSpace(string(text)))
		}
	}
	if len(endings) == 0 {
		return nil
	}
	mounts, _ := os.ReadFile("/proc/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			groups = append(groups, groupsEnding(f[1], endings)...)
		}
	}
	return groups
}

func groupsEnding(root string, endings []string) (groups []string) {
	_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // it has gone meanwhile
		}
		if slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(path, e) }) {
			groups = append(groups, path)
			return filepath.SkipDir
		}
		return nil
	})
	return groups
}

// removeGroup removes a control group whose processes were killed: it takes a moment
// until the system knows.
func removeGroup(group string) {
	for range 1000 {
		if err := syscall.Rmdir(group); err == nil || errors.Is(err, syscall.ENOENT) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
