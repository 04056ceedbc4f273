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
	copies := map[reg]reg{}   // within the basic block
	copied := map[reg][]reg{} // source -> what may be copies of it
	for range 2 {
		for i := range l.ops {
			o := &l.ops[i]
			if o.head {
				clear(copies)
				clear(copied)
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
					for _, d := range copied[r] {
						if copies[d] == r {
							delete(copies, d)
						}
					}
					delete(copied, r)
				}
			})
			if o.flow != flowNone {
				clear(copies)
				clear(copied)
			}
			if !o.copies || o.conditional() {
				continue
			}
			d, s := reg{o.cd, o.d}, reg{o.ca, o.a}
			if k, ok := constants[s]; ok && writes[d] == 1 {
				constants[d] = k
			} else if d != s {
				copies[d] = s
				copied[s] = append(copied[s], d)
			}
		}
	}
}

// drop removes instructions whose results nobody uses. They stay in the list,
// without anything to run, until emitCode leaves them out.
func (l *lowering) drop() {
	uses := map[reg]int{}
	writers := map[reg][]int{}
	for i := range l.ops {
		o := &l.ops[i]
		o.operands(func(c class, id *int32, written bool) {
			if !written {
				uses[reg{c, *id}]++
			}
		})
		if o.pure {
			d := reg{o.cd, o.d}
			writers[d] = append(writers[d], i)
		}
	}
	var unused []int
	for i := range l.ops {
		if o := &l.ops[i]; o.pure && uses[reg{o.cd, o.d}] == 0 {
			unused = append(unused, i)
		}
	}
	for len(unused) > 0 {
		o := &l.ops[unused[len(unused)-1]]
		unused = unused[:len(unused)-1]
		o.operands(func(c class, id *int32, written bool) {
			r := reg{c, *id}
			if written {
				return
			}
			if uses[r]--; uses[r] == 0 {
				unused = append(unused, writers[r]...)
			}
		})
		*o = op{inst: inst{guard: -1, text: o.text}, head: o.head, function: o.function}
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

func has[T any](m map[reg]T, r reg) bool {
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
			in.back = in.target <= place[i]
		case flowTable:
			in.targets = slices.Clone(in.targets)
			for j := range in.targets {
				in.targets[j] = place[in.targets[j]]
				in.back = in.back || in.targets[j] <= place[i]
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

// liveness returns, for places in a function whose code begins at first, the
// registers that are needed there or behind.
func liveness(ops []op, first int32, places map[int32]bool) map[int32][]reg {
	f := &liveRegisters{ops: ops, first: first, number: map[reg]int{}, blockOf: make([]int32, len(ops))}
	for i := range ops {
		if i == 0 || ops[i].head || ops[i-1].flow != flowNone {
			f.begins = append(f.begins, i)
		}
		f.blockOf[i] = int32(len(f.begins) - 1)
		ops[i].operands(func(c class, id *int32, _ bool) {
			if r := (reg{c, *id}); !has(f.number, r) {
				f.number[r] = len(f.all)
				f.all = append(f.all, r)
			}
		})
	}
	f.needed = slab[uint64](len(f.begins), (len(f.all)+63)/64)
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

// liveRegisters is a function while it is looked at for what it needs where.
type liveRegisters struct {
	ops     []op
	first   int32
	all     []reg
	number  map[reg]int
	begins  []int      // of basic blocks
	blockOf []int32    // of instructions
	needed  [][]uint64 // at the begin of each block, a bit a register
}

// walk goes through a basic block from its end and returns what is needed at
// its begin; it calls at with what is needed at each place.
func (f *liveRegisters) walk(b int, at func(place int32, live []uint64)) []uint64 {
	end := len(f.ops)
	if b+1 < len(f.begins) {
		end = f.begins[b+1]
	}
	live := f.behind(end - 1)
	for i := end - 1; i >= f.begins[b]; i-- {
		o := &f.ops[i]
		o.operands(func(c class, id *int32, written bool) {
			if n := f.number[reg{c, *id}]; written && !o.conditional() {
				live[n>>6] &^= 1 << (n & 63)
			}
		})
		o.operands(func(c class, id *int32, written bool) {
			if n := f.number[reg{c, *id}]; !written || o.conditional() {
				live[n>>6] |= 1 << (n & 63)
			}
		})
		at(f.first+int32(i), live)
	}
	return live
}

// behind returns what is needed behind the last instruction of a block.
func (f *liveRegisters) behind(i int) []uint64 {
	live := make([]uint64, (len(f.all)+63)/64)
	merge := func(target int32) {
		if j := int(target - f.first); j >= 0 && j < len(f.ops) {
			for w, bits := range f.needed[f.blockOf[j]] {
				live[w] |= bits
			}
		}
	}
	o, next := &f.ops[i], f.first+int32(i)+1
	switch o.flow {
	case flowJump:
		if j := o.target - f.first; j >= 0 && int(j) < len(f.ops) && f.ops[j].function == o.function {
			merge(o.target)
		}
		// A call is a jump out of the function that comes back.
		if i+1 < len(f.ops) && f.ops[i+1].returns {
			merge(next)
		}
	case flowBranch:
		merge(o.target)
		merge(next)
	case flowTable:
		for _, t := range o.targets {
			merge(t)
		}
		if o.conditional() {
			merge(next)
		}
	case flowReturn, flowExit, flowTrap:
		if o.conditional() {
			merge(next)
		}
	default:
		merge(next)
	}
	return live
}
