package mapping

import (
	"math"
	"time"
)

// greedy gives a call to the device with the least waiting: adaptive greedy (AG)
// of GREMM, equations 1 to 7, and probe, which asks fewer devices and thinks
// otherwise of the network.
type greedy struct {
	candidates *candidates
	layout     *Layout
	roads      roads
	estimate   Estimate
	network    network
	uniform    bool // all devices are equally fast
}

// network is what is thought of the time that data travel.
type network struct {
	plus bool // the other reading of equation 6
	// probe does without equations 5 and 6. Instead it counts what others lose by a device
	// that is held for data: care times the time for each call that waits, by device.
	probe bool
	care  int64
}

func newGreedy(l *Layout, r reach, estimate Estimate, n network) *greedy {
	m := &greedy{candidates: newCandidates(l, r), layout: l, roads: newRoads(l), estimate: estimate, network: n, uniform: true}
	for _, s := range l.Speed {
		m.uniform = m.uniform && s == l.Speed[0]
	}
	return m
}

// Estimate makes greedy an Estimator.
func (m *greedy) Estimate() Estimate { return m.estimate }

func (m *greedy) Map(c *Call, v *View) int32 {
	if v.Table.Estimate != m.estimate || v.Local.Estimate != m.estimate {
		panic("mapping: the table and the mapper estimate differently: set Table.Estimate to EstimateOf the mapper")
	}
	s := m.search(c, v)
	spans := m.candidates.of(c, v)
	s.scan(spans[:1], v.Local, nil, wire{})

	n := m.news(c, v)
	if m.candidates.reach.locality {
		for i := range c.Resident {
			d := c.Resident[i].Device
			if held := c.ResidentOn(d); held > 0 && among(spans[1:], d) {
				s.scan([]span{{d, d + 1}}, v.Table, v.Wrong, m.wire(c, n, d, c.In-held))
			}
		}
	}
	if m.roads.until == nil {
		s.scan(spans[1:], v.Table, v.Wrong, m.wire(c, n, 0, c.In))
		return s.device
	}
	// Neighbouring spans are mostly reached by the same way, of which the wire is found out once.
	var last way
	var known wire
	for i, p := range spans[1:] {
		for p.from < p.to {
			q := m.roads.alike(p)
			if w := m.roads.way(c.Node, m.layout.NodeOf[q.from]); w != last || i == 0 {
				last, known = w, m.wireOf(&w, c, n, c.In)
			}
			s.scan([]span{q}, v.Table, v.Wrong, known)
			p.from = q.to
		}
	}
	return s.device
}

// search begins a decision.
func (m *greedy) search(c *Call, v *View) search {
	s := search{view: v, least: math.MaxInt64, device: Anywhere}
	if m.estimate != ByWindow && !m.uniform {
		s.normal = v.Table.history.expect(c, m.estimate)
	}
	return s
}

// news is what is known of the network, the same for all devices.
type news struct {
	outbound int32  // calls of the caller's node that are elsewhere
	share    uint64 // among how many a link is divided by equation 6, times the number of devices
	crowd    uint64 // the waiting calls, as far as probe needs them
	// most is how long the data of one call may count, so that those of all can be added.
	most time.Duration
}

func (m *greedy) news(c *Call, v *View) news {
	if m.network.probe {
		return news{crowd: uint64(m.network.care * v.Table.Waiting())}
	}
	n := news{outbound: v.Local.Outbound(c.Node), share: v.inboundShare(c.Node, m.network.plus), most: tooLong}
	if calls := max(n.outbound, v.Table.busiest); calls > forever/tooLong {
		n.most = forever / time.Duration(calls)
	}
	return n
}

// wire is what is thought of the network for some devices that are reached alike.
type wire struct {
	outbound int32         // calls of the caller's node that are elsewhere
	each     time.Duration // for each other call on the busier of the two ports
	always   time.Duration
	care     time.Duration // the part of it that others lose while a device is held for data
}

// wire is equation 3 and the upper parts of 5 and 6: the time of bytes that are sent to
// a device, and of results.
func (m *greedy) wire(c *Call, n news, device int32, bytes int64) wire {
	w := m.roads.way(c.Node, m.layout.NodeOf[device])
	return m.wireOf(&w, c, n, bytes)
}

func (m *greedy) wireOf(w *way, c *Call, n news, bytes int64) wire {
	all := uint64(m.layout.Devices())
	there, back := w.travel(bytes), w.travel(c.Out)
	if m.network.probe {
		care := time.Duration(scale(uint64(there+w.latency), n.crowd, all))
		return wire{always: there + w.latency + back + care, care: care}
	}
	return wire{outbound: n.outbound, each: min(there, n.most), always: there + time.Duration(scale(uint64(back), n.share, all))}
}

// search is one decision: the least waiting that was found so far, and where.
type search struct {
	view   *View
	normal time.Duration // what the call itself takes at normal speed, where that matters
	least  time.Duration
	device int32
}

// scan looks for a device with less waiting than was found, equations 1 to 5 and 7.
func (s *search) scan(spans []span, t *Table, wrong *Wrong, w wire) {
	// No device can have less than this. It ends many scans before they begin.
	floor := time.Duration(w.outbound)*w.each + w.always
	if floor >= s.least {
		return
	}
	// An idle device is better than a busy one, even where nothing has run.
	ofAll := max(1, t.meanOfAll())
	for _, p := range spans {
		if wrong == nil && t.Estimate == ByWindow {
			s.scanBlocks(p, t, &w, ofAll)
		} else {
			s.scanEach(p, t, wrong, &w, ofAll)
		}
		if s.least == floor {
			return
		}
	}
}

// scanEach is scan where each device has to be asked: views that err draw a number for each, and what
// is known of kernels changes with the time.
func (s *search) scanEach(p span, t *Table, wrong *Wrong, w *wire, ofAll time.Duration) {
	floor := time.Duration(w.outbound)*w.each + w.always
	for i := range t.loads[p.from:p.to] {
		l, d := &t.loads[p.from+int32(i)], p.from+int32(i)
		queued := l.queued
		if wrong != nil {
			queued = s.view.Queued(d)
		}
		waiting := time.Duration(max(w.outbound, l.inbound))*w.each + w.always
		switch {
		case t.Estimate != ByWindow:
			waiting += s.busy(t, d, queued)
		case l.mean != unknown:
			waiting += time.Duration(queued) * l.mean
		default:
			waiting += multiple(queued, ofAll)
		}
		if waiting < s.least {
			s.least, s.device = waiting, d
			if waiting == floor {
				return
			}
		}
	}
}

// busy is how long a device is busy by what is known of kernels, and with the call
// itself where devices differ in speed. A device with calls is never as good as one without.
func (s *search) busy(t *Table, d, queued int32) time.Duration {
	itself := t.atSpeed(s.normal, d)
	switch {
	case queued == 0:
		return itself
	case t.loads[d].queued == 0: // it only seems busy
		return itself + max(1, t.Mean(d))
	}
	return itself + t.Backlog(d, s.view.Now)
}
