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

// inventory is what the node has, by the devices' numbers. A number is never given
// up: that of a device which is gone waits for another. It is a value that does not
// change: when a device comes or goes the loop makes a new one, and whoever needs it
// takes the present one.
type inventory struct {
	entries []stocked
}

// stocked is a device that is there, or was.
type stocked struct {
	Device
	info   device.Info // of what programs may use of it
	lock   *os.File    // for the workers that share it
	here   bool        // false: it was removed or lost, and only its number is taken
	change uint64      // counts how often a device came or went under this number
	byHand bool        // it came by a request, and the configuration does not know it
	ticket string      // by which it is borrowed; "": it is the node's own
}

// What a device may be that somebody asks for; nodefile holds files and flags to the
// same.
const (
	deviceGranule = 2 << 20 // software devices have whole pieces of memory
	maxDeviceName = 200
	minSpeed      = 1e-6
	maxThreads    = 1024
)

// checkDevice refuses a description of a device that no file could have.
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

// checkRemote refuses a description of another node's device.
func checkRemote(c Device) error {
	if _, _, err := net.SplitHostPort(c.Lender.Address); err != nil {
		return fmt.Errorf("another node's device needs that node's address as HOST:PORT: %w", err)
	}
	switch {
	case c.Index < 0 || c.Memory != 0 || c.Rate != 0 || c.CopyBandwidth != 0 || c.Workers != 0:
		return errors.New("another node's device has its number there; memory and speed are that node's affair")
	case c.Lender.Ticket != "": // it says who we are, and the daemon knows the other node
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

// infos are those of the devices that are there, of which programs are told. What is borrowed comes and
// goes with the load, and is hidden from them: it counts only on a node that has no devices of its own.
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

// openLocks opens the locks of all devices for one worker. They must be closed as
// soon as the worker has them: what it has locked is free only when nobody has them
// open any more.
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

// with returns an inventory in which one entry is another: one of those there are, or
// the next.
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

// numberFor is the number of a device that comes: the one that is wished for, if any is,
// else that of a device of its name which is gone, else the next, else that of any
// which was removed.
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
