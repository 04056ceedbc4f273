package vgpu

// stepParts is into how many steps a client that makes way divides what it frees, if they are not
// too small for that (Config.MoveStep). The client that comes is one step behind it.
const stepParts = 32

// stepFor is how many bytes a victim frees at a time; 0 if nobody can use a part of them.
func (r *rules) stepFor(p *claim, v victim) int64 {
	if r.cfg.MoveStep == 0 || !p.slot || v.state != Assigned || v.dev != p.dev || !r.mayComeEarly(p) {
		return 0
	}
	bytes := int64(v.memory) - v.keep
	if step := max(int64(r.cfg.MoveStep), bytes/stepParts); step < bytes {
		return step
	}
	return 0
}

// mayComeEarly says whether the owner of a claim can be bound before all of its victims have left.
// It then has a slot beside theirs. Where others were promised memory of the same device they could
// be kept waiting, so there the owner waits until all is free.
func (r *rules) mayComeEarly(p *claim) bool {
	x, d := p.owner, p.dev
	return p.trade == nil && !x.further && !x.revoking && (x.dev == nil || x.dev == d) && d.freeSlots() >= 0 && d.claimed == p.bytes && len(d.rivals()) == 0 && d.vacated() && x.mayRun()
}

// Freed says that a client which leaves its device takes only Left bytes there any more, its context
// aside. What it gave up is free at once, and the client that comes may get it before all has left.
// Released follows. Only a client that was told to leave can say so. Less than Config.MoveStep counts
// when more was freed, or the last: each time costs as much as a grant.
type Freed struct {
	Client ClientID `json:"client"`
	Left   uint64   `json:"left"`
}

func (e Freed) apply(c *Core) bool {
	x := c.assigned(e.Client)
	if x == nil || !x.revoking || x.growTo > 0 || e.Left >= x.memory || e.Left > 0 && x.memory-e.Left < c.cfg.MoveStep {
		return false
	}
	x.dev.used -= int64(x.memory - e.Left)
	x.memory, x.toldAt = e.Left, c.now
	if p := x.frees; p != nil {
		c.handOver(p)
	}
	return true
}

// handOver gives the owner of a claim what is free of it so far.
func (c *Core) handOver(p *claim) {
	x, d := p.owner, p.dev
	switch room := d.room(); {
	case p.early && room > 0 && d.claimed == p.bytes:
		c.enlargeBy(p, min(room, p.bytes))
	case p.slot && c.mayComeEarly(p):
		// What the owner keeps on d counts as taken. It becomes part of what it gets.
		some := room - int64(d.ContextCost)
		if x.dev == d {
			some += int64(x.kept)
		}
		if some = min(some, int64(x.want.Need)); some > 0 && room >= 0 {
			c.bindEarly(p, uint64(some))
		}
	}
}

// bindEarly binds the owner of a claim with some of the memory that it wants. The claim of the slot
// becomes one of the rest, for which the same victims leave.
func (c *Core) bindEarly(p *claim, some uint64) {
	x, d := p.owner, p.dev
	rest := &claim{owner: x, dev: d, bytes: int64(x.want.Need - some), owed: p.owed, early: true}
	for _, v := range p.from {
		if v.frees == p {
			rest.from = append(rest.from, v)
		}
	}
	c.drop(p)
	c.settleIn(x, d, some)
	x.tenure.early = true
	if rest.bytes > 0 {
		x.claim, x.growTo, x.growBy, x.holdsBy = rest, x.want.Need, c.now, c.now+c.patience(x)
		c.hold(rest)
		c.growing++
		for _, v := range rest.from {
			v.frees = rest
		}
	}
	c.emitGrant(x)
}

// enlargeBy gives an early client some more of the memory that it is to get.
func (c *Core) enlargeBy(p *claim, more int64) {
	x, d := p.owner, p.dev
	x.memory += uint64(more)
	d.used += more
	p.bytes -= more
	d.claimed -= more
	if p.bytes == 0 {
		c.endGrow(x)
	}
	c.emitGrant(x)
}
