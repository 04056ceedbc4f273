package hostcopy

import (
	"encoding/binary"

	"muster/internal/together"
	"muster/node/clientcore"
	"muster/vmm"
)

// CopyIn writes data to an area.
func (h *Memory) CopyIn(to clientcore.Area, data []byte) error {
	return to.Rows(func(addr, offset, size uint64) error {
		return h.Each(vmm.Range{Addr: addr, Size: size}, func(at uint64, piece []byte) error {
			from := data[offset+at-addr:]
			together.Copy(piece, from[:min(len(from), len(piece))])
			return nil
		})
	})
}

// CopyOut reads an area.
func (h *Memory) CopyOut(out []byte, from clientcore.Area) error {
	return from.Rows(func(addr, offset, size uint64) error {
		h.Read(out[offset:offset+size], addr)
		return nil
	})
}

// Fill fills an area with elements.
func (h *Memory) Fill(to clientcore.Area, value uint32, width int) error {
	return to.Rows(func(addr, _, size uint64) error {
		// Pieces end at chunk boundaries, so each begins with a whole element.
		return h.Each(vmm.Range{Addr: addr, Size: size}, func(_ uint64, piece []byte) error {
			fillBytes(piece, value, width)
			return nil
		})
	})
}

func fillBytes(b []byte, value uint32, width int) {
	var element [4]byte
	binary.LittleEndian.PutUint32(element[:], value)
	for n := copy(b, element[:width]); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// TouchArea is Touch for an area that is about to be written.
func (h *Memory) TouchArea(to clientcore.Area, all bool) error {
	r, err := to.Span()
	if err == nil {
		h.Touch(r, all)
	}
	return err
}

// Copy copies between areas, row by row, and prepares the target. Rows may overlap in memory, as in a copy
// on the device: each row is written as if it were read completely before.
func (h *Memory) Copy(to, from clientcore.Area) error {
	all := to.Dense()
	if all { // source and target may overlap: then the old contents are needed
		target, err := to.Span()
		if err != nil {
			return err
		}
		source, err := from.Span()
		if err != nil {
			return err
		}
		all = source.Addr+source.Size <= target.Addr || target.Addr+target.Size <= source.Addr
	}
	if err := h.TouchArea(to, all); err != nil {
		return err
	}
	if to.Height == 0 {
		return nil
	}
	buffer := make([]byte, min(to.Width, CopyBuffer))
	for i := range to.Height {
		if err := h.copyRow(buffer, to.Addr+i*to.Pitch, from.Addr+i*from.Pitch, to.Width); err != nil {
			return err
		}
	}
	return nil
}

// CopyBuffer is the size of the buffer of Copy.
const CopyBuffer = 4 << 20

// copyRow copies size bytes through a buffer. A piece must not overwrite what later pieces read,
// so it begins at the end if the target lies behind the source.
func (h *Memory) copyRow(buffer []byte, to, from, size uint64) error {
	for done := uint64(0); done < size; {
		n := min(size-done, uint64(len(buffer)))
		at := done
		if to > from {
			at = size - done - n
		}
		h.Read(buffer[:n], from+at)
		err := h.Each(vmm.Range{Addr: to + at, Size: n}, func(addr uint64, piece []byte) error {
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

// Zero sets whole chunks to zero. Their room must be reserved.
func (h *Memory) Zero(r vmm.Range) {
	h.Discard(r)
	h.Touch(r, true)
	if !h.InFile() {
		return
	}
	_ = h.Each(r, func(_ uint64, piece []byte) error {
		clear(piece)
		return nil
	})
}
