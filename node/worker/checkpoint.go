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
	say      func(m control.ToDaemon)
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

// add takes an order, to be carried out when those before it are.
func (t *orders) add(o order) { t.next = append(t.next, o) }

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

// write writes the client to the file of a checkpoint. If hold is set, the checkpoint is completed, or given
// up, by proceed.
func (t *orders) write(core *clientcore.Core, identity string, hold bool) {
	bytes, err := t.saved.Write(t.draft, core, identity, hold)
	if err == nil && hold {
		t.held = true
		t.say(control.Checkpointed{Held: true, Bytes: bytes})
		return
	}
	t.endDraft()
	t.answer(bytes, err)
}

// proceed ends the checkpoint of a held client, which is completed if save is set, and says whether the
// client was held.
func (t *orders) proceed(save bool) bool {
	if t.draft != nil && save {
		t.answer(t.saved.Complete(t.draft))
	}
	t.endDraft()
	held := t.held
	t.held = false
	return held
}

// answer tells the daemon how a checkpoint ended.
func (t *orders) answer(bytes uint64, err error) {
	answer := control.Checkpointed{Bytes: bytes}
	if err != nil {
		answer.Error = err.Error()
	}
	t.say(answer)
}

// read reads a client from a file. If it cannot be read, the daemon is told, and there is nothing to restore.
func (t *orders) read(file *os.File, core *clientcore.Core, identity string, pinned func(wire.Header) ([]byte, error), whole bool) *incoming {
	in, err := t.saved.Read(file, core, identity, pinned, whole)
	if err != nil {
		file.Close()
		t.say(control.Restored{Error: err.Error()})
		return nil
	}
	t.incoming = &incoming{Incoming: in}
	return t.incoming
}

// endRestore notes that a restore has ended; the client is held if hold is set.
func (t *orders) endRestore(hold bool) {
	t.endIncoming()
	t.held = t.held || hold
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
func (w *worker) disown() error {
	w.opener.prepared.giveUp(w.log)() // the next daemon does not know of it
	w.orders.forget()
	w.ahead.due()
	return w.proceed(control.Proceed{})
}

// obey carries out the next order, if it can be done now. It returns false if it did nothing.
func (w *worker) obey() (bool, error) {
	if in := w.orders.incoming; in != nil {
		done, refused := w.core.Replaced()
		if !done {
			return false, nil
		}
		return true, w.restored(in, refused)
	}
	if len(w.orders.next) == 0 {
		return false, nil
	}
	if err := w.launches.settle(); err != nil {
		return false, err
	}
	switch m := w.orders.next[0].ToWorker.(type) {
	case control.Checkpoint:
		if !w.core.CanDetach() {
			return false, nil
		}
		if quiet, err := w.contexts.quiet(); err != nil {
			return true, w.found(w.told.Sticky.Current(), err)
		} else if !quiet {
			return true, w.awaitWork()
		}
		return true, w.checkpoint(w.orders.begin().file, m.Hold)
	case control.Restore:
		if w.core.Waits() {
			return false, nil
		}
		in := w.orders.read(w.orders.begin().file, w.core, w.serve.Identity, w.pinned, m.Whole)
		if in == nil {
			return true, nil
		}
		return true, w.handle(w.core.Replace(w.now(), in.By, m.Whole))
	}
	return false, fmt.Errorf("the daemon orders %q, which is not understood: %w", w.orders.next[0].Kind(), errEnded)
}

// awaitWork waits a moment for kernels to end before a checkpoint, or for the daemon, which may give
// the checkpoint up. Meanwhile no message of the program is read, so that they do end, unless one of
// them never does.
func (w *worker) awaitWork() error {
	look := time.NewTimer(w.core.Patience())
	defer look.Stop()
	select {
	case <-w.mail.inbox.News():
	case <-w.waits.notices.News():
	case <-look.C:
	case <-w.ctx.Done():
		return errDaemonEnded
	}
	return w.observe()
}

// --- saving ------------------------------------------------------------------------

// checkpoint writes the client to a file. If hold is set, the client stays held afterwards.
func (w *worker) checkpoint(file *os.File, hold bool) error {
	w.orders.draft = &clientfile.Draft{File: file}
	if err := w.settleStaging(); err != nil {
		return err
	}
	if err := w.handle(w.core.Detach(w.now())); err != nil {
		return err
	}
	if p := w.opener.prepared; p != nil && !p.gone { // while it is held, the daemon could not get it back
		w.opener.forgo()
	}
	if hold {
		w.answers.Settle()
	}
	w.orders.write(w.core, w.serve.Identity, hold)
	return nil
}

// settleStaging gives back staging memory that was kept for the journal: after a restore nobody
// would give it back to the program.
func (w *worker) settleStaging() error {
	if !w.keeper.Holds() {
		return nil
	}
	w.keeper.LetGo()
	return w.maybeFold()
}

// --- holding -----------------------------------------------------------------------

// standBy waits for Proceed, or for the end of the daemon that would send it.
func (w *worker) standBy() error {
	for {
		if m, ok := pick[control.Proceed](w.mail.inbox); ok {
			return w.proceed(m)
		}
		if _, ok := pick[abandoned](w.mail.inbox); ok {
			return w.disown()
		}
		select {
		case <-w.mail.inbox.News():
		case <-w.ctx.Done():
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
func (w *worker) proceed(m control.Proceed) error {
	w.orders.giveUp()
	if !w.orders.proceed(m.Save) {
		return nil
	}
	h, parked := w.core.ParkedMessage()
	if !parked {
		return nil
	}
	w.current = message{Header: h, Stage: w.staging.Take(h.Release)}
	return w.handle(w.core.Unpark(w.now()))
}

// --- restoring ---------------------------------------------------------------------

// incoming is a client that was read, on its way into the core.
type incoming struct {
	*clientfile.Incoming
	lost     error // why the memory could not be filled
	disowned bool  // the daemon that ordered it has died
}

// refill fills the host copies from the file. The core is the new client already.
func (w *worker) refill(o *clientcore.Op) error {
	in := w.orders.incoming
	if _, in.lost = w.moves.move(o.Plan, false); in.lost == nil {
		in.lost = w.orders.saved.Fill(in.Incoming, w.core.Held(), w.keeper.Replaced) // from where on its messages are not those of the ring
	}
	if in.lost != nil && w.keeper.Valid() {
		w.mail.say(control.Restored{Error: in.lost.Error()})
		return fmt.Errorf("%w: %w", errAsBefore, in.lost)
	}
	return in.lost
}

// errAsBefore says that a restore has failed half-way, and that another worker can rebuild the
// client as it was before.
var errAsBefore = errors.New("a checkpoint could not be restored")

// restored tells the daemon how a restore ended. A client restored with its program is held; its
// base is made when it goes on.
func (w *worker) restored(in *incoming, refused error) error {
	if refused == nil {
		refused = in.lost
	}
	if refused == nil && in.Whole {
		w.takeOver(in.Saved.About)
	}
	w.orders.endRestore(refused == nil && in.Whole)
	if refused == nil && !in.Whole {
		if err := w.rebase(); err != nil {
			return err
		}
	}
	answer := control.Restored{Bytes: w.core.Stats().Allocated}
	if refused != nil {
		answer = control.Restored{Error: refused.Error()}
	}
	if !in.disowned {
		w.mail.say(answer)
	}
	return nil
}

// rebase makes a base of a restored client: the journal is about what the client was before.
func (w *worker) rebase() error {
	if w.keeper == nil {
		return nil
	}
	if w.core.CanFold() {
		return w.fold()
	}
	w.keeper.ExposeByUse("it was restored, and more is waited for")
	w.host.Abandon()
	return nil
}

// takeOver sets this worker's position in shared memory to that of the worker which wrote the file.
func (w *worker) takeOver(a checkpoint.About) {
	w.serve.Identity = a.Identity
	w.consumer.Resume(a.Shared.Head, a.Shared.Seq)
	w.early.messages = nil
	for _, h := range w.core.Waiting() {
		w.shared.Asked(h)
	}
	for _, h := range w.core.Backlogged() {
		w.early.messages = append(w.early.messages, message{Header: h, HasData: h.Release != 0})
	}
	for slot, seq := range a.Shared.Asked {
		w.shared.Asked(wire.Header{Slot: slot, Seq: seq})
	}
	w.isNow(w.core.Now)
	w.told.Sticky.Know(w.core.World, w.core.Result())
	turns := a.Shared.Turns
	if len(turns) == 0 { // files of earlier versions have no complaints
		turns = []int{len(a.Shared.Printed)}
	}
	if err := w.told.Printed.Resume(a.Shared.Printed, turns, false); err != nil {
		w.log.Warn("what kernels had printed is lost", "reason", err)
	}
}
