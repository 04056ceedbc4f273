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

// asBefore says why a module that is placed again is not where it was.
func (c *Core) asBefore(serial uint64, now []device.Global) error {
	was, due := c.due[serial]
	delete(c.due, serial)
	if !due {
		return nil
	}
	if err := SamePlaces(was, now); err != nil {
		return fmt.Errorf("putting a module where it was: %w", err)
	}
	return nil
}

// SamePlaces returns ErrMoved, with an example, if variables do not lie where they did.
func SamePlaces(was, now []device.Global) error {
	before, after := addresses(was), addresses(now)
	moved, example := 0, ""
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if at, ok := after[name]; !ok || at != before[name] {
			if moved++; moved == 1 {
				example = fmt.Sprintf("%s was at %#x and is at %#x", name, before[name], at)
			}
		}
	}
	if moved == 0 && len(before) == len(after) {
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
