package node

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"muster/device"
	"muster/internal/whois"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// Orders are requests about one client's checkpoints. The requester opens the file,
// with his own rights, and hands over its descriptor: the daemon opens no files on a
// user's behalf. A conversation is in lines of JSON:
//
//	{"request":"checkpoint","client":3}     {"send":"file"}
//	a byte, with the descriptor             {"bytes":4096}
//
// A checkpoint waits until the client's kernels have ended. If the requester hangs up before that, the
// checkpoint is given up.
//
// and the same for restore. With "hold":true the client does not go on after it was
// written: {"held":true,...} is the answer, and the requester sends "save" once the
// program is stopped, and the rest is written. If the connection ends before that, the
// client goes on as if nothing had happened.
//
//	{"request":"revive",...}                {"send":"file"}
//	a byte, with the descriptor             {"client":5}, with three descriptors
//	{"request":"go"}                        {}
//
// makes a client from a file, for a program that the requester is about to restore: the
// descriptors are the program's end of its connection, the ring and the data arena. If
// the connection ends before "go", so does the client.

//
// An order ends with the worker that has it. If the client goes on in another worker,
// or with another daemon, the requester must give the order again.

// orders gives them to workers.
type orders struct {
	common
	rights requests.Rights
	owners requests.Clients
	notNow func() *wire.Refused

	revivable func(*requests.Talk, ask.OrderRequest) (*client, error) // that the request describes, if the user may have it
	provide   func(c *client, tells bool) (*provision, error)
	entrust   func(c *client, w *workers.Process, attached []byte, files []control.Held) error
	accompany func(c *client, conn *net.UnixConn, said bool)
	end       func(c *client, reason string, kill bool)
}

// order is an order that a client's worker has.
type order struct {
	worker  *workers.Process
	answers chan control.ToDaemon
	due     int  // answers that the worker owes; the loop's
	givenUp bool // whoever asked for it has hung up; the loop's
}

// answered passes on what the worker answers. Only the loop calls it.
func (o *order) answered(m control.ToDaemon) {
	o.due--
	o.answers <- m // never blocks: an order has at most two answers, and the channel holds four
}

// begin finds a client that a user may give orders to. Until finish it takes no
// other order.
func (s *orders) begin(who socket.Peer, id uint64) (c *client, o *order, err error) {
	err = s.loop.Try(func() error {
		if err := s.rights.MayActOn(who, vgpu.ClientID(id), s.owners); err != nil {
			return err
		}
		c = s.clients[vgpu.ClientID(id)]
		switch {
		case c.worker == nil || c.isAway() || c.unsettled:
			return fmt.Errorf("client %d has no worker at the moment, and gets one: try again", id)
		case c.order != nil && c.order.givenUp:
			return fmt.Errorf("client %d still runs a kernel that an interrupted checkpoint waited for: try again when the kernel has ended", id)
		case c.order != nil:
			return fmt.Errorf("client %d is being saved or restored already: try again", id)
		}
		o = &order{worker: c.worker, answers: make(chan control.ToDaemon, 4)}
		c.order = o
		return nil
	})
	return c, o, err
}

func (s *orders) finish(c *client) {
	s.loop.Do(func() { c.order = nil })
}

// owes says whether a client's worker has an order that it has not answered.
func (c *client) owes() bool { return c.order != nil && c.order.worker == c.worker && c.order.due > 0 }

// command has the worker do something, and waits for its answer. The files are closed
// in any case.
func (s *orders) command(c *client, o *order, m control.ToWorker, files ...*os.File) (control.ToDaemon, error) {
	err := s.loop.Try(func() error {
		switch {
		case c.ending:
			return fmt.Errorf("client %d has ended", c.id)
		case c.worker != o.worker:
			return c.workerLost()
		}
		o.due++
		c.worker.Post(m, files...)
		return nil
	})
	if err != nil {
		proc.CloseAll(files)
		return nil, err
	}
	select {
	case answer := <-o.answers:
		return answer, nil
	case <-o.worker.Exited:
		return nil, c.workerLost()
	case <-s.loop.Ended():
		return nil, s.notNow()
	}
}

// workerLost says that an order was not carried out, or that its outcome is unknown.
func (c *client) workerLost() error {
	return fmt.Errorf("the worker of client %d ended before it had answered: if muster ps still lists the client, it goes on in another; then try again", c.id)
}

// proceed lets a held client go on.
func (s *orders) proceed(c *client, o *order) {
	s.loop.Do(func() {
		if !c.ending && c.worker == o.worker {
			c.worker.Post(control.Proceed{})
		}
	})
}

func (s *orders) checkpoint(t *requests.Talk, r ask.OrderRequest) (bytes uint64, err error) {
	c, o, err := s.begin(t.Who, r.Client)
	if err != nil {
		return 0, err
	}
	defer s.finish(c)
	within := s.loop.Clock().Add(setUpTime)
	file, err := t.File(within)
	if err != nil {
		return 0, err
	}
	stay := t.OnHangUp(func() {
		s.loop.Do(func() { o.givenUp = true })
		s.proceed(c, o)
	})
	s.log.Info("a client is saved", "client", c.id, "by", t.Who.User.Name, "with its program", r.Hold)
	answer, err := answerOf[control.Checkpointed](s.command(c, o, control.Checkpoint{Hold: r.Hold}, file))
	stay(within)
	if err == nil && answer.Held {
		return s.hold(t, c, o, answer.Bytes)
	}
	return answer.Bytes, err
}

// answerOf takes the answer to an order, unless it tells of an error.
func answerOf[A control.Checkpointed | control.Restored](said control.ToDaemon, err error) (A, error) {
	answer, ok := said.(A)
	why := ""
	switch m := said.(type) {
	case control.Checkpointed:
		why = m.Error
	case control.Restored:
		why = m.Error
	}
	switch {
	case err != nil:
		return answer, err
	case !ok:
		return answer, errors.New("the worker answers what it was not asked")
	case why != "":
		return answer, errors.New(why)
	}
	return answer, nil
}

// hold keeps a client stopped until the requester sends save. If the requester says
// anything else, or hangs up, the client goes on.
func (s *orders) hold(t *requests.Talk, c *client, o *order, bytes uint64) (uint64, error) {
	reply := ask.OrderReply{Held: true, Bytes: bytes, Client: uint64(c.id), Socket: whois.Inode(c.conn), Ring: c.ring, Arena: c.data, Shown: c.shown}
	stop := s.watch(t.Conn, c)
	defer stop()
	err := t.Say(reply)
	request := ""
	if err == nil {
		request, err = t.Hear()
	}
	if err != nil || request != ask.SaveRequest {
		s.proceed(c, o)
		return 0, fmt.Errorf("the checkpoint of client %d was given up", c.id)
	}
	answer, err := answerOf[control.Checkpointed](s.command(c, o, control.Proceed{Save: true}))
	return answer.Bytes, err
}

// watch makes reads from a conversation fail once its client has ended, so that the
// conversation does not wait for the requester.
func (s *orders) watch(conn *net.UnixConn, c *client) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-c.gone:
			_ = conn.SetReadDeadline(time.Unix(1, 0))
		case <-done:
		}
	}()
	return func() { close(done) }
}

func (s *orders) restore(t *requests.Talk, r ask.OrderRequest) (bytes uint64, err error) {
	c, o, err := s.begin(t.Who, r.Client)
	if err != nil {
		return 0, err
	}
	defer s.finish(c)
	file, err := t.File(s.loop.Clock().Add(setUpTime))
	if err != nil {
		return 0, err
	}
	answer, err := answerOf[control.Restored](s.command(c, o, control.Restore{}, file))
	if err == nil {
		s.log.Info("a client was restored", "client", c.id, "by", t.Who.User.Name, "bytes", answer.Bytes)
	}
	return answer.Bytes, err
}

// --- reviving ------------------------------------------------------------------------

// maxVirtual is how many virtual devices a program may see.
const maxVirtual = 64

// revive makes a client from a file, for a program that the requester is about to
// restore.
func (s *orders) revive(t *requests.Talk, r ask.OrderRequest) (uint64, error) {
	c, err := s.revivable(t, r)
	if err != nil {
		return 0, err
	}
	file, err := t.File(s.loop.Clock().Add(setUpTime))
	if err != nil {
		return 0, err
	}
	own, theirs, err := socket.Pair()
	if err != nil {
		file.Close()
		return 0, err
	}
	defer theirs.Close()
	c.conn = own
	given, err := s.provide(c, false)
	if err != nil {
		file.Close()
		own.Close()
		return 0, err
	}
	defer given.close()
	bytes, err := s.refill(t, c, given.worker, file)
	if err == nil {
		err = s.sendProgram(t, c, given, theirs)
	}
	if err != nil {
		s.loop.Do(func() { s.end(c, "it was not restored", false) })
		<-c.gone
		return 0, err
	}
	s.loop.Go(func() { s.accompany(c, own, false) })
	return bytes, nil
}

// revivable makes the client that a request describes, if the user may have it.
func (t *terms) revivable(to *requests.Talk, r ask.OrderRequest) (*client, error) {
	who := to.Who
	if r.Grant == "" && t.settings.Load().Grants == settings.GrantsRequired { // the file does not record a grant
		return nil, errors.New("this node serves only programs that were granted its devices (grants: required), and a program that is restored has no grant: restore it on another node")
	}
	if r.UID != who.User.UID {
		if !t.rights.IsOwner(who) || r.UID == settings.Nobody {
			return nil, fmt.Errorf("the program is user %s's: only that user, the node's owner and root can restore it", t.names.Of(r.UID))
		}
		who.User = settings.Account{UID: r.UID, Name: t.names.Of(r.UID)}
	}
	limits := t.settings.Load().Limits.Of(who.User)
	infos := t.stock.Load().Infos()
	under, most, err := t.revivedUnder(&who, r)
	if under.Granted != nil {
		infos = []device.Info{t.stock.Load().Entries[under.Home()].Info}
	}
	switch {
	case err != nil:
		return nil, err
	case len(infos) == 0:
		return nil, refusal.ErrNoDevices
	case !t.mayUse(who.User):
		return nil, fmt.Errorf("user %s may not use this node: have its owner allow that (allow: in its configuration)", who.User.Name)
	case r.Virtual < 0 || r.Virtual >= maxVirtual:
		return nil, fmt.Errorf("virtual device %d: a program sees at most %d", r.Virtual, maxVirtual)
	case r.ArenaSize < settings.MinArena || r.ArenaSize > settings.MaxArena || r.ArenaSize&(r.ArenaSize-1) != 0:
		return nil, fmt.Errorf("an address range of %d bytes: no node gives that", r.ArenaSize)
	}
	if r.Shown == nil {
		r.Shown = shown.LeastOf(infos)
	}
	memory := min(t.worldOf(infos, r.Memory, limits), most)
	who.PID = r.Pid
	arena := shown.ArenaOf(r.Virtual, memory)
	latency, weight := limits.Class == settings.ClassLatency, weightOf(0, limits)
	if under.Granted != nil {
		if latency, weight, err = t.turnsOf(&wire.Hello{}, who, limits, under.Granted); err != nil {
			return nil, err
		}
	}
	by := t.memoryBy(r.Memory, memory, limits)
	if under.Granted != nil {
		by = memoryOfShare
	}
	return &client{
		peer: who, under: under, program: settings.Printable(r.Program), ordinal: r.Virtual, arena: device.Arena{Base: arena.Base, Size: r.ArenaSize}, gone: make(chan struct{}), holding: nowhere(vgpu.AnyDevice),
		allowance: allowance{
			limits: limits, latency: latency, weight: weight, share: limits.Share,
			memory: memory, memoryBy: by, shown: r.Shown,
		},
		mappings: mappings{mapping: t.nodeMapper()},
	}, nil
}

// revivedUnder finds the grant under which a client is revived, if it is under one, and how much memory
// that leaves it.
func (t *terms) revivedUnder(who *socket.Peer, r ask.OrderRequest) (grants.Under, uint64, error) {
	if r.Grant == "" {
		return grants.Under{}, math.MaxUint64, nil
	}
	g, err := t.identify(who, &wire.Hello{Grant: r.Grant}, nil)
	if err != nil {
		return grants.Under{}, 0, err
	}
	if r.Share < 0 || r.Share >= len(g.Devices) {
		return grants.Under{}, 0, fmt.Errorf("there is no device %d: grant %s has %d here", r.Share, g.ID, len(g.Devices))
	}
	under := grants.Under{Granted: g, Share: r.Share}
	return under, grants.ShareOf(g.Devices[r.Share], t.stock.Load().Entries[under.Home()].Info), nil
}

// refill gives a new client's worker the file.
func (s *orders) refill(t *requests.Talk, c *client, w *workers.Process, file *os.File) (uint64, error) {
	_, o, err := s.begin(socket.Peer{User: s.rights.Own}, uint64(c.id))
	if err == nil && o.worker != w {
		s.finish(c)
		err = c.workerLost()
	}
	if err != nil {
		file.Close()
		return 0, err
	}
	defer s.finish(c)
	answer, err := answerOf[control.Restored](s.command(c, o, control.Restore{Whole: true}, file))
	if err == nil {
		s.log.Info("a client was revived", "client", c.id, "by", t.Who.User.Name, "user", c.peer.User.Name, "bytes", answer.Bytes)
	}
	return answer.Bytes, err
}

// sendProgram gives the requester what the restored program needs of its client, and
// lets the client go on once the program does. From then on the client survives the
// loss of its worker and of this daemon, as any other.
func (s *orders) sendProgram(t *requests.Talk, c *client, given *provision, connection *os.File) error {
	stop := s.watch(t.Conn, c)
	defer stop()
	reply := ask.OrderReply{Client: uint64(c.id), Ring: c.ring, Arena: c.data}
	if err := t.Say(reply, connection, given.files[0].File, given.files[1].File); err != nil {
		return err
	}
	request, err := t.Hear()
	if err != nil || request != ask.GoRequest {
		return errors.New("the program was not restored")
	}
	if err := s.entrust(c, given.worker, nil, given.files); err != nil {
		return err
	}
	return s.loop.Try(func() error {
		if c.ending || c.worker != given.worker {
			return c.workerLost()
		}
		c.worker.Post(control.Proceed{})
		return nil
	})
}
