package slurm

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"time"

	"muster/model"
	"muster/policy"
	"muster/slurm/words"
)

// runs handles a job that Slurm has started: the book must have what Slurm says.
func (c *Core) runs(j *job) {
	uses := j.fact.Uses
	if len(uses) == 0 {
		return // it is ending, or Slurm does not say: the book stays
	}
	if j.phase == running && sameUses(uses, j.uses) {
		return
	}
	if j.plan == nil && j.managed && j.comment.Answer.For(j.ID, j.fact.Restarts) {
		j.plan = j.comment.Answer
	}
	if j.phase != running && j.managed && j.plan != nil {
		var on []string
		for _, u := range uses {
			on = append(on, u.Node)
		}
		c.checkNodes(j, on)
	}
	if j.number >= 0 && j.phase != waiting && c.asPlanned(j) {
		j.uses, j.tries = uses, 0
		c.enter(j, running)
		return
	}
	grants := c.grantsOf(j)
	c.withdraw(j)
	j.uses = uses
	c.enter(j, running)
	c.adopt(j, grants)
	c.noteClashes(j)
}

// checkNodes compares where a job has started with where it was placed.
func (c *Core) checkNodes(j *job, on []string) {
	c.counts.Started++
	want := slices.Clone(j.plan.Nodes)
	sort.Strings(on)
	sort.Strings(want)
	if !slices.Equal(on, want) {
		c.counts.Wrong++
		c.note("job %s was placed on %v and runs on %v", j.Ref, want, on)
	}
}

func sameUses(a, b []Use) bool { return slices.Equal(a, b) }

// asPlanned says whether a job has what the book says.
func (c *Core) asPlanned(j *job) bool {
	a := c.state.Allocation(j.number)
	if a == nil || len(a.Parts) != len(j.fact.Uses) {
		return false
	}
	for _, u := range j.fact.Uses {
		n := c.byName[u.Node]
		if n == nil {
			return false
		}
		i := slices.IndexFunc(a.Parts, func(p model.Part) bool { return p.Node == n.number })
		if i < 0 {
			return false
		}
		p := &a.Parts[i]
		gpus := p.GPUs
		if j.borrower {
			gpus = 0 // Muster lends them, and Slurm does not know of them
		}
		if int(p.Cores) != u.CPUs || c.cfg.Memory && p.Memory != u.Memory || gpus != u.GPUs {
			c.counts.Uneven++
			c.note("job %s was to have %d processors, %d MB and GPUs %b of node %s, and has %d, %d and %b", j.Ref, p.Cores, p.Memory>>20, gpus, u.Node, u.CPUs, u.Memory>>20, u.GPUs)
			return false
		}
	}
	return true
}

// grantsOf are the GPUs that are lent to a job, from the book or, after a restart, from its
// comment.
func (c *Core) grantsOf(j *job) []model.Grant {
	if j.number >= 0 && j.phase != waiting && !j.short {
		return lentOf(j, c.state.Allocation(j.number))
	}
	if j.plan == nil {
		return nil
	}
	var list []model.Grant
	j.short = false
	for i, d := range j.plan.Devices {
		n := c.byName[d.Node]
		if n == nil || d.Device >= n.book {
			if j.short = c.cfg.Lending && n != nil; !j.short {
				c.note("job %s: its comment names GPU %s, which does not exist", j.Ref, d)
			}
			continue
		}
		list = append(list, model.Grant{For: int32(j.plan.UserOf(i)), Node: n.number, Device: int32(d.Device), Memory: j.share()})
	}
	return list
}

// adopt enters what a running job has into the book: as one job if a request can describe it,
// otherwise node by node. If something does not fit, its node is closed to other jobs (crowd).
func (c *Core) adopt(j *job, grants []model.Grant) {
	defer c.count(j)
	var parts []model.Part
	for _, u := range j.fact.Uses {
		n := c.byName[u.Node]
		if n == nil {
			continue // a node that Slurm does not list
		}
		p := model.Part{Node: n.number, Cores: int32(min(u.CPUs, n.CPUs)), GPUs: u.GPUs}
		if u.GPUs == 0 && u.Count > 0 {
			p.GPUs = lowest(c.state.View().FreeGPUs(n.number), u.Count)
		}
		p.GPUs &= 1<<n.book - 1
		if c.cfg.Memory {
			p.Memory = min(u.Memory, n.Memory)
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b model.Part) int { return int(a.Node) - int(b.Node) })
	if c.adoptWhole(j, parts, grants) {
		return
	}
	for _, p := range parts {
		c.adoptPart(j, p)
	}
	for _, g := range grants {
		c.note("job %s: the book has no room for GPU %d of node %s, which it borrows", j.Ref, g.Device, c.nodes[g.Node].Name)
		c.crowd(g.Node)
	}
}

// lowest returns the n lowest members of a set.
func lowest(set uint64, n int) (out uint64) {
	for ; n > 0 && set != 0; n-- {
		out |= set & -set
		set &= set - 1
	}
	return out
}

// expected is how long a job may run.
func (c *Core) expected(f *Job) time.Duration {
	if f.TimeLimit > 0 {
		return f.TimeLimit
	}
	if p := c.partitions[f.Partition]; p != nil && p.MaxTime > 0 {
		return p.MaxTime
	}
	return year
}

// adoptWhole adopts a job whose nodes all give the same, or differ only in processors.
func (c *Core) adoptWhole(j *job, parts []model.Part, grants []model.Grant) bool {
	if len(parts) == 0 {
		return false
	}
	r := model.Request{Nodes: len(parts), CoresPerNode: int(parts[0].Cores), Memory: parts[0].Memory, GPUs: bits.OnesCount64(parts[0].GPUs)}
	total := 0
	for _, p := range parts {
		if p.Memory != r.Memory || bits.OnesCount64(p.GPUs) != r.GPUs {
			return false
		}
		if int(p.Cores) != r.CoresPerNode {
			r.Nodes = 0
		}
		total += int(p.Cores)
	}
	if r.Nodes == 0 {
		r.CoresPerNode, r.Cores = 0, total
	}
	if len(grants) > 0 {
		r.Remote = &model.RemoteGPUs{Count: len(grants), Memory: grants[0].Memory, Shared: grants[0].Memory > 0}
	}
	id, err := c.enterBook(j, r, &model.Allocation{Parts: parts, Grants: grants})
	if err != nil {
		return false
	}
	j.number = id
	c.numbered[id] = j
	return true
}

// adoptPart adopts what a job has of one node.
func (c *Core) adoptPart(j *job, p model.Part) {
	r := model.Request{Nodes: 1, CoresPerNode: int(p.Cores), Memory: p.Memory, GPUs: bits.OnesCount64(p.GPUs)}
	id, err := c.enterBook(j, r, &model.Allocation{Parts: []model.Part{p}})
	if err != nil {
		c.crowd(p.Node)
		return
	}
	j.parts = append(j.parts, id)
	c.numbered[id] = j
}

func (c *Core) enterBook(j *job, r model.Request, a *model.Allocation) (policy.JobID, error) {
	spec := &model.Job{ID: j.Ref.String(), User: j.fact.User, Group: j.fact.Account, Queue: j.fact.Partition, QOS: c.class(&j.fact), WallTime: c.expected(&j.fact), Request: r, Fixed: !j.mayStop()}
	if err := spec.Validate(); err != nil {
		return -1, err
	}
	started := c.now
	if j.fact.Started > 0 {
		started = min(c.now, j.fact.Started)
	}
	return c.state.Adopt(spec, 0, a, c.policyTime(started))
}

// crowd closes a node to new jobs, because a job uses something there that the book has no room
// for.
func (c *Core) crowd(n int32) {
	node := c.nodes[n]
	if !node.crowded {
		node.crowded = true
		c.setNode(node)
	}
	if !node.noted {
		node.noted = true
		c.note("more of node %s is used than is known: nothing is placed there until it is clear", node.Name)
	}
}

// uncrowd tries again to enter what did not fit: it withdraws all jobs on crowded nodes and enters
// them anew, at most once a second.
func (c *Core) uncrowd() {
	if c.now < c.uncrowdAt || !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.crowded }) {
		return
	}
	c.uncrowdAt = c.now + time.Second
	var there []*job
	for _, id := range c.sorted(func(j *job) bool { return j.phase == running && c.onCrowded(j) }) {
		j := c.jobs[id]
		grants := c.grantsOf(j)
		c.withdraw(j)
		c.enter(j, running)
		there = append(there, j)
		j.grants = grants
	}
	for _, n := range c.nodes {
		if n.crowded {
			n.crowded = false
			c.setNode(n)
		}
	}
	// Suspended jobs first: others may run in their place.
	slices.SortStableFunc(there, func(a, b *job) int { return cmp.Compare(b.suspended(), a.suspended()) })
	for _, j := range there {
		c.adopt(j, j.grants)
		j.grants = nil
		c.standing(j, c.now)
	}
	for _, id := range c.sorted(func(j *job) bool { return j.phase == recalling }) {
		c.crowdLenders(c.jobs[id])
	}
	for _, n := range c.nodes {
		n.noted = n.crowded
	}
}

// crowdLenders closes the nodes whose GPUs were lent to a job that is being recalled and that is
// not in the book: Slurm may start it before it is held.
func (c *Core) crowdLenders(j *job) {
	if j.number >= 0 || !j.plan.For(j.ID, j.fact.Restarts) {
		return
	}
	for _, d := range j.lent() {
		if n := c.byName[d.Node]; n != nil {
			c.crowd(n.number)
		}
	}
}

// suspended is 1 for a suspended job, 0 for others, for sorting.
func (j *job) suspended() int {
	if j.fact.State == "SUSPENDED" {
		return 1
	}
	return 0
}

func (c *Core) onCrowded(j *job) bool {
	on := func(name string) bool { n := c.byName[name]; return n != nil && n.crowded }
	for _, u := range j.fact.Uses {
		if on(u.Node) {
			return true
		}
	}
	return j.plan != nil && slices.ContainsFunc(j.plan.Devices, func(d words.Device) bool { return on(d.Node) })
}

// findPlaced enters a job into the book that was placed by a driver before this one, or by a
// request without an answer.
func (c *Core) findPlaced(j *job) {
	c.withdraw(j)
	j.plan = j.comment.Answer
	spec, err := c.understand(j)
	if err != nil {
		c.recall(j, err.Error())
		return
	}
	a := &model.Allocation{Grants: c.grantsOf(j)}
	if j.short {
		if spec.Request.Remote.Count = len(a.Grants); len(a.Grants) == 0 {
			spec.Request.Remote = nil
		}
	}
	for _, name := range j.plan.Nodes {
		n := c.byName[name]
		if n == nil {
			c.recall(j, "it was placed on node "+name+", which is not there any more")
			return
		}
		p := model.Part{Node: n.number, Cores: int32(spec.Request.CoresOnNode()), Memory: spec.Request.Memory, GPUs: lowest(c.state.View().FreeGPUs(n.number), spec.Request.GPUs)}
		if spec.Request.Exclusive {
			p.Cores, p.Exclusive = int32(n.CPUs), true
		}
		a.Parts = append(a.Parts, p)
	}
	slices.SortFunc(a.Parts, func(a, b model.Part) int { return int(a.Node) - int(b.Node) })
	if c.placedSpread(j, spec, a) {
		return
	}
	id, err := c.state.Adopt(spec, 0, a, c.policyTime(c.now))
	if err != nil {
		c.recall(j, fmt.Sprintf("where it was placed there is no room: %v", err))
		return
	}
	j.spec, j.number = spec, id
	c.numbered[id] = j
	c.count(j)
	c.enter(j, placed)
}

// placedSpread enters a job into the book that was placed without pinned processors: they are
// wherever Slurm finds them free on its nodes.
func (c *Core) placedSpread(j *job, spec *model.Job, a *model.Allocation) bool {
	r := &spec.Request
	if len(a.Parts) < 2 || r.Exclusive || r.GPUs > 0 || j.fact.TasksPerNode > 0 || r.Nodes > 0 && j.fact.MinCPUsPerNode >= r.CoresOnNode() {
		return false
	}
	parts := slices.Clone(a.Parts)
	for i := range parts {
		parts[i].Cores = 0
	}
	if !c.greedy(&j.fact, parts) || !c.adoptWhole(j, parts, a.Grants) {
		return false
	}
	j.spec, j.spread = spec, true
	c.count(j)
	c.enter(j, placed)
	return true
}

// takeNodes brings the nodes up to date. The book cannot shrink a node, so one whose hardware has
// changed is not used.
func (c *Core) takeNodes(list []Node) {
	for _, n := range c.nodes {
		n.gone = true
	}
	added := false
	for i := range list {
		n := c.byName[list[i].Name]
		if n == nil {
			if n = c.addNode(list[i]); n == nil {
				continue
			}
			added = true
		}
		n.gone = false
		if n.CPUs != list[i].CPUs || n.Memory != list[i].Memory || n.GPUs != list[i].GPUs {
			c.note("node %s has changed (%d processors, %d GPUs): it is not used until the driver is started again", n.Name, list[i].CPUs, list[i].GPUs)
			n.States = []string{"CHANGED"}
		} else {
			n.States, n.Reason = list[i].States, list[i].Reason
		}
	}
	for _, n := range c.nodes {
		c.setNode(n)
	}
	if added {
		c.setWindows()
		c.stepDue = true
	}
}

func (c *Core) addNode(f Node) *node {
	m := model.Node{Name: f.Name, Cores: f.CPUs, Memory: f.Memory, GPUs: make([]int, f.GPUs)}
	var types []model.GPUType
	if f.GPUs > 0 {
		kind := f.GPUType
		if kind == "" {
			kind = "gpu"
		}
		types = append(types, model.GPUType{Name: kind, Memory: c.cfg.GPUMemory, Speed: 1})
	}
	number, err := c.state.AddNode(m, types...)
	if err != nil {
		c.note("node %s is left out: %v", f.Name, err)
		return nil
	}
	n := &node{Node: f, number: number, book: f.GPUs, lends: 1<<f.GPUs - 1}
	c.nodes = append(c.nodes, n)
	c.byName[f.Name] = n
	c.largest, c.threads = max(c.largest, f.CPUs), max(c.threads, f.Threads)
	if c.leastMem == 0 || f.Memory < c.leastMem {
		c.leastMem = f.Memory
	}
	return n
}

// setNode tells the policy the state of a node.
func (c *Core) setNode(n *node) {
	st := policy.NodeUp
	switch {
	case n.gone || n.down():
		st = policy.NodeDown
	case n.crowded || !n.up():
		st = policy.NodeDraining
	}
	if c.state.NodeState(n.number) != st {
		c.must(c.state.SetNode(n.number, st))
		c.stepDue = true
	}
}

// setWindows tells the policy of reservations.
func (c *Core) setWindows() {
	var list []policy.Window
	for _, r := range c.reserved {
		w := policy.Window{Name: r.Name, From: max(0, c.policyTime(r.From)), Until: c.policyTime(r.Until), Users: r.Users, Accounts: r.Accounts}
		if w.From >= w.Until {
			continue
		}
		for _, name := range names(r.Nodes) {
			if n := c.byName[name]; n != nil {
				w.Nodes = append(w.Nodes, n.number)
			}
		}
		if len(w.Nodes) == 0 {
			continue
		}
		if len(list) == policy.MaxWindows {
			c.note("there are more than %d reservations: Slurm itself keeps jobs out of the others", policy.MaxWindows)
			break
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b policy.Window) int { return int(min(1, max(-1, a.From-b.From))) })
	if sameWindows(list, c.state.Windows()) {
		return
	}
	if err := c.state.SetWindows(list); err != nil {
		c.note("reservations: %v", err)
		return
	}
	c.stepDue = true
}

func sameWindows(a, b []policy.Window) bool {
	return slices.EqualFunc(a, b, func(x, y policy.Window) bool {
		return x.Name == y.Name && x.Until == y.Until && (x.From == y.From) && slices.Equal(x.Nodes, y.Nodes) && slices.Equal(x.Users, y.Users) && slices.Equal(x.Accounts, y.Accounts)
	})
}
