package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/trace"
	"muster/wire"
	"muster/wire/control"
)

// replay is what the previous worker had handled since its last base, and how far each message had
// got. It wraps the executor while that is handled again: what the program has already is left out.
type replay struct {
	*recovery
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

// carryOut carries out operations as the executor does it plainly, but for those that are not to be repeated.
func (r *replay) carryOut(m *message, ops []clientcore.Op) (*clientcore.Op, clientcore.Outcome) {
	for i := range ops {
		done, err := r.did(&ops[i])
		if err != nil {
			return &ops[i], clientcore.Outcome{Err: err}
		}
		if done {
			continue
		}
		if last, outcome := r.ops.plainly(m, ops[i:i+1]); last != nil {
			return last, outcome
		}
	}
	return nil, clientcore.Outcome{}
}

// did says whether nothing is to be done for an operation, because the program already has the answer or
// the data that it would deliver, or because a replay does something else, which is done.
func (r *replay) did(o *clientcore.Op) (done bool, err error) {
	how := &r.ops.operations[o.Kind]
	if how.dropped != nil && how.dropped(r, o) {
		return true, nil
	}
	if how.again == nil {
		return false, nil
	}
	r.ops.mayDie()
	return how.again(r, o)
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

// refusedAgain fails if a message is refused that was carried out the first time: the program relies on its
// effect.
func refusedAgain(r *replay, o *clientcore.Op) (done bool, err error) {
	if r.message != nil && r.message.Marks&journal.Refused == 0 && (r.silent || r.passed) {
		return false, fmt.Errorf("%w: %v was done before and is refused now, with result %d: %s", errNotSame, r.sent.Op, o.Result, r.untold)
	}
	return false, nil
}

// commitAgain answers the core's request for swap room during a replay. The daemon knows how much
// room the client had at the end, and grants that without being asked. What the client had for a
// while in between may belong to another client by now and is not asked for: the program was told
// that it had it, and the rest of the log gives it back.
func commitAgain(r *replay, o *clientcore.Op) (done bool, err error) {
	m, ok := o.Message.(control.Commit)
	switch {
	case !ok:
		return false, nil
	case m.Bytes <= r.core.Committed: // it gives room back
	case m.Bytes <= r.serve.Committed || r.silent:
		r.mail.inbox.Put(control.Committed{Bytes: m.Bytes, Granted: true})
	default: // this request was not answered before, so the daemon is asked
		return false, nil
	}
	return true, nil
}

// endAgain waits until the work has ended of which the program was told before that it had.
func endAgain(r *replay, o *clientcore.Op) (done bool, err error) {
	if !r.silent {
		return false, nil
	}
	return true, r.ends.again(o)
}

// errNotSame says that the client could not be brought back to its former state.
var errNotSame = fmt.Errorf("the client could not be rebuilt: %w", errEnded)

// resume restores the client from the base in the journal, and reads the log.
func (k *recovery) resume() error {
	sections, err := k.keeper.Journal().Base()
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
	core, err := clientcore.RestoreBase(clientcore.Base{Client: sections[ofClient], Blobs: sections[ofBlobs:]}, k.pinned)
	if err != nil {
		return err
	}
	if err := k.host.Resume(sections[ofSides], core.Held(), core.Allocations()); err != nil {
		return err
	}
	k.core = core
	k.keeper.Resumed(core)
	k.isNow(s.Now + time.Since(s.At))
	k.serve.Identity = s.Identity
	why := ""
	if core.Faulted != nil {
		why = core.Faulted.Text
	}
	k.told.Sticky.Resume(s.World, core.Result(), why)
	if err := k.told.Printed.Resume(sections[ofPrinted], s.Turns, s.Dropped); err != nil {
		return err
	}
	for slot, seq := range s.Asked {
		if slot < 0 || slot >= wire.Slots {
			return fmt.Errorf("an answer in slot %d", slot)
		}
		k.shared.Asked(wire.Header{Slot: slot, Seq: seq})
	}
	return k.readJournal(s)
}

// resumeWith is resume, with the devices that the node has now.
func (k *recovery) resumeWith(devices []clientcore.Device) error {
	if k.keeper == nil {
		return errors.New("there is nothing to resume from: the client was not kept")
	}
	if err := k.resume(); err != nil {
		return fmt.Errorf("rebuilding the client: %w", err)
	}
	k.core.Leased(k.serve.Lease)
	k.core.KeepHome(k.serve.Tries > 1) // until it is rebuilt: a worker before this one has failed to
	return k.core.Equip(devices)
}

// readJournal reads the log, and finds out for each message how far the previous worker had got.
// The log does not say which messages were answered; the reply slots in shared memory do. The
// program reuses a slot only after it took the answer, so every message but the last of a slot was
// answered, and the slot itself tells about the last.
func (k *recovery) readJournal(s surroundings) error {
	r := &replay{recovery: k, traced: s.Traced, done: map[uint64]bool{}, handed: map[uint64]bool{}, answered: map[uint32]bool{}, placed: map[journal.Entry][]clientcore.Placed{}}
	facts := 0
	position, seq := s.Position, s.Seq
	latest := map[int]wire.Header{}
	var notes []*journal.Note
	for record, err := range k.keeper.Journal().Log() {
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
		r.answered[h.Seq] = k.shared.Answered(h)
	}
	k.core.Answered(func(slot int) bool {
		_, again := latest[slot]
		return again || k.shared.Answered(wire.Header{Slot: slot, Seq: s.Asked[slot]})
	})
	// A function was handed out as the answer to a call in a slot: that answer was taken if the
	// slot was used again since, or is there to be taken.
	for _, n := range notes {
		last, used := latest[n.Slot]
		r.handed[n.Cookie] = used && last.Seq != n.Seq || k.shared.Answered(wire.Header{Slot: n.Slot, Seq: n.Seq})
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
	k.told.Printed.WasRead(fetched)
	k.consumer.Resume(position, seq)
	k.core.Expect(facts)
	k.replay, k.ops.all, k.hosts.handed = r, r.carryOut, r.handed
	r.comes(journal.Entry{})
	return nil
}

// prove tells the daemon that the client is as far as it was, once the work that the replay
// launched has ended too. It must not say so earlier: a kernel that kills its worker does so each
// time.
func (k *recovery) prove() {
	if quiet, err := k.contexts.quiet(); quiet || err != nil {
		k.unproven = false
		k.mail.say(control.Rebuilt{})
	}
}

// run handles the messages of the log again, in order, and sends nothing that was sent
// before.
func (r *replay) run(hear, await func() error) error {
	start := time.Now()
	if r.traced {
		r.tracing.begin()
	}
	if err := r.waitForFunctions(); err != nil {
		return err
	}
	for i, m := range r.messages {
		r.passed = i < r.behind
		if err := r.again(m, hear); err != nil {
			return err
		}
		for r.core.Waits() {
			if err := await(); err != nil {
				return err
			}
		}
	}
	r.core.KeepHome(false)
	r.core.Expect(0) // in case a damaged journal has announced more
	r.recovery.replay, r.ops.all, r.hosts.handed = nil, r.ops.plainly, nil
	r.staging.Free(r.ops.current.Stage.Taken())
	r.told.Sticky.Speak(r.shared.Status())
	r.mail.say(control.Commit{Bytes: r.core.Committed})
	r.tracing.rebuilt = trace.Rebuilt{Begin: start, End: time.Now(), Messages: len(r.messages)}
	r.tracing.Rebuilt(r.tracing.rebuilt)
	r.log.Info("the client is rebuilt", "messages", len(r.messages), "after", time.Since(start).String())
	r.unproven = true
	return nil
}

// comes tells the core where modules were placed while a message was handled the first time.
func (r *replay) comes(e journal.Entry) {
	for _, p := range r.placed[e] {
		r.core.Due(p)
	}
}

// waitForFunctions registers the program's threads that wait for host functions, before the replay
// begins: an earlier message of the log may need such a function to be called.
func (r *replay) waitForFunctions() error {
	for _, m := range r.messages {
		h, body, err := wire.DecodeMessage(m.Bytes)
		if err != nil {
			return err
		}
		if h.Op != wire.OpHostNext || r.answered[h.Seq] {
			continue
		}
		r.shared.Asked(h)
		if err := r.ops.aside(r.core.UrgentMessage(clientcore.Message{Header: h, Body: body})); err != nil {
			return err
		}
	}
	return nil
}

// again handles one message of the log again.
func (r *replay) again(m *journal.Message, hear func() error) error {
	h, body, err := wire.DecodeMessage(m.Bytes)
	if err != nil {
		return err
	}
	r.message, r.sent, r.silent = m, h, r.answered[h.Seq]
	r.ops.current = message{Header: h, Entry: m.Entry, HasData: m.Data != nil}
	if !r.silent && h.Op != wire.OpHostNext { // HostNext was registered by waitForFunctions, and its slot may be in use again
		r.shared.Asked(h)
	}
	r.comes(m.Entry)
	if err := hear(); err != nil {
		return err
	}
	switch {
	case h.Op == wire.OpHostNext: // it waits already (waitForFunctions), or was answered
		return nil
	case h.Op == wire.OpTraceRead && r.silent:
		r.tracing.begin()
		return nil
	case h.Op == wire.OpTraceRead:
		return r.tracing.read(h, body)
	case h.Op == wire.OpHostFunction && r.hasReturned(body): // no stream waits for it
		return nil
	case m.Marks&journal.Refused != 0 && h.Op != wire.OpModuleData && h.Op != wire.OpModuleLoad && h.Op != wire.OpGraphLaunch: // these may have been done in part
		return r.ops.handle(r.core.RefuseAgain(r.now(), h, m.Result))
	}
	again := clientcore.Message{Header: h, Body: bytes.Clone(body), Owned: true}
	switch {
	case m.Data != nil:
		again.Data = m.Data
		r.staging.Free(r.staging.Take(h.Release))
	case h.Op.TakesData():
		if again.Data, err = r.pinned(h); err != nil {
			return errors.Join(err, clientcore.ErrProtocol)
		}
		again.Pinned = h.Release == 0
		r.ops.current.Stage = r.staging.Take(h.Release) // only now: what was heard would have ended with it
	}
	return r.ops.handle(r.core.Message(r.now(), again))
}
