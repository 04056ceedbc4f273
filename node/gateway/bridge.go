package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muster/client"
	"muster/internal/door"
	"muster/model"
	"muster/wire"
	"muster/wire/lanes"
)

// bufferSize is several records of TLS.
const bufferSize = 64 << 10

// watchEvery is how often a change is looked for of which no reply tells.
const watchEvery = 50 * time.Millisecond

// farewellTime is how long the other side may take to hear why it is over.
const farewellTime = 3 * time.Second

// bridge carries one client's messages between a connection and a ring. One
// goroutine, the reader, reads the connection and writes to the ring; where nothing more
// has come it looks for answers as well, and for a while for both by turns (look.go). A
// call that takes longer has a goroutine that waits for its answer. One goroutine waits for
// data of messages that the client does not wait for, and one looks for changes. Whoever
// finds an answer writes it to the connection; what is long, or comes while somebody
// writes, is left to one more goroutine (outbox.go).
//
// What a client can make it keep is bounded, whatever the client does: a call for
// each place for an answer, a message for each slot of the ring, and a queue of
// frames. When they are full, nothing more is read from the connection.
type bridge struct {
	conn    link
	patient *door.Patient // the same connection, with times for the other side
	in      *bufio.Reader // reads from patient
	session *client.Session
	visitor *visitor
	lanes   *lanes.Lanes
	all     sync.WaitGroup

	// waits says which of the client's places for answers wait for one.
	waits [wire.Slots]atomic.Bool
	// given is twice the number of messages that the ring has, and odd while it is
	// being given one, for which it may have no room.
	given atomic.Uint64
	// pinned are the blocks of the program's pinned memory that were used: what is
	// there takes memory of this machine. Only the goroutine that reads frames has it.
	pinned map[uint64]bool

	// calls are those whose answers the reader looks for, and active is when it last
	// found something to do.
	calls  []given
	active time.Time

	box    *outbox
	isOver chan struct{}

	// mu is held while something is put into the box, so that the order of what
	// is sent is the order in which it was found done.
	mu     sync.Mutex
	unread []given // messages without an answer whose data are awaited, in order
	more   chan struct{}
	status int32
	print  bool

	end    sync.Once
	reason string
}

// given is a message that gives data, on its way.
type given struct {
	pending *wire.Pending
	header  wire.Header // as the client sent it
}

func newBridge(v *visitor, patient *door.Patient, session *client.Session) *bridge {
	b := &bridge{conn: v.conn, patient: patient, in: v.in, session: session, visitor: v, lanes: lanes.New(v.Limits.Silence),
		pinned: map[uint64]bool{}, isOver: make(chan struct{}), more: make(chan struct{}, 1)}
	b.box = newOutbox(bufio.NewWriterSize(patient, bufferSize), b.send)
	return b
}

// run carries messages until one side ends, and says why.
func (b *bridge) run(ctx context.Context) string {
	defer b.session.Close()
	defer context.AfterFunc(ctx, func() { b.over("the node is shutting down") })()
	b.session.Producer.Waits = b.Sleep
	door.WhileIdle(b.conn, b)
	b.all.Go(b.write)
	b.all.Go(b.collect)
	b.all.Go(b.watch)
	b.all.Go(func() { b.over(b.session.Wait()) })
	b.over(b.read())
	b.all.Wait()
	return b.reason
}

// over ends everything. Only the first reason counts; without one the client
// has gone by itself.
func (b *bridge) over(reason string) {
	b.end.Do(func() {
		b.reason = reason
		// Whoever waits for the worker waits no more.
		b.session.Shared.Close(reason)
		b.session.HangUp()
		b.visitor.dismissLanes(b)
		b.lanes.Close(lanes.ErrClosed)
		close(b.isOver)
		b.box.end()
		// The connection is for the writer to close, which may have to be hurried.
		b.patient.Hurry(farewellTime)
	})
}

// read does what the client says until something ends, and says why.
func (b *bridge) read() string {
	frames := wire.NewFrameReader(b.in)
	for seq := uint32(0); ; {
		if err := b.next(frames, &seq); err != nil {
			return unread(err)
		}
	}
}

// unread says why nothing more can be read; "" if the client has gone.
func unread(err error) string {
	var network net.Error
	var closed *wire.ClosedError
	switch {
	case errors.As(err, &closed):
		return closed.Reason
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, lanes.ErrLate):
		return "the program's side began a message and did not go on with it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &network):
		return ""
	}
	return "the program's side sent what it must not: " + err.Error()
}

// next takes one frame. The client may take as long as it likes to begin one, but
// not to finish it.
func (b *bridge) next(frames *wire.FrameReader, seq *uint32) error {
	b.patient.Begun(false)
	if _, err := b.in.Peek(1); err != nil {
		return err
	}
	b.patient.Begun(true)
	b.answers() // there may be many frames before there is nothing to read
	f, err := frames.Next()
	if err != nil {
		return err
	}
	b.active = time.Now()
	if f.Bytes+f.Length > small || f.Header.Length > small {
		b.Sleep() // their bytes may take long
	}
	switch f.Kind {
	case wire.FrameData, wire.FrameAway:
		return b.take(frames, f)
	case wire.FrameMessage:
		if f.Header.Seq != *seq {
			return fmt.Errorf("%v is message %d where %d was due", f.Header.Op, f.Header.Seq, *seq)
		}
		*seq++
		b.given.Add(1)
		defer b.given.Add(1)
		return b.forward(frames, f)
	}
	return fmt.Errorf("%v where none is due", f.Kind)
}

// take puts data where a message will say that they are.
func (b *bridge) take(frames *wire.FrameReader, f wire.Frame) error {
	to, err := b.unstaged(f.Offset, f.Bytes+f.Length)
	if err != nil {
		return err
	}
	switch {
	case f.Kind == wire.FrameData:
		return frames.ReadBytes(to)
	case b.lanes.Open() == 0:
		return errors.New("data over lanes, and there are none")
	}
	return b.lanes.Receive(to)
}

// unstaged returns a part of the arena that both sides have at the same place.
func (b *bridge) unstaged(offset, length uint64) ([]byte, error) {
	if offset < b.session.Shared.Geometry().Staging {
		return nil, fmt.Errorf("data at %d, in staging memory", offset)
	}
	data, err := b.session.Shared.Data(offset, length)
	if err == nil {
		err = b.countPinned(offset, length)
	}
	return data, err
}

const (
	pinnedBlock = 1 << 20
	// leastPinned is how much pinned memory every program may use from another
	// machine.
	leastPinned = 64 << 20
)

// countPinned notes which of the program's pinned memory is used. On this machine
// nobody allocated it, and no limit counts it: so there may be as much as the
// program sees of device memory.
func (b *bridge) countPinned(offset, length uint64) error {
	g := b.session.Shared.Geometry()
	if length == 0 || offset+length <= g.Staging+g.Bounce {
		return nil
	}
	for block := offset / pinnedBlock; block <= (offset+length-1)/pinnedBlock; block++ {
		b.pinned[block] = true
	}
	if most := max(leastPinned, b.session.Attached.Memory); uint64(len(b.pinned))*pinnedBlock > most+pinnedBlock {
		return &wire.ClosedError{Reason: fmt.Sprintf("the program used more than %s of pinned memory, which is as much as it sees of device memory: free some, or use memory of malloc", model.BriefSize(most))}
	}
	return nil
}

// forward puts a message on the ring.
func (b *bridge) forward(frames *wire.FrameReader, f wire.Frame) error {
	h, producer := f.Header, b.session.Producer
	switch {
	case h.Op.TakesData() && h.Data < b.session.Shared.Geometry().Staging:
		fill := frames.ReadBytes
		if f.Bytes == 0 && h.Length > 0 {
			if b.lanes.Open() == 0 {
				return fmt.Errorf("%v without its data", h.Op)
			}
			fill = b.lanes.Receive
		}
		return producer.SendFilled(h, f.Body, h.Length, fill)
	case h.Op.TakesData():
		if f.Bytes != 0 {
			return fmt.Errorf("%v with data that are not staged", h.Op)
		}
		if _, err := b.unstaged(h.Data, h.Length); err != nil {
			return fmt.Errorf("%v: %w", h.Op, err)
		}
		h.Release = 0
		return producer.Send(h, f.Body)
	case h.Op.GivesData():
		if _, err := b.unstaged(h.Data, h.Length); err != nil {
			return fmt.Errorf("%v: %w", h.Op, err)
		}
	case h.Slot < 0:
		return producer.Send(h, f.Body)
	}
	if h.Slot >= 0 && !b.waits[h.Slot].CompareAndSwap(false, true) {
		return fmt.Errorf("%v wants its answer in slot %d, where one is due already", h.Op, h.Slot)
	}
	pending, err := producer.Start(h, f.Body)
	if err != nil {
		return err
	}
	if h.Slot < 0 {
		b.await(given{pending, h})
	} else {
		b.calls = append(b.calls, given{pending, h})
	}
	return nil
}

// await notes a message whose data are sent when they are there.
func (b *bridge) await(g given) {
	b.mu.Lock()
	b.unread = append(b.unread, g)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// answer waits for one call's answer and sends it, after all data that were
// there before it.
func (b *bridge) answer(g given) {
	result, payload, err := g.pending.Wait()
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	b.reply(g.header, result, payload)
	b.push()
}

// push has everything written that was put into the box. The caller holds mu.
func (b *bridge) push() {
	if err := b.box.push(); err != nil {
		b.over(unsent(err))
	}
}

// sweep sends data that are there. The caller holds mu.
func (b *bridge) sweep() {
	left := b.unread[:0]
	for _, g := range b.unread {
		if !g.pending.Done() {
			left = append(left, g)
			continue
		}
		if result, payload, err := g.pending.Wait(); err == nil {
			b.reply(g.header, result, payload)
		}
	}
	clear(b.unread[len(left):])
	b.unread = left
}

// notices sends what the worker has to say to the program's user. The caller holds
// mu.
func (b *bridge) notices() {
	for _, text := range b.session.Shared.Notices() {
		b.box.put(outgoing{frame: wire.Frame{Kind: wire.FrameNotice, Reason: text}})
	}
}

// reply sends an answer, after its data and after what explains it. The caller
// holds mu.
func (b *bridge) reply(h wire.Header, result int32, payload []byte) {
	shared := b.session.Shared
	b.status, b.print = shared.Status(), shared.Print()
	b.notices() // written before the status that they explain
	out := outgoing{offset: h.Data, frame: wire.Frame{Kind: wire.FrameReply, Seq: h.Seq, Slot: h.Slot, Result: result, Status: b.status, Print: b.print, Body: payload}}
	if h.Op.GivesData() && result == 0 {
		out.data, _ = shared.Data(h.Data, h.Op.Given(h.Length, payload))
	}
	if h.Slot >= 0 { // the client uses it again as soon as it has the answer
		b.waits[h.Slot].Store(false)
	}
	b.box.put(out)
}

// collect sends the data of messages that have no answer while nobody asks for
// them, so that they do not all wait for the first who does.
func (b *bridge) collect() {
	for {
		b.mu.Lock()
		b.sweep()
		b.push()
		var oldest *wire.Pending
		if len(b.unread) > 0 {
			oldest = b.unread[0].pending
		}
		b.mu.Unlock()
		if oldest != nil {
			select {
			case <-b.isOver:
				return
			default:
			}
			// Somebody else may sweep meanwhile: it is looked at again soon.
			oldest.WaitDone(2 * time.Millisecond)
			continue
		}
		select {
		case <-b.isOver:
			return
		case <-b.more:
		}
	}
}

// watch sends changes of which no reply tells, and looks whether a client is
// still there whose messages cannot be read.
func (b *bridge) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for before := uint64(0); ; {
		select {
		case <-b.isOver:
			return
		case <-ticker.C:
		}
		given := b.given.Load()
		if given%2 == 1 && given == before && hungUp(b.conn.NetConn()) {
			b.over("")
			return
		}
		before = given
		shared := b.session.Shared
		if reason, closed := shared.Closed(); closed {
			b.over(reason)
			return
		}
		b.mu.Lock()
		status, print := shared.Status(), shared.Print()
		b.notices()
		if status != b.status || print != b.print {
			b.status, b.print = status, print
			b.box.put(outgoing{frame: wire.Frame{Kind: wire.FrameState, Status: b.status, Print: b.print}})
		}
		b.push()
		b.mu.Unlock()
	}
}

// write sends what nobody else does, and at the end why it is over.
func (b *bridge) write() {
	defer b.conn.Close()
	out, err := b.box.serve()
	if err != nil && !errors.Is(err, lanes.ErrClosed) { // lanes end without the connection
		b.over(unsent(err))
		return
	}
	b.farewell(out)
}

// unsent says why nothing more can be sent; "" if the client has gone.
func unsent(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "the program's side does not read what it is sent"
	}
	return ""
}

// farewell says why it is over, after everything that was found done before.
func (b *bridge) farewell(out *bufio.Writer) {
	if b.reason == "" {
		return
	}
	frame := wire.Frame{Kind: wire.FrameClosed, Reason: b.reason}
	_, _ = out.Write(frame.Append(nil))
	if out.Flush() != nil || b.conn.CloseWrite() != nil {
		return
	}
	// What is still on its way here must be read: with something unread left,
	// the system would tell the other side of a broken connection, and that
	// may come before the reason does.
	plain := b.conn.NetConn()
	_ = plain.SetReadDeadline(time.Now().Add(farewellTime))
	_, _ = io.Copy(io.Discard, plain)
}

func (b *bridge) send(out *bufio.Writer, o outgoing) error {
	if uint64(len(o.data)) >= b.visitor.LaneFrom && b.lanes.Open() > 0 {
		frame := wire.Frame{Kind: wire.FrameAway, Offset: o.offset, Length: uint64(len(o.data))}
		if _, err := out.Write(frame.Append(out.AvailableBuffer())); err != nil {
			return err
		}
		if err := out.Flush(); err != nil { // for it waits for them to be taken
			return err
		}
		if err := b.lanes.Send(o.data, nil); err != nil {
			return err
		}
		o.data = nil
	}
	for len(o.data) > 0 {
		n := min(len(o.data), wire.MaxPiece)
		frame := wire.Frame{Kind: wire.FrameData, Offset: o.offset, Bytes: uint64(n)}
		if _, err := out.Write(frame.Append(out.AvailableBuffer())); err != nil {
			return err
		}
		if _, err := out.Write(o.data[:n]); err != nil {
			return err
		}
		o.data, o.offset = o.data[n:], o.offset+uint64(n)
	}
	_, err := out.Write(o.frame.Append(out.AvailableBuffer()))
	return err
}
