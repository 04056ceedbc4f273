package node

import (
	"time"

	"muster/node/fate"
	"muster/node/grants"
	"muster/node/mps"
	"muster/node/proc"
	"muster/node/survival"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
)

// The next daemon learns of a client from two files: one says who the client is, and is written
// when it is attached or gets another worker; the other says where it stands, and is written often.
// Of what a worker claims about its user, limits and leases, only what these files confirm counts.

// files are those that the next daemon reads.
type files struct {
	common
	keeper     *survival.Keeper
	grants     *grants.Book
	sharing    *mps.Sharing
	precedence *precedence
	tally      *tally.Book
}

// --- writing -------------------------------------------------------------------

// saveDue writes statistics if it is time.
func (k *files) saveDue() {
	if !k.keeper.TakeDue(k.loop.Now()) {
		return
	}
	k.saveNode()
	count := 0
	for _, c := range k.clients {
		if !c.unsaved || !c.isKept() {
			continue
		}
		if count++; count > survival.MostSaved {
			k.keeper.Again(k.loop.Now())
			return
		}
		k.save(c)
	}
}

// isKept says whether a client has a file.
func (c *client) isKept() bool { return c.worker != nil && c.held != nil && !c.ending }

// writeDown writes down who a client is, that a worker has it, and where it stands.
func (k *files) writeDown(c *client, w *workers.Process) (err error) {
	if k.keeper == nil || c.held == nil || c.ending {
		return nil
	}
	if c.standing == nil {
		c.standing, err = k.keeper.Standing(c.id)
	}
	if err == nil {
		k.save(c)
		f := k.fileOf(c, w)
		err = k.keeper.WriteClient(&f)
	}
	return k.keeper.Wrote("a client's state", err)
}

// save writes down where a client stands.
func (k *files) save(c *client) {
	if c.standing == nil {
		return
	}
	c.unsaved = false
	s := k.stateOf(c)
	c.place = s.Place
	k.keeper.WriteStanding(c.standing, &s)
}

// forgetFile removes the files of a client that has ended.
func (k *files) forgetFile(c *client) {
	if c.standing != nil {
		c.standing.Close()
		c.standing = nil
		k.keeper.Forget(c.id)
		k.keeper.Touch(k.loop.Now())
	}
}

// saveNode writes what is known of the node.
func (k *files) saveNode() {
	if k.keeper != nil {
		f := k.nodeFile()
		k.keeper.WriteNode(&f)
	}
}

// saveChanged writes down the clients whose leases an event has changed, before their workers are
// told.
func (k *files) saveChanged(now time.Duration, e vgpu.Event, effects []vgpu.Effect) {
	if k.keeper == nil {
		return
	}
	look := func(id vgpu.ClientID) {
		c := k.clients[id]
		if v, ok := k.dispatcher.Client(id); ok && c != nil && survival.PlaceOf(v) != c.place {
			k.save(c)
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
		k.keeper.Touch(now)
	}
	for _, effect := range effects {
		if effect.Kind == vgpu.Grant || effect.Kind == vgpu.Gone {
			look(effect.Client)
		}
	}
}

func (k *files) fileOf(c *client, w *workers.Process) survival.ClientFile {
	return survival.ClientFile{
		Version: survival.StateVersion, Boot: proc.Boot(), Client: c.id,
		UID: c.peer.User.UID, User: c.peer.User.Name, Pid: c.peer.PID, Address: c.peer.Address, Program: c.program, Grant: c.under.Id(), Share: c.under.Share, Ordinal: c.ordinal, Guest: c.guest.file(),
		Weight: c.weight, Latency: c.latency, Mapping: c.mapping, Fate: k.sharing.State(fate.Client(c.id)), Portion: c.share, Memory: c.memory, MemoryBy: c.memoryBy, Shown: c.shown, ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Since: k.loop.Start().Add(c.since), Ring: c.ring, Data: c.data,
		Worker: survival.WorkerFile{Pid: w.PID(), Start: w.Started, UID: w.UID}, Files: c.held, Attached: c.attached,
	}
}

func (k *files) stateOf(c *client) survival.ClientState {
	v, _ := k.dispatcher.Client(c.id)
	s := survival.ClientState{
		Place: survival.PlaceOf(v), Pinned: c.pinned, Committed: c.committed,
		Kernels: v.Kernels, Busy: v.GPUTime, Told: tally.UsageOf(c.told), Waits: v.Waits, Preemptions: v.Preemptions, Moves: v.Moves,
		Rebuilds: c.rebuilds, Counters: c.counters, Peak: c.peak, Stats: c.memoryNow,
	}
	if c.wanting {
		s.WantedAt = k.loop.Start().Add(c.wantedAt)
	}
	return s.WithoutLinks()
}

func (k *files) nodeFile() survival.NodeStateFile {
	view := k.dispatcher.View()
	f := survival.NodeStateFile{
		Version: survival.StateVersion, Boot: proc.Boot(), Last: k.dispatcher.Last, Past: k.tally.Past, Usage: tally.UsageOf(tally.Plus(k.tally.Before.Past, view.Past)), Moves: tally.PlusMoves(k.tally.Before.Moves, view.PastMoves),
		Waits: k.tally.Waits, Preempted: k.tally.Preempted, Refused: k.tally.Refused, Granted: k.tally.Granted, Ended: k.tally.Gone,
	}
	if k.precedence.File != nil {
		f.Precedence, _ = proc.Identify(k.precedence.File) // without it the next daemon makes another
	}
	for i, e := range k.stock.Load().Entries {
		is := survival.DeviceFile{Config: e.DeviceConfig, Reserve: e.Reserve, Here: e.Here, Is: e.Dispatched(k.settings.Load().VGPUs), Usage: tally.UsageOf(k.tally.Before.Of(i))}
		if i < len(view.Devices) { // else the device is new, and the dispatcher is told of it next
			is.Usage = tally.UsageOf(tally.Plus(k.tally.Before.Of(i), view.Devices[i].Usage))
		}
		f.Devices = append(f.Devices, is)
	}
	for _, id := range k.grants.Ids() {
		f.Grants = append(f.Grants, *k.grants.Of(id))
	}
	return f
}
