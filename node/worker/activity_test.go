package worker

import (
	"testing"

	"muster/wire"
)

// watched is a client that holds a device and is watched. It was told to be busy:
// its last call has just been.
func watched(t *testing.T) (*client, *vectors) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.round(0)
	c.tell(wire.Control{Kind: wire.KindWatch, On: true})
	return c, v
}

// A client that is watched is idle when it has nothing to do, and busy from its
// next message on.
func TestIdleAndBusyInTurn(t *testing.T) {
	c, v := watched(t)
	for i := range 3 {
		c.hear(wire.KindIdle, i+1)
		busy := c.said(wire.KindBusy)
		v.round(i)
		c.hear(wire.KindBusy, busy+1)
	}
	c.tell(wire.Control{Kind: wire.KindWatch, On: false})
}

// While a function of the program's keeps a stream waiting, the client is busy
// though it sends nothing.
func TestBusyWhileAStreamWaits(t *testing.T) {
	c, v := watched(t)
	c.hear(wire.KindIdle, 1)
	c.post(&wire.HostFunction{Cookie: 1})
	cookie := c.nextCookie()
	pending := c.start(&wire.Synchronise{})
	busy := c.said(wire.KindBusy)
	c.tell(wire.Control{Kind: wire.KindWatch, On: true}) // is it busy?
	c.hear(wire.KindBusy, busy+1)
	if n := c.said(wire.KindIdle); n != 1 {
		t.Errorf("idle was said %d times", n)
	}
	c.post(&wire.HostDone{Cookie: cookie})
	if r, _, err := pending.Wait(); r != success || err != nil {
		t.Fatal(r, err)
	}
	c.hear(wire.KindIdle, 2)
	v.round(1)
}

// A client that was not watched when it became idle says so as soon as it is.
func TestWatchFindsAnIdleClient(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.round(0)
	c.hear(wire.KindReport, 1) // it has looked around, and nothing runs
	if n := c.said(wire.KindIdle) + c.said(wire.KindBusy); n != 0 {
		t.Fatalf("a client that nobody watches spoke %d times", n)
	}
	c.tell(wire.Control{Kind: wire.KindWatch, On: true})
	if m := c.hear(wire.KindIdle, 1); m.Busy <= 0 {
		t.Errorf("idle for %v", m.Busy)
	}
}

// A client without a device is neither.
func TestWatchWithoutALease(t *testing.T) {
	c, v := watched(t)
	c.hear(wire.KindIdle, 1)
	c.revoke("idle")
	idle, busy := c.said(wire.KindIdle), c.said(wire.KindBusy)
	c.tell(wire.Control{Kind: wire.KindWatch, On: true})
	c.revoke("idle") // answered after what was said before
	if c.said(wire.KindIdle) != idle || c.said(wire.KindBusy) != busy {
		t.Error("a client without a device says what it does with it")
	}
	v.round(1)
}

// A synchronisation point is told at once, and that it is over.
func TestSyncPoints(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	c.post(&wire.SyncPoint{}) // without a device: nobody cares
	v.round(0)
	c.post(&wire.SyncPoint{})
	c.hear(wire.KindSyncPoint, 1)
	v.round(1)
	c.hear(wire.KindBusy, 1)
	if n := c.said(wire.KindSyncPoint); n != 1 {
		t.Errorf("%d synchronisation points were told", n)
	}
}

// Every kernel is told of once.
func TestKernelsAreToldOf(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	const kernels = 50
	for i := range kernels {
		v.launch(0)
		if i == 20 {
			c.revoke("idle")
		}
	}
	c.must(&wire.Synchronise{}, nil)
	c.revoke("idle") // tells of the rest before it is answered
	d := c.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	total := 0
	for _, m := range d.heard {
		if m.Kind == wire.KindRan {
			total += m.Kernels
			if m.Busy <= 0 || m.Busy.Hours() > 1 {
				t.Errorf("%d kernels took %v", m.Kernels, m.Busy)
			}
		}
	}
	if total != kernels {
		t.Errorf("%d kernels were launched, and %d told of", kernels, total)
	}
}

// Copies by themselves are no kernels' time.
func TestCopiesAreNoPhase(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1<<19)
	v.round(0)
	c.hear(wire.KindRan, 1)
	c.post(&wire.HostFunction{Cookie: 1}) // keeps the stream from being quiet
	cookie := c.nextCookie()
	c.tell(wire.Control{Kind: wire.KindWatch, On: true})
	c.hear(wire.KindBusy, 1)
	ran := c.said(wire.KindRan)
	v.in(v.a, make([]byte, mib))
	c.post(&wire.HostDone{Cookie: cookie})
	c.hear(wire.KindIdle, 1)
	if n := c.said(wire.KindRan); n != ran {
		t.Errorf("%d phases of kernels were told of while there was none", n-ran)
	}
}
