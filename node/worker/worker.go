package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"muster/device"
	"muster/internal/confine"
	"muster/internal/laps"
	"muster/internal/machine"
	"muster/internal/mailbox"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/answers"
	"muster/node/worker/clientfile"
	"muster/node/worker/hostcopy"
	"muster/node/worker/keeper"
	"muster/node/worker/kernellimit"
	"muster/node/worker/line"
	"muster/node/worker/ownprocess"
	"muster/node/worker/pace"
	"muster/node/worker/sharing"
	"muster/node/worker/staging"
	"muster/node/worker/told"
	"muster/node/worker/trace"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// Open opens a device. The worker processes that share a software device use lock to run their
// kernels one at a time (package turnlock).
type Open func(c control.DeviceConfig, lock *os.File) (device.Device, error)

// chunk is the unit of memory that moves between places.
const chunk = hostcopy.Chunk

// worker serves one client. The loop (run) owns its fields, except for atomics and values with a lock
// of their own; receive of mail runs beside it.
type worker struct {
	parts
	ops     executor
	files   []*os.File // the memory shared with the program: the ring and the data arena
	caller  *os.File   // the program's connection, if the daemon sent it with Serve
	between func()     // called between two events, in tests only
}

// parts are the client and what performs operations for it (the table, operations, says which), each with a state of its own.
type parts struct {
	session
	mail     mail
	devices  devices
	opener   opener
	moves    moves
	ahead    ahead
	launches launches
	copies   copies
	sequence sequence
	ends     ends
	answers  answers.Answers
	replies  replies
	loader   loader
	hosts    hosts
	waits    waits
	early    early
	reach    reach   // the program's memory that kernels reach
	commons  commons // memory shared with other clients
	recovery recovery
	orders   orders

	operations [clientcore.Kinds]operation // which part performs what
}

// Main serves the client that the daemon names on the control connection. It returns when the
// client has ended, or when the daemon has died and no other daemon adopted the worker. The daemon
// takes the answer to its first ping as the sign that the worker is ready: receive answers pings,
// and run starts it only after newWorker and the opening of devices have succeeded.
func Main(connection *os.File, open Open, log *slog.Logger) error {
	// Standard error is a pipe to the daemon. When the daemon dies, writing to it raises SIGPIPE,
	// and a worker that is stopped at that moment gets SIGHUP. The worker must survive both
	// (package line).
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	confines, err := ownprocess.ReadConfine()
	if err == nil {
		err = confines.Files()
	}
	if err != nil {
		return err
	}
	conn, err := control.OpenWorkerEnd(connection)
	if err != nil {
		return err
	}
	connection.Close()
	if confines.By.Seccomp {
		if err := confine.Process(confines.Rules); err != nil {
			return cannotServe(conn, err)
		}
	}
	first, files, err := conn.Receive()
	if err != nil {
		return nil // the daemon ended before there was a client
	}
	if probe, ok := first.(control.Probe); ok {
		return answerProbe(conn, probe.Device, files[0], open)
	}
	var ready *prepared
	if m, ok := first.(control.Prepare); ok {
		if ready, err = prepare(m, files, open, log); err != nil {
			return cannotServe(conn, err)
		}
		if conn.Send(control.Pong{Number: 1}) != nil {
			return nil
		}
		if first, files, err = conn.Receive(); err != nil {
			return nil // the daemon did not need it
		}
	}
	took := laps.Begin()
	serve, ok := first.(control.Serve)
	if !ok || len(files) < 2 {
		return fmt.Errorf("the daemon began with %q and %d descriptors", first.Kind(), len(files))
	}
	if ready == nil {
		ownprocess.UseMPS(serve.MPS, serve.Pace)
	}
	w, err := newWorker(conn, serve, files, ready.opens(open), ready, log.With("client", serve.Client))
	if err != nil {
		return cannotServe(conn, err)
	}
	took.End("worker")
	w.exit = func() { os.Exit(0) }
	w.mail.line.ComplainAt()
	defer w.close()
	err = w.devices.any(serve.Resume)
	if err == nil && serve.User != nil && os.Geteuid() == 0 {
		if err = w.devices.openAll(); err == nil {
			err = ownprocess.Become(serve.User)
		}
	}
	if err != nil {
		w.end(err)
		return cannotServe(conn, err)
	}
	took.End("user")
	w.log.Debug("a worker has its client", "took", took)
	return w.run()
}

// cannotServe tells the daemon why this worker will not serve the client.
func cannotServe(conn *control.WorkerEnd, err error) error {
	_ = conn.Send(control.CannotServe{Reason: err.Error()})
	return err
}

// newWorker makes a worker of what came with Serve. The daemon sends files in this order: ring,
// data arena, then (when the client can be rebuilt) the descriptors that the daemon holds, then one
// lock per device, then the page of precedence if there is a Pace, and last the program's
// connection if there is a Hold. The optional ones are cut off first so that what remains is the
// ring, the arena and the locks. ready is what the worker prepared before; nil if nothing.
func newWorker(conn *control.WorkerEnd, serve control.Serve, files []*os.File, open Open, ready *prepared, log *slog.Logger) (*worker, error) {
	var held []*os.File
	var program *os.File
	if n := len(files); serve.Hold != nil && n > 2 {
		program, files = files[n-1], files[:n-1]
	}
	if serve.Recover && len(files) >= 2+heldFiles {
		held, files = files[2:2+heldFiles], slices.Concat(files[:2], files[2+heldFiles:])
	}
	var page *os.File
	if n := len(files); serve.Pace != nil && n > 2 {
		page, files = files[n-1], files[:n-1]
	}
	if len(files) < 2+len(serve.Devices) || serve.Recover != (held != nil) {
		return nil, fmt.Errorf("the daemon gave %d descriptors for %d devices", len(files), len(serve.Devices))
	}
	shared, err := ready.share(files[0])
	if shared == nil && err == nil {
		shared, err = mapShared(files[0], files[1], serve.ArenaBase, log)
	}
	if err != nil {
		return nil, err
	}
	w := &worker{
		parts:  parts{session: session{serve: serve, shared: shared, consumer: wire.NewConsumer(shared), began: time.Now(), log: log}},
		caller: program, files: files[:2],
	}
	w.devices, w.contexts.open = newDevices(serve.Devices, files[2:], serve.Share, shared.SetGuard, open, log), map[vmm.Place]*gpu{}
	w.ops = executor{session: &w.session, recovery: &w.recovery, operations: &w.operations}
	w.ops.all = w.ops.plainly
	w.enter()
	if w.pace, err = pace.New(serve.Pace, page, w.mail.waits); err != nil {
		return nil, err
	}
	if w.pace.IsLatency() {
		w.consumer.Linger = pace.NextRequest
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.mail = mail{
		session: &w.session, inbox: mailbox.New(replaces), devices: &w.devices,
		line: line.New(w.ctx, conn, line.Terms{Client: serve.Client, Node: serve.Node, Grace: serve.OrphanGrace}, files[0], files[1], w.log),
	}
	w.staging = staging.New(w.consumer.Release)
	w.told = told.New(shared, w.now, w.log)
	arena := vmm.Range{Addr: serve.ArenaBase, Size: serve.ArenaSize}
	if held == nil {
		w.host, err = hostcopy.New(arena, serve.SwapDir, nil)
	} else {
		w.host, err = hostcopy.New(arena, serve.SwapDir, held[:2])
	}
	if err != nil {
		return nil, err
	}
	if held != nil {
		j, err := journal.Map(held[2])
		if err != nil {
			return nil, err
		}
		j.Giving = w.copies.unpinJournal
		w.keeper = keeper.New(j, w.staging, w.log)
		w.host.GivesUp = w.keeper.Expose
		w.mail.line.Hold("host0", copyOf(held[0]))
		w.mail.line.Hold("host1", copyOf(held[1]))
		w.mail.line.Hold("journal", held[2])
		w.consumer.Keep = w.keeper.Record
	}
	w.connect(&w.ops)
	w.commons.counter = sharing.New(w.ctx, serve.Owner, w.mail.waits)
	w.reach.arena, w.opener.prepared, w.orders.observe = files[1], ready, w.observe
	w.orders.saved = clientfile.Client{Shared: shared, Consumer: w.consumer, Host: w.host, Told: w.told, Files: w.files, Arena: arena}
	if serve.Resume && (w.keeper == nil || !w.keeper.Journal().Fresh()) { // a fresh journal means that no message was read from the ring: start as new
		return w, w.recovery.resumeWith(w.devices.known())
	}
	w.core, err = clientcore.New(clientcore.Config{
		Mapping: serve.Mapping, Explain: serve.Explain > 0, Cores: machine.CPUs(),
		Arena: arena, Chunk: chunk, Limit: serve.Memory, LimitBy: serve.MemoryBy, Defer: serve.Defer, Reserves: serve.SwapDir != "", Devices: w.devices.known(), Guest: serve.Guest,
	})
	return w, err
}

// connect gives each part what it needs of the others.
func (p *parts) connect(ops *executor) {
	s := &p.session
	overseer := kernellimit.New(s.serve.KernelTime, kernellimit.Means{
		Context: s.ctx, Go: s.others.Go, Now: s.now, Block: p.waits.block, Waits: func() bool { return p.hosts.outstanding() > 0 }, TooLong: p.mail.overtime,
	})
	p.answers.Means = answers.Means{
		Context: s.ctx, Go: s.others.Go, Block: p.waits.block, Now: s.now, Wake: s.consumer.Wake, Shared: s.shared, Told: s.told, Pace: s.pace,
		Streams: s.contexts.streams, Quiet: s.contexts.quiet, Working: func() bool { return s.core.Working() },
		Gone: p.recovery.gone, Report: func(world uint64, err error) { p.waits.report(notice{world: world, err: err}) },
	}
	s.tracing = tracing{shared: s.shared, say: p.mail.say, record: func() *trace.Recorder {
		return trace.New(s.ctx, p.waits.block, func() uint32 { return ops.current.Header.Seq }, p.devices.configs)
	}}
	p.waits = waits{
		session: s, mail: &p.mail, hosts: &p.hosts, answers: &p.answers, early: &p.early, ops: ops, recovery: &p.recovery,
		notices: mailbox.New[notice](nil), passing: passing{say: p.mail.line.Say, now: s.now},
	}
	p.early = early{session: s, replies: &p.replies, ops: ops, recovery: &p.recovery}
	p.hosts.session, p.hosts.waits = s, &p.waits
	p.opener = opener{
		session: s, mail: &p.mail, devices: &p.devices, reach: &p.reach, commons: &p.commons, loader: &p.loader, copies: &p.copies,
		overseer: overseer,
	}
	p.launches = launches{
		session: s, devices: &p.devices, answers: &p.answers, waits: &p.waits, moves: &p.moves, recovery: &p.recovery, ops: ops,
		overseer: overseer, explains: s.serve.Explain,
	}
	p.copies = copies{session: s, waits: &p.waits}
	p.sequence = sequence{&s.contexts, &p.answers}
	p.ends = ends{session: s, mail: &p.mail, answers: &p.answers, waits: &p.waits, copies: &p.copies}
	p.moves = moves{
		session: s, hosts: &p.hosts, waits: &p.waits, opener: &p.opener,
		mover: mover{ctx: s.ctx, contexts: &s.contexts, host: s.host, block: p.waits.block, drain: p.waits.drain, now: s.now, log: s.log},
	}
	p.ahead.session, p.ahead.mail = s, &p.mail
	p.reach = reach{session: s, waits: &p.waits}
	p.commons = commons{session: s, moves: &p.moves}
	p.replies = replies{session: s, answers: &p.answers, mayDie: ops.mayDie}
	p.loader = loader{session: s, waits: &p.waits}
	p.recovery = recovery{
		session: s, mail: &p.mail, launches: &p.launches, answers: &p.answers, hosts: &p.hosts,
		ahead: &p.ahead, ends: &p.ends, ops: ops,
	}
	p.orders = orders{
		session: s, mail: &p.mail, launches: &p.launches, opener: &p.opener, moves: &p.moves, ahead: &p.ahead,
		answers: &p.answers, early: &p.early, waits: &p.waits, recovery: &p.recovery, ops: ops,
	}
}

// errEnded says that the service is over, for a reason that the client knows. The client is not
// rebuilt.
var errEnded = errors.New("the session has ended")

// errProgram says that the program broke the protocol. The client is not rebuilt.
var errProgram = errors.New("the program sent what it must not")

var errDaemonEnded = fmt.Errorf("%s: %w", line.DaemonEnded, errEnded)

// run is the loop: it handles events until an error ends the service.
func (w *worker) run() error {
	if w.caller != nil {
		w.mail.attach(*w.serve.Hold, w.caller)
	}
	w.others.Go(w.mail.receive)
	return w.end(wire.Guard(func() error {
		if err := w.recovery.catchUp(w.hear, w.await); err != nil {
			return err
		}
		for {
			if err := w.step(); err != nil {
				return err
			}
		}
	}))
}

// close releases everything. It closes the connection first: contexts can only close once their
// kernels stop, and if a device cannot stop them, the daemon, which has seen the connection end,
// kills this process. Memory is unmapped only after all goroutines have ended, since they still
// write to it.
func (w *worker) close() {
	w.mail.line.Close()
	w.stop()
	w.hosts.drop()
	for place := range w.contexts.open {
		w.opener.close(place)
	}
	w.others.Wait()
	w.pace.Close()
	w.commons.counter.Close()
	if w.keeper != nil {
		w.keeper.Journal().Unmap()
	}
	w.host.Close()
	w.shared.Unmap()
	w.mail.line.LetGo()
	w.orders.close()
	for _, f := range w.files {
		f.Close()
	}
}

// step handles one event: a message of the client, messages of the daemon, or a timeout.
//
// The order matters. The daemon is heard first, so that a revocation does not wait behind the ring.
// Orders (checkpoint, restore) come next, between two messages, while the client's state is
// complete. If the core waits for an answer of the daemon, no further message may reach it.
// Messages that were read ahead come before those in the ring, because the program sent them
// earlier.
func (w *worker) step() error {
	if w.between != nil {
		w.between()
	}
	if w.orders.held {
		return w.orders.standBy()
	}
	if err := w.hear(); err != nil {
		return err
	}
	if obeyed, err := w.orders.obey(); obeyed || err != nil {
		return err
	}
	if w.core.Waits() {
		return w.await()
	}
	if w.recovery.unproven {
		w.recovery.prove()
	}
	if err := w.recovery.maybeFold(); err != nil {
		return err
	}
	if len(w.launches.late) >= mostLate {
		if err := w.launches.settle(); err != nil {
			return err
		}
	}
	if w.core.Queued() {
		return w.next()
	}
	if w.ends.over && !w.consumer.Pending() { // now, while the program does something else and no call is delayed
		if err := w.noteEnd(true); err != nil {
			return err
		}
		if err := w.recovery.maybeFold(); err != nil { // so is a base that is due with the kernels that have just ended
			return err
		}
	}
	h, body, err := w.consumer.Next(w.patience())
	switch {
	case errors.Is(err, wire.ErrWoken), errors.Is(err, wire.ErrTimeout):
		return w.nothingCame()
	case errors.Is(err, wire.ErrStopped):
		return errDaemonEnded
	case err != nil:
		return fmt.Errorf("%w: %w", errProgram, err)
	}
	e := w.keeper.Latest()
	if w.mail.waits() || w.waits.notices.Len() > 0 { // a fault counts before every message that the program sent after it was told
		body = bytes.Clone(body)
		if err := w.hear(); err != nil {
			return err
		}
	}
	return w.take(e, h, body)
}

// nothingCame does periodic work when the program has sent nothing.
func (w *worker) nothingCame() error {
	if err := w.launches.settle(); err != nil {
		return err
	}
	w.keeper.LetGo() // the program may be waiting for this staging memory
	if position, _ := w.consumer.Position(); w.keeper.Rests(position, time.Now()) {
		if err := w.copies.giveSpare(); err != nil {
			return err
		}
	}
	return w.observe()
}

// patience is how long step waits for a message before it does periodic work.
func (w *worker) patience() time.Duration {
	if w.keeper.Holds() {
		return min(w.core.Patience(), keeper.KeepTime)
	}
	return w.core.Patience()
}

// next hands the first of the messages that were read ahead to the core.
func (w *worker) next() error {
	if err := w.launches.settle(); err != nil {
		return err
	}
	if m := w.early.messages; len(m) > 0 {
		w.ops.current, w.early.messages = m[0], m[1:]
	}
	return w.ops.handle(w.core.Next(w.now()))
}

// take hands a message from the ring to the core.
func (w *worker) take(e journal.Entry, h wire.Header, body []byte) error {
	if h.Op == wire.OpTraceRead {
		if err := w.tracing.read(h, body); err != nil {
			return err
		}
		return w.nothingCame()
	}
	// The message has an answer, which must report launches that the device has refused since.
	if h.Slot >= 0 && len(w.launches.late) > 0 {
		if err := w.launches.settle(); err != nil {
			return err
		}
	}
	m := clientcore.Message{Header: h, Body: body}
	if h.Op.TakesData() || h.Op.GivesData() {
		data, err := w.shared.Data(h.Data, h.Length)
		if err != nil {
			return errors.Join(err, clientcore.ErrProtocol)
		}
		if h.Op.TakesData() {
			m.Data, m.Pinned = data, h.Release == 0
		}
		if h.Op == wire.OpModuleData {
			w.keeper.Attach(e, data, h.Release != 0)
		}
	}
	if err := w.noteEnd(w.ends.over); err != nil {
		return err
	}
	w.ends.over = false
	w.ops.current = message{Header: h, Entry: e, Stage: w.staging.Take(h.Release)}
	w.launches.tellEnds()
	if w.serve.Mapping != "" && w.pace != nil && h.Op == wire.OpLaunch {
		w.pace.TellQueues(w.core.MappedTo(), w.core.Queues)
	}
	var now clientcore.Time
	if w.core.Timed(h.Op) {
		now = w.now()
	}
	return w.ops.handle(w.core.Message(now, m))
}

// noteEnd tells the core that all work has ended, if so and if the core does not know. Quiet says
// that the caller knows that nothing is in flight; otherwise noteEnd asks the devices.
func (w *worker) noteEnd(quiet bool) error {
	at := w.answers.LastEnd()
	if !w.core.Unnoticed(at) {
		return nil
	}
	var err error
	if !quiet {
		quiet, err = w.contexts.quiet()
	}
	if !quiet || err != nil {
		return nil // the next operation on the device will report the error
	}
	return w.ops.handle(w.core.Ended(w.now(), at), nil)
}

// hear handles everything that the daemon and other goroutines have reported, without waiting.
// Faults that were put aside come first.
func (w *worker) hear() error {
	for {
		if len(w.waits.faults) > 0 {
			f := w.waits.faults[0]
			w.waits.faults = w.waits.faults[1:]
			if err := w.ops.found(f.world, f.err); err != nil {
				return err
			}
			continue
		}
		if m, ok := w.mail.inbox.Take(); ok {
			if err := w.heard(m); err != nil {
				return err
			}
			continue
		}
		n, ok := w.waits.notices.Take()
		if !ok {
			return nil
		}
		if err := w.noticed(n); err != nil {
			return err
		}
	}
}

// await waits for one event while the core can go on only with an answer of the daemon.
func (w *worker) await() error {
	if m, ok := w.mail.inbox.Take(); ok {
		return w.heard(m)
	}
	if n, ok := w.waits.notices.Take(); ok {
		return w.noticed(n)
	}
	if w.core.AwaitsFunctions() {
		return w.awaitFunctions()
	}
	select {
	case <-w.mail.inbox.News():
		return nil
	case <-w.waits.notices.News():
		return nil
	case <-w.ctx.Done():
		return errDaemonEnded
	}
}

// awaitFunctions waits for one event while the core can go on also when host functions of the program
// return: messages say that they have.
func (w *worker) awaitFunctions() error {
	if w.ctx.Err() != nil {
		return errDaemonEnded
	}
	if err := w.early.read(longWait); err != nil {
		return fmt.Errorf("%w: %w", err, errEnded)
	}
	return w.observe()
}

// noticed handles a notice between two operations.
func (w *worker) noticed(n notice) error {
	if n.word {
		return w.ops.handle(w.core.Met(w.now(), n.cookie))
	}
	return w.waits.noticedMeanwhile(n)
}

// heard handles one message of the daemon.
func (w *worker) heard(m control.ToWorker) error {
	w.tracing.Told(m)
	if err := w.launches.settle(); err != nil {
		return err
	}
	switch m := m.(type) {
	case order:
		w.orders.next = append(w.orders.next, m)
	case control.Proceed:
		return w.orders.proceed(m)
	case abandoned:
		return w.orders.disown()
	case control.Forgo:
		w.opener.forgo()
	case discarded:
		w.opener.prepared.ending = false
		w.mail.say(control.Forgone{})
	case control.Lost:
		w.devices.lost(m.Device)
		return w.recovery.lostDevice(m)
	case readied:
		if m := w.ahead.due(); m != nil {
			return w.ops.handle(w.core.Control(w.now(), *m))
		}
	case control.Revoke:
		if !w.recovery.replays() && !w.serve.Guest && w.core.HomeDevice() >= 0 && w.ahead.postpones(m) {
			return nil
		}
		w.ahead.due() // one that was postponed is void
		return w.ops.handle(w.core.Control(w.now(), m))
	case control.Grant:
		if m.Lease != w.core.Standing().Lease {
			w.ahead.due() // void: it was of the lease before, which the client has given back by itself
		}
		return w.ops.handle(w.core.Control(w.now(), m))
	case control.Deny, control.Committed, control.GrantFurther, control.DenyFurther, control.RevokeFurther, control.Beside:
		return w.ops.handle(w.core.Control(w.now(), m))
	case comingDevice:
		if err := w.devices.add(m); err != nil {
			return err
		}
		return w.ops.handle(w.core.AddDevice(w.now(), m.Device, w.devices.describe(m.Device)))
	case comingLoan:
		w.devices.keepWay(m.Device, m.way)
		return w.ops.handle(w.core.Control(w.now(), m.GrantFurther))
	case control.Parked:
		w.told.Teller.Tell(m.Reason)
	case control.Renew:
		return w.recovery.renew(m)
	case control.Watch:
		quiet, err := w.contexts.quiet()
		if err != nil {
			return w.ops.found(w.told.Sticky.Current(), err)
		}
		return w.ops.handle(w.core.Watch(w.now(), m.On, quiet, w.consumer.Pending()))
	case nextDaemon:
		w.mail.line.Begin(m.end)
		if err := w.ops.handle(w.core.Adopted(w.now())); err != nil {
			return err
		}
		if w.tracing.isOn() {
			w.mail.say(control.Traced{})
		}
	default:
		return fmt.Errorf("the daemon says %q, which is not understood: %w", m.Kind(), errEnded)
	}
	return nil
}

// observe tells the core, while no message comes, whether the devices are idle.
func (w *worker) observe() error {
	quiet, err := w.contexts.quiet()
	if err != nil {
		return w.ops.found(w.told.Sticky.Current(), err)
	}
	w.pace.Look(quiet)
	w.launches.tellEnds()
	return w.ops.handle(w.core.Observe(w.now(), quiet, w.answers.LastEnd()))
}

// end ends the service after an error. If another worker can take over, only the daemon is told and
// the program notices nothing. Otherwise the program is told the reason, and the daemon gets the
// last report.
func (w *worker) end(err error) error {
	reason := err.Error()
	if w.recovery.mayRebuild(err) {
		w.log.Warn("the client is to be rebuilt in another worker", "reason", reason)
		lost := errors.Is(err, errRebuild)
		m := control.Rebuild{Device: w.lostNumber(), Lost: lost, Shared: errors.Is(err, errShared) || lost && w.sharesFate(), Reason: reason}
		if w.serve.OrphanGrace > 0 {
			w.mail.askForAnother(m)
		} else {
			w.mail.say(m)
		}
		// Exit without closing contexts one after the other: closing would release a stream that
		// waits for a host function, and its next kernels would run although the function has not.
		w.exit()
		return nil
	}
	w.log.Info("client ended", "reason", reason)
	w.shared.Close(reason)
	w.launches.tellEnds()
	w.mail.sayAll(w.core.Last(w.now()))
	w.mail.say(control.Report{Stats: w.core.Stats()})
	last := control.Ended{Reason: reason}
	w.told.Untold.AtEnd(func(why string) { last = control.Ended{Reason: why, Fault: true} }) // the program ended before the loop heard of its fault
	w.mail.say(last)
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// lostNumber is the device whose loss ended this worker. Where the client has several contexts each
// one is asked; if none reports a loss, it is the device that the client holds a lease on, or else one it has a
// context on; -1 if neither.
func (w *worker) lostNumber() int {
	places := w.contexts.placesInOrder()
	for _, p := range places {
		var fault *device.Fault
		if len(places) == 1 {
			break
		}
		if _, err := w.contexts.open[p].mover.Done(); errors.As(err, &fault) && fault.Kind == device.DeviceLost {
			return p.Index()
		}
	}
	if home := w.core.HomeDevice(); home >= 0 || len(places) == 0 {
		return home
	}
	return places[0].Index()
}
