package head

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"muster/internal/indexset"
	"muster/model"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// maxLaunches is how often a job is started again after its start failed through no fault of its
// own.
const maxLaunches = 3

// taskName is the agents' name for a part of the job's present attempt.
func (j *job) taskName(part int) agent.Task {
	return agent.Task{Job: j.id, Attempt: j.nth, Part: int32(part)}
}

// begin starts an attempt with the allocation that the policy chose. If it borrows devices, its
// tasks start when all nodes that lend have confirmed (whenLent).
func (c *Core) begin(j *job, a *model.Allocation, alternative int) {
	c.starts++
	j.attempt = attempt{nth: j.nth + 1, starts: c.starts, start: c.now, alloc: cloned(a), alternative: alternative}
	spread(j.alloc)
	j.state = api.Running
	c.countPending(j, -1)
	c.count(j, false)
	c.running++
	j.tasks = make([]task, len(a.Parts))
	for i := range a.Parts {
		n := c.nodes[a.Parts[i].Node]
		j.tasks[i] = task{node: n, incarnation: n.incarnation, state: agent.Unknown}
		n.add(j)
	}
	c.borrow(j)
	c.bookStarted(j, c.now)
	c.setSignal(j)
	c.out.touch(j)
	c.happenedTo(j)
	if !j.lending {
		c.startTasks(j)
	}
}

func (n *node) add(j *job) {
	if n.jobs == nil {
		n.jobs = map[uint64]bool{}
	}
	n.jobs[j.id] = true
}

// borrow lists the nodes that lend devices to the job, and tells them to.
func (c *Core) borrow(j *job) {
	c.listLoans(j)
	for i := range j.loans {
		l := &j.loans[i]
		l.node.add(j)
		if l.node == j.tasks[l.part].node {
			l.lent = true // no need to wait: messages to a node arrive in order, so it hears of the loan before the task
		} else {
			j.lending = true
		}
		c.sendLend(j, l)
	}
}

// listLoans makes the list of a job's loans from its allocation. A part that uses devices of its
// own node has a loan from that node too.
func (c *Core) listLoans(j *job) {
	j.loans, j.lending = nil, false
	for part := range j.tasks {
		seen := map[int32]bool{}
		for _, d := range j.alloc.DevicesOf(part) {
			if !seen[d.Node] {
				seen[d.Node] = true
				j.loans = append(j.loans, loan{node: c.nodes[d.Node], part: int32(part)})
			}
		}
	}
}

func (c *Core) sendLend(j *job, l *loan) {
	g := c.grantOf(j, int(l.part))
	c.send(l.node, agent.Lend{Loan: g.Loan(l.node.name)}, 0)
}

// grantOf is the right of a part's processes to use devices; nil if the part has none.
func (c *Core) grantOf(j *job, part int) *grant.Grant {
	devices := j.alloc.DevicesOf(part)
	if len(devices) == 0 {
		return nil
	}
	g := &grant.Grant{ID: j.taskName(part).String(), User: j.user, Secret: j.credential(part), Limit: grant.AllDevices}
	for _, d := range devices {
		n := c.nodes[d.Node]
		device := grant.Device{Node: n.name, Device: int(d.Device), Memory: uint64(shareOf(j.alloc, part, d))}
		if n != j.tasks[part].node {
			device.Address = n.gateway
			g.Authority = c.cfg.Authority
		}
		g.Devices = append(g.Devices, device)
	}
	if j.limit >= 0 {
		g.Limit = min(j.limit, len(g.Devices))
	}
	if j.suspend {
		g.Limit = 0
	}
	return g
}

// credential is the secret of a part in the present attempt. It is derived from the job's secret,
// so it cannot be guessed, need not be stored, and differs in the next attempt.
func (j *job) credential(part int) grant.Credential {
	mac := hmac.New(sha256.New, []byte(j.secret))
	fmt.Fprint(mac, j.taskName(part))
	return grant.Credential(base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
}

// lent processes a node's answer to Lend: it serves the devices, or it cannot. again says whether
// the job may be started anew then.
func (c *Core) lent(n *node, m agent.Lent, again bool) {
	for _, id := range c.activeOn(n) {
		j := c.roster.jobs[id]
		for i := range j.loans {
			l := &j.loans[i]
			if l.node != n || j.taskName(int(l.part)).String() != m.ID || j.stop != nil {
				continue
			}
			c.answered(j, l, m.Error, again)
			return
		}
	}
}

// answered notes that a loan is confirmed, or ends the attempt: the lender has refused, or no
// program of the job could reach it.
func (c *Core) answered(j *job, l *loan, refusal string, again bool) {
	if refusal == "" {
		refusal = c.unreachable(j, l)
	}
	if refusal != "" {
		c.stopJob(j, stop{Cause: agent.NotBegun, Reason: fmt.Sprintf("node %s cannot lend its GPU: %s", l.node.name, refusal), Outcome: api.Failed, Requeue: again && j.requeues < maxLaunches})
		return
	}
	l.lent = true
	c.whenLent(j)
}

// unreachable says why programs on the borrower have no way to the lender; "" if they have one.
func (c *Core) unreachable(j *job, l *loan) string {
	switch {
	case l.node == j.tasks[l.part].node:
		return ""
	case l.node.gateway == "":
		return "other nodes cannot reach it: start it with --listen and --tls-dir"
	case c.cfg.Authority == "":
		return "the head has no authority that vouches for it: start the head with --tls-dir"
	}
	return ""
}

// whenLent starts the tasks of a job once all its loans are confirmed.
func (c *Core) whenLent(j *job) {
	if !j.lending {
		return
	}
	if !j.allLent() {
		return
	}
	j.lending = false
	c.out.touch(j)
	c.startTasks(j)
}

// lendAgain tells a node that has greeted of the loans that it does not know, and takes those that
// it knows as confirmed.
func (c *Core) lendAgain(j *job, n *node, has map[string]bool) {
	for i := range j.loans {
		l := &j.loans[i]
		if l.node != n {
			continue
		}
		if !has[j.taskName(int(l.part)).String()] {
			c.sendLend(j, l)
			continue
		}
		c.sendLimit(j, l) // the limit may have changed while the agent was away
		if !l.lent {
			c.answered(j, l, "", true)
		}
		if len(j.loans) == 0 { // the answer has ended the attempt
			return
		}
	}
}

// isLent says whether the head wants a node to lend something under this name.
func (c *Core) isLent(n *node, id string) bool {
	for _, number := range c.activeOn(n) {
		j := c.roster.jobs[number]
		for i := range j.loans {
			if l := &j.loans[i]; l.node == n && j.taskName(int(l.part)).String() == id {
				return true
			}
		}
	}
	return false
}

func (c *Core) startTasks(j *job) {
	for part := range j.tasks {
		c.sendStart(j, part)
	}
}

func (c *Core) sendStart(j *job, part int) {
	t := &j.tasks[part]
	c.send(t.node, agent.Start{Task: j.taskName(part), Incarnation: t.incarnation, Spec: c.specOf(j, part), Grant: c.grantOf(j, part)}, j.bulk())
}

// specOf is what a part runs, without what the bulk record holds.
func (c *Core) specOf(j *job, part int) agent.Spec {
	p := &j.alloc.Parts[part]
	r := j.request()
	b := &j.said.Batch
	name := j.tasks[part].node.name
	s := agent.Spec{
		Name: j.title(), User: j.user, Account: j.said.Account, Directory: j.dir,
		Nodes: j.nodeNames(), Cores: int(p.Cores), CoresPerProcess: max(1, r.Threads()), Memory: p.Memory,
		Time: j.timeLimit(c.cfg.TimeLimit), Grace: c.cfg.Grace,
		Input: j.file(b.Input, name), Output: j.file(j.output(), name), Error: j.file(b.Error, name), Append: b.Append || len(j.tasks) > 1 || j.nth > 1,
	}
	if j.task >= 0 {
		s.ArrayJob, s.ArrayTask = j.array, uint32(j.task)
	}
	s.Processes, s.First, s.All = j.processes(part)
	s.PerNode = j.perNode()
	return s
}

// processes is how many processes a part runs, the rank of the first of them, and how many the job
// has.
func (j *job) processes(part int) (here, first, all int) {
	counts := j.perNode()
	for i, n := range counts {
		if i < part {
			first += n
		}
		all += n
	}
	return counts[part], first, all
}

// perNode is how many processes each part of a job runs.
func (j *job) perNode() []int {
	parts := j.alloc.Parts
	all := j.request().Processes
	counts := make([]int, len(parts))
	if all <= 0 {
		for i := range counts {
			counts[i] = 1
		}
		return counts
	}
	if j.request().Nodes > 0 {
		for i := range counts {
			counts[i] = all / len(parts)
			if i < all%len(parts) {
				counts[i]++
			}
		}
	} else {
		// The job asked for cores, not nodes: each part runs as many processes as fit its cores,
		// and the last part runs the remainder.
		each, left := max(1, int32(j.request().Threads())), all
		for i := range counts {
			counts[i] = min(left, int(parts[i].Cores/each))
			left -= counts[i]
		}
		counts[len(counts)-1] += left
	}
	return counts
}

// report processes an agent's report on a task. A task that does not belong to a job's present
// attempt is stopped and forgotten (staleReport).
func (c *Core) report(n *node, r *agent.Report) {
	j := c.roster.jobs[r.Task.Job]
	part := int(r.Task.Part)
	if j == nil || !j.active() || r.Task.Attempt != j.nth || part >= len(j.tasks) || j.tasks[part].node != n || j.tasks[part].end != nil {
		c.staleReport(n, r)
		return
	}
	t := &j.tasks[part]
	switch r.State {
	case agent.Ended:
		c.taskEnded(j, part, r.End)
		c.send(n, agent.Done{Task: r.Task}, 0)
	case agent.Unknown:
		// The agent does not have the task. If it was told to stop it, it will not start it later
		// either.
		if j.stop != nil {
			c.taskEnded(j, part, &agent.End{Cause: j.stop.Cause, Reason: j.stop.Reason})
		} else if t.state == agent.Unknown && !j.lending {
			c.sendStart(j, part)
		}
	default:
		if t.state != r.State {
			t.state = r.State
			c.out.touch(j)
		}
		c.steer(j, part)
		c.whenSuspended(j)
	}
}

// staleReport handles a report on a task that the head no longer wants. The node takes nothing new
// until such tasks have ended, since they still use its cores and GPUs.
func (c *Core) staleReport(n *node, r *agent.Report) {
	switch r.State {
	case agent.Running, agent.Suspended:
		c.send(n, agent.Stop{Task: r.Task, Cause: agent.Stopped, Reason: "the head does not want it any more", Grace: c.cfg.Grace}, 0)
		if n.stale == nil {
			n.stale = map[agent.Task]bool{}
		}
		if len(n.stale) < agent.MaxTasks { // no honest agent has more
			n.stale[r.Task] = true
		}
	case agent.Ended:
		c.send(n, agent.Done{Task: r.Task}, 0)
		delete(n.stale, r.Task)
	default:
		delete(n.stale, r.Task)
	}
	c.setNodeState(n)
}

// steer tells an agent which state a task should have, if it has another.
func (c *Core) steer(j *job, part int) {
	t := &j.tasks[part]
	switch {
	case j.stop != nil:
		c.sendStop(j, part)
	case j.suspend && t.state == agent.Running:
		c.send(t.node, agent.Suspend{Task: j.taskName(part)}, 0)
	case !j.suspend && t.state == agent.Suspended:
		c.send(t.node, agent.Resume{Task: j.taskName(part)}, 0)
	}
}

func (c *Core) sendStop(j *job, part int) {
	c.send(j.tasks[part].node, agent.Stop{Task: j.taskName(part), Cause: j.stop.Cause, Reason: agent.Reason(j.stop.Reason), Grace: c.cfg.Grace}, 0)
}

// stopJob stops all tasks of an active job. The first stop decides the outcome.
func (c *Core) stopJob(j *job, s stop) {
	if j.stop != nil || !j.active() {
		return
	}
	j.stop = &s
	j.state = api.Completing
	c.out.touch(j)
	if j.lending { // no Start was sent: there is nothing to wait for
		j.lending = false
		for part := range j.tasks {
			if j.tasks[part].end == nil {
				j.tasks[part].end = &agent.End{Cause: s.Cause, Reason: s.Reason}
			}
		}
		c.finish(j)
		return
	}
	for part := range j.tasks {
		if j.tasks[part].end == nil {
			c.sendStop(j, part)
		}
	}
}

// taskEnded notes that a task has ended or was given up. With the last one the attempt is over.
func (c *Core) taskEnded(j *job, part int, end *agent.End) {
	t := &j.tasks[part]
	t.end, t.state = end, agent.Ended
	j.cpu += end.CPU
	j.peak = max(j.peak, end.Memory)
	c.out.touch(j)
	if !j.allEnded() {
		c.partEnded(j, part, end)
		c.whenSuspended(j)
		return
	}
	c.finish(j)
}

// partEnded decides what the end of one task means for the tasks that still run.
func (c *Core) partEnded(j *job, part int, end *agent.End) {
	switch {
	case end.Cause == agent.NodeLost:
		c.stopJob(j, stop{Cause: agent.Abandoned, Reason: end.Reason, Outcome: api.NodeFail, Requeue: j.said.Batch.Requeue})
	case end.Cause == agent.NotBegun, end.Cause == agent.NotReady:
		c.stopJob(j, stop{Cause: agent.Abandoned, Reason: end.Reason, Outcome: api.Failed})
	case end.Cause == agent.TimedOut, end.Cause == agent.NoMemory:
		c.stopJob(j, stop{Cause: end.Cause, Reason: end.Reason})
	case part == 0 && j.script():
		c.stopJob(j, stop{Cause: agent.Stopped, Reason: "its script has ended"})
	}
}

// finish ends an attempt all of whose tasks have ended. It concludes first, while j.stop and the
// ends of the tasks are there, and then frees what the attempt held: the policy may use that from
// the next step on.
func (c *Core) finish(j *job) {
	again := c.conclude(j)
	c.release(j)
	c.running--
	j.end = c.now
	j.awake(c.now)
	if again {
		c.requeue(j)
		return
	}
	c.mustState(c.state.End(j.number))
	c.stepDue = true
	c.settleEnded(j)
}

// conclude decides how the job ended, and whether it is started anew.
func (c *Core) conclude(j *job) (again bool) {
	may := j.held&heldByAdmin == 0
	v := j.verdict(j.said.Batch.Requeue, may, may && j.requeues < maxLaunches)
	j.exit, j.signal, j.reason = v.exit, v.signal, v.reason
	if !v.again {
		j.state = v.state
	}
	return v.again
}

// release returns what an attempt borrowed, and removes the job from its nodes' lists.
func (c *Core) release(j *job) {
	for i := range j.loans {
		l := &j.loans[i]
		c.send(l.node, agent.Unlend{ID: j.taskName(int(l.part)).String()}, 0)
		delete(l.node.jobs, j.id)
	}
	for i := range j.tasks {
		delete(j.tasks[i].node.jobs, j.id)
	}
	j.loans, j.lending = nil, false
}

// requeue makes a job wait again. It keeps its places at the gates.
func (c *Core) requeue(j *job) {
	j.requeues++
	j.state = api.Pending
	j.takeBack()
	c.countPending(j, 1)
	c.count(j, true)
	j.gate = atPolicy
	err := c.state.Requeue(j.number)
	switch {
	case errors.Is(err, policy.ErrImpossible):
		// Nodes or devices that it needs are gone: it waits until others join.
		delete(c.numbered, j.number)
		j.number = -1
		c.isImpossible(j, err)
	default:
		c.mustState(err)
		c.bookSubmitted(j)
	}
	if c.chooses(j) { // the nodes that it may use may have changed since it was submitted to the policy
		c.offerAfresh(j)
	}
	if j.number < 0 {
		c.ranking.stopped(j.id, c.now)
	}
	c.stepDue = true
	c.out.touch(j)
	if j.held != 0 {
		c.advanceJob(j)
	}
	if d := &j.said.Batch.Deadline; d.Set && c.moment(d, j) <= c.now { // its timer rang while the tasks were being stopped
		c.late(j)
	}
}

// settleEnded does what follows from a job's end, whether the job ever ran or not.
func (c *Core) settleEnded(j *job) {
	j.unmet = nil
	if j.number >= 0 {
		delete(c.numbered, j.number)
		j.number = -1
	}
	c.ranking.gone(j.id, c.now)
	c.count(j, false)
	c.giveBack(j)
	u := c.user(j.user)
	u.jobs -= j.size()
	a := c.roster.arrays[j.array]
	if a != nil {
		c.taskOver(a, j)
	}
	if a == nil || a.live == 0 {
		c.records--
		u.records--
	}
	c.out.touch(j)
	c.happenedTo(j)
	c.keepEnded(j)
}

// taskOver notes that a task of an array has ended, or the tasks of a rest.
func (c *Core) taskOver(a *array, j *job) {
	c.readEnds(a)
	into := &a.late.bad
	if j.state == api.Completed {
		into = &a.late.ok
	}
	places := j.rest
	if places != nil {
		a.ends.Rests = append(a.ends.Rests, j.id)
	} else {
		one := indexset.Of(int(j.id-a.id), int(j.id-a.id)+1)
		places = &one
	}
	*into = append(*into, places)
	c.out.ended(a)
	a.end(j.state, j.size())
	if a.live -= j.size(); a.live == 0 {
		a.last = j.id
		delete(c.roster.arrays, a.id)
		c.roster.over[a.id] = a
	}
}

// whenSuspended notes that all tasks of a job that is to be suspended have stopped. Only then may
// the policy give its cores and GPUs to others.
func (c *Core) whenSuspended(j *job) {
	if !j.suspend || j.state != api.Running || j.stop != nil {
		return
	}
	if !j.allStopped() {
		return
	}
	c.mustState(c.state.Suspended(j.number))
	c.ranking.stopped(j.id, c.now)
	j.state, j.asleep, j.suspendedSince = api.Suspended, true, c.now
	c.stepDue = true
	c.out.touch(j)
}
