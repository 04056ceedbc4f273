package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
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
	faults  chan found        // from those who wait for the device
	open    Open
	exit    func() // ends the process

	serve    wire.Serve
	locks    []*os.File
	devices  []device.Device // opened so far
	shared   *wire.Shared
	consumer *wire.Consumer
	backlog  backlog // read ahead while waiting

	ctx     context.Context // ends with the session
	stop    context.CancelFunc
	others  sync.WaitGroup // goroutines beside the loop
	waiting atomic.Int32   // calls that are answered later

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
	sticky  sticky
	faulted error // what the sticky result is for, once the device was let go

	watched  atomic.Bool
	done     atomic.Pointer[time.Time] // when somebody last saw work end that it waited for
	activity activity
	stats    wire.Stats
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
	defer s.close()
	if err := s.become(s.serve.User); err != nil {
		return s.end(err)
	}
	return s.run()
}

func newSession(conn *wire.ControlConn, serve wire.Serve, files []*os.File, open Open, log *slog.Logger) (*session, error) {
	if len(files) < 2+len(serve.Devices) {
		return nil, fmt.Errorf("the daemon gave %d descriptors for %d devices", len(files), len(serve.Devices))
	}
	shared, err := wire.Map(files[0], files[1])
	if err != nil {
		return nil, err
	}
	files[0].Close()
	files[1].Close()
	s := &session{
		log: log, control: conn, inbox: make(chan wire.Control, 64), faults: make(chan found, 4), open: open,
		serve: serve, locks: files[2:], devices: make([]device.Device, len(serve.Devices)),
		shared: shared, consumer: wire.NewConsumer(shared),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.staging = &staging{release: s.consumer.Release}
	s.sticky.publish = shared.SetStatus
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
	s.others.Go(s.receive)
	return s.end(wire.Guard(func() error {
		for {
			if err := s.step(); err != nil {
				return err
			}
		}
	}))
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
			s.stop()
			s.consumer.Stop()
			s.exit()
			return
		}
		select {
		case s.inbox <- m:
			s.consumer.Wake()
		case <-s.ctx.Done():
			return
		}
	}
}

// close lets go of everything. The daemon sees the connection end first: if the
// device cannot stop what runs, it ends this process.
func (s *session) close() {
	s.control.Close()
	s.stop()
	s.hosts.drop()
	s.closeGPU()
	s.others.Wait()
	s.host.close()
	s.shared.Unmap()
}

// step handles one message of the client's, or what the daemon says, or the
// passing of time.
func (s *session) step() error {
	if err := s.drainInbox(); err != nil {
		return err
	}
	if s.lease.wanted && s.hosts.outstanding() == 0 {
		s.lease.wanted = false
		return s.revoked(s.lease.wantedFor)
	}
	h, body, err := s.next(s.activity.wait(s))
	switch {
	case errors.Is(err, wire.ErrWoken), errors.Is(err, wire.ErrTimeout):
		return s.observe()
	case errors.Is(err, wire.ErrStopped):
		return fmt.Errorf("the node daemon ended: %w", errEnded)
	case err != nil:
		return fmt.Errorf("the program sent what it must not: %w", err)
	}
	s.stats.Messages++
	s.activity.message(s)
	return s.handle(h, body)
}

// next returns the next message, first those that were read ahead.
func (s *session) next(timeout time.Duration) (wire.Header, []byte, error) {
	if m, ok := s.backlog.next(); ok {
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
		case f := <-s.faults:
			if f.world == s.sticky.current() {
				s.fault(f.err)
			}
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
		if s.hosts.outstanding() > 0 && !s.lease.growing {
			s.lease.wanted, s.lease.wantedFor = true, m.Reason
			return nil
		}
		return s.revoked(m.Reason)
	case wire.KindWatch:
		return s.watch(m.On)
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
		select {
		case m := <-s.inbox:
			if err := s.told(m); err != nil {
				return err
			}
		case <-s.ctx.Done():
			return fmt.Errorf("the node daemon ended: %w", errEnded)
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

// reset gives the client an empty world in the place of what it has.
func (s *session) reset() error {
	if err := s.drain(); isFault(err) {
		s.fault(err)
	} else if err != nil {
		return err
	}
	s.hosts.drop()
	s.closeGPU()
	s.allLost()
	if s.lease.held {
		s.letGo()
	}
	for _, a := range s.space.Allocations() {
		plan, err := s.space.Free(a.Addr)
		if err != nil {
			return err
		}
		if err := errors.Join(s.perform(plan), s.host.release(a)); err != nil {
			return err
		}
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.faulted = nil
	s.sticky.clear()
	return s.commit(0)
}

// statistics returns what was done so far.
func (s *session) statistics() *wire.Stats {
	u := s.space.Usage()
	stats := s.stats
	stats.Allocated, stats.Swapped = u.Allocated, u.HostOnly
	for _, n := range u.Resident {
		stats.Resident += n
	}
	return &stats
}
