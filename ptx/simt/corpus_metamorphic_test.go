package simt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/ptx/simt"
)

// soak makes tests take the time that make soak has.
var soak = os.Getenv("MUSTER_SOAK") != ""

// randomOptions draws a way to run a kernel that must not change its result.
func randomOptions(rng *rand.Rand) options {
	o := options{
		width:    32 * (1 + rng.IntN(8)),
		workers:  1 + rng.IntN(4),
		shuffled: rng.IntN(2) == 0,
		flat:     rng.IntN(2) == 0,
	}
	if rng.IntN(4) != 0 {
		o.stop = 1 + rng.Uint64N(100)
		o.moved = rng.IntN(2) == 0
		o.saved = rng.IntN(2) == 0
	}
	o.engine = []simt.Engine{simt.Interpret, simt.Compile, simt.Compile}[rng.IntN(3)]
	o.changing = rng.IntN(2) == 0
	return o
}

// The same program under another gang width, number of workers, order of
// blocks, points of preemption, memory that moves, a state that is saved and
// resumed elsewhere, memory with or without holes, and the other engine leaves
// the same memory.
func TestCorpusMetamorphic(t *testing.T) {
	rounds := 1
	if soak {
		rounds = 8
	}
	for at, e := range corpus {
		t.Run(e.file+"/"+strings.ReplaceAll(e.kernels, " ", "+"), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(7, uint64(at)))
			all := variants(t, e.file)
			switch { // not all, but other ones for the next entry
			case testing.Short():
				all = all[at%len(all):][:1]
			case !soak:
				all = slices.Concat(all[at%len(all):], all[:at%len(all)])[:(len(all)+2)/3]
			}
			for _, variant := range all {
				want := e.play(t, variant, 0, options{engine: simt.Interpret})
				compiled := e.play(t, variant, 0, options{engine: simt.Compile})
				if err := compiled.differs(want); err != nil {
					t.Fatalf("%s: compiled code does not leave what the interpreter does: %v", variant, err)
				}
				for range rounds {
					o := randomOptions(rng)
					t.Run(fmt.Sprintf("%s,%v", variant, o), func(t *testing.T) {
						if err := e.play(t, variant, 0, o).differs(want); err != nil {
							t.Fatalf("not the memory of a plain run: %v", err)
						}
					})
				}
			}
		})
	}
}

// A kernel can be stopped between any two instructions, saved, and resumed
// elsewhere, as often as one likes.
func TestStopAfterEveryFewInstructions(t *testing.T) {
	kernels := []string{"reduce_volatile", "warp_divergent", "scan_warp", "recursion_struct", "indirect_virtual",
		"generic_pointer", "spinlock_inside", "ticket_lock", "print_lines", "atomic_old_values"}
	for at, e := range corpus {
		if !slices.Contains(kernels, e.kernels) {
			continue
		}
		t.Run(e.kernels, func(t *testing.T) {
			t.Parallel()
			all, stops := variants(t, e.file), []uint64{1, 5}
			switch {
			case testing.Short():
				all, stops = all[:1], []uint64{17}
			case !soak: // one, but another one for the next entry
				all, stops = all[at%len(all):][:1], []uint64{1}
			}
			for _, variant := range all {
				want := e.play(t, variant, 0, options{small: true, engine: simt.Interpret})
				for _, stop := range stops {
					t.Run(fmt.Sprintf("%s,stop=%d", variant, stop), func(t *testing.T) {
						got := e.play(t, variant, 0, options{small: true, workers: 2, stop: stop, steady: true, saved: true, engine: simt.Compile, changing: true})
						if err := got.differs(want); err != nil {
							t.Fatalf("not the memory of a plain run: %v", err)
						}
					})
				}
			}
		})
	}
}

// Stop may come from anywhere at any time, also before a run and after the end.
func TestStopFromOutside(t *testing.T) {
	eachVariant(t, "hash64", func(g *gpu) {
		const n, steps = 3000, 60
		state := g.longs(n)
		run := func(stops int) []uint64 {
			k := g.program.Kernel("hash_xorshift")
			out := alloc[uint64](g, n)
			params, err := packParams(k, []any{put(g, state), out, steps, n})
			if err != nil {
				g.Fatal(err)
			}
			s := line(ceil(n, 96), 96)
			x, err := k.Start(simt.Launch{Grid: s.grid, Block: s.block, Params: params, Memory: g.memory, Workers: 2})
			if err != nil {
				g.Fatal(err)
			}
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for range stops {
					x.Stop()
				}
			}()
			err = x.Run()
			for errors.Is(err, simt.ErrStopped) {
				err = x.Run()
			}
			<-stopped
			if err != nil {
				g.Fatal(err)
			}
			return read(g, out)
		}
		if !slices.Equal(run(0), run(50)) {
			g.Fatal("a kernel that was stopped 50 times came to another result")
		}
	})
}

// A kernel that would wait for ever can be stopped, and then let go.
func TestEndlessKernelStops(t *testing.T) {
	eachVariant(t, "spinlock", func(g *gpu) {
		next, serving, order := zero[uint32](g, 1), put(g, []uint32{1}), alloc[uint32](g, 1)
		k := g.program.Kernel("ticket_lock")
		params, err := packParams(k, []any{next, serving, order})
		if err != nil {
			g.Fatal(err)
		}
		s := line(1, 1)
		x, err := k.Start(simt.Launch{Grid: s.grid, Block: s.block, Params: params, Memory: g.memory})
		if err != nil {
			g.Fatal(err)
		}
		go x.Stop()
		if err := x.Run(); !errors.Is(err, simt.ErrStopped) {
			g.Fatalf("a kernel that waits for ever ended with %v", err)
		}
		write(g, serving, []uint32{0}) // its turn
		if err := x.Run(); err != nil {
			g.Fatal(err)
		}
		same(g, "serving", serving, []uint32{1})
	})
}

// savedState returns a kernel of the file stopped half-way, as bytes, and the
// launch it came from.
func savedState(g *gpu) (*simt.Kernel, simt.Launch, []byte) {
	const n = 1000
	k := g.program.Kernel("vecadd")
	params, err := packParams(k, []any{zero[float32](g, n), zero[float32](g, n), alloc[float32](g, n), n})
	if err != nil {
		g.Fatal(err)
	}
	s := line(10, 100)
	l := simt.Launch{Grid: s.grid, Block: s.block, Params: params, Memory: g.memory}
	x, err := k.Start(l)
	if err != nil {
		g.Fatal(err)
	}
	if err := x.RunFor(3); !errors.Is(err, simt.ErrStopped) {
		g.Fatalf("a kernel stopped after 3 instructions returned %v", err)
	}
	state, err := x.Save()
	if err != nil {
		g.Fatal(err)
	}
	return k, l, state
}

// Resume takes only what Save made of the same kernel, whole.
func TestResumeRefusesWhatIsNotItsState(t *testing.T) {
	eachVariant(t, "vecadd", func(g *gpu) {
		k, l, state := savedState(g)
		if _, err := k.Resume(l, state); err != nil {
			g.Fatalf("its own state: %v", err)
		}
		if _, err := g.program.Kernel("saxpy").Resume(l, state); err == nil {
			g.Error("the state of another kernel was taken")
		}
		for cut := range len(state) {
			if cut%max(1, len(state)/100) != 0 {
				continue
			}
			if _, err := k.Resume(l, state[:cut]); err == nil {
				g.Errorf("a state cut off after %d of %d bytes was taken", cut, len(state))
			}
			damaged := bytes.Clone(state)
			damaged[cut] ^= 0x10
			if _, err := k.Resume(l, damaged); err == nil {
				g.Errorf("a state with byte %d of %d damaged was taken", cut, len(state))
			}
		}
		if _, err := k.Resume(l, append(bytes.Clone(state), 0)); err == nil {
			g.Error("a state with a byte too many was taken")
		}
	})
}
