package program

import (
	"slices"
)

// Assigning slots. Registers that only hold a constant are replaced by the
// constant. Instructions whose results are not read are dropped. A register that
// carries no value from one basic block to another is private to a block: since
// groups of lanes change only between blocks, an instruction may write all its
// lanes whatever the mask, and other private registers may share its slot.

// Operands calls f for every register that an instruction reads, then for every
// one that it writes; f may replace the register.
func (o *Op) Operands(f func(c Class, id *int32, written bool)) {
	if o.ClassA != NoClass {
		f(o.ClassA, &o.A, false)
	}
	if o.ClassB != NoClass {
		f(o.ClassB, &o.B, false)
	}
	if o.ClassC != NoClass {
		f(o.ClassC, &o.C, false)
	}
	if o.ClassE != NoClass {
		f(o.ClassE, &o.E, false)
	}
	if o.Inst.Guard >= 0 {
		f(Predicate, &o.Inst.Guard, false)
	}
	for i := range o.Sources {
		f(o.cs, &o.Sources[i], false)
	}
	if o.ClassList != NoClass {
		for i := range o.List {
			if o.List[i] >= 0 {
				f(o.ClassList, &o.List[i], o.listWritten)
			}
		}
	}
	for i := range o.lists {
		f(o.lists[i].class, &o.lists[i].id, o.listWritten)
	}
	if o.ClassD != NoClass {
		f(o.ClassD, &o.D, true)
	}
	if o.ClassD2 != NoClass {
		f(o.ClassD2, &o.D2, true)
	}
}

// conditional says whether an instruction has a guard, so that its destination
// keeps the old value in some lanes: a write under a guard is a read as well.
func (o *Op) conditional() bool { return o.Inst.Guard >= 0 }

// table has an entry for each virtual register.
type table[T any] [Predicate + 1][]T

func newTable[T any](count slotCount) (t table[T]) {
	for c, n := range count {
		t[c] = make([]T, n)
	}
	return t
}

func (t *table[T]) at(r reg) *T { return &t[r.class][r.id] }

func (l *lowering) assign() *section {
	l.propagate()
	l.drop()
	l.blocks()
	s := &section{unit: l.unit, frame: l.fn.frame, shared: l.shared, block: l.threads}
	l.slots(s)
	l.finish(s)
	return s
}

// copied is what propagate knows of a register within a basic block.
type copied struct {
	block int32 // the block in which the rest holds; elsewhere nothing is known
	of    reg   // the register whose value this one has
	to    []reg // registers that may be copies of this one
}

// propagate replaces registers that are written once, with a constant, by that
// constant, and copies within a basic block by their source. When a register is
// written, what were copies of it are so no longer. The second pass uses constants
// that the first has found further down, after a jump back.
func (l *lowering) propagate() {
	writes := newTable[int32](l.count)
	constants := newTable[int32](l.count) // the register of the constant, plus one
	copies := newTable[copied](l.count)
	for i := range l.ops {
		l.ops[i].Operands(func(c Class, id *int32, written bool) {
			if written {
				*writes.at(reg{c, *id})++
			}
		})
	}
	for _, c := range l.constants {
		*constants.at(reg{c.Class, c.Slot}) = c.Slot + 1
	}
	block := int32(0)
	known := func(r reg) *copied {
		k := copies.at(r)
		if k.block != block {
			*k = copied{block: block, of: r, to: k.to[:0]}
		}
		return k
	}
	for range 2 {
		block++
		for i := range l.ops {
			o := &l.ops[i]
			if o.head {
				block++
			}
			o.Operands(func(c Class, id *int32, written bool) {
				r := reg{c, *id}
				if written {
					return
				}
				if k := *constants.at(r); k != 0 {
					*id = k - 1
				} else {
					*id = known(r).of.id
				}
			})
			o.Operands(func(c Class, id *int32, written bool) {
				if !written {
					return
				}
				r := reg{c, *id}
				k := known(r)
				k.of = r
				for _, d := range k.to {
					if other := known(d); other.of == r {
						other.of = d
					}
				}
				k.to = k.to[:0]
			})
			if o.Flow != FlowNone {
				block++
			}
			if !o.copies || o.conditional() {
				continue
			}
			d, s := o.destination(), o.source()
			if k := *constants.at(s); k != 0 && *writes.at(d) == 1 {
				*constants.at(d) = k
			} else if d != s {
				known(d).of = s
				k := known(s)
				k.to = append(k.to, d)
			}
		}
	}
}

// drop removes pure instructions whose result no instruction reads, then those
// that only they needed, and so on. Dropped ones stay in the list, with nothing to
// run, until finish leaves them out: places in the code are indices.
func (l *lowering) drop() {
	uses := newTable[int32](l.count)
	writers := newTable[int32](l.count) // head of a list: the last pure instruction that writes a register, plus one
	before := make([]int32, len(l.ops)) // the list's next: the one before it, plus one
	for i := range l.ops {
		o := &l.ops[i]
		o.Operands(func(c Class, id *int32, written bool) {
			if !written {
				*uses.at(reg{c, *id})++
			}
		})
		if o.pure {
			last := writers.at(o.destination())
			before[i], *last = *last, int32(i)+1
		}
	}
	var unused []int32
	for i := range l.ops {
		if o := &l.ops[i]; o.pure && *uses.at(o.destination()) == 0 {
			unused = append(unused, int32(i))
		}
	}
	for len(unused) > 0 {
		o := &l.ops[unused[len(unused)-1]]
		unused = unused[:len(unused)-1]
		o.Operands(func(c Class, id *int32, written bool) {
			r := reg{c, *id}
			if written {
				return
			}
			if *uses.at(r)--; *uses.at(r) == 0 {
				for w := *writers.at(r); w != 0; w = before[w-1] {
					unused = append(unused, w-1)
				}
			}
		})
		*o = Op{Inst: Inst{Guard: -1, Text: o.Text}, head: o.head}
	}
}

// dropped says whether an instruction has nothing to run.
func (o *Op) dropped() bool { return o.Do == NoOperation && o.Flow == FlowNone }

// blocks marks where basic blocks begin.
func (l *lowering) blocks() {
	for i := range l.ops {
		o := &l.ops[i]
		switch o.Flow {
		case FlowJump, FlowBranch:
			l.ops[o.Target].head = true
		case FlowTable:
			for _, t := range o.Targets {
				l.ops[t].head = true
			}
		case FlowWarp, FlowWarpWait:
			o.head = true // lanes that wait here are merged with those that come
		}
		if o.Flow != FlowNone && i+1 < len(l.ops) {
			l.ops[i+1].head = true
		}
	}
}

// slots replaces virtual registers by slots of the section: first constants, frame
// and link, which all sections of an image share, then slots that carry values
// between basic blocks, then private ones.
func (l *lowering) slots(s *section) {
	a := &assignment{slot: newTable[int32](l.count), carried: newTable[bool](l.count), final: newTable[int32](l.count)}
	for i := range l.constants {
		c := &l.constants[i]
		c.Slot = a.give(reg{c.Class, c.Slot})
	}
	s.constants = l.constants
	s.constantCount = a.next
	s.frameSlot, s.linkSlot = a.give(l.frame), a.give(l.link)
	s.common = a.next
	l.exposed(a)
	for i := range l.ops {
		l.ops[i].Operands(func(c Class, id *int32, _ bool) {
			if r := (reg{c, *id}); *a.carried.at(r) && *a.slot.at(r) == 0 {
				a.give(r)
			}
		})
	}
	for c := range a.next {
		s.carried[c] = a.next[c] - s.common[c]
	}
	for first := 0; first < len(l.ops); {
		end := first + 1
		for end < len(l.ops) && !l.ops[end].head {
			end++
		}
		l.block(a, first, end)
		first = end
	}
	for c := range a.next {
		s.private[c] = a.next[c] - s.common[c] - s.carried[c]
	}
}

// assignment is the slots of a function's registers while they are found.
type assignment struct {
	next    slotCount
	slot    table[int32] // plus one; 0 for a register that has none, or none in this block
	carried table[bool]
	final   table[int32]           // where a private register is used last, by index into ops
	pool    [Predicate + 1][]int32 // slots of private registers that are free
}

func (a *assignment) give(r reg) int32 {
	s := a.next[r.class]
	a.next[r.class]++
	*a.slot.at(r) = s + 1
	return s
}

// exposed finds the registers that some block reads before it writes them without
// a guard: they carry a value between blocks.
func (l *lowering) exposed(a *assignment) {
	written := newTable[int32](l.count) // in which block
	block := int32(1)
	for i := range l.ops {
		o := &l.ops[i]
		if o.head {
			block++
		}
		o.Operands(func(c Class, id *int32, isWrite bool) {
			r := reg{c, *id}
			switch {
			case isWrite && !o.conditional():
				*written.at(r) = block
			case *written.at(r) != block:
				*a.carried.at(r) = true
			}
		})
	}
}

// block gives the private registers of a basic block slots from the pool. A slot
// goes back to the pool after the last use of its register. An instruction is
// private if it writes private registers only, and has no guard.
func (l *lowering) block(a *assignment, first, end int) {
	isPrivate := func(r reg) bool { return !*a.carried.at(r) && (*a.slot.at(r) == 0 || *a.final.at(r) > 0) }
	for i := first; i < end; i++ {
		l.ops[i].Operands(func(c Class, id *int32, _ bool) {
			if r := (reg{c, *id}); isPrivate(r) {
				*a.final.at(r) = int32(i) + 1
			}
		})
	}
	for i := first; i < end; i++ {
		o := &l.ops[i]
		own, others := false, false // destinations
		var ended []reg
		o.Operands(func(c Class, id *int32, written bool) {
			r := reg{c, *id}
			s := a.slot.at(r)
			if !isPrivate(r) {
				*id = *s - 1
				others = others || written
				return
			}
			own = own || written
			if *s == 0 {
				if free := a.pool[c]; len(free) > 0 {
					*s = free[len(free)-1] + 1
					a.pool[c] = free[:len(free)-1]
				} else {
					a.give(r)
				}
			}
			*id = *s - 1
			if *a.final.at(r) == int32(i)+1 && !slices.Contains(ended, r) {
				ended = append(ended, r)
			}
		})
		o.Private = own && !others && !o.conditional()
		for _, r := range ended {
			a.pool[r.class] = append(a.pool[r.class], *a.slot.at(r)-1)
			*a.slot.at(r) = 0
		}
	}
}

// finish gives a section its instructions, without the dropped ones, and moves all
// places in the code accordingly.
func (l *lowering) finish(s *section) {
	place := make([]int32, len(l.ops)+1)
	n := int32(0)
	for i := range l.ops {
		place[i] = n
		if !l.ops[i].dropped() {
			n++
		}
	}
	place[len(l.ops)] = n
	s.ops = make([]Op, 0, n)
	heads := make([]bool, n+1)
	for i := range l.ops {
		o := &l.ops[i]
		heads[place[i]] = heads[place[i]] || o.head
		if o.dropped() {
			continue
		}
		switch {
		case o.calls:
		case o.Flow == FlowJump, o.Flow == FlowBranch:
			o.Target = place[o.Target]
			o.Back = o.Target <= place[i]
		case o.Flow == FlowTable:
			for j := range o.Targets {
				o.Targets[j] = place[o.Targets[j]]
				o.Back = o.Back || o.Targets[j] <= place[i]
			}
		}
		if o.links {
			o.X = place[o.X]
		}
		s.ops = append(s.ops, *o)
	}
	for _, c := range l.fn.callSites {
		s.calls = append(s.calls, call{enter: place[c.enter], jump: place[c.leave-1], callee: c.callee})
	}
	end := n - 1
	for i := end; i >= 0; i-- {
		if s.ops[i].Flow != FlowNone || heads[i+1] {
			end = i
		}
		s.ops[i].End = end
	}
}

// liveness returns, for places in a function, the registers that are live there:
// whose value some instruction from there on reads before it is overwritten. It
// walks all blocks backwards until nothing changes.
func liveness(ops []Op, places map[int32]bool) map[int32][]reg {
	f := &liveRegisters{ops: ops, number: map[reg]int{}, blockOf: make([]int32, len(ops))}
	for i := range ops {
		if i == 0 || ops[i].head || ops[i-1].Flow != FlowNone {
			f.begins = append(f.begins, i)
		}
		f.blockOf[i] = int32(len(f.begins) - 1)
		ops[i].Operands(func(c Class, id *int32, _ bool) {
			r := reg{c, *id}
			if _, known := f.number[r]; !known {
				f.number[r] = len(f.all)
				f.all = append(f.all, r)
			}
		})
	}
	words := (len(f.all) + 63) / 64
	for range f.begins {
		f.needed = append(f.needed, make([]uint64, words))
	}
	for changed := true; changed; {
		changed = false
		for b := len(f.begins) - 1; b >= 0; b-- {
			now := f.walk(b, func(int32, []uint64) {})
			if !slices.Equal(now, f.needed[b]) {
				f.needed[b] = now
				changed = true
			}
		}
	}
	found := map[int32][]reg{}
	for b := range f.begins {
		f.walk(b, func(at int32, live []uint64) {
			if !places[at] {
				return
			}
			for n, r := range f.all {
				if live[n>>6]>>(n&63)&1 != 0 {
					found[at] = append(found[at], r)
				}
			}
		})
	}
	return found
}

// liveRegisters is the state of the liveness analysis of a function.
type liveRegisters struct {
	ops     []Op
	all     []reg
	number  map[reg]int
	begins  []int      // of basic blocks
	blockOf []int32    // of instructions
	needed  [][]uint64 // at the begin of each block, a bit a register
}

// walk goes through a basic block from its end and returns what is live at its
// begin; it calls at with what is live before each instruction.
func (f *liveRegisters) walk(b int, at func(place int32, live []uint64)) []uint64 {
	end := len(f.ops)
	if b+1 < len(f.begins) {
		end = f.begins[b+1]
	}
	live := f.behind(end - 1)
	for i := end - 1; i >= f.begins[b]; i-- {
		o := &f.ops[i]
		o.Operands(func(c Class, id *int32, written bool) {
			if n := f.number[reg{c, *id}]; written && !o.conditional() {
				live[n>>6] &^= 1 << (n & 63)
			}
		})
		o.Operands(func(c Class, id *int32, written bool) {
			if n := f.number[reg{c, *id}]; !written || o.conditional() {
				live[n>>6] |= 1 << (n & 63)
			}
		})
		at(int32(i), live)
	}
	return live
}

// behind returns what is live after the last instruction of a block: the union
// over all blocks where it may lead.
func (f *liveRegisters) behind(i int) []uint64 {
	live := make([]uint64, (len(f.all)+63)/64)
	merge := func(target int32) {
		if int(target) < len(f.ops) {
			for w, bits := range f.needed[f.blockOf[target]] {
				live[w] |= bits
			}
		}
	}
	o, next := &f.ops[i], int32(i)+1
	switch o.Flow {
	case FlowJump:
		if o.calls { // the callee returns to after the jump and has its own registers
			merge(next)
		} else {
			merge(o.Target)
		}
	case FlowBranch:
		merge(o.Target)
		merge(next)
	case FlowTable:
		for _, t := range o.Targets {
			merge(t)
		}
		if o.conditional() {
			merge(next)
		}
	case FlowReturn, FlowExit, FlowTrap:
		if o.conditional() {
			merge(next)
		}
	default:
		merge(next)
	}
	return live
}
