package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/node/fate"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/control"
)

// A daemon that starts where another was killed, or has handed over, adopts that one's
// clients. Their programs and workers live on; what they are, what they may have and
// what they were granted is in the files of the state folder.
//
// At the start all clients whose workers live become clients again, with the leases
// that they had: nobody else may be given what they use. The dispatcher is told with
// Adopt. Their workers are away: each comes to the node's socket by itself, and is
// recognised by its process, which the system names. It brings the descriptors that
// only it has, and gets a connection of its own in return. Then it says where its
// client stands (control.Standing), which may be behind what the files say: the last
// daemon may have died before its last words arrived. One that does not come within
// WorkerTimeout is killed, as one that does not answer pings.

// survival is what there is of a client beyond one daemon. It is the loop's.
type survival struct {
	held      map[string]fileID // what its worker holds; nil: the client ends with the daemon
	standing  *slots            // where it is written down where the client stands
	place     placeFile         // as it was written
	was       placeFile         // with the last daemon
	unsaved   bool              // its statistics have changed
	told      vgpu.Usage        // by its present worker
	adopting  bool              // somebody listens to what its worker wants
	unsettled bool              // its worker has come, and has not said where it stands
}

// unsaid is what a worker is to hear when it comes.
type unsaid struct {
	revoke *control.Revoke
	watch  bool
}

// keep notes a message. What of it a worker needs that was away is little: it asks
// again for what it wants, and is told of devices when it has said which it knows.
func (u *unsaid) keep(m control.ToWorker) {
	switch m := m.(type) {
	case control.Revoke:
		u.revoke = &m
	case control.Watch:
		u.watch = m.On
	}
}

// orphanGrace is how long workers look for the next daemon.
func (d *daemon) orphanGrace() time.Duration {
	if d.folder == nil {
		return 0
	}
	return d.cfg.OrphanGrace
}

// address is where workers find the next daemon, wherever they are.
func (d *daemon) address() string {
	socket := d.cfg.Socket.Address
	if path, err := filepath.Abs(socket); err == nil && !strings.HasPrefix(socket, "@") {
		return path
	}
	return socket
}

// attachWith tells a program that it is attached, with the memory that it shares with
// its worker. If the client is to outlive the daemon, its worker tells the program.
func (d *daemon) attachWith(c *client, w *workerProcess, attached []byte, held []control.Held) error {
	if d.folder == nil {
		return wire.SendFiles(c.conn, attached, held[0].File, held[1].File)
	}
	return d.entrust(c, w, attached, held)
}

// entrust writes a client down that is to outlive the daemon, and then gives its worker
// the program's connection, with what the program is to be told; nothing if it knows.
func (d *daemon) entrust(c *client, w *workerProcess, attached []byte, held []control.Held) error {
	if d.folder == nil {
		return nil
	}
	program, ids, err := entrustable(c, held)
	if err != nil {
		return refuse(resultSystemNotReady, "%v", err)
	}
	defer program.Close()
	d.ask(func() {
		c.held = ids
		err = d.writeDown(c, w)
	})
	if err != nil {
		return refuse(resultSystemNotReady, "the node cannot write the program down (state, in its configuration): %v", err)
	}
	return w.attach(attached, program, held)
}

// entrustable is a descriptor of a program's connection, and what a worker holds that
// has it.
func entrustable(c *client, held []control.Held) (program *os.File, ids map[string]fileID, err error) {
	if program, err = wire.CopyOf(c.conn); err != nil {
		return nil, nil, fmt.Errorf("the node has no descriptor for the program: %w", err)
	}
	if ids, err = identifyAll(append(slices.Clone(held), control.Held{Name: "program", File: program})); err != nil {
		program.Close()
	}
	return program, ids, err
}

// legacy is what a worker gets that goes on with the client of another: the program's
// connection. It gets that with the client and not later, so that it outlives the daemon
// from the beginning: the worker before, which did, is no more.
type legacy struct {
	attached []byte // what the program is to be told, unless it knows
	program  *os.File
}

func (l *legacy) close() {
	if l != nil {
		l.program.Close()
	}
}

// bequeath prepares what the next worker of a client gets; nil if the client ends with
// the daemon anyway. It is called by the loop.
func (d *daemon) bequeath(c *client) (*legacy, error) {
	if d.folder == nil {
		return nil, nil
	}
	program, ids, err := entrustable(c, c.kept)
	if err != nil {
		return nil, err
	}
	c.held = ids
	return &legacy{c.attached, program}, nil
}

// --- clients -------------------------------------------------------------------

// adoptAll makes the clients of an earlier daemon this one's. The loop does not run
// yet.
func (d *daemon) adoptAll(left *inheritance) {
	n := &left.node
	d.lastID, d.past, d.waits, d.refused, d.gone = n.Last, n.Past.counters(), n.Waits, n.Refused, n.Ended
	if n.Preempted != nil {
		d.preempted = n.Preempted
	}
	d.before.past, d.before.moves = n.Usage.usage(), n.Moves
	if left.isAny() {
		d.settleDevices(left)
	}
	d.inheritGrants(n.Grants)
	for i := range left.heirs {
		d.adopt(&left.heirs[i])
	}
	if left.isAny() {
		d.retireDevices(left.retired)
		for _, number := range left.lost {
			d.lookFor(number)
		}
	}
	if len(left.heirs) > 0 {
		d.log.Info("clients of an earlier daemon are adopted", "clients", len(left.heirs))
	}
	if d.folder != nil {
		d.saveNode()
	}
}

// adopt makes a client known that is there already. Limits do not keep it out: they
// are for those who come.
func (d *daemon) adopt(h *heir) {
	who := account{uid: h.UID, name: h.User}
	c := &client{
		id: h.Client, peer: peer{user: who, pid: h.Pid}, limits: d.live().Limits.of(who), latency: h.Latency, mappings: mappings{mapping: h.Mapping}, weight: max(h.Weight, 1), share: h.Portion, memory: h.Memory, memoryBy: h.MemoryBy, shown: h.Shown,
		program: h.Program, ordinal: h.Ordinal, arena: h.arena(), gone: make(chan struct{}), ring: h.Ring, data: h.Data,
		since: h.Since.Sub(d.start), worker: h.worker, device: vgpu.AnyDevice, pinned: h.Pinned, peak: h.Peak, lease: uint64(h.Place.Lease),
		counters: h.Counters.counters(), memoryNow: h.Stats,
		survival: survival{held: h.Files, standing: h.standing, place: h.Place, was: h.Place, told: h.Told.usage()},
		recovery: recovery{attached: h.Attached, rebuilds: h.Rebuilds},
	}
	if g := d.grants[h.Grant]; g != nil && h.Share < len(g.Devices) {
		c.under = under{g, h.Share}
	}
	if h.Guest != nil {
		c.guest = guestOf(*h.Guest)
	}
	if h.Place.Held {
		c.device, c.home = h.Place.Device, h.Place.Device
	}
	if !h.WantedAt.IsZero() {
		c.wanting, c.wantedAt = true, h.WantedAt.Sub(d.start)
	}
	d.missing.Add(1)
	d.uids.adopt(h.worker.uid)
	d.clients[c.id] = c
	d.fates.Join(d.now(), fate.Client(c.id), h.Fate)
	d.perUser[who.name]++
	d.commitAdopted(c, h.Committed)
	e := vgpu.Adopt{
		Client: c.id, User: who.name, Weight: c.weight, Priority: c.priority(), Grant: vgpu.GrantID(c.under.id()), Share: c.under.share, Device: h.Place.Device, Held: h.Place.Held, Lease: h.Place.Lease, Pinned: h.Pinned,
		Kernels: h.Kernels, Busy: h.Busy, Waited: h.Waits, Preemptions: h.Preemptions, Moves: h.Moves,
	}
	if h.Place.Held {
		e.Memory = h.Place.Memory
	} else {
		e.Kept = h.Place.Memory
	}
	d.step(d.now(), e)
	go d.awaitWorker(c, c.worker)
	if h.Grant != c.under.id() {
		d.end(c, fmt.Sprintf("the node was started again, and grant %s has ended meanwhile", h.Grant), true)
	}
	if lacks := d.lacking(c); lacks != "" {
		d.end(c, "the node was started again with a device that cannot do what the program was told ("+lacks+"): start the program again", true)
	}
}

// commitAdopted counts the room in the swap area that a client has, whatever the limits
// are now.
func (d *daemon) commitAdopted(c *client, bytes uint64) {
	c.committed = bytes
	d.committed += bytes
	if bytes > 0 {
		d.perOwner[c.peer.user.name] += bytes
	}
}

// awaitWorker sees to it that a client is forgotten whose worker ends before it comes.
func (d *daemon) awaitWorker(c *client, w *workerProcess) {
	select {
	case <-w.exited:
	case <-c.gone:
		return
	}
	d.do(func() {
		if w.away && c.worker == w && d.clients[c.id] == c {
			d.missing.Add(-1)
			d.uids.giveBack(w.uid)
			d.workerEnded(c, w)
		}
	})
}

// isAway says whether a client's worker has not come yet.
func (c *client) isAway() bool { return c.worker != nil && c.worker.away }

// --- workers that come ---------------------------------------------------------

// awaited finds the client whose worker is a process that has connected, and notes that
// it is listened to. Since that process is there now, and was before this daemon, it is
// the one that connected: its number was nobody else's meanwhile.
func (d *daemon) awaited(pid int) (c *client) {
	if d.missing.Load() == 0 {
		return nil
	}
	d.ask(func() {
		for _, each := range d.clients {
			if each.isAway() && each.worker.pid() == pid && !each.ending && !each.adopting && isRunning(pid, each.worker.start) {
				each.adopting = true
				c = each
			}
		}
	})
	return c
}

// answerAdopt answers those who want to be adopted and are nobody's workers, as far as
// this daemon knows.
func (d *daemon) answerAdopt(who peer, _ []byte) (any, error) {
	return nil, fmt.Errorf("process %d of user %s is no worker that the node waits for", who.pid, who.user.name)
}

// adoptFrom takes a worker back that has come to the socket, and then looks after its
// program as handle does.
func (d *daemon) adoptFrom(conn *net.UnixConn, c *client) {
	_ = conn.SetDeadline(d.opts.Now().Add(setUpTime))
	back, err := d.receiveWorker(conn, c)
	if err != nil {
		d.log.Warn("a worker that came back was not adopted", "client", c.id, "error", err)
	}
	taken := false
	d.ask(func() {
		c.adopting = false
		var refused *control.NotAdopted
		switch {
		case errors.As(err, &refused):
			d.end(c, "its worker could not be adopted: "+refused.Reason, true)
		case err == nil:
			taken = d.welcomeBack(c, back)
		}
	})
	if !taken {
		if back != nil {
			back.close()
		}
		return
	}
	conn.Close()
	d.accompany(c, back.program, false)
}

// homecomer is a worker that was received.
type homecomer struct {
	control *control.DaemonEnd
	shared  *wire.Shared
	program *net.UnixConn
	words   *os.File // what it writes on its standard error
	kept    []control.Held
}

func (b *homecomer) close() {
	if b.control != nil {
		b.control.Close()
		b.words.Close()
	}
	if b.program != nil {
		b.program.Close()
	}
	b.shared.Unmap()
	closeHeld(b.kept)
}

// receiveWorker talks to a worker that came, and returns what it brings. A NotAdopted
// says that there is no use in its coming again: it has been told, and ends.
func (d *daemon) receiveWorker(conn *net.UnixConn, c *client) (*homecomer, error) {
	refuse := func(format string, args ...any) error {
		refused := &control.NotAdopted{Reason: fmt.Sprintf(format, args...)}
		_ = control.RefuseAdoption(conn, refused.Reason)
		return refused
	}
	request, err := control.ReadAdoption(conn)
	switch {
	case err != nil:
		return nil, err
	case vgpu.ClientID(request.Client) != c.id:
		return nil, refuse("it is the worker of client %d and says that it is that of client %d", c.id, request.Client)
	case request.Protocol != control.Protocol:
		return nil, refuse("it is of another version of Muster, whose messages are not understood")
	}
	held, err := control.ReceiveHeld(conn)
	if err != nil {
		return nil, err
	}
	defer closeHeld(held)
	ids, err := identifyAll(held)
	if err == nil {
		err = sameFiles(c.held, ids, len(held))
	}
	if err != nil {
		return nil, refuse("it brings other descriptors than it was given: %v", err)
	}
	return takeBack(conn, held)
}

func closeHeld(held []control.Held) {
	for _, h := range held {
		h.File.Close()
	}
}

// sameFiles compares what a worker brings with what it was given.
func sameFiles(given, brought map[string]fileID, count int) error {
	if len(brought) != count || count != len(given) {
		return fmt.Errorf("%d where %d are due", count, len(given))
	}
	for name, id := range given {
		if brought[name] != id {
			return fmt.Errorf("the %s is another one", name)
		}
	}
	return nil
}

// takeBack opens what a worker holds, and gives it its end of a new connection.
func takeBack(conn *net.UnixConn, held []control.Held) (*homecomer, error) {
	files := map[string]*os.File{}
	for _, h := range held {
		files[h.Name] = h.File
	}
	b, err := openHeld(files)
	if err != nil {
		return nil, err
	}
	own, child, err := control.Pair()
	if err != nil {
		b.close()
		return nil, err
	}
	defer child.Close()
	words, errors, err := os.Pipe()
	if err != nil {
		own.Close()
		b.close()
		return nil, err
	}
	defer errors.Close()
	b.control, b.words = own, words
	if err := control.Adopt(conn, child, errors); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// welcomeBack lets a client go on with its worker. It returns false if the client has
// ended meanwhile.
func (d *daemon) welcomeBack(c *client, back *homecomer) bool {
	w := c.worker
	if c.ending || !w.away {
		return false
	}
	w.control, w.away = back.control, false
	d.missing.Add(-1)
	w.words.serves(uint64(c.id))
	go func() {
		_, _ = io.Copy(w.words, back.words)
		back.words.Close()
		w.words.close()
	}()
	c.conn, c.shared, c.unsettled, c.pulse = back.program, back.shared, true, pulse{}
	closeHeld(c.kept)
	c.kept = back.kept
	w.queue = make(chan parcel, cap(w.queue))
	go w.sendQueued(w.queue, w.control)
	said := w.unsaid
	w.unsaid = unsaid{}
	if said.watch {
		w.post(control.Watch{On: true})
	}
	if said.revoke != nil {
		w.post(*said.revoke)
	}
	go d.listenAgain(c, w)
	d.log.Info("a worker has come back", "client", c.id, "user", c.peer.user.name, "pid", c.peer.pid, "worker", w.pid())
	return true
}

// listenAgain hears a worker that was adopted. One that has not understood that it is
// may come again.
func (d *daemon) listenAgain(c *client, w *workerProcess) {
	d.listenTo(c, w)
	again := false
	d.ask(func() {
		if again = c.unsettled && !c.ending && !w.left.Load() && isRunning(w.pid(), w.start) && !isExiting(w.pid()); again {
			d.sendAway(c)
		}
	})
	if !again {
		d.finish(c, w)
	}
}

// sendAway waits again for a worker that had come.
func (d *daemon) sendAway(c *client) {
	w := c.worker
	w.control.Close()
	c.conn.Close()
	c.shared.Unmap()
	w.control, w.away = nil, true
	d.missing.Add(1)
	c.conn, c.shared, c.unsettled = nil, nil, false
	if v, ok := d.core.Client(c.id); ok {
		w.unsaid.watch = v.Watched
		if v.Revoking {
			w.unsaid.revoke = &control.Revoke{Reason: string(vgpu.ForMemory)}
		}
	}
	go d.awaitWorker(c, c.worker)
}

// stands takes a worker's word of where its client stands, which was held to what is
// known of it (credible).
func (d *daemon) stands(c *client, m control.Standing) {
	c.unsettled = false
	now := d.now()
	// What the last daemon did not count.
	if ran := (vgpu.Usage{Kernels: m.Kernels - c.told.Kernels, GPUTime: m.Busy - c.told.GPUTime}); ran != (vgpu.Usage{}) {
		c.told = plus(c.told, ran)
		d.step(now, vgpu.Ran{Client: c.id, Kernels: int(ran.Kernels), Busy: ran.GPUTime})
	}
	d.commit(c, m.Committed)
	c.lease = m.Lease
	if c.hasLost(m) {
		m.Held, m.Keeps = false, 0
		c.worker.post(control.Lost{Device: m.Device, Reason: "it was lost when the node was started again"})
	}
	if !m.Held {
		c.device = vgpu.AnyDevice
		if m.Failed {
			d.step(now, vgpu.Faulted{Client: c.id})
		} else {
			d.step(now, vgpu.Released{Client: c.id, Keeps: m.Keeps})
		}
	}
	d.announceAll(c, m.Devices)
	d.save(c)
	d.log.Info("adopted", "client", c.id, "user", c.peer.user.name, "pid", c.peer.pid, "program", c.program, "held", m.Held, "lease", m.Lease)
}

// announceAll tells a worker what it does not know of the devices.
func (d *daemon) announceAll(c *client, known []control.DeviceConfig) {
	for i := range d.stock.Load().entries {
		e := &d.stock.Load().entries[i]
		switch {
		case i >= len(known): // it counts them, those that are gone too
			c.worker.postDevice(control.AddDevice{Device: i, Config: c.configOf(i, e)}, e.lock)
		case known[i] != c.configOf(i, e):
			c.announce(i, e, "the device is not there any more")
		}
	}
}
