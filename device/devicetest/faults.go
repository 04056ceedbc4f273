package devicetest

import (
	"bytes"
	"errors"
	"runtime"
	"strings"

	"muster/device"
)

var faultTests = []test{
	{"holes", notIsolated, testHoles},
	{"kinds", notIsolated, testFaultKinds},
	{"assertions", notIsolated, testAssertion},
	{"sticky", notIsolated, testSticky},
	{"seen by polling", notIsolated, testFaultPolled},
	{"other contexts go on", notIsolated, testOthersGoOn},
	{"unmapped under work", notIsolated, testUnmappedUnderWork},
}

// fault waits for a context to fault and returns the fault.
func (o *opened) fault() *device.Fault {
	o.Helper()
	err := o.stream.Synchronise(o.ctx)
	var f *device.Fault
	if !errors.As(err, &f) {
		o.Fatalf("answered %v, want a fault", err)
	}
	return f
}

// An access to an address that is not mapped faults, and the fault has the address.
func testHoles(b *bench) {
	g := b.dev.Info().Granularity
	mapped := arenaBase + 4*g
	for _, c := range []struct {
		addr  uint64
		fault bool
	}{
		{mapped, false},
		{mapped + g - 4, false},
		{mapped - 4, true},
		{mapped + g, true},
		{mapped + 2*g - 4, true},
		{mapped + 2*g, false}, // beyond the hole
		{arenaBase, true},
		{arenaBase + arenaSize - 4, true},
		{16, true},
	} {
		o := b.open()
		o.mapped(4, g)
		o.mapped(6, g)
		o.launch(o.stream, "touch", 5, 70, c.addr, uint32(3), uint32(65))
		if !c.fault {
			same(b, hex(c.addr), o.getWords(c.addr, 1), []uint32{1})
		} else {
			f := o.fault()
			if f.Kind != device.IllegalAddress {
				b.Errorf("writing to %s: %v", hex(c.addr), f)
			}
			if b.options.Located && !(f.Located && f.Kernel == "touch" && f.Address == c.addr && f.Block == device.Dim{X: 3} && f.Thread == device.Dim{X: 65}) {
				b.Errorf("writing to %s in block 3, thread 65: %v", hex(c.addr), f)
			}
		}
		b.ok(o.Close())
	}
}

func testFaultKinds(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.launch(o.stream, "touch", 1, 1, addr+2, uint32(0), uint32(0))
	if f := o.fault(); f.Kind != device.MisalignedAddress {
		b.Errorf("a word at half a word: %v", f)
	}
	b.ok(o.Close())

	o = b.open()
	o.launch(o.stream, "stop", 1, 1)
	if f := o.fault(); f.Kind != device.Trap && f.Kind != device.Unspecified {
		b.Errorf("trap: %v", f)
	}
	b.ok(o.Close())
}

// The text of a failed assertion arrives before any call answers with the fault.
func testAssertion(b *bench) {
	var text bytes.Buffer
	o := b.openOn(b.dev, device.Config{Arena: b.arena(), Complain: func(t []byte) { text.Write(t) }})
	m := o.load(asserting)
	f, err := m.Function("doubt")
	b.ok(err)
	b.ok(o.stream.Launch(f, device.Launch{Grid: line(1), Block: device.Dim{X: 1, Y: 2, Z: 1}}))
	if f := o.fault(); f.Kind != device.Assert {
		b.Errorf("an assertion: %v", f)
	}
	same(b, "lines", strings.Split(text.String(), "\n"), []string{"a:7: a: block: [0,0,0], thread: [0,0,0] Assertion `a` failed.",
		"a:7: a: block: [0,0,0], thread: [0,1,0] Assertion `a` failed.", ""})
	b.ok(o.Close())
}

// After a fault every call answers with it; work after it does not run.
func testSticky(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	other := o.newStream()
	e := o.newEvent()
	called := false
	o.launch(o.stream, "touch", 1, 1, addr+5*o.g, uint32(0), uint32(0))
	// This may be submitted before or after the fault is known. It must not run.
	_ = o.stream.Call(func() { called = true })
	first := o.fault()

	_, loadErr := o.Load(basic)
	_, functionErr := o.module.Function("count")
	_, globalErr := o.module.Global("x")
	_, streamErr := o.NewStream()
	_, eventErr := o.NewEvent()
	_, _, memoryErr := o.Memory()
	_, doneErr := o.stream.Done()
	_, eventDoneErr := e.Done()
	for what, err := range map[string]error{
		"Err":                 o.Err(),
		"Map":                 o.Map(addr+8*o.g, o.g),
		"Unmap":               o.Unmap(addr, o.g),
		"Memory":              memoryErr,
		"Load":                loadErr,
		"Function":            functionErr,
		"Global":              globalErr,
		"Unload":              o.module.Unload(),
		"NewStream":           streamErr,
		"NewEvent":            eventErr,
		"Synchronise":         o.Synchronise(b.ctx),
		"CopyIn":              other.CopyIn(addr, make([]byte, 4)),
		"CopyOut":             other.CopyOut(make([]byte, 4), addr),
		"Copy":                other.Copy(addr, addr+8, 4),
		"Fill":                other.Fill(addr, 0, 4, 1),
		"Record":              other.Record(e),
		"Wait":                other.Wait(e),
		"Call":                other.Call(func() {}),
		"Stream.Done":         doneErr,
		"Stream.Synchronise":  other.Synchronise(b.ctx),
		"Event.Done":          eventDoneErr,
		"Event.Synchronise":   e.Synchronise(b.ctx),
		"copying into a hole": other.CopyIn(addr+5*o.g, make([]byte, 4)),
	} {
		var again *device.Fault
		if !errors.As(err, &again) || *again != *first {
			b.Errorf("%s: answered %v, want: %v", what, err, first)
		}
	}
	if called {
		b.Error("work behind a fault was done")
	}
	b.ok(o.Close())
	if err := o.Err(); !errors.Is(err, device.ErrClosed) {
		b.Errorf("after Close: %v", err)
	}
}

// A caller that polls Done never gets true for work that failed.
func testFaultPolled(b *bench) {
	for range 20 {
		o := b.open()
		e := o.newEvent()
		o.launch(o.stream, "touch", 1, 1, arenaBase, uint32(0), uint32(0))
		if err := o.stream.Record(e); err != nil {
			continue // the fault is known already
		}
		for _, asked := range []interface{ Done() (bool, error) }{o.stream, e} {
			for done, err := asked.Done(); err == nil; done, err = asked.Done() {
				if done {
					b.Fatal("work that failed is said to be done")
				}
				runtime.Gosched()
			}
		}
		b.ok(o.Close())
	}
}

func testOthersGoOn(b *bench) {
	good, bad := b.open(), b.open()
	addr := good.mapped(0, good.g)
	good.putWords(addr, 1)
	h := good.hold(good.mapped(2, good.g), spinLimit)
	bad.launch(bad.stream, "touch", 1, 1, addr, uint32(0), uint32(0)) // mapped there, not here
	bad.fault()
	good.launch(good.stream, "step", 1, 1, addr, uint32(2), uint32(1))
	same(b, "word", good.getWords(addr, 1), []uint32{5})
	h.let()
	b.ok(h.stream.Synchronise(b.ctx))
	b.ok(bad.Close())

	// The device serves new contexts as before.
	again := b.open()
	again.mapped(0, again.g)
	again.putWords(addr, 2)
	again.launch(again.stream, "step", 1, 1, addr, uint32(2), uint32(1))
	same(b, "word", again.getWords(addr, 1), []uint32{8})
}

// Unmapping memory under a kernel that uses it ends at most that context.
func testUnmappedUnderWork(b *bench) {
	if !b.options.Stoppable {
		b.Skip("this backend does not promise it")
	}
	o := b.open()
	addr := o.mapped(0, o.g)
	h := o.hold(addr, endless)
	b.ok(o.Unmap(addr, o.g))
	var f *device.Fault
	if err := h.stream.Synchronise(b.ctx); !errors.As(err, &f) || f.Kind != device.IllegalAddress {
		b.Errorf("answered %v, want a fault", err)
	}
	if b.options.Located && f != nil && (f.Kernel != "spin" || f.Address != addr) {
		b.Errorf("it says: %v", f)
	}
}
