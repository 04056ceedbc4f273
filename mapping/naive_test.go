package mapping

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// The second implementation of tables and mappers: it remembers everything that
// happened, and works out each figure from all of it, as the equations say.

type happening struct {
	what   byte // 'a'ssign, 'b'egin, 'f'inish
	id     int
	call   *Call
	device int32
	at     time.Duration
	ran    time.Duration
}

type naive struct {
	layout   *Layout
	window   int
	events   []happening
	expected map[int]time.Duration // what the table said at Assign
}

// play tells a table and its naive twin what happened.
func play(l *Layout, window int, by Estimate, events []happening) (*Table, *naive) {
	t := NewTable(l, window)
	t.Estimate = by
	n := &naive{layout: l, window: window, events: events, expected: map[int]time.Duration{}}
	for _, e := range events {
		switch e.what {
		case 'a':
			n.expected[e.id] = t.Assign(e.call, e.device)
		case 'b':
			t.Begin(e.device, n.expected[e.id], e.at)
		case 'f':
			t.Finish(e.call, e.device, n.expected[e.id], e.ran)
		}
	}
	return t, n
}

// unfinished are the calls that were assigned and did not finish.
func (n *naive) unfinished() (open []happening) {
	for _, a := range n.events {
		if a.what != 'a' {
			continue
		}
		done := false
		for _, f := range n.events {
			done = done || (f.what == 'f' && f.id == a.id)
		}
		if !done {
			open = append(open, a)
		}
	}
	return open
}

func (n *naive) queued(d int32) (count int32) {
	for _, a := range n.unfinished() {
		if a.device == d {
			count++
		}
	}
	return count
}

func (n *naive) outbound(node int32) (count int32) {
	for _, a := range n.unfinished() {
		if a.call.Node == node && n.layout.NodeOf[a.device] != node {
			count++
		}
	}
	return count
}

func (n *naive) inbound(node int32) (count int32) {
	for _, a := range n.unfinished() {
		if a.call.Node != node && n.layout.NodeOf[a.device] == node {
			count++
		}
	}
	return count
}

// lastRuns are the run times that count of a device.
func (n *naive) lastRuns(d int32) (runs []time.Duration) {
	for _, f := range n.events {
		if f.what == 'f' && f.device == d {
			runs = append(runs, f.ran)
		}
	}
	return runs[max(0, len(runs)-n.window):]
}

func (n *naive) mean(d int32) time.Duration {
	runs := n.lastRuns(d)
	if len(runs) == 0 {
		for all := range n.layout.NodeOf {
			runs = append(runs, n.lastRuns(int32(all))...)
		}
	}
	if len(runs) == 0 {
		return 0
	}
	sum := time.Duration(0)
	for _, r := range runs {
		sum += r
	}
	return max(1, sum/time.Duration(len(runs)))
}

func (n *naive) backlog(d int32, now time.Duration) (sum time.Duration) {
	for _, a := range n.unfinished() {
		if a.device != d {
			continue
		}
		left := n.expected[a.id]
		for i, b := range n.events {
			if b.what == 'b' && b.id == a.id {
				least := math.Min(1<<50, n.restAfter(n.events[:i])*float64(left))
				left = max(left-(now-b.at), time.Duration(least), min(left, 1))
			}
		}
		sum += left
	}
	return sum
}

// restAfter is how much of what was expected of a call is expected of its rest, after
// all that has happened before it began.
func (n *naive) restAfter(past []happening) float64 {
	var misses, bases []float64
	for _, f := range past {
		if expected := float64(n.expected[f.id]); f.what == 'f' && expected > 1 {
			misses = append(misses, (float64(f.ran)-expected)*(float64(f.ran)-expected))
			bases = append(bases, expected*expected)
		}
	}
	v := 1.0
	if len(misses) > 0 {
		v = faded(misses) / faded(bases)
	}
	return math.Min(1, v) * ((1 + v) / 4)
}

// faded is a mean in which each of the later ones weighs 1/64, and the first ones alike.
func faded(list []float64) (mean float64) {
	for i, x := range list {
		mean += float64(math.Max(1./64, 1/float64(i+1)) * (x - mean))
	}
	return mean
}

// scene is a cluster with a past, and a call that is about to be mapped.
type scene struct {
	layout       *Layout
	view         *View
	table, local *naive
	call         *Call
	by           Estimate
}

func drawLayout(t *rapid.T) *Layout {
	l := &Layout{First: []int32{0}, Bandwidth: rapid.SampledFrom([]int64{0, 1, 100e6, 100e6, 100e6, 1000e6}).Draw(t, "bandwidth")}
	l.Latency = time.Duration(rapid.IntRange(0, 2).Draw(t, "latency")) * 100 * time.Millisecond
	l.Overhead = rapid.SampledFrom([]float64{0, 0, 1, 1.09}).Draw(t, "overhead")
	l.Far = rapid.SampledFrom([]float64{0, 1, 1.5, 10}).Draw(t, "far")
	apps := rapid.IntRange(1, 3).Draw(t, "apps")
	for range apps {
		l.Critical = append(l.Critical, rapid.Bool().Draw(t, "critical"))
	}
	most := 3
	if rapid.Bool().Draw(t, "even") {
		most = 1
	}
	speeds := []float64{1}
	if rapid.Bool().Draw(t, "unlike") {
		speeds = []float64{1, 0.5, 3}
	}
	for n := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		l.Cores = append(l.Cores, int32(rapid.IntRange(1, 12).Draw(t, "cores")))
		l.Owner = append(l.Owner, int32(rapid.IntRange(-1, apps-1).Draw(t, "owner")))
		for range rapid.IntRange(0, most).Draw(t, "devices") {
			l.NodeOf = append(l.NodeOf, int32(n))
			l.Speed = append(l.Speed, rapid.SampledFrom(speeds).Draw(t, "speed"))
		}
		l.First = append(l.First, int32(len(l.NodeOf)))
	}
	if rapid.Bool().Draw(t, "roads differ") {
		for range l.Cores {
			l.Links = append(l.Links, rapid.SampledFrom([]int64{0, 1e6, 100e6, 100e6, 1000e6}).Draw(t, "link"))
			l.Switch = append(l.Switch, int32(rapid.IntRange(0, 1).Draw(t, "switch")))
			l.Latencies = append(l.Latencies, time.Duration(rapid.IntRange(0, 2).Draw(t, "latency"))*50*time.Millisecond)
		}
	}
	if len(l.NodeOf) == 0 { // one device, on the last node
		l.NodeOf, l.Speed = []int32{int32(len(l.Cores) - 1)}, []float64{1}
		l.First[len(l.Cores)] = 1
	}
	return l
}

func drawCall(t *rapid.T, l *Layout) *Call {
	c := &Call{
		Node: int32(rapid.IntRange(0, l.Nodes()-1).Draw(t, "node")), Home: -1,
		Process: int32(rapid.IntRange(0, 20).Draw(t, "process")),
		Rank:    int32(rapid.IntRange(0, 20).Draw(t, "rank")),
		App:     int32(rapid.IntRange(0, len(l.Critical)-1).Draw(t, "app")),
		Kernel:  int32(rapid.IntRange(0, 2).Draw(t, "kernel")),
		// Few sizes, so that there are ties.
		In:  rapid.SampledFrom([]int64{0, 1, 5_000_000, 5_000_000, 22_500_000, 1 << 50}).Draw(t, "in"),
		Out: rapid.SampledFrom([]int64{0, 3, 0, 5_000_000, 11_250_000, 1 << 50}).Draw(t, "out"),
	}
	if own := l.devicesOf(c.Node); own.from < own.to {
		c.Home = own.from + c.Process%(own.to-own.from)
	}
	for range rapid.IntRange(0, 2).Draw(t, "residents") {
		d := int32(rapid.IntRange(0, l.Devices()-1).Draw(t, "holder"))
		if c.ResidentOn(d) == 0 {
			c.Resident = append(c.Resident, Resident{d, 1 + c.In*int64(rapid.IntRange(0, 3).Draw(t, "part"))/2})
		}
	}
	return c
}

func drawPast(t *rapid.T, l *Layout) (events []happening, now time.Duration) {
	type open struct{ assigned, begun []happening }
	devices := make([]open, l.Devices())
	for id := range rapid.IntRange(0, 80).Draw(t, "events") {
		now += time.Duration(rapid.IntRange(0, 5).Draw(t, "pause")) * 100 * time.Millisecond
		d := int32(rapid.IntRange(0, l.Devices()-1).Draw(t, "device"))
		o := &devices[d]
		assign := rapid.IntRange(0, 2).Draw(t, "what") == 0
		switch {
		case (assign && len(o.assigned) < 3) || len(o.assigned)+len(o.begun) == 0:
			e := happening{'a', id, drawCall(t, l), d, now, 0}
			events, o.assigned = append(events, e), append(o.assigned, e)
		case len(o.begun) == 0:
			e := o.assigned[0]
			e.what, e.at = 'b', now
			events, o.assigned, o.begun = append(events, e), o.assigned[1:], append(o.begun, e)
		default:
			e := o.begun[0]
			e.what, e.at, e.ran = 'f', now, time.Duration(rapid.SampledFrom([]int{1, 99_999_999, 100_000_000, 100_000_001, 1_500_000_000}).Draw(t, "ran"))
			events, o.begun = append(events, e), nil
		}
	}
	return events, now + time.Duration(rapid.IntRange(0, 3).Draw(t, "later"))*100*time.Millisecond
}

func drawScene(t *rapid.T, by Estimate) *scene {
	s := &scene{layout: drawLayout(t), by: by}
	events, now := drawPast(t, s.layout)
	window := rapid.IntRange(1, 4).Draw(t, "window")
	known := len(events)
	if rapid.Bool().Draw(t, "late") {
		known = rapid.IntRange(0, len(events)).Draw(t, "known")
	}
	s.view = &View{Now: now}
	s.view.Table, s.table = play(s.layout, window, by, events[:known])
	s.view.Local, s.local = play(s.layout, window, by, events)
	s.call = drawCall(t, s.layout)
	return s
}

// TestTableAgainstNaive compares every figure of a table with what follows from all that happened.
func TestTableAgainstNaive(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.SampledFrom([]Estimate{ByWindow, ByKernel, ByBytes}).Draw(t, "by"))
		table, naive := s.view.Local, s.local
		idle := map[int32]bool{}
		for _, d := range table.Idle() {
			if idle[d] {
				t.Fatalf("device %d is idle twice", d)
			}
			idle[d] = true
		}
		for d := range int32(s.layout.Devices()) {
			if got, want := table.Queued(d), naive.queued(d); got != want || idle[d] != (want == 0) {
				t.Fatalf("device %d: %d queued, idle %v; want %d", d, got, idle[d], want)
			}
			if got, want := table.Mean(d), naive.mean(d); got != want {
				t.Fatalf("device %d: mean %v, want %v", d, got, want)
			}
			if got, want := table.Backlog(d, s.view.Now), naive.backlog(d, s.view.Now); got != want {
				t.Fatalf("device %d: backlog %v, want %v", d, got, want)
			}
			if got, want := table.loads[d].inbound, naive.inbound(s.layout.NodeOf[d]); got != want {
				t.Fatalf("device %d: %d inbound, want %d", d, got, want)
			}
		}
		floor := int32(rapid.IntRange(0, 5).Draw(t, "floor"))
		for n := range int32(s.layout.Nodes()) {
			if table.Outbound(n) != naive.outbound(n) || table.Inbound(n) != naive.inbound(n) {
				t.Fatalf("node %d: %d out, %d in; want %d, %d", n, table.Outbound(n), table.Inbound(n), naive.outbound(n), naive.inbound(n))
			}
			sum := int64(0)
			for _, of := range s.layout.NodeOf {
				if of != n {
					sum += int64(max(floor, naive.outbound(of)))
				}
			}
			if got := table.sumOfBusier(n, floor); got != sum {
				t.Fatalf("node %d: sum %d, want %d", n, got, sum)
			}
		}
	})
}

// drawReach is some setting of how far a decision looks, without chance.
func drawReach(t *rapid.T, nodes int) reach {
	r := reach{
		group:    int32(rapid.IntRange(0, nodes+1).Draw(t, "group")),
		idle:     rapid.Bool().Draw(t, "idle"),
		locality: rapid.Bool().Draw(t, "locality"), protect: rapid.Bool().Draw(t, "protect"),
	}
	r.block = r.group > 0 && rapid.Bool().Draw(t, "block")
	return r
}

// sees says whether a call may use the devices of another node.
func (s *scene) sees(r reach, node int32) bool {
	own, l := s.call.Node, s.layout
	if r.group > 0 && r.block && node/r.group != own/r.group {
		return false
	}
	if r.group > 0 && !r.block {
		groups := int32(math.Ceil(float64(l.Nodes()) / float64(r.group)))
		if node%groups != own%groups {
			return false
		}
	}
	owner := l.Owner[node]
	return !r.protect || owner < 0 || owner == s.call.App || !l.Critical[owner]
}

// candidates are the devices that are looked at, in the order in which they are met.
func (s *scene) candidates(r reach) (own, others []int32) {
	l := s.layout
	// A caller that would see none sees those of all groups, and at the very last everything.
	ungrouped := r
	ungrouped.group = 0
	for _, r := range []reach{r, ungrouped, {}} {
		for k := range int32(l.Nodes()) {
			node := (s.call.Node + k) % int32(l.Nodes())
			for d := range int32(l.Devices()) {
				switch {
				case l.NodeOf[d] != node:
				case k == 0:
					own = append(own, d)
				case s.sees(r, node):
					others = append(others, d)
				}
			}
		}
		if len(own)+len(others) > 0 {
			break
		}
	}
	if !r.idle {
		return own, others
	}
	var idle []int32
	if r.group > 0 {
		for d := range int32(l.Devices()) {
			if s.table.queued(d) == 0 && slices.Contains(others, d) {
				idle = append(idle, d)
			}
		}
	} else {
		for _, d := range s.view.Table.Idle() {
			if slices.Contains(others, d) {
				idle = append(idle, d)
			}
		}
	}
	if len(idle) == 0 {
		return own, others
	}
	if r.locality {
		for _, h := range s.call.Resident {
			if slices.Contains(others, h.Device) && !slices.Contains(idle, h.Device) {
				idle = append(idle, h.Device)
			}
		}
	}
	return own, idle
}

// times is a x b / c without bounds, then rounded down and bounded as the real one is.
func times(a, b, c int64) int64 {
	q := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	q.Div(q, big.NewInt(c))
	if q.Cmp(big.NewInt(tooLong)) > 0 {
		return tooLong
	}
	return q.Int64()
}

// road is what is between the caller and another node.
func (s *scene) road(to int32) (latency int64, travel func(bytes int64) int64) {
	l, from := s.layout, s.call.Node
	link, factor := l.Bandwidth, int64(1000)
	latency = int64(l.Latency)
	if l.Links != nil {
		link = 0
		for _, b := range []int64{l.Links[from], l.Links[to]} {
			if b > 0 && (link == 0 || b < link) {
				link = b
			}
		}
	}
	if l.Latencies != nil {
		latency = int64(l.Latencies[from])
	}
	if l.Overhead > 0 {
		factor = int64(math.Round(1000 * l.Overhead))
	}
	if l.Far > 0 && l.Switch != nil && l.Switch[from] != l.Switch[to] {
		far := int64(math.Round(1000 * l.Far))
		latency = times(latency, far, 1000)
		factor = factor * far / 1000
	}
	return latency, func(bytes int64) int64 {
		if link <= 0 {
			return 0
		}
		return times(times(bytes, 1e9, link), factor, 1000)
	}
}

func (s *scene) greedy(r reach, net network) int32 {
	l, c, now := s.layout, s.call, s.view.Now
	own, others := s.candidates(r)
	best, least := int32(-1), []int64{math.MaxInt64}
	// Of equals, a local one, then the first that holds data, then the first.
	try := func(d int32, key ...int64) {
		if slices.Compare(key, least) < 0 {
			best, least = d, key
		}
	}
	queue := func(n *naive, d int32) int64 {
		if s.by == ByWindow {
			return int64(n.queued(d)) * int64(max(1, n.mean(d))) // (2)
		}
		q := int64(n.backlog(d, now))
		for _, speed := range l.Speed {
			if speed != l.Speed[0] {
				return q + int64(float64(s.view.Table.history.expect(c, s.by))/l.Speed[d])
			}
		}
		return q
	}
	for i, d := range own {
		try(d, queue(s.local, d), 0, int64(i))
	}
	for i, d := range others {
		tau := queue(s.table, d)
		resident := int64(0)
		if r.locality {
			resident = c.ResidentOn(d)
		}
		latency, travel := s.road(l.NodeOf[d])
		switch {
		case net.probe:
			there, waiting := latency+travel(c.In-resident), int64(0)
			for d := range int32(l.Devices()) {
				waiting += int64(max(0, s.table.queued(d)-1))
			}
			tau += there + times(there, net.care*waiting, int64(l.Devices())) + travel(c.Out)
		default:
			busier := max(s.local.outbound(c.Node), s.table.inbound(l.NodeOf[d]))
			tau += travel(c.In-resident) * int64(busier+1) // (3), (5)
			sum := int64(0)
			for _, n := range l.NodeOf {
				if n != c.Node {
					sum += int64(max(s.table.outbound(n), s.local.inbound(c.Node)))
				}
			}
			all := int64(l.Devices())
			if net.plus {
				sum += all
			}
			tau += times(travel(c.Out), max(sum, all), all) // (3), (6)
		}
		if resident > 0 {
			at := slices.IndexFunc(c.Resident, func(h Resident) bool { return h.Device == d })
			try(d, tau, 1, int64(at))
		} else {
			try(d, tau, 2, int64(i))
		}
	}
	return best
}

func TestGreedyAgainstNaive(t *testing.T) {
	for _, by := range []Estimate{ByWindow, ByKernel, ByBytes} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			seeds.Check(t, func(t *rapid.T) {
				s := drawScene(t, by)
				r := drawReach(t, s.layout.Nodes())
				net := rapid.SampledFrom([]network{{}, {plus: true}, {probe: true}, {probe: true, care: 4}}).Draw(t, "network")
				m := newGreedy(s.layout, r, by, net)
				if got, want := m.Map(s.call, s.view), s.greedy(r, net); got != want {
					t.Fatalf("%+v, %+v: device %d, want %d", r, net, got, want)
				}
			})
		})
	}
}

// TestBandwidthsAreThoseOfGreedy: what anybody can ask for is what decisions are made by.
func TestBandwidthsAreThoseOfGreedy(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		s := drawScene(t, ByWindow)
		c, plus := s.call, rapid.Bool().Draw(t, "plus")
		for _, choice := range Explain(newGreedy(s.layout, reach{}, ByWindow, network{plus: plus}), c, s.view).Choices {
			node, want := s.layout.NodeOf[choice.Device], 0.0
			if node != c.Node {
				if b := s.view.OutboundBandwidth(c.Node, node); b > 0 {
					want = float64(c.In) / b * 1e9
				}
				if b := s.view.InboundBandwidth(c.Node, node, plus); b > 0 {
					want += float64(c.Out) / b * 1e9
				}
			}
			// Long transfers are bounded, and every step is rounded down.
			if want < tooLong && math.Abs(float64(choice.Transfer)-want) > 1000+1e-6*want {
				t.Fatalf("device %d: %v for data, want %v", choice.Device, choice.Transfer, time.Duration(want))
			}
		}
	})
}

// TestIdleBeforeBusy: of two devices of a node that are equally fast, an idle one is never passed over for a busy one.
func TestIdleBeforeBusy(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		by := rapid.SampledFrom([]Estimate{ByWindow, ByKernel, ByBytes}).Draw(t, "by")
		s := drawScene(t, by)
		s.view.Rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		s.call.Resident = nil
		l, r := s.layout, drawReach(t, s.layout.Nodes())
		r.choices = int32(rapid.IntRange(0, 3).Draw(t, "choices"))
		net := rapid.SampledFrom([]network{{}, {plus: true}, {probe: true}, {probe: true, care: 4}}).Draw(t, "network")
		got := newGreedy(l, r, by, net).Map(s.call, s.view)
		own := l.NodeOf[got] == s.call.Node
		known := s.table
		if own {
			known = s.local
		}
		if known.queued(got) == 0 || !own && r.choices > 0 { // whom it did not ask it cannot know
			return
		}
		for d := range int32(l.Devices()) {
			if l.NodeOf[d] == l.NodeOf[got] && l.Speed[d] == l.Speed[got] && known.queued(d) == 0 {
				t.Fatalf("device %d has %d calls, and %d of the same node is idle", got, known.queued(got), d)
			}
		}
	})
}

// linkTo is the slower of two links, in KB/ms, far less to another switch; 0 without limit.
func (s *scene) linkTo(node int32) float64 {
	l, own := s.layout, s.call.Node
	links := []int64{l.Bandwidth, l.Bandwidth}
	if l.Links != nil {
		links = []int64{l.Links[own], l.Links[node]}
	}
	slices.Sort(links)
	link := float64(links[0])
	if link <= 0 {
		link = math.Max(0, float64(links[1]))
	}
	if l.Far > 0 && l.Switch != nil && l.Switch[own] != l.Switch[node] {
		link /= l.Far
	}
	return link / 1e6
}

// weights are those of AR, by device; equations 8 to 11.
func (s *scene) weights(r reach, alpha, beta float64, unbounded bool) (order []int32, weights []float64) {
	l, c := s.layout, s.call
	own, others := s.candidates(r)
	D, N := float64(c.In+c.Out)/1000, float64(l.Nodes())
	if r.group > 0 && float64(r.group) < N {
		N = float64(r.group)
	}
	if r.choices > 0 && float64(r.choices)+1 < N {
		N = float64(r.choices) + 1
	}
	B := float64(l.Bandwidth) / 1e6
	if l.Links != nil {
		B = float64(l.Links[c.Node]) / 1e6
	}
	M, K := float64(l.Cores[c.Node]), math.Max(1, float64(len(own)))
	factors := func(n *naive, d int32, B float64) (a, b float64) {
		a, b = 1, 1
		if D > 0 && B > 0 {
			b = 1e12
		}
		if tau := float64(n.mean(d)) / 1e6; tau > 0 {
			a, b = M/K/tau, 0
			if B > 0 {
				b = (D / tau) * (D / tau) * N / B
			}
			if !unbounded {
				a, b = math.Min(a, 1), math.Max(b, 1)
			}
		}
		if alpha > 0 {
			a = alpha
		}
		if beta > 0 {
			b = beta
		}
		return a, b
	}
	for _, d := range own {
		a, b := factors(s.local, d, B)
		if s.local.queued(d) == 0 {
			a = 1
		}
		order, weights = append(order, d), append(weights, a*b)
	}
	for _, d := range others {
		a, b := factors(s.table, d, B)
		if s.table.queued(d) == 0 {
			a = 1
		}
		// Behind a slower link it weighs less by as much as beta is more.
		if link := s.linkTo(l.NodeOf[d]); link > 0 {
			_, there := factors(s.table, d, link)
			a *= math.Max(1, b) / math.Max(1, there)
		}
		if resident := float64(c.ResidentOn(d)); r.locality && resident > 0 {
			total := float64(c.In + c.Out)
			a *= math.Min(math.Max(1, b), math.Pow(total/(total-resident), 2))
		}
		order, weights = append(order, d), append(weights, a)
	}
	return order, weights
}

func TestRandomAgainstNaive(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		s := drawScene(t, ByWindow)
		r := drawReach(t, s.layout.Nodes())
		alpha := rapid.SampledFrom([]float64{0, 0, 0.01, 3}).Draw(t, "alpha")
		beta := rapid.SampledFrom([]float64{0, 0, 0.5, 10}).Draw(t, "beta")
		unbounded := rapid.Bool().Draw(t, "unbounded")
		seed := rapid.Uint64().Draw(t, "seed")
		m := newRandom(s.layout, r, alpha, beta, unbounded)
		s.view.Rand = rand.New(rand.NewPCG(seed, 1))
		got := m.Map(s.call, s.view)

		order, weights := s.weights(r, alpha, beta, unbounded)
		u, sum := rand.New(rand.NewPCG(seed, 1)).Float64(), 0.0
		for _, w := range weights {
			sum += w
		}
		want, below := order[len(order)-1], 0.0
		for i, w := range weights {
			if below += w; below > u*sum {
				want = order[i]
				break
			}
		}
		if got != want {
			t.Fatalf("%+v: device %d, want %d; %v of %v", r, got, want, order, weights)
		}
		for i, w := range weights {
			got := m.upTo[i]
			if i > 0 {
				got -= m.upTo[i-1]
			}
			if math.Abs(got-w) > 1e-9*w+1e-14*sum {
				t.Fatalf("device %d weighs %v, want %v", order[i], got, w)
			}
		}
	})
}

func TestStaticAgainstNaive(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		s := drawScene(t, ByWindow)
		l, c := s.layout, s.call
		home := c.Home
		if home < 0 {
			home = c.Process % int32(l.Devices())
		}
		if got := (&static{l}).Map(c, s.view); got != home {
			t.Errorf("st: device %d, want %d", got, home)
		}

		first := Anywhere
		for d := l.Devices() - 1; d >= 0; d-- {
			if l.NodeOf[d] == c.Node && s.local.queued(int32(d)) == 0 {
				first = int32(d)
			}
		}
		if got := (&reservation{l, true}).Map(c, s.view); got != first {
			t.Errorf("gr:local=first: device %d, want %d", got, first)
		}
		if got := (&reservation{l, false}).Map(c, s.view); got != Anywhere {
			t.Errorf("gr: device %d", got)
		}

		of := int64(rapid.IntRange(1, 7).Draw(t, "of"))
		some := int64(rapid.IntRange(0, int(of)).Draw(t, "some"))
		m := newSplit(l, some, of, 0, int32(len(l.Critical)-1))
		if len(m.devices) == 0 {
			return
		}
		// Rank by rank: whoever brings the number given away up to the share is given away.
		want, given := home, int64(0)
		for rank := int64(0); rank <= int64(c.Rank); rank++ {
			want = home
			if (given+1)*of <= (rank+1)*some {
				want = m.devices[given%int64(len(m.devices))]
				given++
			}
		}
		if c.App != 0 {
			want = home
		}
		if got := m.Map(c, s.view); got != want {
			t.Errorf("split %d/%d: device %d, want %d", some, of, got, want)
		}
	})
}
