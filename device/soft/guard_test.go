package soft

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"muster/device"
)

const follows = `.version 7.0
.target sm_70
.address_size 64
.visible .entry follow(.param .u64 table)
{
	.reg .b32 %r<3>;
	.reg .b64 %d<3>;
	ld.param.u64 %d1, [table];
	ld.global.u64 %d2, [%d1];
	ld.global.u32 %r1, [%d2];
	add.u32 %r1, %r1, 1;
	st.global.u32 [%d2], %r1;
	ret;
}
`

// A guarded kernel waits in Trap before it uses memory that is not allowed yet: memory mapped with old
// contents, and memory that is not mapped. It computes with what Trap has copied there.
func TestGuardedKernelsComputeWithWhatWasBrought(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		c := openContext(t, newDevice(t, testProfile(), Options{}))
		must(t, c.Map(base, granule))
		const far = base + 4*granule
		m, err := c.Load([]byte(follows))
		must(t, err)
		f, err := m.Function("follow")
		must(t, err)
		if info := f.Info(); info.Touches != nil || !info.Follows {
			t.Fatalf("%+v", info)
		}
		s, mover := newStream(t, c), newStream(t, c)
		must(t, s.CopyIn(base, binary.LittleEndian.AppendUint64(nil, far)))
		if mapped {
			must(t, c.Map(far, granule))
			must(t, s.CopyIn(far, []byte{7, 0, 0, 0}))
		}
		must(t, s.Synchronise(context.Background()))
		var stopped []uint64
		var used []device.Arena
		one := device.Dim{X: 1, Y: 1, Z: 1}
		launch := device.Launch{Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, base), Guard: &device.Guard{
			Ranges: []device.Arena{{Base: base, Size: granule}},
			Trap: func(addr uint64) (device.Arena, bool) {
				stopped = append(stopped, addr)
				if !mapped {
					must(t, c.Map(far, granule))
				}
				must(t, mover.CopyIn(far, []byte{40, 0, 0, 0}))
				must(t, mover.Synchronise(context.Background()))
				return device.Arena{Base: far, Size: granule}, true
			},
			Touched: func(ranges []device.Arena) { used = ranges },
		}}
		must(t, s.Launch(f, launch))
		must(t, s.Synchronise(context.Background()))
		got := make([]byte, 4)
		must(t, s.CopyOut(got, far))
		must(t, s.Synchronise(context.Background()))
		if got[0] != 41 || !slices.Equal(stopped, []uint64{far}) {
			t.Errorf("mapped %v: it left %d, and was stopped before %#x", mapped, got[0], stopped)
		}
		if want := []device.Arena{{Base: base, Size: granule}, {Base: far, Size: granule}}; !slices.Equal(used, want) {
			t.Errorf("mapped %v: it used %v", mapped, used)
		}
		launch.Guard = &device.Guard{Ranges: launch.Guard.Ranges, Trap: func(uint64) (device.Arena, bool) { return device.Arena{}, false }}
		must(t, s.Launch(f, launch))
		var fault *device.Fault
		if err := s.Synchronise(context.Background()); !errors.As(err, &fault) || fault.Kind != device.IllegalAddress || fault.Address != far {
			t.Errorf("mapped %v: what it may not use is answered with %v", mapped, err)
		}
	}
}
