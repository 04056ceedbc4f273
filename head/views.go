package head

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster/head/record"
	"muster/internal/units"
	"muster/model"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
)

// views is what people and the store are told of jobs and nodes: it changes nothing.
type views struct {
	ground
	deps *dependencies
	desk *desk
}

// Filter chooses jobs; a field that is empty admits all.
type Filter struct {
	User, Account, Node, Name string
	States                    []api.State
}

// JobsFrom lists the jobs that have not ended, or ended recently, in the order of their numbers: it looks at
// most jobs from a number on, and says at which number to go on; 0 if there are no more.
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
		jobs = append(jobs, c.views.document(j))
	}
	return jobs, 0
}

// JobFrom returns one job, or the tasks of an array: most jobs from a number on, and says at which number to
// go on; 0 if there are no more.
func (c *Core) JobFrom(now time.Duration, ref Ref, first uint64, most int) (jobs []api.Job, next uint64, known bool) {
	c.now = max(c.now, now)
	w, err := c.chores.walkOf(ref)
	if err != nil {
		return nil, 0, false
	}
	found, next := c.chores.some(w, first, most)
	jobs = make([]api.Job, len(found))
	for i, j := range found {
		jobs[i] = c.views.document(j)
		jobs[i].Reason, jobs[i].Why = c.views.why(j, len(found) <= maxAsked && first == 0 && next == 0)
	}
	return jobs, next, len(found) > 0 || first > 0
}

// maxAsked is for how many jobs of one request the policy is asked why they wait.
const maxAsked = 100

// document is a job as users see it, without the policy's reason for its waiting.
func (v *views) document(j *job) api.Job {
	r := j.request()
	d := api.Job{
		ID: j.id, Name: j.title(), User: j.user, Account: j.said.Account, Partition: j.said.Partition, QOS: j.said.QOS, State: j.state,
		Options: j.asks, Held: j.held != 0, Submit: seconds(j.submit), Eligible: seconds(j.eligible), Start: seconds(j.start), End: seconds(j.end),
		TimeLimit: seconds(j.timeLimit(v.cfg.TimeLimit)), Elapsed: seconds(j.hasRun(v.now)), Attempt: j.nth, Requeues: j.requeues,
		NumNodes: max(1, r.Nodes), Cores: r.TotalCores(), GPUs: r.TotalGPUs(), Memory: j.need.memory,
		ExitCode: j.exit, Signal: j.signal, CPUTime: seconds(j.cpu), Peak: j.peak,
		Directory: j.dir, Command: j.command, Comment: j.said.Batch.Comment, Priority: v.desk.standing(j), Before: j.passage.before,
	}
	if j.task >= 0 {
		task := uint32(j.task)
		d.ArrayJob, d.ArrayTask = j.array, &task
	}
	if j.rest != nil && j.size() > 1 {
		d.ArrayTask, d.ArrayTasks, d.ArrayCount = nil, v.roster.tasksText(j), j.size()
	}
	if dep := j.said.Batch.Dependency; dep != nil {
		d.Dependency = dep.String()
	}
	if m := j.measured.sum(); m != (model.Measured{}) {
		m.CPU = max(m.CPU, d.CPUTime)
		d.CPUTime, d.Measured = m.CPU, &m
	}
	for _, p := range j.preempted {
		d.Preempted = append(d.Preempted, api.Preemption{
			At: seconds(p.At), By: p.By, ByUser: p.ByUser, How: p.How, Reason: p.Reason, Attempt: p.Attempt, Start: seconds(p.Start), Nodes: p.Nodes, Devices: p.Devices,
		})
	}
	d.Reason, d.Why = v.why(j, false)
	first := ""
	if j.alloc != nil {
		v.has(j, &d)
		first = d.Nodes[0]
	}
	if d.ArrayTasks == "" && !j.allocation() {
		first = j.onNode(first)
		d.Output, d.Error = j.file(j.output(), first), j.file(j.said.Batch.Error, first)
	}
	return d
}

// has adds the allocation that a job has, or had.
func (v *views) has(j *job, d *api.Job) {
	d.Nodes = j.nodeNames()
	d.NodeList = model.CompressNodes(d.Nodes)
	d.NumNodes, d.Cores, d.Memory, d.GPUs, d.GPUShare = len(d.Nodes), 0, 0, 0, 0
	for i := range j.alloc.Parts {
		p, t := &j.alloc.Parts[i], &j.tasks[i]
		state := string(t.state)
		switch {
		case t.givenUp():
			state = partLost
		case t.state == agent.Unknown:
			state = "starting"
		}
		d.Parts = append(d.Parts, api.Part{Node: t.node.name, Cores: int(p.Cores), Memory: p.Memory, State: state})
		d.Cores += int(p.Cores)
		d.Memory += p.Memory
		for _, g := range j.alloc.DevicesOf(i) {
			n := v.fleet.nodes[g.Node]
			share := shareOf(j.alloc, i, g)
			hold := j.hold(i, g, share)
			d.Devices = append(d.Devices, api.Device{
				For: t.node.name, Node: n.name, Device: int(g.Device), Memory: share, Beyond: hold.Beyond, Reach: hold.Reach.String(), Borrowed: n != t.node,
			})
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

// NodesFrom lists the nodes: it looks at most nodes from an index on, and says at which to go on; 0 if there
// are no more.
func (c *Core) NodesFrom(now time.Duration, first, most int) (nodes []api.Node, next int) {
	c.now = max(c.now, now)
	nodes = []api.Node{}
	for i := first; i < len(c.fleet.nodes); i++ {
		if i-first == most {
			return nodes, i
		}
		if n := c.fleet.nodes[i]; !n.removed {
			nodes = append(nodes, c.views.nodeDocument(n))
		}
	}
	return nodes, 0
}

func (v *views) nodeDocument(n *node) api.Node {
	d := api.Node{
		Name: n.name, Reason: cmp.Or(n.reason, n.trouble, n.unwilling()), Connected: n.connected(), Left: n.left, Since: seconds(n.since), Cores: n.cores, Memory: n.memory,
		Gateway: n.gateway, User: n.user, Incarnation: n.incarnation, Labels: n.labels, Partitions: v.fleet.parts.partitionsOf(n.name), Jobs: n.activeJobs(), Weight: v.desk.weightOf(n.name), Features: n.features,
	}
	for i := range n.devices {
		g := &n.devices[i]
		d.Devices = append(d.Devices, api.NodeDevice{Name: g.Name, Memory: g.Memory, Speed: g.Speed, Up: g.Up, Lender: g.Lender})
	}
	n.addLoad(&d)
	d.Settings = n.settings()
	for _, id := range d.Jobs {
		v.uses(v.roster.jobs[id], n, &d)
	}
	d.State = nodeState(n, &d)
	return d
}

// addLoad adds how busy the node is, if its agent has said that.
func (n *node) addLoad(d *api.Node) {
	l := n.load
	if l == nil {
		return
	}
	d.Load = &api.NodeLoad{Assigned: l.Assigned, Waiting: l.Waiting, Longest: l.Longest.Seconds(), SwapIn: l.SwapIn, SwapOut: l.SwapOut}
	for _, notice := range n.notices.List(l, n.memories()) {
		d.Notices = append(d.Notices, api.Notice{Name: notice.Name, Text: notice.Text, Since: seconds(notice.Since)})
	}
	for i := range min(len(d.Devices), len(l.Use)) {
		d.Devices[i].Load = &api.DeviceLoad{Use: l.Use[i], Used: int64(l.Used[i]) << 20, Guaranteed: int64(l.Guaranteed[i]) << 20}
	}
}

// uses adds what a job uses of a node.
func (v *views) uses(j *job, n *node, d *api.Node) {
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
	info := api.Cluster{Name: c.cfg.Cluster, Policy: c.desk.spec, Now: seconds(now), Nodes: len(c.fleet.byName), Pending: c.roster.pending, Running: c.roster.running}
	use := 0
	for _, n := range c.fleet.sessions {
		if n.load != nil {
			info.Waiting += n.load.Waiting
			for _, percent := range n.load.Use {
				use += percent
			}
		}
	}
	info.Busy = float64(use) / 100
	return info
}

// SessionOf returns the session of a node's agent.
func (c *Core) SessionOf(name string) (Session, *Refusal) {
	n := c.fleet.byName[name]
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
	w, err := c.chores.walkOf(ref)
	if err != nil {
		return 0, agent.Task{}, err
	}
	found, _ := c.chores.some(w, 0, 1)
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

// KeepOutput is for how long after a job's end its output is read.
func (c *Core) KeepOutput() time.Duration { return c.cfg.KeepOutput }

// Usage lists what users and accounts have used.
func (c *Core) Usage(now time.Duration) []api.UsageLine {
	c.now = max(c.now, now)
	lines := []api.UsageLine{}
	if c.desk.ranking == nil {
		return lines
	}
	for _, l := range c.desk.ranking.Book.Usage(c.now) {
		line := api.UsageLine{Account: l.Account, User: l.User, Shares: l.NormShares, Used: l.NormUsage, Raw: l.Usage}
		if l.User != "" {
			line.Factor = &l.FairShare
		}
		lines = append(lines, line)
	}
	return lines
}

// Priorities lists the waiting jobs among most jobs from a number on, with their priorities, and the
// factors of each. It says at which number to go on; 0 at the end.
func (c *Core) Priorities(first uint64, most int) (lines []api.JobPriority, next uint64) {
	for j := range c.roster.from(first) {
		if most--; most < 0 {
			return lines, j.id
		}
		if j.state != api.Pending {
			continue
		}
		line := api.JobPriority{Job: j.id, User: j.user, Account: j.said.Account, Priority: c.desk.standing(j)}
		if c.desk.ranking != nil {
			if f, ok := c.desk.ranking.Book.Factors(priority.Key(j.id)); ok {
				line.Account = f.Account
				line.Factors = map[string]int64{
					"age": int64(f.Age.Weighted), "fairshare": int64(f.FairShare.Weighted), "jobsize": int64(f.JobSize.Weighted),
					"partition": int64(f.Part.Weighted), "qos": int64(f.Class.Weighted), "tres": int64(f.CPU.Weighted + f.Mem.Weighted + f.GPU.Weighted), "nice": f.Nice,
				}
			}
		}
		lines = append(lines, line)
	}
	return lines, 0
}

// record is what the store must change for a job. What an array runs is deleted with its last task.
func (v *views) record(j *job) []Record {
	if !j.over() {
		return []Record{{Jobs, Number(j.id), encoded(v.jobRecord(j))}}
	}
	doc := v.document(j)
	records := []Record{{Ended, Number(j.id), encoded(record.EndedAs(&doc))}, {Bucket: Jobs, Key: Number(j.id)}}
	if j.array == 0 || v.roster.arrays[j.array] == nil {
		records = append(records, Record{Bucket: Bulk, Key: Number(j.bulk())})
	}
	return records
}

func (v *views) jobRecord(j *job) record.Job {
	r := record.Job{
		Job: j.id, Array: j.array, Task: j.task, Rest: j.rest, User: j.user, Dir: j.dir, Key: j.key, Secret: j.secret, Options: j.options, Command: j.command,
		State: string(j.state), Held: uint8(j.held), Priority: j.priority, Nice: j.nice, Submit: j.submit, Eligible: j.eligible, Start: j.start,
		Attempt: j.nth, Requeues: j.requeues, Limit: j.limit, Never: j.never, NotBefore: j.notBefore,
		Alternative: j.alternative, Lending: j.lending, Suspend: j.suspend, ByHand: j.byHand, Asleep: j.asleep, Stop: j.stop.record(), Usual: holdsRecord(j.usual), Suspended: j.suspended, SuspendedSince: j.suspendedSince,
		CPU: j.cpu, Peak: j.peak, Passage: j.passage.record(), Preempted: j.preempted,
	}
	if a := v.roster.arrays[j.array]; a != nil {
		r.Of = a.tasks.Len()
	}
	for _, t := range j.unmet {
		r.Unmet = append(r.Unmet, record.Term(t.Term))
	}
	if j.alloc == nil {
		return r
	}
	for i := range j.alloc.Parts {
		p, t := &j.alloc.Parts[i], &j.tasks[i]
		r.Parts = append(r.Parts, record.Part{
			Node: p.Node, Incarnation: t.incarnation, Cores: p.Cores, Memory: p.Memory, GPUs: p.GPUs, Exclusive: p.Exclusive, State: string(t.state), End: endRecord(t.end),
		})
	}
	for _, l := range j.relays {
		r.Relays = append(r.Relays, record.Relay(l))
	}
	for _, g := range j.alloc.Grants {
		r.Grants = append(r.Grants, record.Grant(g))
	}
	return r
}

func (v *views) nodeRecord(n *node) Record {
	r := record.Node{
		Number: n.number, Name: n.name, Incarnation: n.incarnation, User: n.user, Cores: n.cores, Memory: n.memory, Gateway: n.gateway,
		Down: n.down, Drained: n.drained, Removed: n.removed, Reason: n.reason, Labels: n.labels, Since: n.since,
	}
	for _, d := range n.devices {
		r.Devices = append(r.Devices, record.Device(d))
	}
	return Record{Nodes, numberOf(n.number), encoded(r)}
}

// why says why a waiting job waits: one of Slurm's words, and a sentence. The policy is asked only
// if ask is true, since its answer may take a look at the whole queue.
func (v *views) why(j *job, ask bool) (word, sentence string) {
	switch {
	case j.state == api.Suspended && j.passage.wanted:
		return "", "it is being saved, to go on elsewhere"
	case j.state == api.Suspended:
		return "", j.passage.stays
	case j.over(): // how busy its GPUs were is no reason: that is with what was measured
		if j.state == api.Failed && j.notBegun() {
			return api.JobLaunchFailure, j.reason
		}
		return "", j.reason
	case j.state != api.Pending:
		return "", cmp.Or(j.reason, j.elsewhere(), j.use())
	case j.held&heldByAdmin != 0:
		return "JobHeldAdmin", "an administrator holds it, and can let it go with muster release"
	case j.held != 0:
		return "JobHeldUser", "its user holds it: muster release lets it go"
	case j.never:
		return "DependencyNeverSatisfied", v.deps.neverMet(j)
	}
	switch j.gate {
	case atDependency:
		return "Dependency", "it waits for other jobs: " + j.said.Batch.Dependency.String()
	case atBegin:
		if j.nth > 0 {
			return "BeginTime", "it could not be started, and the next try is at " + v.clock(j.notBefore) + because(j.reason)
		}
		if !j.said.Batch.Begin.Set {
			return "BeginTime", "it waits until " + v.clock(j.notBefore) + ", as long after another job's start as it asked for"
		}
		return "BeginTime", "it was submitted for " + v.clock(v.beginOf(j)) + " (--begin)"
	case atArray:
		return "JobArrayTaskLimit", fmt.Sprintf("%d tasks of its array may run at a time, and as many do", v.roster.arrays[j.array].limit)
	case atLimit:
		return v.users.full(v.users.lineOf(j.order).waiting[0].order)
	}
	if word, sentence := v.desk.barred(j); word != "" {
		return word, sentence
	}
	if j.impossible != "" && len(v.fleet.byName) == 0 {
		return "Resources", "no node has come yet: an administrator starts muster node --head on each"
	}
	if name := v.fleet.empty(j); j.impossible != "" && name != "" {
		return "Resources", "no node of partition " + name + " has come yet: an administrator starts muster node --head on each"
	}
	if j.impossible != "" && j.passage.from != "" && j.passage.stays != "" {
		again := ""
		if j.passage.retry > 0 {
			again = ", which is tried again at " + v.clock(j.passage.retry)
		}
		return "Resources", fmt.Sprintf("it was saved, and no node is left where it could go on%s (muster job requeue starts it over): %s", again, j.passage.stays)
	}
	if j.impossible != "" {
		return "Resources", j.impossible
	}
	if r := cmp.Or(j.of, j); j.number < 0 && r.rest != nil {
		if j = v.roster.arrays[r.array].ahead(r); j == nil {
			return "Resources", ""
		} // what keeps the task before it waiting keeps it waiting
	}
	if j.number < 0 {
		return "None", ""
	}
	if !ask {
		return "Resources", ""
	}
	return "Resources", v.desk.state.Why(j.number)
}

// because is the end of a sentence that gives a reason; "" if none is known.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// elsewhere says what is wrong with the GPUs of other nodes that a running job has; "" if nothing is.
func (j *job) elsewhere() string {
	if !j.active() {
		return ""
	}
	for i := range j.loans {
		l := &j.loans[i]
		why := l.trouble
		if l.node.down {
			why = "it is down"
		}
		if why != "" {
			return fmt.Sprintf("node %s does not lend its GPU now, and programs go on elsewhere within reach, or wait: %s", l.node.name, why)
		}
	}
	if len(j.relays) > 0 {
		return j.relays[0].Reason
	}
	return ""
}

// mostWaited is the longest wait in seconds that is shown: many programs may have waited longer together than a
// time.Duration can say.
const mostWaited = 1 << 33

// use says how busy a job's GPUs were until its nodes last said so; "" if that was not measured.
func (j *job) use() string {
	m, ran, gpus := j.measured.sum(), j.measured.ran().Seconds(), 0
	if j.alloc != nil {
		for part := range j.alloc.Parts {
			gpus += len(j.alloc.DevicesOf(part))
		}
	}
	if gpus == 0 || ran < 1 || m == (model.Measured{}) {
		return ""
	}
	part := min(100, 100*m.GPU/ran/float64(gpus))
	text := fmt.Sprintf("its GPU was busy %.0f %% of the time", part)
	if gpus > 1 {
		text = fmt.Sprintf("its %d GPUs were busy %.0f %% of the time", gpus, part)
	}
	if m.Waited >= 1 {
		text += fmt.Sprintf(", and its programs waited %s for one", units.FormatDuration(time.Duration(min(m.Waited, mostWaited))*time.Second))
	}
	return text
}

// seconds converts a span or an instant for documents.
func seconds(d time.Duration) float64 { return d.Seconds() }

// Partitions lists the partitions, in the order of the configuration.
func (c *Core) Partitions() []api.Partition {
	list := []api.Partition{}
	for i := range c.fleet.parts.list {
		p := &c.fleet.parts.list[i]
		d := api.Partition{
			Name: p.Name, Default: p.Default, State: p.State.String(), AllNodes: p.Nodes == nil, NodeList: model.CompressNodes(p.Nodes), Lenders: model.CompressNodes(p.Lenders),
			MaxTime: seconds(p.MaxTime), DefaultTime: seconds(p.DefaultTime), MinNodes: p.MinNodes, MaxNodes: p.MaxNodes, MaxCores: p.MaxCores, MaxGPUs: p.MaxGPUs,
			Tier: p.PriorityTier, Factor: p.PriorityJobFactor, PreemptMode: p.PreemptMode,
			AllowUsers: p.AllowUsers, AllowAccounts: p.AllowAccounts, AllowQOS: p.AllowQOS, DenyAccounts: p.DenyAccounts, DenyQOS: p.DenyQOS,
		}
		part := c.fleet.parts.of[p.Name]
		for _, n := range c.fleet.nodes {
			if n.removed {
				continue
			}
			if part.nodes == nil || part.nodes[n.name] {
				d.Nodes++
				d.Cores += n.cores
				d.GPUs += len(n.devices)
			}
			if part.reach == nil || part.reach[n.name] {
				d.RemoteGPUs += len(n.devices)
			}
		}
		list = append(list, d)
	}
	return list
}
