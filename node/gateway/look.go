package gateway

import "time"

// How long the reader polls for messages and answers before it sleeps: after the last of them, and
// longer while a call waits for its answer. Most kernels that a program waits for, and most pauses
// between two calls of a program that waits for each, are shorter.
const (
	lookTime   = 50 * time.Microsecond
	answerTime = 150 * time.Microsecond
)

// Look polls for answers. The reader calls it again and again while no message arrives, as long as
// it returns true. So a program that waits for each of its calls is served by one thread that never
// sleeps on the way.
func (b *bridge) Look() bool {
	if b.answers() {
		b.active = time.Now()
		return true
	}
	patience := lookTime
	b.callsMu.Lock()
	if len(b.calls) > 0 {
		patience = answerTime
	}
	b.callsMu.Unlock()
	return time.Since(b.active) < patience
}

// Sleep is called before the reader sleeps or is busy for long, and before the porter waits for room in
// the ring, since the reader cannot send anything meanwhile. It starts a goroutine for each call that
// waits for its answer.
func (b *bridge) Sleep() {
	b.callsMu.Lock()
	defer b.callsMu.Unlock()
	for _, g := range b.calls {
		b.all.Go(func() { b.answer(g) })
	}
	b.calls = b.calls[:0]
}

// answers sends the answers that have arrived, and says whether there were any. Only the reader may
// call it.
func (b *bridge) answers() bool {
	b.callsMu.Lock()
	left, done := b.calls[:0], b.done[:0]
	for _, g := range b.calls {
		if g.pending.Done() {
			done = append(done, g)
		} else {
			left = append(left, g)
		}
	}
	b.calls, b.done = left, done
	b.callsMu.Unlock()
	for _, g := range done {
		b.answer(g)
	}
	return len(done) > 0
}
