package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"muster/device"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/control"
)

// inventory is the node's devices, by their numbers. A number is never given up: that of a device
// which is gone waits for another. An inventory never changes: when a device comes or goes the loop
// stores a new one, so any goroutine may load the present one and use it without a lock.
type inventory struct {
	entries []stocked
}

// stocked is a device that the node has, or had.
type stocked struct {
	Device
	info   device.Info // of the part that programs may use
	lock   *os.File    // by which the workers that share it take turns
	here   bool        // false: it was removed or lost, and only its number is taken
	change uint64      // counts the devices that came or went under this number, to detect a stale entry
	byHand bool        // it came by a request, and the configuration does not know it
	ticket string      // by which it is borrowed; "": it is not borrowed by ticket
}

// Bounds on devices that a request describes; nodefile applies the same to files and flags.
const (
	deviceGranule = 2 << 20 // the memory of a software device is a multiple of this
	maxDeviceName = 200
	minSpeed      = 1e-6
	maxThreads    = 1024
)

// checkDevice refuses a description of a device that could not stand in a configuration file.
func checkDevice(c Device) error {
	switch {
	case c.Kind == "cuda" && (c.Index < 0 || c.Memory != 0 || c.Rate != 0 || c.CopyBandwidth != 0 || c.Workers != 0 || c.Engine != ""):
		return errors.New("a CUDA device has a number of the driver's and, if need be, a reserve; nothing else")
	case c.Kind == "cuda":
		return nil
	case c.Kind == KindRemote:
		return checkRemote(c)
	case c.Kind != "soft":
		return fmt.Errorf("there are no devices of kind %q: only soft, cuda and remote", printable(c.Kind))
	case c.Name == "" || len(c.Name) > maxDeviceName || printable(c.Name) != c.Name:
		return fmt.Errorf("%q is no name for a device: give 1 to %d characters that can be printed", printable(c.Name), maxDeviceName)
	case c.Memory == 0 || c.Memory%deviceGranule != 0:
		return errors.New("a software GPU's memory must be a multiple of 2MiB, above 0")
	case !(c.Speed >= minSpeed && c.Speed <= 1):
		return fmt.Errorf("speed must be above 0 and at most 1, not %g", c.Speed)
	case c.Rate != 0 && !(c.Rate >= 1e3 && c.Rate <= 1e15):
		return fmt.Errorf("rate must be a number of operations a second from 1e3 to 1e15, not %g", c.Rate)
	case c.Workers < 1 || c.Workers > maxThreads:
		return fmt.Errorf("workers must be a whole number from 1 to %d, not %d", maxThreads, c.Workers)
	case c.Engine != "" && !slices.Contains(control.Engines, c.Engine):
		return fmt.Errorf("engine must be one of %s, not %q", strings.Join(control.Engines, ", "), printable(c.Engine))
	}
	return nil
}

// checkRemote refuses an impossible description of another node's device.
func checkRemote(c Device) error {
	if _, _, err := net.SplitHostPort(c.Lender.Address); err != nil {
		return fmt.Errorf("another node's device needs that node's address as HOST:PORT: %w", err)
	}
	switch {
	case c.Index < 0 || c.Memory != 0 || c.Rate != 0 || c.CopyBandwidth != 0 || c.Workers != 0:
		return errors.New("another node's device has its number there; memory and speed are that node's affair")
	case c.Lender.Ticket != "": // the ticket authenticates this node, and Authority the other
	case c.Lender.Plain == (c.Lender.TLS != ""):
		return errors.New("another node is reached with the certificates in a folder (tls), or without TLS (plain): give one of the two")
	case c.Lender.Plain && c.Lender.Token == "":
		return errors.New("without TLS the two nodes show each other that they know a token: give the file that has it (token)")
	}
	return nil
}

// examine opens a device and says what programs can have of it.
func (d *daemon) examine(c Device) (device.Info, error) {
	opened, err := d.opts.Open(c.DeviceConfig)
	if err != nil {
		return device.Info{}, err
	}
	info := opened.Info()
	if info.Memory < c.Reserve || info.Memory-c.Reserve < info.ContextCost+info.Granularity {
		return info, fmt.Errorf("of its memory of %s nothing is left for programs: give it a smaller reserve", size(info.Memory))
	}
	info.Memory -= c.Reserve
	return info, nil
}

// dispatched is a device as the dispatcher knows it.
func dispatched(info device.Info, slots int) vgpu.Device {
	return vgpu.Device{Name: info.Name, Slots: slots, Speed: info.Speed, Memory: info.Memory, ContextCost: info.ContextCost}
}

// stockUp finds out what the devices of the configuration are.
func (d *daemon) stockUp() ([]vgpu.Device, error) {
	made := &inventory{}
	var devices []vgpu.Device
	for i, c := range d.cfg.Devices {
		info, err := d.examine(c)
		if err != nil {
			return nil, fmt.Errorf("device %d (%s): %w", i, strings.TrimSpace(c.Kind+" "+c.Name), err)
		}
		made.entries = append(made.entries, stocked{Device: c, info: info, here: true})
		devices = append(devices, dispatched(info, d.cfg.VGPUs))
	}
	d.stock.Store(made)
	return devices, nil
}

// makeLocks makes a lock for each device.
func (d *daemon) makeLocks() error {
	entries := d.stock.Load().entries
	for i := range entries {
		lock, err := d.folder.deviceLock(i)
		if err != nil {
			d.closeLocks()
			return err
		}
		entries[i].lock = lock
	}
	return nil
}

func (d *daemon) closeLocks() {
	for _, e := range d.stock.Load().entries {
		if e.lock != nil {
			e.lock.Close()
		}
	}
	if d.precedence != nil {
		d.precedence.Close()
	}
}

// infos describes the devices that programs are told of. Borrowed ones come and go with the load
// and are hidden from programs, except on a node that has no devices of its own.
func (v *inventory) infos() []device.Info {
	var own, borrowed []device.Info
	for _, e := range v.entries {
		switch {
		case !e.here:
		case e.ticket == "":
			own = append(own, e.info)
		default:
			borrowed = append(borrowed, e.info)
		}
	}
	if len(own) > 0 {
		return own
	}
	return borrowed
}

// onlyBorrows says that the node has no device of its own.
func (v *inventory) onlyBorrows() bool {
	return !slices.ContainsFunc(v.entries, func(e stocked) bool { return e.here && e.ticket == "" })
}

// config is what a worker is told of a device.
func (e *stocked) config() control.DeviceConfig {
	c := e.DeviceConfig
	c.Gone = !e.here
	return c
}

// openLocks opens the locks of all devices for one worker. The caller must close them as soon as
// the worker has them: a lock is released only when the last descriptor of its open file is closed,
// so a forgotten one here would keep what a dead worker had locked.
func (v *inventory) openLocks() ([]*os.File, error) {
	var locks []*os.File
	for _, e := range v.entries {
		lock, err := wire.OpenLock(e.lock)
		if err != nil {
			closeFiles(locks)
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// with returns a copy of the inventory in which one entry is e: an existing one, or the next.
func (v *inventory) with(number int, e stocked) *inventory {
	entries := slices.Clone(v.entries)
	if number == len(entries) {
		entries = append(entries, e)
	}
	entries[number] = e
	return &inventory{entries}
}

// errNoDevices is what programs are told while there are none.
var errNoDevices = refuse(resultNoDevice, "the node has no devices at present: ask the administrator to add one (muster device add)")

// numberFor is the number of a new device: wish, if that is not negative; else that of a device of
// its name which is gone; else the next; else that of any device which was removed.
func (v *inventory) numberFor(name string, wish int, state func(number int) vgpu.DeviceState) (int, error) {
	same, free, there := -1, -1, 0
	for i, e := range v.entries {
		is := state(i)
		switch {
		case is != vgpu.DeviceLost && is != vgpu.DeviceRemoved:
			there++
		case i == wish:
			return wish, nil
		case same < 0 && e.info.Name == name:
			same = i
		case free < 0 && is == vgpu.DeviceRemoved:
			free = i
		}
	}
	switch {
	case wish >= 0:
		return 0, fmt.Errorf("device #%d is there", wish)
	case there >= maxDevices:
		return 0, fmt.Errorf("the node has %d devices, as many as it may: remove one first (muster device remove)", there)
	case same >= 0:
		return same, nil
	case len(v.entries) < maxDevices:
		return len(v.entries), nil
	case free >= 0:
		return free, nil
	}
	return 0, errors.New("all numbers of devices are taken, some by devices that are lost: remove one of those first (muster device remove)")
}
