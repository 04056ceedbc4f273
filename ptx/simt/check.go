package simt

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// Checking kernels. A Checker examines every memory access of a kernel's threads
// and reports defects that do not stop the kernel: races (two threads use the same
// bytes, at least one writes, and nothing orders the two), reads of bytes that were
// never written, and accesses outside every allocation.
//
// What it knows of memory is in shadow pages (check_shadow.go), what it knows of the
// order of threads in vector clocks (check_order.go). A launch with a Checker runs a
// copy of the kernel's code in which each instruction that accesses memory first calls
// the checker (check_access.go). A launch without one runs the unchanged code.
//
// One worker runs such a launch, in the interpreter, and Checker.mu is held meanwhile.
// So the checker sees accesses one after the other, in one possible order, and needs no
// other locks.

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
func ParseChecks(list string) (Checks, error) {
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
	fmt.Fprintf(&b, "%v in kernel %s: %s at %s %#x", d.Kind, d.Kernel, counted(d.Size, "byte"), spaceName(d.Space), d.Address)
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

func counted(n int, what string) string {
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
	checks Checks
	report func(*Defect)

	mu     sync.Mutex        // held while a kernel runs; guards all fields below
	areas  []*area           // sorted by address; they do not overlap
	last   *area             // the area that find returned last, or nil
	room   int               // bytes of shadow memory that may still be allocated
	nextID uint32            // the next number for a block; see blockID
	seen   map[defectKey]int // how often each defect occurred
	keys   []defectKey       // in the order in which they were found
	first  map[defectKey]string
	notes  []string // what was not checked, for Summary
}

// defectKey identifies a defect: the same instruction, or pair of instructions, counts once.
type defectKey struct {
	kind   DefectKind
	space  ptx.Space
	deed   *ptx.Instruction
	other  *ptx.Instruction
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
func NewChecker(c Checks, shadow int, report func(*Defect)) *Checker {
	if shadow == 0 {
		shadow = DefaultShadow
	}
	return &Checker{checks: c, report: report, room: shadow, nextID: 1, seen: map[defectKey]int{}, first: map[defectKey]string{}}
}

// area is one allocation in global memory.
type area struct {
	base, size uint64
	name       string
	pages      []*page // shadow pages; nil for those that no access has touched
	written    bool    // pages that no access has touched count as written
	freed      bool    // a kernel has freed it: it is kept only to name it in reports
}

// Allocate tells the checker of an allocation, and of its name for reports. written says
// that the memory has contents; if false, a read before a write is a defect. The checker
// forgets what it knew of the same addresses.
func (c *Checker) Allocate(addr, size uint64, name string, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allocate(addr, size, name, written)
}

// allocate is Allocate for callers that hold c.mu.
func (c *Checker) allocate(addr, size uint64, name string, written bool) {
	c.free(addr, max(1, size))
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr })
	pages := (addr+size+pageBytes-1)/pageBytes - addr/pageBytes
	c.areas = slices.Insert(c.areas, i, &area{base: addr, size: size, name: name, written: written, pages: make([]*page, pages)})
}

// Free tells the checker that the allocation that contains addr is gone.
func (c *Checker) Free(addr uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free(addr, 1)
}

// retire tells the checker that a kernel has freed the memory at an address. The area remains, so
// that the report of a later use can say that the memory was freed.
func (c *Checker) retire(addr uint64) {
	a := c.find(addr)
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
		if a.base+max(1, a.size) <= addr || a.base >= addr+size {
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
	if !c.checks.Init || size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.areas {
		if a.freed {
			continue
		}
		from, to := max(addr, a.base), min(addr+size, a.base+a.size)
		for from < to {
			end := min(to, (from/pageBytes+1)*pageBytes)
			slot := &a.pages[from/pageBytes-a.base/pageBytes]
			if *slot == nil && !a.written {
				*slot = c.newPage(a)
			}
			if *slot != nil {
				(*slot).write(int(from%pageBytes), int(end-from))
			}
			from = end
		}
	}
}

// find returns the area that contains an address, or nil. Consecutive accesses mostly hit the same area,
// which last remembers.
func (c *Checker) find(addr uint64) *area {
	if a := c.last; a != nil && addr-a.base < a.size {
		return a
	}
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr }) - 1
	if i < 0 || addr-c.areas[i].base >= c.areas[i].size || c.areas[i].freed {
		return nil
	}
	c.last = c.areas[i]
	return c.last
}

// page returns the shadow page of an address in an area.
func (c *Checker) page(a *area, addr uint64) *page {
	slot := &a.pages[addr/pageBytes-a.base/pageBytes]
	if *slot == nil {
		*slot = c.newPage(a)
	}
	return *slot
}

func (c *Checker) newPage(a *area) *page {
	p := &page{}
	c.room -= p.bytes()
	if a.written {
		p.write(0, pageBytes)
	}
	return p
}

// near says whether an address is so close to an area that the thread probably meant that
// area. An access far from all areas is not reported: it may hit valid memory that the
// checker was not told of.
func (c *Checker) near(addr uint64) bool {
	const most = 2 << 20
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr })
	return i > 0 && addr-c.areas[i-1].base-c.areas[i-1].size < most || i > 0 && addr-c.areas[i-1].base < c.areas[i-1].size ||
		i < len(c.areas) && c.areas[i].base-addr <= most
}

// describe says which area an address of global memory belongs to, or is near.
func (c *Checker) describe(addr uint64) string {
	if a := c.find(addr); a != nil {
		return fmt.Sprintf("byte %d of %s", addr-a.base, a.name)
	}
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr }) - 1
	const near = 1 << 20
	if i >= 0 && addr-c.areas[i].base < c.areas[i].size {
		return fmt.Sprintf("byte %d of %s", addr-c.areas[i].base, c.areas[i].name)
	}
	behind, before := uint64(near), uint64(near) // the end of one area, and the begin of the next
	if i >= 0 {
		behind = min(near, addr-c.areas[i].base-c.areas[i].size)
	}
	if i+1 < len(c.areas) {
		before = min(near, c.areas[i+1].base-addr)
	}
	switch {
	case before < behind:
		return fmt.Sprintf("%s before %s", counted(int(before), "byte"), c.areas[i+1].name)
	case behind < near:
		return fmt.Sprintf("%s behind the end of %s", counted(int(behind), "byte"), c.areas[i].name)
	}
	return "near no allocation"
}

// add counts a defect and reports it if it is new.
func (c *Checker) add(key defectKey, make func() *Defect) {
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

// note records a remark about what was not checked, once.
func (c *Checker) note(format string, args ...any) {
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
	head := fmt.Sprintf("%s (%v)", counted(len(c.keys), "defect"), c.checks)
	if len(c.keys) == 0 {
		head = fmt.Sprintf("no defects (%v)", c.checks)
	}
	lines := []string{head}
	for i, key := range c.keys {
		if i == maxReports {
			lines = append(lines, fmt.Sprintf("  and %d more that were not reported", len(c.keys)-maxReports))
			break
		}
		lines = append(lines, fmt.Sprintf("  %s: %s", c.first[key], counted(c.seen[key], "time")))
	}
	return append(lines, c.notes...)
}
