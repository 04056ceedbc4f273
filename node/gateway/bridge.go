package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/door"
	"muster/internal/units"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/lanes"
)

// bufferSize holds several TLS records.
const bufferSize = 64 << 10

// watchEvery is how often the bridge checks for changes that no reply reports.
const watchEvery = 50 * time.Millisecond

// farewellTime is how long the peer may take to read why the connection ends.
const farewellTime = 3 * time.Second

// bridge carries one client's messages between a connection and a ring, with these goroutines. The
// reader (read) reads the connection and writes to the ring; while nothing arrives it also polls
// for answers, for a short time (look.go). A call that takes longer gets a goroutine that waits for
// its answer (answer). collect waits for the data of messages that the client does not wait for,
// and watch checks for changes of status. While data arrive over lanes, the reader goes on to read
// frames, and what must wait for these data is in a queue with a goroutine of its own (behind). Each
// of them writes what it has found to the connection
// itself, if it is short and no one else is writing; otherwise write, the last goroutine, does
// (outbox.go).
//
// What a client can make the bridge keep is bounded, whatever it does: one call per reply slot, one
// message per slot of the ring, a queue of frames, and a queue of messages. When these are full, the reader stops
// reading.
type bridge struct {
	link    *door.Resumable
	in      *bufio.Reader // reads from link
	session *client.Session
	visitor *visitor
	lanes   *lanes.Lanes
	behind  *lanes.Queue // messages from the first whose bytes the lanes have not brought yet; the reader adds to it
	all     sync.WaitGroup

	// waits says which reply slots of the client await an answer.
	waits [wire.Slots]atomic.Bool
	// given is twice the number of messages put on the ring, and odd while the reader is putting
	// one there, which blocks while the ring is full. watch uses it to detect a blocked reader.
	given atomic.Uint64
	// pinned are the blocks of the program's pinned memory that were used, which take memory of
	// this machine. Only the reader uses it.
	pinned map[uint64]bool

	// calls are those whose answers the reader polls for. The porter may end that (Sleep).
	callsMu sync.Mutex
	calls   []given
	// active is when the reader last found something to do, and done has the calls that it found
	// answered then. Only the reader uses them.
	active time.Time
	done   []given

	orders chan order // for the porter; nil until there is one. Only the reader sets it

	box    *outbox
	isOver chan struct{}

	// mu is held while frames are put into the box, so that they are sent in the order in which the
	// work was found done. It guards the fields below, up to print. Lock mu before the box's lock.
	mu     sync.Mutex
	unread []given // messages without an answer that give data, in order
	more   chan struct{}
	status int32
	print  bool

	end    sync.Once
	reason string
}

// given is a message that gives data or has an answer, and is in progress.
type given struct {
	pending *wire.Pending
	header  wire.Header // as the client sent it; without the data of parts
	parts   []part      // what the worker was asked for before, in order, and has not been sent
	failed  int32       // the result of a part that failed; 0 if none did
}

func newBridge(v *visitor, session *client.Session) *bridge {
	silence, keep := v.Limits.Silence, v.Limits.Keep
	b := &bridge{session: session, visitor: v, lanes: lanes.New(silence+keep, silence/4),
		pinned: map[uint64]bool{}, isOver: make(chan struct{}), more: make(chan struct{}, 1)}
	early, _ := v.in.Peek(v.in.Buffered())
	b.link = door.NewResumable(v.conn, early, b, door.Resuming{Silence: silence, Window: keep,
		Cut: func(why error) {
			v.cuts.Info(v.Log, "a session is cut", "user", v.user, "client", session.Attached.Client, "reason", why, "kept for", keep)
		},
		GivenUp: func() {
			v.Log.Info("a session is given up", "user", v.user, "client", session.Attached.Client, "cut for", keep)
		},
	})
	b.in = bufio.NewReaderSize(b.link, bufferSize)
	b.lanes.Guard = wire.Guard
	b.behind = lanes.NewQueue(b.guarded, func(err error) { b.over(unread(err)) })
	b.box = newOutbox(b.link, b.send)
	return b
}

// guarded starts a goroutine that uses memory for which the system may have no page. That ends this
// bridge only: what do holds when it happens, it must release by defer.
func (b *bridge) guarded(do func()) {
	b.all.Go(func() {
		if err := wire.Guard(func() error { do(); return nil }); err != nil {
			b.over(unread(err))
		}
	})
}

// run carries messages until one side ends, and returns the reason.
func (b *bridge) run(ctx context.Context) string {
	defer b.session.Close()
	defer context.AfterFunc(ctx, func() { b.over("the node is shutting down") })()
	b.session.Producer.Waits = b.Sleep
	b.all.Go(b.write)
	b.all.Go(b.collect)
	b.all.Go(b.watch)
	b.all.Go(func() { b.over(b.session.Wait()) })
	b.over(b.read())
	b.all.Wait()
	return b.reason
}

// over ends the bridge. Only the first reason counts; "" means that the client has gone by itself.
// Any goroutine may call it.
func (b *bridge) over(reason string) {
	b.end.Do(func() {
		b.reason = reason
		// This ends all waits for the worker.
		b.session.Shared.Close(reason)
		b.session.HangUp()
		b.visitor.dismiss(b)
		b.lanes.Close(lanes.ErrClosed)
		b.behind.End(lanes.ErrClosed)
		close(b.isOver)
		b.box.end()
		// The writer closes the connection, after the farewell; a peer that does not read must not
		// delay that.
		b.link.Hurry(farewellTime)
		// The reader may be reading data into the ring, whose lock it then holds until the connection
		// is closed, and the goroutine that closes it may be waiting for this function.
		b.all.Go(b.session.Producer.Quit)
	})
}

// read handles the client's frames until one fails, and returns the reason. Their data go to memory
// for which the system may have no page.
func (b *bridge) read() string {
	frames := wire.NewFrameReader(b.in)
	return unread(wire.Guard(func() error {
		for seq := uint32(0); ; {
			if err := b.next(frames, &seq); err != nil {
				return err
			}
		}
	}))
}

// unread returns why reading has ended; "" if the client has gone.
func unread(err error) string {
	var network net.Error
	var closed *wire.ClosedError
	switch {
	case errors.As(err, &closed):
		return closed.Reason
	case errors.Is(err, wire.ErrNoPage):
		return err.Error()
	case errors.Is(err, lanes.ErrLate):
		return "the program's side did not send data that it had announced"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &network), errors.Is(err, lanes.ErrClosed), errors.Is(err, door.ErrSilent):
		return ""
	}
	return "the program's side sent what it must not: " + err.Error()
}

// next handles one frame.
func (b *bridge) next(frames *wire.FrameReader, seq *uint32) error {
	if _, err := b.in.Peek(1); err != nil {
		return err
	}
	b.answers() // under a stream of frames Look is not called
	f, err := frames.Next()
	if err != nil {
		return err
	}
	b.active = time.Now()
	if f.Bytes+f.Length > small || f.Header.Length > small {
		b.Sleep() // reading their bytes may take long
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

// take reads data to the place in the arena that a later message names. Data that come with the
// frames may be for a place where older ones are still arriving over the lanes, so they wait for
// those.
func (b *bridge) take(frames *wire.FrameReader, f wire.Frame) error {
	to, err := b.unstaged(f.Offset, f.Bytes+f.Length)
	if err != nil {
		return err
	}
	switch {
	case f.Kind == wire.FrameData:
		if err := b.behind.Drain(); err != nil {
			return err
		}
		return frames.ReadBytes(to)
	case !b.lanes.Had():
		return errors.New("data over lanes, and there are none")
	}
	b.given.Add(1)
	defer b.given.Add(1)
	parcel, err := b.lanes.Expect(f.Offset, to)
	if err != nil {
		return err
	}
	return b.behind.Do(parcel, 0, func() error { return nil })
}

// unstaged returns a part of the arena outside staging memory, which both sides have at the same
// offset.
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
	// leastPinned is how much pinned memory every program on another machine may use.
	leastPinned = 64 << 20
)

// countPinned notes which blocks of the pinned memory are used. No one allocated it on this machine
// and no other limit counts it, so a program may use as much as it sees of device memory.
func (b *bridge) countPinned(offset, length uint64) error {
	g := b.session.Shared.Geometry()
	if length == 0 || offset+length <= g.Staging+g.Bounce {
		return nil
	}
	for block := offset / pinnedBlock; block <= (offset+length-1)/pinnedBlock; block++ {
		b.pinned[block] = true
	}
	if most := max(leastPinned, b.session.Attached.Memory); uint64(len(b.pinned))*pinnedBlock > most+pinnedBlock {
		return &wire.ClosedError{Reason: fmt.Sprintf("the program used more than %s of pinned memory, which is as much as it sees of device memory: free some, or use memory of malloc", units.BriefSize(most))}
	}
	return nil
}

// forward puts a message on the ring, behind those that wait for their data.
func (b *bridge) forward(frames *wire.FrameReader, f wire.Frame) error {
	h := f.Header
	switch {
	case h.Op == wire.OpParcelGive, h.Op == wire.OpParcelTake:
		if err := b.behind.Drain(); err != nil {
			return err
		}
		if h.Op == wire.OpParcelGive {
			return b.give(h, f.Body)
		}
		return b.fetch(h, f.Body)
	case h.Op.TakesData() && h.Data < b.session.Shared.Geometry().Staging:
		return b.stage(frames, f)
	case h.Op.TakesData():
		if f.Bytes != 0 {
			return fmt.Errorf("%v with data that are not staged", h.Op)
		}
		if _, err := b.unstaged(h.Data, h.Length); err != nil {
			return fmt.Errorf("%v: %w", h.Op, err)
		}
		h.Release = 0
	case h.Op.GivesData():
		if _, err := b.unstaged(h.Data, h.Length); err != nil {
			return fmt.Errorf("%v: %w", h.Op, err)
		}
	}
	if h.Slot >= 0 && !b.waits[h.Slot].CompareAndSwap(false, true) {
		return fmt.Errorf("%v wants its answer in slot %d, where one is due already", h.Op, h.Slot)
	}
	if b.behind.Idle() {
		return b.hand(h, f.Body, true)
	}
	return b.handLater(h, bytes.Clone(f.Body))
}

func (b *bridge) handLater(h wire.Header, body []byte) error {
	return b.behind.Do(nil, len(body), func() error { return b.hand(h, body, false) })
}

// stage puts a message on the ring whose data go through staging memory. If they come over the
// lanes, or others do before them, the reader takes the memory for them and goes on.
func (b *bridge) stage(frames *wire.FrameReader, f wire.Frame) error {
	h, producer, away := f.Header, b.session.Producer, f.Bytes == 0 && f.Header.Length > 0
	switch {
	case away && !b.lanes.Had():
		return fmt.Errorf("%v without its data", h.Op)
	case !away && b.behind.Idle():
		return producer.SendFilled(h, f.Body, h.Length, frames.ReadBytes)
	}
	staged, err := producer.Stage(h.Length)
	if err != nil {
		return fmt.Errorf("%v with %w", h.Op, err)
	}
	var parcel *lanes.Parcel
	if away {
		parcel, err = b.lanes.Expect(staged.Offset, staged.Bytes)
	} else {
		err = frames.ReadBytes(staged.Bytes)
	}
	if err != nil {
		return err
	}
	body := bytes.Clone(f.Body)
	return b.behind.Do(parcel, len(body), func() error { return producer.SendStaged(h, body, staged) })
}

// hand gives a message to the worker. The reader then polls for the answer; the queue's goroutine
// starts another one that waits for it.
func (b *bridge) hand(h wire.Header, body []byte, reader bool) error {
	producer := b.session.Producer
	if h.Op.TakesData() || h.Slot < 0 && !h.Op.GivesData() {
		return producer.Send(h, body)
	}
	g := given{header: h}
	var err error
	if b.inParts(h) {
		body, err = b.startParts(&g, body)
	}
	if err == nil {
		g.pending, err = producer.Start(g.header, body)
	}
	switch {
	case err != nil:
		return err
	case h.Slot < 0:
		b.await(g)
	case reader && len(g.parts) == 0:
		b.callsMu.Lock()
		b.calls = append(b.calls, g)
		b.callsMu.Unlock()
	default:
		b.all.Go(func() { b.answer(g) })
	}
	return nil
}

// await registers a message whose data are to be sent when they are there.
func (b *bridge) await(g given) {
	b.mu.Lock()
	b.unread = append(b.unread, g)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// answer waits for the answer of a call and sends it, after all data that arrived before it.
func (b *bridge) answer(g given) {
	for len(g.parts) > 0 {
		g.parts[0].pending.WaitDone(answerTime)
		b.mu.Lock()
		b.sendParts(&g)
		b.push()
		b.mu.Unlock()
		if _, closed := b.session.Shared.Closed(); closed {
			return
		}
	}
	result, payload, err := g.pending.Wait()
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	b.reply(g, result, payload)
	b.push()
}

// push writes what is in the box, or leaves it to the writer. The caller must hold mu.
func (b *bridge) push() {
	if err := b.box.push(); err != nil {
		b.over(unsent(err))
	}
}

// sweep sends the data that have arrived. The caller must hold mu.
func (b *bridge) sweep() {
	left := b.unread[:0]
	for _, g := range b.unread {
		b.sendParts(&g)
		if len(g.parts) > 0 || !g.pending.Done() {
			left = append(left, g)
			continue
		}
		if result, payload, err := g.pending.Wait(); err == nil {
			b.reply(g, result, payload)
		}
	}
	clear(b.unread[len(left):])
	b.unread = left
}

// notices sends what the worker has to tell the program's user. The caller must hold mu.
func (b *bridge) notices() {
	for _, text := range b.session.Shared.Notices() {
		b.box.put(outgoing{frame: wire.Frame{Kind: wire.FrameNotice, Reason: text}})
	}
}

// reply sends an answer, after its data and after the notices that explain it. The caller must hold
// mu.
func (b *bridge) reply(g given, result int32, payload []byte) {
	h, shared, result := g.header, b.session.Shared, cmp.Or(g.failed, result)
	b.status, b.print = shared.Status(), shared.Print()
	b.notices() // the worker writes notices before the status that they explain
	out := outgoing{offset: h.Data, frame: wire.Frame{Kind: wire.FrameReply, Seq: h.Seq, Slot: h.Slot, Result: result, Status: b.status, Print: b.print, Body: payload}}
	if h.Op.GivesData() && result == 0 {
		out.data, _ = shared.Data(h.Data, h.Op.Given(h.Length, payload))
	}
	if h.Slot >= 0 { // before it is sent: the client may reuse the slot at once
		b.waits[h.Slot].Store(false)
	}
	b.box.put(out)
}

// collect sends the data of messages without an answer as they arrive, so that the first call does
// not have to wait for all of them.
func (b *bridge) collect() {
	for {
		b.mu.Lock()
		b.sweep()
		b.push()
		var oldest *wire.Pending
		if len(b.unread) > 0 {
			oldest = b.unread[0].next()
		}
		b.mu.Unlock()
		if oldest != nil {
			select {
			case <-b.isOver:
				return
			default:
			}
			// Another goroutine may sweep meanwhile, so the wait is short.
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

// watch sends changes of status that no reply reports. While the reader is blocked by a full ring it
// has somebody else read the connection, to know whether the client still exists.
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
		if given%2 == 1 && given == before {
			b.link.Pump()
		}
		if err := b.link.Err(); err != nil {
			b.over(unread(err))
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

// write sends what the others leave to it, and at the end the reason.
func (b *bridge) write() {
	defer b.link.Wait()
	defer b.link.Close()
	out, err := b.box.serve()
	if err != nil && !errors.Is(err, lanes.ErrClosed) { // lanes are closed before the connection
		b.over(unsent(err))
		return
	}
	b.farewell(out)
}

// unsent returns why writing has ended; "" if the client has gone.
func unsent(err error) string {
	if errors.Is(err, wire.ErrNoPage) {
		return err.Error()
	}
	return ""
}

// farewell sends the reason, after everything that was found done before.
func (b *bridge) farewell(out sink) {
	if b.reason == "" {
		return
	}
	frame := wire.Frame{Kind: wire.FrameClosed, Reason: b.reason}
	_, _ = out.Write(frame.Append(nil))
	_ = out.Flush()
}

func (b *bridge) send(out sink, o outgoing) error {
	if uint64(len(o.data)) >= b.visitor.LaneFrom && b.lanes.Open() > 0 {
		frame := wire.Frame{Kind: wire.FrameAway, Offset: o.offset, Length: uint64(len(o.data))}
		if _, err := out.Write(frame.Append(out.AvailableBuffer())); err != nil {
			return err
		}
		if err := out.Flush(); err != nil { // the peer must see this frame before it takes the data
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
	if o.frame.Kind == 0 { // data of a part
		return nil
	}
	_, err := out.Write(o.frame.Append(out.AvailableBuffer()))
	return err
}
