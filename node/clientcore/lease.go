package clientcore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/device"
	"muster/vmm"
	"muster/wire/control"
)

// Lease is what the daemon has granted, and what it was asked for.
type Lease struct {
	Held   bool
	Device int
	Memory uint64 // bytes that the client may use on the device
	// Coming is how many bytes it will get without asking, when others have left the device; 0: no
	// more than it has.
	Coming uint64 `json:",omitempty"`
	Number uint64 // of the last lease

	Wanting bool   // a Want is not answered yet
	Stale   bool   // Want was sent again because a device was lost, so the next Deny may answer the first one
	Growing bool   // a Grow is not answered yet
	Denied  string // why the last request of the current message was refused; "" if it was not

	// A revocation waits until the host functions have returned: one of them may wait for another
	// thread of the program, which waits for this client. While the lease is to grow, it is also the
	// answer to Grow.
	Wanted     bool
	WantedFor  string
	WantedKeep uint64 `json:",omitempty"` // as Release.Stay
	WantedStep uint64 `json:",omitempty"` // as Release.Step

	// Began says that a kernel was launched under the lease, and Moved how long it took to prepare
	// the client's memory and context for it. They are omitted for a client without a lease, so
	// that saved clients without one have the same bytes as before these fields existed.
	Began bool          `json:",omitempty"`
	Moved time.Duration `json:",omitempty"`
}

// begin tells the daemon that the client's turn on the device begins: everything it needs is there,
// and the caller is about to launch the first kernel.
func (l *Lease) begin(c *Core) {
	l.Began = true
	c.say(control.Began{Lease: l.Number, Took: l.Moved})
}

// granted handles a Grant, if it answers what the client has asked. One that crossed a fault does
// not. If it is newer than the last lease, the daemon counts it as the client's, so the core
// releases it; an older one the daemon has taken back already.
func (c *Core) granted(g control.Grant) {
	l := &c.Lease
	switch {
	case l.Held && g.Lease == l.Number, !l.Held && l.Wanting && g.Lease > l.Number:
		had := *l
		*l = Lease{Held: true, Device: g.Device, Memory: g.Memory, Coming: g.Coming, Number: g.Lease, Wanted: l.Wanted && l.Held, WantedFor: l.WantedFor}
		if had.Held {
			l.Began, l.Moved = had.Began, had.Moved
		} else {
			c.mapping.leased()
		}
	case g.Lease > l.Number:
		l.Number = g.Lease
		c.say(control.Released{Lease: g.Lease, Keeps: c.keeps()})
	}
}

// denied handles a Deny, if it answers what the client has asked, or what was to come. One that
// crossed the release of its lease does not: the daemon will answer the Want that followed.
func (l *Lease) denied(m control.Deny) {
	if answers := l.Wanting && m.Lease == 0 || l.Held && m.Lease == l.Number && (l.Growing || l.Coming > 0); !answers {
		return
	}
	stale := l.Stale
	l.Wanting, l.Growing, l.Stale, l.Coming = false, false, false, 0
	if stale {
		return
	}
	if l.Denied = m.Reason; m.Reason == "" {
		l.Denied = "refused"
	}
}

// Context is a context that the executor has open.
type Context struct {
	Place vmm.Place
	Cost  uint64 // bytes that it takes by itself
	// Number counts the contexts of a client: another context may accept a module that this one has
	// refused to load.
	Number uint64
	// Textures are the client's textures that this context has.
	Textures []TextureID
	// Has says which modules a further context has, by serial number. The context at home has those
	// that are Loaded.
	Has map[uint64]bool `json:",omitempty"`
}

// Release is a lease that is being returned.
type Release struct {
	Keep   bool          // the context stays open
	Stay   uint64        `json:",omitempty"` // bytes of memory that may stay there
	Step   uint64        `json:",omitempty"` // the daemon is told each time that so many bytes are free; 0: at the end
	Asked  bool          // the executor was told to leave
	Answer bool          // the daemon waits for Released, even if no lease is held
	Took   time.Duration `json:",omitempty"` // how long it took to move the memory
}

// context returns the open context of a place; nil if there is none.
func (c *Core) context(p vmm.Place) *Context {
	for _, x := range c.Contexts {
		if x.Place == p {
			return x
		}
	}
	return nil
}

// place is the place of the lease's device.
func (c *Core) place() vmm.Place { return c.config.Devices[c.Lease.Device].Place }

// here returns the open context on the lease's device; nil if there is no lease or no context.
func (c *Core) here() *Context {
	if !c.Lease.Held || len(c.Contexts) == 0 || c.Contexts[0].Place != c.place() {
		return nil
	}
	return c.Contexts[0]
}

// need is what must be on a device for a message: some ranges, or everything.
type need struct {
	all    bool
	ranges []vmm.Range
	arrays []*device.Texture // of textures that are about to be made
	spared bool              // the message can be done on the host copies, and waits for no function there
}

// bytes is how much room a need takes on a device, in whole chunks, including the variables of
// modules.
func (c *Core) bytes(n need) uint64 {
	total := c.beside(n.arrays...)
	if n.all {
		return total + c.space.Chunked()
	}
	mask, end := c.config.Chunk-1, uint64(0)
	for _, r := range n.ranges { // sorted by address, all in the arena
		from, to := max(r.Addr&^mask, end), (r.Addr+r.Size+mask)&^mask
		if to > from {
			total += to - from
			end = to
		}
	}
	return total
}

// isReady says whether everything the client has is on the device.
func (c *Core) isReady() bool {
	x := c.here()
	return x != nil && c.space.AllResident(x.Place) && c.allPlaced(x) && len(c.lacksTextures(x)) == 0
}

// ready makes everything in a need usable on a device, with the client's modules: it gets a lease
// if there is none, and brings what is missing. It returns false if the message must wait for that.
func (c *Core) ready(n need) (bool, error) {
	if c.Faulted != nil {
		return true, c.Faulted
	}
	if ok, err := c.leased(n); !ok || err != nil {
		if err == nil && c.Lease.Held && c.Lease.Coming > 0 {
			c.comeEarly(n)
		}
		return ok, err
	}
	x := c.here()
	if x == nil {
		c.open()
		return false, nil
	}
	if c.Outstanding() > 0 && !n.all && c.space.GivesWay(x.Place, n.ranges, c.Lease.Memory-c.beside(n.arrays...)) {
		// Memory that gives way waits for all work, and that for the functions: one of them may
		// wait for an answer to a message behind this one.
		if err := c.awaitReturn(); err != nil {
			return true, fmt.Errorf("other memory would have to leave the device: %w", err)
		}
		return false, nil
	}
	plan, err := c.prepare(x.Place, n)
	if err != nil {
		return true, err
	}
	if c.Head != nil { // what the message waited for is there
		c.Hosts.WaitBy, c.Hosts.AskAt = 0, 0
	}
	if len(plan) > 0 {
		c.move(plan)
		return false, nil
	}
	if c.loadNext(x) {
		return false, nil
	}
	if lacks := c.lacksTextures(x); len(lacks) > 0 { // their memory is there now
		c.making = lacks
		c.ask(Op{Kind: MakeTextures, Place: x.Place, Textures: lacks})
		return false, nil
	}
	// Some devices report the size of a module only once it is loaded, so the lease may have to
	// grow.
	return c.beside()+c.space.Mapped(x.Place) <= c.Lease.Memory, nil
}

// comeEarly brings as much of a need to the device as the client may have there so far. The rest
// comes with the next Grant: other clients are still leaving the device.
func (c *Core) comeEarly(n need) {
	beside := c.beside(n.arrays...)
	if c.Release != nil || beside > c.Lease.Memory {
		return
	}
	x := c.here()
	if x == nil {
		c.open()
		return
	}
	ranges := n.ranges
	if n.all {
		ranges = nil
	}
	if plan := c.space.Bring(x.Place, ranges, c.Lease.Memory-beside); len(plan) > 0 {
		c.count(plan)
		c.ask(Op{Kind: Move, Plan: plan, Part: true})
	}
}

func (c *Core) prepare(p vmm.Place, n need) (vmm.Plan, error) {
	room := c.Lease.Memory - c.beside(n.arrays...)
	if n.all {
		return c.space.PrepareAll(p, room)
	}
	return c.space.Prepare(p, n.ranges, room)
}

// leased makes sure that there is a lease with enough memory. It returns false while there is none.
func (c *Core) leased(n need) (bool, error) {
	bytes := c.bytes(n)
	l := &c.Lease
	switch {
	case !l.Held && l.Denied != "":
		return true, c.noDevice(bytes)
	case !l.Held && l.Wanting:
		return false, nil
	case !l.Held:
		l.Wanting = true
		if x := c.anyContext(); x != nil { // memory that stayed there needs room until it is moved
			bytes = max(bytes, c.beside()+c.space.Mapped(x.Place))
		}
		c.say(control.Want{Memory: bytes, Estimate: c.Activity.Estimate, Pinned: c.only()})
		return false, nil
	case bytes <= l.Memory:
		return true, nil
	case c.Outstanding() > 0 && (l.Denied != "" || l.Wanted):
		if n.spared {
			return true, c.noRoom(bytes)
		}
		return c.awaitFunctions(bytes)
	case l.Denied != "":
		// The client gives up the device. Otherwise two clients that want to grow would wait for
		// each other.
		l.Denied = ""
		c.Release = &Release{Keep: true}
		return false, nil
	case l.Wanted:
		l.Wanted = false
		c.beginRelease(l.WantedFor, l.WantedKeep, l.WantedStep)
		return false, nil
	case bytes <= l.Coming:
	case !l.Growing:
		l.Growing = true
		c.say(control.Grow{Memory: bytes})
	}
	return false, nil
}

// How long a message that needs more memory than there is waits for host functions of the program,
// of which none returns meanwhile; and how often it asks for the memory again.
const (
	functionPatience = 2 * time.Minute
	growAgain        = time.Second
)

// awaitFunctions is leased for a lease that cannot grow while host functions have not returned. The
// client cannot give up the device before they have, and one of them may wait for a thread of the
// program that waits for an answer behind the current message. So the message waits until they have
// returned, or there is room after all, or none of them has returned for functionPatience: then it
// fails.
func (c *Core) awaitFunctions(bytes uint64) (bool, error) {
	t, l := &c.Hosts, &c.Lease
	if err := c.awaitReturn(); err != nil {
		return true, fmt.Errorf("%s of device memory are needed: %w", sizeOf(bytes), err)
	}
	switch {
	case l.Wanted:
	case t.AskAt == 0:
		t.AskAt = c.Now + growAgain
	case c.Now >= t.AskAt:
		t.AskAt, l.Denied, l.Growing = 0, "", true
		c.say(control.Grow{Memory: bytes})
	}
	return false, nil
}

// awaitReturn notes that the current message waits for host functions to return. It returns an error
// when none has for functionPatience.
func (c *Core) awaitReturn() error {
	t := &c.Hosts
	if t.WaitBy == 0 {
		t.WaitBy = c.Now + functionPatience
	}
	if c.Now >= t.WaitBy {
		return errNoneReturns
	}
	return nil
}

// AwaitsFunctions says that the message that waits may go on when host functions return, or when
// time has passed. The executor reads on in the ring, and calls Observe now and then.
func (c *Core) AwaitsFunctions() bool {
	l := &c.Lease
	return c.Head != nil && c.Release == nil && l.Held && c.Outstanding() > 0 && !l.Growing && (c.Hosts.WaitBy > 0 || l.Denied != "" || l.Wanted)
}

// only is the device that the client must have; -1 for any. A client whose kernels access memory of
// this machine, the program's or shared memory, must not go to another node: it stays where it is
// or, if it is nowhere, goes to the first device of this node.
func (c *Core) only() int {
	if c.Modules.Pinned >= 0 || len(c.Mapped)+len(c.Shared) == 0 || !slices.ContainsFunc(c.config.Devices, func(d Device) bool { return d.Far }) {
		return c.Modules.Pinned
	}
	near := -1
	for i, d := range c.config.Devices {
		if x := c.anyContext(); !d.Far && d.Memory > 0 && (near < 0 || x != nil && x.Place == d.Place) {
			near = i
		}
	}
	return near
}

// open has a context opened on the lease's device, with the client's modules in it. Contexts
// elsewhere are left first.
func (c *Core) open() {
	if n := len(c.Contexts); n > 0 { // the one at home last
		c.leave(c.Contexts[n-1].Place, true, 0)
		return
	}
	c.opening = &Context{Place: c.place(), Cost: c.config.Devices[c.Lease.Device].ContextCost}
	c.ask(Op{Kind: Open, Place: c.place(), Modules: c.Modules.replay(), Limits: maps.Clone(c.Limits), Anew: !c.housed})
}

// ErrMoved says that a variable would have another address than the program may have seen.
var ErrMoved = errors.New("the program's variables have other addresses on this device")

// opened notes that a context is open, or why it is not.
func (c *Core) opened(o Outcome) {
	x := c.opening
	c.opening = nil
	switch {
	case x.Place != c.place():
		c.openedFurther(x, o)
	case o.Err == nil:
		c.Made++
		x.Number = c.Made
		c.Contexts = append(c.Contexts, x)
		c.Modules.restored()
		c.housed = true
	case errors.Is(o.Err, ErrMoved) && c.Modules.Pinned < 0:
		// The variables have their addresses on the device where they were placed first.
		c.Modules.Pinned = c.Modules.Home
		c.Release = &Release{}
	default:
		c.drop(fmt.Errorf("opening %s: %w", c.config.Devices[c.Lease.Device].Name, o.Err))
	}
}

// drop ends the head, which cannot be done.
func (c *Core) drop(err error) {
	if c.Head != nil {
		h := c.Head
		c.Head = nil
		c.Current = h.Message.Header
		c.refusedLoad(&h.Message, err)
		c.undo(h)
	}
	c.refuse(err)
}

// move has memory moved.
func (c *Core) move(plan vmm.Plan) {
	c.count(plan)
	c.ask(Op{Kind: Move, Plan: plan})
}

// count adds what a plan moves to the statistics.
func (c *Core) count(plan vmm.Plan) {
	c.stats.SwapIn += plan.Bytes(vmm.CopyIn)
	c.stats.SwapOut += plan.Bytes(vmm.CopyOut)
	for _, l := range plan.Links() {
		c.carried(l.From, l.To, l.Bytes)
	}
}

// carried counts bytes that go from one place to another.
func (c *Core) carried(from, to vmm.Place, bytes uint64) {
	c.stats.Links = control.AddLink(c.stats.Links, control.Link{From: from.Index(), To: to.Index(), Bytes: bytes})
}

// revoke notes that the daemon wants the device back, or what the client keeps on one it has left.
func (c *Core) revoke(m control.Revoke) {
	if c.Outstanding() > 0 {
		c.Lease.Wanted, c.Lease.WantedFor, c.Lease.WantedKeep, c.Lease.WantedStep = true, m.Reason, m.Keep, m.Step
		c.Lease.Growing = false
		return
	}
	c.beginRelease(m.Reason, m.Keep, m.Step)
}

func (c *Core) beginRelease(reason string, stay, step uint64) {
	c.Release = &Release{Keep: c.Lease.Held && (!leavesForGood(reason) || stay > 0), Answer: true, Step: step}
	if c.Release.Keep {
		c.Release.Stay = stay
	}
}

// stepRelease does the next step of a release: running work ends, the client's memory moves to the
// host, and the lease goes back. The context may stay open.
func (c *Core) stepRelease() {
	r := c.Release
	if n := len(c.Contexts); n > 1 {
		c.leave(c.Contexts[n-1].Place, true, 0)
		return
	}
	if !r.Asked && len(c.Contexts) > 0 {
		if c.leavePart(r) {
			return
		}
		r.Asked = true
		c.leave(c.Contexts[0].Place, !r.Keep, r.Stay)
		return
	}
	c.Release = nil
	c.giveUpAll()
	switch {
	case c.Lease.Held:
		c.letGo(r.Took)
	case r.Answer:
		c.say(control.Released{Lease: c.Lease.Number})
	}
}

// largeStep is a multiple of what devices map and unmap at once: cutting such a piece in two is slow.
const largeStep = 32 << 20

// leavePart has the next part of the client's memory moved off its device, if more than one step is
// left, so that another client can have the room meanwhile.
func (c *Core) leavePart(r *Release) bool {
	x := c.here()
	if r.Step == 0 || x == nil {
		return false
	}
	unit := c.config.Chunk
	if r.Step >= largeStep {
		unit = max(unit, largeStep)
	}
	step, stays := (r.Step+unit-1)/unit*unit, uint64(0)
	if r.Keep {
		stays = r.Stay - min(r.Stay, c.beside())
	}
	if c.space.Mapped(x.Place) <= stays+step {
		return false
	}
	plan := c.space.Evict(x.Place, step)
	c.count(plan)
	o := Op{Kind: Leave, Place: x.Place, Plan: plan, Part: true}
	c.leaving = &o
	c.ask(o)
	return true
}

// freed tells the daemon what the client still has on a device that it is leaving. It takes no more
// there under this lease.
func (c *Core) freed(p vmm.Place) {
	if left := c.beside() + c.space.Mapped(p); left < c.Lease.Memory {
		c.Lease.Memory = left
		c.say(control.Freed{Lease: c.Lease.Number, Left: left})
	}
}

// leave has everything moved off a device, except up to stay bytes beside the context. If shut, the
// context is closed.
func (c *Core) leave(p vmm.Place, shut bool, stay uint64) {
	var plan vmm.Plan
	stay -= min(stay, c.beside())
	if mapped := c.space.Mapped(p); shut || stay == 0 {
		plan = c.space.Evict(p, 0)
	} else if mapped > stay {
		plan = c.space.Evict(p, mapped-stay)
	}
	if len(plan) > 0 {
		c.stats.Swaps++
		c.count(plan)
	}
	o := Op{Kind: Leave, Place: p, Plan: plan, Shut: shut}
	o.Events, _ = c.pendingEvents(&p)
	if shut && !c.isFurther(p) {
		o.Modules = c.Modules.live()
	}
	c.leaving = &o
	c.ask(o)
}

// left notes that the client has left a device.
func (c *Core) left(o Outcome) {
	was := c.leaving
	c.leaving = nil
	if c.Release != nil && !c.isFurther(was.Place) {
		c.Release.Took += o.Took
	}
	if o.Err != nil {
		c.ended = fmt.Errorf("moving memory failed: %w", o.Err)
		return
	}
	for i, id := range was.Events {
		if e := c.Events[id]; e != nil && i < len(o.Times) {
			e.Pending, e.At = false, o.Times[i]
		}
	}
	if was.Part {
		c.freed(was.Place)
	}
	if !was.Shut {
		return
	}
	if c.isFurther(was.Place) {
		c.forgetFurther(was.Place)
		if f := c.further(was.Place.Index()); f != nil {
			c.giveUp(f)
		}
		return
	}
	c.Modules.save(o.Saved)
	c.forget(was.Place)
}

// forgetContext drops what the core knows about a context that no longer exists.
func (c *Core) forgetContext(p vmm.Place) {
	if c.isFurther(p) {
		c.forgetFurther(p)
		return
	}
	c.forget(p)
}

// forget drops what the core knows about the context at home, which no longer exists.
func (c *Core) forget(p vmm.Place) {
	c.Contexts = slices.DeleteFunc(c.Contexts, func(x *Context) bool { return x.Place == p })
	c.Modules.forget()
	c.Streams.forget()
	for _, e := range c.Events {
		e.Live, e.Pending = false, false
	}
}

// closeContexts closes all contexts, with everything in them.
func (c *Core) closeContexts() {
	for len(c.Contexts) > 0 {
		p := c.Contexts[len(c.Contexts)-1].Place
		c.emit(Op{Kind: Close, Place: p})
		c.forgetContext(p)
	}
}

// letGo returns the lease. None of the client's memory is on the device but what may stay.
func (c *Core) letGo(took time.Duration) {
	c.Activity.stop(c)
	c.Lease = Lease{Number: c.Lease.Number}
	c.say(control.Released{Lease: c.Lease.Number, Keeps: c.keeps(), Took: took})
	c.say(control.Report{Stats: c.Stats()})
}

// keeps is what contexts that stay open without a lease take, including memory that stayed there.
func (c *Core) keeps() (bytes uint64) {
	for _, x := range c.Contexts {
		bytes += x.Cost + c.beside() + c.space.Mapped(x.Place)
	}
	return bytes
}

// kept is how much room on the host a client keeps when it frees memory, so that a client which
// allocates and frees in turn need not ask the daemon each time. Other clients cannot use it
// meanwhile.
const kept = 16 << 20

// Commits is the state of the request for room in the swap area.
type Commits struct {
	Bytes   uint64 // requested; 0 if no request is open
	Refused string // why the last request of the current message was refused; "" if it was not
	TooMuch uint64 // the number of bytes that was refused
}

// free is how many bytes a client may keep on the host besides its memory without being charged: a
// program that allocates all it may have must still be able to load its kernels. The number of
// clients bounds the total.
const free = 16 << 20

// onHost is how many bytes of the host are charged to the client's user: all of its memory, which
// must have room in the swap area; images, which are kept for the next context; contents of
// variables; queued messages with their data.
func (c *Core) onHost() uint64 { return c.onHostWith(0) }

// onHostWith is onHost with more bytes besides the memory.
func (c *Core) onHostWith(more int) uint64 {
	beside := c.Modules.Kept + c.Modules.Contents + c.Backlog.Bytes + more
	return c.space.Chunked() + c.sharedBytes() + uint64(max(0, beside-free))
}

// commit makes sure that the client has this many bytes of room on the host. It returns false while
// the daemon is asked.
func (c *Core) commit(bytes uint64) (bool, error) {
	if bytes <= c.Committed {
		return true, nil
	}
	a := &c.Asked
	switch {
	case a.Refused != "" && a.TooMuch <= bytes:
		why := a.Refused
		*a = Commits{}
		return true, &Failure{Result: outOfMemory, Text: why}
	case a.Bytes == 0:
		*a = Commits{Bytes: bytes}
		c.say(control.Commit{Bytes: bytes})
	}
	return false, nil
}

// commitLess returns room that the client is far from using. The daemon never refuses that. While a
// request for more is open nothing is said: the daemon's answer must match the request.
func (c *Core) commitLess(bytes uint64) {
	if c.Asked.Bytes == 0 && bytes < c.Committed && c.Committed-bytes > kept {
		c.Committed = bytes
		c.say(control.Commit{Bytes: bytes})
	}
}

// answeredCommit handles the daemon's answer, if it is to the open request.
func (c *Core) answeredCommit(m control.Committed) {
	a := &c.Asked
	if a.Bytes == 0 || m.Bytes != a.Bytes {
		return
	}
	if m.Granted {
		c.Committed = m.Bytes
	}
	if m.Granted || c.Head == nil {
		*a = Commits{}
	}
	if c.Head == nil { // the message that asked was ended by a fault
		c.commitLess(c.onHost())
	}
	if m.Granted || c.Head == nil {
		return
	}
	*a = Commits{Refused: m.Reason, TooMuch: m.Bytes}
	if a.Refused == "" {
		a.Refused = "the node has no swap room"
	}
}

// lostFault is the fault of a client whose device is lost.
func lostFault(name, reason string) error {
	return &device.Fault{Kind: device.DeviceLost, Detail: fmt.Sprintf("%s: %s", name, reason)}
}
