package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"muster/device"
	"muster/node/inventory"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/statefolder"
	"muster/node/survival"
	"muster/node/vgpu"
)

// openFolder opens the state folder, unless clients end with the daemon anyway.
func (d *daemon) openFolder() (err error) {
	if d.cfg.OrphanGrace == 0 {
		return nil
	}
	d.keeper, err = survival.Open(d.cfg.State, d.cfg.Socket.Address, d.log)
	switch {
	case err == nil:
		return nil
	case d.cfg.State != "" || errors.Is(err, statefolder.ErrTaken):
		return fmt.Errorf("the node's state cannot be kept (state, --state): %w", err)
	}
	d.log.Warn("the node's state cannot be kept: programs end with the daemon; give another folder (state, --state), or ask for that (orphan_grace: 0)", "error", err)
	return nil
}

// inherit reads what an earlier daemon left, and removes what is of no use any more.
func (d *daemon) inherit() (left survival.Left, err error) {
	if d.keeper == nil {
		return left, nil
	}
	if err = d.sweep(); err == nil {
		left, err = d.keeper.Inherit()
	}
	if err != nil {
		err = fmt.Errorf("cleaning up after an earlier daemon: %w", err)
	}
	return left, err
}

// sweep removes files from the swap folder that were left by processes killed between
// creating and unlinking them. Files younger than a minute may still be in use.
func (d *daemon) sweep() error {
	const longAgo = time.Minute
	if d.cfg.Swap.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(d.cfg.Swap.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || d.opts.Now().Sub(info.ModTime()) < longAgo || !proc.IsOwn(info) {
			continue
		}
		if strings.HasPrefix(e.Name(), swapPrefix) || strings.HasPrefix(e.Name(), healthPrefix) {
			_ = os.Remove(d.cfg.Swap.Dir + "/" + e.Name())
		}
	}
	return nil
}

// Prefixes of files in the swap folder, which are unlinked right after they were
// created.
const swapPrefix, healthPrefix = "muster-swap-", "muster-health-"

// --- devices -------------------------------------------------------------------

// stockAsBefore gives the devices of the configuration the numbers by which the workers
// of an earlier daemon know them. Devices that the configuration no longer has keep
// their numbers; if clients are on them, they stay until these have left.
func (d *daemon) stockAsBefore(left *survival.Left) ([]vgpu.Device, error) {
	used := map[int]bool{}
	for i := range left.Heirs {
		used[int(left.Heirs[i].Place.Device)] = true
	}
	taken := left.Granted()
	maps.Copy(taken, used)
	configured := slices.Clone(d.cfg.Devices)
	made := &inventory.Inventory{}
	var devices []vgpu.Device
	for i, was := range left.Node.Devices {
		c, ok := inventory.TakeAlike(&configured, was.Config)
		if !ok {
			c = settings.Device{DeviceConfig: was.Config, Reserve: was.Reserve}
		}
		e := inventory.Device{Device: c, Ticket: c.Lender.Ticket, Info: device.Info{Name: was.Is.Name, Speed: was.Is.Speed, Memory: was.Is.Memory, ContextCost: was.Is.ContextCost}}
		if ok || used[i] && was.Here {
			info, err := inventory.Examine(c, d.opts.Open)
			switch {
			case err == nil:
				e.Info, e.Here = info, true
			case ok: // not fatal: the programs on the other devices go on
				d.log.Error("a device cannot be opened, and counts as lost", "device", i, "name", was.Is.Name, "error", err)
				left.Lost = append(left.Lost, i)
			}
			if !ok {
				left.Retired = append(left.Retired, vgpu.DeviceID(i))
			}
		}
		made.Entries = append(made.Entries, e)
		devices = append(devices, inventory.Dispatched(e.Info, d.cfg.VGPUs))
		d.tally.Before.Devices = append(d.tally.Before.Devices, was.Usage.Usage())
	}
	for _, c := range configured {
		info, err := inventory.Examine(c, d.opts.Open)
		if err != nil {
			return nil, fmt.Errorf("device (%s %s): %w", c.Kind, c.Name, err)
		}
		c.Index = made.IndexFor(c)
		number := made.FreeNumber(taken)
		e := inventory.Device{Device: c, Info: info, Here: true}
		if number == len(made.Entries) {
			made.Entries, devices = append(made.Entries, e), append(devices, inventory.Dispatched(info, d.cfg.VGPUs))
			continue
		}
		made.Entries[number], devices[number] = e, inventory.Dispatched(info, d.cfg.VGPUs)
		d.tally.Before.Devices[number] = vgpu.Usage{}
	}
	if n := len(made.Entries); n > settings.MaxDevices {
		return nil, fmt.Errorf("programs or grants of an earlier daemon have devices that the configuration does not have, which makes %d in all: a node has at most %d; start it with the old devices, or end the programs and revoke the grants", n, settings.MaxDevices)
	}
	d.stock.Store(made)
	return devices, nil
}

// settleDevices tells the dispatcher which devices are gone, before it hears of clients.
func (d *daemon) settleDevices(left *survival.Left) {
	used := map[vgpu.DeviceID]bool{}
	for i := range left.Heirs {
		used[left.Heirs[i].Place.Device] = true
	}
	for i, e := range d.stock.Load().Entries {
		id := vgpu.DeviceID(i)
		switch {
		case e.Here:
		case used[id] || slices.Contains(left.Lost, i):
			d.core.Step(vgpu.Lost{Device: id})
		default:
			d.core.Step(vgpu.Drain{Device: id})
			d.core.Step(vgpu.Remove{Device: id})
		}
	}
}

// retireDevices drains and removes devices that the configuration no longer has, once
// their clients have left.
func (d *daemon) retireDevices(retired []vgpu.DeviceID) {
	for _, id := range retired {
		if err := d.removeDevice(id, false); err != nil {
			d.log.Error("a device that the configuration no longer has cannot be removed", "device", int(id), "error", err)
		}
	}
}
