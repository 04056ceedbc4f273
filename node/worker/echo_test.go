package worker

import (
	"bytes"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"muster/device"
	"muster/node/journal"
	"muster/vmm"
	"muster/wire"
)

// echoing are the contexts of a device whose streams send back what they get. It counts how often
// they did.
type echoing struct {
	device.Context
	echoes *atomic.Int32
}

func (c echoing) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return echoingStream{s, c.echoes}, err
}

type echoingStream struct {
	device.Stream
	echoes *atomic.Int32
}

func (s echoingStream) Can() *device.StreamCan { return &device.StreamCan{CopyInKept: s.copyInKept} }

func (s echoingStream) copyInKept(dst uint64, src, keep []byte) error {
	s.echoes.Add(1)
	if err := s.CopyIn(dst, src); err != nil {
		return err
	}
	return s.CopyOut(keep, dst)
}

// echoes is a client on such a device, whose worker dies when it is told.
func echoes(t *testing.T) (c *client, kill *trigger, echoed *atomic.Int32) {
	kill, echoed = &trigger{}, &atomic.Int32{}
	return newClient(t, options{
		killed:   kill.pull,
		wrap:     func(_ string, c device.Context) device.Context { return echoing{c, echoed} },
		employed: func(w *worker) { w.copies.sent = echoAfter },
	}), kill, echoed
}

// What a device has written to the journal itself outlives the worker, whether it came from staging
// memory or from memory of the program's, which the program has changed since.
func TestEchoesOutliveTheWorker(t *testing.T) {
	c, kill, echoed := echoes(t)
	const size = 2 * mib
	v := newVectors(c, size/4)
	v.round(0)
	first := c.shared.Geometry().Staging + c.shared.Geometry().Bounce
	pinned := c.shared.Arena()[first:][:size]
	for i := range 4 {
		for at := range pinned {
			pinned[at] = byte(at>>12 + i)
		}
		want := bytes.Clone(pinned)
		before := echoed.Load()
		if err := c.p.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: first, Length: size}, (&wire.CopyIn{Dst: v.a}).Append(nil)); err != nil {
			t.Fatal(err)
		}
		c.must(&wire.Synchronise{}, nil)
		if echoed.Load() == before {
			t.Fatal("the device was not asked to keep the data")
		}
		clear(pinned)
		kill.Store(true)
		if got := c.out(v.a, size); !bytes.Equal(got, want) {
			t.Fatalf("round %d: other data after the worker has died", i)
		}
		kill.Store(i%2 == 0)
		v.round(i)
	}
	if n := c.died.Load(); n < 4 {
		t.Errorf("the worker died %d times", n)
	}
}

// Memory of the journal is not pinned any more when it is given back; the rest of it is.
func TestJournalIsUnpinned(t *testing.T) {
	var unpinned []uint64
	g := &gpu{journalPins: map[uint64]journalPin{}}
	for at := uint64(0); at < 5; at++ {
		g.journalPins[at*mib] = journalPin{journal.Granule{At: at * mib, Memory: make([]byte, mib)}, func() error {
			unpinned = append(unpinned, at)
			return nil
		}}
	}
	c := &copies{session: &session{contexts: contexts{open: map[vmm.Place]*gpu{vmm.Device(0): g}}}}
	c.unpinJournal(mib+4096, 3*mib)
	slices.Sort(unpinned)
	if left := slices.Sorted(maps.Keys(g.journalPins)); !slices.Equal(unpinned, []uint64{1, 2}) || !slices.Equal(left, []uint64{0, 3 * mib, 4 * mib}) {
		t.Errorf("unpinned were %v, and %v are left", unpinned, left)
	}
}
