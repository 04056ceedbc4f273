package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"sync"
	"testing"

	"muster/internal/door"
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
	box := newOutbox(bufio.NewWriter(&bytes.Buffer{}), func(_ *bufio.Writer, o outgoing) error {
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
	box := newOutbox(bufio.NewWriter(&bytes.Buffer{}), func(*bufio.Writer, outgoing) error { return broken })
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
