package node

import (
	"time"

	"muster/node/vgpu"
	"muster/wire/control"
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
	now := d.now()
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
			c.worker.post(control.Parked{Reason: d.whyParked(c)})
		}
	}
}

// whyParked says what a parked program waits for.
func (d *daemon) whyParked(c *client) string {
	if g := c.under.granted; g != nil && g.Limit == 0 {
		return "the job is suspended; the program waits until it goes on"
	}
	for _, v := range d.core.View().Devices {
		if c.under.granted == nil && v.State == vgpu.DeviceUp && v.Granted > 0 {
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
