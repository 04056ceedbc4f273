package node

import (
	"errors"
	"slices"
	"testing"

	"muster/device"
	"muster/model"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/inventory"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/wire"
	"muster/wire/control"
)

// A guest says where its addresses lie, within bounds; programs do not.
func TestGuestsChooseTheirAddresses(t *testing.T) {
	const chunk = settings.DeviceGranule
	for _, c := range []struct {
		guest      uint32
		base, size uint64
		ok         bool
	}{
		{0, 0, 0, true},
		{1, 0, 0, true},
		{1, settings.ArenaBase, chunk, true},
		{1, settings.ArenaBase + 15*settings.MaxArena, settings.MaxArena, true},
		{0, settings.ArenaBase, chunk, false},
		{1, settings.ArenaBase, 0, false},
		{1, settings.ArenaBase, chunk + 1, false},
		{1, settings.ArenaBase + 1, chunk, false},
		{1, settings.ArenaBase - chunk, 2 * chunk, false},
		{1, 0, chunk, false},
		{1, settings.ArenaBase, 2 * settings.MaxArena, false},
		{1, settings.ArenaBase + (settings.MaxDevices-1)*settings.MaxArena, settings.MaxArena + chunk, false},
		{1, settings.ArenaBase + settings.MaxDevices*settings.MaxArena, chunk, false},
		{1, 1<<64 - chunk, chunk, false},
		{1, 1<<64 - chunk, 2 * chunk, false},
	} {
		a, err := shown.ArenaFor(&wire.Hello{Guest: c.guest}, &wire.Attach{ArenaBase: c.base, ArenaSize: c.size}, 1<<30)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if want := (device.Arena{Base: c.base, Size: c.size}); c.ok && c.size > 0 && a != want {
			t.Errorf("%+v: %+v", c, a)
		}
	}
}

// Guests are shown the node's own devices one by one, and never those that it has of others: so
// nobody's work goes round in circles.
func TestGuestsAreNotPassedOn(t *testing.T) {
	info := func(name string) device.Info {
		return device.Info{Name: name, Memory: 64 << 20, ContextCost: 1 << 20, Granularity: settings.DeviceGranule, Speed: 0.5, Attributes: map[int]int{10: 32, 999: 7}}
	}
	entry := func(name, kind string, here bool) inventory.Device {
		return inventory.Device{Device: settings.Device{DeviceConfig: control.DeviceConfig{Kind: kind, Name: name}}, Info: info(name), Here: here}
	}
	stock := &inventory.Inventory{Entries: []inventory.Device{entry("a", "soft", true), entry("b", settings.KindRemote, true), entry("c", "soft", false), entry("d", "soft", true)}}
	cfg := settings.Default()
	cfg.Name = "lender"
	terms := &terms{common: common{settings: new(settings.Live), cfg: &cfg}}
	cfg.Swap.Size = 1 << 40
	terms.settings.Store(&cfg)
	o, err := terms.offersGuests(stock, 0, settings.UserLimits{Memory: 32 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Devices) != 2 || o.Devices[0].Name != "a" || o.Devices[1].Name != "d" || o.Numbers[1] != 3 || o.Memory[0] != 32<<20 {
		t.Errorf("guests are shown %+v, %v, %v", o.Devices, o.Numbers, o.Memory)
	}
	only := &inventory.Inventory{Entries: []inventory.Device{entry("b", settings.KindRemote, true)}}
	var refused *wire.Refused
	if _, err := terms.offersGuests(only, 0, settings.UserLimits{}, nil); !errors.As(err, &refused) || refused.Result != refusal.NoDevice {
		t.Errorf("a node with nothing of its own: %v", err)
	}
	g := &grants.Granted{ID: "j", Devices: []ask.GrantedDevice{{Device: 1}}}
	if _, err := terms.offersGuests(stock, 0, settings.UserLimits{}, g); !errors.As(err, &refused) {
		t.Errorf("a grant of what is not the node's: %v", err)
	}
	c := &client{guest: guestOf(3)}
	if !c.keepsOff(0, &stock.Entries[0]) || c.keepsOff(3, &stock.Entries[3]) || c.guest.pins(0) != 3 || *c.guest.file() != 3 {
		t.Errorf("the guest of device 3 is not kept there: %+v", c.guest)
	}
	if (&client{}).keepsOff(1, &stock.Entries[1]) || (guest{}).file() != nil || (guest{}).pins(5) != 5 {
		t.Error("a program is taken for a guest")
	}
}

// A client under a grant may be put on its home, and on what the grant reaches from there.
func TestKeptOffByReach(t *testing.T) {
	far := &inventory.Device{Device: settings.Device{DeviceConfig: control.DeviceConfig{Kind: settings.KindRemote}}}
	near := &inventory.Device{Device: settings.Device{DeviceConfig: control.DeviceConfig{Kind: "soft"}}}
	for reach, off := range map[model.Reach][]bool{model.ReachDevice: {false, true, true}, model.ReachNode: {false, false, true}, model.ReachCluster: {false, false, false}} {
		c := &client{under: grants.Under{Granted: &grants.Granted{Devices: []ask.GrantedDevice{{Device: 7}, {Device: 2, Reach: reach}}}, Share: 1}}
		if got := []bool{c.keepsOff(2, near), c.keepsOff(0, near), c.keepsOff(3, far)}; !slices.Equal(got, off) {
			t.Errorf("reach %v: it is kept off its home, another device and another node's: %v", reach, got)
		}
		if c.mayLeaveNode() != (reach == model.ReachCluster) {
			t.Errorf("reach %v: it leaves the node: %v", reach, c.mayLeaveNode())
		}
	}
}
