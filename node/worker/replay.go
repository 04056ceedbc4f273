package worker

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"muster/device"
	"muster/node/clientcore"
)

// replay loads and unloads modules as they were in the context before, and puts
// back what their variables contained. In another process than before (anew) the driver may
// put variables elsewhere: only those must be where they were whose addresses the program
// knows. It returns the others.
func (g *gpu) replay(ctx context.Context, modules []clientcore.Loaded, anew bool) (moved []clientcore.Placed, err error) {
	places := map[uint64][]device.Global{}
	for _, m := range modules {
		if m.Unload {
			if err := g.unload(m.Module); err != nil {
				return nil, err
			}
			delete(places, m.Module)
			continue
		}
		now, err := g.loadAgain(m, anew)
		if err != nil {
			return nil, fmt.Errorf("loading the program's modules: %w", err)
		}
		places[m.Module] = now
	}
	for _, m := range modules {
		now := places[m.Module]
		if now == nil || m.Unload {
			continue
		}
		if slices.Equal(now, m.Globals) {
			err = g.restore(m.Saved, now)
		} else {
			moved = append(moved, clientcore.Placed{Module: m.Module, Globals: now})
			err = g.restoreElsewhere(ctx, m, now)
		}
		if err != nil {
			return nil, err
		}
	}
	return moved, g.mover.Synchronise(ctx)
}

// loadAgain puts a module into the context. It returns where its variables are, in the order
// in which they were listed before.
func (g *gpu) loadAgain(m clientcore.Loaded, anew bool) ([]device.Global, error) {
	made, err := g.loader(m.Globals)(m.Image)
	if err != nil {
		return nil, err
	}
	g.modules[m.Module] = &loaded{made, map[uint32]device.Function{}}
	var told []string // nil: all
	if anew {
		told = append([]string{}, m.Told...)
	}
	if err := clientcore.SamePlaces(m.Globals, made.Globals(), told); err != nil {
		return nil, err
	}
	byName := map[string]device.Global{}
	for _, v := range made.Globals() {
		byName[v.Name] = v
	}
	now := make([]device.Global, len(m.Globals))
	for i, v := range m.Globals {
		var ok bool
		if now[i], ok = byName[v.Name]; !ok || now[i].Size != v.Size {
			return nil, fmt.Errorf("variable %s of %d bytes is not in the module any more: %w", v.Name, v.Size, clientcore.ErrMoved)
		}
	}
	return now, nil
}

// restore puts back what variables contained.
func (g *gpu) restore(saved [][]byte, variables []device.Global) error {
	for i, contents := range saved {
		if err := g.mover.CopyIn(variables[i].Address, contents); err != nil {
			return err
		}
	}
	return nil
}

// restoreElsewhere is restore of variables that the driver has put elsewhere. The image may
// have made one point to another. The driver has made it point to where the other one is now,
// so that such a word is left as it is.
func (g *gpu) restoreElsewhere(ctx context.Context, m clientcore.Loaded, now []device.Global) error {
	shifts := shiftsOf(m.Globals, now)
	saved := slices.Clone(m.Saved)
	for i, contents := range saved {
		if !shifts.pointedTo(contents) {
			continue
		}
		fresh := make([]byte, len(contents))
		if err := g.mover.CopyOut(fresh, now[i].Address); err != nil {
			return err
		}
		if err := g.mover.Synchronise(ctx); err != nil {
			return err
		}
		saved[i] = shifts.repoint(contents, fresh)
	}
	return g.restore(saved, now)
}

const word = 8 // bytes of an address

// shifts are where variables were and are, by where they were.
type shifts []shift

type shift struct{ from, size, to uint64 }

func shiftsOf(was, now []device.Global) shifts {
	all := make(shifts, len(was))
	for i, v := range was {
		all[i] = shift{v.Address, v.Size, now[i].Address}
	}
	slices.SortFunc(all, func(a, b shift) int { return cmp.Compare(a.from, b.from) })
	return all
}

// of returns where something is now that was at an address; false if no variable was there.
func (s shifts) of(addr uint64) (uint64, bool) {
	i, _ := slices.BinarySearchFunc(s, addr, func(x shift, addr uint64) int {
		if x.from <= addr {
			return -1
		}
		return 1
	})
	if i == 0 || addr-s[i-1].from >= s[i-1].size {
		return 0, false
	}
	return addr - s[i-1].from + s[i-1].to, true
}

// pointedTo says whether any word could be an address of a variable.
func (s shifts) pointedTo(contents []byte) bool {
	for at := 0; at+word <= len(contents); at += word {
		if _, ok := s.of(binary.LittleEndian.Uint64(contents[at:])); ok {
			return true
		}
	}
	return false
}

// repoint returns contents with those addresses as they are in a fresh copy that the
// driver has put there itself: they are where the variables are now.
func (s shifts) repoint(contents, fresh []byte) []byte {
	made := slices.Clone(contents)
	for at := 0; at+word <= len(contents); at += word {
		now, ok := s.of(binary.LittleEndian.Uint64(contents[at:]))
		if ok && binary.LittleEndian.Uint64(fresh[at:]) == now {
			binary.LittleEndian.PutUint64(made[at:], now)
		}
	}
	return made
}
