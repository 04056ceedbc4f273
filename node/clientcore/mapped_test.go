package clientcore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"muster/device"
	"muster/internal/seeds"
	"muster/mapping"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

const (
	mappedChunk  = 1 << 20
	mappedBase   = 1 << 32
	mappedStride = 2 * mappedChunk // between allocations, which do not adjoin
)

// spread is a client with several devices, whose kernels read what their first parameter points to
// and write what the second one does.
func spread(t testing.TB, spec string, devices, allocations int) *Core {
	t.Helper()
	config := Config{Arena: vmm.Range{Addr: mappedBase, Size: 1 << 30}, Chunk: mappedChunk, Mapping: spec}
	for i := range devices {
		config.Devices = append(config.Devices, Device{Place: vmm.Device(i), Name: fmt.Sprint("device ", i), Memory: 1 << 30, Puts: true})
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Committed = 1 << 40
	c.Lease = Lease{Held: true, Memory: 1 << 30, Number: 1, Began: true}
	c.Contexts, c.Made = []*Context{{Place: vmm.Device(0), Number: 1}}, 1
	for i := 1; i < devices; i++ {
		c.Further = append(c.Further, Further{Device: i, Number: uint64(i), Memory: 1 << 30})
	}
	c.Modules.All[1] = &Module{Loaded: true, Placed: true}
	c.Modules.enterTest()
	c.Modules.Functions[1] = Function{Module: 1, Info: device.FunctionInfo{Name: "k", ParamSize: 16, Touches: &device.Touches{
		Accesses: []device.Access{{Words: []int{0}}, {Words: []int{1}, Writes: true}},
	}}}
	for i := range allocations {
		post(t, c, &wire.MemAlloc{Addr: mappedBase + uint64(i)*mappedStride, Size: mappedChunk})
	}
	return c
}

// enterTest has the journal list the module that was put there by hand.
func (m *Modules) enterTest() {
	m.enter(Entry{Module: 1})
}

// post has a core handle a message, whose operations all end well, and returns those that moved memory.
func post(t testing.TB, c *Core, m wire.Message) (moves []vmm.Plan, at vmm.Place) {
	t.Helper()
	ops, err := c.Message(c.Now+1, Message{Header: wire.Header{Op: m.Op(), Slot: -1}, Body: m.Append(nil)})
	for err == nil && len(ops) > 0 {
		last := ops[len(ops)-1]
		for i := range ops {
			switch ops[i].Kind {
			case Move:
				moves = append(moves, ops[i].Plan)
			case Launch:
				at = ops[i].Place
			}
		}
		if !last.Kind.Asks() {
			break
		}
		ops, err = c.Outcome(c.Now+1, &last, Outcome{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return moves, at
}

func launchOf(in, out uint64) *wire.Launch {
	params := binary.LittleEndian.AppendUint64(nil, mappedBase+in*mappedStride)
	params = binary.LittleEndian.AppendUint64(params, mappedBase+out*mappedStride)
	return &wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: params}
}

// What is copied for a launch is what the device lacks of what the kernel uses, and nothing else: a
// model of who has which chunk says the same. Where devices copy to each other, what one of them has
// and the host has not goes straight to another.
func TestMappedLaunchesMoveWhatTheyNeed(t *testing.T) {
	for _, spec := range []string{"ar:alpha=1:beta=1", "gr", "ag", "probe"} {
		moveWhatTheyNeed(t, spec, false)
		moveWhatTheyNeed(t, spec, true)
	}
}

func moveWhatTheyNeed(t *testing.T, spec string, direct bool) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 1))
	const allocations = 12
	c := spread(t, spec, 4, allocations)
	if direct {
		for i := range c.config.Devices {
			c.config.Devices[i].Peers = "direct"
		}
		c.linkPeers()
	}
	var valid [allocations]map[vmm.Place]bool // nil: never written
	devices := map[vmm.Place]int{}
	links := map[[2]int]uint64{}
	for n := range 2000 {
		in, out := r.Uint64N(allocations), r.Uint64N(allocations)
		moves, at := post(t, c, launchOf(in, out))
		devices[at]++
		needed := uint64(0)
		for _, a := range []uint64{in, out} {
			if valid[a] != nil && !valid[a][at] {
				needed += mappedChunk
				from := vmm.Host
				for place := range valid[a] {
					if !valid[a][vmm.Host] && (from == vmm.Host || place.Index() < from.Index()) {
						from = place // the first
					}
				}
				links[[2]int{from.Index(), at.Index()}] += mappedChunk
				if valid[a][at] = true; !direct {
					valid[a][vmm.Host] = true
				}
			}
		}
		moved := uint64(0)
		for _, plan := range moves {
			moved += plan.Arrives()
			if direct && plan.Bytes(vmm.CopyOut) > 0 {
				t.Fatalf("%s, launch %d passes through the host:\n%v", spec, n, plan)
			}
		}
		d, _ := c.Decided()
		if moved != needed || d.Moves != needed {
			t.Fatalf("%s, launch %d: %d bytes were moved, %d announced and %d needed", spec, n, moved, d.Moves, needed)
		}
		valid[out] = map[vmm.Place]bool{at: true}
		if f := c.mapped.flights[c.mapped.rows[at.Index()]]; len(f) > 3 { // some end
			c.Ran(c.Now, []KernelEnd{{Ticket: f[0].ticket, Device: at.Index(), Took: 1000}})
		}
		if r.IntN(40) == 0 { // a device is taken back, and lent anew
			back := 1 + r.IntN(3)
			saved, alone := takeBack(t, c, back), uint64(0)
			for a := range valid {
				if valid[a][vmm.Device(back)] && len(valid[a]) == 1 {
					alone += mappedChunk
					links[[2]int{back, vmm.Host.Index()}] += mappedChunk
					valid[a][vmm.Host] = true
				}
				delete(valid[a], vmm.Device(back))
			}
			if saved != alone {
				t.Fatalf("%s, launch %d: %d bytes were saved from a device that alone had %d", spec, n, saved, alone)
			}
		}
	}
	for _, l := range c.Stats().Links {
		if links[[2]int{l.From, l.To}] != l.Bytes {
			t.Errorf("%s: %d bytes are counted from %d to %d, and %d went there", spec, l.Bytes, l.From, l.To, links[[2]int{l.From, l.To}])
		}
		delete(links, [2]int{l.From, l.To})
	}
	if len(links) > 0 {
		t.Errorf("%s: %v are not counted", spec, links)
	}
	if len(devices) != 4 {
		t.Errorf("%s: kernels ran on %v", spec, devices)
	}
}

// A pointer to the end of an allocation is the address of the next one, if they adjoin: kernels that count
// down from it use the first. So both are brought, and both count as written.
func TestPointersToTheEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		out    uint64 // the parameter
		used   []uint64
		nearby bool
	}{
		{"the end of the first", mappedChunk, []uint64{0, mappedChunk}, true},
		{"one element before the second", mappedChunk - 8, []uint64{0, mappedChunk}, true},
		{"inside the second", mappedChunk + 64, []uint64{mappedChunk}, true},
		{"the end of one without a neighbour", mappedChunk, nil, false},
	} {
		core := spread(t, "ag", 2, 0)
		post(t, core, &wire.MemAlloc{Addr: mappedBase, Size: mappedChunk})
		if c.nearby {
			post(t, core, &wire.MemAlloc{Addr: mappedBase + mappedChunk, Size: mappedChunk})
		}
		params := binary.LittleEndian.AppendUint64(nil, 0)
		params = binary.LittleEndian.AppendUint64(params, mappedBase+c.out)
		f := core.Modules.Functions[1]
		used, written, known := core.reach(&f, params)
		if known != (c.used != nil) || len(used) != len(c.used) || len(written) != len(c.used) {
			t.Errorf("%s: %v, %v written, %v", c.name, used, written, known)
			continue
		}
		for i, at := range c.used {
			if used[i].Addr != mappedBase+at || written[i].Addr != mappedBase+at {
				t.Errorf("%s: %v, %v written", c.name, used, written)
			}
		}
	}
}

// takeBack has a further device left and lent anew, and returns how many bytes were copied from it.
func takeBack(t *testing.T, c *Core, device int) (saved uint64) {
	t.Helper()
	ops, err := c.Control(c.Now+1, control.RevokeFurther{Device: device, Loan: c.further(device).Number})
	for err == nil && len(ops) > 0 && ops[len(ops)-1].Kind.Asks() {
		last := ops[len(ops)-1]
		saved += last.Plan.Bytes(vmm.CopyOut)
		ops, err = c.Outcome(c.Now+1, &last, Outcome{})
	}
	if err != nil || c.further(device).Number != 0 {
		t.Fatalf("%v %v: it was not given back", ops, err)
	}
	f := c.further(device)
	f.Number, f.Memory, f.Last, f.NotBy = uint64(device), 1<<30, c.Now, 0
	c.mapped.stale()
	return saved
}

// Kernels are mapped by the bandwidth that each link had: one whose memory is at home goes to the device
// of another node only if its link is fast enough for what waits at home.
func TestLinksAreMeasured(t *testing.T) {
	for _, fast := range []bool{false, true} {
		c := spread(t, "ag", 2, 2)
		c.config.Devices[1].Far, c.config.Devices[1].Link = true, "lender"
		took := Time(mappedChunk) * 1e9 / (1 << 20) // 1 MiB/s
		if fast {
			took /= 10_000
		}
		c.mapped.moved([]Leg{{Place: vmm.Device(0), Bytes: mappedChunk, Took: 1000}, {Place: vmm.Device(1), Bytes: mappedChunk, Took: took}})
		post(t, c, launchOf(0, 0)) // what it leaves is at home, for ties go to the first device
		kernel := Time(20e6)
		c.Ran(c.Now, []KernelEnd{{Ticket: c.mapped.ticket, Device: 0, Took: kernel}})
		for range 3 { // they wait at home for 60 ms
			c.mapped.took()
		}
		_, at := post(t, c, launchOf(0, 0))
		if want := map[bool]int{false: 0, true: 1}[fast]; at.Index() != want {
			d, _ := c.Decided()
			t.Errorf("with a fast link %v the kernel runs on device %d: %+v, links %v", fast, at.Index(), d, c.mapped.layout.Links)
		}
	}
}

// A kernel of which is not known what it uses runs where the lease is, with all memory; so does one
// whose parameter points to no allocation.
func TestUnknownKernelsStayAtHome(t *testing.T) {
	c := spread(t, "ar:alpha=1:beta=1", 3, 4)
	c.Modules.Functions[2] = Function{Module: 1, Info: device.FunctionInfo{Name: "follows", ParamSize: 16}}
	for range 20 {
		post(t, c, launchOf(0, 1))
		unknown := launchOf(2, 3)
		unknown.Function = 2
		_, at := post(t, c, unknown)
		if d, _ := c.Decided(); at != vmm.Device(0) || d.Why == "" || !c.space.AllResident(at) {
			t.Fatalf("it runs at %v: %+v", at, d)
		}
		if _, at := post(t, c, launchOf(1000, 1)); at != vmm.Device(0) {
			t.Fatalf("a kernel with a wild pointer runs at %v", at)
		}
	}
}

// A further device that is wanted back is left, with what only it has, before the next launch.
func TestFurtherDevicesGoBack(t *testing.T) {
	c := spread(t, "gr", 2, 2)
	for i := range uint64(4) { // on both
		post(t, c, launchOf(i%2, i%2))
	}
	if len(c.Contexts) != 2 {
		t.Fatalf("%d contexts", len(c.Contexts))
	}
	ops, err := c.Control(c.Now+1, control.RevokeFurther{Device: 1, Loan: 1})
	if err != nil || len(ops) != 1 || ops[0].Kind != Leave || ops[0].Place != vmm.Device(1) || ops[0].Plan.Bytes(vmm.CopyOut) == 0 {
		t.Fatalf("%v %v", ops, err)
	}
	left := ops[0]
	ops, err = c.Outcome(c.Now+1, &left, Outcome{})
	released := false
	for i := range ops {
		if m, ok := ops[i].Message.(control.ReleasedFurther); ok && m.Loan == 1 {
			released = true
		}
	}
	if err != nil || !released || len(c.Contexts) != 1 {
		t.Fatalf("%v %v: %d contexts", ops, err, len(c.Contexts))
	}
	if _, at := post(t, c, launchOf(1, 1)); at != vmm.Device(0) {
		t.Errorf("a kernel runs at %v", at)
	}
}

// A request for more of a further device crosses the loan's return, whether that device goes back or
// all do. The answer is about nothing: only the next loan counts.
func TestMoreOfAFurtherDeviceThatWentBack(t *testing.T) {
	for _, all := range []bool{false, true} {
		c := spread(t, "gr", 2, 2)
		c.further(1).Asked = true // for more
		returned := c.further(1).Number
		if all {
			c.giveUpAll()
		} else {
			c.giveUp(c.further(1))
		}
		c.Now += askAgain
		ops, err := c.Control(c.Now, control.GrantFurther{Device: 1, Memory: 2 << 30, Loan: returned})
		if err != nil || len(ops) > 0 || c.further(1).lent() {
			t.Errorf("all %v: loan %d is used after its return: %v %v", all, returned, ops, err)
		}
		if c.wantFurther(1 << 20); !c.further(1).Asked {
			t.Errorf("all %v: it is not asked for again", all)
		}
		ops, err = c.Control(c.Now, control.GrantFurther{Device: 1, Memory: 1 << 30, Loan: 3})
		if f := c.further(1); err != nil || len(ops) > 0 || f.Number != 3 || !f.lent() || f.Memory != 1<<30 {
			t.Errorf("all %v: the next loan is %+v: %v %v", all, *f, ops, err)
		}
	}
}

// The next daemon may give a loan the number of one that went back to the daemon before.
func TestLoansOfTheNextDaemon(t *testing.T) {
	c := spread(t, "gr", 2, 2)
	before := c.further(1).Number
	ops, err := c.Adopted(c.Now)
	for err == nil && len(ops) > 0 && ops[len(ops)-1].Kind.Asks() {
		ops, err = c.Outcome(c.Now, &ops[len(ops)-1], Outcome{})
	}
	if err != nil || c.further(1).Number != 0 {
		t.Fatalf("loan %d did not go back: %v", before, err)
	}
	c.Now += askAgain
	if c.wantFurther(1 << 20); !c.further(1).Asked {
		t.Fatal("it is not asked for again")
	}
	if _, err := c.Control(c.Now, control.GrantFurther{Device: 1, Memory: 1 << 30, Loan: before}); err != nil || !c.further(1).lent() {
		t.Errorf("it is not used: %+v, %v", *c.further(1), err)
	}
}

// BenchmarkMappedLaunch is what a launch costs the core, with its memory in place.
func BenchmarkMappedLaunch(b *testing.B) {
	for _, spec := range []string{"off", "st", "gr", "ag", "ar", "probe"} {
		b.Run(spec, func(b *testing.B) {
			c := spread(b, spec, 4, 8)
			body := launchOf(0, 1).Append(nil)
			m := Message{Header: wire.Header{Op: wire.OpLaunch, Slot: -1}, Body: body}
			for range 8 {
				post(b, c, launchOf(0, 1))
			}
			b.ReportAllocs()
			for b.Loop() {
				ops, err := c.Message(c.Now+1, m)
				if err != nil || ops[len(ops)-1].Kind.Asks() {
					post(b, c, launchOf(0, 1))
					continue
				}
				if o := &ops[len(ops)-1]; o.Ticket > 0 {
					c.Ran(c.Now, []KernelEnd{{Ticket: o.Ticket, Device: o.Place.Index(), Took: 1000}})
				}
			}
		})
	}
}

// BenchmarkDecision is a decision and the keeping of its table, of so many devices, all of which have
// some kernels before them.
func BenchmarkDecision(b *testing.B) {
	for _, devices := range []int{72, 10_000} {
		for _, spec := range []string{"st", "gr", "ag", "ag:group=24", "ar:group=24", "probe"} {
			b.Run(fmt.Sprint(spec, "/", devices), func(b *testing.B) {
				c := &Core{}
				c.config.Mapping = spec
				m, err := newMapped(c)
				if err != nil {
					b.Fatal(err)
				}
				c.mapped = m
				c.link()
				for i := range devices {
					c.config.Devices = append(c.config.Devices, Device{Place: vmm.Device(i)})
					if i > 0 {
						c.Further = append(c.Further, Further{Device: i, Number: uint64(i)})
					}
				}
				c.space, err = vmm.New(vmm.Config{Arena: vmm.Range{Addr: mappedBase, Size: 1 << 30}, Chunk: mappedChunk, Devices: vmm.Devices(4)})
				if err != nil {
					b.Fatal(err)
				}
				if err := c.space.Alloc(vmm.Range{Addr: mappedBase, Size: 8 * mappedChunk}); err != nil {
					b.Fatal(err)
				}
				if err := m.renew(); err != nil {
					b.Fatal(err)
				}
				for row := range devices {
					for range 2 {
						m.view.Table.Assign(&mapping.Call{Node: int32(devices)}, int32(row))
					}
				}
				f := &Function{Module: 1, Info: device.FunctionInfo{Name: "k"}}
				used := []vmm.Range{{Addr: mappedBase, Size: 8 * mappedChunk}}
				ended := make([]KernelEnd, 1)
				for b.Loop() {
					c.Now += 1000
					shares, bytes := c.space.Shares(used, c.launches.shares[:0])
					c.launches.shares = shares
					if err := m.choose(f, 1, shares, bytes); err != nil {
						b.Fatal(err)
					}
					ended[0] = KernelEnd{Ticket: m.took(), Device: m.choice.device, Took: 1000}
					c.Ran(c.Now, ended)
				}
			})
		}
	}
}
