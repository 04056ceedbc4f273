package simt

import (
	"fmt"

	"muster/ptx/simt/heap"
)

// heapCall is what a call of malloc or free counts as for gang.did, beside its search.
const heapCall = 256

// onHeap calls do for each active lane, with the heap locked. A fault releases it.
func (g *gang) onHeap(in *inst, do func(m *heap.Map, lane int, frame uint64)) {
	h := g.team.x.launch.Heap
	first := g.mask.first()
	r, ok := g.team.x.memory.Find(h.Base)
	if !ok || r.Base+uint64(len(r.Bytes)) < h.Base+h.Size {
		g.fault(in, first, IllegalAddress, h.Base, "the heap is not mapped")
	}
	ok = h.Use(r.Bytes[h.Base-r.Base:][:h.Size], func(m *heap.Map) {
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				g.did(heapCall)
				do(m, lane, g.r64.lane(in.A, lane))
			}
		}
		g.did(m.Work)
	})
	if !ok {
		g.fault(in, first, IllegalAddress, h.Base, "a kernel has overwritten the records of the heap")
	}
}

// runMalloc: a: frame; list: places of the size and the result in it.
func runMalloc(g *gang, in *inst) {
	h, check := g.team.x.launch.Heap, g.team.x.check
	g.onHeap(in, func(m *heap.Map, lane int, frame uint64) {
		size := g.readLocal(in, lane, frame+uint64(in.List[0]), 8)
		addr := m.Malloc(size)
		if addr != 0 {
			addr += h.Base
			if check != nil {
				check.AddArea(addr, size, fmt.Sprintf("malloc(%d) at line %d", size, in.Text.Pos.Line), false)
			}
		}
		g.writeLocal(in, lane, frame+uint64(in.List[1]), 8, addr)
		if check != nil {
			check.writeLocal(g, lane, frame+uint64(in.List[1]), 8)
		}
	})
}

// runFree: a: frame; list: place of the address in it.
func runFree(g *gang, in *inst) {
	h, check := g.team.x.launch.Heap, g.team.x.check
	g.onHeap(in, func(m *heap.Map, lane int, frame uint64) {
		addr := g.readLocal(in, lane, frame+uint64(in.List[0]), 8)
		if addr == 0 {
			return
		}
		if addr-h.Base >= h.Size || !m.Release(addr-h.Base) {
			g.fault(in, lane, IllegalAddress, addr, "free is given what malloc has not returned, or what is free already")
		}
		if check != nil {
			check.RetireArea(addr)
		}
	})
}
