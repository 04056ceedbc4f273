package mapping

import (
	"fmt"
	"sort"
)

// candidates are the devices that a decision looks at: those of the caller's own
// node, and of the others all, or those of a group of nodes, or a few drawn at
// random, or the idle ones. What mappers do with them is theirs.
//
// They are handed out as spans of device numbers, of which all devices need no
// more than three, so that a scan runs through memory.
type candidates struct {
	layout *Layout
	reach  reach
	groups int32
	// class is that of each application: each critical one has its own, all others, and
	// all without protection, are of class 0.
	class []int32
	// common are the devices of each group that all classes see.
	common []set
	// special are those that a class sees in a group in which it has nodes of its own.
	special map[place]*set
	// anywhere are the devices of all groups that a class may use, from when they are first
	// asked for, and everything all devices.
	anywhere   []*set
	everything set

	spans []span  // scratch: the answer
	free  []int32 // scratch: idle devices of a group
}

// reach is how far decisions look.
type reach struct {
	group    int32 // nodes in a group; 0 for all in one
	block    bool  // groups are neighbours
	choices  int32 // the number of devices of other nodes to compare; 0 for all
	idle     bool  // idle ones first
	locality bool  // those that hold data in any case
	protect  bool  // not those of other applications that are critical
}

// place is a class in a group.
type place struct{ class, group int32 }

// span is the devices from one to before another.
type span struct{ from, to int32 }

// set is devices in ascending order.
type set struct {
	spans  []span
	before []int32 // how many devices are in earlier spans
	total  int32
}

func newCandidates(l *Layout, r reach) *candidates {
	c := &candidates{layout: l, reach: r, groups: 1}
	if r.group > 0 {
		c.groups = (int32(l.Nodes()) + r.group - 1) / r.group
	}
	classes := int32(1)
	if r.protect {
		c.class = make([]int32, len(l.Critical))
		for app, critical := range l.Critical {
			if critical {
				c.class[app] = classes
				classes++
			}
		}
	}
	c.anywhere = make([]*set, classes)
	c.divide()
	c.spans = make([]span, 0, l.Nodes()+3)
	return c
}

// divide makes the sets. Classes share those of groups in which they have no nodes, so that
// there are at most as many more sets as nodes.
func (c *candidates) divide() {
	l := c.layout
	c.common, c.special = make([]set, c.groups), map[place]*set{}
	specials := make([][]*set, c.groups)
	for n := range int32(l.Nodes()) {
		at := place{c.classOf(l.Owner[n]), c.groupOf(n)}
		if at.class > 0 && c.special[at] == nil {
			c.special[at] = &set{}
			specials[at.group] = append(specials[at.group], c.special[at])
		}
	}
	for n := range int32(l.Nodes()) {
		own, at := l.devicesOf(n), place{c.classOf(l.Owner[n]), c.groupOf(n)}
		c.everything.add(own)
		if at.class > 0 {
			c.special[at].add(own)
			continue
		}
		c.common[at.group].add(own)
		for _, s := range specials[at.group] {
			s.add(own)
		}
	}
}

// seenBy is the devices that a class sees in a group.
func (c *candidates) seenBy(class, group int32) *set {
	if class > 0 {
		if s := c.special[place{class, group}]; s != nil {
			return s
		}
	}
	return &c.common[group]
}

// seenAnywhere is those that it sees in all groups.
func (c *candidates) seenAnywhere(class int32) *set {
	if c.anywhere[class] == nil {
		s := &set{}
		for n := range int32(c.layout.Nodes()) {
			if owner := c.classOf(c.layout.Owner[n]); owner == 0 || owner == class {
				s.add(c.layout.devicesOf(n))
			}
		}
		c.anywhere[class] = s
	}
	return c.anywhere[class]
}

// check says whether protection leaves an application on a node without any device.
func (c *candidates) check() error {
	devices := make([]int32, len(c.anywhere)) // by class of their owner
	for d := range c.layout.NodeOf {
		devices[c.classOf(c.layout.Owner[c.layout.NodeOf[d]])]++
	}
	for n, owner := range c.layout.Owner {
		own := c.layout.devicesOf(int32(n))
		if owner >= 0 && own.from == own.to && devices[0] == 0 && devices[c.classOf(owner)] == 0 {
			return fmt.Errorf("application %d has no GPU on its node %d, and protect=yes keeps those of all others from it: "+
				"leave out protect, or have fewer critical applications", owner, n)
		}
	}
	return nil
}

func (l *Layout) devicesOf(node int32) span { return span{l.First[node], l.First[node+1]} }

// add puts devices into a set that come after all that are in it.
func (s *set) add(d span) {
	if d.from == d.to {
		return
	}
	if last := len(s.spans) - 1; last >= 0 && s.spans[last].to == d.from {
		s.spans[last].to = d.to
	} else {
		s.spans, s.before = append(s.spans, d), append(s.before, s.total)
	}
	s.total += d.to - d.from
}

// find is the first span that ends after a device.
func (s *set) find(device int32) int {
	return sort.Search(len(s.spans), func(i int) bool { return s.spans[i].to > device })
}

func (s *set) has(device int32) bool {
	i := s.find(device)
	return i < len(s.spans) && s.spans[i].from <= device
}

// at is the device of the set with this many of the set before it.
func (s *set) at(rank int32) int32 {
	i := sort.Search(len(s.before), func(i int) bool { return s.before[i] > rank }) - 1
	return s.spans[i].from + rank - s.before[i]
}

// round appends all devices of the set but the caller's own, beginning after those.
func (s *set) round(own span, to []span) []span {
	i := s.find(own.to)
	for j := i; j < len(s.spans); j++ {
		to = append(to, span{max(s.spans[j].from, own.to), s.spans[j].to})
	}
	for _, d := range s.spans[:min(i+1, len(s.spans))] {
		if d.from < own.from {
			to = append(to, span{d.from, min(d.to, own.from)})
		}
	}
	return to
}

func (c *candidates) classOf(app int32) int32 {
	if app >= 0 && int(app) < len(c.class) {
		return c.class[app]
	}
	return 0
}

func (c *candidates) groupOf(node int32) int32 {
	if c.reach.block {
		return node / c.reach.group
	}
	return node % c.groups
}

// of is the devices to look at: first the span of the caller's own, which may be
// empty, then others. A caller that would see none sees those of all groups. The slice is
// valid until the next decision.
func (c *candidates) of(call *Call, v *View) []span {
	own := c.layout.devicesOf(call.Node)
	s := c.seenBy(c.classOf(call.App), c.groupOf(call.Node))
	if s.total == 0 && own.from == own.to {
		s = c.seenAnywhere(c.classOf(call.App))
		if s.total == 0 { // check knows of no such application
			s = &c.everything
		}
	}
	spans := append(c.spans[:0], own)
	switch {
	case c.reach.choices > 0:
		spans = c.draw(s, own, v, spans)
	case c.reach.idle:
		spans = c.idle(s, own, v, spans)
	default:
		spans = s.round(own, spans)
	}
	if c.reach.locality && (c.reach.choices > 0 || c.reach.idle) {
		for i := range call.Resident {
			if d := call.Resident[i].Device; s.has(d) && !among(spans, d) {
				spans = append(spans, span{d, d + 1})
			}
		}
	}
	c.spans = spans
	return spans
}

func among(spans []span, device int32) bool {
	for _, s := range spans {
		if s.from <= device && device < s.to {
			return true
		}
	}
	return false
}

// idle appends the idle devices of the set but the caller's own; all where none is idle.
func (c *candidates) idle(s *set, own span, v *View, spans []span) []span {
	for _, d := range c.idleOf(s, own, v) {
		if (d < own.from || d >= own.to) && s.has(d) {
			spans = append(spans, span{d, d + 1})
		}
	}
	if len(spans) == 1 {
		return s.round(own, spans)
	}
	return spans
}

// idleOf is a list with all idle devices of the set, and perhaps others. A group is looked
// through, since it is small; of all devices the table has a list.
func (c *candidates) idleOf(s *set, own span, v *View) []int32 {
	if c.reach.group == 0 {
		return v.Table.Idle()
	}
	c.free = c.free[:0]
	for _, p := range s.spans {
		for d := p.from; d < p.to; d++ {
			if v.Table.loads[d].queued == 0 && (d < own.from || d >= own.to) {
				c.free = append(c.free, d)
			}
		}
	}
	return c.free
}

// draw appends a few devices of the set but the caller's own, all different, each
// as likely as the others; with idle ones first the others only make up their number.
func (c *candidates) draw(s *set, own span, v *View, spans []span) []span {
	// first is how many of the others come before the caller's own.
	others, first := s.total, s.total
	if i := s.find(own.from); own.from < own.to && i < len(s.spans) && s.spans[i].from <= own.from {
		others -= own.to - own.from
		first = s.before[i] + own.from - s.spans[i].from
	}
	want := c.reach.choices
	if want >= others {
		return s.round(own, spans)
	}
	if c.reach.idle {
		spans = c.drawIdle(s, own, v, spans)
	}
	for int32(len(spans)-1) < want {
		d := s.other(v.Rand.Int32N(others), first, own)
		if !among(spans[1:], d) {
			spans = append(spans, span{d, d + 1})
		}
	}
	return spans
}

// other is the device with this many of the other nodes' devices before it, where first of them
// come before the caller's own.
func (s *set) other(rank, first int32, own span) int32 {
	if rank >= first {
		rank += own.to - own.from
	}
	return s.at(rank)
}

// drawIdle appends as many idle devices as it is asked for, or as it finds in a few draws.
func (c *candidates) drawIdle(s *set, own span, v *View, spans []span) []span {
	idle := c.idleOf(s, own, v)
	can := int32(len(idle))
	if c.reach.group == 0 {
		for d := own.from; d < own.to; d++ {
			if v.Table.at[d] >= 0 {
				can--
			}
		}
	}
	want := min(c.reach.choices, can)
	for tries := 4*c.reach.choices + 4; want > 0 && tries > 0; tries-- {
		d := idle[v.Rand.Int32N(int32(len(idle)))]
		if (d >= own.from && d < own.to) || among(spans[1:], d) || !s.has(d) {
			continue
		}
		spans = append(spans, span{d, d + 1})
		want--
	}
	return spans
}
