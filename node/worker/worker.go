package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// Open opens a device; lock is what the processes that stand for a software
// device take turns with.
type Open func(c control.DeviceConfig, lock *os.File) (device.Device, error)

// chunk is the unit of memory that moves between places.
const chunk = 2 << 20

// worker is the service of one client.
type worker struct {
	log     *slog.Logger
	control *control.WorkerEnd // the present daemon's; only receive uses it
	line    line               // the same, for what is said
	inbox   *inbox             // from the daemon
	notices chan notice        // from goroutines of this process
	open    Open
	exit    func() // ends the process

	serve    control.Serve
	locks    []*os.File
	devices  []device.Device // nil where one could not be opened
	shifted  bool            // variables are elsewhere than the program knows
	files    []*os.File      // of the memory that is shared with the program: the ring's and the data arena's
	caller   *os.File        // the program's connection, if it came with the client
	shared   *wire.Shared
	consumer *wire.Consumer

	// What the next daemon needs, should this one die (orphan.go).
	owner      int            // the user whose daemon it is
	held       []control.Held // descriptors
	program    *net.UnixConn  // the program's connection; nil until it is attached
	dismissed  bool           // the daemon has ended the client
	complainTo func(*os.File)

	core *clientcore.Core
	keeper
	latestEntry journal.Entry // of the last message that was read

	began  time.Time
	stage  *stage   // staging memory of the message that is handled
	faults []notice // that came while the loop was busy
	orders orders

	between func()      // between two events, for tests; nil: nothing
	dies    func() bool // the process is to be killed now, for tests; nil: never

	ctx     context.Context // ends with the worker
	stop    context.CancelFunc
	others  sync.WaitGroup // goroutines beside the loop
	waiting atomic.Int32   // calls that are answered later
	replies sync.WaitGroup // those of them that are not answered

	host    *hostMemory
	reached map[uint64]*reached // memory of the program's, by its address
	commons map[uint64]*common  // memory that several clients have, by its address here
	counter counter
	gpus    map[vmm.Place]*gpu
	latest  *gpu // the one that was used last
	late    []lateLaunch
	hosts   hosts
	outs    outs
	spread  spread
	// explains is of how many launches the program's user is still told why they run where they do.
	explains int
	printed  printed
	checking bool // some device checks what kernels do to memory
	staging  *staging
	sticky   sticky
	teller   teller
	passing  passing
	pace     *pacer // nil: others need not be made way for

	timeline   *recorder // nil: nobody has asked where the time goes
	neighbours neighbours
	wasTraced  bool // the worker before this one had a recorder
	rebuilt    rebuilt

	over    bool // nothing was under way when the last call was answered
	watched atomic.Bool
	// readying says that pages of host memory are being made beside the loop.
	readying atomic.Bool
	pinsHost bool            // host copies were pinned before
	once     clientcore.Time // what the last move took that others will not
	done     atomic.Int64    // the Time when somebody last saw work end that it waited for
}

// notice is what a goroutine beside the loop tells it.
type notice struct {
	cookie uint64 // a stream has arrived at this function of the program's; 0: a fault
	word   bool   // it is no function: the stream has waited for a word, and goes on
	world  uint64
	err    error
}

// Main serves the client that the daemon names on the control connection, and
// returns when the client is gone, or the daemon is and no other comes. The daemon takes the answer to its
// first ping for the sign that the worker is ready: receive, which gives it, begins
// when all else has been set up.
func Main(connection *os.File, open Open, log *slog.Logger) error {
	volunteer()
	// The daemon reads what is written to the standard error: without it that is a
	// broken pipe. And a process whose parent dies while it is stopped gets SIGHUP.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	conn, err := control.OpenWorkerEnd(connection)
	if err != nil {
		return err
	}
	connection.Close()
	first, files, err := conn.Receive()
	if err != nil {
		return nil // the daemon ended before there was a client
	}
	if probe, ok := first.(control.Probe); ok {
		return answerProbe(conn, probe.Device, files[0], open)
	}
	serve, ok := first.(control.Serve)
	if !ok || len(files) < 2 {
		return fmt.Errorf("the daemon began with %q and %d descriptors", first.Kind(), len(files))
	}
	useMPS(serve.MPS)
	w, err := newWorker(conn, serve, files, open, log.With("client", serve.Client))
	if err != nil {
		return cannotServe(conn, err)
	}
	w.exit, w.complainTo = func() { os.Exit(0) }, complainAt
	defer w.close()
	err = w.anyDevice()
	if err == nil {
		err = w.become(serve.User)
	}
	if err != nil {
		w.end(err)
		return cannotServe(conn, err)
	}
	return w.run()
}

// anyDevice says why no device can be opened, if that is so: without any there is
// nothing to serve the client with. A client that was served before waits for a device of another
// node: that node may come back.
func (w *worker) anyDevice() error {
	var all error
	waits := false
	for i := range w.devices {
		_, err := w.device(i)
		if err == nil {
			return nil
		}
		waits = waits || w.serve.Resume && w.serve.Devices[i].Lender != (control.Lender{})
		all = errors.Join(all, err)
	}
	if waits {
		return nil
	}
	return all
}

// volunteer has the system end workers before the daemon when memory runs out: what
// a program makes its worker take must not cost the others their node.
func volunteer() {
	const path, more = "/proc/self/oom_score_adj", 500
	now, err := os.ReadFile(path)
	if err != nil {
		return // not every system has it
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(now))); err == nil && n < more {
		_ = os.WriteFile(path, []byte(strconv.Itoa(more)), 0) // it works without
	}
}

// cannotServe tells the daemon why there will be no service.
func cannotServe(conn *control.WorkerEnd, err error) error {
	_ = conn.Send(control.CannotServe{Reason: err.Error()})
	return err
}

func newWorker(conn *control.WorkerEnd, serve control.Serve, files []*os.File, open Open, log *slog.Logger) (*worker, error) {
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
	shared, err := wire.Map(files[0], files[1])
	if err != nil {
		return nil, err
	}
	w := &worker{
		log: log, control: conn, line: line{current: conn, open: true}, inbox: newInbox(), notices: make(chan notice, 16), open: open,
		serve: serve, caller: program, files: files[:2], locks: files[2:], devices: make([]device.Device, len(serve.Devices)),
		shared: shared, consumer: wire.NewConsumer(shared), gpus: map[vmm.Place]*gpu{}, began: time.Now(),
	}
	if w.pace, err = newPacer(serve.Pace, page); err != nil {
		return nil, err
	}
	if w.pace.isLatency() {
		w.consumer.Linger = nextRequest
	}
	w.counter.owner, w.explains = serve.Owner, serve.Explain
	w.placeArena()
	w.owner, w.complainTo = os.Geteuid(), func(f *os.File) { f.Close() }
	if serve.OrphanGrace > 0 {
		w.held = []control.Held{{Name: "ring", File: files[0]}, {Name: "arena", File: files[1]}}
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.staging = &staging{release: w.consumer.Release}
	w.teller = teller{notify: shared.Notify, now: w.now, log: w.log}
	w.sticky.tell, w.sticky.status = w.teller.tell, shared.SetStatus
	arena := vmm.Range{Addr: serve.ArenaBase, Size: serve.ArenaSize}
	if held == nil {
		w.host, err = newHostMemory(arena, serve.SwapDir, nil)
	} else {
		w.host, err = newHostMemory(arena, serve.SwapDir, held[:2])
	}
	if err != nil {
		return nil, err
	}
	w.host.giving = w.unpinHost
	if held != nil {
		w.rate = firstRate
		if w.journal, err = journal.Map(held[2]); err != nil {
			return nil, err
		}
		w.hold("host0", copyOf(held[0]))
		w.hold("host1", copyOf(held[1]))
		w.hold("journal", held[2])
		w.consumer.Keep = w.record
	}
	if serve.Resume && (w.journal == nil || !w.journal.Fresh()) { // else nothing was read from the ring
		return w, w.resumeWith(w.openDevices())
	}
	w.core, err = clientcore.New(clientcore.Config{
		Mapping: serve.Mapping, Explain: serve.Explain > 0,
		Arena: arena, Chunk: chunk, Limit: serve.Memory, LimitBy: serve.MemoryBy, Defer: serve.Defer, Reserves: serve.SwapDir != "", Devices: w.openDevices(), Guest: serve.Guest,
	})
	return w, err
}

// openDevices opens the node's devices. One that cannot be opened holds nothing,
// and is asked again if the daemon should grant it.
func (w *worker) openDevices() []clientcore.Device {
	known := make([]clientcore.Device, len(w.serve.Devices))
	for i := range w.serve.Devices {
		known[i] = w.openDevice(i)
	}
	return known
}

// device opens a device of the node, once.
func (w *worker) device(i int) (device.Device, error) {
	if w.serve.Devices[i].Gone {
		return nil, fmt.Errorf("device %d is not there", i)
	}
	if w.devices[i] == nil {
		d, err := w.open(w.serve.Devices[i], w.locks[i])
		if err != nil {
			return nil, fmt.Errorf("opening device %s: %w", w.serve.Devices[i].Name, err)
		}
		w.devices[i] = d
	}
	return w.devices[i], nil
}

func (w *worker) now() clientcore.Time { return time.Since(w.began) }

// errEnded says that the service is over, for a reason that the client knows.
var errEnded = errors.New("the session has ended")

// errProgram says that the program has itself to blame.
var errProgram = errors.New("the program sent what it must not")

var errDaemonEnded = fmt.Errorf("the node daemon ended: %w", errEnded)

// run is the loop.
func (w *worker) run() error {
	if w.caller != nil {
		w.attach(*w.serve.Hold, w.caller)
	}
	w.others.Go(w.receive)
	return w.end(wire.Guard(func() error {
		if err := w.prepare(); err != nil {
			return err
		}
		for {
			if err := w.step(); err != nil {
				return err
			}
		}
	}))
}

// prepare makes the client what it was before, or begins to keep what makes that
// possible.
func (w *worker) prepare() error {
	switch {
	case w.replay != nil:
		return w.replayAll()
	case w.journal != nil:
		return w.firstFold()
	}
	return nil
}

// receive takes the daemon's messages, and those of the next one when it is gone.
// When none comes there is nothing left to do, and nobody to do it for.
func (w *worker) receive() {
	for {
		m, files, err := w.control.Receive()
		switch said := m.(type) {
		case control.AddDevice: // with its lock, and with nothing else
			m = comingDevice{said, files[0]}
		case control.Checkpoint, control.Restore:
			m = order{said, files[0]}
		case control.Hold:
			w.attach(said, files[0])
			continue
		case control.End:
			w.dismissed = true
			continue
		case control.Neighbour: // however many there are, whatever the loop does
			w.neighbours.note(said)
			continue
		}
		if err != nil && (w.ctx.Err() != nil || !w.line.cut()) {
			return // this worker ends, and has said why
		}
		if err != nil {
			w.inbox.put(abandoned{})
			why := w.outlive()
			if why == "" {
				continue
			}
			w.shared.Close(why)
			w.stop()
			w.consumer.Stop()
			w.exit()
			return
		}
		if ping, ok := m.(control.Ping); ok { // at once, whatever the loop does
			_ = w.control.Send(control.Pong{Number: ping.Number})
			continue
		}
		w.inbox.put(m)
		w.consumer.Wake()
	}
}

// close lets go of everything. The daemon sees the connection end first: if the
// device cannot stop what runs, it ends this process.
func (w *worker) close() {
	w.line.close()
	w.stop()
	w.hosts.drop()
	for place := range w.gpus {
		w.closeGPU(place)
	}
	w.others.Wait()
	w.pace.close()
	w.counter.close()
	if w.journal != nil {
		w.journal.Unmap()
	}
	w.host.close()
	w.shared.Unmap()
	w.letGo()
	w.orders.close()
	for _, f := range w.files {
		f.Close()
	}
}

// step handles one message of the client's, or what the daemon says, or the
// passing of time.
func (w *worker) step() error {
	if w.between != nil {
		w.between()
	}
	if w.orders.held {
		return w.standBy()
	}
	if err := w.hear(); err != nil {
		return err
	}
	if obeyed, err := w.obey(); obeyed || err != nil {
		return err
	}
	if w.core.Waits() {
		return w.await()
	}
	if w.unproven {
		w.prove()
	}
	if w.journal != nil {
		if err := w.maybeFold(); err != nil {
			return err
		}
	}
	if len(w.late) >= mostLate {
		if err := w.settleLaunches(); err != nil {
			return err
		}
	}
	if w.core.Queued() {
		return w.next()
	}
	if w.over && !w.consumer.Pending() { // now, while the program does something else
		if err := w.noteEnd(true); err != nil {
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
	e := w.latestEntry
	if w.inbox.waits() || len(w.notices) > 0 { // a fault counts for what the program sent after it was told
		body = bytes.Clone(body)
		if err := w.hear(); err != nil {
			return err
		}
	}
	return w.take(e, h, body)
}

// nothingCame looks around when the program has sent nothing.
func (w *worker) nothingCame() error {
	if err := w.settleLaunches(); err != nil {
		return err
	}
	w.due = w.due || len(w.kept) > 0 // the program may wait for that memory
	return w.observe()
}

// patience is how long to wait for a message.
func (w *worker) patience() time.Duration {
	if len(w.kept) > 0 {
		return min(w.core.Patience(), keepTime)
	}
	return w.core.Patience()
}

// next hands the first message of the queue to the core.
func (w *worker) next() error {
	if err := w.settleLaunches(); err != nil {
		return err
	}
	if w.journal != nil && len(w.backlog) > 0 {
		w.entry, w.header = w.backlog[0].entry, w.backlog[0].header
		w.hasData = w.header.Release != 0
		w.backlog = w.backlog[1:]
	}
	return w.perform(w.core.Next(w.now()))
}

// take hands a message to the core.
func (w *worker) take(e journal.Entry, h wire.Header, body []byte) error {
	if h.Op == wire.OpTraceRead {
		if err := w.traceRead(h, body); err != nil {
			return err
		}
		return w.nothingCame()
	}
	if h.Slot >= 0 && len(w.late) > 0 {
		if err := w.settleLaunches(); err != nil {
			return err
		}
	}
	w.entry, w.header, w.hasData = e, h, false
	m := clientcore.Message{Header: h, Body: body}
	if h.Op.TakesData() || h.Op.GivesData() {
		data, err := w.shared.Data(h.Data, h.Length)
		if err != nil {
			return errors.Join(err, clientcore.ErrProtocol)
		}
		if h.Op.TakesData() {
			m.Data, m.Pinned = data, h.Release == 0
		}
		if h.Op == wire.OpModuleData && w.journal != nil {
			w.attachData(w.entry, data)
		}
	}
	if err := w.noteEnd(w.over); err != nil {
		return err
	}
	w.over = false
	w.entry, w.header, w.hasData = e, h, false // what was performed before this may have been about another
	w.stage = w.staging.take(h.Release)        // what was performed before this would have given it back
	w.tellEnds()
	var now clientcore.Time
	if w.core.Timed(h.Op) {
		now = w.now()
	}
	return w.perform(w.core.Message(now, m))
}

// noteEnd tells the core that all work has ended, if that is so and it was not told. Quiet says that
// nothing is under way as far as is known.
func (w *worker) noteEnd(quiet bool) error {
	at := clientcore.Time(w.done.Load())
	if !w.core.Unnoticed(at) {
		return nil
	}
	var err error
	if !quiet {
		quiet, err = w.quiet()
	}
	if !quiet || err != nil {
		return nil // whoever looks next finds out what is wrong
	}
	return w.perform(w.core.Ended(w.now(), at), nil)
}

// hear takes what the daemon and other goroutines have said.
func (w *worker) hear() error {
	for {
		if len(w.faults) > 0 {
			f := w.faults[0]
			w.faults = w.faults[1:]
			if err := w.found(f.world, f.err); err != nil {
				return err
			}
			continue
		}
		if m, ok := w.inbox.take(); ok {
			if err := w.told(m); err != nil {
				return err
			}
			continue
		}
		select {
		case n := <-w.notices:
			if err := w.noticed(n); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// await waits for the daemon: the core can go on only with an answer of its.
func (w *worker) await() error {
	if m, ok := w.inbox.take(); ok {
		return w.told(m)
	}
	select {
	case <-w.inbox.news:
		return nil
	case n := <-w.notices:
		return w.noticed(n)
	case <-w.ctx.Done():
		return errDaemonEnded
	}
}

// noticed takes what a goroutine of this process tells.
func (w *worker) noticed(n notice) error {
	if n.word {
		return w.perform(w.core.Met(w.now(), n.cookie))
	}
	return w.noticedMeanwhile(n)
}

// noticedMeanwhile is noticed while an operation is performed.
func (w *worker) noticedMeanwhile(n notice) error {
	if n.cookie != 0 {
		w.outsFirst() // the function may read what they have brought
		return w.aside(w.core.Reached(n.cookie), nil)
	}
	w.faults = append(w.faults, n)
	return nil
}

// told takes what the daemon says.
func (w *worker) told(m control.ToWorker) error {
	w.timeline.told(m)
	if err := w.settleLaunches(); err != nil {
		return err
	}
	switch m := m.(type) {
	case order:
		w.orders.next = append(w.orders.next, m)
		return nil
	case control.Proceed:
		return w.proceed(m)
	case abandoned:
		return w.disown()
	case control.Lost:
		w.noteLost(m)
		return w.lostDevice(m)
	case control.Grant, control.Deny, control.Revoke, control.Committed, control.GrantFurther, control.DenyFurther, control.RevokeFurther:
		return w.perform(w.core.Control(w.now(), m))
	case comingDevice:
		return w.addDevice(m)
	case control.Parked:
		w.teller.tell(m.Reason)
		return nil
	case control.Renew:
		return w.renew(m)
	case control.Watch:
		quiet, err := w.quiet()
		if err != nil {
			return w.found(w.sticky.current(), err)
		}
		return w.perform(w.core.Watch(w.now(), m.On, quiet, w.consumer.Pending()))
	case nextDaemon:
		w.line.begin(m.end)
		if err := w.perform(w.core.Adopted(w.now())); err != nil {
			return err
		}
		if w.timeline != nil {
			w.say(control.Traced{})
		}
		return nil
	}
	return fmt.Errorf("the daemon says %q, which is not understood: %w", m.Kind(), errEnded)
}

// observe looks around while no message comes.
func (w *worker) observe() error {
	quiet, err := w.quiet()
	if err != nil {
		return w.found(w.sticky.current(), err)
	}
	w.pace.look(quiet)
	w.tellEnds()
	return w.perform(w.core.Observe(w.now(), quiet, clientcore.Time(w.done.Load())))
}

// found tells the core of a fault that somebody came upon.
func (w *worker) found(world uint64, err error) error {
	if gone := w.gone(err); gone != nil {
		return gone
	}
	return w.perform(w.core.Found(w.now(), world, err))
}

// say tells the daemon something.
func (w *worker) say(m control.ToDaemon) {
	w.timeline.said(m)
	w.line.say(w.completed(m))
}

// end tells the client why, and stops what runs. If another worker can go on, only
// the daemon is told.
func (w *worker) end(err error) error {
	reason := err.Error()
	if w.mayRebuild(err) {
		w.log.Warn("the client is to be rebuilt in another worker", "reason", reason)
		lost := errors.Is(err, errRebuild)
		m := control.Rebuild{Device: w.lostNumber(), Lost: lost, Shared: errors.Is(err, errShared) || lost && w.sharesFate(), Reason: reason}
		if w.serve.OrphanGrace > 0 {
			w.askForAnother(m)
		} else {
			w.say(m)
		}
		// At once: a stream that waits for a function of the program's must not go on
		// without it, as it would if things were closed one after the other.
		w.exit()
		return nil
	}
	w.log.Info("client ended", "reason", reason)
	w.shared.Close(reason)
	w.tellEnds()
	w.sayAll(w.core.Last(w.now()))
	w.say(control.Report{Stats: w.core.Stats()})
	w.say(control.Ended{Reason: reason})
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// mayRebuild says whether the client can go on in another worker after an error that
// ended this one: not if it is to end, or has itself to blame.
func (w *worker) mayRebuild(err error) bool {
	return w.canRebuild() && !errors.Is(err, errEnded) && !errors.Is(err, clientcore.ErrProtocol) && !errors.Is(err, errProgram)
}

// lostNumber is the device that is gone, of those that the client has a context on; onDeviceNumber if
// none of them says so.
func (w *worker) lostNumber() int {
	if len(w.gpus) > 1 {
		for _, p := range w.placesInOrder() {
			var fault *device.Fault
			if _, err := w.gpus[p].mover.Done(); errors.As(err, &fault) && fault.Kind == device.DeviceLost {
				return p.Index()
			}
		}
	}
	return w.onDeviceNumber()
}

// onDeviceNumber is the device that the client uses or was about to, or has something
// on; -1 for none.
func (w *worker) onDeviceNumber() int {
	if w.core.Lease.Held {
		return w.core.Lease.Device
	}
	for place := range w.gpus {
		return place.Index()
	}
	return -1
}
