package wire

import (
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/seeds"
)

// What a process has queued is what others see, on its device alone, until it leaves.
func TestQueues(t *testing.T) {
	p := newPrecedence(t)
	a, b := p.Queue(3, 1), p.Queue(3, os.Getpid()) // process 1 lives
	var all sync.WaitGroup
	for range 4 { // they look while the processes write
		all.Go(func() {
			for range 1000 {
				if got := p.QueuedBy(3, os.Getpid()); got > 1 {
					t.Errorf("%d are queued of one", got)
				}
			}
		})
	}
	for range 4000 {
		a.Add(1)
		b.Add(1)
		a.Add(-1)
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

// Whatever others write to a process's place, also a worker that was stopped while it buried another
// process there: the next launch that begins or ends puts it right, and no count passes below zero to
// become a huge one.
func TestQueuesAreDamaged(t *testing.T) {
	p := newPrecedence(t)
	q := p.Queue(0, os.Getpid())
	q.Add(3)
	atomic.StoreUint32(q.queued, 0)
	q.Add(-1)
	if got := p.QueuedBy(0, 0); got != 2 {
		t.Errorf("%d are queued, and not 2", got)
	}
	q.Add(-1)
	atomic.StoreUint32(q.owner, 0) // as if the process were dead
	q.Add(-1)
	q.Add(-1) // one that was not counted
	if got := p.QueuedBy(0, 0); got != 0 || *q.owner != uint32(os.Getpid()) {
		t.Errorf("%d are queued by process %d after all have ended", got, *q.owner)
	}
	atomic.StoreUint32(q.owner, 1) // another has the place now
	q.Add(5)
	q.Leave()
	if got := p.QueuedBy(0, 0); got != 0 || *q.owner != 1 {
		t.Errorf("%d are queued by process %d, whose place it is", got, *q.owner)
	}
}

// Memory that a worker has filled with anything is read, and buried, and used, and what is believed of it
// has a limit.
func TestQueuesOfLiars(t *testing.T) {
	seed, _ := seeds.First(t)
	random := rand.New(rand.NewPCG(seed, 1))
	p := newPrecedence(t)
	fills := []func(int) byte{
		func(int) byte { return 0xff },
		func(int) byte { return 0x80 },
		func(i int) byte { return byte(i % 4 & 1) },
		func(int) byte { return byte(random.Uint32()) },
	}
	for n, fill := range fills {
		for i := queuesAt; i < len(p.memory); i++ {
			p.memory[i] = fill(i)
		}
		for device := range MaxPrecedence {
			if got := p.QueuedBy(device, 0); got < 0 || got > queuePlaces*maxQueued {
				t.Errorf("memory %d: %d are queued on device %d", n, got, device)
			}
			q := p.Queue(device, os.Getpid())
			q.Add(1)
			q.Leave()
		}
		p.BuryQueues()
		for device := range MaxPrecedence {
			for i := range queuePlaces {
				if owner := *p.queueOwner(device, i); owner > math.MaxInt32 {
					t.Fatalf("memory %d: process %d, which cannot be, keeps its place", n, owner)
				}
			}
		}
	}
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
