package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"muster/internal/mailbox"
	"muster/node/checkpoint"
	"muster/node/clientcore"
	"muster/node/worker/answers"
	"muster/node/worker/clientfile"
	"muster/wire"
	"muster/wire/control"
)

// Checkpoints. The daemon orders a checkpoint or a restore, and passes a file that the user's
// command has opened. The loop obeys an order between two messages of the client, when the core
// allows it. The client then leaves its device, so the core's saved value and the host copies are
// all of it. A client whose program is saved too is held: the loop reads nothing from its ring, and
// of the daemon's messages only Proceed.
//
// Orders end with the daemon that gave them, and with the worker. If the worker dies before a
// restore has ended, the client is rebuilt as it was before: its base stays intact while the memory
// is filled, and a new base is made before the daemon is told that the client was restored.

// order is something that the daemon wants done with a file.
type order struct {
	control.ToWorker
	file *os.File
}

// orders are the daemon's orders, and how far they are carried out. The loop owns them.
type orders struct {
	*session
	mail     *mail
	launches *launches
	opener   *opener
	moves    *moves
	ahead    *ahead
	answers  *answers.Answers
	early    *early
	waits    *waits
	recovery *recovery
	ops      *executor
	observe  func() error // tells the core, while no message comes, whether the devices are idle

	saved    clientfile.Client // the client as the file has it
	next     []order
	incoming *incoming         // read from a file, and on its way into the core
	draft    *clientfile.Draft // the checkpoint of a held client, not yet complete
	held     bool
}

func (t *orders) close() {
	t.forget()
	t.endIncoming()
	t.endDraft()
}

// begin takes the next order from the list.
func (t *orders) begin() order {
	o := t.next[0]
	t.next = t.next[1:]
	return o
}

// forget forgets the orders of a daemon that has died.
func (t *orders) forget() {
	for _, o := range t.next {
		o.file.Close()
	}
	t.next = nil
	if t.incoming != nil {
		t.incoming.disowned = true
	}
}

// giveUp gives up the checkpoints that were not begun.
func (t *orders) giveUp() {
	t.next = slices.DeleteFunc(t.next, func(o order) bool {
		_, saves := o.ToWorker.(control.Checkpoint)
		if saves {
			o.file.Close()
			t.answer(0, errors.New("the checkpoint was given up"))
		}
		return saves
	})
}

// answer tells the daemon how a checkpoint ended.
func (t *orders) answer(bytes uint64, err error) {
	answer := control.Checkpointed{Bytes: bytes}
	if err != nil {
		answer.Error = err.Error()
	}
	t.mail.say(answer)
}

func (t *orders) endIncoming() {
	if t.incoming != nil {
		t.incoming.File.Close()
		t.incoming = nil
	}
}

func (t *orders) endDraft() {
	if t.draft != nil {
		t.draft.Close()
		t.draft = nil
	}
}

// abandoned tells the loop that the daemon has died, and with it whoever gave orders.
type abandoned struct{ control.Proceed }

// disown forgets the orders of a daemon that has died, and that it wanted the device back. A held
// client goes on.
func (t *orders) disown() error {
	t.opener.prepared.giveUp(t.log)() // the next daemon does not know of it
	t.forget()
	t.ahead.due()
	return t.proceed(control.Proceed{})
}

// obey carries out the next order, if it can be done now. It returns false if it did nothing.
func (t *orders) obey() (bool, error) {
	if in := t.incoming; in != nil {
		done, refused := t.core.Replaced()
		if !done {
			return false, nil
		}
		return true, t.restored(in, refused)
	}
	if len(t.next) == 0 {
		return false, nil
	}
	if err := t.launches.settle(); err != nil {
		return false, err
	}
	switch m := t.next[0].ToWorker.(type) {
	case control.Checkpoint:
		if !t.core.CanDetach() {
			return false, nil
		}
		if quiet, err := t.contexts.quiet(); err != nil {
			return true, t.ops.found(t.told.Sticky.Current(), err)
		} else if !quiet {
			return true, t.awaitWork()
		}
		return true, t.checkpoint(t.begin().file, m.Hold)
	case control.Restore:
		if t.core.Waits() {
			return false, nil
		}
		file := t.begin().file
		in, err := t.saved.Read(file, t.core, t.serve.Identity, t.pinned, m.Whole)
		if err != nil {
			file.Close()
			t.mail.say(control.Restored{Error: err.Error()})
			return true, nil
		}
		t.incoming = &incoming{Incoming: in}
		return true, t.ops.handle(t.core.Replace(t.now(), in.By, m.Whole))
	}
	return false, fmt.Errorf("the daemon orders %q, which is not understood: %w", t.next[0].Kind(), errEnded)
}

// awaitWork waits a moment for kernels to end before a checkpoint, or for the daemon, which may give
// the checkpoint up. Meanwhile no message of the program is read, so that they do end, unless one of
// them never does.
func (t *orders) awaitWork() error {
	look := time.NewTimer(t.core.Patience())
	defer look.Stop()
	select {
	case <-t.mail.inbox.News():
	case <-t.waits.notices.News():
	case <-look.C:
	case <-t.ctx.Done():
		return errDaemonEnded
	}
	return t.observe()
}

// --- saving ------------------------------------------------------------------------

// checkpoint writes the client to a file. If hold is set, the client stays held afterwards, and the checkpoint is
// completed, or given up, by proceed.
func (t *orders) checkpoint(file *os.File, hold bool) error {
	t.draft = &clientfile.Draft{File: file}
	if err := t.recovery.settleStaging(); err != nil {
		return err
	}
	if err := t.ops.handle(t.core.Detach(t.now())); err != nil {
		return err
	}
	if p := t.opener.prepared; p != nil && !p.gone { // while it is held, the daemon could not get it back
		t.opener.forgo()
	}
	if hold {
		t.answers.Settle()
	}
	bytes, err := t.saved.Write(t.draft, t.core, t.serve.Identity, hold)
	if err == nil && hold {
		t.held = true
		t.mail.say(control.Checkpointed{Held: true, Bytes: bytes})
		return nil
	}
	t.endDraft()
	t.answer(bytes, err)
	return nil
}

// --- holding -----------------------------------------------------------------------

// standBy waits for Proceed, or for the end of the daemon that would send it.
func (t *orders) standBy() error {
	for {
		if m, ok := pick[control.Proceed](t.mail.inbox); ok {
			return t.proceed(m)
		}
		if _, ok := pick[abandoned](t.mail.inbox); ok {
			return t.disown()
		}
		select {
		case <-t.mail.inbox.News():
		case <-t.ctx.Done():
			return errDaemonEnded
		}
	}
}

// pick takes the oldest message of type M from the inbox.
func pick[M control.ToWorker](b *mailbox.Box[control.ToWorker]) (m M, ok bool) {
	found, ok := b.Pick(func(m control.ToWorker) bool {
		_, wanted := m.(M)
		return wanted
	})
	if ok {
		m = found.(M)
	}
	return m, ok
}

// proceed lets a held client go on, after completing its checkpoint if asked to. A checkpoint that was
// not begun is given up.
func (t *orders) proceed(m control.Proceed) error {
	t.giveUp()
	if t.draft != nil && m.Save {
		t.answer(t.saved.Complete(t.draft))
	}
	t.endDraft()
	held := t.held
	if t.held = false; !held {
		return nil
	}
	h, parked := t.core.ParkedMessage()
	if !parked {
		return nil
	}
	t.ops.current = message{Header: h, Stage: t.staging.Take(h.Release)}
	return t.ops.handle(t.core.Unpark(t.now()))
}

// --- restoring ---------------------------------------------------------------------

// incoming is a client that was read, on its way into the core.
type incoming struct {
	*clientfile.Incoming
	lost     error // why the memory could not be filled
	disowned bool  // the daemon that ordered it has died
}

// makeRoom makes room on the host for the client that is to be restored.
func (t *orders) makeRoom(*clientcore.Op) error {
	return t.moves.mover.reserveAll(t.incoming.By.Allocations())
}

// refill fills the host copies from the file. The core is the new client already.
func (t *orders) refill(o *clientcore.Op) error {
	in := t.incoming
	if _, in.lost = t.moves.move(o.Plan, false); in.lost == nil {
		in.lost = t.saved.Fill(in.Incoming, t.core.Held(), t.keeper.Replaced) // from where on its messages are not those of the ring
	}
	if in.lost != nil && t.keeper.Valid() {
		t.mail.say(control.Restored{Error: in.lost.Error()})
		return fmt.Errorf("%w: %w", errAsBefore, in.lost)
	}
	return in.lost
}

// errAsBefore says that a restore has failed half-way, and that another worker can rebuild the
// client as it was before.
var errAsBefore = errors.New("a checkpoint could not be restored")

// restored tells the daemon how a restore ended. A client restored with its program is held; its
// base is made when it goes on.
func (t *orders) restored(in *incoming, refused error) error {
	if refused == nil {
		refused = in.lost
	}
	if refused == nil && in.Whole {
		t.takeOver(in.Saved.About)
	}
	t.endIncoming()
	t.held = t.held || refused == nil && in.Whole
	if refused == nil && !in.Whole {
		if err := t.recovery.rebase(); err != nil {
			return err
		}
	}
	answer := control.Restored{Bytes: t.core.Stats().Allocated}
	if refused != nil {
		answer = control.Restored{Error: refused.Error()}
	}
	if !in.disowned {
		t.mail.say(answer)
	}
	return nil
}

// takeOver sets this worker's position in shared memory to that of the worker which wrote the file.
func (t *orders) takeOver(a checkpoint.About) {
	t.serve.Identity = a.Identity
	t.consumer.Resume(a.Shared.Head, a.Shared.Seq)
	t.early.messages = nil
	for _, h := range t.core.Waiting() {
		t.shared.Asked(h)
	}
	for _, h := range t.core.Backlogged() {
		t.early.messages = append(t.early.messages, message{Header: h, HasData: h.Release != 0})
	}
	for slot, seq := range a.Shared.Asked {
		t.shared.Asked(wire.Header{Slot: slot, Seq: seq})
	}
	t.isNow(t.core.Now)
	t.told.Sticky.Know(t.core.World, t.core.Result())
	turns := a.Shared.Turns
	if len(turns) == 0 { // files of earlier versions have no complaints
		turns = []int{len(a.Shared.Printed)}
	}
	if err := t.told.Printed.Resume(a.Shared.Printed, turns, false); err != nil {
		t.log.Warn("what kernels had printed is lost", "reason", err)
	}
}
