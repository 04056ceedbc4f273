package simt_test

import (
	"cmp"

	"muster/ptx/simt/heap"
	"muster/ptx/simt/memcheck"

	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

//go:embed testdata/heap/heap.ptx
var heapSource string

// heapWorld is memory with a heap in it, and the program of testdata/heap.
type heapWorld struct {
	*testMemory
	program          *simt.Program
	heap             *heap.Heap
	heapBytes        []byte
	kept, wrong, all []byte
}

const (
	heapAddress  = uint64(0x5000_0000_0000)
	keptAddress  = uint64(0x5100_0000_0000)
	wrongAddress = uint64(0x5200_0000_0000)
	allAddress   = uint64(0x5300_0000_0000)
)

func newHeapWorld(t *testing.T, size, threads int) *heapWorld {
	t.Helper()
	w := &heapWorld{testMemory: &testMemory{}, heap: heap.New(heapAddress, uint64(size))}
	module, err := ptx.Parse("heap.ptx", heapSource)
	if err != nil {
		t.Fatal(err)
	}
	if w.program, err = simt.Load("heap.ptx", module, w.place); err != nil {
		t.Fatal(err)
	}
	w.heapBytes = w.add(t, heapAddress, size)
	for i := range w.heapBytes[64:] {
		w.heapBytes[64+i] = 0xa5 // only the head is zeros
	}
	clear(w.heapBytes[:64])
	w.kept = w.add(t, keptAddress, threads*8*8)
	w.wrong = w.add(t, wrongAddress, 16)
	w.all = w.add(t, allAddress, 16*max(64, threads))
	return w
}

// launch returns how to launch a kernel with arguments of 32 or 64 bits.
func (w *heapWorld) launch(grid, block int, args ...any) simt.Launch {
	var params []byte
	for _, a := range args {
		switch a := a.(type) {
		case uint64:
			params = binary.LittleEndian.AppendUint64(params, a)
		case uint32:
			params = binary.LittleEndian.AppendUint32(params, a)
		}
	}
	return simt.Launch{Grid: shape.Dim{X: uint32(grid), Y: 1, Z: 1}, Block: shape.Dim{X: uint32(block), Y: 1, Z: 1}, Params: params, Memory: w, Heap: w.heap}
}

func (w *heapWorld) run(t *testing.T, kernel string, l simt.Launch) error {
	t.Helper()
	x, err := w.program.Kernel(kernel).Start(l)
	if err != nil {
		t.Fatal(err)
	}
	return x.RunFor(1 << 26)
}

// live returns the blocks that the threads hold, by address, with their sizes.
func (w *heapWorld) live(t *testing.T) (addresses []uint64, sizes map[uint64]uint64) {
	t.Helper()
	sizes = map[uint64]uint64{}
	for owner := range len(w.kept) / 8 {
		at := binary.LittleEndian.Uint64(w.kept[8*owner:])
		if at == 0 {
			continue
		}
		if at%16 != 0 || at < heapAddress || at >= heapAddress+w.heap.Size {
			t.Fatalf("malloc returned %#x, which is not aligned or outside of the heap", at)
		}
		block := w.heapBytes[at-heapAddress:]
		if got := binary.LittleEndian.Uint32(block); got != uint32(owner) {
			t.Fatalf("the block of %d at %#x is that of %d", owner, at, got)
		}
		addresses, sizes[at] = append(addresses, at), 4*uint64(binary.LittleEndian.Uint32(block[4:]))
	}
	slices.Sort(addresses)
	for i := 1; i < len(addresses); i++ {
		if before := addresses[i-1]; before+sizes[before] > addresses[i] {
			t.Fatalf("%d bytes at %#x overlap with %d at %#x", sizes[before], before, sizes[addresses[i]], addresses[i])
		}
	}
	return addresses, sizes
}

// isEmpty checks that all of the heap is free: one block takes nearly all of it.
func (w *heapWorld) isEmpty(t *testing.T) {
	t.Helper()
	usable := (w.heap.Size - 64) / (64*16 + 16) * 64 * 16
	for i, size := range []uint64{usable, 1, usable + 1, 0} {
		binary.LittleEndian.PutUint64(w.all[8*i:], size)
	}
	if err := w.run(t, "sizes", w.launch(1, 4, allAddress+64, allAddress)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false, false} {
		if at := binary.LittleEndian.Uint64(w.all[64+8*i:]); (at != 0) != want {
			t.Fatalf("malloc(%d) returns %#x", binary.LittleEndian.Uint64(w.all[8*i:]), at)
		}
	}
	clear(w.all[72:])
	if err := w.run(t, "release", w.launch(1, 1, allAddress+64)); err != nil {
		t.Fatal(err)
	}
}

// Many threads allocate and free at random, on both engines, on several workers, with
// stops at random instructions and states carried from one engine to the other: no two
// blocks overlap, nobody's content is lost, what one kernel has allocated another finds
// and frees, and at the end all of the heap is free.
func TestHeapOfManyThreads(t *testing.T) {
	const grid, block = 5, 96
	for _, size := range []int{1 << 20, 200_016} { // the second one runs full
		for name, l := range map[string]simt.Launch{
			"interpreted": {Engine: simt.Interpret, Width: 64}, "compiled": {Engine: simt.Compile}, "workers": {Engine: simt.Compile, Workers: 4},
			"stopped": {Engine: simt.Compile, Workers: 2},
		} {
			t.Run(fmt.Sprintf("%s in %d bytes", name, size), func(t *testing.T) {
				w := newHeapWorld(t, size, grid*block)
				rng := rand.New(rand.NewPCG(uint64(size), 7))
				for round := range uint32(3) {
					how := w.launch(grid, block, keptAddress, wrongAddress, wrongAddress+4, uint32(40), round)
					how.Engine, how.Width, how.Workers = l.Engine, l.Width, l.Workers
					kernel := w.program.Kernel("churn")
					x, err := kernel.Start(how)
					if err != nil {
						t.Fatal(err)
					}
					part := uint64(1 << 26)
					if name == "stopped" {
						part = 6000
					}
					for err = x.RunFor(part - rng.Uint64N(3000)); errors.Is(err, simt.ErrStopped) && name == "stopped"; err = x.RunFor(1 + rng.Uint64N(part)) {
						state, err := x.Save()
						if err != nil {
							t.Fatal(err)
						}
						w.heap = heap.New(heapAddress, uint64(size)) // as in another process
						how.Engine, how.Heap = otherEngine(how.Engine), w.heap
						if x, err = kernel.Resume(how, state); err != nil {
							t.Fatal(err)
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					addresses, _ := w.live(t)
					if len(addresses) < grid*block {
						t.Fatalf("only %d blocks are in use", len(addresses))
					}
				}
				if full := binary.LittleEndian.Uint32(w.wrong[4:]); (full > 0) != (size < 1<<20) {
					t.Errorf("malloc has returned 0 for %d times in a heap of %d bytes", full, size)
				}
				if err := w.run(t, "clear", w.launch(grid, block, keptAddress, wrongAddress)); err != nil {
					t.Fatal(err)
				}
				if wrong := binary.LittleEndian.Uint32(w.wrong); wrong != 0 {
					t.Errorf("%d blocks had a content of others", wrong)
				}
				w.isEmpty(t)
			})
		}
	}
}

// One thread after the other, the heap does what a list of the blocks in use says: an
// address is free when it is given, and a request fails only if no gap is large enough.
func TestHeapAgainstModel(t *testing.T) {
	type span struct{ at, size uint64 }
	for seed := range uint64(4) {
		w := newHeapWorld(t, 64<<10, 64)
		rng := rand.New(rand.NewPCG(seed, 3))
		usable := (w.heap.Size - 64) / (64*16 + 16) * 64 * 16
		end := heapAddress + 64 + usable/64 + usable
		var used []span // by address
		for step := range 400 {
			if rng.IntN(2) == 0 && len(used) > 0 {
				i := rng.IntN(len(used))
				binary.LittleEndian.PutUint64(w.all, used[i].at)
				if err := w.run(t, "release", w.launch(1, 1, allAddress)); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
				used = slices.Delete(used, i, i+1)
				continue
			}
			size := rng.Uint64N(1 << (1 + rng.IntN(14)))
			binary.LittleEndian.PutUint64(w.all[8:], size)
			if err := w.run(t, "sizes", w.launch(1, 1, allAddress, allAddress+8)); err != nil {
				t.Fatal(err)
			}
			at, need := binary.LittleEndian.Uint64(w.all), (size+15)&^15
			largest, last := uint64(0), end-usable
			for _, u := range used {
				largest, last = max(largest, u.at-last), u.at+u.size
			}
			largest = max(largest, end-last)
			if (at != 0) != (size > 0 && need <= largest) {
				t.Fatalf("seed %d, step %d: malloc(%d) returns %#x where the largest gap has %d bytes", seed, step, size, at, largest)
			}
			if at == 0 {
				continue
			}
			i, _ := slices.BinarySearchFunc(used, at, func(u span, at uint64) int { return cmp.Compare(u.at, at) })
			if at < end-usable || at+need > end || i > 0 && used[i-1].at+used[i-1].size > at || i < len(used) && at+need > used[i].at {
				t.Fatalf("seed %d, step %d: malloc(%d) returns %#x, which is not free", seed, step, size, at)
			}
			used = slices.Insert(used, i, span{at, need})
		}
	}
}

// What is freed twice, was never allocated, or lies inside a block is a fault of the
// thread that freed it; freeing 0 is none.
func TestIllegalFree(t *testing.T) {
	for name, of := range map[string]func(at uint64) uint64{
		"twice":    func(at uint64) uint64 { return at },
		"inside":   func(at uint64) uint64 { return at + 16 },
		"beyond":   func(at uint64) uint64 { return heapAddress + 1<<20 },
		"the maps": func(uint64) uint64 { return heapAddress + 64 },
		"odd":      func(at uint64) uint64 { return at + 4 },
		"foreign":  func(uint64) uint64 { return allAddress },
	} {
		for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
			w := newHeapWorld(t, 1<<20, 64)
			binary.LittleEndian.PutUint64(w.all, 64)
			if err := w.run(t, "sizes", w.launch(1, 1, allAddress, allAddress)); err != nil {
				t.Fatal(err)
			}
			at := binary.LittleEndian.Uint64(w.all)
			clear(w.all)
			binary.LittleEndian.PutUint64(w.all[8*33:], of(at)) // of block 1, thread 1; the others free 0
			if name == "twice" {
				binary.LittleEndian.PutUint64(w.all[8*32:], at)
			}
			l := w.launch(2, 32, allAddress)
			l.Engine = engine
			err := w.run(t, "release", l)
			var fault *simt.Fault
			if !errors.As(err, &fault) || fault.Kind != simt.IllegalAddress || fault.Address != of(at) || fault.Block.X != 1 || fault.Thread.X != 1 || fault.Kernel != "release" || !strings.Contains(fault.Line, "free") {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}

// A kernel that calls malloc needs a heap, and one that has written over the heap's
// records is told so; others need none.
func TestHeapThatIsNone(t *testing.T) {
	w := newHeapWorld(t, 1<<20, 64)
	for _, k := range w.program.Kernels() {
		if !k.Heap {
			t.Errorf("kernel %s is said not to use the heap", k.Name)
		}
	}
	l := w.launch(1, 1, allAddress, allAddress)
	l.Heap = nil
	if _, err := w.program.Kernel("sizes").Start(l); err == nil || !strings.Contains(err.Error(), "heap") {
		t.Errorf("without a heap: %v", err)
	}
	binary.LittleEndian.PutUint64(w.all, 64)
	w.heapBytes[3] = 77
	var fault *simt.Fault
	if err := w.run(t, "sizes", w.launch(1, 1, allAddress, allAddress)); !errors.As(err, &fault) || !strings.Contains(err.Error(), "overwritten") {
		t.Errorf("with other records: %v", err)
	}
	clear(w.heapBytes[:64])
	w.heap.Size += 16
	if err := w.run(t, "sizes", w.launch(1, 1, allAddress, allAddress)); !errors.As(err, &fault) || !strings.Contains(err.Error(), "not mapped") {
		t.Errorf("without memory: %v", err)
	}
}

// Maps that a kernel has filled with anything do no harm outside of the heap.
func TestHeapWithForgedMaps(t *testing.T) {
	w := newHeapWorld(t, 64<<10, 64)
	rng := rand.New(rand.NewPCG(1, 9))
	for range 300 {
		binary.LittleEndian.PutUint64(w.all, 64)
		clear(w.heapBytes[:64])
		if err := w.run(t, "sizes", w.launch(1, 1, allAddress+8, allAddress)); err != nil {
			t.Fatal(err)
		}
		for i := 8; i < 4096; i++ {
			if rng.IntN(3) == 0 && (i >= 16 || rng.IntN(8) == 0) {
				w.heapBytes[i] = byte(rng.Uint32())
			}
		}
		var fault *simt.Fault
		binary.LittleEndian.PutUint64(w.all, rng.Uint64N(1<<rng.IntN(64)))
		if err := w.run(t, "sizes", w.launch(1, 1, allAddress+8, allAddress)); err != nil && !errors.As(err, &fault) {
			t.Fatal(err)
		}
		if at := binary.LittleEndian.Uint64(w.all[8:]); at != 0 && at-heapAddress >= w.heap.Size {
			t.Fatalf("malloc returns %#x, which is outside of the heap", at)
		}
		if err := w.run(t, "release", w.launch(1, 1, allAddress+8)); err != nil && !errors.As(err, &fault) {
			t.Fatal(err)
		}
	}
}

const heapDefects = `.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b64 back) malloc(.param .b64 size);
.extern .func free(.param .b64 memory);
.visible .entry run(.param .u64 what)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	.reg .pred %p<4>;
	ld.param.u64 %rd1, [what];
	{ .param .b64 size; .param .b64 back; st.param.b64 [size], 40; call.uni (back), malloc, (size); ld.param.b64 %rd2, [back]; }
	setp.ne.u64 %p1, %rd1, 0;
	@%p1 bra BEHIND;
	ld.u32 %r1, [%rd2+8];
	bra DONE;
BEHIND:
	setp.ne.u64 %p1, %rd1, 1;
	@%p1 bra FREED;
	st.u32 [%rd2+40], %r1;
	bra DONE;
FREED:
	st.u32 [%rd2], 7;
	{ .param .b64 memory; st.param.b64 [memory], %rd2; call.uni free, (memory); }
	ld.u32 %r1, [%rd2];
DONE:
	ret;
}
`

// With a checker, a block is memory of its own: what is read before it is written, lies
// behind its end or was freed is found, and nothing is reported where all is well.
func TestHeapChecked(t *testing.T) {
	module, err := ptx.Parse("defects.ptx", heapDefects)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range []struct {
		kind memcheck.DefectKind
		line int
	}{{memcheck.Uninitialised, 15}, {memcheck.OutOfBounds, 20}, {memcheck.OutOfBounds, 25}} {
		w := newHeapWorld(t, 1<<20, 64)
		if w.program, err = simt.Load("defects.ptx", module, w.place); err != nil {
			t.Fatal(err)
		}
		var found []*memcheck.Defect
		l := w.launch(1, 2, uint64(what))
		l.Check = memcheck.New(memcheck.Checks{Race: true, Init: true, Memory: true}, 0, func(d *memcheck.Defect) { found = append(found, d) })
		l.Check.Allocate(heapAddress, w.heap.Size, "heap", false)
		if err := w.run(t, "run", l); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Kind != want.kind || found[0].Deed.Line != want.line || !strings.Contains(found[0].Memory, "malloc(40) at line 12") {
			t.Errorf("%v at line %d is not found, but %v", want.kind, want.line, found)
		}
	}
	w := newHeapWorld(t, 1<<20, 128)
	l := w.launch(2, 64, keptAddress, wrongAddress, wrongAddress+4, uint32(40), uint32(1))
	l.Check = memcheck.New(memcheck.Checks{Race: true, Init: true, Memory: true}, 0, func(d *memcheck.Defect) { t.Error(d) })
	l.Check.Allocate(heapAddress, w.heap.Size, "heap", false)
	l.Check.Allocate(keptAddress, uint64(len(w.kept)), "kept", true)
	l.Check.Allocate(wrongAddress, uint64(len(w.wrong)), "wrong", true)
	if err := w.run(t, "churn", l); err != nil {
		t.Fatal(err)
	}
}
