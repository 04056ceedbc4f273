package node

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"muster/internal/need"
)

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
