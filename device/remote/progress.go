package remote

import (
	"slices"
	"sync"
)

// progress says how much of a stream's work was submitted, is known to have ended, and is covered by
// probes, and what of it may still write host memory. Work is numbered from 1; because a stream's work
// ends in order, single numbers say all this.
type progress struct {
	mu      sync.Mutex // never held while anything is waited for
	issued  uint64     // number of the latest work that was submitted
	done    uint64     // work up to this number is known to have ended
	probed  uint64     // work up to this number is covered by probes that were sent
	waiting []waiter
	hazards []*future // work that may still write host memory; see hazarded
	leaves  bool      // the stream is closed, for readers that hold mu only
}

// waiter has a function that is called when work up to number has ended.
type waiter struct {
	number uint64
	told   func()
}

// future is an event in this process that happens once; done is closed then.
type future struct{ done chan struct{} }

func newFuture() *future { return &future{make(chan struct{})} }

func (f *future) is() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// pending returns the futures of all that have not happened, in a new slice.
func pending(all []*future) []*future {
	return slices.DeleteFunc(slices.Clone(all), (*future).is)
}

// number assigns a number to a new piece of work. The caller must hold order.
func (p *progress) number() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issued++
	return p.issued
}

// ended records that work up to number has ended, and calls the waiters' functions, without a lock.
func (p *progress) ended(number uint64) {
	p.mu.Lock()
	p.done = max(p.done, number)
	var told []func()
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiter) bool {
		if w.number <= p.done {
			told = append(told, w.told)
		}
		return w.number <= p.done
	})
	p.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// has says whether work up to number is known to have ended.
func (p *progress) has(number uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done >= number
}

// wait arranges that f is called when work up to number is known to have ended; at once if it is.
func (p *progress) wait(number uint64, f func()) {
	p.mu.Lock()
	if p.done < number {
		p.waiting = append(p.waiting, waiter{number, f})
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	f()
}

// inherit adds the hazards of another stream, which this one now waits for.
func (p *progress) inherit(others []*future) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hazards = append(pending(p.hazards), pending(others)...)
}

// standing returns the number of the latest work, whether a probe covers it, and whether it is known to
// have ended.
func (p *progress) standing() (number uint64, asked, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.issued, p.probed >= p.issued, p.done >= p.issued
}

// probing returns the number of the latest work, and whether a probe covers it. The caller will send
// one if none does; a stream that leaves can send no more.
func (p *progress) probing() (number uint64, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number, asked = p.issued, p.probed >= p.issued
	if !p.leaves {
		p.probed = p.issued
	}
	return number, asked
}

// leave notes that the stream is closed.
func (p *progress) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves = true
}

// left says whether the stream is closed and all its work has ended, so that the context can forget it.
func (p *progress) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaves && p.done >= p.issued
}

// hazard records work of this stream that writes host memory. It replaces the earlier hazards: the new
// one ends after all of them, since it comes later in the stream (see arrival.before, and before in
// Call).
func (p *progress) hazard(f *future) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hazards = []*future{f}
}

// hazarded returns the work after which this stream may read host memory: copies to the host and
// functions, of this stream or of streams that it has waited for, that have not ended.
func (p *progress) hazarded() []*future {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hazards = pending(p.hazards)
	return p.hazards
}
