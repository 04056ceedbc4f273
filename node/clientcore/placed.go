package clientcore

import (
	"fmt"
	"maps"
	"slices"

	"muster/device"
)

// Placed is where the variables of a module were put. A rebuilt client puts them there again,
// because its program may know the addresses. It cannot work them out: a message that needed a
// device the first time may not need one when it is replayed, so the module would be loaded later,
// when other modules are gone.
type Placed struct {
	Module  uint64
	Globals []device.Global
}

// Expect says that the following messages are replayed, and how many modules were placed while they
// were handled the first time.
func (c *Core) Expect(placed int) { c.ahead = placed }

// Due says that one of those modules was placed while the next message was handled. The caller
// reports them in the order in which they were placed.
func (c *Core) Due(p Placed) {
	if c.due == nil {
		c.due = map[uint64][]device.Global{}
	}
	c.due[p.Module] = append([]device.Global{}, p.Globals...) // not nil, even if empty
	c.ahead--
}

// mayPlace says whether a module may be loaded into a context now. During a replay a module that
// was not placed before waits for all that were, so that it does not take an address of theirs.
func (c *Core) mayPlace(serial uint64) bool {
	_, due := c.due[serial]
	return due || len(c.due) == 0 && c.ahead <= 0
}

// placedAgain puts due modules where they were, before a message is handled. It returns false if
// the message must wait for that.
func (c *Core) placedAgain() bool {
	if len(c.due) == 0 || !slices.ContainsFunc(c.Modules.Unplaced, func(serial uint64) bool { _, due := c.due[serial]; return due }) {
		return true
	}
	ok, err := c.ready(need{})
	return ok || err != nil // the message itself finds out what is wrong
}

// asBefore returns an error if a module that was placed again is not where it was.
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

// SamePlaces returns ErrMoved, with an example, if variables are not where they were.
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
