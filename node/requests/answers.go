package requests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"muster/node/ask"
	"muster/node/grants"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/grant"
	"muster/wire/status"
)

// --- devices ----------------------------------------------------------------------

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
		id, err := d.Stock.Load().Find(r.Device, d.Dispatcher.State)
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
		if state := d.Dispatcher.State(id); state == vgpu.DeviceLost || state == vgpu.DeviceRemoved {
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

// --- clients ----------------------------------------------------------------------

func (d *Desk) answerMove(who socket.Peer, r ask.MoveRequest) (any, error) {
	var changed status.Changed
	err := d.Loop.Try(func() error {
		if err := d.MayActOn(who, r.Client, d.Clients); err != nil {
			return err
		}
		id, err := d.Stock.Load().Find(r.Device, d.Dispatcher.State)
		if err != nil {
			return err
		}
		if err := d.Dispatcher.Tell(vgpu.Move{Client: r.Client, Device: id}); err != nil {
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

func (d *Desk) answerEnd(who socket.Peer, r ask.EndRequest) (any, error) {
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

// --- grants -----------------------------------------------------------------------

func (d *Desk) answerGrantAdmit(who socket.Peer, r ask.AdmitRequest) (any, error) {
	g := &grants.Granted{ID: r.ID, User: r.User, Hash: r.Hash, Shown: r.Shown, Devices: r.Devices, Limit: grant.AllDevices, Turns: r.Turns}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	g.Limit = *r.Limit
	if r.Expires != 0 {
		g.Expires = time.Unix(r.Expires, 0)
	}
	lent, err := d.lookAtLent(who, g, &r)
	if err != nil {
		return nil, err
	}
	return d.aboutGrant(who, r.ID, func() error { return d.Grants.Admit(g, lent...) })
}

// lookAtLent opens the devices of other nodes that a grant has, side by side: that must take less time than whoever
// admits the grant waits, who else would not know of it. Those of a grant that the node knows it has already.
func (d *Desk) lookAtLent(who socket.Peer, g *grants.Granted, r *ask.AdmitRequest) (lent []grants.Lent, err error) {
	if err := d.mayGrant(who); err != nil {
		return nil, err
	}
	if err := g.Check(); err != nil {
		return nil, err
	}
	afar := func(s ask.GrantedDevice) bool { return s.Lender != "" }
	switch some := slices.ContainsFunc(g.Devices, afar); {
	case !some && len(r.Secrets) == 0 && r.Authority == "":
		return nil, nil
	case !some:
		return nil, errors.New("secrets and the authority are for devices of other nodes, and the grant has none: leave them out")
	case slices.ContainsFunc(g.Devices, func(s ask.GrantedDevice) bool { return afar(s) && r.Secrets[s.Lender].Validate() != nil }):
		return nil, errors.New("some devices are other nodes', and the secret with which this node would use them is missing")
	case d.knowsGrant(g.ID):
		return nil, nil
	}
	var far []settings.Device
	var places []int // in the grant
	for i, s := range g.Devices {
		if afar(s) {
			far = append(far, settings.Device{DeviceConfig: control.DeviceConfig{
				Kind: settings.KindRemote, Index: s.Place,
				Lender: control.Lender{Address: s.Lender, Ticket: string(r.Secrets[s.Lender]), Granted: true, Authority: r.Authority, Revoked: d.Revoked},
			}})
			places = append(places, i)
		}
	}
	for k, is := range d.Stock.ExamineTogether(far) {
		if is.Err != nil {
			return nil, fmt.Errorf("device %d, of the node at %s: %w; admit the grant there first", places[k], far[k].Lender.Address, is.Err)
		}
		lent = append(lent, grants.Lent{Device: far[k], Info: is.Info})
	}
	return lent, nil
}

// knowsGrant says whether there is a grant with this name.
func (d *Desk) knowsGrant(id string) (known bool) {
	d.Loop.Ask(func() { d.Grants.Expire(); known = d.Grants.Of(id) != nil })
	return known
}

func (d *Desk) answerGrantRevoke(who socket.Peer, r ask.GrantRequest) (any, error) {
	reason := settings.Printable(r.Reason)
	if reason == "" {
		reason = fmt.Sprintf("grant %s was revoked", settings.Printable(r.ID))
	}
	return d.aboutGrant(who, "", func() error { return d.Grants.Revoke(r.ID, reason) })
}

func (d *Desk) answerGrantLimit(who socket.Peer, r ask.GrantRequest) (any, error) {
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.Grants.Limit(r.ID, *r.Limit) })
}

func (d *Desk) answerGrants(who socket.Peer, r ask.GrantsRequest) (any, error) {
	if r.Claim == "" {
		return d.aboutGrant(who, r.ID, func() error { return nil })
	}
	claim, err := grant.ParseClaim(r.Claim)
	if err != nil {
		return nil, err
	}
	if !d.IsOwner(who) { // the daemon's own process asks, which is the gateway's, too
		return nil, fmt.Errorf("only root and user %s, whose node it is, may ask what a claim means, not %s", d.Own.Name, who.User.Name)
	}
	return d.listGrants(func() ([]string, error) {
		d.Grants.Expire()
		if g := d.Grants.Claimed(claim, r.User); g != nil {
			return []string{g.ID}, nil
		}
		return nil, nil
	})
}

// aboutGrant has the loop run do, and answers with one grant, or with all if id is "".
func (d *Desk) aboutGrant(who socket.Peer, id string, do func() error) (any, error) {
	if err := d.mayGrant(who); err != nil {
		return nil, err
	}
	return d.listGrants(func() ([]string, error) {
		if err := do(); err != nil || id != "" {
			return []string{id}, err
		}
		return d.Grants.Ids(), nil
	})
}

// listGrants answers with those grants that which names. The loop calls which.
func (d *Desk) listGrants(which func() ([]string, error)) (any, error) {
	answer := status.Grants{Node: d.Node, Grants: []status.Grant{}}
	err := d.Loop.Try(func() error {
		ids, err := which()
		for _, id := range ids {
			if g := d.Grants.Of(id); g != nil && err == nil {
				answer.Grants = append(answer.Grants, d.GrantStatus(g))
			}
		}
		return err
	})
	return answer, err
}
