package core

import (
	"cmp"
	"fmt"
	"slices"
)

// Limits of one program.
const (
	MaxNodes    = 1024
	MaxElements = 1 << 20 // ever created
	MaxObjects  = 1 << 16
	MaxName     = 255
	MaxCreate   = 4096 // at once
)

// Root is the state of one program.
type Root struct {
	nodes    []node
	elements []*element // by number
	max      ElementID  // the greatest number that an element may get; 0: no limit
	groups   uint64     // how many were made
	objects  map[string]Object
	creating []*creation
	deaths   map[uint64][]string // for each group, the reasons of the deaths in it
	over     bool
	effects  []Effect
}

type node struct {
	info NodeInfo
	lost bool
}

// element is an element that lives or has lived.
type element struct {
	id      ElementID
	group   uint64
	device  Device
	started bool
	exited  bool // it has announced its end
	ended   bool
	killed  bool   // on request, which is not a crash
	died    string // the reason, if it did not end by itself
	signals uint64
	seen    map[ElementID]seen // signals and ends of others that it was told
	waits   []wait
	barrier []Caller // its pending requests for the barrier of its group; the first is at the present barrier
	told    int      // how many of its group's deaths its barriers have reported to it
}

type seen struct {
	signals uint64
	end     bool
}

// wait is a request that waits for an element, or for any.
type wait struct {
	caller Caller
	target ElementID
	any    bool
	latest bool // all signals so far are told
}

// creation is a request for elements of which some have not started.
type creation struct {
	caller  Caller
	made    []uint64
	waiting map[ElementID]bool
	failed  *Failure
}

// NewRoot makes the state of a program that begins with one element on node 0, a CPU's.
func NewRoot(nodes int) *Root {
	r := &Root{nodes: make([]node, nodes), objects: map[string]Object{}, groups: 1, deaths: map[uint64][]string{}}
	r.elements = []*element{{device: Device{Kind: CPU}, started: true, seen: map[ElementID]seen{}}}
	return r
}

// Step takes an event and returns what is to be done.
func (r *Root) Step(e Event) []Effect {
	r.effects = nil
	if r.over {
		if by, ok := callerOf(e); ok {
			r.fail(by, Over, "the program is over")
		}
		return r.effects
	}
	if by, ok := callerOf(e); ok {
		if x := r.find(by.Element); x == nil || x.ended {
			return nil // its connection is gone, so the answer would reach no one
		}
	}
	r.apply(e)
	return r.effects
}

func (r *Root) apply(e Event) {
	switch e := e.(type) {
	case Exit:
		if x := r.find(e.Element); x != nil && !x.ended {
			x.exited = true
		}
	case Ended:
		r.end(e.Element, e.Reason)
	case Started:
		r.started(e.Element, nil)
	case StartFailed:
		r.started(e.Element, &Failure{Refused, e.Reason})
	case Joined:
		if int(e.Node) >= 0 && int(e.Node) < len(r.nodes) {
			r.nodes[e.Node].info = e.Info
		}
	case NodeLost:
		r.lose(e.Node, e.Reason)
	case Create:
		r.create(e)
	case Kill:
		r.kill(e)
	case SetMax:
		r.max = e.Max
		r.done(e.Caller)
	case Wait:
		r.wait(wait{caller: e.Caller, target: e.For})
	case WaitLatest:
		r.wait(wait{caller: e.Caller, target: e.For, latest: true})
	case WaitAny:
		r.wait(wait{caller: e.Caller, any: true})
	case Signal:
		r.elements[e.Element].signals++
		r.done(e.Caller)
		r.wake(e.Element)
	case Barrier:
		x := r.elements[e.Element]
		x.barrier = append(x.barrier, e.Caller)
		r.breakBarrier(x)
		r.tryBarrier(x.group)
	case Cancel:
		r.cancel(e.Of)
	case Malloc:
		r.malloc(e)
	case Free:
		r.free(e)
	case Lookup:
		r.lookup(e)
	}
}

// callerOf is the caller of an event that is a request.
func callerOf(e Event) (Caller, bool) {
	switch e := e.(type) {
	case Create:
		return e.Caller, true
	case Kill:
		return e.Caller, true
	case SetMax:
		return e.Caller, true
	case Wait:
		return e.Caller, true
	case WaitLatest:
		return e.Caller, true
	case WaitAny:
		return e.Caller, true
	case Signal:
		return e.Caller, true
	case Barrier:
		return e.Caller, true
	case Malloc:
		return e.Caller, true
	case Free:
		return e.Caller, true
	case Lookup:
		return e.Caller, true
	}
	return Caller{}, false
}

// Speaks reports whether a node may send an event: the event must be about an element on that node.
// The driver checks that before Step, so that no node can speak for the elements of another.
func (r *Root) Speaks(n NodeID, e Event) bool {
	var id ElementID
	switch e := e.(type) {
	case Exit:
		id = e.Element
	case Ended:
		id = e.Element
	case Started:
		id = e.Element
	case StartFailed:
		id = e.Element
	case Cancel:
		id = e.Of.Element
	default:
		by, ok := callerOf(e)
		if !ok {
			return false
		}
		id = by.Element
	}
	x := r.find(id)
	return x != nil && x.device.Node == n
}

func (r *Root) find(id ElementID) *element {
	if id >= ElementID(len(r.elements)) {
		return nil
	}
	return r.elements[id]
}

func (r *Root) emit(e Effect) { r.effects = append(r.effects, e) }

func (r *Root) answer(to Caller, a Answer) {
	a.To = to
	if x := r.find(to.Element); x != nil {
		a.Node = x.device.Node
	}
	if !r.nodes[a.Node].lost { // a lost node gets no answers
		r.emit(a)
	}
}

func (r *Root) done(to Caller) { r.answer(to, Answer{}) }

func (r *Root) fail(to Caller, code Code, format string, args ...any) {
	r.answer(to, Answer{Failure: &Failure{code, fmt.Sprintf(format, args...)}})
}

// --- elements ------------------------------------------------------------------

func (r *Root) create(e Create) {
	switch {
	case e.Count < 1 || e.Count > MaxCreate:
		r.fail(e.Caller, Invalid, "create 1 to %d elements at once, not %d", MaxCreate, e.Count)
		return
	case e.Device.Node < Any || int(e.Device.Node) >= len(r.nodes):
		r.fail(e.Caller, Invalid, "there is no node %d: the program has %d, counted from 0", e.Device.Node, len(r.nodes))
		return
	}
	c := &creation{caller: e.Caller, waiting: map[ElementID]bool{}}
	group := r.groups
	for range e.Count {
		id := ElementID(len(r.elements))
		if r.max != 0 && id > r.max {
			break // the paper's table of calls: creations beyond the greatest number have no effect
		}
		if id >= MaxElements {
			c.failed = &Failure{NoMemory, fmt.Sprintf("the program has had %d elements, as many as it may", MaxElements)}
			break
		}
		device, failed := r.place(e.Device)
		if failed != nil {
			c.failed = failed
			break
		}
		r.elements = append(r.elements, &element{id: id, group: group, device: device, seen: map[ElementID]seen{}})
		c.made, c.waiting[id] = append(c.made, uint64(id)), true
		r.emit(Start{Node: device.Node, Element: id, Group: group, Device: device})
	}
	if len(c.made) > 0 {
		r.groups++
	}
	r.creating = append(r.creating, c)
	r.finishCreation(c)
}

// place chooses the node and device that the caller leaves open: those with the fewest elements in
// proportion to their cores or GPUs.
func (r *Root) place(want Device) (Device, *Failure) {
	var found []Device
	for n, is := range r.nodes {
		if want.Node != Any && NodeID(n) != want.Node || is.lost {
			continue
		}
		switch {
		case want.Kind == CPU:
			found = append(found, Device{NodeID(n), CPU, 0})
		case want.Number != Any && want.Number >= 0 && want.Number < is.info.GPUs:
			found = append(found, Device{NodeID(n), GPU, want.Number})
		case want.Number == Any:
			for g := range is.info.GPUs {
				found = append(found, Device{NodeID(n), GPU, g})
			}
		}
	}
	if len(found) == 0 {
		if want.Node != Any && r.nodes[want.Node].lost {
			return want, &Failure{Lost, fmt.Sprintf("node %d is lost: create the elements elsewhere", want.Node)}
		}
		return want, &Failure{Invalid, fmt.Sprintf("no node has the device that is asked for (node %d, %s %d; -1 is any)", want.Node, want.Kind, want.Number)}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	busy := map[Device]int{}
	for _, x := range r.elements {
		if !x.ended {
			busy[x.device]++
		}
	}
	return slices.MinFunc(found, func(a, b Device) int {
		return cmp.Compare(busy[a]*r.width(b), busy[b]*r.width(a))
	}), nil
}

// width is how many elements a device runs at a time.
func (r *Root) width(d Device) int {
	if d.Kind == GPU {
		return 1
	}
	return max(1, r.nodes[d.Node].info.Cores)
}

// started notes that an element runs, or why not.
func (r *Root) started(id ElementID, failed *Failure) {
	x := r.find(id)
	if x == nil || x.started || x.ended {
		return
	}
	x.started = true
	if failed != nil {
		for _, c := range r.creating {
			if c.waiting[id] {
				c.failed = failed
				c.made = slices.DeleteFunc(c.made, func(made uint64) bool { return made == uint64(id) })
			}
		}
		r.end(id, failed.Text)
	}
	r.settle(id)
}

// settle answers the creations that were waiting for an element's start.
func (r *Root) settle(id ElementID) {
	for _, c := range slices.Clone(r.creating) {
		if c.waiting[id] {
			delete(c.waiting, id)
			r.finishCreation(c)
		}
	}
}

func (r *Root) finishCreation(c *creation) {
	if len(c.waiting) > 0 {
		return
	}
	r.creating = slices.DeleteFunc(r.creating, func(other *creation) bool { return other == c })
	r.answer(c.caller, Answer{Failure: c.failed, Values: c.made})
}

func (r *Root) kill(e Kill) {
	for _, id := range e.Elements {
		if r.find(id) == nil {
			r.fail(e.Caller, NoElement, "there is no element %d", id)
			return
		}
	}
	r.done(e.Caller)
	for _, id := range e.Elements {
		if x := r.find(id); !x.ended {
			x.killed = true
			r.emit(Stop{Node: x.device.Node, Element: id})
			r.end(id, fmt.Sprintf("element %d was killed by element %d", id, e.Element))
		}
	}
}

// end notes the end of an element, and answers the elements that wait for it. The program ends with
// its first element.
func (r *Root) end(id ElementID, reason string) {
	x := r.find(id)
	if x == nil || x.ended {
		return
	}
	x.ended, x.waits, x.barrier = true, nil, nil
	if !x.exited {
		x.died = cmp.Or(reason, "its process ended without ivmExit")
	}
	r.creating = slices.DeleteFunc(r.creating, func(c *creation) bool { return c.caller.Element == id })
	r.settle(id)
	if id == 0 {
		r.finish(x)
		return
	}
	r.wake(id)
	if x.died != "" && !x.killed {
		r.deaths[x.group] = append(r.deaths[x.group], fmt.Sprintf("element %d of the group died: %s", id, x.died))
		for _, other := range r.elements {
			if other.group == x.group && !other.ended {
				r.breakBarrier(other)
			}
		}
	}
	r.tryBarrier(x.group)
	r.endLonely()
}

func (r *Root) finish(x *element) {
	reason := "the program's first element has ended"
	if x.died != "" {
		reason = "the program's first element died: " + x.died
	}
	for _, other := range r.elements {
		for _, w := range other.waits {
			r.fail(w.caller, Over, "%s", reason)
		}
		for _, c := range other.barrier {
			r.fail(c, Over, "%s", reason)
		}
		if !other.ended {
			r.emit(Stop{Node: other.device.Node, Element: other.id})
		}
	}
	for _, c := range r.creating {
		r.fail(c.caller, Over, "%s", reason)
	}
	r.over = true
	r.emit(Finish{reason})
}

// lose removes a node from the program, with its elements and the objects whose masters it has.
func (r *Root) lose(id NodeID, reason string) {
	if int(id) <= 0 || int(id) >= len(r.nodes) || r.nodes[id].lost {
		return
	}
	r.nodes[id].lost = true
	r.emit(Gone{id, reason})
	for _, x := range slices.Clone(r.elements) {
		if x.device.Node == id && !x.ended {
			r.end(x.id, fmt.Sprintf("node %d is lost: %s", id, reason))
		}
	}
}

// --- waiting -------------------------------------------------------------------

func (r *Root) wait(w wait) {
	x := r.elements[w.caller.Element]
	switch {
	case w.any:
	case r.find(w.target) == nil:
		r.fail(w.caller, NoElement, "there is no element %d", w.target)
		return
	case w.target == x.id:
		r.fail(w.caller, Invalid, "element %d waits for itself", x.id)
		return
	}
	if !r.tryWait(x, w) {
		x.waits = append(x.waits, w)
		r.endLonely()
	}
}

// cancel answers a wait or a barrier that its element has given up.
func (r *Root) cancel(c Caller) {
	x := r.find(c.Element)
	if x == nil {
		return
	}
	pending := len(x.waits) + len(x.barrier)
	x.waits = slices.DeleteFunc(x.waits, func(w wait) bool { return w.caller == c })
	x.barrier = slices.DeleteFunc(x.barrier, func(b Caller) bool { return b == c })
	if len(x.waits)+len(x.barrier) < pending {
		r.fail(c, Cancelled, "the element no longer waits")
	}
}

// endLonely fails the WaitAny of an element if no other element is left.
func (r *Root) endLonely() {
	var only *element
	for _, x := range r.elements {
		if x.ended {
			continue
		}
		if only != nil {
			return
		}
		only = x
	}
	if only == nil {
		return
	}
	for _, w := range only.waits {
		r.fail(w.caller, NoElement, "no other element is left")
	}
	only.waits = nil
}

// tryWait answers a wait if its event has happened already.
func (r *Root) tryWait(x *element, w wait) bool {
	if w.any {
		for _, on := range r.elements {
			if on != x && r.hear(x, on, w) {
				return true
			}
		}
		return false
	}
	return r.hear(x, r.elements[w.target], w)
}

// hear answers a wait with a signal or the end of an element that the waiter was not told yet. Each
// waiter is told each signal once. WaitAny reports an end once, Wait always.
func (r *Root) hear(x, on *element, w wait) bool {
	known := x.seen[on.id]
	a := Answer{Values: []uint64{uint64(on.id)}}
	switch {
	case on.signals > known.signals && w.latest:
		known.signals = on.signals
	case on.signals > known.signals:
		known.signals++
	case on.ended && !(w.any && known.end):
		known.end = true
		if on.died != "" {
			a.Failure = &Failure{Dead, on.died}
		}
	default:
		return false
	}
	x.seen[on.id] = known
	r.answer(w.caller, a)
	return true
}

// wake answers the elements that wait for an element that has signalled or ended.
func (r *Root) wake(id ElementID) {
	for _, x := range r.elements {
		if x.id == id || len(x.waits) == 0 {
			continue
		}
		x.waits = slices.DeleteFunc(x.waits, func(w wait) bool {
			return (w.any || w.target == id) && r.hear(x, r.elements[id], w)
		})
	}
}

// tryBarrier answers the barrier of a group if all living elements of it have called it.
func (r *Root) tryBarrier(group uint64) {
	var here []*element
	for _, x := range r.elements {
		switch {
		case x.group != group || x.ended:
		case len(x.barrier) == 0:
			return
		default:
			here = append(here, x)
		}
	}
	for _, x := range here {
		r.done(x.barrier[0])
		x.barrier = x.barrier[1:]
	}
}

// breakBarrier answers an element at a barrier with a death in its group that it was not told yet.
// Each element is told of each death once, whether it called the barrier before the death or calls
// it after.
func (r *Root) breakBarrier(x *element) {
	deaths := r.deaths[x.group]
	if len(x.barrier) == 0 || x.told == len(deaths) {
		return
	}
	x.told = len(deaths)
	for _, c := range x.barrier {
		r.fail(c, Dead, "%s", deaths[len(deaths)-1])
	}
	x.barrier = nil
}

// --- objects -------------------------------------------------------------------

func (r *Root) malloc(e Malloc) {
	old, there := r.objects[e.Name]
	switch {
	case e.Name == "" || len(e.Name) > MaxName:
		r.fail(e.Caller, Invalid, "an object's name has 1 to %d bytes", MaxName)
	case e.Size == 0:
		r.fail(e.Caller, Invalid, "object %q has no bytes", e.Name)
	case there && !r.nodes[old.Master].lost:
		r.fail(e.Caller, Taken, "there is an object %q already: free it first, or map it", e.Name)
	case !there && len(r.objects) == MaxObjects:
		r.fail(e.Caller, NoMemory, "the program has %d objects, as many as it may", MaxObjects)
	default:
		o := Object{Number: e.Object, Size: e.Size, Master: r.elements[e.Element].device.Node}
		r.objects[e.Name] = o
		r.answer(e.Caller, Answer{Object: o})
	}
}

func (r *Root) free(e Free) {
	o, ok := r.objects[e.Name]
	if !ok {
		r.fail(e.Caller, NoObject, "there is no object %q", e.Name)
		return
	}
	delete(r.objects, e.Name)
	r.done(e.Caller)
	r.emit(Drop{o})
}

func (r *Root) lookup(e Lookup) {
	o, ok := r.objects[e.Name]
	switch {
	case !ok:
		r.fail(e.Caller, NoObject, "there is no object %q: one element must allocate it first", e.Name)
	case r.nodes[o.Master].lost:
		r.fail(e.Caller, Lost, "object %q was on node %d, which is lost: allocate it again", e.Name, o.Master)
	default:
		r.answer(e.Caller, Answer{Object: o})
	}
}
