package clientcore

import (
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
	// Guest says that the client is a device of another node.
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
	// Guards says that launches there can be guarded (Guarded).
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

// Core is one client. Only its methods change it, and only one goroutine may use it at a time. It consists of
// parts, each of which has its own state, which it saves, and handles the messages that are about it. What
// concerns several of them the core itself decides: what goes on first, and what a fault, a reset or the loss of
// a device leaves of the client.
type Core struct {
	handlers handlers
	savers   savers
	handled  Message // the message being handled, unless it waits (Head)

	step        // the event that is handled, and the operations that it causes
	verdicts    // what the program is told of failures
	queue       // messages that wait (step.go)
	standing    // the lease and the open contexts
	departure   // leaves devices
	arrival     // comes to devices, with what messages need there
	room        // in the node's swap area (allocations.go)
	activity    // what the daemon is told of the client's work
	loans       // of further devices
	*mapped     // which of them each launch gets; nil: all run on the device of the lease
	memory      // the directory
	allocations // of memory
	copies      // of memory, and fills
	shared      // memory shared with other clients
	modules     // and the kernels looked up in them
	launches    // of kernels
	textures    // and surfaces
	streams     // and events
	hosts       // functions of the program
	waits       // of streams, for host functions and words in memory (hosts.go)
	graphs      // and their launches
}

// setup is the client's configuration, and what follows from it.
type setup struct {
	Config
	puts bool // all devices have Puts
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
func New(config Config) (*Core, error) {
	c := &Core{}
	c.config.Config = config
	c.config.know(config.Devices)
	var err error
	if c.mapped, err = newMapped(c); err != nil {
		return nil, err
	}
	c.link()
	space, err := c.config.space()
	if err != nil {
		return nil, err
	}
	var s State
	s.begin(space)
	c.savers.load(&s)
	return c, nil
}

// link tells each part which others it uses.
func (c *Core) link() {
	c.verdicts = verdicts{step: &c.step}
	c.queue = queue{step: &c.step}
	c.standing = standing{step: &c.step}
	c.departure = departure{standing: &c.standing, verdicts: &c.verdicts, queue: &c.queue, streams: &c.streams, hosts: &c.hosts, memory: &c.memory, room: &c.room, modules: &c.modules, textures: &c.textures, loans: &c.loans, mapped: c.mapped, activity: &c.activity}
	c.arrival = arrival{standing: &c.standing, verdicts: &c.verdicts, queue: &c.queue, hosts: &c.hosts, memory: &c.memory, shared: &c.shared, modules: &c.modules, textures: &c.textures, loans: &c.loans, mapped: c.mapped, activity: &c.activity, departure: &c.departure}
	c.room = room{step: &c.step, queue: &c.queue, memory: &c.memory, shared: &c.shared, modules: &c.modules}
	c.activity = activity{standing: &c.standing, memory: &c.memory, loans: &c.loans, mapped: c.mapped}
	c.loans = loans{standing: &c.standing, mapped: c.mapped}
	c.memory = memory{standing: &c.standing}
	c.allocations = allocations{standing: &c.standing, verdicts: &c.verdicts, memory: &c.memory, shared: &c.shared, room: &c.room}
	c.copies = copies{standing: &c.standing, verdicts: &c.verdicts, streams: &c.streams, hosts: &c.hosts, memory: &c.memory, shared: &c.shared, modules: &c.modules, arrival: &c.arrival}
	c.shared = shared{standing: &c.standing, queue: &c.queue, memory: &c.memory, room: &c.room, arrival: &c.arrival}
	c.modules = modules{standing: &c.standing, queue: &c.queue, mapped: c.mapped, room: &c.room, arrival: &c.arrival, leaving: c.graphs.dropRuns}
	c.launches = launches{standing: &c.standing, streams: &c.streams, hosts: &c.hosts, memory: &c.memory, shared: &c.shared, modules: &c.modules, textures: &c.textures, loans: &c.loans, mapped: c.mapped, activity: &c.activity, arrival: &c.arrival, allocations: &c.allocations, watched: map[Kernel]map[uint64]bool{}}
	c.textures = textures{standing: &c.standing, queue: &c.queue, memory: &c.memory, shared: &c.shared, modules: &c.modules, arrival: &c.arrival}
	c.streams = streams{standing: &c.standing, verdicts: &c.verdicts}
	c.hosts = hosts{standing: &c.standing, streams: &c.streams}
	c.waits = waits{standing: &c.standing, streams: &c.streams, hosts: &c.hosts, memory: &c.memory, arrival: &c.arrival, copies: &c.copies}
	c.graphs = graphs{standing: &c.standing, queue: &c.queue, streams: &c.streams, hosts: &c.hosts, memory: &c.memory, shared: &c.shared, modules: &c.modules, textures: &c.textures, mapped: c.mapped, activity: &c.activity, arrival: &c.arrival, copies: &c.copies, launches: &c.launches}
	c.savers = savers{&c.step, &c.verdicts, &c.queue, &c.standing, &c.departure, &c.arrival, &c.room, &c.activity, &c.loans, &c.memory, &c.modules, &c.textures, &c.streams, &c.hosts, &c.shared, &c.graphs}
	for _, part := range []interface{ register(h *handlers) }{&c.step, &c.activity, &c.memory, &c.allocations, &c.copies, &c.shared, &c.modules, &c.launches, &c.textures, &c.streams, &c.hosts, &c.waits, &c.graphs} {
		part.register(&c.handlers)
	}
	c.handlers[wire.OpReset] = decoding(func(m *Message, _ *wire.Reset) (bool, error) { return c.reset(m) })
}

// space is an empty directory.
func (s *setup) space() (*vmm.Space, error) {
	places := make([]vmm.Place, len(s.Devices))
	for i, d := range s.Devices {
		places[i] = d.Place
	}
	// Programs reserve addresses in the upper three quarters of the arena, and back them with memory piece by
	// piece. Their library has the same rule (reserved_from in shim/lib/core/memory.c).
	joined := s.Arena.Addr + s.Arena.Size/4
	if s.Guest {
		joined = s.Arena.Addr
	}
	return vmm.New(vmm.Config{Arena: s.Arena, Chunk: s.Chunk, Devices: places, Limit: s.Limit, Joined: joined})
}

// Message handles a message of the client. The core keeps nothing of it but what is Owned, or
// copied.
func (c *Core) Message(now Time, m Message) ([]Op, error) {
	c.start(now)
	return c.handle(m)
}

// Timed says whether the time matters for a message of this kind. If not, any time that is not in
// the future will do.
func (c *Core) Timed(op wire.Op) bool {
	return c.activity.Busy || c.hosts.Outstanding() > 0 || op == wire.OpLaunch || op == wire.OpEventRecord || op == wire.OpGraphLaunch
}

// Next handles the first message of the queue.
func (c *Core) Next(now Time) ([]Op, error) {
	c.start(now)
	m, ok := c.queue.Backlog.next()
	if !ok {
		return nil, nil
	}
	return c.handle(m)
}

// Urgent says whether messages of this kind are handled at once, whatever waits: they are about
// host functions.
func Urgent(op wire.Op) bool {
	return op == wire.OpHostDone || op == wire.OpHostNext || op == wire.OpHostStop
}

// UrgentMessage handles an urgent message while another operation is being performed. Its
// operations are performed at once; none of them asks.
func (c *Core) UrgentMessage(m Message) ([]Op, error) {
	done, err := false, error(nil)
	ops := c.aside(func() { done, err = c.handlers.of(&m)(&m) })
	if err == nil && !done {
		err = fmt.Errorf("%v waits: %w", m.Header.Op, ErrProtocol)
	}
	return ops, err
}

// Met says that a stream's wait for a word is over. While an operation is being performed the
// executor calls Reached instead.
func (c *Core) Met(now Time, cookie uint64) ([]Op, error) {
	c.start(now)
	c.hosts.reached(cookie)
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
		c.arrival.granted(m)
	case control.Deny:
		c.standing.Lease.denied(m)
	case control.Revoke:
		c.departure.revoke(m)
	case control.Committed:
		c.room.answeredCommit(m)
	case control.GrantFurther:
		c.loans.grantedFurther(m)
	case control.DenyFurther:
		c.loans.deniedFurther(m)
	case control.RevokeFurther:
		c.loans.revokeFurther(m)
	case control.Beside:
		c.mapped.beside(m)
	default:
		return nil, fmt.Errorf("the daemon says %q, which is not understood", m.Kind())
	}
	return c.advance()
}

// Lost handles the loss of a device. Ended says that no work was in flight there: what is in flight
// may be copies to the program's memory, whose bytes would never come. The client goes on if all work there had
// ended and nothing there was the only copy.
func (c *Core) Lost(now Time, m control.Lost, ended bool) ([]Op, error) {
	c.start(now)
	index, ended := m.Device, ended || c.activity.Quiet
	if index < 0 || index >= len(c.config.Devices) {
		return c.advance()
	}
	d := c.config.Devices[index]
	devices := slices.Clone(c.config.Devices)
	devices[index].Memory = 0 // so that no kernel relies on it
	c.config.know(devices)
	c.memory.linkPeers()
	if l := &c.standing.Lease; l.Wanting && c.queue.Head != nil { // it may have relied on it: it is sent again (Lease.Stale)
		l.Wanting, l.Stale = false, true
	}
	if c.standing.Lease.Held && c.standing.Lease.Device == index { // this also answers a revocation of it
		c.activity.stop()
		c.standing.Lease.end()
	}
	gone := c.memory.space.Lost(d.Place)
	open, further := c.standing.context(d.Place), c.standing.isFurther(d.Place)
	if f := c.loans.further(index); f != nil {
		c.loans.giveUp(f)
	}
	if open == nil {
		return c.advance()
	}
	variables := !further && c.modules.hasVariables()
	c.emit(Op{Kind: Abandon, Place: d.Place})
	c.departure.forgetContext(d.Place)
	switch {
	case len(gone) > 0 || variables || c.hosts.Outstanding() > 0 || !ended:
		c.departure.fault(&device.Fault{Kind: device.DeviceLost, Detail: fmt.Sprintf("%s: %s", d.Name, m.Reason)})
	case !further && len(c.standing.Contexts) > 0: // further contexts depend on the one at home
		c.departure.begin(Release{})
	}
	return c.advance()
}

// Found says that the executor has found a fault while it waited for the device. World is the one
// in which the wait began.
func (c *Core) Found(now Time, world uint64, err error) ([]Op, error) {
	c.start(now)
	if world == c.World {
		c.departure.fault(err)
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
		c.hosts.notOut(c.calling)
	}
	switch failed.Kind {
	case MapHost:
		c.memory.unmapped(failed.Range.Addr)
	case Reserve: // nothing has used it, so there is no plan to perform
		if _, err := c.memory.space.Free(failed.Range.Addr); err != nil {
			c.ended = err
		}
		c.room.commitLess(c.room.onHost())
	}
}

// settleAsk notes the outcome of an operation that asked.
func (c *Core) settleAsk(asked Kind, o Outcome) {
	if asked == Finish {
		c.queue.Head.Finished = true
		return
	}
	if isFault(o.Err) {
		c.departure.fault(o.Err)
		return
	}
	if asked == Open || asked == Move {
		c.standing.prepared(o.Took)
	}
	switch asked {
	case GoOn: // the steps of a graph continue
	case Inspect, Describe, Link, MakeShared, OpenShared:
		c.queue.Head.found = &o
	case Open:
		c.dropFor(c.arrival.opened(o))
	case Load:
		c.modules.loaded(o)
	case MakeTextures:
		c.dropFor(c.textures.madeTextures(o))
	case Move, Share:
		c.mapped.moved(o.Legs)
		if o.Err != nil { // the directory cannot undo a step that failed
			c.ended = fmt.Errorf("moving memory failed: %w", o.Err)
		}
	case Leave:
		c.departure.left(o)
	case Backup:
		c.backedUp(o)
	case MakeRoom:
		c.queue.Head.replacement.room, c.queue.Head.replacement.err = o.Err == nil, o.Err
	case Refill:
		if o.Err != nil { // the contents of the client's memory are unknown
			c.departure.fault(fmt.Errorf("the client's memory was lost while a checkpoint was restored: %w", o.Err))
		}
	}
}

// advance continues with whatever can continue, until an operation asks or everything waits. A
// release of the lease comes before the waiting message, which may need the lease again.
func (c *Core) advance() ([]Op, error) {
	for c.ended == nil && !c.asking {
		switch {
		case c.departure.Release != nil:
			c.departure.stepRelease()
		case c.standing.Lease.Wanted && c.hosts.Outstanding() == 0:
			c.departure.beginWanted()
		case len(c.loans.Further) > 0 && c.departure.leavesFurther():
		case c.queue.Head != nil && !c.retry():
			return c.ops, c.ended
		case c.queue.Head != nil:
		default:
			return c.ops, nil
		}
	}
	return c.ops, c.ended
}

// handle handles a message, or keeps it as the head until it can be done.
func (c *Core) handle(m Message) ([]Op, error) {
	c.memory.stats.Messages++
	c.activity.message()
	c.Current = m.Header
	c.standing.Lease.Denied, c.room.Asked.Refused = "", "" // they answered an earlier message
	if c.verdicts.Sticky != success && !m.Header.Op.AfterFault() {
		c.reply(m.Header.Slot, c.verdicts.Sticky, nil)
		return c.ops, nil
	}
	c.calling, c.queue.reachedStep = 0, 0
	c.mapped.chooseAnew()
	c.handled = m // so that taking its address does not allocate
	done, err := c.try(&c.handled)
	if err != nil {
		return c.ops, err
	}
	if !done {
		c.queue.Head = &Head{Message: m, Step: c.queue.reachedStep}
		c.queue.Head.Message.own()
		if c.departure.Release == nil && !c.standing.Lease.Wanted {
			return c.ops, nil
		}
	}
	return c.advance()
}

// retry handles the head again from its beginning. It returns false if the head still waits.
func (c *Core) retry() bool {
	h := c.queue.Head
	if h.replacement != nil {
		return c.replace(h.replacement)
	}
	c.Current = h.Message.Header
	if c.verdicts.Sticky != success && !h.Message.Header.Op.AfterFault() {
		c.queue.Head = nil
		c.reply(h.Message.Header.Slot, c.verdicts.Sticky, nil)
		return true
	}
	done, err := c.try(&h.Message)
	if err != nil {
		c.ended = err
		return true
	}
	if done {
		c.queue.Head = nil
		c.activity.Quiet = false // what the message has begun is in flight
	}
	return done || c.departure.Release != nil
}

// try handles a message. It returns false if the message must wait, and an error if the client must
// end.
func (c *Core) try(m *Message) (done bool, err error) {
	if len(c.modules.due) > 0 && !c.modules.placedAgain() {
		return false, nil
	}
	done, err = c.handlers.of(m)(m)
	if err == nil {
		return done, nil
	}
	if errors.Is(err, ErrProtocol) || errors.Is(err, errDecode) {
		return true, fmt.Errorf("%v: %w", m.Header.Op, err)
	}
	c.giveUpOn(m, err)
	return true, nil
}

// giveUpOn ends a message that cannot be done, which waits or not.
func (c *Core) giveUpOn(m *Message, err error) {
	if h := c.queue.Head; h != nil {
		c.queue.Head = nil
		c.modules.undo(h)
	}
	c.modules.refusedLoad(m, err)
	c.refuse(err)
}

// refuse tells the program that the current message could not be done: at once if the message has
// an answer, otherwise at the program's next synchronising call.
func (c *Core) refuse(err error) {
	slot := c.Current.Slot
	if isFault(err) {
		c.departure.fault(err)
		c.reply(slot, c.verdicts.Sticky, nil)
		return
	}
	c.verdicts.explain(err)
	c.verdicts.refuseWith(ResultOf(err))
}

// reset replaces the client by an empty world.
func (c *Core) reset(m *Message) (bool, error) {
	if x := c.standing.anyContext(); x != nil && (c.queue.Head == nil || !c.queue.Head.Finished) {
		// Running work may end first, with the host functions it calls.
		c.ask(Op{Kind: Finish, Place: x.Place})
		return false, nil
	}
	c.departure.closeContexts()
	c.loans.giveUpAll()
	if c.standing.Lease.Held {
		c.departure.letGo(0)
	}
	if c.config.Reserves {
		c.emit(Op{Kind: GiveBack, All: true})
	}
	plan, err := c.memory.freeAll()
	if err != nil {
		return true, err
	}
	space, err := c.config.space()
	if err != nil {
		return true, err
	}
	for _, m := range c.memory.Mapped {
		c.emit(Op{Kind: UnmapHost, Range: m.extent()})
	}
	c.shared.closeAllShared()
	s := c.savers.state()
	s.begin(space)
	s.World++
	c.savers.load(&s)
	c.emit(Op{Kind: SetStatus})
	c.room.commitLess(0)
	c.reply(m.Header.Slot, success, nil)
	if len(plan) > 0 {
		c.ask(Op{Kind: Move, Plan: plan})
	}
	return true, nil
}

// Config returns the client's configuration.
func (c *Core) Config() Config { return c.config.Config }

// AddDevice says that a device was added: the next number, or that of a lost one on which the
// client has nothing. The executor has opened it.
func (c *Core) AddDevice(now Time, index int, d Device) ([]Op, error) {
	c.start(now)
	d.Place = vmm.Device(index)
	switch n := len(c.config.Devices); {
	case index < 0 || index > n:
		return nil, fmt.Errorf("the daemon adds device %d to %d", index, n)
	case index < n && (c.standing.context(d.Place) != nil || c.standing.Lease.Held && c.standing.Lease.Device == index):
		return nil, fmt.Errorf("the daemon adds device %d, which the client uses", index)
	}
	devices := slices.Clone(c.config.Devices)
	if index == len(devices) {
		if err := c.memory.space.AddDevice(d.Place); err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	devices[index] = d
	c.config.know(devices)
	c.memory.linkPeers()
	return c.advance()
}

// know sets the devices.
func (s *setup) know(devices []Device) {
	s.Devices, s.puts = devices, len(devices) > 0
	for _, d := range devices {
		s.puts = s.puts && d.Puts
	}
}

// Adopted says that another daemon serves the client from now on. The core tells it the client's
// standing, and asks it again for whatever the last daemon did not answer. The executor must have
// handed in everything that the last daemon said.
//
// Nothing need be remembered to ask again: the message that waits is handled from its beginning,
// and finds that nothing was asked.
func (c *Core) Adopted(now Time) ([]Op, error) {
	c.start(now)
	c.standing.Lease.forgetAsked()
	c.room.Asked.Bytes = 0
	c.loans.adopted()
	c.activity.unwatch()
	c.say(c.departure.Standing())
	c.activity.report()
	if c.queue.Head == nil {
		c.room.commitLess(c.room.onHost())
	}
	return c.advance()
}

// RefuseAgain handles a message that was refused with a result the first time. The cause may be
// gone now, but the program knows that the message failed, and its user was told why.
func (c *Core) RefuseAgain(now Time, h wire.Header, r Result) ([]Op, error) {
	c.start(now)
	c.Current = h
	c.verdicts.refuseWith(r)
	return c.advance()
}

// Equip tells a rebuilt client which devices exist now: those it knows, under the same numbers, and
// perhaps more.
func (c *Core) Equip(devices []Device) error {
	if len(devices) < len(c.config.Devices) {
		return fmt.Errorf("the client knows %d devices, and %d are there", len(c.config.Devices), len(devices))
	}
	for _, d := range devices[len(c.config.Devices):] {
		if err := c.memory.space.AddDevice(d.Place); err != nil {
			return err
		}
	}
	c.config.know(devices)
	c.memory.linkPeers()
	return nil
}

// dropFor ends the message that waits if there is a reason why it cannot be done.
func (c *Core) dropFor(err error) {
	if h := c.queue.Head; err != nil && h != nil {
		c.Current = h.Message.Header
		c.giveUpOn(&h.Message, err)
	} else if err != nil {
		c.refuse(err)
	}
}
