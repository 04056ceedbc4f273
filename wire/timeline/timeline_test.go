package timeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRecordsTravel(t *testing.T) {
	want := Record{Mark: 1, Begin: -2, End: 1 << 60, Bytes: 3, Name: 4, Row: 5, Kind: Kernel, Source: 6, First: 7, Last: 8, Waited: 9, Kernel: 10, Result: 11}
	b := want.Append(nil)
	if len(b) != Size {
		t.Fatalf("a record of %d bytes", len(b))
	}
	long := strings.Repeat("long ", 50) + "é"
	b = AppendName(b, Hash(long), long)
	b = AppendName(b, Hash("k"), "k")
	if got := Records(b); len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
	functions, names := Names(b)
	if len(functions) != 0 || !reflect.DeepEqual(names, map[uint32]string{Hash(long): long, Hash("k"): "k"}) {
		t.Errorf("%v %v", functions, names)
	}
}

func TestClock(t *testing.T) {
	before := Now()
	at := At(time.Now())
	if after := Now(); at < before || after < at || before <= 0 {
		t.Errorf("%d, %d, %d", before, at, after)
	}
}

// file makes a file as the library does, with room for a number of records.
func file(room, made int) []byte {
	const names = 4
	b := make([]byte, headSize+functions*totalSize+(2*room+names)*Size)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], 1)
	le.PutUint32(b[12:], 42)
	le.PutUint64(b[24:], uint64(room))
	le.PutUint64(b[32:], names)
	le.PutUint64(b[56:], uint64(made))
	le.PutUint64(b[72:], 1)
	copy(b[88:], "program")
	le.PutUint64(b[headSize:], 100) // of function 1
	le.PutUint64(b[headSize+8:], 200)
	at := headSize + functions*totalSize
	half := room / 2
	for i := range made {
		place := i
		if i >= half {
			place = half + (i-half)%half
		}
		r := Record{Mark: uint64(i + 1), Kind: Call, Name: 1, Begin: int64(i), End: int64(i + 1)}
		copy(b[at+place*Size:], r.Append(nil))
	}
	name := AppendName(nil, 1, "cuInit")
	le.PutUint64(name, 1)
	le.PutUint16(name[42:], FromProgram)
	copy(b[at+2*room*Size:], name)
	return b
}

// The first and the last records are there, in order; those in the middle are not.
func TestFileKeepsTheEnds(t *testing.T) {
	for _, made := range []int{0, 1, 7, 8, 9, 12, 1000} {
		b := file(8, made)
		f, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		var want []uint64
		for i := range uint64(made) {
			if i < 4 || i >= uint64(made)-4 {
				want = append(want, i+1)
			}
		}
		var got []uint64
		for _, r := range f.Calls {
			got = append(got, r.Mark)
		}
		if !reflect.DeepEqual(got, want) || f.CallsMade != uint64(made) || f.Pid != 42 || f.Program != "program" {
			t.Errorf("of %d: %v, want %v; %+v", made, got, want, f)
		}
		if f.Totals["cuInit"] != (Total{Count: 100, Took: 200}) {
			t.Errorf("sums %v", f.Totals)
		}
	}
}

// A process may be killed while it writes.
func TestHalfWrittenFiles(t *testing.T) {
	whole := file(8, 6)
	for _, c := range []struct {
		what  string
		spoil func(b []byte) []byte
		empty bool
		calls int
	}{
		{"nothing", func(b []byte) []byte { return nil }, true, 0},
		{"no head yet", func(b []byte) []byte { clear(b[:8]); return b }, true, 0},
		{"a record that is being written", func(b []byte) []byte { clear(b[headSize+functions*totalSize+2*Size:][:8]); return b }, false, 5},
		{"a record that was counted and not begun", func(b []byte) []byte { clear(b[headSize+functions*totalSize+5*Size:][:Size]); return b }, false, 5},
	} {
		b := c.spoil(bytes.Clone(whole))
		f, err := Read(bytes.NewReader(b), int64(len(b)))
		if c.empty != errors.Is(err, ErrEmpty) || !c.empty && (err != nil || len(f.Calls) != c.calls) {
			t.Errorf("%s: %+v, %v", c.what, f, err)
		}
	}
	if _, err := Read(bytes.NewReader(whole[:len(whole)-1]), int64(len(whole)-1)); err == nil || !strings.Contains(err.Error(), "a damaged file") {
		t.Errorf("a file that was cut: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file(8, 12))
	f.Add(file(2, 0))
	f.Add([]byte("mustertl"))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, r := range append(read.Calls, read.Node...) {
			if r.End < r.Begin || r.Mark == 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestElementsAreReadAsTheyWereWritten(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("MUSTER_TIMELINE", folder)
	t.Setenv("MUSTER_TIMELINE_RECORDS", "2")
	want := Element{Pid: 7, Number: 3, Node: 1, GPU: -1, Opened: 5, OpenedAt: 6, Program: "prog"}
	w := CreateElements(want)
	calls := []ElementCall{
		{Op: 12, Thread: 7, Begin: 10, End: 20, Args: [3]uint64{1, 1<<64 - 1, 3}, Answer: [2]uint64{1 << 40, 5}, Name: "a\tb\nc"},
		{Op: 13, Thread: 8, Begin: 20, End: 20, Result: 4},
		{Op: 14, Begin: 30, End: 40}, // one more than may be written
	}
	for _, c := range calls {
		w.Add(c)
	}
	path := filepath.Join(folder, "elements-7-3")
	if !IsElement(filepath.Base(path)) || IsElement("7") {
		t.Error("the file of an element is not known by its name")
	}
	got, err := ReadElementFile(path)
	if err != nil {
		t.Fatal(err)
	}
	calls[0].Name = "a?b?c"
	want.Boot, want.Calls = got.Boot, calls[:2]
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("read %+v, written %+v", *got, want)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut, err := ReadElement(bytes.NewReader(text[:len(text)-9])) // the process was killed while it wrote
	if err != nil || len(cut.Calls) != 1 {
		t.Errorf("of a file that was cut off %+v was read, %v", cut, err)
	}
	if _, err := ReadElement(strings.NewReader("nonsense\n")); !errors.Is(err, ErrEmpty) {
		t.Errorf("nonsense is read with %v", err)
	}
	if w := CreateElements(want); w != nil {
		t.Error("a file that is there was written again")
	}
}

// A folder has processes that called the library, some that did not, and some that were killed early.
func TestFolder(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("MUSTER_TIMELINE", folder)
	t.Setenv("MUSTER_TIMELINE_RECORDS", "2")
	CreateElements(Element{Pid: 7, Number: 3, GPU: -1, Program: "prog"})
	for name, b := range map[string][]byte{"1": file(8, 6), "2": file(8, 0), "3": nil, "elements-8-1": nil} {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := ReadFolder(folder)
	if err != nil || len(all.Files) != 1 || len(all.Elements) != 1 || all.Elements[0].Pid != 7 || all.Skipped != 1 {
		t.Errorf("got %+v, %v", all, err)
	}
	damaged := file(8, 6)
	if err := os.WriteFile(filepath.Join(folder, "1"), damaged[:len(damaged)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := ReadFolder(folder); err == nil {
		t.Errorf("a damaged file is read: %+v", all)
	}
}
