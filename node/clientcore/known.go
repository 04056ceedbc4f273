package clientcore

import (
	"cmp"
	"slices"

	"muster/device"
)

// known is derived from the modules, so that calls cost about the same however many there are:
// programs have thousands. It is not saved; after a restore it is made again.
type known struct {
	ready     bool
	chunk     uint64
	functions map[uint64][]uint32 // that the client has looked up, by module
	variables []device.Global     // of loaded modules that are placed, by address
	waiting   uint64              // bytes of the modules in Unplaced
	marks     []mark              // one per entry of the journal
	summed    int                 // how many marks have valid sums
	entries   map[uint64]int      // index of a module's load in the journal
	total     uint64              // bytes of all modules that are loaded at the journal's end
	unloads   int                 // number of unloads in the journal
}

// mark is the size of an entry's module, the bytes in use after that entry, and the most in use up
// to it.
type mark struct{ size, now, most uint64 }

// count computes known again, and the room for variables: the most that is in use at a time while a
// context replays the journal.
func (m *Modules) count(chunk uint64) {
	m.known = known{ready: true, chunk: chunk, functions: map[uint64][]uint32{}, entries: map[uint64]int{}}
	for number, f := range m.Functions {
		m.known.functions[f.Module] = append(m.known.functions[f.Module], number)
	}
	for _, serial := range m.ByID {
		if mod := m.All[serial]; mod.Placed {
			m.known.variables = append(m.known.variables, mod.Info.Globals...)
		}
	}
	slices.SortFunc(m.known.variables, byAddress)
	for _, serial := range m.Unplaced {
		m.known.waiting += m.All[serial].memory(chunk)
	}
	all := m.Journal
	m.Journal = all[:0]
	for _, e := range all {
		m.enter(e)
	}
	m.recount()
}

// enter appends an entry to the journal.
func (m *Modules) enter(e Entry) {
	k := &m.known
	m.Journal = append(m.Journal, e)
	size := m.All[e.Module].memory(k.chunk)
	k.marks = append(k.marks, mark{size: size})
	if e.Unload {
		k.unloads++
		k.total -= size
	} else {
		k.entries[e.Module] = len(m.Journal) - 1
		k.total += size
	}
}

// leave removes an entry from the journal. No load may follow it.
func (m *Modules) leave(i int) {
	k := &m.known
	if e, size := m.Journal[i], k.marks[i].size; e.Unload {
		k.unloads--
		k.total += size
	} else {
		delete(k.entries, e.Module)
		k.total -= size
	}
	m.Journal = slices.Delete(m.Journal, i, i+1)
	k.marks = slices.Delete(k.marks, i, i+1)
	k.summed = min(k.summed, i)
}

// leaveAnywhere removes the load of a module from a journal whose order does not matter: it swaps
// the entry with the last one.
func (m *Modules) leaveAnywhere(serial uint64) {
	k := &m.known
	i, last := k.entries[serial], len(m.Journal)-1
	m.Journal[i], m.Journal[last] = m.Journal[last], m.Journal[i]
	k.marks[i], k.marks[last] = k.marks[last], k.marks[i]
	k.entries[m.Journal[i].Module] = i
	k.summed = min(k.summed, i)
	m.leave(last)
}

// know computes known if it is missing.
func (m *Modules) know(chunk uint64) {
	if !m.known.ready {
		m.count(chunk)
	}
}

func byAddress(a, b device.Global) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
}

// recount sums up what is new in the journal. Without unloads the use only grows, so the total is
// the most.
func (m *Modules) recount() {
	k := &m.known
	if k.unloads == 0 {
		m.Variables = k.total + k.waiting
		return
	}
	var last mark
	if k.summed > 0 {
		last = k.marks[k.summed-1]
	}
	for i := k.summed; i < len(k.marks); i++ {
		this := &k.marks[i]
		if m.Journal[i].Unload {
			this.now = last.now - this.size
		} else {
			this.now = last.now + this.size
		}
		this.most = max(last.most, this.now)
		last = *this
	}
	k.summed = len(k.marks)
	m.Variables = max(last.most, last.now+k.waiting)
}

// awaits adds a module that is in no context yet.
func (m *Modules) awaits(serial uint64) {
	m.Unplaced = append(m.Unplaced, serial)
	m.known.waiting += m.All[serial].memory(m.known.chunk)
	m.recount()
}

// awaitsNoMore removes such a module. It must be called before the module's Info changes, since the
// size that is subtracted must be the one that was added.
func (m *Modules) awaitsNoMore(serial uint64) {
	if i := slices.Index(m.Unplaced, serial); i >= 0 {
		m.Unplaced = slices.Delete(m.Unplaced, i, i+1)
		m.known.waiting -= m.All[serial].memory(m.known.chunk)
	}
	m.recount()
}

// addVariables notes where variables are.
func (m *Modules) addVariables(globals []device.Global) {
	for _, g := range globals {
		i, _ := slices.BinarySearchFunc(m.known.variables, g, byAddress)
		m.known.variables = slices.Insert(m.known.variables, i, g)
	}
}

// dropVariables forgets where variables are.
func (m *Modules) dropVariables(globals []device.Global) {
	for _, g := range globals {
		if i, ok := slices.BinarySearchFunc(m.known.variables, g, byAddress); ok {
			m.known.variables = slices.Delete(m.known.variables, i, i+1)
		}
	}
}

// holds says whether a range lies in one variable.
func (m *Modules) holds(chunk, addr, size uint64) bool {
	m.know(chunk)
	all := m.known.variables
	i, _ := slices.BinarySearchFunc(all, addr, func(g device.Global, addr uint64) int {
		if g.Address <= addr {
			return -1
		}
		return 1
	})
	if i == 0 {
		return false
	}
	g := all[i-1] // the last one that begins at addr or before
	return addr-g.Address <= g.Size && size <= g.Size-(addr-g.Address)
}

// dropFunctions forgets the kernels of a module.
func (m *Modules) dropFunctions(serial uint64) {
	for _, number := range m.known.functions[serial] {
		delete(m.Functions, number)
	}
	delete(m.known.functions, serial)
}
