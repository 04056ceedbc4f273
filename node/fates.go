package node

import (
	"fmt"
	"path/filepath"
	"time"

	"muster/node/fate"
	"muster/node/mps"
	"muster/node/vgpu"
	"muster/wire/control"
)

// Clients that MPS serves share faults. Package fate decides what becomes of them; this file
// carries that out.

// mpsOf is how the worker that will serve a client uses MPS; nil: as if there were none. It
// asks the loop, so the loop must not call it.
func (d *daemon) mpsOf(c *client) (use *control.MPS) {
	if use = d.sharing.Used(false, 0); use != nil {
		d.loop.Ask(func() { use = d.sharing.Serve(d.loop.Now(), fate.Client(c.id), c.share) })
	}
	return use
}

// refusedByMPS notes that a client's worker could not begin under MPS, and says whether it had
// tried to: then the caller tries another worker without MPS.
func (d *daemon) refusedByMPS(c *client, serve *control.Serve, why error) bool {
	if serve.MPS == nil || !serve.MPS.Shared {
		return false
	}
	d.log.Warn("a worker cannot begin under MPS: another is started without", "client", c.id, "error", why)
	return d.loop.Ask(func() { d.sharing.Refused(d.loop.Now(), fate.Client(c.id)) })
}

// renewTime is how long a client that was told to renew itself after a fault (renewOthers) may
// take to report that fault. A report within this time is taken for the same fault, a later
// one for another. A worker that has nothing on the device ignores the order, and reports
// nothing.
const renewTime = 10 * time.Second

// sharedFault takes a worker's report that a fault has ended what its client had on a device,
// where the fault may be another client's.
func (d *daemon) sharedFault(c *client, device int, why string) {
	if !d.sharing.Fault(d.loop.Now(), fate.Client(c.id), d.loop.Now() < c.renewing) { // or this client was told of it, and so were the others
		return
	}
	d.log.Warn("a fault has ended what programs ran that share a GPU under MPS: each goes on by itself, and the one that faults again has caused it", "device", device, "seen by", c.id, "reason", why)
	d.renewOthers(c, device)
	d.spares.EndBroken()
}

// renewOthers has the other clients of a device rebuilt, since the fault has ended their
// contexts too. Some do not notice until they next use the device, and MPS takes no new
// clients until the old ones are gone.
func (d *daemon) renewOthers(c *client, device int) {
	for _, other := range d.clients {
		if other == c || other.ending || other.worker == nil || !other.worker.Ready || d.sharing.State(fate.Client(other.id)) != fate.Shared || device < 0 {
			continue
		}
		other.renewing = d.loop.Now() + renewTime
		other.worker.Post(control.Renew{Device: device, Reason: "a fault of another client has ended what ran there"})
	}
}

// faultTold notes that a program was told of a fault on a device.
func (d *daemon) faultTold(c *client, device vgpu.DeviceID) {
	switch {
	case d.sharing.Guilty(fate.Client(c.id)):
		d.log.Warn("a program has caused the fault that others saw: it shares no GPU under MPS from now on", "client", c.id, "user", c.peer.User.Name, "program", c.program)
		if c.worker != nil {
			_ = d.writeDown(c, c.worker) // what cannot be written is reported
		}
	case d.sharing.State(fate.Client(c.id)) == fate.Shared: // it cannot be rebuilt, and may have caused the fault or not
		d.renewOthers(c, int(device))
		d.spares.EndBroken()
	}
}

// returnCleared lets clients that did not cause a fault share their GPU again.
func (d *daemon) returnCleared() {
	for _, id := range d.sharing.Due(d.loop.Now()) {
		c := d.clients[vgpu.ClientID(id)]
		if c == nil || c.order != nil || c.worker == nil || c.between || c.isAway() || !d.mayRebuild(c) {
			continue
		}
		d.log.Info("a client goes back to share its GPU with others under MPS", "client", c.id, "user", c.peer.User.Name)
		c.worker.Post(control.Renew{Device: -1, Reason: "it goes back to share its GPU with others under MPS"})
	}
}

// openMPS starts or finds the service, as the configuration says.
func (d *daemon) openMPS() error {
	folder := "" // without a state nobody could end what a killed daemon had started
	if d.keeper != nil {
		folder = filepath.Join(d.keeper.Dir, mps.Folder)
	}
	service, err := mps.Open(d.cfg.MPS, folder, mps.Queues(d.cfg.VGPUs), d.cfg.HasCUDA(), d.log)
	d.sharing = service.Share(d.rights.Own.Name)
	if err != nil {
		return fmt.Errorf("mps: on: %w", err)
	}
	return nil
}

// closeMPS ends the node's service, or leaves it to the next node with its clients.
func (d *daemon) closeMPS() {
	if d.left.Load() {
		d.sharing.Service.Leave()
	} else {
		d.sharing.Close()
	}
}
