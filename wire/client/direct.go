package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"muster/wire"
)

// Direct is a client, within this process, of a node, without a program. Its methods may be called
// concurrently. The messages to a node on another machine take the same way as those of a relayed
// program; those to this machine's (Session.Direct) go straight to the worker.
type Direct struct {
	Welcome  wire.Welcome
	Devices  []wire.Device
	Attached wire.Attached
	// Shared has the data arena, the fault status, the mark that kernels have printed, and notices.
	// Answers do not go there.
	Shared *wire.Shared
	// Producer sends messages that have no answer.
	Producer *wire.Producer
	// Holder is the hash of the public key in the node's certificate, by which other nodes can
	// recognise it, and Known says whether it has shown one.
	Holder [sha256.Size]byte
	Known  bool

	relay *relay   // nil on this machine
	local *local   // nil for another machine
	free  chan int // free reply slots
	over  chan struct{}

	mu      sync.Mutex
	asked   [slots]func(Answer)
	given   map[uint32]func(Answer) // by sequence number
	closed  bool
	release sync.Once
}

// slots is how many calls can wait at a time. The gateway needs the other slots for data that it
// waits for on our behalf.
const slots = wire.Slots - 64

// Answer is the outcome of a call.
type Answer struct {
	Result int32
	Body   []byte // valid during the call that hands it over
	Err    error  // set if there will be no answer: a *wire.ClosedError
}

// Greet asks a node for its devices. It takes no longer than ctx, also if the node says nothing.
func Greet(ctx context.Context, remote Remote, hello wire.Hello) (wire.Welcome, []wire.Device, error) {
	r := &relay{remote: remote, hello: withCredentials(hello, remote)}
	defer context.AfterFunc(ctx, func() { r.finish("it took too long") })()
	defer r.finish("")
	said, err := r.greet(ctx)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return wire.Welcome{}, nil, err
	}
	return said.welcome, said.devices, nil
}

func withCredentials(hello wire.Hello, remote Remote) wire.Hello {
	hello.Token, hello.Grant = remote.Token, remote.Grant
	return hello
}

// Connect becomes the client of a device of a node on another machine. If the node refuses,
// the error is a *wire.Refused.
func Connect(ctx context.Context, remote Remote, hello wire.Hello, attach wire.Attach) (*Direct, error) {
	r := &relay{remote: remote, hello: withCredentials(hello, remote), awaited: awaited{trips: remote.Trips}}
	defer context.AfterFunc(ctx, func() { r.finish("it took too long") })()
	d, err := r.connectDirect(ctx, attach)
	if err != nil {
		r.finish("")
		if r.shared != nil {
			r.shared.Unmap()
		}
		return nil, err
	}
	return d, nil
}

func (r *relay) connectDirect(ctx context.Context, attach wire.Attach) (*Direct, error) {
	said, err := r.greet(ctx)
	if err != nil {
		return nil, err
	}
	attached, err := r.attach(attach)
	if err != nil {
		return nil, err
	}
	ring, arena, err := r.makeShared()
	if err != nil {
		return nil, err
	}
	ring.Close()
	arena.Close()
	if err := r.bound(); err != nil {
		return nil, odd(err)
	}
	d := &Direct{Welcome: said.welcome, Devices: said.devices, Attached: *attached, Shared: r.shared, Producer: wire.NewProducer(r.shared),
		relay: r, free: make(chan int, slots), over: make(chan struct{}), given: map[uint32]func(Answer){}}
	if secure, ok := r.far.(*tls.Conn); ok {
		d.Holder, d.Known = sha256.Sum256(secure.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo), true
	}
	for slot := range slots {
		d.free <- slot
	}
	r.answers = d.answer
	r.mu.Lock()
	finished := r.finished
	r.mu.Unlock()
	if finished {
		return nil, errors.Join(ctx.Err(), errors.New("it was ended while it was set up"))
	}
	go func() {
		_ = r.carry()
		d.end()
	}()
	return d, nil
}

// Long is how much of the arena's pinned part a Direct uses, for answers that fit in no other
// buffer.
const Long = 16 << 20

// bound refuses memory of other sizes than nodes have, and limits which part of the arena the node
// may fill: each page that it fills is memory of this machine.
func (r *relay) bound() error {
	g := r.shared.Geometry()
	const most = 64 << 20
	if g.Ring > most || g.Staging > most || g.Bounce > most || g.Bounce < 2*wire.BounceBuffer || g.Pinned < Long {
		return fmt.Errorf("memory of these sizes: %+v", g)
	}
	r.most = g.Staging + g.Bounce + Long
	return nil
}

// Start sends a call. The receiving goroutine passes the answer to done, which must not block and
// must not send. Start waits while all slots are taken.
func (d *Direct) Start(h wire.Header, body []byte, done func(Answer)) error {
	if d.local != nil {
		return d.local.start(h, body, done)
	}
	var slot int
	select {
	case slot = <-d.free:
	case <-d.over:
		return d.reason()
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return d.reason()
	}
	d.asked[slot] = done
	d.mu.Unlock()
	h.Slot = slot
	if err := d.Producer.Send(h, body); err != nil {
		d.mu.Lock()
		mine := d.asked[slot] != nil
		d.asked[slot] = nil
		d.mu.Unlock()
		if !mine { // end has called done already
			return nil
		}
		d.free <- slot
		return err
	}
	return nil
}

// Fetch sends a message after which the node fills a part of the arena. done is called as in Start,
// before any answer that reports the end of work behind the message. At most 32 may be outstanding.
func (d *Direct) Fetch(h wire.Header, body []byte, done func(Answer)) error {
	if d.local != nil {
		return d.local.fetch(h, body, done)
	}
	h.Slot = -1
	closed := false
	var number uint32
	err := d.Producer.SendNoted(h, body, func(seq uint32) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if closed = d.closed; !closed {
			number, d.given[seq] = seq, done
		}
	})
	if closed {
		return d.reason()
	}
	if err != nil {
		d.mu.Lock()
		delete(d.given, number)
		d.mu.Unlock()
	}
	return err
}

// answer passes an answer to the function that was registered for its message. Answers to messages
// that were never sent are ignored: a node that sends them harms only this client.
func (d *Direct) answer(f *wire.Frame) {
	if f.Slot >= slots {
		return
	}
	d.mu.Lock()
	var done func(Answer)
	if f.Slot < 0 {
		done = d.given[f.Seq]
		delete(d.given, f.Seq)
	} else {
		done = d.asked[f.Slot]
		d.asked[f.Slot] = nil
	}
	d.mu.Unlock()
	if done == nil {
		return
	}
	if f.Slot >= 0 {
		d.free <- f.Slot
	}
	done(Answer{Result: f.Result, Body: f.Body})
}

// end tells all waiting callers that there will be no answers. After d.closed is set, no caller can
// register.
func (d *Direct) end() {
	d.mu.Lock()
	d.closed = true
	waiting := append(slices.Collect(maps.Values(d.given)), d.asked[:]...)
	d.asked, d.given = [slots]func(Answer){}, map[uint32]func(Answer){}
	d.mu.Unlock()
	err := d.reason()
	for _, done := range waiting {
		if done != nil {
			done(Answer{Err: err})
		}
	}
	close(d.over)
}

// reason says why the client has ended.
func (d *Direct) reason() error {
	reason := ""
	if d.local != nil {
		reason = d.local.why()
	} else {
		d.relay.mu.Lock()
		reason = d.relay.reason
		d.relay.mu.Unlock()
	}
	if reason == "" {
		reason = "the connection to the node was closed"
	}
	return &wire.ClosedError{Reason: reason}
}

// Over is closed when the client has ended, for whatever reason, and all waiting callers were told.
func (d *Direct) Over() <-chan struct{} { return d.over }

// Reason says why the client has ended.
func (d *Direct) Reason() string { return d.reason().Error() }

// HangUp ends the client. Callers that wait for an answer are told.
func (d *Direct) HangUp() {
	if d.local != nil {
		d.local.finish("")
		return
	}
	d.relay.finish("")
}

// Close ends the client. The caller must not use it any more.
func (d *Direct) Close() {
	d.HangUp()
	<-d.over
	d.release.Do(d.Shared.Unmap)
}
