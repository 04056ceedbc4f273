package requests

import (
	"fmt"
	"strings"
	"unicode"

	"muster/node/ask"
	"muster/node/socket"
	"muster/node/vgpu"
	"muster/wire/status"
)

func (d *Desk) answerMove(who socket.Peer, line []byte) (any, error) {
	var r ask.MoveRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	var changed status.Changed
	err := d.Loop.Try(func() error {
		if err := d.MayActOn(who, r.Client, d.Clients); err != nil {
			return err
		}
		id, err := d.Stock.Load().Find(r.Device, d.Core.State)
		if err != nil {
			return err
		}
		if err := d.Core.Tell(vgpu.Move{Client: r.Client, Device: id}); err != nil {
			return err
		}
		d.Log.Info("a client is moved by hand", "client", r.Client, "device", int(id), "by", who.User.Name)
		changed = d.changedDevice(id)
		is := d.Clients.Status(r.Client)
		changed.Client = &is
		return nil
	})
	return changed, err
}

// maxReason is how long the reason may be that a program's user is told.
const maxReason = 256

func (d *Desk) answerEnd(who socket.Peer, line []byte) (any, error) {
	var r ask.EndRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	if len(r.Reason) > maxReason || strings.ContainsFunc(r.Reason, unicode.IsControl) {
		return nil, fmt.Errorf("the reason must be one line of at most %d bytes", maxReason)
	}
	var changed status.Changed
	err := d.Loop.Try(func() error {
		if err := d.MayActOn(who, r.Client, d.Clients); err != nil {
			return err
		}
		is := d.Clients.Status(r.Client)
		changed.Client = &is
		why := "user " + who.User.Name + " ended it (muster kill)"
		if r.Reason != "" {
			why += ": " + r.Reason
		}
		d.Clients.End(r.Client, why)
		return nil
	})
	return changed, err
}
