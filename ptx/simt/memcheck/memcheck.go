// Package memcheck finds defects that do not stop a kernel: races (two threads use the same
// bytes, at least one writes, and nothing orders the two), reads of bytes that were
// never written, and accesses outside every allocation.
//
// It knows which memory was allocated and written and which threads used each word of it last
// (shadow.go), and in which order threads access memory (order.go, copies.go). It does not know
// how instructions reach memory: whoever runs kernels looks at that, and says what it sees. Only
// one goroutine may do so at a time, with the checker locked: so the checker sees accesses one
// after the other, in one possible order.
package memcheck

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// Checks selects the defects to look for.
type Checks struct {
	Race   bool // accesses of two threads to the same bytes, one of them a write, that nothing orders
	Init   bool // reads of memory that was never written
	Memory bool // addresses outside every allocation, or not a multiple of the access's size
}

// Any says whether any check is selected.
func (c Checks) Any() bool { return c.Race || c.Init || c.Memory }

// String returns the names of the selected checks, separated by commas.
func (c Checks) String() string {
	var names []string
	for _, check := range c.byName() {
		if *check.on {
			names = append(names, check.name)
		}
	}
	return strings.Join(names, ",")
}

type namedCheck struct {
	name string
	on   *bool
}

func (c *Checks) byName() []namedCheck {
	return []namedCheck{{"race", &c.Race}, {"init", &c.Init}, {"memory", &c.Memory}}
}

// ParseChecks reads names separated by commas; "all" selects all checks.
func Parse(list string) (Checks, error) {
	var c Checks
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for _, check := range c.byName() {
			if name == check.name || name == "all" {
				*check.on, found = true, true
			}
		}
		if !found {
			return c, fmt.Errorf("there is no check %q: give race, init and memory with commas between, or all", name)
		}
	}
	return c, nil
}

// DefectKind says what is wrong with an access.
type DefectKind uint8

// The kinds of defects.
const (
	Race DefectKind = iota
	Uninitialised
	OutOfBounds
	Misaligned
)

var defectNames = [...]string{"race", "read of memory that was never written", "access outside every allocation", "misaligned access"}

// String returns the kind in words.
func (k DefectKind) String() string { return defectNames[k] }

// Deed is one thread's access to memory.
type Deed struct {
	Block, Thread shape.Dim
	What          string // "read", "write" or "atomic"
	Line          int    // of the PTX
	Instruction   string
	Source        string // file and line, "" if the PTX does not say
}

// String describes the access: what, by which thread, at which line.
func (d *Deed) String() string {
	source := ""
	if d.Source != "" {
		source = ", " + d.Source
	}
	return fmt.Sprintf("%s by thread %v of block %v at line %d%s (%s)", d.What, d.Thread, d.Block, d.Line, source, d.Instruction)
}

// Defect is a wrong access.
type Defect struct {
	Kind    DefectKind
	Kernel  string
	Deed    Deed
	Other   *Deed // of a race: the earlier one
	Space   ptx.Space
	Address uint64
	Size    int    // bytes
	Memory  string // what the address belongs to: "argument 1, f32[1000], at byte 16"
	Why     string // what would have ordered the two accesses of a race
}

// String returns the report of a defect, which has several lines.
func (d *Defect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v in kernel %s: %s at %s %#x", d.Kind, d.Kernel, Counted(d.Size, "byte"), spaceName(d.Space), d.Address)
	if d.Memory != "" {
		b.WriteString(", " + d.Memory)
	}
	fmt.Fprintf(&b, "\n    %v", &d.Deed)
	if d.Other != nil {
		fmt.Fprintf(&b, "\n    %v", d.Other)
	}
	if d.Why != "" {
		b.WriteString("\n    " + d.Why)
	}
	return b.String()
}

// SpaceName returns "global", "shared" or "local".
func (d *Defect) SpaceName() string { return spaceName(d.Space) }

func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func spaceName(s ptx.Space) string {
	switch s {
	case ptx.SharedSpace:
		return "shared"
	case ptx.LocalSpace:
		return "local"
	}
	return "global"
}

// Checker checks the kernels that are launched with it. It remembers which memory was
// allocated and written from one launch to the next. Several goroutines may call its
// methods.
type Checker struct {
	Checks Checks
	report func(*Defect)

	mu     sync.Mutex        // held while a kernel runs; guards all fields below
	areas  []*area           // sorted by address; they do not overlap
	last   *area             // the area that find returned last, or nil
	room   int               // bytes of shadow memory that may still be allocated
	nextID uint32            // the next number for a block; see blockID
	seen   map[DefectKey]int // how often each defect occurred
	keys   []DefectKey       // in the order in which they were found
	first  map[DefectKey]string
	notes  []string // what was not checked, for Summary
}

// DefectKey identifies a defect: the same instruction, or pair of instructions, counts once.
type DefectKey struct {
	Kind   DefectKind
	Space  ptx.Space
	Deed   *ptx.Instruction
	Other  *ptx.Instruction
	detail string
}

// DefaultShadow is the limit on a checker's shadow memory, in bytes, if the caller gives
// none.
const DefaultShadow = 1 << 30

// maxReports is how many defects are reported; further ones are only counted.
const maxReports = 100

// NewChecker makes a checker. It calls report with each defect when it is first found. If
// the same instruction, or the same two instructions of a race, repeat the defect, that is
// only counted. shadow bounds the memory that the checker takes; DefaultShadow if 0.
func New(c Checks, shadow int, report func(*Defect)) *Checker {
	if shadow == 0 {
		shadow = DefaultShadow
	}
	return &Checker{Checks: c, report: report, room: shadow, nextID: 1, seen: map[DefectKey]int{}, first: map[DefectKey]string{}}
}

// Lock keeps other goroutines out while a kernel runs that the checker examines.
func (c *Checker) Lock() { c.mu.Lock() }

// Unlock ends what Lock began.
func (c *Checker) Unlock() { c.mu.Unlock() }

// area is one allocation in global memory.
type area struct {
	Base, Size uint64
	name       string
	pages      []*Page // shadow pages; nil for those that no access has touched
	written    bool    // pages that no access has touched count as written
	freed      bool    // a kernel has freed it: it is kept only to name it in reports
}

// Allocate tells the checker of an allocation, and of its name for reports. written says
// that the memory has contents; if false, a read before a write is a defect. The checker
// forgets what it knew of the same addresses.
func (c *Checker) Allocate(addr, size uint64, name string, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.AddArea(addr, size, name, written)
}

// allocate is Allocate for callers that hold c.mu.
func (c *Checker) AddArea(addr, size uint64, name string, written bool) {
	c.free(addr, max(1, size))
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].Base > addr })
	pages := (addr+size+PageBytes-1)/PageBytes - addr/PageBytes
	c.areas = slices.Insert(c.areas, i, &area{Base: addr, Size: size, name: name, written: written, pages: make([]*Page, pages)})
}

// Free tells the checker that the allocation that contains addr is gone.
func (c *Checker) Free(addr uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free(addr, 1)
}

// retire tells the checker that a kernel has freed the memory at an address. The area remains, so
// that the report of a later use can say that the memory was freed.
func (c *Checker) RetireArea(addr uint64) {
	a := c.Find(addr)
	if a == nil {
		return
	}
	for _, p := range a.pages {
		c.room += p.bytes()
	}
	a.pages, a.freed, a.name = nil, true, a.name+", which was freed"
	c.last = nil
}

// free removes all areas that overlap a range, and gives their shadow memory back. The caller must
// hold c.mu, as for all functions below.
func (c *Checker) free(addr, size uint64) {
	c.last = nil
	c.areas = slices.DeleteFunc(c.areas, func(a *area) bool {
		if a.Base+max(1, a.Size) <= addr || a.Base >= addr+size {
			return false
		}
		for _, p := range a.pages {
			c.room += p.bytes()
		}
		return true
	})
}

// Written tells the checker that memory was written, but not by a kernel: by a copy or a fill.
func (c *Checker) Written(addr, size uint64) {
	if !c.Checks.Init || size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.areas {
		if a.freed {
			continue
		}
		from, to := max(addr, a.Base), min(addr+size, a.Base+a.Size)
		for from < to {
			end := min(to, (from/PageBytes+1)*PageBytes)
			slot := &a.pages[from/PageBytes-a.Base/PageBytes]
			if *slot == nil && !a.written {
				*slot = c.newPage(a)
			}
			if *slot != nil {
				(*slot).Write(int(from%PageBytes), int(end-from))
			}
			from = end
		}
	}
}

// Find returns the area that contains an address, or nil. Consecutive accesses mostly hit the same area,
// which last remembers.
func (c *Checker) Find(addr uint64) *area {
	if a := c.last; a != nil && addr-a.Base < a.Size {
		return a
	}
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].Base > addr }) - 1
	if i < 0 || addr-c.areas[i].Base >= c.areas[i].Size || c.areas[i].freed {
		return nil
	}
	c.last = c.areas[i]
	return c.last
}

// Page returns the shadow page of an address in an area.
func (c *Checker) Page(a *area, addr uint64) *Page {
	slot := &a.pages[addr/PageBytes-a.Base/PageBytes]
	if *slot == nil {
		*slot = c.newPage(a)
	}
	return *slot
}

func (c *Checker) newPage(a *area) *Page {
	p := &Page{}
	c.room -= p.bytes()
	if a.written {
		p.Write(0, PageBytes)
	}
	return p
}

// Near says whether an address is so close to an area that the thread probably meant that
// area. An access far from all areas is not reported: it may hit valid memory that the
// checker was not told of.
func (c *Checker) Near(addr uint64) bool {
	const most = 2 << 20
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].Base > addr })
	return i > 0 && addr-c.areas[i-1].Base-c.areas[i-1].Size < most || i > 0 && addr-c.areas[i-1].Base < c.areas[i-1].Size ||
		i < len(c.areas) && c.areas[i].Base-addr <= most
}

// Describe says which area an address of global memory belongs to, or is near.
func (c *Checker) Describe(addr uint64) string {
	if a := c.Find(addr); a != nil {
		return fmt.Sprintf("byte %d of %s", addr-a.Base, a.name)
	}
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].Base > addr }) - 1
	const near = 1 << 20
	if i >= 0 && addr-c.areas[i].Base < c.areas[i].Size {
		return fmt.Sprintf("byte %d of %s", addr-c.areas[i].Base, c.areas[i].name)
	}
	behind, before := uint64(near), uint64(near) // the end of one area, and the begin of the next
	if i >= 0 {
		behind = min(near, addr-c.areas[i].Base-c.areas[i].Size)
	}
	if i+1 < len(c.areas) {
		before = min(near, c.areas[i+1].Base-addr)
	}
	switch {
	case before < behind:
		return fmt.Sprintf("%s before %s", Counted(int(before), "byte"), c.areas[i+1].name)
	case behind < near:
		return fmt.Sprintf("%s behind the end of %s", Counted(int(behind), "byte"), c.areas[i].name)
	}
	return "near no allocation"
}

// Add counts a defect and reports it if it is new.
func (c *Checker) Add(key DefectKey, make func() *Defect) {
	c.seen[key]++
	if c.seen[key] > 1 {
		return
	}
	c.keys = append(c.keys, key)
	if len(c.keys) > maxReports {
		return
	}
	d := make()
	c.first[key] = fmt.Sprintf("%v in kernel %s, line %d", d.Kind, d.Kernel, d.Deed.Line)
	if c.report != nil {
		c.report(d)
	}
}

// Note records a remark about what was not checked, once.
func (c *Checker) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// Found returns how many defects were found. The same defect of an instruction, or of a
// pair of instructions, counts once.
func (c *Checker) Found() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys)
}

// Summary returns lines that say what was found in total, and what was not checked.
func (c *Checker) Summary() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := fmt.Sprintf("%s (%v)", Counted(len(c.keys), "defect"), c.Checks)
	if len(c.keys) == 0 {
		head = fmt.Sprintf("no defects (%v)", c.Checks)
	}
	lines := []string{head}
	for i, key := range c.keys {
		if i == maxReports {
			lines = append(lines, fmt.Sprintf("  and %d more that were not reported", len(c.keys)-maxReports))
			break
		}
		lines = append(lines, fmt.Sprintf("  %s: %s", c.first[key], Counted(c.seen[key], "time")))
	}
	return append(lines, c.notes...)
}

// UsesOf returns the records of a page, with an entry for each byte if bytewise; nil if there is
// no shadow memory for them. Those of shared memory do not count. A launch, of a kernel, has records
// from floor on.
func (c *Checker) UsesOf(p *Page, shared, bytewise bool, floor Record, kernel string) *Uses {
	u := p.Uses
	if u == nil {
		shift := uint(2)
		if bytewise {
			shift = 0
		}
		if !shared && !c.makeRoom(3*8*PageBytes>>shift, floor, kernel) {
			return nil
		}
		p.Uses = newUses(shift)
		return p.Uses
	}
	if bytewise && u.Shift != 0 {
		if !shared && !c.makeRoom(3*8*(PageBytes-pageWords), floor, kernel) {
			return nil
		}
		p.Uses = u.split()
		return p.Uses
	}
	return u
}

// makeRoom reserves n bytes of shadow memory. If need be it frees the records of pages that
// this launch has not used. It returns false if there is not enough.
func (c *Checker) makeRoom(n int, floor Record, kernel string) bool {
	if c.room < n && !c.reclaim(floor, kernel) {
		return false
	}
	if c.room < n {
		c.Note("kernel %s: there was no shadow memory left to check all of its memory for races", kernel)
		return false
	}
	c.room -= n
	return true
}

// reclaim frees the records of earlier launches; false if there were none.
func (c *Checker) reclaim(floor Record, kernel string) bool {
	before := c.room
	for _, a := range c.areas {
		for _, p := range a.pages {
			if p != nil && p.Uses != nil && p.Used < floor {
				c.room += p.Uses.bytes()
				p.Uses = nil
			}
		}
	}
	if c.room == before {
		c.Note("kernel %s: there was no shadow memory left to check all of its memory for races", kernel)
	}
	return c.room > before
}

// forgetUses drops all records, so that numbers of blocks can start again.
func (c *Checker) forgetUses() {
	for _, a := range c.areas {
		for _, p := range a.pages {
			if p != nil && p.Uses != nil {
				c.room += p.Uses.bytes()
				p.Uses = nil
			}
		}
	}
}

// NewLaunch numbers the blocks of a launch, of which there are so many. exhausted is called when there
// are no numbers left: further blocks then share the last one.
func (c *Checker) NewLaunch(blocks uint64, exhausted func(blocks int)) Launch {
	const spare = 1024 // further numbers, for blocks whose clocks overflow
	n := Launch{most: int(min(blocks, maxBlockIDs-spare-1)) + spare, exhausted: exhausted}
	if int(c.nextID)+n.most > maxBlockIDs {
		c.forgetUses()
		c.nextID = 1
	}
	n.Lowest = c.nextID
	c.nextID += uint32(n.most)
	return n
}
