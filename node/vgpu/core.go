package vgpu

import (
	"slices"
	"time"
)

// Core is the dispatcher. It is a value for one owner: calls must not overlap.
type Core struct {
	cfg     Config
	now     Time
	devices []*device
	clients map[ClientID]*client
	ready   []*client // in the policy's order, see before
	users   []*account
	seq     uint64 // of the last Want
	growing int    // clients with a Grow unanswered

	nextRefill Time
	lastSpent  Time
	spent      time.Duration // by all users since the last refill

	effects []Effect  // of the event under way
	scratch []*client // for order
}

type device struct {
	Device
	id          DeviceID
	lost        bool
	slots       []*client // nil: free
	bound       int       // clients in slots
	keepers     []*client // unbound clients with bytes here, the longest unbound first
	used        int64     // bytes taken by slots and keepers
	claimed     int64     // bytes promised to claims
	claims      int       // slots promised to claims
	reservedFor *client
	supply      supply
}

func (d *device) freeSlots() int { return len(d.slots) - d.bound - d.claims }

func (d *device) free() int64 { return int64(d.Memory) - d.used - d.claimed }

// holdsEver says whether a client that needs so many bytes fits when alone.
func (d *device) holdsEver(need uint64) bool { return need <= d.Memory-d.ContextCost }

// load is how many clients the device has or is promised to.
func (d *device) load() int { return d.bound + d.claims }

type client struct {
	id     ClientID
	user   *account
	weight int
	state  State

	want   Want
	length time.Duration // of its next GPU phase, for SJF; 0: unknown
	seq    uint64
	wantAt Time
	passes int

	dev    *device // where it is bound or keeps bytes
	last   DeviceID
	slot   int
	memory uint64 // granted, while assigned
	kept   uint64 // on dev, while unbound

	grantAt   Time
	idleSince Time
	busy      bool // kernels under way, as far as is known
	known     bool // the worker has said so since it was granted or watched
	sync      bool // at an announced synchronisation point
	watched   bool

	revoking bool   // a Revoke is unanswered
	frees    *claim // what waits for it to let go

	claim    *claim
	growTo   uint64 // 0 unless a Grow is unanswered
	growBy   Time
	reserved *device

	phase    time.Duration // GPU time since it was granted
	observed time.Duration // of its earlier phases, smoothed
	stats    stats
}

type stats struct {
	kernels     int
	busy        time.Duration
	grants      int
	waited      time.Duration
	preemptions int
}

// claim is what a client was promised and gets when everybody has let go.
type claim struct {
	owner   *client
	dev     *device
	bytes   int64
	slot    bool // false for Grow
	owed    int  // clients that have not let go yet
	counted bool // among the user's slots
	from    []*client
	trade   *client // of the same user, which has as many slots as it may: one for one
}

// taken is what the client takes on its device.
func (x *client) taken() int64 {
	if x.state == Assigned {
		return int64(x.memory + x.dev.ContextCost)
	}
	return int64(x.kept)
}

// New makes a dispatcher without clients.
func New(cfg Config) (*Core, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	c := &Core{cfg: cfg, clients: map[ClientID]*client{}, nextRefill: cfg.Period}
	for _, d := range cfg.Devices {
		if _, err := c.addDevice(d); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Attach makes a client known. Its user's weight in fair shares is the
// largest of that user's clients; a weight below 1 counts as 1.
func (c *Core) Attach(now Time, id ClientID, user string, weight int) []Effect {
	c.begin(now)
	if c.clients[id] != nil {
		return c.refuse(id, Duplicated)
	}
	x := &client{id: id, user: c.account(user), weight: max(weight, 1), last: AnyDevice, slot: -1}
	x.user.clients = append(x.user.clients, x)
	c.clients[id] = x
	return c.decide()
}

// Detach forgets a client that ended or died, in any state. What it took is
// free at once: call it when its worker has let go of the device.
func (c *Core) Detach(now Time, id ClientID) []Effect {
	x := c.begin(now).clients[id]
	if x == nil {
		return nil
	}
	c.leave(x, Waiting, 0)
	x.user.remove(x)
	delete(c.clients, id)
	return c.decide()
}

// Want says that a client needs a GPU now. It is granted at once or later, or
// denied. A ready client may want again to correct what it said; it keeps its
// place in the queue.
func (c *Core) Want(now Time, id ClientID, w Want) []Effect {
	x := c.begin(now).clients[id]
	if x == nil {
		return c.refuse(id, Unknown)
	}
	if x.state == Assigned {
		return c.refuse(id, Bound)
	}
	if x.state == Ready {
		c.unready(x, Waiting)
	} else {
		c.seq++
		x.seq, x.wantAt, x.passes = c.seq, c.now, 0
	}
	x.want = w
	x.length = orDefault(max(w.Estimate, 0), x.observed)
	if why := c.hopeless(x); why != "" {
		c.emit(Effect{Kind: Deny, Client: id, Reason: why})
		return c.decide()
	}
	x.state = Ready
	at, _ := slices.BinarySearchFunc(c.ready, x, c.before)
	c.ready = slices.Insert(c.ready, at, x)
	return c.decide()
}

// Grow says that an assigned client needs so many bytes in all. The answer is
// a Grant of the same slot with more memory, at once or within GrowWait, or
// Deny: then it had better release everything and want again. A Grow that
// crosses a Revoke has no other answer than that.
func (c *Core) Grow(now Time, id ClientID, need uint64) []Effect {
	x := c.begin(now).clients[id]
	switch {
	case x == nil:
		return c.refuse(id, Unknown)
	case x.state != Assigned || x.revoking:
		return nil // it crossed a Revoke or Gone, which is the answer
	case !x.dev.holdsEver(need):
		c.endGrow(x) // it says what it needs anew: what it said before is over
		return c.refuse(id, TooLarge)
	}
	if x.growTo == 0 {
		c.growing++
		x.growBy = c.now + c.cfg.GrowWait
	} else {
		c.drop(x.claim)
	}
	x.growTo = max(need, x.memory, 1)
	return c.decide()
}

// Busy says that kernels of the client are under way or calls are pending.
func (c *Core) Busy(now Time, id ClientID) []Effect {
	x := c.begin(now).clients[id]
	if x == nil || x.state != Assigned {
		return nil
	}
	x.busy, x.known, x.sync = true, true, false
	return c.decide()
}

// Idle says that nothing of the client is under way and no calls are pending.
func (c *Core) Idle(now Time, id ClientID) []Effect { return c.IdleFor(now, id, 0) }

// IdleFor is Idle for a worker that knows for how long this has been so, as
// when it answers Watch.
func (c *Core) IdleFor(now Time, id ClientID, lasted time.Duration) []Effect {
	x := c.begin(now).clients[id]
	if x == nil || x.state != Assigned {
		return nil
	}
	x.rest(max(c.now-max(lasted, 0), x.grantAt))
	return c.decide()
}

func (x *client) rest(since Time) {
	if x.busy || !x.known {
		x.idleSince = since
	}
	x.busy, x.known = false, true
}

// SyncPoint says the same as Idle, and that the client announced that it waits
// for others: if somebody needs its slot, it loses it at once.
func (c *Core) SyncPoint(now Time, id ClientID) []Effect {
	x := c.begin(now).clients[id]
	if x == nil || x.state != Assigned {
		return nil
	}
	x.rest(c.now)
	x.sync = true
	return c.decide()
}

// Released says that the client let go of its device: the answer to Revoke and
// to a denied Grow, or of its own accord. An assigned client goes to the
// waiting queue. It may keep some bytes there although it is unbound (a
// context that is left open); they are taken back when others need them.
func (c *Core) Released(now Time, id ClientID, keeps uint64) []Effect {
	x := c.begin(now).clients[id]
	if x == nil || x.dev == nil {
		return nil
	}
	if x.state == Assigned {
		c.leave(x, Waiting, keeps)
		return c.decide()
	}
	if keeps == 0 || x.revoking {
		c.letGo(x, 0)
	}
	return c.decide()
}

// Ran reports GPU time since the last report. It is spent from the user's
// credit and is what later phases of the client are expected to take.
func (c *Core) Ran(now Time, id ClientID, kernels int, busy time.Duration) []Effect {
	x := c.begin(now).clients[id]
	if x == nil {
		return nil
	}
	busy = max(busy, 0)
	x.stats.kernels += max(kernels, 0)
	x.stats.busy += busy
	x.phase += busy
	if busy > 0 {
		spent := min(busy, creditPeriods*c.cfg.Period) // more would be forgotten at once
		x.user.credit -= spent
		c.spent += spent
		c.lastSpent = c.now
	}
	return c.decide()
}

// Failed says that the client reported a fault and its worker has let go of
// the device. It stays in the failed queue until it wants again or detaches.
func (c *Core) Failed(now Time, id ClientID) []Effect {
	x := c.begin(now).clients[id]
	if x == nil {
		return nil
	}
	c.leave(x, Failed, 0)
	return c.decide()
}

// Lost says that a device is no more. Its clients are in the failed queue.
func (c *Core) Lost(now Time, id DeviceID) []Effect {
	c.begin(now)
	if id < 0 || int(id) >= len(c.devices) || c.devices[id].lost {
		return nil
	}
	d := c.devices[id]
	d.lost = true
	for _, x := range slices.Concat(d.slots, c.ready) {
		if x != nil && x.claim != nil && x.claim.dev == d {
			c.drop(x.claim)
		}
	}
	for _, x := range slices.Clone(d.slots) {
		if x != nil {
			c.emit(Effect{Kind: Gone, Client: x.id, Device: id})
			c.leave(x, Failed, 0)
		}
	}
	for _, x := range slices.Clone(d.keepers) {
		c.letGo(x, 0)
	}
	for _, x := range slices.Clone(c.ready) {
		c.unreserve(x, d)
		if why := c.hopeless(x); why != "" {
			c.unready(x, Waiting)
			c.emit(Effect{Kind: Deny, Client: x.id, Reason: why})
		}
	}
	return c.decide()
}

// Added says that a device came. One that bears the name of a lost device
// takes that one's number.
func (c *Core) Added(now Time, d Device) (DeviceID, []Effect, error) {
	c.begin(now)
	id, err := c.addDevice(d)
	if err != nil {
		return id, nil, err
	}
	return id, c.decide(), nil
}

// Tick says that time went on.
func (c *Core) Tick(now Time) []Effect {
	c.begin(now)
	return c.decide()
}

func (c *Core) addDevice(d Device) (DeviceID, error) {
	d, err := d.complete()
	if err != nil {
		return AnyDevice, err
	}
	made := &device{Device: d, id: DeviceID(len(c.devices)), slots: make([]*client, d.Slots)}
	for _, old := range c.devices {
		if old.lost && old.Name == d.Name {
			made.id = old.id
			c.devices[old.id] = made
			return made.id, nil
		}
	}
	c.devices = append(c.devices, made)
	return made.id, nil
}

func (c *Core) begin(now Time) *Core {
	c.now = max(c.now, now)
	c.effects = nil
	return c
}

func (c *Core) emit(e Effect) { c.effects = append(c.effects, e) }

func (c *Core) refuse(id ClientID, why Reason) []Effect {
	c.emit(Effect{Kind: Deny, Client: id, Reason: why})
	return c.decide()
}

// decide does all that the event made possible, and hands over the effects.
func (c *Core) decide() []Effect {
	c.refill()
	c.answerGrowing()
	c.serveReady()
	c.setWatches()
	return c.effects
}

// hopeless says why no device could ever serve what x wants.
func (c *Core) hopeless(x *client) Reason {
	why := NoDevice
	for _, d := range c.devices {
		if d.lost || (x.want.Pinned != AnyDevice && x.want.Pinned != d.id) {
			continue
		}
		if d.holdsEver(x.want.Need) {
			return ""
		}
		why = TooLarge
	}
	return why
}

// before is the order of the ready queue, starvation and credit aside.
func (c *Core) before(a, b *client) int {
	if c.cfg.Policy == SJF && a.length != b.length {
		if a.length == 0 || (b.length != 0 && b.length < a.length) {
			return 1
		}
		return -1
	}
	if a.seq < b.seq {
		return -1
	}
	if a.seq > b.seq {
		return 1
	}
	return 0
}

// unready takes a client out of the ready queue, and back what it was promised.
func (c *Core) unready(x *client, next State) {
	at, _ := slices.BinarySearchFunc(c.ready, x, c.before)
	c.ready = slices.Delete(c.ready, at, at+1)
	c.drop(x.claim)
	c.unreserve(x, x.reserved)
	x.state = next
}

func (c *Core) unreserve(x *client, d *device) {
	if d != nil && x.reserved == d {
		d.reservedFor, x.reserved = nil, nil
	}
}

// bind puts a ready client into a slot. Room has been made.
func (c *Core) bind(x *client, d *device) {
	c.unready(x, Assigned)
	if x.dev != nil { // it keeps bytes here: they are part of what it gets
		d.used -= int64(x.kept)
		d.keepers = remove(d.keepers, x)
		x.kept = 0
	}
	x.dev, x.last, x.slot, x.memory = d, d.id, slices.Index(d.slots, nil), x.want.Need
	d.slots[x.slot] = x
	d.bound++
	d.used += x.taken()
	x.user.slots++
	x.grantAt, x.busy, x.known, x.sync, x.phase = c.now, true, false, false, 0
	x.stats.grants++
	x.stats.waited += c.now - x.wantAt
	c.emitGrant(x)
}

// leave unbinds a client from wherever it is and ends all that it waits for.
func (c *Core) leave(x *client, next State, keeps uint64) {
	switch x.state {
	case Ready:
		c.unready(x, next)
		c.letGo(x, keeps)
	case Assigned:
		c.endGrow(x)
		d := x.dev
		d.slots[x.slot] = nil
		d.bound--
		d.used -= x.taken()
		x.user.slots--
		keeps = min(keeps, uint64(x.taken()))
		x.state, x.slot, x.memory = next, -1, 0
		x.watched = false
		if x.revoking {
			x.stats.preemptions++
		}
		if x.phase > 0 {
			x.observed = smooth(x.observed, x.phase)
		}
		x.dev = nil
		if keeps > 0 {
			x.dev, x.kept = d, keeps
			d.keepers = append(d.keepers, x)
			d.used += x.taken()
		}
		c.answered(x)
	default:
		c.letGo(x, keeps)
		x.state = next
	}
}

// letGo is for unbound clients: bytes that they kept are free.
func (c *Core) letGo(x *client, keeps uint64) {
	if x.dev != nil && keeps == 0 {
		x.dev.used -= x.taken()
		x.dev.keepers = remove(x.dev.keepers, x)
		x.dev, x.kept = nil, 0
	}
	c.answered(x)
}

// answered ends a Revoke. Whoever waited for it may have all it was promised.
func (c *Core) answered(x *client) {
	p := x.frees
	x.revoking, x.frees = false, nil
	if p == nil {
		return
	}
	if p.trade == x {
		p.trade, p.counted = nil, true
		p.owner.user.slots++
	}
	p.owed--
	if p.owed == 0 {
		c.fulfil(p)
	}
}

// fulfil hands over what was promised. If victims kept so much that it does
// not fit, the promise is void, and decide looks for another way.
func (c *Core) fulfil(p *claim) {
	x, d := p.owner, p.dev
	c.drop(p)
	after := d.used + p.bytes
	if x.dev == d && p.slot {
		after -= x.taken()
	}
	if after > int64(d.Memory) {
		return
	}
	if p.slot {
		c.bind(x, p.dev)
		return
	}
	c.enlarge(x)
}

// enlarge answers a Grow with yes.
func (c *Core) enlarge(x *client) {
	x.dev.used += int64(x.growTo - x.memory)
	x.memory = x.growTo
	c.endGrow(x)
	c.emitGrant(x)
}

func (c *Core) emitGrant(x *client) {
	c.emit(Effect{Kind: Grant, Client: x.id, Device: x.dev.id, Slot: x.slot, Memory: x.memory, Lease: x.stats.grants})
}

func (c *Core) endGrow(x *client) {
	if x.growTo > 0 {
		c.drop(x.claim)
		x.growTo = 0
		c.growing--
	}
}

// drop forgets a promise. Those who were told to let go for it still do.
func (c *Core) drop(p *claim) {
	if p == nil {
		return
	}
	p.dev.claimed -= p.bytes
	if p.slot {
		p.dev.claims--
	}
	if p.counted {
		p.owner.user.slots--
	}
	p.owner.claim = nil
	for _, v := range p.from {
		if v.frees == p {
			v.frees = nil
		}
	}
}

func remove(list []*client, x *client) []*client {
	at := slices.Index(list, x)
	return slices.Delete(list, at, at+1)
}

// smooth weighs a new length a quarter, so that one odd phase changes little.
func smooth(old, latest time.Duration) time.Duration {
	if old == 0 {
		return latest
	}
	return old - old/4 + latest/4
}
