package node

import (
	"fmt"
	"maps"
	"slices"

	"muster/node/ask"
	"muster/node/inventory"
	"muster/node/shown"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire/control"
)

// What clients have to do with devices that come and go (node/stock).

// announce tells a worker how a device is now; why is the reason if it has gone.
func (c *client) announce(number int, e *inventory.Device, why string) {
	if !e.Here {
		c.worker.Post(control.Lost{Device: number, Reason: why})
		return
	}
	c.worker.PostDevice(control.AddDevice{Device: number, Config: c.configOf(number, e)}, e.Lock)
}

// configOf is what a client's worker is told of a device. Devices that the client cannot have, as those
// outside its grant, or other than a guest's one device, are shown as gone: the worker need not open
// them.
func (c *client) configOf(number int, e *inventory.Device) control.DeviceConfig {
	config := e.Config()
	config.Gone = config.Gone || c.keepsOff(number, e) && !c.maySpread(number)
	if config.Gone && config.Lender.Granted { // the credential is the job's
		config.Lender.Ticket = ""
	}
	return config
}

// maySpread says whether a device is one of the client's grant, and the client's launches are mapped:
// then it may be lent that beside its own.
func (c *client) maySpread(number int) bool {
	return c.mapping != "" && c.under.Granted != nil && slices.ContainsFunc(c.under.Devices, func(s ask.GrantedDevice) bool { return s.Device == number })
}

// configs are what a client's worker is told of all devices.
func (c *client) configs(stock *inventory.Inventory) []control.DeviceConfig {
	list := make([]control.DeviceConfig, len(stock.Entries))
	for i := range stock.Entries {
		list[i] = c.configOf(i, &stock.Entries[i])
	}
	return list
}

// programs are the programs that use devices.
type programs struct {
	common
	files *files
	staff *staff

	end func(c *client, reason string, kill bool)
}

// catchUp tells a worker what has changed since the inventory that it was started with.
func (p *programs) catchUp(c *client, told *inventory.Inventory) {
	now := p.stock.Load()
	for i := range now.Entries {
		if i >= len(told.Entries) || told.Entries[i].Change != now.Entries[i].Change {
			c.announce(i, &now.Entries[i], stock.TakenOut)
		}
	}
	p.staff.renewBound(c, p.staff.bounds())
}

// Changed tells all workers how a device is now.
func (p *programs) Changed(number int, e *inventory.Device, why string) {
	p.files.saveNode() // the next daemon must know by which numbers workers know devices
	now := p.staff.bounds()
	for _, c := range p.clients {
		if c.worker != nil && !c.ending {
			c.announce(number, e, why)
			p.staff.renewBound(c, now)
		}
	}
}

// Refused ends the clients at home on a device that can go on nowhere else.
func (p *programs) Refused(id vgpu.DeviceID, why string) {
	for _, v := range p.dispatcher.View().Clients {
		if c := p.clients[v.ID]; c != nil && v.Parked && c.under.Home() == int(id) {
			p.end(c, fmt.Sprintf("device %s is gone, and it can run on no other: the node that lent it says: %s", p.stock.Load().NameOf(id), why), false)
		}
	}
}

// DependOn lists the clients that can run on no other device than this one, which takes none.
func (p *programs) DependOn(id vgpu.DeviceID) []vgpu.ClientID {
	var who []vgpu.ClientID
	view := p.dispatcher.View()
	room := view.Devices[id].Memory - p.stock.Load().Entries[id].Info.ContextCost
	for _, v := range view.Clients {
		c := p.clients[v.ID]
		switch {
		case c == nil || c.ending:
		case c.keepsOff(int(id), &p.stock.Load().Entries[id]):
		case c.pinned == id, v.Parked && c.pinned == vgpu.AnyDevice && v.Need <= room:
			who = append(who, v.ID)
		}
	}
	return who
}

// Fits refuses a device that is to be added if it cannot do what the programs were told that run now and may
// be put there.
func (p *programs) Fits(e *inventory.Device) error {
	for _, id := range slices.Sorted(maps.Keys(p.clients)) {
		if p.clients[id].keepsOff(len(p.stock.Load().Entries), e) {
			continue
		}
		if why := shown.CannotDo(e.Info, p.clients[id].shown); why != "" {
			return fmt.Errorf("%s %s: it can be added when the programs have ended that run now (client %d is one)", e.Info.Name, why, id)
		}
	}
	return nil
}
