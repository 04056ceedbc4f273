package worker

import (
	"testing"
	"time"

	"muster/wire"
	"muster/wire/control"
)

// watched is a client that holds a device and is watched. It was told to be busy:
// its last call has just been.
func watched(t *testing.T) (*client, *vectors) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.round(0)
	c.tell(control.Watch{On: true})
	return c, v
}

// A client that is watched is idle when it has nothing to do, and busy from its
// next message on.
func TestIdleAndBusyInTurn(t *testing.T) {
	c, v := watched(t)
	for i := range 3 {
		hear[control.Idle](c, i+1)
		busy := said[control.Busy](c)
		v.round(i)
		hear[control.Busy](c, busy+1)
	}
	c.tell(control.Watch{On: false})
}

// While a function of the program's keeps a stream waiting, the client is busy
// though it sends nothing.
func TestBusyWhileAStreamWaits(t *testing.T) {
	c, v := watched(t)
	hear[control.Idle](c, 1)
	c.post(&wire.HostFunction{Cookie: 1})
	cookie := c.nextCookie()
	pending := c.start(&wire.Synchronise{})
	busy := said[control.Busy](c)
	c.tell(control.Watch{On: true}) // is it busy?
	hear[control.Busy](c, busy+1)
	if n := said[control.Idle](c); n != 1 {
		t.Errorf("idle was said %d times", n)
	}
	c.post(&wire.HostDone{Cookie: cookie})
	if r, _, err := pending.Wait(); r != success || err != nil {
		t.Fatal(r, err)
	}
	hear[control.Idle](c, 2)
	v.round(1)
}

// A client that was not watched when it became idle says so as soon as it is.
func TestWatchFindsAnIdleClient(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.round(0)
	hear[control.Report](c, 1) // it has looked around, and nothing runs
	if n := said[control.Idle](c) + said[control.Busy](c); n != 0 {
		t.Fatalf("a client that nobody watches spoke %d times", n)
	}
	c.tell(control.Watch{On: true})
	if m := hear[control.Idle](c, 1); m.For <= 0 {
		t.Errorf("idle for %v", m.For)
	}
}

// A client without a device is neither.
func TestWatchWithoutALease(t *testing.T) {
	c, v := watched(t)
	hear[control.Idle](c, 1)
	c.revoke("idle")
	idle, busy := said[control.Idle](c), said[control.Busy](c)
	c.tell(control.Watch{On: true})
	c.revoke("idle") // answered after what was said before
	if said[control.Idle](c) != idle || said[control.Busy](c) != busy {
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
	hear[control.SyncPoint](c, 1)
	v.round(1)
	hear[control.Busy](c, 1)
	if n := said[control.SyncPoint](c); n != 1 {
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
		if m, ok := m.(control.Ran); ok {
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
	hear[control.Ran](c, 1)
	c.post(&wire.HostFunction{Cookie: 1}) // keeps the stream from being quiet
	cookie := c.nextCookie()
	c.tell(control.Watch{On: true})
	hear[control.Busy](c, 1)
	ran := said[control.Ran](c)
	v.in(v.a, make([]byte, mib))
	c.post(&wire.HostDone{Cookie: cookie})
	hear[control.Idle](c, 1)
	if n := said[control.Ran](c); n != ran {
		t.Errorf("%d phases of kernels were told of while there was none", n-ran)
	}
}

// What a kernel took ends with the answer that somebody waited for, not when the
// worker happens to look: pauses of the program count for nothing.
func TestPausesAreNoGPUTime(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 32)
	v.round(1)
	const rounds, pause = 20, 8 * time.Millisecond
	for try := 1; ; try++ {
		before := said[control.Ran](c)
		var inCalls time.Duration
		for range rounds {
			start := time.Now()
			v.launch(0)
			c.must(&wire.Synchronise{}, nil)
			inCalls += time.Since(start)
			time.Sleep(pause) // the program's
		}
		c.revoke("idle") // whatever was not told is told now
		var told time.Duration
		c.daemon.mu.Lock()
		seen := 0
		for _, m := range c.daemon.heard {
			if ran, ok := m.(control.Ran); ok {
				if seen++; seen > before {
					told += ran.Busy
				}
			}
		}
		c.daemon.mu.Unlock()
		// An answer may be seen a little before it is noted, and much if the machine is busy.
		if told <= inCalls+rounds*pause/4 {
			return
		}
		if try == 10 {
			t.Fatalf("%v of GPU time were told, and the calls took %v", told, inCalls)
		}
	}
}
