package stock

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"muster/device"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/survival"
	"muster/node/vgpu"
)

// Fresh finds out what the devices of the configuration are.
func Fresh(configured []settings.Device, open Open) (*inventory.Inventory, error) {
	made := &inventory.Inventory{}
	for i, c := range configured {
		info, err := inventory.Examine(c, open)
		if err != nil {
			return nil, fmt.Errorf("device %d (%s): %w", i, strings.TrimSpace(c.Kind+" "+c.Name), err)
		}
		made.Entries = append(made.Entries, inventory.Device{Device: c, Info: info, Here: true})
	}
	return made, nil
}

// AsBefore gives the devices of the configuration the numbers by which the workers
// of an earlier daemon know them. Devices that the configuration no longer has keep
// their numbers; if clients are on them, they stay until these have left. It notes in left which those are,
// and which are lost, and returns what was used of each device.
func AsBefore(configured []settings.Device, left *survival.Left, open Open, log *slog.Logger) (*inventory.Inventory, []vgpu.Usage, error) {
	used, granted := left.Used(), left.Granted()
	taken := maps.Clone(granted)
	maps.Copy(taken, used)
	configured = slices.Clone(configured)
	far := examineFar(left.Node.Devices, granted, open)
	made := &inventory.Inventory{}
	var before []vgpu.Usage
	for i, was := range left.Node.Devices {
		c, ok := inventory.TakeAlike(&configured, was.Config)
		if !ok {
			c = settings.Device{DeviceConfig: was.Config, Reserve: was.Reserve}
		}
		kept := c.Lender.Granted && granted[i]
		e := inventory.Device{Device: c, ByHand: kept, Info: device.Info{Name: was.Is.Name, Speed: was.Is.Speed, Memory: was.Is.Memory, ContextCost: was.Is.ContextCost}}
		if ok || kept || used[i] && was.Here {
			is, looked := far[i]
			if !looked {
				is.Info, is.Err = inventory.Examine(c, open)
			}
			switch err := is.Err; {
			case err == nil:
				e.Info, e.Here = is.Info, true
			case ok || kept: // not fatal: the programs on the other devices go on
				log.Error("a device cannot be opened, and counts as lost", "device", i, "name", was.Is.Name, "error", err)
				left.Lost = append(left.Lost, vgpu.DeviceID(i))
			}
			if !ok && !kept {
				left.Retired = append(left.Retired, vgpu.DeviceID(i))
			}
		}
		made.Entries = append(made.Entries, e)
		before = append(before, was.Usage.Usage())
	}
	for _, c := range configured {
		info, err := inventory.Examine(c, open)
		if err != nil {
			return nil, nil, fmt.Errorf("device (%s %s): %w", c.Kind, c.Name, err)
		}
		c.Index = made.IndexFor(c)
		number := made.FreeNumber(taken)
		made = made.With(number, inventory.Device{Device: c, Info: info, Here: true})
		if number < len(before) {
			before[number] = vgpu.Usage{}
		}
	}
	if n := len(made.Entries); n > settings.MaxDevices {
		return nil, nil, fmt.Errorf("programs or grants of an earlier daemon have devices that the configuration does not have, which makes %d in all: a node has at most %d; start it with the old devices, or end the programs and revoke the grants", n, settings.MaxDevices)
	}
	return made, before, nil
}

// examineFar looks at the devices of other nodes that grants have, by their numbers.
func examineFar(devices []survival.DeviceFile, granted map[int]bool, open Open) map[int]inventory.Examined {
	var list []settings.Device
	var numbers []int
	for i, was := range devices {
		if was.Config.Lender.Granted && granted[i] {
			list = append(list, settings.Device{DeviceConfig: was.Config, Reserve: was.Reserve})
			numbers = append(numbers, i)
		}
	}
	far := map[int]inventory.Examined{}
	for k, is := range inventory.ExamineTogether(list, open) {
		far[numbers[k]] = is
	}
	return far
}

// Settle tells the dispatcher which devices are gone, before it hears of clients.
func (s *Stock) Settle(left *survival.Left) {
	used := left.Used()
	for i, e := range s.Load().Entries {
		id := vgpu.DeviceID(i)
		switch {
		case e.Here:
		case used[i] || slices.Contains(left.Lost, id):
			s.dispatcher.Step(vgpu.Lost{Device: id})
		default:
			s.dispatcher.Step(vgpu.Drain{Device: id})
			s.dispatcher.Step(vgpu.Remove{Device: id})
		}
	}
}

// Settled continues once the dispatcher has heard of clients: devices that the configuration no longer has
// leave, and those that are lost are looked for.
func (s *Stock) Settled(left *survival.Left) {
	for _, id := range left.Retired {
		s.retire(id)
	}
	for _, id := range left.Lost {
		s.lookFor(id)
	}
}
