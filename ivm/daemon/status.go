package daemon

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"muster/ivm/core"
	"muster/wire/status"
)

// traffic counts what was started and what moved.
type traffic struct {
	started, puts, gets, put, got atomic.Uint64
}

// note counts an exchange, of its program and of the node.
func (m *member) note(how way, moved uint64) {
	for _, t := range []*traffic{&m.moved, &m.service.total} {
		if how == get {
			t.gets.Add(1)
			t.got.Add(moved)
		} else {
			t.puts.Add(1)
			t.put.Add(moved)
		}
	}
}

// Status is what the node has of programs now, and what it did for them; nil if it never had any.
func (s *Service) Status() *status.IVM {
	s.mu.Lock()
	members := slices.Collect(maps.Values(s.members))
	had := s.had
	s.mu.Unlock()
	if !had {
		return nil
	}
	is := &status.IVM{
		Programs: []status.IVMProgram{}, Memory: uint64(max(0, s.used.Load())), Started: s.total.started.Load(),
		Puts: s.total.puts.Load(), Gets: s.total.gets.Load(), PutBytes: s.total.put.Load(), GotBytes: s.total.got.Load(),
	}
	slices.SortFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.program.Launch.Executable, b.program.Launch.Executable), cmp.Compare(a.program.ID, b.program.ID))
	})
	for _, m := range members {
		is.Programs = append(is.Programs, m.status())
	}
	return is
}

func (m *member) status() status.IVMProgram {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := status.IVMProgram{
		Program: m.program.Launch.Executable, User: m.program.User, Number: int(m.program.Self), Nodes: len(m.program.Nodes),
		Elements: []status.IVMElement{}, PutBytes: m.moved.put.Load(), GotBytes: m.moved.got.Load(),
	}
	for _, e := range m.elements {
		if e.isGone {
			continue
		}
		is := status.IVMElement{Element: uint64(e.id)}
		if e.device.Kind == core.GPU {
			is.GPU = &e.device.Number
		}
		if e.process != nil {
			is.Pid = e.process.Pid
		}
		p.Elements = append(p.Elements, is)
	}
	slices.SortFunc(p.Elements, func(a, b status.IVMElement) int { return cmp.Compare(a.Element, b.Element) })
	for _, o := range m.objects {
		if o.master != nil {
			p.Masters, p.MasterBytes = p.Masters+1, p.MasterBytes+o.Size
		} else {
			p.Mirrors, p.MirrorBytes = p.Mirrors+1, p.MirrorBytes+o.Size
		}
	}
	return p
}
