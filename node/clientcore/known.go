package clientcore

import (
	"cmp"
	"slices"

	"muster/device"
)

// known is worked out of the modules, so that calls cost about the same however many
// there are: programs have thousands. It is made anew where it is not there, after a
// restore.
type known struct {
	ready     bool
	chunk     uint64
	functions map[uint64][]uint32 // that the client has asked for, by module
	variables []device.Global     // of loaded modules that are placed, by address
	waiting   uint64              // bytes that the modules in Unplaced take
	marks     []mark              // one for each entry of the journal
	summed    int                 // how many of them are added up
	entries   map[uint64]int      // where the journal lists the load of a module
	total     uint64              // bytes that all take which the journal has loaded
	unloads   int                 // entries of the journal that are
}

// mark is how much the module of an entry of the journal takes, how much all take behind
// that entry, and have taken at most up to it.
type mark struct{ size, now, most uint64 }

// count works out anew all that is known, and how much variables take: as much as is
// taken at a time while a context gets all modules.
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

// enter puts an entry behind the others in the journal.
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

// leave takes an entry out of the journal, behind which there are no loads.
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

// leaveAnywhere takes the load of a module out of a journal in which the order is of no
// account.
func (m *Modules) leaveAnywhere(serial uint64) {
	k := &m.known
	i, last := k.entries[serial], len(m.Journal)-1
	m.Journal[i], m.Journal[last] = m.Journal[last], m.Journal[i]
	k.marks[i], k.marks[last] = k.marks[last], k.marks[i]
	k.entries[m.Journal[i].Module] = i
	k.summed = min(k.summed, i)
	m.leave(last)
}

// know makes known what is not.
func (m *Modules) know(chunk uint64) {
	if !m.known.ready {
		m.count(chunk)
	}
}

func byAddress(a, b device.Global) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
}

// recount adds up what is new in the journal. Where nothing in it is unloaded, no more is
// taken at any time than at its end.
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

// awaitsNoMore takes out such a module, before anything else is found out about it.
func (m *Modules) awaitsNoMore(serial uint64) {
	if i := slices.Index(m.Unplaced, serial); i >= 0 {
		m.Unplaced = slices.Delete(m.Unplaced, i, i+1)
		m.known.waiting -= m.All[serial].memory(m.known.chunk)
	}
	m.recount()
}

// addVariables notes where variables lie.
func (m *Modules) addVariables(globals []device.Global) {
	for _, g := range globals {
		i, _ := slices.BinarySearchFunc(m.known.variables, g, byAddress)
		m.known.variables = slices.Insert(m.known.variables, i, g)
	}
}

// dropVariables forgets that.
func (m *Modules) dropVariables(globals []device.Global) {
	for _, g := range globals {
		if i, ok := slices.BinarySearchFunc(m.known.variables, g, byAddress); ok {
			m.known.variables = slices.Delete(m.known.variables, i, i+1)
		}
	}
}

// holds says whether a range lies in a variable.
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
	g := all[i-1] // the last that begins there or before
	return addr-g.Address <= g.Size && size <= g.Size-(addr-g.Address)
}

// dropFunctions forgets the kernels of a module.
func (m *Modules) dropFunctions(serial uint64) {
	for _, number := range m.known.functions[serial] {
		delete(m.Functions, number)
	}
	delete(m.known.functions, serial)
}
