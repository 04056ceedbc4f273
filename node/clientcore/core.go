package clientcore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// Config describes a client. Nothing in it changes but the devices, to which AddDevice adds.
type Config struct {
	Arena   vmm.Range // the addresses of its device memory
	Chunk   uint64    // the unit of memory that moves
	Limit   uint64    // bytes that it may allocate; 0: no limit
	LimitBy string    // why Limit is what it is and how to change it, for the program's user
	Devices []Device  // that it may be granted, by the daemon's numbers
	// Defer keeps copies to the device on the host until a kernel needs them, even after the first
	// launch.
	Defer bool
	// Reserves says that host copies need room reserved before they are written.
	Reserves bool
	// Guest says that the client is a device of another node (guest.go).
	Guest bool `json:",omitempty"`
	// Mapping names the mapper (package mapping) that decides on which device each launch runs; ""
	// and "off": none, and all launches run on the device of the lease.
	Mapping string `json:",omitempty"`
	// Explain makes the mapper account for each decision (Decided).
	Explain bool `json:",omitempty"`
	// Cores are those of the machine, which some mappers ask for; 0 stands for 1.
	Cores int `json:",omitempty"`
}

// Device is what the core must know about a device.
type Device struct {
	Place       vmm.Place
	Name        string
	Memory      uint64
	ContextCost uint64 // bytes that a context takes by itself
	// Puts says that the device can load a module with its variables at given addresses, so that it
	// does not matter what was loaded and unloaded before.
	Puts bool
	// Speed is relative to other devices; 0 stands for 1.
	Speed float64 `json:",omitempty"`
	// Graphs says that the device runs graphs by itself (graphs.go).
	Graphs bool `json:",omitempty"`
	// Guards says that launches there can be guarded (observed.go).
	Guards bool `json:",omitempty"`
	// Far says that the device belongs to another node: its kernels cannot access memory of this
	// machine.
	Far bool `json:",omitempty"`
	// Link names the connection to the device, which other devices of that name share; "" for
	// devices of this machine.
	Link string `json:",omitempty"`
	// Peers is a word that devices share between which memory is copied without the host; "" for
	// others.
	Peers string `json:",omitempty"`
}

// Core is one client. Only its methods change it, and only one goroutine may use it at a time.
type Core struct {
	config Config
	puts   bool // all devices have Puts

	State
	space *vmm.Space
	stats control.Stats

	ops     []Op
	asks    []uint32 // of the last Query, reused
	asked   Kind     // the kind of the operation that asks, if asking
	asking  bool
	handled Message // the message being handled, unless it waits (Head)
	calling uint64  // the cookie of the host function that the operations are about; 0: none
	ended   error   // why the client cannot go on

	graphBytes  int // size of all graph definitions
	reachedStep int // the step at which the current graph launch waits

	replaced error // why the last Replace was refused

	due   map[uint64][]device.Global // where modules that a replay places again must be
	ahead int                        // how many more modules will be due

	housed bool // a context has been open in this process

	furtherAt []int   // where in Further each device is, counted from 1; 0: it is not
	placed    int     // how many of Further are in furtherAt
	mapping   *mapped // nil: all launches run on the device of the lease
	keepsHome bool    // all launches run there for now (KeepHome)
}

// Message is a message of the client.
type Message struct {
	Header wire.Header
	Body   []byte
	Data   []byte // the bytes of the data arena that it names, if it brings data
	Pinned bool   // Data is the program's own memory, which earlier work may still read or write
	Owned  bool   // the core may keep Body
}

// ErrProtocol says that the client sent what the library never sends. It ends the client.
var ErrProtocol = errors.New("not what a program may send")

// New makes an empty client.
func New(c Config) (*Core, error) {
	core := &Core{config: c}
	core.know(c.Devices)
	var err error
	if core.mapping, err = newMapped(c.Mapping); err != nil {
		return nil, err
	}
	return core, core.begin()
}

// reserved is where the addresses begin that programs reserve and back with memory piece by piece:
// the upper three quarters of the arena. The program's library has the same rule (memory_reserved).
func reserved(arena vmm.Range) uint64 { return arena.Addr + arena.Size/4 }

// begin gives the client an empty world.
func (c *Core) begin() error {
	places := make([]vmm.Place, len(c.config.Devices))
	for i, d := range c.config.Devices {
		places[i] = d.Place
	}
	joined := reserved(c.config.Arena)
	if c.config.Guest {
		joined = c.config.Arena.Addr
	}
	space, err := vmm.New(vmm.Config{Arena: c.config.Arena, Chunk: c.config.Chunk, Devices: places, Limit: c.config.Limit, Joined: joined})
	if err != nil {
		return err
	}
	c.space = space
	c.linkPeers()
	c.Modules, c.Streams, c.Events = newModules(), newStreams(), map[uint32]*Event{}
	c.Contexts, c.Textures, c.Graphs, c.due = nil, nil, nil, nil
	c.Failure, c.Sticky, c.Faulted, c.Told = success, success, nil, nil
	c.graphBytes, c.Heap = 0, 0
	c.Together = false
	return nil
}

// emit adds an operation.
func (c *Core) emit(o Op) { c.ops = append(c.ops, o) }

// next adds an operation to be filled in by the caller. It is faster than emit, since an Op is
// large.
func (c *Core) next(k Kind) *Op {
	if len(c.ops) < cap(c.ops) {
		c.ops = c.ops[:len(c.ops)+1]
		c.ops[len(c.ops)-1] = Op{}
	} else {
		c.ops = append(c.ops, Op{})
	}
	o := &c.ops[len(c.ops)-1]
	o.Kind = k
	return o
}

// ask adds an operation whose outcome decides what comes next. It must be the last of the list.
func (c *Core) ask(o Op) {
	c.asked, c.asking = o.Kind, true
	c.ops = append(c.ops, o)
}

// say sends a message to the daemon.
func (c *Core) say(m control.ToDaemon) { c.emit(Op{Kind: Say, Message: m}) }

func (c *Core) reply(slot int, r Result, payload []byte) {
	if slot >= 0 {
		o := c.next(Reply)
		o.Slot, o.Result, o.Payload = slot, r, payload
	}
}

// Waits says whether a message waits for the daemon. Then only a message of the daemon helps.
func (c *Core) Waits() bool { return c.Head != nil }

// Queued says whether messages are queued.
func (c *Core) Queued() bool { return len(c.Backlog.Messages) > 0 }

// Outstanding is how many host functions of the program have not returned.
func (c *Core) Outstanding() int { return len(c.Hosts.Running) }

// Result is the result of every call since a fault; 0 if there was none.
func (c *Core) Result() Result { return c.Sticky }

// Stats returns what the client has, and what was done for it.
func (c *Core) Stats() control.Stats {
	u := c.space.Usage()
	stats := c.stats
	stats.Links = slices.Clone(c.stats.Links)
	stats.Allocated, stats.Swapped = u.Allocated, u.HostOnly
	for _, n := range u.Resident {
		stats.Resident += n
	}
	return stats
}

// Message handles a message of the client. The core keeps nothing of it but what is Owned, or
// copied.
func (c *Core) Message(now Time, m Message) ([]Op, error) {
	c.start(now)
	c.stats.Messages++
	c.Activity.message(c)
	return c.handle(m)
}

// Timed says whether the time matters for a message of this kind. If not, any time that is not in
// the future will do.
func (c *Core) Timed(op wire.Op) bool {
	return c.Activity.Busy || c.Outstanding() > 0 || op == wire.OpLaunch || op == wire.OpEventRecord || op == wire.OpGraphLaunch
}

// Next handles the first message of the queue.
func (c *Core) Next(now Time) ([]Op, error) {
	c.start(now)
	m, ok := c.Backlog.next()
	if !ok {
		return nil, nil
	}
	c.stats.Messages++
	c.Activity.message(c)
	return c.handle(m)
}

// Later queues a message, which the caller has copied.
func (c *Core) Later(m Message) error { return c.Backlog.add(m) }

// Urgent says whether messages of this kind are handled at once, whatever waits: they are about
// host functions.
func Urgent(op wire.Op) bool {
	return op == wire.OpHostDone || op == wire.OpHostNext || op == wire.OpHostStop
}

// UrgentMessage handles an urgent message while another operation is being performed. Its
// operations are performed at once; none of them asks.
func (c *Core) UrgentMessage(m Message) ([]Op, error) {
	return c.aside(func() error {
		done, err := c.dispatch(&m)
		if err == nil && !done {
			err = fmt.Errorf("%v waits: %w", m.Header.Op, ErrProtocol)
		}
		return err
	})
}

// aside collects the operations of f apart from those that are being performed.
func (c *Core) aside(f func() error) ([]Op, error) {
	ops := c.ops
	c.ops = nil
	err := f()
	ops, c.ops = c.ops, ops
	return ops, err
}

// Reached says that a stream has reached a host function. It may be called at any time, like
// UrgentMessage.
func (c *Core) Reached(cookie uint64) []Op {
	ops, _ := c.aside(func() error { c.reached(cookie); return nil })
	return ops
}

// Met says that a stream's wait for a word is over. While an operation is being performed the
// executor calls Reached instead.
func (c *Core) Met(now Time, cookie uint64) ([]Op, error) {
	c.start(now)
	c.reached(cookie)
	return c.advance()
}

// Control handles a message of the daemon, except Watch and Lost.
func (c *Core) Control(now Time, m control.ToWorker) ([]Op, error) {
	c.start(now)
	switch m := m.(type) {
	case control.Grant:
		if m.Device < 0 || m.Device >= len(c.config.Devices) {
			return nil, fmt.Errorf("the daemon grants device %d of %d", m.Device, len(c.config.Devices))
		}
		c.granted(m)
	case control.Deny:
		c.Lease.denied(m)
	case control.Revoke:
		c.revoke(m)
	case control.Committed:
		c.answeredCommit(m)
	case control.GrantFurther:
		c.grantedFurther(m)
	case control.DenyFurther:
		c.deniedFurther(m)
	case control.RevokeFurther:
		c.revokeFurther(m)
	case control.Beside:
		c.mapping.beside(c, m)
	default:
		return nil, fmt.Errorf("the daemon says %q, which is not understood", m.Kind())
	}
	return c.advance()
}

// Lost handles the loss of a device. Ended says that no work was in flight there: what is in flight
// may be copies to the program's memory, whose bytes would never come.
func (c *Core) Lost(now Time, m control.Lost, ended bool) ([]Op, error) {
	c.start(now)
	c.lost(m.Device, m.Reason, ended || c.Activity.Quiet)
	return c.advance()
}

// Found says that the executor has found a fault while it waited for the device. World is the one
// in which the wait began.
func (c *Core) Found(now Time, world uint64, err error) ([]Op, error) {
	c.start(now)
	if world == c.World {
		c.fault(err)
	}
	return c.advance()
}

// Outcome handles the end of an operation that asked, or that failed.
func (c *Core) Outcome(now Time, failed *Op, o Outcome) ([]Op, error) {
	asked, asking := c.asked, c.asking
	c.start(now)
	c.asking = false
	switch {
	case asking && (failed == nil || failed.Kind == asked):
		c.settleAsk(asked, o)
	case o.Err != nil:
		c.takeBack(failed)
		if failed != nil && failed.Kind == Reserve {
			o.Err = allocation(failed.Range.Size, o.Err)
		}
		c.refuse(o.Err)
		if asking && (asked == Move || asked == Leave || asked == Backup || asked == Share) && !isFault(o.Err) {
			// The directory assumes a plan that was not performed. After a fault that does not
			// matter: nothing is left of what the plan would have moved.
			c.ended = fmt.Errorf("moving memory was not begun: %w", o.Err)
		}
	}
	return c.advance()
}

// RefusedLate says that an operation of an earlier message without an answer was refused after it
// had seemed to succeed. The program learns of it as if it had been refused at once.
func (c *Core) RefusedLate(now Time, h wire.Header, err error) ([]Op, error) {
	c.start(now)
	current := c.Current
	c.Current = h
	c.refuse(err)
	c.Current = current
	return c.advance()
}

// takeBack undoes what was noted for an operation that has failed.
func (c *Core) takeBack(failed *Op) {
	if failed == nil {
		return
	}
	if c.calling != 0 { // whichever operation failed, the function will not be called
		c.notOut(c.calling)
	}
	switch failed.Kind {
	case MapHost:
		c.unmapped(failed.Range.Addr)
	case Reserve: // nothing has used it, so there is no plan to perform
		if _, err := c.space.Free(failed.Range.Addr); err != nil {
			c.ended = err
		}
		c.commitLess(c.onHost())
	}
}

func (c *Core) start(now Time) {
	c.Now = max(c.Now, now)
	c.ops = c.ops[:0]
}

// settleAsk notes the outcome of an operation that asked.
func (c *Core) settleAsk(asked Kind, o Outcome) {
	if asked == Finish {
		c.Head.Finished = true
		return
	}
	if isFault(o.Err) {
		c.opening, c.making = nil, nil
		c.fault(o.Err)
		return
	}
	if !c.Lease.Began && (asked == Open || asked == Move) {
		c.Lease.Moved += o.Took
	}
	switch asked {
	case GoOn: // the steps of a graph continue
	case Inspect, MakeShared, OpenShared:
		c.Head.found = &o
	case Open:
		c.opened(o)
	case Load:
		c.loaded(o)
	case Describe:
		c.Head.described = &o
	case Link:
		c.Head.linked = &o
	case MakeTextures:
		c.madeTextures(o)
	case Move, Share:
		c.mapping.moved(c, o.Legs)
		if o.Err != nil { // the directory cannot undo a step that failed
			c.ended = fmt.Errorf("moving memory failed: %w", o.Err)
		}
	case Leave:
		c.left(o)
	case Backup:
		c.backedUp(o)
	case MakeRoom:
		c.Head.replacement.room, c.Head.replacement.err = o.Err == nil, o.Err
	case Refill:
		c.refilled(o.Err)
	}
}

// advance continues with whatever can continue, until an operation asks or everything waits. A
// release of the lease comes before the waiting message, which may need the lease again.
func (c *Core) advance() ([]Op, error) {
	for c.ended == nil && !c.asking {
		switch {
		case c.Release != nil:
			c.stepRelease()
		case c.Lease.Wanted && c.Outstanding() == 0:
			c.Lease.Wanted = false
			c.beginRelease(c.Lease.WantedFor, c.Lease.WantedKeep, c.Lease.WantedStep)
		case len(c.Further) > 0 && c.leavesFurther():
		case c.Head != nil && !c.retry():
			return c.ops, c.ended
		case c.Head != nil:
		default:
			return c.ops, nil
		}
	}
	return c.ops, c.ended
}

// handle handles a message, or keeps it as the head until it can be done.
func (c *Core) handle(m Message) ([]Op, error) {
	c.Current = m.Header
	c.Lease.Denied, c.Asked.Refused = "", "" // they answered an earlier message
	if c.Sticky != success && !m.Header.Op.AfterFault() {
		c.reply(m.Header.Slot, c.Sticky, nil)
		return c.ops, nil
	}
	c.calling, c.reachedStep = 0, 0
	if c.mapping != nil {
		c.mapping.choice = chosen{}
	}
	c.handled = m // so that taking its address does not allocate
	done, err := c.try(&c.handled)
	if err != nil {
		return c.ops, err
	}
	if !done {
		c.Head = &Head{Message: m, Step: c.reachedStep}
		c.own(&c.Head.Message)
		if c.Release == nil && !c.Lease.Wanted {
			return c.ops, nil
		}
	}
	return c.advance()
}

// own copies what belongs to the caller of Message. Data in staging memory stay there: the executor
// keeps them as long as the message waits.
func (c *Core) own(m *Message) {
	if !m.Owned {
		m.Body = bytes.Clone(m.Body)
	}
}

// retry handles the head again from its beginning. It returns false if the head still waits.
func (c *Core) retry() bool {
	h := c.Head
	if h.replacement != nil {
		return c.replace(h.replacement)
	}
	c.Current = h.Message.Header
	if c.Sticky != success && !h.Message.Header.Op.AfterFault() {
		c.Head = nil
		c.reply(h.Message.Header.Slot, c.Sticky, nil)
		return true
	}
	done, err := c.try(&h.Message)
	if err != nil {
		c.ended = err
		return true
	}
	if done {
		c.Head = nil
		c.Activity.Quiet = false // what the message has begun is in flight
	}
	return done || c.Release != nil
}

// try handles a message. It returns false if the message must wait, and an error if the client must
// end.
func (c *Core) try(m *Message) (done bool, err error) {
	if !c.placedAgain() {
		return false, nil
	}
	done, err = c.dispatch(m)
	if err == nil {
		return done, nil
	}
	if errors.Is(err, ErrProtocol) || errors.Is(err, errDecode) {
		return true, fmt.Errorf("%v: %w", m.Header.Op, err)
	}
	if h := c.Head; h != nil {
		c.Head = nil
		c.undo(h)
	}
	c.refusedLoad(m, err)
	c.refuse(err)
	return true, nil
}

// refuse tells the program that the current message could not be done: at once if the message has
// an answer, otherwise at the program's next synchronising call.
func (c *Core) refuse(err error) {
	slot := c.Current.Slot
	if isFault(err) {
		c.fault(err)
		c.reply(slot, c.Sticky, nil)
		return
	}
	c.explain(err)
	c.refuseWith(resultOf(err))
}

// refuseWith is refuse with a result, and without an explanation.
func (c *Core) refuseWith(r Result) {
	if r != notReady {
		c.emit(Op{Kind: Refused, Result: r})
	}
	if slot := c.Current.Slot; slot >= 0 {
		c.reply(slot, r, nil)
		return
	}
	if c.Failure == success {
		c.Failure = r
	}
}

// answer answers a call that has succeeded, with the failure of an earlier message without an
// answer if there was one.
func (c *Core) answer(slot int) {
	if slot >= 0 {
		c.reply(slot, c.takeFailure(), nil)
	}
}

func (c *Core) takeFailure() Result {
	r := c.Failure
	c.Failure = success
	return r
}

// fault notes that the client's work has failed for good: everything on its devices is gone, and
// every later call fails.
func (c *Core) fault(err error) {
	if c.Faulted != nil {
		return
	}
	c.Faulted = failureOf(err)
	c.Sticky = c.Faulted.Result
	c.emit(Op{Kind: SetStatus, Result: c.Sticky, Text: c.Faulted.Text})
	c.dropHosts() // first: closing waits for streams that wait for the program
	c.closeContexts()
	c.allLost()
	c.Activity.stop(c)
	c.giveUpAll()
	lease := c.Lease.Number
	c.Lease = Lease{Number: lease}
	c.Release = nil
	c.say(control.Failed{Lease: lease, Reason: err.Error()})
}

// allLost notes that no device has any of the client's memory.
func (c *Core) allLost() {
	for _, d := range c.config.Devices {
		c.space.Lost(d.Place)
	}
}

// lost notes that a device is lost. The client goes on if all work there had ended and nothing there
// was the only copy.
func (c *Core) lost(index int, reason string, ended bool) {
	if index < 0 || index >= len(c.config.Devices) {
		return
	}
	d := c.config.Devices[index]
	c.gone(index)
	if c.Lease.Held && c.Lease.Device == index { // this also answers a revocation of it
		c.Activity.stop(c)
		c.Lease = Lease{Number: c.Lease.Number}
	}
	gone := c.space.Lost(d.Place)
	open, further := c.context(d.Place), c.isFurther(d.Place)
	if f := c.further(index); f != nil {
		c.giveUp(f)
	}
	if open == nil {
		return
	}
	variables := !further && c.Modules.hasVariables()
	c.emit(Op{Kind: Abandon, Place: d.Place})
	c.forgetContext(d.Place)
	switch {
	case len(gone) > 0 || variables || c.Outstanding() > 0 || !ended:
		c.fault(lostFault(d.Name, reason))
	case !further && len(c.Contexts) > 0: // further contexts depend on the one at home
		c.Release = &Release{}
	}
}

// reset replaces the client by an empty world.
func (c *Core) reset(m *Message) (bool, error) {
	if x := c.anyContext(); x != nil && (c.Head == nil || !c.Head.Finished) {
		// Running work may end first, with the host functions it calls.
		c.ask(Op{Kind: Finish, Place: x.Place})
		return false, nil
	}
	c.dropHosts()
	c.closeContexts()
	c.allLost()
	c.giveUpAll()
	if c.Lease.Held {
		c.letGo(0)
	}
	if c.config.Reserves {
		c.emit(Op{Kind: GiveBack, All: true})
	}
	var plan vmm.Plan
	for _, a := range c.space.Allocations() {
		freed, err := c.space.Free(a.Addr)
		if err != nil {
			return true, err
		}
		plan = append(plan, freed...)
	}
	if err := c.begin(); err != nil {
		return true, err
	}
	c.Limits = nil
	for _, m := range c.Mapped {
		c.emit(Op{Kind: UnmapHost, Range: m.extent()})
	}
	c.Mapped = nil
	c.closeAllShared()
	c.World++
	c.emit(Op{Kind: SetStatus})
	c.commitLess(0)
	c.reply(m.Header.Slot, success, nil)
	if len(plan) > 0 {
		c.ask(Op{Kind: Move, Plan: plan})
	}
	return true, nil
}
