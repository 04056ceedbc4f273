package consres

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// ranking is the criterion by which remote devices are chosen.
type ranking uint8

const (
	byMemory    ranking = iota // enough memory: local devices first, then in node order
	byIntensity                // the least load
	bySpeed                    // the fastest
	byDistance                 // the nearest
	byAll                      // the least total time, for the job and for all jobs on the same devices
)

// rankings are the words for them, in order.
var rankings = []string{"memory", "intensity", "speed", "distance", "all"}

// one is the factor 1: speeds and loads are integers in millionths, so that
// every machine computes the same.
const one = 1_000_000

func millionths(f float64) int64 { return int64(min(max(1, math.Round(f*one)), 1<<50)) }

// mulDiv is a * b / c without overflow, at most plenty.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return plenty
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, plenty))
}

// plenty is longer than any time; several of them can be added.
const plenty = math.MaxInt64 / 8

// devices is the part of a Selector that chooses remote GPUs.
type devices struct {
	preferLocal bool
	by          ranking
	crowd       *crowd        // nil if by is byMemory
	asker       *model.Job    // the job for which devices are chosen
	at          time.Duration // when the asking job would start

	// cost is what the latest choice costs all jobs together, if by is byAll.
	cost time.Duration

	all        []int32 // scratch: offers
	lent       []int32 // scratch, by node: the devices that could serve
	candidates []candidate
	onSwitch   []int32 // the first part on each switch, or -1
	serving    []int32 // by part: the devices that serve it
}

// candidate is a device that could serve. own is how long the job would take
// with it, harm how much longer the jobs on the device would take.
type candidate struct {
	key          int64
	node, device int32
	part         int32 // the nearest part of the job
	distance     int32
	speed        int64
	own, harm    int64
}

// eligible says whether a device gives what the request asks of remote devices.
func (s *devices) eligible(v FreeView, nd *need, r *model.Request, held *heldDevices, n, d int32) bool {
	c := v.Cluster()
	t := c.Nodes[n].GPUs[d]
	if c.GPUTypes[t].Memory < r.Remote.Memory || nd.gpuType >= 0 && t != nd.gpuType || nd.lenders != nil && !nd.lenders.has(n) {
		return false
	}
	if r.Remote.Shared {
		return v.FreeShare(n, d)-held.of(n, d) >= r.Remote.Memory
	}
	return v.FreeGPUs(n)>>d&1 != 0 && held.of(n, d) == 0
}

// lends is the number of devices of a node that could serve, at most most.
func (s *devices) lends(v FreeView, nd *need, r *model.Request, held *heldDevices, n int32, most int) int {
	devices := len(v.Cluster().Nodes[n].GPUs)
	if devices == 0 || v.Closed(n) {
		return 0
	}
	found := 0
	for d := int32(0); d < int32(devices) && found < most; d++ {
		if s.eligible(v, nd, r, held, n, d) {
			found++
		}
	}
	return found
}

// enoughDevices is a quick test: are there enough devices, wherever the job's
// nodes are?
func (s *devices) enoughDevices(v FreeView, nd *need, r *model.Request, held *heldDevices) bool {
	missing := r.Remote.Count
	for n := int32(0); n < int32(len(v.Cluster().Nodes)) && missing > 0; n++ {
		missing -= s.lends(v, nd, r, held, n, missing)
	}
	return missing == 0
}

// lenders counts the devices that could serve, and is updated while jobs end.
type lenders struct {
	devices *devices
	v       FreeView
	nd      *need
	r       *model.Request
	held    *heldDevices
	total   int
}

func (s *devices) count(v FreeView, nd *need, r *model.Request, held *heldDevices) lenders {
	l := lenders{devices: s, v: v, nd: nd, r: r, held: held}
	n := len(v.Cluster().Nodes)
	s.lent = slices.Grow(s.lent[:0], n)[:n]
	clear(s.lent)
	for i := range int32(n) {
		l.again(i)
	}
	return l
}

// again updates the count for a node on which something was given back.
func (l *lenders) again(n int32) {
	s := l.devices
	k := int32(s.lends(l.v, l.nd, l.r, l.held, n, model.MaxGPUsPerNode))
	l.total += int(k - s.lent[n])
	s.lent[n] = k
}

// serve grants the remote devices of a request to the parts of out.
func (s *devices) serve(v FreeView, nd *need, r *model.Request, held *heldDevices, out *model.Allocation) bool {
	s.list(v, nd, r, held, out)
	if len(s.candidates) < r.Remote.Count {
		return false
	}
	if s.by != byMemory {
		s.rank(v.Cluster(), r)
		slices.SortStableFunc(s.candidates, func(a, b candidate) int { return cmp.Compare(a.key, b.key) })
	}
	if s.by == byAll {
		s.spare(r.Remote.Count)
	}
	s.serving = append(s.serving[:0], make([]int32, len(out.Parts))...)
	own, harm := int64(0), int64(0)
	for i := range s.candidates[:r.Remote.Count] {
		x := &s.candidates[i]
		own, harm = max(own, x.own), min(plenty, harm+x.harm)
		user := x.part
		if x.distance > 0 {
			user = int32(i % len(out.Parts))
			if s.by == byDistance || s.by == byAll {
				user = s.nearest(v.Cluster(), out, x)
			}
		}
		s.serving[user]++
		g := model.Grant{For: user, Node: x.node, Device: x.device}
		switch {
		case r.Remote.Shared:
			g.Memory = r.Remote.Memory
			out.Grants = append(out.Grants, g)
		case x.distance == 0:
			out.Parts[user].GPUs |= 1 << x.device
		default:
			out.Grants = append(out.Grants, g)
		}
	}
	s.cost = time.Duration(own + harm)
	return true
}

// list collects the devices that could serve: those of the job's own nodes
// first, then all others in node order. With byMemory the order decides, so it
// stops when there are enough.
func (s *devices) list(v FreeView, nd *need, r *model.Request, held *heldDevices, out *model.Allocation) {
	c := v.Cluster()
	s.candidates = s.candidates[:0]
	enough := func() bool { return s.by == byMemory && len(s.candidates) == r.Remote.Count }
	add := func(n, part, distance int32, taken uint64) {
		for d := range int32(len(c.Nodes[n].GPUs)) {
			if taken>>d&1 == 0 && s.eligible(v, nd, r, held, n, d) && !enough() {
				s.candidates = append(s.candidates, candidate{node: n, device: d, part: part, distance: distance})
			}
		}
	}
	for i := range out.Parts {
		taken := out.Parts[i].GPUs
		for _, g := range out.Grants { // the job's own shares, if the request is mixed
			if g.Node == out.Parts[i].Node {
				taken |= 1 << g.Device
			}
		}
		add(out.Parts[i].Node, int32(i), 0, taken)
	}
	if enough() {
		return
	}
	s.noteSwitches(c, out)
	next := 0 // the next part in node order
	for n := range int32(len(c.Nodes)) {
		if next < len(out.Parts) && out.Parts[next].Node == n {
			next++
			continue
		}
		if len(c.Nodes[n].GPUs) == 0 || v.Closed(n) {
			continue
		}
		part, distance := int32(0), int32(2)
		if s.by != byMemory {
			if p := s.onSwitch[s.crowd.switches[n]]; p >= 0 {
				part, distance = p, 1
			}
		}
		if add(n, part, distance, 0); enough() {
			return
		}
	}
}

// noteSwitches notes the first part on each switch. The loop runs backwards so
// that the first one stays.
func (s *devices) noteSwitches(c *model.Cluster, out *model.Allocation) {
	if s.by == byMemory {
		return
	}
	s.onSwitch = slices.Grow(s.onSwitch[:0], s.crowd.switchCount)[:s.crowd.switchCount]
	for i := range s.onSwitch {
		s.onSwitch[i] = -1
	}
	for i := len(out.Parts) - 1; i >= 0; i-- {
		s.onSwitch[s.crowd.switches[out.Parts[i].Node]] = int32(i)
	}
}

// nearest is the part that a borrowed device serves: of those nearest to it,
// the one with the fewest devices.
func (s *devices) nearest(c *model.Cluster, out *model.Allocation, x *candidate) int32 {
	best := int32(-1)
	for i := range out.Parts {
		if c.Distance(out.Parts[i].Node, x.node) == int(x.distance) && (best < 0 || s.serving[i] < s.serving[best]) {
			best = int32(i)
		}
	}
	return best
}

// rank gives each candidate its key; the candidates with the smallest keys are
// chosen.
func (s *devices) rank(c *model.Cluster, r *model.Request) {
	for i := range s.candidates {
		x := &s.candidates[i]
		switch s.by {
		case byIntensity:
			x.key = s.crowd.load(x.node, x.device, s.at)
		case bySpeed:
			x.key = -s.crowd.speed(c, x.node, x.device)
		case byDistance:
			x.key = int64(x.distance)
		default:
			x.speed = s.crowd.speed(c, x.node, x.device)
			x.own, x.harm = s.crowd.price(c, s.asker, r, x, s.at)
			x.key = x.own + x.harm
		}
	}
}

// spare replaces chosen devices by others that serve as well: a job is as slow
// as its slowest device, so it need not take faster ones beside it. Among
// devices that are no slower than that it prefers those that harm others least,
// then slower ones.
func (s *devices) spare(count int) {
	slowest := int64(0)
	for i := range s.candidates[:count] {
		slowest = max(slowest, s.candidates[i].own)
	}
	slices.SortStableFunc(s.candidates, func(a, b candidate) int {
		switch {
		case a.own > slowest && b.own <= slowest:
			return 1
		case b.own > slowest && a.own <= slowest:
			return -1
		}
		return cmp.Or(cmp.Compare(a.harm, b.harm), cmp.Compare(a.speed, b.speed))
	})
}

// crowd is the jobs that compute on each shared device, and when they are
// expected to end.
type crowd struct {
	now   time.Duration
	first []int32
	on    [][]occupant // by device
	// places lists the devices of each job that shares some.
	places map[policy.JobID][]int32

	switches    []int32 // by node
	switchCount int
	moved       []occupant // scratch
}

type occupant struct {
	job  policy.JobID
	load int64
	// end is when the job is expected to be done, with the delay by others on
	// its devices.
	end time.Duration
}

func newCrowd(c *model.Cluster) *crowd {
	w := &crowd{first: firstDevices(c), places: map[policy.JobID][]int32{}}
	w.on = make([][]occupant, w.first[len(c.Nodes)])
	known := map[string]int32{}
	for i := range c.Nodes {
		name := c.Nodes[i].Switch
		id, ok := known[name]
		if !ok {
			id = int32(len(known))
			known[name] = id
		}
		w.switches = append(w.switches, id)
	}
	w.switchCount = len(known)
	return w
}

// fill adds the jobs that run already. For jobs that the previous crowd knew,
// it takes the ends from there, as they include delays.
func (w *crowd) fill(v *policy.View, before *crowd) {
	w.now = v.Now()
	for _, id := range v.Running() {
		end := v.ExpectedEnd(id)
		if before != nil {
			end = before.endKnown(id, end)
		}
		load := millionths(v.Job(id).GPULoad())
		for _, g := range v.Held(id).Grants {
			if g.Memory > 0 {
				d := w.first[g.Node] + g.Device
				w.on[d] = append(w.on[d], occupant{id, load, end})
				w.places[id] = append(w.places[id], d)
			}
		}
	}
}

// endKnown is when the crowd expects a job to be done, or otherwise if it does
// not know the job.
func (w *crowd) endKnown(id policy.JobID, otherwise time.Duration) time.Duration {
	if places := w.places[id]; len(places) > 0 {
		for _, o := range w.on[places[0]] {
			if o.job == id {
				return o.end
			}
		}
	}
	return otherwise
}

func (w *crowd) speed(c *model.Cluster, n, d int32) int64 {
	return millionths(c.GPUTypes[c.Nodes[n].GPUs[d]].Speed)
}

// endOf is when an occupant is expected to leave; one that is overdue leaves at
// the next instant.
func (w *crowd) endOf(o *occupant) time.Duration { return max(o.end, w.now+1) }

// load is the share of a device's time that its occupants at an instant want,
// in millionths.
func (w *crowd) load(n, d int32, at time.Duration) int64 {
	sum := int64(0)
	list := w.on[w.first[n]+d]
	for i := range list {
		if w.endOf(&list[i]) > at {
			sum += list[i].load
		}
	}
	return sum
}

// price is what a device costs if a job starts on it at an instant: how long
// the job takes there (own), and how much longer its occupants will take
// (harm).
func (w *crowd) price(c *model.Cluster, j *model.Job, r *model.Request, x *candidate, at time.Duration) (own, harm int64) {
	mine := millionths(j.GPULoad())
	load := w.load(x.node, x.device, at)
	before, after := max(one, load), max(one, load+mine)
	if !r.Remote.Shared {
		after = one
	}
	own = mulDiv(mulDiv(int64(j.Estimate()), one, x.speed), after, one)
	own = min(plenty, own+transfer(c, j, x))
	if after > before {
		list := w.on[w.first[x.node]+x.device]
		for i := range list {
			if left := w.endOf(&list[i]) - at; left > 0 {
				harm = min(plenty, harm+mulDiv(min(int64(left), own), after-before, before))
			}
		}
	}
	return own, harm
}

// transfer is the time that a job loses because a device is not in its own
// node.
func transfer(c *model.Cluster, j *model.Job, x *candidate) int64 {
	if x.distance == 0 {
		return 0
	}
	far := int64(one)
	if x.distance == 2 && c.Remote.Far > 0 {
		far = millionths(c.Remote.Far)
	}
	overhead := int64(one)
	if c.Remote.Overhead > 0 {
		overhead = millionths(c.Remote.Overhead)
	}
	link := c.Nodes[x.node].Link
	sum := mulDiv(j.Traffic.GPUConns, mulDiv(int64(c.Remote.Latency+link.Latency), far, one), 1)
	if link.Bandwidth > 0 {
		bytes := mulDiv(mulDiv(j.Traffic.GPUBytes, overhead, one), far, one)
		sum += mulDiv(bytes, int64(time.Second), link.Bandwidth)
		if peer := c.GPUTypes[c.Nodes[x.node].GPUs[x.device]].PeerBandwidth; peer > 0 {
			sum -= mulDiv(j.Traffic.GPUBytes, int64(time.Second), peer)
		}
	}
	return max(0, sum)
}

// enter adds a job that starts, and delays the occupants of its devices. A job
// on several devices is delayed on all of them by the largest delay; hence
// moved, which collects the new ends before they are written.
func (w *crowd) enter(c *model.Cluster, id policy.JobID, j *model.Job, a *model.Allocation) {
	now := w.now
	own := int64(j.Estimate())
	w.moved = w.moved[:0]
	for _, g := range a.Grants {
		if g.Memory == 0 {
			continue
		}
		x := candidate{node: g.Node, device: g.Device, distance: int32(c.Distance(a.Parts[g.For].Node, g.Node))}
		x.speed = w.speed(c, g.Node, g.Device)
		took, _ := w.price(c, j, &model.Request{Remote: &model.RemoteGPUs{Shared: true}}, &x, now)
		own = max(own, took)
		w.delay(&x, millionths(j.GPULoad()), now, took)
	}
	for _, o := range w.moved {
		for _, d := range w.places[o.job] {
			for i := range w.on[d] {
				if w.on[d][i].job == o.job {
					w.on[d][i].end = o.end
				}
			}
		}
	}
	for _, g := range a.Grants {
		if g.Memory > 0 {
			d := w.first[g.Node] + g.Device
			w.on[d] = append(w.on[d], occupant{id, millionths(j.GPULoad()), model.After(now, time.Duration(own))})
			w.places[id] = append(w.places[id], d)
		}
	}
}

// delay computes the later ends of the occupants of a device that another job
// joins.
func (w *crowd) delay(x *candidate, mine int64, now time.Duration, own int64) {
	load := w.load(x.node, x.device, now)
	before, after := max(one, load), max(one, load+mine)
	if after == before {
		return
	}
	for _, o := range w.on[w.first[x.node]+x.device] {
		o.end = w.endOf(&o)
		o.end = model.After(o.end, time.Duration(mulDiv(min(int64(o.end-now), own), after-before, before)))
		known := slices.IndexFunc(w.moved, func(m occupant) bool { return m.job == o.job })
		if known < 0 {
			w.moved = append(w.moved, o)
		} else {
			w.moved[known].end = max(w.moved[known].end, o.end)
		}
	}
}

// leave removes a job that is over.
func (w *crowd) leave(id policy.JobID) {
	for _, d := range w.places[id] {
		w.on[d] = slices.DeleteFunc(w.on[d], func(o occupant) bool { return o.job == id })
	}
	delete(w.places, id)
}

// ends lists the instants before limit at which a job leaves a shared device.
func (w *crowd) ends(out []time.Duration, limit time.Duration) []time.Duration {
	for d := range w.on {
		for _, o := range w.on[d] {
			if end := w.endOf(&o); end < limit {
				out = append(out, end)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
