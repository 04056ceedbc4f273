package node

import (
	"time"

	"muster/node/lending"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/timeline"
)

// A program that no device can take at present waits until one can. Its user is told, who
// might otherwise think that the program hangs. A guest by ticket does not wait: its own node can take it
// elsewhere, but only when the kernels have ended that it has begun here.

// parking tells users of programs that wait so, and has guests go.
type parking struct {
	common
	look  time.Duration                   // when tell last looked
	asked map[vgpu.ClientID]time.Duration // guests that their own nodes are to take away, and until when

	lending *lending.Lending
	end     func(c *client, reason string, kill bool)
}

// parkedTime is how long a program waits before its user is told, and how often the daemon
// looks while any is parked.
const parkedTime = time.Second

// guestTime is how long a guest's own node has to take it away.
const guestTime = 5 * time.Second

// next is when the daemon next looks at parked clients and at guests that are to go, if there are any.
func (p *parking) next() (at time.Duration, any bool) {
	if p.dispatcher.Parked() == 0 && len(p.asked) == 0 {
		return 0, false
	}
	return p.look + parkedTime, true
}

// takenAway says whether a guest by ticket that has to leave its device, and would be put on it no more, is
// left there for its own node to take it away: with its lease it can end its last kernels. The lender's next
// answer asks for the ticket (offload).
func (p *parking) takenAway(c *client, e vgpu.Effect) bool {
	if !c.hasTicket() || c.device == vgpu.AnyDevice {
		return false
	}
	v, _ := p.dispatcher.Device(e.Device)
	if e.Reason != vgpu.ForDrain && (e.Reason != vgpu.ForGrant || v.Granted < v.Memory) {
		return false
	}
	p.asked[c.id] = p.loop.Now() + guestTime
	return true
}

// endGuest ends a guest that is not taken away, with its ticket. To its own node that is the loss of the device,
// after which the program is rebuilt elsewhere.
func (p *parking) endGuest(c *client) {
	p.lending.Withdraw(c.lentTo().node, func(device int) bool { return p.stock.Load().ShownAs(device) == c.guest.number })
	p.log.Warn("a guest has lost its device, which is granted to a job or drained: its own node goes on with the program elsewhere", "client", c.id, "of", c.lentTo().node)
	p.end(c, "", true)
}

// tell tells the users of programs that were parked at two looks in a row, once each
// time that they are parked.
func (p *parking) tell() {
	now := p.loop.Now()
	if at, any := p.next(); !any || now < at {
		return
	}
	p.look = now
	for id, by := range p.asked {
		c := p.clients[id]
		if v, _ := p.dispatcher.Client(id); c != nil && v.Revoking && now < by {
			continue
		} else if c != nil && v.Revoking {
			p.endGuest(c)
		}
		delete(p.asked, id)
	}
	for _, c := range p.clients {
		v, _ := p.dispatcher.Client(c.id)
		switch {
		case !v.Parked:
			c.seenParked, c.toldParked = false, false
		case !c.seenParked:
			c.seenParked = true
		case c.hasTicket():
			p.endGuest(c)
		case !c.toldParked && c.worker != nil && !c.isAway() && !c.ending:
			c.toldParked = true
			c.worker.Post(control.Parked{Reason: p.why(c)})
		}
	}
}

// why says what a parked program waits for.
func (p *parking) why(c *client) string {
	if g := c.under.Granted; g != nil && g.Limit == 0 {
		return "the job is suspended; the program waits until it goes on"
	}
	for _, v := range p.dispatcher.View().Devices {
		if c.under.Granted == nil && v.State == vgpu.DeviceUp && v.Granted > 0 {
			return "every device of the node that could hold the program is granted to jobs, drained or lost; the program waits until one is free (muster grant list, muster device list)"
		}
	}
	for _, v := range p.dispatcher.View().Devices {
		if v.State != vgpu.DeviceDrained && v.State != vgpu.DeviceDraining && v.State != vgpu.DeviceRemoved {
			return "every device of the node that could hold the program is drained or lost; the program waits until one is back (muster device list shows them)"
		}
	}
	return "all devices of the node are drained; the program waits until one is resumed (muster device resume, by the administrator) or another is added"
}

// traces tells traced programs which others have devices.
type traces struct {
	common
	traced int // clients whose programs are traced
}

// news are what a client was told, or others of it.
type news struct {
	seenParked bool          // it was parked when the daemon last looked
	toldParked bool          // its user knows
	traced     bool          // its own program is traced
	toldOn     vgpu.DeviceID // 1 + the device that traced clients were told it is on; 0: none
}

// trace begins to tell a client which others have devices. A worker that replaces
// another asks again, and is told everything again.
func (t *traces) trace(c *client) {
	if !c.traced {
		c.traced = true
		t.traced++
	}
	t.tell() // brings toldOn up to date for all clients first
	for _, other := range t.clients {
		if other != c && other.toldOn != 0 {
			t.tellOf(c, other, other.toldOn-1, true)
		}
	}
}

// untrace tells traced clients that a client has gone.
func (t *traces) untrace(c *client) {
	if c.traced {
		t.traced--
	}
	t.tellMove(c, vgpu.AnyDevice)
}

// tell tells traced clients which others have got a device or left one.
func (t *traces) tell() {
	if t.traced == 0 {
		return
	}
	for _, c := range t.clients {
		t.tellMove(c, c.device)
	}
}

// tellMove tells traced clients where a client is now, if that has changed.
func (t *traces) tellMove(c *client, device vgpu.DeviceID) {
	now := device + 1 // 0 for AnyDevice
	if now == c.toldOn {
		return
	}
	for _, other := range t.clients {
		if !other.traced || other == c {
			continue
		}
		if c.toldOn != 0 {
			t.tellOf(other, c, c.toldOn-1, false)
		}
		if now != 0 {
			t.tellOf(other, c, now-1, true)
		}
	}
	c.toldOn = now
}

// tellOf tells one client of another. It names only programs of the same user.
func (t *traces) tellOf(to, of *client, device vgpu.DeviceID, on bool) {
	if to.worker == nil {
		return
	}
	m := control.Neighbour{Client: uint64(of.id), Device: int(device), On: on, At: timeline.Now()}
	if to.peer.User == of.peer.User {
		m.Who = of.program
	}
	to.worker.Post(m)
}
