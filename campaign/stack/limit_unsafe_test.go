package stack

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"muster/internal/need"
)

// descriptorLimit sets how many descriptors a process may have, and returns how
// many it was.
func descriptorLimit(t *testing.T, pid int, limit uint64) uint64 {
	t.Helper()
	var old, now syscall.Rlimit
	set := func(with, was *syscall.Rlimit) {
		_, _, errno := syscall.Syscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE,
			uintptr(unsafe.Pointer(with)), uintptr(unsafe.Pointer(was)), 0, 0)
		if errno != 0 {
			t.Fatal("prlimit:", errno)
		}
	}
	set(nil, &old)
	now = syscall.Rlimit{Cur: limit, Max: old.Max}
	set(&now, nil)
	return old.Cur
}

// exhaust leaves a process no more descriptors than it has, until the function
// that it returns is called.
func exhaust(t *testing.T, pid int) (restore func()) {
	t.Helper()
	first := uint64(0)
	for ; ; first++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, first)); err != nil {
			break
		}
	}
	was := descriptorLimit(t, pid, first)
	return func() { descriptorLimit(t, pid, was) }
}

// asUser runs something as another user of the machine.
func asUser(t *testing.T, uid int, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can be somebody else")
	}
	done := make(chan struct{})
	var errno syscall.Errno
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if errno == 0 {
			do()
		}
	}()
	if <-done; errno != 0 {
		t.Fatal("setresuid:", errno)
	}
}
