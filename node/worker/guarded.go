package worker

import (
	"muster/device"
	"muster/node/clientcore"
	"muster/vmm"
)

// watching returns a guard that reports to the core what memory a kernel used.
func (l *launches) watching(g *clientcore.Guarded) *device.Guard {
	kernel := g.Kernel
	return &device.Guard{Ranges: arenas(g.Ranges), Touched: func(used []device.Arena) {
		s := clientcore.Seen{Kernel: kernel}
		for _, r := range used {
			s.Used = append(s.Used, vmm.Range{Addr: r.Base, Size: r.Size})
		}
		l.spread.saw(s)
	}}
}

func arenas(ranges []vmm.Range) []device.Arena {
	all := make([]device.Arena, len(ranges))
	for i, r := range ranges {
		all[i] = device.Arena{Base: r.Addr, Size: r.Size}
	}
	return all
}

// trapped is a thread of a kernel that was stopped before it accesses unexpected memory.
type trapped struct {
	addr uint64
	goes chan<- vmm.Range // what it may use; of size 0 if nothing
}

// guarded launches a kernel that may use only the memory it is expected to use, and waits for
// its end. If the kernel is about to use other memory, it stops, the loop brings that memory, and
// the kernel goes on. Nothing else runs on its device meanwhile: other kernels there would stop
// with it, and if bringing memory had to wait for a kernel on another device that waits for one of
// those, none would ever end.
func (l *launches) guarded(m *message, g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if err := l.drain(g); err != nil {
		return err
	}
	traps := make(chan trapped)
	over := make(chan struct{})
	defer close(over)
	o.How.Guard = &device.Guard{Ranges: arenas(o.Guard.Ranges), Trap: func(addr uint64) (device.Arena, bool) {
		goes := make(chan vmm.Range, 1)
		select {
		case traps <- trapped{addr, goes}:
		case <-over:
			return device.Arena{}, false
		}
		r := <-goes
		return device.Arena{Base: r.Addr, Size: r.Size}, r.Size > 0
	}}
	if err := l.measured(m, g, f, on, g.modules.Here(o)); err != nil {
		return err
	}
	ended := make(chan struct{})
	l.answers.Go(func() {
		defer close(ended)
		_ = g.context.Synchronise(l.answers.Context) // the next wait reports a fault
	})
	for {
		select {
		case t := <-traps:
			r, err := l.bring(g, o.Guard.Kernel, t.addr)
			t.goes <- r
			if err != nil {
				return err
			}
		case <-ended:
			return nil
		}
	}
}

// bring brings the memory that a guarded kernel is about to use. It returns a range of size 0 if
// the client has nothing at the address.
func (l *launches) bring(g *gpu, k clientcore.Kernel, addr uint64) (vmm.Range, error) {
	plan, r, ok := l.core().Trapped(g.place, k, addr)
	if !ok {
		return vmm.Range{}, nil
	}
	for _, step := range plan {
		source := step.Device
		switch step.Op {
		case vmm.CopyOut:
		case vmm.CopyAcross:
			source = step.From
		default:
			continue
		}
		from, err := l.contexts.at(source)
		if err == nil {
			err = l.drain(from)
		}
		if err != nil {
			return vmm.Range{}, err
		}
	}
	_, err := l.move(plan, true)
	return r, err
}
