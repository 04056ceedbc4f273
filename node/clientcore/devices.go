package clientcore

import (
	"fmt"
	"slices"

	"muster/vmm"
)

// Reasons of revocations that concern the core: who is to leave for good closes the
// context too. For any other reason the context stays open, for the next lease.
const (
	forMemory = "memory"         // another client needs the memory
	forMove   = "move"           // the next lease is for another device
	forDrain  = "drain"          // the device takes nobody any more
	forGrant  = "grant"          // the device, or the client's memory there, was granted to others
	forRoom   = "quantum-memory" // its turn is over, and the context would be in the way
	forLimit  = "limit"          // the client's job is suspended, or may not use so many devices
)

// leavesForGood says whether a revocation ends the context.
func leavesForGood(reason string) bool {
	return reason == forMemory || reason == forRoom || reason == forMove || reason == forDrain || reason == forGrant || reason == forLimit
}

// AddDevice says that a device came: the next one, or one in the place of another
// that is gone and on which the client has nothing. The executor has opened it.
func (c *Core) AddDevice(now Time, index int, d Device) ([]Op, error) {
	c.start(now)
	d.Place = vmm.Device(index)
	switch n := len(c.config.Devices); {
	case index < 0 || index > n:
		return nil, fmt.Errorf("the daemon adds device %d to %d", index, n)
	case index < n && (c.context(d.Place) != nil || c.Lease.Held && c.Lease.Device == index):
		return nil, fmt.Errorf("the daemon adds device %d, which the client uses", index)
	}
	devices := slices.Clone(c.config.Devices)
	if index == len(devices) {
		if err := c.space.AddDevice(d.Place); err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	devices[index] = d
	c.know(devices)
	return c.advance()
}

// gone notes that a device holds nothing any more, so that no kernel counts on its
// memory. What was asked of the daemon may have counted on it, and is asked for anew.
// A refusal that is on its way may be of the first question.
func (c *Core) gone(index int) {
	devices := slices.Clone(c.config.Devices)
	devices[index].Memory = 0
	c.know(devices)
	if c.Lease.Wanting && c.Head != nil {
		c.Lease.Wanting, c.Lease.Stale = false, true
	}
}

// know notes which devices there are.
func (c *Core) know(devices []Device) {
	c.config.Devices, c.puts = devices, len(devices) > 0
	for _, d := range devices {
		c.puts = c.puts && d.Puts
	}
}
