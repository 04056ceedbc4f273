package node

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"syscall"

	"muster/device"
	"muster/node/vgpu"
	"muster/wire/control"
)

// Contexts of NVIDIA's driver that are in one process share a set of addresses (device.Info.OneArena), and
// a client has its memory at the same addresses on every device. So the further devices of a client
// whose launches are mapped cannot all be in its worker: the node lends each of them to itself. The
// worker gets a connection to this daemon with the loan. It is a guest there, as another node's worker
// would be (device/remote), and the guest's worker has the context. The two workers share memory; the
// daemon sees no data.
//
// To the dispatcher the loan is a client of its own until the guest comes, and the guest from then on.
// The guest never leaves the device with its memory: when the dispatcher wants it to, the client that
// it works for gives the loan back, as it does with any, and the guest ends. So its memory needs no
// room in the swap area.

// wayTo is the worker's end of the connection by which it opens a device that it was just lent, if that
// device needs one.
func (d *daemon) wayTo(l *loan, first bool) ([]*os.File, error) {
	if !first || !d.stock.Load().entries[l.device].info.OneArena {
		return nil, nil
	}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("a connection to another worker: %w", err)
	}
	own, other := os.NewFile(uintptr(ends[0]), "loan"), os.NewFile(uintptr(ends[1]), "loan")
	defer own.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		other.Close()
		return nil, fmt.Errorf("a connection to another worker: %w", err)
	}
	l.way = conn.(*net.UnixConn)
	d.handlers.Go(func() { d.handleLoan(l.way, l) })
	return []*os.File{other}, nil
}

// handleLoan serves the connection by which a worker opens a device that it was lent. There is no limit
// of time: the worker opens it when the first kernel is to run there.
func (d *daemon) handleLoan(conn *net.UnixConn, l *loan) {
	defer conn.Close()
	who := l.client.peer
	who.loan = l
	in := bufio.NewReader(conn)
	c, err := d.setUp(conn, in, who, nil)
	if err != nil {
		d.log.Debug("a further device was not opened", "client", l.client.id, "device", int(l.device), "error", err)
		d.turnAway(conn, who, refuse(resultSystemNotReady, "%v", err))
		return
	}
	d.accompany(c, conn, in.Buffered() > 0)
}

// closeWays closes the connections by which a client's worker has not opened further devices yet.
func (c *client) closeWays() {
	for _, l := range c.loans {
		if l.way != nil && l.carrier == nil {
			_ = l.way.Close()
		}
	}
}

// offersLoan is what the worker that was lent a device is shown: that device.
func (d *daemon) offersLoan(l *loan) *offer {
	o, info := &offer{}, d.stock.Load().entries[l.device].info
	memory := info.Memory - info.ContextCost
	if g := l.client.under.granted; g != nil {
		memory = min(memory, shareOf(g.Devices[l.share], info))
	}
	o.numbers = []int{int(l.device)}
	o.add([]device.Info{info}, memory, lent(d.cfg.Name, info, int(l.device), memory))
	return o
}

// carry makes a client the one by which a loan is used.
func (c *client) carry(l *loan) {
	c.guest, c.carries = guestOf(int(l.device)), l
	c.program = printable(fmt.Sprintf("device %d for client %d: %s", l.device, l.client.id, l.client.program))
	c.weight, c.latency = l.client.weight, l.client.latency
	if c.under.granted != nil {
		c.under.share = l.share
	}
}

// carriesFor says whether a client is there for another one's loan.
func (c *client) carriesFor(other *client) bool { return c.carries != nil && c.carries.client == other }

// carried gives a loan's place with the dispatcher to the client that carries it, which is about to be
// attached.
func (d *daemon) carried(c *client) {
	if l := c.carries; l != nil {
		l.carrier = c
		d.step(c.since, vgpu.Detach{Client: l.id})
	}
}

// needs is how much memory a client needs at a time that asks for some. One that carries a loan gets all
// that was lent at once. When the device is wanted back, it cannot get more, and the client that it works
// for waits until the kernels there have ended, which may need it.
func (c *client) needs(memory uint64) uint64 {
	if c.carries == nil {
		return memory
	}
	return max(memory, c.carries.memory)
}

// carriesInVain ends a client that carries a loan and would have to wait for the device, which another
// one got meanwhile, or which is drained: the worker that opens the device would wait with it, and
// could not give the loan back.
func (d *daemon) carriesInVain(c *client) {
	if v, _ := d.core.Client(c.id); c.carries != nil && v.State != vgpu.Assigned {
		d.end(c, "the device is not free any more", false)
	}
}

// growsInVain tells a client that carries a loan, and may need more memory, that it gets none, because the
// device is wanted back. A Revoke would tell others that, but it goes to the client that it works for.
func (d *daemon) growsInVain(c *client) {
	if v, _ := d.core.Client(c.id); c.carries != nil && v.Revoking {
		c.worker.post(control.Deny{Lease: c.lease, Reason: string(vgpu.NoRoom)})
	}
}

// growLoan gives a client more memory of a device that it was lent, if there is some.
func (d *daemon) growLoan(l *loan, memory uint64) {
	if l.carrier == nil {
		d.step(d.now(), vgpu.Grow{Client: l.id, Need: memory})
		return
	}
	v, _ := d.core.Device(l.device)
	more := memory - min(memory, l.memory)
	room := more <= v.Free
	if g := l.client.under.granted; g != nil {
		room = d.core.GrowsInGrant(vgpu.GrantID(g.ID), l.share, more)
	}
	if room {
		d.step(d.now(), vgpu.Grow{Client: l.carrier.id, Need: memory})
		has, _ := d.core.Client(l.carrier.id)
		room = has.State == vgpu.Assigned && has.Memory >= memory // else it is to leave
	}
	if !room {
		l.client.worker.post(control.DenyFurther{Device: int(l.device)})
		return
	}
	l.memory = max(l.memory, memory)
	l.client.worker.post(control.GrantFurther{Device: int(l.device), Memory: l.memory, Loan: uint64(l.id)})
}

// recalls passes on what the dispatcher wants of the client that carries a loan, if that concerns the
// loan: it goes back as soon as another client needs its place.
func (d *daemon) recalls(l *loan, e vgpu.Effect) bool {
	w := l.client.worker
	known := w != nil && d.loans[l.id] == l
	switch e.Kind {
	case vgpu.Watch:
		if e.On && known {
			w.post(control.RevokeFurther{Device: int(l.device), Loan: uint64(l.id), Reason: "another client needs it"})
		}
		return true
	case vgpu.Revoke:
		d.growsInVain(l.carrier)
		if known {
			w.post(control.RevokeFurther{Device: int(l.device), Loan: uint64(l.id), Reason: string(e.Reason)})
		}
		return true
	case vgpu.Gone:
		if known {
			w.post(control.Lost{Device: int(l.device), Reason: "the device is lost"})
			d.dropLoan(l)
		}
	}
	return false
}
