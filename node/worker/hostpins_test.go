package worker

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"muster/device"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// pinner is a context that only pins, and knows what is pinned.
type pinner struct {
	device.Context
	pinned [][]byte
	asked  int
	refuse bool
}

func (p *pinner) Pin(host []byte) (func() error, error) {
	p.asked++
	if p.refuse {
		return nil, errors.New("no more may be locked")
	}
	p.pinned = append(p.pinned, host)
	return func() error {
		p.pinned = slices.DeleteFunc(p.pinned, func(o []byte) bool { return unsafe.SliceData(o) == unsafe.SliceData(host) })
		return nil
	}, nil
}

func (p *pinner) has(memory []byte) bool {
	from := wire.AddressOf(memory)
	return slices.ContainsFunc(p.pinned, func(o []byte) bool {
		at := wire.AddressOf(o)
		return at < from+uint64(len(memory)) && from < at+uint64(len(o))
	})
}

const pinChunks = 40

// pinningWorker is a worker with nothing but two sides of host memory and a context.
func pinningWorker(t *testing.T) (*worker, *pinner, vmm.Plan) {
	t.Helper()
	var files []*os.File
	for range 2 {
		f, err := CreateHostFile(pinChunks*chunk, "", true)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	h, err := newHostMemory(chunkRange(0, pinChunks), "", files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	h.maySpare = func() int { return 0 }
	p := &pinner{}
	w := &worker{host: h, log: slog.New(slog.DiscardHandler), gpus: map[vmm.Place]*gpu{}}
	w.gpus[vmm.Device(0)] = &gpu{place: vmm.Device(0), context: p}
	h.giving = func(on uint8, r row) {
		w.unpinHost(on, r)
		if p.has(h.bytes(run{r, on})) {
			t.Errorf("pages of %v on side %d are given back while they are pinned", r, on)
		}
	}
	return w, p, vmm.Plan{{Op: vmm.CopyOut, Device: vmm.Device(0), Range: chunkRange(0, pinChunks)}}
}

// Pages are unpinned before they are given back, and only then: a device would go on writing to
// pages that are nobody's.
func TestHostPagesAreUnpinnedBeforeTheyGo(t *testing.T) {
	w, p, plan := pinningWorker(t)
	g := w.gpus[vmm.Device(0)]
	all := func(what string) {
		t.Helper()
		parts := w.hostParts(g, plan[0].Range)
		var bytes int
		for _, part := range parts {
			if !part.pinned {
				t.Errorf("%s: %d bytes at %#x are not pinned", what, len(part.memory), part.addr)
			}
			bytes += len(part.memory)
		}
		if bytes != pinChunks*chunk {
			t.Errorf("%s: %d bytes", what, bytes)
		}
	}
	if !w.readyHost(plan) {
		t.Error("nothing was pinned")
	}
	all("first")
	if asked := p.asked; w.readyHost(plan) || p.asked != asked {
		t.Error("what is pinned was pinned again")
	}
	w.host.commit() // from here on that belongs to the base
	w.readyHost(plan)
	all("the other side")
	leastSpareFor(w.host)
	w.host.commit() // the first side is given back, and is no more pinned
	if p.has(w.host.bytes(run{row{0, pinChunks}, 1 - w.host.side(0)})) {
		t.Error("the side that was given back is pinned")
	}
	all("after that")
	w.host.discard(chunkRange(3, 1))
	if parts := w.hostParts(g, plan[0].Range); len(parts) != 3 || !parts[0].pinned || parts[1].pinned || len(parts[1].memory) != chunk || !parts[2].pinned {
		t.Errorf("after a chunk was dropped: %d parts", len(parts))
	}
	w.readyHost(plan)
	all("and again")
}

// leastSpareFor makes host memory believe that others have taken all that may be spare.
func leastSpareFor(h *hostMemory) { h.spare += leastSpare }

// Memory that cannot be pinned is copied all the same, and is not tried again.
func TestHostMemoryThatCannotBePinned(t *testing.T) {
	w, p, plan := pinningWorker(t)
	p.refuse = true
	w.readyHost(plan)
	asked := p.asked
	w.readyHost(plan)
	if asked == 0 || p.asked != asked {
		t.Errorf("asked %d times, and then %d", asked, p.asked)
	}
	parts := w.hostParts(w.gpus[vmm.Device(0)], plan[0].Range)
	if len(parts) != 1 || parts[0].pinned || len(parts[0].memory) != pinChunks*chunk {
		t.Errorf("%d parts", len(parts))
	}
}

// What is made ready ahead is where the next move writes, and changes nothing.
func TestHostMemoryReadyAhead(t *testing.T) {
	w, _, plan := pinningWorker(t)
	lacks := func() uint64 {
		_, bytes := w.host.lacking([]vmm.Range{plan[0].Range})
		return bytes
	}
	if n := lacks(); n != pinChunks*chunk {
		t.Errorf("%d bytes are lacking at first", n)
	}
	w.touch(plan[0].Range, true)
	if n := lacks(); n != 0 {
		t.Errorf("%d bytes are lacking of what was written", n)
	}
	w.host.commit()
	pieces, n := w.host.lacking([]vmm.Range{plan[0].Range})
	if n != pinChunks*chunk {
		t.Errorf("%d bytes are lacking of the other side", n)
	}
	other := w.host.bytes(run{row{0, pinChunks}, 1 - w.host.side(0)})
	if wire.AddressOf(pieces[0]) != wire.AddressOf(other) {
		t.Error("not of the side that is written next")
	}
}

// A program whose turn is over keeps on the device what it may, in whole chunks. It can be read,
// written and freed there meanwhile, and goes on with it.
func TestMemoryStaysThatIsInNobodysWay(t *testing.T) {
	for _, recovers := range []bool{false, true} {
		c := newClient(t, options{recovers: recovers})
		v := newVectors(c, 2<<20) // three times 8 MiB
		beside := c.alloc(4 * mib)
		leave := func(reason string, keep uint64) uint64 {
			t.Helper()
			n := said[control.Released](c) + 1
			c.daemon.revokeBut(reason, keep)
			return hear[control.Released](c, n).Keeps
		}
		v.round(1)
		nothing := leave("quantum", 0)
		v.round(2)
		if kept := leave("quantum", 11*mib); kept != nothing+10*mib {
			t.Errorf("%d bytes are kept beside %d of the context, of 11 MiB that may be", kept-nothing, nothing)
		}
		want := floats(v.n, func(k int) float32 { return float32(k+2) + float32(2*k) })
		if got := c.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
			t.Error("what the kernel wrote is not there after the turn")
		}
		c.in(beside, pattern(4*mib, 1))
		v.round(3)
		if got := c.out(beside, 4*mib); !bytes.Equal(got, pattern(4*mib, 1)) {
			t.Error("what was written between turns is not there")
		}
		if kept := leave("memory", 1<<30); kept != nothing+28*mib {
			t.Errorf("%d bytes are kept beside %d of the context, of 28 MiB", kept-nothing, nothing)
		}
		c.post(&wire.MemFree{Addr: beside})
		if kept := leave("memory", 0); kept != 0 {
			t.Errorf("%d bytes are kept by one that was told to let go", kept)
		}
		v.round(4)
	}
}

// A client that leaves its device later, because pages are made for that, runs kernels until they are
// made, and leaves then. If it was told again and has left before, what was postponed must not take its
// next lease.
func TestLeavingIsPostponed(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("told again ", again), func(t *testing.T) {
			var w *worker
			c := newClient(t, options{recovers: true, employed: func(s *worker) {
				w = s
				w.readying.Store(true) // as if pages were being made all the time
			}})
			v := newVectors(c, 1000)
			v.round(1)
			c.daemon.mu.Lock()
			c.daemon.revoking = true
			c.daemon.mu.Unlock()
			w.inbox.Put(control.Revoke{Reason: "quantum"}) // it has arrived
			v.round(2)
			if n := said[control.Released](c); n != 0 {
				t.Fatalf("it has left %d times before the pages were made", n)
			}
			if again {
				c.revoke("memory")
				v.round(3)
			}
			w.others.Go(func() { // they are made; the worker waits for who says so before it unmaps the ring
				w.inbox.Put(readied{})
				w.consumer.Wake()
			})
			hear[control.Released](c, 1)
			for i := range 3 { // what is told is heard before a message
				v.round(4 + i)
			}
			if n := said[control.Released](c); n != 1 {
				t.Errorf("it has left %d times, and should have once", n)
			}
		})
	}
}

// Pages are made ahead until the machine has little memory left: other workers make theirs too.
func TestPagesAreMadeWhileThereIsRoom(t *testing.T) {
	pieces := make([][]byte, 100)
	var free, made atomic.Int64
	free.Store(70)
	makeAhead(pieces, func([]byte) bool {
		if free.Add(-1) < 0 {
			return false
		}
		made.Add(1)
		return true
	})
	if n := made.Load(); n != 70 {
		t.Errorf("%d pieces were made of 70", n)
	}
}
