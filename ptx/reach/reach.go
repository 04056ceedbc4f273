// Package reach tells from a kernel's PTX what global memory it can use: the memory that its
// parameters point to, or any. A caller that runs the kernel on another device than the rest of the
// program asks this to know what to bring there; it holds for every device that runs this PTX, or
// machine code made from it. The package runs nothing, and knows no device.
package reach

import (
	"slices"

	"muster/ptx"
)

// Memory is what global memory a kernel uses, as far as its code says so.
type Memory struct {
	// Known says that every address the kernel uses is made from its parameters. If it is false the
	// kernel may use anything: it follows pointers that it finds in memory, uses variables of its
	// module or textures, or calls functions.
	Known bool
	// Follows says that Known is false for one reason only: the kernel follows pointers that
	// it finds in memory. It uses no variables or textures, and calls no functions.
	Follows bool
	// Accesses are those to global memory, each set of parameters once.
	Accesses []Access
}

// Access is a use of memory at an address that was made from parameters.
type Access struct {
	// Words are the 64-bit words of the parameters, by their number, that the address may
	// be made from: a pointer, and maybe a length that was added to it.
	Words  []int
	Writes bool
}

// maxWords is how many words of parameters are told apart, maxAccesses how many sets of
// them. Kernels with more are not known.
const (
	maxWords    = 60
	maxAccesses = 64
)

// maxPasses is how often the code is gone through until nothing more is found out. Compilers' code
// takes a few passes; code made to take one for each of its instructions is not known.
const maxPasses = 64

// origin is where a register's value may come from: a bit for each word of the
// parameters, and one for each of the following.
type origin uint64

const (
	fromMemory   origin = 1 << (maxWords + iota) // 64 bits that were loaded: they may be a pointer
	fromNarrow                                   // fewer bits that were loaded, such as an index
	fromVariable                                 // the address of a variable of the module
	fromParams                                   // the address of the parameters themselves
	allWords     = origin(1)<<maxWords - 1
)

// Of looks at the code of a kernel. Registers are followed without regard to the
// order of instructions, so that the answer holds for every way through the code.
func Of(f *ptx.Function) Memory {
	words := (f.ParamSize + 7) / 8
	if !f.Entry || !f.Defined || words > maxWords {
		return Memory{}
	}
	t := tracer{changed: true, all: origin(1)<<words - 1, registers: make([]origin, len(f.Registers))}
	for passes := 0; t.changed; passes++ {
		if passes == maxPasses {
			return Memory{}
		}
		t.changed = false
		for _, in := range f.Code {
			if !t.flow(in) {
				return Memory{}
			}
		}
	}
	for _, in := range f.Code {
		if !t.access(in) {
			return Memory{}
		}
	}
	if t.follows {
		return Memory{Follows: true}
	}
	return Memory{Known: true, Accesses: t.accesses}
}

// tracer follows values through the registers of a kernel.
type tracer struct {
	all       origin // of the kernel's parameters
	registers []origin
	changed   bool
	follows   bool // addresses are made from what was loaded
	accesses  []Access
}

// flow notes what an instruction does to its destination. It returns false for one of
// which is not known what it does.
func (t *tracer) flow(in *ptx.Instruction) bool {
	switch in.Opcode {
	case "call", "tex", "tld4", "txq", "suld", "sust", "sured", "suq", "alloca":
		return false
	case "ld", "ldu":
		return len(in.Operands) >= 2 && t.load(in)
	case "ldmatrix":
		t.put(in.Operands[0], loaded(in))
		return true
	case "wmma":
		if in.Has("load") {
			t.put(in.Operands[0], loaded(in))
		}
		if in.Has("load") || in.Has("store") {
			return true
		}
	case "atom":
		t.put(in.Operands[0], loaded(in))
		return true
	case "st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "membar", "fence", "prefetch", "prefetchu", "trap":
		return true
	}
	if len(in.Operands) == 0 {
		return true
	}
	var from origin
	for _, o := range in.Operands[1:] {
		if hasAddress(o) {
			return in.Opcode == "cp" // which has no destination among the registers
		}
		from |= t.of(o)
	}
	if from&fromNarrow != 0 && makesWide(in) {
		from |= fromMemory
	}
	t.put(in.Operands[0], from)
	return true
}

// load notes what a load does.
func (t *tracer) load(in *ptx.Instruction) bool {
	to, at := in.Operands[0], in.Operands[1]
	if in.Space() != ptx.ParamSpace {
		from := loaded(in)
		if t.of(at)&fromParams != 0 { // by the generic address of the parameters
			from |= t.all
		}
		t.put(to, from)
		return true
	}
	size := in.Type(0).Size()
	if size < 8 {
		t.put(to, fromNarrow)
		return true
	}
	v, ok := at.Symbol.(*ptx.Variable)
	if !ok || at.Register != nil {
		t.put(to, t.all|fromNarrow)
		return true
	}
	for i, part := range parts(to) {
		first := (int64(v.Offset) + at.Offset + int64(i*size)) / 8
		last := (int64(v.Offset) + at.Offset + int64((i+1)*size) - 1) / 8
		for w := max(0, first); w <= last && w < maxWords; w++ {
			t.put(part, origin(1)<<w)
		}
	}
	return true
}

// loaded is what the result of a load from memory may be.
func loaded(in *ptx.Instruction) origin {
	if in.Type(0).Size() >= 8 {
		return fromMemory
	}
	return fromNarrow
}

// makesWide says whether an instruction may make a pointer of narrow parts: an index that
// is widened is none.
func makesWide(in *ptx.Instruction) bool {
	if in.Type(0).Size() < 8 {
		return false
	}
	switch in.Opcode {
	case "mov":
		return slices.ContainsFunc(in.Operands, func(o ptx.Operand) bool { return o.Kind == ptx.VectorOperand })
	case "bfi":
		return true
	case "shl":
		by := in.Operands[len(in.Operands)-1]
		return by.Kind != ptx.ImmediateOperand || by.Literal.Bits >= 16
	}
	return false
}

// access notes the memory that an instruction uses. It returns false if that may be any.
func (t *tracer) access(in *ptx.Instruction) bool {
	for i := range in.Operands {
		o := &in.Operands[i]
		if o.Kind != ptx.AddressOperand || in.Opcode == "prefetch" || in.Opcode == "prefetchu" {
			continue
		}
		space := in.Space()
		switch in.Opcode {
		case "ld", "ldu", "st", "atom", "red", "wmma", "ldmatrix":
		case "cp": // cp.async from global memory to shared memory
			if !in.Has("async") || in.Has("bulk") || i > 1 {
				return false
			}
			if space = ptx.SharedSpace; i == 1 {
				space = ptx.GlobalSpace
			}
		default:
			return false
		}
		writes := in.Opcode == "st" || in.Opcode == "atom" || in.Opcode == "red" || in.Opcode == "wmma" && in.Has("store")
		if !t.use(*o, space, writes) {
			return false
		}
	}
	return true
}

// use notes one access.
func (t *tracer) use(at ptx.Operand, space ptx.Space, writes bool) bool {
	switch space {
	case ptx.SharedSpace, ptx.LocalSpace, ptx.ParamSpace:
		return true
	case ptx.ConstSpace:
		return false
	}
	from := t.of(at)
	if from&fromVariable != 0 {
		return false
	}
	if from&fromMemory != 0 {
		t.follows = true
		return true
	}
	from &= allWords
	if from == 0 { // shared or local memory by a generic address, or an address of no memory
		return true
	}
	var words []int
	for w := range maxWords {
		if from&(1<<w) != 0 {
			words = append(words, w)
		}
	}
	if i := slices.IndexFunc(t.accesses, func(a Access) bool { return slices.Equal(a.Words, words) }); i >= 0 {
		t.accesses[i].Writes = t.accesses[i].Writes || writes
		return true
	}
	t.accesses = append(t.accesses, Access{words, writes})
	return len(t.accesses) <= maxAccesses
}

// of is where the value of an operand may come from.
func (t *tracer) of(o ptx.Operand) origin {
	var from origin
	if o.Register != nil {
		from = t.registers[o.Register.Index]
	}
	if v, ok := o.Symbol.(*ptx.Variable); ok {
		switch v.Space {
		case ptx.GlobalSpace, ptx.ConstSpace, ptx.TexSpace:
			from |= fromVariable
		case ptx.ParamSpace:
			from |= fromParams
		}
	} else if _, ok := o.Symbol.(*ptx.Function); ok {
		from |= fromVariable
	}
	if literalAddress(o) {
		from |= fromMemory
	}
	for _, e := range o.Elements {
		from |= t.of(e)
	}
	return from
}

// literalAddress says whether an operand has a number in it that may be an address of global memory:
// programs that make PTX while they run write such addresses into it. Indexes and sizes are smaller.
func literalAddress(o ptx.Operand) bool {
	const smallest = 1 << 32
	if o.Kind == ptx.ImmediateOperand && o.Literal.Kind <= ptx.UintLiteral && o.Literal.Bits >= smallest && int64(o.Literal.Bits) > 0 {
		return true
	}
	return o.Kind == ptx.AddressOperand && o.Offset >= smallest
}

// put adds to where the value of a destination may come from.
func (t *tracer) put(to ptx.Operand, from origin) {
	if r := to.Register; r != nil && from&^t.registers[r.Index] != 0 {
		t.registers[r.Index] |= from
		t.changed = true
	}
	for _, e := range to.Elements {
		t.put(e, from)
	}
}

// parts are the registers of a destination, in order.
func parts(o ptx.Operand) []ptx.Operand {
	if o.Kind == ptx.VectorOperand {
		return o.Elements
	}
	return []ptx.Operand{o}
}

func hasAddress(o ptx.Operand) bool { return o.Kind == ptx.AddressOperand }
