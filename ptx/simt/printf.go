package simt

import (
	"fmt"
	"strings"

	"muster/ptx/simt/printf"
)

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
