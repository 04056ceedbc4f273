package node

import (
	"fmt"
	"path/filepath"
	"time"

	"muster/node/fate"
	"muster/node/mps"
	"muster/node/spares"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire/control"
)

// Clients that MPS serves share faults. Package fate decides what becomes of them; this file
// carries that out.

// faults are those that clients share.
type faults struct {
	common
	sharing    *mps.Sharing
	spares     *spares.Spares
	writeDown  func(*client, *workers.Process) error
	mayRebuild func(*client) bool
}

// mpsOf is how the worker that will serve a client uses MPS; nil: as if there were none. It
// asks the loop, so the loop must not call it.
func (f *faults) mpsOf(c *client) (use *control.MPS) {
	if use = f.sharing.Used(false, 0); use != nil {
		f.loop.Ask(func() { use = f.sharing.Serve(f.loop.Now(), fate.Client(c.id), c.share) })
	}
	return use
}

// refusedByMPS notes that a client's worker could not begin under MPS, and says whether it had
// tried to: then the caller tries another worker without MPS.
func (f *faults) refusedByMPS(c *client, serve *control.Serve, why error) bool {
	if serve.MPS == nil || !serve.MPS.Shared {
		return false
	}
	f.log.Warn("a worker cannot begin under MPS: another is started without", "client", c.id, "error", why)
	return f.loop.Ask(func() { f.sharing.Refused(f.loop.Now(), fate.Client(c.id)) })
}

// renewTime is how long a client that was told to renew itself after a fault (renewOthers) may
// take to report that fault. A report within this time is taken for the same fault, a later
// one for another. A worker that has nothing on the device ignores the order, and reports
// nothing.
const renewTime = 10 * time.Second

// sharedFault takes a worker's report that a fault has ended what its client had on a device,
// where the fault may be another client's.
func (f *faults) sharedFault(c *client, device int, why string) {
	if !f.sharing.Fault(f.loop.Now(), fate.Client(c.id), f.loop.Now() < c.renewing) { // or this client was told of it, and so were the others
		return
	}
	f.log.Warn("a fault has ended what programs ran that share a GPU under MPS: each goes on by itself, and the one that faults again has caused it", "device", device, "seen by", c.id, "reason", why)
	f.renewOthers(c, device)
	f.spares.EndBroken()
}

// renewOthers has the other clients of a device rebuilt, since the fault has ended their
// contexts too. Some do not notice until they next use the device, and MPS takes no new
// clients until the old ones are gone.
func (f *faults) renewOthers(c *client, device int) {
	for _, other := range f.clients {
		if other == c || other.ending || other.worker == nil || !other.worker.Ready || f.sharing.State(fate.Client(other.id)) != fate.Shared || device < 0 {
			continue
		}
		other.renews(f.loop.Now())
		other.worker.Post(control.Renew{Device: device, Reason: "a fault of another client has ended what ran there"})
	}
}

// faultTold notes that a program was told of a fault on a device.
func (f *faults) faultTold(c *client, device vgpu.DeviceID) {
	switch {
	case f.sharing.Guilty(fate.Client(c.id)):
		f.log.Warn("a program has caused the fault that others saw: it shares no GPU under MPS from now on", "client", c.id, "user", c.peer.User.Name, "program", c.program)
		if c.worker != nil {
			_ = f.writeDown(c, c.worker) // what cannot be written is reported
		}
	case f.sharing.State(fate.Client(c.id)) == fate.Shared: // it cannot be rebuilt, and may have caused the fault or not
		f.renewOthers(c, int(device))
		f.spares.EndBroken()
	}
}

// returnCleared lets clients that did not cause a fault share their GPU again.
func (f *faults) returnCleared() {
	for _, id := range f.sharing.Due(f.loop.Now()) {
		c := f.clients[vgpu.ClientID(id)]
		if c == nil || c.order != nil || c.worker == nil || c.between || c.isAway() || !f.mayRebuild(c) {
			continue
		}
		f.log.Info("a client goes back to share its GPU with others under MPS", "client", c.id, "user", c.peer.User.Name)
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
	if d.ending.left.Load() {
		d.sharing.Service.Leave()
	} else {
		d.sharing.Close()
	}
}
