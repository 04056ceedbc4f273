package clientcore

import (
	"fmt"
	"maps"
	"slices"

	"muster/device"
)

// Placed is where the variables of a module were put. A client that is rebuilt puts
// them there again, for its program may have seen the addresses. It cannot find them by
// itself: a message that needed a device the first time may do without one when it is
// handled again, so that the module would be loaded later, when others are gone.
type Placed struct {
	Module  uint64
	Globals []device.Global
}

// Expect says that the messages which follow were handled before, and that so many
// modules were placed meanwhile.
func (c *Core) Expect(placed int) { c.ahead = placed }

// Rebuilt says that the messages which follow were not handled before.
func (c *Core) Rebuilt() {
	c.ahead = 0 // whatever a damaged journal has announced
	for _, mod := range c.Modules.All {
		mod.was = nil
	}
}

// Due says that a module of those was placed while the next message was handled, in the
// order in which they were.
func (c *Core) Due(p Placed) {
	if c.due == nil {
		c.due = map[uint64][]device.Global{}
	}
	c.due[p.Module] = append([]device.Global{}, p.Globals...) // not nil
	c.ahead--
}

// mayPlace says whether a module may be put into a context now. One that was not placed
// before waits for those that were, lest it lies where one of them does.
func (c *Core) mayPlace(serial uint64) bool {
	_, due := c.due[serial]
	return due || len(c.due) == 0 && c.ahead <= 0
}

// placedAgain puts modules where they were, before a message is handled. It returns false
// if that takes a while.
func (c *Core) placedAgain() bool {
	if len(c.due) == 0 || !slices.ContainsFunc(c.Modules.Unplaced, func(serial uint64) bool { _, due := c.due[serial]; return due }) {
		return true
	}
	ok, err := c.ready(need{})
	return ok || err != nil // the message finds out what is wrong
}

// comparePlaces notes where the variables of a module were that is placed again. Devices
// that choose the addresses themselves may have put them elsewhere, which matters only if
// a message asks for an address that its program was told before.
func (c *Core) comparePlaces(serial uint64, now []device.Global) {
	was, due := c.due[serial]
	delete(c.due, serial)
	if due && SamePlaces(was, now, nil) != nil {
		c.Modules.All[serial].was = addresses(was)
	}
}

// tell notes that the program knows a variable's address.
func (mod *Module) tell(name string) {
	if i, found := slices.BinarySearch(mod.Told, name); !found {
		mod.Told = slices.Insert(mod.Told, i, name)
	}
}

// moved notes that variables, whose addresses the program was not told, are elsewhere in
// a context than they were.
func (m *Modules) moved(all []Placed, chunk uint64) {
	for _, p := range all {
		mod := m.All[p.Module]
		mod.Info.Globals = p.Globals
		mod.Info = sorted(mod.Info)
	}
	if len(all) > 0 {
		m.count(chunk)
	}
}

// SamePlaces returns ErrMoved, with an example, if variables do not lie where they did:
// those that are named, or all.
func SamePlaces(was, now []device.Global, named []string) error {
	before, after := addresses(was), addresses(now)
	if named == nil {
		named = slices.Sorted(maps.Keys(before))
	}
	moved, example := 0, ""
	for _, name := range named {
		if at, ok := after[name]; !ok || at != before[name] {
			if moved++; moved == 1 {
				example = fmt.Sprintf("%s was at %#x and is at %#x", name, before[name], at)
			}
		}
	}
	if moved == 0 {
		return nil
	}
	return fmt.Errorf("%w (%d of %d: %s)", ErrMoved, moved, len(before), example)
}

func addresses(globals []device.Global) map[string]uint64 {
	all := make(map[string]uint64, len(globals))
	for _, g := range globals {
		all[g.Name] = g.Address
	}
	return all
}
