package daemon

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"muster/ivm/core"

	"golang.org/x/sys/unix"
)

// An element is in a session of its own: neither the daemon's terminal nor another user's element is
// in it.
func TestElementsHaveSessions(t *testing.T) {
	m, err := newProgram(t, newService(t), "ada")
	if err != nil {
		t.Fatal(err)
	}
	m.program.Launch.Executable, m.program.Launch.Args = "/bin/sleep", []string{"sleep", "1000"}
	run, err := m.run(core.Start{Element: 1}, "key")
	if err != nil {
		t.Fatal(err)
	}
	pid := run.cmd.Process.Pid
	if session, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0); errno != 0 || int(session) != pid {
		t.Errorf("process %d is in session %d: %v", pid, session, errno)
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = run.became.Wait()
	_ = run.cmd.Wait()
}

// The end of a process is seen, and the process is still there to be waited for.
func TestAwaitEnd(t *testing.T) {
	var all sync.WaitGroup
	for range 20 {
		cmd := exec.Command("/bin/sh", "-c", "read x; exit 7")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if hasEnded(cmd.Process.Pid, unix.WNOHANG) {
			t.Error("a process that waits has ended")
		}
		all.Go(func() {
			awaitEnd(cmd.Process.Pid)
			if !hasEnded(cmd.Process.Pid, unix.WNOHANG) {
				t.Error("a process that has not ended was taken for one that has")
			}
			if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("%v", err)
			}
		})
		in.Close()
	}
	all.Wait()
}

// events are what the root is told.
type events chan core.Event

func (e events) tell(event core.Event) error        { e <- event; return nil }
func (e events) output(core.ElementID, int, []byte) {}
func (e events) close()                             {}

// The connection of a process that crashes may end after the process was waited for, and before that
// is told. The others are told how it ended.
func TestHowAnElementEndedIsTold(t *testing.T) {
	m, err := newProgram(t, newService(t), "ada")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // in whichever order
		told := make(events, 2)
		m.toRoot = told
		x := &element{member: m, id: 9, key: "key", gone: make(chan struct{})}
		left := make(chan struct{})
		go func() {
			defer close(left)
			x.leave()
		}()
		runtime.Gosched()
		m.noteEnd(x, "element 9 ended: signal: segmentation fault")
		<-left
		if e := (<-told).(core.Ended); e.Reason != "element 9 ended: signal: segmentation fault" || len(told) > 0 {
			t.Fatalf("%+v, and %d more", e, len(told))
		}
	}
}

// The output of an element that starts while its program ends stays open until it is started: its number
// could be another file's otherwise.
func TestOutputOfProgramsThatEnd(t *testing.T) {
	m, err := newProgram(t, newService(t), "ada")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{}
	done, err := m.connectOutput(cmd, 1)
	if err != nil {
		t.Fatal(err)
	}
	m.root.close()
	if _, err := cmd.Stdout.(*os.File).WriteString("a last word\n"); err != nil {
		t.Errorf("the element's output was closed with the program: %v", err)
	}
	done()
	if _, err := m.connectOutput(cmd, 2); err == nil {
		t.Errorf("an element of a program that has ended got its output")
	}
}
