package vgpu

import (
	"cmp"
	"slices"
	"time"
)

// Turns are decided by these numbers, beside Config.Quantum.
const (
	// moveParts bounds thrashing: a turn lasts at least so many times as long as moving
	// its client's memory in and out took, so that moves take at most an eighth of the
	// time.
	moveParts = 7
	// maxStretch bounds waiting: no turn is made longer than so many quanta for that.
	maxStretch = 4
	// leastPart is the part of the quantum that the shortest turn has, however small
	// its client's weight or large its debt.
	leastPart = 8
	// maxDebt is how many quanta a client can owe the others.
	maxDebt = 4
)

// tenure is what of its turns a client has had, and what it may have.
type tenure struct {
	landed  bool          // its memory was there and its first kernel was launched, since it was granted
	at      Time          // when
	in, out time.Duration // what moving its memory took the last time; 0: not known
	balance time.Duration // what others owe it (or it owes them, below 0); all clients' add up to 0
	ousted  bool          // it was told to leave because its turn is over
	idled   bool          // it was told to leave because it was idle
	// restless says that it was not idle for long when it last had to leave for that: it
	// wanted its device back at once.
	restless bool
}

// claimant is one of those who share a device in turns.
type claimant struct {
	weight  int64
	balance time.Duration
}

// field is what the length of turns on a device depends on: those who are there and
// those who wait for it.
type field struct {
	quantum time.Duration
	count   int64
	weight  int64         // of all
	above   time.Duration // how much all would have beyond the shortest turn, by weight and balance
}

// fieldOf makes the field of some claimants.
func fieldOf(quantum time.Duration, all []claimant) field {
	f := field{quantum: quantum, count: int64(len(all))}
	for _, x := range all {
		f.weight += x.weight
	}
	for _, x := range all {
		f.above += max(0, f.due(x)-f.least())
	}
	return f
}

func (f field) least() time.Duration { return f.quantum / leastPart }

// share is a claimant's part, by weight, of a round in which each has a quantum on
// average.
func (f field) share(weight int64) time.Duration {
	return time.Duration(float64(f.quantum) * float64(weight) * float64(f.count) / float64(f.weight))
}

// due is its share with what others owe it.
func (f field) due(x claimant) time.Duration { return f.share(x.weight) + x.balance }

// turn is how long a claimant may stay. All turns of a round together are as many quanta
// as there are claimants, and none is shorter than the least: where a share or a debt would
// make one so, the others give up of what they have beyond the least, in proportion.
func (f field) turn(x claimant) time.Duration {
	if f.above <= 0 {
		return f.quantum
	}
	rest := float64(f.count) * float64(f.quantum-f.least())
	return f.least() + time.Duration(rest*float64(max(0, f.due(x)-f.least()))/float64(f.above))
}

func (x *client) claimant() claimant { return claimant{int64(x.weight), x.tenure.balance} }

// contends says whether a ready client waits for d among others.
func (x *client) contends(d *device) bool { return !x.parked && x.mayUse(d) }

// fieldAt returns the field of a device, as it was when the present step first asked.
func (c *Core) fieldAt(d *device) field {
	if d.fieldOf == c.steps {
		return d.field
	}
	var all []claimant
	for _, x := range d.slots {
		if x != nil {
			all = append(all, x.claimant())
		}
	}
	for _, x := range c.ready {
		if x.contends(d) {
			all = append(all, x.claimant())
		}
	}
	d.field, d.fieldOf = fieldOf(c.cfg.Quantum, all), c.steps
	return d.field
}

// turn is how long an assigned client may stay on its device while others wait.
func (c *Core) turn(x *client) time.Duration {
	return max(c.fieldAt(x.dev).turn(x.claimant()), c.worthwhile(x))
}

// worthwhile is how long a client must stay to be worth the moves, within bounds. While
// only moving in was measured, moving out is taken to cost as much.
func (c *Core) worthwhile(x *client) time.Duration {
	t := &x.tenure
	return min(moveParts*(t.in+orDefault(t.out, t.in)), maxStretch*c.cfg.Quantum)
}

// atOnce is how soon a client wants its device back that was not really idle.
const atOnce = 2 * time.Millisecond

// longIdle is how long a client must be idle to lose its slot. One that was told to leave
// for an idle moment and wanted its device back at once is given the time that moving its
// memory takes: if it is idle for that long, it has cost the others as much as a move.
func (c *Core) longIdle(x *client) time.Duration {
	if !x.tenure.restless {
		return c.cfg.MaxIdle
	}
	return max(c.cfg.MaxIdle, min(x.tenure.in+x.tenure.out, c.cfg.Quantum))
}

// wantsAgain notes how soon a client that had to leave for being idle is busy again.
func (c *Core) wantsAgain(x *client) {
	if x.tenure.idled && c.cfg.Quantum > 0 {
		x.tenure.restless = c.now-x.leftAt < atOnce
	}
	x.tenure.idled = false
}

// turnEnds is when an assigned client's turn is over. It begins when its memory is on
// the device; a worker that does not say so has the time that its moves are expected to
// take, and a quantum.
func (c *Core) turnEnds(x *client) Time {
	begins := x.tenure.at
	if !x.tenure.landed {
		begins = x.grantAt + c.cfg.Quantum + c.moveCost(x)
	}
	return begins + c.turn(x)
}

// turnOver says whether v's turn is over.
func (c *Core) turnOver(v *client) bool {
	return c.cfg.Quantum > 0 && settled(v) && c.now-v.grantAt >= c.cfg.Quantum/leastPart && c.now >= c.turnEnds(v)
}

// mayOust says whether v, busy or not, may be told to leave for x: because its user has had
// more than its share and x's has not, or because v's turn is over. A client of a higher
// priority is told to leave only for one that has waited too long.
func (c *Core) mayOust(v, x *client) bool {
	if c.hasCredit(x) && c.outOfCredit(v) {
		return true
	}
	return c.turnOver(v) && (v.priority <= x.priority || c.starved(x))
}

// hasCredit says whether x is served before those whose users have had their share.
func (c *Core) hasCredit(x *client) bool { return c.cfg.Policy == Credit && x.user.credit > 0 }

// oustable is mayOust for whoever waits.
func (c *Core) oustable(v *client) bool { return c.outOfCredit(v) || c.turnOver(v) }

// pickOusted chooses the busy client that is to leave for x: of those that suffice the one
// that owes most, then the one that has been there for longest; the largest if none suffices.
func (c *Core) pickOusted(from []*client, lack int64, x *client, chosen func(*client) bool) (best *client) {
	better := func(a, b *client) bool {
		aDoes, bDoes := a.taken() >= lack, b.taken() >= lack
		if aDoes != bDoes {
			return aDoes
		}
		if !aDoes && a.taken() != b.taken() {
			return a.taken() > b.taken()
		}
		return cmp.Or(cmp.Compare(a.tenure.balance, b.tenure.balance), cmp.Compare(a.grantAt, b.grantAt), cmp.Compare(a.id, b.id)) < 0
	}
	for _, v := range from {
		if v != nil && !chosen(v) && c.mayOust(v, x) && (best == nil || better(v, best)) {
			best = v
		}
	}
	return best
}

// oustReason is why a busy client is told to leave. A turn that is over leaves the context
// open, so that the next one begins at once.
func (c *Core) oustReason(v *client) Reason {
	if c.turnOver(v) {
		return ForQuantum
	}
	return ForCredit
}

// stayWhereRoom lets those whose turn is over, and with turns also those who leave in an idle
// moment, keep on d what is in nobody's way: spare is what would be free if they kept nothing.
// Contexts stay first, which cost most to make again, and then as much of their memory as there
// is room for: it need not be moved in either direction.
func (c *Core) stayWhereRoom(set []victim, d *device, spare int64) {
	for i := range set {
		if set[i].why != ForQuantum || set[i].dev != d {
			continue
		}
		if spare -= int64(d.ContextCost); spare < 0 {
			set[i].why = ForRoom
		}
	}
	for i := range set {
		v, room := &set[i], spare
		switch {
		case v.dev != d || v.state != Assigned:
			continue
		case v.why == ForMemory && c.cfg.Quantum > 0:
			room -= int64(d.ContextCost) // it is closed if nothing else may stay
		case v.why != ForQuantum:
			continue
		}
		if v.keep = min(room, int64(v.memory)); v.keep > 0 {
			spare = room - v.keep
		} else {
			v.keep = 0
		}
	}
}

// settleTurn charges a client for the turn that has just ended because others waited: what
// it had beyond its share by weight, in GPU time and at least its turn, it owes to them.
// Nothing is charged for having had less of a turn than it might.
func (c *Core) settleTurn(x *client) {
	t, d := &x.tenure, x.dev
	if !t.ousted || c.cfg.Quantum == 0 {
		return
	}
	t.ousted = false
	x.stats.turns++
	d.fieldOf = 0 // x has left its slot or is about to: look again
	f := c.fieldAt(d)
	over := max(x.phase, c.turn(x)) - f.share(int64(x.weight))
	over = min(over, t.balance+maxDebt*c.cfg.Quantum)
	var others []*client
	for _, o := range d.slots {
		if o != nil && o != x {
			others = append(others, o)
		}
	}
	for _, o := range c.ready {
		if o != x && o.contends(d) {
			others = append(others, o)
		}
	}
	if give(others, over) {
		t.balance -= over
	}
}

// give divides what is owed to some clients among them by weight; false if there is
// nobody.
func give(to []*client, owed time.Duration) bool {
	var weight int64
	for _, o := range to {
		weight += int64(o.weight)
	}
	rest := owed
	for i, o := range to {
		part := rest
		if i < len(to)-1 {
			part = time.Duration(float64(rest) * float64(o.weight) / float64(weight))
		}
		o.tenure.balance += part
		rest -= part
		weight -= int64(o.weight)
	}
	return len(to) > 0
}

// bequeath leaves the balance of a client that goes to those who stay, so that what all
// owe each other still adds up to 0.
func (c *Core) bequeath(x *client) {
	if x.tenure.balance == 0 {
		return
	}
	var others []*client
	for _, u := range c.users {
		others = append(others, u.clients...)
	}
	others = slices.DeleteFunc(others, func(o *client) bool { return o == x })
	give(others, x.tenure.balance)
	x.tenure.balance = 0
}

// rank gives a client its priority.
func (c *Core) rank(x *client, priority int) {
	if x.priority = priority; priority != 0 {
		c.ranked++
	}
}

// Began says that the memory of a client that was granted a device is there, and that its
// first kernel was launched: its turn begins. Took is how long moving its memory took.
type Began struct {
	Client ClientID      `json:"client"`
	Took   time.Duration `json:"took_ns"`
}

func (e Began) apply(c *Core) bool {
	x := c.assigned(e.Client)
	if x == nil || x.tenure.landed {
		return false
	}
	took := max(e.Took, 0)
	x.tenure.landed, x.tenure.at, x.tenure.in = true, c.now, took
	x.stats.moving = saturated(x.stats.moving, took)
	return true
}
