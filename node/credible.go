package node

import (
	"fmt"
	"math"

	"muster/wire/control"
)

// maxCount is the largest value that is kept in a client's counters. A worker that
// reports more is cut off there, so that no sum kept for the client can overflow. The
// dispatcher does the same with kernels and their time.
const maxCount = math.MaxInt64 / 2

// credible checks what a worker says against what the daemon knows: every claim of a
// worker passes here before it changes a counter or reaches the dispatcher. A worker
// that speaks of something it was never given is refused; counts beyond any plausible
// value are cut. Negative ones do not get here: the connection refuses them.
func (c *client) credible(said control.ToDaemon) (control.ToDaemon, error) {
	if _, pong := said.(control.Pong); c.unsettled && !pong {
		standing, ok := said.(control.Standing)
		if !ok {
			return nil, fmt.Errorf("it begins with %s, and not with where it stands", said.Kind())
		}
		return standing, c.mayStand(standing)
	}
	switch m := said.(type) {
	case control.Standing:
		return nil, fmt.Errorf("it says where it stands, and was not adopted")
	case control.Released:
		if c.lease == 0 {
			return nil, fmt.Errorf("it releases a device and never had one")
		}
		return m, c.granted(m.Lease)
	case control.Failed:
		return m, c.granted(m.Lease)
	case control.Began:
		return m, c.granted(m.Lease)
	case control.Freed:
		return m, c.granted(m.Lease)
	case control.WantFurther:
		return m, c.crediblyFurther(m.Device, 0, 0)
	case control.ReleasedFurther:
		return m, c.crediblyFurther(m.Device, 0, 0)
	case control.RanFurther:
		return m, c.crediblyFurther(m.Device, m.Kernels, m.Busy)
	case control.Report:
		s := &m.Stats
		for _, n := range []*uint64{&s.Allocated, &s.Resident, &s.Swapped, &s.CopiedIn, &s.CopiedOut, &s.SwapIn, &s.SwapOut, &s.Swaps, &s.Messages} {
			*n = min(*n, maxCount)
		}
		s.Held = min(s.Held, maxCount)
		return m, crediblyLinked(s.Links)
	case control.Checkpointed, control.Restored:
		if !c.owes() {
			return nil, fmt.Errorf("it speaks of a checkpoint that nobody ordered")
		}
	case control.Pong:
		if m.Number == 0 || m.Number <= c.ponged || m.Number > c.pinged {
			return nil, fmt.Errorf("it answers ping %d, after %d of %d", m.Number, c.ponged, c.pinged)
		}
	}
	return said, nil
}

// maxBeside is how much of the swap area a client may have beside its memory, which is
// in whole chunks: more than most programs' modules take.
const maxBeside = 256 << 20

// mayStand refuses a standing that cannot follow from what the client was granted: a
// worker may be behind what the last daemon wrote down, but never ahead of it.
func (c *client) mayStand(s control.Standing) error {
	switch {
	case s.Lease > c.lease:
		return c.granted(s.Lease)
	case s.Held && !c.hasLost(s) && (!c.was.Held || s.Lease != c.lease || s.Device != int(c.was.Device) || s.Memory > c.was.Memory):
		return fmt.Errorf("it holds lease %d of device %d with %d bytes, and was granted lease %d of device %d with %d", s.Lease, s.Device, s.Memory, c.was.Lease, c.was.Device, c.was.Memory)
	case s.Committed > max(c.committed, 2*c.memory+maxBeside):
		// A client that was just rebuilt may have had more at its base than it has now,
		// but never more than it may have.
		return fmt.Errorf("it has %d bytes of the swap area, and was granted %d", s.Committed, c.committed)
	case s.Kernels < c.told.Kernels || s.Busy < c.told.GPUTime || s.Kernels > maxCount || s.Busy > maxCount:
		return fmt.Errorf("it ran %d kernels in %v, and has told of %d in %v", s.Kernels, s.Busy, c.told.Kernels, c.told.GPUTime)
	}
	return nil
}

// hasLost says whether a client stands on a device that was lost while its worker had no
// daemon to tell it.
func (c *client) hasLost(s control.Standing) bool {
	return s.Held && !c.was.Held && s.Lease > 0 && s.Lease == c.lease
}

// granted refuses the number of a lease that the client has not had yet.
func (c *client) granted(lease uint64) error {
	if lease > c.lease {
		return fmt.Errorf("it speaks of lease %d, and the last that it was granted is %d", lease, c.lease)
	}
	return nil
}

// sum adds two counters, and stays at the largest int64 where the sum would exceed it.
func sum(a, b uint64) uint64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
