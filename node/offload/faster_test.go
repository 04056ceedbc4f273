package offload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/node/vgpu"
)

// plain is some nodes with GPUs of several speeds, each with its dispatcher, whose programs compute all the
// time. Programs move as the dispatchers say, and to other nodes as the cores here do.
type plain struct {
	t     *testing.T
	dice  *rand.Rand
	now   Time
	sites []*site
	due   []letter
	drawn int
	delay Time // the most that a message takes

	tasks []*task
	uses  int
}

// site is a node.
type site struct {
	id      int
	core    *Core
	gpus    *vgpu.Core
	speeds  []float64 // of its own GPUs
	loans   map[TicketID]*lentGPU
	tasks   map[vgpu.ClientID]*task // its own
	guests  map[vgpu.ClientID]*task // of others
	clients vgpu.ClientID
	talking map[PeerID]bool
	polls   Time
}

// lentGPU is a GPU that a site has of another.
type lentGPU struct {
	name    string
	lender  *site
	there   vgpu.DeviceID // its number at the lender
	ticket  Ticket
	device  vgpu.DeviceID // its number at the borrower; -1 until it is one
	leaving bool
}

// task is a program.
type task struct {
	site     *site
	from, to Time // when it is there
	memory   uint64

	client   vgpu.ClientID // 0 while it is not there
	device   vgpu.DeviceID // its own node's number; -1 while it has none
	lands    Time          // when its memory is there
	gpu      *lentGPU      // where it is a guest
	guest    vgpu.ClientID
	served   bool // as a guest
	progress float64
	moves    int
}

// theDistance is how fast a GPU of another node counts, theLoss what is true of that.
const (
	theDistance = 0.8
	theLoss     = 0.9
	tick        = 10 * time.Millisecond
)

func newPlain(t *testing.T, seed uint64, borrow bool, speeds [][]float64) *plain {
	w := &plain{t: t, dice: rand.New(rand.NewPCG(seed, 5)), delay: 20 * time.Millisecond}
	var names []PeerID
	for i := range speeds {
		names = append(names, name(i))
	}
	for i, of := range speeds {
		core, err := New(Config{Borrow: borrow, Lend: borrow, Seed: seed + uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		cfg := vgpu.Config{Migrate: true}
		for j, speed := range of {
			cfg.Devices = append(cfg.Devices, vgpu.Device{Name: fmt.Sprint("own", j), Speed: speed, Memory: 16 << 30})
		}
		gpus, err := vgpu.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{id: i, core: core, gpus: gpus, speeds: of, loans: map[TicketID]*lentGPU{}, tasks: map[vgpu.ClientID]*task{}, guests: map[vgpu.ClientID]*task{}, talking: map[PeerID]bool{}}
		w.sites = append(w.sites, s)
		core.Peers(0, names)
		core.IsSelf(names[i])
	}
	return w
}

// add has a program run on a site for a while.
func (w *plain) add(site int, from, to Time, memory uint64) *task {
	x := &task{site: w.sites[site], from: from, to: to, memory: memory, device: -1}
	w.tasks = append(w.tasks, x)
	return x
}

func (w *plain) after(d Time, f func()) { w.due = append(w.due, letter{w.now + d, f}) }

// step tells a site's dispatcher something, and does what it says.
func (w *plain) step(s *site, e vgpu.Event) {
	for _, f := range s.gpus.Step(w.now, e) {
		if x := s.tasks[f.Client]; x != nil {
			w.obey(x, f)
		} else if x := s.guests[f.Client]; x != nil {
			w.obeyAsGuest(s, x, f)
		}
	}
}

// half is how long one half of a move takes.
func (x *task) half() Time {
	return vgpu.DefaultMoveCost/2 + Time(float64(x.memory)/float64(vgpu.DefaultMoveBandwidth)*float64(time.Second))
}

func (w *plain) obey(x *task, f vgpu.Effect) {
	switch s := x.site; f.Kind {
	case vgpu.Grant:
		if x.device, x.lands = f.Device, w.now+x.half(); int(f.Device) < len(s.speeds) {
			return
		}
		for _, l := range s.loans {
			if l.device == f.Device {
				x.gpu = l
			}
		}
		w.after(0, func() { w.comesAsGuest(x) })
	case vgpu.Revoke:
		client := f.Client
		w.after(x.half(), func() {
			if x.client != client {
				return
			}
			x.moves++
			w.goes(x)
			w.step(s, vgpu.Released{Client: client})
			w.step(s, vgpu.Want{Client: client, Need: x.memory, Pinned: vgpu.AnyDevice})
		})
	case vgpu.Deny:
		w.t.Errorf("at %v: %v", w.now, f)
	}
}

// comesAsGuest has the lender serve a program.
func (w *plain) comesAsGuest(x *task) {
	l := x.gpu
	if l == nil || x.guest != 0 {
		return
	}
	s := l.lender
	s.clients++
	x.guest = s.clients
	s.guests[x.guest] = x
	w.step(s, vgpu.Attach{Client: x.guest, User: "guest", Weight: 1})
	w.step(s, vgpu.Want{Client: x.guest, Need: x.memory, Pinned: l.there})
}

// goes ends a program's use of its device.
func (w *plain) goes(x *task) {
	if x.gpu != nil && x.guest != 0 {
		delete(x.gpu.lender.guests, x.guest)
		w.step(x.gpu.lender, vgpu.Detach{Client: x.guest})
	}
	x.device, x.gpu, x.guest, x.served = -1, nil, 0, false
}

func (w *plain) obeyAsGuest(s *site, x *task, f vgpu.Effect) {
	switch guest := f.Client; f.Kind {
	case vgpu.Grant:
		x.served = true
	case vgpu.Revoke:
		x.served = false
		w.after(x.half(), func() {
			if s.guests[guest] == x {
				w.step(s, vgpu.Released{Client: guest})
				w.step(s, vgpu.Want{Client: guest, Need: x.memory, Pinned: x.gpu.there})
			}
		})
	}
}

// perform does what a site's core says.
func (w *plain) perform(s *site, effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Ask:
			w.ask(s, e.Peer)
		case Use:
			w.uses++
			l := &lentGPU{lender: w.sites[slices.IndexFunc(w.sites, func(s *site) bool { return name(s.id) == e.Peer })], there: vgpu.DeviceID(e.Ticket.Device), ticket: e.Ticket, device: -1}
			s.loans[e.Ticket.ID] = l
			w.after(w.delay, func() { w.comes(s, l) })
		case Leave:
			if l := s.loans[e.Ticket]; l.device >= 0 {
				w.step(s, vgpu.Drain{Device: l.device})
				l.leaving = true
			} else {
				l.leaving = true
			}
		}
	}
}

// comes makes a lent GPU one of the borrower's.
func (w *plain) comes(s *site, l *lentGPU) {
	for k := 0; l.name == ""; k++ {
		other := fmt.Sprintf("%d/%d/%d", l.lender.id, l.there, k)
		if !slices.ContainsFunc(s.lentGPUs(), func(o *lentGPU) bool { return o.name == other }) {
			l.name = other
		}
	}
	view := s.gpus.View()
	l.device = vgpu.DeviceID(len(view.Devices))
	for _, d := range view.Devices {
		if d.Name == l.name {
			l.device = d.ID
		}
	}
	is := vgpu.Device{Name: l.name, Elsewhere: true, Slots: l.ticket.Slots, Speed: l.ticket.Speed * theDistance, Memory: 16 << 30}
	if int(l.device) < len(view.Devices) {
		w.step(s, vgpu.Returned{Device: l.device, Is: is})
	} else {
		w.step(s, vgpu.Added{Device: is})
	}
	if l.leaving {
		w.step(s, vgpu.Drain{Device: l.device})
	}
}

// lentGPUs are those that a site has, in an order.
func (s *site) lentGPUs() (all []*lentGPU) {
	for _, l := range s.loans {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *lentGPU) int { return cmp.Compare(a.ticket.ID, b.ticket.ID) })
	return all
}

// ask has one site ask another.
func (w *plain) ask(s *site, id PeerID) {
	i := slices.IndexFunc(w.sites, func(o *site) bool { return name(o.id) == id })
	if to := w.sites[i]; to != s && !s.talking[id] {
		s.talking[id] = true
		q := s.core.Says(id)
		w.after(Time(w.dice.Int64N(int64(w.delay))), func() {
			w.look(to)
			w.drawn++
			a, effects := to.core.Asked(w.now, NodeID(name(s.id)), q, TicketID(fmt.Sprintf("t%06d", w.drawn)))
			w.perform(to, effects)
			w.after(Time(w.dice.Int64N(int64(w.delay))), func() {
				delete(s.talking, id)
				w.perform(s, s.core.Answered(w.now, id, a))
			})
		})
	}
}

// look tells a site's core how the site is.
func (w *plain) look(s *site) {
	view := s.gpus.View()
	var is Local
	for i, speed := range s.speeds {
		is.Devices = append(is.Devices, Device{Number: i, Slots: view.Devices[i].Slots, Used: view.Devices[i].Used + view.Devices[i].Promised, Speed: speed})
	}
	on, coming := map[vgpu.DeviceID]int{}, map[vgpu.DeviceID]int{}
	for _, v := range view.Clients {
		if s.guests[v.ID] != nil {
			if v.State == vgpu.Assigned {
				is.Devices[v.Device].Used--
				is.Devices[v.Device].Guests++
			}
			continue
		}
		is.Clients++
		if v.State == vgpu.Ready {
			is.Waiting++
			is.Pending++
		}
		if v.State == vgpu.Assigned {
			on[v.Device]++
		}
		if v.Target != vgpu.AnyDevice && (v.State == vgpu.Ready || v.State == vgpu.Assigned && v.Device != v.Target) {
			coming[v.Target]++
		}
	}
	for _, g := range s.gpus.Gains(func(id vgpu.ClientID) bool { return s.tasks[id] != nil }) {
		is.Gains = append(is.Gains, Gain{g.Speed / theDistance, g.Stay})
	}
	clients := map[TicketID]Clients{}
	for id, l := range s.loans {
		if l.device >= 0 {
			clients[id] = Clients{There: on[l.device], Coming: coming[l.device]}
		}
	}
	w.perform(s, s.core.Local(w.now, is, clients))
	for _, l := range s.lentGPUs() {
		if l.device >= 0 && l.leaving && view.Devices[l.device].State == vgpu.DeviceDrained {
			w.step(s, vgpu.Remove{Device: l.device})
			delete(s.loans, l.ticket.ID)
			w.perform(s, s.core.Left(w.now, l.ticket.ID))
		}
	}
}

// compute has all programs compute for a tick: those on a GPU share it.
func (w *plain) compute() {
	type gpu struct {
		*site
		number vgpu.DeviceID
	}
	at := func(x *task) (g gpu, part float64) {
		switch {
		case x.device < 0 || w.now < x.lands:
			return gpu{}, 0
		case x.gpu == nil:
			return gpu{x.site, x.device}, 1
		case x.served:
			return gpu{x.gpu.lender, x.gpu.there}, theLoss
		}
		return gpu{}, 0
	}
	share := map[gpu]int{}
	for _, x := range w.tasks {
		if g, part := at(x); part > 0 {
			share[g]++
		}
	}
	for _, x := range w.tasks {
		if g, part := at(x); part > 0 {
			x.progress += part * g.speeds[g.number] / float64(share[g]) * tick.Seconds()
			w.step(x.site, vgpu.Ran{Client: x.client, Kernels: 1, Busy: tick})
		}
	}
}

// run lets time go on.
func (w *plain) run(until Time) {
	for ; w.now < until && !w.t.Failed(); w.now += tick {
		for _, x := range w.tasks {
			switch s := x.site; {
			case x.client == 0 && w.now >= x.from && w.now < x.to:
				s.clients++
				x.client = s.clients
				s.tasks[x.client] = x
				w.step(s, vgpu.Attach{Client: x.client, User: "own", Weight: 1})
				w.step(s, vgpu.Want{Client: x.client, Need: x.memory, Pinned: vgpu.AnyDevice})
			case x.client != 0 && w.now >= x.to:
				w.goes(x)
				delete(s.tasks, x.client)
				w.step(s, vgpu.Detach{Client: x.client})
				x.client = 0
			}
		}
		for at := 0; at < len(w.due); at++ {
			if l := w.due[at]; l.at <= w.now {
				w.due = slices.Delete(w.due, at, at+1)
				at--
				l.deliver()
			}
		}
		w.compute()
		for _, s := range w.sites {
			w.look(s)
			w.perform(s, s.core.Tick(w.now))
			if w.now >= s.polls {
				s.polls = w.now + 100*time.Millisecond
				for i := range w.sites {
					w.ask(s, name(i))
				}
			}
			if len(s.core.lent) > 0 && len(s.core.borrowed) > 0 {
				w.t.Errorf("at %v node %d borrows and lends", w.now, s.id)
			}
		}
	}
}

// total is what all programs got done, and how often they moved.
func (w *plain) total() (progress float64, moves int) {
	for _, x := range w.tasks {
		progress += x.progress
		moves += x.moves
	}
	return progress, moves
}

// Programs on slow GPUs, and those that share one, move to faster idle ones of other nodes, each once;
// when nothing changes any more they stay.
func TestGainsComeToRest(t *testing.T) {
	w := newPlain(t, 1, true, [][]float64{{0.5}, {0.5}, {1}, {1}, {1}})
	for range 3 {
		w.add(0, 0, time.Hour, 100<<20)
	}
	w.add(1, 0, time.Hour, 100<<20)
	w.run(5 * time.Second)
	before, moves := w.total()
	if moves != 3 {
		t.Errorf("four programs moved %d times; three have a faster GPU to move to", moves)
	}
	w.run(35 * time.Second)
	after, late := w.total()
	if late != moves {
		t.Errorf("%d moves after the first 5 s", late-moves)
	}
	if got, want := (after-before)/30, 0.5+3*theLoss; got < 0.99*want {
		t.Errorf("%.2f is done in a second, of %.2f", got, want)
	}
}

// bothWays has the same programs run on the same nodes, which borrow in one world and not in the other.
func bothWays(t *testing.T, seed uint64, speeds [][]float64, until Time, add func(w *plain)) (with, without *plain) {
	for _, borrow := range []bool{false, true} {
		w := newPlain(t, seed, borrow, speeds)
		add(w)
		w.run(until)
		with, without = w, with
	}
	return with, without
}

// Whatever programs come and go: together they get as much done as if none went to another node, but for
// little, and as a rule more. Each move was worth its time to somebody, so that there are few.
func TestGainsAreNoLosses(t *testing.T) {
	var gained, had float64
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		dice := rand.New(rand.NewPCG(seed, 6))
		var speeds [][]float64
		for range 2 + dice.IntN(6) {
			of := []float64{[]float64{0.5, 1, 2}[dice.IntN(3)]}
			if dice.IntN(4) == 0 {
				of = append(of, of[0])
			}
			speeds = append(speeds, of)
		}
		const until = time.Minute
		length := time.Second << dice.IntN(6)
		with, without := bothWays(t, seed, speeds, until, func(w *plain) {
			dice := rand.New(rand.NewPCG(seed, 7))
			for range len(speeds) * int(until/length) / (1 + dice.IntN(4)) {
				from := Time(dice.Int64N(int64(until)))
				w.add(dice.IntN(len(speeds)), from, from+length/2+Time(dice.Int64N(int64(length))), uint64(dice.Int64N(1<<30)))
			}
		})
		got, moves := with.total()
		want, _ := without.total()
		t.Logf("seed %d: %d nodes, %d programs of %v: %.1f done instead of %.1f, %d moves, %d tickets", seed, len(speeds), len(with.tasks), length, got, want, moves, with.uses)
		if gained, had = gained+got, had+want; got < 0.97*want {
			t.Errorf("seed %d: %.2f is done, of %.2f without other nodes", seed, got, want)
		}
	}
	if gained < 1.1*had {
		t.Errorf("in all %.1f is done, of %.1f without other nodes", gained, had)
	}
}

// Two programs share a GPU, until one goes to another node. When that has ended, the GPU there is too slow for
// the other one, which does not wait until it is given back: it goes to a faster one as soon as that is idle.
func TestALeftTicketIsNotInTheWay(t *testing.T) {
	const ends = 5 * time.Second
	w := newPlain(t, 1, true, [][]float64{{0.5}, {0.5}, {1}})
	first, other := w.add(0, 0, ends, 1<<20), w.add(0, 0, time.Minute, 1<<20)
	w.add(2, 0, ends, 1<<20)
	w.run(ends)
	if first.gpu == nil {
		first, other = other, first
		first.to, other.to = ends, time.Minute
	}
	if first.gpu == nil || first.gpu.lender.id != 1 || other.gpu != nil {
		t.Fatal("none of the two went to the slow idle GPU")
	}
	w.run(ends + 400*time.Millisecond) // a ticket that programs have left is given back after 500 ms
	if other.gpu == nil || other.gpu.lender.id != 2 {
		t.Error("the other is still on the slow GPU, and a fast one is idle")
	}
}

// A lender whose own short programs come again and again, at the worst moments, gets its GPU back each
// time, and is soon left alone: the program that would run faster there loses little, and theirs too.
func TestALenderThatIsNeverQuiet(t *testing.T) {
	const until = 2 * time.Minute
	for _, memory := range []uint64{1 << 20, 256 << 20, 1 << 30} {
		for _, quiet := range []Time{300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
			with, without := bothWays(t, 1, [][]float64{{0.5}, {1}}, until, func(w *plain) {
				w.add(0, 0, until, memory)
				for from := quiet; from < until; from += quiet + 400*time.Millisecond {
					w.add(1, from, from+400*time.Millisecond, 1<<20)
				}
			})
			x, y := with.tasks[0], without.tasks[0]
			t.Logf("%4d MiB, %4v between: %.1f done instead of %.1f, %d moves", memory>>20, quiet, x.progress, y.progress, x.moves)
			most := 2 * len(with.tasks) // each time the lender needs its GPU
			if quiet < time.Second {
				most = int(until / (5 * time.Second))
			}
			if x.progress < 0.9*y.progress || x.moves > most {
				t.Errorf("%d MiB, %v between programs of the lender: %.1f is done instead of %.1f, with %d moves", memory>>20, quiet, x.progress, y.progress, x.moves)
			}
			own := func(w *plain) (sum float64) { // one comes home when its node has asked again, and its kernels have ended
				for _, x := range w.tasks[1:] {
					sum += x.progress
				}
				return sum
			}
			if got, want := own(with), own(without); got < 0.9*want {
				t.Errorf("%d MiB, %v between programs of the lender: they get %.1f done instead of %.1f", memory>>20, quiet, got, want)
			}
		}
	}
}

// A program that went to another node to run faster goes home when one of that node needs the GPU.
func TestTheLendersOwnComeFirst(t *testing.T) {
	w := newPlain(t, 3, true, [][]float64{{0.5}, {1}})
	w.add(0, 0, time.Minute, 1<<20)
	w.run(2 * time.Second)
	if x := w.tasks[0]; x.gpu == nil || len(w.sites[1].core.lent) != 1 {
		t.Fatal("it is still at home")
	}
	w.add(1, w.now, time.Minute, 1<<20)
	w.run(4 * time.Second)
	if x := w.tasks[0]; x.gpu != nil || len(w.sites[1].core.lent) != 0 {
		t.Error("it is still beside the lender's own program")
	}
}
