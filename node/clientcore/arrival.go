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

// arrival brings the client to a device: it asks for a lease, opens a context, and brings what a message needs.
type arrival struct {
	*standing
	Together  bool // launches are no longer mapped
	verdicts  *verdicts
	queue     *queue
	hosts     *hosts
	memory    *memory
	shared    *shared
	modules   *modules
	textures  *textures
	loans     *loans
	mapped    *mapped
	activity  *activity
	departure *departure

	opening *Context // what the operation that asks is about
}

func (a *arrival) save(to *State)   { to.Together = a.Together }
func (a *arrival) load(from *State) { a.Together = from.Together }

// need is what must be on a device for a message: some ranges, or everything.
type need struct {
	all    bool
	ranges []vmm.Range
	arrays []*device.Texture // of textures that are about to be made
	spared bool              // the message can be done on the host copies, and waits for no function there
}

// bytes is how much room a need takes on a device, in whole chunks, including the variables of
// modules.
func (a *arrival) bytes(n need) uint64 {
	beside := a.textures.beside(n.arrays...)
	if n.all {
		return beside + a.memory.space.Chunked()
	}
	return beside + a.config.chunked(n.ranges)
}

// granted handles a Grant, if it answers what the client has asked. One that crossed a fault does
// not. If it is newer than the last lease, the daemon counts it as the client's, so the core
// releases it; an older one the daemon has taken back already.
func (a *arrival) granted(g control.Grant) {
	l := &a.Lease
	switch {
	case l.Held && g.Lease == l.Number, !l.Held && l.Wanting && g.Lease > l.Number:
		if !l.Held {
			a.mapped.stale()
			a.mapped.chooseAnew() // the choice was among other devices
		}
		l.granted(g)
	case g.Lease > l.Number:
		a.Leased(g.Lease)
		a.say(control.Released{Lease: g.Lease, Keeps: a.departure.keeps()})
	}
}

// isReady says whether everything the client has is on the device.
func (a *arrival) isReady() bool {
	x := a.here()
	return x != nil && a.memory.space.AllResident(x.Place) && a.modules.allPlaced(x) && len(a.textures.lacksTextures(x)) == 0
}

// ready makes everything in a need usable on a device, with the client's modules: it gets a lease
// if there is none, and brings what is missing. It returns false if the message must wait for that.
func (a *arrival) ready(n need) (bool, error) {
	if a.verdicts.Faulted != nil {
		return true, a.verdicts.Faulted
	}
	if ok, err := a.leased(n); !ok || err != nil {
		if err == nil && a.Lease.Held && a.Lease.Coming > 0 {
			a.comeEarly(n)
		}
		return ok, err
	}
	x := a.here()
	if x == nil {
		a.open()
		return false, nil
	}
	if a.hosts.Outstanding() > 0 && !n.all && a.memory.space.GivesWay(x.Place, n.ranges, a.Lease.Memory-a.textures.beside(n.arrays...)) {
		// Memory that gives way waits for all work, and that for the functions: one of them may
		// wait for an answer to a message behind this one.
		if err := a.hosts.awaitReturn(); err != nil {
			return true, fmt.Errorf("other memory would have to leave the device: %w", err)
		}
		return false, nil
	}
	plan, err := a.prepare(x.Place, n)
	if err != nil {
		return true, err
	}
	if a.queue.Head != nil { // what the message waited for is there
		a.hosts.awaitNoMore()
	}
	a.memory.arrived(plan)
	if !a.memory.moved(plan) || a.modules.loadNext(x) {
		return false, nil
	}
	if lacks := a.textures.lacksTextures(x); len(lacks) > 0 { // their memory is there now
		a.textures.makeAt(x, lacks)
		return false, nil
	}
	// Some devices report the size of a module only once it is loaded, so the lease may have to
	// grow.
	return a.textures.beside()+a.memory.space.Mapped(x.Place) <= a.Lease.Memory, nil
}

// comeEarly brings as much of a need to the device as the client may have there so far. The rest
// comes with the next Grant: other clients are still leaving the device.
func (a *arrival) comeEarly(n need) {
	beside := a.textures.beside(n.arrays...)
	if a.departure.Release != nil || beside > a.Lease.Memory {
		return
	}
	x := a.here()
	if x == nil {
		a.open()
		return
	}
	ranges := n.ranges
	if n.all {
		ranges = nil
	}
	if plan := a.memory.space.Bring(x.Place, ranges, a.Lease.Memory-beside); len(plan) > 0 {
		a.memory.arrived(plan)
		a.memory.count(plan)
		a.ask(Op{Kind: Move, Plan: plan, Part: true})
	}
}

func (a *arrival) prepare(p vmm.Place, n need) (vmm.Plan, error) {
	room := a.Lease.Memory - a.textures.beside(n.arrays...)
	if n.all {
		return a.memory.space.PrepareAll(p, room)
	}
	return a.memory.space.Prepare(p, n.ranges, room)
}

// leased makes sure that there is a lease with enough memory. It returns false while there is none.
func (a *arrival) leased(n need) (bool, error) {
	bytes := a.bytes(n)
	l := &a.Lease
	switch {
	case !l.Held && l.Denied != "":
		return true, a.noDevice(bytes)
	case !l.Held && l.Wanting:
		return false, nil
	case !l.Held:
		l.Wanting = true
		if x := a.anyContext(); x != nil { // memory that stayed there needs room until it is moved
			bytes = max(bytes, a.textures.beside()+a.memory.space.Mapped(x.Place))
		}
		a.say(control.Want{Memory: bytes, Estimate: a.activity.Estimate, Pinned: a.only()})
		return false, nil
	case bytes <= l.Memory:
		return true, nil
	case a.hosts.Outstanding() > 0 && (l.Denied != "" || l.Wanted):
		if n.spared {
			return true, a.noRoom(bytes)
		}
		return a.awaitFunctions(bytes)
	case l.Denied != "":
		// The client gives up the device. Otherwise two clients that want to grow would wait for
		// each other.
		l.Denied = ""
		a.departure.begin(Release{Keep: true})
		return false, nil
	case l.Wanted:
		a.departure.beginWanted()
		return false, nil
	case bytes <= l.Coming:
	case !l.Growing:
		a.grow(bytes)
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
func (a *arrival) awaitFunctions(bytes uint64) (bool, error) {
	if err := a.hosts.awaitReturn(); err != nil {
		return true, fmt.Errorf("%s of device memory are needed: %w", sizeOf(bytes), err)
	}
	if !a.Lease.Wanted && a.hosts.asksAgain() {
		a.grow(bytes)
	}
	return false, nil
}

// AwaitsFunctions says that the message that waits may go on when host functions return, or when
// time has passed. The executor reads on in the ring, and calls Observe now and then.
func (a *arrival) AwaitsFunctions() bool {
	l := &a.Lease
	return a.queue.Head != nil && a.departure.Release == nil && l.Held && a.hosts.Outstanding() > 0 && !l.Growing && (a.hosts.WaitBy > 0 || l.Denied != "" || l.Wanted)
}

// only is the device that the client must have; -1 for any. A client whose kernels access memory of
// this machine, the program's or shared memory, must not go to another node: it stays where it is
// or, if it is nowhere, goes to the first device of this node.
func (a *arrival) only() int {
	if a.modules.Pinned >= 0 || len(a.memory.Mapped)+len(a.shared.Shared) == 0 || !slices.ContainsFunc(a.config.Devices, func(d Device) bool { return d.Far }) {
		return a.modules.Pinned
	}
	near := -1
	for i, d := range a.config.Devices {
		if x := a.anyContext(); !d.Far && d.Memory > 0 && (near < 0 || x != nil && x.Place == d.Place) {
			near = i
		}
	}
	return near
}

// open has a context opened on the lease's device, with the client's modules in it. Contexts
// elsewhere are left first.
func (a *arrival) open() {
	if n := len(a.Contexts); n > 0 { // the one at home last
		a.departure.leave(a.Contexts[n-1].Place, true, 0)
		return
	}
	a.openAt(a.Lease.Device)
}

// ErrMoved says that a variable would have another address than the program may have seen.
var ErrMoved = errors.New("the program's variables have other addresses on this device")

// opened notes that a context is open. It returns why the message that waits cannot be done without it.
func (a *arrival) opened(o Outcome) error {
	x := a.opening
	a.opening = nil
	switch {
	case x.Place != a.place():
		a.openedFurther(x, o)
	case o.Err == nil:
		a.Made++
		x.Number = a.Made
		a.Contexts = append(a.Contexts, x)
		a.modules.restored()
		a.housed = true
	case errors.Is(o.Err, ErrMoved) && a.modules.Pinned < 0:
		// The variables have their addresses on the device where they were placed first.
		a.modules.Pinned = a.modules.Home
		a.departure.begin(Release{})
	default:
		return fmt.Errorf("opening %s: %w", a.config.Devices[a.Lease.Device].Name, o.Err)
	}
	return nil
}

// needs returns what must be on the device for a kernel: everything, if any device of the node can
// hold it, since a kernel may follow pointers in memory; otherwise what its parameters point to and
// what textures read. For a guest it is everything: only the guest's node knows what points where,
// and it has mapped only what is needed.
func (a *arrival) needs(params []byte) need {
	all := need{all: true}
	if a.config.Guest {
		return all
	}
	size := a.bytes(all)
	for _, d := range a.config.Devices {
		if size+d.ContextCost <= d.Memory {
			return all
		}
	}
	return need{ranges: a.memory.withHeap(a.textures.withTextures(a.memory.space.Reachable(params)))}
}

// together makes all of the client's work run at home from now on: streams that wait for words in
// memory must see what kernels write there. It returns false until further contexts are left.
func (a *arrival) together() (bool, error) {
	if a.mapped == nil {
		return true, nil
	}
	a.Together = true
	if len(a.Contexts) > 1 {
		a.departure.leave(a.Contexts[len(a.Contexts)-1].Place, true, 0)
		return false, nil
	}
	a.loans.giveUpAll()
	return true, nil
}

// room is how many bytes of the client's memory may be at a place.
func (a *arrival) room(p vmm.Place) uint64 {
	memory := uint64(0)
	if a.Lease.Held && p == a.place() {
		memory = a.Lease.Memory
	} else if f := a.loans.further(p.Index()); f.lent() {
		memory = f.Memory
	}
	return memory - min(memory, a.textures.beside())
}

// openAt opens a context on a device, with the client's modules in it.
func (a *arrival) openAt(device int) {
	d := &a.config.Devices[device]
	a.opening = &Context{Place: d.Place, Cost: d.ContextCost}
	a.ask(Op{Kind: Open, Place: d.Place, Modules: a.modules.replay(), Limits: maps.Clone(a.Limits), Anew: !a.housed})
}

// openedFurther notes that a further context is open. If it could not be opened the device goes
// back; the program need not know.
func (a *arrival) openedFurther(x *Context, o Outcome) {
	if o.Err != nil {
		a.loans.giveUp(a.loans.further(x.Place.Index()))
		return
	}
	a.Made++
	x.Number = a.Made
	x.Has = map[uint64]bool{}
	for _, e := range a.modules.Journal {
		x.Has[e.Module] = !e.Unload
	}
	a.Contexts = append(a.Contexts, x)
}

// noDevice is the error of a message that needs more of a device than any has.
func (a *arrival) noDevice(bytes uint64) error {
	var largest uint64
	for _, d := range a.config.Devices {
		largest = max(largest, d.Memory-min(d.Memory, d.ContextCost))
	}
	text := fmt.Sprintf("%s of device memory are needed at a time, more than any device of the node has for a program (the largest has %s): use smaller allocations, or a node with a larger device",
		sizeOf(bytes), sizeOf(largest))
	if a.Lease.Denied == deviceGone {
		text = "no device is left on the node that this program may use: start the program again"
	}
	return &Failure{Result: resultOfTooSmall, Text: text}
}

// noRoom says that a message needs more of the client's device than others leave.
func (a *arrival) noRoom(bytes uint64) error {
	return &Failure{Result: outOfMemory, Text: fmt.Sprintf("%s of device memory are needed at a time, and other programs leave %s", sizeOf(bytes), sizeOf(a.Lease.Memory))}
}

// readyAt makes memory and a module usable at a place. It returns false if the message must wait.
func (a *arrival) readyAt(p vmm.Place, module uint64, used []vmm.Range) (bool, error) {
	x := a.context(p)
	if x == nil {
		a.openAt(p.Index())
		return false, nil
	}
	if a.isFurther(p) && !x.Has[module] {
		a.modules.loadAt(x, module, append([]device.Global{}, a.modules.All[module].Info.Globals...))
		return false, nil
	}
	plan, err := a.memory.space.Prepare(p, used, a.room(p))
	if err != nil || len(plan) == 0 {
		return true, err
	}
	if f := a.loans.further(p.Index()); f != nil {
		f.Moved += plan.Arrives()
	}
	a.memory.arrived(plan)
	return a.memory.moved(plan), nil
}
