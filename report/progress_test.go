package report

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := NewProgress(&out, true, "simulating\x1b[2J", 1000)
	p.Now = func() time.Time { return now }
	p.Set(0)
	for i := 0; i < 100; i++ { // 10 s in steps of 0.1 s, then 50 ms that draw nothing
		now = now.Add(100 * time.Millisecond)
		p.Add(5)
	}
	now = now.Add(50 * time.Millisecond)
	p.Add(100)
	frames := strings.Split(out.String(), "\r")[1:]
	if len(frames) != 101 {
		t.Errorf("%d drawings, want 101", len(frames))
	}
	if got, want := frames[100], "simulating\uFFFD[2J  ██████████░░░░░░░░░░  50 %  10 s left\x1b[K"; got != want {
		t.Errorf("drew %q, want %q", got, want)
	}
	p.Done()
	p.Add(1)
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("the bar is still there: %q", frames[len(frames)-1])
	}
}

func TestProgressCountsWithoutATotal(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, true, "reading", 0)
	p.Now = func() time.Time { return time.Unix(0, 0) }
	p.Set(12345)
	if got, want := out.String(), "\rreading  12,345\x1b[K"; got != want {
		t.Errorf("drew %q, want %q", got, want)
	}
}

func TestProgressIsSilentElsewhere(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, false, "x", 10)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { p.Add(1) })
	}
	all.Wait()
	p.Done()
	if out.Len() > 0 {
		t.Errorf("wrote %q", out.String())
	}
}

// Where there is no terminal, a long task writes a line now and then, so that nobody takes it for
// stuck.
func TestProgressInLines(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := NewProgress(&out, false, "tsubame", 1000)
	p.Now = func() time.Time { return now }
	p.Set(0)
	for range 70 { // s
		now = now.Add(time.Second)
		p.Add(10)
	}
	p.Done()
	now = now.Add(time.Hour)
	p.Add(1)
	if got, want := out.String(), "tsubame: 30 %, 1 min 10 s left\ntsubame: 60 %, 40 s left\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	counting := NewProgress(&out, false, "reading", 0)
	counting.Now = func() time.Time { return now }
	out.Reset()
	counting.Set(1)
	now = now.Add(time.Minute)
	counting.Set(12345)
	if got, want := out.String(), "reading: 12,345\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}
