package head

import (
	"container/heap"
	"time"

	"muster/policy"
)

// timer is something that is due at an instant. Timers are never cancelled: ring checks whether the
// timer's reason still holds.
type timer struct {
	at   time.Duration
	turn uint64 // breaks ties: the timer that was set first rings first
	what timerKind
	job  uint64
	// attempt is set for timers that concern one attempt of a job only.
	attempt uint32
	node    *node
	key     key
}

type timerKind uint8

const (
	ringBegin    timerKind = iota // a job may begin
	ringForget                    // an ended job leaves the list
	ringNode                      // a node may have been away for NodeTimeout
	ringKey                       // a submission's key may be forgotten
	ringSignal                    // a job wants a signal now, before its time limit
	ringDeadline                  // a job's deadline has passed
	ringRanking                   // the book of priorities is written
)

// timers is a heap, ordered by time.
type timers struct {
	all  []timer
	turn uint64
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

func (t *timers) set(x timer) {
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

// ring does what a timer was set for.
func (c *Core) ring(t timer) {
	switch t.what {
	case ringBegin:
		if j := c.jobs[t.job]; j != nil && j.gate == atBegin && !j.over() {
			c.advanceJob(j)
		}
	case ringForget:
		if j := c.jobs[t.job]; j != nil && j.over() {
			c.forget(t.job)
		}
	case ringKey:
		if k := c.keys[t.key]; k != nil && c.now >= k.at+keepKeys {
			delete(c.keys, t.key)
			c.effects.Records = append(c.effects.Records, Record{Bucket: Keys, Key: keyBytes(t.key)})
		}
	case ringSignal:
		if j := c.jobs[t.job]; j != nil && j.attempt == t.attempt && j.active() && j.stop == nil {
			c.signal(j, j.said.Batch.Signal.Number)
		}
	case ringDeadline:
		if j := c.jobs[t.job]; j != nil && !j.over() {
			c.late(j)
		}
	case ringRanking:
		c.keepBook()
	case ringNode:
		if n := t.node; n.session == 0 && !n.down && c.now >= n.since+c.cfg.NodeTimeout {
			c.giveUp(n)
		}
	}
}
