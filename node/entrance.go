package node

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"muster/internal/door"
	"muster/internal/laps"
	"muster/internal/whois"
	"muster/node/grants"
	"muster/node/held"
	"muster/node/inventory"
	"muster/node/mps"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// setUpTime is how long a program may take to read answers while its client is
// set up.
const setUpTime = 10 * time.Second

// lastTime is how long a connection may occupy the last descriptor, and how long one that is
// turned away may take to read why.
const lastTime = time.Second

// Limits on how many refused connections are told why at a time, in all and for each user.
const maxTurned, maxTurnedEach = 64, 16

// maxRefusals is how many refusals of clients are logged in a minute.
const maxRefusals = 20

// errMadeRoom ends a connection whose place went to a newer one of its user.
var errMadeRoom = errors.New("it was closed to make room for others of its user")

// entrance is where connections come in. Each is served by a goroutine of its own.
type entrance struct {
	common
	rights   requests.Rights
	names    *whois.Names
	socket   *door.Listener
	places   *door.Places // of connections without a client, by user
	turned   *door.Places // of connections that are being told why they are refused
	refusals door.Sparing // what is logged of them
	desk     *requests.Desk
	terms    *terms
	staff    *staff
	loads    *loads
	ending   *ending
	keeper   *survival.Keeper
	sharing  *mps.Sharing

	awaited     func(pid int) *client // whose worker the process is, if it comes back
	adoptFrom   func(*net.UnixConn, *client)
	awaitDevice func() error // on a node that has none of its own
	admit       func(*client) error
	attachWith  func(c *client, w *workers.Process, attached []byte, held []control.Held) error
	assign      func(c *client, w *workers.Process, shared *wire.Shared, told *inventory.Inventory) bool
	end         func(c *client, reason string, kill bool)
}

// handle serves one connection to its end. If last is set, the connection has the descriptor
// that was kept in reserve for when there are no others.
func (e *entrance) handle(conn *net.UnixConn, last bool) {
	who, err := socket.PeerOf(conn, e.names)
	if err != nil {
		e.log.Warn("a connection was dropped", "error", err)
		return
	}
	if c := e.awaited(int(who.PID)); c != nil {
		e.adoptFrom(conn, c)
		return
	}
	if last {
		e.handleLast(conn, who)
		return
	}
	if !e.terms.mayUse(who.User) {
		e.turnAway(conn, who, refusal.New(refusal.NotPermitted,
			"this node is user %s's, and user %s may not use it: run a node of your own (muster run --private), or have its owner allow you (allow: in its configuration)", e.rights.Own.Name, who.User.Name))
		return
	}
	place, refused := e.enter(conn, who)
	if refused != nil {
		e.turnAway(conn, who, refused)
		return
	}
	defer place.Leave()
	_ = conn.SetDeadline(e.loop.Clock().Add(e.greetTime()))
	in := bufio.NewReader(conn)
	if isRequest(in) {
		if place.Use() {
			e.desk.Answer(conn, in, who)
		}
		return
	}
	c, err := e.setUp(conn, in, who, place, nil)
	switch {
	case errors.As(err, &refused):
		if e.rights.IsGateway(who) { // which logs whom it speaks for
			e.log.Debug("a client was refused", "user", who.User.Name, "pid", who.PID, "reason", refused.Reason)
		} else {
			e.refusals.Info(e.log, "a client was refused", "user", who.User.Name, "pid", who.PID, "reason", refused.Reason)
		}
		e.turnAway(conn, who, refused)
		return
	case err != nil:
		e.log.Debug("a connection ended", "user", who.User.Name, "pid", who.PID, "error", err)
		return
	}
	place.Leave() // from here on it counts as a client
	_ = conn.SetDeadline(time.Time{})
	e.accompany(c, conn, in.Buffered() > 0)
}

// accompany waits for the end of a program's connection, and then ends its client. It only
// watches the connection and reads nothing from it, because the worker has it too, and the
// next daemon may get it.
func (e *entrance) accompany(c *client, conn *net.UnixConn, said bool) {
	if !said {
		said, _ = wire.AwaitEnd(conn)
	}
	reason := ""
	if said {
		reason = "it sent what it must not, on its socket"
	}
	present := true
	e.loop.Ask(func() {
		if present = c.conn == conn; present {
			e.end(c, reason, false)
		}
	})
	if present {
		<-c.gone
	}
}

// hangUp ends a program's connection, also for other processes that have it open.
func hangUp(conn *net.UnixConn) {
	_ = conn.CloseWrite()
	_ = conn.CloseRead()
	_ = conn.Close()
}

// greetTime is how long a connection may take to say what it wants; shorter while the node
// is closing, since it will be refused anyway.
func (e *entrance) greetTime() time.Duration {
	if e.ending.closing.Load() {
		return min(lastTime, e.cfg.Connections.Greet)
	}
	return e.cfg.Connections.Greet
}

// handleLast answers requests of root and of the node's own user, who may want to know how
// the node is, and tells all others why they are not served. It does not wait for those
// others to read that: the next connection may be root's.
func (e *entrance) handleLast(conn *net.UnixConn, who socket.Peer) {
	_ = conn.SetDeadline(e.loop.Clock().Add(lastTime))
	none := refusal.New(refusal.SystemNotReady, "the node has no file descriptors left: try again later, or raise its limit (ulimit -n, LimitNOFILE)")
	if !e.rights.IsOwner(who) {
		_ = wire.WriteRecord(conn, none)
		return
	}
	in := bufio.NewReader(conn)
	if isRequest(in) {
		e.desk.Answer(conn, in, who)
		return
	}
	e.turnAway(conn, who, none)
}

// turnAway tells a connection why it is refused. It then reads for a moment, because closing
// a socket with unread data resets the connection, and the other side would lose the reason.
func (e *entrance) turnAway(conn *net.UnixConn, who socket.Peer, refused *wire.Refused) {
	place, err := e.turned.Take(who.Key(), false, func() { _ = conn.Close() })
	if err != nil {
		return
	}
	defer place.Leave()
	_ = conn.SetDeadline(e.loop.Clock().Add(lastTime))
	if wire.WriteRecord(conn, refused) == nil && conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, wire.MaxRecord))
	}
}

// enter gives a connection one of its user's places. Connections of the gateway need none:
// the gateway bounds them itself, for each user of other machines.
func (e *entrance) enter(conn *net.UnixConn, who socket.Peer) (*door.Place, *wire.Refused) {
	if e.rights.IsGateway(who) {
		return nil, nil
	}
	place, err := e.places.Take(who.Key(), e.rights.IsOwner(who), func() { _ = conn.Close() })
	switch {
	case errors.Is(err, door.ErrClosed):
		return nil, e.ending.notNow()
	case err != nil:
		return nil, refusal.New(refusal.SystemNotReady, "user %s has %d connections that are being set up, as many as allowed: try again", who.User.Name, e.cfg.Connections.Local)
	}
	return place, nil
}

// isRequest distinguishes a request, a line of JSON, from a program's hello: no JSON text
// has a hello's opcode in bytes 4 to 7.
func isRequest(in *bufio.Reader) bool {
	head, err := in.Peek(8)
	return err == nil && head[0] == '{' && binary.LittleEndian.Uint32(head[4:]) != uint32(wire.OpHello)
}

// setUp makes a client of a connection: it reads the greeting, shows the program its
// devices, waits until the program asks for one (attach), and then gives it a worker. A worker that opens
// a device which it was lent comes with that loan; all others with nil.
func (e *entrance) setUp(conn *net.UnixConn, in io.Reader, who socket.Peer, place *door.Place, lent *loan) (*client, error) {
	var hello wire.Hello
	if err := wire.ReadAs(in, &hello); err != nil {
		if isSpoken(err) {
			return nil, refusal.New(refusal.Mismatch, "this is a Muster node, and what came first is no greeting that it knows: %v", err)
		}
		return nil, err
	}
	if err := checkHello(&hello); err != nil {
		return nil, err
	}
	if err := e.ending.whyClosed(); err != nil {
		return nil, err
	}
	caller := who.User.UID
	g, err := e.terms.identify(&who, &hello, lent)
	if err != nil {
		return nil, err
	}
	limits := e.settings.Load().Limits.Of(who.User)
	offered, err := e.terms.offers(&hello, limits, g, lent)
	if errors.Is(err, refusal.ErrNoDevices) {
		if err = e.awaitDevice(); err == nil {
			offered, err = e.terms.offers(&hello, limits, g, lent)
		}
	}
	if err != nil {
		return nil, err
	}
	if hello.Guest == wire.GuestAsks {
		e.loads.tellLoads(offered, who, hello.Program)
	}
	if err := offered.Send(conn); err != nil {
		return nil, err
	}
	// A program may do much else before it uses a device, so there is no deadline here.
	// Meanwhile the daemon may close the connection to give its place to another one of the
	// same user; the library then makes a new one.
	_ = conn.SetReadDeadline(time.Time{})
	if !place.Wait() {
		return nil, errMadeRoom
	}
	if err := e.ending.whyClosed(); err != nil {
		return nil, err
	}
	var attach wire.Attach
	if err := wire.ReadAs(in, &attach); err != nil {
		if isSpoken(err) {
			return nil, refusal.New(refusal.Mismatch, "the greeting was not followed by a request for a device: %v", err)
		}
		return nil, err
	}
	if !place.Use() {
		return nil, errMadeRoom
	}
	switch {
	case int64(attach.Device) >= int64(len(offered.Devices)):
		return nil, refusal.New(refusal.InvalidDevice, "there is no device %d: the node shows %d", attach.Device, len(offered.Devices))
	case attach.Place >= settings.MaxDevices:
		return nil, refusal.New(refusal.InvalidDevice, "a program has no device %d: it has at most %d", attach.Place, settings.MaxDevices)
	}
	arena, err := shown.ArenaFor(&hello, &attach, offered.Memory[attach.Device])
	if err != nil {
		return nil, err
	}
	latency, weight, err := e.terms.turnsOf(&hello, who, limits, g)
	if err != nil {
		return nil, err
	}
	share, err := e.sharing.ShareOf(hello.Share, who.User.UID, limits.Share)
	if err != nil {
		return nil, err
	}
	mapper, err := e.terms.mapperOf(hello.Mapping)
	if err != nil {
		return nil, err
	}
	if hello.Guest != 0 { // its own node maps its launches
		mapper = ""
	}
	memory := offered.Memory[attach.Device]
	c := &client{
		peer: who, under: grants.Under{Granted: g}, program: settings.Printable(hello.Program), ordinal: int(attach.Place), arena: arena, link: link{conn: conn}, gone: make(chan struct{}),
		allowance: allowance{
			limits: limits, latency: latency, weight: weight, share: share,
			memory: memory, memoryBy: e.terms.memoryBy(hello.Memory, memory, limits), shown: shown.LeastOf(offered.Infos[attach.Device]),
		},
		holding:  nowhere(vgpu.AnyDevice),
		mappings: mappings{mapping: mapper, explain: int(min(hello.Explain, maxExplained)), shownMany: len(offered.Devices) > 1},
	}
	if g != nil {
		if c.under.Share, c.memoryBy = int(attach.Device), memoryOfShare; memory == hello.Memory {
			c.memoryBy = memoryWithinShare
		}
	}
	if hello.Guest != 0 {
		c.guest = guestOf(offered.Numbers[attach.Device])
	}
	if lent != nil {
		c.carry(lent)
	}
	if owner, is := proc.OwnerOf(hello.Pid); hello.Pid != 0 && (caller == e.rights.Own.UID || g != nil && is && owner == caller) {
		c.peer.PID = int32(hello.Pid) // a process of the node's own user, or of the job, speaks for the program
	}
	return c, e.attach(c)
}

// isSpoken says whether an error means that the other side said something wrong, rather than
// nothing.
func isSpoken(err error) bool {
	var network net.Error
	return !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.As(err, &network)
}

func checkHello(h *wire.Hello) error {
	switch {
	case h.Magic != wire.Magic:
		return refusal.New(refusal.Mismatch, "this is a Muster node, and the greeting is not Muster's")
	case h.Version != wire.Version:
		return refusal.New(refusal.Mismatch, "the program's library speaks version %d of Muster's protocol and the node version %d: use the library that came with the node", h.Version, wire.Version)
	case h.Schema != wire.Schema:
		return refusal.New(refusal.Mismatch, "the program's library and the node are from different builds of Muster: use the library that came with the node")
	}
	return nil
}

// attach gives a client its worker and its memory and tells its program, or says why not.
func (e *entrance) attach(c *client) error {
	given, err := e.provide(c, true)
	if err != nil {
		return err
	}
	defer given.close()
	_ = c.conn.SetWriteDeadline(e.loop.Clock().Add(setUpTime)) // starting the worker may have taken longer
	err = e.attachWith(c, given.worker, given.attached, given.files)
	var refused *wire.Refused
	switch {
	case err == nil:
	case e.keeper != nil && held.CanOutlive(given.files) && !errors.As(err, &refused):
		given.worker.Kill() // the client is rebuilt, and its next worker tells the program
		return nil
	default:
		e.detach(c)
	}
	return err
}

// detach ends a client before its program knew of it. The connection stays open, so that the
// program can be told why.
func (e *entrance) detach(c *client) {
	e.loop.Do(func() { c.refused = true; e.end(c, "", false) })
}

// provision is what a client is given.
type provision struct {
	worker *workers.Process
	stock  *inventory.Inventory // the devices that the worker was told of
	files  []control.Held       // the ring, the data arena, and those that outlive the worker (keptNames)

	attached []byte // what its program is to be told; nil if it knows
}

func (p *provision) close() { held.Close(p.files) }

// provide makes a client known, and gives it its memory and a worker. The caller must close
// what is returned once the program has been given its part. If tells is set, the program
// still has to be told that it is attached.
func (e *entrance) provide(c *client, tells bool) (_ *provision, err error) {
	if err := e.admit(c); err != nil {
		return nil, err
	}
	took := laps.Begin()
	given, with := &provision{}, e.staff.takeSpare(c)
	defer func() {
		if err != nil {
			if with != nil {
				// The context is gone before its memory is given to others. The user number, if the
				// worker has got one, went back where that was lent.
				with.Worker.Kill()
				with.Worker.AwaitExit()
			}
			given.close()
			e.detach(c)
		}
	}()
	if with != nil {
		given.files = with.Files
	} else if given.files, err = held.Shared(); err != nil {
		return nil, refusal.New(refusal.OutOfMemory, "there is no shared memory for the client: %v", err)
	}
	took.End("memory")
	ring, arena := given.files[0].File, given.files[1].File
	c.ring, c.data = ring.Name(), arena.Name()
	serve := e.staff.serveOf(c)
	serve.Identity = c.ring
	if serve.Recover = e.settings.Load().Recover && !c.guest.is; serve.Recover { // a guest's own node rebuilds its client
		more, err := held.Make(c.arena.Size, e.cfg.Swap.Dir, e.cfg.HasCUDA())
		if err != nil {
			return nil, err
		}
		given.files = append(given.files, more...)
	}
	took.End("kept")
	shared, err := wire.Map(ring, nil)
	if err != nil {
		return nil, refusal.New(refusal.OutOfMemory, "there is no shared memory for the client: %v", err)
	}
	if given.worker, given.stock, err = e.staff.employWith(c, serve, given.files, nil, with); err != nil {
		shared.Unmap()
		return nil, err
	}
	took.End("worker")
	if tells {
		given.attached = attachedRecord(c, given.stock)
	}
	if err = e.introduce(c, shared, given, serve.Recover); err != nil {
		e.staff.pool.Dismiss(given.worker)
		shared.Unmap()
	}
	took.End("introduction")
	e.log.Debug("a program has its worker", "client", c.id, "spare", with != nil, "took", took)
	return given, err
}

// introduce gives a client the worker that was found for it. If the client is to outlive the
// worker, the daemon keeps descriptors of the client's files too.
func (e *entrance) introduce(c *client, shared *wire.Shared, given *provision, outlives bool) error {
	var copies []control.Held
	if outlives {
		var err error
		if copies, err = held.Copy(given.files); err != nil {
			return refusal.New(refusal.SystemNotReady, "%v", err)
		}
	}
	assigned := false
	if !e.loop.Ask(func() {
		if assigned = e.assign(c, given.worker, shared, given.stock); assigned {
			c.keep(copies)
			c.attached = given.attached
		}
	}) || !assigned {
		held.Close(copies)
		return e.ending.notNow()
	}
	return nil
}

// attachedRecord is what a program is told together with its memory.
func attachedRecord(c *client, stock *inventory.Inventory) []byte {
	var out bytes.Buffer
	_ = wire.WriteRecord(&out, &wire.Attached{
		ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Memory: c.memory, Warp: uint32(stock.Entries[0].Info.Limits.Warp), Client: uint64(c.id),
	})
	return out.Bytes()
}

// accept serves connections until the socket is closed.
func (e *entrance) accept() {
	for {
		accepted, err := e.socket.Accept()
		if err != nil {
			return
		}
		conn := accepted.(*door.Conn)
		e.loop.Go(func() {
			defer conn.Close()
			e.handle(conn.Conn.(*net.UnixConn), conn.Last)
		})
	}
}
