package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/model"
	"muster/node/lending"
	"muster/node/offload"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/borrow"
)

// How the node borrows devices and lends its own: what node/lending needs of it, and what it makes of
// that.

// borrowing is the node as lending sees it, and what programs get of that.
type borrowing struct {
	common
	rights  requests.Rights
	lending *lending.Lending
	lenders *lending.Lenders
	loads   *loads
	notNow  func() *wire.Refused
}

// mayLeaveNode says whether a client may be put on devices of other nodes.
func (c *client) mayLeaveNode() bool { return c.under.Reach() == model.ReachCluster }

// Look says how the node is. Clients that a grant keeps here, or that are pinned to a device of the node's
// own, count as waiting, but not as pending.
func (b *borrowing) Look() lending.Look {
	view := b.dispatcher.View()
	is := lending.Look{Local: offload.Local{Closed: b.loop.Draining(), Devices: b.ownDevices(&view)}}
	for i := range view.Clients {
		v := &view.Clients[i]
		c := b.clients[v.ID]
		if c == nil || c.ending || c.isGuest() {
			continue
		}
		waits := v.State == vgpu.Ready
		if waits {
			is.Waiting++
		}
		if !c.mayLeaveNode() || c.pinned != vgpu.AnyDevice && !b.stock.Load().IsBorrowed(c.pinned) {
			continue
		}
		if is.Clients++; waits {
			is.Pending++
		}
	}
	is.Wishes, is.Gains = b.wishes(&view), b.dispatcher.Gains(b.mayGain)
	for _, v := range view.Devices {
		is.Used = append(is.Used, offload.Clients{There: v.Used + v.Promised})
	}
	for i := range view.Clients {
		if v := &view.Clients[i]; v.Target != vgpu.AnyDevice && (v.State == vgpu.Ready || v.State == vgpu.Assigned && v.Device != v.Target) {
			is.Used[v.Target].Coming++
		}
	}
	return is
}

// atWork is which part of the last second a client must have had kernels on its device to be worth a
// faster one.
const atWork = 0.1

// mayGain says whether a client may move to another node to run faster, and has kernels that would.
func (b *borrowing) mayGain(id vgpu.ClientID) bool {
	c := b.clients[id]
	return c != nil && !c.ending && !c.isGuest() && c.mayLeaveNode() && c.uses[c.home].Faded(b.loop.Now()).Busy >= atWork
}

// Loads is what others than a node's own programs do on the devices that are lent to it.
func (b *borrowing) Loads(node string, lent []int) (all []borrow.Load) {
	for _, number := range lent {
		if slices.ContainsFunc(all, func(l borrow.Load) bool { return l.Device == number }) || len(all) == borrow.MaxLoads {
			continue
		}
		calls, each := b.loads.loadOf(vgpu.DeviceID(b.stock.Load().ShownAs(number)), func(c *client) bool { return !c.isGuest() || c.lentTo().node != node })
		if calls > 0 {
			all = append(all, borrow.Load{Device: number, Calls: calls, Each: each})
		}
	}
	slices.SortFunc(all, func(a, b borrow.Load) int { return cmp.Compare(a.Device, b.Device) })
	return all
}

// checkLenders greets the lenders of devices that are used, and gives up those that are silent.
func (b *borrowing) checkLenders(fair bool) {
	b.lenders.Check(fair, b.stock.Load, func(id vgpu.DeviceID) bool {
		v, ok := b.dispatcher.Device(id)
		return ok && v.Used > 0
	}, func(id vgpu.DeviceID) { b.loseSilent(id, lending.Silence(b.settings.Load().WorkerTimeout)) })
}

type peerRequest = struct {
	Request  string          `json:"request"`
	Question borrow.Question `json:"question"`
}

// answerPeer answers another node that wants to borrow. The gateway has authenticated it.
func (b *borrowing) answerPeer(who socket.Peer, r peerRequest) (any, error) {
	if !b.rights.IsGateway(who) {
		return nil, fmt.Errorf("only the node's gateway asks for other nodes")
	}
	var reply borrow.Answer
	err := b.loop.Try(func() error {
		switch {
		case b.cfg.Grants == settings.GrantsRequired && r.Question.Node != b.cfg.Name:
			return fmt.Errorf("node %s serves programs with a grant only (grants: required), and lends nothing to others: its devices are for the cluster's head to give", b.cfg.Name)
		case b.lending == nil:
			return fmt.Errorf("node %s lends nothing (offload: off)", b.cfg.Name)
		}
		reply = b.lending.Lend(r.Question)
		return nil
	})
	return reply, err
}

// --- programs on a node without devices ------------------------------------------

// awaitDevice waits until a device has been borrowed for a program on a node that has none of its
// own, or says why there is none.
func (b *borrowing) awaitDevice() error {
	deadline := time.NewTimer(lending.Patience)
	defer deadline.Stop()
	err := b.awaitBorrowed(deadline.C, nil)
	if errors.Is(err, lending.ErrTooLong) {
		return refusal.New(refusal.NoDevice, "this node has no devices of its own, and its peers lent it none within %v (%s): try again later, or name more peers (peers: in its configuration)", lending.Patience, b.lending.WhyNone())
	}
	return err
}

// awaitAnother waits for a device for a client whose borrowed device is lost, on a node that has no
// other: without any device a worker cannot find out what the program's modules hold.
func (b *borrowing) awaitAnother(c *client) {
	_ = b.awaitBorrowed(nil, c.gone)
}

// awaitBorrowed waits until the node has a device, own or borrowed. It gives up when late fires or gone is
// closed.
func (b *borrowing) awaitBorrowed(late <-chan time.Time, gone <-chan struct{}) error {
	has := func() bool { return len(b.stock.Load().Infos()) > 0 }
	if has() {
		return nil
	}
	if !b.cfg.Offload.Borrows() {
		return refusal.ErrNoDevices
	}
	switch err := b.lending.Await(has, late, gone); {
	case errors.Is(err, lending.ErrEnded):
		return b.notNow()
	case errors.Is(err, lending.ErrGone):
		return refusal.ErrNoDevices
	default:
		return err
	}
}

// --- what programs and guests make of it ------------------------------------------

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
func (b *borrowing) wishes(view *vgpu.View) (wishes int) {
	met := map[together]bool{}
	for i := range view.Clients {
		v := &view.Clients[i]
		c := b.clients[v.ID]
		if c == nil || c.ending || c.isGuest() || !c.mayLeaveNode() || v.State != vgpu.Assigned {
			continue
		}
		if at := (together{c.peer.PID, v.Device}); c.shownMany && c.pinned == vgpu.AnyDevice {
			if met[at] {
				wishes++
			}
			met[at] = true
		}
		if kernels := v.Kernels + c.further().Kernels; kernels != c.kernels {
			c.kernels, c.launched = kernels, b.loop.Now()
		}
		if c.wishesFurther(b.loop.Now()) {
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
func (b *borrowing) ownDevices(view *vgpu.View) []offload.Device {
	var list []offload.Device
	at := map[vgpu.DeviceID]int{}
	shown := 0 // guests number devices by their place among those that they are shown
	for i, v := range view.Devices {
		e := &b.stock.Load().Entries[i]
		if !e.Here || e.Kind == settings.KindRemote {
			continue
		}
		if shown++; v.State == vgpu.DeviceUp {
			at[v.ID] = len(list)
			is := offload.Device{Number: shown - 1, Slots: v.Slots, Used: v.Used + v.Promised, Granted: v.Granted > 0, Speed: e.Info.Speed}
			if v.Granted >= v.Memory {
				is.Slots = 0
			}
			list = append(list, is)
		}
	}
	for _, v := range view.Clients {
		c := b.clients[v.ID]
		if i, own := at[v.Device]; own && v.State == vgpu.Assigned && c != nil && c.isGuest() {
			list[i].Used--
			list[i].Guests++
		}
	}
	return list
}

// isGuest says whether a client is another node's. Guests do not count as reasons to borrow: work
// is never passed on twice.
func (c *client) isGuest() bool { return c.guest.is }

// loseSilent takes away a device whose lender is silent. The workers that use it may be waiting for
// an answer of the lender, and would not read a message: they are killed, and their clients
// rebuilt.
func (b *borrowing) loseSilent(id vgpu.DeviceID, why string) {
	var there []*client
	for _, c := range b.clients {
		if c.worker != nil && !c.ending && (c.device == id || c.loans[id] != nil) {
			there = append(there, c)
		}
	}
	b.stock.Lose(id, why)
	for _, c := range there {
		c.lost(fmt.Sprintf("device %d is gone: %s", id, why), int(id))
		c.worker.Kill()
	}
}
