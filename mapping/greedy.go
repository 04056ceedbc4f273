package mapping

import (
	"math"
	"math/bits"
	"time"
)

// greedy gives a call to the device with the least waiting: adaptive greedy (AG)
// of GREMM, equations 1 to 7, and probe, which asks fewer devices and thinks
// otherwise of the network.
type greedy struct {
	candidates *candidates
	layout     *Layout
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
	m := &greedy{candidates: newCandidates(l, r), layout: l, estimate: estimate, network: n, uniform: true}
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

	back := m.back(c, v)
	if m.candidates.reach.locality {
		for i := range c.Resident {
			d := c.Resident[i].Device
			if held := c.ResidentOn(d); held > 0 && among(spans[1:], d) {
				s.scan([]span{{d, d + 1}}, v.Table, v.Wrong, m.wire(c, v, c.In-held, back))
			}
		}
	}
	s.scan(spans[1:], v.Table, v.Wrong, m.wire(c, v, c.In, back))
	return s.device
}

// search begins a decision.
func (m *greedy) search(c *Call, v *View) search {
	s := search{view: v, least: math.MaxInt64, device: Anywhere}
	if m.estimate != ByWindow && !m.uniform {
		s.normal = v.Table.history.Expect(c, m.estimate)
	}
	return s
}

// wire is what is known of the network, the same for all devices of one scan.
type wire struct {
	outbound int32         // calls of the caller's node that are elsewhere
	each     time.Duration // for each other call on the busier of the two ports
	always   time.Duration
}

// wire is equation 3 and the upper part of 5: the time of bytes that are sent, and of results.
func (m *greedy) wire(c *Call, v *View, bytes int64, back time.Duration) wire {
	there := m.travel(bytes)
	if m.network.probe {
		return wire{always: there + m.layout.Latency + back + m.lost(v, bytes)}
	}
	return wire{outbound: v.Local.Outbound(c.Node), each: there, always: there + back}
}

// lost is what others lose while a device is held for such bytes, as far as probe cares.
func (m *greedy) lost(v *View, bytes int64) time.Duration {
	if !m.network.probe {
		return 0
	}
	crowd := uint64(m.network.care * v.Table.Waiting())
	return time.Duration(scale(uint64(m.travel(bytes)+m.layout.Latency), crowd, uint64(m.layout.Devices())))
}

// travel is how long data are on their way if they have the link to themselves.
func (m *greedy) travel(bytes int64) time.Duration {
	if m.layout.Bandwidth <= 0 {
		return 0
	}
	return time.Duration(scale(uint64(max(0, bytes)), uint64(time.Second), uint64(m.layout.Bandwidth)))
}

// back is how long results are on their way, equation 6: the same for all devices.
func (m *greedy) back(c *Call, v *View) time.Duration {
	if m.network.probe {
		return m.travel(c.Out)
	}
	all := uint64(m.layout.Devices())
	share := uint64(v.Table.SumOfBusier(c.Node, v.Local.Inbound(c.Node)))
	if m.network.plus {
		share += all
	}
	// A link is never faster than itself.
	return time.Duration(scale(uint64(m.travel(c.Out)), max(share, all), all))
}

// tooLong bounds the time that data travel, so that its multiples can be added: 9 hours.
const tooLong = 1 << 45

// scale is a x b / c, rounded down, but at most tooLong.
func scale(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return tooLong
	}
	q, _ := bits.Div64(hi, lo, c)
	return min(q, tooLong)
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
	ofAll := t.meanOfAll()
	history := t.Estimate != ByWindow
	for _, p := range spans {
		loads := t.loads[p.from:p.to]
		for i := range loads {
			l := &loads[i]
			queued := l.queued
			if wrong != nil {
				queued = s.view.Queued(p.from + int32(i))
			}
			waiting := time.Duration(max(w.outbound, l.inbound))*w.each + w.always
			switch {
			case history:
				waiting += s.busy(t, p.from+int32(i), queued)
			case l.mean != unknown:
				waiting += time.Duration(queued) * l.mean
			default:
				waiting += time.Duration(queued) * ofAll
			}
			if waiting < s.least {
				s.least, s.device = waiting, p.from+int32(i)
				if waiting == floor {
					return
				}
			}
		}
	}
}

// busy is how long a device is busy by what is known of kernels, and with the
// call itself where devices differ in speed.
func (s *search) busy(t *Table, d, queued int32) time.Duration {
	itself := t.atSpeed(s.normal, d)
	switch {
	case queued == 0:
		return itself
	case t.loads[d].queued == 0: // it only seems busy
		return itself + t.Mean(d)
	}
	return itself + t.Backlog(d, s.view.Now)
}
