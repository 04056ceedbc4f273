package vgpu_test

import (
	"cmp"
	"container/heap"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/vgpu"
	"muster/vmm"
	"muster/wire/control"
)

// A fleet is a whole node in virtual time, in one goroutine: the dispatcher,
// thousands of clients (node/clientcore) with the programs that use them, and
// devices whose memory is counted and whose kernels take time. Everything that
// happens is drawn from a seed. Devices are lost, drained, resumed, removed and
// brought back, clients are moved by hand, kernels fault, programs and workers
// are killed, the daemon ends and another one adopts the clients, and all
// messages are late, so that they cross.
//
// It checks after each event that no device has more memory in use than it has,
// nor more promised; that nobody waits longer than the bound; that drained
// devices empty out; that every client can be saved and restored; and, by what
// programs read back, that no byte is lost or old.

var (
	fleetSeed  = flag.Uint64("fleet.seed", 0, "the seed of the first fleet; 0 for the usual ones")
	fleetSeeds = flag.Uint64("fleet.seeds", 6, "how many small fleets are played")
)

// fleetConfig says how large a fleet is, and what happens to it.
type fleetConfig struct {
	seed    uint64
	clients int
	devices int
	faults  bool // devices are lost, kernels fault, workers are killed; else no program may see an error
	turns   bool // there is a quantum, and slots for all, so that clients come while others still leave
	saves   int  // one event of so many is followed by a save and a restore
}

func TestFleet(t *testing.T) {
	for i := range *fleetSeeds {
		seed := max(*fleetSeed, 1) + i
		playFleets(t, fleetConfig{seed: seed, clients: 60, devices: 5, faults: seed%2 == 0, saves: need.Rounds(25, 10)})
	}
}

// Clients that get the memory of others bit by bit, while these leave.
func TestFleetOfTurns(t *testing.T) {
	early, seeds := 0, max(*fleetSeeds/2, 1)
	for i := range seeds {
		seed := max(*fleetSeed, 11) + i
		early += playFleets(t, fleetConfig{seed: seed, clients: 60, devices: 3, faults: seed%2 == 0, turns: true, saves: need.Rounds(25, 10)})
	}
	if early == 0 && seeds > 1 { // with some seeds nobody gets memory so
		t.Errorf("in %d fleets nobody came while another left", seeds)
	}
}

func TestLargeFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	clients, devices, saves := 300, 6, 30
	if os.Getenv("MUSTER_SOAK") != "" {
		clients, devices, saves = 4000, 48, 400
	}
	for i := range uint64(2) {
		seed := max(*fleetSeed, 103) + i
		playFleets(t, fleetConfig{seed: seed, clients: clients, devices: devices, faults: seed%2 == 0, saves: saves})
	}
}

// The same seed gives the same decisions.
func TestFleetIsDeterministic(t *testing.T) {
	cfg := fleetConfig{seed: 7, clients: 40, devices: 4, faults: true, saves: need.Rounds(20, 5)}
	if a, b := playFleet(t, cfg), playFleet(t, cfg); a.decided.Sum64() != b.decided.Sum64() {
		t.Error("two runs with one seed differ")
	}
}

func playFleets(t *testing.T, cfg fleetConfig) (early int) {
	t.Run(fmt.Sprintf("%d clients, seed %d", cfg.clients, cfg.seed), func(t *testing.T) {
		f := playFleet(t, cfg)
		t.Logf("%v, %d events, %d programs, longest wait %v, longest drain %v, %d restarts, %d saves, moves %+v, %d by hand asked, %d drains, %d losses, %d daemons, %d early grants",
			f.now, f.events, f.finished, f.longest, f.longestDrain, f.restarts, f.saved, f.moved, f.moves, f.drains, f.losses, 1+f.handovers, f.early)
		if f.moves == 0 || f.drains == 0 || f.saved == 0 || (!cfg.faults && f.restarts+f.losses > 0) {
			t.Errorf("seed %d: not everything happened, or something that should not", cfg.seed)
		}
		early = f.early
	})
	return early
}

// fleet is the node, and the daemon's loop around the dispatcher.
type fleet struct {
	t        *testing.T
	cfg      fleetConfig
	r        *rand.Rand
	now      time.Duration
	agenda   agenda
	order    uint64
	core     *vgpu.Core
	settings vgpu.Config   // of it
	ticking  time.Duration // when the next Tick is due; 0: never
	devices  []*gpu
	clients  map[vgpu.ClientID]*worker
	lastID   vgpu.ClientID
	decided  interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}

	maxWait       time.Duration // that a client may wait for a device that is there
	every         time.Duration // something unusual happens
	calm          bool          // nothing unusual happens any more: everything must come to its end
	events        int
	finished      int // programs
	restarts      int // of programs that saw an error
	saved         int
	moves, drains int // that were asked for
	moved         vgpu.Moves
	losses        int
	handovers     int
	early         int           // grants of a part of what a client wants
	longest       time.Duration // that somebody waited
	longestDrain  time.Duration
}

// maxDrainInFleet is how long a drained device may be in use: all kernels of four
// clients may have to end, and their memory is copied.
const maxDrainInFleet = 600 * time.Millisecond

// agenda is what is to happen, by time.
type agenda []*happening

type happening struct {
	at    time.Duration
	order uint64
	do    func()
}

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(a[i].at, a[j].at), cmp.Compare(a[i].order, a[j].order)) < 0
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*happening)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	h := (*a)[last]
	*a = (*a)[:last]
	return h
}

// at has something happen at a time.
func (f *fleet) at(t time.Duration, do func()) {
	f.order++
	heap.Push(&f.agenda, &happening{max(t, f.now), f.order, do})
}

func (f *fleet) after(d time.Duration, do func()) { f.at(f.now+d, do) }

// between draws a time.
func (f *fleet) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.r.Int64N(int64(most-least)+1))
}

func (f *fleet) fatalf(format string, args ...any) {
	f.t.Helper()
	f.t.Fatalf("seed %d (-run Fleet -fleet.seed=%d), at %v: %s", f.cfg.seed, f.cfg.seed, f.now, fmt.Sprintf(format, args...))
}

func playFleet(t *testing.T, cfg fleetConfig) *fleet {
	f := &fleet{t: t, cfg: cfg, r: rand.New(rand.NewPCG(cfg.seed, 1)), clients: map[vgpu.ClientID]*worker{}, decided: fnv.New64a()}
	f.makeDevices()
	// A program takes about 40 ms of a device. In two fleets of three they come faster
	// than they are served; in the third, devices fall idle and clients move there.
	arrivals := time.Duration(cfg.clients/cfg.devices) * 25 * time.Millisecond
	if cfg.seed%3 == 0 {
		arrivals *= 4
	}
	for range cfg.clients {
		f.at(f.between(0, arrivals), func() { f.begin(newProgram(f)) })
	}
	f.maxWait = 2*arrivals + 3*time.Second // the queue is longest when all have come
	f.every = 2 * arrivals / time.Duration(100+cfg.clients/4)
	f.after(f.every, f.trouble)
	f.at(3*arrivals, func() { f.calm = true })
	for f.finished < cfg.clients {
		if f.agenda.Len() == 0 || f.now > 10*time.Minute {
			f.fatalf("%d of %d programs have not ended", cfg.clients-f.finished, cfg.clients)
		}
		h := heap.Pop(&f.agenda).(*happening)
		f.now = h.at
		f.events++
		h.do()
	}
	f.addMoves(f.core.View().PastMoves)
	return f
}

// makeDevices makes devices of different speeds and sizes. The last one comes
// later (Added). Clients know of all.
func (f *fleet) makeDevices() {
	var known []vgpu.Device
	for i := range f.cfg.devices {
		d := &gpu{id: i, slots: vgpu.DefaultSlots, speed: float64(1 + f.r.IntN(4)), memory: chunkSize * uint64(32+f.r.IntN(64)), addresses: uint64(i % 3)}
		if f.cfg.turns {
			d.slots = 4 * vgpu.DefaultSlots
		}
		f.devices = append(f.devices, d)
		known = append(known, d.described())
	}
	last := len(known) - 1
	f.settings = vgpu.Config{
		Policy: vgpu.Policy(f.r.IntN(3)), MaxIdle: vgpu.DefaultMaxIdle, MaxWait: 500 * time.Millisecond,
		Migrate: true, MoveCost: 5 * time.Millisecond, MoveBandwidth: 1 << 30, SlotLimit: f.cfg.devices * 2,
		MoveStep: chunkSize * (f.cfg.seed % 4),
	}
	if f.cfg.turns {
		f.settings.Quantum, f.settings.SlotLimit, f.settings.MoveStep = 10*time.Millisecond, 0, chunkSize
	}
	f.dispatch(known[:last])
	f.after(f.between(0, time.Second/4), func() { f.tell(vgpu.Added{Device: known[last]}) })
}

// dispatch begins with a fresh dispatcher.
func (f *fleet) dispatch(devices []vgpu.Device) {
	f.settings.Devices = devices
	core, err := vgpu.New(f.settings)
	if err != nil {
		f.t.Fatal(err)
	}
	f.core, f.ticking = core, 0
}

// restart ends the daemon and starts another one, which finds devices and clients
// as they are. Messages that are under way arrive; who waits for an answer asks
// again.
func (f *fleet) restart() {
	f.handovers++
	old := f.core.View()
	f.addMoves(old.PastMoves)
	var devices []vgpu.Device
	for _, v := range old.Devices {
		devices = append(devices, f.devices[v.ID].described())
	}
	f.dispatch(devices)
	for _, v := range old.Devices {
		switch v.State {
		case vgpu.DeviceDraining, vgpu.DeviceDrained:
			f.tell(vgpu.Drain{Device: v.ID})
		case vgpu.DeviceLost, vgpu.DeviceRemoved:
			f.tell(vgpu.Lost{Device: v.ID})
		}
	}
	for _, v := range old.Clients {
		e := vgpu.Adopt{
			Client: v.ID, User: v.User, Weight: 1, Device: v.Device, Held: v.State == vgpu.Assigned, Lease: v.Grants, Pinned: f.clients[v.ID].want.Pinned,
			Kernels: v.Kernels, Busy: v.GPUTime, Waited: v.Waits, Preemptions: v.Preemptions, Moves: v.Moves,
		}
		if e.Held {
			e.Memory = v.Memory
		} else {
			e.Kept = v.Memory
		}
		f.tell(e)
	}
	for _, v := range old.Clients {
		switch w := f.clients[v.ID]; {
		case v.State == vgpu.Ready:
			f.tell(w.want)
		case v.Growing && w.coming > 0:
			f.tell(vgpu.Grow{Client: w.id, Need: w.coming})
		case v.Growing:
			f.tell(w.grow)
		}
	}
	f.changed()
}

// addMoves counts moves of clients that have gone.
func (f *fleet) addMoves(m vgpu.Moves) {
	f.moved.Auto += m.Auto
	f.moved.ByHand += m.ByHand
	f.moved.Drain += m.Drain
}

// begin starts a program: a client with a worker.
func (f *fleet) begin(p *program) {
	f.lastID++
	w := newWorker(f, f.lastID, p)
	f.clients[w.id] = w
	f.tell(vgpu.Attach{Client: w.id, User: fmt.Sprint("user", f.r.IntN(4)), Weight: 1 + f.r.IntN(3)})
	p.start(w)
}

// end ends a client whose worker has let go of everything.
func (f *fleet) end(w *worker) {
	w.dead = true
	for _, x := range w.contexts {
		x.free()
	}
	f.after(f.between(0, 5*time.Millisecond), func() {
		delete(f.clients, w.id)
		f.tell(vgpu.Detach{Client: w.id})
	})
}

// tell tells the dispatcher an event, performs what it decides, and checks it.
func (f *fleet) tell(e vgpu.Event) {
	effects := f.core.Step(f.now, e)
	line, err := vgpu.AppendEntry(nil, vgpu.Entry{Now: f.now, Event: e, Effects: effects})
	if err != nil {
		f.t.Fatal(err)
	}
	f.decided.Write(line)
	for _, e := range effects {
		f.perform(e)
	}
	for i := range f.devices {
		d, ok := f.core.Device(vgpu.DeviceID(i))
		if ok && (d.Taken > d.Memory || d.Used > d.Slots) {
			f.fatalf("after %+v device %d has %d of %d bytes and %d of %d slots taken", e, i, d.Taken, d.Memory, d.Used, d.Slots)
		}
	}
	if at, ok := f.core.Next(); ok && (f.ticking == 0 || at < f.ticking) {
		f.ticking = at
		f.at(at, func() {
			if f.ticking == at {
				f.ticking = 0
				f.tell(vgpu.Tick{})
			}
		})
	}
}

// perform tells a worker what was decided, as the daemon does.
func (f *fleet) perform(e vgpu.Effect) {
	w := f.clients[e.Client]
	if w == nil || w.dead {
		return
	}
	switch e.Kind {
	case vgpu.Grant:
		f.waited(w)
		if d, _ := f.core.Device(e.Device); d.State != vgpu.DeviceUp {
			f.fatalf("%v, which is %v", e, d.State)
		}
		w.granted = uint64(e.Lease)
		if w.coming = e.Coming; e.Coming > 0 {
			f.early++
		}
		w.post(control.Grant{Lease: w.granted, Device: int(e.Device), Memory: e.Memory, Coming: e.Coming})
	case vgpu.Revoke:
		w.coming = 0
		w.post(control.Revoke{Reason: string(e.Reason), Keep: e.Keep, Step: e.Step})
	case vgpu.Gone:
		w.post(control.Lost{Device: int(e.Device), Reason: "it is lost"})
	case vgpu.Watch:
		w.post(control.Watch{On: e.On})
	case vgpu.Deny:
		f.waited(w)
		w.coming = 0
		m := control.Deny{Reason: string(e.Reason)}
		if v, ok := f.core.Client(w.id); ok && v.State == vgpu.Assigned {
			m.Lease = w.granted
		}
		w.post(m)
	}
}

// heard takes what a worker says, as the daemon does.
func (f *fleet) heard(w *worker, said control.ToDaemon) {
	if f.clients[w.id] != w || w.dead {
		return
	}
	switch m := said.(type) {
	case control.Want:
		if !w.waits {
			w.waits, w.waitsSince = true, f.now
		}
		w.want = vgpu.Want{Client: w.id, Need: m.Memory, Estimate: m.Estimate, Pinned: vgpu.DeviceID(m.Pinned)}
		f.tell(w.want)
		f.notePark(w)
	case control.Grow:
		w.grow = vgpu.Grow{Client: w.id, Need: m.Memory}
		f.tell(w.grow)
	case control.Released:
		if m.Lease >= w.granted {
			f.tell(vgpu.Released{Client: w.id, Keeps: m.Keeps})
		}
	case control.Freed:
		if m.Lease == w.granted {
			f.tell(vgpu.Freed{Client: w.id, Left: m.Left})
		}
	case control.Busy:
		f.tell(vgpu.Busy{Client: w.id})
	case control.Idle:
		f.tell(vgpu.Idle{Client: w.id, For: m.For})
	case control.SyncPoint:
		f.tell(vgpu.SyncPoint{Client: w.id})
	case control.Ran:
		f.tell(vgpu.Ran{Client: w.id, Kernels: m.Kernels, Busy: m.Busy})
	case control.Failed:
		if m.Lease >= w.granted {
			w.waits = false
			f.tell(vgpu.Faulted{Client: w.id})
		}
	case control.Commit:
		w.post(control.Committed{Bytes: m.Bytes, Granted: true})
	}
}

// waited ends a wait for a device, and checks how long it was. Time in which all
// devices that could serve the client were drained or lost does not count.
func (f *fleet) waited(w *worker) {
	if !w.waits {
		return
	}
	f.checkWait(w)
	w.waits = false
}

func (f *fleet) checkWait(w *worker) {
	if w.parked {
		return
	}
	long := f.now - w.waitsSince
	f.longest = max(f.longest, long)
	if long > f.maxWait {
		x, _ := f.core.Client(w.id)
		f.fatalf("client %d has waited for %v: %+v", w.id, long, x)
	}
}

// notePark notes whether a client waits for a device that may come back.
func (f *fleet) notePark(w *worker) {
	if !w.waits {
		return
	}
	x, _ := f.core.Client(w.id)
	if w.parked && !x.Parked {
		w.waitsSince = f.now
	}
	w.parked = x.Parked
}

// byNumber lists the clients.
func (f *fleet) byNumber() []*worker {
	all := make([]*worker, 0, len(f.clients))
	for _, w := range f.clients {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *worker) int { return cmp.Compare(a.id, b.id) })
	return all
}

// changed looks at all who wait, after a device came or went.
func (f *fleet) changed() {
	for _, w := range f.byNumber() {
		f.notePark(w)
		if w.waits {
			f.checkWait(w)
		}
	}
}

// trouble has something unusual happen, again and again.
func (f *fleet) trouble() {
	if f.calm {
		return
	}
	d := f.devices[f.r.IntN(len(f.devices))]
	what := f.r.IntN(100)
	switch {
	case what < 50:
		f.move()
	case what < 75:
		f.drain(d)
	case what < 80 && f.cfg.faults:
		f.lose(d)
	case what < 90 && f.cfg.faults:
		f.kill()
	case what >= 95:
		f.restart()
	}
	f.after(f.between(0, 2*f.every), f.trouble)
}

// move moves a client by hand.
func (f *fleet) move() {
	if all := f.byNumber(); len(all) > 0 {
		e := vgpu.Move{Client: all[f.r.IntN(len(all))].id, Device: vgpu.DeviceID(f.r.IntN(len(f.devices)))}
		if f.core.Refuses(e) == nil {
			f.moves++
			f.tell(e)
		}
	}
}

// drain drains a device, and resumes it later; sometimes it is removed for a
// while if it is empty by then.
func (f *fleet) drain(d *gpu) {
	id := vgpu.DeviceID(d.id)
	if v, ok := f.core.Device(id); !ok || v.State != vgpu.DeviceUp {
		return
	}
	f.drains++
	began, gen := f.now, d.generation
	f.tell(vgpu.Drain{Device: id})
	f.changed()
	f.watchDrain(d, began, gen)
	f.after(f.between(10*time.Millisecond, 2*maxDrainInFleet), func() {
		if f.cfg.faults && f.r.IntN(4) == 0 && f.core.Refuses(vgpu.Remove{Device: id}) == nil {
			f.tell(vgpu.Remove{Device: id})
			f.after(f.between(0, 200*time.Millisecond), func() { f.bringBack(d) })
		} else {
			f.tell(vgpu.Resume{Device: id})
		}
		f.changed()
	})
}

// watchDrain checks that a drained device is empty soon.
func (f *fleet) watchDrain(d *gpu, began time.Duration, generation int) {
	f.after(5*time.Millisecond, func() {
		v, _ := f.core.Device(vgpu.DeviceID(d.id))
		switch {
		case d.generation != generation || v.State != vgpu.DeviceDraining:
			if v.State == vgpu.DeviceDrained {
				f.longestDrain = max(f.longestDrain, f.now-began)
			}
		case f.now-began > maxDrainInFleet:
			f.fatalf("device %d was drained %v ago, and is still in use: %+v", d.id, f.now-began, v)
		default:
			f.watchDrain(d, began, generation)
		}
	})
}

// lose loses a device. The daemon hears of it a little later.
func (f *fleet) lose(d *gpu) {
	if v, ok := f.core.Device(vgpu.DeviceID(d.id)); !ok || v.State == vgpu.DeviceLost || v.State == vgpu.DeviceRemoved || d.gone {
		return
	}
	f.losses++
	d.lose()
	lost := d.generation
	f.after(f.between(0, 20*time.Millisecond), func() {
		f.tell(vgpu.Lost{Device: vgpu.DeviceID(d.id)})
		f.changed()
		f.after(f.between(0, 500*time.Millisecond), func() { f.bringBack(d) })
		f.after(maxDrainInFleet, func() { f.checkAbandoned(d, lost) })
	})
}

// checkAbandoned checks that all who had a context on a device that was lost then
// were told, whether they had a lease or not.
func (f *fleet) checkAbandoned(d *gpu, lost int) {
	for _, w := range f.byNumber() {
		if x := w.contexts[vmm.Device(d.id)]; x != nil && x.generation < lost && !w.busy && !w.dead {
			f.fatalf("client %d still has a context on device %d, which was lost under it", w.id, d.id)
		}
	}
}

// bringBack brings a device back that was lost or removed, perhaps as another one.
func (f *fleet) bringBack(d *gpu) {
	if v, _ := f.core.Device(vgpu.DeviceID(d.id)); v.State != vgpu.DeviceLost && v.State != vgpu.DeviceRemoved {
		return // it was removed and lost, and is back already
	}
	d.gone = false
	d.speed = float64(1 + f.r.IntN(4))
	if f.r.IntN(2) == 0 {
		f.tell(vgpu.Returned{Device: vgpu.DeviceID(d.id), Is: d.described()})
	} else {
		f.tell(vgpu.Added{Device: d.described()})
	}
	f.changed()
}

// kill kills a worker or a program. The program is started again.
func (f *fleet) kill() {
	if all := f.byNumber(); len(all) > 0 {
		w := all[f.r.IntN(len(all))]
		if w.dead {
			return
		}
		f.restarts++
		f.end(w)
		f.after(f.between(0, 50*time.Millisecond), func() { f.begin(newProgram(f)) })
	}
}
