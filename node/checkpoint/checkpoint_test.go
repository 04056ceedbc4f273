package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/vmm"
)

const (
	base = 1 << 32
	mib  = 1 << 20
)

func testAbout() About {
	return About{Taken: time.Unix(1e9, 0).UTC(), Program: "test", Identity: "one", ArenaBase: base, ArenaSize: 64 * mib,
		Shared: &Shared{RingSize: mib, ArenaSize: 8 * mib, Head: 40, Seq: 1, Printed: []byte("hello")}}
}

// sample is a file with all kinds of records.
func sample(t testing.TB) []byte { return sampleOf(t, 3*mib) } // longer than a piece

// sampleOf is the same with so many bytes of memory in one row.
func sampleOf(t testing.TB, row int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, testAbout())
	w.Core([]byte(`{"a":1}`))
	w.Allocations([]vmm.Range{{Addr: base, Size: 1000}, {Addr: base + 2*mib, Size: 6 * mib}})
	w.Piece(Memory, base, bytes.Repeat([]byte{7}, 1000))
	contents := make([]byte, 6*mib)
	copy(contents[mib:], bytes.Repeat([]byte{9}, row))
	contents[6*mib-1] = 1
	w.Piece(Memory, base+2*mib, contents)
	w.Piece(Ring, 4096, []byte{1, 2, 3})
	w.Piece(Data, 5*mib, []byte{4})
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if w.Bytes() != uint64(out.Len()) {
		t.Errorf("%d bytes are counted, and %d were written", w.Bytes(), out.Len())
	}
	return out.Bytes()
}

func open(b []byte) (*File, error) { return Open(bytes.NewReader(b), int64(len(b))) }

// contents puts all pieces of a kind together.
func contents(t testing.TB, f *File, k Kind, from, size uint64) []byte {
	t.Helper()
	all := make([]byte, size)
	if err := f.Each(k, func(at uint64, data []byte) error { copy(all[at-from:], data); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	f, err := open(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if f.About.Identity != "one" || f.About.Shared.Head != 40 || string(f.Core) != `{"a":1}` || len(f.Allocations) != 2 {
		t.Errorf("%+v", f)
	}
	memory := contents(t, f, Memory, base, 8*mib)
	for i, want := range map[int]byte{0: 7, 999: 7, 1000: 0, 2 * mib: 0, 3 * mib: 9, 6*mib - 1: 9, 6 * mib: 0, 8*mib - 1: 1} {
		if memory[i] != want {
			t.Errorf("byte %#x is %d, want %d", i, memory[i], want)
		}
	}
	if got := contents(t, f, Ring, 0, mib)[4096:4100]; !bytes.Equal(got, []byte{1, 2, 3, 0}) {
		t.Error("the ring has", got)
	}
	if got := contents(t, f, Data, 0, 8*mib)[5*mib]; got != 4 {
		t.Error("the data arena has", got)
	}
}

// What is zero costs nothing, however much it is.
func TestZerosCostNothing(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, About{ArenaBase: base, ArenaSize: 1 << 40})
	w.Allocations([]vmm.Range{{Addr: base, Size: 1 << 30}})
	before := w.Bytes()
	chunk := make([]byte, 2*mib)
	for at := uint64(0); at < 1<<30; at += uint64(len(chunk)) {
		w.Piece(Memory, base+at, chunk)
	}
	if w.Bytes() != before {
		t.Errorf("%d bytes for a GiB of zeros", w.Bytes()-before)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(out.Bytes()); err != nil {
		t.Error(err)
	}
}

// Every byte counts: one that is changed anywhere is found, and a file that breaks off
// anywhere is refused.
func TestDamageIsFound(t *testing.T) {
	good := sampleOf(t, 70_000)
	chance := rand.New(rand.NewPCG(1, 2))
	places := []int{}
	for i := range 400 {
		places = append(places, i%len(good))
	}
	for range 50 {
		places = append(places, chance.IntN(len(good)), len(good)-1-chance.IntN(400))
	}
	for _, at := range places {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << chance.IntN(8)
		if _, err := open(bad); !errors.Is(err, ErrFile) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
	}
	for _, n := range append(places, 0) {
		if _, err := open(good[:n]); !errors.Is(err, ErrFile) {
			t.Fatalf("cut off after %d bytes: %v", n, err)
		}
	}
	if _, err := open(append(bytes.Clone(good), 0)); !errors.Is(err, ErrFile) {
		t.Error("something follows:", err)
	}
}

// The message names what is damaged.
func TestDamageIsNamed(t *testing.T) {
	good := sample(t)
	bad := bytes.Clone(good)
	bad[bytes.Index(bad, bytes.Repeat([]byte{9}, 100))+5000] ^= 1
	version := bytes.Clone(good)
	version[len(magic)] = 9
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{bad, "record 4 (memory at 0x100300000, 2097152 bytes): it is damaged: its checksum is"},
		{version, "it has version 9, and this program knows version 1: use the Muster that wrote it"},
		{[]byte("#!/bin/sh\necho this is no checkpoint\n"), `it does not begin with "MusterCheckpoint"`},
		{nil, "it has 0 bytes"},
		{good[:len(good)-recordSize], "it breaks off after 9 records"},
		{good[:len(good)-recordSize-1], "record 8 (data at 0x500000, 1 bytes): it breaks off"},
	} {
		if _, err := open(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// forge makes a file of records with right checksums.
func forge(records ...record) []byte {
	b := binary.LittleEndian.AppendUint64([]byte(magic), Version)
	for _, r := range records {
		var data []byte
		switch {
		case r.kind == about:
			data = []byte(fmt.Sprintf(`{"taken":"2001-09-09T01:46:40Z","arena_base":%d,"arena_size":%d}`, base, 64*mib))
		case r.kind == allocations:
			data = putRanges([]vmm.Range{{Addr: base, Size: mib}})
		case r.size <= 4*mib:
			data = bytes.Repeat([]byte{1}, int(r.size))
		}
		if r.kind < Memory {
			r.size = uint64(len(data))
		}
		r.check = r.sum(data)
		head := make([]byte, recordSize)
		r.put(head)
		b = append(append(b, head...), data...)
	}
	return b
}

// A file whose checksums are right may still be nonsense.
func TestNonsenseIsRefused(t *testing.T) {
	a, l := record{kind: about}, record{kind: allocations}
	piece := func(at, size uint64) record { return record{kind: Memory, at: at, size: size} }
	last := func(n uint64) record { return record{kind: end, at: n} }
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{forge(a, l, piece(base, 5), piece(base+5, 5), last(4)), ""},
		{forge(l, last(1)), "it is not due here"},
		{forge(a, last(1)), "it is not due here"},
		{forge(a, a, l, last(3)), "it is not due here"},
		{forge(a, l, record{kind: core}, last(3)), "it is not due here"},
		{forge(a, l, last(1)), "there are 2 records before it"},
		{forge(a, l, last(2), last(3)), "24 bytes follow its end"},
		{forge(a, l, piece(base+5, 5), piece(base, 5), last(4)), "before the end of the piece before it"},
		{forge(a, l, piece(base, 5), piece(base+4, 5), last(4)), "before the end of the piece before it"},
		{forge(a, l, piece(base, 0), last(3)), "a piece has from 1 to"},
		{forge(a, l, piece(base, MaxPiece+1), last(3)), "a piece has from 1 to"},
		{forge(a, l, piece(^uint64(0), 1), last(3)), "a piece has from 1 to"},
		{forge(a, l, piece(base, 1<<60), last(3)), "it breaks off"},
		{forge(a, l, piece(base-1, 2), last(3)), "it lies in no allocation"},
		{forge(a, l, piece(base+mib-1, 2), last(3)), "it lies in no allocation"},
		{forge(a, l, record{kind: Ring, size: 1}, last(3)), "of which the file says nothing"},
		{forge(a, l, record{kind: 8}, last(3)), "there is no such kind"},
		{forge(a, record{kind: 0}, l, last(3)), "there is no such kind"},
	} {
		_, err := open(c.b)
		if (c.want == "") != (err == nil) || err != nil && (!errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// A file that changes after it was found to be whole is noticed before its bytes are
// used.
func TestFileChangesWhileItIsRead(t *testing.T) {
	b := sample(t)
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, bytes.Repeat([]byte{9}, 100))+5000] ^= 1
	err = f.Each(Memory, func(at uint64, data []byte) error {
		if at == base+3*mib {
			t.Error("a damaged piece was used")
		}
		return nil
	})
	if !errors.Is(err, ErrFile) {
		t.Error(err)
	}
}

// The error of whoever takes the pieces is his own.
func TestErrorsOfTheReaderArePassedOn(t *testing.T) {
	f, err := open(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Each(Memory, func(uint64, []byte) error { return syscall.ENOSPC }); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrFile) {
		t.Error(err)
	}
}

// fullDisk takes so many bytes.
type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if n := min(len(b), d.left); n < len(b) {
		d.left = 0
		return n, syscall.ENOSPC
	}
	d.left -= len(b)
	return len(b), nil
}

func TestFullDisk(t *testing.T) {
	for _, room := range []int{0, 10, 24, 100, 1000, 100_000} {
		w := NewWriter(&fullDisk{room}, testAbout())
		w.Core(nil)
		w.Allocations([]vmm.Range{{Addr: base, Size: mib}})
		w.Piece(Memory, base, bytes.Repeat([]byte{1}, mib))
		if err := w.End(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}

func TestWriterKeepsOrder(t *testing.T) {
	for _, wrong := range []func(w *Writer){
		func(w *Writer) { w.Core(nil); w.Core(nil) },
		func(w *Writer) { w.Allocations(nil); w.Core(nil) },
		func(w *Writer) {},
		func(w *Writer) { w.Allocations(nil); w.Piece(Memory, 5, []byte{1}); w.Piece(Memory, 5, []byte{1}) },
		func(w *Writer) { w.Allocations(nil); w.Piece(Data, 5, []byte{1}); w.Piece(Memory, 5, []byte{1}) },
	} {
		w := NewWriter(io.Discard, testAbout())
		wrong(w)
		if w.End() == nil {
			t.Error("records out of order were written")
		}
	}
}

// Whatever is accepted has a meaning, which is written again as the same.
func FuzzOpen(f *testing.F) {
	f.Add(sample(f)[:3000])
	f.Add(forge(record{kind: about}, record{kind: allocations}, record{kind: Memory, at: base, size: 5}, record{kind: end, at: 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := open(fix(b))
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Fatal(err)
			}
			return
		}
		var out bytes.Buffer
		w := NewWriter(&out, first.About)
		if first.Core != nil {
			w.Core(first.Core)
		}
		w.Allocations(first.Allocations)
		for _, k := range []Kind{Memory, Ring, Data} {
			if err := first.Each(k, func(at uint64, data []byte) error { w.Piece(k, at, data); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		second, err := open(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if len(second.Allocations) != len(first.Allocations) || !bytes.Equal(second.Core, first.Core) {
			t.Errorf("%+v became %+v", first, second)
		}
	})
}

// fix makes the checksums right, as far as there are records, so that the fuzzer gets
// behind them.
func fix(b []byte) []byte {
	b = bytes.Clone(b)
	for at := headSize; at+recordSize <= len(b); {
		r := getRecord(b[at:])
		if r.size > uint64(len(b)-at-recordSize) {
			break
		}
		r.check = r.sum(b[at+recordSize:][:r.size])
		r.put(b[at:])
		at += recordSize + int(r.size)
	}
	return b
}

// --- folders ---------------------------------------------------------------------

func draft(t *testing.T, dir string) *Draft {
	t.Helper()
	d, err := Begin(dir, OfClient, time.Unix(1e9, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create(3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("contents"); err != nil {
		t.Fatal(err)
	}
	d.Manifest.Clients = []Client{{File: filepath.Base(f.Name()), Client: 3}}
	f.Close()
	return d
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A folder has the old checkpoint until it has the new one, and nothing else.
func TestDraftReplacesTheOldOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := draft(t, dir).Commit(); err != nil {
		t.Fatal(err)
	}
	first, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	second := draft(t, dir)
	if now, err := ReadManifest(dir); err != nil || !reflect.DeepEqual(now.Clients[0], first.Clients[0]) {
		t.Fatal(now, err)
	}
	if _, err := Begin(dir, OfClient, time.Now()); err == nil || !strings.Contains(err.Error(), "another checkpoint or restore is under way") {
		t.Error(err)
	}
	second.Drop()
	if all := names(t, dir); len(all) != 2 {
		t.Error("after a draft was dropped:", all)
	}
	if err := draft(t, dir).Commit(); err != nil {
		t.Fatal(err)
	}
	now, err := ReadManifest(dir)
	if err != nil || reflect.DeepEqual(now.Clients[0], first.Clients[0]) || len(names(t, dir)) != 2 {
		t.Error(now, err, names(t, dir))
	}
	if mode, _ := os.Stat(filepath.Join(dir, now.Clients[0].File)); mode.Mode().Perm() != 0o600 {
		t.Error("others can read it:", mode.Mode())
	}
}

func TestDraftSparesOtherFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(dir, OfClient, time.Now()); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Error(err)
	}
	fresh := filepath.Join(dir, "new")
	draft(t, fresh).Drop()
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder of a dropped draft is still there:", err)
	}
}

func TestManifestsAreCheckedStrictly(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"version":1,"kind":"client","taken":"2001-09-09T01:46:40Z","clients":[{"file":"client-1"}]}`, ""},
		{`{"version":2}`, "it has version 2"},
		{`{"version":1,"kind":"x"}`, `it is of a "x"`},
		{`{"version":1,"kind":"client"}`, "this has 0"},
		{`{"version":1,"kind":"program"}`, "of a program it says nothing"},
		{`{"version":1,"kind":"client","clients":[{"file":"../client-1"}]}`, "is no name of a file"},
		{`{"version":1,"kind":"client","clients":[{"file":"/etc/passwd"}]}`, "is no name of a file"},
		{`{"version":1,"kind":"program","clients":[{"file":"client-1"},{"file":"client-1"}],"program":{"images":"images-1"}}`, "it names client-1 twice"},
		{`{"version":1,"kind":"client","clients":[{"file":"client-1"}],"more":1}`, "unknown field"},
		{`{"version":1,"kind":"client","clients":[{"file":"client-1"}]}{}`, "something follows"},
		{``, "not a JSON object"},
	} {
		_, err := decodeManifest([]byte(c.text))
		if (c.want == "") != (err == nil) || err != nil && (!errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v\nwant %s", c.text, err, c.want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"version":1,"kind":"program","taken":"2001-09-09T01:46:40Z","clients":[{"file":"client-1","client":3,"socket":5}],"program":{"images":"images-1","root":7,"pids":[7],"stdio":["a"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeManifest(text)
		if err != nil {
			return
		}
		for _, name := range m.files() {
			if strings.ContainsAny(name, "/\x00") && strings.Contains(name, "/") {
				t.Errorf("%q", name)
			}
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	chunk := make([]byte, 2*mib)
	for i := range chunk {
		chunk[i] = byte(i*7 + i>>8)
	}
	for _, c := range []struct {
		name string
		data []byte
	}{{"full", chunk}, {"zero", make([]byte, 2*mib)}} {
		b.Run(c.name, func(b *testing.B) {
			w := NewWriter(io.Discard, testAbout())
			w.Allocations(nil)
			b.SetBytes(int64(len(c.data)))
			for i := range b.N {
				w.Piece(Memory, base+uint64(i)*2*mib, c.data)
			}
		})
	}
}
