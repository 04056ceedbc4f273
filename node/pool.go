package node

import (
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// pool keeps workers warm, so that a client need not wait for one to start.
type pool struct {
	command []string
	bounds  func() bounds // of a worker that is started now
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
}

// waitingWorker is a worker without a client.
type waitingWorker struct {
	*workerProcess
	since time.Time
}

// retryTime is how long the pool waits after a worker that could not be started,
// or that ended before it had a client.
const retryTime = time.Second

// settledTime is how long a worker must have waited without ending to show that workers
// do not end by themselves any more.
const settledTime = time.Second

func newPool(command []string, within func() bounds, warm int, log *slog.Logger) *pool {
	p := &pool{command: command, bounds: within, warm: warm, log: log, more: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{})}
	go p.fill()
	return p
}

// fill keeps as many workers as are wanted, until the pool is stopped. It retries for
// ever, but waits for retryTime after a worker that could not be started or that ended
// while it waited: otherwise workers that crash at once would be started in a tight
// loop.
func (p *pool) fill() {
	defer close(p.ended)
	for {
		var again <-chan time.Time
		if lost := p.discard(); lost || !p.startMissing() {
			again = time.After(retryTime)
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
func (p *pool) startMissing() bool {
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

func (p *pool) missing() bool {
	select {
	case <-p.stopped:
		return false
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) < p.warm
}

func (p *pool) add(w *workerProcess) {
	p.mu.Lock()
	p.idle = append(p.idle, waitingWorker{w, time.Now()})
	p.mu.Unlock()
	go func() { // fill replaces it if it ends while it waits
		<-w.exited
		p.wake()
	}()
}

func (p *pool) wake() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// discard removes workers that have ended, and says whether there were any.
func (p *pool) discard() bool {
	p.mu.Lock()
	var dead []*workerProcess
	p.idle = slices.DeleteFunc(p.idle, func(w waitingWorker) bool {
		select {
		case <-w.exited:
			dead = append(dead, w.workerProcess)
			return true
		default:
			return false
		}
	})
	p.mu.Unlock()
	for _, w := range dead {
		p.log.Warn("a worker ended while it waited for a client", "ending", w.ending())
		w.control.Close()
		p.mu.Lock()
		p.didNotStay, p.endedAt = fmt.Errorf("a worker ended before it had a client: %s", w.ending()), time.Now()
		p.mu.Unlock()
	}
	return len(dead) > 0
}

// start starts a worker, and remembers whether that worked.
func (p *pool) start() (*workerProcess, error) {
	w, err := startWorker(p.command, p.bounds(), p.log)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cannotStart = err
	return w, err
}

// trouble says why no worker can be had; nil if one can, as far as is known.
func (p *pool) trouble() error {
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
	case <-w.exited:
		return false
	default:
		return w.since.After(at) && time.Since(w.since) >= settledTime
	}
}

// keep changes how many workers wait. Surplus ones are not ended, but used up by
// clients.
func (p *pool) keep(warm int) {
	p.mu.Lock()
	p.warm = warm
	p.mu.Unlock()
	p.wake()
}

// take returns a worker that has no client yet: a waiting one, if there is one and warm
// allows it, or a new one.
func (p *pool) take(warm bool) (*workerProcess, error) {
	p.discard()
	within := p.bounds()
	now, files := within.String(), within.files()
	p.mu.Lock()
	for warm && len(p.idle) > 0 {
		w := p.idle[0]
		p.idle = p.idle[1:]
		if w.bounds.String() != now || w.files != files { // there are other devices now, or a file was replaced
			w.stop()
			continue
		}
		p.mu.Unlock()
		p.wake()
		return w.workerProcess, nil
	}
	p.mu.Unlock()
	return p.start()
}

// stop ends all workers that wait, and waits for that.
func (p *pool) stop() {
	close(p.stopped)
	<-p.ended
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		w.stop()
	}
	for _, w := range idle {
		<-w.exited
	}
}
