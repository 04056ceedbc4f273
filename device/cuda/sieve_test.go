package cuda

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// What the driver writes of assertions is found, all of it that was written before, and
// what else is written to standard error goes where it went.
func TestSieve(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	s := newSieve(&rest)
	var running sync.WaitGroup
	running.Go(func() { s.run(in) })
	write := func(text string) bool { _, err := out.WriteString(text); return err == nil }
	assertion := func(thread int) string {
		return fmt.Sprintf("a.cu:7: void f(int): block: [1,0,0], thread: [%d,0,0] Assertion `x < \"%%s: y\"` failed.\n", thread)
	}
	if got := s.take(write); len(got) != 0 {
		t.Errorf("found %q in nothing", got)
	}
	var want strings.Builder
	for i := range 3000 { // more than a pipe holds
		write(assertion(i))
		want.WriteString(assertion(i))
	}
	write("time=now level=INFO msg=\"Assertion of another kind failed.\"\n")
	write("no end of a line")
	if got := s.take(write); string(got) != want.String() {
		t.Errorf("found %d bytes, want %d", len(got), want.Len())
	}
	if got := s.take(write); len(got) != 0 {
		t.Errorf("found %q a second time", got)
	}
	write("panic: the last words")
	out.Close()
	running.Wait()
	if got := s.take(func(string) bool { return true }); len(got) != 0 { // nobody reads any more
		t.Errorf("found %q after the end", got)
	}
	if want := "time=now level=INFO msg=\"Assertion of another kind failed.\"\nno end of a linepanic: the last words"; rest.String() != want {
		t.Errorf("the rest is %q, want %q", rest.String(), want)
	}
}
