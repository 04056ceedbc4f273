package head

import (
	"cmp"
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/wire/agent"
	"muster/wire/api"
)

// Filter chooses jobs; a field that is empty admits all.
type Filter struct {
	User, Account, Node, Name string
	States                    []api.State
}

// JobList lists the jobs that have not ended, or ended recently, in the order of their numbers.
func (c *Core) JobList(now time.Duration, f Filter) []api.Job {
	jobs := []api.Job{}
	for next := uint64(0); ; {
		var some []api.Job
		some, next = c.JobsFrom(now, f, next, pageOfJobs)
		if jobs = append(jobs, some...); next == 0 {
			return jobs
		}
	}
}

// pageOfJobs is how many jobs JobList looks at at a time.
const pageOfJobs = 1000

// JobsFrom is a page of JobList: it looks at most jobs from a number on, and says at which number the
// next page begins; 0 if there is none.
func (c *Core) JobsFrom(now time.Duration, f Filter, first uint64, most int) (jobs []api.Job, next uint64) {
	c.now = max(c.now, now)
	for j := range c.roster.from(first) {
		if most--; most < 0 {
			return jobs, j.id
		}
		if f.User != "" && j.user != f.User || f.Account != "" && j.said.Account != f.Account || f.Name != "" && j.title() != f.Name ||
			len(f.States) > 0 && !slices.Contains(f.States, j.state) || f.Node != "" && (!j.active() || !j.isOn(f.Node)) {
			continue
		}
		jobs = append(jobs, c.document(j))
	}
	return jobs, 0
}

// Job returns one job, or the tasks of an array.
func (c *Core) Job(now time.Duration, ref Ref) ([]api.Job, bool) {
	jobs, _, known := c.JobFrom(now, ref, 0, math.MaxInt)
	return jobs, known
}

// JobFrom is a page of Job: it returns most jobs from a number on, and says at which number the next page
// begins; 0 if there is none.
func (c *Core) JobFrom(now time.Duration, ref Ref, first uint64, most int) (jobs []api.Job, next uint64, known bool) {
	c.now = max(c.now, now)
	w, err := c.walkOf(ref)
	if err != nil {
		return nil, 0, false
	}
	found, next := c.some(w, first, most)
	jobs = make([]api.Job, len(found))
	for i, j := range found {
		jobs[i] = c.document(j)
		jobs[i].Reason, jobs[i].Why = c.why(j, len(found) <= maxAsked && first == 0 && next == 0)
	}
	return jobs, next, len(found) > 0 || first > 0
}

// maxAsked is for how many jobs of one request the policy is asked why they wait.
const maxAsked = 100

// document is a job as users see it, without the policy's reason for its waiting.
func (c *Core) document(j *job) api.Job {
	r := j.request()
	d := api.Job{
		ID: j.id, Name: j.title(), User: j.user, Account: j.said.Account, Partition: j.said.Partition, QOS: j.said.QOS, State: j.state,
		Options: j.asks, Held: j.held != 0, Submit: seconds(j.submit), Eligible: seconds(j.eligible), Start: seconds(j.start), End: seconds(j.end),
		TimeLimit: seconds(j.timeLimit(c.cfg.TimeLimit)), Elapsed: seconds(j.elapsed(c.now)), Attempt: j.nth, Requeues: j.requeues,
		NumNodes: max(1, r.Nodes), Cores: r.TotalCores(), GPUs: r.TotalGPUs(), Memory: j.need.memory,
		ExitCode: j.exit, Signal: j.signal, CPUTime: seconds(j.cpu), Peak: j.peak,
		Directory: j.dir, Command: j.command, Comment: j.said.Batch.Comment, Priority: j.standing(c),
	}
	if j.task >= 0 {
		task := uint32(j.task)
		d.ArrayJob, d.ArrayTask = j.array, &task
	}
	if j.rest != nil && j.size() > 1 {
		d.ArrayTask, d.ArrayTasks, d.ArrayCount = nil, c.roster.tasksText(j), j.size()
	}
	if dep := j.said.Batch.Dependency; dep != nil {
		d.Dependency = dep.String()
	}
	d.Reason, d.Why = c.why(j, false)
	first := ""
	if j.alloc != nil {
		c.has(j, &d)
		first = d.Nodes[0]
	}
	if d.ArrayTasks == "" {
		d.Output, d.Error = j.file(j.output(), first), j.file(j.said.Batch.Error, first)
	}
	return d
}

// has adds the allocation that a job has, or had.
func (c *Core) has(j *job, d *api.Job) {
	d.Nodes = j.nodeNames()
	d.NodeList = model.CompressNodes(d.Nodes)
	d.NumNodes, d.Cores, d.Memory, d.GPUs, d.GPUShare = len(d.Nodes), 0, 0, 0, 0
	for i := range j.alloc.Parts {
		p, t := &j.alloc.Parts[i], &j.tasks[i]
		state := string(t.state)
		if t.state == agent.Unknown {
			state = "starting"
		}
		d.Parts = append(d.Parts, api.Part{Node: t.node.name, Cores: int(p.Cores), Memory: p.Memory, State: state})
		d.Cores += int(p.Cores)
		d.Memory += p.Memory
		for _, g := range j.alloc.DevicesOf(i) {
			n := c.nodes[g.Node]
			share := shareOf(j.alloc, i, g)
			d.Devices = append(d.Devices, api.Device{For: t.node.name, Node: n.name, Device: int(g.Device), Memory: share, Borrowed: n != t.node})
			d.GPUs++
			d.GPUShare += partOf(share, n, int(g.Device))
		}
	}
}

// partOf is the fraction of a device that share bytes are; a share of 0 is the whole device.
func partOf(share int64, n *node, device int) float64 {
	if share == 0 || device >= len(n.devices) {
		return 1
	}
	return float64(share) / float64(n.devices[device].Memory)
}

// NodeList lists the nodes.
func (c *Core) NodeList(now time.Duration) []api.Node {
	nodes, _ := c.NodesFrom(now, 0, math.MaxInt)
	return nodes
}

// NodesFrom is a page of NodeList: it looks at most nodes from an index on, and says at which the next
// page begins; 0 if there is none.
func (c *Core) NodesFrom(now time.Duration, first, most int) (nodes []api.Node, next int) {
	c.now = max(c.now, now)
	nodes = []api.Node{}
	for i := first; i < len(c.nodes); i++ {
		if i-first == most {
			return nodes, i
		}
		if n := c.nodes[i]; !n.removed {
			nodes = append(nodes, c.nodeDocument(n))
		}
	}
	return nodes, 0
}

func (c *Core) nodeDocument(n *node) api.Node {
	d := api.Node{
		Name: n.name, Reason: cmp.Or(n.reason, n.trouble), Connected: n.connected(), Left: n.left, Since: seconds(n.since), Cores: n.cores, Memory: n.memory,
		Gateway: n.gateway, User: n.user, Incarnation: n.incarnation, Jobs: c.activeOn(n),
	}
	for i := range n.devices {
		g := &n.devices[i]
		d.Devices = append(d.Devices, api.NodeDevice{Name: g.Name, Memory: g.Memory, Speed: g.Speed, Up: g.Up, Lender: g.Lender})
	}
	for _, id := range d.Jobs {
		c.uses(c.roster.jobs[id], n, &d)
	}
	d.State = nodeState(n, &d)
	return d
}

// uses adds what a job uses of a node.
func (c *Core) uses(j *job, n *node, d *api.Node) {
	for i := range j.alloc.Parts {
		if p := &j.alloc.Parts[i]; p.Node == n.number && j.tasks[i].end == nil {
			d.CoresUsed += int(p.Cores)
			d.MemoryUsed += p.Memory
		}
		for _, g := range j.alloc.DevicesOf(i) {
			if g.Node != n.number || int(g.Device) >= len(d.Devices) {
				continue
			}
			device := &d.Devices[g.Device]
			if share := shareOf(j.alloc, i, g); share > 0 {
				device.Used += share
			} else {
				device.Used = device.Memory
			}
			device.Jobs = append(device.Jobs, j.id)
		}
	}
}

func nodeState(n *node, d *api.Node) api.NodeState {
	switch {
	case n.down || !n.connected():
		return api.NodeDown
	case (n.drained || n.trouble != "") && len(d.Jobs) > 0:
		return api.NodeDraining
	case n.drained || n.trouble != "":
		return api.NodeDrained
	case d.CoresUsed == n.cores:
		return api.NodeAlloc
	case len(d.Jobs) > 0:
		return api.NodeMixed
	}
	return api.NodeIdle
}

// Info describes the cluster.
func (c *Core) Info(now time.Duration) api.Cluster {
	return api.Cluster{Name: c.cfg.Cluster, Policy: c.spec, Now: seconds(now), Nodes: len(c.byName), Pending: c.pending, Running: c.running}
}

// SessionOf returns the session of a node's agent.
func (c *Core) SessionOf(name string) (Session, *Refusal) {
	n := c.byName[name]
	switch {
	case n == nil:
		return 0, refusal(statusNotFound, "there is no node %.64q", name)
	case n.session == 0:
		return 0, refusal(statusServiceUnavailable, "node %s is away", name)
	}
	return n.session, nil
}

// TaskOf finds a job's task on a node, or its first task, and the session of the agent that has it,
// for a user who wants to read its output or run a command there. With begun, a task that is still
// starting is refused.
func (c *Core) TaskOf(ref Ref, node, user string, begun bool) (Session, agent.Task, *Refusal) {
	none := func(status int, format string, args ...any) (Session, agent.Task, *Refusal) {
		return 0, agent.Task{}, refusal(status, format, args...)
	}
	w, err := c.walkOf(ref)
	if err != nil {
		return 0, agent.Task{}, err
	}
	found, _ := c.some(w, 0, 1)
	if len(found) == 0 {
		return none(statusNotFound, "%s", notThere(ref).Reason)
	}
	j := found[0]
	if err := c.mayTouch(user, j); err != nil {
		return 0, agent.Task{}, err
	}
	switch {
	case c.roster.nameOf(ref) != "":
		return none(statusBadRequest, "job %s is an array: name one of its tasks, as %s", c.roster.nameOf(ref), j.name())
	case len(j.tasks) == 0 && j.over():
		return none(statusConflict, "job %s is %s: it never started, and has written nothing", j.name(), j.state)
	case len(j.tasks) == 0:
		return none(statusConflict, "job %s is %s: it has no node yet", j.name(), j.state)
	}
	for part := range j.tasks {
		t := &j.tasks[part]
		if node != "" && t.node.name != node {
			continue
		}
		switch {
		case t.node.session == 0:
			return none(statusServiceUnavailable, "node %s is away", t.node.name)
		case begun && j.state == api.Running && t.state == agent.Unknown: // its agent may not have been told of it
			return none(statusConflict, "job %s is starting on %s, and has written nothing yet", j.name(), t.node.name)
		}
		return t.node.session, j.taskName(part), nil
	}
	return none(statusNotFound, "job %s has no node %.64q", j.name(), node)
}
