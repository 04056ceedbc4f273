package worker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"muster/device"
	"muster/node/worker/keeper"
	"muster/wire"
)

// trigger kills a worker, once each time that it is set.
type trigger struct{ atomic.Bool }

func (k *trigger) pull() bool { return k.CompareAndSwap(true, false) }

// fold has the worker make a base: it is sent more than its journal holds.
func (c *client) fold() {
	c.t.Helper()
	data := make([]byte, mib)
	for i := range keeper.ShortLog/mib + 1 { // of an image each: a large one is copied whenever it grows
		if err := c.p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{Module: uint32(1000 + i)}).Append(nil), data); err != nil {
			c.t.Fatal(err)
		}
	}
	c.call(&wire.StreamQuery{}, nil)
}

// A worker that dies before there is a base has done nothing: the next one begins.
func TestDiesBeforeTheFirstBase(t *testing.T) {
	var kill trigger
	kill.Store(true)
	c := newClient(t, options{killed: kill.pull})
	newVectors(c, 1000).round(1)
	if n := c.died.Load(); n != 1 {
		t.Errorf("the worker died %d times", n)
	}
}

// A client that has failed is that in the next worker too, whether its fault belongs
// to the base or happens again; and its user is not told twice.
func TestFaultOutlivesTheWorker(t *testing.T) {
	for _, inBase := range []bool{false, true} {
		var kill trigger
		c := newClient(t, options{killed: kill.pull})
		v := newVectors(c, 1000)
		v.round(1)
		v.a = 0x10
		v.launch(0)
		if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
			t.Fatalf("synchronise answered %d", r)
		}
		if inBase {
			c.fold()
		}
		if told := c.shared.Notices(); len(told) != 1 || !strings.Contains(told[0], "illegal address") {
			t.Errorf("the user was told %q", told)
		}
		kill.Store(true)
		for range 3 {
			if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
				t.Errorf("in the base: %v: synchronise answered %d", inBase, r)
			}
			if got := c.shared.Status(); got != illegalAddress {
				t.Errorf("in the base: %v: the status is %d", inBase, got)
			}
		}
		if told := c.shared.Notices(); len(told) > 0 {
			t.Errorf("in the base: %v: the user was told again: %q", inBase, told)
		}
		if n := c.died.Load(); n != 1 {
			t.Fatalf("the worker died %d times", n)
		}
		c.must(&wire.Reset{}, nil)
		if got := c.shared.Status(); got != success {
			t.Errorf("after a reset the status is %d", got)
		}
		c.arenaAt = 0
		v = newVectors(c, 1000)
		v.round(1)
		v.a = 0x20
		v.launch(0)
		if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
			t.Fatalf("synchronise answered %d", r)
		}
		if told := c.shared.Notices(); len(told) != 1 || !strings.Contains(told[0], "illegal address 0x20") {
			t.Errorf("of another fault the user was told %q", told)
		}
	}
}

// hasAnsweredLast says whether the last call that a worker knows of has its answer.
func hasAnsweredLast(w *worker) bool {
	var last wire.Header
	for slot := range wire.Slots {
		if seq := w.shared.Asks(slot); seq > last.Seq {
			last = wire.Header{Slot: slot, Seq: seq}
		}
	}
	return w.shared.Answered(last)
}

// failingLaunches are the contexts of a device on which every launch fails once worse is
// set.
type failingLaunches struct {
	device.Context
	worse *atomic.Bool
}

func (c failingLaunches) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return failingStream{s, c.worse}, err
}

type failingStream struct {
	device.Stream
	worse *atomic.Bool
}

func (s failingStream) Launch(f device.Function, l device.Launch) error {
	if s.worse.Load() {
		return &device.Fault{Kind: device.IllegalAddress, Kernel: "as asked"}
	}
	return s.Stream.Launch(f, l)
}

// The worker dies at any moment between a launch and the answer to the call after it. The
// next one, which launches again, is told of a fault, and gives the user its reason
// before it answers the call: the program may end at that.
func TestReasonComesBeforeTheAnswerOfARebuild(t *testing.T) {
	for doom := range int32(12) {
		t.Run(fmt.Sprint(doom), func(t *testing.T) { testReason(t, doom+1) })
	}
}

func testReason(t *testing.T, operations int32) {
	var doom atomic.Int32
	var worse, told, late atomic.Bool
	c := newClient(t, options{
		recovers: true,
		wrap:     func(_ string, c device.Context) device.Context { return failingLaunches{c, &worse} },
		killed: func() bool {
			dies := doom.Load() > 0 && doom.Add(-1) == 0
			if dies {
				worse.Store(true)
			}
			return dies
		},
		told: func(w *worker) {
			if told.CompareAndSwap(false, true) {
				late.Store(hasAnsweredLast(w))
			}
		},
	})
	v := newVectors(c, 1000)
	v.round(1)
	doom.Store(operations)
	v.launch(0)
	var result int32
	for result == success {
		died := worse.Load()
		if result = c.call(&wire.Synchronise{}, nil); died && result == success {
			t.Skip("the kernel's results were kept before the worker died: nothing was launched again")
		}
	}
	if result != illegalAddress {
		t.Fatalf("answered %d", result)
	}
	if told := c.shared.Notices(); len(told) == 0 || !strings.Contains(told[0], "as asked") || late.Load() {
		t.Errorf("the user was told %q, too late: %v", told, late.Load())
	}
}

// The worker dies while it refuses a call. The user is told why by the next one, unless
// this one has told it.
func TestRefusalOfARebuildHasItsReason(t *testing.T) {
	for doom := range int32(4) {
		c := newClient(t, options{recovers: true, memory: 8 * mib})
		c.alloc(mib)
		c.doom.Store(doom + 1)
		if r := c.call(&wire.MemAlloc{Addr: testBase + 64*mib, Size: 16 * mib}, nil); r != outOfMemory {
			t.Fatalf("after %d operations: answered %d", doom, r)
		}
		if told := c.shared.Notices(); len(told) == 0 || !strings.Contains(told[0], "has allocated 1 MiB") {
			t.Errorf("after %d operations (%d deaths): the user was told %q", doom, c.died.Load(), told)
		}
	}
}

// printing is a client whose kernel prints "ready\n".
func printing(t *testing.T, o options) (*client, func()) {
	c := newClient(t, o)
	kernel := c.load(7, kernelFile(t, "print.nvcc90.ptx"), "print_plain")
	return c, func() {
		c.post(&wire.Launch{Function: kernel, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})
		c.must(&wire.Synchronise{}, nil)
	}
}

// fetch takes up to n bytes of what was printed.
func (c *client) fetch(n uint64) string {
	c.t.Helper()
	pending, err := c.p.Start(wire.Header{Op: wire.OpPrintFetch, Data: c.bounce(), Length: n}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	var reply wire.PrintFetchReply
	r, payload, err := pending.Wait()
	if r != 0 || err != nil || reply.Decode(payload) != nil {
		c.t.Fatalf("print_fetch: %d %v", r, err)
	}
	text, _ := c.shared.Data(c.bounce(), uint64(reply.Size))
	return string(bytes.Clone(text))
}

// What kernels print is fetched once, wherever the worker dies: before the base or
// after it, fetched in part, and in the middle of a fetch.
func TestPrintedTextOutlivesTheWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	for _, c := range []struct {
		name  string
		steps string // p: a kernel prints, f: four bytes are fetched, b: a base is made, k: the worker dies
	}{
		{"nothing fetched", "pkf"}, {"in the base", "pbkf"}, {"fetched in part", "pfkf"}, {"fetched after the base", "pbfkf"},
		{"fetched before the base", "pfbkf"}, {"fetched beyond the base", "pbpffkff"}, {"again and again", "pkpfkbkfkpfkfkbpkf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var kill trigger
			client, print := printing(t, options{killed: kill.pull})
			var got, want strings.Builder
			for _, step := range c.steps {
				switch step {
				case 'p':
					print()
					want.WriteString("ready\n")
				case 'f':
					got.WriteString(client.fetch(4))
				case 'b':
					client.fold()
				case 'k':
					died := client.died.Load()
					kill.Store(true)
					client.must(&wire.Synchronise{}, nil)
					if client.died.Load() != died+1 {
						t.Fatal("the worker lives")
					}
				}
			}
			for client.shared.Print() {
				got.WriteString(client.fetch(4))
			}
			if got.String() != want.String() {
				t.Errorf("%q was fetched of %q", &got, &want)
			}
		})
	}
}

// A worker that dies when it has counted what is fetched, and has not answered, has not
// given it.
func TestDiesInTheMiddleOfAFetch(t *testing.T) {
	var moments atomic.Int32 // until it dies: before the fetch, and in it
	c, print := printing(t, options{killed: func() bool { return moments.Load() > 0 && moments.Add(-1) == 0 }})
	print()
	if got := c.fetch(4); got != "read" {
		t.Fatalf("fetched %q", got)
	}
	moments.Store(2)
	if got := c.fetch(100); got != "y\n" {
		t.Errorf("fetched %q", got)
	}
	if n := c.died.Load(); n != 1 {
		t.Errorf("the worker died %d times", n)
	}
}

// Variables lie where they did when a client is rebuilt, though the call of a function of
// the program's needed the device, and so had a module loaded, and is not made again once
// it has returned: by the time that another message needs the device, the module that was
// there before is gone.
func TestVariablesStayWhereTheyWere(t *testing.T) {
	var kill trigger
	c := newClient(t, options{killed: kill.pull})
	v := newVectors(c, 1000)
	v.round(1)
	where := func(module uint32) uint64 {
		var reply wire.ModuleGlobalReply
		c.must(&wire.ModuleGlobal{Module: module, Name: "count"}, &reply)
		return reply.Addr
	}
	c.load(10, []byte(countingPTX), "follow")
	first := where(10)
	c.fold()
	c.load(11, []byte(countingPTX), "follow")
	c.post(&wire.HostFunction{Cookie: 1})
	c.post(&wire.HostDone{Cookie: c.nextCookie()})
	c.must(&wire.Synchronise{}, nil)
	c.post(&wire.ModuleUnload{Module: 10})
	second := where(11)
	if first == second {
		t.Fatal("both modules lie at the same address: the function did not have the second one loaded")
	}
	kill.Store(true)
	if got := where(11); got != second {
		t.Errorf("the variable was at %#x, and is at %#x", second, got)
	}
	if n := c.died.Load(); n != 1 {
		t.Errorf("the worker died %d times", n)
	}
}

// A driver puts variables elsewhere in another process. The client is what it was all the
// same, with what the variables contained, and its program goes on with the addresses that it
// knows: whether it is rebuilt from a base, from messages, or from both, and again.
func TestVariablesMayLieElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	for _, folds := range []int{0, 1, 2} { // before the load, before the second launch, never
		var kill trigger
		var elsewhere atomic.Int32
		c := newClient(t, options{lenient: true, killed: kill.pull, wrap: func(_ string, c device.Context) device.Context {
			for range elsewhere.Load() {
				c = newShifted(c)
			}
			return c
		}})
		cell := c.alloc(64)
		c.in(cell, make([]byte, 64))
		v := newVectors(c, 1000)
		v.round(1) // there is a context, so that the module is placed when it is loaded
		if folds == 0 {
			c.fold()
		}
		function := c.load(10, []byte(countingPTX), "add_count")
		var count wire.ModuleGlobalReply
		c.must(&wire.ModuleGlobal{Module: 10, Name: "count"}, &count)
		value := func(addr uint64) uint32 { return binary.LittleEndian.Uint32(c.out(addr, 4)) }
		add := func(want uint32) { // the kernel reads the variable by its name, and by its address
			t.Helper()
			c.post(&wire.Launch{Function: function, GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1, Params: params(count.Addr, cell, 1)})
			if got := value(cell) - 3; got != want+want+1 {
				t.Fatalf("with a base at %d: %d, want twice %d and 1", folds, got, want)
			}
			if got := value(count.Addr); got != want+1 {
				t.Fatalf("with a base at %d: the variable is %d, want %d", folds, got, want+1)
			}
		}
		add(7)
		if folds == 1 {
			c.fold()
		}
		add(8)
		for death := range uint32(3) {
			elsewhere.Store(int32(death + 1))
			kill.Store(true)
			add(9 + 2*death)
			var again wire.ModuleGlobalReply
			if c.must(&wire.ModuleGlobal{Module: 10, Name: "count"}, &again); again != count {
				t.Errorf("the variable was at %#x, and is at %#x", count.Addr, again.Addr)
			}
			if death == 1 {
				c.fold()
			}
			if death == 2 {
				c.revoke("memory") // and comes back in the same process
			}
			add(10 + 2*death)
		}
		if n := c.died.Load(); n != 3 {
			t.Errorf("the worker died %d times", n)
		}
	}
}
