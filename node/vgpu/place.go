package vgpu

import (
	"cmp"
	"slices"
)

// supply is what a device could give in this pass, victims included. It is an upper
// bound, which only saves a closer look at devices that cannot serve a client anyway.
type supply struct {
	slots       bool  // a slot is free or an idle client could leave one
	bytes       int64 // free, or taken by idle clients and keepers
	creditSlots bool  // like slots, including busy clients that are out of credit or whose turn is over
	creditBytes int64

	comingSlots int // slots of clients that were told to let go
	comingBytes int64
}

func (r *rules) survey(d *device) {
	s := supply{slots: d.freeSlots() > 0, bytes: d.free() + d.comingOfRivals(r.isComing)}
	s.comingSlots, s.comingBytes = d.coming(r.isComing)
	for _, v := range d.keepersWithin() {
		if mayStopKeeping(v) {
			s.bytes += v.taken()
		}
	}
	var more int64
	for _, v := range d.within() {
		switch {
		case v == nil || v.revoking || v.growTo > 0:
		case r.mayLoseMemory(v):
			if r.mayLoseSlot(v) {
				s.slots, v.user.mayTrade = s.slots || v.dev == d, v.user.mayTrade || v.part == nil
			}
			s.bytes += v.taken()
		case r.oustable(v):
			s.creditSlots = s.creditSlots || v.dev == d
			v.user.mayTrade = v.user.mayTrade || v.part == nil && r.turnOver(v)
			more += v.taken()
		}
	}
	s.creditSlots = s.creditSlots || s.slots
	s.creditBytes = s.bytes + more
	d.supply = s
}

// coming is what clients that were told to let go, and that counts counts, will free for d. Some or all of
// it may be claimed.
func (d *device) coming(counts func(*client) bool) (slots int, bytes int64) {
	slots, bytes = d.leavers(counts)
	return slots, bytes + d.comingOfRivals(counts)
}

func (d *device) comingOfRivals(counts func(*client) bool) (bytes int64) {
	for _, m := range d.rivals() {
		_, more := m.leavers(counts)
		if m.of != nil {
			more = min(more, m.excess())
		}
		bytes += more
	}
	return bytes
}

// leavers is what clients that were told to leave d have there.
func (d *device) leavers(counts func(*client) bool) (slots int, bytes int64) {
	for _, v := range d.slots {
		if v != nil && v.revoking && counts(v) {
			slots++
			bytes += v.taken()
		}
	}
	for _, v := range d.keepers {
		if v.revoking && counts(v) {
			bytes += v.taken()
		}
	}
	return slots, bytes
}

// settled says whether an assigned client can be a victim at all: it has no unanswered
// Revoke or Grow.
func settled(v *client) bool { return v.state == Assigned && !v.revoking && v.growTo == 0 }

// rests says whether an assigned client is known to be idle. What it said before it was
// watched may be out of date, and does not count.
func rests(v *client) bool { return v.watched && v.known && !v.busy }

func (r *rules) mayLoseSlot(v *client) bool {
	return settled(v) && rests(v) && (v.sync || (r.cfg.MaxIdle > 0 && r.now-v.idleSince >= r.longIdle(v)))
}

func (r *rules) mayLoseMemory(v *client) bool {
	return settled(v) && rests(v) && (!v.tenure.restless && r.now-v.grantAt >= r.cfg.MinResidence || r.mayLoseSlot(v))
}

// mayStopKeeping says whether an unbound client can be told to let go of what it keeps.
// One that was promised a slot is about to use it.
func mayStopKeeping(v *client) bool { return !v.revoking && v.claim == nil }

func (r *rules) outOfCredit(v *client) bool {
	return r.cfg.Policy == Credit && settled(v) && v.user.credit <= 0 && r.now-v.grantAt >= r.cfg.MinResidence
}

// victim is a client that is to let go, and why.
type victim struct {
	*client
	why  Reason
	keep int64 // bytes of its memory that may stay on the device
	step int64 // it says each time that this many bytes are free; 0: it need not
}

func (r *rules) slotReason(v *client) Reason {
	switch {
	case !r.mayLoseSlot(v):
		return r.oustReason(v)
	case v.sync:
		return ForSync
	}
	return ForIdle
}

func (r *rules) memoryReason(v *client) Reason {
	if r.mayLoseMemory(v) {
		return ForMemory
	}
	return r.oustReason(v)
}

// order is the order in which ready clients are served. Under Credit those of users
// with credit come first. Within each class, clients that waited too long come first,
// in the order in which they wanted, and then the others by priority and policy.
func (b *books) order() []*client {
	out := b.scratch[:0]
	out = b.appendOrdered(out, func(x *client) bool { return b.cfg.Policy != Credit || x.user.credit > 0 })
	if b.cfg.Policy == Credit {
		out = b.appendOrdered(out, func(x *client) bool { return x.user.credit <= 0 })
	}
	b.scratch = out
	return out
}

func (k *books) appendOrdered(out []*client, class func(*client) bool) []*client {
	from := len(out)
	for _, x := range k.ready {
		if k.starved(x) && class(x) {
			out = append(out, x)
		}
	}
	slices.SortFunc(out[from:], func(a, b *client) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.seq, b.seq)) })
	from = len(out)
	for _, x := range k.ready {
		if !k.starved(x) && class(x) {
			out = append(out, x)
		}
	}
	if k.ranked > 0 {
		slices.SortStableFunc(out[from:], func(a, b *client) int { return cmp.Compare(b.priority, a.priority) })
	}
	return out
}

func (r *rules) starved(x *client) bool {
	return x.passes >= r.cfg.MaxPasses || r.now-x.wantAt >= r.cfg.MaxWait
}

// serveReady serves every ready client that can be served now.
func (c *Core) serveReady() {
	if c.waiting() == 0 {
		return
	}
	plain, credit := c.surveyAll()
	if !credit.slots {
		return
	}
	order := c.order()
	if c.lapsed {
		c.lapsed = false
		for _, x := range order {
			if d := c.bestFree(x); d != nil && !x.parked && x.claim == nil && !x.revoking && x.part == nil && !x.user.full() {
				c.promise(x, d, nil, nil)
			}
		}
		order = c.order()
		plain, credit = c.surveyAll()
	}
	for at := 0; at < len(order); at++ {
		x := order[at]
		if c.recallHome(x) {
			plain, credit = c.surveyAll()
		}
		most := plain
		if x.user.credit > 0 || c.cfg.Quantum > 0 {
			most = credit
		}
		if p := x.claim; p != nil && p.trade != nil && !x.user.full() { // it needs no trade any more
			c.drop(p)
		}
		if x.state != Ready || x.parked || x.claim != nil || x.revoking || !most.slots || (int64(x.want.Need) > most.bytes && !c.starved(x)) {
			continue
		}
		leaves := x.reserved != nil || x.kept > x.want.Need
		if !c.place(x) {
			continue
		}
		plain, credit = c.surveyAll()
		if leaves { // what was reserved for it, or what it kept and does not need, may serve those before it
			at = -1
		}
	}
}

// recallHome takes back what x was promised, wherever that is, and waits for others to leave for, once its share has
// room for it. On a device that it prefers to its home it waits for those who only keep bytes, which takes no time.
func (c *Core) recallHome(x *client) bool {
	p, home := x.claim, x.part
	if p == nil || home == nil || !slices.ContainsFunc(p.from, func(v *client) bool { return v.frees == p && v != x && (p.dev == home || v.state == Assigned) }) {
		return false
	}
	slots, lack := home.freeSlots(), missing(x, home)
	if p.dev == home && p.held {
		slots, lack = slots+1, lack-p.bytes
	}
	if slots <= 0 || lack > 0 || !allowed(x, home) {
		return false
	}
	c.drop(p)
	return true
}

// most is the most that any device can give: a client that needs more need not look.
type most struct {
	slots bool
	bytes int64
}

// surveyAll surveys all devices, and returns the most that one can give without and
// with busy victims.
func (b *books) surveyAll() (plain, credit most) {
	for _, u := range b.users {
		u.mayTrade = false
	}
	for _, d := range b.all {
		if !d.up() {
			continue
		}
		b.survey(d)
		s, context := d.supply, int64(d.ContextCost)
		plain.slots = plain.slots || s.slots
		plain.bytes = max(plain.bytes, s.bytes-context)
		credit.slots = credit.slots || s.creditSlots
		credit.bytes = max(credit.bytes, s.creditBytes-context)
	}
	return plain, credit
}

// place grants x a slot, or promises it one, if there is any way to. The ways are tried
// from the least to the most disruptive: free room, room that is already coming, idle
// victims, busy victims. It returns true if it changed anything, so that the caller
// must survey again.
func (c *Core) place(x *client) bool {
	if !x.mayRun() {
		c.takeTurns(x)
		return false
	}
	full := x.part == nil && x.user.fullBeside(x)
	if full && !x.user.mayTrade && x.reserved == nil {
		return false
	}
	if !full {
		if d, set := c.intended(x); d != nil {
			c.promise(x, d, set, nil)
			return true
		}
		if d := c.bestFree(x); d != nil {
			c.promise(x, d, nil, nil)
			return true
		}
		if c.roomIsComing(x) {
			if c.starved(x) { // others would take it before there is enough
				c.reserve(x, full)
			}
			return false
		}
	}
	for _, oust := range []bool{false, true} {
		if oust && !c.hasCredit(x) && c.cfg.Quantum == 0 {
			break
		}
		if d, set, trade := c.cheapest(x, full, oust); d != nil {
			c.promise(x, d, set, trade)
			return true
		}
	}
	if c.starved(x) {
		c.reserve(x, full)
	}
	return false
}

// roomIsComing says whether x will fit somewhere once all clients that were told to let
// go have done so: then no other needs to leave for it.
func (f *fleet) roomIsComing(x *client) bool {
	return slices.ContainsFunc(f.all, func(d *device) bool {
		return allowed(x, d) && d.freeSlots()+d.supply.comingSlots > 0 && missing(x, d) <= d.supply.comingBytes
	})
}

// allowed says whether x may be put on d at present, room aside.
func allowed(x *client, d *device) bool {
	return x.mayUse(d) && d.vacated() && x.mayRun() && d.keptFor(x) == nil && (x.moving != byHand || x.target == d.id)
}

// mayUse says whether d would take x, which wants a device, if no other client were
// there.
func (x *client) mayUse(d *device) bool {
	return x.isOf(d) && d.up() && (x.want.Pinned == AnyDevice || x.want.Pinned == d.id) && d.holdsNow(x.want.Need)
}

// missing is how many bytes d lacks for x. What x keeps there counts as available to
// it.
func missing(x *client, d *device) int64 {
	m := int64(x.want.Need+d.ContextCost) - d.free()
	if x.dev == d {
		m -= int64(x.kept)
	}
	return m
}

// bestFree chooses among the devices that can take x as they are. If its part can, x goes there or to an idle
// device where it gains: enough for a move or, if it was there last, anything.
func (f *fleet) bestFree(x *client) *device {
	d, home := f.bestAnywhere(x), x.part
	if home == nil || d == home || !takesNow(x, home) {
		return d
	}
	gain := d.Speed * float64(home.load()+1) / home.Speed
	if d.load() == 0 && (gain >= minGain || d.id == x.last && gain >= 1) {
		return d
	}
	return home
}

// takesNow says whether d can take x as it is.
func takesNow(x *client, d *device) bool {
	return allowed(x, d) && d.freeSlots() > 0 && missing(x, d) <= 0
}

// bestAnywhere chooses among the devices that can take x as they are, as for a client without a grant.
func (f *fleet) bestAnywhere(x *client) *device {
	var idle, least, last *device
	for _, d := range f.all {
		if !takesNow(x, d) {
			continue
		}
		if d.load() == 0 && (idle == nil || d.Speed > idle.Speed || d.Speed == idle.Speed && d == x.part) {
			idle = d
		}
		if least == nil || lessLoaded(d, least) || d == x.part && !lessLoaded(least, d) {
			least = d
		}
		if d.id == x.last {
			last = d
		}
	}
	if last != nil && (idle == nil || last.Speed > idle.Speed || (last.Speed == idle.Speed && last.load() == 0)) {
		return last
	}
	if idle != nil {
		return idle
	}
	return least
}

func lessLoaded(a, b *device) bool { return float64(a.load())*b.Speed < float64(b.load())*a.Speed }

// cheapest chooses the device where the fewest bytes must be moved for x. With full,
// x's user has all slots it may, and one of them is exchanged; with oust, busy clients
// may have to leave too.
func (b *books) cheapest(x *client, full, oust bool) (best *device, set []victim, trade *client) {
	var cost int64
	for _, d := range b.all {
		if !allowed(x, d) || !(d.supply.slots || full || (oust && d.supply.creditSlots)) {
			continue
		}
		limit := d.supply.bytes
		if oust {
			limit = d.supply.creditBytes
		}
		if int64(x.want.Need+d.ContextCost) > limit {
			continue
		}
		s, t, ok := b.victims(x, d, full, oust)
		if !ok || !b.mayHold(x, d) && !(full && len(s) == 1) { // one of its own user keeps nothing from others
			continue
		}
		bytes := moved(s)
		if best == nil || bytes < cost || (bytes == cost && (len(s) < len(set) || (len(s) == len(set) && lessLoaded(d, best)))) {
			best, set, trade, cost = d, s, t, bytes
		}
	}
	return best, set, trade
}

// moved is how many bytes of the victims must be copied out.
func moved(set []victim) (bytes int64) {
	for _, v := range set {
		bytes += int64(v.memory) - v.keep
	}
	return bytes
}

// victims chooses the clients that are to leave d so that x can be put there. It
// returns false if all that may leave do not suffice; then none is told.
func (r *rules) victims(x *client, d *device, full, oust bool) (set []victim, trade *client, ok bool) {
	lack := missing(x, d) - d.comingOfRivals(r.isComing) // which is of no use a second time
	needSlot := d.freeSlots() <= 0
	chosen := func(v *client) bool {
		return slices.ContainsFunc(set, func(o victim) bool { return o.client == v })
	}
	add := func(v *client, why Reason) {
		if v.dev != nil && v.dev.base() == d.base() {
			lack -= d.yields(v, set, r.isComing)
			needSlot = needSlot && !(v.dev == d && v.state == Assigned)
		}
		set = append(set, victim{client: v, why: why})
	}
	may := func(v *client) bool { return !chosen(v) && d.yields(v, set, r.isComing) > 0 }
	if full {
		v := r.tradeFor(x, d, lack, oust)
		if v == nil {
			return nil, nil, false
		}
		trade = v
		add(v, r.slotReason(v))
	}
	if needSlot {
		v := pick(d.slots, lack, r.now, r.mayLoseSlot, nil)
		if v == nil && oust {
			v = r.pickOusted(d.slots, lack, x, chosen)
		}
		if v == nil {
			return nil, nil, false
		}
		add(v, r.slotReason(v))
	}
	for _, v := range d.keepersWithin() {
		if lack > 0 && v != x && mayStopKeeping(v) && d.yields(v, set, r.isComing) > 0 {
			add(v, ForMemory)
		}
	}
	for lack > 0 {
		v := pick(d.within(), lack, r.now, func(v *client) bool { return r.mayLoseMemory(v) && may(v) }, nil)
		if v == nil && oust {
			v = r.pickOusted(d.within(), lack, x, func(v *client) bool { return !may(v) })
		}
		if v == nil {
			return nil, nil, false
		}
		add(v, r.memoryReason(v))
	}
	r.stayWhereRoom(set, d, -lack)
	return set, trade, true
}

// tradeFor chooses the client of x's user whose slot is exchanged for one of x on d.
func (r *rules) tradeFor(x *client, d *device, lack int64, oust bool) *client {
	v := pick(x.user.clients, lack, r.now, func(v *client) bool { return v.part == nil && r.mayLoseSlot(v) }, func(v *client) bool { return v.dev == d })
	if v == nil && oust {
		v = r.pickOusted(x.user.clients, lack, x, func(v *client) bool { return v.part != nil })
	}
	return v
}

// pick chooses a victim: the preferred first; then the one with the fewest bytes that
// suffice, or with the most if none suffices; then the one idle for longest; then the
// one with the lowest number.
func pick(from []*client, lack int64, now Time, may, prefer func(*client) bool) (best *client) {
	better := func(a, b *client) bool {
		if prefer != nil && prefer(a) != prefer(b) {
			return prefer(a)
		}
		if a.taken() != b.taken() {
			aDoes, bDoes := a.taken() >= lack, b.taken() >= lack
			if aDoes != bDoes {
				return aDoes
			}
			return (a.taken() < b.taken()) == aDoes
		}
		if a.idleSince != b.idleSince {
			return a.idleSince < b.idleSince
		}
		return a.id < b.id
	}
	for _, v := range from {
		if v != nil && may(v) && (best == nil || better(v, best)) {
			best = v
		}
	}
	return best
}

// promise gives x a slot on d when the victims have let go, at once if there are none.
// Ready clients that wanted earlier have been passed once more.
func (c *Core) promise(x *client, d *device, set []victim, trade *client) {
	for _, other := range c.ready {
		if other.seq < x.seq {
			other.passes++
		}
	}
	p := &claim{owner: x, dev: d, slot: true, bytes: int64(x.want.Need + d.ContextCost), trade: trade}
	if x.dev != nil && x.dev != d {
		set = append(set, victim{client: x, why: ForMove})
	}
	c.collect(p, set)
}

// collect makes a claim valid and tells its victims to let go.
func (c *Core) collect(p *claim, set []victim) {
	p.owner.claim, p.owner.holdsBy = p, c.now+c.patience(p.owner)
	c.unreserve(p.owner, p.owner.reserved)
	if p.trade == nil {
		c.hold(p)
	}
	for _, v := range set {
		v.frees = p
		p.from = append(p.from, v.client)
		v.step = c.stepFor(p, v)
		c.revoke(v)
	}
	p.owed = len(set)
	if p.owed == 0 {
		c.fulfil(p)
	}
}

func (c *Core) revoke(v victim) {
	v.revoking, v.toldAt = true, c.now
	v.tenure.idled = v.why == ForIdle || v.why == ForMemory
	v.tenure.ousted = v.state == Assigned && (v.why == ForQuantum || v.why == ForRoom)
	c.emit(Effect{Kind: Revoke, Client: v.id, Device: v.dev.id, Reason: v.why, Keep: uint64(v.keep), Step: uint64(v.step)})
}

// reserve keeps others from a device on which a client that waited too long is to be
// put, and makes room there piece by piece: victims that are never idle at the same
// time would otherwise keep it waiting for ever. With full, one of its user's clients
// leaves too: what is kept for x counts among its user's slots.
func (c *Core) reserve(x *client, full bool) {
	if x.reserved == nil {
		could := false // x would fit there even if no client left any more that should have by now
		for _, d := range c.all {
			if !allowed(x, d) || !c.mayHold(x, d) {
				continue
			}
			if fits := c.fitsBesideOverdue(x, d); x.reserved == nil || fits && !could || fits == could && missing(x, d) < missing(x, x.reserved) {
				x.reserved, could = d, fits
			}
		}
		if x.reserved == nil {
			return
		}
		if full {
			v := c.tradeFor(x, x.reserved, missing(x, x.reserved), c.hasCredit(x) || c.cfg.Quantum > 0)
			if v == nil {
				x.reserved = nil
				return
			}
			c.revoke(victim{client: v, why: c.slotReason(v)})
		}
		x.reserved.reservedFor, x.holdsBy = x, c.now+c.patience(x)
		x.user.slots += x.slotCount()
	}
	d := x.reserved
	slots, bytes := d.coming(c.isComing)
	lack, needSlot := missing(x, d)-bytes, d.freeSlots()+slots <= 0
	var keep []victim
	for _, v := range d.keepersWithin() {
		if v != x && mayStopKeeping(v) {
			lack -= d.yields(v, keep, c.isComing)
			keep = append(keep, victim{client: v})
		}
	}
	for lack > 0 || needSlot {
		from, may := d.within(), c.mayLoseMemory
		if needSlot {
			from, may = d.slots, c.mayLoseSlot
		}
		v := pick(from, lack, c.now, func(v *client) bool { return may(v) && (needSlot || d.yields(v, keep, c.isComing) > 0) }, nil)
		if v == nil {
			return
		}
		why := ForMemory
		if needSlot {
			why = c.slotReason(v)
		}
		lack, needSlot = lack-d.yields(v, keep, c.isComing), false
		c.revoke(victim{client: v, why: why})
	}
}

// answerGrowing grants or denies every Grow that can be answered now.
func (c *Core) answerGrowing() {
	if c.growing == 0 {
		return
	}
	for _, d := range c.all {
		for _, x := range d.slots {
			if x != nil && x.growTo > 0 && x.claim == nil {
				c.answerGrow(x, d)
			}
		}
	}
}

func (c *Core) answerGrow(x *client, d *device) {
	more := int64(x.growTo - x.memory)
	lack := more - d.free()
	may := x.part == nil || x.part.grant.active()
	kept := d.keptFor(x) != nil
	if more == 0 || lack <= 0 && !kept && may {
		c.enlarge(x)
		return
	}
	if !kept && may {
		_, coming := d.coming(c.isComing)
		if set, ok := c.growVictims(d, lack); ok && coming < lack {
			c.collect(&claim{owner: x, dev: d, bytes: more}, set)
			return
		}
		if c.now < x.growBy && c.mightFree(x, d)+coming >= lack {
			return
		}
	}
	c.endGrow(x)
	c.emit(Effect{Kind: Deny, Client: x.id, Reason: NoRoom})
}

func (r *rules) growVictims(d *device, lack int64) (set []victim, ok bool) {
	lack -= d.comingOfRivals(r.isComing)
	for _, v := range d.keepersWithin() {
		if lack > 0 && mayStopKeeping(v) && d.yields(v, set, r.isComing) > 0 {
			lack -= d.yields(v, set, r.isComing)
			set = append(set, victim{client: v, why: ForMemory})
		}
	}
	for lack > 0 {
		v := pick(d.within(), lack, r.now, func(v *client) bool {
			return r.mayLoseMemory(v) && d.yields(v, set, r.isComing) > 0 && !slices.ContainsFunc(set, func(o victim) bool { return o.client == v })
		}, nil)
		if v == nil {
			return nil, false
		}
		lack -= d.yields(v, set, r.isComing)
		set = append(set, victim{client: v, why: ForMemory})
	}
	return set, true
}

// mightFree is how many bytes others on d could be told to let go of, if they turn out
// to be idle.
func (r *rules) mightFree(x *client, d *device) (bytes int64) {
	for _, v := range d.within() {
		if v != nil && v != x && settled(v) && !(v.watched && v.known && v.busy) {
			bytes += v.taken()
		}
	}
	for _, v := range d.keepersWithin() {
		if mayStopKeeping(v) {
			bytes += v.taken()
		}
	}
	return bytes
}

// setWatches has the workers report idleness of clients that may have to leave, while
// others wait or grow, and ends that when none does.
func (c *Core) setWatches() {
	for _, d := range c.all {
		var growers int
		if c.growing > 0 {
			for _, x := range d.slots {
				if x != nil && x.growTo > 0 {
					growers++
				}
			}
		}
		for _, x := range d.slots {
			if x == nil || x.revoking {
				continue
			}
			others := growers
			if x.growTo > 0 {
				others--
			}
			on := c.waiting() > 0 || others > 0
			if on == x.watched {
				continue
			}
			x.watched = on
			if on { // what its worker said before may be out of date
				x.busy, x.known, x.sync = true, false, false
			}
			c.emit(Effect{Kind: Watch, Client: x.id, On: on})
		}
	}
}

// Next says when the core wants to be ticked if no event comes before; false:
// never.
func (b *books) Next() (Time, bool) {
	var at Time
	found := false
	consider := func(t Time) {
		if t > b.now && (!found || t < at) {
			at, found = t, true
		}
	}
	if b.waiting() == 0 && b.growing == 0 {
		return 0, false
	}
	for _, u := range b.users {
		for _, t := range u.openBy {
			consider(t)
		}
	}
	for _, d := range b.all {
		for _, t := range d.openBy {
			consider(t)
		}
		for _, x := range d.slots {
			if x != nil && x.revoking {
				consider(b.expectedBy(x))
			}
			if x == nil || x.revoking {
				continue
			}
			if x.growTo > 0 {
				consider(x.growBy)
				consider(x.holdsBy)
			}
			if rests(x) || b.cfg.Policy == Credit {
				consider(x.grantAt + b.cfg.MinResidence)
			}
			if b.cfg.Quantum > 0 && b.waiting() > 0 && settled(x) {
				consider(b.turnEnds(x))
			}
			if rests(x) && b.cfg.MaxIdle > 0 {
				consider(x.idleSince + b.longIdle(x))
			}
		}
	}
	if b.cfg.Policy == Credit && b.waiting() > 0 {
		consider(b.nextRefill)
	}
	for _, x := range b.ready {
		if x.claim != nil || x.reserved != nil {
			consider(x.holdsBy)
		}
		if (x.part != nil || b.cfg.Quantum > 0 && b.ranked > 0) && !x.parked {
			consider(x.wantAt + b.cfg.MaxWait)
		}
	}
	return at, found
}
