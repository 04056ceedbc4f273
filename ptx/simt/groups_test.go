package simt_test

import "testing"

// A loop whose only way back is a branch in which the lanes part each time
// still gives way to the lanes that it waits for.
func TestPartingLoopGivesWay(t *testing.T) {
	expect(t, hostile(".shared .align 8 .b8 cells[64];", `
	mov.u32 %r5, 0;
	st.shared.u32 [cells], %r5;
	bar.sync 0;
	and.b32 %r1, %t, 1;
	setp.eq.u32 %p1, %t, 31;
	@%p1 bra SET;
	TS: .branchtargets A, B, DONE;
A:	add.u32 %r5, %r5, 1;
	bra C;
B:	add.u32 %r5, %r5, 2;
C:	ld.volatile.shared.u32 %r2, [cells];
	setp.ne.u32 %p2, %r2, 0;
	selp.u32 %r3, 2, %r1, %p2;
	brx.idx %r3, TS;
SET:
	mov.u32 %r4, 1;
	st.volatile.shared.u32 [cells], %r4;
DONE:
	st.global.u32 [%mine], %r1;`), 2, 64, func(_, tid int) uint32 { return uint32(tid & 1) })
}

// Threads of a warp that is not full count as a full one at barriers that name
// a number of threads.
func TestBarrierOfPartialWarps(t *testing.T) {
	for _, block := range []int{8, 48, 200, 270} {
		expect(t, hostile(".shared .align 8 .b8 cells[1024];", `
	add.u32 %r1, %n, 31;
	and.b32 %r1, %r1, 0xffffffe0;
	st.shared.u32 [cells], %n;
	bar.sync 1, %r1;
	ld.shared.u32 %r2, [cells];
	st.global.u32 [%mine], %r2;`), 2, block, func(_, _ int) uint32 { return uint32(block) })
	}
}

// Producers arrive at a barrier, and consumers wait there for them.
func TestProducersAndConsumers(t *testing.T) {
	expect(t, hostile(".shared .align 8 .b8 cells[1024];", `
	setp.ge.u32 %p1, %t, 64;
	and.b32 %r1, %t, 63;
	shl.b32 %r1, %r1, 2;
	mov.u32 %r2, cells;
	add.u32 %r2, %r2, %r1;
	mov.u32 %r4, 0;
	mov.u32 %r5, 0;
	@%p1 bra CONSUMER;
PRODUCER:
	bar.sync 2, 128;
	add.u32 %r6, %t, %r4;
	st.shared.u32 [%r2], %r6;
	bar.arrive 1, 128;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p2, %r4, 5;
	@%p2 bra PRODUCER;
	bra DONE;
CONSUMER:
	bar.arrive 2, 128;
	bar.sync 1, 128;
	ld.shared.u32 %r6, [%r2];
	add.u32 %r5, %r5, %r6;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p2, %r4, 5;
	@%p2 bra CONSUMER;
DONE:
	st.global.u32 [%mine], %r5;`), 3, 128, func(_, tid int) uint32 {
		if tid < 64 {
			return 0
		}
		return uint32(5*(tid-64) + 10)
	})
}
