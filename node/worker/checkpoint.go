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

// orders is the state of the daemon's orders. The loop owns it.
type orders struct {
	next     []order
	incoming *incoming         // read from a file, and on its way into the core
	draft    *clientfile.Draft // the checkpoint of a held client, not yet complete
	held     bool
}

func (t *orders) close() {
	for _, o := range t.next {
		o.file.Close()
	}
	t.endIncoming()
	t.endDraft()
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
	w.prepared.giveUp(w.log)() // the next daemon does not know of it
	for _, o := range w.orders.next {
		o.file.Close()
	}
	w.orders.next = nil
	w.ahead.due()
	if in := w.orders.incoming; in != nil {
		in.disowned = true
	}
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
	o := w.orders.next[0]
	switch m := o.ToWorker.(type) {
	case control.Checkpoint:
		if !w.core.CanDetach() {
			return false, nil
		}
		if quiet, err := w.contexts.quiet(); err != nil {
			return true, w.found(w.told.Sticky.Current(), err)
		} else if !quiet {
			return true, w.awaitWork()
		}
		w.orders.next = w.orders.next[1:]
		return true, w.checkpoint(o.file, m.Hold)
	case control.Restore:
		if w.core.Waits() {
			return false, nil
		}
		w.orders.next = w.orders.next[1:]
		return true, w.restore(o.file, m.Whole)
	}
	return false, fmt.Errorf("the daemon orders %q, which is not understood: %w", o.Kind(), errEnded)
}

// awaitWork waits a moment for kernels to end before a checkpoint, or for the daemon, which may give
// the checkpoint up. Meanwhile no message of the program is read, so that they do end, unless one of
// them never does.
func (w *worker) awaitWork() error {
	look := time.NewTimer(w.core.Patience())
	defer look.Stop()
	select {
	case <-w.inbox.News():
	case <-w.notices.News():
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
	if p := w.prepared; p != nil && !p.gone { // while it is held, the daemon could not get it back
		w.forgo()
	}
	if hold {
		w.answers.Settle()
	}
	bytes, err := w.saved.Write(w.orders.draft, w.core, w.serve.Identity, hold)
	if err == nil && hold {
		w.orders.held = true
		w.say(control.Checkpointed{Held: true, Bytes: bytes})
		return nil
	}
	w.orders.endDraft()
	w.answerCheckpoint(bytes, err)
	return nil
}

func (w *worker) answerCheckpoint(bytes uint64, err error) {
	answer := control.Checkpointed{Bytes: bytes}
	if err != nil {
		answer.Error = err.Error()
	}
	w.say(answer)
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
		if m, ok := pick[control.Proceed](w.inbox); ok {
			return w.proceed(m)
		}
		if _, ok := pick[abandoned](w.inbox); ok {
			return w.disown()
		}
		select {
		case <-w.inbox.News():
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
	w.orders.next = slices.DeleteFunc(w.orders.next, func(o order) bool {
		_, saves := o.ToWorker.(control.Checkpoint)
		if saves {
			o.file.Close()
			w.answerCheckpoint(0, errors.New("the checkpoint was given up"))
		}
		return saves
	})
	if d := w.orders.draft; d != nil && m.Save {
		w.answerCheckpoint(w.saved.Complete(d))
	}
	w.orders.endDraft()
	if !w.orders.held {
		return nil
	}
	w.orders.held = false
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

// restore reads a client from a file, and replaces the core by it.
func (w *worker) restore(file *os.File, whole bool) error {
	in, err := w.saved.Read(file, w.core, w.serve.Identity, w.pinned, whole)
	if err != nil {
		file.Close()
		w.say(control.Restored{Error: err.Error()})
		return nil
	}
	w.orders.incoming = &incoming{Incoming: in}
	return w.handle(w.core.Replace(w.now(), in.By, whole))
}

// makeRoom reserves room for the memory of the incoming client, in addition to that of the present
// one: until the new one is complete the present one must be able to go on.
func (w *worker) makeRoom(*clientcore.Op) error {
	all := w.orders.incoming.By.Allocations()
	for i, r := range all {
		err := w.mover.reserve(r)
		if err == nil {
			continue
		}
		for _, r := range all[:i] {
			w.host.Release(r)
		}
		return err
	}
	return nil
}

// refill fills the host copies from the file. The core is the new client already.
func (w *worker) refill(o *clientcore.Op) error {
	in := w.orders.incoming
	if _, in.lost = w.move(o.Plan, false); in.lost == nil {
		in.lost = w.saved.Fill(in.Incoming, w.core.Held(), w.keeper.Replaced) // from where on its messages are not those of the ring
	}
	if in.lost != nil && w.keeper.Valid() {
		w.say(control.Restored{Error: in.lost.Error()})
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
		w.orders.held = true
	}
	w.orders.endIncoming()
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
		w.say(answer)
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
	w.backlog = nil
	for _, h := range w.core.Waiting() {
		w.shared.Asked(h)
	}
	for _, h := range w.core.Backlogged() {
		w.backlog = append(w.backlog, message{Header: h, HasData: h.Release != 0})
	}
	for slot, seq := range a.Shared.Asked {
		w.shared.Asked(wire.Header{Slot: slot, Seq: seq})
	}
	w.began = time.Now().Add(-w.core.Now)
	w.told.Sticky.Know(w.core.World, w.core.Result())
	turns := a.Shared.Turns
	if len(turns) == 0 { // files of earlier versions have no complaints
		turns = []int{len(a.Shared.Printed)}
	}
	if err := w.told.Printed.Resume(a.Shared.Printed, turns, false); err != nil {
		w.log.Warn("what kernels had printed is lost", "reason", err)
	}
}
