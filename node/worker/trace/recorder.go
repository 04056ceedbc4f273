// Package trace records what a worker does for a client whose program is traced, for the program's library
// to read (wire/timeline). It knows when work ran on devices, when memory moved and what was waited for. It
// does not know what the work is for, and decides nothing.
package trace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/timeline"
)

// Recorder records what is done for a client whose program is traced: when its work ran on devices,
// when its memory moved, and what it waited for. The program's library reads the records with
// trace_read; the first such message creates the recorder. A nil recorder records nothing, and
// costs the loop the test of one pointer.
//
// The loop calls all methods; only add and addAt may be called by other goroutines too.
type Recorder struct {
	block   func(func() error) error // the worker's block
	ctx     context.Context          // the worker's
	seq     func() uint32            // the number of the current message
	keeping bool                     // a move now only copies memory for a rebuild
	wanted  time.Time                // when a device was asked for; zero: none is
	clocks  map[Context]*deviceClock

	mu      sync.Mutex
	records []byte
	known   map[uint32]bool // names that are in records, or were read
	lost    uint64
}

// maxRecorded bounds the records that are kept for the program, which reads them every 10 ms.
// Records beyond that are counted as lost.
const maxRecorded = 1 << 16 * timeline.Size

// maxNames bounds the names that are recorded; the library keeps fewer.
const maxNames = 1 << 14

// Context is a context on a device, as far as the recorder needs it.
type Context interface {
	Device() int // its number
	NewEvent() (device.Event, error)
	Idle() device.Stream // a stream that is idle between moves
}

// Row is how operations of a kind appear: as what (0: not at all), with the size of From or else of To, and
// with a name if they have none.
type Row struct {
	Kind timeline.Kind
	From bool
	Name string
}

// New makes the recorder of a client with these devices. Seq returns the number of the message that is being
// handled; block runs what may have to wait for the program.
func New(ctx context.Context, block func(func() error) error, seq func() uint32, devices []control.DeviceConfig) *Recorder {
	t := &Recorder{ctx: ctx, block: block, seq: seq, clocks: map[Context]*deviceClock{}, known: map[uint32]bool{}}
	now := time.Now()
	for i, d := range devices {
		t.add(timeline.Record{Kind: timeline.Device, Last: uint32(i)}, d.Name, now, now)
	}
	return t
}

// Read moves records to out. Others are the times at which other clients held devices.
func (t *Recorder) Read(out []byte, others []Past) wire.TraceReadReply {
	for _, clock := range t.clocks {
		clock.harvest(t)
	}
	t.others(others)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := copy(out[:len(out)/timeline.Size*timeline.Size], t.records)
	t.records = append(t.records[:0], t.records[n:]...)
	reply := wire.TraceReadReply{Size: uint32(n), Lost: t.lost, Now: uint64(timeline.Now())}
	if len(t.records) > 0 {
		reply.More = 1
	}
	return reply
}

// Rebuilt is when a client was rebuilt in this worker, and from how many messages.
type Rebuilt struct {
	Begin, End time.Time
	Messages   int
}

// Rebuilt records that the client was rebuilt in this worker, if it was.
func (t *Recorder) Rebuilt(r Rebuilt) {
	if t != nil && !r.End.IsZero() {
		t.add(timeline.Record{Kind: timeline.Rebuild, Last: timeline.NoDevice}, fmt.Sprintf("rebuilt from %d messages", r.Messages), r.Begin, r.End)
	}
}

// add records a span.
func (t *Recorder) add(r timeline.Record, name string, begin, end time.Time) {
	t.addAt(r, name, timeline.At(begin), timeline.At(end))
}

func (t *Recorder) addAt(r timeline.Record, name string, begin, end int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.records) >= maxRecorded {
		t.lost++
		return
	}
	if name != "" {
		r.Name = timeline.Hash(name)
		if !t.known[r.Name] && len(t.known) < maxNames {
			t.known[r.Name] = true
			t.records = timeline.AppendName(t.records, r.Name, name)
		}
	}
	r.Begin, r.End = begin, max(begin, end)
	t.records = r.Append(t.records)
}

// bytes is how many bytes an operation is about.
func (r Row) bytes(o *clientcore.Op) uint64 {
	area := o.To
	if r.From {
		area = o.From
	}
	return area.Width * area.Height
}

// Submit submits work to a device, and has the device report when it ran.
func (t *Recorder) Submit(g Context, on device.Stream, how Row, o *clientcore.Op, give func() error) error {
	if how.Kind == 0 {
		return give()
	}
	r := timeline.Record{Kind: how.Kind, Row: o.Stream, Bytes: how.bytes(o), First: t.seq(), Last: uint32(g.Device())}
	name := o.Name
	timer := on.Can().Time
	if timer == nil {
		return t.between(g, on, r, name, give)
	}
	timer(func(begin, end time.Time, bytes uint64) {
		r := r
		r.Bytes = bytes
		t.add(r, name, begin, end)
	})
	err := give()
	timer(nil)
	return err
}

func nothing() {}

// Span records an operation that lasts from now until the returned function is called.
func (t *Recorder) Span(kind timeline.Kind, at vmm.Place) func() {
	if t == nil {
		return nothing
	}
	begin := time.Now()
	return func() {
		t.add(timeline.Record{Kind: kind, First: t.seq(), Last: uint32(at.Index())}, "", begin, time.Now())
	}
}

// OnHost is Span for work on the host copies.
func (t *Recorder) OnHost(how Row, o *clientcore.Op) func() {
	if t == nil {
		return nothing
	}
	begin, bytes := time.Now(), how.bytes(o)
	return func() {
		t.add(timeline.Record{Kind: how.Kind, Bytes: bytes, First: t.seq(), Last: timeline.NoDevice}, how.Name, begin, time.Now())
	}
}

// Moved is Span for a move of the client's memory.
func (t *Recorder) Moved(plan vmm.Plan) func() {
	if t == nil {
		return nothing
	}
	var in, out, all uint64
	var moves []carried
	at := vmm.Device(0)
	for _, l := range plan.Links() {
		all += l.Bytes
		switch {
		case l.From == vmm.Host:
			in, at = in+l.Bytes, l.To
		case l.To == vmm.Host:
			out, at = out+l.Bytes, l.From
		default:
			moves = append(moves, carried{timeline.Transfer, fmt.Sprintf("move from device %d to device %d", l.From.Index(), l.To.Index()), l.To, l.Bytes})
		}
	}
	kind := timeline.Exchange
	switch {
	case t.keeping:
		kind = timeline.Keep
	case out == 0:
		kind = timeline.SwapIn
	case in == 0:
		kind = timeline.SwapOut
	}
	if in+out > 0 {
		moves = append(moves, carried{kind, "", at, in + out})
	}
	if len(moves) == 0 {
		return nothing
	}
	begin := time.Now()
	return func() {
		// The copies of a plan run together. Each one is recorded with its share of the time, by
		// bytes, one after the other, so that no time is counted twice.
		took := time.Since(begin)
		from := begin
		for _, m := range moves {
			to := from.Add(time.Duration(float64(took) * float64(m.bytes) / float64(all)))
			t.add(timeline.Record{Kind: m.kind, Bytes: m.bytes, First: t.seq(), Last: uint32(m.at.Index())}, m.name, from, to)
			from = to
		}
	}
}

// carried is one part of a move.
type carried struct {
	kind  timeline.Kind
	name  string
	at    vmm.Place
	bytes uint64
}

// Keeps marks moves as copies for a rebuild, until the returned function is called.
func (t *Recorder) Keeps() func() {
	if t == nil {
		return nothing
	}
	t.keeping = true
	return func() { t.keeping = false }
}

// Said records when the daemon is asked for a device.
func (t *Recorder) Said(m control.ToDaemon) {
	if t == nil {
		return
	}
	if _, ok := m.(control.Want); ok && t.wanted.IsZero() {
		t.wanted = time.Now()
	}
}

// Told records the wait for a device when the daemon grants one.
func (t *Recorder) Told(m control.ToWorker) {
	if t == nil {
		return
	}
	if grant, ok := m.(control.Grant); ok && !t.wanted.IsZero() {
		t.add(timeline.Record{Kind: timeline.Wait, Last: uint32(grant.Device)}, "", t.wanted, time.Now())
		t.wanted = time.Time{}
	}
}

// Neighbours are the other clients that hold devices, and those that held them, while this client's
// program is traced. The goroutine of receive writes it, the loop reads it.
type Neighbours struct {
	mu   sync.Mutex
	held map[holder]control.Neighbour
	past []Past // bounded: the oldest are dropped
}

// holder is another client that holds a device.
type holder struct {
	device int
	client uint64
}

// Past is a time during which another client held a device.
type Past struct {
	who   control.Neighbour
	until int64
}

const (
	maxHeld = 4096 // more clients than a node serves at once
	maxPast = 4096
	// otherEvery is how often a client that keeps holding a device is recorded, in nanoseconds.
	otherEvery = int64(100 * time.Millisecond)
)

// Note handles the daemon's report that a client got or left a device.
func (n *Neighbours) Note(m control.Neighbour) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := holder{m.Device, m.Client}
	if since, ok := n.held[at]; ok {
		n.end(since, m.At)
	}
	delete(n.held, at)
	if n.held == nil {
		n.held = map[holder]control.Neighbour{}
	}
	if m.On && len(n.held) < maxHeld {
		n.held[at] = m
	}
}

func (n *Neighbours) end(who control.Neighbour, until int64) {
	if len(n.past) == maxPast {
		n.past = n.past[1:]
	}
	n.past = append(n.past, Past{who, until})
}

// Take returns the times during which others held devices since the last call.
func (n *Neighbours) Take(now int64) []Past {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at, who := range n.held {
		if now-who.At >= otherEvery {
			n.end(who, now)
			who.At = now
			n.held[at] = who
		}
	}
	taken := n.past
	n.past = nil
	return taken
}

// others records when other clients held devices.
func (t *Recorder) others(all []Past) {
	for _, p := range all {
		name := "another user's program"
		if p.who.Who != "" {
			name = fmt.Sprintf("%s (client %d)", p.who.Who, p.who.Client)
		}
		t.addAt(timeline.Record{Kind: timeline.Others, Last: uint32(p.who.Device)}, name, p.who.At, p.until)
	}
}

// --- devices that cannot tell when work ran -------------------------------------------

// deviceClock measures the work of a device that cannot report when work ran. It records an event
// before and after each piece of work, and reads their times when the program next reads the
// records.
type deviceClock struct {
	origin  device.Event // an event whose time on the worker's clock is known
	at      int64        // that time
	pending []unseen     // in the order of submission
	spare   []device.Event
}

// unseen is work whose time is not known yet.
type unseen struct {
	record     timeline.Record
	name       string
	begin, end device.Event
}

const (
	maxPieces = 1 << 14 // bounds pending: work beyond that is counted as lost
	// Drivers report the time between two events as a float32, which is exact to 61 ns up to one
	// second. Beyond that a later event becomes the origin.
	rebaseAfter = time.Second
)

// between submits work between two events.
func (t *Recorder) between(g Context, on device.Stream, r timeline.Record, name string, give func() error) error {
	clock := t.clocks[g]
	if clock == nil {
		clock = t.newDeviceClock(g)
		t.clocks[g] = clock
	}
	p := unseen{record: r, name: name}
	var err error
	if clock.origin == nil || len(clock.pending) >= maxPieces {
		err = errors.New("no room")
	}
	if err == nil {
		p.begin, err = t.mark(clock, g, on)
	}
	if err != nil {
		t.miss()
		return give()
	}
	if err := give(); err != nil {
		clock.spare = append(clock.spare, p.begin)
		return err
	}
	if p.end, err = t.mark(clock, g, on); err != nil {
		t.miss()
		return nil
	}
	clock.pending = append(clock.pending, p)
	return nil
}

func (t *Recorder) miss() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost++
}

// newDeviceClock records an event on an idle stream and takes the middle between the times before
// and after as its time. If that fails, nothing is recorded for the device.
func (t *Recorder) newDeviceClock(g Context) *deviceClock {
	c := &deviceClock{}
	origin, err := g.NewEvent()
	if err != nil {
		return c
	}
	before := timeline.Now()
	if g.Idle().Record(origin) != nil {
		return c
	}
	if t.block(func() error { return origin.Synchronise(t.ctx) }) != nil {
		return c
	}
	c.origin, c.at = origin, (before+timeline.Now())/2
	return c
}

// mark records an event in a stream. It may block while the stream waits for a host function.
func (t *Recorder) mark(c *deviceClock, g Context, on device.Stream) (e device.Event, err error) {
	if n := len(c.spare); n > 0 {
		e, c.spare = c.spare[n-1], c.spare[:n-1]
	} else if e, err = g.NewEvent(); err != nil {
		return nil, err
	}
	return e, t.block(func() error { return on.Record(e) })
}

// harvest records the work that has ended. After an error of the context the rest is counted as
// lost.
func (c *deviceClock) harvest(t *Recorder) {
	busy := map[uint32]bool{} // streams with work that has not ended: later work has not either
	left := c.pending[:0]
	for _, p := range c.pending {
		done, err := false, error(nil)
		if !busy[p.record.Row] {
			done, err = p.end.Done()
		}
		switch {
		case err == nil && !done:
			busy[p.record.Row] = true
			left = append(left, p)
		case err != nil || !c.note(t, p):
			t.miss()
		}
	}
	c.pending = left
}

// note records work that has ended; false if the device does not tell when it ran.
func (c *deviceClock) note(t *Recorder, p unseen) bool {
	begin, err := p.begin.Since(c.origin)
	if err != nil {
		return false
	}
	end, err := p.end.Since(c.origin)
	if err != nil {
		return false
	}
	t.addAt(p.record, p.name, c.at+int64(begin), c.at+int64(end))
	c.spare = append(c.spare, p.begin)
	if end > rebaseAfter {
		c.spare = append(c.spare, c.origin)
		c.origin, c.at = p.end, c.at+int64(end)
	} else {
		c.spare = append(c.spare, p.end)
	}
	return true
}

// Leaves records what is known of a context that the caller is about to close.
func (t *Recorder) Leaves(g Context) {
	if t == nil || t.clocks[g] == nil {
		return
	}
	t.clocks[g].harvest(t)
	for range t.clocks[g].pending {
		t.miss()
	}
	delete(t.clocks, g)
}
