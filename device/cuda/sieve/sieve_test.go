package sieve

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Take returns all messages of assertions that were written before, and everything else that is
// written to standard error is passed on.
func TestSieve(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	s := New(&rest)
	var running sync.WaitGroup
	running.Go(func() { s.Run(in) })
	write := func(text string) bool { _, err := out.WriteString(text); return err == nil }
	assertion := func(thread int) string {
		return fmt.Sprintf("a.cu:7: void f(int): block: [1,0,0], thread: [%d,0,0] Assertion `x < \"%%s: y\"` failed.\n", thread)
	}
	if got := s.Take(write); len(got) != 0 {
		t.Errorf("found %q in nothing", got)
	}
	var want strings.Builder
	for i := range 3000 { // more than a pipe holds
		write(assertion(i))
		want.WriteString(assertion(i))
	}
	write("time=now level=INFO msg=\"Assertion of another kind failed.\"\n")
	write("no end of a line")
	if got := s.Take(write); string(got) != want.String() {
		t.Errorf("found %d bytes, want %d", len(got), want.Len())
	}
	if got := s.Take(write); len(got) != 0 {
		t.Errorf("found %q a second time", got)
	}
	write("panic: the last words")
	out.Close()
	running.Wait()
	if got := s.Take(func(string) bool { return true }); len(got) != 0 { // the reader has ended, and take must not wait for it
		t.Errorf("found %q after the end", got)
	}
	if want := "time=now level=INFO msg=\"Assertion of another kind failed.\"\nno end of a linepanic: the last words"; rest.String() != want {
		t.Errorf("the rest is %q, want %q", rest.String(), want)
	}
}

// widest records the largest single write, and the total.
type widest struct{ piece, all int }

func (w *widest) Write(b []byte) (int, error) {
	w.piece, w.all = max(w.piece, len(b)), w.all+len(b)
	return len(b), nil
}

// A kernel may print anything: endless lines, and text that looks like a mark.
func TestSieveOfHostileText(t *testing.T) {
	var out widest
	s := New(&out)
	const size = 8 << 20
	s.Run(strings.NewReader(strings.Repeat("x", size)))
	if out.all != size || out.piece > 2*longestLine {
		t.Errorf("of a line without end %d bytes came, up to %d at once", out.all, out.piece)
	}
	s = New(&out)
	s.marks = 2
	for _, tt := range []struct {
		line   string
		passed uint64
	}{
		{markLine + "9\n", 0}, // was never issued
		{markLine + "no number\n", 0},
		{"text " + markLine + "9 more " + markLine + "1\n", 1},
		{markLine + "0\n", 1}, // passed must not go back, or take would wait for ever
		{markLine + "2\n", 2},
	} {
		if s.line([]byte(tt.line)); s.passed != tt.passed {
			t.Errorf("after %q mark %d was read, want %d", tt.line, s.passed, tt.passed)
		}
	}
	for before := 0; before < 4; before++ { // a mark across the boundary of what is read at once
		s := New(&out)
		s.marks = 1
		s.Run(strings.NewReader(strings.Repeat("x", longestLine-len(markLine)/4*before) + markLine + "1\n"))
		if s.passed != 1 {
			t.Errorf("a mark %d bytes before the end of a piece was not read", len(markLine)/4*before)
		}
	}
	s = New(&out)
	s.found = make([]byte, mostFound-8)
	for range 2 {
		s.line([]byte("a.cu:7: f: block: [1,0,0], thread: [0,0,0] Assertion `x` failed.\n"))
	}
	if len(s.found) > mostFound {
		t.Errorf("%d bytes are kept", len(s.found))
	}
}
