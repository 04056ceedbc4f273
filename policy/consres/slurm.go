package consres

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
)

// Slurm makes the policy "slurm" known.
var Slurm = policy.Entry{
	Name:    "slurm",
	Summary: "Slurm's way: best fit on nodes in a row, backfilling with whole nodes reserved for all who are tried",
	Options: options(),
	New: func(s model.Settings) (policy.Policy, error) {
		return newScheduler(s)
	},
}

// RGPU makes the policy "rgpu" known.
var RGPU = policy.Entry{
	Name:    "rgpu",
	Summary: "Slurm's way with GPUs decoupled from nodes, exclusive or shared by memory (the rCUDA paper)",
	Options: append(options(), model.Option{
		Name: "select", Default: rankings[byMemory],
		Summary: "what remote devices are chosen by: memory (the paper), intensity, speed, distance or all",
	}),
	New: func(s model.Settings) (policy.Policy, error) {
		p, err := newScheduler(s)
		if err != nil {
			return nil, err
		}
		p.selector.preferLocal = true
		by := slices.Index(rankings, s["select"])
		if by < 0 {
			return nil, fmt.Errorf("select is %s, not %q", strings.Join(rankings, ", "), s["select"])
		}
		p.selector.by = ranking(by)
		return p, nil
	},
}

// options are Slurm's, with its defaults for those that determine its behaviour.
func options() []model.Option {
	return []model.Option{
		{Name: "depth", Default: "500", Summary: "how many waiting jobs backfilling tries (bf_max_job_test); 0 for all"},
		{Name: "bf_window", Default: "24h", Summary: "how far ahead a reservation may lie; 0 for no limit"},
		{Name: "bf_interval", Default: "30s", Summary: "the least time from one backfilling to the next; 0 for at every event"},
		{Name: "bf_resolution", Default: "60s", Summary: "reservations are rounded outwards to multiples of this; 0 for exact"},
		{Name: "bf_ends", Default: "30s", Summary: "how close together running jobs end that are looked at together, twice as much from group to group; 0 for one by one"},
	}
}

func newScheduler(s model.Settings) (*scheduler, error) {
	p := &scheduler{byKey: map[needKey]*compiled{}}
	var err error
	if p.depth, p.window, err = policy.Backfill(s); err != nil {
		return nil, err
	}
	for _, o := range []struct {
		name string
		to   *time.Duration
	}{{"bf_interval", &p.interval}, {"bf_resolution", &p.resolution}, {"bf_ends", &p.group}} {
		if *o.to, err = units.ParseDuration(s[o.name]); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return p, nil
}

// scheduler implements both policies.
type scheduler struct {
	depth                               int
	interval, window, resolution, group time.Duration

	generation uint64 // the view's generation for which everything below was made

	needs  []*compiled // by shape
	byKey  map[needKey]*compiled
	remote bool // some job asks for remote GPUs

	selector Selector
	future   future
	space    nodeSpace
	held     heldDevices
	walk     walk
	rows     rows
	out      model.Allocation
	ends     []time.Duration // scratch

	fits     time.Duration // the latest search: no job that asks for as much or more can start before it
	passes   int           // the number of backfilling passes so far
	passed   time.Duration // the time of the latest pass
	reserved []reservation // the reservations of the latest pass
	patient  []patience    // the jobs that wait for less crowded devices, in the latest step
}

// compiled is a need with its curve.
type compiled struct {
	need
	curve curve
	// known is what the searches of pass number pass found out.
	known []bound
	pass  int
}

// bound says that no job that asks for units or more, for d or longer, can start before at. It
// stays true during a pass, because jobs that start and reservations only take away.
type bound struct {
	units      int32
	contiguous bool
	d, at      time.Duration
}

// holds says whether the bound applies to a request.
func (b *bound) holds(units int32, contiguous bool, d time.Duration) bool {
	return b.units <= units && b.d <= d && (contiguous || !b.contiguous)
}

// notBefore is a time before which a search would find nothing.
func (c *compiled) notBefore(pass int, units int32, contiguous bool, d, now time.Duration) time.Duration {
	if c.pass != pass {
		c.known, c.pass = c.known[:0], pass
	}
	for i := range c.known {
		if b := &c.known[i]; b.holds(units, contiguous, d) {
			now = max(now, b.at)
		}
	}
	return now
}

// learn keeps what a search found out, and drops older bounds that follow from it.
func (c *compiled) learn(b bound) {
	c.known = slices.DeleteFunc(c.known, func(old bound) bool { return old.at <= b.at && b.holds(old.units, old.contiguous, old.d) })
	c.known = append(c.known, b)
}

// reservation is what a pass has promised a waiting job.
type reservation struct {
	job     policy.JobID
	at, end time.Duration
	who     *model.Job // kept, because the job may be over when the pass is explained
	asks    *policy.Shape
	nodes   []int32
	devices []model.Grant
}

// patience says that a job could start, but waits for devices that are less crowded.
type patience struct {
	job   policy.JobID
	until time.Duration
}

var _ policy.Policy = (*scheduler)(nil)
var _ policy.Explainer = (*scheduler)(nil)

func (p *scheduler) Traits() policy.Traits {
	return policy.Traits{Order: policy.ByPriority, Ends: true}
}

// Step first starts jobs in order (Slurm's main loop), and then backfills unless the latest pass is
// less than bf_interval ago.
func (p *scheduler) Step(v *policy.View, plan *policy.Plan) {
	p.begin(v)
	if !p.inTurn(v, plan) {
		p.reserved = p.reserved[:0]
		return
	}
	if due := model.After(p.passed, p.interval); p.passes > 0 && v.Now() < due {
		plan.Wake = due
		return
	}
	p.passes++
	p.passed = v.Now()
	p.backfill(v, plan)
}

// begin takes in what happened since the last step.
func (p *scheduler) begin(v *policy.View) {
	if p.generation != v.Generation() {
		p.readAgain(v)
	}
	p.patient = p.patient[:0]
	if w := p.selector.crowd; w != nil {
		w.now = v.Now()
		for _, id := range v.Left() {
			w.leave(id)
		}
	}
	for _, id := range v.Arrived() {
		p.remote = p.remote || v.Shape(id).Request.Remote != nil
	}
}

// readAgain rebuilds everything after the cluster has changed. Reservations are made anew in each
// pass, so the next one will use the nodes there are now.
func (p *scheduler) readAgain(v *policy.View) {
	p.generation = v.Generation()
	p.selector.tiers = [2]tiers{}
	p.needs, p.byKey = nil, map[needKey]*compiled{}
	version := p.future.version
	p.future = newFuture(v.Cluster(), capacities(v))
	p.future.version = version
	p.held = heldDevices{first: p.future.now.first, share: make([]int64, len(p.future.now.shared))}
	p.reserved = p.reserved[:0]
	if p.selector.by != byMemory {
		crowd := newCrowd(v.Cluster())
		crowd.fill(v, p.selector.crowd)
		p.selector.crowd = crowd
	}
}

func (p *scheduler) compiledOf(v *policy.View, sh *policy.Shape) *compiled {
	for sh.ID() >= len(p.needs) {
		p.needs = append(p.needs, nil)
	}
	if p.needs[sh.ID()] == nil {
		nd := needOf(v.Cluster(), &sh.Request)
		key := nd.key(&sh.Request)
		if p.byKey[key] == nil {
			p.byKey[key] = &compiled{need: nd}
		}
		p.needs[sh.ID()] = p.byKey[key]
	}
	return p.needs[sh.ID()]
}

// inTurn is Slurm's main loop: it starts jobs in the order of priority until one does not fit, and
// returns whether one waits.
func (p *scheduler) inTurn(v *policy.View, plan *policy.Plan) (waits bool) {
	queue := v.Queue()
	for {
		id, _, ok := queue.Next()
		if !ok {
			return false
		}
		sh := v.Shape(id)
		if !v.MayFit(sh, policy.Sharing) {
			return true
		}
		p.ask(v.Job(id), v.Now())
		if !p.selector.place(v, &p.compiledOf(v, sh).need, &sh.Request, nil, nil, &p.out) {
			return true
		}
		if _, wait := p.betterLater(v, id, sh, v, nil); wait || !p.start(v, plan, id, policy.Reason{Code: policy.InTurn}) {
			return true
		}
	}
}

// ask tells the selector for which job, and for which start, it chooses devices.
func (p *scheduler) ask(j *model.Job, at time.Duration) { p.selector.asker, p.selector.at = j, at }

// start proposes the job with the placement in out.
func (p *scheduler) start(v *policy.View, plan *policy.Plan, id policy.JobID, why policy.Reason) bool {
	if !plan.Start(id, &p.out, why) {
		return false
	}
	if w := p.selector.crowd; w != nil {
		w.enter(v.Cluster(), id, v.Job(id), &p.out)
	}
	return true
}

// maxLooks is the largest number of later instants for which betterLater computes the cost.
const maxLooks = 16

// betterLater says whether a job that could start now on crowded devices, with the placement in
// p.out, ends sooner (all jobs counted) if it waits until another job leaves one of them.
func (p *scheduler) betterLater(v *policy.View, id policy.JobID, sh *policy.Shape, free FreeView, held *heldDevices) (until time.Duration, wait bool) {
	r := &sh.Request
	if p.selector.by != byAll || r.Remote == nil || !r.Remote.Shared || mixed(r) {
		return 0, false
	}
	s := &p.selector
	now := v.Now()
	// While all its devices have time to spare, sharing them gets more done than waiting.
	if !slices.ContainsFunc(p.out.Grants, func(g model.Grant) bool { return s.crowd.load(g.Node, g.Device, now) >= one }) {
		return 0, false
	}
	least := s.cost
	p.ends = s.crowd.ends(p.ends[:0], model.After(now, least))
	p.ends = p.ends[:min(maxLooks, len(p.ends))]
	trial := model.Allocation{Parts: slices.Clone(p.out.Parts)}
	nd := &p.compiledOf(v, sh).need
	for _, t := range p.ends {
		s.at = t
		trial.Grants = trial.Grants[:0]
		s.serve(free, nd, r, held, &trial) // the devices that are free now are free then, too
		if cost := t - now + s.cost; cost < least {
			least, until, wait = cost, t, true
		}
	}
	s.at = now
	if wait {
		p.patient = append(p.patient, patience{id, until})
	}
	return until, wait
}

// backfill is one pass: every job that is tried starts, or gets a reservation.
func (p *scheduler) backfill(v *policy.View, plan *policy.Plan) {
	p.reserved = p.reserved[:0]
	p.patient = p.patient[:0]
	p.future.clear()
	running := v.Ends()
	for id, _, ok := running.Next(); ok; id, _, ok = running.Next() {
		p.future.runs(id, v.Held(id), v.ExpectedEnd(id))
	}
	p.space.clear(len(v.Cluster().Nodes), v.Now())
	queue := v.Queue()
	tried := 0
	for id, _, ok := queue.Next(); ok && tried < p.depth; id, _, ok = queue.Next() {
		if v.Held(id) != nil {
			continue // started in its turn
		}
		tried++
		p.try(v, plan, id)
	}
}

// try starts a job, or reserves for it the earliest time at which it can start.
func (p *scheduler) try(v *policy.View, plan *policy.Plan, id policy.JobID) {
	now, sh := v.Now(), v.Shape(id)
	d := max(v.Job(id).Estimate(), 1)
	p.ask(v.Job(id), now)
	c := p.compiledOf(v, sh)
	at, ok := p.earliest(c, &sh.Request, d, now, now)
	if ok && at == now {
		until, wait := p.betterLater(v, id, sh, p.future.now, &p.held)
		if !wait {
			if p.start(v, plan, id, p.reason(now, d)) {
				p.future.runs(id, &p.out, model.After(now, d))
			}
			return
		}
		at, ok = p.earliest(c, &sh.Request, d, now, until)
	}
	if ok {
		p.reserve(v, id, at, model.After(at, d))
	}
}

// reason says why a job may start in a pass.
func (p *scheduler) reason(now, d time.Duration) policy.Reason {
	if len(p.reserved) == 0 {
		return policy.Reason{Code: policy.InTurn}
	}
	first := &p.reserved[0]
	why := policy.Reason{Code: policy.Beside, Job: first.job, At: first.at}
	if model.After(now, d) <= first.at {
		why.Code = policy.EndsBefore
	}
	return why
}

// reserve reserves the nodes that the selector chose, and the devices of p.out. Slurm rounds the
// period outwards to bf_resolution.
func (p *scheduler) reserve(v *policy.View, id policy.JobID, at, end time.Duration) {
	r := reservation{job: id, at: at, end: end, who: v.Job(id), asks: v.Shape(id), nodes: slices.Clone(p.selector.nodes)}
	begin, until := at, end
	if p.resolution > 0 {
		begin -= begin % p.resolution
		if over := until % p.resolution; over > 0 {
			until = model.After(until, p.resolution-over)
		}
	}
	begin = max(begin, p.space.records[0].begin)
	from, to := p.space.reserve(p.selector.nodes, begin, until)
	if p.remote {
		p.space.holdDevices(&p.out, p.future.now, begin, until, from, to)
		r.devices = slices.Clone(p.out.Grants)
	}
	p.reserved = append(p.reserved, r)
}

// earliest finds the first time from floor on at which a job that runs for d has what it needs,
// beside running jobs and reservations. It leaves the nodes in the selector, and the placement in
// p.out if the job starts now or has devices. Requests without remote GPUs use and extend what is
// known about their need.
func (p *scheduler) earliest(c *compiled, r *model.Request, d, now, floor time.Duration) (time.Duration, bool) {
	c.curve.build(&p.future, &c.need)
	units := want(r) / c.curve.unit
	if r.Remote != nil {
		return p.search(c, r, units, d, now, floor, now)
	}
	at, ok := p.search(c, r, units, d, now, now, c.notBefore(p.passes, units, r.Contiguous, d, now))
	c.learn(bound{units, r.Contiguous, d, p.fits})
	return at, ok
}

// search is earliest, given that nothing can be found before notBefore. It goes from one record of
// the node space to the next. For each it tests by counting whether the nodes that are not reserved
// could suffice before the next record begins, and only then lets settle find the exact time and
// nodes.
func (p *scheduler) search(c *compiled, r *model.Request, units int32, d, now, floor, notBefore time.Duration) (time.Duration, bool) {
	last := never
	if p.window < never-now {
		last = now + p.window
	}
	p.walk.begin(&c.curve)
	p.fits = never
	t := floor
	for i := p.space.at(t); t <= last; {
		next, past := p.space.next(i, model.After(t, d))
		p.fits = min(p.fits, past) // a search for a longer job might stop at past, so the bound must not be later
		later := p.space.begin(next)
		if later < notBefore {
			i, t = next, later
			continue
		}
		p.walk.forward(later)
		// Nodes reserved at t alone are tested first: that is cheap, and often rules the record
		// out.
		if p.walk.suffices(p.space.records[i].hosts, units, false) &&
			p.walk.suffices(p.space.reserved(i, model.After(t, d), c.local()), units, r.Contiguous) {
			hidden := p.space.reach
			at, ok := p.settle(c, r, hidden, units, d, now, t, later)
			if ok && at > last {
				return 0, false
			}
			if ok && !p.clashes(c, r, d, at, t) {
				return at, true
			}
			if ok && at < later {
				t = at
				continue
			}
		}
		if later == never {
			return 0, false
		}
		i, t = next, later
	}
	return 0, false
}

// settle finds the time between t and later at which the nodes that are not hidden have what the
// job needs, and chooses nodes and devices.
func (p *scheduler) settle(c *compiled, r *model.Request, hidden bitmap, units int32, d, now, t, later time.Duration) (time.Duration, bool) {
	at, ok := c.curve.earliest(&p.rows, hidden, units, r.Contiguous, now, later)
	if !ok {
		return 0, false
	}
	at = max(at, t)
	p.fits = min(p.fits, at)
	if r.Remote == nil {
		at = p.groupEnd(hidden, at, t, later, r.Nodes > 0)
		p.choose(c, r, hidden, at)
		p.out.Parts, p.out.Grants = p.out.Parts[:0], p.out.Grants[:0]
		if at == now || p.remote && c.local() {
			p.write(c, at)
		}
		return at, true
	}
	p.held.during(&p.space, t, model.After(t, d))
	f := &p.future
	f.restart()
	f.forward(at)
	lenders := p.selector.count(f.then, &c.need, r, &p.held)
	for {
		p.selector.at = at
		if lenders.total >= r.Remote.Count && p.selector.place(f.then, &c.need, r, hidden, &p.held, &p.out) {
			return at, true
		}
		if at, ok = f.next(); !ok || at > later {
			return 0, false
		}
		from := f.applied
		f.forward(at)
		for i := range f.releases[from:f.applied] {
			lenders.again(f.releases[from+i].node)
		}
	}
}

// groupEnd is when Slurm expects a job to start that could start at at, and not yet at t. Slurm
// does not test after each end of a running job: it lets jobs end in groups, and tests after each
// group. The first group ends bf_ends after the first end, rounded up, and each further group lasts
// twice as long. Jobs that run on hidden nodes only do not count. After each job that counts, Slurm
// asks whether the next end is beyond the group: with asksAll the next end of any job, which real
// Slurm was seen to do for requests with a number of nodes, otherwise that of the next job that
// counts.
func (p *scheduler) groupEnd(hidden bitmap, at, t, later time.Duration, asksAll bool) time.Duration {
	if p.group == 0 || at <= t {
		return at
	}
	list := p.future.releases
	i, _ := slices.BinarySearchFunc(list, t+1, func(r release, t time.Duration) int { return cmp.Compare(r.at, t) })
	var over, last time.Duration // the end of the group, and the last end of a job in it so far
	width := p.group
	for i < len(list) && list[i].at <= later {
		end, next, counts := list[i].at, i, false
		for next < len(list) && list[next].job == list[i].job {
			counts = counts || !hidden.has(list[next].node)
			next++
		}
		i = next
		if !counts {
			continue
		}
		for !asksAll && i < len(list) && hidden.has(list[i].node) {
			i++
		}
		if over == 0 {
			over = model.After(end-end%p.group, 2*width)
		}
		last = end
		if i == len(list) || list[i].at <= over {
			continue
		}
		if at <= last {
			break
		}
		for list[i].at > over {
			over, width = model.After(over, width), 2*width
		}
	}
	return last
}

// choose picks nodes by what they will offer at at.
func (p *scheduler) choose(c *compiled, r *model.Request, hidden bitmap, at time.Duration) {
	s := &p.selector
	s.offers = append(s.offers[:0], c.curve.offers...)
	for i := range c.curve.steps {
		step := &c.curve.steps[i]
		if step.at > at {
			break
		}
		s.offers[step.node] = step.to
	}
	for w, word := range hidden {
		for ; word != 0; word &= word - 1 {
			s.offers[w<<6+bits.TrailingZeros64(word)] = 0
		}
	}
	if unit := c.curve.unit; unit > 1 {
		for i := range s.offers {
			s.offers[i] *= unit
		}
	}
	if !s.pick(p.future.now.Cluster(), r) {
		panic("consres: nodes that suffice do not suffice")
	}
}

// write turns the chosen nodes into the placement p.out, with the devices that are free at at.
func (p *scheduler) write(c *compiled, at time.Duration) {
	p.future.restart()
	p.future.forward(at)
	for i, n := range p.selector.nodes {
		c.part(p.future.then, n, p.selector.gives[i], &p.out)
	}
}

// clashes says whether a choice made for a start at t runs into reservations if the job starts at
// at, which is later.
func (p *scheduler) clashes(c *compiled, r *model.Request, d, at, t time.Duration) bool {
	if at == t {
		return false
	}
	end := model.After(at, d)
	if p.space.clashes(p.selector.nodes, at, end, c.local()) {
		return true
	}
	if r.Remote == nil {
		return false
	}
	p.held.during(&p.space, at, end)
	for i := range p.out.Parts {
		part := &p.out.Parts[i]
		for d := range int32(len(p.future.now.cluster.Nodes[part.Node].GPUs)) {
			if part.GPUs>>d&1 != 0 && p.held.of(part.Node, d) > 0 {
				return true
			}
		}
	}
	for _, g := range p.out.Grants {
		if !p.selector.eligible(p.future.then, &c.need, r, &p.held, g.Node, g.Device) {
			return true
		}
	}
	return false
}

func (p *scheduler) Why(v *policy.View, id policy.JobID) string {
	sh := v.Shape(id)
	lacks := v.Shortage(sh, policy.Sharing)
	p.ask(v.Job(id), v.Now())
	fits := p.selector.place(v, &p.compiledOf(v, sh).need, &sh.Request, nil, nil, &p.out)
	if fits {
		lacks = "it fits now, but its turn has not come"
	}
	for _, w := range p.patient {
		if w.job == id {
			return fmt.Sprintf("it fits now, but the devices are crowded: it does better to wait until %s", v.Clock(w.until))
		}
	}
	for i := range p.reserved {
		if r := &p.reserved[i]; r.job == id {
			if fits && r.at > v.Now() {
				lacks = "it fits now, but would delay the reservations of others"
			}
			return fmt.Sprintf("%s; reserved for %s", lacks, v.Clock(r.at))
		}
	}
	ahead, _ := v.Ahead(id)
	switch {
	case v.Now() > p.passed:
		return fmt.Sprintf("%s; backfilling looks again at %s (bf_interval)", lacks, v.Clock(model.After(p.passed, p.interval)))
	case ahead >= p.depth:
		return fmt.Sprintf("%d jobs ahead, and backfilling tries only the first %d (depth)", ahead, p.depth)
	}
	return lacks + "; nothing is reserved for it (bf_window)"
}

// Explain lists and draws the reservations of the latest pass of backfilling.
func (p *scheduler) Explain(v *policy.View) *policy.Explanation {
	e := &policy.Explanation{
		Lead: fmt.Sprintf("Jobs that wait: %d. Backfilling last looked at %s and reserved for %d.",
			v.Waiting(), v.Clock(p.passed), len(p.reserved)),
		Won: "started", Lost: "reserved",
	}
	c := v.Cluster()
	t := policy.ExplanationTable{Title: "Reservations, in the order of the queue",
		Columns: []string{"job", "asks for", "from", "to", "whole nodes", "devices elsewhere"}}
	for i := range p.reserved {
		r := &p.reserved[i]
		names := make([]string, len(r.nodes))
		for k, n := range r.nodes {
			names[k] = c.Nodes[n].Name
		}
		var devices []string
		for _, g := range r.devices {
			if !slices.Contains(r.nodes, g.Node) {
				devices = append(devices, fmt.Sprintf("%s:%d", c.Nodes[g.Node].Name, g.Device))
			}
		}
		t.Rows = append(t.Rows, []string{r.who.ID, r.asks.String(), v.Clock(r.at), v.Clock(r.end),
			model.CompressNodes(names), strings.Join(devices, " ")})
		e.Bars = append(e.Bars, r.bars(int32(i), fmt.Sprintf("job %s: reserved for %s", r.who.ID, v.Clock(r.at)))...)
	}
	e.Tables = append(e.Tables, t)
	if len(p.patient) > 0 {
		waits := policy.ExplanationTable{Title: "Waiting for less crowded devices", Columns: []string{"job", "until"}}
		for _, w := range p.patient {
			waits.Rows = append(waits.Rows, []string{v.Job(w.job).ID, v.Clock(w.until)})
		}
		e.Tables = append(e.Tables, waits)
	}
	return e
}

// bars are the ranges of a reservation's nodes, which are in node order.
func (r *reservation) bars(row int32, label string) []policy.ExplanationBar {
	var out []policy.ExplanationBar
	for i, n := range r.nodes {
		if i > 0 && r.nodes[i-1] == n-1 {
			out[len(out)-1].To = n
		} else {
			out = append(out, policy.ExplanationBar{Row: row, From: n, To: n, Label: label})
		}
	}
	return out
}
