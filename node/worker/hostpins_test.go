package worker

import (
	"bytes"
	"fmt"
	"testing"

	"muster/wire"
	"muster/wire/control"
)

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
				w.ahead.making.Store(true) // as if pages were being made all the time
			}})
			v := newVectors(c, 1000)
			v.round(1)
			c.daemon.mu.Lock()
			c.daemon.revoking = true
			c.daemon.mu.Unlock()
			w.mail.inbox.Put(control.Revoke{Reason: "quantum"}) // it has arrived
			v.round(2)
			if n := said[control.Released](c); n != 0 {
				t.Fatalf("it has left %d times before the pages were made", n)
			}
			if again {
				c.revoke("memory")
				v.round(3)
			}
			w.others.Go(func() { // they are made; the worker waits for who says so before it unmaps the ring
				w.mail.put(readied{})
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
