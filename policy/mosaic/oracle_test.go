package mosaic_test

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/prices"
	"muster/sim"
)

// naive is the policy with effort=0 and without patience, written a second time
// from docs/mosaic.md: node by node and instant by instant, and nothing is remembered
// that could be worked out again. Only the prices are not found a second time.
type naive struct {
	balance int64
	depth   int
	age     time.Duration

	kinds     []ask
	ranks     map[policy.JobID]int           // by job: its place in the latest order that it was in
	plan      []*stay                        // of jobs that have not started, by start
	wasOld    map[policy.JobID]bool          // when the plan was made
	expected  map[policy.JobID]time.Duration // by job that runs: its end
	elsewhere []policy.JobID
	again     bool // the next step must plan
	more      bool // jobs wait that were not planned for depth
	guard     time.Duration
	guarded   policy.JobID
}

// spot is what is free of a node, or is taken of it.
type spot struct {
	cores, gpus int
	memory      int64
}

func (s spot) less(o spot) spot {
	return spot{s.cores - o.cores, s.gpus - o.gpus, s.memory - o.memory}
}

// use is what a job takes of a node: as a host, or only its devices.
type use struct {
	node int
	spot
	lent bool
}

// ask is what a kind of jobs asks of each node; of spread cores, a process's.
type ask struct {
	spot
	spread, remote, exclusive bool
	perNode                   int64 // memory, beside that of each spread core
}

// wish is a job to be planned.
type wish struct {
	id             policy.JobID
	kind           int
	ask            ask
	width, devices int
	run            time.Duration
	cost           float64
	free, old      bool
}

// stay is a job at a place for some time.
type stay struct {
	id       policy.JobID
	from, to time.Duration
	uses     []use
}

func (p *naive) Traits() policy.Traits { return policy.Traits{Ends: true} }

func (p *naive) Why(*policy.View, policy.JobID) string { return "it is not its time" }

// ---- what is planned ----

func idleNodes(c *model.Cluster) (out []spot) {
	for i := range c.Nodes {
		out = append(out, spot{c.Nodes[i].Cores, len(c.Nodes[i].GPUs), c.Nodes[i].Memory})
	}
	return out
}

func wishOf(c *model.Cluster, r *model.Request) (w wish, planned bool) {
	idle, types := idleNodes(c), map[int]bool{}
	alike := true
	for i := range c.Nodes {
		alike = alike && idle[i].cores == idle[0].cores && idle[i].gpus == idle[0].gpus
		for _, t := range c.Nodes[i].GPUs {
			types[t] = true
		}
	}
	only := -1
	for t := range types {
		only = t
	}
	if r.GPUMemory > 0 || len(r.NodeList) > 0 || r.Nodes == 0 && r.GPUs > 0 {
		return w, false
	}
	if r.GPUType != "" && (len(types) != 1 || c.GPUTypes[only].Name != r.GPUType) {
		return w, false
	}
	if r.Nodes == 0 {
		w.ask = ask{spot: spot{max(1, r.CoresPerProcess), 0, r.MemoryPerCore}, spread: true, perNode: r.Memory}
		w.width = r.Cores
	} else {
		w.ask = ask{spot: spot{r.CoresOnNode(), r.GPUs, r.MemoryOnNode(r.CoresOnNode())}}
		w.width = r.Nodes
	}
	if r.Exclusive {
		if !alike || r.Remote != nil || w.ask.cores > idle[0].cores || w.ask.gpus > idle[0].gpus {
			return w, false
		}
		w.ask.exclusive, w.ask.cores, w.ask.gpus = true, idle[0].cores, idle[0].gpus
	}
	if r.Remote != nil {
		if r.GPUs > 0 || r.Remote.Shared || r.Remote.Memory > 0 && (len(types) != 1 || r.Remote.Memory > c.GPUTypes[only].Memory) {
			return w, false
		}
		w.ask.remote, w.devices = true, r.Remote.Count
	}
	return w, place(idle, &w, func(spot) int64 { return 0 }) != nil
}

// ---- a place ----

func (a *ask) fits(s spot) bool {
	return s.cores >= a.cores && s.gpus >= a.gpus && s.memory >= a.memory
}

// gives is how many spread cores a node can give.
func (a *ask) gives(s spot) int {
	for c := s.cores; c > 0; c-- {
		if c%a.cores == 0 && int64(c)*a.memory+a.perNode <= s.memory {
			return c
		}
	}
	return 0
}

// stretches are the first nodes of stretches of nodes that have the same free, and the end.
func stretches(free []spot) (out []int) {
	for i := range free {
		if i == 0 || free[i] != free[i-1] {
			out = append(out, i)
		}
	}
	return append(out, len(free))
}

func place(free []spot, w *wish, worth func(spot) int64) []use {
	var best []use
	if w.ask.spread {
		best = placeSpread(free, w, worth)
	} else {
		best = placeBlock(free, w, worth)
	}
	if best == nil || w.devices == 0 {
		return best
	}
	return placeDevices(free, w.devices, best)
}

func placeBlock(free []spot, w *wish, worth func(spot) int64) []use {
	type rank struct {
		loss   int64
		middle int
		hole   int
	}
	var best rank
	at := -1
	edges := stretches(free)
	for i := 0; i+1 < len(edges); i++ {
		for _, from := range []int{edges[i], edges[i+1] - w.width} {
			to := from + w.width
			ok := from >= 0 && to <= len(free) && from < edges[i+1] && to > edges[i]
			for n := from; ok && n < to; n++ {
				ok = w.ask.fits(free[n])
			}
			if !ok {
				continue
			}
			low, high := from, to // the hole around it
			for low > 0 && w.ask.fits(free[low-1]) {
				low--
			}
			for high < len(free) && w.ask.fits(free[high]) {
				high++
			}
			r := rank{hole: high - low - w.width}
			if low < from && to < high {
				r.middle = 1
			}
			for n := from; n < to; n++ {
				r.loss += worth(free[n]) - worth(free[n].less(w.ask.spot))
			}
			if at < 0 || cmp.Or(cmp.Compare(r.loss, best.loss), cmp.Compare(r.middle, best.middle), cmp.Compare(r.hole, best.hole)) < 0 {
				best, at = r, from
			}
		}
	}
	if at < 0 {
		return nil
	}
	var out []use
	for n := at; n < at+w.width; n++ {
		out = append(out, use{node: n, spot: w.ask.spot})
	}
	return out
}

func placeSpread(free []spot, w *wish, worth func(spot) int64) (best []use) {
	least := int64(0)
	edges := stretches(free)
	for i := 0; i+1 < len(edges); i++ {
		for _, way := range []int{1, -1} {
			n := edges[i]
			if way < 0 {
				n = edges[i+1] - 1
			}
			var uses []use
			left, loss := w.width, int64(0)
			for ; left > 0 && n >= 0 && n < len(free); n += way {
				c := min(left, w.ask.gives(free[n]))
				if c == 0 {
					break
				}
				uses = append(uses, use{node: n, spot: spot{c, 0, int64(c)*w.ask.memory + w.ask.perNode}})
				loss += worth(free[n]) - worth(free[n].less(spot{cores: c}))
				left -= c
			}
			if left == 0 && (best == nil || loss < least) {
				best, least = uses, loss
			}
		}
	}
	return best
}

func placeDevices(free []spot, count int, uses []use) []use {
	from, to := uses[0].node, uses[0].node+1
	for _, u := range uses {
		from, to = min(from, u.node), max(to, u.node+1)
	}
	lend := func(n int) {
		if k := min(count, free[n].gpus); k > 0 {
			uses = append(uses, use{node: n, spot: spot{gpus: k}, lent: true})
			count -= k
		}
	}
	for n := from; n < to; n++ {
		lend(n)
	}
	for down, up := from, to; count > 0; {
		// The next nodes on each side that have some.
		for down > 0 && free[down-1].gpus == 0 {
			down--
		}
		for up < len(free) && free[up].gpus == 0 {
			up++
		}
		switch {
		case down == 0 && up == len(free):
			return nil
		case down > 0 && (up == len(free) || from-down <= up-to):
			for like := free[down-1]; down > 0 && free[down-1] == like; down-- {
				lend(down - 1)
			}
		default:
			for like := free[up]; up < len(free) && free[up] == like; up++ {
				lend(up)
			}
		}
	}
	return uses
}

// ---- prices ----

// value prices the wishes, and returns the worth of what is free of a node.
func (p *naive) value(c *model.Cluster, wishes []*wish) func(spot) int64 {
	idle := idleNodes(c)
	var nodes []prices.Nodes
	cores, gpus := 0, 0
	for _, s := range idle {
		cores, gpus = max(cores, s.cores), max(gpus, s.gpus)
		k := slices.IndexFunc(nodes, func(n prices.Nodes) bool { return int(n.Cores) == s.cores && int(n.GPUs) == s.gpus })
		if k < 0 {
			k = len(nodes)
			nodes = append(nodes, prices.Nodes{Cores: int32(s.cores), GPUs: int32(s.gpus)})
		}
		nodes[k].Count++
	}
	var works []prices.Kind
	var first []int
	for _, a := range p.kinds {
		first = append(first, len(works))
		works = append(works, prices.Kind{Cores: int32(a.cores), GPUs: int32(a.gpus)})
		if a.remote {
			works = append(works, prices.Kind{GPUs: 1})
		}
	}
	units := func(w *wish) int64 {
		if w.ask.spread {
			return int64(w.width / w.ask.cores)
		}
		return int64(w.width)
	}
	for _, w := range wishes {
		length := max(1, int64(w.run/time.Millisecond))
		works[first[w.kind]].Demand += length * units(w)
		if w.ask.remote {
			works[first[w.kind]+1].Demand += length * int64(w.devices)
		}
	}
	price := prices.Solve(works, nodes).Kind
	tilted := slices.Clone(price)
	for i, k := range works {
		tilted[i] += prices.Unit / 32 * int64(k.Cores) / int64(cores)
		if gpus > 0 {
			tilted[i] += prices.Unit / 32 * int64(k.GPUs) / int64(gpus)
		}
	}
	for _, w := range wishes {
		k := first[w.kind]
		w.free = price[k] < prices.Unit/64
		sum := tilted[k] * units(w)
		if w.ask.remote {
			w.free = w.free && price[k+1] < prices.Unit/64
			sum += tilted[k+1] * int64(w.devices)
		}
		w.cost = float64(float64(sum)*w.run.Seconds()) * w.run.Seconds()
	}
	var worth func(s spot) int64
	worth = func(s spot) (most int64) {
		for i, k := range works {
			if s.cores >= int(k.Cores) && s.gpus >= int(k.GPUs) {
				most = max(most, tilted[i]+worth(spot{cores: s.cores - int(k.Cores), gpus: s.gpus - int(k.GPUs)}))
			}
		}
		return most
	}
	table := map[spot]int64{}
	return func(s spot) int64 {
		s.memory = 0
		if _, known := table[s]; !known {
			table[s] = worth(s)
		}
		return table[s]
	}
}

// ---- the plan ----

// line is all stays, of running jobs too.
type line struct {
	idle  []spot
	now   time.Duration
	stays []*stay
}

// free is the least that every node has free during a run.
func (l *line) free(from, to time.Duration) []spot {
	out := slices.Clone(l.idle)
	at := []time.Duration{from}
	for _, s := range l.stays {
		if s.from > from && s.from < to {
			at = append(at, s.from)
		}
	}
	for _, t := range at {
		here := slices.Clone(l.idle)
		for _, s := range l.stays {
			if s.from <= t && t < s.to {
				for _, u := range s.uses {
					here[u.node] = here[u.node].less(u.spot)
				}
			}
		}
		for n := range out {
			out[n] = spot{min(out[n].cores, here[n].cores), min(out[n].gpus, here[n].gpus), min(out[n].memory, here[n].memory)}
		}
	}
	return out
}

// earliest adds a job at the first time at which it fits.
func (l *line) earliest(w *wish, worth func(spot) int64) *stay {
	at := []time.Duration{l.now}
	for _, s := range l.stays {
		at = append(at, s.to)
	}
	slices.Sort(at)
	for _, t := range at {
		if uses := place(l.free(t, t+w.run), w, worth); t >= l.now && uses != nil {
			s := &stay{w.id, t, t + w.run, uses}
			l.stays = append(l.stays, s)
			return s
		}
	}
	panic("it does not even fit in the end")
}

func (l *line) without(s *stay) {
	l.stays = slices.DeleteFunc(l.stays, func(o *stay) bool { return o == s })
}

func (l *line) copy() *line { return &line{l.idle, l.now, slices.Clone(l.stays)} }

// backwards is point 1.
func backwards(idle []spot, order []*wish, worth func(spot) int64) *line {
	l := &line{idle: idle}
	for now := time.Duration(0); len(order) > 0; {
		var wait []*wish
		limit := policy.Never
		for _, w := range order {
			if now+w.run <= limit {
				if uses := place(l.free(now, now+1), w, worth); uses != nil {
					l.stays = append(l.stays, &stay{w.id, now, now + w.run, uses})
					continue
				}
				if limit == policy.Never {
					for _, s := range l.stays {
						if s.to > now && s.to < limit && place(l.free(s.to, s.to+1), w, worth) != nil {
							limit = s.to
						}
					}
				}
			}
			wait = append(wait, w)
		}
		next := policy.Never
		for _, s := range l.stays {
			if s.to > now {
				next = min(next, s.to)
			}
		}
		order, now = wait, next
	}
	return l
}

// costs is what a plan costs: waits by job, in whole milliseconds.
func (p *naive) costs(wishes []*wish, length time.Duration, wait func(*wish) (time.Duration, bool)) int64 {
	mean := time.Duration(0)
	for _, w := range wishes {
		mean += w.run / time.Duration(len(wishes))
	}
	mean = max(1, mean)
	sum := int64(0)
	for _, w := range wishes {
		if t, counts := wait(w); counts {
			sum += int64(t/time.Millisecond) * (256 + int64(256*mean/max(1, w.run, mean/16)))
		}
	}
	return (100-p.balance)*(sum/int64(len(wishes))/256) + p.balance*int64(length/time.Millisecond)
}

func (l *line) of(id policy.JobID) *stay {
	for _, s := range l.stays {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (l *line) end() time.Duration {
	end := l.now
	for _, s := range l.stays {
		end = max(end, s.to)
	}
	return end
}

// make makes the plan.
func (p *naive) make(v *policy.View) {
	idle := idleNodes(v.Cluster())
	// What runs is nobody's of those that wait.
	running := &line{idle: idle, now: v.Now()}
	for ends := v.Ends(); ; {
		id, _, ok := ends.Next()
		if !ok {
			break
		}
		s := &stay{id: -1, from: -1, to: min(v.ExpectedEnd(id), v.Now()+30*24*time.Hour)}
		a := v.Held(id)
		for _, q := range a.Parts {
			u := use{node: int(q.Node), spot: spot{int(q.Cores), bits.OnesCount64(q.GPUs), q.Memory}}
			if q.Exclusive {
				u.gpus = idle[q.Node].gpus
			}
			s.uses = append(s.uses, u)
		}
		for _, g := range a.Grants {
			s.uses = append(s.uses, use{node: int(g.Node), spot: spot{gpus: 1}})
		}
		running.stays = append(running.stays, s)
	}
	var wishes, old, priced, free []*wish
	p.more, p.again = false, false
	for queue := v.Queue(); ; {
		id, _, ok := queue.Next()
		if !ok {
			break
		}
		w, planned := wishOf(v.Cluster(), &v.Shape(id).Request)
		if _, runs := p.expected[id]; !planned || runs {
			continue
		}
		if p.depth > 0 && len(wishes) == p.depth {
			p.more = true
			break
		}
		w.id, w.kind = id, slices.Index(p.kinds, w.ask)
		w.run = min(max(1, v.Job(id).Estimate()), 30*24*time.Hour)
		w.old = p.old(v, id)
		wishes = append(wishes, &w)
	}
	clear(p.wasOld)
	p.plan = nil
	if len(wishes) == 0 {
		return
	}
	worth := p.value(v.Cluster(), wishes)
	byID := map[policy.JobID]*wish{}
	for _, w := range wishes {
		byID[w.id] = w
		switch {
		case w.old:
			old = append(old, w)
		case w.free:
			free = append(free, w)
		default:
			priced = append(priced, w)
		}
	}
	costliest := func(a, b *wish) int { return cmp.Compare(b.cost, a.cost) }
	slices.SortStableFunc(priced, costliest)
	slices.SortStableFunc(free, costliest)

	// 1 and 2.
	back := backwards(idle, priced, worth)
	costOf := func(l *line) int64 {
		return p.costs(wishes, l.end(), func(w *wish) (time.Duration, bool) {
			s := l.of(w.id)
			if s == nil {
				return 0, false
			}
			return l.end() - s.to, true
		})
	}
	if order := p.orderBefore(priced); order != nil {
		if other := backwards(idle, order, worth); costOf(other) < costOf(back) {
			back, priced = other, order
		}
	}
	for i, w := range priced {
		p.ranks[w.id] = i
	}
	// 3.
	for _, w := range free {
		back.earliest(w, worth)
	}
	// 4.
	begin := running.copy()
	for _, w := range old {
		begin.earliest(w, worth)
	}
	four := begin.copy()
	end := begin.end() + back.end()
	var rest []*stay
	for _, w := range append(slices.Clone(priced), free...) {
		s := back.of(w.id)
		rest = append(rest, &stay{w.id, end - s.to, end - s.from, s.uses})
	}
	four.stays = append(four.stays, rest...)
	slices.SortStableFunc(rest, func(a, b *stay) int { return cmp.Compare(a.from, b.from) })
	for _, s := range rest {
		four.without(s)
		four.earliest(byID[s.id], worth)
	}
	// 5.
	five := begin
	byStart := func(a, b *wish) int { return cmp.Compare(four.of(a.id).from, four.of(b.id).from) }
	slices.SortStableFunc(priced, byStart)
	slices.SortStableFunc(free, byStart)
	for _, w := range append(priced, free...) {
		five.earliest(w, worth)
	}
	whole := func(l *line) int64 {
		length := time.Duration(0)
		for _, w := range wishes {
			length = max(length, l.of(w.id).to-l.now)
		}
		return p.costs(wishes, length, func(w *wish) (time.Duration, bool) { return l.of(w.id).from - l.now, true })
	}
	best := four
	if whole(five) < whole(four) {
		best = five
	}
	for _, w := range wishes {
		s := best.of(w.id)
		p.wasOld[w.id] = w.old
		p.plan = append(p.plan, s)
	}
	slices.SortStableFunc(p.plan, func(a, b *stay) int { return cmp.Compare(a.from, b.from) })
}

// orderBefore is the order of the last plan, with each new job before the first that
// costs less.
func (p *naive) orderBefore(priced []*wish) []*wish {
	var known, fresh []*wish
	for _, w := range priced {
		if _, ok := p.ranks[w.id]; ok {
			known = append(known, w)
		} else {
			fresh = append(fresh, w)
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.SortStableFunc(known, func(a, b *wish) int { return cmp.Compare(p.ranks[a.id], p.ranks[b.id]) })
	for _, w := range fresh {
		at := slices.IndexFunc(known, func(o *wish) bool { return o.cost < w.cost })
		if at < 0 {
			at = len(known)
		}
		known = slices.Insert(known, at, w)
	}
	return known
}

// ---- a step ----

func (p *naive) old(v *policy.View, id policy.JobID) bool {
	return p.age > 0 && v.Now() >= v.Job(id).Submit+p.age
}

func (p *naive) Step(v *policy.View, plan *policy.Plan) {
	for _, id := range v.Left() {
		if p.expected[id] != v.Now() {
			p.again = true
		}
	}
	for _, id := range v.Arrived() {
		w, planned := wishOf(v.Cluster(), &v.Shape(id).Request)
		if !planned {
			p.elsewhere = append(p.elsewhere, id)
			continue
		}
		p.again = true
		if !slices.Contains(p.kinds, w.ask) {
			p.kinds = append(p.kinds, w.ask)
		}
	}
	for _, s := range p.plan {
		if p.old(v, s.id) && !p.wasOld[s.id] {
			p.again = true
		}
	}
	if p.more && len(p.plan) <= p.depth/2 {
		p.again = true
	}
	p.protect(v, plan)
	if !p.again && p.startDue(v, plan) {
		ends := v.Ends()
		if _, _, some := ends.Next(); some || !p.more && len(p.plan) == 0 {
			p.startElsewhere(v, plan)
			return
		}
	}
	p.make(v)
	if !p.startDue(v, plan) {
		panic("what was planned just now is not free")
	}
	p.startElsewhere(v, plan)
}

// protect looks after jobs that are not planned and have waited for too long.
func (p *naive) protect(v *policy.View, plan *policy.Plan) {
	p.guarded = -1
	for _, id := range slices.Clone(p.elsewhere) {
		if !p.old(v, id) || p.planned(v, id) != policy.Never {
			continue
		}
		if a := v.Place(v.Shape(id), policy.Sharing); a != nil {
			p.start(v, plan, id, a)
			p.elsewhere = slices.DeleteFunc(p.elsewhere, func(o policy.JobID) bool { return o == id })
		} else if at := v.ReserveEarliest(v.Shape(id), policy.Never); at != policy.Never {
			p.guard, p.guarded = at, id
			return
		}
	}
}

// delays says that a job must wait for the one that is protected.
func (p *naive) delays(v *policy.View, id policy.JobID) bool {
	return p.guarded >= 0 && id > p.guarded && v.Now()+v.Job(id).Estimate() > p.guard
}

// planned is the first planned start of an old job that is older than id.
func (p *naive) planned(v *policy.View, id policy.JobID) time.Duration {
	at := policy.Never
	for _, s := range p.plan {
		if s.id < id && p.old(v, s.id) {
			at = min(at, s.from)
		}
	}
	return at
}

func (p *naive) startElsewhere(v *policy.View, plan *policy.Plan) {
	p.elsewhere = slices.DeleteFunc(p.elsewhere, func(id policy.JobID) bool {
		if p.delays(v, id) || v.Now()+v.Job(id).Estimate() > p.planned(v, id) {
			return false
		}
		a := v.Place(v.Shape(id), policy.Sharing)
		return a != nil && p.start(v, plan, id, a)
	})
}

func (p *naive) start(v *policy.View, plan *policy.Plan, id policy.JobID, a *model.Allocation) bool {
	if !plan.Start(id, a, policy.Reason{}) {
		return false
	}
	p.expected[id] = v.Now() + max(1, v.Job(id).Estimate())
	return true
}

// startDue starts what is to start now, as far as it is free.
func (p *naive) startDue(v *policy.View, plan *policy.Plan) bool {
	for _, s := range slices.Clone(p.plan) {
		if s.from > v.Now() {
			return true
		}
		if p.delays(v, s.id) {
			p.again = true
			continue
		}
		a := s.allocation(v)
		if a == nil || !v.Holds(a) || !p.start(v, plan, s.id, a) {
			return false
		}
		p.plan = slices.DeleteFunc(p.plan, func(o *stay) bool { return o == s })
	}
	return true
}

// allocation has the lowest free devices of each node.
func (s *stay) allocation(v *policy.View) *model.Allocation {
	a := &model.Allocation{}
	devices := func(n, count int) (set uint64) {
		for free := v.FreeGPUs(int32(n)); free != 0 && count > 0; free &= free - 1 {
			set |= free & -free
			count--
		}
		return set
	}
	r := &v.Shape(s.id).Request
	for _, u := range s.uses {
		if !u.lent {
			a.Parts = append(a.Parts, model.Part{Node: int32(u.node), Cores: int32(u.cores), Memory: u.memory, GPUs: devices(u.node, r.GPUs), Exclusive: r.Exclusive})
			if bits.OnesCount64(a.Parts[len(a.Parts)-1].GPUs) < r.GPUs {
				return nil
			}
		}
	}
	slices.SortFunc(a.Parts, func(x, y model.Part) int { return cmp.Compare(x.Node, y.Node) })
	for _, u := range s.uses {
		if !u.lent {
			continue
		}
		set := devices(u.node, u.gpus)
		if bits.OnesCount64(set) < u.gpus {
			return nil
		}
		if own := slices.IndexFunc(a.Parts, func(q model.Part) bool { return int(q.Node) == u.node }); own >= 0 {
			a.Parts[own].GPUs = set
			continue
		}
		for ; set != 0; set &= set - 1 {
			a.Grants = append(a.Grants, model.Grant{For: int32(len(a.Grants) % len(a.Parts)), Node: int32(u.node), Device: int32(bits.TrailingZeros64(set))})
		}
	}
	return a
}

// started is where and when jobs start, for the comparison.
type started struct {
	at    []time.Duration
	alloc []model.Allocation
}

func (s *started) Started(now time.Duration, job int, a *model.Allocation) {
	s.at[job] = now
	b := model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
	for i := range b.Grants {
		b.Grants[i].For = 0 // the rules say which devices, not which of the job's nodes they serve
	}
	slices.SortFunc(b.Grants, func(x, y model.Grant) int {
		return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Device, y.Device))
	})
	s.alloc[job] = b
}

func (s *started) Ended(time.Duration, int) {}

// smallCase draws a cluster of at most 6 nodes and at most 8 jobs of all kinds that
// are planned.
func smallCase(rng *rand.Rand) (*model.Cluster, []model.Job) {
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	c := &model.Cluster{Name: "small", GPUTypes: []model.GPUType{{Name: "one", Memory: 4, Speed: 1}, {Name: "other", Memory: 8, Speed: 1}}}
	alike, types := chance(60), 1
	if chance(10) {
		types = 2
	}
	for i := range 1 + rng.IntN(6) {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: 2 + rng.IntN(5), Memory: int64(4 + rng.IntN(8))}
		for range rng.IntN(4) {
			n.GPUs = append(n.GPUs, rng.IntN(types))
		}
		if alike && i > 0 {
			n.Cores, n.Memory, n.GPUs = c.Nodes[0].Cores, c.Nodes[0].Memory, c.Nodes[0].GPUs
		}
		c.Nodes = append(c.Nodes, n)
	}
	atOnce, right := chance(50), chance(50)
	var jobs []model.Job
	for i := range 1 + rng.IntN(8) {
		var r model.Request
		if chance(25) {
			r.CoresPerProcess = rng.IntN(3)
			r.Cores = max(1, r.CoresPerProcess) * (1 + rng.IntN(8))
			r.MemoryPerCore, r.Memory = int64(rng.IntN(2)), int64(rng.IntN(2))
		} else {
			r.Nodes, r.CoresPerNode = 1+rng.IntN(len(c.Nodes)), 1+rng.IntN(4)
			if chance(40) {
				r.GPUs = rng.IntN(3)
			}
			if chance(30) {
				r.Memory = int64(rng.IntN(5))
			}
			r.Exclusive = chance(10)
		}
		if r.GPUs == 0 && !r.Exclusive && chance(30) {
			r.Remote = &model.RemoteGPUs{Count: 1 + rng.IntN(5)}
		}
		r.Contiguous = chance(20)
		if chance(5) {
			r.GPUType = "one"
		}
		j := model.Job{ID: fmt.Sprint(i), Run: seconds(rng.IntN(12)), Request: r}
		if !atOnce {
			j.Submit = seconds(rng.IntN(20))
		}
		if !right && chance(50) {
			j.WallTime = seconds(1 + rng.IntN(15))
		}
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b model.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return c, jobs
}

// TestAsWritten: the rules of docs/mosaic.md, followed to the letter, start every
// job at the same time on the same nodes as the policy does.
func TestAsWritten(t *testing.T) {
	cases := need.Rounds(250, 5000)
	waits, same := 0, 0
	for seed := range uint64(cases) {
		rng := rand.New(rand.NewPCG(seed, 77))
		c, jobs := smallCase(rng)
		n := &naive{
			balance: []int64{50, 50, 0, 20, 100}[rng.IntN(5)], depth: []int{2000, 2000, 0, 2, 4}[rng.IntN(5)],
			age:   []time.Duration{24 * time.Hour, 0, seconds(5), seconds(9)}[rng.IntN(4)],
			ranks: map[policy.JobID]int{}, wasOld: map[policy.JobID]bool{}, expected: map[policy.JobID]time.Duration{},
		}
		spec := fmt.Sprintf("effort=0:balance=%d:depth=%d:age=%s", n.balance, n.depth, n.age)
		noKill := rng.IntN(3) == 0
		var got, want started
		for _, x := range []struct {
			p  policy.Policy
			to *started
		}{{make1(t, spec), &got}, {n, &want}} {
			x.to.at, x.to.alloc = make([]time.Duration, len(jobs)), make([]model.Allocation, len(jobs))
			res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: x.p, Observe: x.to, NoKill: noKill})
			if err != nil || res.Refused > 0 {
				t.Fatalf("seed %d, %s: %v, %+v", seed, spec, err, res)
			}
		}
		for i := range jobs {
			if got.at[i] != want.at[i] || !reflect.DeepEqual(got.alloc[i], want.alloc[i]) {
				t.Fatalf("seed %d, %s: job %s (%+v) starts at %v on %+v, by the rules at %v on %+v",
					seed, spec, jobs[i].ID, jobs[i], got.at[i], got.alloc[i], want.at[i], want.alloc[i])
			}
			if got.at[i] > jobs[i].Submit {
				waits++
			} else {
				same++
			}
		}
	}
	if waits < cases || same < cases {
		t.Errorf("%d jobs waited and %d did not: too few of one", waits, same)
	}
}
