package worker

import (
	"sync"
	"time"

	"muster/node/clientcore"
)

// passing has the time of kernels told while the loop waits for them, as when it makes a
// base for the journal: whoever watches the node sees that they run, and not only that
// they ran.
type passing struct {
	mu    sync.Mutex
	waits bool // the loop waits, and the core is the timer's
	timer *time.Timer
}

// tellPassing is how often the time is told.
const tellPassing = 250 * time.Millisecond

// blockLong is block for what may wait until kernels have ended.
func (w *worker) blockLong(f func() error) error {
	if !w.core.Working() || w.replay != nil || w.hosts.outstanding() > 0 { // block looks by itself then
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

// passed tells the daemon what has passed, beside the loop.
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

// sayAll performs operations that are all words to the daemon.
func (w *worker) sayAll(ops []clientcore.Op) {
	for i := range ops {
		if ops[i].Kind == clientcore.Say {
			w.say(ops[i].Message)
		}
	}
}
