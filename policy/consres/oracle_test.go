package consres_test

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"sort"
	"time"

	"muster/model"
	"muster/policy"
)

// This file is a second implementation of both policies, written from
// docs/slurm-policies.md: slow, without any index, everything worked out anew at each
// question.

type oracle struct {
	depth                              int // 0: all
	interval, window, resolution, ends time.Duration
	prefer                             bool
	by                                 string

	looked  bool
	last    time.Duration
	sharers []*sharer // jobs that have shares, in order of their start
}

// sharer is a running job that has shares of devices.
type sharer struct {
	id      policy.JobID
	load    *big.Rat
	end     time.Duration
	devices []place
}

type place struct{ node, device int }

var _ policy.Policy = (*oracle)(nil)

func (o *oracle) Traits() policy.Traits {
	return policy.Traits{Order: policy.ByPriority, Ends: true}
}

func (o *oracle) Why(*policy.View, policy.JobID) string { return "" }

// runner holds something until end.
type runner struct {
	a   model.Allocation
	end time.Duration
}

// promised is a reservation.
type promised struct {
	a          model.Allocation
	begin, end time.Duration
}

func overlap(p *promised, begin, end time.Duration) bool { return p.begin <= end && begin < p.end }

func (o *oracle) Step(v *policy.View, plan *policy.Plan) {
	for _, id := range v.Left() {
		o.sharers = slices.DeleteFunc(o.sharers, func(s *sharer) bool { return s.id == id })
	}
	var queue []policy.JobID
	cursor := v.Queue()
	for id, _, ok := cursor.Next(); ok; id, _, ok = cursor.Next() {
		queue = append(queue, id)
	}
	now := v.Now()
	for len(queue) > 0 {
		id := queue[0]
		j := v.Job(id)
		a := o.place(v, j, o.freeAt(v, now), func(int) bool { return true }, func(place) int64 { return 0 }, now)
		if a == nil {
			break
		}
		if _, wait := o.waits(v, j, a, func(place) int64 { return 0 }); wait {
			break
		}
		o.start(v, plan, id, a)
		queue = queue[1:]
	}
	if len(queue) == 0 {
		return
	}
	if o.looked && now < o.last+o.interval {
		plan.Wake = o.last + o.interval
		return
	}
	o.looked, o.last = true, now
	var promises []promised
	for i, id := range queue {
		if o.depth > 0 && i == o.depth {
			break
		}
		promises = o.try(v, plan, id, promises)
	}
}

func (o *oracle) start(v *policy.View, plan *policy.Plan, id policy.JobID, a *model.Allocation) {
	if !plan.Start(id, a, policy.Reason{}) {
		panic("the oracle proposes what is not free")
	}
	o.enter(v, id, a)
}

func (o *oracle) try(v *policy.View, plan *policy.Plan, id policy.JobID, promises []promised) []promised {
	now, j := v.Now(), v.Job(id)
	d := max(1, j.Estimate())
	s, a := o.search(v, j, promises, now, d)
	if a != nil && s == now {
		held := func(p place) int64 { return heldOf(v.Cluster(), promises, p, now, now+d) }
		until, wait := o.waits(v, j, a, held)
		if !wait {
			o.start(v, plan, id, a)
			return promises
		}
		s, a = o.search(v, j, promises, until, d)
	}
	if a == nil {
		return promises
	}
	p := promised{*a, s, s + d}
	if o.resolution > 0 {
		p.begin = p.begin / o.resolution * o.resolution
		p.end = (p.end + o.resolution - 1) / o.resolution * o.resolution
	}
	p.begin = max(p.begin, now)
	return append(promises, p)
}

// search is the numbered list of the page.
func (o *oracle) search(v *policy.View, j *model.Job, promises []promised, t, d time.Duration) (time.Duration, *model.Allocation) {
	now, c, r := v.Now(), v.Cluster(), &j.Request
	for {
		if o.window > 0 && t > now+o.window {
			return 0, nil
		}
		later := laterThan(promises, t, t+d)
		inQuestion := func(n int) bool { return !spokenFor(promises, r, n, t, t+d) }
		held := func(p place) int64 { return heldOf(c, promises, p, t, t+d) }
		var s time.Duration
		var a *model.Allocation
		for _, s = range o.instants(v, t) {
			if s > later {
				break
			}
			if a = o.place(v, j, o.freeAt(v, s), inQuestion, held, s); a != nil {
				break
			}
		}
		if a == nil {
			if later == math.MaxInt64 {
				return 0, nil
			}
			t = later
			continue
		}
		if s == now {
			return s, a
		}
		if o.ends > 0 && s > t && r.Remote == nil {
			s = o.grouped(v, r, inQuestion, s, t, later)
			a = o.place(v, j, o.freeAt(v, s), inQuestion, held, s)
		}
		if o.window > 0 && s > now+o.window {
			return 0, nil
		}
		if o.meets(v, promises, r, a, s, s+d) {
			t = s
			continue
		}
		return s, a
	}
}

// laterThan is point 1 of the page.
func laterThan(promises []promised, t, end time.Duration) time.Duration {
	spoken := func(x time.Duration) map[string]bool {
		out := map[string]bool{}
		for i := range promises {
			p := &promises[i]
			if p.begin > x || x >= p.end {
				continue
			}
			for _, part := range p.a.Parts {
				out[fmt.Sprint("host ", part.Node)] = true
			}
			for _, g := range p.a.Grants {
				if p.a.Borrowed(g) {
					out[fmt.Sprint("lender ", g.Node)] = true
				}
			}
		}
		return out
	}
	var edges []time.Duration
	for i := range promises {
		for _, x := range []time.Duration{promises[i].begin, promises[i].end} {
			if x > t {
				edges = append(edges, x)
			}
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	for i, x := range edges {
		after := spoken(x)
		for who := range spoken(x - 1) {
			if !after[who] {
				return x
			}
		}
		if i > 0 && edges[i-1] > end {
			if i+1 < len(edges) {
				return edges[i+1]
			}
			break
		}
	}
	return math.MaxInt64
}

// grouped is point 3 of the page: s is the first instant at which the job fits.
func (o *oracle) grouped(v *policy.View, r *model.Request, inQuestion func(int) bool, s, t, later time.Duration) time.Duration {
	type ender struct {
		id     policy.JobID
		end    time.Duration
		counts bool
	}
	var list []ender
	cursor := v.Ends()
	for id, _, ok := cursor.Next(); ok; id, _, ok = cursor.Next() {
		e := ender{id: id, end: v.ExpectedEnd(id)}
		a := v.Held(id)
		for _, part := range a.Parts {
			e.counts = e.counts || inQuestion(int(part.Node))
		}
		for _, g := range a.Grants {
			e.counts = e.counts || inQuestion(int(g.Node))
		}
		if e.end > t && (r.Nodes > 0 || e.counts) {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, k int) bool {
		if list[i].end != list[k].end {
			return list[i].end < list[k].end
		}
		return list[i].id < list[k].id
	})
	var edge, last time.Duration
	width := o.ends
	for i, e := range list {
		if e.end > later {
			break
		}
		if !e.counts {
			continue
		}
		if edge == 0 {
			edge = e.end/o.ends*o.ends + o.ends
		}
		last = e.end
		if i+1 == len(list) || list[i+1].end <= edge+width {
			continue
		}
		if last >= s {
			break
		}
		for list[i+1].end > edge+width {
			width *= 2
		}
	}
	return last
}

// instants are t, and the expected ends after it.
func (o *oracle) instants(v *policy.View, t time.Duration) []time.Duration {
	out := []time.Duration{t}
	cursor := v.Ends()
	for id, _, ok := cursor.Next(); ok; id, _, ok = cursor.Next() {
		if end := v.ExpectedEnd(id); end > t {
			out = append(out, end)
		}
	}
	slices.Sort(out)
	return out
}

// spokenFor says whether a node is out of the question for a request.
func spokenFor(promises []promised, r *model.Request, n int, begin, end time.Duration) bool {
	for i := range promises {
		p := &promises[i]
		if !overlap(p, begin, end) {
			continue
		}
		for _, part := range p.a.Parts {
			if int(part.Node) == n {
				return true
			}
		}
		for _, g := range p.a.Grants {
			if int(g.Node) == n && p.a.Borrowed(g) && (r.GPUs > 0 || r.Exclusive) {
				return true
			}
		}
	}
	return false
}

// heldOf is what reservations keep of a device.
func heldOf(c *model.Cluster, promises []promised, x place, begin, end time.Duration) int64 {
	const all = 1 << 50
	sum := int64(0)
	for i := range promises {
		p := &promises[i]
		if !overlap(p, begin, end) {
			continue
		}
		for _, part := range p.a.Parts {
			if int(part.Node) == x.node && (part.Exclusive || part.GPUs>>x.device&1 != 0) {
				sum += all
			}
		}
		for _, g := range p.a.Grants {
			if int(g.Node) == x.node && int(g.Device) == x.device {
				sum += g.Memory
				if g.Memory == 0 {
					sum += all
				}
			}
		}
	}
	return sum
}

// meets says whether an allocation meets a reservation.
func (o *oracle) meets(v *policy.View, promises []promised, r *model.Request, a *model.Allocation, begin, end time.Duration) bool {
	free := o.freeAt(v, begin)
	for _, p := range a.Parts {
		if spokenFor(promises, r, int(p.Node), begin, end) {
			return true
		}
		for d := range v.Cluster().Nodes[p.Node].GPUs {
			if r.Remote != nil && p.GPUs>>d&1 != 0 && heldOf(v.Cluster(), promises, place{int(p.Node), d}, begin, end) > 0 {
				return true
			}
		}
	}
	for _, g := range a.Grants {
		if r.Remote == nil {
			continue
		}
		x := place{int(g.Node), int(g.Device)}
		held := heldOf(v.Cluster(), promises, x, begin, end)
		if g.Memory == 0 && held > 0 || g.Memory > 0 && free.share(x)-held < g.Memory {
			return true
		}
	}
	return false
}

// naive is what is free of a cluster.
type naive struct {
	c       *model.Cluster
	cores   []int
	memory  []int64
	shared  map[place]int64
	whole   map[place]bool
	touched []bool
	closed  []bool
}

func (o *oracle) freeAt(v *policy.View, t time.Duration) *naive {
	c := v.Cluster()
	f := &naive{c: c, cores: make([]int, len(c.Nodes)), memory: make([]int64, len(c.Nodes)), shared: map[place]int64{},
		whole: map[place]bool{}, touched: make([]bool, len(c.Nodes)), closed: make([]bool, len(c.Nodes))}
	for n := range c.Nodes {
		f.cores[n], f.memory[n] = c.Nodes[n].Cores, c.Nodes[n].Memory
	}
	cursor := v.Ends()
	for id, _, ok := cursor.Next(); ok; id, _, ok = cursor.Next() {
		if v.ExpectedEnd(id) <= t {
			continue
		}
		a := v.Held(id)
		for _, p := range a.Parts {
			n := int(p.Node)
			f.cores[n] -= int(p.Cores)
			f.memory[n] -= p.Memory
			f.touched[n] = true
			f.closed[n] = f.closed[n] || p.Exclusive
			for d := range c.Nodes[n].GPUs {
				if p.GPUs>>d&1 != 0 {
					f.whole[place{n, d}] = true
				}
			}
		}
		for _, g := range a.Grants {
			x := place{int(g.Node), int(g.Device)}
			f.touched[g.Node] = true
			if g.Memory > 0 {
				f.shared[x] += g.Memory
			} else {
				f.whole[x] = true
			}
		}
	}
	return f
}

func (f *naive) gpu(x place) *model.GPUType { return &f.c.GPUTypes[f.c.Nodes[x.node].GPUs[x.device]] }

func (f *naive) free(x place) bool { return !f.whole[x] && f.shared[x] == 0 }

func (f *naive) share(x place) int64 {
	if f.whole[x] {
		return 0
	}
	return f.gpu(x).Memory - f.shared[x]
}

// localGPUs are the devices that a node gives a request; ok is false if they are too few.
func (f *naive) localGPUs(r *model.Request, n int) (list []int, ok bool) {
	for d := range f.c.Nodes[n].GPUs {
		x := place{n, d}
		if len(list) == r.GPUs || r.GPUType != "" && f.gpu(x).Name != r.GPUType {
			continue
		}
		if r.GPUMemory > 0 && f.share(x) >= r.GPUMemory || r.GPUMemory == 0 && f.free(x) {
			list = append(list, d)
		}
	}
	return list, len(list) == r.GPUs
}

func (f *naive) offer(r *model.Request, n int) int {
	if len(r.NodeList) > 0 && !slices.Contains(r.NodeList, f.c.Nodes[n].Name) {
		return 0
	}
	if _, ok := f.localGPUs(r, n); !ok {
		return 0
	}
	if r.Nodes > 0 {
		if f.cores[n] < r.CoresOnNode() || f.memory[n] < r.MemoryOnNode(r.CoresOnNode()) || r.Exclusive && f.touched[n] {
			return 0
		}
		return 1
	}
	step := max(1, r.CoresPerProcess)
	best := 0
	for k := step; k <= f.cores[n]; k += step {
		if r.MemoryOnNode(k) <= f.memory[n] {
			best = k
		}
	}
	return best
}

// place is the rule of placing; nil if it does not fit.
func (o *oracle) place(v *policy.View, j *model.Job, f *naive, inQuestion func(int) bool, held func(place) int64, at time.Duration) *model.Allocation {
	r := &j.Request
	offers := make([]int, len(f.c.Nodes))
	for n := range offers {
		if inQuestion(n) {
			offers[n] = f.offer(r, n)
		}
	}
	mixed := r.GPUs > 0 && r.Remote != nil
	var chosen map[int]int
	if o.prefer && r.Remote != nil && !mixed {
		with := slices.Clone(offers)
		for n := range with {
			if !slices.ContainsFunc(o.serving(f, r, n, held), func(place) bool { return true }) {
				with[n] = 0
			}
		}
		chosen = pickInTurn(f.c, with, r, mixed)
	}
	if chosen == nil {
		if chosen = pickInTurn(f.c, offers, r, mixed); chosen == nil {
			return nil
		}
	}
	a := &model.Allocation{}
	for n := range f.c.Nodes {
		k, used := chosen[n]
		if !used {
			continue
		}
		if r.Nodes > 0 {
			k = r.CoresOnNode()
		}
		p := model.Part{Node: int32(n), Cores: int32(k), Memory: r.MemoryOnNode(k), Exclusive: r.Exclusive}
		if r.Exclusive {
			p.Cores = int32(f.c.Nodes[n].Cores)
		}
		list, _ := f.localGPUs(r, n)
		for _, d := range list {
			if r.GPUMemory > 0 {
				a.Grants = append(a.Grants, model.Grant{For: int32(len(a.Parts)), Node: int32(n), Device: int32(d), Memory: r.GPUMemory})
			} else {
				p.GPUs |= 1 << d
			}
		}
		a.Parts = append(a.Parts, p)
	}
	if r.Remote != nil && !o.serve(v, j, f, a, held, at) {
		return nil
	}
	return a
}

// pickInTurn is point 5: pick among the nodes of one rank after the other.
func pickInTurn(c *model.Cluster, offers []int, r *model.Request, inOrder bool) map[int]int {
	rank := func(n int) int {
		if node := &c.Nodes[n]; r.GPUs == 0 && r.Remote == nil {
			return 100*max(1, node.Weight) + len(node.GPUs)
		} else {
			return 100 * max(1, node.Weight)
		}
	}
	var ranks []int
	for n := range offers {
		ranks = append(ranks, rank(n))
	}
	slices.Sort(ranks)
	out, left := map[int]int{}, *r
	for _, k := range slices.Compact(ranks) {
		now, sum := slices.Clone(offers), 0
		for n := range now {
			if rank(n) > k || rank(n) < k && !r.Contiguous {
				now[n] = 0
			}
			sum += now[n]
		}
		if rest := pick(now, &left, inOrder); rest != nil {
			maps.Copy(out, rest)
			return out
		}
		if r.Contiguous {
			continue
		}
		for n, o := range now {
			if o > 0 {
				out[n] = o
			}
		}
		if r.Nodes > 0 {
			left.Nodes -= sum
		} else {
			left.Cores -= sum
		}
	}
	return nil
}

// pick is points 2 to 4: what each node chosen gives, nil if it is not enough.
func pick(offers []int, r *model.Request, inOrder bool) map[int]int {
	need := r.Nodes
	if need == 0 {
		need = r.Cores
	}
	type row struct {
		nodes []int
		size  int
	}
	var rows []row
	for n := range offers {
		if offers[n] == 0 {
			continue
		}
		if n == 0 || offers[n-1] == 0 {
			rows = append(rows, row{})
		}
		last := &rows[len(rows)-1]
		last.nodes = append(last.nodes, n)
		last.size += offers[n]
	}
	out := map[int]int{}
	for need > 0 {
		best := -1
		for i := range rows {
			suffices := rows[i].size >= need
			if r.Contiguous && !suffices {
				continue
			}
			switch {
			case best < 0:
				best = i
			case inOrder:
			case suffices && (rows[best].size < need || rows[i].size < rows[best].size):
				best = i
			case !suffices && rows[best].size < rows[i].size:
				best = i
			}
		}
		if best < 0 {
			return nil
		}
		for _, n := range rows[best].nodes {
			if need > 0 {
				out[n] = min(need, offers[n])
				need -= out[n]
			}
		}
		rows = slices.Delete(rows, best, best+1)
	}
	return out
}

// serving lists the devices of a node that would serve a request.
func (o *oracle) serving(f *naive, r *model.Request, n int, held func(place) int64) (out []place) {
	for d := range f.c.Nodes[n].GPUs {
		x := place{n, d}
		t := f.gpu(x)
		if f.closed[n] || t.Memory < r.Remote.Memory || r.GPUType != "" && t.Name != r.GPUType {
			continue
		}
		if r.Remote.Shared && f.share(x)-held(x) >= r.Remote.Memory || !r.Remote.Shared && f.free(x) && held(x) == 0 {
			out = append(out, x)
		}
	}
	return out
}

// serve adds the remote devices.
func (o *oracle) serve(v *policy.View, j *model.Job, f *naive, a *model.Allocation, held func(place) int64, at time.Duration) bool {
	r := &j.Request
	list, parts := o.list(f, r, a, held)
	if len(list) < r.Remote.Count {
		return false
	}
	type ranked struct {
		place
		key       *big.Rat
		own, harm time.Duration
	}
	var order []ranked
	for _, x := range list {
		key := new(big.Rat)
		var own, harm time.Duration
		switch o.by {
		case "intensity":
			key = o.load(v, x, at)
		case "speed":
			key = new(big.Rat).Neg(speedOf(f.c, x))
		case "distance":
			key.SetInt64(int64(nearestTo(f.c, a, x)))
		case "all":
			own, harm = o.price(v, j, x, nearestTo(f.c, a, x), at, r.Remote.Shared)
			key.SetInt64(int64(own + harm))
		}
		order = append(order, ranked{x, key, own, harm})
	}
	sort.SliceStable(order, func(i, k int) bool { return order[i].key.Cmp(order[k].key) < 0 })
	if o.by == "all" {
		slowest := time.Duration(0)
		for _, x := range order[:r.Remote.Count] {
			slowest = max(slowest, x.own)
		}
		var enough, rest []ranked
		for _, x := range order {
			if x.own <= slowest {
				enough = append(enough, x)
			} else {
				rest = append(rest, x)
			}
		}
		sort.SliceStable(enough, func(i, k int) bool {
			if enough[i].harm != enough[k].harm {
				return enough[i].harm < enough[k].harm
			}
			return speedOf(f.c, enough[i].place).Cmp(speedOf(f.c, enough[k].place)) < 0
		})
		order = append(enough, rest...)
	}
	counts := make([]int, len(a.Parts))
	for i, x := range order[:r.Remote.Count] {
		user, own := parts[x.node]
		switch {
		case own:
		case o.by == "distance" || o.by == "all":
			user = -1
			for k := range a.Parts {
				if f.c.Distance(a.Parts[k].Node, int32(x.node)) == nearestTo(f.c, a, x.place) && (user < 0 || counts[k] < counts[user]) {
					user = k
				}
			}
		default:
			user = i % len(a.Parts)
		}
		counts[user]++
		g := model.Grant{For: int32(user), Node: int32(x.node), Device: int32(x.device)}
		switch {
		case r.Remote.Shared:
			g.Memory = r.Remote.Memory
			a.Grants = append(a.Grants, g)
		case own:
			a.Parts[user].GPUs |= 1 << x.device
		default:
			a.Grants = append(a.Grants, g)
		}
	}
	return true
}

// list is the list of devices that would serve: own nodes first. parts says which
// nodes are the job's own.
func (o *oracle) list(f *naive, r *model.Request, a *model.Allocation, held func(place) int64) (list []place, parts map[int]int) {
	parts = map[int]int{}
	mine := map[place]bool{}
	for i, p := range a.Parts {
		parts[int(p.Node)] = i
		for d := range f.c.Nodes[p.Node].GPUs {
			mine[place{int(p.Node), d}] = p.GPUs>>d&1 != 0
		}
	}
	for _, g := range a.Grants {
		mine[place{int(g.Node), int(g.Device)}] = true
	}
	var others []place
	for n := range f.c.Nodes {
		for _, x := range o.serving(f, r, n, held) {
			if _, own := parts[n]; !own {
				others = append(others, x)
			} else if !mine[x] {
				list = append(list, x)
			}
		}
	}
	return append(list, others...), parts
}

func nearestTo(c *model.Cluster, a *model.Allocation, x place) int {
	best := 9
	for _, p := range a.Parts {
		best = min(best, c.Distance(p.Node, int32(x.node)))
	}
	return best
}

func speedOf(c *model.Cluster, x place) *big.Rat {
	return new(big.Rat).SetFloat64(c.GPUTypes[c.Nodes[x.node].GPUs[x.device]].Speed)
}

// down rounds a number of nanoseconds down.
func down(r *big.Rat) time.Duration {
	return time.Duration(new(big.Int).Quo(r.Num(), r.Denom()).Int64())
}

func rat(d time.Duration) *big.Rat { return new(big.Rat).SetInt64(int64(d)) }

func (o *oracle) expected(v *policy.View, s *sharer) time.Duration { return max(s.end, v.Now()+1) }

func (o *oracle) load(v *policy.View, x place, at time.Duration) *big.Rat {
	sum := new(big.Rat)
	for _, s := range o.sharers {
		if slices.Contains(s.devices, x) && o.expected(v, s) > at {
			sum.Add(sum, s.load)
		}
	}
	return sum
}

var unity = big.NewRat(1, 1)

func atLeastOne(r *big.Rat) *big.Rat {
	if r.Cmp(unity) < 0 {
		return unity
	}
	return r
}

func loadOf(j *model.Job) *big.Rat {
	return new(big.Rat).SetFloat64(j.GPULoad())
}

// price is own and harm. Every product is rounded down to a nanosecond.
func (o *oracle) price(v *policy.View, j *model.Job, x place, distance int, at time.Duration, shared bool) (own, harm time.Duration) {
	c := v.Cluster()
	load := o.load(v, x, at)
	before, after := atLeastOne(load), atLeastOne(new(big.Rat).Add(load, loadOf(j)))
	if !shared {
		after = unity
	}
	own = down(new(big.Rat).Quo(rat(j.Estimate()), speedOf(c, x)))
	own = down(new(big.Rat).Mul(rat(own), after)) + borrowing(c, j, x, distance)
	more := new(big.Rat).Sub(new(big.Rat).Quo(after, before), unity)
	for _, s := range o.sharers {
		if left := o.expected(v, s) - at; slices.Contains(s.devices, x) && left > 0 && more.Sign() > 0 {
			harm += down(new(big.Rat).Mul(rat(min(left, own)), more))
		}
	}
	return own, harm
}

func borrowing(c *model.Cluster, j *model.Job, x place, distance int) time.Duration {
	if distance == 0 {
		return 0
	}
	factor := func(f float64) *big.Rat {
		if f == 0 {
			return unity
		}
		return new(big.Rat).SetFloat64(f)
	}
	far := unity
	if distance == 2 {
		far = factor(c.Remote.Far)
	}
	link := c.Nodes[x.node].Link
	sum := time.Duration(j.Traffic.GPUConns) * down(new(big.Rat).Mul(rat(c.Remote.Latency+link.Latency), far))
	if link.Bandwidth > 0 {
		bytes := down(new(big.Rat).Mul(rat(time.Duration(j.Traffic.GPUBytes)), factor(c.Remote.Overhead)))
		bytes = down(new(big.Rat).Mul(rat(bytes), far))
		second := big.NewRat(int64(time.Second), 1)
		sum += down(new(big.Rat).Mul(rat(bytes), new(big.Rat).Quo(second, big.NewRat(link.Bandwidth, 1))))
		if peer := c.GPUTypes[c.Nodes[x.node].GPUs[x.device]].PeerBandwidth; peer > 0 {
			sum -= down(new(big.Rat).Mul(rat(time.Duration(j.Traffic.GPUBytes)), new(big.Rat).Quo(second, big.NewRat(peer, 1))))
		}
	}
	return max(0, sum)
}

// enter notes a job that starts with shares.
func (o *oracle) enter(v *policy.View, id policy.JobID, a *model.Allocation) {
	j := v.Job(id)
	me := &sharer{id: id, load: loadOf(j)}
	longest := j.Estimate()
	ends := map[policy.JobID]time.Duration{}
	for _, g := range a.Grants {
		if g.Memory == 0 {
			continue
		}
		x := place{int(g.Node), int(g.Device)}
		me.devices = append(me.devices, x)
		own, _ := o.price(v, j, x, v.Cluster().Distance(a.Parts[g.For].Node, g.Node), v.Now(), true)
		longest = max(longest, own)
		load := o.load(v, x, v.Now())
		before, after := atLeastOne(load), atLeastOne(new(big.Rat).Add(load, me.load))
		more := new(big.Rat).Sub(new(big.Rat).Quo(after, before), unity)
		if more.Sign() == 0 {
			continue
		}
		for _, s := range o.sharers {
			if slices.Contains(s.devices, x) {
				end := o.expected(v, s)
				end += down(new(big.Rat).Mul(rat(min(end-v.Now(), own)), more))
				ends[s.id] = max(ends[s.id], end)
			}
		}
	}
	for _, s := range o.sharers {
		if end, later := ends[s.id]; later {
			s.end = end
		}
	}
	me.end = v.Now() + longest
	if len(me.devices) > 0 {
		o.sharers = append(o.sharers, me)
	}
}

// cost is what a job costs everybody on the devices of an allocation.
func (o *oracle) cost(v *policy.View, j *model.Job, a *model.Allocation, at time.Duration) time.Duration {
	longest, sum := time.Duration(0), time.Duration(0)
	for _, g := range a.Grants {
		x := place{int(g.Node), int(g.Device)}
		own, harm := o.price(v, j, x, nearestTo(v.Cluster(), a, x), at, true)
		longest, sum = max(longest, own), sum+harm
	}
	return longest + sum
}

// waits says whether a job that could start now had better not.
func (o *oracle) waits(v *policy.View, j *model.Job, a *model.Allocation, held func(place) int64) (until time.Duration, wait bool) {
	r := &j.Request
	if o.by != "all" || r.Remote == nil || !r.Remote.Shared || r.GPUs > 0 {
		return 0, false
	}
	now := v.Now()
	full := false
	for _, g := range a.Grants {
		full = full || o.load(v, place{int(g.Node), int(g.Device)}, now).Cmp(unity) >= 0
	}
	if !full {
		return 0, false
	}
	start := o.cost(v, j, a, now)
	least := start
	var ends []time.Duration
	for _, s := range o.sharers {
		ends = append(ends, o.expected(v, s))
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	for i, e := range ends {
		if e-now >= start || i == 16 {
			break
		}
		trial := &model.Allocation{Parts: slices.Clone(a.Parts)}
		if !o.serve(v, j, o.freeAt(v, now), trial, held, e) {
			panic("what served does not serve")
		}
		if cost := e - now + o.cost(v, j, trial, e); cost < least {
			least, until, wait = cost, e, true
		}
	}
	return until, wait
}

func (o *oracle) String() string {
	return fmt.Sprintf("depth %d interval %v window %v resolution %v ends %v prefer %v by %s", o.depth, o.interval, o.window, o.resolution, o.ends, o.prefer, o.by)
}
