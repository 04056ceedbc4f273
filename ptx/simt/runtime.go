package simt

import (
	"fmt"
	"strings"

	"muster/ptx/simt/heap"
	"muster/ptx/simt/printf"
)

// What kernels call of CUDA's runtime: malloc and free, and printf.

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

// runPrintf: a: frame; list: places of format, arguments and result in it. The
// result is the number of arguments, as on a GPU.
func runPrintf(g *gang, in *inst) {
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		frame := g.r64.lane(in.A, lane)
		format := g.text(in, lane, g.readLocal(in, lane, frame+uint64(in.List[0]), 8))
		args := g.readLocal(in, lane, frame+uint64(in.List[1]), 8)
		out, n := printf.Format(format, args, laneMemory{g, in, lane})
		g.did(16 * uint64(len(format)+len(out)))
		g.writeLocal(in, lane, frame+uint64(in.List[2]), 4, uint64(n))
		if print := g.team.x.launch.Print; print != nil {
			g.team.x.print.Lock()
			print([]byte(out))
			g.team.x.print.Unlock()
		}
	}
}

// runAssertFail: list: places of message, file, line, function and char size. Every
// thread that has come here says so, as on a GPU; the first one is the fault's.
func runAssertFail(g *gang, in *inst) {
	if complain := g.team.x.launch.Complain; complain != nil {
		for lane := g.lo; lane < g.hi; lane++ {
			if !g.mask.has(lane) {
				continue
			}
			a := g.assertion(in, lane)
			b, t := g.position(lane)
			g.team.x.print.Lock()
			complain(fmt.Appendf(nil, "%s:%d: %s: block: [%d,%d,%d], thread: [%d,%d,%d] Assertion `%s` failed.\n",
				a.file, a.line, a.function, b.X, b.Y, b.Z, t.X, t.Y, t.Z, a.message))
			g.team.x.print.Unlock()
		}
	}
	lane := g.mask.first()
	a := g.assertion(in, lane)
	g.fault(in, lane, Asserted, 0, fmt.Sprintf("%s:%d: %s: assertion %q failed", a.file, a.line, a.function, a.message))
}

// assertion is what a thread gives to __assertfail.
type assertion struct {
	message, file, function string
	line                    uint64
}

func (g *gang) assertion(in *inst, lane int) assertion {
	frame := g.r64.lane(in.A, lane)
	text := func(i int) string {
		return g.text(in, lane, g.readLocal(in, lane, frame+uint64(in.List[i]), 8))
	}
	return assertion{message: text(0), file: text(1), function: text(3), line: g.readLocal(in, lane, frame+uint64(in.List[2]), 4)}
}

// laneMemory is the memory that a lane's printf reads arguments from.
type laneMemory struct {
	g    *gang
	in   *inst
	lane int
}

func (m laneMemory) Number(addr, size uint64) uint64 {
	if size == 4 {
		return uint64(loadLane[uint32](m.g, m.in, m.lane, addr))
	}
	return loadLane[uint64](m.g, m.in, m.lane, addr)
}

func (m laneMemory) Text(addr uint64) string {
	text := m.g.text(m.in, m.lane, addr)
	m.g.did(16 * uint64(len(text)))
	return text
}

// text reads a string from memory, up to its zero byte.
func (g *gang) text(in *inst, lane int, addr uint64) string {
	var b strings.Builder
	for b.Len() < printf.MaxText {
		c := loadLane[uint8](g, in, lane, addr)
		if c == 0 {
			break
		}
		b.WriteByte(c)
		addr++
	}
	return b.String()
}
