package node

import (
	"fmt"
	"math"

	"muster/wire/control"
)

// maxCount is the most that one client's counters come to. A worker that says
// more is cut short there, so that no sum that is kept for the client overflows.
// The dispatcher does the same with kernels and their time.
const maxCount = math.MaxInt64 / 2

// credible holds what a worker says to what the daemon knows: everything that a
// worker claims passes here before it changes a counter or reaches the
// dispatcher. A worker that speaks of what it was never given is refused; counts
// that are beyond all measure are cut. Negative ones do not come this far: the
// connection refuses them.
func (c *client) credible(said control.ToDaemon) (control.ToDaemon, error) {
	switch m := said.(type) {
	case control.Released:
		if c.lease == 0 {
			return nil, fmt.Errorf("it releases a device and never had one")
		}
		return m, c.granted(m.Lease)
	case control.Failed:
		return m, c.granted(m.Lease)
	case control.Report:
		s := &m.Stats
		for _, n := range []*uint64{&s.Allocated, &s.Resident, &s.Swapped, &s.CopiedIn, &s.CopiedOut, &s.SwapIn, &s.SwapOut, &s.Swaps, &s.Messages} {
			*n = min(*n, maxCount)
		}
		return m, nil
	case control.Checkpointed, control.Restored:
		if c.order == nil || c.order.due == 0 {
			return nil, fmt.Errorf("it speaks of a checkpoint that nobody ordered")
		}
	case control.Pong:
		if m.Number == 0 || m.Number <= c.ponged || m.Number > c.pinged {
			return nil, fmt.Errorf("it answers ping %d, after %d of %d", m.Number, c.ponged, c.pinged)
		}
	}
	return said, nil
}

// granted refuses the number of a lease that the client has not had yet.
func (c *client) granted(lease uint64) error {
	if lease > c.lease {
		return fmt.Errorf("it speaks of lease %d, and the last that it was granted is %d", lease, c.lease)
	}
	return nil
}

// sum adds what clients did, and stays at the largest number that is kept where
// the sum would be larger.
func sum(a, b uint64) uint64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
