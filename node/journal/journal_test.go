package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// testMemory is the memory of a journal with areas of so many bytes.
func testMemory(area int) []byte { return make([]byte, headSize+2*area) }

// testJournal is a journal in memory, with a log of at most limit bytes, and with a
// base if there are sections.
func testJournal(t testing.TB, area int, limit uint64, sections ...string) *Journal {
	t.Helper()
	j, err := open(testMemory(area), limit)
	if err != nil {
		t.Fatal(err)
	}
	if sections != nil {
		commit(t, j, sections...)
	}
	return j
}

func commit(t testing.TB, j *Journal, sections ...string) {
	t.Helper()
	if err := tryCommit(j, sections...); err != nil {
		t.Fatal(err)
	}
}

func tryCommit(j *Journal, sections ...string) error {
	var all [][]byte
	for _, s := range sections {
		all = append(all, []byte(s))
	}
	return j.Commit(all...)
}

// view is everything that a journal tells whoever rebuilds the client.
func view(j *Journal) string {
	if !j.Valid() {
		return "nothing"
	}
	var b strings.Builder
	sections, err := j.Base()
	if err != nil {
		return err.Error()
	}
	fmt.Fprintf(&b, "base %q", sections)
	for r, err := range j.Log() {
		switch {
		case err != nil:
			return err.Error()
		case r.Note != nil:
			fmt.Fprintf(&b, "\nnote %+v", *r.Note)
		case r.Fact != nil:
			fmt.Fprintf(&b, "\nfact of %d %q", r.Fact.Of.at, r.Fact.About)
		default:
			m := r.Message
			fmt.Fprintf(&b, "\n%d %q", m.Position, m.Bytes)
			if m.Data != nil {
				fmt.Fprintf(&b, " data %q", m.Data)
			}
			if m.Marks&Done != 0 {
				b.WriteString(" done")
			}
			if m.Marks&Refused != 0 {
				fmt.Fprintf(&b, " refused %d", m.Result)
			}
			if m.Given > 0 {
				fmt.Fprintf(&b, " given %d", m.Given)
			}
		}
	}
	return b.String()
}

// again is the journal as another process finds it: from a copy of the memory.
func again(t testing.TB, j *Journal) *Journal {
	t.Helper()
	other, err := open(bytes.Clone(j.mem), j.limit)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// reads fails if the journal, or what another process makes of it, tells something
// else.
func reads(t testing.TB, j *Journal, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n")
	if got := view(j); got != want {
		t.Errorf("the journal says\n%s\nand should say\n%s", got, want)
	}
	if got := view(again(t, j)); got != want {
		t.Errorf("another process reads\n%s\nand should read\n%s", got, want)
	}
}

func attach(j *Journal, e Entry, data string) bool {
	fill := j.Reserve(e, uint64(len(data)))
	if fill != nil {
		fill.Fill([]byte(data))
	}
	return fill != nil
}

const area, limit = 4096, 1024

func TestJournal(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*Journal)
		want []string
	}{
		{"nothing", func(*Journal) {}, []string{`base ["a" "" "ccc"]`}},
		{"messages", func(j *Journal) { j.Append(7, []byte("one")); j.Append(9, nil) },
			[]string{`base ["a" "" "ccc"]`, `7 "one"`, `9 ""`}},
		{"data", func(j *Journal) {
			first, second := j.Append(7, []byte("one")), j.Append(9, []byte("two"))
			attach(j, second, "of the second")
			attach(j, first, "of the first")
		}, []string{`base ["a" "" "ccc"]`, `7 "one" data "of the first"`, `9 "two" data "of the second"`}},
		{"data of no bytes", func(j *Journal) { attach(j, j.Append(7, []byte("one")), "") },
			[]string{`base ["a" "" "ccc"]`, `7 "one" data ""`}},
		{"data that are not there yet", func(j *Journal) { j.Reserve(j.Append(7, []byte("one")), 100); j.Append(9, []byte("two")) },
			[]string{`base ["a" "" "ccc"]`, `7 "one"`, `9 "two"`}},
		{"data twice", func(j *Journal) {
			e := j.Append(7, []byte("one"))
			attach(j, e, "first")
			attach(j, e, "second")
		}, []string{`base ["a" "" "ccc"]`, `7 "one" data "second"`}},
		{"marks", func(j *Journal) {
			one, two, three := j.Append(7, []byte("one")), j.Append(8, []byte("two")), j.Append(9, []byte("three"))
			j.Refuse(two, -5)
			j.Mark(one, Done)
			j.Refuse(three, 2)
			j.Mark(three, Done)
			j.Mark(three, Done)
		}, []string{`base ["a" "" "ccc"]`, `7 "one" done`, `8 "two" refused -5`, `9 "three" done refused 2`}},
		{"notes", func(j *Journal) {
			j.Note(Note{Cookie: 1 << 40, Slot: 3, Seq: 1<<32 - 1})
			j.Append(1, []byte("x"))
			j.Note(Note{})
		}, []string{`base ["a" "" "ccc"]`, `note {Cookie:1099511627776 Slot:3 Seq:4294967295}`, `1 "x"`, `note {Cookie:0 Slot:0 Seq:0}`}},
		{"given", func(j *Journal) { j.Give(j.Append(7, []byte("one")), 5); j.Append(8, []byte("two")) },
			[]string{`base ["a" "" "ccc"]`, `7 "one" given 5`, `8 "two"`}},
		{"attached", func(j *Journal) {
			j.Attach(j.Append(7, []byte("one")), []byte("data"))
			if j.Attach(Entry{}, nil) || j.Attach(j.Append(8, nil), make([]byte, limit)) {
				t.Error("data of nothing, and too many, were attached")
			}
		}, []string{`base ["a" "" "ccc"]`, `7 "one" data "data"`, `8 ""`}},
		{"no entry", func(j *Journal) {
			if j.Reserve(Entry{}, 1) != nil {
				t.Error("there is room for data of nothing")
			}
			j.Mark(Entry{}, Done)
			j.Refuse(Entry{}, 1)
		}, []string{`base ["a" "" "ccc"]`}},
		{"invalid", func(j *Journal) { j.Append(1, []byte("x")); j.Invalidate() }, []string{"nothing"}},
		{"after it was invalid", func(j *Journal) {
			e := j.Append(1, []byte("x"))
			j.Invalidate()
			if got := j.Append(2, []byte("y")); got != (Entry{}) {
				t.Errorf("a message that does not count has entry %v", got)
			}
			j.Note(Note{Cookie: 1})
			attach(j, e, "data")
			commit(t, j, "new")
			j.Append(3, []byte("z"))
		}, []string{`base ["new"]`, `3 "z"`}},
		{"a base without sections", func(j *Journal) { j.Append(1, []byte("x")); commit(t, j) }, []string{"base []"}},
		{"many bases", func(j *Journal) {
			for i := range 100 {
				j.Append(1, []byte(strings.Repeat("old", i)))
				commit(t, j, strings.Repeat("b", 100-i), fmt.Sprint(i))
			}
			j.Append(2, []byte("y"))
		}, []string{`base ["b" "99"]`, `2 "y"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := testJournal(t, area, limit, "a", "", "ccc")
			c.do(j)
			reads(t, j, c.want...)
		})
	}
}

// Whoever reads a log can go on writing to it, and to its entries.
func TestLogIsGoneOnWith(t *testing.T) {
	j := testJournal(t, area, limit, "base")
	j.Append(1, []byte("one"))
	j.Note(Note{Cookie: 5})
	j.Append(2, []byte("two"))
	next := again(t, j)
	for r, err := range next.Log() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Message != nil && r.Message.Position == 2 {
			next.Refuse(r.Message.Entry, 7)
			attach(next, r.Message.Entry, "data")
		}
	}
	next.Append(3, []byte("three"))
	reads(t, next, `base ["base"]`, `1 "one"`, `note {Cookie:5 Slot:0 Seq:0}`, `2 "two" data "data" refused 7`, `3 "three"`)
	for range next.Log() {
		break // one who stops early
	}
}

// A log that is full makes the journal invalid; data that do not fit do not.
func TestLogIsFull(t *testing.T) {
	for _, c := range []struct {
		name string
		area int
		room uint64 // of the log with a base of 8 + 8 + 4 bytes
	}{{"by the limit", 1 << 20, limit}, {"by the area", 512, 512 - areaHead - 24}} {
		t.Run(c.name, func(t *testing.T) {
			j := testJournal(t, c.area, limit, "base")
			if got := j.Room(); got != c.room || j.Used() != 0 {
				t.Fatalf("there is room for %d bytes where %d are used, and should be for %d", got, j.Used(), c.room)
			}
			e := j.Append(1, []byte("x"))
			left := j.Room()
			for _, n := range []uint64{left - dataHead + 1, left, 1 << 32, 1<<64 - dataHead, 1<<64 - 1} {
				if j.Reserve(e, n) != nil {
					t.Errorf("%d bytes fit into %d", n, left)
				}
			}
			reads(t, j, `base ["base"]`, `1 "x"`)
			if j.Append(2, make([]byte, left-messageHead)) == (Entry{}) || j.Room() != 0 || j.Used() != c.room {
				t.Fatalf("a message that just fits does not: %d bytes are left", j.Room())
			}
			if !j.Valid() {
				t.Fatal("a log that is just full is not valid")
			}
			if j.Append(3, nil) != (Entry{}) || j.Valid() {
				t.Error("a message fits into a full log")
			}
			reads(t, j, "nothing")
			commit(t, j, "base")
			if j.Room() != c.room {
				t.Errorf("a new log has room for %d bytes", j.Room())
			}
			for j.Valid() {
				j.Note(Note{Cookie: 1})
			}
			if got := j.Room(); got >= noteEnd {
				t.Errorf("a note does not fit where %d bytes are left", got)
			}
			reads(t, j, "nothing")
		})
	}
}

// A base that is too large is refused, and everything is as it was. What is left
// beside the largest is the log's.
func TestBaseTooLarge(t *testing.T) {
	for _, c := range []struct {
		name  string
		area  int
		limit uint64
		most  int // bytes of a base with one section, without its sizes
	}{
		{"beside its log", 4096, 1024, 4096 - areaHead - 1024 - 16},
		{"at least half is the log's", 4096, 1 << 20, 4096 - areaHead - 2048 - 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := testJournal(t, c.area, c.limit, "base")
			e := j.Append(1, []byte("one"))
			before := view(j)
			for _, size := range []int{c.most + 1, c.most + 7, c.area, 10 * c.area} {
				if err := tryCommit(j, strings.Repeat("x", size)); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("a base of %d bytes: %v", size, err)
				}
				reads(t, j, before)
			}
			j.Mark(e, Done)
			reads(t, j, `base ["base"]`, `1 "one" done`)
			commit(t, j, strings.Repeat("x", c.most))
			if want := min(c.limit, uint64(c.area)/2); j.Room()/8 != want/8 {
				t.Errorf("the log has room for %d bytes, and should have %d", j.Room(), want)
			}
			many := make([]string, c.most/8+2) // sections without bytes
			if err := tryCommit(j, many...); !errors.Is(err, ErrTooLarge) {
				t.Errorf("a base of %d sections: %v", len(many), err)
			}
		})
	}
	for _, area := range []int{areaHead, areaHead + 8, areaHead + 24, 2 * areaHead} {
		j := testJournal(t, area, limit)
		if err := tryCommit(j, strings.Repeat("x", area)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("in an area of %d bytes: %v", area, err)
		}
	}
}

// After a Commit, marks and data of entries before it have no effect: nor on the base
// and the log that take their place in memory, the next but one.
func TestEntriesOfAnEarlierLog(t *testing.T) {
	for commits := 1; commits <= 4; commits++ {
		j := testJournal(t, area, limit, "base")
		old := j.Append(1, []byte("old"))
		fill := j.Reserve(old, 100)
		for range commits {
			commit(t, j, strings.Repeat("b", 200))
			j.Append(2, []byte("new"))
		}
		want := view(j)
		j.Mark(old, Done)
		j.Refuse(old, 5)
		j.Give(old, 5)
		fill.Fill(bytes.Repeat([]byte("#"), 100))
		if j.Reserve(old, 8) != nil || j.Attach(old, []byte("#")) {
			t.Error("there is room for data of an entry that does not count")
		}
		reads(t, j, want)
	}
}

// What others than the owner do late, when the memory has been given back, is nothing.
func TestAfterUnmap(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(headSize + 2*area); err != nil {
		t.Fatal(err)
	}
	j, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, "base")
	e := j.Append(1, []byte("one"))
	fill := j.Reserve(e, 3)
	j.Unmap()
	fill.Fill([]byte("abc"))
	j.Mark(e, Done)
	j.Refuse(e, 1)
	if j, err = Map(f); err != nil {
		t.Fatal(err)
	}
	reads(t, j, `base ["base"]`, `1 "one"`)
	j.Unmap()
}

// Others mark while the owner appends and commits.
func TestMarksFromOthers(t *testing.T) {
	j := testJournal(t, 1<<16, 1<<15, "base")
	var group sync.WaitGroup
	for i := range 300 {
		e := j.Append(uint64(i), []byte("message"))
		fill := j.Reserve(e, 8)
		group.Go(func() {
			fill.Fill([]byte("01234567"))
			j.Mark(e, Done)
		})
		if i%10 == 9 {
			commit(t, j, "base", "of", fmt.Sprint(i))
		}
	}
	group.Wait()
	reads(t, j, `base ["base" "of" "299"]`)
}

func TestMapRefuses(t *testing.T) {
	good := func() []byte {
		return bytes.Clone(testJournal(t, area, limit, "base").mem)
	}
	put := func(b []byte, at int, v byte) []byte { b[at] = v; return b }
	inArea := headSize + area // the second one is in use: it has the first base
	for _, c := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"empty", nil, "a journal of 0 bytes"},
		{"too small", make([]byte, headSize+2*areaHead-1), "a journal of 4223 bytes"},
		{"something else", put(good(), atMagic, 1), "the journal was made by another version"},
		{"another version", put(good(), atVersion, version+1), "the journal was made by another version"},
		{"another size", append(good(), make([]byte, 16)...), "the journal was made by another version"},
		{"a large base", put(good(), inArea+atBaseSize+7, 1), "the journal is damaged: a base of 72057594037927956 bytes"},
		{"a base beyond the area", put(good(), inArea+atBaseSize+1, 0x10), "the journal is damaged: a base of 4116 bytes"},
		{"a large log", put(good(), inArea+atLogSize+7, 1), "the journal is damaged: a log of 72057594037927936 bytes"},
		{"a crooked log", put(good(), inArea+atLogSize, 1), "the journal is damaged: a log of 1 bytes"},
	} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write(c.bytes); err != nil {
			t.Fatal(err)
		}
		if _, err := Map(f); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(Size + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(f); err == nil {
		t.Error("a journal of more bytes than any has")
	}
	j := testJournal(t, area, limit)
	if _, err := j.Base(); err == nil {
		t.Error("a new journal has a base")
	}
}

func BenchmarkAppend(b *testing.B) {
	j := testJournal(b, 64<<20, 32<<20, "base")
	message := make([]byte, 64)
	for b.Loop() {
		if j.Room() < 1024 {
			commit(b, j, "base")
		}
		j.Mark(j.Append(1, message), Done)
	}
}

// Large data begin at a page, in the granules that were named before, and count when a device has
// written them.
func TestDeviceWritesData(t *testing.T) {
	mem := make([]byte, headSize+2*(4<<20))
	j, err := open(mem, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Commit([]byte("base")); err != nil {
		t.Fatal(err)
	}
	const n, granule = 100_000, 256 << 10
	var want [][]byte
	for i := range 5 {
		e := j.Append(uint64(i), bytes.Repeat([]byte("m"), 50+13*i))
		ahead := j.Ahead(n, granule)
		space := j.Reserve(e, n)
		if space == nil {
			t.Fatal("the data do not fit")
		}
		to := space.Memory()
		data := bytes.Repeat([]byte{byte('a' + i)}, n)
		copy(to, data)
		var held int
		for _, g := range ahead {
			if g.At%granule != 0 || !bytes.Equal(g.Memory, mem[g.At:g.At+uint64(len(g.Memory))]) {
				t.Errorf("a granule at %d with other memory", g.At)
			}
			held += bytes.Count(g.Memory, data[:1])
		}
		if held < n {
			t.Errorf("%d of %d bytes are in the granules", held, n)
		}
		if from := bytes.Index(mem, data); from%4096 != 0 {
			t.Errorf("data begin at %d", from)
		}
		if i != 2 { // whose device dies
			space.Count()
			want = append(want, data)
		} else {
			want = append(want, nil)
		}
	}
	again, err := open(mem, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	for r, err := range again.Log() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Message.Data)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Error("the log has other data")
	}
}
