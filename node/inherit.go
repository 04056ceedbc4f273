package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"muster/device"
	"muster/node/vgpu"
	"muster/wire/control"
)

// inheritance is what an earlier daemon left.
type inheritance struct {
	node  nodeStateFile
	heirs []heir // the clients whose workers live, by their numbers

	retired []vgpu.DeviceID // devices that heirs are on and the configuration no longer has
	lost    []int           // devices that the configuration has and that cannot be opened
}

// isAny says whether there is anything that refers to devices by number, so that they
// must keep their numbers.
func (l *inheritance) isAny() bool { return len(l.heirs) > 0 || len(l.node.Grants) > 0 }

// heir is a client of an earlier daemon.
type heir struct {
	clientFile
	clientState
	standing *slots
	worker   *workerProcess
}

// openFolder opens the state folder, unless clients end with the daemon anyway.
func (d *daemon) openFolder() (err error) {
	if d.cfg.OrphanGrace == 0 {
		return nil
	}
	d.folder, err = openState(d.cfg.State, d.cfg.Socket.Address)
	switch {
	case err == nil:
		return nil
	case d.cfg.State != "" || errors.Is(err, errFolderTaken):
		d.folder = nil // it is not this daemon's to remove
		return fmt.Errorf("the node's state cannot be kept (state, --state): %w", err)
	}
	d.folder = nil
	d.log.Warn("the node's state cannot be kept: programs end with the daemon; give another folder (state, --state), or ask for that (orphan_grace: 0)", "error", err)
	return nil
}

// inherit reads what an earlier daemon left, and removes what is of no use any more.
func (d *daemon) inherit() (inheritance, error) {
	var left inheritance
	if d.folder == nil {
		return left, nil
	}
	err := errors.Join(d.folder.clear(partPrefix), d.sweep())
	if err != nil {
		return left, fmt.Errorf("cleaning up after an earlier daemon: %w", err)
	}
	switch err := d.readNode(&left.node); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		d.log.Error("the state of an earlier daemon is of no use: its programs end", "error", err)
		left.node = nodeStateFile{}
	default:
		d.readClients(&left)
	}
	if len(left.heirs) == 0 {
		err = errors.Join(d.folder.clear(clientPrefix), d.folder.clear(standingPrefix), d.folder.clear(lockPrefix))
	}
	return left, err
}

func (d *daemon) readNode(into *nodeStateFile) error {
	err := d.folder.read(nodeStateName, into)
	switch {
	case err != nil:
		return err
	case into.Version != stateVersion:
		return fmt.Errorf("its version is %d, and %d is understood", into.Version, stateVersion)
	case into.Boot != bootID(): // the machine was restarted: nothing of that daemon is left
		*into = nodeStateFile{}
		return fs.ErrNotExist
	case len(into.Devices) > maxDevices:
		return fmt.Errorf("it has %d devices", len(into.Devices))
	}
	return nil
}

// readClients finds the clients whose workers live. Of the others only their counters
// are kept.
func (d *daemon) readClients(left *inheritance) {
	standings := map[string]bool{}
	for _, name := range d.folder.names(clientPrefix) {
		h, err := d.readClient(name)
		if err != nil {
			d.log.Warn("the state of a client is of no use", "file", name, "error", err)
			_ = d.folder.drop(name) // else it is looked at again at the next start
			continue
		}
		left.node.Last = max(left.node.Last, h.Client)
		h.worker = findWorker(h.Worker.Pid, h.Worker.Start, d.log)
		if h.worker == nil {
			left.node.bury(&h.clientState)
			h.standing.close()
			_ = d.folder.drop(name)
			continue
		}
		h.worker.uid = h.Worker.UID
		left.heirs = append(left.heirs, h)
		standings[standingName(h.Client)] = true
	}
	for _, name := range d.folder.names(standingPrefix) {
		if !standings[name] {
			_ = d.folder.drop(name)
		}
	}
	slices.SortFunc(left.heirs, func(a, b heir) int { return int(int64(a.Client) - int64(b.Client)) })
}

// readClient reads who a client is, and where it stands.
func (d *daemon) readClient(name string) (h heir, err error) {
	if err := d.folder.read(name, &h.clientFile); err != nil {
		return h, err
	}
	if err := h.clientFile.check(name); err != nil {
		return h, err
	}
	if h.standing, err = d.folder.openSlots(standingName(h.Client)); err != nil {
		return h, err
	}
	err = h.standing.read(&h.clientState)
	if err == nil {
		err = h.clientState.check()
	}
	if err != nil {
		h.standing.close()
		return h, fmt.Errorf("where it stands: %w", err)
	}
	return h, nil
}

// bury adds up the counters of a client that ended while there was no daemon.
func (n *nodeStateFile) bury(f *clientState) {
	past := n.Past.counters()
	past.add(f.Counters.counters())
	past.clients++
	n.Past = past.file()
	n.Usage = usageOf(plus(n.Usage.usage(), vgpu.Usage{Kernels: f.Kernels, GPUTime: f.Busy}))
	n.Moves = plusMoves(n.Moves, f.Moves)
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
		if err != nil || !info.Mode().IsRegular() || d.opts.Now().Sub(info.ModTime()) < longAgo || !isOwn(info) {
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
func (d *daemon) stockAsBefore(left *inheritance) ([]vgpu.Device, error) {
	used := map[int]bool{}
	for i := range left.heirs {
		used[int(left.heirs[i].Place.Device)] = true
	}
	taken := left.granted()
	maps.Copy(taken, used)
	configured := slices.Clone(d.cfg.Devices)
	made := &inventory{}
	var devices []vgpu.Device
	for i, was := range left.node.Devices {
		c, ok := takeAlike(&configured, was.Config)
		if !ok {
			c = Device{was.Config, was.Reserve}
		}
		e := stocked{Device: c, ticket: c.Lender.Ticket, info: device.Info{Name: was.Is.Name, Speed: was.Is.Speed, Memory: was.Is.Memory, ContextCost: was.Is.ContextCost}}
		if ok || used[i] && was.Here {
			info, err := d.examine(c)
			switch {
			case err == nil:
				e.info, e.here = info, true
			case ok: // not fatal: the programs on the other devices go on
				d.log.Error("a device cannot be opened, and counts as lost", "device", i, "name", was.Is.Name, "error", err)
				left.lost = append(left.lost, i)
			}
			if !ok {
				left.retired = append(left.retired, vgpu.DeviceID(i))
			}
		}
		made.entries = append(made.entries, e)
		devices = append(devices, dispatched(e.info, d.cfg.VGPUs))
		d.before.devices = append(d.before.devices, was.Usage.usage())
	}
	for _, c := range configured {
		info, err := d.examine(c)
		if err != nil {
			return nil, fmt.Errorf("device (%s %s): %w", c.Kind, c.Name, err)
		}
		c.Index = made.indexFor(c)
		number := made.freeNumber(taken)
		e := stocked{Device: c, info: info, here: true}
		if number == len(made.entries) {
			made.entries, devices = append(made.entries, e), append(devices, dispatched(info, d.cfg.VGPUs))
			continue
		}
		made.entries[number], devices[number] = e, dispatched(info, d.cfg.VGPUs)
		d.before.devices[number] = vgpu.Usage{}
	}
	if n := len(made.entries); n > maxDevices {
		return nil, fmt.Errorf("programs or grants of an earlier daemon have devices that the configuration does not have, which makes %d in all: a node has at most %d; start it with the old devices, or end the programs and revoke the grants", n, maxDevices)
	}
	d.stock.Store(made)
	return devices, nil
}

// granted are the numbers of devices that grants of an earlier daemon name. Another device must not get
// one of them: the jobs would be given a device that nobody granted them.
func (l *inheritance) granted() map[int]bool {
	numbers := map[int]bool{}
	for _, g := range l.node.Grants {
		for _, share := range g.Devices {
			numbers[share.Device] = true
		}
	}
	return numbers
}

// freeNumber is the number for one more device: the next or, if all numbers are taken,
// that of a device which is gone and to which nobody refers.
func (v *inventory) freeNumber(referred map[int]bool) int {
	if len(v.entries) >= maxDevices {
		for i, e := range v.entries {
			if !e.here && !referred[i] {
				return i
			}
		}
	}
	return len(v.entries)
}

// takeAlike takes the device out of a list that matches what a worker knows. Software
// devices whose order has changed match too, but only if none matches exactly.
func takeAlike(list *[]Device, was control.DeviceConfig) (Device, bool) {
	for _, exactly := range []bool{true, false} {
		at := slices.IndexFunc(*list, func(c Device) bool {
			is := c.DeviceConfig
			if !exactly && is.Kind == "soft" { // their index is only their place in the configuration
				is.Index = was.Index
			}
			return is == was
		})
		if at >= 0 {
			c := (*list)[at]
			c.DeviceConfig = was
			*list = slices.Delete(*list, at, at+1)
			return c, true
		}
	}
	return Device{}, false
}

// settleDevices tells the dispatcher which devices are gone, before it hears of clients.
func (d *daemon) settleDevices(left *inheritance) {
	used := map[vgpu.DeviceID]bool{}
	for i := range left.heirs {
		used[left.heirs[i].Place.Device] = true
	}
	for i, e := range d.stock.Load().entries {
		id := vgpu.DeviceID(i)
		switch {
		case e.here:
		case used[id] || slices.Contains(left.lost, i):
			d.step(d.now(), vgpu.Lost{Device: id})
		default:
			d.step(d.now(), vgpu.Drain{Device: id})
			d.step(d.now(), vgpu.Remove{Device: id})
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
