package program

import (
	"sync"

	"muster/ptx"
)

// The functions of a module and the calls between them. Load lowers each function
// once, however many kernels use it, and keeps the numbers that describe kernels;
// image.go makes the code of a kernel when it is first launched.

// unit is a function of a module that has a body.
type unit struct {
	f         *ptx.Function
	number    int     // in Program.units
	calls     []*unit // each once, in the order of the text
	recursive bool    // it may be called again before it has returned

	// What Load found in its own code:
	errs    ptx.Errors
	frame   int             // bytes
	shared  []*ptx.Variable // static ones that it names, in the order of the text
	carried slotCount       // registers that carry values between basic blocks
	private slotCount       // registers that do not
	block   blockLimit      // of a kernel

	// Of the function and all that it may call together (sumUp):
	depth     int  // bytes of frames on the deepest path
	bounded   bool // depth is the maximum: no function on any path is recursive
	registers int  // of 32 bits
	anyErrs   bool
	anyShared bool
	anyHeap   bool // malloc or free is called

	sharedBytes int // static, of a kernel

	mu      sync.Mutex // protects section
	section *section   // its code, once a kernel that calls it was launched; nil before
}

// slotCount counts slots by class.
type slotCount [Predicate + 1]int32

// registers returns how many registers of 32 bits the slots stand for.
func (n slotCount) registers() int { return int(n[Bits32] + 2*n[Bits64]) }

// findUnits finds the functions of a module and the calls between them. An
// indirect call may reach any function: it counts as a call of the last unit,
// which has no code and calls them all.
func (p *Program) findUnits() {
	p.unitOf = map[*ptx.Function]*unit{}
	p.anyone = &unit{}
	for _, f := range p.module.Functions {
		if !f.Defined {
			continue
		}
		u := &unit{f: f, number: len(p.units)}
		p.unitOf[f] = u
		p.units = append(p.units, u)
		if !f.Entry {
			p.anyone.calls = append(p.anyone.calls, u)
		}
	}
	for _, u := range p.units {
		u.calls, u.anyHeap = p.callsOf(u.f), p.usesHeap(u.f)
	}
	p.anyone.number = len(p.units)
	p.units = append(p.units, p.anyone)
}

// callsOf returns the functions that f calls. It leaves out functions that the
// driver provides, such as vprintf, and kernels, whose call lowering refuses.
func (p *Program) callsOf(f *ptx.Function) []*unit {
	var calls []*unit
	var seen map[*unit]bool
	for _, in := range f.Code {
		c, ok := in.Call()
		if !ok {
			continue
		}
		callee := p.anyone
		if c.Callee.Kind == ptx.SymbolOperand {
			callee = p.unitOf[p.module.Function(c.Callee.Name)]
			if callee == nil || callee.f.Entry {
				continue
			}
		}
		if seen == nil {
			seen = map[*unit]bool{}
		}
		if !seen[callee] {
			seen[callee] = true
			calls = append(calls, callee)
		}
	}
	return calls
}

// closure returns a unit and all that it may call, breadth first. It calls isNew
// each time it comes to a unit, and skips the unit if the answer is false.
func (p *Program) closure(root *unit, isNew func(*unit) bool) []*unit {
	var all []*unit
	visit := func(u *unit) {
		if isNew(u) {
			all = append(all, u)
		}
	}
	visit(root)
	for i := 0; i < len(all); i++ {
		for _, u := range all[i].calls {
			if u != p.anyone {
				visit(u)
			} else if isNew(u) {
				for _, u := range u.calls {
					visit(u)
				}
			}
		}
	}
	return all
}

// marks remembers which units a walk has seen. The next walk need not clear it.
type marks struct {
	walk int
	last []int // walk in which a unit was last seen, by number
}

// begin begins a walk. The function that it returns says whether a unit is new to
// the walk, and marks it.
func (m *marks) begin() func(*unit) bool {
	m.walk++
	return func(u *unit) bool {
		isNew := m.last[u.number] != m.walk
		m.last[u.number] = m.walk
		return isNew
	}
}

// grouping finds the groups of units that may call each other, by Tarjan's
// algorithm. Its stack is explicit: a chain of calls may be long.
type grouping struct {
	found  []int   // the position at which a unit was found, by number; 0: not yet
	low    []int   // the earliest position among the open units that it leads to
	open   []*unit // found units whose group is not complete
	isOpen []bool
	path   []visit // the explicit stack
	count  int
}

// visit is a unit whose calls are being followed.
type visit struct {
	u    *unit
	next int
}

// groups returns the units in groups that may call each other, each group
// before those that call it.
func (p *Program) groups() [][]*unit {
	n := len(p.units)
	g := &grouping{found: make([]int, n), low: make([]int, n), isOpen: make([]bool, n)}
	var all [][]*unit
	for _, root := range p.units {
		if g.found[root.number] != 0 {
			continue
		}
		for g.enter(root); len(g.path) > 0; {
			if g.descend() {
				continue
			}
			if group := g.leave(); group != nil {
				all = append(all, group)
			}
		}
	}
	return all
}

func (g *grouping) enter(u *unit) {
	g.count++
	g.found[u.number], g.low[u.number] = g.count, g.count
	g.open, g.isOpen[u.number] = append(g.open, u), true
	g.path = append(g.path, visit{u: u})
}

// descend follows the next call of the last unit of the path; false if all its calls
// have been followed.
func (g *grouping) descend() bool {
	v := &g.path[len(g.path)-1]
	if v.next == len(v.u.calls) {
		return false
	}
	c := v.u.calls[v.next]
	v.next++
	if g.found[c.number] == 0 {
		g.enter(c)
	} else if g.isOpen[c.number] {
		g.low[v.u.number] = min(g.low[v.u.number], g.found[c.number])
	}
	return true
}

// leave takes the last unit off the path. If it was the first unit of its group to
// be found, the group is complete, and leave returns it.
func (g *grouping) leave() []*unit {
	u := g.path[len(g.path)-1].u
	g.path = g.path[:len(g.path)-1]
	if len(g.path) > 0 {
		caller := g.path[len(g.path)-1].u.number
		g.low[caller] = min(g.low[caller], g.low[u.number])
	}
	if g.low[u.number] != g.found[u.number] {
		return nil
	}
	first := len(g.open) - 1
	for g.open[first] != u {
		first--
	}
	group := append([]*unit(nil), g.open[first:]...)
	g.open = g.open[:first]
	for _, m := range group {
		g.isOpen[m.number] = false
	}
	return group
}

// findRecursion marks the units that may be called again before they return.
func findRecursion(groups [][]*unit) {
	for _, group := range groups {
		for _, u := range group {
			u.recursive = len(group) > 1
			for _, c := range u.calls {
				u.recursive = u.recursive || c == u
			}
		}
	}
}

// sumUp computes, callees before callers, what holds of a unit and all below it.
// The units of a group may all call each other, so they share one result.
func (p *Program) sumUp(groups [][]*unit) {
	for _, group := range groups {
		for _, u := range group {
			if u.recursive && u != p.anyone {
				u.depth, u.bounded = u.frame, false // Launch.Stack provides for the rest
			}
		}
		carried, rest := 0, 0
		anyErrs, anyShared, anyHeap := false, false, false
		for _, u := range group {
			if !u.recursive || u == p.anyone {
				u.depth, u.bounded = u.deepest()
			}
			carried += u.carried.registers()
			rest = max(rest, u.private.registers())
			anyErrs, anyShared, anyHeap = anyErrs || len(u.errs) > 0, anyShared || len(u.shared) > 0, anyHeap || u.anyHeap
			for _, c := range u.calls { // units of this group still have zeros here
				rest = max(rest, c.registers)
				anyErrs, anyShared, anyHeap = anyErrs || c.anyErrs, anyShared || c.anyShared, anyHeap || c.anyHeap
			}
		}
		for _, u := range group {
			u.registers, u.anyErrs, u.anyShared, u.anyHeap = carried+rest, anyErrs, anyShared, anyHeap
		}
	}
}

// deepest returns the bytes of frames on the deepest path from a unit, whose
// callees are all summed up, and whether a call can never need more.
func (u *unit) deepest() (depth int, bounded bool) {
	bounded = true
	for _, c := range u.calls {
		depth, bounded = max(depth, c.depth), bounded && c.bounded
	}
	return u.frame + depth, bounded
}

// reached returns the units that some kernel may call, and the kernels.
func (p *Program) reached() []*unit {
	m := marks{last: make([]int, len(p.units))}
	isNew := m.begin()
	for _, u := range p.units {
		if u != p.anyone && u.f.Entry {
			p.closure(u, isNew)
		}
	}
	var all []*unit
	for _, u := range p.units {
		if u != p.anyone && !isNew(u) {
			all = append(all, u)
		}
	}
	return all
}

// isHeapFunction says whether a function that a module does not define is one of
// those that work on the heap.
func isHeapFunction(name string) bool { return name == "malloc" || name == "free" }

// usesHeap says whether a function calls malloc or free itself.
func (p *Program) usesHeap(f *ptx.Function) bool {
	for _, in := range f.Code {
		c, ok := in.Call()
		if ok && c.Callee.Kind == ptx.SymbolOperand && isHeapFunction(c.Callee.Name) && p.unitOf[p.module.Function(c.Callee.Name)] == nil {
			return true
		}
	}
	return false
}
