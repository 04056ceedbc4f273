package soft

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"

	"muster/device"
)

// sweep reads and writes a stretch of memory for ever, and a variable of its
// own module, in every block.
const sweep = header + `.visible .global .align 4 .u32 own;
.visible .entry sweep(.param .u64 p, .param .u64 size)
{
	.reg .pred %q;
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [size];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
again:
	add.u64 %rd4, %rd1, %rd3;
	ld.global.u32 %r2, [%rd4];
	add.u32 %r2, %r2, 1;
	st.global.u32 [%rd4], %r2;
	st.global.u32 [own], %r2;
	add.u64 %rd3, %rd3, 65536;
	setp.ge.u64 %q, %rd3, %rd2;
	@%q mul.wide.u32 %rd3, %r1, 4;
	bra again;
}
`

// Unmapping memory under a kernel that runs on several processors faults its
// context, wherever the kernel is, and never the process.
func TestMemoryGoneUnderKernel(t *testing.T) {
	p := testProfile()
	p.Workers = 4
	d := newDevice(t, p, Options{})
	for round := range 40 {
		c := openContext(t, d)
		must(t, c.Map(base, 8*granule))
		m, err := c.Load([]byte(sweep))
		must(t, err)
		f, err := m.Function("sweep")
		must(t, err)
		for range 2 {
			s := newStream(t, c)
			must(t, s.Launch(f, device.Launch{Grid: device.Dim{X: 8, Y: 1, Z: 1}, Block: device.Dim{X: 64, Y: 1, Z: 1}, Params: words64(base, 8*granule)}))
		}
		for range round * 10 {
			runtime.Gosched()
		}
		switch round % 3 {
		case 0:
			err = c.Unmap(base, 8*granule)
		case 1:
			err = c.Unmap(base+3*granule, granule)
		case 2:
			err = m.Unload()
		}
		must(t, err)
		var fault *device.Fault
		if err := c.Synchronise(context.Background()); !errors.As(err, &fault) || fault.Kind != device.IllegalAddress {
			t.Fatalf("round %d: answered %v", round, err)
		}
		must(t, c.Close())
		if free := d.budget.free(); free != d.info.Memory {
			t.Fatalf("round %d: %d of %d bytes free", round, free, d.info.Memory)
		}
	}
}

// A variable within a kernel is part of what must be moved with a context, or
// refused.
func TestVariablesInKernels(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	m, err := c.Load([]byte(header + ".visible .entry k()\n{\n\t.global .align 4 .u32 inner;\n\t.reg .b32 %r<2>;\n\tmov.u32 %r1, 1;\n\tst.global.u32 [inner], %r1;\n\tret;\n}\n"))
	if err != nil {
		if !errors.Is(err, device.ErrInvalidImage) {
			t.Error(err)
		}
		return
	}
	if len(m.Globals()) == 0 {
		t.Error("the variable is missing in the list")
	}
}

// A speed so low that kernels would never end is refused.
func TestHopelessSpeed(t *testing.T) {
	for _, speed := range []float64{1e-9, 1e-300, math.SmallestNonzeroFloat64} {
		p := testProfile()
		p.Speed = speed
		if err := p.Validate(); err == nil {
			t.Errorf("speed %v is accepted", speed)
		}
	}
}

// Ranges and sizes outside all memory are refused, and nothing changes.
func TestHostileRanges(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	other := openContext(t, d)
	must(t, c.Map(base, granule))
	s := newStream(t, c)
	free := d.budget.free()
	const top = math.MaxUint64
	for what, err := range map[string]error{
		"map to the top":        c.Map(base, top-granule+1),
		"map round the top":     c.Map(top-granule+1, 2*granule),
		"map nothing":           c.Map(base, 0),
		"unmap nothing":         c.Unmap(base, 0),
		"unmap all":             c.Unmap(base, 64*granule),
		"unmap a variable":      c.Unmap(varsBases[0], granule),
		"copy round the top":    s.Copy(top-3, base, 8),
		"copy all":              s.Copy(base, base+1, top),
		"copy to the top":       s.Copy(base, top, 1),
		"fill all":              s.Fill(base, 1, 4, top),
		"fill a quarter of all": s.Fill(base, 1, 4, 1<<62),
		"fill round the top":    s.Fill(top-3, 1, 4, 2),
		"fill with no width":    s.Fill(base, 1, 0, 1),
		"fill with minus one":   s.Fill(base, 1, -1, 1),
		"copy in at the end":    s.CopyIn(base+granule-1, make([]byte, 2)),
		"copy out before":       s.CopyOut(make([]byte, 2), base-1),
		"no function":           s.Launch(nil, device.Launch{}),
		"no event":              s.Record(nil),
		"to wait for none":      s.Wait(nil),
		"a foreign event":       s.Wait(&event{c: other}),
	} {
		if !errors.Is(err, device.ErrInvalidValue) {
			t.Errorf("%s: answered %v", what, err)
		}
	}
	for what, arena := range map[string]device.Arena{
		"nothing":       {Base: base},
		"all":           {Base: granule, Size: top - 2*granule + 1},
		"round the top": {Base: top - granule + 1, Size: 2 * granule},
		"from 0 on":     {Size: granule},
	} {
		if _, err := d.Open(device.Config{Arena: arena}); !errors.Is(err, device.ErrInvalidValue) {
			t.Errorf("an arena of %s: answered %v", what, err)
		}
	}
	must(t, s.Copy(base, base, 0))
	must(t, s.CopyIn(top, nil))
	must(t, c.Synchronise(context.Background()))
	if d.budget.free() != free {
		t.Errorf("%d bytes free, %d before", d.budget.free(), free)
	}
}

// Grids and blocks whose count overflows are refused.
func TestHostileLaunches(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	s := newStream(t, c)
	m, err := c.Load([]byte(nothing))
	must(t, err)
	f, err := m.Function("nothing")
	must(t, err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	const top = math.MaxUint32
	for what, l := range map[string]device.Launch{
		"no grid":         {Block: one},
		"no block":        {Grid: one},
		"grid of 2^64":    {Grid: device.Dim{X: 1 << 31, Y: 1 << 31, Z: 4}, Block: one},
		"largest grid":    {Grid: device.Dim{X: top, Y: top, Z: top}, Block: one},
		"largest block":   {Grid: one, Block: device.Dim{X: top, Y: top, Z: top}},
		"block of 2^64":   {Grid: one, Block: device.Dim{X: 1 << 31, Y: 1 << 31, Z: 4}},
		"shared":          {Grid: one, Block: one, Shared: math.MaxUint64},
		"stack":           {Grid: one, Block: one, Stack: math.MaxUint64},
		"parameters":      {Grid: one, Block: one, Params: []byte{1}},
		"all cooperative": {Grid: device.Dim{X: top, Y: top, Z: top}, Block: one, Cooperative: true},
	} {
		if err := s.Launch(f, l); !errors.Is(err, device.ErrInvalidValue) {
			t.Errorf("%s: answered %v", what, err)
		}
	}
	if n, err := f.Occupancy(math.MaxInt, math.MaxUint64); n != 0 || err != nil {
		t.Errorf("%d blocks of all threads (%v)", n, err)
	}
	must(t, c.Synchronise(context.Background()))
}
