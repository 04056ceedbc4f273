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
	return w.perform(w.core.AddDevice(w.now(), d.Device, w.openDevice(d.Device)))
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
	if share := w.serve.Share; share > 0 {
		known.Memory = min(known.Memory, share)
	}
	_, known.Puts = d.(device.Placer)
	_, known.Graphs = d.(device.Grapher)
	known.Guards, known.Peers = info.Guards, info.Peers
	known.Speed = w.serve.Devices[i].Speed
	return known
}
