package simt

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"muster/ptx"
)

// Checking kernels. A Checker looks at every access to memory that the threads
// of a kernel make and reports those that are wrong though the kernel goes on:
// two threads that use the same bytes with nothing that orders them, bytes that
// are read before anybody wrote them, addresses outside every allocation.
//
// What it knows of memory is in shadow pages (check_shadow.go), what orders
// threads in clocks (check_order.go). It is called by the instructions of a copy
// of a kernel's code in which those that reach memory call it first
// (check_access.go); a launch without a Checker runs the code as it is.

// Checks says what to look for.
type Checks struct {
	Race   bool // accesses of two threads to the same bytes, one of them a write, that nothing orders
	Init   bool // reads of memory that nobody has written
	Memory bool // addresses outside every allocation, or not a multiple of the access's size
}

// Any says whether there is anything to look for.
func (c Checks) Any() bool { return c.Race || c.Init || c.Memory }

// String returns the names with commas between.
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

// ParseChecks reads names with commas between; "all" is all of them.
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
	Block, Thread Dim
	What          string // "read", "write" or "atomic"
	Line          int    // of the PTX
	Instruction   string
	Source        string // file and line, "" if the PTX does not say
}

// String says who did what, and where.
func (d *Deed) String() string {
	source := ""
	if d.Source != "" {
		source = ", " + d.Source
	}
	return fmt.Sprintf("%s by thread %v of block %v at line %d%s (%s)", d.What, d.Thread, d.Block, d.Line, source, d.Instruction)
}

// Defect is an access that is wrong.
type Defect struct {
	Kind    DefectKind
	Kernel  string
	Deed    Deed
	Other   *Deed // of a race: the earlier one
	Space   ptx.Space
	Address uint64
	Size    int    // bytes
	Memory  string // what is there: "argument 1, f32[1000], at byte 16"
	Why     string // what is missing that would order the two of a race
}

// String is the report of a defect, in lines.
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

// Checker checks the kernels that are launched with it. What it knows of memory
// lasts from one launch to the next. Its methods may be called by several
// goroutines.
type Checker struct {
	checks Checks
	report func(*Defect)

	mu     sync.Mutex // held while a kernel runs
	areas  []*area    // by address
	last   *area      // that was found last
	room   int        // bytes of shadow memory that are left
	nextID uint32     // of a block
	seen   map[defectKey]int
	keys   []defectKey // in the order in which they were found
	first  map[defectKey]string
	notes  []string
}

// defectKey tells defects apart: those of one pair of instructions are one.
type defectKey struct {
	kind   DefectKind
	space  ptx.Space
	deed   *ptx.Instruction
	other  *ptx.Instruction
	detail string
}

// DefaultShadow is how many bytes of shadow memory a checker takes at most if
// nothing else is said.
const DefaultShadow = 1 << 30

// maxReports is how many defects are reported; more are only counted.
const maxReports = 100

// NewChecker makes a checker. Report gets each defect when it is first found: an
// instruction, or two of a race, that do the same wrong again are only counted.
// Shadow bounds the memory that the checker takes; DefaultShadow if 0.
func NewChecker(c Checks, shadow int, report func(*Defect)) *Checker {
	if shadow == 0 {
		shadow = DefaultShadow
	}
	return &Checker{checks: c, report: report, room: shadow, nextID: 1, seen: map[defectKey]int{}, first: map[defectKey]string{}}
}

// area is a stretch of global memory that was allocated as a whole.
type area struct {
	base, size uint64
	name       string
	pages      []*page // nil for those that nobody has touched
	written    bool    // what nobody has touched counts as written
	freed      bool    // nobody may use it: it is only kept for reports
}

// Allocate says that memory can be used from now on, under a name that reports
// use. Written says that it has a content; else nobody may read it before it is
// written. What was known of the same addresses is forgotten.
func (c *Checker) Allocate(addr, size uint64, name string, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allocate(addr, size, name, written)
}

// allocate is Allocate for those who hold the lock.
func (c *Checker) allocate(addr, size uint64, name string, written bool) {
	c.free(addr, max(1, size))
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr })
	pages := (addr+size+pageBytes-1)/pageBytes - addr/pageBytes
	c.areas = slices.Insert(c.areas, i, &area{base: addr, size: size, name: name, written: written, pages: make([]*page, pages)})
}

// Free says that the memory around an address is no longer to be used.
func (c *Checker) Free(addr uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free(addr, 1)
}

// retire says that a kernel has freed the memory at an address. The area remains, so
// that a later use of it can be told from one of memory that nobody ever allocated.
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

// free forgets all areas that overlap with a stretch.
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

// Written says that somebody other than a kernel has written memory.
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

// find returns the area that an address is in, or nil.
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

// page returns the shadow of a page of an area.
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

// near says whether an address is so close to an area that whoever used it must
// have meant that: there may be memory that the checker was not told of.
func (c *Checker) near(addr uint64) bool {
	const most = 2 << 20
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr })
	return i > 0 && addr-c.areas[i-1].base-c.areas[i-1].size < most || i > 0 && addr-c.areas[i-1].base < c.areas[i-1].size ||
		i < len(c.areas) && c.areas[i].base-addr <= most
}

// describe says what an address of global memory belongs to, or is near to.
func (c *Checker) describe(addr uint64) string {
	if a := c.find(addr); a != nil {
		return fmt.Sprintf("byte %d of %s", addr-a.base, a.name)
	}
	i := sort.Search(len(c.areas), func(i int) bool { return c.areas[i].base > addr }) - 1
	const near = 1 << 20
	if i >= 0 && addr-c.areas[i].base < c.areas[i].size {
		return fmt.Sprintf("byte %d of %s", addr-c.areas[i].base, c.areas[i].name)
	}
	if i >= 0 && addr-c.areas[i].base-c.areas[i].size < near {
		return fmt.Sprintf("%s behind the end of %s", counted(int(addr-c.areas[i].base-c.areas[i].size), "byte"), c.areas[i].name)
	}
	if i+1 < len(c.areas) && c.areas[i+1].base-addr < near {
		return fmt.Sprintf("%s before %s", counted(int(c.areas[i+1].base-addr), "byte"), c.areas[i+1].name)
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

// note keeps a remark on what was not checked, once.
func (c *Checker) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// Found returns how many defects were found, those of one instruction or one
// pair of instructions counted once.
func (c *Checker) Found() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys)
}

// Summary says what was found in all, in lines, and what was not checked.
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
