package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"muster/device"
	"muster/node/clientcore"
)

// replay loads and unloads modules in the order in which the previous context did, and puts the
// contents of their variables back. In another process than before (anew) variables may be at other
// addresses than the program knows: see shifts.
func (g *gpu) replay(ctx context.Context, modules []clientcore.Loaded, anew bool) error {
	for _, m := range modules {
		if m.Unload {
			if err := g.unload(m.Module); err != nil {
				return err
			}
			continue
		}
		if err := g.loadAgain(m, anew); err != nil {
			return fmt.Errorf("loading the program's modules: %w", err)
		}
	}
	for _, m := range modules {
		if g.modules[m.Module] == nil || m.Unload {
			continue
		}
		if err := g.restore(ctx, m); err != nil {
			return err
		}
	}
	return g.mover.Synchronise(ctx)
}

// loadAgain loads a module whose variables' addresses the program may know.
func (g *gpu) loadAgain(m clientcore.Loaded, anew bool) error {
	made, err := g.loader(m.Globals)(m.Image)
	if err != nil {
		return err
	}
	g.modules[m.Module] = &loaded{module: made, functions: map[uint32]device.Function{}}
	if !anew {
		return clientcore.SamePlaces(m.Globals, made.Globals())
	}
	return g.shift(m.Module, m.Globals)
}

// shift notes which variables of a module are not at the addresses the program knows. It fails if
// an old address now belongs to another module's variable: such an address would be ambiguous.
func (g *gpu) shift(module uint64, known []device.Global) error {
	m := g.modules[module]
	moved, err := shiftsOf(known, m.module.Globals())
	if err != nil || len(moved) == 0 {
		return err
	}
	m.shifts = moved
	g.addUpShifts()
	for _, other := range g.modules {
		if other.shifts == nil {
			if err := g.shifts.apart(other.module.Globals()); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUpShifts collects the shifts of all modules.
func (g *gpu) addUpShifts() {
	g.shifts = nil
	for _, m := range g.modules {
		g.shifts = append(g.shifts, m.shifts...)
	}
	g.shifts.sort()
}

// restore puts the contents of variables back. A word in them may be a pointer to another variable
// that the image itself initialised. The driver has set that word to the other variable's present
// address when it loaded the module; such words keep the driver's value (repoint).
func (g *gpu) restore(ctx context.Context, m clientcore.Loaded) error {
	shifts := g.modules[m.Module].shifts
	for i, contents := range m.Saved {
		at := shifts.of(m.Globals[i].Address)
		if shifts.pointedTo(contents) {
			fresh := make([]byte, len(contents))
			if err := g.mover.CopyOut(fresh, at); err != nil {
				return err
			}
			if err := g.mover.Synchronise(ctx); err != nil {
				return err
			}
			contents = shifts.repoint(contents, fresh)
		}
		if err := g.mover.CopyIn(at, contents); err != nil {
			return err
		}
	}
	return nil
}

// shifts maps the addresses at which the program knows variables to those where they are now,
// sorted by the former. NVIDIA's driver chooses where variables lie, and chooses differently in
// another process. The program keeps using the addresses it knows: they are replaced in the ranges
// of copies and fills, and in kernel parameters. Addresses that a kernel has stored in memory are
// not replaced.
type shifts []shift

type shift struct{ from, size, to uint64 }

const word = 8 // size of an address in bytes

// shiftsOf returns the variables that have moved.
func shiftsOf(was, now []device.Global) (shifts, error) {
	places := map[string]device.Global{}
	for _, v := range now {
		places[v.Name] = v
	}
	var all shifts
	for _, v := range was {
		at, ok := places[v.Name]
		if !ok || at.Size != v.Size {
			return nil, fmt.Errorf("variable %s of %d bytes is not in the module any more: %w", v.Name, v.Size, clientcore.ErrMoved)
		}
		if at.Address != v.Address {
			all = append(all, shift{v.Address, v.Size, at.Address})
		}
	}
	all.sort()
	return all, nil
}

func (s shifts) sort() {
	slices.SortFunc(s, func(a, b shift) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
}

// find returns the variable that was at an address; nil if none was.
func (s shifts) find(addr uint64) *shift {
	// The comparison is never 0, so i is the index of the first variable that begins after addr.
	i, _ := slices.BinarySearchFunc(s, addr, func(x shift, addr uint64) int {
		if x.from <= addr {
			return -1
		}
		return 1
	})
	if i == 0 || addr-s[i-1].from >= s[i-1].size {
		return nil
	}
	return &s[i-1]
}

// of translates an address that the program knows to the present one.
func (s shifts) of(addr uint64) uint64 {
	if v := s.find(addr); v != nil {
		return addr - v.from + v.to
	}
	return addr
}

// apart returns an error if a variable that has not moved overlaps the old place of one that has:
// an address there would mean either.
func (s shifts) apart(variables []device.Global) error {
	for _, v := range variables {
		for _, x := range s {
			if v.Address < x.from+x.size && x.from < v.Address+v.Size {
				return fmt.Errorf("%w: %s is where another one was", clientcore.ErrMoved, v.Name)
			}
		}
	}
	return nil
}

// shifted returns an operation with present addresses.
func (s shifts) shifted(o *clientcore.Op) *clientcore.Op {
	made := *o
	made.To.Addr, made.From.Addr, made.Range.Addr = s.of(o.To.Addr), s.of(o.From.Addr), s.of(o.Range.Addr)
	if s.pointedTo(o.How.Params) {
		made.How.Params = replaced(o.How.Params, func(_ int, addr uint64) uint64 { return s.of(addr) })
	}
	return &made
}

// pointedTo says whether any aligned word could be an old address of a variable.
func (s shifts) pointedTo(contents []byte) bool {
	for at := 0; len(s) > 0 && at+word <= len(contents); at += word {
		if s.find(binary.LittleEndian.Uint64(contents[at:])) != nil {
			return true
		}
	}
	return false
}

// repoint translates the old addresses in contents, but only words that have the present address in
// fresh, the contents that the driver has just initialised. Other words may be numbers that happen
// to look like addresses.
func (s shifts) repoint(contents, fresh []byte) []byte {
	return replaced(contents, func(at int, addr uint64) uint64 {
		if now := s.of(addr); binary.LittleEndian.Uint64(fresh[at:]) == now {
			return now
		}
		return addr
	})
}

// known translates addresses of variables back to those the program knows. Saved contents have
// these, so that another process can translate them again.
func (s shifts) known(contents []byte) []byte {
	back := make(shifts, len(s))
	for i, v := range s {
		back[i] = shift{v.to, v.size, v.from}
	}
	back.sort()
	return replaced(contents, func(_ int, addr uint64) uint64 { return back.of(addr) })
}

// replaced returns a copy of contents in which each aligned word is replaced.
func replaced(contents []byte, by func(at int, value uint64) uint64) []byte {
	made := slices.Clone(contents)
	for at := 0; at+word <= len(made); at += word {
		binary.LittleEndian.PutUint64(made[at:], by(at, binary.LittleEndian.Uint64(made[at:])))
	}
	return made
}
