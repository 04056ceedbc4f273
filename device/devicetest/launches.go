package devicetest

import (
	"errors"
	"math"
	"math/rand/v2"

	"muster/device"
)

var launchTests = []test{
	{"grids in three dimensions", always, testGrids},
	{"many threads", always, testManyThreads},
	{"dynamic shared memory", always, testDynamicShared},
	{"static shared memory", always, testStaticShared},
	{"cooperative", always, testCooperative},
	{"occupancy", always, testOccupancy},
	{"misuse", always, testLaunchMisuse},
}

func testGrids(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	f := o.function("where")
	for _, c := range []struct{ grid, block device.Dim }{
		{line(1), line(1)},
		{line(5), line(31)},
		{device.Dim{X: 3, Y: 2, Z: 4}, device.Dim{X: 5, Y: 3, Z: 2}},
		{device.Dim{X: 1, Y: 31, Z: 1}, device.Dim{X: 1, Y: 1, Z: 31}},
		{device.Dim{X: 2, Y: 2, Z: 2}, device.Dim{X: 32, Y: 16, Z: 2}},
		{device.Dim{X: 7, Y: 3, Z: 1}, device.Dim{X: 17, Y: 1, Z: 1}},
	} {
		n := int(c.grid.Count() * c.block.Count())
		o.ok(o.stream.Fill(addr, math.MaxUint32, 4, uint64(n)+1))
		o.ok(o.stream.Launch(f, device.Launch{Grid: c.grid, Block: c.block, Params: o.pack(f, addr)}))
		got := o.getWords(addr, n+1)
		if got[n] != math.MaxUint32 {
			b.Fatalf("grid %v of blocks %v wrote more than it has threads", c.grid, c.block)
		}
		same(b, c.grid.String()+" "+c.block.String(), got[:n], places(c.grid, c.block))
	}
}

// places is what the kernel "where" writes.
func places(grid, block device.Dim) []uint32 {
	var all []uint32
	each(grid, func(x device.Dim) {
		each(block, func(t device.Dim) {
			all = append(all, x.X|x.Y<<5|x.Z<<10|t.X<<15|t.Y<<20|t.Z<<25)
		})
	})
	return all
}

func each(d device.Dim, f func(device.Dim)) {
	for z := range d.Z {
		for y := range d.Y {
			for x := range d.X {
				f(device.Dim{X: x, Y: y, Z: z})
			}
		}
	}
}

func testManyThreads(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, 0)
	o.launch(o.stream, "count", 300, 1024, addr)
	o.launch(o.stream, "count", 70000, 1, addr) // more blocks than the limit of the other two sides
	same(b, "count", o.getWords(addr, 1), []uint32{300*1024 + 70000})
}

func testDynamicShared(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	f := o.function("reverse")
	const blocks, threads = 3, 100
	var first []uint32
	for i := range uint32(blocks * threads) {
		first = append(first, i*i)
	}
	for _, shared := range []uint64{4 * threads, 48 << 10, b.dev.Info().Limits.SharedBlock} {
		o.putWords(addr, first...)
		o.ok(o.stream.Launch(f, device.Launch{Grid: line(blocks), Block: line(threads), Shared: shared, Params: o.pack(f, addr)}))
		var want []uint32
		for k := range blocks {
			for i := range threads {
				want = append(want, first[k*threads+threads-1-i])
			}
		}
		same(b, "reversed", o.getWords(addr, len(want)), want)
	}
}

func testStaticShared(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.launch(o.stream, "small", 1, 64, addr)
	same(b, "word", o.getWords(addr, 1), []uint32{7})
}

// As many blocks as the occupancy promises can wait for each other; one more is
// refused.
func testCooperative(b *bench) {
	o := b.open()
	counter, out := o.mapped(0, o.g), o.mapped(2, o.g)
	f := o.function("meet")
	const threads = 256
	per, err := f.Occupancy(threads, 0)
	b.ok(err)
	blocks := uint32(per * b.dev.Info().Multiprocessors)
	o.ok(o.stream.Fill(counter, 0, 4, 1))
	l := device.Launch{Grid: line(blocks), Block: line(threads), Params: o.pack(f, counter, out), Cooperative: true}
	o.ok(o.stream.Launch(f, l))
	for i, seen := range o.getWords(out, int(blocks)) {
		if seen != blocks {
			b.Fatalf("block %d met %d of %d blocks", i, seen, blocks)
		}
	}
	l.Grid.X++
	o.refused(o.stream.Launch(f, l), device.ErrTooLarge)
	l.Cooperative = false
	o.ok(o.stream.Fill(counter, blocks+1, 4, 1)) // so that no block waits
	o.ok(o.stream.Launch(f, l))
	o.finish()
}

// Launch accepts a block exactly if its Occupancy is not 0, for random blocks.
func testOccupancy(b *bench) {
	o := b.open()
	info := b.dev.Info()
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	addr := o.mapped(0, o.g)
	o.ok(o.stream.Fill(addr, 0, 4, o.g/4))
	for _, name := range []string{"count", "small"} {
		f := o.function(name)
		static := uint64(f.Info().Shared)
		for range 60 {
			threads := 1 + r.IntN(info.Limits.Threads+100)
			shared := r.Uint64N(info.Limits.SharedBlock + 5000)
			blocks, err := f.Occupancy(threads, shared)
			b.ok(err)
			fits := threads <= f.Info().MaxThreads && static+shared <= info.Limits.SharedBlock
			if (blocks > 0) != fits {
				b.Fatalf("seed %d: %s with %d threads and %d bytes: %d blocks", seed, name, threads, shared, blocks)
			}
			if blocks*threads > info.Limits.ThreadsResident || blocks > info.Limits.BlocksResident || fits && uint64(blocks)*(static+shared) > info.Limits.SharedMultiprocessor {
				b.Fatalf("seed %d: %d blocks of %d threads and %d bytes do not fit a multiprocessor", seed, blocks, threads, shared)
			}
			if more, err := f.Occupancy(max(1, threads/2), shared/2); err != nil || more < blocks {
				b.Fatalf("seed %d: of smaller blocks only %d fit, of larger ones %d (%v)", seed, more, blocks, err)
			}
			err = o.stream.Launch(f, device.Launch{Grid: line(1), Block: line(uint32(threads)), Shared: shared, Params: o.pack(f, addr)})
			if (err == nil) != fits || err != nil && !errors.Is(err, device.ErrInvalidValue) {
				b.Fatalf("seed %d: launching %s with %d threads and %d bytes: %v", seed, name, threads, shared, err)
			}
			cooperative := device.Launch{Grid: line(uint32(blocks*info.Multiprocessors + 1)), Block: line(uint32(threads)), Shared: shared, Params: o.pack(f, addr), Cooperative: true}
			if err := o.stream.Launch(f, cooperative); fits && !errors.Is(err, device.ErrTooLarge) || !fits && !errors.Is(err, device.ErrInvalidValue) {
				b.Fatalf("seed %d: a cooperative launch of one block too many: %v", seed, err)
			}
		}
	}
	o.finish()
	f := o.function("count")
	for _, threads := range []int{0, -1} {
		_, err := f.Occupancy(threads, 0)
		b.refused(err, device.ErrInvalidValue)
	}
	if n, err := f.Occupancy(1, math.MaxUint64); err != nil || n != 0 {
		b.Errorf("%d blocks with all the shared memory of the world (%v)", n, err)
	}
}

func testLaunchMisuse(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, 0)
	f := o.function("count")
	l := b.dev.Info().Limits
	good := device.Launch{Grid: line(1), Block: line(1), Params: o.pack(f, addr)}
	for what, spoil := range map[string]func(*device.Launch){
		"no block":             func(x *device.Launch) { x.Block.Y = 0 },
		"no grid":              func(x *device.Launch) { x.Grid.Z = 0 },
		"too many threads":     func(x *device.Launch) { x.Block = device.Dim{X: uint32(l.Threads), Y: 2, Z: 1} },
		"block too wide":       func(x *device.Launch) { x.Block.X = l.Block.X + 1 },
		"block too deep":       func(x *device.Launch) { x.Block.Z = l.Block.Z + 1 },
		"grid too high":        func(x *device.Launch) { x.Grid.Y = l.Grid.Y + 1 },
		"grid too deep":        func(x *device.Launch) { x.Grid.Z = l.Grid.Z + 1 },
		"grid too wide":        func(x *device.Launch) { x.Grid.X = math.MaxUint32 },
		"too much shared":      func(x *device.Launch) { x.Shared = l.SharedBlock + 1 },
		"far too much shared":  func(x *device.Launch) { x.Shared = math.MaxUint64 },
		"too much stack":       func(x *device.Launch) { x.Stack = l.Local + 1 },
		"far too much stack":   func(x *device.Launch) { x.Stack = math.MaxUint64 },
		"too few parameters":   func(x *device.Launch) { x.Params = x.Params[:7] },
		"no parameters":        func(x *device.Launch) { x.Params = nil },
		"too many parameters":  func(x *device.Launch) { x.Params = append(x.Params, 0) },
		"counts that overflow": func(x *device.Launch) { x.Block = device.Dim{X: 1 << 31, Y: 1 << 31, Z: 4} },
	} {
		bad := good
		spoil(&bad)
		if err := o.stream.Launch(f, bad); !errors.Is(err, device.ErrInvalidValue) {
			b.Errorf("%s: answered %v", what, err)
		}
	}
	o.refused(o.stream.Launch(nil, good), device.ErrInvalidValue)
	o.ok(o.stream.Launch(f, good))
	good.Stack = 32<<10 + 1
	o.ok(o.stream.Launch(f, good))
	same(b, "count", o.getWords(addr, 1), []uint32{2})
}
