package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"
	"time"

	"muster/internal/door"
	"muster/internal/whois"
	"muster/wire"
	"muster/wire/identity"
	"muster/wire/lanes"
)

// Remote is a node on another machine.
type Remote struct {
	// Dial makes a connection; each virtual device that a program uses has one.
	Dial func(context.Context) (net.Conn, error)
	// Lane makes a connection for bulk data; nil if there are to be none.
	Lane func(context.Context) (net.Conn, error)
	// Resume makes a connection that continues a broken one; nil if a break ends the client. A Direct
	// does not resume: the node that borrows rebuilds its client elsewhere instead.
	Resume func(context.Context) (net.Conn, error)
	// Token is the node's token, "" if it needs none.
	Token string
	// Grant is the credential of the program's grant, "" without one.
	Grant string
	// Patience is how long a program that begins waits for a node that is cut off; 0: it is told at once.
	Patience time.Duration
	// Trips counts the round trips that programs wait for; nil if they are not counted.
	Trips *Trips
}

// resultNotReady is the CUresult that programs get if their node cannot be reached.
const resultNotReady = 802

// Bounds of what a node says of how long it may be silent, and how long it keeps a session.
const leastSilence, mostSilence, mostKeep = 10 * time.Millisecond, time.Hour, 24 * time.Hour

// Relay lets programs that connect to a socket use a node on another machine: it takes the daemon's
// part towards them and sends their messages there. Only programs of the same user are served.
// Relay returns when ctx is done and all programs were told.
func Relay(ctx context.Context, listener *net.UnixListener, remote Remote, log *slog.Logger) error {
	return acceptPrograms(ctx, listener, os.Getuid(), log, func(ctx context.Context, near *net.UnixConn) error {
		return serveProgram(ctx, near, remote)
	})
}

// mostEnds is how many ends of programs' clients are logged in a minute.
const mostEnds = 100

// acceptPrograms serves each program of a user that connects, until ctx is done and all programs
// were told.
func acceptPrograms(ctx context.Context, listener *net.UnixListener, user int, log *slog.Logger, serve func(context.Context, *net.UnixConn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	programs := door.Listen(listener, false)
	programs.Notice = func(trouble error) {
		if trouble != nil {
			log.Warn("no program can connect for now", "error", trouble)
		}
	}
	defer context.AfterFunc(ctx, func() { _ = programs.Close() })()
	// Anyone on the machine can connect: the log of a job is on the node's disk.
	ends := door.Sparing{Most: mostEnds}
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		accepted, err := programs.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return errors.New("somebody closed the socket for programs")
		}
		conn := accepted.(*door.Conn)
		clients.Go(func() {
			defer conn.Close()
			near := conn.Conn.(*net.UnixConn)
			_, err := programOf(near, user)
			if err == nil {
				err = serve(ctx, near)
			}
			if err != nil {
				ends.Info(log, "a program's client ended", "reason", err)
			}
		})
	}
}

// serveProgram serves one connection of a program until it ends.
func serveProgram(ctx context.Context, near *net.UnixConn, remote Remote) error {
	_ = near.SetDeadline(time.Now().Add(setUpTime))
	var hello wire.Hello
	if err := wire.ReadAs(near, &hello); err != nil {
		return fmt.Errorf("a program's greeting: %w", err)
	}
	hello.Token, hello.Grant = remote.Token, remote.Grant
	r := &relay{near: near, remote: remote, hello: hello, awaited: awaited{trips: remote.Trips}}
	// Closing the connections ends all goroutines that wait on them.
	defer context.AfterFunc(ctx, func() { r.finish("muster run is ending") })()
	defer r.finish("")
	attached, err := r.setUp(ctx)
	if err != nil {
		return err
	}
	return r.serve(attached)
}

// programOf refuses programs of other users, and returns the program's process ID.
func programOf(conn *net.UnixConn, user int) (pid int32, err error) {
	peer, err := whois.Of(conn)
	if err != nil {
		return 0, err
	}
	if int(peer.Uid) != user {
		return 0, fmt.Errorf("a program of user %d was turned away: this socket is user %d's", peer.Uid, user)
	}
	return peer.Pid, nil
}

// bufferSize is several TLS records.
const bufferSize = 64 << 10

// relay is one program's client of a node elsewhere. One goroutine reads the ring and writes to the
// connection (send), one reads from the connection (receive), one watches the program, and one does
// what must wait for data on the lanes, once there are such data. mu
// protects finished, reason, and the assignments of far, shared and bulk, because finish may be
// called at any time, by any of them.
type relay struct {
	near   *net.UnixConn
	remote Remote
	hello  wire.Hello
	node   string // the node's name, if the program uses several

	far  net.Conn        // while the client is set up
	link *door.Resumable // afterwards
	in   *bufio.Reader

	shared   *wire.Shared
	consumer *wire.Consumer
	promised promised
	behind   behind // only send uses it
	added    uint32 // messages that were sent beyond those of the program; only send uses it
	awaited  awaited
	bulk     *bulk
	answers  func(f *wire.Frame) // receives the answers in place of the program's slots; nil if they go there
	most     uint64              // the node may fill the arena up to this offset; 0 is all of it
	heard    chan struct{}       // closed when receive has returned

	mu       sync.Mutex
	finished bool
	reason   string
}

// serve carries the messages of a program that the node has attached.
func (r *relay) serve(attached *wire.Attached) error {
	if err := r.share(attached); err != nil {
		return err
	}
	defer r.shared.Unmap()
	return r.carry()
}

// carry carries messages until one of the goroutines ends, and returns the reason.
func (r *relay) carry() error {
	var all sync.WaitGroup
	r.heard = make(chan struct{})
	r.bulk.start = func(serve func()) { all.Go(serve) }
	all.Go(func() { r.finish(r.named(r.send())) })
	all.Go(func() {
		defer close(r.heard)
		r.finish(r.named(r.receive()))
	})
	all.Go(func() { // a node that has ended the client does not bring what was still due
		<-r.link.Done()
		r.bulk.endSoon()
	})
	if r.near != nil {
		all.Go(func() {
			_, err := r.near.Read(make([]byte, 1))
			if err == nil {
				r.finish("the program sent what it must not, on its socket")
			}
			r.finish("")
		})
	}
	all.Wait()
	r.link.Wait()
	if r.reason == "" {
		return nil
	}
	return errors.New(r.reason)
}

// named adds the node to a reason, for programs that use several nodes.
func (r *relay) named(reason string) string {
	if reason == "" || r.node == "" {
		return reason
	}
	return "node " + r.node + ": " + reason
}

// finish ends everything, with a reason for the program unless the program itself ended. Only the
// first reason counts. Closing the connections and stopping the consumer makes all goroutines of
// carry return.
func (r *relay) finish(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return
	}
	r.finished, r.reason = true, reason
	if r.shared != nil {
		r.shared.Close(reason)
		r.consumer.Stop()
	}
	r.promised.end()
	r.bulk.end()
	switch {
	case r.link != nil:
		_ = r.link.Close()
	case r.far != nil:
		_ = r.far.Close()
	}
	if r.near != nil {
		_ = r.near.Close()
	}
}

// said is a node's answer to a greeting.
type said struct {
	welcome wire.Welcome
	devices []wire.Device
}

// setUp passes records on until the node has attached the program, or one side gives up.
func (r *relay) setUp(ctx context.Context) (*wire.Attached, error) {
	first, err := r.greetPatiently(ctx)
	if err != nil {
		return nil, r.lost(err)
	}
	_ = r.near.SetDeadline(time.Now().Add(setUpTime))
	if err := wire.WriteRecord(r.near, &first.welcome); err != nil {
		return nil, err
	}
	for i := range first.devices {
		if err := wire.WriteRecord(r.near, &first.devices[i]); err != nil {
			return nil, err
		}
	}
	// A program may do much else before it uses a device.
	_ = r.near.SetDeadline(time.Time{})
	_ = r.far.SetDeadline(time.Time{})
	var attach wire.Attach
	if err := wire.ReadAs(r.near, &attach); err != nil {
		return nil, fmt.Errorf("a program that used no device: %w", err)
	}
	attached, err := r.attach(attach)
	if isGone(err) { // the node closes connections that are unused for long
		if attached, err = r.comeAgain(ctx, first, attach); err != nil {
			return nil, r.lost(err)
		}
	}
	if err != nil {
		return nil, r.lost(err)
	}
	return attached, nil
}

// refusedTime is for how long nothing may listen where a node is that is cut off: then it has ended. It is
// that of connections that resume.
const refusedTime = 2 * time.Second

// greetPatiently is greet for a program that begins: it waits for a node that is cut off.
func (r *relay) greetPatiently(ctx context.Context) (*said, error) {
	began := time.Now()
	var refused time.Time // since when nothing listens
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		said, err := r.greet(ctx)
		if err == nil || r.remote.Patience == 0 || !mayPass(err) {
			return said, err
		}
		switch {
		case !errors.Is(err, syscall.ECONNREFUSED):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) >= refusedTime:
			return nil, err
		}
		if time.Since(began)+pause > r.remote.Patience {
			return nil, fmt.Errorf("%w; tried for %v", err, r.remote.Patience)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// mayPass says whether an error means that the node is cut off or starts again.
func mayPass(err error) bool {
	var lookup *net.DNSError
	return isGone(err) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETDOWN) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &lookup) && lookup.Temporary()
}

// greet connects to the node and reads its answer to the greeting.
func (r *relay) greet(ctx context.Context) (*said, error) {
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	_ = r.far.SetDeadline(time.Now().Add(setUpTime))
	if err := wire.WriteRecord(r.far, &r.hello); err != nil {
		return nil, odd(err)
	}
	s := &said{}
	if err := wire.ReadAs(r.in, &s.welcome); err != nil {
		return nil, odd(err)
	}
	if s.welcome.Devices > maxDevices {
		return nil, odd(fmt.Errorf("it says that it has %d devices", s.welcome.Devices))
	}
	s.devices = make([]wire.Device, s.welcome.Devices)
	for i := range s.devices {
		if err := wire.ReadAs(r.in, &s.devices[i]); err != nil {
			return nil, odd(err)
		}
	}
	return s, nil
}

// connect makes a connection to the node; it replaces an earlier one.
func (r *relay) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	far, err := r.remote.Dial(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		_ = far.Close()
		return errors.New("it was ended while it was set up")
	}
	if r.far != nil {
		_ = r.far.Close()
	}
	r.far, r.in = far, bufio.NewReaderSize(far, bufferSize)
	return nil
}

// attach asks the node for a device.
func (r *relay) attach(attach wire.Attach) (*wire.Attached, error) {
	_ = r.far.SetDeadline(time.Now().Add(attachTime))
	if err := wire.WriteRecord(r.far, &attach); err != nil {
		return nil, odd(err)
	}
	attached := &wire.Attached{}
	if err := wire.ReadAs(r.in, attached); err != nil {
		return nil, odd(err)
	}
	return attached, nil
}

// comeAgain greets the node a second time, which must answer the same, and asks for a device.
func (r *relay) comeAgain(ctx context.Context, first *said, attach wire.Attach) (*wire.Attached, error) {
	again, err := r.greet(ctx)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(first, again) {
		return nil, errChanged
	}
	return r.attach(attach)
}

// isGone says whether an error means that the connection has ended.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT)
}

// odd is the error of an unexpected answer, or of none; refusals stay refusals.
func odd(err error) error {
	var refused *wire.Refused
	if errors.As(err, &refused) {
		return err
	}
	var alert *identity.Refusal
	if told := identity.Refused(err); errors.As(told, &alert) {
		return fmt.Errorf("the node does not let us in: %w", told)
	}
	return fmt.Errorf("the node does not answer as a node does: %w", err)
}

// lost tells a program that is being set up why that failed.
func (r *relay) lost(err error) error {
	var refused *wire.Refused
	if !errors.As(err, &refused) {
		refused = &wire.Refused{Result: resultNotReady, Reason: err.Error()}
	}
	_ = r.near.SetDeadline(time.Now().Add(setUpTime))
	_ = wire.WriteRecord(r.near, refused)
	return err
}

// makeShared makes a ring and an arena of the same sizes as the node's.
func (r *relay) makeShared() (ring, arena *os.File, err error) {
	frame, err := wire.NewFrameReader(r.in).Next()
	if err == nil && frame.Kind != wire.FrameGeometry {
		err = fmt.Errorf("%v where geometry was due", frame.Kind)
	}
	if err != nil {
		return nil, nil, odd(err)
	}
	_ = r.far.SetDeadline(time.Time{})
	silence, keep := time.Duration(frame.Silence)*time.Millisecond, time.Duration(frame.Keep)*time.Millisecond
	if silence < leastSilence || silence > mostSilence || keep < 0 || keep > mostKeep {
		return nil, nil, odd(fmt.Errorf("it may be silent for %v, and keeps sessions for %v", silence, keep))
	}
	if ring, arena, err = wire.Create(frame.Geometry); err != nil {
		return nil, nil, err
	}
	shared, err := wire.Map(ring, arena)
	if err != nil {
		ring.Close()
		arena.Close()
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared, r.consumer = shared, wire.NewConsumer(shared)
	r.bulk = newBulk(r.remote.Lane, frame, silence, keep, r.consumer.Release)
	if r.finished {
		return ring, arena, nil
	}
	early, _ := r.in.Peek(r.in.Buffered())
	resuming := door.Resuming{Silence: silence, Window: keep}
	if r.remote.Resume != nil && r.near != nil {
		resuming.Redial = func(ctx context.Context, arrived uint64, last bool) (net.Conn, uint64, error) {
			return resume(ctx, r.remote.Resume, r.hello, wire.Frame{Kind: wire.FrameResume, Key: frame.Key, Offset: arrived, Last: last})
		}
	}
	r.link = door.NewResumable(r.far, early, &r.awaited, resuming)
	r.in = bufio.NewReaderSize(r.link, bufferSize)
	return ring, arena, nil
}

// resume continues a session over a new connection. It returns how many bytes have arrived at the
// node.
func resume(ctx context.Context, dial func(context.Context) (net.Conn, error), hello wire.Hello, ask wire.Frame) (net.Conn, uint64, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, 0, err
	}
	_ = conn.SetDeadline(time.Now().Add(setUpTime))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var answer wire.Frame
	if err = wire.WriteRecord(conn, &hello); err == nil {
		if _, err = conn.Write(ask.Append(nil)); err == nil {
			answer, err = wire.NewFrameReader(conn).Next()
		}
	}
	switch {
	case err != nil:
	case answer.Kind == wire.FrameClosed:
		err = &door.Ended{Reason: answer.Reason}
	case answer.Kind != wire.FrameResume:
		err = fmt.Errorf("%v where the session was to be resumed", answer.Kind)
	}
	if err != nil {
		_ = conn.Close()
		return nil, 0, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, answer.Offset, nil
}

// share gives the program its ring and arena.
func (r *relay) share(attached *wire.Attached) error {
	ring, arena, err := r.makeShared()
	if err != nil {
		return r.lost(err)
	}
	defer ring.Close()
	defer arena.Close()
	r.mu.Lock()
	shared, finished := r.shared, r.finished
	r.mu.Unlock()
	var record bytes.Buffer
	if err = wire.WriteRecord(&record, attached); err == nil {
		err = wire.SendFiles(r.near, record.Bytes(), ring, arena)
	}
	if err == nil && finished {
		err = errors.New("it was ended while it was set up")
	}
	if err != nil {
		r.mu.Lock()
		r.shared = nil
		r.mu.Unlock()
		shared.Unmap()
		return fmt.Errorf("attaching a program: %w", err)
	}
	return nil
}

// send sends the program's messages until something ends, and returns why.
func (r *relay) send() string {
	waits := false // the last message has a reply slot, so the program probably waits for the answer
	for {
		// If the program waits, send at once. If it does not, give it a moment to write
		// more messages, so that they go out together.
		if waits && !r.consumer.Pending() || !waits && !r.consumer.Soon() {
			if err := r.link.Flush(); err != nil {
				return r.unsent(err)
			}
		}
		h, body, err := r.consumer.Next(time.Hour)
		switch {
		case errors.Is(err, wire.ErrStopped):
			return ""
		case errors.Is(err, wire.ErrTimeout):
			continue
		case err != nil:
			return "the program sent what it must not: " + err.Error()
		}
		waits = h.Slot >= 0
		data, err := r.shared.Data(h.Data, h.Length)
		if err != nil {
			return fmt.Sprintf("the program sent what it must not: %v with %v", h.Op, err)
		}
		if err := r.forward(h, body, data); err != nil {
			return r.unsent(err)
		}
	}
}

// unsent is the reason if messages cannot be sent. A node that ends the client says why: receive reads
// that first.
func (r *relay) unsent(err error) string {
	defer time.AfterFunc(lastWordTime, func() { _ = r.link.Close() }).Stop()
	<-r.heard
	return r.broke(err)
}

// broke is the reason of a connection that ended without one. A node that borrows the device through
// a Direct (near is nil) makes up for the loss itself; a program has to be started again.
func (r *relay) broke(err error) string {
	if err == io.EOF {
		err = errors.New("the node closed it")
	}
	reason := "the connection to the node broke: " + err.Error()
	if r.near == nil {
		return reason
	}
	return reason + "; what the program had there is lost: see whether the node and the network to it are up (there, with muster ps or systemctl status muster), then start the program again"
}

// forward sends one message and the bytes that it reads. Bytes in staging memory follow the
// message, or go over the lanes. Bytes in pinned memory are sent before it, since the node must
// have them when it handles the message. Staging memory is free again as soon as its bytes were
// sent.
func (r *relay) forward(h wire.Header, body, data []byte) error {
	if err := r.countFunctions(h.Op); err != nil {
		return err
	}
	r.awaited.ask(h)
	if r.inParts(h) {
		return r.forwardParts(h, body)
	}
	h.Seq += r.added
	frame := wire.Frame{Kind: wire.FrameMessage, Header: h, Body: body}
	staged := h.Op.TakesData() && h.Data < r.shared.Geometry().Staging
	away := staged && r.bulk.takes(h.Length)
	switch {
	case away:
	case staged:
		frame.Bytes = h.Length
	case h.Op.TakesData() && h.Length > 0:
		at := piece{h.Data, h.Length}
		r.behind.note(at)
		if err := r.sendPinned(at); err != nil {
			return err
		}
	case h.Op.GivesData() && h.Length > 0:
		if !h.Op.IsCall() { // a call names room for an answer that may be short
			r.bulk.prepare(h.Length)
		}
		if err := r.promise(h.Seq, piece{h.Data, h.Length}); err != nil {
			return err
		}
	}
	if _, err := r.link.Write(frame.Append(r.link.AvailableBuffer())); err != nil {
		return err
	}
	free := r.bulk.releases(staged, h.Release)
	switch {
	case away:
		return r.sendAway(data, free)
	case !staged:
		return nil
	}
	for len(data) > 0 {
		n := min(len(data), wire.MaxPiece)
		if _, err := r.link.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	free()
	return nil
}

// inParts says whether a message is a copy from pinned memory that is long enough to be sent in
// parts. Lanes that are still being made take the parts that are left then. A Direct knows its
// messages by their numbers, so it has no parts.
func (r *relay) inParts(h wire.Header) bool {
	return h.Op == wire.OpCopyIn && h.Length > 2*lanes.Part(r.bulk.from) && h.Data >= r.shared.Geometry().Staging && r.answers == nil && r.bulk.prepare(h.Length)
}

// forwardParts sends a copy from pinned memory as several, so that the device copies the first while
// the rest is on its way.
func (r *relay) forwardParts(h wire.Header, body []byte) error {
	var m wire.CopyIn
	if err := m.Decode(body); err != nil {
		return err
	}
	all := piece{h.Data, h.Length}
	r.behind.note(all)
	each := lanes.Part(r.bulk.from)
	for all.length > 0 {
		at := piece{all.offset, min(all.length, each)}
		if err := r.sendPinned(at); err != nil {
			return err
		}
		part := h
		part.Data, part.Length, part.Seq = at.offset, at.length, h.Seq+r.added
		frame := wire.Frame{Kind: wire.FrameMessage, Header: part, Body: m.Append(nil)}
		if _, err := r.link.Write(frame.Append(r.link.AvailableBuffer())); err != nil {
			return err
		}
		m.Dst += at.length
		all.offset, all.length = all.offset+at.length, all.length-at.length
		if all.length > 0 {
			r.added++
		}
	}
	return nil
}

// sendAway sends bytes over the lanes. The frame that announces them is flushed first, so that the
// node knows where they go.
func (r *relay) sendAway(data []byte, free func()) error {
	if err := r.link.Flush(); err != nil {
		return err
	}
	return r.bulk.lanes.Send(data, free)
}

// countFunctions counts the program's functions that have not returned. When one has, the memory
// that it may have written is sent before the node is told of its return.
func (r *relay) countFunctions(op wire.Op) error {
	switch op {
	case wire.OpHostFunction:
		r.behind.functions++
	case wire.OpHostDone:
		for _, at := range r.behind.pieces {
			if err := r.sendPinned(at); err != nil {
				return err
			}
		}
		r.behind.returned()
	case wire.OpReset: // after a reset the node calls none of them
		r.behind = behind{}
	}
	return nil
}

// sendPinned sends a part of the program's pinned memory, except what the node has yet to fill
// there.
func (r *relay) sendPinned(at piece) error {
	for _, part := range r.promised.without(at) {
		if err := r.sendData(part); err != nil {
			return err
		}
	}
	return nil
}

// promise notes that the node will fill a part of the arena. If too many promises are outstanding,
// it waits until the node has kept some.
func (r *relay) promise(seq uint32, at piece) error {
	if r.promised.add(seq, at) {
		return nil
	}
	if err := r.link.Flush(); err != nil {
		return err
	}
	if !r.promised.wait(seq, at) {
		return net.ErrClosed
	}
	return nil
}

// sendData sends a part of the arena.
func (r *relay) sendData(part piece) error {
	if r.bulk.takes(part.length) {
		data, err := r.shared.Data(part.offset, part.length)
		if err != nil {
			return err
		}
		frame := wire.Frame{Kind: wire.FrameAway, Offset: part.offset, Length: part.length}
		if _, err := r.link.Write(frame.Append(r.link.AvailableBuffer())); err != nil {
			return err
		}
		return r.sendAway(data, nil)
	}
	for part.length > 0 {
		n := min(part.length, wire.MaxPiece)
		data, err := r.shared.Data(part.offset, n)
		if err != nil {
			return err
		}
		frame := wire.Frame{Kind: wire.FrameData, Offset: part.offset, Bytes: n}
		if _, err := r.link.Write(frame.Append(r.link.AvailableBuffer())); err != nil {
			return err
		}
		if _, err := r.link.Write(data); err != nil {
			return err
		}
		part.offset += n
		part.length -= n
	}
	return nil
}

// receive handles the node's frames until something ends, and returns why. What must wait for data
// that arrive over the lanes is done by a queue, and receive goes on to read.
func (r *relay) receive() string {
	frames := wire.NewFrameReader(r.in)
	behind := lanes.NewQueue(r.bulk.start, func(err error) {
		if !errors.Is(err, lanes.ErrClosed) { // the lanes broke: a node that ends them says why on this connection
			time.AfterFunc(lastWordTime, func() { _ = r.link.Close() })
		}
	})
	defer behind.End(lanes.ErrClosed)
	for {
		f, err := frames.Next()
		if broken := behind.Err(); broken != nil && err != nil {
			return r.broke(broken)
		}
		var ended *door.Ended
		switch {
		case errors.As(err, &ended):
			return ended.Reason
		case err != nil:
			return r.broke(err)
		}
		switch f.Kind {
		case wire.FrameData, wire.FrameAway:
			err = r.fill(frames, behind, f)
		case wire.FrameReply, wire.FrameState:
			if behind.Idle() {
				r.tell(&f)
			} else {
				err = r.tellLater(behind, f)
			}
		case wire.FrameNotice:
			r.shared.Notify(f.Reason) // dropped if there is no room: then the program does not read notices
		case wire.FrameClosed:
			go r.bulk.endSoon()
			_ = behind.Drain()
			return f.Reason
		default:
			return r.broke(fmt.Errorf("%v where none is due", f.Kind))
		}
		switch {
		case err != nil && r.bulk.lanes.Err() != nil:
			return r.lastWord(frames, err)
		case err != nil:
			return r.broke(err)
		}
	}
}

// fill reads data of the node to their place, or tells the lanes where they go. Data that come with
// the frames may be for a place where older ones are still arriving, so they wait for those.
func (r *relay) fill(frames *wire.FrameReader, behind *lanes.Queue, f wire.Frame) error {
	to, err := r.shared.Data(f.Offset, f.Bytes+f.Length)
	switch end := f.Offset + f.Bytes + f.Length; {
	case err != nil:
		return err
	case f.Offset < r.shared.Geometry().Staging:
		return errors.New("data for staging memory")
	case r.most > 0 && end > r.most:
		return fmt.Errorf("data at %d, where nobody has asked for any", end)
	}
	if f.Kind == wire.FrameData {
		if err := behind.Drain(); err != nil {
			_ = frames.ReadBytes(make([]byte, f.Bytes)) // lastWord reads the frames behind it
			return err
		}
		return frames.ReadBytes(to)
	}
	parcel, err := r.bulk.lanes.Expect(f.Offset, to)
	if err != nil {
		return err
	}
	return behind.Do(parcel, 0, func() error { return nil })
}

// tell passes an answer or the status on.
func (r *relay) tell(f *wire.Frame) {
	if f.Kind == wire.FrameReply {
		r.promised.kept(f.Seq)
		r.awaited.answered(f.Slot)
	}
	r.shared.SetStatus(f.Status)
	r.shared.SetPrint(f.Print)
	switch {
	case f.Kind != wire.FrameReply:
	case r.answers != nil:
		r.answers(f)
	default:
		r.shared.Reply(f.Slot, f.Result, f.Body)
	}
}

func (r *relay) tellLater(behind *lanes.Queue, f wire.Frame) error {
	f.Body = bytes.Clone(f.Body)
	return behind.Do(nil, len(f.Body), func() error {
		r.tell(&f)
		return nil
	})
}

// lastWordTime is how long a node may take to say why it has ended the lanes.
const lastWordTime = 3 * time.Second

// lastWord finds out why the node has ended the lanes. The node says so in its last frame, on the
// connection with the messages, which may be slower than the lanes: so frames are read and dropped
// until then.
func (r *relay) lastWord(frames *wire.FrameReader, broken error) string {
	defer time.AfterFunc(lastWordTime, func() { _ = r.link.Close() }).Stop()
	for {
		f, err := frames.Next()
		if err == nil && f.Kind == wire.FrameData { // at most MaxPiece
			err = frames.ReadBytes(make([]byte, f.Bytes))
		}
		switch {
		case err != nil || f.Kind == wire.FrameMessage:
			return r.broke(broken)
		case f.Kind == wire.FrameClosed:
			return f.Reason
		}
	}
}
