package node

import (
	"time"

	"muster/node/fate"
	"muster/node/inventory"
	"muster/node/proc"
	"muster/node/survival"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
)

// The next daemon learns of a client from two files: one says who the client is, and is written
// when it is attached or gets another worker; the other says where it stands, and is written often.
// Of what a worker claims about its user, limits and leases, only what these files confirm counts.

// --- writing -------------------------------------------------------------------

// saveDue writes statistics if it is time.
func (d *daemon) saveDue() {
	if !d.keeper.TakeDue(d.loop.Now()) {
		return
	}
	d.saveNode()
	count := 0
	for _, c := range d.clients {
		if !c.unsaved || !c.isKept() {
			continue
		}
		if count++; count > survival.MostSaved {
			d.keeper.Again(d.loop.Now())
			return
		}
		d.save(c)
	}
}

// isKept says whether a client has a file.
func (c *client) isKept() bool { return c.worker != nil && c.held != nil && !c.ending }

// writeDown writes down who a client is, that a worker has it, and where it stands.
func (d *daemon) writeDown(c *client, w *workers.Process) (err error) {
	if d.keeper == nil || c.held == nil || c.ending {
		return nil
	}
	if c.standing == nil {
		c.standing, err = d.keeper.Standing(c.id)
	}
	if err == nil {
		d.save(c)
		f := d.fileOf(c, w)
		err = d.keeper.WriteClient(&f)
	}
	return d.keeper.Wrote("a client's state", err)
}

// save writes down where a client stands.
func (d *daemon) save(c *client) {
	if c.standing == nil {
		return
	}
	c.unsaved = false
	s := d.stateOf(c)
	c.place = s.Place
	d.keeper.WriteStanding(c.standing, &s)
}

// forgetFile removes the files of a client that has ended.
func (d *daemon) forgetFile(c *client) {
	if c.standing != nil {
		c.standing.Close()
		c.standing = nil
		d.keeper.Forget(c.id)
		d.keeper.Touch(d.loop.Now())
	}
}

// saveNode writes what is known of the node.
func (d *daemon) saveNode() {
	if d.keeper != nil {
		f := d.nodeFile()
		d.keeper.WriteNode(&f)
	}
}

// saveChanged writes down the clients whose leases an event has changed, before their workers are
// told.
func (d *daemon) saveChanged(now time.Duration, e vgpu.Event, effects []vgpu.Effect) {
	if d.keeper == nil {
		return
	}
	look := func(id vgpu.ClientID) {
		c := d.clients[id]
		if v, ok := d.core.Client(id); ok && c != nil && survival.PlaceOf(v) != c.place {
			d.save(c)
		}
	}
	switch e := e.(type) {
	case vgpu.Released:
		look(e.Client)
	case vgpu.Faulted:
		look(e.Client)
	case vgpu.Freed: // before the client that gets this memory
		look(e.Client)
	case vgpu.Tick:
	default:
		d.keeper.Touch(now)
	}
	for _, effect := range effects {
		if effect.Kind == vgpu.Grant || effect.Kind == vgpu.Gone {
			look(effect.Client)
		}
	}
}

func (d *daemon) fileOf(c *client, w *workers.Process) survival.ClientFile {
	return survival.ClientFile{
		Version: survival.StateVersion, Boot: proc.Boot(), Client: c.id,
		UID: c.peer.User.UID, User: c.peer.User.Name, Pid: c.peer.PID, Address: c.peer.Address, Program: c.program, Grant: c.under.Id(), Share: c.under.Share, Ordinal: c.ordinal, Guest: c.guest.file(),
		Weight: c.weight, Latency: c.latency, Mapping: c.mapping, Fate: d.sharing.State(fate.Client(c.id)), Portion: c.share, Memory: c.memory, MemoryBy: c.memoryBy, Shown: c.shown, ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Since: d.loop.Start().Add(c.since), Ring: c.ring, Data: c.data,
		Worker: survival.WorkerFile{Pid: w.PID(), Start: w.Started, UID: w.UID}, Files: c.held, Attached: c.attached,
	}
}

func (d *daemon) stateOf(c *client) survival.ClientState {
	v, _ := d.core.Client(c.id)
	s := survival.ClientState{
		Place: survival.PlaceOf(v), Pinned: c.pinned, Committed: c.committed,
		Kernels: v.Kernels, Busy: v.GPUTime, Told: tally.UsageOf(c.told), Waits: v.Waits, Preemptions: v.Preemptions, Moves: v.Moves,
		Rebuilds: c.rebuilds, Counters: c.counters, Peak: c.peak, Stats: c.memoryNow,
	}
	if c.wanting {
		s.WantedAt = d.loop.Start().Add(c.wantedAt)
	}
	return s.WithoutLinks()
}

func (d *daemon) nodeFile() survival.NodeStateFile {
	view := d.core.View()
	f := survival.NodeStateFile{
		Version: survival.StateVersion, Boot: proc.Boot(), Last: d.core.Last(), Past: d.tally.Past, Usage: tally.UsageOf(tally.Plus(d.tally.Before.Past, view.Past)), Moves: tally.PlusMoves(d.tally.Before.Moves, view.PastMoves),
		Waits: d.tally.Waits, Preempted: d.tally.Preempted, Refused: d.tally.Refused, Ended: d.tally.Gone,
	}
	if d.precedence != nil {
		f.Precedence, _ = proc.Identify(d.precedence) // without it the next daemon makes another
	}
	for i, e := range d.stock.Load().Entries {
		is := survival.DeviceFile{Config: e.DeviceConfig, Reserve: e.Reserve, Here: e.Here, Is: inventory.Dispatched(e.Info, d.settings.Load().VGPUs), Usage: tally.UsageOf(d.tally.Before.Of(i))}
		if i < len(view.Devices) { // else the device is new, and the dispatcher is told of it next
			is.Usage = tally.UsageOf(tally.Plus(d.tally.Before.Of(i), view.Devices[i].Usage))
		}
		f.Devices = append(f.Devices, is)
	}
	for _, id := range d.grants.Ids() {
		f.Grants = append(f.Grants, *d.grants.Of(id))
	}
	return f
}
