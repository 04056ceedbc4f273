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

// survival is what outlasts one daemon of a client. Only the loop uses it.
type survival struct {
	held      map[string]fileID // identities of the files that its worker holds; nil: the client ends with the daemon
	standing  *slots            // the file that records where the client stands
	place     placeFile         // as last written
	was       placeFile         // as the last daemon had written it
	unsaved   bool              // its statistics have changed since they were last written
	told      vgpu.Usage        // what its present worker has reported so far
	adopting  bool              // a goroutine is receiving its worker (awaited, adoptFrom); keeps a second one from trying
	unsettled bool              // its worker has come, and has not yet said where it stands
}

// unsaid is what the daemon has to tell a worker that is away, once it comes.
type unsaid struct {
	revoke *control.Revoke
	watch  bool
}

// keep notes a message for a worker that is away. Only revocations and watches need to
// be kept: the worker asks again for whatever it wants, and hears of devices when it has
// said which it knows.
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

// address is where workers find the next daemon, whatever their working directory: an
// absolute path, or an abstract name.
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

// entrust writes down a client that is to outlive the daemon, and then gives its worker
// the program's connection, with what the program is still to be told (nothing if it
// knows). The order matters: a worker that has the connection outlives the daemon, and
// the next daemon must find the client's file.
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

// entrustable returns a descriptor of a program's connection, and the identities of all
// files that the worker holds once it has that descriptor too.
func entrustable(c *client, held []control.Held) (program *os.File, ids map[string]fileID, err error) {
	if program, err = wire.CopyOf(c.conn); err != nil {
		return nil, nil, fmt.Errorf("the node has no descriptor for the program: %w", err)
	}
	if ids, err = identifyAll(append(slices.Clone(held), control.Held{Name: "program", File: program})); err != nil {
		program.Close()
	}
	return program, ids, err
}

// legacy is what a replacement worker gets beside the client: the program's connection.
// It gets that together with the client and not later, so that it outlives the daemon
// from its first moment, as the worker that it replaces did.
type legacy struct {
	attached []byte // what the program is still to be told; nil if it knows
	program  *os.File
}

func (l *legacy) close() {
	if l != nil {
		l.program.Close()
	}
}

// bequeath prepares what the next worker of a client gets; nil if the client ends with
// the daemon anyway. Only the loop calls it.
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

// adoptAll makes the clients of an earlier daemon this one's. The loop does not run yet.
// The order matters: devices and grants must be known to the dispatcher before the
// clients that are on them, and a device that is to be retired must have its clients
// before it is drained.
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

// adopt makes a client known that exists already. Limits do not keep it out: they are
// for newcomers.
func (d *daemon) adopt(h *heir) {
	who := account{uid: h.UID, name: h.User}
	c := &client{
		id: h.Client, peer: peer{user: who, pid: h.Pid, address: h.Address}, limits: d.live().Limits.of(who), latency: h.Latency, mappings: mappings{mapping: h.Mapping}, weight: max(h.Weight, 1), share: h.Portion, memory: h.Memory, memoryBy: h.MemoryBy, shown: h.Shown,
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

// awaitWorker forgets a client whose worker ends before it has come back. It runs in a
// goroutine of its own until the worker has exited or the client is gone.
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

// isAway says whether a client's worker has not come back yet.
func (c *client) isAway() bool { return c.worker != nil && c.worker.away }

// --- workers that come ---------------------------------------------------------

// awaited finds the client whose worker is the process that has connected, and marks it
// as being received. The process number alone would not do, since the system gives
// numbers again; but a process with that number and start time is running now, so it is
// the one that held the number when it connected.
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

// answerAdopt answers processes that ask to be adopted and are not workers that this
// daemon waits for.
func (d *daemon) answerAdopt(who peer, _ []byte) (any, error) {
	return nil, fmt.Errorf("process %d of user %s is no worker that the node waits for", who.pid, who.user.name)
}

// adoptFrom takes back a worker that has come to the socket, and then looks after its
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

// homecomer is a worker that has come back, with what it brought.
type homecomer struct {
	control *control.DaemonEnd
	shared  *wire.Shared
	program *net.UnixConn
	words   *os.File // the reading end of its standard error
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

// receiveWorker talks to a worker that came, and returns what it brings. If the error is
// a NotAdopted, the worker has been told so and ends: it need not try again. After any
// other error it may come again.
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

// sameFiles checks that a worker brings exactly the files that it was given.
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

// takeBack opens what a worker holds, and gives the worker its end of a new control
// connection.
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

// welcomeBack lets a client go on with its worker, and sends the worker what was kept
// for it meanwhile. It returns false if the client has ended. Only the loop calls it.
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

// listenAgain receives the messages of an adopted worker until its connection ends. If
// the worker has not yet said where it stands, it may not have understood that it was
// adopted: as long as it runs, the daemon waits for it to come again.
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

// sendAway makes a worker that had come away again, and waits for it anew. What it may
// have missed is reconstructed from the dispatcher: whether it is watched, and whether
// it has to leave its device.
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

// stands takes a worker's statement of where its client stands, which credible has
// already checked against what is known of the client.
func (d *daemon) stands(c *client, m control.Standing) {
	c.unsettled = false
	now := d.now()
	// The kernels that ran after the last daemon had written its counters.
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

// announceAll tells a worker which devices have changed, given those that it knows.
func (d *daemon) announceAll(c *client, known []control.DeviceConfig) {
	for i := range d.stock.Load().entries {
		e := &d.stock.Load().entries[i]
		switch {
		case i >= len(known): // workers list all numbers, including those of devices that are gone
			c.worker.postDevice(control.AddDevice{Device: i, Config: c.configOf(i, e)}, e.lock)
		case known[i] != c.configOf(i, e):
			c.announce(i, e, "the device is not there any more")
		}
	}
}
