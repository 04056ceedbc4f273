package rgpu

import (
	"math/bits"
	"time"

	"muster/model"
)

// devices is an observer of a run. It records for how long each GPU was allocated and, for the
// picture, which part of its memory each job had.
type devices struct {
	cluster *model.Cluster
	first   []int // index in list of each node's first device
	list    []device
	held    map[int][]share // by job
	closed  []share
}

type device struct {
	name  string
	users int
	since time.Duration
	busy  time.Duration
	parts []span // parts of its memory that are in use
}

// span is a part of a device's memory, from 0 to 1.
type span struct{ lo, hi float32 }

// share is a device, or a part of it, that a job uses from start to end.
type share struct {
	job, device int
	start, end  time.Duration
	span
}

func watch(c *model.Cluster) *devices {
	d := &devices{cluster: c, held: map[int][]share{}}
	for i := range c.Nodes {
		d.first = append(d.first, len(d.list))
		for range c.Nodes[i].GPUs {
			d.list = append(d.list, device{name: c.Nodes[i].Name})
		}
	}
	return d
}

// Started implements sim.Observer.
func (d *devices) Started(now time.Duration, job int, a *model.Allocation) {
	for i := range a.Parts {
		for set := a.Parts[i].GPUs; set != 0; set &= set - 1 {
			d.take(now, job, a.Parts[i].Node, bits.TrailingZeros64(set), 1)
		}
	}
	for _, g := range a.Grants {
		part := float32(1)
		if g.Memory > 0 {
			part = float32(g.Memory) / float32(d.cluster.GPUTypes[d.cluster.Nodes[g.Node].GPUs[g.Device]].Memory)
		}
		d.take(now, job, g.Node, int(g.Device), part)
	}
}

func (d *devices) take(now time.Duration, job int, node int32, index int, part float32) {
	k := d.first[node] + index
	dev := &d.list[k]
	if dev.users++; dev.users == 1 {
		dev.since = now
	}
	at := dev.room(part)
	dev.parts = append(dev.parts, at)
	d.held[job] = append(d.held[job], share{job: job, device: k, start: now, span: at})
}

// room finds a free span of the given size, first fit. If fragmentation leaves none that large, it
// returns the largest gap: the span is only for the picture, and the job does have its memory.
func (dev *device) room(part float32) span {
	var best span
	lo := float32(0)
	for {
		hi := float32(1) // the end of the gap that begins at lo
		inside := false
		for _, p := range dev.parts {
			switch {
			case p.lo <= lo && lo < p.hi:
				lo, inside = p.hi, true
			case p.lo > lo:
				hi = min(hi, p.lo)
			}
		}
		switch {
		case inside:
			continue
		case hi-lo >= part:
			return span{lo, lo + part}
		case hi-lo > best.hi-best.lo:
			best = span{lo, hi}
		}
		if hi >= 1 {
			return best
		}
		lo = hi
	}
}

// Ended implements sim.Observer.
func (d *devices) Ended(now time.Duration, job int) {
	for _, s := range d.held[job] {
		dev := &d.list[s.device]
		if dev.users--; dev.users == 0 {
			dev.busy += now - dev.since
		}
		for i, p := range dev.parts {
			if p == s.span {
				dev.parts = append(dev.parts[:i], dev.parts[i+1:]...)
				break
			}
		}
		s.end = now
		d.closed = append(d.closed, s)
	}
	delete(d.held, job)
}

// allocated is the percentage of the makespan during which each device served at least one job.
func (d *devices) allocated(makespan time.Duration) []float64 {
	out := make([]float64, len(d.list))
	for i := range d.list {
		out[i] = 100 * float64(d.list[i].busy) / float64(makespan)
	}
	return out
}
