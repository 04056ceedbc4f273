package timeline

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Offsets in a file; shim/lib/transport/watch.c has the same numbers.
const (
	headSize  = 4096
	functions = 1024 // functions that are counted
	totalSize = 32
	// MaxRecords is how many records a region may have: more would take too long to read.
	MaxRecords = 1 << 28
)

var magic = []byte("mustertl")

// Total is the sum of all calls of a function.
type Total struct {
	Count, Bytes uint64
	Took, Waited int64 // nanoseconds
}

// File is what the library has recorded of one process.
type File struct {
	Pid, Parent      int
	Program          string
	Boot             string // the boot ID of its machine
	Ended            bool   // the process called exit
	Opened, OpenedAt int64  // on CLOCK_MONOTONIC and since 1970

	Calls     []Record // by their marks
	CallsMade uint64   // Calls are the first and the last of these
	Node      []Record // likewise
	NodeMade  uint64
	NodeLost  uint64 // records for which the node had no room
	Totals    map[string]Total
	Functions map[uint32]string // of the library, by their numbers
	Names     map[uint32]string // names that the node gave, by their numbers
}

// FunctionName is the name of a call's function.
func (f *File) FunctionName(number uint32) string {
	if name, ok := f.Functions[number]; ok {
		return name
	}
	return "a call"
}

// ErrEmpty says that a file has no head: its process was killed too early.
var ErrEmpty = errors.New("nothing was recorded")

// ReadFile reads a file that the library has written. The process may have been killed while
// writing.
func ReadFile(path string) (*File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	return Read(in, info.Size())
}

// Read reads a file of size bytes.
func Read(in io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, headSize)
	if _, err := in.ReadAt(head, 0); err != nil || !bytes.Equal(head[:8], magic) {
		return nil, ErrEmpty
	}
	le := binary.LittleEndian
	if v := le.Uint32(head[8:]); v != 1 {
		return nil, fmt.Errorf("version %d of the records, where 1 was due: use the library that came with this muster", v)
	}
	room, nameRoom := le.Uint64(head[24:]), le.Uint64(head[32:])
	if room == 0 || room%2 != 0 || room > MaxRecords || nameRoom > MaxRecords ||
		uint64(size) < headSize+functions*totalSize+(2*room+nameRoom)*Size {
		return nil, fmt.Errorf("a damaged file of records: %d bytes for %d records", size, room)
	}
	f := &File{
		Pid: int(le.Uint32(head[12:])), Parent: int(le.Uint32(head[16:])), Ended: le.Uint32(head[20:]) != 0,
		Opened: int64(le.Uint64(head[40:])), OpenedAt: int64(le.Uint64(head[48:])),
		CallsMade: le.Uint64(head[56:]), NodeMade: le.Uint64(head[64:]), NodeLost: le.Uint64(head[80:]),
		Program: text(head[88 : 88+256]), Boot: text(head[344 : 344+64]),
		Totals: map[string]Total{},
	}
	var err error
	at := int64(headSize + functions*totalSize)
	if f.Calls, err = readRecords(in, at, room, f.CallsMade); err != nil {
		return nil, err
	}
	at += int64(room) * Size
	if f.Node, err = readRecords(in, at, room, f.NodeMade); err != nil {
		return nil, err
	}
	at += int64(room) * Size
	if err := f.readNames(in, at, min(nameRoom, le.Uint64(head[72:]))); err != nil {
		return nil, err
	}
	return f, f.readTotals(in)
}

func text(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return strings.ToValidUTF8(string(b), "?")
}

// readRecords reads a region to which made records were written, and returns those that are left,
// in the order in which they were made.
func readRecords(in io.ReaderAt, at int64, room, made uint64) ([]Record, error) {
	b := make([]byte, min(room, made)*Size)
	if _, err := in.ReadAt(b, at); err != nil && len(b) > 0 {
		return nil, fmt.Errorf("reading records: %w", err)
	}
	records := slices.DeleteFunc(Records(b), func(r Record) bool { return r.Mark == 0 || r.Mark > made })
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Mark, b.Mark) })
	return records, nil
}

// readNames puts the parts of names together.
func (f *File) readNames(in io.ReaderAt, at int64, count uint64) error {
	b := make([]byte, count*Size)
	if _, err := in.ReadAt(b, at); err != nil && len(b) > 0 {
		return fmt.Errorf("reading names: %w", err)
	}
	f.Functions, f.Names = Names(b)
	return nil
}

func (f *File) readTotals(in io.ReaderAt) error {
	b := make([]byte, functions*totalSize)
	if _, err := in.ReadAt(b, headSize); err != nil {
		return fmt.Errorf("reading sums: %w", err)
	}
	le := binary.LittleEndian
	for i := range functions {
		t := b[i*totalSize:]
		if count := le.Uint64(t); count > 0 {
			f.Totals[f.FunctionName(uint32(i)+1)] = Total{count, le.Uint64(t[16:]), int64(le.Uint64(t[8:])), int64(le.Uint64(t[24:]))}
		}
	}
	return nil
}
