package program

import (
	"slices"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// Code is made when a caller asks for the image of a kernel: modules have thousands of
// kernels, of which programs launch a few. A section is the code of one function
// by itself. An image is a kernel's section followed by those of all functions
// that it may call. Sections of functions are kept for kernels that are launched
// later; whoever asked for an image keeps it.
//
// Lowering is deterministic: an image that was dropped and made again has the
// same code, so a saved state stays valid.

// section is the code of one function. Places in it count from its begin. It does
// not depend on the kernel, and is never changed: image.append works on copies.
// The slots of each class are, in this order: constants, the slot of the frame or
// the link, slots that carry values between basic blocks, private slots.
type section struct {
	unit   *unit
	ops    []Op
	calls  []call
	frame  int // bytes
	shared []*ptx.Variable
	block  blockLimit // of a kernel

	constants           []Constant
	constantCount       slotCount
	frameSlot, linkSlot int32
	common              slotCount // constants, frame and link
	carried, private    slotCount
}

// call is a call in a section.
type call struct {
	enter, jump int32 // indices of the instructions that make the frame and that jump
	callee      *unit // nil: an indirect call
}

// Image is a kernel's code with that of all functions that it may call.
type Image struct {
	Code []Inst // begins with the kernel's own
	Layout
}

// Layout is what holds of the code of an image as a whole.
type Layout struct {
	Entries          map[uint64]int32 // address of a function -> its code
	Constants        []Constant       // that are the same in all blocks of a launch
	PerBlock         []Constant
	Count32, Count64 int // slots
	CountPredicates  int
	Carried          [Predicate + 1][2]int32 // slots that carry values between basic blocks: first, and behind the last
}

// isHead says whether a basic block begins at an instruction.
func (m *Image) isHead(pc int32) bool { return pc == 0 || m.Code[pc-1].End == pc-1 }

// blockAt returns the first instruction of the basic block that holds pc.
func (m *Image) blockAt(pc int32) int32 {
	for !m.isHead(pc) {
		pc--
	}
	return pc
}

// section returns a function's section. Load has lowered the function before, so
// lowering cannot fail here.
func (p *Program) section(u *unit) *section {
	if u.f.Entry { // a kernel cannot be called, so no other image needs its section
		return p.lowerAgain(u)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.section == nil {
		u.section = p.lowerAgain(u)
	}
	return u.section
}

func (p *Program) lowerAgain(u *unit) *section {
	s, errs := lowerUnit(p, u, new([]Op))
	if len(errs) > 0 {
		panic("program: " + errs.Error())
	}
	return s
}

// assembly is an image while it is put together.
type assembly struct {
	program  *Program
	image    *Image
	sections []*section
	begin    map[*unit]int32 // of sections in the code
	shared   map[*ptx.Variable]int
	slots    map[Constant]int32
	next     slotCount
	frame    int32 // slots
	link     int32
	each     func(*Op) // see assembly; may be nil
}

// Assemble makes the code of a kernel. It calls each, unless that is nil, for every
// instruction, in order, with the classes of operands, which the image no longer has,
// and with slots and places of the image. Only the target of a direct call is missing
// there: the image has it. Between static variables in shared memory guard bytes stay free.
func (k *Kernel) Assemble(guard int, each func(*Op)) *Image {
	return k.program.assembly(k.unit, guard, each).image
}

// StaticShared returns the places of a kernel's static variables in shared memory, with
// guard bytes between them, and how many bytes they take together.
func (k *Kernel) StaticShared(guard int) (places map[*ptx.Variable]int, size int) {
	places = map[*ptx.Variable]int{}
	size = layoutShared(k.program.unitsOf(k.unit), guard, places)
	return places, size
}

func (p *Program) assembly(kernel *unit, guard int, each func(*Op)) *assembly {
	units := p.unitsOf(kernel)
	a := &assembly{
		program: p, image: &Image{Layout: Layout{Entries: map[uint64]int32{}}}, each: each,
		begin: map[*unit]int32{}, shared: map[*ptx.Variable]int{}, slots: map[Constant]int32{},
	}
	size := int32(0)
	for _, u := range units {
		s := p.section(u)
		a.sections = append(a.sections, s)
		a.begin[u] = size
		if at, ok := p.functions[u.f]; ok {
			a.image.Entries[at] = size
		}
		size += int32(len(s.ops))
	}
	layoutShared(units, guard, a.shared)
	a.image.Code = make([]Inst, 0, size)
	a.place()
	return a
}

// unitsOf returns the functions that a kernel may call, itself first.
func (p *Program) unitsOf(kernel *unit) []*unit {
	seen := map[*unit]bool{}
	return p.closure(kernel, func(u *unit) bool {
		isNew := !seen[u]
		seen[u] = true
		return isNew
	})
}

// layoutShared gives the static shared variables of functions their places in
// shared memory, and returns how many bytes they take together. Between two variables guard bytes stay
// free.
func layoutShared(units []*unit, guard int, places map[*ptx.Variable]int) int {
	size := 0
	for _, u := range units {
		for _, v := range u.shared {
			if _, ok := places[v]; !ok {
				if len(places) > 0 {
					size += guard
				}
				places[v] = shape.Round(size, v.Alignment())
				size = places[v] + v.Size()
			}
		}
	}
	return size
}

// place gives all sections their slots and appends their instructions. Slots that
// carry values are the section's own, so a call need not save them. The private
// slots of all sections overlap: a private value ends with its basic block.
func (a *assembly) place() {
	m := a.image
	maps := make([]slotMap, len(a.sections))
	for i, s := range a.sections {
		maps[i] = a.constants(s)
	}
	constants := a.next
	if len(a.sections[0].calls) > 0 {
		a.frame, a.link = a.next[Bits64], a.next[Bits32]
		a.next[Bits64]++
		a.next[Bits32]++
	}
	for i, s := range a.sections {
		maps[i].frame(s, a.frame, a.link)
		for c, n := range s.carried {
			maps[i].carried[c] = a.next[c] - s.common[c]
			a.next[c] += n
		}
	}
	var private slotCount
	for i, s := range a.sections {
		for c, n := range s.private {
			maps[i].private[c] = a.next[c] - s.common[c] - s.carried[c]
			private[c] = max(private[c], n)
		}
	}
	for c := range a.next {
		m.Carried[c] = [2]int32{constants[c], a.next[c]}
	}
	m.Count32, m.Count64, m.CountPredicates = int(a.next[Bits32]+private[Bits32]), int(a.next[Bits64]+private[Bits64]), int(a.next[Predicate]+private[Predicate])
	for i, s := range a.sections {
		a.append(s, &maps[i])
	}
}

// slotMap maps the slots of a section to those of an image.
type slotMap struct {
	common           [Predicate + 1][]int32
	carried, private slotCount // what to add to the section's number
}

// constants gives a section's constants their slots in the image. Equal constants
// of several sections share a slot.
func (a *assembly) constants(s *section) (m slotMap) {
	for c, n := range s.common {
		m.common[c] = make([]int32, n)
	}
	for _, c := range s.constants {
		own := c.Slot
		c.Slot = 0
		if c.From == staticAddress {
			c = Constant{Class: c.Class, Value: c.Value + uint64(a.shared[c.of])}
			if c.Class == Bits32 {
				c.Value = uint64(uint32(c.Value))
			}
		}
		slot, ok := a.slots[c]
		if !ok {
			slot = a.next[c.Class]
			a.next[c.Class]++
			a.slots[c] = slot
			c.Slot = slot
			if c.PerBlock() {
				a.image.PerBlock = append(a.image.PerBlock, c)
			} else {
				a.image.Constants = append(a.image.Constants, c)
			}
		}
		m.common[c.Class][own] = slot
	}
	return m
}

// frame maps the slots through which caller and callee hand over frame and link:
// all sections of an image use the same two. A kernel without calls has none, and
// no instruction of it uses what is mapped here.
func (m *slotMap) frame(s *section, frame, link int32) {
	m.common[Bits64][s.frameSlot], m.common[Bits32][s.linkSlot] = frame, link
}

// append adds a section's instructions to the image, with slots and places of the
// image.
func (a *assembly) append(s *section, m *slotMap) {
	begin := int32(len(a.image.Code))
	relocate := func(c Class, id *int32, _ bool) {
		switch n := *id; {
		case n < s.common[c]:
			*id = m.common[c][n]
		case n < s.common[c]+s.carried[c]:
			*id += m.carried[c]
		default:
			*id += m.private[c]
		}
	}
	var o Op
	for i := range s.ops {
		o = s.ops[i] // a copy: other kernels use the section, too
		o.List, o.lists, o.Targets = slices.Clone(o.List), slices.Clone(o.lists), slices.Clone(o.Targets)
		o.Sources = slices.Clone(o.Sources)
		o.Operands(relocate)
		o.saveList()
		if o.links {
			o.X += begin
		}
		o.End += begin
		o.Target += begin
		for j := range o.Targets {
			o.Targets[j] += begin
		}
		a.image.Code = append(a.image.Code, o.Inst)
		if a.each != nil {
			a.each(&o)
		}
	}
	for _, c := range s.calls {
		enter, jump := &a.image.Code[begin+c.enter], &a.image.Code[begin+c.jump]
		if c.callee == nil {
			enter.X = int32(a.program.largest)
			continue
		}
		enter.X = int32(c.callee.frame) // OpEnter checks that the stack has room for it
		jump.Target = a.begin[c.callee]
		jump.Back = jump.Target <= begin+c.jump
	}
}

// saveList turns the registers of several classes into the list, and the classes,
// that OpSave and OpRestore take.
func (o *Op) saveList() {
	if len(o.lists) == 0 {
		return
	}
	classes := make([]Class, len(o.lists))
	o.List = make([]int32, len(o.lists))
	for i, r := range o.lists {
		classes[i], o.List[i] = r.class, r.id
	}
	o.K = classes
}
