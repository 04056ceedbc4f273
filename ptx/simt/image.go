package simt

import (
	"slices"
	"sync"

	"muster/ptx"
)

// Code is made when a kernel is first launched: modules have thousands of
// kernels, of which programs launch a few. A section is the code of one function
// by itself. An image is a kernel's section followed by those of all functions
// that it may call. Sections of functions are kept for kernels that are launched
// later; images are kept while there is room for them.
//
// Lowering is deterministic: an image that was dropped and made again has the
// same code, so a saved state stays valid.

// section is the code of one function. Places in it count from its begin. It does
// not depend on the kernel, and is never changed: image.append works on copies.
// The slots of each class are, in this order: constants, the slot of the frame or
// the link, slots that carry values between basic blocks, private slots.
type section struct {
	unit   *unit
	ops    []op
	calls  []call
	frame  int // bytes
	shared []*ptx.Variable
	block  blockLimit // of a kernel

	constants           []constant
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

// image is a kernel's code, ready to run. Apart from machines and checkedCode, which
// have locks of their own, it does not change.
type image struct {
	code      []inst           // begins with the kernel's own
	entries   map[uint64]int32 // address of a function -> its code
	constants []constant
	perBlock  []constant
	n32, n64  int // slots
	np        int
	carried   [predicate + 1][2]int32 // slots that carry values between basic blocks: first, and behind the last

	machines machines

	checkedOnce sync.Once
	checkedCode *checkedImage // the same code with calls of a checker, made at the first checked launch
}

// instBytes is about what an instruction of an image takes.
const instBytes = 200

func (m *image) size() int { return len(m.code) * instBytes }

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
	s, errs := lowerUnit(p, u, new([]op))
	if len(errs) > 0 {
		panic("simt: " + errs.Error())
	}
	return s
}

// assembly is an image while it is put together.
type assembly struct {
	program  *Program
	image    *image
	sections []*section
	begin    map[*unit]int32 // of sections in the code
	shared   map[*ptx.Variable]int
	slots    map[constant]int32
	next     slotCount
	frame    int32 // slots
	link     int32
	each     func(*op) // see assembly; may be nil
}

// assemble makes the image of a kernel.
func (p *Program) assemble(kernel *unit) *image { return p.assembly(kernel, 0, nil).image }

// assembly is assemble for a caller that needs the classes of operands, which the image
// no longer has: the compiler and the printer of lowered code. It calls each for every instruction, in order, with slots and places
// of the image. Only the target of a direct call is missing there: the image has it. guard is how many
// bytes are left free between static variables in shared memory.
func (p *Program) assembly(kernel *unit, guard int, each func(*op)) *assembly {
	units := p.unitsOf(kernel)
	a := &assembly{
		program: p, image: &image{entries: map[uint64]int32{}}, each: each,
		begin: map[*unit]int32{}, shared: map[*ptx.Variable]int{}, slots: map[constant]int32{},
	}
	size := int32(0)
	for _, u := range units {
		s := p.section(u)
		a.sections = append(a.sections, s)
		a.begin[u] = size
		if at, ok := p.functions[u.f]; ok {
			a.image.entries[at] = size
		}
		size += int32(len(s.ops))
	}
	layoutShared(units, guard, a.shared)
	a.image.code = make([]inst, 0, size)
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
				places[v] = round(size, v.Alignment())
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
		a.frame, a.link = a.next[bits64], a.next[bits32]
		a.next[bits64]++
		a.next[bits32]++
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
		m.carried[c] = [2]int32{constants[c], a.next[c]}
	}
	m.n32, m.n64, m.np = int(a.next[bits32]+private[bits32]), int(a.next[bits64]+private[bits64]), int(a.next[predicate]+private[predicate])
	for i, s := range a.sections {
		a.append(s, &maps[i])
	}
}

// slotMap maps the slots of a section to those of an image.
type slotMap struct {
	common           [predicate + 1][]int32
	carried, private slotCount // what to add to the section's number
}

// constants gives a section's constants their slots in the image. Equal constants
// of several sections share a slot.
func (a *assembly) constants(s *section) (m slotMap) {
	for c, n := range s.common {
		m.common[c] = make([]int32, n)
	}
	for _, c := range s.constants {
		own := c.slot
		c.slot = 0
		if c.from == staticAddress {
			c = constant{class: c.class, value: c.value + uint64(a.shared[c.of])}
			if c.class == bits32 {
				c.value = uint64(uint32(c.value))
			}
		}
		slot, ok := a.slots[c]
		if !ok {
			slot = a.next[c.class]
			a.next[c.class]++
			a.slots[c] = slot
			c.slot = slot
			if c.perBlock() {
				a.image.perBlock = append(a.image.perBlock, c)
			} else {
				a.image.constants = append(a.image.constants, c)
			}
		}
		m.common[c.class][own] = slot
	}
	return m
}

// frame maps the slots through which caller and callee hand over frame and link:
// all sections of an image use the same two. A kernel without calls has none, and
// no instruction of it uses what is mapped here.
func (m *slotMap) frame(s *section, frame, link int32) {
	m.common[bits64][s.frameSlot], m.common[bits32][s.linkSlot] = frame, link
}

// append adds a section's instructions to the image, with slots and places of the
// image.
func (a *assembly) append(s *section, m *slotMap) {
	begin := int32(len(a.image.code))
	relocate := func(c class, id *int32, _ bool) {
		switch n := *id; {
		case n < s.common[c]:
			*id = m.common[c][n]
		case n < s.common[c]+s.carried[c]:
			*id += m.carried[c]
		default:
			*id += m.private[c]
		}
	}
	var o op
	for i := range s.ops {
		o = s.ops[i] // a copy: other kernels use the section, too
		o.list, o.lists, o.targets = slices.Clone(o.list), slices.Clone(o.lists), slices.Clone(o.targets)
		o.sources = slices.Clone(o.sources)
		o.operands(relocate)
		o.saveList()
		if o.links {
			o.x += begin
		}
		o.end += begin
		o.target += begin
		for j := range o.targets {
			o.targets[j] += begin
		}
		a.image.code = append(a.image.code, o.inst)
		if a.each != nil {
			a.each(&o)
		}
	}
	for _, c := range s.calls {
		enter, jump := &a.image.code[begin+c.enter], &a.image.code[begin+c.jump]
		if c.callee == nil {
			enter.x = int32(a.program.largest)
			continue
		}
		enter.x = int32(c.callee.frame) // runEnter checks that the stack has room for it
		jump.target = a.begin[c.callee]
		jump.back = jump.target <= begin+c.jump
	}
}

// saveList turns the registers of several classes into the list, and the classes,
// that runSave and runRestore take.
func (o *op) saveList() {
	if len(o.lists) == 0 {
		return
	}
	classes := make([]class, len(o.lists))
	o.list = make([]int32, len(o.lists))
	for i, r := range o.lists {
		classes[i], o.list[i] = r.class, r.id
	}
	o.k = classes
}

// prepare returns the kernel's image, and makes it if there is none. A launch that
// finds another one making it waits. keepImage may drop the image at any time;
// executions that use it keep it alive.
func (k *Kernel) prepare() *image {
	k.used.Store(true)
	if m := k.image.Load(); m != nil {
		return m
	}
	k.preparing.Lock()
	defer k.preparing.Unlock()
	if m := k.image.Load(); m != nil {
		return m
	}
	m := k.program.assemble(k.unit)
	k.image.Store(m)
	k.program.keepImage(k, m)
	return m
}

// minImageRoom is how many bytes of images a program keeps at least.
const minImageRoom = 64 << 20

// keepImage counts a new image. If the images take too much room it drops some by
// the second-chance rule: it goes round the kernels, spares each that was launched
// since its last visit, and drops the image of each that was not. After two rounds
// it stops: then only the new image may be left.
func (p *Program) keepImage(k *Kernel, m *image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared = append(p.prepared, k)
	p.imageBytes += m.size()
	for n := 2 * len(p.prepared); n > 0 && p.imageBytes > p.imageRoom; n-- {
		old := p.prepared[0]
		p.prepared = p.prepared[1:]
		if old == k || old.used.Swap(false) {
			p.prepared = append(p.prepared, old)
			continue
		}
		m := old.image.Swap(nil)
		p.imageBytes -= m.size()
		p.dropTeams(m)
	}
}
