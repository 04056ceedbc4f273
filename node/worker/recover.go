package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/trace"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// maybeFold makes a base if one is due.
func (w *worker) maybeFold() error {
	if w.replay != nil || !w.keeper.IsDue(w.core, w.shared.Geometry().Staging, uint64(w.host.Moved())*chunk) {
		return nil
	}
	if !w.core.CanFold() {
		w.keeper.CannotFold()
		return nil
	}
	return w.fold()
}

// refused logs that a message was refused. During a replay, a message that was carried
// out the first time must not be refused now: the program relies on its effect.
func (w *worker) refused(m *message, o *clientcore.Op) error {
	if was := w.replay.current(); was != nil && was.Marks&journal.Refused == 0 && (w.replay.silent || w.replay.passed) {
		return fmt.Errorf("%w: %v was done before and is refused now, with result %d: %s", errNotSame, m.Header.Op, o.Result, w.replay.untold)
	}
	w.keeper.Refused(m, o.Result)
	return nil
}

// errNotSame says that the client could not be brought back to its former state.
var errNotSame = fmt.Errorf("the client could not be rebuilt: %w", errEnded)

// fold makes a base, and measures the speed of copying from the device. Late launches are settled
// first: a base must not include a launch that may still be refused.
func (w *worker) fold() error {
	if err := w.launches.settle(); err != nil {
		return err
	}
	dirty, start := w.core.Dirty(), time.Now()
	if err := w.handle(w.core.Fold(w.now())); err != nil {
		return err
	}
	w.current.Entry = journal.Entry{} // the log begins with the base
	w.keeper.Took(dirty, time.Since(start))
	return nil
}

// firstFold makes the first base, before any message is read from the ring. So a worker that finds
// no base in the journal knows that no message was read.
func (w *worker) firstFold() error {
	if err := w.fold(); err != nil {
		return err
	}
	if w.keeper.Journal().Fresh() {
		return errors.New("the journal does not hold the client's first base")
	}
	w.unproven = w.serve.Resume
	return nil
}

// surroundings is what a base holds besides the core's state.
type surroundings struct {
	Position uint64         // of the ring's consumer
	Seq      uint32         // the number of the next message
	Asked    map[int]uint32 // the number of the call that waits in each slot
	Now      time.Duration  // since the client began
	At       time.Time
	World    uint64
	Turns    []int  // of the printed text
	Dropped  bool   // some printed text was dropped
	Identity string // as in Serve
	Traced   bool   `json:",omitempty"` // the program records a timeline
}

// Sections of a base. The blobs come last; there may be any number.
const (
	ofSurroundings = iota
	ofSides
	ofPrinted
	ofClient
	ofBlobs
)

// commit writes a base to the journal. It first waits until the goroutines that owe an answer have
// sent it: the log ends with the base, so a later worker would not know of those calls.
//
// The host copies have two sides. Only after the journal has the base may the side that the
// previous base used be given up (host.commit); if the base does not fit, the client cannot be
// rebuilt and the old side has no use either (host.abandon).
func (w *worker) commit(_ *message, o *clientcore.Op) error {
	b := o.Base
	w.answers.Sent()
	s := surroundings{Asked: map[int]uint32{}, Now: w.now(), At: time.Now(), World: w.told.Sticky.Current(), Identity: w.serve.Identity, Traced: w.tracing.isOn()}
	s.Position, s.Seq = w.consumer.Position()
	for _, slot := range w.core.WaitingSlots() {
		s.Asked[slot] = w.shared.Asks(slot)
	}
	var printed []byte
	printed, s.Turns, s.Dropped = w.told.Printed.All()
	about, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = w.keeper.Commit(append([][]byte{about, w.host.Sides(), printed, b.Client}, b.Blobs...)...)
	if err != nil {
		w.host.Abandon()
	} else {
		w.host.Commit()
		if w.keeper.HasLeft() { // and will leave again: prepare pages for that
			w.ahead.begin()
		}
	}
	if w.unproven { // a base is made when nothing is in flight
		w.prove()
	}
	w.keeper.Committed(w.core)
	return nil
}

// replay is what the previous worker had handled since its last base, and how far each message had
// got.
type replay struct {
	messages []*journal.Message
	done     map[uint64]bool                       // host functions that have returned, by cookie
	handed   map[uint64]bool                       // host functions that the program was given
	answered map[uint32]bool                       // messages that have their answer, by number
	placed   map[journal.Entry][]clientcore.Placed // where modules were placed, by the message that was being handled
	untold   string                                // the last explanation that was not repeated to the user
	behind   int                                   // index of the last answered message
	traced   bool                                  // the previous worker had a recorder

	message *journal.Message // being handled again
	silent  bool             // it was answered before: do not answer it again
	passed  bool             // a later message was answered, so this one was handled, and not refused if it has no mark
	sent    wire.Header
}

// comes tells the core where modules were placed while a message was handled the first time.
func (r *replay) comes(c *clientcore.Core, e journal.Entry) {
	for _, p := range r.placed[e] {
		c.Due(p)
	}
}

// current is the message that is being handled again; nil without a replay.
func (r *replay) current() *journal.Message {
	if r == nil {
		return nil
	}
	return r.message
}

// isSilent says whether the message that is handled again was answered before.
func (r *replay) isSilent() bool { return r != nil && r.silent }

// wasHanded says whether the program was given a host function to call.
func (r *replay) wasHanded(cookie uint64) bool { return r != nil && r.handed[cookie] }

// hasReturned says whether the host function that a message names has returned.
func (r *replay) hasReturned(message []byte) bool {
	var m wire.HostFunction
	return m.Decode(message) == nil && r.done[m.Cookie]
}

// noteReturned notes that a host function has returned, if the message says so. The previous worker
// gave the program that function, so the program may report its return before this worker has
// replayed the message that calls it.
func (r *replay) noteReturned(h wire.Header, body []byte) {
	var m wire.HostDone
	if r != nil && h.Op == wire.OpHostDone && m.Decode(body) == nil {
		r.done[m.Cookie] = true
	}
}

// drops says whether a replay must skip an operation, because the program already has the answer or
// the data that it would deliver.
func (r *replay) drops(o *clientcore.Op) bool {
	dropped := operations[o.Kind].dropped
	return dropped != nil && dropped(r, o)
}

// wasTold drops a reason, unless this worker is the first to refuse the message: then the user hears why.
func wasTold(r *replay, o *clientcore.Op) bool {
	r.untold = o.Text
	return r.silent || r.message != nil && r.message.Marks&journal.Refused != 0
}

func wasReplied(r *replay, o *clientcore.Op) bool {
	return r.silent && o.Slot == r.sent.Slot && o.Cookie == 0
}

// wasOpen drops a question to which the answer was that work had not ended.
func wasOpen(r *replay, _ *clientcore.Op) bool {
	return r.silent && r.message.Marks&journal.Done == 0
}

func wasAnswered(r *replay, _ *clientcore.Op) bool { return r.silent }

func wasGiven(r *replay, _ *clientcore.Op) bool {
	return r.silent || r.message != nil && r.message.Marks&journal.Done != 0
}

// resume restores the client from the base in the journal, and reads the log.
func (w *worker) resume() error {
	sections, err := w.keeper.Journal().Base()
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
	if err := w.host.Resume(sections[ofSides], core.Held(), core.Allocations()); err != nil {
		return err
	}
	w.core = core
	w.keeper.Resumed(core)
	w.isNow(s.Now + time.Since(s.At))
	w.serve.Identity = s.Identity
	why := ""
	if core.Faulted != nil {
		why = core.Faulted.Text
	}
	w.told.Sticky.Resume(s.World, core.Result(), why)
	if err := w.told.Printed.Resume(sections[ofPrinted], s.Turns, s.Dropped); err != nil {
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

// resumeWith is resume, with the devices that the node has now.
func (w *worker) resumeWith(devices []clientcore.Device) error {
	if w.keeper == nil {
		return errors.New("there is nothing to resume from: the client was not kept")
	}
	if err := w.resume(); err != nil {
		return fmt.Errorf("rebuilding the client: %w", err)
	}
	w.core.Leased(w.serve.Lease)
	w.core.KeepHome(w.serve.Tries > 1) // until it is rebuilt: a worker before this one has failed to
	return w.core.Equip(devices)
}

// readJournal reads the log, and finds out for each message how far the previous worker had got.
// The log does not say which messages were answered; the reply slots in shared memory do. The
// program reuses a slot only after it took the answer, so every message but the last of a slot was
// answered, and the slot itself tells about the last.
func (w *worker) readJournal(s surroundings) error {
	r := &replay{traced: s.Traced, done: map[uint64]bool{}, handed: map[uint64]bool{}, answered: map[uint32]bool{}, placed: map[journal.Entry][]clientcore.Placed{}}
	facts := 0
	position, seq := s.Position, s.Seq
	latest := map[int]wire.Header{}
	var notes []*journal.Note
	for record, err := range w.keeper.Journal().Log() {
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
			if before, ok := latest[h.Slot]; ok { // the program had taken the answer
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
	// A function was handed out as the answer to a call in a slot: that answer was taken if the
	// slot was used again since, or is there to be taken.
	for _, n := range notes {
		last, used := latest[n.Slot]
		r.handed[n.Cookie] = used && last.Seq != n.Seq || w.shared.Answered(wire.Header{Slot: n.Slot, Seq: n.Seq})
	}
	var fetched uint64 // bytes of printed text that the program has
	for i, m := range r.messages {
		h, _, err := wire.DecodeMessage(m.Bytes)
		if err != nil || !r.answered[h.Seq] {
			continue
		}
		if h.Op == wire.OpPrintFetch {
			fetched += uint64(m.Given)
		}
		if h.Op != wire.OpHostNext && h.Op != wire.OpPrintFetch { // the others are answered in order; these may be answered early
			r.behind = i
		}
	}
	w.told.Printed.WasRead(fetched)
	w.consumer.Resume(position, seq)
	w.core.Expect(facts)
	w.replay = r
	r.comes(w.core, journal.Entry{})
	return nil
}

// replayAll handles the messages of the log again, in order, and sends nothing that was sent
// before.
func (w *worker) replayAll() error {
	r := w.replay
	start := time.Now()
	if r.traced {
		w.tracing.begin()
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
	w.core.KeepHome(false)
	w.core.Expect(0) // in case a damaged journal has announced more
	w.replay = nil
	w.staging.Free(w.current.Stage.Taken())
	w.told.Sticky.Speak(w.shared.Status())
	w.mail.say(control.Commit{Bytes: w.core.Committed})
	w.tracing.wasRebuilt(trace.Rebuilt{Begin: start, End: time.Now(), Messages: len(r.messages)})
	w.log.Info("the client is rebuilt", "messages", len(r.messages), "after", time.Since(start).String())
	w.unproven = true
	return nil
}

// prove tells the daemon that the client is as far as it was, once the work that the replay
// launched has ended too. It must not say so earlier: a kernel that kills its worker does so each
// time.
func (w *worker) prove() {
	if quiet, err := w.contexts.quiet(); quiet || err != nil {
		w.unproven = false
		w.mail.say(control.Rebuilt{})
	}
}

// commitAgain answers the core's request for swap room during a replay. The daemon knows how much
// room the client had at the end, and grants that without being asked. What the client had for a
// while in between may belong to another client by now and is not asked for: the program was told
// that it had it, and the rest of the log gives it back.
func (w *worker) commitAgain(m control.Commit) {
	switch {
	case m.Bytes <= w.core.Committed: // it gives room back
	case m.Bytes <= w.serve.Committed || w.replay.silent:
		w.mail.inbox.Put(control.Committed{Bytes: m.Bytes, Granted: true})
	default: // this request was not answered before, so the daemon is asked
		w.mail.say(m)
	}
}

// waitForFunctions registers the program's threads that wait for host functions, before the replay
// begins: an earlier message of the log may need such a function to be called.
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

// again handles one message of the log again.
func (w *worker) again(m *journal.Message) error {
	h, body, err := wire.DecodeMessage(m.Bytes)
	if err != nil {
		return err
	}
	r := w.replay
	r.message, r.sent, r.silent = m, h, r.answered[h.Seq]
	w.current = message{Header: h, Entry: m.Entry, HasData: m.Data != nil}
	if !r.silent && h.Op != wire.OpHostNext { // HostNext was registered by waitForFunctions, and its slot may be in use again
		w.shared.Asked(h)
	}
	r.comes(w.core, m.Entry)
	if err := w.hear(); err != nil {
		return err
	}
	switch {
	case h.Op == wire.OpHostNext: // it waits already (waitForFunctions), or was answered
		return nil
	case h.Op == wire.OpTraceRead && r.silent:
		w.tracing.begin()
		return nil
	case h.Op == wire.OpTraceRead:
		return w.tracing.read(h, body)
	case h.Op == wire.OpHostFunction && r.hasReturned(body): // no stream waits for it
		return nil
	case m.Marks&journal.Refused != 0 && h.Op != wire.OpModuleData && h.Op != wire.OpModuleLoad && h.Op != wire.OpGraphLaunch: // these may have been done in part
		return w.handle(w.core.RefuseAgain(w.now(), h, m.Result))
	}
	again := clientcore.Message{Header: h, Body: bytes.Clone(body), Owned: true}
	switch {
	case m.Data != nil:
		again.Data = m.Data
		w.staging.Free(w.staging.Take(h.Release))
	case h.Op.TakesData():
		if again.Data, err = w.pinned(h); err != nil {
			return errors.Join(err, clientcore.ErrProtocol)
		}
		again.Pinned = h.Release == 0
		w.current.Stage = w.staging.Take(h.Release) // only now: what was heard would have ended with it
	}
	return w.handle(w.core.Message(w.now(), again))
}

// errRebuild says that this worker cannot go on, but another one can take its place.
var errRebuild = errors.New("the client is to be rebuilt")

// errKilled is what a worker panics with in tests, where the process would be killed.
var errKilled = errors.New("killed")

// gone returns an error that ends this worker, if err is the loss of a device, or a fault that
// another client may have caused, and the client can be rebuilt. It returns nil for every other
// error, which the program must be told.
func (w *worker) gone(err error) error {
	var fault *device.Fault
	switch {
	case !w.keeper.Valid() || !errors.As(err, &fault):
		return nil
	case fault.Kind == device.Timeout: // nobody else's
		return nil
	case fault.Kind == device.DeviceLost:
		return fmt.Errorf("%w: %w", errRebuild, err)
	case w.sharesFate():
		return fmt.Errorf("%w: %w", errShared, err)
	}
	return nil
}

// lostDevice handles the loss of a device. It returns an error, so that another worker takes over,
// if the client has a context there.
func (w *worker) lostDevice(m control.Lost) error {
	g := w.contexts.open[vmm.Device(m.Device)]
	if g == nil || !w.keeper.Valid() {
		ended := g == nil
		if g != nil {
			quiet, err := g.quiet()
			ended = quiet && err == nil
		}
		return w.handle(w.core.Lost(w.now(), m, ended))
	}
	return fmt.Errorf("%w: device %d is gone: %s", errRebuild, m.Device, m.Reason)
}

// heldFiles is the number of descriptors that the daemon also keeps, besides the ring and the data
// arena: the two sides of the host memory, and the journal.
const heldFiles = 3

// CreateJournal creates the memory file of a journal.
func CreateJournal() (*os.File, error) { return wire.CreateMemory("muster-journal", journal.Size) }

// copyOf duplicates a file's descriptor; nil if the process has no descriptors left, in which case
// the next daemon reports what is missing.
func copyOf(f *os.File) *os.File {
	copied, _ := wire.CopyOf(f)
	return copied
}

// answerProbe tests a device: whether a context can be opened there, and memory mapped, written and
// read.
func answerProbe(conn *control.WorkerEnd, config control.DeviceConfig, lock *os.File, open Open) error {
	found, err := probe(config, lock, open)
	if err != nil {
		return cannotServe(conn, err)
	}
	return conn.Send(found)
}

func probe(config control.DeviceConfig, lock *os.File, open Open) (found control.Probed, err error) {
	d, err := open(config, lock)
	if err != nil {
		return found, err
	}
	const base = 0x6400_0000_0000
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}, Print: func([]byte) {}})
	if err != nil {
		return found, err
	}
	defer c.Close()
	free, total, err := c.Memory()
	if err != nil {
		return found, err
	}
	found = control.Probed{Free: free, Total: total}
	if err := c.Map(base, chunk); errors.Is(err, device.ErrOutOfMemory) {
		return found, nil // other clients use all of its memory: it works
	} else if err != nil {
		return found, err
	}
	on, err := c.NewStream()
	if err != nil {
		return found, err
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
	return found, err
}
