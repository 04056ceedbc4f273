package node

import (
	"os"
	"time"

	"muster/node/fate"
	"muster/node/vgpu"
	"muster/wire/control"
)

// Clients that MPS serves share faults. Package fate decides what becomes of them; this file
// carries that out.

// mayShare says whether MPS may serve a client. A control daemon serves one user at a time and
// makes the others wait, so only the node's own user is served. On a node that runs as root,
// workers that become another user have contexts of their own.
func (d *daemon) mayShare(who peer) bool {
	return d.mps != nil && d.mps.pipe != "" && (who.user.uid == 0 || os.Geteuid() != 0)
}

// shareOf is the part of a device's multiprocessors that a program may use, in percent; 0 for
// all. A program gets what it asked for, but no more than its user may have. A request that
// cannot be met at all is refused. The user's limit from the configuration counts only where
// MPS serves the program.
func (d *daemon) shareOf(asked uint32, who peer, limits UserLimits) (int, error) {
	switch {
	case asked > 100:
		return 0, refuse(resultNotPermitted, "a share of %d%% of the multiprocessors: give 1%% to 100%% (muster run --share, or MUSTER_SHARE)", asked)
	case asked != 0 && (d.mps == nil || d.mps.pipe == ""):
		return 0, refuse(resultNotPermitted, "the node serves programs without MPS, which a share of the multiprocessors needs: leave --share (or MUSTER_SHARE) out, or ask the administrator for mps: on")
	case asked != 0 && !d.mayShare(who):
		return 0, refuse(resultNotPermitted, "the node's MPS serves programs of user %s only, and a share of the multiprocessors needs it: leave --share (or MUSTER_SHARE) out", d.own.name)
	case asked == 0:
		return limits.Share, nil
	case limits.Share == 0:
		return int(asked), nil
	}
	return min(int(asked), limits.Share), nil
}

// joinFates notes a new client. Only the loop calls it.
func (d *daemon) joinFates(c *client) {
	state := fate.Apart
	if d.mayShare(c.peer) {
		state = fate.Shared
	}
	d.fates.Join(d.now(), fate.Client(c.id), state)
}

// mpsOf is how the worker that will serve a client uses MPS; nil: as if there were none. It
// asks the loop, so the loop must not call it.
func (d *daemon) mpsOf(c *client) (use *control.MPS) {
	nowhere := d.mps.nowhere()
	if nowhere == "" {
		return nil
	}
	use = &control.MPS{Pipe: nowhere}
	d.ask(func() {
		folder := d.mps.folder()
		switch {
		case !d.fates.Serve(fate.Client(c.id)):
		case folder == "":
			d.fates.Refused(d.now(), fate.Client(c.id))
		default:
			use = d.mps.used(true, c.share)
		}
	})
	return use
}

// refusedByMPS notes that a client's worker could not begin under MPS, and says whether it had
// tried to: then the caller tries another worker without MPS.
func (d *daemon) refusedByMPS(c *client, serve *control.Serve, why error) bool {
	if serve.MPS == nil || !serve.MPS.Shared {
		return false
	}
	d.log.Warn("a worker cannot begin under MPS: another is started without", "client", c.id, "error", why)
	return d.ask(func() { d.fates.Refused(d.now(), fate.Client(c.id)) })
}

// renewTime is how long a client that was told to renew itself after a fault (renewOthers) may
// take to report that fault. A report within this time is taken for the same fault, a later
// one for another. A worker that has nothing on the device ignores the order, and reports
// nothing.
const renewTime = 10 * time.Second

// sharedFault takes a worker's report that a fault has ended what its client had on a device,
// where the fault may be another client's.
func (d *daemon) sharedFault(c *client, device int, why string) {
	if !d.fates.Fault(d.now(), fate.Client(c.id)) {
		return
	}
	if d.now() < c.renewing {
		return // it is the fault that this client was told of, and so were the others
	}
	d.sharedFaults++
	d.log.Warn("a fault has ended what programs ran that share a GPU under MPS: each goes on by itself, and the one that faults again has caused it", "device", device, "seen by", c.id, "reason", why)
	d.renewOthers(c, device)
	d.endBrokenSpares()
}

// renewOthers has the other clients of a device rebuilt, since the fault has ended their
// contexts too. Some do not notice until they next use the device, and MPS takes no new
// clients until the old ones are gone.
func (d *daemon) renewOthers(c *client, device int) {
	for _, other := range d.clients {
		if other == c || other.ending || other.worker == nil || !other.worker.ready || d.fates.State(fate.Client(other.id)) != fate.Shared || device < 0 {
			continue
		}
		other.renewing = d.now() + renewTime
		other.worker.post(control.Renew{Device: device, Reason: "a fault of another client has ended what ran there"})
	}
}

// faultTold notes that a program was told of a fault on a device.
func (d *daemon) faultTold(c *client, device vgpu.DeviceID) {
	switch {
	case d.fates.Guilty(fate.Client(c.id)):
		d.log.Warn("a program has caused the fault that others saw: it shares no GPU under MPS from now on", "client", c.id, "user", c.peer.user.name, "program", c.program)
		if c.worker != nil {
			_ = d.writeDown(c, c.worker) // what cannot be written is reported
		}
	case d.fates.State(fate.Client(c.id)) == fate.Shared: // it cannot be rebuilt, and may have caused the fault or not
		d.renewOthers(c, int(device))
		d.endBrokenSpares()
	}
}

// returnCleared lets clients that did not cause a fault share their GPU again.
func (d *daemon) returnCleared() {
	if d.mps.folder() == "" {
		return
	}
	for _, id := range d.fates.Due(d.now()) {
		c := d.clients[vgpu.ClientID(id)]
		if c == nil || c.order != nil || c.worker == nil || c.between || c.isAway() || !d.mayRebuild(c) {
			continue
		}
		d.log.Info("a client goes back to share its GPU with others under MPS", "client", c.id, "user", c.peer.user.name)
		c.worker.post(control.Renew{Device: -1, Reason: "it goes back to share its GPU with others under MPS"})
	}
}

// nextReturn is when a client goes back to share.
func (d *daemon) nextReturn() (at time.Duration, ok bool) {
	if d.mps.folder() == "" {
		return 0, false
	}
	return d.fates.Next()
}
