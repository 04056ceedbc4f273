package mapping

import (
	"sort"
	"time"
)

// random draws a device by weights: adaptive random (AR) of GREMM, equations 8
// to 11, or with fixed weights.
type random struct {
	candidates *candidates
	layout     *Layout
	roads      roads
	// alpha and beta are fixed where they are more than 0.
	alpha, beta float64
	// unbounded lets alpha rise above 1 and beta fall below it, as equations 10 and 11 do.
	unbounded bool
	// nodes is N of equation 11: those among which a call may choose.
	nodes int32

	upTo []float64 // scratch: the sum of the weights up to each candidate
}

func newRandom(l *Layout, r reach, alpha, beta float64, unbounded bool) *random {
	m := &random{
		candidates: newCandidates(l, r), layout: l, roads: newRoads(l), alpha: alpha, beta: beta, unbounded: unbounded,
		nodes: int32(l.Nodes()), upTo: make([]float64, l.Devices()),
	}
	if r.group > 0 {
		m.nodes = min(m.nodes, r.group)
	}
	if r.choices > 0 {
		m.nodes = min(m.nodes, r.choices+1)
	}
	return m
}

func (m *random) Map(c *Call, v *View) int32 {
	spans := m.candidates.of(c, v)
	w := m.factors(c)
	w.ofAll = v.Local.meanOfAll()
	sum, n := 0.0, 0
	for d := spans[0].from; d < spans[0].to; d++ {
		l := &v.Local.loads[d]
		weight := w.bonus(l.mean)
		if l.queued > 0 {
			weight = float64(weight * w.penalty(l.mean))
		}
		sum += weight
		m.upTo[n], n = sum, n+1
	}

	w.ofAll = v.Table.meanOfAll()
	byPlace := m.roads.until != nil || m.candidates.reach.locality && len(c.Resident) > 0
	for _, p := range spans[1:] {
		loads, upTo := v.Table.loads[p.from:p.to], m.upTo[n:]
		for i := range loads {
			l := &loads[i]
			queued, weight := l.queued, 1.0
			if v.Wrong != nil {
				queued = v.Queued(p.from + int32(i))
			}
			if queued > 0 {
				weight = w.penalty(l.mean)
			}
			if byPlace {
				weight = float64(weight * w.place(c, p.from+int32(i), l.mean))
			}
			sum += weight
			upTo[i] = sum
		}
		n += len(loads)
	}

	u := float64(v.Rand.Float64() * sum)
	// Rounding may bring u up to the whole sum; the last device has that.
	i := min(sort.Search(n, func(i int) bool { return m.upTo[i] > u }), n-1)
	for _, p := range spans {
		if n := int(p.to - p.from); i >= n {
			i -= n
			continue
		}
		return p.from + int32(i)
	}
	return Anywhere
}

// factors are what equations 10 and 11 know of a call.
type factors struct {
	*random
	coresPerDevice float64 // M/K of the caller's node
	kilobytes      float64 // D
	nodesByLink    float64 // N/B, B of the caller's own link in kilobytes a millisecond
	ofAll          time.Duration
}

func (m *random) factors(c *Call) factors {
	own := m.layout.devicesOf(c.Node)
	w := factors{
		random:         m,
		coresPerDevice: float64(m.layout.Cores[c.Node]) / float64(max(1, own.to-own.from)),
		kilobytes:      float64(c.In+c.Out) / 1e3,
	}
	if link := m.layout.link(c.Node); link > 0 {
		w.nodesByLink = float64(m.nodes) / (float64(link) / 1e6)
	}
	return w
}

// milliseconds is tau of equations 10 and 11; 0 where nothing has run.
func (w *factors) milliseconds(mean time.Duration) float64 {
	if mean == unknown {
		mean = w.ofAll
	}
	return float64(mean) * 1e-6
}

// penalty is alpha, equation 10, for a device with such a mean of its last run times.
func (w *factors) penalty(mean time.Duration) float64 {
	if w.alpha > 0 {
		return w.alpha
	}
	tau := w.milliseconds(mean)
	if tau <= 0 {
		return 1
	}
	alpha := w.coresPerDevice / tau
	if alpha > 1 && !w.unbounded {
		return 1
	}
	return alpha
}

// unknownBonus is beta where nothing has run: equation 11 grows without end as tau
// falls, so that calls with data stay at home until something is known.
const unknownBonus = 1e12

// bonus is beta, equation 11.
func (w *factors) bonus(mean time.Duration) float64 {
	if w.beta > 0 {
		return w.beta
	}
	return w.bonusBy(w.nodesByLink, mean)
}

// bonusBy is equation 11 for such a link.
func (w *factors) bonusBy(nodesByLink float64, mean time.Duration) float64 {
	tau := w.milliseconds(mean)
	switch {
	case tau <= 0 && (w.kilobytes == 0 || nodesByLink == 0):
		return 1
	case tau <= 0:
		return unknownBonus
	}
	rate := w.kilobytes / tau
	beta := float64(rate*rate) * nodesByLink
	if beta < 1 && !w.unbounded {
		return 1
	}
	return beta
}

// place is how much more or less a remote device weighs by its data and by what is between.
func (w *factors) place(c *Call, d int32, mean time.Duration) float64 {
	place := 1.0
	if w.roads.until != nil {
		place = w.behind(c, d, mean)
	}
	if w.candidates.reach.locality {
		place = float64(place * w.holds(c, d, mean))
	}
	return place
}

// behind is how much less a device weighs that lies behind a slower link than the
// caller's own, or on another switch: as much as beta would be more by that link.
func (w *factors) behind(c *Call, d int32, mean time.Duration) float64 {
	if w.beta > 0 {
		return 1
	}
	y := w.roads.way(c.Node, w.layout.NodeOf[d])
	if y.bandwidth == 0 {
		return 1
	}
	far := float64(y.longer) / float64(w.roads.overhead)
	nodesByLink := float64(float64(w.nodes)/(float64(y.bandwidth)/1e6)) * far
	return max(1, w.bonusBy(w.nodesByLink, mean)) / max(1, w.bonusBy(nodesByLink, mean))
}

// holds is how much more a remote device weighs that has some of the data: as
// much as beta would fall for a call with so few data to send, but never more
// than a local device would.
func (w *factors) holds(c *Call, d int32, mean time.Duration) float64 {
	resident := c.ResidentOn(d)
	if resident == 0 {
		return 1
	}
	most := max(1, w.bonus(mean))
	left := float64(c.In + c.Out - resident)
	if left <= 0 {
		return most
	}
	less := float64(c.In+c.Out) / left
	return min(most, float64(less*less))
}
