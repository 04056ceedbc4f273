package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// keeper keeps what is needed to rebuild the client in another worker, should this
// one die: the journal, into which every message goes before it counts as read, and
// a base now and then. Without a journal it does nothing.
type keeper struct {
	journal *journal.Journal // nil: the client ends with its worker

	entry   journal.Entry // of the message that is handled
	header  wire.Header   // of that message
	hasData bool          // its data are in the journal
	backlog []queued      // messages that were taken from the ring to be handled later
	kept    []retained    // staging memory that is not given back yet
	keeping uint64        // bytes of that
	left    bool          // the client has left its device since the last base
	due     bool          // a base must be made before anything else happens

	spent   time.Duration // what kernels had taken at the last base
	rate    float64       // bytes per second that a base copies from the device
	exposed bool          // the log has said so
	retry   time.Time     // when a base is tried again, after one that did not fit
	replay  *replay       // what was handled by the worker before; nil when that is over

	unproven bool // what was launched again has not ended yet
}

// queued is the entry of a message that is handled later.
type queued struct {
	entry  journal.Entry
	header wire.Header
}

// retained is staging memory that the journal counts on: the data of an entry.
type retained struct {
	entry journal.Entry
	data  []byte
	stage *stage
}

const (
	// A base may cost one part in so many of the time that kernels take: so long
	// they have run before the next one is made for their sake.
	foldShare = 25
	// minSpent is how long kernels run at least between two bases that nothing else
	// makes necessary.
	minSpent = 50 * time.Millisecond
	// firstRate is what copying from a device is expected to take before it was seen.
	firstRate = 2 << 30
	// foldCost is what a base costs by itself.
	foldCost = 200 * time.Microsecond
	// retryFold is how long a client stays exposed whose base did not fit.
	retryFold = time.Second
	// maxMoved is how many chunks may be on the host twice where a base costs little.
	maxMoved = (64 << 20) / chunk
	// keepTime is how long staging memory is kept while no message comes.
	keepTime = 500 * time.Microsecond
	// tightLog is how much room is left in the log when a base is made for that
	// reason: what is read ahead needs some.
	tightLog = journal.LogLimit / 4 * 3
	// maxAttached is the most that one message's data may take in the log.
	maxAttached = journal.LogLimit / 8
	// aside is how many bytes are worth a goroutine that writes them to the journal
	// while the device reads them.
	aside = 256 << 10
)

// record writes a message to the journal before the ring gives its room back.
func (w *worker) record(position uint64, message []byte) {
	w.latestEntry = w.journal.Append(position, message)
}

// expose notes that the client cannot be rebuilt for now, for want of room that the
// administrator may give it.
func (w *worker) expose(why error) { w.exposeAt(slog.LevelWarn, why) }

// exposeByUse notes that the client cannot be rebuilt because of what its program uses.
// Nothing is wrong then, so it is no warning: whoever runs a program on a node of its own
// has the node's warnings on the terminal.
func (w *worker) exposeByUse(why string) { w.exposeAt(slog.LevelInfo, errors.New(why)) }

func (w *worker) exposeAt(level slog.Level, why error) {
	if w.journal == nil || !w.journal.Valid() {
		return
	}
	w.journal.Invalidate()
	if !w.exposed {
		w.exposed = true
		w.log.Log(context.Background(), level, "the client cannot be rebuilt for now if its worker dies", "reason", why)
	}
}

// tellPlaced notes where a module's variables are, before anybody can know.
func (w *worker) tellPlaced(p clientcore.Placed) {
	if w.journal == nil || !w.journal.Valid() {
		return
	}
	about, err := json.Marshal(p)
	if err != nil {
		w.expose(fmt.Errorf("where a module is: %w", err))
		return
	}
	w.journal.Tell(w.entry, about)
}

// keep writes the data of a message that brings some to the journal, or makes sure
// that they stay where they are until the next base.
func (w *worker) keep(o *clientcore.Op) {
	if w.journal == nil || !w.header.Op.TakesData() || w.hasData || w.replay.has() {
		return
	}
	if w.stage != nil && o.Kind == clientcore.HostIn && w.core.Dirty() == 0 && w.core.Blobs() < len(o.Data) {
		// A base copies nothing now: it is made for several messages at once.
		w.kept = append(w.kept, retained{w.entry, o.Data, w.stage})
		w.keeping += uint64(len(o.Data))
		w.stage = nil
		return
	}
	w.attachData(w.entry, o.Data)
}

// keepAside is keep, while the caller has the device read the data; it must call what
// is returned before the data are given back.
func (w *worker) keepAside(o *clientcore.Op) (kept func()) {
	if len(o.Data) < aside || w.journal == nil || w.hasData || w.replay.has() || len(o.Data) > maxAttached {
		w.keep(o)
		return func() {}
	}
	fill := w.journal.Reserve(w.entry, uint64(len(o.Data)))
	if fill == nil {
		w.keep(o)
		return func() {}
	}
	done, data := make(chan struct{}), o.Data
	go func() {
		fill(data)
		close(done)
	}()
	return func() { <-done }
}

// attachData writes data to the journal.
func (w *worker) attachData(e journal.Entry, data []byte) {
	if len(data) <= maxAttached && w.journal.Attach(e, data) {
		return
	}
	if w.stage != nil { // which is about to be given back
		w.expose(errLogFull)
		return
	}
	w.due = true
}

var errLogFull = errors.New("it sent more than its journal holds while one of its own functions was waited for")

// attachLater is attachData for memory of the program's, which counts when the stream
// arrives there.
func (w *worker) attachLater(on device.Stream, data []byte) error {
	if w.journal == nil || w.replay.has() {
		return nil
	}
	if done, err := on.Done(); err != nil {
		return err
	} else if done {
		w.attachData(w.entry, data)
		return nil
	}
	if len(data) > maxAttached {
		w.due = true
		return nil
	}
	fill := w.journal.Reserve(w.entry, uint64(len(data)))
	if fill == nil {
		w.due = true
		return nil
	}
	return w.block(func() error { return on.Call(func() { fill(data) }) })
}

// given notes that bytes are where the program wanted them, for messages that have
// no answer which says so.
func (w *worker) given() {
	if w.journal != nil && w.header.Slot < 0 {
		w.journal.Mark(w.entry, journal.Done)
	}
}

// givenLater is given for when a stream arrives there.
func (w *worker) givenLater(on device.Stream) error {
	if w.journal == nil || w.header.Slot >= 0 {
		return nil
	}
	if done, err := on.Done(); done || err != nil {
		w.given()
		return err
	}
	e := w.entry
	return w.block(func() error { return notify(on, func() { w.journal.Mark(e, journal.Done) }) })
}

// refused notes that the message was refused. One that was not when it was handled
// first must not be now: the program counts on what it did.
func (w *worker) refused(r clientcore.Result) error {
	if w.journal == nil {
		return nil
	}
	if m := w.replay.current(); m != nil && m.Marks&journal.Refused == 0 && (w.replay.silent || w.replay.passed) {
		return fmt.Errorf("%w: %v was done before and is refused now, with result %d: %s", errNotSame, w.header.Op, r, w.replay.untold)
	}
	w.journal.Refuse(w.entry, r)
	return nil
}

// errNotSame says that the client could not be made what it was.
var errNotSame = fmt.Errorf("the client could not be rebuilt: %w", errEnded)

// handed notes that a function of the program's is handed out, before it is.
func (w *worker) handed(o *clientcore.Op) {
	if w.journal != nil && o.Cookie != 0 {
		w.journal.Note(journal.Note{Cookie: o.Cookie, Slot: o.Slot, Seq: w.shared.Asks(o.Slot)})
	}
}

// release gives staging memory back that was kept.
func (w *worker) release() {
	for _, r := range w.kept {
		w.staging.free(r.stage)
	}
	w.kept, w.keeping = w.kept[:0], 0
}

// maybeFold makes a base if it is time for one.
func (w *worker) maybeFold() error {
	if w.journal == nil || w.replay != nil {
		return nil
	}
	if !w.due && w.keeping <= w.shared.Geometry().Staging/2 && !w.timeToFold() {
		return nil
	}
	if !w.core.CanFold() {
		w.cannotFold()
		return nil
	}
	return w.fold()
}

// cannotFold does what can be done when a base cannot be made.
func (w *worker) cannotFold() {
	due := w.due && len(w.kept) == 0
	w.due = false
	for _, r := range w.kept {
		w.attachData(r.entry, r.data)
	}
	w.release()
	if due || w.due {
		w.due = false
		w.expose(errLogFull)
	}
}

// timeToFold says whether it is time for a base: the log is long, host copies are
// there twice that need not be, or kernels have run for long.
func (w *worker) timeToFold() bool {
	j := w.journal
	switch used := j.Used(); {
	case j.Valid() && used == 0:
		return false
	case used > tightLog:
		return true
	}
	spent := w.core.Spent() - w.spent
	if (w.left || len(w.host.moved) > maxMoved) && w.core.Dirty() == 0 {
		return true
	}
	if j.Valid() && spent < minSpent {
		return false
	}
	cost := foldCost + time.Duration(float64(w.core.Dirty()+uint64(w.core.Blobs()))/w.rate*float64(time.Second))
	if !j.Valid() {
		return w.core.CanFold() && time.Now().After(w.retry)
	}
	return spent > foldShare*cost
}

// fold makes a base.
func (w *worker) fold() error {
	if err := w.settleLaunches(); err != nil {
		return err
	}
	dirty, start := w.core.Dirty(), time.Now()
	if err := w.perform(w.core.Fold(w.now())); err != nil {
		return err
	}
	if took := time.Since(start); dirty >= 16*chunk {
		w.rate = (w.rate + float64(dirty)/took.Seconds()) / 2
	}
	return nil
}

// firstFold makes the first base, before anything is read from the ring: a worker that
// finds none knows that nothing was.
func (w *worker) firstFold() error {
	if err := w.fold(); err != nil {
		return err
	}
	if w.journal.Fresh() {
		return errors.New("the journal does not hold the client's first base")
	}
	w.unproven = w.serve.Resume
	return nil
}

// surroundings is what a base holds besides the core's value.
type surroundings struct {
	Position uint64         // of the ring
	Seq      uint32         // of the next message
	Asked    map[int]uint32 // messages that wait for their answer
	Now      time.Duration  // since the client began
	At       time.Time
	World    uint64
	Turns    []int  // of what was printed
	Dropped  bool   // some of it
	Identity string // see Serve
	Traced   bool   `json:",omitempty"` // the program wants to know where the time goes
}

// Sections of a base.
const (
	ofSurroundings = iota
	ofSides
	ofPrinted
	ofClient
	ofBlobs
)

// commit makes a base count. All calls that were to be answered before it are.
func (w *worker) commit(b *clientcore.Base) error {
	w.replies.Wait()
	s := surroundings{Asked: map[int]uint32{}, Now: w.now(), At: time.Now(), World: w.sticky.current(), Identity: w.serve.Identity, Traced: w.timeline != nil}
	s.Position, s.Seq = w.consumer.Position()
	for _, slot := range w.core.WaitingSlots() {
		s.Asked[slot] = w.shared.Asks(slot)
	}
	var printed []byte
	printed, s.Turns, s.Dropped = w.printed.all()
	about, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = w.journal.Commit(append([][]byte{about, w.host.which, printed, b.Client}, b.Blobs...)...)
	if err != nil {
		w.expose(err)
		w.host.abandon()
		w.retry = time.Now().Add(retryFold)
	} else {
		w.host.commit()
		w.exposed = false
		if w.left { // and will again
			w.readyAhead()
		}
	}
	if w.unproven { // nothing is under way
		w.prove()
	}
	w.entry = journal.Entry{}
	w.due, w.left = false, false
	w.spent = w.core.Spent()
	w.release()
	return nil
}

// replay is what the worker before has handled since its last base, and what is
// known of how that ended.
type replay struct {
	messages []*journal.Message
	done     map[uint64]bool                       // functions of the program's that have returned
	handed   map[uint64]bool                       // that were handed out
	answered map[uint32]bool                       // messages, by their number
	placed   map[journal.Entry][]clientcore.Placed // modules, while a message was handled
	untold   string                                // the last reason that was not told again
	behind   int                                   // which of the messages is the last that was answered

	message *journal.Message // that is handled
	silent  bool             // it was answered
	passed  bool             // so was a later one: it was not refused then
	sent    wire.Header
}

// has says whether the message that is handled brings its data from the journal.
func (r *replay) has() bool { return r != nil && r.message != nil && r.message.Data != nil }

// comes tells the core which modules were placed while a message was handled.
func (r *replay) comes(c *clientcore.Core, e journal.Entry) {
	for _, p := range r.placed[e] {
		c.Due(p)
	}
}

// current is the message that is handled; nil if there is no replay.
func (r *replay) current() *journal.Message {
	if r == nil {
		return nil
	}
	return r.message
}

// wasHanded says whether the program was given a function to call.
func (r *replay) wasHanded(cookie uint64) bool { return r != nil && r.handed[cookie] }

// hasReturned says whether the function of a message has returned.
func (r *replay) hasReturned(message []byte) bool {
	var m wire.HostFunction
	return m.Decode(message) == nil && r.done[m.Cookie]
}

// noteReturned notes that a function has returned, if a message says so. The program was
// given it by the worker before: it may say so before this one has come to the message
// that has it called.
func (r *replay) noteReturned(h wire.Header, body []byte) {
	var m wire.HostDone
	if r != nil && h.Op == wire.OpHostDone && m.Decode(body) == nil {
		r.done[m.Cookie] = true
	}
}

// drops says whether an operation must not be performed again: the program was told
// or given what it would tell or give.
func (w *worker) drops(o *clientcore.Op) bool {
	r := w.replay
	if r == nil {
		return false
	}
	switch o.Kind {
	case clientcore.Tell: // unless this worker is the first that refuses the message
		r.untold = o.Text
		return r.silent || r.message != nil && r.message.Marks&journal.Refused != 0
	case clientcore.Reply:
		return r.silent && o.Slot == r.sent.Slot && o.Cookie == 0
	case clientcore.Write, clientcore.Printed, clientcore.Occupancy, clientcore.SharedFor, clientcore.Clusters, clientcore.Ask:
		return r.silent
	case clientcore.CopyOut, clientcore.HostOut:
		return r.silent || r.message != nil && r.message.Marks&journal.Done != 0
	}
	return false
}

// waitAgain waits for what the program was told had ended, where an operation would
// tell it: other streams may have been given work that counts on it. It says whether
// there is nothing else to do.
func (w *worker) waitAgain(g *gpu, o *clientcore.Op) (over bool, err error) {
	r := w.replay
	if r == nil || !r.silent {
		return false, nil
	}
	var events []uint32
	switch o.Kind {
	case clientcore.ReplyAfter:
		if o.All {
			return true, w.drainAll()
		}
		if o.OfEvent {
			events = []uint32{o.Event}
			break
		}
		on, err := g.stream(o.Stream)
		if err != nil {
			return true, err
		}
		return true, w.settle(on)
	case clientcore.Query:
		if r.message.Marks&journal.Done == 0 {
			return true, nil
		}
		for i, id := range o.Streams {
			g, err := w.placeOf(g, o, i)
			var on device.Stream
			if err == nil {
				on, err = g.stream(id)
			}
			if err == nil {
				err = w.settle(on)
			}
			if err != nil {
				return true, err
			}
		}
		return true, nil
	case clientcore.QueryEvent:
		events = []uint32{o.Event}
	case clientcore.Elapsed:
		if r.message.Marks&journal.Done == 0 {
			return true, nil
		}
		return true, w.waitForMoments(o.Start, o.End)
	}
	if o.Kind != clientcore.ReplyAfter && r.message.Marks&journal.Done == 0 {
		return true, nil
	}
	for _, id := range events {
		e, err := g.event(id)
		if err == nil {
			err = w.block(func() error { return e.Synchronise(w.ctx) })
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// waitForMoments waits for events of any context.
func (w *worker) waitForMoments(moments ...clientcore.Moment) error {
	for _, m := range moments {
		if !m.Pending {
			continue
		}
		g, err := w.at(m.Place)
		if err != nil {
			return err
		}
		e, err := g.event(m.Event)
		if err == nil {
			err = w.block(func() error { return e.Synchronise(w.ctx) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// saw notes that the program is about to be told that work has ended.
func (w *worker) saw() {
	if w.journal != nil {
		w.journal.Mark(w.entry, journal.Done)
	}
}

// resume goes on with what a worker before this one has left.
func (w *worker) resume() error {
	sections, err := w.journal.Base()
	if err != nil {
		return err
	}
	if len(sections) < ofBlobs {
		return fmt.Errorf("a base of %d sections", len(sections))
	}
	var s surroundings
	if err := json.Unmarshal(sections[ofSurroundings], &s); err != nil {
		return err
	}
	core, err := clientcore.RestoreBase(clientcore.Base{Client: sections[ofClient], Blobs: sections[ofBlobs:]}, w.pinned)
	if err != nil {
		return err
	}
	if err := w.host.resume(sections[ofSides], core.Held(), core.Allocations()); err != nil {
		return err
	}
	w.core = core
	w.spent = core.Spent()
	w.began = time.Now().Add(-s.Now - time.Since(s.At))
	w.serve.Identity, w.wasTraced = s.Identity, s.Traced
	why := ""
	if core.Faulted != nil {
		why = core.Faulted.Text
	}
	w.sticky.resume(s.World, core.Result(), why)
	if err := w.printed.resume(sections[ofPrinted], s.Turns, s.Dropped); err != nil {
		return err
	}
	for slot, seq := range s.Asked {
		if slot < 0 || slot >= wire.Slots {
			return fmt.Errorf("an answer in slot %d", slot)
		}
		w.shared.Asked(wire.Header{Slot: slot, Seq: seq})
	}
	return w.readJournal(s)
}

// resumeWith is resume with the devices that there are now.
func (w *worker) resumeWith(devices []clientcore.Device) error {
	if w.journal == nil {
		return errors.New("there is nothing to resume from: the client was not kept")
	}
	if err := w.resume(); err != nil {
		return fmt.Errorf("rebuilding the client: %w", err)
	}
	w.core.Leased(w.serve.Lease)
	return w.core.Equip(devices)
}

// readJournal finds out what has happened since the base.
func (w *worker) readJournal(s surroundings) error {
	r := &replay{done: map[uint64]bool{}, handed: map[uint64]bool{}, answered: map[uint32]bool{}, placed: map[journal.Entry][]clientcore.Placed{}}
	facts := 0
	position, seq := s.Position, s.Seq
	latest := map[int]wire.Header{}
	var notes []*journal.Note
	for record, err := range w.journal.Log() {
		if err != nil {
			return err
		}
		if record.Note != nil {
			notes = append(notes, record.Note)
			continue
		}
		if record.Fact != nil {
			var p clientcore.Placed
			if err := json.Unmarshal(record.Fact.About, &p); err != nil {
				return fmt.Errorf("where a module was: %w", err)
			}
			r.placed[record.Fact.Of] = append(r.placed[record.Fact.Of], p)
			facts++
			continue
		}
		h, body, err := wire.DecodeMessage(record.Message.Bytes)
		if err != nil {
			return err
		}
		r.messages = append(r.messages, record.Message)
		position, seq = record.Message.Position, h.Seq+1
		if h.Slot >= 0 {
			if before, ok := latest[h.Slot]; ok { // a slot is used again when its answer was taken
				r.answered[before.Seq] = true
			}
			latest[h.Slot] = h
		}
		if h.Op == wire.OpHostDone {
			var done wire.HostDone
			if err := done.Decode(body); err != nil {
				return err
			}
			r.done[done.Cookie] = true
		}
	}
	for _, h := range latest {
		r.answered[h.Seq] = w.shared.Answered(h)
	}
	w.core.Answered(func(slot int) bool {
		_, again := latest[slot]
		return again || w.shared.Answered(wire.Header{Slot: slot, Seq: s.Asked[slot]})
	})
	for _, n := range notes {
		last, used := latest[n.Slot]
		r.handed[n.Cookie] = used && last.Seq != n.Seq || w.shared.Answered(wire.Header{Slot: n.Slot, Seq: n.Seq})
	}
	var fetched uint64 // of what kernels have printed
	for i, m := range r.messages {
		h, _, err := wire.DecodeMessage(m.Bytes)
		if err != nil || !r.answered[h.Seq] {
			continue
		}
		if h.Op == wire.OpPrintFetch {
			fetched += uint64(m.Given)
		}
		if h.Op != wire.OpHostNext { // which does not wait for others
			r.behind = i
		}
	}
	read := min(fetched, uint64(w.printed.size))
	w.printed.cut(int(read))
	w.printed.skip = fetched - read
	w.consumer.Resume(position, seq)
	w.core.Expect(facts)
	w.replay = r
	r.comes(w.core, journal.Entry{})
	return nil
}

// pinned finds memory of the program's.
func (w *worker) pinned(h wire.Header) ([]byte, error) { return w.shared.Data(h.Data, h.Length) }

// replayAll handles what the worker before has handled since its base, as it did, and
// says nothing that was said before.
func (w *worker) replayAll() error {
	r := w.replay
	start := time.Now()
	if w.wasTraced {
		w.beginTimeline()
	}
	if err := w.waitForFunctions(); err != nil {
		return err
	}
	for i, m := range r.messages {
		r.passed = i < r.behind
		if err := w.again(m); err != nil {
			return err
		}
		for w.core.Waits() {
			if err := w.await(); err != nil {
				return err
			}
		}
	}
	w.core.Expect(0) // whatever a damaged journal has announced
	if w.replay = nil; w.stage != nil {
		w.staging.free(w.stage)
		w.stage = nil
	}
	w.sticky.speak(w.shared.Status())
	w.say(control.Commit{Bytes: w.core.Committed})
	w.rebuilt = rebuilt{start, time.Now(), len(r.messages)}
	w.timeline.rebuilt(w.rebuilt)
	w.log.Info("the client is rebuilt", "messages", len(r.messages), "after", time.Since(start).String())
	w.unproven = true
	return nil
}

// prove tells the daemon that the client has come as far as it was, when what was
// launched again has ended too: a kernel that ends its worker does so each time.
func (w *worker) prove() {
	if quiet, err := w.quiet(); quiet || err != nil {
		w.unproven = false
		w.say(control.Rebuilt{})
	}
}

// commitAgain takes the core's word of how much room it needs in the swap area. The
// daemon knows how much that was in the end. What the client had meanwhile may be
// another's by now, and is not asked for again: the program was told that it had it,
// and the rest of the journal gives it back.
func (w *worker) commitAgain(m control.Commit) {
	switch {
	case m.Bytes <= w.core.Committed: // it needs less
	case m.Bytes <= w.serve.Committed || w.replay.silent:
		w.inbox.put(control.Committed{Bytes: m.Bytes, Granted: true})
	default: // it had not been answered
		w.say(m)
	}
}

// waitForFunctions lets the program wait for functions to call where it does: what
// comes before that in the journal may wait for such a function.
func (w *worker) waitForFunctions() error {
	for _, m := range w.replay.messages {
		h, body, err := wire.DecodeMessage(m.Bytes)
		if err != nil {
			return err
		}
		if h.Op != wire.OpHostNext || w.replay.answered[h.Seq] {
			continue
		}
		w.shared.Asked(h)
		if err := w.aside(w.core.UrgentMessage(clientcore.Message{Header: h, Body: body})); err != nil {
			return err
		}
	}
	return nil
}

// again handles one message of the journal.
func (w *worker) again(m *journal.Message) error {
	h, body, err := wire.DecodeMessage(m.Bytes)
	if err != nil {
		return err
	}
	r := w.replay
	r.message, r.sent, r.silent = m, h, r.answered[h.Seq]
	w.entry, w.header, w.hasData = m.Entry, h, false
	if !r.silent && h.Op != wire.OpHostNext { // whose slot may be used again by now
		w.shared.Asked(h)
	}
	r.comes(w.core, m.Entry)
	if err := w.hear(); err != nil {
		return err
	}
	switch {
	case h.Op == wire.OpHostNext: // it waits already, or was answered
		return nil
	case h.Op == wire.OpTraceRead && r.silent:
		w.beginTimeline()
		return nil
	case h.Op == wire.OpTraceRead:
		return w.traceRead(h, body)
	case h.Op == wire.OpHostFunction && r.hasReturned(body): // nothing waits for it any more
		return nil
	case m.Marks&journal.Refused != 0 && h.Op != wire.OpModuleData && h.Op != wire.OpModuleLoad && h.Op != wire.OpGraphLaunch: // of which a part may have been done
		return w.perform(w.core.RefuseAgain(w.now(), h, m.Result))
	}
	message := clientcore.Message{Header: h, Body: bytes.Clone(body), Owned: true}
	switch {
	case m.Data != nil:
		message.Data = m.Data
		w.staging.free(w.staging.take(h.Release))
	case h.Op.TakesData():
		if message.Data, err = w.pinned(h); err != nil {
			return errors.Join(err, clientcore.ErrProtocol)
		}
		message.Pinned = h.Release == 0
		w.stage = w.staging.take(h.Release)
	}
	return w.perform(w.core.Message(w.now(), message))
}

// errRebuild says that this worker cannot go on, but another can in its place.
var errRebuild = errors.New("the client is to be rebuilt")

// errKilled is what a worker panics with in tests, where its process would be killed.
var errKilled = errors.New("killed")

// gone is the error of a device that is gone, or of a fault that may be another client's, if
// the client can be rebuilt; nil if it is another error, which the client must hear of.
func (w *worker) gone(err error) error {
	var fault *device.Fault
	switch {
	case w.journal == nil || !errors.As(err, &fault) || !w.canRebuild():
		return nil
	case fault.Kind == device.DeviceLost:
		return fmt.Errorf("%w: %w", errRebuild, err)
	case w.sharesFate():
		return fmt.Errorf("%w: %w", errShared, err)
	}
	return nil
}

// canRebuild says whether another worker can go on for this one.
func (w *worker) canRebuild() bool { return w.journal != nil && w.journal.Valid() }

// lostDevice takes the news that a device is gone. It returns an error if the client
// has something there.
func (w *worker) lostDevice(m control.Lost) error {
	if w.gpus[vmm.Device(m.Device)] == nil || !w.canRebuild() {
		return w.perform(w.core.Control(w.now(), m))
	}
	return fmt.Errorf("%w: device %d is gone: %s", errRebuild, m.Device, m.Reason)
}

// heldFiles are the descriptors that the daemon keeps too, beside those of the
// ring and of the data arena.
const heldFiles = 3

// CreateJournal makes the file of a journal.
func CreateJournal() (*os.File, error) { return wire.CreateMemory("muster-journal", journal.Size) }

// copyOf is another descriptor of a file; nil if there is none left, which the next
// daemon will say.
func copyOf(f *os.File) *os.File {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name())
}

// answerProbe tries a device: whether a context can be opened there, and memory be
// mapped, written and read.
func answerProbe(conn *control.WorkerEnd, config control.DeviceConfig, lock *os.File, open Open) error {
	if err := probe(config, lock, open); err != nil {
		return cannotServe(conn, err)
	}
	return conn.Send(control.Pong{Number: 1})
}

func probe(config control.DeviceConfig, lock *os.File, open Open) error {
	d, err := open(config, lock)
	if err != nil {
		return err
	}
	const base = 0x6400_0000_0000
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}, Print: func([]byte) {}})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Map(base, chunk); errors.Is(err, device.ErrOutOfMemory) {
		return nil // others have all of it
	} else if err != nil {
		return err
	}
	on, err := c.NewStream()
	if err != nil {
		return err
	}
	sent, got := []byte("is anybody there?"), make([]byte, 17)
	err = on.CopyIn(base, sent)
	if err == nil {
		err = on.CopyOut(got, base)
	}
	if err == nil {
		err = on.Synchronise(context.Background())
	}
	if err == nil && !bytes.Equal(sent, got) {
		err = errors.New("it gives back other bytes than it was given")
	}
	return err
}
