package emulate

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processes starts the children of the first process and reaps all processes that end, children or
// not: Slurm's daemons leave orphans to it.
type processes struct {
	mu    sync.Mutex // guards what follows; held during a fork, so that ends has the process before reap can see its end
	ends  map[int]chan syscall.WaitStatus
	ended bool // no more may be started

	work chan func()
}

func newProcesses(rootless bool) *processes {
	p := &processes{ends: map[int]chan syscall.WaitStatus{}, work: make(chan func())}
	go p.fork(rootless)
	return p
}

// fork runs the functions that start processes, in a thread that passes no capabilities on: those
// of the user namespace are for the mounts only, and capabilities belong to threads.
func (p *processes) fork(rootless bool) {
	runtime.LockOSThread()
	if rootless {
		_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	for do := range p.work {
		do()
	}
}

// child is a started process; end delivers its status once.
type child struct {
	pid int
	end chan syscall.WaitStatus
}

func (p *processes) start(argv []string, attr *syscall.ProcAttr) (c child, err error) {
	done := make(chan struct{})
	p.work <- func() {
		defer close(done)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ended {
			err = errors.New("the cluster ends")
			return
		}
		if c.pid, err = syscall.ForkExec(argv[0], argv, attr); err == nil {
			c.end = make(chan syscall.WaitStatus, 1)
			p.ends[c.pid] = c.end
		}
	}
	<-done
	if err != nil {
		return child{}, fmt.Errorf("%s: %w", argv[0], err)
	}
	return c, nil
}

// reap collects one process that has ended. It returns false if there is none.
func (p *processes) reap(options int) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, options, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid == 0 {
		return false
	}
	if status.Exited() || status.Signaled() {
		p.mu.Lock()
		end := p.ends[pid]
		delete(p.ends, pid)
		p.mu.Unlock()
		if end != nil {
			end <- status
		}
	}
	return true
}

// collect reaps processes whenever a signal says that some have ended.
func (p *processes) collect(signals <-chan struct{}) {
	for range signals {
		for p.reap(syscall.WNOHANG) {
		}
	}
}

// endAll kills every process of the namespace and waits until none is left, at most 10 s.
func (p *processes) endAll() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		err := syscall.Kill(-1, syscall.SIGKILL)
		for p.reap(syscall.WNOHANG) {
		}
		if err == syscall.ESRCH {
			return
		}
		time.Sleep(time.Millisecond) // they end when the kernel has cleaned them up
	}
}
