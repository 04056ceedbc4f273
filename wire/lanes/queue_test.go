package lanes

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Several parcels may arrive at a time, in any order, and what waits for them is done in order.
func TestQueueKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, end := stranger(t, 2)
		defer end()
		var did []string
		var all sync.WaitGroup
		q := NewQueue(func(serve func()) { all.Go(serve) }, func(error) {})
		defer all.Wait()
		defer q.End(ErrClosed)
		if !q.Idle() {
			t.Error("it has something to do")
		}
		memory := make([]byte, 12)
		add := func(name string, at, size uint64) {
			p, err := l.Expect(at, memory[at:at+size])
			if err == nil {
				err = q.Do(p, 0, func() error { did = append(did, name+string(memory[at:at+size])); return nil })
			}
			if err == nil {
				err = q.Do(nil, 1, func() error { did = append(did, "then"); return nil })
			}
			if err != nil {
				t.Error(err)
			}
		}
		add("first ", 0, 4)
		add("second ", 4, 4)
		if _, err := far[1].Write(append(pieceOf(1, 0, 4, 0), "efgh"...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(did) != 0 || q.Idle() {
			t.Error("something was done before the first parcel was there:", did)
		}
		overlapping := make(chan struct{})
		go func() { // which waits for the first parcel, whose bytes it replaces
			add("third ", 2, 2)
			close(overlapping)
		}()
		synctest.Wait()
		if l.due != 2 {
			t.Error("a parcel is due where another one is still arriving")
		}
		if _, err := far[0].Write(append(pieceOf(0, 0, 4, 0), "abcd"...)); err != nil {
			t.Fatal(err)
		}
		<-overlapping
		synctest.Wait() // or the first item would see what replaces its bytes
		if _, err := far[0].Write(append(pieceOf(2, 0, 2, 0), "CD"...)); err != nil {
			t.Fatal(err)
		}
		if err := q.Drain(); err != nil {
			t.Error(err)
		}
		want := []string{"first abcd", "then", "second efgh", "then", "third CD", "then"}
		for i := range want {
			if len(did) != len(want) || did[i] != want[i] {
				t.Fatalf("it did %q", did)
			}
		}
	})
}

// After an error nothing more is done, and nobody waits.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(time.Hour, time.Second)
		broken := errors.New("broken")
		var told error
		var all sync.WaitGroup
		q := NewQueue(func(serve func()) { all.Go(serve) }, func(err error) { told = err })
		p, err := l.Expect(0, make([]byte, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Do(p, 0, func() error { t.Error("it was done"); return nil }); err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		go func() { results <- q.Drain() }()
		go func() {
			var err error
			for range queueItems + 2 { // more than there is room for
				err = q.Do(nil, 1, func() error { return nil })
			}
			results <- err
		}()
		synctest.Wait()
		if len(q.items) > queueItems {
			t.Errorf("it holds %d items", len(q.items))
		}
		l.Close(broken)
		all.Wait()
		for range 2 {
			if err := <-results; !errors.Is(err, broken) {
				t.Error(err)
			}
		}
		if !errors.Is(told, broken) || !errors.Is(q.Err(), broken) {
			t.Error(told, q.Err())
		}
	})
}

// What is queued is bounded by its bytes, too; one item may have more.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var all sync.WaitGroup
		q := NewQueue(func(serve func()) { all.Go(serve) }, func(error) {})
		for _, bytes := range []int{0, 2 * queueBytes} {
			if err := q.Do(nil, bytes, func() error { <-goOn; return nil }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		added := make(chan error)
		go func() { added <- q.Do(nil, 1, func() error { return nil }) }()
		synctest.Wait()
		if len(q.items) != 1 {
			t.Errorf("it holds %d items", len(q.items))
		}
		close(goOn)
		if err := errors.Join(<-added, q.Drain()); err != nil {
			t.Error(err)
		}
		q.End(ErrClosed)
		all.Wait()
	})
}
