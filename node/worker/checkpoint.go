package worker

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"muster/internal/mailbox"
	"muster/node/checkpoint"
	"muster/node/clientcore"
	"muster/vmm"
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
	incoming *incoming // read from a file, and on its way into the core
	draft    *draft    // the checkpoint of a held client, not yet complete
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
		t.incoming.file.Close()
		t.incoming = nil
	}
}

func (t *orders) endDraft() {
	if t.draft != nil {
		t.draft.file.Close()
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
	w.orders.next, w.revoked = nil, nil
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

// draft is a checkpoint that is being written.
type draft struct {
	file *os.File
	out  *bufio.Writer
	*checkpoint.Writer
}

// checkpoint writes the client to a file. If hold is set, the client stays held afterwards.
func (w *worker) checkpoint(file *os.File, hold bool) error {
	w.orders.draft = &draft{file: file}
	if err := w.settleStaging(); err != nil {
		return err
	}
	if err := w.handle(w.core.Detach(w.now())); err != nil {
		return err
	}
	if p := w.prepared; p != nil && !p.gone { // while it is held, the daemon could not get it back
		w.forgo()
	}
	bytes, err := w.writeClient(w.orders.draft, hold)
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

// writeClient writes the GPU side of a client that has left its device. If the client is held, the
// file is not complete until writeShared.
func (w *worker) writeClient(d *draft, held bool) (uint64, error) {
	if err := w.core.Alone(); err != nil {
		return 0, err
	}
	save := w.core.SavePoint
	about := checkpoint.About{Taken: time.Now().UTC(), Identity: w.serve.Identity, ArenaBase: w.serve.ArenaBase, ArenaSize: w.serve.ArenaSize}
	if held {
		w.answers.Settle()
		save = w.core.Save
		about.Shared = w.sharedState()
	} else if w.core.Result() != success {
		return 0, errors.New("a fault has ended the program's work on the GPU, and there is nothing to save")
	}
	saved, err := save()
	if err != nil {
		return 0, err
	}
	d.out = bufio.NewWriterSize(d.file, 256<<10)
	d.Writer = checkpoint.NewWriter(d.out, about)
	d.Core(saved)
	all := w.core.Allocations()
	d.Allocations(all)
	for _, r := range overlaps(all, w.core.Held()) {
		for at := range chunks(r) {
			_ = w.host.Each(at, func(addr uint64, piece []byte) error {
				d.Piece(checkpoint.Memory, addr, piece)
				return nil
			})
		}
	}
	if held {
		return d.Bytes(), d.Err()
	}
	return d.end()
}

func (d *draft) end() (uint64, error) {
	if err := errors.Join(d.End(), d.out.Flush()); err != nil {
		return 0, fmt.Errorf("writing the checkpoint: %w", err)
	}
	return d.Bytes(), nil
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

// sharedState is the worker's position in the memory that it shares with the program.
func (w *worker) sharedState() *checkpoint.Shared {
	g := w.shared.Geometry()
	state := &checkpoint.Shared{RingSize: g.RingBytes(), ArenaSize: g.Arena(), Asked: map[int]uint32{}}
	state.Head, state.Seq = w.consumer.Position()
	for _, slot := range w.core.WaitingSlots() {
		state.Asked[slot] = w.shared.Asks(slot)
	}
	state.Printed, state.Turns, _ = w.told.Printed.All()
	return state
}

// writeShared completes the file of a held client, once its program is stopped.
func (w *worker) writeShared(d *draft) (uint64, error) {
	for i, kind := range []checkpoint.Kind{checkpoint.Ring, checkpoint.Data} {
		err := wire.Contents(w.files[i], checkpoint.MaxPiece, func(offset uint64, data []byte) error {
			d.Piece(kind, offset, data)
			return d.Err()
		})
		if err != nil {
			return 0, err
		}
	}
	return d.end()
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
		w.answerCheckpoint(w.writeShared(d))
	}
	w.orders.endDraft()
	if !w.orders.held {
		return nil
	}
	w.orders.held = false
	if w.core.Parked == nil {
		return nil
	}
	h := w.core.Parked.Message.Header
	w.current = message{Header: h, Stage: w.staging.Take(h.Release)}
	return w.handle(w.core.Unpark(w.now()))
}

// --- restoring ---------------------------------------------------------------------

// incoming is a client that was read from a file.
type incoming struct {
	file  *os.File
	saved *checkpoint.File
	by    *clientcore.Core
	whole bool
	lost  error // why the memory could not be filled

	disowned bool // the daemon that ordered it has died
}

// restore reads a client from a file, and replaces the core by it.
func (w *worker) restore(file *os.File, whole bool) error {
	in, err := w.read(file, whole)
	if err != nil {
		file.Close()
		w.say(control.Restored{Error: err.Error()})
		return nil
	}
	w.orders.incoming = in
	return w.handle(w.core.Replace(w.now(), in.by, whole))
}

// read checks a whole file, and that this worker's client can become the one in it.
func (w *worker) read(file *os.File, whole bool) (*incoming, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	saved, err := checkpoint.Open(file, info.Size())
	if err != nil {
		return nil, err
	}
	if err := w.fits(saved, whole); err != nil {
		return nil, err
	}
	by, err := clientcore.Rehomed(saved.Core, w.pinned, w.core.Config())
	if err != nil {
		return nil, err
	}
	if !slices.Equal(by.Allocations(), saved.Allocations) || !slices.Equal(overlaps(saved.Written, by.Held()), saved.Written) {
		return nil, fmt.Errorf("%w: its memory is not that of its client", checkpoint.ErrFile)
	}
	if !answerable(by.Waiting(), saved.About.Shared) {
		return nil, fmt.Errorf("%w: answers that no program waits for", checkpoint.ErrFile)
	}
	return &incoming{file: file, saved: saved, by: by, whole: whole}, nil
}

// answerable says whether all slots in which a saved program waits for answers exist. The file may
// be damaged or forged.
func answerable(waiting []wire.Header, shared *checkpoint.Shared) bool {
	for _, h := range waiting {
		if h.Slot < -1 || h.Slot >= wire.Slots {
			return false
		}
	}
	if shared == nil {
		return true
	}
	for slot := range shared.Asked {
		if slot < 0 || slot >= wire.Slots {
			return false
		}
	}
	return true
}

// fits returns why a file cannot be restored into this client.
func (w *worker) fits(saved *checkpoint.File, whole bool) error {
	shared, g := saved.About.Shared, w.shared.Geometry()
	switch {
	case saved.Core == nil:
		return errors.New("the file holds memory alone: it was written by musterCheckpoint, and the program reads it with musterRestore")
	case whole && shared == nil:
		return errors.New("the file is of a client alone, without its program")
	case whole && (shared.RingSize != g.RingBytes() || shared.ArenaSize != g.Arena()):
		return errors.New("the memory that program and node shared has other sizes on this node: use the Muster that wrote it")
	case !whole && saved.About.Identity != w.serve.Identity:
		return errors.New("the file is of another run of a program, which knows its memory, modules and streams by other numbers: a program that was started anew gets its memory with musterRestore")
	}
	if !whole {
		return nil
	}
	same := false
	err := saved.Each(checkpoint.Ring, func(at uint64, data []byte) error {
		same = same || at == 0 && w.shared.SameGeometry(data)
		return nil
	})
	if err == nil && !same {
		err = errors.New("the program and this node are from different builds of Muster: use the one that wrote the checkpoint")
	}
	return err
}

// makeRoom reserves room for the memory of the incoming client, in addition to that of the present
// one: until the new one is complete the present one must be able to go on.
func (w *worker) makeRoom(*clientcore.Op) error {
	all := w.orders.incoming.by.Allocations()
	for i, r := range all {
		err := w.reserve(r)
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
	in.lost = w.fill(in, o.Plan)
	if in.lost != nil && w.keeper.Valid() {
		w.say(control.Restored{Error: in.lost.Error()})
		return fmt.Errorf("%w: %w", errAsBefore, in.lost)
	}
	return in.lost
}

// errAsBefore says that a restore has failed half-way, and that another worker can rebuild the
// client as it was before.
var errAsBefore = errors.New("a checkpoint could not be restored")

func (w *worker) fill(in *incoming, plan vmm.Plan) error {
	if _, err := w.move(plan, false); err != nil {
		return err
	}
	for _, r := range w.core.Held() {
		w.host.Zero(r)
	}
	err := in.saved.Each(checkpoint.Memory, func(addr uint64, data []byte) error {
		r := vmm.Range{Addr: addr, Size: uint64(len(data))}
		w.host.Touch(r, false)
		return w.host.Each(r, func(at uint64, piece []byte) error {
			copy(piece, data[at-addr:])
			return nil
		})
	})
	if err != nil || !in.whole {
		return err
	}
	w.keeper.Replaced() // from here on its messages are not those of the ring
	for i, kind := range []checkpoint.Kind{checkpoint.Ring, checkpoint.Data} {
		err := in.saved.Each(kind, func(offset uint64, data []byte) error {
			_, err := w.files[i].WriteAt(data, int64(offset))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restored tells the daemon how a restore ended. A client restored with its program is held; its
// base is made when it goes on.
func (w *worker) restored(in *incoming, refused error) error {
	if refused == nil {
		refused = in.lost
	}
	if refused == nil && in.whole {
		w.takeOver(in.saved.About)
		w.orders.held = true
	}
	w.orders.endIncoming()
	if refused == nil && !in.whole {
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

// --- ranges ------------------------------------------------------------------------

// chunks splits a range at chunk boundaries.
func chunks(r vmm.Range) func(func(vmm.Range) bool) {
	return func(yield func(vmm.Range) bool) {
		for r.Size > 0 {
			n := min(chunk-r.Addr%chunk, r.Size)
			if !yield(vmm.Range{Addr: r.Addr, Size: n}) {
				return
			}
			r = vmm.Range{Addr: r.Addr + n, Size: r.Size - n}
		}
	}
}

// overlaps returns the intersection of two lists of ranges, each in order.
func overlaps(a, b []vmm.Range) []vmm.Range {
	var both []vmm.Range
	for len(a) > 0 && len(b) > 0 {
		endA, endB := a[0].Addr+a[0].Size, b[0].Addr+b[0].Size
		if from, to := max(a[0].Addr, b[0].Addr), min(endA, endB); from < to {
			both = append(both, vmm.Range{Addr: from, Size: to - from})
		}
		if endA < endB {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}
