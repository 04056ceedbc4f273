// Package shifts translates addresses of module variables, which NVIDIA's driver puts at other places in another
// process. It knows addresses and bytes alone.
package shifts

import (
	"encoding/binary"
	"fmt"
	"slices"

	"muster/device"
	"muster/node/clientcore"
)

// Shifts maps the addresses at which the program knows variables to those where they are now,
// sorted by the former. NVIDIA's driver chooses where variables lie, and chooses differently in
// another process. The program keeps using the addresses it knows: they are replaced in the ranges
// Of copies and fills, and in kernel parameters. Addresses that a kernel has stored in memory are
// not replaced.
type Shifts []shift

type shift struct{ from, size, to uint64 }

const word = 8 // size of an address in bytes

// Between returns the variables that have moved.
func Between(was, now []device.Global) (Shifts, error) {
	places := map[string]device.Global{}
	for _, v := range now {
		places[v.Name] = v
	}
	var all Shifts
	for _, v := range was {
		at, ok := places[v.Name]
		if !ok || at.Size != v.Size {
			return nil, fmt.Errorf("variable %s of %d bytes is not in the module any more: %w", v.Name, v.Size, clientcore.ErrMoved)
		}
		if at.Address != v.Address {
			all = append(all, shift{v.Address, v.Size, at.Address})
		}
	}
	all.Sort()
	return all, nil
}

// Sort puts them in order, after some were added.
func (s Shifts) Sort() {
	slices.SortFunc(s, func(a, b shift) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
}

// find returns the variable that was at an address; nil if none was.
func (s Shifts) find(addr uint64) *shift {
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

// Of translates an address that the program knows to the present one.
func (s Shifts) Of(addr uint64) uint64 {
	if v := s.find(addr); v != nil {
		return addr - v.from + v.to
	}
	return addr
}

// Apart returns an error if a variable that has not moved overlaps the old place of one that has:
// an address there would mean either.
func (s Shifts) Apart(variables []device.Global) error {
	for _, v := range variables {
		for _, x := range s {
			if v.Address < x.from+x.size && x.from < v.Address+v.Size {
				return fmt.Errorf("%w: %s is where another one was", clientcore.ErrMoved, v.Name)
			}
		}
	}
	return nil
}

// Shifted returns an operation with present addresses.
func (s Shifts) Shifted(o *clientcore.Op) *clientcore.Op {
	made := *o
	made.To.Addr, made.From.Addr, made.Range.Addr = s.Of(o.To.Addr), s.Of(o.From.Addr), s.Of(o.Range.Addr)
	if s.PointedTo(o.How.Params) {
		made.How.Params = replaced(o.How.Params, func(_ int, addr uint64) uint64 { return s.Of(addr) })
	}
	return &made
}

// PointedTo says whether any aligned word could be an old address of a variable.
func (s Shifts) PointedTo(contents []byte) bool {
	for at := 0; len(s) > 0 && at+word <= len(contents); at += word {
		if s.find(binary.LittleEndian.Uint64(contents[at:])) != nil {
			return true
		}
	}
	return false
}

// Repoint translates the old addresses in contents, but only words that have the present address in
// fresh, the contents that the driver has just initialised. Other words may be numbers that happen
// to look like addresses.
func (s Shifts) Repoint(contents, fresh []byte) []byte {
	return replaced(contents, func(at int, addr uint64) uint64 {
		if now := s.Of(addr); binary.LittleEndian.Uint64(fresh[at:]) == now {
			return now
		}
		return addr
	})
}

// Known translates addresses of variables back to those the program knows. Saved contents have
// these, so that another process can translate them again.
func (s Shifts) Known(contents []byte) []byte {
	back := make(Shifts, len(s))
	for i, v := range s {
		back[i] = shift{v.to, v.size, v.from}
	}
	back.Sort()
	return replaced(contents, func(_ int, addr uint64) uint64 { return back.Of(addr) })
}

// replaced returns a copy of contents in which each aligned word is replaced.
func replaced(contents []byte, by func(at int, value uint64) uint64) []byte {
	made := slices.Clone(contents)
	for at := 0; at+word <= len(made); at += word {
		binary.LittleEndian.PutUint64(made[at:], by(at, binary.LittleEndian.Uint64(made[at:])))
	}
	return made
}
