package vgpu_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/vgpu"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

const (
	arenaBase   = 1 << 32
	chunkSize   = 4096
	chunks      = 32 // of a client's arena
	contextCost = 2 * chunkSize
	poison      = math.MaxUint64 // what memory contains that nobody has written
)

// gpu is a device: memory that is counted, and one kernel at a time.
type gpu struct {
	id         int
	slots      int
	speed      float64
	memory     uint64
	addresses  uint64 // variables lie elsewhere on devices where this is another number
	used       uint64 // by contexts that are open
	free       time.Duration
	generation int // counts losses
	gone       bool
	contexts   []*context
}

func (d *gpu) described() vgpu.Device {
	return vgpu.Device{Name: fmt.Sprint("gpu", d.id), Slots: d.slots, Speed: d.speed, Memory: d.memory, ContextCost: contextCost}
}

// lose has the device disappear with all that is on it.
func (d *gpu) lose() {
	d.generation++
	d.gone, d.used, d.free = true, 0, 0
	for _, x := range d.contexts {
		x.dead = &device.Fault{Kind: device.DeviceLost, Detail: "it is gone"}
		x.taken = 0
	}
	d.contexts = nil
}

// context is one that a worker has open.
type context struct {
	w          *worker
	on         *gpu
	generation int // of the device
	taken      uint64
	mapped     [chunks]bool
	memory     [chunks]uint64
	end        time.Duration // of what it was given
	dead       error         // why nothing can be done with it any more
}

// take takes memory of the device, or gives it back.
func (x *context) take(bytes int64) {
	if x.dead != nil {
		return
	}
	x.taken += uint64(bytes)
	x.on.used += uint64(bytes)
	if x.on.used > x.on.memory {
		x.w.fleet.fatalf("%d of %d bytes are in use on device %d", x.on.used, x.on.memory, x.on.id)
	}
}

// free gives everything back.
func (x *context) free() {
	if x.dead == nil {
		x.take(-int64(x.taken))
	}
	for i, other := range x.on.contexts {
		if other == x {
			x.on.contexts = append(x.on.contexts[:i], x.on.contexts[i+1:]...)
			break
		}
	}
	x.dead = &device.Fault{Kind: device.Unspecified, Detail: "the context was closed"}
}

// worker is a client core with its executor, and what the daemon knows of it.
type worker struct {
	fleet    *fleet
	id       vgpu.ClientID
	program  *program
	core     *clientcore.Core
	dead     bool
	contexts map[vmm.Place]*context
	host     [chunks]uint64

	ring    []clientcore.Message
	inbox   []control.ToWorker
	found   []error // faults that somebody came upon
	ops     []clientcore.Op
	busy    bool          // operations are being performed
	looking uint64        // the last time that it was to look around
	done    time.Duration // when somebody saw work end
	read    uint64        // what the last copy out found
	sticky  clientcore.Result

	// Messages do not overtake each other.
	lastDown, lastUp time.Duration

	// What the daemon knows of it.
	granted    uint64 // the last lease
	want       vgpu.Want
	grow       vgpu.Grow
	coming     uint64 // all that it was said to get; 0 if it has it
	waits      bool   // for a device, since then
	waitsSince time.Duration
	parked     bool
}

func newWorker(f *fleet, id vgpu.ClientID, p *program) *worker {
	c := clientcore.Config{Arena: vmm.Range{Addr: arenaBase, Size: chunks * chunkSize}, Chunk: chunkSize}
	for _, d := range f.devices {
		c.Devices = append(c.Devices, clientcore.Device{Place: vmm.Device(d.id), Name: fmt.Sprint("gpu", d.id), Memory: d.memory, ContextCost: contextCost})
	}
	core, err := clientcore.New(c)
	if err != nil {
		f.t.Fatal(err)
	}
	w := &worker{fleet: f, id: id, program: p, core: core, contexts: map[vmm.Place]*context{}, want: vgpu.Want{Client: id, Pinned: vgpu.AnyDevice}}
	for i := range w.host {
		w.host[i] = poison
	}
	return w
}

// late is when a message arrives that is sent now, behind the one before it.
func (w *worker) late(last *time.Duration) time.Duration {
	f := w.fleet
	most := 500 * time.Microsecond
	if f.r.IntN(50) == 0 {
		most = 20 * time.Millisecond
	}
	*last = max(*last, f.now+f.between(10*time.Microsecond, most))
	return *last
}

// post sends a message of the daemon's to the worker.
func (w *worker) post(m control.ToWorker) {
	w.fleet.at(w.late(&w.lastDown), func() {
		if !w.dead {
			w.inbox = append(w.inbox, m)
			w.pump()
		}
	})
}

func (w *worker) say(m control.ToDaemon) {
	w.fleet.at(w.late(&w.lastUp), func() { w.fleet.heard(w, m) })
}

// send takes a message of the program's.
func (w *worker) send(m clientcore.Message) {
	w.ring = append(w.ring, m)
	w.pump()
}

// pump does what the worker's loop does, until there is nothing to do.
func (w *worker) pump() {
	for !w.busy && !w.dead {
		switch now := w.fleet.now; {
		case len(w.found) > 0:
			err := w.found[0]
			w.found = w.found[1:]
			w.perform(w.core.Found(now, w.core.World, err))
		case len(w.inbox) > 0:
			m := w.inbox[0]
			w.inbox = w.inbox[1:]
			switch m := m.(type) {
			case control.Watch:
				w.perform(w.core.Watch(now, m.On, w.quiet(), len(w.ring) > 0))
			case control.Lost:
				w.perform(w.core.Lost(now, m, w.quiet()))
			default:
				w.perform(w.core.Control(now, m))
			}
		case w.core.Waits():
			return
		case w.core.Queued():
			w.perform(w.core.Next(now))
		case len(w.ring) > 0:
			m := w.ring[0]
			w.ring = w.ring[1:]
			if w.core.Unnoticed(w.done) && w.quiet() {
				w.perform(w.core.Ended(now, w.done), nil)
			}
			w.perform(w.core.Message(now, m))
		default:
			w.lookAround()
			return
		}
	}
}

// lookAround has the worker look whether anything runs if no message comes.
func (w *worker) lookAround() {
	w.looking++
	this := w.looking
	w.fleet.after(w.core.Patience(), func() {
		if w.looking == this && !w.busy && !w.dead && !w.core.Waits() && len(w.ring) == 0 {
			w.perform(w.core.Observe(w.fleet.now, w.quiet(), w.done))
			w.pump()
		}
	})
}

// quiet says that nothing of the client runs.
func (w *worker) quiet() bool {
	for _, x := range w.contexts {
		if x.dead == nil && x.end > w.fleet.now {
			return false
		}
	}
	return true
}

// perform performs what the core decided.
func (w *worker) perform(ops []clientcore.Op, err error) {
	if err != nil {
		w.fleet.fatalf("client %d ends: %v", w.id, err)
	}
	w.looking++
	w.busy, w.ops = true, ops
	w.goOn()
}

// goOn performs operations up to the first that takes time.
func (w *worker) goOn() {
	for len(w.ops) > 0 {
		o := &w.ops[0]
		until := w.takesUntil(o)
		if until <= w.fleet.now {
			if !w.finish(o) {
				return
			}
			continue
		}
		w.fleet.at(until, func() {
			if !w.dead && w.finish(o) {
				w.goOn()
				w.pump()
			}
		})
		return
	}
	w.busy = false
	w.save()
}

// finish ends an operation. It returns false if the worker is over.
func (w *worker) finish(o *clientcore.Op) bool {
	out := w.do(o)
	if out.Err == nil && !o.Kind.Asks() {
		w.ops = w.ops[1:]
		return true
	}
	failed := *o
	ops, err := w.core.Outcome(w.fleet.now, &failed, out)
	if err != nil {
		w.fleet.fatalf("client %d ends: %v", w.id, err)
	}
	w.ops = ops
	return true
}

// save goes on from what the client's core writes, now and then.
func (w *worker) save() {
	f := w.fleet
	if f.r.IntN(f.cfg.saves) != 0 {
		return
	}
	f.saved++
	data, err := w.core.Save()
	if err != nil {
		f.fatalf("client %d cannot be saved: %v", w.id, err)
	}
	core, err := clientcore.Restore(data, func(wire.Header) ([]byte, error) { return nil, fmt.Errorf("there is none") })
	if err != nil {
		f.fatalf("client %d cannot be restored: %v", w.id, err)
	}
	if again, err := core.Save(); err != nil || string(again) != string(data) {
		f.fatalf("client %d is another one when it is restored: %v\n%s\n%s", w.id, err, data, again)
	}
	w.core = core
}

// takesUntil says when an operation has ended.
func (w *worker) takesUntil(o *clientcore.Op) time.Duration {
	now := w.fleet.now
	x := w.contexts[o.Place]
	idle := now
	if x != nil && x.dead == nil {
		idle = max(now, x.end)
	}
	switch o.Kind {
	case clientcore.Settle, clientcore.Drain, clientcore.Finish:
		return idle
	case clientcore.Open:
		return now + time.Millisecond
	case clientcore.Load:
		return now + 100*time.Microsecond
	case clientcore.Move, clientcore.Leave:
		for _, step := range o.Plan {
			if x := w.contexts[step.Device]; x != nil && x.dead == nil {
				idle = max(idle, x.end)
			}
		}
		const bandwidth = 100 << 20 // bytes per second: slow, so that much happens meanwhile
		moved := o.Plan.Bytes(vmm.CopyIn) + o.Plan.Bytes(vmm.CopyOut) + o.Plan.Bytes(vmm.Fill)
		return idle + time.Duration(moved)*time.Second/bandwidth
	}
	return now
}

// do performs an operation at its end.
func (w *worker) do(o *clientcore.Op) (out clientcore.Outcome) {
	f := w.fleet
	x := w.contexts[o.Place]
	if o.Place != vmm.Host && o.Kind != clientcore.Open && o.Kind != clientcore.Close && o.Kind != clientcore.Abandon {
		if x == nil {
			f.fatalf("client %d: %v, where it has no context", w.id, o)
		}
		if x.dead != nil {
			return clientcore.Outcome{Err: x.dead}
		}
	}
	switch o.Kind {
	case clientcore.Reply:
		w.reply(o.Result)
	case clientcore.ReplyAfter:
		w.replyAfter(x, o.Result)
	case clientcore.SetStatus:
		w.sticky = o.Result
	case clientcore.Say:
		w.say(o.Message)
	case clientcore.Tell, clientcore.Refused, clientcore.WatchWaits, clientcore.Write, clientcore.Settle, clientcore.Drain, clientcore.Finish, clientcore.After, clientcore.Unload:
	case clientcore.HostFill:
		w.each(o.To, func(i int) { w.host[i] = uint64(o.Value) })
	case clientcore.HostOut:
		w.each(o.From, func(i int) { w.read = w.host[i] })
	case clientcore.Fill:
		w.each(o.To, func(i int) { x.memory[i] = uint64(o.Value) })
	case clientcore.CopyOut:
		w.each(o.From, func(i int) { w.read = x.memory[i] })
	case clientcore.Launch:
		w.launch(x, o)
	case clientcore.Close, clientcore.Abandon:
		if x != nil {
			x.free()
			delete(w.contexts, o.Place)
		}
	case clientcore.Inspect:
		out.Known, out.Info = true, imageOf(o.Image, 0)
	case clientcore.Open:
		out.Err = w.open(o)
	case clientcore.Load:
		info := imageOf(o.Image, x.on.addresses)
		x.take(int64(variablesOf(o.Image)))
		out.Globals, out.Functions = info.Globals, info.Functions
	case clientcore.Move:
		out.Err = w.move(o.Plan)
	case clientcore.Leave:
		out = w.leave(x, o)
	default:
		f.fatalf("client %d: %v is not known here", w.id, o)
	}
	return out
}

// each calls fun for each chunk of an area.
func (w *worker) each(a clientcore.Area, fun func(i int)) {
	for at := uint64(0); at < a.Width*a.Height; at += chunkSize {
		fun(int((a.Addr + at - arenaBase) / chunkSize))
	}
}

// An image's second byte says how many variables it has.
func imageOf(image []byte, addresses uint64) (info device.ImageInfo) {
	info.Functions = []device.FunctionInfo{{Name: "k", ParamSize: 24, Params: []device.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 8}}}}
	for n := range int(image[1]) {
		g := device.Global{Name: fmt.Sprint("v", n), Size: 8}
		if addresses > 0 || n > 0 {
			g.Address = 1<<20 + addresses<<16 + uint64(n)*256
		}
		info.Globals = append(info.Globals, g)
	}
	return info
}

func variablesOf(image []byte) uint64 {
	if image[1] == 0 {
		return 0
	}
	return chunkSize
}

// open opens a context with the modules that it is to have.
func (w *worker) open(o *clientcore.Op) error {
	f := w.fleet
	on := f.devices[slices.IndexFunc(f.devices, func(d *gpu) bool { return vmm.Device(d.id) == o.Place })]
	if on.gone {
		return &device.Fault{Kind: device.DeviceLost, Detail: "it is gone"}
	}
	var bytes uint64 = contextCost
	for _, m := range o.Modules {
		if m.Unload {
			continue
		}
		for i, g := range imageOf(m.Image, on.addresses).Globals {
			if m.Globals[i].Address != g.Address {
				return clientcore.ErrMoved
			}
		}
		bytes += variablesOf(m.Image)
	}
	x := &context{w: w, on: on, generation: on.generation}
	on.contexts = append(on.contexts, x)
	w.contexts[o.Place] = x
	x.take(int64(bytes))
	return nil
}

func (w *worker) move(plan vmm.Plan) error {
	for _, step := range plan {
		x := w.contexts[step.Device]
		if step.Device != vmm.Host && x.dead != nil {
			return x.dead
		}
		for at := step.Range.Addr; at < step.Range.Addr+step.Range.Size; at += chunkSize {
			i := int((at - arenaBase) / chunkSize)
			switch step.Op {
			case vmm.Discard:
				w.host[i] = poison
			case vmm.Map:
				x.mapped[i], x.memory[i] = true, poison
				x.take(chunkSize)
			case vmm.Unmap:
				x.mapped[i] = false
				x.take(-chunkSize)
			case vmm.Fill:
				if step.Device == vmm.Host {
					w.host[i] = uint64(step.Word)
				} else {
					x.memory[i] = uint64(step.Word)
				}
			case vmm.CopyIn:
				x.memory[i] = w.host[i]
			case vmm.CopyOut:
				w.host[i] = x.memory[i]
			}
		}
	}
	return nil
}

func (w *worker) leave(x *context, o *clientcore.Op) (out clientcore.Outcome) {
	if out.Err = w.move(o.Plan); out.Err != nil || !o.Shut {
		return out
	}
	out.Saved = map[uint64][][]byte{}
	for _, m := range o.Modules {
		var contents [][]byte
		for range m.Globals {
			contents = append(contents, make([]byte, 8))
		}
		out.Saved[m.Module] = contents
	}
	x.free()
	delete(w.contexts, o.Place)
	return out
}

// launch runs a kernel: it changes everything that the client has.
func (w *worker) launch(x *context, o *clientcore.Op) {
	f := w.fleet
	if !w.core.Lease.Held || w.core.Lease.Device != x.on.id {
		f.fatalf("client %d runs a kernel on device %d without a lease", w.id, x.on.id)
	}
	number, work := wordAt(o.How.Params, 1), time.Duration(wordAt(o.How.Params, 2))
	for i := range chunks {
		if w.program.has(i) && !x.mapped[i] {
			f.fatalf("client %d runs a kernel, and chunk %d is not there", w.id, i)
		}
		if x.mapped[i] {
			x.memory[i] = mix(x.memory[i], number)
		}
	}
	x.end = max(f.now, x.end, x.on.free) + time.Duration(float64(work)/x.on.speed)
	x.on.free = x.end
	if number%1000 == 13 && f.cfg.faults && !f.calm {
		f.at(x.end, func() {
			if x.dead == nil && !w.dead {
				x.take(-int64(x.taken))
				x.dead = &device.Fault{Kind: device.IllegalAddress}
				w.found = append(w.found, x.dead)
				w.pump()
			}
		})
	}
}

// replyAfter answers a call when all that runs now has ended.
func (w *worker) replyAfter(x *context, result clientcore.Result) {
	world := w.core.World
	w.fleet.at(x.end, func() {
		if w.dead {
			return
		}
		if x.dead != nil {
			w.reply(clientcore.ResultOf(x.dead))
			if w.core.World == world && w.sticky == 0 {
				w.found = append(w.found, x.dead)
				w.pump()
			}
			return
		}
		w.done = w.fleet.now
		w.reply(result)
	})
}

// reply answers the program's call.
func (w *worker) reply(r clientcore.Result) {
	w.fleet.after(0, func() {
		if !w.dead {
			w.program.answered(r)
		}
	})
}
