package bench

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// Daemons are the heads and nodes that an experiment has started, each a process of this
// executable. The zero value has none; Tools must be set before Launch.
type Daemons struct {
	Tools Tools
	list  []*daemon
}

type daemon struct {
	name string
	cmd  *exec.Cmd
	life io.Closer    // a node ends when its standard input does
	log  bytes.Buffer // to be read when it has ended

	exited chan struct{}
}

// Launch starts a daemon. Stop ends it, and so does the end of this process, which closes the
// daemon's standard input.
func (l *Daemons) Launch(name string, words ...string) error {
	d := &daemon{name: name, cmd: exec.Command(l.Tools.Muster, words...), exited: make(chan struct{})}
	d.cmd.Env = append(WithoutSettings(os.Environ()), "MUSTER_LIB="+l.Tools.Lib)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var err error
	if d.life, err = d.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	l.list = append(l.list, d)
	go func() {
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	return nil
}

// Lost names a daemon that has ended although nothing stopped it; nil if all are running.
func (l *Daemons) Lost() error {
	for _, d := range l.list {
		select {
		case <-d.exited:
			return fmt.Errorf("%s has ended: %v", d.name, d.cmd.ProcessState)
		default:
		}
	}
	return nil
}

// Stop ends all daemons, the one started last first.
func (l *Daemons) Stop() {
	for _, d := range slices.Backward(l.list) {
		_ = d.cmd.Process.Signal(syscall.SIGINT)
		_ = d.life.Close()
	}
	for _, d := range l.list {
		<-d.exited
	}
}

// Logs is what the daemons wrote to their logs. They must have ended.
func (l *Daemons) Logs() string {
	var all strings.Builder
	for _, d := range l.list {
		if d.log.Len() > 0 {
			fmt.Fprintf(&all, "%s: %s\n", d.name, strings.TrimSpace(d.log.String()))
		}
	}
	return strings.TrimSpace(all.String())
}

// Process is the PID of a daemon; 0 if there is none of that name.
func (l *Daemons) Process(name string) int {
	for _, d := range l.list {
		if d.name == name {
			return d.cmd.Process.Pid
		}
	}
	return 0
}
