package wire

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
)

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 10, ""},
		{"ten bytes.", 10, "ten bytes."},
		{"eleven byte", 10, "eleven..."},
		{"the disk is full: make room", 21, "the disk is full..."},
		{"withoutanyword", 10, "without..."},
		{"éééééééé", 10, "ééé..."},
		{" " + strings.Repeat("x", 200), 150, " " + strings.Repeat("x", 146) + "..."}, // no word is near
	} {
		if got := shorten(c.text, c.most); got != c.want || len(got) > c.most {
			t.Errorf("%q in %d bytes is %q, not %q", c.text, c.most, got, c.want)
		}
	}
}

func TestNotices(t *testing.T) {
	s := newShared(t, smallest)
	if got := s.Notices(); got != nil {
		t.Errorf("at first there are %q", got)
	}
	long := strings.Repeat("word ", 1000)
	for round := range 100 { // the bytes go round
		want := []string{fmt.Sprintf("notice %d", round), "é in two lines", long[:len("word ")*199-1] + "..."}
		for _, text := range []string{want[0], "é in\ntwo \x1blines\x00", long} {
			if !s.Notify(text) {
				t.Fatalf("round %d: there is no room for a notice", round)
			}
		}
		if got := s.Notices(); !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: got %q", round, got)
		}
	}
	if got := s.Notices(); got != nil {
		t.Errorf("they come again: %q", got)
	}
}

// A worker that replaces another continues where that one stopped.
func TestNoticesOfTheNextWorker(t *testing.T) {
	ring, arena, err := Create(smallest)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	mapped := func() *Shared {
		s, err := Map(ring, arena)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Unmap)
		return s
	}
	program := mapped()
	for _, text := range []string{"of the first", "of the second", "of the third"} {
		if !mapped().Notify(text) {
			t.Fatal("there is no room for a notice", text)
		}
		if got := program.Notices(); !reflect.DeepEqual(got, []string{text}) {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

// A program that reads nothing loses the later notices, and not the earlier ones.
func TestNoticesThatNobodyReads(t *testing.T) {
	s := newShared(t, smallest)
	kept := 0
	for s.Notify(fmt.Sprintf("notice number %d", kept)) {
		kept++
	}
	if got := s.Notices(); kept < 50 || len(got) != kept || got[0] != "notice number 0" {
		t.Errorf("%d were kept: %q", kept, got)
	}
	if !s.Notify("there is room again") {
		t.Error("there is no room when all were read")
	}
}

// A consumer that replaces one that has died writes its notices after those of that one, whether
// the program has read them or not.
func TestNoticesOfTheNextConsumer(t *testing.T) {
	ring, arena, err := Create(smallest)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	mapped := func() *Shared {
		s, err := Map(ring, arena)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Unmap)
		return s
	}
	program := mapped()
	for round := range 40 { // the bytes go round
		s := mapped()
		if round > 0 {
			NewConsumer(s).Resume(0, 0)
		}
		text := fmt.Sprintf("%d %s", round, strings.Repeat("x", 500))
		if !s.Notify(text) {
			t.Fatalf("round %d: there is no room for a notice", round)
		}
		if round%3 == 0 {
			continue // read later
		}
		got := program.Notices()
		if len(got) == 0 || got[len(got)-1] != text {
			t.Fatalf("round %d: got %q", round, got)
		}
		if want := 3 - round%3; len(got) != want {
			t.Fatalf("round %d: got %d notices, %d were expected", round, len(got), want)
		}
	}
}

// Neither side can do harm with its count.
func TestNoticesOfALiar(t *testing.T) {
	s := newShared(t, smallest)
	for _, lie := range []uint32{1, 1 << 31, noticesSize + 1, ^uint32(0)} {
		atomic.StoreUint32(s.u32(atNoticesRead), lie)
		s.Notify("a notice") // may get lost
		atomic.StoreUint32(s.u32(atNoticesWritten), s.notices.read+lie)
		for _, line := range s.Notices() {
			if len(line) > noticesSize {
				t.Errorf("a notice of %d bytes", len(line))
			}
		}
	}
	copy(s.ring[atNotices:], "\x1b[2J\xff\n")
	atomic.StoreUint32(s.u32(atNoticesWritten), s.notices.read+noticesSize)
	for _, line := range s.Notices() {
		if strings.ContainsAny(line, "\x1b\n\x00") {
			t.Errorf("%q would do harm to a terminal", line)
		}
	}
}

// A reason may come from another machine, and is shown on a terminal.
func TestReasonsDoNotCommandTerminals(t *testing.T) {
	ring, arena, err := Create(Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 4 << 20, Pinned: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	shared.Close("it ended\x1b]0;title\x07\nand \u009b31m more")
	if got, closed := shared.Closed(); !closed || got != "it ended]0;title and 31m more" {
		t.Errorf("%q", got)
	}
}
