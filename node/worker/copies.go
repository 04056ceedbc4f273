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
	w.keep(m, o)
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
	w.given(m)
	return err
}

func (w *worker) copyIn(m *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	if done, err := w.copyInEchoed(m, g, on, o); done || err != nil {
		return err
	}
	to, data := o.To, o.Data
	kept := func() {}
	if m.header.Release != 0 {
		kept = w.keepAside(m, o)
	} else if m.header.Op.TakesData() {
		var err error
		if kept, err = w.attachLater(m, on, data); err != nil {
			return err
		}
	}
	if o.Staged && m.stage.isOpen() && w.hosts.outstanding() > 0 {
		// The program may be waiting for this memory before it reports that its host function has
		// returned, and the copy may be waiting for that function. A copy of the data breaks the
		// cycle.
		data = bytes.Clone(data)
		kept()
		kept = func() {}
		w.staging.free(m.stage.taken())
	}
	submit := on.CopyIn
	if m.header.Op.TakesData() {
		if err := w.pinProgram(g, m.header.Data, uint64(len(data))); err != nil {
			kept()
			return err
		}
	} else if taker, ok := on.(device.Taker); ok {
		submit = taker.CopyTaken
	}
	err := w.blockLong(func() error {
		return to.Rows(func(addr, offset, size uint64) error { return submit(addr, data[offset:offset+size]) })
	})
	kept()
	w.copying += copying(len(data))
	if err != nil || !m.stage.isOpen() {
		return err
	}
	if done, err := on.Done(); done || err != nil {
		return err // perform frees the staging memory
	}
	lent := m.stage.taken() // freed when the copy has ended, or with the context
	w.staging.lend(lent, g)
	return w.block(func() error { return notify(on, func() { w.staging.free(lent) }) })
}

// notify has f called when a stream has done what it was given. Later work need not wait for f, but
// does on devices that have only Call.
func notify(on device.Stream, f func()) error {
	if n, ok := on.(device.Notifier); ok {
		return n.Notify(f)
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
