package clientcore

import (
	"fmt"
	"slices"

	"muster/vmm"
)

// Reasons of revocations that matter to the core: for these the client leaves for good, and closes
// its context too. For any other reason the context stays open, for the next lease.
const (
	forMemory = "memory"         // another client needs the memory
	forMove   = "move"           // the next lease is for another device
	forDrain  = "drain"          // the device accepts no more clients
	forGrant  = "grant"          // the device, or the client's memory there, was granted to a job
	forRoom   = "quantum-memory" // the client's turn is over, and its context would be in the way
	forLimit  = "limit"          // the client's job is suspended, or may not use as many devices
)

// leavesForGood says whether a revocation for this reason closes the context.
func leavesForGood(reason string) bool {
	return reason == forMemory || reason == forRoom || reason == forMove || reason == forDrain || reason == forGrant || reason == forLimit
}

// AddDevice says that a device was added: the next number, or that of a lost one on which the
// client has nothing. The executor has opened it.
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

// gone notes that a device has no memory any more, so that no kernel relies on it. A Want that is
// not answered may have relied on it, and is sent again; a refusal that is on its way may answer
// the first one (Lease.Stale).
func (c *Core) gone(index int) {
	devices := slices.Clone(c.config.Devices)
	devices[index].Memory = 0
	c.know(devices)
	if c.Lease.Wanting && c.Head != nil {
		c.Lease.Wanting, c.Lease.Stale = false, true
	}
}

// know sets the devices.
func (c *Core) know(devices []Device) {
	c.config.Devices, c.puts = devices, len(devices) > 0
	for _, d := range devices {
		c.puts = c.puts && d.Puts
	}
	if c.space != nil {
		c.linkPeers()
	}
}

// linkPeers tells the directory which devices copy to each other without the host.
func (c *Core) linkPeers() {
	c.space.Direct(func(p vmm.Place) string {
		if p.Index() >= len(c.config.Devices) {
			return ""
		}
		return c.config.Devices[p.Index()].Peers
	})
}
