//go:build linux && amd64

package native

import "slices"

// step is an instruction with what was found out about it.
type step struct {
	*Op
	index   int32
	sources []Kind // of Sources
	kind    Kind   // of D, or of all Elements of a load
	old     Kind   // of D before, if it has a guard
	anyNaN  bool   // nobody looks at the bits of its result if that is a NaN
}

// analysis is what is known of a kernel's registers.
type analysis struct {
	*Kernel
	carried  map[Ref]Kind
	private  map[Ref]Kind // of the basic block at hand
	replaced map[Ref]Kind // what private had before the instruction at hand
	changed  bool

	number map[Ref]int
	refs   []Ref
	fixed  []bool     // of refs: constants and predicates
	needed [][]uint64 // a bit a register, by instruction, at its begin
}

func (a *analysis) isCarried(r Ref) bool {
	return r.Slot >= a.Carried[r.Class][0] && r.Slot < a.Carried[r.Class][1]
}

// kindOf returns the kind of a register at the instruction at hand.
func (a *analysis) kindOf(r Ref) Kind {
	if r.Class == Predicate {
		return Kind{Form: Vector}
	}
	if c, ok := a.Constants[r]; ok {
		return c.Kind
	}
	if a.isCarried(r) {
		return a.carried[r]
	}
	return a.private[r]
}

// join is what holds of a register that may have either kind.
func join(x, y Kind) Kind {
	switch {
	case x.Form == unknown || x == y:
		return y
	case y.Form == unknown:
		return x
	case x.Form != Vector && y.Form != Vector && x.Stride == 0 && y.Stride == 0:
		return Kind{Form: Chunked}
	}
	return Kind{Form: Vector}
}

// findKinds guesses a kind for each register that carries values between basic
// blocks, the best that all instructions which write it agree to.
func (a *analysis) findKinds() {
	a.carried = map[Ref]Kind{}
	for a.changed = true; a.changed; {
		for a.changed {
			a.changed = false
			a.walk(func(*step) {})
		}
		// What only depends on itself is not regular.
		for i := range a.Ops {
			for _, r := range a.Ops[i].Reads {
				if r.Class != Predicate && a.isCarried(r) && a.carried[r].Form == unknown {
					a.carried[r] = Kind{Form: Vector}
					a.changed = true
				}
			}
		}
	}
}

// walk goes through all instructions and tells what is known of each.
func (a *analysis) walk(f func(*step)) {
	first := int32(0)
	for i := range a.Ops {
		o := &a.Ops[i]
		if o.Head {
			first = int32(i)
			a.private = map[Ref]Kind{}
		}
		s := &step{Op: o, index: int32(i)}
		for _, r := range o.Sources {
			s.sources = append(s.sources, a.kindOf(r))
		}
		s.old = a.kindOf(o.D)
		natural := a.result(s)
		if len(o.Writes) > 1 && natural.Form != unknown { // all the same way
			for _, r := range o.Writes {
				if a.isCarried(r) && (a.carried[r].Form == Vector || a.Diverged[first]) || a.Irregular[r] {
					natural = Kind{Form: Vector}
				}
			}
		}
		a.replaced = map[Ref]Kind{}
		for _, r := range o.Writes {
			if r.Class == Predicate {
				continue
			}
			k := natural
			if a.Irregular[r] || a.isCarried(r) && a.Diverged[first] && k.Form != unknown {
				k = Kind{Form: Vector}
			}
			if !a.isCarried(r) {
				a.replaced[r] = a.private[r]
				a.private[r] = k
			} else if old := a.carried[r]; join(old, k) != old {
				a.carried[r] = join(old, k)
				a.changed = true
			}
			s.kind = a.kindOf(r)
		}
		f(s)
	}
}

// result returns the best kind that an instruction can give its destination.
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
		c := a.Constants[s.Op.Sources[1]]
		return c.Known
	}
	return uniformOps[s.Name] != nil
}

// literal returns the value of a source that is a constant in every launch.
func (a *analysis) literal(s *step, i int) (int64, bool) {
	c := a.Constants[s.Op.Sources[i]]
	v := int64(c.Value)
	if s.Op.Sources[i].Class == Bits32 {
		v = int64(int32(v))
	}
	return v, c.Known
}

// chunked returns the kind of a result whose sources are the same along each
// chunk but for a constant stride, if the instruction keeps that.
func (a *analysis) chunked(s *step) (Kind, bool) {
	for _, k := range s.sources {
		if k.Form == Vector {
			return Kind{}, false
		}
	}
	stride := func(i int) int64 { return s.sources[i].Stride }
	// product is the stride of a product of two sources.
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
	var d int64
	ok := true
	switch s.Name {
	case "mov.b32", "mov.b64", "cvt.u32.u64", "cvt.s32.s64", "cvt.u32.s64", "cvt.s32.u64", "cvt.s64.s32", "cvt.u64.s32", "cvt.u64.u32", "cvt.s64.u32":
		d = stride(0)
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
		if s.Name == "mul.wide.u32" && d < 0 {
			ok = false
		}
	case "mad.lo.b32", "mad.lo.b64", "mad.wide.s32", "mad.wide.u32":
		if d, ok = product(0, 1); s.Name == "mad.wide.u32" && d < 0 {
			ok = false
		}
		d += stride(2)
	default:
		return Kind{}, false
	}
	if ok = ok && d > -1<<20 && d < 1<<20; !ok {
		return Kind{}, false
	}
	return Kind{Chunked, d}, true
}

// findNeeded finds out which registers are needed at each instruction.
func (a *analysis) findNeeded() {
	a.number = map[Ref]int{}
	add := func(r Ref) {
		if _, known := a.number[r]; !known && r.Slot >= 0 {
			a.number[r] = len(a.refs)
			a.refs = append(a.refs, r)
			_, isConstant := a.Constants[r]
			a.fixed = append(a.fixed, isConstant || r.Class == Predicate)
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
			if o.Guard < 0 {
				for _, r := range o.Writes {
					n := a.number[r]
					now[n>>6] &^= 1 << (n & 63)
				}
			} else {
				for _, r := range o.Writes {
					n := a.number[r]
					now[n>>6] |= 1 << (n & 63)
				}
			}
			for _, r := range o.Reads {
				n := a.number[r]
				now[n>>6] |= 1 << (n & 63)
			}
			if !slices.Equal(now, a.needed[i]) {
				copy(a.needed[i], now)
				changed = true
			}
		}
	}
}

// behind sets now to what is needed behind an instruction.
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

func (a *analysis) isNeeded(r Ref, pc int32) bool {
	n, ok := a.number[r]
	return ok && a.needed[pc][n>>6]>>(n&63)&1 != 0
}

// values returns the registers that are needed at an instruction, with their
// kinds; constants and predicates always are as they should be. Vectors that
// carry values between basic blocks are always among them: code that writes
// some of their lanes must find the others in place. The instruction is the
// one at hand, or the one behind it.
func (a *analysis) values(pc int32, atHand bool) []Value {
	var list []Value
	for n, r := range a.refs {
		idle := a.needed[pc][n>>6]>>(n&63)&1 == 0
		if a.fixed[n] || idle && !a.isCarried(r) {
			continue
		}
		k := a.kindOf(r)
		if old, ok := a.replaced[r]; ok && atHand {
			k = old
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
