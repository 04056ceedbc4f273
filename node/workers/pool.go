package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"muster/wire"
	"muster/wire/control"
)

// Pool keeps workers warm, so that a client need not wait for one to start.
type Pool struct {
	command []string
	bounds  func() Bounds // of a worker that is started now
	uids    *Uids
	log     *slog.Logger
	more    chan struct{} // tells fill that workers may be missing
	stopped chan struct{} // closed by stop
	ended   chan struct{} // closed when fill has returned

	mu          sync.Mutex
	warm        int             // how many are to wait
	idle        []waitingWorker // longest waiting first
	cannotStart error           // why the last attempt to start a worker failed
	didNotStay  error           // how the last worker ended that never had a client
	endedAt     time.Time       // when that was

	preparing sync.WaitGroup // goroutines of workers that wait with a context (Prepared)
}

// waitingWorker is a worker without a client.
type waitingWorker struct {
	*Process
	since time.Time
}

// RetryTime is how long the pool waits after a worker that could not be started,
// or that ended before it had a client.
const RetryTime = time.Second

// settledTime is how long a worker must have waited without ending to show that workers
// do not end by themselves any more.
const settledTime = time.Second

func NewPool(command []string, within func() Bounds, warm int, numbers *Uids, log *slog.Logger) *Pool {
	p := &Pool{command: command, bounds: within, warm: warm, uids: numbers, log: log, more: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{})}
	go p.fill()
	return p
}

// fill keeps as many workers as are wanted, until the pool is stopped. It retries for
// ever, but waits for retryTime after a worker that could not be started or that ended
// while it waited: otherwise workers that crash at once would be started in a tight
// loop.
func (p *Pool) fill() {
	defer close(p.ended)
	for {
		var again <-chan time.Time
		if lost := p.discard(); lost || !p.startMissing() {
			again = time.After(RetryTime)
		}
		select {
		case <-p.more:
			if again == nil {
				continue
			}
			select { // a wake must not cut the wait after a failure short
			case <-again:
			case <-p.stopped:
				return
			}
		case <-again:
		case <-p.stopped:
			return
		}
	}
}

// startMissing starts workers until enough wait. It returns false if that failed.
func (p *Pool) startMissing() bool {
	for p.missing() {
		w, err := p.start()
		if err != nil {
			p.log.Error("no worker can be started", "error", err)
			return false
		}
		p.add(w)
	}
	return true
}

func (p *Pool) missing() bool {
	select {
	case <-p.stopped:
		return false
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) < p.warm
}

func (p *Pool) add(w *Process) {
	p.mu.Lock()
	p.idle = append(p.idle, waitingWorker{w, time.Now()})
	p.mu.Unlock()
	go func() { // fill replaces it if it ends while it waits
		<-w.Exited
		p.wake()
	}()
}

func (p *Pool) wake() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// discard removes workers that have ended, and says whether there were any.
func (p *Pool) discard() bool {
	p.mu.Lock()
	var dead []*Process
	p.idle = slices.DeleteFunc(p.idle, func(w waitingWorker) bool {
		select {
		case <-w.Exited:
			dead = append(dead, w.Process)
			return true
		default:
			return false
		}
	})
	p.mu.Unlock()
	for _, w := range dead {
		p.log.Warn("a worker ended while it waited for a client", "ending", w.Ending())
		w.control.Close()
		p.mu.Lock()
		p.didNotStay, p.endedAt = fmt.Errorf("a worker ended before it had a client: %s", w.Ending()), time.Now()
		p.mu.Unlock()
	}
	return len(dead) > 0
}

// start starts a worker, and remembers whether that worked.
func (p *Pool) start() (*Process, error) {
	w, err := startWorker(p.command, p.bounds(), p.log)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cannotStart = err
	return w, err
}

// Trouble says why no worker can be had; nil if one can, as far as is known.
func (p *Pool) Trouble() error {
	if _, err := exec.LookPath(p.command[0]); err != nil {
		return fmt.Errorf("none can be started: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cannotStart != nil {
		return p.cannotStart
	}
	if p.didNotStay != nil && slices.ContainsFunc(p.idle, func(w waitingWorker) bool { return w.settledAfter(p.endedAt) }) {
		p.didNotStay = nil
	}
	return p.didNotStay
}

// settledAfter says whether a worker that was started later has waited for a while.
func (w waitingWorker) settledAfter(at time.Time) bool {
	select {
	case <-w.Exited:
		return false
	default:
		return w.since.After(at) && time.Since(w.since) >= settledTime
	}
}

// Keep changes how many workers wait. Surplus ones are not ended, but used up by
// clients.
func (p *Pool) Keep(warm int) {
	p.mu.Lock()
	p.warm = warm
	p.mu.Unlock()
	p.wake()
}

// Take returns a worker that has no client yet: a waiting one, if there is one and warm
// allows it, or a new one.
func (p *Pool) Take(warm bool) (*Process, error) {
	p.discard()
	within := p.bounds()
	now, files := within.String(), within.files()
	p.mu.Lock()
	for warm && len(p.idle) > 0 {
		w := p.idle[0]
		p.idle = p.idle[1:]
		if w.bounds.String() != now || w.files != files { // there are other devices now, or a file was replaced
			w.Stop()
			continue
		}
		p.mu.Unlock()
		p.wake()
		return w.Process, nil
	}
	p.mu.Unlock()
	return p.start()
}

// Dismiss ends a worker, waits until it has exited, and takes its user number back.
func (p *Pool) Dismiss(w *Process) {
	w.Stop()
	w.AwaitExit()
	p.uids.giveBack(w.UID)
}

// Adopt notes that a worker of an earlier daemon has a user number.
func (p *Pool) Adopt(w *Process) { p.uids.adopt(w.UID) }

// Forget takes back the user number of a worker that has ended by itself.
func (p *Pool) Forget(w *Process) { p.uids.giveBack(w.UID) }

// ErrNotTried says that a device could not be probed, which proves neither that it is
// gone nor that it is there.
var ErrNotTried = errors.New("it could not be tried")

// probeTime is how long a device may take to answer.
const probeTime = 10 * time.Second

// Probe tries a device in a process of its own, since a call of a driver may never
// return. That process is killed after probeTime, and not even its end is waited for.
func (p *Pool) Probe(is control.DeviceConfig, lock *os.File) (found control.Probed, err error) {
	w, err := p.start()
	if err != nil {
		return found, errors.Join(ErrNotTried, err)
	}
	defer func() { go p.Dismiss(w) }()
	if lock, err = wire.OpenLock(lock); err != nil {
		return found, errors.Join(ErrNotTried, err)
	}
	defer lock.Close()
	late := time.AfterFunc(probeTime, w.Kill)
	defer late.Stop()
	is.Gone = false
	if err := w.control.Send(control.Probe{Device: is}, lock); err != nil {
		return found, errors.Join(ErrNotTried, err)
	}
	for {
		said, err := w.control.Receive()
		if err != nil {
			return found, errors.New("it does not answer")
		}
		switch m := said.(type) {
		case control.CannotServe:
			return found, errors.New(m.Reason)
		case control.Probed:
			return m, nil
		}
	}
}

// Stop ends all workers that wait without a context, and waits until these and those with one have ended.
func (p *Pool) Stop() {
	close(p.stopped)
	<-p.ended
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		w.Stop()
	}
	for _, w := range idle {
		<-w.Exited
	}
	p.preparing.Wait()
}
