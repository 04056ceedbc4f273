package worker

import (
	"sync"
	"time"

	"muster/node/clientcore"
)

// passing reports GPU time to the daemon while the loop waits for kernels, for example when it
// makes a base. So the node's statistics grow while kernels run, and not only when they have ended.
//
// The loop takes along what the core would report (clientcore.Passage), for the timer's goroutine to
// report meanwhile, and hands it back when it goes on: only the loop calls the core.
type passing struct {
	mu    sync.Mutex
	waits bool // the loop is blocked
	takes clientcore.Passage
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
	p.waits, p.takes = true, w.core.Passage()
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
	w.core.Passed(&p.takes)
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
	for _, m := range p.takes.Tell(w.now()) {
		w.line.Say(m)
	}
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
