package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"muster/device"
	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire/control"
)

// devices are the node's devices, as this worker may open them. The loop owns them; they know neither
// contexts nor the core.
type devices struct {
	log     *slog.Logger
	open    Open
	configs []control.DeviceConfig // replaced when one changes: the daemon's copy may be on its way
	locks   []*os.File
	opened  []device.Device    // nil where a device is not open
	ways    map[int]*os.File   // connections by which further devices are opened in other workers
	share   uint64             // the most memory of a device that counts as there; 0: all
	guard   func(bytes uint32) // is told how much must stay free around allocations
}

func newDevices(configs []control.DeviceConfig, locks []*os.File, share uint64, guard func(bytes uint32), open Open, log *slog.Logger) devices {
	return devices{log: log, open: open, configs: configs, locks: locks, opened: make([]device.Device, len(configs)), ways: map[int]*os.File{}, share: share, guard: guard}
}

// at returns a device, opening it at the first call that succeeds.
func (d *devices) at(i int) (device.Device, error) {
	if d.configs[i].Gone {
		return nil, fmt.Errorf("device %d is not there", i)
	}
	if d.opened[i] == nil {
		opened, err := d.open(d.configs[i], d.locks[i])
		if err != nil {
			return nil, fmt.Errorf("opening device %s: %w", cmp.Or(d.configs[i].Name, fmt.Sprint(i)), err)
		}
		d.opened[i] = opened
	}
	return d.opened[i], nil
}

// forContext returns the device for a context that is to be opened: at home the node's own, elsewhere
// that in another worker if the daemon has connected us to one.
func (d *devices) forContext(i int, home bool) (device.Device, error) {
	way := d.ways[i]
	if way == nil || home {
		d.closeWay(i)
		return d.at(i)
	}
	defer d.closeWay(i)
	return d.open(control.DeviceConfig{Kind: control.KindLent, Name: d.configs[i].Name}, way)
}

// keepWay keeps the connection by which a further device is opened, instead of a former one.
func (d *devices) keepWay(i int, way *os.File) {
	d.closeWay(i)
	d.ways[i] = way
}

// closeWay closes the connection by which a further device would have been opened, if there is one.
func (d *devices) closeWay(i int) {
	if way := d.ways[i]; way != nil {
		way.Close()
		delete(d.ways, i)
	}
}

// any returns an error if no device can be opened: without one the worker cannot serve the client.
// A client that was served before waits for a device of another node instead: that node may come back.
func (d *devices) any(servedBefore bool) error {
	var all error
	waits := false
	for i := range d.configs {
		_, err := d.at(i)
		if err == nil {
			return nil
		}
		waits = waits || servedBefore && d.configs[i].Lender != (control.Lender{})
		all = errors.Join(all, err)
	}
	if waits {
		return nil
	}
	return all
}

// openAll opens all devices, before this process becomes the client's user. A borrowed device that cannot
// be reached now may come back: it must not keep the client from the others.
func (d *devices) openAll() error {
	for i, config := range d.configs {
		if config.Gone {
			continue
		}
		if _, err := d.at(i); err != nil && config.Lender == (control.Lender{}) {
			return err
		}
	}
	return nil
}

// known opens all devices and describes them for the core.
func (d *devices) known() []clientcore.Device {
	known := make([]clientcore.Device, len(d.configs))
	for i := range d.configs {
		known[i] = d.describe(i)
	}
	return known
}

// describe opens a device and describes it for the core. One that cannot be opened has no memory; it is
// tried again if the daemon grants it.
func (d *devices) describe(i int) clientcore.Device {
	config := &d.configs[i]
	known := clientcore.Device{Place: vmm.Device(i), Name: config.Name, Far: config.Lender.Address != "", Link: config.Lender.Address}
	if config.Gone {
		return known
	}
	opened, err := d.at(i)
	if err != nil {
		d.log.Warn("a device cannot be opened", "device", i, "error", err)
		return known
	}
	info := opened.Info()
	known.Memory, known.ContextCost = info.Memory, info.ContextCost
	if info.Guard > 0 {
		d.guard(info.Guard)
	}
	if d.share > 0 {
		known.Memory = min(known.Memory, d.share)
	}
	known.Puts, known.Graphs = opened.Can().LoadAt != nil, opened.Can().NewGraph != nil
	known.Guards, known.Peers = info.Guards, info.Peers
	known.Speed = config.Speed
	return known
}

// comingDevice is the daemon's message that a device was added, with the device's lock.
type comingDevice struct {
	control.AddDevice
	lock *os.File
}

// add takes a device that was added while the client runs.
func (d *devices) add(came comingDevice) error {
	switch n := len(d.configs); {
	case came.Device > n:
		came.lock.Close()
		return fmt.Errorf("the daemon adds device %d to %d: %w", came.Device, n, errEnded)
	case came.Device == n:
		d.configs = append(slices.Clip(d.configs), came.Config)
		d.locks, d.opened = append(slices.Clip(d.locks), came.lock), append(d.opened, nil)
	default:
		d.locks[came.Device].Close()
		d.configs = slices.Clone(d.configs)
		d.configs[came.Device], d.locks[came.Device], d.opened[came.Device] = came.Config, came.lock, nil
	}
	return nil
}

// lost notes that a device is lost.
func (d *devices) lost(i int) {
	if i < len(d.configs) {
		d.configs = slices.Clone(d.configs)
		d.configs[i].Gone = true
	}
}

// inspect returns what an image contains, if a device can tell before it is loaded.
func (d *devices) inspect(image []byte) (outcome clientcore.Outcome) {
	for i := range d.configs {
		opened, wrong := d.at(i)
		if wrong != nil || opened.Can().Inspect == nil {
			continue
		}
		// A larger device may have room for the image.
		if outcome.Info, outcome.Err = opened.Can().Inspect(image); !errors.Is(outcome.Err, device.ErrOutOfMemory) {
			outcome.Known = true
			return outcome
		}
	}
	return outcome
}

// orLost turns the failure to open a borrowed device into the loss of that device: the lender has
// died, or no longer knows the ticket. The program did nothing wrong, so the client is to be
// rebuilt or moved rather than told.
func (d *devices) orLost(i int, err error) error {
	if d.configs[i].Lender.Ticket == "" {
		return err
	}
	return &device.Fault{Kind: device.DeviceLost, Detail: err.Error()}
}

// comingLoan is the daemon's message that a further device is lent, with the connection by which it is
// opened in another worker.
type comingLoan struct {
	control.GrantFurther
	way *os.File
}
