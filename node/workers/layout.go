package workers

import (
	"os/exec"
	"runtime"
	"syscall"
)

// addrCompatLayout makes the kernel give out addresses from a third of the address space upwards
// (ADDR_COMPAT_LAYOUT), and not from the stack downwards, as it does for programs.
const addrCompatLayout = 0x0200000

// startApart starts a worker whose own memory lies where programs have none: kernels reach memory that a
// program registers at the program's address, so that its worker must have that address free. Where
// this is forbidden, as in most containers and by systemd's LockPersonality, a worker that has
// something there is replaced by another.
//
// The layout is one of this thread, which the new process inherits.
func startApart(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	const ask = 0xffffffff
	was, _, e := syscall.RawSyscall(syscall.SYS_PERSONALITY, ask, 0, 0)
	if e == 0 {
		_, _, e = syscall.RawSyscall(syscall.SYS_PERSONALITY, was|addrCompatLayout, 0, 0)
	}
	err := cmd.Start()
	if e == 0 {
		_, _, e = syscall.RawSyscall(syscall.SYS_PERSONALITY, was, 0, 0)
		if e != 0 {
			return err // the thread ends with this goroutine, as it stays locked
		}
	}
	runtime.UnlockOSThread()
	return err
}
