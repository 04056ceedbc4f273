package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// excuse permits a program to end with an error: a fault hit it, and it said so in these words.
type excuse struct {
	fault string
	words string // what it must have printed on standard error
}

// program is a program that runs on the node.
type program struct {
	command
	number  int
	dir     string // of the episode
	cmd     *exec.Cmd
	began   time.Time
	exited  chan struct{}
	killed  string // the fault that killed it; "" if none
	paused  bool
	remote  bool // it uses the node through the gateway, as from another machine
	excuses []excuse
	hurt    int    // how often it was hit since its last kernel
	kernels uint64 // number of its kernels, as last seen
}

// visible is the memory that each program sees, even on a smaller device.
const visible = "32MiB"

// launch starts a program in its own process group.
func (e *episode) launch(c command) (*program, error) {
	e.launched++
	p := &program{command: c, number: e.launched, dir: e.dir, began: time.Now(), exited: make(chan struct{}), remote: e.spec.remote && e.launched%3 == 0}
	if p.remote { // it may try to use a device that was reported to it and is gone now
		p.excuses = append(p.excuses, excuse{"a change of devices", "the node's devices are not those of which the program was told"})
	}
	out, err := os.Create(p.file("out"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	wrong, err := os.Create(p.file("err"))
	if err != nil {
		return nil, err
	}
	defer wrong.Close()
	way := []string{"--socket", e.node.socket, "--wait", "1m"}
	switch {
	case p.remote:
		way = []string{"--node", e.node.gateway(), "--tls-dir", e.o.certificates("user-*")}
	case e.spec.granted && e.launched%3 == 1:
		way = append(way, "--grant", e.grantFile())
	}
	args := slices.Concat([]string{"run", "--memory", visible}, way, []string{"--", filepath.Join(e.o.Examples, c.words[0])}, c.words[1:])
	p.cmd = exec.Command(e.o.Muster, args...)
	p.cmd.Env = append(e.environ(), fmt.Sprintf("%s=%d", programVariable, p.number))
	p.cmd.Stdout, p.cmd.Stderr = out, wrong
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *program) file(kind string) string {
	return filepath.Join(p.dir, fmt.Sprintf("program-%d.%s", p.number, kind))
}

func (p *program) String() string {
	if p.number == 0 {
		return "a program from elsewhere"
	}
	return fmt.Sprintf("program %d (%v)", p.number, p.command)
}

func (p *program) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// signal sends a signal to all processes of the program.
func (p *program) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s)
}

// outcome is how a program ended.
type outcome string

const (
	right    outcome = "right"
	ownError outcome = "own error" // the deliberate one
	killed   outcome = "killed"
	excused  outcome = "excused"
	wrong    outcome = "wrong"
)

// judge says how the program ended, and what was wrong, if anything.
func (p *program) judge() (outcome, error) {
	out, err := os.ReadFile(p.file("out"))
	if err != nil {
		return wrong, err
	}
	said, err := os.ReadFile(p.file("err"))
	if err != nil {
		return wrong, err
	}
	return p.command.judge(p.cmd.ProcessState.ExitCode(), string(out), string(said), p.killed != "", p.excuses)
}

// judge compares the end of a program with what is expected. A negative status is a signal.
func (c command) judge(status int, out, said string, wasKilled bool, excuses []excuse) (outcome, error) {
	isRight := status == c.status && result(out) == c.line
	switch {
	case isRight && status == 0:
		return right, nil
	case isRight:
		return ownError, nil
	case wasKilled && status < 0:
		return killed, nil
	case status == 1 && (strings.Contains(said, ": CUDA_ERROR_") || strings.HasPrefix(said, "muster run: ")): // an error, and not a wrong result
		for _, x := range excuses {
			if strings.Contains(said, x.words) {
				return excused, nil
			}
		}
	}
	return wrong, errors.New(c.complaint(status, out, said, excuses))
}

func (c command) complaint(status int, out, said string, excuses []excuse) string {
	text := fmt.Sprintf("it ended with %d and printed %q, not with %d and %q; on standard error it said %q", status, result(out), c.status, c.line, said)
	if status < 0 {
		text = fmt.Sprintf("it was killed, and by no fault; on standard error it said %q", said)
	}
	for _, x := range excuses {
		text += fmt.Sprintf("; %s would excuse %q", x.fault, x.words)
	}
	return text
}
