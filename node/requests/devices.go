package requests

import (
	"errors"
	"fmt"
	"muster/node/ask"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire/status"
)

// onDevice reads a request about a device, and finds it. The loop calls do with it; the
// answer is the device as it is then.
func (d *Desk) onDevice(who socket.Peer, line []byte, mayForce bool, do func(id vgpu.DeviceID, force bool) error) (any, error) {
	if err := d.MayChange(who); err != nil {
		return nil, err
	}
	var r ask.DeviceRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Force && !mayForce {
		return nil, fmt.Errorf("%s cannot be forced", r.Request)
	}
	var changed status.Changed
	err := d.Loop.Try(func() error {
		id, err := d.Stock.Load().Find(r.Device, d.Core.State)
		if err == nil {
			err = do(id, r.Force)
		}
		if err == nil {
			changed = d.changedDevice(id)
		}
		return err
	})
	return changed, err
}

// changedDevice is a device as it is now. Only the loop calls it.
func (d *Desk) changedDevice(id vgpu.DeviceID) status.Changed {
	number := int(id)
	is := d.Picture().Devices[number]
	return status.Changed{Number: &number, Device: &is}
}

func (d *Desk) answerDrain(who socket.Peer, line []byte) (any, error) {
	return d.onDevice(who, line, false, func(id vgpu.DeviceID, _ bool) error { return d.Stock.Drain(id) })
}

func (d *Desk) answerRemove(who socket.Peer, line []byte) (any, error) {
	return d.onDevice(who, line, true, d.Stock.Remove)
}

// answerResume has a device take programs again: one that is drained, or one that was
// lost or removed and can be opened now. Opening takes a while, so that is done outside
// the loop.
func (d *Desk) answerResume(who socket.Peer, line []byte) (any, error) {
	var again *inventory.Device
	number := stock.AnyNumber
	reply, err := d.onDevice(who, line, false, func(id vgpu.DeviceID, _ bool) error {
		if state := d.Core.State(id); state == vgpu.DeviceLost || state == vgpu.DeviceRemoved {
			number, again = id, &d.Stock.Load().Entries[id]
			return nil
		}
		return d.Stock.Resume(id)
	})
	if err != nil || again == nil {
		return reply, err
	}
	return d.openAndAdd(again.Device, number, again.ByHand)
}

func (d *Desk) answerAdd(who socket.Peer, line []byte) (any, error) {
	if err := d.MayChange(who); err != nil {
		return nil, err
	}
	var r ask.AddRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Add.Gone {
		return nil, errors.New("a device that is gone cannot be added")
	}
	return d.openAndAdd(settings.Device{DeviceConfig: r.Add, Reserve: r.Reserve}, stock.AnyNumber, true)
}

// openAndAdd opens a device, which may take a while, and adds it.
func (d *Desk) openAndAdd(c settings.Device, number vgpu.DeviceID, byHand bool) (any, error) {
	if err := settings.CheckDevice(c); err != nil {
		return nil, err
	}
	info, err := d.Stock.Examine(c)
	if err != nil {
		return nil, fmt.Errorf("the device cannot be opened: %w", err)
	}
	var changed status.Changed
	err = d.Loop.Try(func() error {
		id, err := d.Stock.Add(c, info, number, byHand)
		if err == nil {
			changed = d.changedDevice(id)
		}
		return err
	})
	return changed, err
}
