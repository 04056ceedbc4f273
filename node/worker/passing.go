package worker

import (
	"sync"
	"time"

	"muster/node/clientcore"
)

// passing reports GPU time to the daemon while the loop waits for kernels, for example when it
// makes a base. So the node's statistics grow while kernels run, and not only when they have ended.
//
// While waits is set the loop is blocked and does not touch the core; the timer's goroutine may use
// it then, under mu. The loop clears waits under mu before it goes on, so the two never use the
// core at once.
type passing struct {
	mu    sync.Mutex
	waits bool // the loop is blocked, and the timer may use the core
	timer *time.Timer
}

// tellPassing is the interval of the reports.
const tellPassing = 250 * time.Millisecond

// blockLong is block for waits that may last until kernels have ended.
func (w *worker) blockLong(f func() error) error {
	if !w.core.Working() || w.replay != nil || w.hosts.outstanding() > 0 { // block itself reports while it reads ahead
		return w.block(f)
	}
	p := &w.passing
	p.mu.Lock()
	p.waits = true
	if p.timer == nil {
		p.timer = time.AfterFunc(tellPassing, w.passed)
	} else {
		p.timer.Reset(tellPassing)
	}
	p.mu.Unlock()
	err := w.block(f)
	p.mu.Lock()
	p.waits = false
	p.timer.Stop()
	p.mu.Unlock()
	return err
}

// passed reports the GPU time so far. The timer calls it, in a goroutine beside the loop.
func (w *worker) passed() {
	p := &w.passing
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waits {
		return
	}
	w.sayAll(w.core.Passing(w.now()))
	p.timer.Reset(tellPassing)
}

// sayAll performs operations that are all messages to the daemon.
func (w *worker) sayAll(ops []clientcore.Op) {
	for i := range ops {
		if ops[i].Kind == clientcore.Say {
			w.say(ops[i].Message)
		}
	}
}
