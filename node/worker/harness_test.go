package worker

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/internal/together"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/wire"
	"muster/wire/control"
)

const (
	testBase = 0x6400_0000_0000
	mib      = 1 << 20
)

// What programs are told, as CUDA numbers it.
const (
	invalidValue   = 1
	outOfMemory    = 2
	invalidHandle  = 400
	notFound       = 500
	notReady       = 600
	illegalAddress = 700
)

const nonBlocking = 1 // a stream's flag

// client is a program to a worker in this process.
type client struct {
	t       testing.TB
	o       options
	p       *wire.Producer
	shared  *wire.Shared
	daemon  *daemon
	ended   chan error
	arenaAt uint64

	serve   control.Serve
	files   []*os.File
	mu      sync.Mutex
	over    bool // no worker is to follow
	died    atomic.Int32
	doom    atomic.Int32 // the worker dies after so many operations; 0: this does not kill it
	revived bool         // it was restored as a whole: a worker may die when there is a base
	frozen  sync.Mutex   // held while the program is to do nothing
}

type options struct {
	devices  []soft.Profile
	later    int // of these, so many come later (client.add)
	memory   uint64
	defers   bool
	replays  bool            // devices cannot put variables at given addresses
	recovers bool            // the client is kept, as one that is to outlive its worker
	rebuilds bool            // a worker that asks for another one is killed, and gets one
	dies     *rand.Rand      // now and then the worker dies; nil: never
	lives    int             // for about so many operations
	killed   func() bool     // the worker dies now; nil: only if dies says so
	told     func(w *worker) // the program's user is about to be told something; nil: nothing
	employed func(w *worker) // a worker is about to begin; nil: nothing
	saves    *rand.Rand      // now and then the client is saved and restored; nil: never
	graphs   *graphCounts    // devices run graphs by themselves; nil: they do not
	swapDir  string
	identity string
	owner    string                                             // user of the node; "": one of another machine
	lenient  bool                                               // what is taken of devices is not checked
	chance   *rand.Rand                                         // decides what the daemon does, which keeps nothing of what it hears; nil: the rest of this does
	mapping  string                                             // how launches are mapped; "": they are not
	pace     *control.Pace                                      // nil: nobody is made way for
	page     *os.File                                           // in which devices are claimed, with pace
	swapRoom uint64                                             // what the daemon commits; 0: much
	grant    func(m control.Want) (device int, memory uint64)   // decides where to, also for a grow, which is pinned; nil: device 0, all that is wanted
	wrap     func(name string, c device.Context) device.Context // changes a device's contexts; nil: not
	alone    bool                                               // devices are as device.Info.CallsAlone says
}

func newClient(t testing.TB, o options) *client {
	t.Helper()
	if o.devices == nil {
		o.devices = []soft.Profile{{Name: "test", Memory: 64 * mib, Speed: 1, Workers: 1}}
	}
	if o.memory == 0 {
		o.memory = 1 << 30
	}
	if o.swapRoom == 0 {
		o.swapRoom = 4 << 30
	}
	together.Do(2, func(int) {}) // its threads stay: they are not the worker's
	before := runtime.NumGoroutine()
	ring, arena := createShared(t)
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, o: o, p: wire.NewProducer(shared), shared: shared}
	c.enrol(ring, arena)
	t.Cleanup(func() {
		c.dismiss()
		for n := 0; runtime.NumGoroutine() > before; n++ { // ending takes a moment
			if n == 1000 {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines more than before:\n%s", runtime.NumGoroutine()-before, stacks[:runtime.Stack(stacks, true)])
			}
			time.Sleep(time.Millisecond)
		}
		shared.Unmap()
	})
	return c
}

func createShared(t testing.TB) (ring, arena *os.File) {
	t.Helper()
	ring, arena, err := wire.Create(wire.Geometry{Ring: 256 << 10, Staging: 4 * mib, Bounce: 4 * mib, Pinned: 16 * mib})
	if err != nil {
		t.Fatal(err)
	}
	return ring, arena
}

// enrol gives the client to a daemon of its own, which finds it workers.
func (c *client) enrol(ring, arena *os.File) {
	t, o := c.t, c.o
	t.Helper()
	serve := control.Serve{Client: 1, ArenaBase: testBase, ArenaSize: 1 << 30, Memory: o.memory, Defer: o.defers, SwapDir: o.swapDir, Identity: o.identity, Owner: o.owner, Recover: o.recovers || o.dies != nil || o.killed != nil, Pace: o.pace, Mapping: o.mapping}
	files := []*os.File{ring, arena}
	if serve.Recover {
		files = append(files, holdFiles(t, serve)...)
	}
	for _, p := range o.devices[:len(o.devices)-o.later] {
		serve.Devices = append(serve.Devices, control.DeviceConfig{Kind: "soft", Name: p.Name})
	}
	c.serve, c.files, c.over = serve, files, false
	c.daemon, c.ended = newDaemon(t, o), make(chan error, 1)
	c.employ()
}

// dismiss ends the worker, and none follows.
func (c *client) dismiss() {
	c.mu.Lock()
	c.over = true
	c.daemon.end().Close()
	c.mu.Unlock()
	<-c.ended
	<-c.daemon.ended // of the last worker
	closeFiles(c.files)
}

// holdFiles makes the files that outlive a worker.
func holdFiles(t testing.TB, serve control.Serve) []*os.File {
	t.Helper()
	var files []*os.File
	for range 2 {
		f, err := hostcopy.CreateFile(serve.ArenaSize, serve.SwapDir, false)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	f, err := CreateJournal()
	if err != nil {
		t.Fatal(err)
	}
	return append(files, f)
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// duplicates are descriptors for a worker of its own.
func duplicates(t testing.TB, files []*os.File) []*os.File {
	t.Helper()
	var all []*os.File
	for _, f := range files {
		fd, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, os.NewFile(uintptr(fd), f.Name()))
	}
	return all
}

// employ gives the client a worker, and another one each time that it dies.
func (c *client) employ() {
	w := c.worker(false)
	c.daemon.begin()
	go func() {
		for {
			err := live(w)
			if !errors.Is(err, errKilled) {
				c.ended <- err
				return
			}
			c.died.Add(1)
			c.daemon.forget()
			c.mu.Lock()
			over := c.over
			if !over {
				w = c.worker(true)
				c.daemon.begin()
			}
			c.mu.Unlock()
			if over {
				c.ended <- nil
				return
			}
		}
	}()
}

// worker makes a worker for the client.
func (c *client) worker(resume bool) *worker {
	t := c.t
	own, child, err := control.Pair()
	if err != nil {
		t.Error(err)
	}
	conn, err := control.OpenWorkerEnd(child)
	if err != nil {
		t.Error(err)
	}
	child.Close()
	o, serve := c.daemon.o, c.serve
	serve.Resume, serve.Tries = resume, int(c.died.Load())
	c.daemon.mu.Lock()
	serve.Lease = c.daemon.lease
	c.daemon.mu.Unlock()
	files := duplicates(t, c.files)
	for range serve.Devices {
		files = append(files, nil)
	}
	if serve.Pace != nil {
		files = append(files, duplicates(t, []*os.File{o.page})...)
	}
	s, err := newWorker(conn, serve, files, c.daemon.open, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Error(err)
		panic(err)
	}
	s.exit = func() {
		if o.rebuilds && s.ctx.Err() == nil { // the daemon has not ended
			panic(errKilled)
		}
	}
	if o.saves != nil {
		s.between = func() { saveAndRestore(t, s, o.saves) }
	}
	if o.dies == nil && c.serve.Recover {
		s.ops.dies = func() bool { return c.doom.Load() > 0 && c.doom.Add(-1) == 0 }
	}
	if o.dies != nil {
		s.ops.dies = func() bool {
			// What streams do after a function that has not returned cannot be stopped
			// in this process.
			return s.hosts.outstanding() == 0 && s.core.Outstanding() == 0 && (!c.revived || s.keeper.Valid()) && o.dies.IntN(o.lives) == 0
		}
	}
	if o.killed != nil {
		s.ops.dies = o.killed
	}
	if o.told != nil {
		s.told.Overhear(func() { o.told(s) })
	}
	if o.employed != nil {
		o.employed(s)
	}
	c.daemon.connect(own)
	return s
}

// live runs a worker to its end, or death.
func live(w *worker) (err error) {
	defer func() {
		if killed := recover(); killed == errKilled {
			err = errKilled
			w.abort()
		} else if killed != nil {
			panic(killed)
		}
	}()
	err = w.run()
	w.close()
	return err
}

// abort ends a worker as if its process had been killed.
func (w *worker) abort() {
	w.stop()
	w.mail.line.Close()
	for place := range w.contexts.open {
		w.opener.close(place)
	}
	w.others.Wait()
	w.pace.Close()
	w.keeper.Journal().Unmap()
	w.host.Close()
	w.shared.Unmap()
}

// saveAndRestore puts in the place of a client what its saved bytes say.
func saveAndRestore(t testing.TB, w *worker, chance *rand.Rand) {
	if chance.IntN(8) > 0 {
		return
	}
	data, err := w.core.Save()
	if err != nil {
		t.Error(err)
		return
	}
	core, err := clientcore.Restore(data, func(h wire.Header) ([]byte, error) { return w.shared.Data(h.Data, h.Length) })
	if err != nil {
		t.Error(err)
		return
	}
	w.core = core
}

// daemon is one to a single worker. It keeps account of what it lends, and fails
// the test if more is taken.
type daemon struct {
	t       testing.TB
	o       options
	control *control.DaemonEnd
	devices []*soft.Device
	ended   chan struct{}

	mu       sync.Mutex
	changed  *sync.Cond
	heard    []control.ToDaemon
	forgets  bool               // heard is not kept
	lost     bool               // the worker was told that a device is gone
	counts   map[string]int     // by kind
	answers  []control.ToDaemon // to orders
	bound    int                // the device that is lent; -1 for none
	lease    uint64             // its number
	granted  uint64
	revoking bool // the lease is wanted back
	keptOn   int
	kept     uint64
	wants    *control.Want // to be granted when what is kept was given back
	chance   *rand.Rand    // decides; nil: the options do
	silent   func()        // instead of answering a want; nil: not
	loan     uint64        // the number of the last one
	loans    map[int]loan  // of further devices
}

// loan is a device that was lent beside that of the lease.
type loan struct{ number, memory uint64 }

func newDaemon(t testing.TB, o options) *daemon {
	d := &daemon{t: t, o: o, ended: make(chan struct{}), counts: map[string]int{}, loans: map[int]loan{}, bound: -1, chance: o.chance, forgets: o.chance != nil}
	d.changed = sync.NewCond(&d.mu)
	for _, p := range o.devices {
		var o soft.Options
		if p.Rate > 0 {
			o.Clock = soft.SystemClock() // without a clock there is no rate
		}
		dev, err := soft.New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		d.devices = append(d.devices, dev)
	}
	return d
}

// connect is about to listen to another worker.
func (d *daemon) connect(own *control.DaemonEnd) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.control, d.ended = own, make(chan struct{})
	d.changed.Broadcast()
}

// begin listens to the worker.
func (d *daemon) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	go d.serve(d.control, d.ended)
}

// end is the connection to the worker.
func (d *daemon) end() *control.DaemonEnd {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.control
}

// forget takes back what a worker had that has died.
func (d *daemon) forget() {
	d.mu.Lock()
	end, ended := d.control, d.ended
	d.mu.Unlock()
	end.Close()
	<-ended
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bound, d.kept, d.wants, d.revoking = -1, 0, nil, false
	clear(d.loans)
}

// open gives the worker a device that is looked after.
func (d *daemon) open(c control.DeviceConfig, _ *os.File) (device.Device, error) {
	for i, p := range d.o.devices {
		if p.Name == c.Name {
			checked := &checkedDevice{d.devices[i], d, i}
			if d.o.replays || d.o.wrap != nil {
				return checked, nil
			}
			if d.o.graphs != nil {
				return &graphingDevice{&checkedPlacer{checked}, d.o.graphs}, nil
			}
			return &checkedPlacer{checked}, nil
		}
	}
	return nil, device.ErrNotFound
}

// checkedPlacer is a checkedDevice that can put variables at given addresses.
type checkedPlacer struct {
	*checkedDevice
}

func (d *checkedPlacer) Can() *device.DeviceCan {
	can := *d.checkedDevice.Can()
	can.LoadAt = d.loadAt
	return &can
}

func (d *checkedPlacer) loadAt(c device.Context, image []byte, globals []device.Global) (device.Module, error) {
	inner := c.(*checkedContext).Context
	m, err := d.Device.Can().LoadAt(inner, image, globals)
	d.daemon.check(d.index, inner, "loading a module again")
	return m, err
}

type checkedDevice struct {
	device.Device
	daemon *daemon
	index  int
}

func (d *checkedDevice) Can() *device.DeviceCan {
	return &device.DeviceCan{Inspect: d.Device.Can().Inspect}
}

func (d *checkedDevice) Info() device.Info {
	info := d.Device.Info()
	info.CallsAlone = d.daemon.o.alone
	return info
}

func (d *checkedDevice) Open(c device.Config) (device.Context, error) {
	inner, err := d.Device.Open(c)
	if err != nil {
		return nil, err
	}
	if d.daemon.o.wrap != nil {
		inner = d.daemon.o.wrap(d.Info().Name, inner)
	}
	d.daemon.check(d.index, inner, "opening a context")
	return &checkedContext{inner, d}, nil
}

type checkedContext struct {
	device.Context
	device *checkedDevice
}

func (c *checkedContext) Map(addr, size uint64) error {
	err := c.Context.Map(addr, size)
	c.device.daemon.check(c.device.index, c.Context, "mapping memory")
	return err
}

func (c *checkedContext) Load(image []byte) (device.Module, error) {
	m, err := c.Context.Load(image)
	c.device.daemon.check(c.device.index, c.Context, "loading a module")
	return m, err
}

// check finds out whether more of a device is taken than was lent.
func (d *daemon) check(index int, c device.Context, what string) {
	free, total, err := c.Memory()
	if err != nil || d.o.lenient {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var lent uint64
	if d.bound == index {
		lent = d.granted
	} else if d.bound < 0 && d.keptOn == index {
		lent = d.kept
	}
	lent += d.loans[index].memory
	if total-free > lent {
		d.t.Errorf("%s: %d bytes are taken of device %d, where %d were lent", what, total-free, index, lent)
	}
}

// serve answers the worker.
func (d *daemon) serve(end *control.DaemonEnd, ended chan struct{}) {
	defer close(ended)
	for {
		m, err := end.Receive()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.counts[m.Kind()]++
		switch m.(type) {
		case control.Checkpointed, control.Restored:
			d.answers = append(d.answers, m)
		}
		if !d.forgets {
			d.heard = append(d.heard, m)
		}
		d.changed.Broadcast()
		d.take(m)
		d.mu.Unlock()
	}
}

func (d *daemon) say(m control.ToWorker) { _ = d.control.Send(m) } // the worker may have ended

func (d *daemon) take(said control.ToDaemon) {
	switch m := said.(type) {
	case control.Want:
		if d.silent != nil {
			d.silent()
			return
		}
		if d.bound >= 0 && d.lost { // asked for anew, as a device was lost; it crossed the grant
			d.say(control.Deny{Reason: "bound already"})
			return
		}
		if d.bound >= 0 {
			d.t.Errorf("a device is wanted while device %d is lent", d.bound)
		}
		dev, memory := d.place(m)
		if d.kept > 0 && dev != d.keptOn {
			d.wants = &m
			d.say(control.Revoke{Reason: "move"})
			return
		}
		d.answer(m, dev, memory)
	case control.Grow:
		if d.bound < 0 || d.revoking {
			return // it crossed a revocation, which is the answer
		}
		dev, memory := d.place(control.Want{Memory: m.Memory, Pinned: d.bound})
		if dev != d.bound {
			memory = 0
		}
		if memory < m.Memory {
			d.say(control.Deny{Lease: d.lease, Reason: "too much"})
			return
		}
		d.granted = memory
		d.say(control.Grant{Lease: d.lease, Device: dev, Memory: memory})
	case control.Released:
		if m.Lease < d.lease {
			return
		}
		if d.bound >= 0 {
			d.keptOn = d.bound
		}
		d.bound, d.kept, d.revoking = -1, m.Keeps, false
		d.given()
		if w := d.wants; w != nil && d.kept == 0 {
			d.wants = nil
			dev, memory := d.place(*w)
			d.answer(*w, dev, memory)
		}
	case control.Failed:
		if m.Lease < d.lease {
			return
		}
		d.bound, d.kept, d.wants, d.revoking = -1, 0, nil, false
		d.given()
	case control.WantFurther:
		d.lend(m)
	case control.ReleasedFurther:
		if d.loans[m.Device].number == m.Loan {
			delete(d.loans, m.Device)
		}
	case control.Commit:
		d.say(control.Committed{Bytes: m.Bytes, Granted: m.Bytes <= d.o.swapRoom})
	}
}

// lend answers the question for a further device, or for more of one: with no, now and then, where
// chance decides.
func (d *daemon) lend(m control.WantFurther) {
	memory := m.Memory
	if d.chance != nil {
		size := d.o.devices[m.Device].Memory
		if d.chance.IntN(4) == 0 || memory > size {
			d.say(control.DenyFurther{Device: m.Device})
			return
		}
		memory += 2 * mib * d.chance.Uint64N((size-memory)/(2*mib)+1)
	}
	l := d.loans[m.Device]
	if l.number == 0 {
		d.loan++
		l.number = d.loan
	}
	l.memory = max(l.memory, memory)
	d.loans[m.Device] = l
	d.say(control.GrantFurther{Device: m.Device, Memory: l.memory, Loan: l.number})
}

// recall wants a further device back, if one is lent.
func (d *daemon) recall(device int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, ok := d.loans[device]; ok {
		d.say(control.RevokeFurther{Device: device, Loan: l.number, Reason: "sync"})
	}
}

// given checks that what the worker says it gave back is free.
func (d *daemon) given() {
	if d.o.lenient {
		return
	}
	for i, dev := range d.devices {
		c, err := dev.Open(device.Config{Arena: device.Arena{Base: testBase, Size: 2 * mib}})
		if err != nil {
			d.t.Error(err)
			return
		}
		free, total, _ := c.Memory()
		c.Close()
		if d.loans[i].number > 0 {
			continue
		}
		if lent := d.kept; total-free > lent || total > free && i != d.keptOn {
			d.t.Errorf("%d bytes are taken of device %d, of which %d are said to be kept", total-free, i, lent)
		}
	}
}

// place decides which device to lend, and how much of it.
func (d *daemon) place(m control.Want) (dev int, memory uint64) {
	if d.o.grant != nil {
		return d.o.grant(m)
	}
	if d.chance == nil {
		return 0, m.Memory
	}
	if d.bound >= 0 { // it grows
		if size := d.o.devices[d.bound].Memory; m.Memory <= size && d.chance.IntN(3) > 0 {
			return d.bound, m.Memory + 2*mib*d.chance.Uint64N((size-m.Memory)/(2*mib)+1)
		}
		return d.bound, 0
	}
	var fit []int
	for i, p := range d.o.devices[:len(d.o.devices)-d.o.later] {
		if m.Memory <= p.Memory && (m.Pinned < 0 || m.Pinned == i) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return 0, 0
	}
	dev = fit[d.chance.IntN(len(fit))]
	return dev, m.Memory + 2*mib*d.chance.Uint64N((d.o.devices[dev].Memory-m.Memory)/(2*mib)+1)
}

func (d *daemon) answer(m control.Want, dev int, memory uint64) {
	if memory < m.Memory {
		d.say(control.Deny{Reason: "too much"})
		return
	}
	d.lease++
	d.bound, d.granted, d.kept = dev, memory, 0
	d.say(control.Grant{Lease: d.lease, Device: dev, Memory: memory})
}

// revoke wants back what is lent or kept.
func (d *daemon) revoke(reason string) { d.revokeBut(reason, 0) }

// revokeBut is revoke of all but some bytes.
func (d *daemon) revokeBut(reason string, keep uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revoking = d.bound >= 0
	d.say(control.Revoke{Reason: reason, Keep: keep})
}

// hear waits until the worker has said something n times.
func hear[M control.ToDaemon](c *client, n int) M {
	d := c.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		count := 0
		for _, m := range d.heard {
			if m, ok := m.(M); ok {
				if count++; count == n {
					return m
				}
			}
		}
		d.changed.Wait()
	}
}

// said returns how often the worker has said something.
func said[M control.ToDaemon](c *client) int {
	var m M
	c.daemon.mu.Lock()
	defer c.daemon.mu.Unlock()
	return c.daemon.counts[m.Kind()]
}

// tell lets the daemon say something.
func (c *client) tell(m control.ToWorker) {
	c.t.Helper()
	if _, ok := m.(control.Lost); ok {
		c.daemon.mu.Lock()
		c.daemon.lost = true
		c.daemon.mu.Unlock()
	}
	if err := c.daemon.control.Send(m); err != nil {
		c.t.Fatal(err)
	}
}

// revoke takes the lease back, and waits for that.
func (c *client) revoke(reason string) {
	c.t.Helper()
	n := said[control.Released](c) + 1
	c.daemon.revoke(reason)
	hear[control.Released](c, n)
}

func (c *client) call(m wire.Message, reply interface{ Decode([]byte) error }) int32 {
	c.t.Helper()
	r, err := c.p.Call(m, reply)
	if err != nil {
		c.t.Fatalf("%v: %v", m.Op(), err)
	}
	return r
}

func (c *client) must(m wire.Message, reply interface{ Decode([]byte) error }) {
	c.t.Helper()
	if r := c.call(m, reply); r != 0 {
		c.t.Fatalf("%v answered %d", m.Op(), r)
	}
}

func (c *client) post(m wire.Message) {
	c.t.Helper()
	if err := c.p.Post(m); err != nil {
		c.t.Fatalf("%v: %v", m.Op(), err)
	}
}

// alloc returns new memory.
func (c *client) alloc(size uint64) uint64 {
	c.t.Helper()
	addr := testBase + c.arenaAt
	c.arenaAt += (size + 2*mib - 1) &^ (2*mib - 1)
	c.must(&wire.MemAlloc{Addr: addr, Size: size}, nil)
	return addr
}

func (c *client) in(addr uint64, data []byte) {
	c.t.Helper()
	for off := 0; off < len(data); off += mib {
		piece := data[off:min(off+mib, len(data))]
		if err := c.p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, (&wire.CopyIn{Dst: addr + uint64(off)}).Append(nil), piece); err != nil {
			c.t.Fatal(err)
		}
	}
}

// bounce is where this program's data come back to.
func (c *client) bounce() uint64 { return c.shared.Geometry().Staging }

func (c *client) out(addr, size uint64) []byte {
	c.t.Helper()
	return c.outOn(0, addr, size)
}

// outOn is out in a stream.
func (c *client) outOn(stream uint32, addr, size uint64) []byte {
	c.t.Helper()
	var all []byte
	for off := uint64(0); off < size; off += mib {
		n := min(size-off, mib)
		pending, err := c.p.Start(wire.Header{Op: wire.OpCopyOut, Data: c.bounce(), Length: n}, (&wire.CopyOut{Src: addr + off, Stream: stream}).Append(nil))
		if err != nil {
			c.t.Fatal(err)
		}
		if r, _, err := pending.Wait(); r != 0 || err != nil {
			c.t.Fatalf("copy_out: %d %v", r, err)
		}
		data, _ := c.shared.Data(c.bounce(), n)
		all = append(all, data...)
	}
	return all
}

// load loads an image as module 1 and returns the number of a kernel.
func (c *client) load(module uint32, image []byte, kernel string) uint32 {
	c.t.Helper()
	for piece := range slices.Chunk(image, mib) {
		if err := c.p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{Module: module}).Append(nil), piece); err != nil {
			c.t.Fatal(err)
		}
	}
	c.must(&wire.ModuleLoad{Module: module}, &wire.ModuleLoadReply{})
	function := module * 100
	pending, err := c.p.Start(wire.Header{Op: wire.OpModuleFunction, Data: c.bounce(), Length: 4096}, (&wire.ModuleFunction{Module: module, Function: function, Name: kernel}).Append(nil))
	if err != nil {
		c.t.Fatal(err)
	}
	if r, _, err := pending.Wait(); r != 0 || err != nil {
		c.t.Fatalf("module_function %s: %d %v", kernel, r, err)
	}
	return function
}

func kernelFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../ptx/testdata/kernels/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func params(values ...any) []byte {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			for len(b)%8 != 0 {
				b = append(b, 0)
			}
			b = binary.LittleEndian.AppendUint64(b, v)
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

func floats(n int, f func(i int) float32) []byte {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f(i)))
	}
	return b
}
