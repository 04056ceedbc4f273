package node

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"muster/node/fate"
	"muster/node/grants"
	"muster/node/held"
	"muster/node/mps"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/statefolder"
	"muster/node/survival"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// A daemon that starts where another was killed, or has handed over, adopts that one's
// clients. Their programs and workers live on; the files of the state folder say who
// they are, what they may have and what they were granted.
//
// At the start every client whose worker lives becomes a client again, with the lease
// that it had, so that the dispatcher (told with Adopt) gives nobody else what it uses.
// Its worker is at first away, that is, without a connection to this daemon. Each worker
// connects to the node's socket by itself; the daemon recognises it by its process
// number, which the system reports. The worker brings the descriptors that only it has
// left, and gets a new control connection in return. Then it says where its client
// stands (control.Standing). That may be behind what the files say, because the last
// daemon may have died before its last messages arrived; it is never ahead. A worker
// that does not come within WorkerTimeout is killed, like one that does not answer
// pings.

// survivor is what outlasts one daemon of a client. Only the loop uses it.
type survivor struct {
	held      map[string]proc.FileID // identities of the files that its worker holds; nil: the client ends with the daemon
	standing  *statefolder.Slots     // the file that records where the client stands
	place     survival.PlaceFile     // as last written
	was       survival.PlaceFile     // as the last daemon had written it
	unsaved   bool                   // its statistics have changed since they were last written
	told      vgpu.Usage             // what its present worker has reported so far
	adopting  bool                   // a goroutine is receiving its worker (awaited, adoptFrom); keeps a second one from trying
	unsettled bool                   // its worker has come, and has not yet said where it stands
}

// adoption takes over the clients of an earlier daemon.
type adoption struct {
	common
	missing atomic.Int32 // how many workers have not come back yet
	keeper  *survival.Keeper
	files   *files
	grants  *grants.Book
	sharing *mps.Sharing
	quota   *quota
	tally   *tally.Book
	terms   *terms
	staff   *staff

	accompany   func(c *client, conn *net.UnixConn, said bool)
	listenTo    func(*client, *workers.Process)
	finish      func(*client, *workers.Process)
	workerEnded func(*client, *workers.Process)
	end         func(c *client, reason string, kill bool)
}

// attachWith tells a program that it is attached, with the memory that it shares with
// its worker. If the client is to outlive the daemon, its worker tells the program.
func (a *adoption) attachWith(c *client, w *workers.Process, attached []byte, held []control.Held) error {
	if a.keeper == nil {
		return wire.SendFiles(c.conn, attached, held[0].File, held[1].File)
	}
	return a.entrust(c, w, attached, held)
}

// entrust writes down a client that is to outlive the daemon, and then gives its worker
// the program's connection, with what the program is still to be told (nothing if it
// knows). The order matters: a worker that has the connection outlives the daemon, and
// the next daemon must find the client's file.
func (a *adoption) entrust(c *client, w *workers.Process, attached []byte, files []control.Held) error {
	if a.keeper == nil {
		return nil
	}
	program, ids, err := entrustable(c, files)
	if err != nil {
		return refusal.New(refusal.SystemNotReady, "%v", err)
	}
	defer program.Close()
	a.loop.Ask(func() {
		c.held = ids
		err = a.files.writeDown(c, w)
	})
	if err != nil {
		return refusal.New(refusal.SystemNotReady, "the node cannot write the program down (state, in its configuration): %v", err)
	}
	return w.Attach(attached, program, held.CanOutlive(files))
}

// entrustable returns a descriptor of a program's connection, and the identities of all
// files that the worker holds once it has that descriptor too.
func entrustable(c *client, files []control.Held) (program *os.File, ids map[string]proc.FileID, err error) {
	if program, err = wire.CopyOf(c.conn); err != nil {
		return nil, nil, fmt.Errorf("the node has no descriptor for the program: %w", err)
	}
	if ids, err = held.Identify(append(slices.Clone(files), control.Held{Name: "program", File: program})); err != nil {
		program.Close()
	}
	return program, ids, err
}

// --- clients -------------------------------------------------------------------

// takeAll makes the clients of an earlier daemon this one's. The loop does not run yet.
// The order matters: devices and grants must be known to the dispatcher before the
// clients that are on them, and a device that is to be retired must have its clients
// before it is drained.
func (a *adoption) takeAll(left *survival.Left) {
	n := &left.Node
	a.dispatcher.Last = n.Last
	a.tally.Past, a.tally.Waits, a.tally.Refused, a.tally.Gone = n.Past, n.Waits, n.Refused, n.Ended
	maps.Copy(a.tally.Granted, n.Granted)
	if n.Preempted != nil {
		a.tally.Preempted = n.Preempted
	}
	a.tally.Before.Past, a.tally.Before.Moves = n.Usage.Usage(), n.Moves
	if left.IsAny() {
		a.stock.Settle(left)
	}
	a.grants.Inherit(n.Grants)
	for i := range left.Heirs {
		a.adopt(&left.Heirs[i])
	}
	if left.IsAny() {
		a.stock.Settled(left)
	}
	if len(left.Heirs) > 0 {
		a.log.Info("clients of an earlier daemon are adopted", "clients", len(left.Heirs))
	}
	if a.keeper != nil {
		a.files.saveNode()
	}
}

// adopt makes a client known that exists already. Limits do not keep it out: they are
// for newcomers.
func (a *adoption) adopt(h *survival.Heir) {
	who := settings.Account{UID: h.UID, Name: h.User}
	c := &client{
		id: h.Client, peer: socket.Peer{User: who, PID: h.Pid, Address: h.Address}, program: h.Program, ordinal: h.Ordinal, arena: h.Arena(),
		gone: make(chan struct{}), since: h.Since.Sub(a.loop.Start()), worker: h.Process, link: link{ring: h.Ring, data: h.Data}, holding: nowhere(h.Pinned),
		allowance: allowance{
			limits: a.settings.Load().Limits.Of(who), latency: h.Latency, weight: max(h.Weight, 1), share: h.Portion, memory: h.Memory, memoryBy: h.MemoryBy, shown: h.Shown,
		},
		account:  account{counters: h.Counters, memoryNow: h.Stats, peak: h.Peak},
		mappings: mappings{mapping: h.Mapping},
		survivor: survivor{held: h.Files, standing: h.Standing, place: h.Place, was: h.Place, told: h.Told.Usage()},
		recovery: recovery{attached: h.Attached, rebuilds: h.Rebuilds},
	}
	c.lease = uint64(h.Place.Lease)
	if g := a.grants.Of(h.Grant); g != nil && h.Share < len(g.Devices) {
		c.under = grants.Under{Granted: g, Share: h.Share}
	}
	if h.Guest != nil {
		c.guest = guestOf(*h.Guest)
	}
	if h.Place.Held {
		c.device, c.home = h.Place.Device, h.Place.Device
	}
	if !h.WantedAt.IsZero() {
		c.wanting, c.wantedAt = true, h.WantedAt.Sub(a.loop.Start())
	}
	a.missing.Add(1)
	a.staff.pool.Adopt(h.Process)
	a.clients[c.id] = c
	a.sharing.Adopt(a.loop.Now(), fate.Client(c.id), h.Fate)
	a.quota.came(c)
	a.quota.commitAdopted(c, h.Committed)
	e := vgpu.Adopt{
		Client: c.id, User: who.Name, Weight: c.weight, Priority: c.priority(), Grant: vgpu.GrantID(c.under.Id()), Share: c.under.Share, Device: h.Place.Device, Held: h.Place.Held, Lease: h.Place.Lease, Pinned: h.Pinned,
		Kernels: h.Kernels, Busy: h.Busy, Waited: h.Waits, Preemptions: h.Preemptions, Moves: h.Moves,
	}
	if h.Place.Held {
		e.Memory = h.Place.Memory
	} else {
		e.Kept = h.Place.Memory
	}
	a.dispatcher.Step(e)
	go a.awaitWorker(c, c.worker)
	if h.Grant != c.under.Id() {
		a.end(c, fmt.Sprintf("the node was started again, and grant %s has ended meanwhile", h.Grant), true)
	}
	if lacks := a.terms.lacking(c); lacks != "" {
		a.end(c, "the node was started again with a device that cannot do what the program was told ("+lacks+"): start the program again", true)
	}
}

// awaitWorker forgets a client whose worker ends before it has come back. It runs in a
// goroutine of its own until the worker has exited or the client is gone.
func (a *adoption) awaitWorker(c *client, w *workers.Process) {
	select {
	case <-w.Exited:
	case <-c.gone:
		return
	}
	a.loop.Do(func() {
		if w.IsAway() && c.worker == w && a.clients[c.id] == c {
			a.missing.Add(-1)
			a.staff.pool.Forget(w)
			a.workerEnded(c, w)
		}
	})
}

// isAway says whether a client's worker has not come back yet.
func (c *client) isAway() bool { return c.worker != nil && c.worker.IsAway() }

// --- workers that come ---------------------------------------------------------

// awaited finds the client whose worker is the process that has connected, and marks it
// as being received. The process number alone would not do, since the system gives
// numbers again; but a process with that number and start time is running now, so it is
// the one that held the number when it connected.
func (a *adoption) awaited(pid int) (c *client) {
	if a.missing.Load() == 0 {
		return nil
	}
	a.loop.Ask(func() {
		for _, each := range a.clients {
			if each.isAway() && each.worker.PID() == pid && !each.ending && !each.adopting && each.worker.IsRunning() {
				each.adopting = true
				c = each
			}
		}
	})
	return c
}

// answerAdopt answers processes that ask to be adopted and are not workers that this
// daemon waits for.
func (a *adoption) answerAdopt(who socket.Peer, _ []byte) (any, error) {
	return nil, fmt.Errorf("process %d of user %s is no worker that the node waits for", who.PID, who.User.Name)
}

// adoptFrom takes back a worker that has come to the socket, and then looks after its
// program as handle does.
func (a *adoption) adoptFrom(conn *net.UnixConn, c *client) {
	_ = conn.SetDeadline(a.loop.Clock().Add(setUpTime))
	back, err := held.Receive(conn, uint64(c.id), c.held)
	if err != nil {
		a.log.Warn("a worker that came back was not adopted", "client", c.id, "error", err)
	}
	taken := false
	a.loop.Ask(func() {
		c.adopting = false
		var refused *control.NotAdopted
		switch {
		case errors.As(err, &refused):
			a.end(c, "its worker could not be adopted: "+refused.Reason, true)
		case err == nil:
			taken = a.welcomeBack(c, back)
		}
	})
	if !taken {
		if back != nil {
			back.Close()
		}
		return
	}
	conn.Close()
	a.accompany(c, back.Program, false)
}

// welcomeBack lets a client go on with its worker, and sends the worker what was kept
// for it meanwhile. It returns false if the client has ended. Only the loop calls it.
func (a *adoption) welcomeBack(c *client, back *held.Brought) bool {
	w := c.worker
	if c.ending || !w.IsAway() {
		return false
	}
	a.missing.Add(-1)
	c.conn, c.shared, c.unsettled, c.pulse = back.Program, back.Shared, true, pulse{}
	c.keep(back.Kept)
	w.ComeBack(back.Control, back.Words, uint64(c.id))
	go a.listenAgain(c, w)
	a.log.Info("a worker has come back", "client", c.id, "user", c.peer.User.Name, "pid", c.peer.PID, "worker", w.PID())
	return true
}

// listenAgain receives the messages of an adopted worker until its connection ends. If
// the worker has not yet said where it stands, it may not have understood that it was
// adopted: as long as it runs, the daemon waits for it to come again.
func (a *adoption) listenAgain(c *client, w *workers.Process) {
	a.listenTo(c, w)
	again := false
	a.loop.Ask(func() {
		if again = c.unsettled && !c.ending && !w.IsLeft() && w.IsRunning() && !proc.IsExiting(w.PID()); again {
			a.sendAway(c)
		}
	})
	if !again {
		a.finish(c, w)
	}
}

// sendAway makes a worker that had come away again, and waits for it anew. What it may
// have missed is reconstructed from the dispatcher: whether it is watched, and whether
// it has to leave its device.
func (a *adoption) sendAway(c *client) {
	var revoke *control.Revoke
	v, _ := a.dispatcher.Client(c.id)
	if v.Revoking {
		revoke = &control.Revoke{Reason: string(vgpu.ForMemory)}
	}
	c.worker.GoAway(v.Watched, revoke)
	c.conn.Close()
	c.shared.Unmap()
	a.missing.Add(1)
	c.conn, c.shared, c.unsettled = nil, nil, false
	go a.awaitWorker(c, c.worker)
}

// stands takes a worker's statement of where its client stands, which credible has
// already checked against what is known of the client.
func (a *adoption) stands(c *client, m control.Standing) {
	c.unsettled = false
	// The kernels that ran after the last daemon had written its counters.
	if ran := (vgpu.Usage{Kernels: m.Kernels - c.told.Kernels, GPUTime: m.Busy - c.told.GPUTime}); ran != (vgpu.Usage{}) {
		c.told = tally.Plus(c.told, ran)
		a.dispatcher.Step(vgpu.Ran{Client: c.id, Kernels: int(ran.Kernels), Busy: ran.GPUTime})
	}
	a.quota.commit(c, m.Committed)
	c.lease = m.Lease
	if c.hasLost(m) {
		m.Held, m.Keeps = false, 0
		c.worker.Post(control.Lost{Device: m.Device, Reason: "it was lost when the node was started again"})
	}
	if !m.Held {
		c.leaves()
		if m.Failed {
			a.dispatcher.Step(vgpu.Faulted{Client: c.id})
		} else {
			a.dispatcher.Step(vgpu.Released{Client: c.id, Keeps: m.Keeps})
		}
	}
	a.announceAll(c, m.Devices)
	a.files.save(c)
	a.log.Info("adopted", "client", c.id, "user", c.peer.User.Name, "pid", c.peer.PID, "program", c.program, "held", m.Held, "lease", m.Lease)
}

// announceAll tells a worker which devices have changed, given those that it knows.
func (a *adoption) announceAll(c *client, known []control.DeviceConfig) {
	for i := range a.stock.Load().Entries {
		e := &a.stock.Load().Entries[i]
		switch {
		case i >= len(known): // workers list all numbers, including those of devices that are gone
			c.worker.PostDevice(control.AddDevice{Device: i, Config: c.configOf(i, e)}, e.Lock)
		case known[i] != c.configOf(i, e):
			c.announce(i, e, "the device is not there any more")
		}
	}
}
