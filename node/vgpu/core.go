package vgpu

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
)

// Core is the dispatcher. It is a value for one owner: calls must not overlap.
type Core struct {
	books
	seq     uint64   // of the last Want
	lapsed  bool     // a client has given up room in the present step
	ranNow  *client  // the client that the present event (Ran) is about
	effects []Effect // of the present event
}

// books are what the dispatcher knows, and what follows from it for those who ask. Nothing in them grants or
// revokes.
type books struct {
	rules
	fleet
	clients map[ClientID]*client
	users   []*account
	growing int // clients with a Grow unanswered
	parked  int // how many of ready are parked: no device that could hold them takes clients at present

	nextRefill Time
	lastSpent  Time
	spent      time.Duration // by all users since the last refill

	past      Usage // of clients that have gone
	pastMoves Moves

	scratch []*client // for order
}

// rules say when a client may have to make room for another, how long it may keep what it has, and what moving
// it costs. They decide nothing.
type rules struct {
	cfg    Config
	now    Time
	steps  uint64    // number of the present step
	ready  []*client // in the policy's order, see before
	ranked int       // clients whose priority is not 0
}

// fleet are the devices, and what is granted of them.
type fleet struct {
	devices []*device
	grants  []*grant  // in the order in which they were admitted
	all     []*device // the devices, and then all parts of them that are granted
	drains  int       // devices that are drained
	anew    bool      // something changed since migrate last looked at all clients
	idle    []*device // devices without clients when migrate last looked at all, the fastest first
}

type device struct {
	Device
	id          DeviceID
	lost        bool
	removed     bool      // lost is set too, and no client waits for it
	drained     bool      // takes no clients
	mover       *client   // the client that was told to leave another device for this one
	slots       []*client // nil: free; longer than Slots while adopted clients exceed it, or those that were there when it had more
	bound       int       // clients in slots
	keepers     []*client // unbound clients with bytes here, the longest unbound first
	used        int64     // bytes taken by slots and keepers
	claimed     int64     // bytes promised to claims
	claims      int       // slots promised to claims
	visitors    int       // how many of bound stand for further devices of other clients
	reservedFor *client
	openBy      openTimes
	supply      supply
	field       field // cached: valid in the step with the number fieldOf
	fieldOf     uint64
	ran         Usage

	parts []*device // what is granted of it
	portion
}

// portion is what makes a device a part of another. A share of a device that was granted is a device of
// its own to the dispatcher: it has the device's number, and memory and slots that only the grant's
// clients are given.
type portion struct {
	of    *device // what it is a part of; nil for a device
	grant *grant  // whose part it is
	whole bool    // the part is all of the device

	beyond uint64      // that the part's clients may have beside its memory, while it is free
	reach  model.Reach // how far they may go
	away   []*client   // those of the part's clients that are on other devices, or keep bytes there
	called int         // slots on other devices that are promised to the part's clients
}

func (d *device) freeSlots() int { return d.Slots - d.bound - d.claims }

// up says whether d takes clients.
func (d *device) up() bool { return !d.base().lost && !d.base().drained }

// free is the part of its memory that is neither taken nor promised, and can be given to its
// clients now.
func (d *device) free() int64 { return d.room() - d.claimed }

// holdsEver says whether a client that needs this many bytes would fit if it were alone.
func (d *device) holdsEver(need uint64) bool { return need <= d.most()-d.ContextCost }

func (d *device) state() DeviceState {
	switch {
	case d.removed:
		return DeviceRemoved
	case d.lost:
		return DeviceLost
	case !d.drained:
		return DeviceUp
	case slices.ContainsFunc(d.family(), func(m *device) bool { return m.bound > 0 || len(m.keepers) > 0 }):
		return DeviceDraining
	}
	return DeviceDrained
}

// load is how many clients are on the device or one of its parts, or are promised it. Clients that
// stand for further devices do not count: they leave for any other.
func (d *device) load() (load int) {
	d = d.base()
	load = d.bound - d.visitors + d.claims
	for _, p := range d.parts {
		load += p.bound - p.visitors + p.claims
	}
	return load
}

type client struct {
	id     ClientID
	user   *account
	part   *device // the part of a device that its grant gives it, and all that it may use; nil: it has no grant
	weight int
	// priority comes before the policy: a higher one is served first.
	priority int
	further  bool // it stands for a further device of another client
	state    State

	wish
	seating
	hopes
	history

	grantAt   Time
	idleSince Time
	busy      bool // kernels are under way, as far as the core knows
	known     bool // the worker has reported busy since it was granted or watched
	sync      bool // at an announced synchronisation point
	watched   bool

	revoking bool   // a Revoke is unanswered
	toldAt   Time   // when it was told so, or last said that it freed something
	frees    *claim // the claim that waits for it to let go

	target DeviceID // the device that it is to go to next; AnyDevice if any
	moving cause    // why it is to go there, or had to leave its device; byNothing otherwise
	stays  bool     // it was put where it is by hand
}

// wish is what a client wants, while it waits.
type wish struct {
	want   Want
	length time.Duration // of its next GPU phase, for SJF; 0: unknown
	seq    uint64
	wantAt Time
	passes int
	parked bool // ready, but every device that could hold it is drained or lost
}

// seating is where a client is.
type seating struct {
	dev    *device // where it is bound or keeps bytes
	last   DeviceID
	slot   int
	memory uint64 // granted, while assigned
	kept   uint64 // on dev, while unbound
}

// hopes are what a client is promised, and what is kept for it from others.
type hopes struct {
	claim    *claim
	growTo   uint64 // 0 unless a Grow is unanswered
	growBy   Time
	reserved *device // kept from others for it, and a slot among those of its user
	holdsBy  Time    // when it gives up its claim or reserved, because clients do not leave
	lapses   int     // how often it has given up since it wanted
	rank     uint64  // its place among those that have waited too long: seq, or that of the last Want when it gave up
}

// history is what a client has had.
type history struct {
	tenure   tenure
	phase    time.Duration // GPU time since it was granted
	leftAt   Time          // when it was last unbound
	observed time.Duration // smoothed GPU time of its earlier phases
	ran      Usage
	stats    stats
}

type stats struct {
	grants      int
	waited      time.Duration
	preemptions int
	moves       Moves
	turns       int           // turns that ended because others waited
	longest     time.Duration // its longest wait for a device
	moving      time.Duration // time spent moving its memory to devices and from them
}

// claim is what a client was promised, and gets when all victims have let go. While it is held, its
// bytes and slot are taken from what the device can give to others.
type claim struct {
	owner *client
	dev   *device
	bytes int64
	slot  bool // a slot is claimed too; false for a Grow
	early bool // the owner is bound already, with part of what it wants, and gets the rest bit by bit
	owed  int  // victims that have not let go yet
	held  bool // its bytes and slot are kept for the owner, and the slot counts among the user's
	from  []*client
	trade *client // the victim of the same user whose slot is exchanged for this one, as the user has all slots it may: nothing is held before it has left
}

// taken is how many bytes the client takes on its device, context included.
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
	c := &Core{books: books{rules: rules{cfg: cfg}, clients: map[ClientID]*client{}, nextRefill: cfg.Period}}
	for _, d := range cfg.Devices {
		if err := c.addDevice(d); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Step tells the core what happened and when. It returns what the driver is to
// do about it, in that order. It is the only way in: what the core decides
// depends on its configuration and on the events that it was told, and on
// nothing else.
func (c *Core) Step(now Time, e Event) []Effect {
	c.now = max(c.now, now)
	c.steps++
	c.effects = nil
	if e.apply(c) {
		c.decide()
	}
	return c.effects
}

// Config returns the present configuration, with all defaults filled in. The caller must not change
// it.
func (b *books) Config() Config { return b.cfg }

func (f *fleet) addDevice(d Device) error {
	d, err := d.complete()
	if err != nil {
		return err
	}
	for _, old := range f.devices {
		if old.returnsAs(&d) {
			f.replace(old, d)
			return nil
		}
	}
	if len(f.devices) == maxDevices {
		return fmt.Errorf("device %q is one too many: there are %d", d.Name, maxDevices)
	}
	f.devices = append(f.devices, newDevice(DeviceID(len(f.devices)), d))
	f.relist()
	return nil
}

// returnsAs says whether a device that comes is one that was lost, by its name. A grant's device is itself
// alone until it is removed: another one of its name may be another grant's.
func (d *device) returnsAs(is *Device) bool {
	return d.lost && d.Name == is.Name && (d.removed || !d.Granted && !is.Granted)
}

func newDevice(id DeviceID, d Device) *device {
	return &device{Device: d, id: id, slots: make([]*client, d.Slots)}
}

// replace puts a device in the place of one that was lost. Its usage and the parts that grants have
// of it are kept.
func (f *fleet) replace(old *device, d Device) {
	made := newDevice(old.id, d)
	made.ran, made.parts = old.ran, old.parts
	for _, p := range made.parts {
		p.reshape(made)
	}
	f.devices[old.id] = made
	f.relist()
}

func (c *Core) emit(e Effect) { c.effects = append(c.effects, e) }

// deny tells a client that it will not get what it asked for.
func (c *Core) deny(id ClientID, why Reason) bool {
	c.emit(Effect{Kind: Deny, Client: id, Reason: why})
	return true
}

// decide does all that the event made possible. Clients that must leave come first, so that their
// room counts as coming; a Grow is answered before new clients are placed; and clients are moved
// only if none waits. Watches come last, as they depend on who still waits.
func (c *Core) decide() {
	c.refill()
	c.lapse()
	c.evacuate()
	c.enforceGrants()
	c.answerGrowing()
	c.serveReady()
	c.migrate()
	c.setWatches()
}

// prospects says why no device could ever serve what x wants or, if one could, whether all that
// could are drained or lost at present.
func (f *fleet) prospects(x *client) (why Reason, parked bool) {
	if x.part != nil {
		return f.grantedProspects(x)
	}
	why = NoDevice
	lost := false // a lost device could hold x, which has never had one
	for _, d := range f.devices {
		switch pinned := x.want.Pinned; {
		case d.removed || (pinned != AnyDevice && pinned != d.id):
		case d.lost && pinned != d.id && x.last == AnyDevice:
			lost = lost || d.holdsEver(x.want.Need)
		case d.holdsNow(x.want.Need) && d.up():
			return "", false
		case d.holdsEver(x.want.Need):
			parked = true
		case !d.lost:
			why = TooLarge
		}
	}
	if parked || lost && why == TooLarge {
		return "", true
	}
	return why, false
}

// grantedProspects is prospects for a client that has a grant. It may have no more at a time than its share,
// wherever it is.
func (f *fleet) grantedProspects(x *client) (why Reason, parked bool) {
	p := x.part
	if !p.holdsEver(x.want.Need) {
		return TooLarge, false
	}
	why, parked = NoDevice, true
	for _, d := range f.all {
		if !x.isOf(d) || d.base().removed || x.want.Pinned != AnyDevice && x.want.Pinned != d.id || !d.holdsEver(x.want.Need) {
			continue
		}
		why, parked = "", parked && !(x.mayUse(d) && p.grant.active())
	}
	return why, parked && why == ""
}

// park notes whether a ready client must wait until a device comes back or is given back.
func (b *books) park(x *client, parked bool) {
	switch {
	case parked && !x.parked:
		b.parked++
	case !parked && x.parked:
		b.parked--
	}
	x.parked = parked
}

// Parked is how many clients wait although every device that could hold them is drained, lost or
// granted to others.
func (b *books) Parked() int { return b.parked }

// waiting is how many clients wait for room that other clients may have to make.
func (b *books) waiting() int { return len(b.ready) - b.parked }

// before is the order of the ready queue, apart from starvation, priority and credit. No two
// clients are equal in it, so that unready can find a client by binary search.
func (k *books) before(a, b *client) int {
	if k.cfg.Policy == SJF && a.length != b.length {
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

// unready takes a client out of the ready queue, and takes back what it was promised.
func (b *books) unready(x *client, next State) {
	at, _ := slices.BinarySearchFunc(b.ready, x, b.before)
	b.ready = slices.Delete(b.ready, at, at+1)
	b.drop(x.claim)
	b.unreserve(x, x.reserved)
	b.park(x, false)
	b.anew = true
	x.state = next
}

func (f *fleet) unreserve(x *client, d *device) {
	if d != nil && x.reserved == d {
		d.reservedFor, x.reserved = nil, nil
		x.user.slots -= x.slotCount()
	}
}

// bind puts a ready client into a slot, with all that it wants. The caller has made sure that there
// is room.
func (c *Core) bind(x *client, d *device) {
	c.settleIn(x, d, x.want.Need)
	c.emitGrant(x)
}

// settleIn puts a ready client into a slot with some memory.
func (b *books) settleIn(x *client, d *device, memory uint64) {
	b.unready(x, Assigned)
	b.arrive(x, d)
	if x.dev != nil { // it keeps bytes on d, which become part of what it gets
		d.used -= int64(x.kept)
		d.keepers = remove(d.keepers, x)
		x.kept = 0
	}
	b.seat(x, d, memory)
	x.stats.grants++
	x.stats.waited += b.now - x.wantAt
	x.stats.longest = max(x.stats.longest, b.now-x.wantAt)
}

// leave unbinds a client from its device, and ends all that it waits for.
func (c *Core) leave(x *client, next State, keeps uint64) {
	switch x.state {
	case Ready:
		c.unready(x, next)
		c.letGo(x, keeps)
	case Assigned:
		c.endGrow(x)
		c.settleTurn(x)
		d := x.dev
		d.vacate(x.slot)
		d.used -= x.taken()
		x.user.slots -= x.slotCount()
		keeps = min(keeps, uint64(x.taken()))
		x.state, x.slot, x.memory = next, -1, 0
		x.watched = false
		if x.revoking && x.moving == byNothing {
			x.stats.preemptions++
		}
		x.stays, x.leftAt, c.anew = false, c.now, true
		if x.phase > 0 {
			x.observed = smooth(x.observed, x.phase)
		}
		if x.kept = keeps; keeps == 0 {
			x.sit(nil)
		} else {
			d.keepers = append(d.keepers, x)
			d.used += x.taken()
		}
		c.answered(x)
	default:
		c.letGo(x, keeps)
		x.state = next
	}
	if next == Failed && x.moving == byItself {
		c.untarget(x)
	}
}

// vacate frees a slot.
func (d *device) vacate(slot int) {
	if d.slots[slot].further {
		d.visitors--
	}
	d.slots[slot] = nil
	d.bound--
	d.trim()
}

// trim drops surplus slots at the end.
func (d *device) trim() {
	for n := len(d.slots); n > d.Slots && d.slots[n-1] == nil; n-- {
		d.slots = d.slots[:n-1]
	}
}

// letGo takes back the bytes that an unbound client kept. If it still keeps some, nothing changes.
func (c *Core) letGo(x *client, keeps uint64) {
	if x.dev != nil && keeps == 0 {
		x.dev.used -= x.taken()
		x.dev.keepers = remove(x.dev.keepers, x)
		x.sit(nil)
		x.kept = 0
		c.anew = true
	}
	c.answered(x)
}

// answered ends a Revoke. If it was the last one that a claim waited for, the claim is fulfilled.
func (c *Core) answered(x *client) {
	p := x.frees
	x.revoking, x.frees = false, nil
	if p == nil {
		return
	}
	p.owed--
	if p.trade == x {
		p.trade = nil
		if !stillThere(p) {
			c.drop(p)
			return
		}
		c.hold(p)
	}
	if p.owed == 0 {
		c.fulfil(p)
	}
}

// fulfil hands over what was promised. If victims kept so many bytes that it does not fit, or an
// adopted client took the slot, the promise is void, and decide looks for another way.
func (c *Core) fulfil(p *claim) {
	x, d := p.owner, p.dev
	c.drop(p)
	more := p.bytes
	if x.dev == d && p.slot {
		more -= x.taken()
	}
	// An early owner whose rest does not fit is like any client that grows: decide looks for
	// victims, or denies it.
	if more > d.room() || (p.slot && (d.bound >= d.Slots || !d.vacated() || !x.mayRun())) {
		return
	}
	if p.slot {
		c.bind(x, p.dev)
		return
	}
	c.enlarge(x)
}

// enlarge grants a Grow.
func (c *Core) enlarge(x *client) {
	x.dev.used += int64(x.growTo - x.memory)
	x.memory = x.growTo
	c.endGrow(x)
	c.emitGrant(x)
}

func (c *Core) emitGrant(x *client) {
	e := Effect{Kind: Grant, Client: x.id, Device: x.dev.id, Slot: x.slot, Memory: x.memory, Lease: x.stats.grants}
	if x.claim != nil && x.claim.early {
		e.Coming = x.growTo
	}
	c.emit(e)
}

func (b *books) endGrow(x *client) {
	if x.growTo > 0 {
		b.drop(x.claim)
		x.growTo = 0
		b.growing--
		b.anew = true
	}
}

// drop forgets a promise. Clients that were told to let go for it still do.
func (f *fleet) drop(p *claim) {
	if p == nil {
		return
	}
	f.count(p, -1)
	p.held, p.owner.claim = false, nil
	for _, v := range p.from {
		if v.frees == p {
			v.frees = nil
		}
	}
}

func remove[T comparable](list []T, x T) []T {
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
