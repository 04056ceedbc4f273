package vgpu

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Configure changes the part of a configuration that can change while there are
// clients. They keep what was granted or promised. Values that are out of range change
// nothing (Refuses).
type Configure struct {
	Policy    Policy        `json:"policy"`
	MaxIdle   time.Duration `json:"max_idle_ns"`
	SlotLimit int           `json:"slot_limit"`
	Migrate   bool          `json:"migrate"`
	Quantum   time.Duration `json:"quantum_ns,omitempty"`
}

func (e Configure) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	c.cfg.Policy, c.cfg.MaxIdle, c.cfg.SlotLimit, c.cfg.Migrate = e.Policy, e.MaxIdle, e.SlotLimit, e.Migrate
	c.cfg.Quantum = e.Quantum
	c.cfg = c.cfg.withMoves()
	slices.SortFunc(c.ready, c.before)
	c.setLimits()
	c.anew = true
	return true
}

// Limit says how many slots a user's clients may have at a time: Slots if the user has
// a limit of its own, 0 for none; else SlotLimit. A user who has more keeps them.
type Limit struct {
	User  string `json:"user"`
	Own   bool   `json:"own"`
	Slots int    `json:"slots"`
}

func (e Limit) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	limits := maps.Clone(c.cfg.SlotLimits) // callers of Config may still have the old map
	if limits == nil {
		limits = map[string]int{}
	}
	limits[e.User] = e.Slots
	if !e.Own {
		delete(limits, e.User)
	}
	c.cfg.SlotLimits = limits
	c.setLimits()
	c.anew = true
	return true
}

// Resize changes how many slots a device has, and each part of it that is granted. Clients that are bound to
// more leave (ForLimit), those that came last first: they wait for a slot as any other.
type Resize struct {
	Device DeviceID `json:"device"`
	Slots  int      `json:"slots"`
}

func (e Resize) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	for _, m := range c.device(e.Device).family() {
		m.Slots = e.Slots
		m.trim()
		for len(m.slots) < m.Slots {
			m.slots = append(m.slots, nil)
		}
		c.oustSurplus(m)
	}
	c.anew = true
	return true
}

// oustSurplus tells those of a device's clients to leave that are more than it has slots.
func (c *Core) oustSurplus(d *device) {
	var stay []*client
	for _, x := range d.slots {
		if x != nil && !x.revoking {
			stay = append(stay, x)
		}
	}
	slices.SortFunc(stay, func(a, b *client) int { return cmp.Or(cmp.Compare(a.grantAt, b.grantAt), cmp.Compare(a.id, b.id)) })
	for _, x := range stay[min(len(stay), d.Slots):] {
		c.endGrow(x) // the Revoke is the answer
		c.revoke(victim{client: x, why: ForLimit})
	}
}

// refusesResize says why a device cannot have so many slots.
func (f *fleet) refusesResize(e Resize) error {
	switch d := f.device(e.Device); {
	case d == nil:
		return noSuchDevice(e.Device)
	case e.Slots < 1 || e.Slots > maxSlots:
		return fmt.Errorf("device %q: %d slots: give 1 to %d", d.Name, e.Slots, maxSlots)
	}
	return nil
}

// refusesSettings is what Refuses says of Configure and Limit.
func refusesSettings(e Event) error {
	switch e := e.(type) {
	case Configure:
		if e.Policy > Credit {
			return fmt.Errorf("there is no policy with %v", e.Policy)
		}
		if e.MaxIdle < 0 || e.SlotLimit < 0 {
			return errors.New("the idle time and the number of slots must not be negative")
		}
		return CheckQuantum(e.Quantum)
	case Limit:
		if e.Slots < 0 {
			return fmt.Errorf("user %q may have %d slots: give 0 for no limit, or more", e.User, e.Slots)
		}
	}
	return nil
}

// setLimits applies the configured limits to all known users.
func (b *books) setLimits() {
	for _, u := range b.users {
		u.limit = b.cfg.limitOf(u.name)
	}
}

// limitOf is how many slots a user's clients may have.
func (c Config) limitOf(user string) int {
	if limit, ok := c.SlotLimits[user]; ok {
		return limit
	}
	return c.SlotLimit
}

// withMoves fills in the defaults of what moves cost, if anything uses them.
func (c Config) withMoves() Config {
	if c.Migrate || c.Quantum > 0 {
		c.MoveBandwidth = orDefault(c.MoveBandwidth, DefaultMoveBandwidth)
		c.MoveCost = orDefault(c.MoveCost, DefaultMoveCost)
	}
	return c
}
