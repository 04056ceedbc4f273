//go:build linux && amd64

package native

import "slices"

// step is an instruction with what the analysis knows about it.
type step struct {
	*Op
	index   int32
	sources []Kind // of Sources
	kind    Kind   // of D, or of all Elements of a load
	old     Kind   // of D before the instruction; lanes without the guard keep that value
	olds    []Kind // the same, of Elements of a guarded load
	pointer int    // which of the frame's Pointers, or ChunkPointers, an access uses that has one
	anyNaN  bool   // if the result is a NaN, no instruction depends on its bits
}

// analysis is what is known of a kernel's registers. A carried register has one
// kind everywhere, so that all blocks agree on it. A private one has a kind of its
// own after each write in a block.
type analysis struct {
	*Kernel
	slots    slotCounts
	steps    []step          // by instruction; each walk fills them in anew
	kinds    table[Kind]     // constant, carried everywhere, private at the current instruction of the walk
	given    table[Constant] // constants; others have no kind here
	locals   []Ref           // private registers that the basic block of the walk has written
	replaced []Value         // private registers that the current instruction writes, with their kinds before
	changed  bool            // a carried kind has changed during the walk

	number table[int32] // index into refs, plus one
	refs   []Ref        // all registers
	fixed  []bool       // by refs: constants and predicates, whose kind never changes
	needed [][]uint64   // live registers before each instruction, one bit each
	inLoop []bool       // by instruction: a branch leads back over it
}

func (a *analysis) isCarried(r Ref) bool {
	return r.Slot >= a.Carried[r.Class][0] && r.Slot < a.Carried[r.Class][1]
}

// kindOf returns the kind of a register at the current instruction of the walk.
func (a *analysis) kindOf(r Ref) Kind {
	if r.Class == Predicate {
		return Kind{Form: Vector}
	}
	return *a.kinds.at(r)
}

// begin makes the tables of a kernel.
func (a *analysis) begin() {
	a.slots = countSlots(a.Kernel)
	a.kinds, a.given, a.number = newTable[Kind](&a.slots), newTable[Constant](&a.slots), newTable[int32](&a.slots)
	for r, c := range a.Constants {
		*a.given.at(r) = c
		*a.kinds.at(r) = c.Kind
	}
	sources := 0
	for i := range a.Ops {
		sources += len(a.Ops[i].Sources)
	}
	all := make([]Kind, sources)
	a.steps = make([]step, len(a.Ops))
	for i := range a.Ops {
		n := len(a.Ops[i].Sources)
		a.steps[i] = step{Op: &a.Ops[i], index: int32(i), sources: all[:n:n]}
		all = all[n:]
	}
}

func (a *analysis) isConstant(r Ref) bool { return a.given.at(r).Kind.Form != unknown }

// join returns the best kind that covers both: kinds form a lattice from unknown
// over uniform or linear, chunked with stride 0 or another stride, to vector.
func join(x, y Kind) Kind {
	switch {
	case x.Form == unknown || x == y:
		return y
	case y.Form == unknown:
		return x
	case x.Form != Vector && y.Form != Vector && x.Stride == y.Stride:
		return Kind{Chunked, x.Stride}
	}
	return Kind{Form: Vector}
}

// findKinds guesses a kind for each carried register: the best one that all
// instructions which write it can produce. Kinds only ever get worse (join), so the
// walks come to a fixed point.
func (a *analysis) findKinds() {
	for a.changed = true; a.changed; {
		for a.changed {
			a.changed = false
			a.walk(func(*step) {})
		}
		// A register that is still unknown depends on itself only, or is never
		// written: it gets the safe kind.
		for i := range a.Ops {
			for _, r := range a.Ops[i].Reads {
				if k := a.kinds.at(r); r.Class != Predicate && a.isCarried(r) && k.Form == unknown {
					k.Form = Vector
					a.changed = true
				}
			}
		}
	}
}

// walk goes through all instructions in order, updates the kinds of the registers
// that they write, and calls f with what is known of each.
func (a *analysis) walk(f func(*step)) {
	first := int32(0)
	for i := range a.Ops {
		o := &a.Ops[i]
		if o.Head {
			first = int32(i)
			for _, r := range a.locals {
				*a.kinds.at(r) = Kind{}
			}
			a.locals = a.locals[:0]
		}
		s := &a.steps[i]
		for i, r := range o.Sources {
			s.sources[i] = a.kindOf(r)
		}
		s.old = a.kindOf(o.D)
		s.olds = s.olds[:0]
		if o.Guard >= 0 && o.Name == "ld" {
			for _, r := range o.Elements {
				s.olds = append(s.olds, a.kindOf(r))
			}
		}
		natural := a.result(s)
		if len(o.Writes) > 1 && natural.Form != unknown { // all destinations of an instruction get one kind
			for _, r := range o.Writes {
				if a.isCarried(r) && (a.kinds.at(r).Form == Vector || a.Diverged[first]) || a.Irregular[r] {
					natural = Kind{Form: Vector}
				}
			}
		}
		a.replaced = a.replaced[:0]
		for _, r := range o.Writes {
			if r.Class == Predicate {
				continue
			}
			k := natural
			if k.Form == Linear && a.Uneven[r] {
				k.Form = Chunked
			}
			if a.Irregular[r] || a.isCarried(r) && a.Diverged[first] && k.Form != unknown {
				k = Kind{Form: Vector}
			}
			known := a.kinds.at(r)
			if !a.isCarried(r) {
				a.replaced = append(a.replaced, Value{Ref: r, Kind: *known})
				a.locals = append(a.locals, r)
				*known = k
			} else if all := join(*known, k); all != *known {
				*known = all
				a.changed = true
			}
			s.kind = *known
		}
		f(s)
	}
}

// result returns the best kind that an instruction can give its destination;
// unknown while a source is.
func (a *analysis) result(s *step) Kind {
	vector := Kind{Form: Vector}
	if s.Name == "" || s.Guard >= 0 {
		return vector
	}
	uniform := true
	for _, k := range s.sources {
		switch k.Form {
		case unknown:
			return Kind{}
		case Uniform:
		default:
			uniform = false
		}
	}
	if s.Name == "ld" {
		if uniform && (s.Space == Global || s.Space == Shared && !a.Several) && !slices.ContainsFunc(s.Elements, func(r Ref) bool { return r.Slot < 0 }) {
			return Kind{Form: Uniform}
		}
		return vector
	}
	if uniform && a.uniformly(s) {
		return Kind{Form: Uniform}
	}
	if k, ok := a.chunked(s); ok {
		return k
	}
	return vector
}

// uniformly says whether an instruction can be done on general registers.
func (a *analysis) uniformly(s *step) bool {
	switch s.Name {
	case "shl.b32", "shr.u32", "shr.s32", "shl.b64", "shr.u64", "shr.s64":
		return a.given.at(s.Op.Sources[1]).Known
	}
	return uniformOps[s.Name] != nil
}

// literal returns the value of a source that is a constant in every launch.
func (a *analysis) literal(s *step, i int) (int64, bool) {
	c := a.given.at(s.Op.Sources[i])
	v := int64(c.Value)
	if s.Op.Sources[i].Class == Bits32 {
		v = int64(int32(v))
	}
	return v, c.Known
}

// chunked returns the kind of a result whose sources are all uniform, linear or
// chunked, if the instruction keeps that and the new stride is known when the code is
// made. Strides stay below 2^20, so that 255 of them cannot wrap around twice: the
// checks for a wrap compare the first and the last lane of a chunk, or of the gang, only.
// An unsigned product of something that descends is left to the lanes: where some lanes of
// a chunk do not run, those mostly have wrapped around. In a gang with several blocks the
// check of what is linear knows which lanes run.
func (a *analysis) chunked(s *step) (Kind, bool) {
	form := Linear
	for _, k := range s.sources {
		switch k.Form {
		case Vector:
			return Kind{}, false
		case Chunked:
			form = Chunked
		}
	}
	stride := func(i int) int64 { return s.sources[i].Stride }
	// product is the stride of a product of two sources; one must be a literal,
	// unless neither has a stride.
	product := func(x, y int) (int64, bool) {
		if stride(x) == 0 && stride(y) == 0 {
			return 0, true
		}
		if v, ok := a.literal(s, y); ok {
			return stride(x) * v, true
		}
		if v, ok := a.literal(s, x); ok {
			return stride(y) * v, true
		}
		return 0, false
	}
	// negative says that a source is a literal that is negative if it has a sign: as an
	// unsigned factor it is not what product counts with.
	negative := func(i int) bool {
		v, known := a.literal(s, i)
		return known && v < 0
	}
	var d int64
	ok := true
	switch s.Name {
	case "mov.b32", "mov.b64", "cvt.u32.u64", "cvt.s32.s64", "cvt.u32.s64", "cvt.s32.u64", "cvt.s64.s32", "cvt.u64.s32", "cvt.u64.u32", "cvt.s64.u32":
		d = stride(0)
	case "neg.s32", "neg.s64":
		d = -stride(0)
	case "add.b32", "add.b64":
		d = stride(0) + stride(1)
	case "sub.b32", "sub.b64":
		d = stride(0) - stride(1)
	case "shl.b32", "shl.b64":
		by, known := a.literal(s, 1)
		if ok = known && by >= 0 && by < 32; ok {
			d = stride(0) << by
		}
	case "mul.lo.b32", "mul.lo.b64", "mul.wide.s32", "mul.wide.u32":
		d, ok = product(0, 1)
		ok = ok && (s.Name != "mul.wide.u32" || (d >= 0 || form == Linear && a.Several) && !negative(0) && !negative(1))
	case "mad.lo.b32", "mad.lo.b64", "mad.wide.s32", "mad.wide.u32":
		d, ok = product(0, 1)
		ok = ok && (s.Name != "mad.wide.u32" || (d >= 0 || form == Linear && a.Several) && !negative(0) && !negative(1))
		d += stride(2)
	default:
		return Kind{}, false
	}
	if ok = ok && d > -1<<20 && d < 1<<20; !ok {
		return Kind{}, false
	}
	if form == Linear && d == 0 {
		form = Uniform
	}
	return Kind{form, d}, true
}

// findNeeded finds the registers that are live before each instruction, backwards
// to a fixed point.
func (a *analysis) findNeeded() {
	add := func(r Ref) {
		if n := a.number.at(r); *n == 0 && r.Slot >= 0 {
			a.refs = append(a.refs, r)
			*n = int32(len(a.refs))
			a.fixed = append(a.fixed, a.isConstant(r) || r.Class == Predicate)
		}
	}
	set := func(live []uint64, r Ref, on bool) {
		if n := *a.number.at(r) - 1; n < 0 {
			return
		} else if on {
			live[n>>6] |= 1 << (n & 63)
		} else {
			live[n>>6] &^= 1 << (n & 63)
		}
	}
	for i := range a.Ops {
		for _, r := range a.Ops[i].Reads {
			add(r)
		}
		for _, r := range a.Ops[i].Writes {
			add(r)
		}
	}
	words := (len(a.refs) + 63) / 64
	a.needed = make([][]uint64, len(a.Ops)+1)
	all := make([]uint64, words*(len(a.Ops)+1))
	for i := range a.needed {
		a.needed[i] = all[i*words:][:words:words]
	}
	now := make([]uint64, words)
	for changed := true; changed; {
		changed = false
		for i := len(a.Ops) - 1; i >= 0; i-- {
			a.behind(int32(i), now)
			o := &a.Ops[i]
			for _, r := range o.Writes {
				set(now, r, o.Guard >= 0) // lanes without the guard keep what is there
			}
			for _, r := range o.Reads {
				set(now, r, true)
			}
			if !slices.Equal(now, a.needed[i]) {
				copy(a.needed[i], now)
				changed = true
			}
		}
	}
}

// behind sets now to what is live behind an instruction.
func (a *analysis) behind(i int32, now []uint64) {
	clear(now)
	merge := func(to int32) {
		for w, bits := range a.needed[to] {
			now[w] |= bits
		}
	}
	o := &a.Ops[i]
	switch o.Flow {
	case FlowNone, FlowBarrier:
		merge(i + 1)
	case FlowJump:
		merge(o.Target)
	case FlowBranch:
		merge(o.Target)
		merge(i + 1)
	}
	for _, to := range o.Successors {
		merge(to)
	}
	if o.Anywhere {
		for n, r := range a.refs {
			if a.isCarried(r) {
				now[n>>6] |= 1 << (n & 63)
			}
		}
	}
}

// findLoops finds the instructions that a branch back may repeat.
func (a *analysis) findLoops() {
	a.inLoop = make([]bool, len(a.Ops))
	for i := range a.Ops {
		o := &a.Ops[i]
		if o.Flow == FlowJump || o.Flow == FlowBranch {
			for to := int(o.Target); to <= i; to++ {
				a.inLoop[to] = true
			}
		}
	}
}

func (a *analysis) isNeeded(r Ref, pc int32) bool {
	n := *a.number.at(r) - 1
	return n >= 0 && a.needed[pc][n>>6]>>(n&63)&1 != 0
}

// values returns the registers that are live at an instruction, with their kinds;
// constants and predicates always have theirs. Carried vectors are among them even
// if they are dead (Idle): code that writes some of their lanes must find the other
// lanes, which other groups may need, in place. The instruction is the current one
// of the walk, whose writes do not count yet (atHand), or the one behind it.
func (a *analysis) values(pc int32, atHand bool) []Value {
	var list []Value
	for n, r := range a.refs {
		idle := a.needed[pc][n>>6]>>(n&63)&1 == 0
		if a.fixed[n] || idle && !a.isCarried(r) {
			continue
		}
		k := a.kindOf(r)
		if atHand {
			for i := range a.replaced {
				if a.replaced[i].Ref == r {
					k = a.replaced[i].Kind
					break
				}
			}
		}
		if k.Form == unknown {
			k.Form = Vector
		}
		if !idle || k.Form == Vector {
			list = append(list, Value{r, k, idle})
		}
	}
	return list
}
