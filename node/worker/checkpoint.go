package worker

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"muster/node/checkpoint"
	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// Checkpoints. The daemon orders them, with a file that whoever wants the checkpoint has
// opened. An order is obeyed between two messages of the client's, when the core allows:
// the client leaves its device, and with its host copies what the core saves is all of
// it. A client whose program is being saved too is held: nothing is read from its ring,
// and of what the daemon says only Proceed is heard.

// order is what the daemon wants done with a file.
type order struct {
	control.ToWorker
	file *os.File
}

// orders is where the worker stands with them. It is the loop's.
type orders struct {
	next     []order
	incoming *incoming // is on its way into the core
	draft    *draft    // of a client that is held, to be completed
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

// obey does what was ordered, if it can be done now. It returns false if there was
// nothing to do.
func (w *worker) obey() (bool, error) {
	if in := w.orders.incoming; in != nil {
		done, refused := w.core.Replaced()
		if !done {
			return false, nil
		}
		w.restored(in, refused)
		return true, nil
	}
	if len(w.orders.next) == 0 {
		return false, nil
	}
	o := w.orders.next[0]
	switch m := o.ToWorker.(type) {
	case control.Checkpoint:
		if !w.core.CanDetach() {
			return false, nil
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

// --- saving ------------------------------------------------------------------------

// draft is a checkpoint that is being written.
type draft struct {
	file *os.File
	out  *bufio.Writer
	*checkpoint.Writer
}

// checkpoint writes the client to a file. If it is to be held, it does not go on.
func (w *worker) checkpoint(file *os.File, hold bool) error {
	w.orders.draft = &draft{file: file}
	if err := w.perform(w.core.Detach(w.now())); err != nil {
		return err
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

// writeClient writes the GPU's side of a client that has left its device. The file of
// one that is held is completed by writeShared.
func (w *worker) writeClient(d *draft, held bool) (uint64, error) {
	save := w.core.SavePoint
	about := checkpoint.About{Taken: time.Now().UTC(), Identity: w.serve.Identity, ArenaBase: w.serve.ArenaBase, ArenaSize: w.serve.ArenaSize}
	if held {
		w.settleReplies()
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
	for _, r := range overlaps(all, w.core.OnHost()) {
		for at := range chunks(r) {
			d.Piece(checkpoint.Memory, at.Addr, w.host.at(at))
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

// settleReplies waits until all calls that waited for the device were answered: it has
// nothing to do any more, and goroutines are about to say so.
func (w *worker) settleReplies() {
	for w.waiting.Load() > 0 && w.ctx.Err() == nil {
		time.Sleep(20 * time.Microsecond)
	}
}

// sharedState is where the worker stands with the memory that it shares with the program.
func (w *worker) sharedState() *checkpoint.Shared {
	at, g := w.consumer.Position(), w.shared.Geometry()
	w.printed.mu.Lock()
	defer w.printed.mu.Unlock()
	return &checkpoint.Shared{RingSize: g.RingBytes(), ArenaSize: g.Arena(), Head: at.Head, Seq: at.Seq, Released: at.Released, Printed: slices.Clone(w.printed.text)}
}

// writeShared completes the file of a client whose program is stopped.
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

// standBy waits for Proceed.
func (w *worker) standBy() error {
	for {
		if m, ok := pick[control.Proceed](w.inbox); ok {
			return w.proceed(m)
		}
		select {
		case <-w.inbox.news:
		case <-w.ctx.Done():
			return errDaemonEnded
		}
	}
}

// proceed lets a client go on that was held.
func (w *worker) proceed(m control.Proceed) error {
	if d := w.orders.draft; d != nil && m.Save {
		w.answerCheckpoint(w.writeShared(d))
	}
	w.orders.endDraft()
	w.orders.held = false
	if w.core.Parked == nil {
		return nil
	}
	w.stage = w.staging.take(w.core.Parked.Message.Header.Release)
	return w.perform(w.core.Unpark(w.now()))
}

// --- restoring ---------------------------------------------------------------------

// incoming is a client that was read from a file.
type incoming struct {
	file  *os.File
	saved *checkpoint.File
	by    *clientcore.Core
	whole bool
	lost  error // why the memory could not be filled
}

// restore reads a client from a file, and lets the core become that.
func (w *worker) restore(file *os.File, whole bool) error {
	in, err := w.read(file, whole)
	if err != nil {
		file.Close()
		w.say(control.Restored{Error: err.Error()})
		return nil
	}
	w.orders.incoming = in
	return w.perform(w.core.Replace(w.now(), in.by, whole))
}

// read checks all of a file, and that the client in it can be this one.
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
	find := func(h wire.Header) ([]byte, error) { return w.shared.Data(h.Data, h.Length) }
	by, err := clientcore.Rehomed(saved.Core, find, w.config)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(by.Allocations(), saved.Allocations) || !slices.Equal(overlaps(saved.Written, by.OnHost()), saved.Written) {
		return nil, fmt.Errorf("%w: its memory is not that of its client", checkpoint.ErrFile)
	}
	return &incoming{file: file, saved: saved, by: by, whole: whole}, nil
}

// fits says why a file cannot be restored into this client.
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

// makeRoom reserves room for the memory of the client that comes, beside that of the
// one that is there.
func (w *worker) makeRoom() error {
	all := w.orders.incoming.by.Allocations()
	for i, r := range all {
		err := w.reserve(r)
		if err == nil {
			continue
		}
		for _, r := range all[:i] {
			err = errors.Join(err, w.host.release(r))
		}
		return err
	}
	return nil
}

// refill makes the host copies those of the file. The core is the new client already.
func (w *worker) refill(plan vmm.Plan) error {
	in := w.orders.incoming
	in.lost = w.fill(in, plan)
	return in.lost
}

func (w *worker) fill(in *incoming, plan vmm.Plan) error {
	if err := w.move(plan); err != nil {
		return err
	}
	for _, r := range w.core.OnHost() {
		if err := w.host.zero(r); err != nil {
			return err
		}
	}
	err := in.saved.Each(checkpoint.Memory, func(addr uint64, data []byte) error {
		for at := range chunks(vmm.Range{Addr: addr, Size: uint64(len(data))}) {
			copy(w.host.at(at), data[at.Addr-addr:])
		}
		return nil
	})
	if err != nil || !in.whole {
		return err
	}
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

// restored tells the daemon how a restore ended. One that is whole is held.
func (w *worker) restored(in *incoming, refused error) {
	if refused == nil {
		refused = in.lost
	}
	if refused == nil && in.whole {
		w.takeOver(in.saved.About)
		w.orders.held = true
	}
	w.orders.endIncoming()
	answer := control.Restored{Bytes: w.core.Stats().Allocated}
	if refused != nil {
		answer = control.Restored{Error: refused.Error()}
	}
	w.say(answer)
}

// takeOver makes this worker stand where the one stood that wrote a file.
func (w *worker) takeOver(a checkpoint.About) {
	w.serve.Identity = a.Identity
	w.consumer.Resume(wire.Position{Head: a.Shared.Head, Seq: a.Shared.Seq, Released: a.Shared.Released})
	w.began = time.Now().Add(-w.core.Now)
	w.sticky.resume(w.core.World, w.core.Result())
	w.printed.mu.Lock()
	defer w.printed.mu.Unlock()
	w.printed.text = a.Shared.Printed
}

// resume makes a world and its result known that the program knows already.
func (t *sticky) resume(world uint64, result clientcore.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world, t.result = world, result
}

// --- ranges ------------------------------------------------------------------------

// chunks cuts a range where chunks begin.
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

// overlaps returns what lies in both of two lists of ranges, each in order.
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

// zero makes whole chunks that have room contain nothing.
func (h *hostMemory) zero(r vmm.Range) error {
	if h.file == nil {
		return h.discard(r)
	}
	for at := range chunks(r) {
		clear(h.at(at))
	}
	return nil
}
