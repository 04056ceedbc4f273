package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"muster/wire/control"
)

// killAfter is how long a worker may take to end by itself.
const killAfter = 2 * time.Second

// workerProcess is a worker, serving or waiting for a client.
type workerProcess struct {
	cmd     *exec.Cmd
	control *control.DaemonEnd
	queue   chan control.ToWorker
	exited  chan struct{} // closed when the process is no more
	err     error         // how it ended, then
}

// startWorker starts a worker. Its end of the connection is descriptor 3.
func startWorker(command []string) (*workerProcess, error) {
	own, child, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{child}
	// A Ctrl-C at the terminal is for the daemon, which ends its workers itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		own.Close()
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	w := &workerProcess{cmd: cmd, control: own, queue: make(chan control.ToWorker, 64), exited: make(chan struct{})}
	go func() {
		w.err = cmd.Wait()
		close(w.exited)
	}()
	return w, nil
}

// serve gives the worker its client, and lets post send messages from now on.
func (w *workerProcess) serve(s control.Serve, files []*os.File) error {
	if err := w.control.Send(s, files...); err != nil {
		return fmt.Errorf("the worker does not take its client: %w", err)
	}
	go func() {
		for {
			select {
			case m := <-w.queue:
				if w.control.Send(m) != nil {
					return
				}
			case <-w.exited:
				return
			}
		}
	}()
	return nil
}

// post sends a message without waiting. A worker that does not read its
// messages is beyond help.
func (w *workerProcess) post(m control.ToWorker) {
	select {
	case w.queue <- m:
	default:
		w.kill()
	}
}

// stop lets the worker end: at once when it notices, after killAfter otherwise.
func (w *workerProcess) stop() {
	w.control.Close()
	go func() {
		late := time.NewTimer(killAfter)
		defer late.Stop()
		select {
		case <-w.exited:
		case <-late.C:
			w.kill()
		}
	}()
}

func (w *workerProcess) kill() { _ = w.cmd.Process.Kill() }

// ending says how the worker ended, once exited is closed.
func (w *workerProcess) ending() string {
	var failed *exec.ExitError
	if errors.As(w.err, &failed) {
		return failed.Error()
	}
	if w.err != nil {
		return w.err.Error()
	}
	return "it ended by itself"
}
