package head

import (
	"container/heap"
	"slices"
	"time"

	"muster/policy"
)

// timer is something that is due at an instant. Timers are not cancelled: ring checks whether the
// timer's reason still holds.
type timer struct {
	at   time.Duration
	turn uint64 // breaks ties: the timer that was set first rings first
	what timerKind
	job  uint64 // a job, or an array
	// attempt is set for timers that concern one attempt of a job only.
	attempt uint32
	node    *node
	user    string
}

type timerKind uint8

const (
	ringBegin    timerKind = iota // a job may begin
	ringForget                    // ended jobs leave the list
	ringNode                      // a node may have been away for NodeTimeout
	ringKey                       // keys of a user's submissions may be forgotten
	ringSignal                    // a job wants a signal now, before its time limit
	ringLoans                     // the nodes that lend to a job that starts may not have answered
	ringDeadline                  // a job's deadline has passed
	ringRetry                     // a saved job may try nodes again where it could not go on
	ringInactive                  // the command of an allocation may have been silent for too long
	ringLook                      // jobs that could not start any more are looked at again
	ringRanking                   // the book of priorities is written
)

// timers is a heap, ordered by time.
type timers struct {
	all   []timer
	turn  uint64
	lives func(job uint64) bool // a job, or a task of an array, has not ended
}

func (t *timers) Len() int { return len(t.all) }
func (t *timers) Less(i, j int) bool {
	a, b := &t.all[i], &t.all[j]
	return a.at < b.at || a.at == b.at && a.turn < b.turn
}
func (t *timers) Swap(i, j int) { t.all[i], t.all[j] = t.all[j], t.all[i] }
func (t *timers) Push(x any)    { t.all = append(t.all, x.(timer)) }
func (t *timers) Pop() any {
	last := t.all[len(t.all)-1]
	t.all = t.all[:len(t.all)-1]
	return last
}

// set sets a timer. Before there is room for another of a job, it drops those of jobs that have ended:
// they may be due in years.
func (t *timers) set(x timer) {
	if x.job != 0 && len(t.all) == cap(t.all) {
		t.all = slices.DeleteFunc(t.all, func(x timer) bool { return x.job != 0 && !t.lives(x.job) })
		t.all = slices.Grow(t.all, max(1, len(t.all)))
		heap.Init(t)
	}
	t.turn++
	x.turn = t.turn
	heap.Push(t, x)
}

func (t *timers) first() time.Duration {
	if len(t.all) == 0 {
		return policy.Never
	}
	return t.all[0].at
}

// due removes and returns the first timer that is due.
func (t *timers) due(now time.Duration) (timer, bool) {
	if t.first() > now {
		return timer{}, false
	}
	return heap.Pop(t).(timer), true
}
