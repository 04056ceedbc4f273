package client

import (
	"slices"
	"sync"
	"time"

	"muster/wire"
)

// local is the way of a Direct to a worker on this machine: the memory that the two share.
type local struct {
	session *Session
	all     sync.WaitGroup // goroutines that may touch the shared memory

	// mu is also held while answers are handed over: so they are, one after the other.
	mu      sync.Mutex
	fetches []awaiting // whose data have not been handed over, in the order in which they were sent
	more    chan struct{}
	over    chan struct{} // closed by finish
	ended   bool
	reason  string
}

// awaiting is a message whose answer has not been handed over.
type awaiting struct {
	pending *wire.Pending
	done    func(Answer)
}

// Direct makes an attached session a Direct, which takes it over.
func (s *Session) Direct() *Direct {
	l := &local{session: s, more: make(chan struct{}, 1), over: make(chan struct{})}
	d := &Direct{Welcome: s.Welcome, Devices: s.Devices, Attached: s.Attached, Shared: s.Shared, Producer: s.Producer, local: l, over: make(chan struct{})}
	l.all.Go(l.collect)
	go func() {
		l.finish(s.Wait())
		l.all.Wait()
		close(d.over)
	}()
	return d
}

// finish ends the client. Only the first reason counts.
func (l *local) finish(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended, l.reason = true, reason
	l.session.Shared.Close(reason) // which ends all waits for the worker
	l.session.HangUp()
	close(l.over)
}

func (l *local) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// begin notes a goroutine that touches the shared memory; it fails once the client has ended.
func (l *local) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return &wire.ClosedError{Reason: l.reason}
	}
	l.all.Add(1)
	return nil
}

func (l *local) start(h wire.Header, body []byte, done func(Answer)) error {
	if err := l.begin(); err != nil {
		return err
	}
	pending, err := l.session.Producer.Start(h, body)
	if err != nil {
		l.all.Done()
		return err
	}
	go func() {
		defer l.all.Done()
		answer := answerOf(pending)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sweep() // data that came before this answer are handed over before it
		done(answer)
	}()
	return nil
}

func answerOf(p *wire.Pending) Answer {
	result, body, err := p.Wait()
	return Answer{Result: result, Body: body, Err: err}
}

func (l *local) fetch(h wire.Header, body []byte, done func(Answer)) error {
	if err := l.begin(); err != nil {
		return err
	}
	defer l.all.Done()
	// Under the lock, so that no answer to a later message is handed over before this is noted. The
	// ring has room sooner or later without it: the worker empties it.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return &wire.ClosedError{Reason: l.reason}
	}
	pending, err := l.session.Producer.Start(h, body)
	if err != nil {
		return err
	}
	l.fetches = append(l.fetches, awaiting{pending, done})
	select {
	case l.more <- struct{}{}:
	default:
	}
	return nil
}

// sweep hands over the data that have come. The caller must hold mu.
func (l *local) sweep() {
	var come []awaiting
	l.fetches = slices.DeleteFunc(l.fetches, func(a awaiting) bool {
		if a.pending.Done() {
			come = append(come, a)
			return true
		}
		return false
	})
	for _, a := range come {
		a.done(answerOf(a.pending))
	}
}

// collect hands over data that no answer follows, and at the end tells those who wait for data that
// none will come.
func (l *local) collect() {
	for {
		l.mu.Lock()
		l.sweep()
		if l.ended {
			for _, a := range l.fetches {
				a.done(answerOf(a.pending)) // which does not wait: the shared memory is closed
			}
			l.fetches = nil
			l.mu.Unlock()
			return
		}
		var oldest *wire.Pending
		if len(l.fetches) > 0 {
			oldest = l.fetches[0].pending
		}
		l.mu.Unlock()
		if oldest != nil {
			// An answer may hand it over meanwhile, so the wait is short.
			oldest.WaitDone(2 * time.Millisecond)
			continue
		}
		select {
		case <-l.over:
		case <-l.more:
		}
	}
}
