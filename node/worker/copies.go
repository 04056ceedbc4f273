package worker

import (
	"bytes"
	"errors"

	"muster/device"
	"muster/node/clientcore"
)

// onHost is how a copy or fill on the host copies is carried out.
func onHost(do func(w *worker, m *message, o *clientcore.Op) error) perform {
	return func(w *worker, m *message, o *clientcore.Op) error {
		if w.timeline != nil {
			defer w.timeline.OnHost(operations[o.Kind].recorded, o)()
		}
		return do(w, m, o)
	}
}

func (w *worker) hostIn(m *message, o *clientcore.Op) error {
	if err := w.host.TouchArea(o.To, o.To.Dense()); err != nil {
		return err
	}
	w.keeper.Keep(m, o.Data, w.core)
	return w.host.CopyIn(o.To, o.Data)
}

func (w *worker) hostFill(_ *message, o *clientcore.Op) error {
	if err := w.host.TouchArea(o.To, o.To.Dense()); err != nil {
		return err
	}
	return w.host.Fill(o.To, o.Value, o.Width)
}

func (w *worker) hostCopy(_ *message, o *clientcore.Op) error { return w.host.Copy(o.To, o.From) }

func (w *worker) hostOut(m *message, o *clientcore.Op) error {
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	err = w.host.CopyOut(out, o.From)
	w.keeper.Given(m)
	return err
}

func (w *worker) copyIn(m *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	if done, err := w.copyInEchoed(m, g, on, o); done || err != nil {
		return err
	}
	to, data := o.To, o.Data
	kept := func() {}
	if m.Header.Release != 0 {
		kept = w.keeper.Aside(m, o.Data)
	} else if m.Header.Op.TakesData() {
		var err error
		if kept, err = w.attachLater(m, on, data); err != nil {
			return err
		}
	}
	if o.Staged && m.Stage.IsOpen() && w.hosts.outstanding() > 0 {
		// The program may be waiting for this memory before it reports that its host function has
		// returned, and the copy may be waiting for that function. A copy of the data breaks the
		// cycle.
		data = bytes.Clone(data)
		kept()
		kept = func() {}
		w.staging.Free(m.Stage.Taken())
	}
	submit := on.CopyIn
	if m.Header.Op.TakesData() {
		if err := w.pinProgram(g, m.Header.Data, uint64(len(data))); err != nil {
			kept()
			return err
		}
	} else if taken := on.Can().CopyTaken; taken != nil {
		submit = taken
	}
	err := w.blockLong(func() error {
		return to.Rows(func(addr, offset, size uint64) error { return submit(addr, data[offset:offset+size]) })
	})
	kept()
	w.copying += copying(len(data))
	if err != nil || !m.Stage.IsOpen() {
		return err
	}
	if done, err := on.Done(); done || err != nil {
		return err // perform frees the staging memory
	}
	lent := m.Stage.Taken() // freed when the copy has ended, or with the context
	w.staging.Lend(lent, g)
	return w.block(func() error { return notify(on, func() { w.staging.Free(lent) }) })
}

// notify has f called when a stream has done what it was given. Later work need not wait for f, but
// does on devices that have only Call.
func notify(on device.Stream, f func()) error {
	if notify := on.Can().Notify; notify != nil {
		return notify(f)
	}
	return on.Call(f)
}

func (w *worker) copyOut(m *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	if err := w.pinProgram(g, o.Out.Offset, o.Out.Length); err != nil {
		return err
	}
	from := o.From
	err = w.blockLong(func() error {
		return from.Rows(func(addr, offset, size uint64) error { return on.CopyOut(out[offset:offset+size], addr) })
	})
	w.copying += copying(o.Out.Length)
	if err == nil {
		err = w.givenLater(m, on)
	}
	return err
}

// attachLater is Keeper.Aside for the program's own memory. The program may write to it until the
// stream reads it. If the stream is idle, that is now, and until the program can hear of the end of
// the copy, for which it must ask the loop, it leaves the memory alone. Otherwise a function in the
// stream copies the data to the log at that point.
func (w *worker) attachLater(m *message, on device.Stream, data []byte) (kept func(), err error) {
	kept = func() {}
	if !w.keeper.Wants(m) {
		return kept, nil
	}
	if done, err := on.Done(); err != nil {
		return kept, err
	} else if done {
		return w.keeper.Aside(m, data), nil
	}
	fill := w.keeper.Later(m, uint64(len(data)))
	if fill == nil {
		return kept, nil
	}
	return kept, w.block(func() error { return on.Call(func() { fill.Fill(data) }) })
}

// givenLater marks that the program has its bytes, once the stream has done what it was given.
func (w *worker) givenLater(m *message, on device.Stream) error {
	if !w.keeper.Marks(m) {
		return nil
	}
	if done, err := on.Done(); done || err != nil {
		w.keeper.Given(m)
		return err
	}
	kept := *m
	return w.block(func() error { return notify(on, func() { w.keeper.Given(&kept) }) })
}
