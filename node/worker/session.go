package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// Open opens a device; lock is what the processes that stand for a software
// device take turns with.
type Open func(c wire.DeviceConfig, lock *os.File) (device.Device, error)

// chunk is the unit of memory that moves between places.
const chunk = 2 << 20

// session is the service of one client.
type session struct {
	log     *slog.Logger
	control *wire.ControlConn
	inbox   chan wire.Control // from the daemon
	faults  chan error        // from those who wait for the device
	open    Open
	exit    func() // ends the process

	serve    wire.Serve
	locks    []*os.File
	devices  []device.Device // opened so far
	shared   *wire.Shared
	consumer *wire.Consumer
	backlog  []message // read ahead while waiting

	ctx  context.Context // ends with the session
	stop context.CancelFunc

	space     *vmm.Space
	host      *hostMemory
	committed uint64 // bytes that the daemon has swap room for

	lease   lease
	granted uint64 // the number of the last lease
	gpu     *gpu   // the open context; nil if there is none
	modules modules
	streams streams
	events  map[uint32]*event
	hosts   hosts
	printed printed
	staging *staging

	// failure is a result that the next synchronising call answers with, once:
	// what a program would have been told by the launch itself.
	failure result
	faulted bool // the sticky status is set, and the device was let go

	watched  atomic.Bool
	activity activity
	stats    wire.Stats
}

// message is one that was taken from the ring to be handled later.
type message struct {
	header wire.Header
	body   []byte
}

// Main serves the client that the daemon names on the control connection, and
// returns when the client or the daemon is gone.
func Main(control *os.File, open Open, log *slog.Logger) error {
	conn, err := wire.OpenControl(control)
	if err != nil {
		return err
	}
	control.Close()
	first, files, err := conn.Receive()
	if err != nil {
		return nil // the daemon ended before there was a client
	}
	if first.Kind != wire.KindServe || first.Serve == nil || len(files) < 2 {
		return fmt.Errorf("the daemon began with %q and %d descriptors", first.Kind, len(files))
	}
	s, err := newSession(conn, *first.Serve, files, open, log.With("client", first.Serve.Client))
	if err != nil {
		return err
	}
	s.exit = func() { os.Exit(0) }
	return s.run()
}

func newSession(conn *wire.ControlConn, serve wire.Serve, files []*os.File, open Open, log *slog.Logger) (*session, error) {
	shared, err := wire.Map(files[0], files[1])
	if err != nil {
		return nil, err
	}
	files[0].Close()
	files[1].Close()
	s := &session{
		log: log, control: conn, inbox: make(chan wire.Control, 64), faults: make(chan error, 1), open: open,
		serve: serve, locks: files[2:], devices: make([]device.Device, len(serve.Devices)),
		shared: shared, consumer: wire.NewConsumer(shared),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.staging = &staging{release: s.consumer.Release}
	arena := vmm.Range{Addr: serve.ArenaBase, Size: serve.ArenaSize}
	if s.host, err = newHostMemory(arena, serve.SwapDir); err != nil {
		return nil, err
	}
	return s, s.begin()
}

// begin gives the client an empty world.
func (s *session) begin() error {
	var err error
	s.space, err = vmm.New(vmm.Config{
		Arena: vmm.Range{Addr: s.serve.ArenaBase, Size: s.serve.ArenaSize}, Chunk: chunk,
		Devices: len(s.serve.Devices), Limit: s.serve.Memory,
	})
	s.modules = newModules()
	s.streams = newStreams()
	s.events = map[uint32]*event{}
	s.failure = success
	return err
}

// errEnded says that the session is over, for a reason that the client knows.
var errEnded = errors.New("the session has ended")

// run is the loop.
func (s *session) run() error {
	go s.receive()
	defer s.stop()
	for {
		if err := s.step(); err != nil {
			return s.end(err)
		}
	}
}

// receive takes the daemon's messages. When the daemon is gone there is nothing
// left to do, and nobody to do it for.
func (s *session) receive() {
	for {
		m, files, err := s.control.Receive()
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			s.shared.Close("the node daemon ended")
			s.exit()
			return
		}
		s.inbox <- m
		s.consumer.Wake()
	}
}

// step handles one message of the client's, or what the daemon says, or the
// passing of time.
func (s *session) step() error {
	if err := s.drainInbox(); err != nil {
		return err
	}
	h, body, err := s.next(s.activity.wait(s))
	switch {
	case errors.Is(err, wire.ErrWoken), errors.Is(err, wire.ErrTimeout):
		return s.observe()
	case err != nil:
		return fmt.Errorf("the program sent what it must not: %w", err)
	}
	s.stats.Messages++
	if err := s.activity.message(s); err != nil {
		return err
	}
	return s.handle(h, body)
}

// next returns the next message, first those that were read ahead.
func (s *session) next(timeout time.Duration) (wire.Header, []byte, error) {
	if len(s.backlog) > 0 {
		m := s.backlog[0]
		s.backlog = s.backlog[1:]
		return m.header, m.body, nil
	}
	return s.consumer.Next(timeout)
}

func (s *session) drainInbox() error {
	for {
		select {
		case m := <-s.inbox:
			if err := s.told(m); err != nil {
				return err
			}
		case err := <-s.faults:
			s.fault(err)
		default:
			return nil
		}
	}
}

// told does what the daemon says.
func (s *session) told(m wire.Control) error {
	switch m.Kind {
	case wire.KindGrant:
		s.lease.grant(m.Device, m.Memory)
		s.granted = m.Lease
	case wire.KindDeny:
		s.lease.denied = m.Reason
		if s.lease.denied == "" {
			s.lease.denied = "refused"
		}
	case wire.KindRevoke:
		return s.release(m.Reason)
	case wire.KindWatch:
		s.watched.Store(m.On)
		s.activity.watch(m.On)
		if m.On {
			return s.tell()
		}
	case wire.KindCommitted:
		s.lease.answered, s.lease.committed = true, m.On
	case wire.KindEnd:
		return fmt.Errorf("%s: %w", m.Reason, errEnded)
	default:
		return fmt.Errorf("the daemon says %q, which is not understood: %w", m.Kind, errEnded)
	}
	return nil
}

// await waits for the daemon until something is true.
func (s *session) await(done func() bool) error {
	for !done() {
		if err := s.told(<-s.inbox); err != nil {
			return err
		}
	}
	return nil
}

// say tells the daemon something. That it is gone is found out elsewhere.
func (s *session) say(m wire.Control) { _ = s.control.Send(m) }

// end tells the client why, and stops what runs.
func (s *session) end(err error) error {
	reason := err.Error()
	s.log.Info("client ended", "reason", reason)
	s.shared.Close(reason)
	s.say(wire.Control{Kind: wire.KindReport, Stats: s.statistics()})
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// fault notes that the client's work failed for good: everything on the device
// is gone, and every later call fails.
func (s *session) fault(err error) {
	if s.faulted {
		return
	}
	s.faulted = true
	s.log.Info("fault", "error", err)
	s.shared.SetStatus(resultOf(err))
	s.closeGPU()
	for i := range s.serve.Devices {
		s.space.Lost(vmm.Device(i))
	}
	s.hosts.drop()
	s.activity.stop(s)
	s.lease = lease{}
	s.say(wire.Control{Kind: wire.KindFailed, Reason: err.Error(), Lease: s.granted})
}

// reset gives the client an empty world in the place of what it has.
func (s *session) reset() error {
	if err := s.drain(); err != nil {
		s.fault(err)
	}
	for _, a := range s.space.Allocations() {
		plan, err := s.space.Free(a.Addr)
		if err != nil {
			return err
		}
		if err := s.perform(plan); err != nil {
			return err
		}
	}
	s.closeGPU()
	if s.lease.held {
		s.letGo()
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.faulted = false
	s.shared.SetStatus(success)
	return s.commit(0)
}

// statistics returns what was done so far.
func (s *session) statistics() *wire.Stats {
	u := s.space.Usage()
	stats := s.stats
	stats.Allocated, stats.Swapped = u.Allocated, u.Host
	for _, n := range u.Resident {
		stats.Resident += n
	}
	return &stats
}
