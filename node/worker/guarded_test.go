package worker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"muster/device/soft"
	"muster/internal/seeds"
	"muster/wire"
	"muster/wire/control"
)

// followPTX computes on the word that a pointer in memory leads to: from its parameters nobody can tell
// which that is.
const followPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry follow(.param .u64 table, .param .u32 rounds)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	.reg .b64 %d<3>;
	ld.param.u64 %d1, [table];
	ld.param.u32 %r1, [rounds];
	ld.global.u64 %d2, [%d1];
	ld.global.u32 %r2, [%d2];
	mov.u32 %r3, 0;
AGAIN:
	mad.lo.u32 %r2, %r2, 1664525, 1013904223;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p1, %r3, %r1;
	@%p1 bra AGAIN;
	st.global.u32 [%d2], %r2;
	ret;
}
`

// A kernel that follows pointers runs on several devices, and never computes with what is old there: what
// it was not expected to use is brought before it does. Pointers change all the time, and the words
// they lead to are computed on wherever the mapper likes.
func TestKernelsThatFollowPointersAreStoppedBeforeOldMemory(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 3))
	for _, declared := range []bool{false, true} {
		t.Run(fmt.Sprint("declared=", declared), func(t *testing.T) {
			o := options{mapping: "ar:alpha=1:beta=1"}
			for i := range 3 {
				o.devices = append(o.devices, soft.Profile{Name: fmt.Sprint("device ", i), Memory: 64 * mib, Speed: 1, Workers: 1})
			}
			c := newClient(t, o)
			follow := c.load(1, []byte(followPTX), "follow")
			busy := c.load(2, []byte(busyPTX), "busy")
			const words, streams = 8, 2
			table := c.alloc(2 * mib)
			var at [words]uint64
			var is [words]uint32
			for i := range at {
				at[i], is[i] = c.alloc(2*mib), uint32(i)
				c.in(at[i], binary.LittleEndian.AppendUint32(nil, is[i]))
			}
			if declared { // of some, so that others still surprise
				c.post(&wire.MemNest{Parent: table, Children: binary.LittleEndian.AppendUint64(nil, at[0])})
			}
			for i := range streams {
				c.post(&wire.StreamCreate{Stream: uint32(i + 1), Flags: nonBlocking})
			}
			led := 0
			point := func() {
				led = r.IntN(words)
				c.in(table, binary.LittleEndian.AppendUint64(nil, at[led]))
			}
			point()
			steps := 0
			for ; steps < 20_000 && (steps < 120 || said[control.RanFurther](c) == 0); steps++ {
				switch r.IntN(4) {
				case 0:
					c.must(&wire.Synchronise{}, nil) // copies wait for no stream of these
					point()
				case 1:
					i := r.IntN(words)
					c.must(&wire.Synchronise{}, nil)
					c.busy(busy, uint32(1+r.IntN(streams)), at[i], 2)
					c.must(&wire.Synchronise{}, nil)
					is[i] = computed(is[i], 2)
				default:
					c.busy(follow, 1, table, 1)
					is[led] = computed(is[led], 1)
				}
			}
			c.must(&wire.Synchronise{}, nil)
			for i := range at {
				if got := binary.LittleEndian.Uint32(c.out(at[i], 4)); got != is[i] {
					t.Errorf("after %d steps word %d is %#x, and should be %#x", steps, i, got, is[i])
				}
			}
		})
	}
}
