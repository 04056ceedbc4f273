package worker

import (
	"os"
	"runtime"
	"testing"
	"time"

	"muster/internal/await"
	"muster/wire"
	"muster/wire/control"
)

// claims are those of a program of class latency, which the test plays.
func claims(t *testing.T) (*os.File, *wire.Precedence) {
	t.Helper()
	f, err := wire.CreatePrecedence()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p, err := wire.MapPrecedence(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Unmap)
	return f, p
}

// keepHolding renews a claim until it is stopped.
func keepHolding(c *wire.Claim) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				c.End()
				return
			default:
				c.Hold()
				runtime.Gosched()
			}
		}
	}()
	return func() { close(done); <-over }
}

func batch(share float64) *control.Pace {
	return &control.Pace{Share: share, Window: 200 * time.Microsecond, Quantum: time.Second}
}

// Launches of class batch wait while others claim the device, and go on when they do not.
func TestBatchMakesWay(t *testing.T) {
	f, page := claims(t)
	c := newClient(t, options{pace: batch(0.99), page: f})
	v := newVectors(c, 1000)
	v.round(0)
	claim := page.Claim(0, os.Getpid())
	claim.Hold()
	stop := keepHolding(claim)
	v.launch(0)
	for looks := 1; page.Waiting(0) == 0; looks++ {
		if looks%100_000 == 0 { // the claim was not renewed in time, on a busy machine: another try
			v.launch(0)
		}
		runtime.Gosched()
	}
	stop()
	v.round(1)
	c.must(&wire.Synchronise{}, nil)
	reports := said[control.Report](c)
	c.revoke("idle") // which is reported
	if held := hear[control.Report](c, reports+1).Stats.Held; held <= 0 {
		t.Errorf("it was held back for %v, as the daemon is told", held)
	}
}

// A program that claims the device all the time does not stop others, and neither does one
// that was killed.
func TestClaimsAreBounded(t *testing.T) {
	f, page := claims(t)
	c := newClient(t, options{pace: batch(0.5), page: f})
	v := newVectors(c, 1000)
	v.round(0)
	stop := keepHolding(page.Claim(0, os.Getpid()))
	defer stop()
	for i := range 50 {
		v.round(i)
	}
}

// A stream that was launched on is destroyed before an event is behind its launches.
func TestStreamsEndInAGroup(t *testing.T) {
	f, page := claims(t)
	p := batch(0.01)
	p.Window = time.Hour // so that launches make large groups
	c := newClient(t, options{pace: p, page: f})
	v := newVectors(c, 1000)
	stop := keepHolding(page.Claim(0, os.Getpid()))
	defer stop()
	for i := range 50 {
		on := uint32(i + 1)
		c.post(&wire.StreamCreate{Stream: on})
		v.launch(on)
		c.must(&wire.StreamSynchronise{Stream: on}, nil)
		c.post(&wire.StreamDestroy{Stream: on})
		v.round(i)
	}
}

// A program of class latency claims its device while its work is under way, and not longer.
func TestLatencyClaims(t *testing.T) {
	f, page := claims(t)
	c := newClient(t, options{pace: &control.Pace{Latency: true, Share: 0.8, Window: time.Millisecond}, page: f})
	v := newVectors(c, 1000)
	if page.About(0) {
		t.Error("the device is claimed before there is work")
	}
	v.round(0)
	if !page.About(0) {
		t.Error("the program has launched a kernel, and is not about")
	}
	c.post(&wire.HostFunction{Cookie: 1}) // the stream waits
	v.launch(0)
	cookie := c.nextCookie()
	await.Until(t, "the device is claimed while work is under way", func() bool { return page.Claimed(0, page.Now()) }) // the launch may be behind the cookie, and a busy worker renews late
	pending := c.start(&wire.Synchronise{})
	c.post(&wire.HostDone{Cookie: cookie})
	if r, _, err := pending.Wait(); r != success || err != nil {
		t.Fatal(r, err)
	}
	for page.Claimed(0, page.Now()) { // another stream may have been looked at first
		runtime.Gosched()
	}
	v.round(1)
}

// A program that launches without ever waiting is told to leave, and leaves: what it sent waits.
func TestYieldsWithoutWaiting(t *testing.T) {
	f, _ := claims(t)
	c := newClient(t, options{pace: batch(0.8), page: f})
	v := newVectors(c, 1000)
	v.round(0)
	for turn := range 2 {
		c.tell(control.Watch{On: true})
		stop, over := make(chan struct{}), make(chan int)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					over <- n
					return
				default:
					v.launch(0)
				}
			}
		}()
		c.revoke("quantum")
		close(stop)
		<-over
		v.round(turn)
	}
}
