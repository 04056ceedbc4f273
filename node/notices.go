package node

import (
	"time"

	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/timeline"
)

// A program that no device can take at present waits until one can. Its user is told, who
// might otherwise think that the program hangs.

// parkedTime is how long a program waits before its user is told, and how often the daemon
// looks while any is parked.
const parkedTime = time.Second

// nextParked is when the daemon next looks at parked clients, if there are any.
func (d *daemon) nextParked() (at time.Duration, any bool) {
	if d.core.Parked() == 0 {
		return 0, false
	}
	return d.parkedLook + parkedTime, true
}

// tellParked tells the users of programs that were parked at two looks in a row, once each
// time that they are parked.
func (d *daemon) tellParked() {
	now := d.loop.Now()
	if at, any := d.nextParked(); !any || now < at {
		return
	}
	d.parkedLook = now
	for _, c := range d.clients {
		v, _ := d.core.Client(c.id)
		switch {
		case !v.Parked:
			c.seenParked, c.toldParked = false, false
		case !c.seenParked:
			c.seenParked = true
		case !c.toldParked && c.worker != nil && !c.isAway() && !c.ending:
			c.toldParked = true
			c.worker.Post(control.Parked{Reason: d.whyParked(c)})
		}
	}
}

// whyParked says what a parked program waits for.
func (d *daemon) whyParked(c *client) string {
	if g := c.under.Granted; g != nil && g.Limit == 0 {
		return "the job is suspended; the program waits until it goes on"
	}
	for _, v := range d.core.View().Devices {
		if c.under.Granted == nil && v.State == vgpu.DeviceUp && v.Granted > 0 {
			return "every device of the node that could hold the program is granted to jobs, drained or lost; the program waits until one is free (muster grant list, muster device list)"
		}
	}
	for _, v := range d.core.View().Devices {
		if v.State != vgpu.DeviceDrained && v.State != vgpu.DeviceDraining && v.State != vgpu.DeviceRemoved {
			return "every device of the node that could hold the program is drained or lost; the program waits until one is back (muster device list shows them)"
		}
	}
	return "all devices of the node are drained; the program waits until one is resumed (muster device resume, by the administrator) or another is added"
}

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
	if to.peer.User == of.peer.User {
		m.Who = of.program
	}
	to.worker.Post(m)
}
