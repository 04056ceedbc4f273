package worker

import (
	"fmt"
	"maps"
	"slices"

	"muster/node/clientcore"
	"muster/vmm"
)

// contexts are the client's open contexts, by place. The loop owns them.
type contexts struct {
	open   map[vmm.Place]*gpu
	latest *gpu // that at returned last; a cache

	checking bool // the device of one that was opened checks the memory accesses of kernels
}

// add adds a context that was opened.
func (c *contexts) add(g *gpu) { c.open[g.place] = g }

// remove removes and returns the context of a place; nil if there is none.
func (c *contexts) remove(p vmm.Place) *gpu {
	g := c.open[p]
	delete(c.open, p)
	c.latest = nil
	return g
}

// has says whether a context is open still.
func (c *contexts) has(g *gpu) bool { return c.open[g.place] == g }

// at returns the open context of a place.
func (c *contexts) at(p vmm.Place) (*gpu, error) {
	if c.latest != nil && c.latest.place == p {
		return c.latest, nil
	}
	g := c.open[p]
	if g == nil {
		return nil, fmt.Errorf("there is no context on %v", p)
	}
	c.latest = g
	return g, nil
}

// of returns the context of the i-th stream or event of an operation.
func (c *contexts) of(g *gpu, o *clientcore.Op, i int) (*gpu, error) {
	if o.At == nil {
		return g, nil
	}
	return c.at(o.At[i])
}

// placesInOrder returns the places where the client has a context, by device number.
func (c *contexts) placesInOrder() []vmm.Place {
	return slices.SortedFunc(maps.Keys(c.open), func(a, b vmm.Place) int { return a.Index() - b.Index() })
}

// streams is how many streams may have work.
func (c *contexts) streams() (n int) {
	for _, g := range c.open {
		n += len(g.streams) + len(g.leaving)
	}
	return n
}

// quiet says whether no work is in flight on any device.
func (c *contexts) quiet() (bool, error) {
	for _, g := range c.open {
		if quiet, err := g.quiet(); !quiet || err != nil {
			return false, err
		}
	}
	return true, nil
}

// elapsedBetween returns the time between two moments. The device measures it if both events are in
// one context; otherwise it is the difference of two times on the worker's clock.
func (c *contexts) elapsedBetween(start, end clientcore.Moment) (clientcore.Time, error) {
	if start.Pending && end.Pending && start.Place == end.Place {
		g, err := c.at(start.Place)
		if err != nil {
			return 0, err
		}
		from, err := g.event(start.Event)
		if err != nil {
			return 0, err
		}
		to, err := g.event(end.Event)
		if err != nil {
			return 0, err
		}
		return to.Since(from.Event)
	}
	from, err := c.when(start)
	if err != nil {
		return 0, err
	}
	to, err := c.when(end)
	return to - from, err
}

// when returns the time of a moment in any context.
func (c *contexts) when(m clientcore.Moment) (clientcore.Time, error) {
	if !m.Pending {
		return m.At, nil
	}
	g, err := c.at(m.Place)
	if err != nil {
		return 0, err
	}
	return g.when(m)
}

// times returns when the events of an operation happened, so that their times outlive the context.
// All work must have ended. An event that cannot be asked counts as now.
func (c *contexts) times(g *gpu, o *clientcore.Op, now clientcore.Time) []clientcore.Time {
	all := make([]clientcore.Time, len(o.Events))
	for i, id := range o.Events {
		g, err := c.of(g, o, i)
		if err != nil {
			all[i] = now
			continue
		}
		at, err := g.when(clientcore.Moment{Event: id, Pending: true})
		if err != nil {
			at = now
		}
		all[i] = at
	}
	return all
}

// know tells devices that check the memory accesses of kernels what the program has allocated.
func (c *contexts) know(allocations []vmm.Range) {
	allocated := arenas(allocations)
	for _, g := range c.open {
		if know := g.context.Can().Know; know != nil {
			know(allocated)
		}
	}
}
