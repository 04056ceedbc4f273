package vmm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Op is what a step does.
type Op uint8

// The operations, in the order in which they stand in a plan.
const (
	CopyOut    Op = iota // from the device to the host
	Unmap                // unmap the chunks and free the device's memory
	Map                  // map memory of the device there
	Fill                 // write Word throughout, on a device or on the host
	CopyIn               // from the host to the device
	CopyAcross           // from one device to another
	Discard              // free the host's pages, whose contents are out of date
	ops
)

func (o Op) String() string {
	if o < ops {
		return [...]string{"copy-out", "unmap", "map", "fill", "copy-in", "copy-across", "discard"}[o]
	}
	return fmt.Sprintf("op%d", uint8(o))
}

// Step is one operation on whole chunks.
type Step struct {
	Op     Op
	Device Place // Host for Discard, and perhaps for Fill
	Range  Range
	From   Place  // the other device, of CopyAcross
	Word   uint32 // of Fill
}

func (s Step) String() string {
	if s.Op == CopyAcross {
		return fmt.Sprintf("%v %v %v %v", s.Op, s.From, s.Device, s.Range)
	}
	if s.Op == Fill {
		return fmt.Sprintf("%v %v %v %#x", s.Op, s.Device, s.Range, s.Word)
	}
	return fmt.Sprintf("%v %v %v", s.Op, s.Device, s.Range)
}

// Plan is a list of steps, to be performed in order.
type Plan []Step

// Bytes adds up the sizes of the steps that do op.
func (p Plan) Bytes(op Op) uint64 {
	var sum uint64
	for _, step := range p {
		if step.Op == op {
			sum += step.Range.Size
		}
	}
	return sum
}

// Arrives adds up what the plan copies to devices, from wherever.
func (p Plan) Arrives() uint64 { return p.Bytes(CopyIn) + p.Bytes(CopyAcross) }

func (p Plan) String() string {
	lines := make([]string, len(p))
	for i, step := range p {
		lines[i] = step.String()
	}
	return strings.Join(lines, "\n")
}

// mover collects operations on single chunks, and makes a plan of them. The state of the space
// changes as they are added.
type mover struct {
	moves []move
	last  [ops]int // 1 + index of the last move of that kind
}

type move struct {
	op    Op
	place slot
	span
	from slot
	word uint32
}

func (m *mover) add(op Op, place slot, chunk int) { m.join(op, hostSlot, place, 0, chunk) }

func (m *mover) addFrom(op Op, from, place slot, chunk int) { m.join(op, from, place, 0, chunk) }

func (m *mover) addFill(place slot, chunk int, with fill) {
	m.join(Fill, hostSlot, place, with.word(), chunk)
}

// join adds a chunk to the last move that does op, or a new move.
func (m *mover) join(op Op, from, place slot, word uint32, chunk int) {
	if n := m.last[op]; n > 0 {
		if v := &m.moves[n-1]; v.first+v.count == chunk && v.place == place && v.from == from && v.word == word {
			v.count++
			return
		}
	}
	m.moves = append(m.moves, move{op, place, span{chunk, 1}, from, word})
	m.last[op] = len(m.moves)
}

// plan sorts the moves by operation and joins neighbours. Copies out come before unmapping, and
// mapping before copies in, so that memory is freed before it is needed and no contents are lost.
func (m *mover) plan(in *directory) Plan {
	slices.SortFunc(m.moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.place, b.place), cmp.Compare(a.from, b.from), cmp.Compare(a.first, b.first))
	})
	var plan Plan
	for _, v := range m.moves {
		r := in.rangeOf(v.span)
		step := Step{v.op, in.place(v.place), r, in.place(v.from), v.word}
		if n := len(plan) - 1; n >= 0 && plan[n].Range.end() == r.Addr {
			step.Range = plan[n].Range
			if step == plan[n] {
				plan[n].Range.Size += r.Size
				continue
			}
			step.Range = r
		}
		plan = append(plan, step)
	}
	return plan
}
