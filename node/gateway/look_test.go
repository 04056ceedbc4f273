package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"muster/internal/door"
	"muster/wire"
	"muster/wire/client"
)

// What holds of readers that sleep holds of those that look.
func TestReadersThatLook(t *testing.T) {
	if testing.Short() {
		t.Skip("it repeats other tests")
	}
	defer door.SetLookers(door.SetLookers(4))
	for name, test := range map[string]func(*testing.T){
		"results": func(t *testing.T) {
			w := newWorld(t, testGeometry, nil)
			sameResults(t, w.daemon.socket, w.socket, 2)
		},
		"status":         TestStatusPrintAndNames,
		"host functions": TestHostFunctions,
		"reasons":        TestTheReasonComesThrough,
		"never reads":    TestNeverReads,
		"slot twice":     TestSlotTwice,
		"busy worker":    TestGoesWhileTheWorkerIsBusy,
		"lanes":          TestLanesAreLikeTheRing,
		"shutdown":       TestShutdownIsTold,
	} {
		t.Run(name, test)
	}
}

// Whoever puts something into the box, and however much, it is written in order.
func TestOutboxKeepsOrder(t *testing.T) {
	var written []uint64
	box := newOutbox(bufio.NewWriter(&bytes.Buffer{}), func(_ sink, o outgoing) error {
		written = append(written, o.offset)
		return nil
	})
	var served sync.WaitGroup
	served.Go(func() {
		if _, err := box.serve(); err != nil {
			t.Error(err)
		}
	})
	var order sync.Mutex // as a bridge's mu
	var next uint64
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			for i := range 500 {
				order.Lock()
				for range i%3 + 1 {
					box.put(outgoing{offset: next, data: make([]byte, (i%7)*who*small/8)})
					next++
				}
				if err := box.push(); err != nil {
					t.Error(err)
				}
				order.Unlock()
			}
		})
	}
	all.Wait()
	box.end()
	served.Wait()
	if uint64(len(written)) != next {
		t.Errorf("%d of %d were written", len(written), next)
	}
	for i, n := range written {
		if uint64(i) != n {
			t.Fatalf("%d came in place %d", n, i)
		}
	}
}

// Nobody waits for a box whose connection is broken.
func TestOutboxThatBreaks(t *testing.T) {
	broken := errors.New("broken")
	box := newOutbox(bufio.NewWriter(&bytes.Buffer{}), func(sink, outgoing) error { return broken })
	box.put(outgoing{})
	if err := box.push(); err != broken {
		t.Error(err)
	}
	if _, err := box.serve(); err != broken {
		t.Error(err)
	}
	box.end()
	for range 2 * queued {
		box.put(outgoing{})
	}
	if err := box.push(); err != broken {
		t.Error(err)
	}
}

// An answer is sent also while the reader waits for room on a full ring: what makes room may
// be up to the program that waits for the answer.
func TestAnswersWhileTheRingIsFull(t *testing.T) {
	for _, lookers := range []int{0, 4} {
		t.Run(fmt.Sprint(lookers), func(t *testing.T) {
			defer door.SetLookers(door.SetLookers(lookers))
			w := newWorld(t, testGeometry, nil)
			s := attachTo(t, w.socket)
			var busy sync.WaitGroup
			defer func() {
				s.HangUp()
				busy.Wait()
				s.Close()
			}()
			first, err := s.Producer.Start(wire.Header{Op: wire.OpHostNext}, nil)
			if err != nil {
				t.Fatal(err)
			}
			post(t, s, &wire.HostFunction{Stream: 1, Cookie: 5})
			if _, _, err := first.Wait(); err != nil { // the stream waits for the program
				t.Fatal(err)
			}
			next, err := s.Producer.Start(wire.Header{Op: wire.OpHostNext}, nil)
			if err != nil {
				t.Fatal(err)
			}
			busy.Go(func() { // more than stream, rings and connection hold; it ends with the client
				for s.Producer.Post(&wire.Fill{Dst: deviceBase, Count: 1, Stream: 1}) == nil {
				}
			})
			b := w.theBridge()
			var before uint64
			eventually(t, "the reader waits for room", func() bool {
				given := b.given.Load()
				waits := given%2 == 1 && given == before && given > 2*streamQueue
				before = given
				return waits
			})
			w.daemon.firstWorker().finds(7)
			if _, payload, err := next.Wait(); err != nil || len(payload) == 0 || payload[0] != 7 {
				t.Errorf("%x, %v", payload, err)
			}
		})
	}
}

func post(t *testing.T, s *client.Session, m wire.Message) {
	t.Helper()
	if err := s.Producer.Post(m); err != nil {
		t.Fatal(err)
	}
}

func (d *testDaemon) firstWorker() *testWorker {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[0]
}

// finds has a worker find a function for the program to call.
func (w *testWorker) finds(cookie uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cookies = append(w.cookies, cookie)
	w.pair()
}
