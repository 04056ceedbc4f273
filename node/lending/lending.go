// Package lending borrows virtual GPUs of other nodes for programs that wait, and lends this node's.
// node/offload decides when; here that is carried out: peers are asked, tickets become devices of the
// node and are given back, and lenders whose devices are used must show that they are alive. It knows
// nothing about programs, nor how a device is put to use: the node tells it how it is, and adds and
// removes the devices.
//
// A borrowed virtual GPU becomes a device of the node (device/remote), with as many slots as its ticket
// has. So the dispatcher places waiting programs there, a drain brings them home at a kernel boundary,
// and a lender that dies is a lost device. Workers connect to the lender themselves: the daemons never
// see programs' data.
package lending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"muster/device"
	"muster/node/inventory"
	"muster/node/offload"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/borrow"
	"muster/wire/control"
	"muster/wire/grant"
	"muster/wire/status"
)

// Loop runs functions one after the other. All of a Lending's state is the loop's.
type Loop interface {
	Do(f func()) bool // runs f later; false if the loop has ended
	Ask(f func()) bool
	Ended() <-chan struct{}
	Now() time.Duration
	Draining() bool // the node takes no programs any more
	Go(f func())    // in a goroutine for whose end the daemon waits
}

// Devices are the node's. Examine is called outside of the loop, the others by it.
type Devices interface {
	Examine(settings.Device) (device.Info, error)
	// Borrow makes a borrowed device the node's, and Remove takes it away when no client needs it any more,
	// or at once.
	Borrow(settings.Device, device.Info, offload.Ticket) (vgpu.DeviceID, error)
	Remove(id vgpu.DeviceID, force bool) error
	State(vgpu.DeviceID) vgpu.DeviceState
}

// Node is the node that borrows and lends. Only the loop calls these.
type Node interface {
	Look() Look
	// Loads is what others than a node's own programs do on the devices that are lent to it.
	Loads(node string, lent []int) []borrow.Load
}

// Look is how a node is: its own devices, how many clients wait, how many of these could use a borrowed
// device, how many clients use each device, and what devices clients would move to.
type Look struct {
	offload.Local
	Used  []offload.Clients // by the devices' numbers
	Gains []vgpu.Gain
}

// Options say how other nodes are reached.
type Options struct {
	Dial      func(ctx context.Context, address string) (net.Conn, error)
	Peers     <-chan []string // the gateways that the cluster's head names; nil if there is no head
	Authority string          // vouches for other nodes, in PEM form
	Revoked   string          // the file with the certificates that the authority has revoked
	Log       *slog.Logger
}

// Lending is what a node knows of others. A nil one neither borrows nor lends.
type Lending struct {
	name    string
	seed    uint64
	cfg     settings.Offload
	loop    Loop
	node    Node
	devices Devices
	opts    Options
	core    *offload.Core
	links   map[offload.PeerID]*peerLink
	names   map[offload.PeerID]string // as the peers call themselves
	held    map[offload.TicketID]*ticket
	said    map[offload.PeerID]Said // how busy the devices are that they lend
	local   offload.Local           // as look last told the core

	dirty   bool          // something may have changed since looked
	looked  time.Duration // when look last ran
	comers  int           // programs on a node without devices that wait to be shown one
	arrived chan struct{} // closed, and replaced, when a borrowed device comes
}

// ticket is one that the node holds.
type ticket struct {
	peer   offload.PeerID
	device vgpu.DeviceID // its number on this node; unopened until it was opened
	left   bool          // the core gave it up while it was still being opened
}

const unopened vgpu.DeviceID = -1

// lookEvery is the least time between two looks at the node.
const lookEvery = 20 * time.Millisecond

// Patience is how long a program on a node without devices waits for one to be borrowed.
const Patience = 8 * time.Second

// New makes what the node needs to borrow and lend; nil if it does neither.
func New(cfg *settings.Config, loop Loop, node Node, devices Devices, opts Options) (*Lending, error) {
	if !cfg.Offload.Borrows() && !cfg.Lends() {
		return nil, nil
	}
	core, err := offload.New(offload.Config{
		Borrow: cfg.Offload.Borrows(), Lend: cfg.Lends(), Above: cfg.Offload.Above, Keep: cfg.Offload.Keep, Seed: cfg.Seed(),
	})
	if err != nil {
		return nil, err
	}
	l := &Lending{
		name: cfg.Name, seed: cfg.Seed(), cfg: cfg.Offload, loop: loop, node: node, devices: devices, opts: opts, core: core,
		links: map[offload.PeerID]*peerLink{}, names: map[offload.PeerID]string{}, held: map[offload.TicketID]*ticket{}, said: map[offload.PeerID]Said{}, arrived: make(chan struct{}),
	}
	if !cfg.Offload.Borrows() {
		return l, nil
	}
	var ids []offload.PeerID
	for _, address := range cfg.Offload.Peers {
		id := offload.PeerID(address)
		ids = append(ids, id)
		l.links[id] = newPeerLink(id)
	}
	core.Peers(0, ids)
	return l, nil
}

// Configure changes the thresholds.
func (l *Lending) Configure(above, keep int) {
	if l != nil {
		l.cfg.Above, l.cfg.Keep = above, keep
		l.perform(l.core.Configure(l.loop.Now(), above, keep))
	}
}

// Touch notes that the node may have changed.
func (l *Lending) Touch() {
	if l != nil {
		l.dirty = true
	}
}

// Next is when Tend has something to do.
func (l *Lending) Next() (at time.Duration, ok bool) {
	if l == nil {
		return 0, false
	}
	at, ok = l.core.Next()
	if l.dirty && (!ok || l.looked+lookEvery < at) {
		at, ok = l.looked+lookEvery, true
	}
	return at, ok
}

// Tend tells the core how the node is if that may have changed, but at most once in lookEvery: the
// dispatcher takes thousands of events a second.
func (l *Lending) Tend() {
	if l == nil {
		return
	}
	if l.dirty && l.loop.Now() >= l.looked+lookEvery {
		l.look()
	}
	if at, ok := l.core.Next(); ok && l.loop.Now() >= at {
		l.perform(l.core.Tick(l.loop.Now()))
	}
}

// look tells the core how the node is.
func (l *Lending) look() {
	l.dirty, l.looked = false, l.loop.Now()
	l.tendTickets()
	is := l.node.Look()
	is.Waiting, is.Pending, is.Clients = is.Waiting+l.comers, is.Pending+l.comers, is.Clients+l.comers
	clients := map[offload.TicketID]offload.Clients{}
	for id, t := range l.held {
		if t.device != unopened {
			clients[id] = is.Used[t.device]
		}
	}
	for _, g := range is.Gains {
		there := g.Speed / inventory.Distance
		for there*inventory.Distance < g.Speed { // rounding must not make it a device that nobody moves to
			there = math.Nextafter(there, math.Inf(1))
		}
		is.Local.Gains = append(is.Local.Gains, offload.Gain{Speed: there, Stay: g.Stay})
	}
	l.local = is.Local
	l.perform(l.core.Local(l.loop.Now(), is.Local, clients))
	l.askKeenly()
}

// perform does what the core decided.
func (l *Lending) perform(effects []offload.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case offload.Ask:
			if link := l.links[e.Peer]; link != nil {
				select {
				case link.kick <- struct{}{}:
				default:
				}
			}
		case offload.Use:
			l.use(e)
		case offload.Leave:
			l.leave(e)
		}
	}
}

// use makes a ticket a device of the node. Opening the device takes a while, so a goroutine does it
// and tells the loop (opened).
func (l *Lending) use(e offload.Use) {
	l.held[e.Ticket.ID] = &ticket{peer: e.Peer, device: unopened}
	to := control.Lender{Address: string(e.Peer), Ticket: string(e.Ticket.ID), Authority: l.opts.Authority, Revoked: l.opts.Revoked}
	c := settings.Device{DeviceConfig: control.DeviceConfig{Kind: settings.KindRemote, Index: e.Ticket.Device, Lender: to}}
	l.opts.Log.Info("virtual GPUs are borrowed", "of", string(e.Peer), "device", e.Ticket.Device, "slots", e.Ticket.Slots)
	l.loop.Go(func() {
		info, err := l.devices.Examine(c)
		info.Speed = e.Ticket.Speed * inventory.Distance
		l.loop.Do(func() { l.opened(e.Ticket, c, info, err) })
	})
}

// opened makes a borrowed device the node's, or gives its ticket back if it cannot be used or is
// not needed any more.
func (l *Lending) opened(of offload.Ticket, c settings.Device, info device.Info, err error) {
	t := l.held[of.ID]
	var id vgpu.DeviceID
	if err == nil && (t.left || l.loop.Draining()) {
		err = errors.New("it is not needed any more")
	}
	if err == nil {
		id, err = l.devices.Borrow(c, info, of)
	}
	if err != nil {
		delete(l.held, of.ID)
		l.opts.Log.Warn("virtual GPUs that were borrowed cannot be used: they are given back", "of", string(t.peer), "error", err)
		l.perform(l.core.Failed(l.loop.Now(), of.ID))
		return
	}
	t.device = id
	close(l.arrived)
	l.arrived = make(chan struct{})
	l.look()
}

// leave drains a borrowed device, and has it removed when it is empty. If the device is still
// being opened, opened gives it back.
func (l *Lending) leave(e offload.Leave) {
	t := l.held[e.Ticket]
	if t == nil || t.device == unopened {
		if t != nil {
			t.left = true
		}
		return
	}
	l.opts.Log.Info("virtual GPUs that were borrowed are given back", "of", string(t.peer), "why", e.Why)
	if err := l.devices.Remove(t.device, false); err != nil {
		l.opts.Log.Error("a borrowed device cannot be removed", "device", int(t.device), "error", err)
	}
	l.dirty = true
}

// tendTickets tells the core of borrowed devices that are gone: empty and removed, or lost.
func (l *Lending) tendTickets() {
	for id, t := range l.held {
		if t.device == unopened {
			continue
		}
		switch l.devices.State(t.device) {
		case vgpu.DeviceRemoved:
			delete(l.held, id)
			l.perform(l.core.Left(l.loop.Now(), id))
		case vgpu.DeviceLost:
			delete(l.held, id)
			l.opts.Log.Warn("a lender is lost: its programs go on elsewhere", "lender", string(t.peer))
			l.perform(l.core.Failed(l.loop.Now(), id))
			_ = l.devices.Remove(t.device, false) // takes effect when no client waits for it
		}
	}
}

// --- what is lent ----------------------------------------------------------------

// Lend answers a borrower.
func (l *Lending) Lend(q borrow.Question) borrow.Answer {
	say := offload.Question{Slots: q.Slots, Apart: q.Apart, Speed: q.Speed}
	for _, id := range q.Holds {
		say.Holds = append(say.Holds, offload.TicketID(id))
	}
	l.look() // the core must know what is free at this moment, or it might lend a slot that was just taken
	answer, effects := l.core.Asked(l.loop.Now(), offload.NodeID(q.Node), say, offload.TicketID(grant.NewCredential()))
	l.perform(effects)
	reply := borrow.Answer{Version: borrow.Version, Node: l.name, Slots: answer.Load.Slots, Free: answer.Load.Free, Waiting: answer.Load.Waiting, Idle: answer.Load.Idle, Fastest: answer.Load.Fastest, Unused: answer.Load.Unused}
	if t := answer.Ticket; t.ID != "" {
		reply.Ticket = &borrow.Ticket{ID: string(t.ID), Device: t.Device, Slots: t.Slots, Speed: t.Speed}
		l.opts.Log.Info("virtual GPUs are lent", "to", q.Node, "device", t.Device, "slots", t.Slots)
	}
	var lent []int
	for _, t := range l.Lent() {
		if string(t.To) == q.Node {
			lent = append(lent, t.Device)
		}
	}
	reply.Loads = l.node.Loads(q.Node, lent)
	for _, id := range answer.Recalls {
		reply.Recalls = append(reply.Recalls, string(id))
	}
	return reply
}

// Lent are the tickets that other nodes have.
func (l *Lending) Lent() []offload.LentView {
	if l == nil {
		return nil
	}
	return l.core.View(l.loop.Now()).Lent
}

// Withdraw ends the tickets that a node has of devices, by the numbers that tickets have.
func (l *Lending) Withdraw(node string, of func(device int) bool) {
	for _, t := range l.Lent() {
		if string(t.To) == node && of(t.Device) {
			l.core.Withdraw(t.To, t.ID)
		}
	}
}

// Borrower is the node that holds a ticket with this credential; "" if there is none.
func (l *Lending) Borrower(hash grant.Hash) string {
	for _, t := range l.Lent() {
		if grant.Credential(t.ID).Hash() == hash {
			return string(t.To)
		}
	}
	return ""
}

// --- how it is -----------------------------------------------------------------

// Lender names the node at an address that lends a device; "" for this node's own devices, which have none.
func (l *Lending) Lender(address string) string {
	if l != nil && address != "" {
		if name := l.names[offload.PeerID(address)]; name != "" {
			return name
		}
	}
	return address
}

// Said is what the lender at an address has said with its last answer.
func (l *Lending) Said(address string) (said Said, ok bool) {
	if l != nil {
		said, ok = l.said[offload.PeerID(address)]
	}
	return said, ok
}

// Status adds to a status from which nodes this one borrows.
func (l *Lending) Status(s *status.Node) {
	if l == nil {
		return
	}
	view := l.core.View(l.loop.Now())
	at := map[offload.PeerID]int{}
	for i, p := range view.Peers {
		at[p.ID] = i
		is := status.Peer{Address: string(p.ID), Node: l.names[p.ID], Self: p.Self, Heard: -1, Slots: p.Load.Slots, Free: p.Load.Free, Waiting: p.Load.Waiting, Unused: p.Load.Unused, Borrowed: p.Holds}
		if p.Heard {
			is.Heard = p.Age.Seconds()
		}
		s.Peers = append(s.Peers, is)
	}
	for _, t := range view.Borrowed {
		s.Peers[at[t.Peer]].Clients += t.Clients
	}
}

// --- programs on a node without devices ------------------------------------------

// Why a program waits no longer for a device that is borrowed.
var (
	ErrTooLong = errors.New("nothing was borrowed in time")
	ErrGone    = errors.New("the program has gone")
	ErrEnded   = errors.New("the node has ended")
)

// Await waits until has says that the node has a device. Meanwhile the caller counts as a waiting client,
// which makes the core borrow. It gives up when late fires or gone is closed. The loop must not call it.
func (l *Lending) Await(has func() bool, late <-chan time.Time, gone <-chan struct{}) error {
	var arrived chan struct{}
	come := func(n int) bool {
		return l.loop.Ask(func() {
			l.comers += n
			arrived = l.arrived
			l.look()
		})
	}
	if !come(1) {
		return ErrEnded
	}
	defer come(-1)
	for !has() {
		select {
		case <-arrived:
			l.loop.Ask(func() { arrived = l.arrived })
		case <-late:
			return ErrTooLong
		case <-gone:
			return ErrGone
		case <-l.loop.Ended():
			return ErrEnded
		}
	}
	return nil
}

// WhyNone says why nothing was borrowed. The loop must not call it.
func (l *Lending) WhyNone() string {
	why := "no answer of them has come yet"
	l.loop.Ask(func() {
		for _, p := range l.core.View(l.loop.Now()).Peers {
			if p.Heard && !p.Self {
				why = fmt.Sprintf("%s has %d of %d virtual GPUs to lend, and %d programs wait there", p.ID, p.Load.Free, p.Load.Slots, p.Load.Waiting)
			}
		}
	})
	return why
}
