package vgpu

import (
	"cmp"
	"slices"
	"time"
)

// These numbers decide about turns, beside Config.Quantum.
const (
	// moveParts bounds thrashing: a turn lasts at least this many times as long as moving its
	// client's memory in and out took, so that moves take at most an eighth of the time.
	moveParts = 7
	// maxStretch bounds waiting: moveParts makes no turn longer than this many quanta.
	maxStretch = 4
	// leastPart bounds turns from below: the shortest is the quantum divided by this, however
	// small the client's weight or large its debt.
	leastPart = 8
	// maxDebt is how many quanta a client can owe the others.
	maxDebt = 4
)

// tenure is what turns a client has had, and what it may have.
type tenure struct {
	landed  bool          // its memory was there and its first kernel was launched, since it was granted
	at      Time          // when that was
	in, out time.Duration // what moving its memory took the last time; 0: not known
	balance time.Duration // what others owe it (negative: what it owes them); the balances of all clients add up to 0
	early   bool          // it came while others still left: its move took no time of its own
	ousted  bool          // it was told to leave because its turn is over
	idled   bool          // it was told to leave because it was idle
	// restless says that when it last had to leave for being idle, it wanted its device back at
	// once.
	restless bool
}

// claimant is a client that shares a device with others in turns.
type claimant struct {
	weight  int64
	balance time.Duration
}

// field is what the length of turns on a device depends on: the clients that are there and
// those that wait for it.
type field struct {
	quantum time.Duration
	count   int64
	weight  int64         // of all
	above   time.Duration // the sum of what each would have beyond the shortest turn, by weight and balance
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

// share is a claimant's part, by weight, of a round in which each has a quantum on average.
func (f field) share(weight int64) time.Duration {
	return time.Duration(float64(f.quantum) * float64(weight) * float64(f.count) / float64(f.weight))
}

// due is a claimant's share plus what others owe it.
func (f field) due(x claimant) time.Duration { return f.share(x.weight) + x.balance }

// turn is how long a claimant may stay. The turns of a round add up to one quantum for each
// claimant, and none is shorter than the least: where a share or a debt would make one shorter,
// the others give up part of what they have beyond the least, in proportion to it.
func (f field) turn(x claimant) time.Duration {
	if f.above <= 0 {
		return f.quantum
	}
	rest := float64(f.count) * float64(f.quantum-f.least())
	return f.least() + time.Duration(rest*float64(max(0, f.due(x)-f.least()))/float64(f.above))
}

func (x *client) claimant() claimant { return claimant{int64(x.weight), x.tenure.balance} }

// contends says whether a ready client competes for d.
func (x *client) contends(d *device) bool { return !x.parked && x.mayUse(d) }

// fieldAt returns the field of a device as it was when the present step first asked. It is
// cached for the step, since it takes a look at all clients.
func (r *rules) fieldAt(d *device) field {
	if d.fieldOf == r.steps {
		return d.field
	}
	var all []claimant
	for _, x := range d.slots {
		if x != nil {
			all = append(all, x.claimant())
		}
	}
	for _, x := range r.ready {
		if x.contends(d) {
			all = append(all, x.claimant())
		}
	}
	d.field, d.fieldOf = fieldOf(r.cfg.Quantum, all), r.steps
	return d.field
}

// turn is how long an assigned client may stay on its device while others wait.
func (r *rules) turn(x *client) time.Duration {
	return max(r.fieldAt(x.dev).turn(x.claimant()), r.worthwhile(x))
}

// worthwhile is how long a client must stay to be worth its moves, within bounds. Until moving
// out was measured, it is taken to cost as much as moving in. Where clients come while others
// leave, a turn costs the longer of the two.
func (r *rules) worthwhile(x *client) time.Duration {
	t := &x.tenure
	in, out := t.in, orDefault(t.out, t.in)
	moves := in + out
	if t.early {
		moves = max(in, out)
	}
	return min(moveParts*moves, maxStretch*r.cfg.Quantum)
}

// atOnce is how soon a client wants its device back if it was not really idle.
const atOnce = 2 * time.Millisecond

// longIdle is how long a client must be idle to lose its slot. A restless client gets the time
// that moving its memory takes: once it has been idle for that long, its idleness has cost the
// others as much as the move would.
func (r *rules) longIdle(x *client) time.Duration {
	if !x.tenure.restless {
		return r.cfg.MaxIdle
	}
	return max(r.cfg.MaxIdle, min(x.tenure.in+x.tenure.out, r.cfg.Quantum))
}

// wantsAgain notes how soon a client that had to leave for being idle is busy again.
func (r *rules) wantsAgain(x *client) {
	if x.tenure.idled && r.cfg.Quantum > 0 {
		x.tenure.restless = r.now-x.leftAt < atOnce
	}
	x.tenure.idled = false
}

// turnEnds is when an assigned client's turn is over. A turn begins when the client's memory is
// on the device; a client whose worker does not report that gets a quantum and the expected
// time of a move on top.
func (r *rules) turnEnds(x *client) Time {
	begins := x.tenure.at
	if !x.tenure.landed {
		begins = x.grantAt + r.cfg.Quantum + r.moveCost(x)
	}
	return begins + r.turn(x)
}

// turnOver says whether v's turn is over.
func (r *rules) turnOver(v *client) bool {
	return r.cfg.Quantum > 0 && settled(v) && r.now-v.grantAt >= r.cfg.Quantum/leastPart && r.now >= r.turnEnds(v)
}

// mayOust says whether v, busy or not, may be told to leave for x: because v's user has had
// more than its share and x's has not, or because v's turn is over. In the second case a client
// of higher priority leaves only for one that has waited too long.
func (r *rules) mayOust(v, x *client) bool {
	if r.hasCredit(x) && r.outOfCredit(v) {
		return true
	}
	return r.turnOver(v) && (v.priority <= x.priority || r.starved(x))
}

// hasCredit says whether x is served before clients whose users have had their share.
func (r *rules) hasCredit(x *client) bool { return r.cfg.Policy == Credit && x.user.credit > 0 }

// oustable says whether v may be told to leave, busy or not, for some waiting client.
func (r *rules) oustable(v *client) bool { return r.outOfCredit(v) || r.turnOver(v) }

// pickOusted chooses the busy client that is to leave for x: of those that suffice the one that
// owes most, then the one that was granted first; the largest if none suffices.
func (r *rules) pickOusted(from []*client, lack int64, x *client, chosen func(*client) bool) (best *client) {
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
		if v != nil && !chosen(v) && r.mayOust(v, x) && (best == nil || better(v, best)) {
			best = v
		}
	}
	return best
}

// oustReason is why a busy client is told to leave. After ForQuantum the context stays open, so
// that the next turn begins without delay.
func (r *rules) oustReason(v *client) Reason {
	if r.turnOver(v) {
		return ForQuantum
	}
	return ForCredit
}

// stayWhereRoom lets victims keep on d what no other client needs: those whose turn is over
// and, where there are turns, those that leave in an idle moment. spare is what would be free
// if they kept nothing. Contexts stay first, since they cost most to make again, and then as
// much memory as there is room for, which saves moving it out and in.
func (r *rules) stayWhereRoom(set []victim, d *device, spare int64) {
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
		case v.why == ForMemory && r.cfg.Quantum > 0:
			room -= int64(d.ContextCost) // its context stays only if some memory may
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

// settleTurn charges a client for a turn that ended because others waited: what it had beyond
// its share by weight (its GPU time, but at least its whole turn) it owes to them. A client
// that used less of its turn gets nothing back.
func (r *rules) settleTurn(x *client) {
	t, d := &x.tenure, x.dev
	if !t.ousted || r.cfg.Quantum == 0 {
		return
	}
	t.ousted = false
	x.stats.turns++
	d.fieldOf = 0 // invalidates the cached field: clients may have come or gone since it was made
	f := r.fieldAt(d)
	over := max(x.phase, r.turn(x)) - f.share(int64(x.weight))
	over = min(over, t.balance+maxDebt*r.cfg.Quantum)
	var others []*client
	for _, o := range d.slots {
		if o != nil && o != x {
			others = append(others, o)
		}
	}
	for _, o := range r.ready {
		if o != x && o.contends(d) {
			others = append(others, o)
		}
	}
	if give(others, over) {
		t.balance -= over
	}
}

// give divides what is owed among some clients by weight; false if there are none. Each part is
// cut from the rest, so that rounding errors do not add up and the parts sum exactly to owed.
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

// bequeath leaves the balance of a client that detaches to those that stay, so that all
// balances still add up to 0.
func (b *books) bequeath(x *client) {
	if x.tenure.balance == 0 {
		return
	}
	var others []*client
	for _, u := range b.users {
		others = append(others, u.clients...)
	}
	others = slices.DeleteFunc(others, func(o *client) bool { return o == x })
	give(others, x.tenure.balance)
	x.tenure.balance = 0
}

// rank gives a client its priority.
func (r *rules) rank(x *client, priority int) {
	if x.priority = priority; priority != 0 {
		r.ranked++
	}
}

// Began says that the memory of a client that was granted a device is there, and that its first
// kernel was launched: its turn begins. Took is how long moving its memory took.
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
