package inventory

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"muster/device"
	"muster/internal/units"
	"muster/model"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/control"
)

// Inventory is the node's devices, by their numbers. A number is never given up: that of a device
// which is gone waits for another. An inventory never changes: when a device comes or goes the loop
// stores a new one, so any goroutine may load the present one and use it without a lock.
type Inventory struct {
	Entries []Device
}

// Device is a device that the node has, or had.
type Device struct {
	settings.Device
	Info   device.Info // of the part that programs may use
	Lock   *os.File    // by which the workers that share it take turns
	Here   bool        // false: it was removed or lost, and only its number is taken
	Change uint64      // counts the devices that came or went under this number, to detect a stale entry
	ByHand bool        // it came by a request, and the configuration does not know it
}

// IsLent says whether another node lends the device for as long as it can spare it, by a ticket.
func (d *Device) IsLent() bool { return d.Lender.Ticket != "" && !d.Lender.Granted }

// Distance scales the speed of another node's device. It is small enough for a program there to
// come home when a device here is idle (vgpu: the gain must be 1.2), and large enough that an idle
// device elsewhere still counts for more than one here that two programs share.
const Distance = 0.8

// Examine opens a device and says what programs can have of it.
func Examine(c settings.Device, open func(control.DeviceConfig) (device.Device, error)) (device.Info, error) {
	opened, err := open(c.DeviceConfig)
	if err != nil {
		return device.Info{}, err
	}
	info := opened.Info()
	if info.Memory < c.Reserve || info.Memory-c.Reserve < info.ContextCost+info.Granularity {
		return info, fmt.Errorf("of its memory of %s nothing is left for programs: give it a smaller reserve", units.BriefSize(info.Memory))
	}
	info.Memory -= c.Reserve
	if c.Lender.Granted { // that of a device with a ticket is what the ticket says
		info.Speed *= Distance
	}
	return info, nil
}

// Examined is what came of Examine.
type Examined struct {
	Info device.Info
	Err  error
}

// ExamineTogether examines devices side by side: those of other nodes take seconds each if these are not reached.
func ExamineTogether(list []settings.Device, open func(control.DeviceConfig) (device.Device, error)) []Examined {
	all := make([]Examined, len(list))
	var looks sync.WaitGroup
	for i, c := range list {
		looks.Go(func() { all[i].Info, all[i].Err = Examine(c, open) })
	}
	looks.Wait()
	return all
}

// Dispatched is the device as the dispatcher knows it.
func (d *Device) Dispatched(slots int) vgpu.Device {
	i := &d.Info
	return vgpu.Device{Name: i.Name, Slots: slots, Speed: i.Speed, Memory: i.Memory, ContextCost: i.ContextCost, Elsewhere: d.Kind == settings.KindRemote, Granted: d.Lender.Granted}
}

// Infos describes the devices that programs without a grant are told of. Borrowed ones come and go with the load
// and are hidden from programs, except on a node that has no devices of its own.
func (v *Inventory) Infos() []device.Info {
	var own, borrowed []device.Info
	for _, e := range v.Entries {
		switch {
		case !e.Here || e.Lender.Granted:
		case !e.IsLent():
			own = append(own, e.Info)
		default:
			borrowed = append(borrowed, e.Info)
		}
	}
	if len(own) > 0 {
		return own
	}
	return borrowed
}

// OnlyBorrows says that the node has no device of its own.
func (v *Inventory) OnlyBorrows() bool {
	return !slices.ContainsFunc(v.Entries, func(e Device) bool { return e.Here && e.Lender.Ticket == "" })
}

// Config is what a worker is told of a device.
func (e *Device) Config() control.DeviceConfig {
	c := e.DeviceConfig
	c.Gone = !e.Here
	return c
}

// OpenLocks opens the locks of all devices for one worker. The caller must close them as soon as
// the worker has them: a lock is released only when the last descriptor of its open file is closed,
// so a forgotten one here would keep what a dead worker had locked.
func (v *Inventory) OpenLocks() ([]*os.File, error) {
	var locks []*os.File
	for _, e := range v.Entries {
		lock, err := wire.OpenLock(e.Lock)
		if err != nil {
			proc.CloseAll(locks)
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

// With returns a copy of the inventory in which one entry is e: an existing one, or the next.
func (v *Inventory) With(number int, e Device) *Inventory {
	entries := slices.Clone(v.Entries)
	if number == len(entries) {
		entries = append(entries, e)
	}
	entries[number] = e
	return &Inventory{entries}
}

// NumberFor is the number of a new device: wish, if that is not negative; else that of a device of
// its name which is gone, unless one of them is a grant's and may come back; else the next; else that of any device which was removed.
func (v *Inventory) NumberFor(name string, granted bool, wish int, state func(vgpu.DeviceID) vgpu.DeviceState) (int, error) {
	same, free, there := -1, -1, 0
	for i, e := range v.Entries {
		is := state(vgpu.DeviceID(i))
		switch {
		case is != vgpu.DeviceLost && is != vgpu.DeviceRemoved:
			there++
		case i == wish:
			return wish, nil
		case same < 0 && e.Info.Name == name && (is == vgpu.DeviceRemoved || !granted && !e.Lender.Granted):
			same = i
		case free < 0 && is == vgpu.DeviceRemoved:
			free = i
		}
	}
	switch {
	case wish >= 0:
		return 0, fmt.Errorf("device #%d is there", wish)
	case there >= settings.MaxDevices:
		return 0, fmt.Errorf("the node has %d devices, as many as it may: remove one first (muster device remove)", there)
	case same >= 0:
		return same, nil
	case len(v.Entries) < settings.MaxDevices:
		return len(v.Entries), nil
	case free >= 0:
		return free, nil
	}
	return 0, errors.New("all numbers of devices are taken, some by devices that are lost: remove one of those first (muster device remove)")
}

// SamePlace finds the device that is the same piece of hardware as c; -1 if there is none.
// There may be any number of software devices, and of tickets for one device.
func (v *Inventory) SamePlace(c settings.Device, state func(vgpu.DeviceID) vgpu.DeviceState) vgpu.DeviceID {
	if c.Lender.Ticket != "" {
		return -1
	}
	for i, e := range v.Entries {
		is := state(vgpu.DeviceID(i))
		if c.Kind != "soft" && e.Kind == c.Kind && e.Index == c.Index && e.Lender.Address == c.Lender.Address && is != vgpu.DeviceRemoved && is != vgpu.DeviceLost {
			return vgpu.DeviceID(i)
		}
	}
	return -1
}

// IndexFor gives a software device an index of its own; others have the driver's.
func (v *Inventory) IndexFor(c settings.Device) int {
	if c.Kind != "soft" {
		return c.Index
	}
	taken := map[int]bool{}
	for _, e := range v.Entries {
		taken[e.Index] = taken[e.Index] || e.Here && e.Kind == c.Kind
	}
	for i := 0; ; i++ {
		if !taken[i] {
			return i
		}
	}
}

// NameOf is the name of a device.
func (v *Inventory) NameOf(id vgpu.DeviceID) string { return v.Entries[id].Info.Name }

// Call names a device for people.
func (v *Inventory) Call(id vgpu.DeviceID) string {
	return fmt.Sprintf("device #%d (%s)", int(id), v.NameOf(id))
}

// Find finds a device by its name, as #N or, if none has that for a name, by its
// number alone: a shell takes # for a comment. Of several with one name, those that were
// removed do not count if another is there.
func (v *Inventory) Find(word string, state func(vgpu.DeviceID) vgpu.DeviceState) (vgpu.DeviceID, error) {
	entries := v.Entries
	if digits, ok := strings.CutPrefix(word, "#"); ok {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n >= len(entries) {
			return 0, fmt.Errorf("there is no device %s: give one of #0 to #%d", word, len(entries)-1)
		}
		return vgpu.DeviceID(n), nil
	}
	var found, gone []vgpu.DeviceID
	var names []string
	for i, e := range entries {
		names = append(names, e.Info.Name)
		switch {
		case e.Info.Name != word:
		case state(vgpu.DeviceID(i)) == vgpu.DeviceRemoved:
			gone = append(gone, vgpu.DeviceID(i))
		default:
			found = append(found, vgpu.DeviceID(i))
		}
	}
	if len(found) == 0 {
		found = gone
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return 0, fmt.Errorf("%d devices are named %q: say which by its number, as #%d", len(found), word, int(found[0]))
	}
	if n, err := strconv.Atoi(word); err == nil && n >= 0 && n < len(entries) {
		return vgpu.DeviceID(n), nil
	}
	if near := model.Nearest(word, names); near != "" {
		return 0, fmt.Errorf("there is no device %q: did you mean %q?", word, near)
	}
	return 0, fmt.Errorf("there is no device %q: muster device list names those there are", word)
}

// FreeNumber is the number for one more device: the next or, if all numbers are taken,
// that of a device which is gone and to which nobody refers.
func (v *Inventory) FreeNumber(referred map[int]bool) int {
	if len(v.Entries) >= settings.MaxDevices {
		for i, e := range v.Entries {
			if !e.Here && !referred[i] {
				return i
			}
		}
	}
	return len(v.Entries)
}

// TakeAlike takes the device out of a list that matches what a worker knows. Software
// devices whose order has changed match too, but only if none matches exactly.
func TakeAlike(list *[]settings.Device, was control.DeviceConfig) (settings.Device, bool) {
	for _, exactly := range []bool{true, false} {
		at := slices.IndexFunc(*list, func(c settings.Device) bool {
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
	return settings.Device{}, false
}

// IsBorrowed says whether a device is one that the node has a ticket for.
func (v *Inventory) IsBorrowed(id vgpu.DeviceID) bool {
	return id >= 0 && int(id) < len(v.Entries) && v.Entries[id].IsLent()
}

// Lends says whether guests may have a device. Devices that this node borrows are not its to
// lend.
func (e *Device) Lends() bool { return e.Here && e.Kind != settings.KindRemote }

// ShownAs is the number of the device at a place among those that guests are shown.
func (v *Inventory) ShownAs(place int) int {
	for number := range v.Entries {
		if v.Entries[number].Lends() {
			if place--; place < 0 {
				return number
			}
		}
	}
	return place
}
