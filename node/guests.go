package node

import (
	"muster/device"
	"muster/node/vgpu"
	"muster/wire"
)

// A guest is another node that uses a device of this one as its own (device/remote). It is a
// client like others: it counts towards its user's limits and shares, its memory is swapped,
// and its kernels wait for their turn. It differs in this:
//
//   - It is shown each device by itself, and is put on the one that it asks for and on no
//     other: its own node decides which device a program is on.
//   - It is shown no devices that this node has of others. So work is never passed on twice,
//     and cannot circulate between two nodes that lend each other devices.
//   - It says where its device addresses lie, because its programs know them.
//   - It is not rebuilt when its worker or this daemon dies: to its own node that is the loss
//     of a device, after which that node rebuilds the program's client there. So nothing is
//     journalled twice, and this node never waits for a guest's kernel in order to journal.

// guest is which device a guest has; the zero value is a client that is no guest.
type guest struct {
	is     bool
	number int
}

func guestOf(number int) guest { return guest{is: true, number: number} }

// pins is the only device that a client may use: a guest's own, and otherwise the one that
// its worker names.
func (g guest) pins(said vgpu.DeviceID) vgpu.DeviceID {
	if g.is {
		return vgpu.DeviceID(g.number)
	}
	return said
}

// file is the guest as it is written for the next daemon.
func (g guest) file() *int {
	if !g.is {
		return nil
	}
	return &g.number
}

// confined is the number of the only device that a client may ever use, if there is one.
func (c *client) confined() (number int, is bool) {
	if c.guest.is {
		return c.guest.number, true
	}
	return c.under.number(), c.under.granted != nil
}

// keepsOff says whether a client may never use a device.
func (c *client) keepsOff(number int) bool {
	only, confined := c.confined()
	return confined && only != number
}

// lends says whether guests may have a device. Devices that this node borrows are not its to
// lend.
func (e *stocked) lends() bool { return e.here && e.Kind != KindRemote }

// offersGuests is what a guest is shown: the node's own devices, or those of its grant.
func (d *daemon) offersGuests(stock *inventory, wish uint64, limits UserLimits, g *granted) (*offer, error) {
	o := &offer{}
	add := func(number int, most uint64) {
		e := &stock.entries[number]
		if !e.lends() {
			return
		}
		infos := []device.Info{e.info}
		memory := min(d.worldOf(infos, wish, limits), most)
		o.numbers = append(o.numbers, number)
		o.add(infos, memory, lent(d.cfg.Name, e.info, number, memory))
	}
	if g == nil {
		for number := range stock.entries {
			add(number, stock.entries[number].info.Memory)
		}
	} else {
		for _, share := range g.Devices {
			add(share.Device, shareOf(share, stock.entries[share.Device].info))
		}
		if len(o.devices) != len(g.Devices) { // all or none: a guest numbers them by their places in the grant
			return nil, refuse(resultNoDevice, "grant %s has devices that the node cannot lend: they are gone, or are another node's", g.ID)
		}
	}
	if len(o.devices) == 0 {
		return nil, refuse(resultNoDevice, "the node has no devices of its own that it could lend")
	}
	return o, nil
}

// lent describes a device to a guest: all of its CUDA attributes, and what CUDA has no
// attribute for.
func lent(node string, info device.Info, number int, memory uint64) wire.Device {
	shown := visible(node, []device.Info{info}, number, number, memory)
	a := map[int]int{}
	for attribute, value := range info.Attributes {
		a[attribute] = value
	}
	const most = 1<<31 - 1
	a[wire.LentContext] = int(min(info.ContextCost>>10, most))
	a[wire.LentLocal] = int(min(info.Limits.Local>>10, most))
	a[wire.LentSpeed] = int(min(info.Speed*1e6, most))
	a[wire.LentBandwidth] = int(min(info.CopyBandwidth>>10, most))
	a[wire.LentRegisters] = info.Limits.Registers
	a[wire.LentConstant] = int(min(info.Limits.Constant, most))
	if info.CallsAlone {
		a[wire.LentCallsAlone] = 1
	}
	shown.Attributes = attributePairs(a)
	return shown
}

// arenaFor is where a client's device addresses lie. A guest says where: anywhere in the
// range in which clients of a node have theirs.
func arenaFor(hello *wire.Hello, attach *wire.Attach, memory uint64) (device.Arena, error) {
	a := device.Arena{Base: attach.ArenaBase, Size: attach.ArenaSize}
	all := device.Arena{Base: arenaBase, Size: maxDevices * maxArena}
	switch {
	case a == device.Arena{}:
		return arenaOf(int(attach.Place), memory), nil
	case hello.Guest == 0:
		return a, refuse(resultMismatch, "a program does not choose its device addresses")
	case a.Size == 0 || a.Size > maxArena || (a.Base|a.Size)%deviceGranule != 0 || !all.Contains(a.Base, a.Size):
		return a, refuse(resultInvalidDevice, "device addresses from %#x on, %d bytes: they must be whole pieces of 2 MiB between %#x and %#x, of 1 TiB at most", a.Base, a.Size, all.Base, all.Base+all.Size)
	}
	return a, nil
}
