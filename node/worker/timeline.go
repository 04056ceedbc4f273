package worker

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

// recorder notes what is done for a client whose program is traced: when its work ran
// on devices, when its memory moved, and what it waited for. The program's library reads
// the records with trace_read, which is also what begins it. A nil recorder notes
// nothing: the loop looks at one pointer.
//
// The loop calls all methods but add, which devices call too.
type recorder struct {
	block   func(func() error) error // the worker's, for what may wait
	ctx     context.Context          // the worker's
	seq     func() uint32            // the number of the message that is handled
	keeping bool                     // memory is copied for a rebuild, and stays where it is
	wanted  time.Time                // when a device was asked for; zero: none was
	clocks  map[*gpu]*deviceClock

	mu      sync.Mutex
	records []byte
	known   map[uint32]bool // names that were told
	lost    uint64
}

// maxRecorded is how much is kept for the program, which reads it every 10 ms; what more
// there is is counted.
const maxRecorded = 1 << 16 * timeline.Size

// maxNames is how many names are told: more than the program's library keeps.
const maxNames = 1 << 14

// rebuilt is when a client was rebuilt in this worker, from how many messages.
type rebuilt struct {
	begin, end time.Time
	messages   int
}

// traceRead answers the library's question what was done since the last one.
func (w *worker) traceRead(h wire.Header, body []byte) error {
	out, err := w.shared.Data(h.Data, h.Length)
	if err == nil {
		err = (&wire.TraceRead{}).Decode(body)
	}
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	w.beginTimeline()
	t := w.timeline
	for _, clock := range t.clocks {
		clock.harvest(t)
	}
	t.others(w.neighbours.take(timeline.Now()))
	t.mu.Lock()
	n := copy(out[:len(out)/timeline.Size*timeline.Size], t.records)
	t.records = append(t.records[:0], t.records[n:]...)
	reply := wire.TraceReadReply{Size: uint32(n), Lost: t.lost}
	if len(t.records) > 0 {
		reply.More = 1
	}
	t.mu.Unlock()
	reply.Now = uint64(timeline.Now())
	w.shared.Reply(h.Slot, success, reply.Append(nil))
	return nil
}

// beginTimeline begins to record, unless that has begun.
func (w *worker) beginTimeline() {
	if w.timeline != nil {
		return
	}
	w.say(control.Traced{})
	t := &recorder{ctx: w.ctx, block: w.block, seq: func() uint32 { return w.header.Seq }, clocks: map[*gpu]*deviceClock{}, known: map[uint32]bool{}}
	now := time.Now()
	for i, d := range w.serve.Devices {
		t.add(timeline.Record{Kind: timeline.Device, Last: uint32(i)}, d.Name, now, now)
	}
	w.timeline = t
	t.rebuilt(w.rebuilt)
}

// rebuilt notes that the client was rebuilt in this worker, if so.
func (t *recorder) rebuilt(r rebuilt) {
	if t != nil && !r.end.IsZero() {
		t.add(timeline.Record{Kind: timeline.Rebuild, Last: timeline.NoDevice}, fmt.Sprintf("rebuilt from %d messages", r.messages), r.begin, r.end)
	}
}

// add notes a span.
func (t *recorder) add(r timeline.Record, name string, begin, end time.Time) {
	t.addAt(r, name, timeline.At(begin), timeline.At(end))
}

func (t *recorder) addAt(r timeline.Record, name string, begin, end int64) {
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

// submit gives a device work, and has it told when that ran.
func (t *recorder) submit(g *gpu, on device.Stream, o *clientcore.Op, give func() error) error {
	r := timeline.Record{Row: o.Stream, First: t.seq(), Last: uint32(g.place.Index())}
	switch o.Kind {
	case clientcore.Launch:
		r.Kind = timeline.Kernel
	case clientcore.CopyIn:
		r.Kind, r.Bytes = timeline.CopyIn, o.To.Width*o.To.Height
	case clientcore.CopyOut:
		r.Kind, r.Bytes = timeline.CopyOut, o.From.Width*o.From.Height
	case clientcore.Copy:
		r.Kind, r.Bytes = timeline.CopyWithin, o.To.Width*o.To.Height
	case clientcore.Fill:
		r.Kind, r.Bytes = timeline.Fill, o.To.Width*o.To.Height
	default:
		return give()
	}
	name := o.Name
	timer, ok := on.(device.Timer)
	if !ok {
		return t.between(g, on, r, name, give)
	}
	timer.Time(func(begin, end time.Time, bytes uint64) {
		r := r
		r.Bytes = bytes
		t.add(r, name, begin, end)
	})
	err := give()
	timer.Time(nil)
	return err
}

func nothing() {}

// span notes an operation from now until the function that it returns is called.
func (t *recorder) span(kind timeline.Kind, at vmm.Place) func() {
	if t == nil {
		return nothing
	}
	begin := time.Now()
	return func() {
		t.add(timeline.Record{Kind: kind, First: t.seq(), Last: uint32(at.Index())}, "", begin, time.Now())
	}
}

// onHost is span for what is done in the host's copies of the client's memory.
func (t *recorder) onHost(o *clientcore.Op) func() {
	if t == nil {
		return nothing
	}
	area, name := o.To, "copy in, kept on the host"
	switch o.Kind {
	case clientcore.HostOut:
		area, name = o.From, "copy out, from the host's copy"
	case clientcore.HostFill:
		name = "fill of the host's copy"
	case clientcore.HostCopy:
		name = "copy within the host's copy"
	}
	begin, bytes := time.Now(), area.Width*area.Height
	return func() {
		t.add(timeline.Record{Kind: timeline.OnHost, Bytes: bytes, First: t.seq(), Last: timeline.NoDevice}, name, begin, time.Now())
	}
}

// moved is span for a move of the client's memory.
func (t *recorder) moved(plan vmm.Plan) func() {
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
		// They are made together. Each counts for its part of the time, one after the other, so that
		// none is counted twice.
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

// keeps has moves be those of a copy that is kept for a rebuild, until the function that it
// returns is called.
func (t *recorder) keeps() func() {
	if t == nil {
		return nothing
	}
	t.keeping = true
	return func() { t.keeping = false }
}

// said notes what the daemon is asked.
func (t *recorder) said(m control.ToDaemon) {
	if t == nil {
		return
	}
	if _, ok := m.(control.Want); ok && t.wanted.IsZero() {
		t.wanted = time.Now()
	}
}

// told notes what the daemon answers.
func (t *recorder) told(m control.ToWorker) {
	if t == nil {
		return
	}
	if grant, ok := m.(control.Grant); ok && !t.wanted.IsZero() {
		t.add(timeline.Record{Kind: timeline.Wait, Last: uint32(grant.Device)}, "", t.wanted, time.Now())
		t.wanted = time.Time{}
	}
}

// neighbours are the other clients that have devices, while this one's program is traced,
// and when others had them. The goroutine that hears the daemon notes it.
type neighbours struct {
	mu   sync.Mutex
	held map[holder]control.Neighbour
	past []past // bounded: the oldest are dropped
}

// holder is another client that uses a device.
type holder struct {
	device int
	client uint64
}

// past is when another client had a device.
type past struct {
	who   control.Neighbour
	until int64
}

const (
	maxHeld = 4096 // more than a node serves at once
	maxPast = 4096
	// otherEvery is how often it is noted of those who keep a device that they have it, in
	// nanoseconds.
	otherEvery = int64(100 * time.Millisecond)
)

// note takes what the daemon says.
func (n *neighbours) note(m control.Neighbour) {
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

func (n *neighbours) end(who control.Neighbour, until int64) {
	if len(n.past) == maxPast {
		n.past = n.past[1:]
	}
	n.past = append(n.past, past{who, until})
}

// take returns when others had devices since it was last called.
func (n *neighbours) take(now int64) []past {
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

// others notes when other clients had devices.
func (t *recorder) others(all []past) {
	for _, p := range all {
		name := "another user's program"
		if p.who.Who != "" {
			name = fmt.Sprintf("%s (client %d)", p.who.Who, p.who.Client)
		}
		t.addAt(timeline.Record{Kind: timeline.Others, Last: uint32(p.who.Device)}, name, p.who.At, p.until)
	}
}

// --- devices that cannot tell when work ran -------------------------------------------

// deviceClock finds out when the work of a device ran that cannot tell it: by events
// around each piece, which are looked at when the program next reads the records.
type deviceClock struct {
	origin  device.Event // a moment that is known
	at      int64        // when that was
	pending []unseen     // in the order of submission
	spare   []device.Event
}

// unseen is work of which it is not known yet when it ran.
type unseen struct {
	record     timeline.Record
	name       string
	begin, end device.Event
}

const (
	maxPieces = 1 << 14 // that wait to be looked at: work beyond that is counted as lost
	// Drivers tell times between events as single floats, which are exact to 61 ns within
	// a second: then a later event becomes the origin.
	rebaseAfter = time.Second
)

// between puts events around work.
func (t *recorder) between(g *gpu, on device.Stream, r timeline.Record, name string, give func() error) error {
	clock := t.clocks[g]
	if clock == nil {
		clock = newDeviceClock(t.ctx, g)
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

func (t *recorder) miss() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost++
}

// newDeviceClock finds a moment that both clocks know: that of an event on a stream that
// has nothing to do. Without one nothing is recorded of the device.
func newDeviceClock(ctx context.Context, g *gpu) *deviceClock {
	c := &deviceClock{}
	origin, err := g.context.NewEvent()
	if err != nil {
		return c
	}
	before := timeline.Now()
	if g.mover.Record(origin) != nil {
		return c
	}
	if origin.Synchronise(ctx) != nil {
		return c
	}
	c.origin, c.at = origin, (before+timeline.Now())/2
	return c
}

// mark puts an event behind what a stream was given. Streams that wait for functions of
// the program's may take no more before those have returned.
func (t *recorder) mark(c *deviceClock, g *gpu, on device.Stream) (e device.Event, err error) {
	if n := len(c.spare); n > 0 {
		e, c.spare = c.spare[n-1], c.spare[:n-1]
	} else if e, err = g.context.NewEvent(); err != nil {
		return nil, err
	}
	return e, t.block(func() error { return on.Record(e) })
}

// harvest notes the work that has ended. If the context has, nothing is known of the rest.
func (c *deviceClock) harvest(t *recorder) {
	busy := map[uint32]bool{} // streams whose later work has not ended either
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

// note notes work that has ended; false if the device does not tell when it ran.
func (c *deviceClock) note(t *recorder, p unseen) bool {
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

// leaves notes what is known of a context that is about to be closed.
func (t *recorder) leaves(g *gpu) {
	if t == nil || t.clocks[g] == nil {
		return
	}
	t.clocks[g].harvest(t)
	for range t.clocks[g].pending {
		t.miss()
	}
	delete(t.clocks, g)
}
