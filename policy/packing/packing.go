package packing

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"muster/model"
	"muster/policy"
)

const (
	randomFitName     = "random-fit"
	dotProductName    = "dot-product"
	gpuClusteringName = "gpu-clustering"
	gpuPackingName    = "gpu-packing"
	bestFitName       = "best-fit"
	fgdName           = "fgd"
	pricedFitName     = "priced-fit"
)

// The policies, in the order of the paper.
var (
	RandomFit     = entry(randomFitName, "any node that suits, and any of its devices")
	DotProduct    = entry(dotProductName, "the node whose free resources and the request make the smallest product", ties)
	GPUClustering = entry(gpuClusteringName, "the node that has tasks with as many GPUs and no others", ties)
	GPUPacking    = entry(gpuPackingName, "devices in use first, then nodes in use, then small idle nodes", ties)
	BestFit       = entry(bestFitName, "the node of which least is left then", ties, decoupled)
	FGD           = entry(fgdName, "the node and device where least becomes useless for the tasks that are expected", ties, decoupled)
	// PricedFit is none of the paper's: decoupled GPUs, with shares packed by prices.
	PricedFit = entry(pricedFitName, "the GPU, of any node, whose space is worth least to the shares that are expected")
)

// Entries are all of them.
var Entries = []policy.Entry{RandomFit, DotProduct, GPUClustering, GPUPacking, BestFit, FGD, PricedFit}

var (
	seed      = model.Option{Name: "seed", Default: "0", Summary: "draws what is random, and the order of nodes that breaks ties; 0 leaves them in the order of the cluster"}
	ties      = model.Option{Name: "ties", Default: "order", Summary: "order: the first of the nodes with the best score; random: any of them, each time anew"}
	decoupled = model.Option{Name: "decoupled", Default: "off", Summary: "on: GPUs need not be in the job's nodes"}
)

func entry(name, summary string, more ...model.Option) policy.Entry {
	return policy.Entry{
		Name: name, Summary: "every waiting job is tried in order, and goes to " + summary, Options: append([]model.Option{seed}, more...),
		New: func(s model.Settings) (policy.Policy, error) {
			n, err := strconv.ParseUint(s["seed"], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("seed must be a whole number from 0 on, not %q", s["seed"])
			}
			c := Config{Seed: n, Decoupled: s["decoupled"] == "on", RandomTies: s["ties"] == "random"}
			for _, o := range more {
				switch value := s[o.Name]; {
				case o.Name == ties.Name && value != "order" && value != "random":
					return nil, fmt.Errorf("ties must be order or random, not %q", value)
				case o.Name == decoupled.Name && value != "on" && value != "off":
					return nil, fmt.Errorf("decoupled must be on or off, not %q", value)
				}
			}
			return New(name, c)
		},
	}
}

// Config is what a policy can be told beside its name.
type Config struct {
	// Seed draws the order of nodes that breaks ties, and what else is random; 0
	// leaves the nodes in the order of the cluster.
	Seed uint64
	// RandomTies draws among the nodes with the best score each time anew. It is
	// for GPUs in the job's nodes.
	RandomTies bool
	// Decoupled lets GPUs be borrowed from any node: for best-fit and fgd.
	Decoupled bool
	// Target is the workload that fgd expects; nil learns it from the jobs that come.
	Target *Target
}

// New makes one of the policies.
func New(name string, c Config) (policy.Policy, error) {
	p := &packing{name: name, config: c, held: map[policy.JobID]holding{}, byShapes: map[string]int32{}}
	switch name {
	case randomFitName:
		p.rule, p.anyDevice = alike{}, true
	case dotProductName:
		p.rule = dotProduct{}
	case gpuClusteringName:
		p.rule, p.tagged = clustering{}, true
	case gpuPackingName:
		p.rule = gpuPacking{}
	case bestFitName:
		p.rule = bestFit{}
		if c.Decoupled {
			p.devices = tightestDevice{}
		}
	case fgdName, pricedFitName:
		p.expects, p.learns = true, c.Target == nil
	default:
		return nil, fmt.Errorf("there is no packing policy %q", name)
	}
	if c.RandomTies && (c.Decoupled || name == pricedFitName) {
		return nil, errors.New("ties at random are for GPUs in the job's nodes: leave ties or decoupled out")
	}
	if c.RandomTies || p.anyDevice {
		p.random = rand.New(rand.NewPCG(c.Seed, 1))
	}
	if c.Decoupled && name != bestFitName && name != fgdName && name != pricedFitName {
		return nil, fmt.Errorf("%s knows no decoupled GPUs: best-fit, fgd and priced-fit do", name)
	}
	return p, nil
}

// packing keeps the waiting jobs in lines: of those that ask for the same, the
// first stands for all. Scores are kept by line and node until the node changes.
type packing struct {
	name    string
	config  Config
	rule    rule
	devices appraiser // nil where GPUs are in the job's nodes
	// random draws among equals; nil takes the first. anyDevice draws devices too.
	random    *rand.Rand
	anyDevice bool
	tagged    bool // the rule asks for the tags of tasks

	// It expects a workload; what it has learned of it, and after how many jobs
	// it looks again.
	expects, learns bool
	census          Census
	again           int
	expected        int // grows when all scores become void

	generation uint64 // of the cluster that the nodes are of

	nodes    *nodes
	lines    []line
	byShape  []int32          // line of the jobs with one request, by shape
	byShapes map[string]int32 // and of others
	held     map[policy.JobID]holding
	cached   int // entries of all lines

	freed  []int32 // nodes that gave something back since the last step
	out    model.Allocation
	ranked []ranked
}

// line is the queue of the jobs that ask for the same.
type line struct {
	choices []choice
	jobs    []policy.JobID
	head    int
	// blocked: one was tried, and nothing was freed since that could help.
	blocked bool
}

// choice is requests that differ in the type of GPUs alone; choices are tried in order.
type choice struct {
	alternatives []int
	needs        []need
	nodes        int
	// shape is set where the request is none of those that scores are for:
	// first fit places it.
	shape *policy.Shape
	// scores by alternative and node, valid for the number of node changes and for the expectation
	// noted with them.
	scores   [][]cachedScore
	changes  int
	expected int
}

type cachedScore struct {
	version uint32
	device  int32
	score   int64 // -1 where the node does not suit
	fit     int32 // decoupled: best-fit score of a node that could host the task beside its devices, or -1
}

// maxCached bounds the scores that are kept, maxChanges the changes remembered
// for them.
const (
	maxCached  = 1 << 24
	maxChanges = 1 << 20
)

type holding struct {
	nodes []int32 // all that gave anything
	tag   int32
	hosts int // how many of them host
}

func (l *line) empty() bool         { return l.head == len(l.jobs) }
func (l *line) first() policy.JobID { return l.jobs[l.head] }

var _ policy.Policy = (*packing)(nil)

func (p *packing) Traits() policy.Traits { return policy.Traits{Mode: p.mode(), Alternatives: true} }

func (p *packing) mode() policy.Mode {
	if p.config.Decoupled || p.name == pricedFitName {
		return policy.Borrowing
	}
	return policy.Sharing
}

func (p *packing) Why(v *policy.View, id policy.JobID) string {
	return v.Shortage(v.Shape(id), p.mode())
}

func (p *packing) Step(v *policy.View, plan *policy.Plan) {
	again := p.generation != v.Generation()
	if again {
		p.readAgain(v)
	}
	if len(p.nodes.changes) > maxChanges {
		p.nodes.changes = p.nodes.changes[:0]
		p.expected++ // all are scored anew
	}
	p.freed = p.freed[:0]
	for _, id := range v.Left() {
		if !again {
			p.left(v, id)
		}
	}
	for i := range p.lines {
		l := &p.lines[i]
		if l.blocked {
			l.blocked = !p.helped(l)
		}
		if v.Reordered() {
			v.Sort(l.jobs[l.head:])
		}
	}
	for _, id := range v.Arrived() {
		if !again {
			p.enqueue(v, id)
		}
		if p.learns {
			p.census.Add(v.Job(id))
		}
	}
	if p.learns && p.census.jobs >= p.again {
		p.learn(v)
	}
	for {
		l := p.foremost(v)
		if l == nil {
			return
		}
		if !p.start(v, plan, l, l.first()) {
			l.blocked = true
			continue
		}
		if l.head++; l.empty() {
			l.jobs, l.head = l.jobs[:0], 0
		}
	}
}

// enqueue puts a job into its line, at its place.
func (p *packing) enqueue(v *policy.View, id policy.JobID) {
	l := &p.lines[p.lineOf(v, id)]
	l.jobs = slices.Insert(l.jobs, l.head+v.PlaceIn(l.jobs[l.head:], id), id)
}

// readAgain reads the nodes, the waiting jobs and the running jobs from the view after the cluster
// has changed.
func (p *packing) readAgain(v *policy.View) {
	p.generation = v.Generation()
	p.nodes = newNodes(v, p.order(len(v.Cluster().Nodes)))
	p.lines, p.byShape, p.cached = nil, nil, 0
	clear(p.byShapes)
	clear(p.held)
	switch {
	case p.expects && !p.learns:
		p.expect(v, p.config.Target)
	case p.learns && p.census.jobs > 0:
		p.expect(v, p.census.Target(v.Cluster())) // there may be other types of devices
	}
	for _, id := range v.Running() {
		r := request(v.Job(id), v.Granted(id))
		h := holdingOf(v.Held(id), -1)
		if r.GPUs > 0 {
			h.tag = p.nodes.compile(r).tag
		}
		p.enter(v, id, h)
	}
	for queue := v.Queue(); ; {
		id, _, ok := queue.Next()
		if !ok {
			return
		}
		p.enqueue(v, id)
	}
}

// holdingOf is what an allocation has of which nodes.
func holdingOf(a *model.Allocation, tag int32) holding {
	h := holding{hosts: len(a.Parts), tag: tag}
	for k := range a.Parts {
		h.nodes = append(h.nodes, a.Parts[k].Node)
	}
	for _, g := range a.Grants {
		if !slices.Contains(h.nodes, g.Node) {
			h.nodes = append(h.nodes, g.Node)
		}
	}
	return h
}

// enter notes a job that runs.
func (p *packing) enter(v *policy.View, id policy.JobID, h holding) {
	for k, n := range h.nodes {
		if k < h.hosts && p.tagged && h.tag >= 0 {
			p.nodes.tag(n, h.tag, 1)
		}
		p.nodes.read(v, n)
	}
	p.held[id] = h
}

// order is that in which nodes are tried.
func (p *packing) order(n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	if p.config.Seed != 0 {
		r := rand.New(rand.NewPCG(p.config.Seed, 0))
		r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order
}

// learn takes what was submitted so far for what is to come. Until a quarter more
// has come it stays so.
func (p *packing) learn(v *policy.View) {
	if p.census.jobs == 0 {
		return
	}
	p.again = p.census.jobs + max(1, p.census.jobs/4)
	p.expect(v, p.census.Target(v.Cluster()))
}

// expect makes the scores those for a workload.
func (p *packing) expect(v *policy.View, t *Target) {
	switch {
	case p.name == pricedFitName:
		p.devices = newPriced(t, v.Cluster())
	case p.config.Decoupled:
		p.devices = &pooledDescent{t}
	default:
		p.rule = &descent{target: t}
	}
	p.expected++
}

// foremost is the line whose first job is first in the queue of those that may fit.
func (p *packing) foremost(v *policy.View) *line {
	best := (*line)(nil)
	for i := range p.lines {
		if l := &p.lines[i]; !l.blocked && !l.empty() && (best == nil || v.Precedes(l.first(), best.first())) {
			best = l
		}
	}
	return best
}

// left forgets a job that ended, was cancelled or refused.
func (p *packing) left(v *policy.View, id policy.JobID) {
	h, started := p.held[id]
	if !started {
		l := &p.lines[p.lineOf(v, id)]
		if at := v.Find(l.jobs[l.head:], id); at >= 0 {
			l.jobs = slices.Delete(l.jobs, l.head+at, l.head+at+1)
		}
		return
	}
	delete(p.held, id)
	for i, n := range h.nodes {
		if i < h.hosts && p.tagged && h.tag >= 0 {
			p.nodes.tag(n, h.tag, -1)
		}
		p.nodes.read(v, n)
		p.freed = append(p.freed, n)
	}
}

// helped says whether something was freed that could help a line that did not fit.
func (p *packing) helped(l *line) bool {
	for i := range l.choices {
		c := &l.choices[i]
		if c.shape != nil {
			return true // first fit may find now what it did not find before
		}
		for _, n := range p.freed {
			for a := range c.needs {
				// Cores of one node and GPUs of another may be what was missing.
				hosts, gpus := p.nodes.hosts(n, &c.needs[a]), bitCount(p.nodes.fit(n, &c.needs[a]))
				if hosts && gpus >= c.needs[a].gpus || p.devices != nil && (hosts || gpus > 0) {
					return true
				}
			}
		}
	}
	return false
}

// lineOf finds the line of a job, and makes it where there is none yet.
func (p *packing) lineOf(v *policy.View, id policy.JobID) int32 {
	requests := v.Requests(id)
	if requests == 1 {
		shape := v.Shape(id).ID()
		for shape >= len(p.byShape) {
			p.byShape = append(p.byShape, -1)
		}
		if p.byShape[shape] < 0 {
			p.byShape[shape] = p.newLine(v, id)
		}
		return p.byShape[shape]
	}
	key := make([]byte, 0, 64)
	for a := range requests {
		shape := -1
		if sh := v.ShapeAs(id, a); sh != nil {
			shape = sh.ID()
		}
		key = strconv.AppendInt(append(key, ' '), int64(shape), 10)
	}
	l, known := p.byShapes[string(key)]
	if !known {
		l = p.newLine(v, id)
		p.byShapes[string(key)] = l
	}
	return l
}

func (p *packing) newLine(v *policy.View, id policy.JobID) int32 {
	j := v.Job(id)
	l := line{}
	done := make([]bool, v.Requests(id))
	for a := range done {
		if done[a] {
			continue
		}
		r := request(j, a)
		c := choice{nodes: r.Nodes}
		same := sameButType(j, a)
		if r.Nodes == 0 || r.Remote != nil || r.Contiguous && r.Nodes > 1 {
			same, c.shape = same[:1], v.ShapeAs(id, a)
		}
		for _, b := range same {
			done[b] = true
			if sh := v.ShapeAs(id, b); sh != nil {
				c.alternatives = append(c.alternatives, b)
				c.needs = append(c.needs, p.nodes.compile(&sh.Request))
			}
		}
		if len(c.needs) > 0 {
			l.choices = append(l.choices, c)
		}
	}
	p.lines = append(p.lines, l)
	return int32(len(p.lines) - 1)
}

// start places a job, if it fits.
func (p *packing) start(v *policy.View, plan *policy.Plan, l *line, id policy.JobID) bool {
	for i := range l.choices {
		c := &l.choices[i]
		var a *model.Allocation
		alternative := 0
		switch {
		case c.shape != nil:
			a = v.Place(c.shape, p.mode())
		case p.devices != nil:
			a, alternative = p.borrow(c)
		default:
			a, alternative = p.place(c)
		}
		if a == nil {
			continue
		}
		q := &c.needs[alternative]
		tag := int32(-1)
		if q.gpus > 0 {
			tag = q.tag
		}
		h := holdingOf(a, tag)
		if !plan.StartAs(id, c.alternatives[alternative], a, policy.Reason{Code: policy.Fitted}) {
			continue
		}
		p.enter(v, id, h)
		return true
	}
	return false
}

// ranked is a node that suits a request.
type ranked struct {
	node, device, request, fit int32
	score                      int64
}

// place finds the nodes of the best scores, each with its own GPUs.
func (p *packing) place(c *choice) (*model.Allocation, int) {
	if c.nodes == 1 {
		return p.placeOnOne(c)
	}
	p.refresh(c)
	for a := range c.needs {
		list := p.ranked[:0]
		for _, n := range p.nodes.order {
			if e := &c.scores[a][n]; e.score >= 0 {
				list = append(list, ranked{node: n, score: e.score, device: e.device})
			}
		}
		p.ranked = list
		if len(list) < c.nodes {
			continue
		}
		if p.random != nil {
			p.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(b.score, a.score) })
		list = list[:c.nodes]
		slices.SortFunc(list, func(a, b ranked) int { return cmp.Compare(a.node, b.node) })
		p.begin()
		for i := range list {
			p.add(&c.needs[a], list[i].node, list[i].device)
		}
		return &p.out, a
	}
	return nil, 0
}

func (p *packing) placeOnOne(c *choice) (*model.Allocation, int) {
	p.refresh(c)
	best := ranked{score: -1}
	equal := p.ranked[:0]
	for _, n := range p.nodes.order {
		for a := range c.scores {
			e := &c.scores[a][n]
			if e.score > best.score {
				best = ranked{node: n, score: e.score, device: e.device, request: int32(a)}
				equal = append(equal[:0], best)
			} else if p.random != nil && e.score >= 0 && e.score == best.score && equal[len(equal)-1].node != n {
				equal = append(equal, ranked{node: n, device: e.device, request: int32(a)})
			}
		}
	}
	p.ranked = equal
	if best.score < 0 {
		return nil, 0
	}
	if p.random != nil {
		best = equal[p.random.IntN(len(equal))]
	}
	p.begin()
	p.add(&c.needs[best.request], best.node, best.device)
	return &p.out, int(best.request)
}

// refresh makes the scores of a choice those of the nodes as they are now.
func (p *packing) refresh(c *choice) {
	log := p.nodes.changes
	if c.scores == nil {
		p.makeScores(c)
	}
	if c.expected != p.expected || len(log)-c.changes > len(p.nodes.list) {
		for n := range p.nodes.list {
			p.rescore(c, int32(n))
		}
	} else {
		for _, n := range log[c.changes:] {
			if c.scores[0][n].version != p.nodes.list[n].version {
				p.rescore(c, n)
			}
		}
	}
	c.changes, c.expected = len(log), p.expected
}

func (p *packing) rescore(c *choice, n int32) {
	for a := range c.needs {
		c.scores[a][n] = p.scoreNow(&c.needs[a], n)
	}
}

// makeScores makes room for the scores of a choice; when there are too many, all others go.
func (p *packing) makeScores(c *choice) {
	size := len(c.needs) * len(p.nodes.list)
	if p.cached += size; p.cached > maxCached {
		for i := range p.lines {
			for k := range p.lines[i].choices {
				p.lines[i].choices[k].scores = nil
			}
		}
		p.cached = size
	}
	c.scores = make([][]cachedScore, len(c.needs))
	for a := range c.scores {
		c.scores[a] = make([]cachedScore, len(p.nodes.list))
	}
	c.expected = -1
}

func (p *packing) scoreNow(q *need, n int32) cachedScore {
	e := cachedScore{version: p.nodes.list[n].version, score: -1, device: -1}
	if p.devices != nil {
		return p.appraise(q, n)
	}
	if !p.nodes.hosts(n, q) {
		return e
	}
	set := p.nodes.fit(n, q)
	if bitCount(set) < q.gpus {
		return e
	}
	score, device := p.rule.score(p.nodes, n, q, set)
	e.score, e.device = int64(score), device
	return e
}

func (p *packing) begin() { p.out.Parts, p.out.Grants = p.out.Parts[:0], p.out.Grants[:0] }

// add puts a task on a node, with the node's own devices: the one given, or the tightest.
func (p *packing) add(q *need, n, device int32) {
	part := p.part(q, n)
	set := p.nodes.fit(n, q)
	switch {
	case device >= 0:
		set = 1 << device
	case p.anyDevice && q.share > 0:
		set = p.anyOf(set, q.gpus)
	default:
		set = p.nodes.tightest(n, set, q.gpus)
	}
	if q.share == 0 {
		part.GPUs = set
	} else {
		p.grant(int32(len(p.out.Parts)), n, set, q.share)
	}
	p.out.Parts = append(p.out.Parts, part)
}

// part is what a node gives beside devices.
func (p *packing) part(q *need, n int32) model.Part {
	part := model.Part{Node: n, Cores: q.cores, Memory: q.memory}
	if q.exclusive {
		part.Cores, part.Exclusive = p.nodes.list[n].cores, true
	}
	return part
}

// grant adds devices that serve a part.
func (p *packing) grant(user, n int32, set uint64, share int64) {
	for ; set != 0; set &= set - 1 {
		p.out.Grants = append(p.out.Grants, model.Grant{For: user, Node: n, Device: lowest(set), Memory: share})
	}
}

// anyOf draws k devices of a set.
func (p *packing) anyOf(set uint64, k int32) uint64 {
	taken := uint64(0)
	for ; k > 0; k-- {
		rest := set &^ taken
		for skip := p.random.IntN(int(bitCount(rest))); skip > 0; skip-- {
			rest &= rest - 1
		}
		taken |= rest & -rest
	}
	return taken
}
