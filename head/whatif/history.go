package whatif

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/head"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/policy/priority"
	"muster/sim"
	"muster/wire/api"
)

// MaxJobs limits the ended jobs of one period: if there are more, the period begins later.
const MaxJobs = 500_000

// Header is what a head knows beside its ended jobs. Instants are since 1970.
type Header struct {
	Name     string        `json:"name"`
	From     time.Duration `json:"from"`
	To       time.Duration `json:"to"`
	Began    time.Duration `json:"began"` // the start of the policy's clock
	Policies []Candidate   `json:"policies"`

	Cluster  *model.Cluster  `json:"cluster"`
	Machines []head.Machine  `json:"machines"` // by node
	Turns    []head.NodeTurn `json:"turns"`    // all known changes, in order
	Active   []api.Job       `json:"active"`   // jobs that have not ended

	TimeLimit time.Duration    `json:"time_limit"` // for jobs that ask for none
	Priority  *priority.Config `json:"priority,omitempty"`
	Windows   []head.Window    `json:"windows,omitempty"`
}

// Candidate is a policy to be tried.
type Candidate struct {
	Name    string `json:"name"` // as the administrator wrote it
	Spec    string `json:"spec"` // its full specification
	InForce bool   `json:"in_force,omitempty"`
}

// item is one job of the history. Times are on the policy's clock, to the microsecond: the
// documents have no more digits.
type item struct {
	doc   id
	model model.Job
	rank  sim.Rank

	submit, eligible time.Duration
	start, end       time.Duration // never if it has not started or ended
	elapsed          time.Duration // how long it ran on the devices that it had, without suspensions
	run              time.Duration // the same, on devices of speed 1
	cores            int
	gpus             float64
	user             int32
	counts           bool // it is counted in the figures
	withdrawn        bool
	alloc            *model.Allocation
	alternative      int
	anywhere         bool // its nodes bound its programs to devices of several speeds
	follows          []slurmopt.Term
}

// id is how other jobs name a job: by its number, or by array and task.
type id struct {
	job, array uint64
	task       int64
}

// never is the time of an event that has not happened.
const never = time.Duration(math.MaxInt64)

// History collects the jobs of a period.
type History struct {
	Header
	items   []item
	parsed  map[string]*asked
	byUser  map[string]int32
	users   []string
	nodeOf  map[string]int32 // by the name that users know
	special bool             // some node serves one user alone, or has another name with the policy
	uneven  bool             // the cluster has devices of several speeds
	keep    []int32          // node of the simulation, by node of the header; -1 if it was never usable
	cluster *model.Cluster
	outages []sim.Outage
	upTime  []time.Duration // by node of the simulation: how long it was not down

	odd, unseen, requeued, delayed, bound, notParsed int
	// used and limits are sums over ended jobs, from which the run times of the others are
	// estimated.
	used, limits, runs float64
	ended              int
}

// asked is the parsed options that jobs share.
type asked struct {
	said   *slurmopt.Options
	models map[int32]*model.Job // by user, since some nodes serve one alone
}

// New starts a history with what the head knows of the cluster.
func New(h Header) (*History, error) {
	if h.Cluster == nil || len(h.Machines) != len(h.Cluster.Nodes) {
		return nil, fmt.Errorf("the cluster has no description of each node")
	}
	if h.To <= h.From || h.From < h.Began || h.To > math.MaxInt64/4 || h.Began < 0 {
		return nil, fmt.Errorf("a period from %v to %v of a cluster that began at %v", h.From, h.To, h.Began)
	}
	y := &History{Header: h, parsed: map[string]*asked{}, byUser: map[string]int32{}, nodeOf: map[string]int32{}}
	y.nodes()
	if len(y.cluster.Nodes) == 0 {
		return nil, fmt.Errorf("no node could be used in all the time")
	}
	for i := range h.Active {
		y.Add(&h.Active[i])
	}
	return y, nil
}

// at converts an instant of a document to the policy's clock; false if it cannot be right.
func (y *History) at(seconds float64) (time.Duration, bool) {
	if !(seconds > 0) || seconds > y.To.Seconds()+1 {
		return never, false
	}
	t := time.Duration(math.Round(seconds*1e6))*time.Microsecond - y.Began
	return max(0, t), t > -time.Second
}

func (y *History) from() time.Duration { return y.From - y.Began }
func (y *History) to() time.Duration   { return y.To - y.Began }

// Add adds a job that ended in the period, or has not ended, or all tasks for which a document stands.
func (y *History) Add(d *api.Job) {
	if d.ArrayTasks == "" {
		y.add(d)
		return
	}
	tasks, err := slurmopt.ParseTasks(d.ArrayTasks)
	if err != nil {
		y.odd++
		return
	}
	said := y.askedBy(d.Options)
	for i := range max(0, min(tasks.Len(), MaxJobs-len(y.items))) {
		one, task := *d, tasks.At(i)
		one.ArrayTask, one.ArrayTasks = &task, ""
		if said != nil && said.said.Batch.Array != nil {
			place, _ := said.said.Batch.Array.Tasks.Place(int64(task))
			one.ID = d.ArrayJob + uint64(place)
		}
		y.add(&one)
	}
}

func (y *History) add(d *api.Job) {
	it, ok := y.item(d)
	if !ok {
		y.odd++
		return
	}
	if it.eligible == never { // it ended, or still waits, before the policy saw it
		y.unseen++
		return
	}
	if it.end < y.from() {
		return
	}
	said := y.askedBy(d.Options)
	if said == nil {
		y.notParsed++
		return
	}
	it.user = y.userOf(d.User)
	it.model = *y.modelOf(said, it.user)
	if said.said.Batch.Dependency != nil && !said.said.Batch.Dependency.Any {
		it.follows = said.said.Batch.Dependency.Terms
	}
	it.model.ID = name(d)
	it.rank = rankOf(d, said.said)
	if it.start != never && len(d.Parts) > 0 {
		y.held(&it, d, &it.model)
	}
	it.counts = !it.withdrawn && it.start >= y.from()
	if d.Requeues > 0 {
		y.requeued++
	}
	if it.anywhere {
		y.bound++
	}
	y.items = append(y.items, it)
	if it.end != never && it.start != never {
		y.ended++
		y.runs += it.run.Seconds()
		if limit := it.model.WallTime; limit < aYear {
			y.used += it.run.Seconds()
			y.limits += limit.Seconds()
		}
	}
}

// item reads the times of a document; false if they contradict each other.
func (y *History) item(d *api.Job) (item, bool) {
	it := item{doc: id{d.ID, d.ArrayJob, -1}, eligible: never, start: never, end: never, cores: d.Cores, gpus: d.GPUShare}
	if d.ArrayTask != nil {
		it.doc.task = int64(*d.ArrayTask)
	}
	ok, fine := true, true
	if it.submit, ok = y.at(d.Submit); !ok {
		return it, false
	}
	read := func(seconds float64, into *time.Duration) {
		if seconds != 0 {
			if *into, ok = y.at(seconds); !ok {
				fine = false
			}
		}
	}
	read(d.Eligible, &it.eligible)
	read(d.Start, &it.start)
	if d.State.Over() {
		read(d.End, &it.end)
		if it.end == never {
			return it, false
		}
	}
	if it.start != never && it.eligible == never {
		it.eligible = it.submit
	}
	it.withdrawn = d.State.Over() && it.start == never
	switch {
	case !fine || d.Cores < 0 || !(d.GPUShare >= 0 && d.GPUShare < 1e6):
		return it, false
	case it.eligible != never && it.eligible < it.submit, it.start != never && it.start < it.eligible, it.end != never && it.start != never && it.end < it.start:
		return it, false
	case it.eligible != never && it.end != never && it.end < it.eligible:
		return it, false
	}
	it.elapsed = y.elapsedOf(&it, d)
	it.run = it.elapsed
	return it, true
}

// elapsedOf is how long a job ran, without suspensions.
func (y *History) elapsedOf(it *item, d *api.Job) time.Duration {
	if it.start == never {
		return 0
	}
	until := min(it.end, y.to())
	all := max(0, until-it.start)
	if d.Elapsed >= 0 && d.Elapsed < all.Seconds()-5e-6 {
		return time.Duration(math.Round(d.Elapsed*1e6)) * time.Microsecond
	}
	return all // then start + run is exactly the end, without rounding
}

func name(d *api.Job) string {
	if d.ArrayTask != nil {
		return strconv.FormatUint(d.ArrayJob, 10) + "_" + strconv.FormatUint(uint64(*d.ArrayTask), 10)
	}
	return strconv.FormatUint(d.ID, 10)
}

// rankOf is the nice value and priority that were set for a job. The priority in the document of a
// job that has not ended may be computed, and is ignored.
func rankOf(d *api.Job, said *slurmopt.Options) sim.Rank {
	r := sim.Rank{Nice: said.Batch.Nice}
	if said.Priority != 0 {
		wish := said.Priority
		r.Admin = &wish
	}
	if !d.State.Over() {
		return r
	}
	if r.Admin == nil && d.Priority == -r.Nice || r.Admin != nil && d.Priority == *r.Admin {
		return r
	}
	wish := d.Priority // an administrator changed it later
	r.Admin = &wish
	return r
}

func (y *History) userOf(user string) int32 {
	n, known := y.byUser[user]
	if !known {
		n = int32(len(y.users))
		user = strings.Clone(user)
		y.byUser[user] = n
		y.users = append(y.users, user)
	}
	return n
}

// maxParsed is how many lines of options are cached.
const maxParsed = 20_000

// askedBy parses options; nil if this program does not know them.
func (y *History) askedBy(options string) *asked {
	if a, known := y.parsed[options]; known {
		return a
	}
	if len(y.parsed) >= maxParsed {
		clear(y.parsed)
	}
	var a *asked
	if said, err := slurmopt.ParseSubmitted(options); err == nil {
		a = &asked{said: said, models: map[int32]*model.Job{}}
	}
	y.parsed[options] = a
	return a
}

// aYear is how long the head tells the policy that jobs without a limit run.
const aYear = 365 * 24 * time.Hour

// lightly is an intensity at which sharing a device costs nothing: the measured run times include
// that cost.
const lightly = 1e-9

// modelOf is a job as the policy knew it. Jobs with the same options share the large parts.
func (y *History) modelOf(a *asked, user int32) *model.Job {
	if m := a.models[user]; m != nil {
		return m
	}
	m := &model.Job{User: y.users[user], Intensity: lightly}
	a.said.Apply(m)
	if m.WallTime == 0 && !a.said.Unlimited {
		m.WallTime = y.TimeLimit
	}
	if m.WallTime == 0 {
		m.WallTime = aYear
	}
	m.Request.Run = 0
	if len(y.cluster.Partitions) > 0 && !slices.ContainsFunc(y.cluster.Partitions, func(p model.Partition) bool { return p.Name == m.Queue }) {
		m.Queue = ""
	}
	y.restrict(&m.Request, a.said, m.User)
	if len(m.Alternatives) > 0 {
		m.Alternatives = slices.Clone(m.Alternatives)
		for i := range m.Alternatives {
			m.Alternatives[i].Run = 0
			y.restrict(&m.Alternatives[i], a.said, m.User)
		}
	}
	if len(a.models) < maxParsed {
		a.models[user] = m
	}
	return m
}

// restrict limits a request to the nodes that the job may use, as the head does. Those that had not come
// yet are down in the simulation.
func (y *History) restrict(r *model.Request, said *slurmopt.Options, user string) {
	if !y.special && len(said.Exclude) == 0 && said.Batch.Constraint == nil {
		return
	}
	var names []string
	for i, m := range y.Machines {
		if n := y.keep[i]; n >= 0 && (m.User == "" || m.User == user) && !slices.Contains(said.Exclude, m.Name) && said.Batch.Constraint.Allows(m.Features) && (len(r.NodeList) == 0 || slices.Contains(r.NodeList, m.Name)) {
			names = append(names, y.cluster.Nodes[n].Name)
		}
	}
	if len(names) == 0 {
		names = []string{"(none)"}
	}
	r.NodeList = names
}

// held reads the allocation that a job had, and computes how long it would have run on devices of
// speed 1.
func (y *History) held(it *item, d *api.Job, m *model.Job) {
	a := &model.Allocation{}
	partOf := map[string]int32{}
	known := true
	for _, p := range d.Parts {
		n, ok := y.nodeOf[p.Node]
		known = known && ok && p.Cores >= 0 && p.Cores < math.MaxInt32
		partOf[p.Node] = int32(len(a.Parts))
		a.Parts = append(a.Parts, model.Part{Node: n, Cores: int32(p.Cores), Memory: p.Memory, Exclusive: m.Request.Exclusive})
	}
	slowest := 0.0
	for _, g := range d.Devices {
		n, ok := y.nodeOf[g.Node]
		part, has := partOf[g.For]
		if !ok || !has || g.Device < 0 || g.Device >= len(y.cluster.Nodes[n].GPUs) {
			known = false
			continue
		}
		if speed := y.cluster.GPUTypes[y.cluster.Nodes[n].GPUs[g.Device]].Speed; slowest == 0 || speed < slowest {
			slowest = speed
		}
		it.anywhere = it.anywhere || g.Memory > 0 && y.bindsFar(g.Reach, n)
		if g.Memory == 0 && a.Parts[part].Node == n {
			a.Parts[part].GPUs |= 1 << g.Device
		} else {
			a.Grants = append(a.Grants, model.Grant{For: part, Node: n, Device: int32(g.Device), Memory: g.Memory})
		}
	}
	if slowest > 0 && slowest != 1 && !it.anywhere {
		it.run = time.Duration(float64(it.run) * slowest)
	}
	if known && it.start < y.from() {
		it.alloc, it.alternative = a, alternativeOf(m, d)
	}
}

// bindsFar says whether a node may bind the programs of a share of one of its devices to devices of another speed.
func (y *History) bindsFar(reach string, node int32) bool {
	switch reach {
	case model.ReachCluster.String():
		return y.uneven
	case model.ReachNode.String():
		return uneven(y.cluster, y.cluster.Nodes[node:node+1])
	}
	return false
}

// uneven says whether nodes have devices of several speeds.
func uneven(c *model.Cluster, nodes []model.Node) bool {
	speed := 0.0
	for i := range nodes {
		for _, t := range nodes[i].GPUs {
			if speed != 0 && c.GPUTypes[t].Speed != speed {
				return true
			}
			speed = c.GPUTypes[t].Speed
		}
	}
	return false
}

// alternativeOf finds the alternative with which a job was started: the first of its size.
func alternativeOf(m *model.Job, d *api.Job) int {
	for k := range len(m.Alternatives) + 1 {
		if r := &m.As(k).Request; r.TotalCores() == d.Cores && r.TotalGPUs() == d.GPUs {
			return k
		}
	}
	return 0
}

// nodes takes over the nodes that were usable at some time, and computes when they were not.
func (y *History) nodes() {
	turns := make([][]head.NodeTurn, len(y.Machines))
	for _, t := range y.Turns {
		if t.Node < 0 || int(t.Node) >= len(turns) || t.At > y.To {
			continue
		}
		if t.At > y.From {
			turns[t.Node] = append(turns[t.Node], t)
		}
	}
	c := *y.Cluster
	c.Nodes = nil
	y.cluster, y.keep = &c, make([]int32, len(y.Machines))
	for i := range y.Machines {
		spans, up := y.spansOf(&y.Machines[i], turns[i])
		y.keep[i] = -1
		if up <= 0 {
			continue
		}
		n := int32(len(c.Nodes))
		y.keep[i] = n
		c.Nodes = append(c.Nodes, y.Cluster.Nodes[i])
		y.upTime = append(y.upTime, up)
		for k := range spans {
			spans[k].Node = n
			y.outages = append(y.outages, spans[k])
		}
		m := &y.Machines[i]
		if _, taken := y.nodeOf[m.Name]; !taken || !m.Gone {
			y.nodeOf[m.Name] = n
		}
		y.special = y.special || m.User != "" || m.Name != y.Cluster.Nodes[i].Name
	}
	y.uneven = uneven(&c, c.Nodes)
	c.Partitions = y.partitions()
}

// partitions are those of the cluster, with the names of the simulation. The head has taken the jobs, so their limits
// do not matter, and a job of a partition that is no more has all nodes.
func (y *History) partitions() (list []model.Partition) {
	named := func(names []string) []string {
		if names == nil {
			return nil
		}
		is, there := map[string]bool{}, []string{}
		for _, name := range names {
			is[name] = true
		}
		for i, m := range y.Machines {
			if n := y.keep[i]; n >= 0 && is[m.Name] {
				there = append(there, y.cluster.Nodes[n].Name)
			}
		}
		return there
	}
	others := model.Partition{Name: "(none)", Default: true, PriorityTier: 1}
	for _, p := range y.Cluster.Partitions {
		only := model.Partition{Name: p.Name, Nodes: named(p.Nodes), Lenders: named(p.Lenders), PriorityTier: p.PriorityTier, PriorityJobFactor: p.PriorityJobFactor, PreemptMode: p.PreemptMode}
		if p.Nodes == nil || len(only.Nodes) > 0 {
			list = append(list, only)
		}
	}
	if len(list) > 0 {
		list = append(list, others)
	}
	return list
}

// spansOf is when a node took no new jobs, and for how long it was up or draining.
func (y *History) spansOf(m *head.Machine, turns []head.NodeTurn) (spans []sim.Outage, up time.Duration) {
	is := m.Is
	if len(turns) > 0 {
		is = turns[0].Was
	}
	at := y.from()
	add := func(until time.Duration) {
		if until <= at {
			return
		}
		switch is {
		case policy.NodeUp.String():
			up += until - at
		default:
			if is == policy.NodeDraining.String() {
				up += until - at
			}
			if k := len(spans) - 1; k >= 0 && spans[k].Until == at {
				spans[k].Until = until
			} else {
				spans = append(spans, sim.Outage{From: at, Until: until, Kind: sim.Drain})
			}
		}
		at = until
	}
	for _, t := range turns {
		add(t.At - y.Began)
		is = t.Is
	}
	add(y.to())
	if k := len(spans) - 1; k >= 0 && spans[k].Until == y.to() {
		spans[k].Until = policy.Never
	}
	return spans, up
}

// Workload is a period as input of the simulator.
type Workload struct {
	history *History
	config  sim.Config
	held    int // jobs that ran when the period began
	notes   []string
}

// Workload makes the simulator's input. Nothing may be added to the history afterwards.
func (y *History) Workload() *Workload {
	slices.SortFunc(y.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.eligible, b.eligible), cmp.Compare(a.doc.job, b.doc.job))
	})
	w := &Workload{history: y}
	y.estimate()
	after := y.dependencies()
	// Jobs that wait for others arrive when they were submitted: the simulator adds the waiting.
	slices.SortFunc(y.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.model.Submit, b.model.Submit), cmp.Compare(a.eligible, b.eligible), cmp.Compare(a.doc.job, b.doc.job))
	})
	c := &w.config
	*c = sim.Config{
		Cluster: y.cluster, NoKill: true, Begin: y.from(), Until: y.to(), Outages: y.outages, Priority: y.Priority, Windows: y.windows(),
		Jobs: make([]model.Job, len(y.items)), Ranks: make([]sim.Rank, len(y.items)), After: map[int][]int{},
	}
	place := make(map[uint64]int, len(after))
	if len(after) > 0 {
		for i := range y.items {
			place[y.items[i].doc.job] = i
		}
	}
	for job, first := range after {
		for _, f := range first {
			c.After[place[job]] = append(c.After[place[job]], place[f])
		}
	}
	for i := range y.items {
		it := &y.items[i]
		c.Jobs[i], c.Ranks[i] = it.model, it.rank
		if it.anywhere {
			if c.Anywhere == nil {
				c.Anywhere = make([]bool, len(y.items))
			}
			c.Anywhere[i] = true
		}
		switch {
		case it.withdrawn:
			c.Withdrawn = append(c.Withdrawn, sim.Withdrawal{Job: i, At: it.end})
		case it.start < y.from():
			w.held++
			if it.alloc != nil {
				c.Adopted = append(c.Adopted, sim.Adopted{Job: i, Alloc: it.alloc, Alternative: it.alternative, Start: it.start, End: max(y.from(), it.end)})
			}
		}
	}
	w.notes = y.notes()
	return w
}

// estimate sets how long jobs run, and guesses it for those whose end is not known.
func (y *History) estimate() {
	part, mean := 1.0, time.Hour
	if y.limits > 0 {
		part = min(1, y.used/y.limits)
	}
	if y.ended > 0 {
		mean = time.Duration(y.runs/float64(y.ended)*1e6) * time.Microsecond
	}
	for i := range y.items {
		it := &y.items[i]
		it.model.Submit = it.eligible
		it.model.Run = it.run
		if it.start < y.from() && it.end != never {
			it.model.Run = max(0, it.end-y.from()) // if it cannot be adopted, it runs for what was left
		}
		if it.end != never && !it.withdrawn {
			continue
		}
		likely := mean
		if it.model.WallTime < aYear {
			likely = time.Duration(float64(it.model.WallTime)*part) / 1000 * 1000
		}
		if it.start != never {
			likely = max(likely, it.run+time.Second) // it still ran at the end
		}
		it.model.Run = likely
		if it.start == never {
			it.elapsed = likely
		}
	}
}

// maxEdges limits how many dependencies are followed, per job on average.
const maxEdges = 4

// dependencies finds the jobs that arrived when the last job that they depend on ended, and lists
// those by job number. In the simulation they arrive when these end.
func (y *History) dependencies() map[uint64][]uint64 {
	left := maxEdges * len(y.items)
	byJob, byArray, byTask := map[uint64]*item{}, map[uint64][]*item{}, map[id]*item{}
	wanted := false
	for i := range y.items {
		it := &y.items[i]
		byJob[it.doc.job] = it
		if it.doc.array != 0 {
			byArray[it.doc.array] = append(byArray[it.doc.array], it)
			byTask[id{array: it.doc.array, task: it.doc.task}] = it
		}
		wanted = wanted || len(it.follows) > 0
	}
	after := map[uint64][]uint64{}
	for i := range y.items {
		it := &y.items[i]
		if wanted && len(it.follows) > 0 {
			if first := y.before(it, byJob, byArray, byTask, left); first != nil {
				left -= len(first)
				after[it.doc.job] = first
				it.model.Submit = it.submit
				continue
			}
		}
		if it.eligible-it.submit > time.Second {
			y.delayed++
		}
	}
	return after
}

// before lists the jobs whose ends let a job arrive; nil if it arrived for another reason.
func (y *History) before(it *item, byJob map[uint64]*item, byArray map[uint64][]*item, byTask map[id]*item, left int) []uint64 {
	var first []uint64
	last := time.Duration(0)
	for _, t := range it.follows {
		var on []*item
		switch {
		case t.Kind == slurmopt.After || t.Kind == slurmopt.Singleton:
			return nil
		case byArray[t.Job] != nil:
			task := t.Task
			if t.Kind == slurmopt.AfterCorr && task < 0 {
				task = it.doc.task
			}
			on = byArray[t.Job]
			if task >= 0 {
				o := byTask[id{array: t.Job, task: task}]
				if o == nil {
					return nil
				}
				on = []*item{o}
			}
		case byJob[t.Job] != nil:
			on = []*item{byJob[t.Job]}
		}
		if len(on) == 0 || len(first)+len(on) > left {
			return nil
		}
		for _, o := range on {
			if o == it {
				return nil
			}
			first, last = append(first, o.doc.job), max(last, o.end)
		}
	}
	if last != it.eligible || it.eligible <= it.submit {
		return nil
	}
	return first
}

// windows are those of the configuration, with the node numbers of the simulation.
func (y *History) windows() (list []policy.Window) {
	for _, w := range y.Windows {
		p := policy.Window{Name: w.Name, From: max(0, w.From-y.Began), Until: w.Until - y.Began, Users: w.Users, Accounts: w.Accounts}
		if w.Until <= y.From || w.From >= y.To || p.From >= p.Until || len(list) == policy.MaxWindows {
			continue
		}
		for i, m := range y.Machines {
			if n := y.keep[i]; n >= 0 && (len(w.Nodes) == 0 || slices.Contains(w.Nodes, m.Name)) {
				p.Nodes = append(p.Nodes, n)
			}
		}
		if len(p.Nodes) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// notes say how the simulated workload differs from what happened.
func (y *History) notes() (notes []string) {
	say := func(n int, what string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(what, n))
		}
	}
	say(y.delayed, "jobs that were held, or waited for a time, a limit or another job before the policy saw them, and come when they did: %d")
	say(y.requeued, "jobs that were requeued, and come when they first did, to run for as long as their last attempt: %d")
	say(y.bound, "jobs whose nodes could bind their shares of GPUs to ones of another speed, and that run for as long as they did: %d")
	say(y.unseen, "jobs that the policy never saw, and that are left out: %d")
	say(y.odd, "jobs whose times make no sense, and that are left out: %d")
	say(y.notParsed, "jobs with options that this version does not know, and that are left out: %d")
	if y.Priority != nil {
		notes = append(notes, "fair shares begin without a past")
	}
	return notes
}
