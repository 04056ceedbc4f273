package workers

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

// A worker's memory lies away from that of programs, and what is started after it is as before.
func TestWorkersLieApart(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if _, _, e := syscall.RawSyscall(syscall.SYS_PERSONALITY, addrCompatLayout, 0, 0); e != 0 {
		need.Missing(t, need.System, "this machine allows no other layout:", e)
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_PERSONALITY, 0, 0, 0)
	var stack syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_STACK, &stack); err != nil || stack.Cur == ^uint64(0) {
		need.Missing(t, need.System, "the stack is unlimited: other processes have no usual layout either")
	}
	mapped := func(start func(*exec.Cmd) error) (usual int) {
		cmd := exec.Command("cat")
		hold, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := start(cmd); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(hold, "is it there?") // its libraries are, once it answers
		if _, err := out.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_ = hold.Close()
		_ = cmd.Wait()
		for line := range strings.Lines(string(maps)) {
			if strings.HasPrefix(line, "7") && strings.Contains(line, ".so") {
				usual++
			}
		}
		return usual
	}
	if n := mapped(startApart); n > 0 {
		t.Errorf("%d parts of libraries lie where programs have theirs", n)
	}
	if n := mapped((*exec.Cmd).Start); n == 0 {
		t.Error("another process has its libraries elsewhere, too")
	}
}
