package simt

import (
	"slices"
)

// Assigning slots. Registers that only hold constants become these constants.
// What nobody uses is dropped. Registers that carry nothing from one basic
// block to another are private to a block: all lanes may be written without
// regard to the mask, and their slots are used again.

// operands calls f for every register that an instruction reads or writes; f
// may change it.
func (o *op) operands(f func(c class, id *int32, written bool)) {
	if o.ca != none {
		f(o.ca, &o.a, false)
	}
	if o.cb != none {
		f(o.cb, &o.b, false)
	}
	if o.cc != none {
		f(o.cc, &o.c, false)
	}
	if o.ce != none {
		f(o.ce, &o.e, false)
	}
	if o.inst.guard >= 0 {
		f(predicate, &o.inst.guard, false)
	}
	if o.cl != none {
		for i := range o.list {
			if o.list[i] >= 0 {
				f(o.cl, &o.list[i], o.listWritten)
			}
		}
	}
	for i := range o.lists {
		f(o.lists[i].class, &o.lists[i].id, o.listWritten)
	}
	if o.cd != none {
		f(o.cd, &o.d, true)
	}
	if o.cd2 != none {
		f(o.cd2, &o.d2, true)
	}
}

// conditional says whether an instruction may leave its destination as it was.
func (o *op) conditional() bool { return o.inst.guard >= 0 }

func (l *lowering) assign() {
	l.propagate()
	l.drop()
	l.blocks()
	l.slots()
	l.emitCode()
}

// propagate replaces registers that are written once, with a constant, by that
// constant, and copies within a basic block by their source.
func (l *lowering) propagate() {
	writes := map[reg]int{}
	for i := range l.ops {
		l.ops[i].operands(func(c class, id *int32, written bool) {
			if written {
				writes[reg{c, *id}]++
			}
		})
	}
	constants := map[reg]reg{}
	for _, c := range l.constants {
		r := reg{c.class, c.slot}
		constants[r] = r
	}
	copies := map[reg]reg{} // within the basic block
	for range 2 {
		for i := range l.ops {
			o := &l.ops[i]
			if o.head {
				clear(copies)
			}
			o.operands(func(c class, id *int32, written bool) {
				r := reg{c, *id}
				if written {
					return
				}
				if k, ok := constants[r]; ok {
					*id = k.id
				} else if s, ok := copies[r]; ok {
					*id = s.id
				}
			})
			o.operands(func(c class, id *int32, written bool) {
				if written {
					r := reg{c, *id}
					delete(copies, r)
					for d, s := range copies {
						if s == r {
							delete(copies, d)
						}
					}
				}
			})
			if o.flow != flowNone {
				clear(copies)
			}
			if !o.copies || o.conditional() {
				continue
			}
			d, s := reg{o.cd, o.d}, reg{o.ca, o.a}
			if k, ok := constants[s]; ok && writes[d] == 1 {
				constants[d] = k
			} else if d != s {
				copies[d] = s
			}
		}
	}
}

// drop removes instructions whose results nobody uses. They stay in the list,
// without anything to run, until emitCode leaves them out.
func (l *lowering) drop() {
	for {
		used := map[reg]bool{}
		for i := range l.ops {
			l.ops[i].operands(func(c class, id *int32, written bool) {
				if !written {
					used[reg{c, *id}] = true
				}
			})
		}
		dropped := false
		for i := range l.ops {
			o := &l.ops[i]
			if o.pure && !used[reg{o.cd, o.d}] && o.run != nil {
				*o = op{inst: inst{guard: -1, text: o.text}, head: o.head, function: o.function}
				dropped = true
			}
		}
		if !dropped {
			return
		}
	}
}

// dropped says whether an instruction has nothing to run.
func (o *op) dropped() bool { return o.run == nil && o.flow == flowNone }

// blocks marks where basic blocks begin.
func (l *lowering) blocks() {
	for i := range l.ops {
		o := &l.ops[i]
		switch o.flow {
		case flowJump, flowBranch:
			l.ops[o.target].head = true
		case flowTable:
			for _, t := range o.targets {
				l.ops[t].head = true
			}
		case flowWarp, flowWarpWait:
			o.head = true // where those that wait come together
		}
		if o.flow != flowNone && i+1 < len(l.ops) {
			l.ops[i+1].head = true
		}
	}
}

// slots replaces virtual registers by slots.
func (l *lowering) slots() {
	exposed := l.exposed()
	var next [predicate + 1]int32
	shared := map[reg]int32{}
	give := func(r reg) int32 {
		if s, ok := shared[r]; ok {
			return s
		}
		shared[r] = next[r.class]
		next[r.class]++
		return shared[r]
	}
	for i := range l.constants {
		c := &l.constants[i]
		c.slot = give(reg{c.class, c.slot})
	}
	constant := next
	for i := range l.ops {
		l.ops[i].operands(func(c class, id *int32, _ bool) {
			if exposed[reg{c, *id}] {
				give(reg{c, *id})
			}
		})
	}
	for c := range next {
		l.kernel.carried[c] = [2]int32{constant[c], next[c]}
	}
	var pool [predicate + 1][]int32 // slots of private registers that are free
	for first := 0; first < len(l.ops); {
		end := first + 1
		for end < len(l.ops) && !l.ops[end].head {
			end++
		}
		l.block(l.ops[first:end], shared, &next, &pool)
		first = end
	}
	l.kernel.n32, l.kernel.n64, l.kernel.np = int(next[bits32]), int(next[bits64]), int(next[predicate])
	constants := 0
	for _, c := range l.constants {
		constants++
		if c.class == bits64 {
			constants++
		}
		if c.perBlock() {
			l.kernel.perBlock = append(l.kernel.perBlock, c)
		} else {
			l.kernel.constants = append(l.kernel.constants, c)
		}
	}
	l.kernel.Registers = max(16, l.kernel.n32+2*l.kernel.n64-constants)
}

// exposed returns the registers that some block reads before it writes them in
// all its lanes: they carry a value between blocks. Constants are exposed.
func (l *lowering) exposed() map[reg]bool {
	exposed := map[reg]bool{}
	for _, c := range l.constants {
		exposed[reg{c.class, c.slot}] = true
	}
	written := map[reg]bool{}
	for i := range l.ops {
		o := &l.ops[i]
		if o.head {
			clear(written)
		}
		o.operands(func(c class, id *int32, isWrite bool) {
			r := reg{c, *id}
			switch {
			case isWrite && !o.conditional():
				written[r] = true
			case !written[r]:
				exposed[r] = true
			}
		})
	}
	return exposed
}

// block gives the private registers of a basic block slots from the pool.
func (l *lowering) block(ops []op, shared map[reg]int32, next *[predicate + 1]int32, pool *[predicate + 1][]int32) {
	final := map[reg]int{}
	for i := range ops {
		ops[i].operands(func(c class, id *int32, _ bool) {
			if r := (reg{c, *id}); !has(shared, r) {
				final[r] = i
			}
		})
	}
	current := map[reg]int32{}
	for i := range ops {
		o := &ops[i]
		own, others := false, false // destinations
		var ended []reg
		o.operands(func(c class, id *int32, written bool) {
			r := reg{c, *id}
			if s, ok := shared[r]; ok {
				*id = s
				others = others || written
				return
			}
			own = own || written
			s, ok := current[r]
			if !ok {
				if free := pool[c]; len(free) > 0 {
					s = free[len(free)-1]
					pool[c] = free[:len(free)-1]
				} else {
					s = next[c]
					next[c]++
				}
				current[r] = s
			}
			*id = s
			if final[r] == i && !slices.Contains(ended, r) {
				ended = append(ended, r)
			}
		})
		o.private = own && !others && !o.conditional()
		for _, r := range ended {
			pool[r.class] = append(pool[r.class], current[r])
			delete(current, r)
		}
	}
}

func has(m map[reg]int32, r reg) bool {
	_, ok := m[r]
	return ok
}

// emitCode writes the final code, without what was dropped.
func (l *lowering) emitCode() {
	k := l.kernel
	place := make([]int32, len(l.ops)+1)
	n := int32(0)
	heads := map[int32]bool{}
	for i := range l.ops {
		o := &l.ops[i]
		place[i] = n
		if o.head {
			heads[n] = true
		}
		if !o.dropped() {
			n++
		}
	}
	place[len(l.ops)] = n
	for i := range l.ops {
		o := &l.ops[i]
		if o.dropped() {
			continue
		}
		in := o.inst
		switch in.flow {
		case flowJump, flowBranch:
			in.target = place[in.target]
		case flowTable:
			in.targets = slices.Clone(in.targets)
			for j := range in.targets {
				in.targets[j] = place[in.targets[j]]
			}
		}
		if len(o.lists) > 0 {
			classes := make([]class, len(o.lists))
			in.list = make([]int32, len(o.lists))
			for j, r := range o.lists {
				classes[j], in.list[j] = r.class, r.id
			}
			in.k = classes
		}
		if o.links {
			in.x = place[in.x]
		}
		k.code = append(k.code, in)
	}
	for f, fn := range l.functions {
		if f.Entry {
			k.entry = place[fn.entry]
		}
		if at, ok := l.program.functions[f]; ok {
			k.entries[at] = place[fn.entry]
		}
	}
	end := int32(len(k.code) - 1)
	for i := end; i >= 0; i-- {
		if k.code[i].flow != flowNone || i < int32(len(k.code)-1) && heads[i+1] {
			end = i
		}
		k.code[i].end = end
	}
}

// liveness returns, for each instruction, the registers that are needed at it
// or behind it.
func liveness(ops []op, first int32) []map[reg]bool {
	live := make([]map[reg]bool, len(ops)+1)
	for i := range live {
		live[i] = map[reg]bool{}
	}
	for changed := true; changed; {
		changed = false
		for i := len(ops) - 1; i >= 0; i-- {
			o := &ops[i]
			now := map[reg]bool{}
			merge := func(from int32) {
				if j := from - first; j >= 0 && int(j) < len(live) {
					for r := range live[j] {
						now[r] = true
					}
				}
			}
			switch o.flow {
			case flowJump:
				if j := o.target - first; j >= 0 && int(j) < len(ops) && ops[j].function == o.function {
					merge(o.target)
				}
				// A call is a jump out of the function that comes back.
				if i+1 < len(ops) && ops[i+1].returns {
					merge(first + int32(i) + 1)
				}
			case flowBranch:
				merge(o.target)
				merge(first + int32(i) + 1)
			case flowTable:
				for _, t := range o.targets {
					merge(t)
				}
				if o.conditional() {
					merge(first + int32(i) + 1)
				}
			case flowReturn, flowExit, flowTrap:
				if o.conditional() {
					merge(first + int32(i) + 1)
				}
			default:
				merge(first + int32(i) + 1)
			}
			o.operands(func(c class, id *int32, written bool) {
				if written && !o.conditional() {
					delete(now, reg{c, *id})
				}
			})
			o.operands(func(c class, id *int32, written bool) {
				if !written || o.conditional() {
					now[reg{c, *id}] = true
				}
			})
			if len(now) != len(live[i]) {
				live[i] = now
				changed = true
			}
		}
	}
	return live
}
