package worker

import (
	"fmt"
	"os"
	"slices"

	"muster/device"
	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire/control"
)

// comingDevice is the daemon's message that a device was added, with the device's lock.
type comingDevice struct {
	control.AddDevice
	lock *os.File
}

// addDevice opens a device that was added while the client runs, and tells the core.
func (w *worker) addDevice(d comingDevice) error {
	n := len(w.serve.Devices)
	if d.Device > n {
		d.lock.Close()
		return fmt.Errorf("the daemon adds device %d to %d: %w", d.Device, n, errEnded)
	}
	if d.Device == n {
		w.serve.Devices = append(slices.Clip(w.serve.Devices), d.Config)
		w.locks, w.devices = append(slices.Clip(w.locks), d.lock), append(w.devices, nil)
	} else {
		w.locks[d.Device].Close()
		w.serve.Devices = slices.Clone(w.serve.Devices)
		w.serve.Devices[d.Device], w.locks[d.Device], w.devices[d.Device] = d.Config, d.lock, nil
	}
	return w.handle(w.core.AddDevice(w.now(), d.Device, w.openDevice(d.Device)))
}

// comingLoan is the daemon's message that a further device is lent, with the connection by which it is
// opened in another worker.
type comingLoan struct {
	control.GrantFurther
	way *os.File
}

// keepWay keeps the connection by which a further device is opened, instead of a former one.
func (w *worker) keepWay(device int, way *os.File) {
	if w.ways == nil {
		w.ways = map[int]*os.File{}
	}
	w.closeWay(device)
	w.ways[device] = way
}

// closeWay closes the connection by which a further device would have been opened, if there is one.
func (w *worker) closeWay(device int) {
	if way := w.ways[device]; way != nil {
		way.Close()
		delete(w.ways, device)
	}
}

// deviceFor returns the device for a context that is to be opened: at home the node's own, elsewhere
// that in another worker if the daemon has connected us to one.
func (w *worker) deviceFor(i int) (device.Device, error) {
	way := w.ways[i]
	if way == nil || w.core.Lease.Device == i {
		w.closeWay(i)
		return w.device(i)
	}
	defer w.closeWay(i)
	return w.open(control.DeviceConfig{Kind: control.KindLent, Name: w.serve.Devices[i].Name}, way)
}

// openDevice opens a device and describes it for the core. One that cannot be opened has no memory.
func (w *worker) openDevice(i int) clientcore.Device {
	known := clientcore.Device{Place: vmm.Device(i), Name: w.serve.Devices[i].Name, Far: w.serve.Devices[i].Lender.Address != "", Link: w.serve.Devices[i].Lender.Address}
	if w.serve.Devices[i].Gone {
		return known
	}
	d, err := w.device(i)
	if err != nil {
		w.log.Warn("a device cannot be opened", "device", i, "error", err)
		return known
	}
	info := d.Info()
	known.Memory, known.ContextCost = info.Memory, info.ContextCost
	if info.Guard > 0 {
		w.shared.SetGuard(info.Guard)
	}
	if share := w.serve.Share; share > 0 {
		known.Memory = min(known.Memory, share)
	}
	known.Puts, known.Graphs = d.Can().LoadAt != nil, d.Can().NewGraph != nil
	known.Guards, known.Peers = info.Guards, info.Peers
	known.Speed = w.serve.Devices[i].Speed
	return known
}

// tellAllocations tells devices that check the memory accesses of kernels what the program has
// allocated.
func (w *worker) tellAllocations() {
	var allocated []device.Arena
	for _, r := range w.core.Allocations() {
		allocated = append(allocated, device.Arena{Base: r.Addr, Size: r.Size})
	}
	for _, g := range w.contexts.open {
		if know := g.context.Can().Know; know != nil {
			know(allocated)
		}
	}
}
