package wire

import (
	"os"
	"os/exec"
	"sync"
	"testing"
)

// What a process has queued is what others see, on its device alone, until it leaves.
func TestQueues(t *testing.T) {
	p := newPrecedence(t)
	a, b := p.Queue(3, 1), p.Queue(3, os.Getpid()) // process 1 lives
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				a.Add(1)
				b.Add(1)
				a.Add(-1)
			}
		})
	}
	all.Wait()
	a.Add(2)
	for _, c := range []struct{ device, but, want int }{{3, 1, 4000}, {3, os.Getpid(), 2}, {3, 0, 4002}, {2, 0, 0}} {
		if got := p.QueuedBy(c.device, c.but); got != c.want {
			t.Errorf("device %d, without process %d: %d are queued, and not %d", c.device, c.but, got, c.want)
		}
	}
	a.Leave()
	if got := p.QueuedBy(3, 0); got != 4000 {
		t.Errorf("%d are queued", got)
	}
	if p.Queue(MaxPrecedence, 1) != nil || p.Queue(-1, 1) != nil {
		t.Error("a place on a device that has none")
	}
}

// Processes that were killed leave nothing behind, and their places are used again.
func TestQueuesOfTheDead(t *testing.T) {
	p := newPrecedence(t)
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	dead := child.Process.Pid
	for range queuePlaces {
		p.Queue(0, dead).Add(5)
	}
	if q := p.Queue(0, os.Getpid()); q == nil {
		t.Error("the places of a dead process are not given to others")
	}
	p.BuryQueues()
	if got := p.QueuedBy(0, 0); got != 0 {
		t.Errorf("dead processes have %d in the queue", got)
	}
	for range queuePlaces - 1 {
		if p.Queue(0, os.Getpid()) == nil {
			t.Fatal("a place is missing")
		}
	}
	if p.Queue(0, os.Getpid()) != nil {
		t.Error("there are more places than there are")
	}
	var none *Queue
	none.Add(1)
	none.Leave()
}

// BenchmarkQueuedBy is what it costs to look at one device, where eight programs have something.
func BenchmarkQueuedBy(b *testing.B) {
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
	for range 8 {
		p.Queue(0, 1).Add(1)
	}
	self := os.Getpid()
	for b.Loop() {
		p.QueuedBy(0, self)
	}
}
