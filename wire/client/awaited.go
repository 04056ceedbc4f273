package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/wire"
)

// How long the reader of a connection polls for an answer before it sleeps: after a call was sent,
// and after the last answer, since a program that waits for each of its calls sends the next at
// once.
const (
	answerTime = 150 * time.Microsecond
	againTime  = 30 * time.Microsecond
)

// awaited counts the answers that the program waits for. The sending goroutine calls ask; the
// receiving one is told of answers and decides whether to poll or to sleep (door.Idle).
type awaited struct {
	slots   [wire.Slots]atomic.Bool
	count   atomic.Int32 // how many answers are outstanding
	asked   atomic.Int64 // when a call was last sent, on the clock of sinceStart
	hadLast atomic.Int64 // when the last answer came
	trips   *Trips
}

var start = time.Now()

func sinceStart() int64 { return int64(time.Since(start)) }

// ask notes a call. A call that waits for host functions to run (host_next) may be answered at any
// time, so the receiver does not poll for it.
func (a *awaited) ask(h wire.Header) {
	if h.Slot < 0 || h.Op == wire.OpHostNext {
		return
	}
	if !a.slots[h.Slot].Swap(true) && a.count.Add(1) == 1 {
		a.trips.begin(h.Op)
	}
	a.asked.Store(sinceStart())
}

func (a *awaited) answered(slot int) {
	if slot >= 0 && a.slots[slot].Swap(false) {
		a.count.Add(-1)
		a.hadLast.Store(sinceStart())
	}
}

// Look says whether an answer may come soon, so that polling is worth it.
func (a *awaited) Look() bool {
	now := sinceStart()
	return a.count.Load() > 0 && now-a.asked.Load() < int64(answerTime) || now-a.hadLast.Load() < int64(againTime)
}

// Sleep does nothing: only the node answers, and the receiver needs no other wake-up.
func (a *awaited) Sleep() {}

// Trips counts round trips between a program and its node, by the call that began each. Calls that
// are sent while another is being answered share its trip, so the time that a distant node costs is
// about the number of trips times the time of one. A nil Trips counts nothing.
type Trips struct {
	mu    sync.Mutex
	begun map[wire.Op]int
}

func (t *Trips) begin(op wire.Op) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun == nil {
		t.begun = map[wire.Op]int{}
	}
	t.begun[op]++
}

// String says how many trips there were, in all and by kind, the most frequent first.
func (t *Trips) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ops []wire.Op
	all := 0
	for op, n := range t.begun {
		ops = append(ops, op)
		all += n
	}
	slices.SortFunc(ops, func(a, b wire.Op) int { return cmp.Or(cmp.Compare(t.begun[b], t.begun[a]), cmp.Compare(a, b)) })
	var kinds []string
	for _, op := range ops {
		kinds = append(kinds, fmt.Sprintf("%v %d", op, t.begun[op]))
	}
	if all == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", all, strings.Join(kinds, ", "))
}
