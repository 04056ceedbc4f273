package kernellimit

import (
	"math/rand/v2"
	"testing"
	"time"

	"muster/device"
)

// numbered is a stream that is only told from others.
type numbered struct {
	device.Stream
	n int
}

// A group that holds the device for longer than its launches may is found. Time in which it waited for
// groups that were submitted earlier, or for the program, does not count.
func TestFlights(t *testing.T) {
	const limit = 10
	one, two := &numbered{n: 1}, &numbered{n: 2}
	var f flights
	f.join(0, nil, one, 1, "a")
	f.join(0, nil, one, 1, "a")
	f.join(1, nil, two, 1, "b")
	if f.over(20, limit) != nil || f.over(21, limit) == nil {
		t.Error("two launches have twice the time of one")
	}
	f.end(12, f.groups[0]) // b may have waited for it
	if f.over(22, limit) != nil || f.over(23, limit) == nil {
		t.Error("what waits for an earlier group has its whole time when that has ended")
	}
	f.join(13, nil, one, 1, "c")
	f.end(14, f.groups[1]) // c cannot have held up b
	if over := f.over(23, limit); over == nil || over.kernel != "b" {
		t.Errorf("%+v", over)
	}
	f.wait(30)
	if f.over(40, limit) != nil || f.over(41, limit) == nil {
		t.Error("waiting for the program counts")
	}
	for range mostFlying {
		if f.join(50, nil, one, 1, "d") != nil {
			t.Error("a group is full too soon")
		}
	}
	if full := f.join(50, nil, one, 1, "d"); full == nil || full.count != mostFlying {
		t.Errorf("%+v", full)
	}
}

// On a device in virtual time that runs one kernel at a time, no kernel within the limit is ever found
// too long, whatever streams wait for each other, and one that never ends is found soon.
func TestFlightsInVirtualTime(t *testing.T) {
	const limit = 100
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		streams := []*numbered{{n: 0}, {n: 1}, {n: 2}}
		var f flights
		var groups []*flying // of each launch, in order
		now, free := time.Duration(0), time.Duration(0)
		var ends []time.Duration
		pass := func(until time.Duration) {
			for ; now < until; now++ {
				for i, at := range ends {
					last := true // of its group
					for _, g := range groups[i+1:] {
						last = last && g != groups[i]
					}
					if at == now && last {
						f.end(now, groups[i])
					}
				}
				if over := f.over(now, limit); over != nil {
					t.Fatalf("seed %d: at %d a kernel has run for too long: %+v", seed, now, over)
				}
			}
		}
		for range 60 {
			on := streams[r.IntN(len(streams))]
			if full := f.join(now, nil, on, 1, "k"); full != nil {
				full.mark = struct{ device.Event }{}
			}
			for _, g := range f.groups {
				if g.on == on && g.mark == nil {
					groups = append(groups, g)
				}
			}
			free = max(now, free) + time.Duration(1+r.IntN(limit)) // it waits for all before it
			ends = append(ends, free)
			pass(now + time.Duration(r.IntN(limit)))
		}
		pass(free + 1)
		f.join(now, nil, streams[0], 1, "endless")
		if over := f.over(now+mostFlying*limit+1, limit); over == nil || over.kernel != "endless" {
			t.Fatalf("seed %d: an endless kernel is not found: %+v", seed, f.groups)
		}
	}
}
