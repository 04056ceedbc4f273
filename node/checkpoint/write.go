package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"muster/vmm"
)

// Writer writes a checkpoint. Its methods must be called in the order of the kinds.
// After the first error nothing more is written, and End returns that error.
type Writer struct {
	to      io.Writer
	err     error
	records uint64
	bytes   uint64
	last    Kind
	end     uint64 // where the last piece of that kind ended
	head    [recordSize]byte
}

// NewWriter begins a checkpoint.
func NewWriter(to io.Writer, a About) *Writer {
	w := &Writer{to: to}
	w.write(binary.LittleEndian.AppendUint64([]byte(magic), Version))
	text, err := json.Marshal(a)
	if err == nil && len(text) > maxAbout {
		err = fmt.Errorf("what a checkpoint says of itself takes %d bytes", len(text))
	}
	w.fail(err)
	w.record(about, 0, text)
	return w
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.to.Write(b)
	w.bytes += uint64(n)
	w.fail(err)
}

func (w *Writer) record(k Kind, at uint64, data []byte) {
	if w.err == nil && (k < w.last || k == w.last && (k < Memory || at < w.end)) {
		w.err = fmt.Errorf("a record of %v at %#x after one of %v up to %#x", k, at, w.last, w.end)
	}
	r := record{kind: k, at: at, size: uint64(len(data))}
	r.check = r.sum(data)
	r.put(w.head[:])
	w.write(w.head[:])
	w.write(data)
	w.records++
	w.last, w.end = k, at+r.size
}

// Core adds what the client's core wrote.
func (w *Writer) Core(saved []byte) { w.record(core, 0, saved) }

// Allocations adds where the client's memory is.
func (w *Writer) Allocations(all []vmm.Range) { w.record(allocations, 0, putRanges(all)) }

var zeros [block]byte

// Piece adds memory of a kind, without the zeros in it. It may be of any size; calls
// must be in the order of places.
func (w *Writer) Piece(k Kind, at uint64, data []byte) {
	for len(data) > 0 && w.err == nil {
		skip := 0
		for skip < len(data) && isZero(blockAt(data, skip)) {
			skip += len(blockAt(data, skip))
		}
		data, at = data[skip:], at+uint64(skip)
		n := 0
		for n < len(data) && n < MaxPiece && !isZero(blockAt(data, n)) {
			n += len(blockAt(data, n))
		}
		if n > 0 {
			w.record(k, at, data[:n])
		}
		data, at = data[n:], at+uint64(n)
	}
}

// blockAt is the block that begins at an offset; the last one may be shorter.
func blockAt(data []byte, from int) []byte { return data[from:min(from+block, len(data))] }

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// Bytes is how long the file is so far.
func (w *Writer) Bytes() uint64 { return w.bytes }

// Err is the first error so far.
func (w *Writer) Err() error { return w.err }

// End ends the checkpoint, and returns the first error.
func (w *Writer) End() error {
	if w.err == nil && w.last < allocations {
		return errors.New("a checkpoint without its allocations")
	}
	w.record(end, w.records, nil)
	return w.err
}
