package node

import (
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/timeline"
)

// tracing is what the loop knows of a client for the sake of traced programs, its own
// or others.
type tracing struct {
	traced bool          // its own program is traced
	toldOn vgpu.DeviceID // 1 + the device that traced clients were told it is on; 0: none
}

// trace begins to tell a client which others have devices. A worker that replaces
// another asks again, and is told everything again.
func (d *daemon) trace(c *client) {
	if !c.traced {
		c.traced = true
		d.traced++
	}
	d.tellTraced() // brings toldOn up to date for all clients first
	for _, other := range d.clients {
		if other != c && other.toldOn != 0 {
			d.tellOf(c, other, other.toldOn-1, true)
		}
	}
}

// untrace tells traced clients that a client has gone.
func (d *daemon) untrace(c *client) {
	if c.traced {
		d.traced--
	}
	d.tellMove(c, vgpu.AnyDevice)
}

// tellTraced tells traced clients which others have got a device or left one.
func (d *daemon) tellTraced() {
	if d.traced == 0 {
		return
	}
	for _, c := range d.clients {
		d.tellMove(c, c.device)
	}
}

// tellMove tells traced clients where a client is now, if that has changed.
func (d *daemon) tellMove(c *client, device vgpu.DeviceID) {
	now := device + 1 // 0 for AnyDevice
	if now == c.toldOn {
		return
	}
	for _, other := range d.clients {
		if !other.traced || other == c {
			continue
		}
		if c.toldOn != 0 {
			d.tellOf(other, c, c.toldOn-1, false)
		}
		if now != 0 {
			d.tellOf(other, c, now-1, true)
		}
	}
	c.toldOn = now
}

// tellOf tells one client of another. It names only programs of the same user.
func (d *daemon) tellOf(to, of *client, device vgpu.DeviceID, on bool) {
	if to.worker == nil {
		return
	}
	m := control.Neighbour{Client: uint64(of.id), Device: int(device), On: on, At: timeline.Now()}
	if to.peer.user == of.peer.user {
		m.Who = of.program
	}
	to.worker.post(m)
}
