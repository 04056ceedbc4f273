package soft

import (
	"context"
	"errors"
	"strings"
	"testing"

	"muster/device"
)

// heapWork has kernels that build a list of threads x rounds blocks from malloc, and take it
// apart again, counting the blocks that they free.
const heapWork = `.version 6.4
.target sm_70
.address_size 64
.extern .func (.param .b64 back) malloc(.param .b64 size);
.extern .func free(.param .b64 memory);
.visible .entry chain(.param .u64 heads, .param .u32 rounds)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<6>;
	.reg .pred %p;
	ld.param.u64 %rd1, [heads];
	ld.param.u32 %r1, [rounds];
	mov.u32 %r2, %tid.x;
	mad.wide.u32 %rd1, %r2, 8, %rd1;
	mov.u64 %rd2, 0;
NEXT:
	{ .param .b64 size; .param .b64 back;
	st.param.b64 [size], 48;
	call.uni (back), malloc, (size);
	ld.param.b64 %rd3, [back]; }
	st.u64 [%rd3], %rd2;
	st.u32 [%rd3+8], %r2;
	mov.u64 %rd2, %rd3;
	sub.u32 %r1, %r1, 1;
	setp.ne.u32 %p, %r1, 0;
	@%p bra NEXT;
	st.global.u64 [%rd1], %rd2;
	ret;
}
.visible .entry unchain(.param .u64 heads)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<6>;
	.reg .pred %p;
	ld.param.u64 %rd1, [heads];
	mov.u32 %r2, %tid.x;
	mad.wide.u32 %rd1, %r2, 8, %rd1;
	ld.global.u64 %rd2, [%rd1];
	mov.u32 %r1, 0;
NEXT:
	setp.eq.u64 %p, %rd2, 0;
	@%p bra DONE;
	ld.u64 %rd3, [%rd2];
	ld.u32 %r3, [%rd2+8];
	setp.ne.u32 %p, %r3, %r2;
	@%p trap;
	{ .param .b64 memory; st.param.b64 [memory], %rd2; call.uni free, (memory); }
	mov.u64 %rd2, %rd3;
	add.u32 %r1, %r1, 1;
	bra NEXT;
DONE:
	cvt.u64.u32 %rd2, %r1;
	st.global.u64 [%rd1], %rd2;
	ret;
}
`

// heapContext opens a context with a mapped heap and loads heapWork.
func heapContext(t *testing.T, d *Device, heap []byte) (*Context, device.Function, device.Function) {
	c := openContext(t, d)
	at := c.mem.arena.at.Heap(device.DefaultHeap)
	must(t, c.Map(base, granule))
	must(t, c.Map(at.Base, at.Size))
	bytes, _ := c.mem.bytes(at.Base, at.Size)
	copy(bytes, heap)
	m, err := c.Load([]byte(heapWork))
	must(t, err)
	chain, err := m.Function("chain")
	must(t, err)
	unchain, err := m.Function("unchain")
	must(t, err)
	if !chain.Info().Heap || chain.Info().Touches != nil || chain.Info().Follows {
		t.Errorf("it is not known that the kernel allocates memory: %+v", chain.Info())
	}
	return c, chain, unchain
}

// Without memory for its heap a kernel is refused, and so is one whose heap does not fit
// into the arena; the limit says where the heap is.
func TestHeapMustBeMapped(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	m, err := c.Load([]byte(heapWork))
	must(t, err)
	f, err := m.Function("unchain")
	must(t, err)
	must(t, c.Map(base, granule))
	s, one := newStream(t, c), device.Dim{X: 1, Y: 1, Z: 1}
	try := func() error {
		return s.Launch(f, device.Launch{Grid: one, Block: one, Params: words64(base)})
	}
	for size, text := range map[uint64]string{device.DefaultHeap: "map 8388608 bytes at", 3 << 20: "map 4194304 bytes at", 1 << 40: "no room for a heap"} {
		must(t, c.Can().SetLimit(device.LimitHeap, size))
		if err := try(); !errors.Is(err, device.ErrInvalidValue) || !strings.Contains(err.Error(), text) {
			t.Errorf("a heap of %d bytes: %v", size, err)
		}
	}
	must(t, c.Can().SetLimit(device.LimitHeap, 3<<20))
	at := c.mem.arena.at.Heap(3 << 20)
	must(t, c.Map(at.Base, at.Size))
	must(t, s.Fill(base, 0, 4, 2))
	must(t, try())
	must(t, s.Synchronise(context.Background()))
}
