package node

import (
	"errors"
	"fmt"
	"time"

	"muster/device"
	"muster/node/offload"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/grant"
	"muster/wire/status"
)

// A node borrows virtual GPUs of others for programs that wait, and lends its own. node/offload
// decides when; here that is carried out. A borrowed virtual GPU becomes a device of the node
// (device/remote), with as many slots as its ticket has. So the dispatcher places waiting programs
// there, a drain brings them home at a kernel boundary, and a lender that dies is a lost device.
// Workers connect to the lender themselves: the daemons never see programs' data.

// borrowing is what the loop knows of other nodes; nil if the node neither borrows nor lends.
type borrowing struct {
	core  *offload.Core
	links map[offload.PeerID]*peerLink
	names map[offload.PeerID]string // as the peers call themselves
	loans map[offload.TicketID]*ticketed
	said  map[offload.PeerID]lenderLoad // how busy the devices are that they lend
	local offload.Local                 // as lookAround last told the core

	dirty   bool          // something may have changed since looked
	looked  time.Duration // when lookAround last ran
	comers  int           // programs on a node without devices that wait to be shown one
	arrived chan struct{} // closed, and replaced, when a borrowed device comes
}

// ticketed is a ticket that the node holds.
type ticketed struct {
	peer   offload.PeerID
	device vgpu.DeviceID // its number on this node; anyNumber until it was opened
	left   bool          // the core gave it up while it was still being opened
}

// distance scales the speed of another node's device. It is small enough for a program there to
// come home when a device here is idle (vgpu: the gain must be 1.2), and large enough that an idle
// device elsewhere still counts for more than one here that two programs share.
const distance = 0.8

// newBorrowing makes what the node needs to borrow and lend; nil if it does neither.
func newBorrowing(cfg *Config) (*borrowing, error) {
	if !cfg.Offload.borrows() && !cfg.lends() {
		return nil, nil
	}
	core, err := offload.New(offload.Config{
		Borrow: cfg.Offload.borrows(), Lend: cfg.lends(), Above: cfg.Offload.Above, Keep: cfg.Offload.Keep, Seed: cfg.seed(),
	})
	if err != nil {
		return nil, err
	}
	b := &borrowing{core: core, links: map[offload.PeerID]*peerLink{}, names: map[offload.PeerID]string{}, loans: map[offload.TicketID]*ticketed{}, said: map[offload.PeerID]lenderLoad{}, arrived: make(chan struct{})}
	if !cfg.Offload.borrows() {
		return b, nil
	}
	var ids []offload.PeerID
	for _, address := range cfg.Offload.Peers {
		id := offload.PeerID(address)
		ids = append(ids, id)
		b.links[id] = newPeerLink(id)
	}
	core.Peers(0, ids)
	return b, nil
}

// nextBorrowing is when the loop must look at borrowing and lending next.
func (d *daemon) nextBorrowing() (at time.Duration, ok bool) {
	b := d.borrowing
	if b == nil {
		return 0, false
	}
	at, ok = b.core.Next()
	if b.dirty && (!ok || b.looked+lookBorrow < at) {
		at, ok = b.looked+lookBorrow, true
	}
	return at, ok
}

// tendBorrowing tells the core how the node is if that may have changed, but at most once in
// lookBorrow: the dispatcher takes thousands of events a second.
func (d *daemon) tendBorrowing() {
	b := d.borrowing
	if b == nil {
		return
	}
	if b.dirty && d.now() >= b.looked+lookBorrow {
		d.lookAround()
	}
	if at, ok := b.core.Next(); ok && d.now() >= at {
		d.offloads(b.core.Tick(d.now()))
	}
}

// lookAround tells the core how the node is: its own devices, how many clients wait, and how many
// of these could use a borrowed device. Clients under a grant or pinned to a device of the node's
// own count as waiting, but not as pending.
func (d *daemon) lookAround() {
	b := d.borrowing
	b.dirty, b.looked = false, d.now()
	d.tendLoans()
	view := d.core.View()
	is := offload.Local{Closed: d.draining, Waiting: b.comers, Pending: b.comers, Clients: b.comers}
	is.Devices = d.ownDevices(&view)
	for i := range view.Clients {
		v := &view.Clients[i]
		c := d.clients[v.ID]
		if c == nil || c.ending || c.isGuest() {
			continue
		}
		waits := v.State == vgpu.Ready
		if waits {
			is.Waiting++
		}
		if c.under.granted != nil || c.pinned != vgpu.AnyDevice && !d.isBorrowed(c.pinned) {
			continue
		}
		if is.Clients++; waits {
			is.Pending++
		}
	}
	is.Wishes = d.wishes(&view)
	clients := map[offload.TicketID]int{}
	for id, l := range b.loans {
		if l.device != anyNumber {
			clients[id] = view.Devices[l.device].Used + view.Devices[l.device].Promised
		}
	}
	b.local = is
	d.offloads(b.core.Local(d.now(), is, clients))
}

// together is one program on one device.
type together struct {
	pid    int32
	device vgpu.DeviceID
}

// wishes is how many more devices programs would use if they could have them to themselves. A
// program that was shown several devices, two of which are the same one now, would use another. A
// program whose launches are mapped would use one more while it launches kernels and has sent some
// to each device that it was lent: so it gets them one after the other, and no more than it makes
// use of.
func (d *daemon) wishes(view *vgpu.View) (wishes int) {
	met := map[together]bool{}
	for i := range view.Clients {
		v := &view.Clients[i]
		c := d.clients[v.ID]
		if c == nil || c.ending || c.isGuest() || c.under.granted != nil || v.State != vgpu.Assigned {
			continue
		}
		if at := (together{c.peer.pid, v.Device}); c.shownMany && c.pinned == vgpu.AnyDevice {
			if met[at] {
				wishes++
			}
			met[at] = true
		}
		if kernels := v.Kernels + c.further().Kernels; kernels != c.kernels {
			c.kernels, c.launched = kernels, d.now()
		}
		if c.wishesFurther(d.now()) {
			wishes++
		}
	}
	return wishes
}

// stillLaunches is how long after its last observed launch a client still counts as launching.
const stillLaunches = 2 * time.Second

// maxFurther is how many devices a mapped client may have beside its own before the node borrows no
// more for it.
const maxFurther = 15

// wishesFurther says whether a mapped client would use another device.
func (c *client) wishesFurther(now time.Duration) bool {
	if c.mapping == "" || c.mapping == "st" || c.kernels == 0 || now-c.launched > stillLaunches || len(c.loans) >= maxFurther {
		return false
	}
	for _, l := range c.loans {
		if !l.ran {
			return false
		}
	}
	return true
}

// ownDevices lists the node's own devices that take programs.
func (d *daemon) ownDevices(view *vgpu.View) []offload.Device {
	var list []offload.Device
	at := map[vgpu.DeviceID]int{}
	shown := 0 // guests number devices by their place among those that they are shown
	for i, v := range view.Devices {
		e := &d.stock.Load().entries[i]
		if !e.here || e.Kind == KindRemote {
			continue
		}
		if shown++; v.State == vgpu.DeviceUp {
			at[v.ID] = len(list)
			list = append(list, offload.Device{Number: shown - 1, Slots: v.Slots, Used: v.Used + v.Promised, Speed: e.info.Speed})
		}
	}
	for _, v := range view.Clients {
		c := d.clients[v.ID]
		if i, own := at[v.Device]; own && v.State == vgpu.Assigned && c != nil && c.isGuest() {
			list[i].Used--
			list[i].Guests++
		}
	}
	return list
}

// isBorrowed says whether a device is one that the node has a ticket for.
func (d *daemon) isBorrowed(id vgpu.DeviceID) bool {
	entries := d.stock.Load().entries
	return id >= 0 && int(id) < len(entries) && entries[id].ticket != ""
}

// offloads does what the core decided.
func (d *daemon) offloads(effects []offload.Effect) {
	b := d.borrowing
	for _, e := range effects {
		switch e := e.(type) {
		case offload.Ask:
			if l := b.links[e.Peer]; l != nil {
				select {
				case l.kick <- struct{}{}:
				default:
				}
			}
		case offload.Use:
			d.use(e)
		case offload.Leave:
			d.leaveLoan(e)
		}
	}
}

// use makes a ticket a device of the node. Opening the device takes a while, so a goroutine does it
// and tells the loop (opened).
func (d *daemon) use(e offload.Use) {
	b := d.borrowing
	b.loans[e.Ticket.ID] = &ticketed{peer: e.Peer, device: anyNumber}
	c := Device{DeviceConfig: d.lentDevice(e)}
	d.log.Info("virtual GPUs are borrowed", "of", string(e.Peer), "device", e.Ticket.Device, "slots", e.Ticket.Slots)
	d.handlers.Go(func() {
		info, err := d.examine(c)
		info.Speed = e.Ticket.Speed * distance
		d.do(func() { d.opened(e.Ticket, c, info, err) })
	})
}

// lentDevice describes a borrowed device to the processes that open it: this daemon and its
// workers.
func (d *daemon) lentDevice(e offload.Use) control.DeviceConfig {
	to := control.Lender{Address: string(e.Peer), Ticket: string(e.Ticket.ID), Authority: d.opts.Authority, Revoked: d.opts.Revoked}
	return control.DeviceConfig{Kind: KindRemote, Index: e.Ticket.Device, Lender: to}
}

// opened makes a borrowed device the node's, or gives its ticket back if it cannot be used or is
// not needed any more.
func (d *daemon) opened(t offload.Ticket, c Device, info device.Info, err error) {
	b := d.borrowing
	l := b.loans[t.ID]
	var id vgpu.DeviceID
	if err == nil && (l.left || d.draining) {
		err = errors.New("it is not needed any more")
	}
	if err == nil {
		id, err = d.addBorrowed(c, info, t)
	}
	if err != nil {
		delete(b.loans, t.ID)
		d.log.Warn("virtual GPUs that were borrowed cannot be used: they are given back", "of", string(l.peer), "error", err)
		d.offloads(b.core.Failed(d.now(), t.ID))
		return
	}
	l.device = id
	close(b.arrived)
	b.arrived = make(chan struct{})
	d.lookAround()
}

// leaveLoan drains a borrowed device, and has it removed when it is empty. If the device is still
// being opened, opened gives it back.
func (d *daemon) leaveLoan(e offload.Leave) {
	l := d.borrowing.loans[e.Ticket]
	if l == nil || l.device == anyNumber {
		if l != nil {
			l.left = true
		}
		return
	}
	d.log.Info("virtual GPUs that were borrowed are given back", "of", string(l.peer), "why", e.Why)
	if err := d.removeDevice(l.device, false); err != nil {
		d.log.Error("a borrowed device cannot be removed", "device", int(l.device), "error", err)
	}
	d.borrowing.dirty = true
}

// tendLoans tells the core of borrowed devices that are gone: empty and removed, or lost.
func (d *daemon) tendLoans() {
	b := d.borrowing
	for id, l := range b.loans {
		if l.device == anyNumber {
			continue
		}
		switch d.deviceState(l.device) {
		case vgpu.DeviceRemoved:
			delete(b.loans, id)
			d.offloads(b.core.Left(d.now(), id))
		case vgpu.DeviceLost:
			delete(b.loans, id)
			d.log.Warn("a lender is lost: its programs go on elsewhere", "lender", string(l.peer))
			d.offloads(b.core.Failed(d.now(), id))
			_ = d.removeDevice(l.device, false) // takes effect when no client waits for it
		}
	}
}

// borrowerWith is the node that holds a ticket with this credential; "" if there is none. Only the
// loop calls it.
func (d *daemon) borrowerWith(hash grant.Hash) string {
	if d.borrowing == nil {
		return ""
	}
	for _, l := range d.borrowing.core.View(d.now()).Lent {
		if grant.Credential(l.ID).Hash() == hash {
			return string(l.To)
		}
	}
	return ""
}

// --- how it is -----------------------------------------------------------------

// lenderOf names the node that lends a device; "" if it is the node's own.
func (d *daemon) lenderOf(e *stocked) string {
	if e.Lender.Address == "" {
		return ""
	}
	if d.borrowing != nil {
		if name := d.borrowing.names[offload.PeerID(e.Lender.Address)]; name != "" {
			return name
		}
	}
	return e.Lender.Address
}

// picturePeers adds to a status from which nodes this one borrows and to which it lends.
func (d *daemon) picturePeers(s *status.Node) {
	d.pictureLent(s)
	if d.borrowing == nil {
		return
	}
	view := d.borrowing.core.View(d.now())
	at := map[offload.PeerID]int{}
	for i, p := range view.Peers {
		at[p.ID] = i
		is := status.Peer{Address: string(p.ID), Node: d.borrowing.names[p.ID], Self: p.Self, Heard: -1, Slots: p.Load.Slots, Free: p.Load.Free, Waiting: p.Load.Waiting, Borrowed: p.Holds}
		if p.Heard {
			is.Heard = p.Age.Seconds()
		}
		s.Peers = append(s.Peers, is)
	}
	for _, l := range view.Borrowed {
		s.Peers[at[l.Peer]].Clients += l.Clients
	}
}

// --- programs on a node without devices ------------------------------------------

// awaitDevice waits until a device has been borrowed for a program on a node that has none of its
// own, or says why there is none.
func (d *daemon) awaitDevice() error {
	deadline := time.NewTimer(awaitBorrow)
	defer deadline.Stop()
	err := d.awaitBorrowed(deadline.C, nil)
	if errors.Is(err, errTooLong) {
		return d.nobodyLends()
	}
	return err
}

// awaitAnother waits for a device for a client whose borrowed device is lost, on a node that has no
// other: without any device a worker cannot find out what the program's modules hold.
func (d *daemon) awaitAnother(c *client) {
	_ = d.awaitBorrowed(nil, c.gone)
}

// errTooLong says that nothing was borrowed in time.
var errTooLong = errors.New("nothing was borrowed in time")

// awaitBorrowed waits until the node has a device, own or borrowed. Meanwhile the caller counts as
// a waiting client (comers), which makes the core borrow. It gives up when late fires or gone is
// closed.
func (d *daemon) awaitBorrowed(late <-chan time.Time, gone <-chan struct{}) error {
	if len(d.stock.Load().infos()) > 0 {
		return nil
	}
	if !d.cfg.Offload.borrows() {
		return errNoDevices
	}
	var arrived chan struct{}
	come := func(n int) bool {
		return d.ask(func() {
			b := d.borrowing
			b.comers += n
			arrived = b.arrived
			d.lookAround()
		})
	}
	if !come(1) {
		return d.notNow()
	}
	defer come(-1)
	for len(d.stock.Load().infos()) == 0 {
		select {
		case <-arrived:
			d.ask(func() { arrived = d.borrowing.arrived })
		case <-late:
			return errTooLong
		case <-gone:
			return errNoDevices
		case <-d.ended:
			return d.notNow()
		}
	}
	return nil
}

// nobodyLends says why a program on a node without devices gets none.
func (d *daemon) nobodyLends() error {
	why := "no answer of them has come yet"
	d.ask(func() {
		for _, p := range d.borrowing.core.View(d.now()).Peers {
			if p.Heard && !p.Self {
				why = fmt.Sprintf("%s has %d of %d virtual GPUs to lend, and %d programs wait there", p.ID, p.Load.Free, p.Load.Slots, p.Load.Waiting)
			}
		}
	})
	return refuse(resultNoDevice, "this node has no devices of its own, and its peers lent it none within %v (%s): try again later, or name more peers (peers: in its configuration)", awaitBorrow, why)
}

// isGuest says whether a client is another node's. Guests do not count as reasons to borrow: work
// is never passed on twice.
func (c *client) isGuest() bool { return c.guest.is }
