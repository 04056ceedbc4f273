// Package confine lets a process that runs strangers' code have only what it needs of the system. A child
// that Run starts can gain no privileges (no_new_privs) and reaches only the files that its Rules name
// (Landlock); it keeps what it was started with open. A process that needs files of its own in /proc is
// confined by Anew instead. With Process it then gives up the system calls that
// no such process needs (a seccomp filter), execve among them.
//
// What the kernel lacks is left out: Try says what is in force. The package knows nothing about what the
// processes are for.
package confine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// State is what confines a process.
type State struct {
	NoNewPrivs bool // no program that it executes gives it privileges
	Seccomp    bool // it has given up system calls
	Landlock   int  // the version of Landlock (its ABI) by which it reaches only some files; 0 if it reaches all
}

// Least is what two processes have in common.
func (s State) Least(other State) State {
	return State{s.NoNewPrivs && other.NoNewPrivs, s.Seccomp && other.Seccomp, min(s.Landlock, other.Landlock)}
}

// Run calls start on a thread of its own, which is confined by no_new_privs and Landlock, as far as Try
// found that they can be: a process that start starts inherits both, and the caller has neither. Root's
// process has fewer capabilities, too. The thread ends afterwards, as nothing takes them back.
func Run(r Rules, by State, start func() error) error {
	return onThread(func() error {
		dropCapabilities()
		if by.NoNewPrivs {
			if err := setNoNewPrivs(); err != nil {
				return err
			}
		}
		if by.Landlock > 0 {
			if err := restrict(r, by.Landlock); err != nil {
				return err
			}
		}
		return start()
	})
}

// Anew confines this process by no_new_privs and Landlock, and executes its program again, which inherits
// both; it returns only if that fails. Rules with Threads need it: the folder of a process's threads is
// known to the process alone. The folder stays open, so that the kernel finds the same one again.
func Anew(r Rules, by State, environment []string) error {
	runtime.LockOSThread() // the thread that executes the program passes on what confines it
	program, err := os.Executable()
	if err != nil {
		return err
	}
	threads := fmt.Sprintf("/proc/%d/task", os.Getpid())
	if _, err := syscall.Open(threads, unix.O_PATH, 0); err != nil {
		return fmt.Errorf("%s: %w", threads, err)
	}
	r.Write = append(slices.Clone(r.Write), threads)
	if by.NoNewPrivs {
		if err := setNoNewPrivs(); err != nil {
			return err
		}
	}
	if by.Landlock > 0 {
		if err := restrict(r, by.Landlock); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s cannot be executed again: %w", program, syscall.Exec(program, os.Args, environment))
}

// inForce is what Try has found to be in force in full, by the rules.
var inForce sync.Map

// Try finds out what can be in force on this system, by confining a thread that ends then. The error says
// why something is missing. What a process has found it does not try again: for a filter that comes and
// goes the kernel stops all processors.
func Try(r Rules) (s State, err error) {
	rules := fmt.Sprintf("%+v", r)
	if found, ok := inForce.Load(rules); ok {
		return found.(State), nil
	}
	defer func() {
		if err == nil {
			inForce.Store(rules, s)
		}
	}()
	err = onThread(func() error {
		if err := setNoNewPrivs(); err != nil { // the others need it
			return err
		}
		s.NoNewPrivs = true
		abi := min(landlockABI(), newestABI)
		unbound := errors.New("the kernel has no Landlock (or lsm= leaves it out)")
		if abi > 0 {
			unbound = restrict(r, abi)
		}
		if unbound == nil {
			s.Landlock = abi
		}
		unfiltered := install(r, 0)
		s.Seccomp = unfiltered == nil
		return errors.Join(unbound, unfiltered)
	})
	return s, err
}

// Process makes this process give up the system calls that its rules do not name a need for, in all its
// threads. It must have been started by Run.
func Process(r Rules) error { return install(r, unix.SECCOMP_FILTER_FLAG_TSYNC) }

// Of is what the kernel says of a process on this machine: everything but Landlock, of which it says
// nothing. A filter that this process has, too, does not count: a container has one for all. It returns
// false if there is no such process.
func Of(pid int) (State, bool) {
	own, _ := status("self")
	of, ok := status(strconv.Itoa(pid))
	return State{NoNewPrivs: of.noNewPrivs, Seccomp: of.filters > own.filters}, ok
}

// onThread calls f on a thread that ends with it. That is not the first thread of the process, which
// never ends, and whose state /proc shows as the process's.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: so the thread ends with this goroutine
		if syscall.Gettid() == syscall.Getpid() {
			err := onThread(f) // on another, as this one is taken
			runtime.UnlockOSThread()
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// restrict confines this thread by a version of Landlock.
func restrict(r Rules, abi int) error {
	ruleset, err := r.ruleset(abi)
	if err != nil {
		return err
	}
	defer syscall.Close(ruleset)
	if _, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); e != 0 {
		return fmt.Errorf("Landlock restricts nothing: %w", e)
	}
	return nil
}

// surplus are the capabilities that a confined process of root's has no use for. With some of them the
// kernel shows it other processes' environments (since Linux 6.14), whatever Landlock says.
var surplus = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_PERFMON, unix.CAP_BPF, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH,
	unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PACCT, unix.CAP_SYS_TTY_CONFIG,
	unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE, unix.CAP_MKNOD, unix.CAP_LINUX_IMMUTABLE, unix.CAP_SETFCAP, unix.CAP_SYSLOG,
	unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_READ, unix.CAP_AUDIT_WRITE, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND,
}

// dropCapabilities keeps what this thread executes from having the surplus capabilities. Only root can,
// and only root's processes would have them; an older kernel does not know all of them.
func dropCapabilities() {
	for _, c := range surplus {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
	}
}

func setNoNewPrivs() error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("no_new_privs cannot be set: %w", e)
	}
	return nil
}

// install installs the filter, for this thread, or for all with SECCOMP_FILTER_FLAG_TSYNC. The kernel
// leaves processors' speculation as it is if it can: older ones slow down every process that has a filter.
func install(r Rules, flags uintptr) error {
	program := filter(r)
	if program == nil {
		return errors.New("there is no seccomp filter for this architecture")
	}
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	set := func(flags uintptr) (uintptr, syscall.Errno) {
		refused, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&list)))
		return refused, e
	}
	refused, e := set(flags | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	if e == syscall.EINVAL {
		refused, e = set(flags)
	}
	runtime.KeepAlive(program)
	switch {
	case e != 0:
		return fmt.Errorf("the seccomp filter cannot be installed: %w", e)
	case refused != 0:
		return fmt.Errorf("the seccomp filter cannot be installed: thread %d has another", refused)
	}
	return nil
}

// about is a part of /proc/PID/status.
type about struct {
	noNewPrivs bool
	filters    int
}

func status(process string) (a about, ok bool) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return a, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		n, _ := strconv.Atoi(string(bytes.TrimSpace(value)))
		switch string(name) {
		case "NoNewPrivs":
			a.noNewPrivs = n == 1
		case "Seccomp": // 2 if there is a filter; kernels before 5.10 do not tell how many
			a.filters = max(a.filters, n/2)
		case "Seccomp_filters":
			a.filters = n
		}
	}
	return a, true
}
