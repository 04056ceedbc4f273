package wire

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func newPrecedence(t *testing.T) *Precedence {
	t.Helper()
	f, err := CreatePrecedence()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := MapPrecedence(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Unmap)
	return p
}

// A claim holds on its device until it is ended, or its lease expires.
func TestClaims(t *testing.T) {
	p := newPrecedence(t)
	if p.About(1) || p.Claimed(1, p.Now()) {
		t.Error("a device is claimed, and nobody came")
	}
	c := p.Claim(1, os.Getpid())
	if p.About(1) {
		t.Error("a program is about that has no work")
	}
	now := c.Hold()
	if !p.About(1) || !p.StillAbout(1, now) || !p.Claimed(1, now) || p.Claimed(0, now) {
		t.Error("what is claimed is not")
	}
	if p.Claimed(1, now+int64(ClaimLease)) {
		t.Error("a claim holds beyond its lease")
	}
	c.End()
	if p.Claimed(1, now) {
		t.Error("a claim holds that was ended")
	}
	c.Renew()
	if p.Claimed(1, now) {
		t.Error("a claim that was ended was renewed")
	}
	if !p.StillAbout(1, now) || p.StillAbout(1, now+int64(aboutLease)) {
		t.Error("the program is not about for as long as it should be")
	}
	if p.About(1) {
		t.Error("a program that has gone was not forgotten")
	}
}

// A process that writes nonsense there does not hold others back.
func TestClaimsThatNobodyMakes(t *testing.T) {
	p := newPrecedence(t)
	now := p.Now()
	for _, until := range []uint64{1, uint64(now) - 1, uint64(now) + uint64(time.Hour), 1 << 63, ^uint64(0)} {
		atomic.StoreUint64(p.until(0, 3), until)
		atomic.StoreUint64(p.u64(aboutAt), until)
		if p.Claimed(0, now) || p.StillAbout(0, now) {
			t.Errorf("%d is taken for a time", until)
		}
	}
}

// A process that writes nonsense there removes others' claims only until they next renew them.
func TestClaimsThatOthersOverwrite(t *testing.T) {
	p := newPrecedence(t)
	c := p.Claim(0, os.Getpid())
	for _, until := range []uint64{1, uint64(p.Now()) + uint64(time.Hour), 1 << 63, ^uint64(0)} {
		c.Hold()
		atomic.StoreUint64(c.until, until)
		if now := c.Hold(); !p.Claimed(0, now) {
			t.Errorf("a claim is lost to who wrote %d", until)
		}
	}
}

// The places of dead processes are free, and their claims have ended.
func TestPlacesOfTheDead(t *testing.T) {
	p := newPrecedence(t)
	dead := exec.Command("/bin/true")
	if err := dead.Run(); err != nil {
		t.Skip(err)
	}
	c := p.Claim(0, dead.Process.Pid)
	now := c.Hold()
	p.Bury(0)
	if p.Claimed(0, now) {
		t.Error("the claim of a dead process holds")
	}
	for i := range places {
		if p.Claim(0, os.Getpid()) == nil {
			t.Errorf("place %d of %d is taken", i, places)
		}
	}
	if p.Claim(0, os.Getpid()) != nil {
		t.Error("there is a place too many")
	}
}

// A waiting worker continues when the claim is ended.
func TestAwaitEnd(t *testing.T) {
	p := newPrecedence(t)
	c := p.Claim(0, os.Getpid())
	c.Hold()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for p.Claimed(0, p.Now()) {
			p.Await(0, time.Minute)
		}
	}()
	for atomic.LoadUint32(p.u32(waitersAt)) == 0 {
		select {
		case <-over: // the lease expired before it waited: the machine is busy
			return
		default:
			runtime.Gosched()
		}
	}
	c.Leave()
	<-over
	if p.Claim(0, os.Getpid()).owner != c.owner {
		t.Error("the place was not given back")
	}
}

func TestPrecedenceOfAnotherSize(t *testing.T) {
	f, err := CreateMemory("small", 100)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := MapPrecedence(f); err == nil {
		t.Error("it was mapped")
	}
}

// What each launch of a program of class batch costs while no program of class latency is active.
func BenchmarkAbout(b *testing.B) {
	f, err := CreatePrecedence()
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	p, err := MapPrecedence(f)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Unmap()
	for b.Loop() {
		if p.About(3) {
			b.Fatal("somebody is about")
		}
	}
}

// What each launch of a program of class latency costs.
func BenchmarkHold(b *testing.B) {
	f, err := CreatePrecedence()
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	p, err := MapPrecedence(f)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Unmap()
	c := p.Claim(0, os.Getpid())
	for b.Loop() {
		c.Hold()
	}
}
