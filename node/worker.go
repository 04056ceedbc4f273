package node

import (
	"errors"
	"fmt"
	"log/slog"
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

// pool keeps workers warm, so that a client need not wait for one to start.
type pool struct {
	command []string
	log     *slog.Logger
	idle    chan *workerProcess
	stopped chan struct{} // to be closed
	ended   chan struct{} // closed when all are gone
}

func newPool(command []string, warm int, log *slog.Logger) *pool {
	p := &pool{command: command, log: log, stopped: make(chan struct{}), ended: make(chan struct{})}
	if warm > 0 {
		p.idle = make(chan *workerProcess, warm-1) // and one in the hand of fill
		go p.fill()
	} else {
		close(p.ended)
	}
	return p
}

// fill keeps as many workers as are wanted, until the pool is stopped.
func (p *pool) fill() {
	defer close(p.ended)
	var inHand []*workerProcess
	defer func() { stopAll(append(p.leftover(), inHand...)) }()
	for {
		w, err := startWorker(p.command)
		if err != nil {
			p.log.Error("no worker can be started", "error", err)
			select {
			case <-time.After(time.Second):
				continue
			case <-p.stopped:
				return
			}
		}
		select {
		case p.idle <- w:
		case <-p.stopped:
			inHand = append(inHand, w)
			return
		}
	}
}

// leftover returns the workers that nobody took.
func (p *pool) leftover() []*workerProcess {
	var all []*workerProcess
	for {
		select {
		case w := <-p.idle:
			all = append(all, w)
		default:
			return all
		}
	}
}

func stopAll(workers []*workerProcess) {
	for _, w := range workers {
		w.stop()
	}
	for _, w := range workers {
		<-w.exited
	}
}

// take returns a worker that has no client yet.
func (p *pool) take() (*workerProcess, error) {
	for {
		select {
		case w := <-p.idle:
			select {
			case <-w.exited:
				p.log.Warn("a worker ended while it waited for a client", "ending", w.ending())
				w.control.Close()
				continue
			default:
				return w, nil
			}
		default:
			return startWorker(p.command)
		}
	}
}

// stop ends all workers that wait, and waits for that.
func (p *pool) stop() {
	close(p.stopped)
	<-p.ended
}
