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
	if len(b.calls) > 0 {
		patience = answerTime
	}
	return time.Since(b.active) < patience
}

// Sleep is called before the reader sleeps or is busy for long. It starts a goroutine for each call
// that waits for its answer.
func (b *bridge) Sleep() {
	for _, g := range b.calls {
		b.all.Go(func() { b.answer(g) })
	}
	b.calls = b.calls[:0]
}

// answers sends the answers that have arrived, and says whether there were any. Only the reader may
// call it.
func (b *bridge) answers() bool {
	left := b.calls[:0]
	for _, g := range b.calls {
		if g.pending.Done() {
			b.answer(g)
		} else {
			left = append(left, g)
		}
	}
	any := len(left) < len(b.calls)
	b.calls = left
	return any
}
