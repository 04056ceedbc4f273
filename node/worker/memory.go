package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

func (s *session) memAlloc(_ wire.Header, m *wire.MemAlloc) ([]byte, error) {
	r := vmm.Range{Addr: m.Addr, Size: m.Size}
	if err := s.space.Alloc(r); err != nil {
		return nil, err
	}
	err := s.commit(s.space.Chunked())
	if err == nil {
		err = s.reserve(r)
	}
	if err != nil { // nothing has used it yet: there is no plan to perform
		_, wrong := s.space.Free(m.Addr)
		err = errors.Join(err, wrong, s.commit(s.space.Chunked()))
	}
	return nil, err
}

func (s *session) memFree(_ wire.Header, m *wire.MemFree) error {
	// Others may share the last chunk, so that no plan waits for the device; but
	// the program may use the addresses anew.
	if err := s.drain(); err != nil {
		return err
	}
	r, _ := s.space.Find(m.Addr)
	plan, err := s.space.Free(m.Addr)
	if err != nil {
		return err
	}
	if err := errors.Join(s.perform(plan), s.host.release(r)); err != nil {
		return err
	}
	return s.commit(s.space.Chunked())
}

func (s *session) memNest(_ wire.Header, m *wire.MemNest) error {
	if len(m.Children)%8 != 0 {
		return fmt.Errorf("mem_nest with %d bytes of addresses: %w", len(m.Children), errProtocol)
	}
	children := make([]uint64, len(m.Children)/8)
	for i := range children {
		children[i] = binary.LittleEndian.Uint64(m.Children[8*i:])
	}
	return s.space.Nest(m.Parent, children)
}

// target is where an operation on device memory takes place.
type target int

const (
	onHost target = iota
	onDevice
)

// where decides it for ranges that are touched together. Memory that is on the
// device as a whole is used there; else the host copies are, unless variables
// of modules are among the ranges: those have none.
func (s *session) where(ranges ...vmm.Range) (target, error) {
	variables, resident := false, s.lease.held && s.gpu != nil
	var arena []vmm.Range
	for _, r := range ranges {
		if r.Addr-s.serve.ArenaBase >= s.serve.ArenaSize || r.Addr < s.serve.ArenaBase {
			if _, ok := s.modules.global(r.Addr, r.Size); !ok {
				return 0, fmt.Errorf("%d bytes at %#x: no memory of the program's: %w", r.Size, r.Addr, device.ErrInvalidValue)
			}
			variables = true
			continue
		}
		if err := s.space.Check(r); err != nil {
			return 0, err
		}
		arena = append(arena, r)
		resident = resident && s.space.Resident(s.gpu.place, r)
	}
	if !variables {
		if resident {
			return onDevice, nil
		}
		return onHost, nil
	}
	return onDevice, s.ready(arena) // one at most
}

// written notes that memory was written on the device.
func (s *session) written(r vmm.Range) {
	if s.space.Check(r) == nil {
		s.space.Written(s.gpu.place, r)
	}
}

// hostRead makes the host copies of a range true and returns them.
func (s *session) hostRead(r vmm.Range) ([]byte, error) {
	plan, err := s.space.HostRead(r)
	if err != nil {
		return nil, err
	}
	if err := s.perform(plan); err != nil {
		return nil, err
	}
	return s.host.at(r), nil
}

// hostWrite returns the host copies of an area, to be written; r is its span.
func (s *session) hostWrite(r vmm.Range, a area) ([]byte, error) {
	if !a.dense() { // what lies between the rows stays as it is
		if _, err := s.hostRead(r); err != nil {
			return nil, err
		}
	}
	plan, err := s.space.HostWrite(r)
	if err != nil {
		return nil, err
	}
	if err := s.perform(plan); err != nil {
		return nil, err
	}
	return s.host.at(r), nil
}

// area is memory in rows: height rows of width bytes, pitch bytes apart.
type area struct{ addr, pitch, width, height uint64 }

func line(addr, size uint64) area { return area{addr, size, size, 1} }

// span returns the range from the first to the last byte.
func (a area) span() (vmm.Range, error) {
	if a.width == 0 || a.height == 0 {
		return vmm.Range{}, nil
	}
	const most = 1 << 48
	if a.pitch < a.width && a.height > 1 || a.pitch > most || a.width > most || a.height > most/max(a.pitch, 1) {
		return vmm.Range{}, fmt.Errorf("%d rows of %d bytes, %d bytes apart: %w", a.height, a.width, a.pitch, device.ErrInvalidValue)
	}
	return vmm.Range{Addr: a.addr, Size: (a.height-1)*a.pitch + a.width}, nil
}

// dense says whether the area is one piece.
func (a area) dense() bool { return a.pitch == a.width || a.height == 1 }

// rows calls f for each row, with neighbouring rows in one.
func (a area) rows(f func(addr, offset, size uint64) error) error {
	if a.dense() {
		return f(a.addr, 0, a.width*a.height)
	}
	for i := range a.height {
		if err := f(a.addr+i*a.pitch, i*a.width, a.width); err != nil {
			return err
		}
	}
	return nil
}

// copyIn copies from the data arena, or from bytes that are our own.
func (s *session) copyIn(streamID uint32, to area, data []byte, own bool, st *stage) error {
	defer func() { s.staging.free(st) }()
	s.stats.CopiedIn += uint64(len(data))
	r, err := to.span()
	if err != nil || r.Size == 0 {
		return err
	}
	if to.width*to.height != uint64(len(data)) {
		return fmt.Errorf("%d bytes for %d rows of %d: %w", len(data), to.height, to.width, errProtocol)
	}
	if _, err := s.streams.find(streamID); err != nil {
		return err
	}
	at, err := s.where(r)
	if err != nil {
		return err
	}
	if at == onHost || s.serve.Defer && s.space.Check(r) == nil {
		if st == nil && !own {
			if err := s.settle(streamID); err != nil {
				return err
			}
		}
		host, err := s.hostWrite(r, to)
		if err != nil {
			return err
		}
		return to.rows(func(addr, offset, size uint64) error {
			copy(host[addr-r.Addr:], data[offset:offset+size])
			return nil
		})
	}
	if st != nil && s.hosts.outstanding() > 0 {
		// The program may wait for this memory before it says that its function
		// has returned, which the copy may wait for.
		data = bytes.Clone(data)
		s.staging.free(st)
		st = nil
	}
	on, err := s.give(streamID)
	if err != nil {
		return err
	}
	err = s.block(func() error {
		return to.rows(func(addr, offset, size uint64) error { return on.CopyIn(addr, data[offset:offset+size]) })
	})
	if err != nil {
		return err
	}
	s.written(r)
	if st == nil {
		return nil
	}
	if done, err := on.Done(); done || err != nil {
		return err // and the memory is free again
	}
	lent := st
	st = nil // freed when the copy is done, or the context has ended
	s.staging.lend(lent)
	return s.block(func() error { return on.Call(func() { s.staging.free(lent) }) })
}

// settle waits until what a stream was given before has ended: it may write or
// read the memory of the program's that a copy is about to use.
func (s *session) settle(streamID uint32) error {
	if s.gpu == nil || !s.lease.held {
		return nil
	}
	on, err := s.give(streamID)
	if err != nil {
		return err
	}
	if done, err := on.Done(); done || err != nil {
		return err
	}
	return s.block(func() error { return on.Synchronise(s.ctx) })
}

// copyOut copies to the data arena; it answers when the bytes are there.
func (s *session) copyOut(h wire.Header, streamID uint32, from area) error {
	out, err := s.shared.Data(h.Data, h.Length)
	if err != nil {
		return errors.Join(err, errProtocol)
	}
	r, err := from.span()
	if err != nil {
		return err
	}
	if from.width*from.height != uint64(len(out)) {
		return fmt.Errorf("%d bytes for %d rows of %d: %w", len(out), from.height, from.width, errProtocol)
	}
	s.stats.CopiedOut += uint64(len(out))
	if _, err := s.streams.find(streamID); err != nil {
		return err
	}
	if r.Size == 0 {
		s.answer(h.Slot, nil)
		return nil
	}
	at, err := s.where(r)
	if err != nil {
		return err
	}
	if at == onHost {
		if err := s.settle(streamID); err != nil {
			return err
		}
		host, err := s.hostRead(r)
		if err != nil {
			return err
		}
		err = from.rows(func(addr, offset, size uint64) error {
			copy(out[offset:offset+size], host[addr-r.Addr:])
			return nil
		})
		s.answer(h.Slot, err)
		return nil
	}
	on, err := s.give(streamID)
	if err != nil {
		return err
	}
	err = s.block(func() error {
		return from.rows(func(addr, offset, size uint64) error { return on.CopyOut(out[offset:offset+size], addr) })
	})
	if err != nil || h.Slot < 0 {
		return err
	}
	return s.laterOn(h.Slot, on)
}

// copyWithin copies between two areas of the same shape.
func (s *session) copyWithin(streamID uint32, to, from area) error {
	dst, err := to.span()
	if err != nil {
		return err
	}
	src, err := from.span()
	if err != nil || dst.Size == 0 {
		return err
	}
	if _, err := s.streams.find(streamID); err != nil {
		return err
	}
	at, err := s.where(dst, src)
	if err != nil {
		return err
	}
	if at == onHost {
		source, err := s.hostRead(src)
		if err != nil {
			return err
		}
		target, err := s.hostWrite(dst, to)
		if err != nil {
			return err
		}
		for i := range to.height {
			copy(target[i*to.pitch:][:to.width], source[i*from.pitch:][:to.width])
		}
		return nil
	}
	on, err := s.give(streamID)
	if err != nil {
		return err
	}
	err = s.block(func() error {
		if to.dense() && from.dense() {
			return on.Copy(dst.Addr, src.Addr, dst.Size)
		}
		for i := range to.height {
			if err := on.Copy(to.addr+i*to.pitch, from.addr+i*from.pitch, to.width); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.written(dst)
	}
	return err
}

func (s *session) fill(_ wire.Header, m *wire.Fill) error {
	if m.Width != 1 && m.Width != 2 && m.Width != 4 || m.Count > 1<<48 {
		return fmt.Errorf("fill with %d elements of %d bytes: %w", m.Count, m.Width, errProtocol)
	}
	to := area{m.Dst, m.Pitch, m.Count * uint64(m.Width), m.Height}
	if to.height == 1 {
		to.pitch = to.width
	}
	r, err := to.span()
	if err != nil || r.Size == 0 {
		return err
	}
	if (m.Dst|to.pitch)%uint64(m.Width) != 0 {
		return fmt.Errorf("fill at %#x, rows %d bytes apart, with elements of %d bytes: give multiples: %w", m.Dst, to.pitch, m.Width, device.ErrInvalidValue)
	}
	if _, err := s.streams.find(m.Stream); err != nil {
		return err
	}
	at, err := s.where(r)
	if err != nil {
		return err
	}
	if at == onHost {
		host, err := s.hostWrite(r, to)
		if err != nil {
			return err
		}
		return to.rows(func(addr, _, size uint64) error {
			fillBytes(host[addr-r.Addr:][:size], m.Value, int(m.Width))
			return nil
		})
	}
	on, err := s.give(m.Stream)
	if err != nil {
		return err
	}
	err = s.block(func() error {
		return to.rows(func(addr, _, size uint64) error {
			return on.Fill(addr, m.Value, int(m.Width), size/uint64(m.Width))
		})
	})
	if err == nil {
		s.written(r)
	}
	return err
}

func fillBytes(b []byte, value uint32, width int) {
	var element [4]byte
	binary.LittleEndian.PutUint32(element[:], value)
	for n := copy(b, element[:width]); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
