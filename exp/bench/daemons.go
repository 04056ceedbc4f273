package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/node/ask"
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
	d.cmd.Env = l.Tools.Environment()
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

// LaunchNode starts a node with the given options, which prevail over those that all nodes of experiments have. A node
// has no spare workers and no recovery copies, since their cost would distort what is measured, and no worker time-out,
// since a busy machine may delay a worker, and killing that would end the experiment.
func (l *Daemons) LaunchNode(name, socket string, words ...string) error {
	return l.Launch(name, append([]string{"node", "--child", "--socket", socket, "--recover", "off", "--warm", "0", "--migrate", "off",
		"--worker-timeout", "0s", "--grace", "1s", "--swap", "4GiB", "--log-level", "warn", "--text-log"}, words...)...)
}

// AwaitNodes waits until the nodes with these sockets answer.
func (l *Daemons) AwaitNodes(ctx context.Context, sockets ...string) error {
	for _, socket := range sockets {
		for {
			if _, err := ask.Status(socket); err == nil {
				break
			}
			if err := l.Lost(); err != nil {
				return fmt.Errorf("a node did not come up: %w", err)
			}
			if err := Pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	}
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

// Stop ends all daemons, the one started last first. It returns an error for those that ended with a failure.
func (l *Daemons) Stop() (failed error) {
	for _, d := range slices.Backward(l.list) {
		_ = d.cmd.Process.Signal(syscall.SIGINT)
		_ = d.life.Close()
	}
	for _, d := range l.list {
		<-d.exited
		if !d.cmd.ProcessState.Success() {
			failed = errors.Join(failed, fmt.Errorf("%s ended with %v", d.name, d.cmd.ProcessState))
		}
	}
	return failed
}

// Logs is what the daemons wrote to their logs. They must have ended.
func (l *Daemons) Logs() string {
	var all strings.Builder
	for _, d := range l.list {
		if text := strings.TrimSpace(strings.TrimPrefix(d.log.String(), "ready\n")); text != "" {
			fmt.Fprintf(&all, "%s: %s\n", d.name, text)
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
