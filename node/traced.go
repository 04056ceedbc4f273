package node

import (
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/timeline"
)

// tracing is what the loop knows of a client for the sake of programs that are traced,
// its own or another.
type tracing struct {
	traced bool          // its own is
	toldOn vgpu.DeviceID // 1 + where those were told that it runs; 0: nowhere
}

// trace begins to tell a client which others have devices. The worker that follows one
// which has died asks again, and knows nothing.
func (d *daemon) trace(c *client) {
	if !c.traced {
		c.traced = true
		d.traced++
	}
	d.tellTraced() // so that what is told below is what all know
	for _, other := range d.clients {
		if other != c && other.toldOn != 0 {
			d.tellOf(c, other, other.toldOn-1, true)
		}
	}
}

// untrace tells those that are traced that a client has gone.
func (d *daemon) untrace(c *client) {
	if c.traced {
		d.traced--
	}
	d.tellMove(c, vgpu.AnyDevice)
}

// tellTraced tells clients that are traced which others have got a device or left one.
func (d *daemon) tellTraced() {
	if d.traced == 0 {
		return
	}
	for _, c := range d.clients {
		d.tellMove(c, c.device)
	}
}

// tellMove tells those that are traced where a client is now, if they do not know.
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

// tellOf tells one client of another. Only programs of the same user have names.
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
