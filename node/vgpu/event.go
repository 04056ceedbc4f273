package vgpu

import (
	"slices"
	"time"
)

// Event is something that the driver tells the core: one of the types below. It
// is a plain value, so that it can be recorded and played again (AppendEntry,
// Replay).
type Event interface {
	// Kind is the event's name in recordings.
	Kind() string
	// apply changes the core. It returns false if the event changed nothing, as when it names a
	// client that has gone: then Step decides nothing.
	apply(c *Core) bool
}

// The kinds of events, by name. A type that is missing here can be neither
// recorded nor replayed; a test finds it.
var eventKinds = byKind(Attach{}, Detach{}, Want{}, Grow{}, Busy{}, Idle{}, SyncPoint{}, Released{}, Ran{}, Faulted{}, Lost{}, Added{}, Tick{},
	Move{}, Drain{}, Resume{}, Remove{}, Returned{}, Adopt{}, Configure{}, Limit{}, Admit{}, Withdraw{}, Restrict{}, Began{}, Freed{}, Resize{})

func (Attach) Kind() string    { return "attach" }
func (Detach) Kind() string    { return "detach" }
func (Want) Kind() string      { return "want" }
func (Grow) Kind() string      { return "grow" }
func (Busy) Kind() string      { return "busy" }
func (Idle) Kind() string      { return "idle" }
func (SyncPoint) Kind() string { return "sync_point" }
func (Released) Kind() string  { return "released" }
func (Ran) Kind() string       { return "ran" }
func (Faulted) Kind() string   { return "faulted" }
func (Lost) Kind() string      { return "lost" }
func (Added) Kind() string     { return "added" }
func (Tick) Kind() string      { return "tick" }
func (Move) Kind() string      { return "move" }
func (Drain) Kind() string     { return "drain" }
func (Resume) Kind() string    { return "resume" }
func (Remove) Kind() string    { return "remove" }
func (Returned) Kind() string  { return "returned" }
func (Adopt) Kind() string     { return "adopt" }
func (Configure) Kind() string { return "configure" }
func (Limit) Kind() string     { return "limit" }
func (Admit) Kind() string     { return "admit" }
func (Withdraw) Kind() string  { return "withdraw" }
func (Restrict) Kind() string  { return "restrict" }
func (Began) Kind() string     { return "began" }
func (Freed) Kind() string     { return "freed" }
func (Resize) Kind() string    { return "resize" }

// Attach makes a client known. Its user's weight in fair shares is the
// largest of that user's clients; a weight below 1 counts as 1. A client under a grant
// uses one share of it, and what that reaches.
type Attach struct {
	Client ClientID `json:"client"`
	User   string   `json:"user"`
	Weight int      `json:"weight"`
	Grant  GrantID  `json:"grant,omitempty"` // "" for none
	Share  int      `json:"share,omitempty"` // its place in Admit.Shares
	// Priority comes before the policy: clients with a higher one are served first, until others
	// have waited too long.
	Priority int `json:"priority,omitempty"`
	// Further says that this stands for a further device of a client whose home is elsewhere. It
	// takes a slot and memory, but the device still looks idle to clients that are placed.
	Further bool `json:"further,omitempty"`
}

func (e Attach) apply(c *Core) bool {
	if c.clients[e.Client] != nil {
		return c.deny(e.Client, Duplicated)
	}
	x := c.attach(e.Client, e.User, e.Weight, e.Grant, e.Share)
	if x == nil {
		return c.deny(e.Client, NoGrant)
	}
	x.further = e.Further
	c.rank(x, e.Priority)
	return true
}

// attach makes a client; nil if it names a grant or share that does not exist.
func (b *books) attach(id ClientID, user string, weight int, under GrantID, share int) *client {
	var part *device
	if under != "" {
		g := b.findGrant(under)
		if g == nil || share < 0 || share >= len(g.parts) {
			return nil
		}
		part = g.parts[share]
		g.clients++
	}
	x := &client{id: id, user: b.account(user), part: part, weight: max(weight, 1), seating: seating{last: AnyDevice, slot: -1}, target: AnyDevice}
	x.want.Pinned = AnyDevice
	x.user.clients = append(x.user.clients, x)
	b.clients[x.id] = x
	return x
}

// Detach forgets a client that ended or died, in any state. What it took is free at once.
type Detach struct {
	Client ClientID `json:"client"`
}

func (e Detach) apply(c *Core) bool {
	x := c.clients[e.Client]
	if x == nil {
		return false
	}
	c.leave(x, Waiting, 0)
	c.untarget(x)
	c.bequeath(x)
	if x.priority != 0 {
		c.ranked--
	}
	x.user.remove(x)
	delete(c.clients, x.id)
	c.forgetGranted(x)
	c.past = c.past.plus(x.ran)
	c.pastMoves = c.pastMoves.plus(x.stats.moves)
	return true
}

// Want says that a client needs a GPU now. It is granted at once or later, or
// denied. A ready client may want again to correct what it said; it keeps its
// place in the queue.
type Want struct {
	Client   ClientID      `json:"client"`
	Need     uint64        `json:"need"`        // bytes that must be resident
	Estimate time.Duration `json:"estimate_ns"` // of its next GPU phase; 0: unknown
	Pinned   DeviceID      `json:"pinned"`      // the only device that will do; AnyDevice if any will
}

func (e Want) apply(c *Core) bool {
	x := c.clients[e.Client]
	if x == nil {
		return c.deny(e.Client, Unknown)
	}
	if x.state == Assigned {
		return c.deny(x.id, Bound)
	}
	if x.state == Ready {
		c.unready(x, Waiting)
	} else {
		c.seq++
		c.wantsAgain(x)
		x.seq, x.wantAt, x.passes = c.seq, c.now, 0
		x.rank, x.lapses = c.seq, 0
	}
	x.want = e
	x.length = orDefault(max(e.Estimate, 0), x.observed)
	why, parked := c.prospects(x)
	if why != "" {
		return c.deny(x.id, why)
	}
	if x.target != AnyDevice && !x.mayUse(c.seatOf(x, x.target)) { // it needs more now, or was pinned
		c.untarget(x)
	}
	x.state = Ready
	c.park(x, parked)
	at, _ := slices.BinarySearchFunc(c.ready, x, c.before)
	c.ready = slices.Insert(c.ready, at, x)
	return true
}

// Grow says that an assigned client needs Need bytes in all. The answer is a Grant of the same
// slot with more memory, at once or within GrowWait, or Deny: then the worker should release
// everything and want again. If a Grow crosses a Revoke, the Revoke is its only answer.
type Grow struct {
	Client ClientID `json:"client"`
	Need   uint64   `json:"need"`
}

func (e Grow) apply(c *Core) bool {
	x := c.clients[e.Client]
	switch {
	case x == nil:
		return c.deny(e.Client, Unknown)
	case x.state != Assigned || x.revoking:
		return false // it crossed a Revoke or Gone, which is the answer
	case !x.dev.holdsEver(e.Need) || x.part != nil && !x.part.holdsEver(e.Need):
		c.endGrow(x) // a new Grow replaces an unanswered one
		return c.deny(x.id, TooLarge)
	}
	if x.growTo == 0 {
		c.growing++
		x.growBy = c.now + c.cfg.GrowWait
	} else {
		if x.claim != nil && x.claim.early { // it needs more than it was to get
			x.growBy = c.now + c.cfg.GrowWait
		}
		c.drop(x.claim)
	}
	x.growTo = max(e.Need, x.memory, 1)
	return true
}

// Busy says that kernels of the client are under way or calls are pending.
type Busy struct {
	Client ClientID `json:"client"`
}

func (e Busy) apply(c *Core) bool {
	x := c.assigned(e.Client)
	if x == nil {
		return false
	}
	x.busy, x.known, x.sync = true, true, false
	return true
}

// Idle says that nothing of the client is under way and no calls are pending.
// For is how long this has been so, if the worker knows, as when it answers
// Watch.
type Idle struct {
	Client ClientID      `json:"client"`
	For    time.Duration `json:"for_ns"`
}

func (e Idle) apply(c *Core) bool {
	x := c.assigned(e.Client)
	if x == nil {
		return false
	}
	x.rest(max(c.now-max(e.For, 0), x.grantAt))
	return true
}

// SyncPoint says the same as Idle, and that the client announced that it waits for others: it
// loses its slot as soon as another client needs it.
type SyncPoint struct {
	Client ClientID `json:"client"`
}

func (e SyncPoint) apply(c *Core) bool {
	x := c.assigned(e.Client)
	if x == nil {
		return false
	}
	x.rest(c.now)
	x.sync = true
	return true
}

// Released says that the client let go of its device: in answer to Revoke or to a denied Grow,
// or unasked. An assigned client goes to the waiting queue. It may keep some bytes there
// although it is unbound (a context that is left open); they are taken back when others need
// them.
type Released struct {
	Client ClientID `json:"client"`
	Keeps  uint64   `json:"keeps"`
	// Took is how long moving its memory off the device took, once all that ran had ended.
	Took time.Duration `json:"took_ns,omitempty"`
}

func (e Released) apply(c *Core) bool {
	x := c.clients[e.Client]
	switch {
	case x == nil || x.dev == nil:
		return false
	case x.state == Assigned:
		x.tenure.out = max(e.Took, 0)
		x.stats.moving = saturated(x.stats.moving, x.tenure.out)
		c.leave(x, Waiting, e.Keeps)
		if x.dev != nil && x.dev.overfull() { // clients were adopted, or a grant was admitted, so that they have more than they may
			c.revoke(victim{client: x, why: ForMemory})
		}
	case e.Keeps == 0 || x.revoking:
		c.letGo(x, 0)
	}
	return true
}

// Ran says what ran since the client's last Ran. It is counted (Usage), spent from the user's
// credit, and is what later phases of the client are expected to take. For a client without a
// device it is about the one that it had last.
type Ran struct {
	Client  ClientID      `json:"client"`
	Kernels int           `json:"kernels"`
	Busy    time.Duration `json:"busy_ns"`
}

func (e Ran) apply(c *Core) bool {
	x := c.clients[e.Client]
	if x == nil {
		return false
	}
	ran := Usage{uint64(max(e.Kernels, 0)), max(e.Busy, 0)}.within(x.ran)
	x.ran = x.ran.plus(ran)
	if x.last != AnyDevice {
		d := c.devices[x.last]
		d.ran = d.ran.plus(ran)
	}
	x.phase += ran.GPUTime
	c.ranNow = x
	if ran.GPUTime > 0 {
		spent := min(ran.GPUTime, creditPeriods*c.cfg.Period) // more would be forgotten at once
		x.user.credit -= spent
		c.spent += spent
		c.lastSpent = c.now
	}
	return true
}

// Faulted says that the client reported a fault and its worker has let go of
// the device. It stays in the failed queue until it wants again or detaches.
type Faulted struct {
	Client ClientID `json:"client"`
}

func (e Faulted) apply(c *Core) bool {
	x := c.clients[e.Client]
	if x == nil {
		return false
	}
	c.leave(x, Failed, 0)
	return true
}

// Tick says that time has passed.
type Tick struct{}

func (Tick) apply(*Core) bool { return true }

// assigned returns a client that is bound to a slot, or nil.
func (b *books) assigned(id ClientID) *client {
	if x := b.clients[id]; x != nil && x.state == Assigned {
		return x
	}
	return nil
}

func (x *client) rest(since Time) {
	if x.busy || !x.known {
		x.idleSince = since
	}
	x.busy, x.known = false, true
}
