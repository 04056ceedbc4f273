package checkpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"muster/internal/strictjson"
	"muster/vmm"
)

// File is a checkpoint that was found to be whole.
type File struct {
	About       About
	Core        []byte // nil if it has none
	Allocations []vmm.Range
	Written     []vmm.Range     // the device memory that pieces cover, adjacent ones joined
	Bytes       map[Kind]uint64 // bytes in pieces, by kind

	from io.ReaderAt
	size int64
}

// Open reads a whole file of the given size and checks it. A refusal is an ErrFile;
// other errors come from reading.
func Open(from io.ReaderAt, size int64) (*File, error) {
	f := &File{from: from, size: size, Bytes: map[Kind]uint64{}}
	err := f.scan(func(number uint64, r record, data []byte) error {
		if err := f.take(r, data); err != nil {
			return refused(number, r, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadAbout reads what a file says of itself, and nothing else.
func ReadAbout(from io.ReaderAt) (About, error) {
	f := &File{}
	s := &scanner{in: bufio.NewReader(io.NewSectionReader(from, 0, 1<<62)), rest: 1 << 62}
	if err := s.begin(); err != nil {
		return About{}, err
	}
	r, data, err := s.next()
	if err == nil {
		err = f.about(data)
	}
	if err != nil {
		return About{}, refused(0, r, err)
	}
	return f.About, nil
}

// take records what a record says.
func (f *File) take(r record, data []byte) (err error) {
	switch r.kind {
	case about:
		return f.about(data)
	case core:
		f.Core = data
	case allocations:
		f.Allocations, err = getRanges(data, vmm.Range{Addr: f.About.ArenaBase, Size: f.About.ArenaSize})
	default:
		f.Bytes[r.kind] += r.size
		err = f.place(r)
		f.note(r)
	}
	return err
}

// note records where a piece of device memory lies.
func (f *File) note(r record) {
	n := len(f.Written) - 1
	switch {
	case r.kind != Memory:
	case n >= 0 && f.Written[n].Addr+f.Written[n].Size == r.at:
		f.Written[n].Size += r.size
	default:
		f.Written = append(f.Written, vmm.Range{Addr: r.at, Size: r.size})
	}
}

// refused says what is wrong with a record.
func refused(number uint64, r record, why error) error {
	return fmt.Errorf("%w: record %d (%v at %#x, %d bytes): %w", ErrFile, number, r.kind, r.at, r.size, why)
}

// about reads what a file says of itself.
func (f *File) about(data []byte) error {
	if err := strictjson.Decode(data, &f.About); err != nil {
		return err
	}
	if a := f.About; a.ArenaSize == 0 || a.ArenaBase > ^uint64(0)-a.ArenaSize {
		return fmt.Errorf("an arena of %d bytes at %#x", a.ArenaSize, a.ArenaBase)
	}
	return nil
}

// place checks that a piece lies where the file says that there is memory.
func (f *File) place(r record) error {
	switch shared := f.About.Shared; {
	case r.kind == Memory:
		i, ok := slices.BinarySearchFunc(f.Allocations, r.at, func(a vmm.Range, at uint64) int {
			switch {
			case at < a.Addr:
				return 1
			case at-a.Addr >= a.Size:
				return -1
			}
			return 0
		})
		if !ok || r.size > f.Allocations[i].Size-(r.at-f.Allocations[i].Addr) {
			return errors.New("it lies in no allocation")
		}
	case shared == nil:
		return errors.New("it is of shared memory, of which the file says nothing")
	case r.kind == Ring && r.at+r.size > shared.RingSize, r.kind == Data && r.at+r.size > shared.ArenaSize:
		return errors.New("it lies beyond the end")
	}
	return nil
}

// Each calls do for each piece of a kind, in order. The bytes are valid until it
// returns. The file is checked again: it may have changed since Open.
func (f *File) Each(k Kind, do func(at uint64, data []byte) error) error {
	return f.scan(func(number uint64, r record, data []byte) error {
		if r.kind != k {
			return nil
		}
		if err := f.place(r); err != nil {
			return refused(number, r, err)
		}
		return do(r.at, data)
	})
}

// scanner goes through the records of a file.
type scanner struct {
	in      *bufio.Reader
	rest    int64 // bytes of the file that were not read
	records uint64
	last    Kind
	end     uint64 // where the last piece of that kind ended
	buffer  []byte
}

// scan checks each record by itself and hands all but the last to visit.
func (f *File) scan(visit func(number uint64, r record, data []byte) error) error {
	s := &scanner{in: bufio.NewReaderSize(io.NewSectionReader(f.from, 0, f.size), 256<<10), rest: f.size}
	if err := s.begin(); err != nil {
		return err
	}
	for {
		r, data, err := s.next()
		if err != nil {
			return err
		}
		if r.kind == end {
			if s.rest > 0 {
				return fmt.Errorf("%w: %d bytes follow its end", ErrFile, s.rest)
			}
			return nil
		}
		if err := visit(s.records-1, r, data); err != nil {
			return err
		}
	}
}

func (s *scanner) begin() error {
	head := make([]byte, headSize)
	if s.rest < int64(headSize) {
		return fmt.Errorf("%w: it has %d bytes", ErrFile, s.rest)
	}
	if err := s.read(head); err != nil {
		return err
	}
	if string(head[:len(magic)]) != magic {
		return fmt.Errorf("%w: it does not begin with %q", ErrFile, magic)
	}
	if version := binary.LittleEndian.Uint64(head[len(magic):]); version != Version {
		return fmt.Errorf("%w: it has version %d, and this program knows version %d: use the Muster that wrote it", ErrFile, version, Version)
	}
	return nil
}

func (s *scanner) read(b []byte) error {
	if _, err := io.ReadFull(s.in, b); err != nil {
		return fmt.Errorf("reading a checkpoint: %w", err)
	}
	s.rest -= int64(len(b))
	return nil
}

// next reads a record. The bytes of a piece are valid until the next call.
func (s *scanner) next() (record, []byte, error) {
	var head [recordSize]byte
	if s.rest < recordSize {
		return record{}, nil, fmt.Errorf("%w: it breaks off after %d records", ErrFile, s.records)
	}
	if err := s.read(head[:]); err != nil {
		return record{}, nil, err
	}
	r := getRecord(head[:])
	if err := s.check(r); err != nil {
		return r, nil, refused(s.records, r, err)
	}
	data := s.room(r)
	if err := s.read(data); err != nil {
		return r, nil, err
	}
	if sum := r.sum(data); sum != r.check {
		return r, nil, refused(s.records, r, fmt.Errorf("it is damaged: its checksum is %08x and not %08x", sum, r.check))
	}
	s.records++
	s.last, s.end = r.kind, r.at+r.size
	return r, data, nil
}

// room is where a record's bytes go. Records that occur once get memory of their own,
// because the visitor keeps it; pieces share a buffer.
func (s *scanner) room(r record) []byte {
	if r.kind < Memory {
		return make([]byte, r.size)
	}
	if uint64(len(s.buffer)) < r.size {
		s.buffer = make([]byte, r.size)
	}
	return s.buffer[:r.size]
}

// sizeLimits bounds the sizes of records that occur once.
var sizeLimits = map[Kind]uint64{about: maxAbout, core: maxCore, allocations: 16 * maxAllocations}

// check says what is wrong with a record's header, before its bytes are read.
func (s *scanner) check(r record) error {
	single := r.kind < Memory
	switch {
	case r.kind < about || r.kind > end:
		return errors.New("there is no such kind")
	case r.size > uint64(s.rest):
		return errors.New("it breaks off")
	case s.records == 0 && r.kind != about, r.kind > allocations && s.last < allocations, r.kind < s.last, single && r.kind == s.last:
		return errors.New("it is not due here")
	case single && r.at != 0:
		return errors.New("it is at no place")
	case single && r.size > sizeLimits[r.kind]:
		return fmt.Errorf("it may have %d bytes", sizeLimits[r.kind])
	case r.kind == end && (r.size != 0 || r.at != s.records):
		return fmt.Errorf("there are %d records before it", s.records)
	case r.kind == end || single:
	case r.size == 0 || r.size > MaxPiece || r.at > ^uint64(0)-r.size:
		return fmt.Errorf("a piece has from 1 to %d bytes", MaxPiece)
	case r.kind == s.last && r.at < s.end:
		return errors.New("it begins before the end of the piece before it")
	}
	return nil
}
