package client

import (
	"sync/atomic"
	"time"

	"muster/wire"
)

// How long the reader of a connection looks for an answer before it sleeps: after the
// question, and after the last answer, for a program that waits for each of its calls asks
// again at once.
const (
	answerTime = 150 * time.Microsecond
	againTime  = 30 * time.Microsecond
)

// awaited are the answers that the program waits for. The goroutine that sends asks, the one
// that receives is told and looks (door.Idle).
type awaited struct {
	slots   [wire.Slots]atomic.Bool
	count   atomic.Int32 // of them
	asked   atomic.Int64 // the last time, on the clock of sinceStart
	hadLast int64        // the last answer; the receiver's
}

var start = time.Now()

func sinceStart() int64 { return int64(time.Since(start)) }

// ask notes a call. That of a thread which waits for functions to run (host_next) is
// answered at any time, and nobody looks for it.
func (a *awaited) ask(h wire.Header) {
	if h.Slot < 0 || h.Op == wire.OpHostNext {
		return
	}
	if !a.slots[h.Slot].Swap(true) {
		a.count.Add(1)
	}
	a.asked.Store(sinceStart())
}

func (a *awaited) answered(slot int) {
	if slot >= 0 && a.slots[slot].Swap(false) {
		a.count.Add(-1)
		a.hadLast = sinceStart()
	}
}

// Look says whether an answer may come soon.
func (a *awaited) Look() bool {
	now := sinceStart()
	return a.count.Load() > 0 && now-a.asked.Load() < int64(answerTime) || now-a.hadLast < int64(againTime)
}

// Sleep does nothing: nobody but the node answers.
func (a *awaited) Sleep() {}
