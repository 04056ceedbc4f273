package worker

import (
	"bytes"
	"encoding/binary"
	"errors"

	"muster/device"
	"muster/internal/together"
	"muster/node/clientcore"
	"muster/vmm"
)

// onHost is how a copy or fill on the host copies is carried out.
func onHost(do func(w *worker, m *message, o *clientcore.Op) error) perform {
	return func(w *worker, m *message, o *clientcore.Op) error {
		if w.timeline != nil {
			defer w.timeline.onHost(o)()
		}
		return do(w, m, o)
	}
}

// touchTo prepares the target of an operation to be written: touch keeps the base's version of the
// chunks. All says that they are overwritten completely, so that they need not be copied.
func (w *worker) touchTo(o *clientcore.Op, all bool) error {
	to, err := o.To.Span()
	if err == nil {
		w.touch(to, all)
	}
	return err
}

func (w *worker) hostIn(m *message, o *clientcore.Op) error {
	if err := w.touchTo(o, o.To.Dense()); err != nil {
		return err
	}
	w.keep(m, o)
	return o.To.Rows(func(addr, offset, size uint64) error {
		return w.host.each(vmm.Range{Addr: addr, Size: size}, func(at uint64, piece []byte) error {
			from := o.Data[offset+at-addr:]
			together.Copy(piece, from[:min(len(from), len(piece))])
			return nil
		})
	})
}

func (w *worker) hostFill(_ *message, o *clientcore.Op) error {
	if err := w.touchTo(o, o.To.Dense()); err != nil {
		return err
	}
	return o.To.Rows(func(addr, _, size uint64) error {
		// Pieces end at chunk boundaries, so each begins with a whole element.
		return w.host.each(vmm.Range{Addr: addr, Size: size}, func(_ uint64, piece []byte) error {
			fillBytes(piece, o.Value, o.Width)
			return nil
		})
	})
}

func (w *worker) hostOut(m *message, o *clientcore.Op) error {
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	err = o.From.Rows(func(addr, offset, size uint64) error {
		w.host.read(out[offset:offset+size], addr)
		return nil
	})
	w.given(m)
	return err
}

// hostCopy copies between host copies, row by row. Rows may overlap in memory, as in a copy on the
// device: each row is written as if it were read completely before.
func (w *worker) hostCopy(_ *message, o *clientcore.Op) error {
	all := o.To.Dense()
	if all { // source and target may overlap: then the old contents are needed
		to, err := o.To.Span()
		if err != nil {
			return err
		}
		from, err := o.From.Span()
		if err != nil {
			return err
		}
		all = from.Addr+from.Size <= to.Addr || to.Addr+to.Size <= from.Addr
	}
	if err := w.touchTo(o, all); err != nil {
		return err
	}
	if o.To.Height == 0 {
		return nil
	}
	buffer := make([]byte, min(o.To.Width, hostCopyBuffer))
	for i := range o.To.Height {
		if err := w.hostCopyRow(buffer, o.To.Addr+i*o.To.Pitch, o.From.Addr+i*o.From.Pitch, o.To.Width); err != nil {
			return err
		}
	}
	return nil
}

// hostCopyBuffer is the size of the buffer for copies between host copies.
const hostCopyBuffer = 4 << 20

// hostCopyRow copies size bytes through a buffer. A piece must not overwrite what later pieces read,
// so it begins at the end if the target lies behind the source.
func (w *worker) hostCopyRow(buffer []byte, to, from, size uint64) error {
	for done := uint64(0); done < size; {
		n := min(size-done, uint64(len(buffer)))
		at := done
		if to > from {
			at = size - done - n
		}
		w.host.read(buffer[:n], from+at)
		err := w.host.each(vmm.Range{Addr: to + at, Size: n}, func(addr uint64, piece []byte) error {
			copy(piece, buffer[addr-to-at:n])
			return nil
		})
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// touch prepares host copies to be written. If there is no room to keep the base's version, the
// base is given up: the client cannot be rebuilt until the next one.
func (w *worker) touch(r vmm.Range, all bool) {
	if err := w.host.touch(r, all); err != nil {
		w.expose(err)
		w.host.abandon()
		_ = w.host.touch(r, all)
	}
}

func fillBytes(b []byte, value uint32, width int) {
	var element [4]byte
	binary.LittleEndian.PutUint32(element[:], value)
	for n := copy(b, element[:width]); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
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
