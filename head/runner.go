package head

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/head/record"
	"muster/model"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
)

// runner starts attempts, steers them, and ends them: it tells agents what to do.
type runner struct {
	ground
	desk    *desk
	queue   *queue
	lending *lending
}

// signal sends a signal to all tasks of a job that have not ended.
func (run *runner) signal(j *job, number int) {
	for part := range j.tasks {
		if t := &j.tasks[part]; t.end == nil {
			run.out.post(t.node, agent.Signal{Task: j.taskName(part), Signal: number})
		}
	}
}

// late ends a job whose deadline has passed.
func (run *runner) late(j *job) {
	if j.active() {
		run.stopJob(j, stop{Cause: agent.TimedOut, Reason: "its deadline has passed", Outcome: api.Timeout})
		return
	}
	run.cancelJob(j, "its deadline has passed")
}

// setSignal sets the timer for the signal that a job's user wants some time before the time limit.
// If that instant has passed (the job is restored), no signal is sent, unless it is the start
// itself.
func (run *runner) setSignal(j *job) {
	s, limit := j.said.Batch.Signal, j.left(j.timeLimit(run.cfg.TimeLimit))
	if s == nil || limit == 0 {
		return
	}
	if at := j.start + max(0, limit-s.Before); at > run.now || at == j.start {
		run.timers.set(timer{at: at, what: ringSignal, job: j.id, attempt: j.nth})
	}
}

// cancelJob ends a job that waits, or has a job that runs stopped.
func (run *runner) cancelJob(j *job, reason string) {
	if j.active() {
		if j.stop != nil { // its tasks are being stopped already: make sure that the job is not requeued
			j.stop.Requeue, j.stop.Outcome, j.stop.Reason = false, api.Cancelled, reason
			run.out.touch(j)
			return
		}
		run.stopJob(j, stop{Cause: agent.Stopped, Reason: reason, Outcome: api.Cancelled})
		return
	}
	run.queue.cancelWaiting(j, reason)
}

func (run *runner) suspendJob(j *job) {
	j.suspend = true
	run.out.touch(j)
	run.lending.sendLimits(j)
	for part := range j.tasks {
		if j.tasks[part].end == nil {
			run.steer(j, part)
		}
	}
	run.whenSuspended(j)
}

// resumeJob resumes a suspended job if the cores and GPUs that it had are free. A job whose tasks
// have not all been suspended yet still has them.
func (run *runner) resumeJob(j *job) bool {
	if j.state == api.Suspended {
		if err := run.desk.state.Resumed(j.number); err != nil {
			return false
		}
	}
	run.goOn(j)
	return true
}

// goOn resumes the tasks of a job that has its cores and GPUs back.
func (run *runner) goOn(j *job) {
	j.awake(run.now)
	j.unwanted()
	if j.state == api.Suspended {
		run.desk.bookStarted(j, run.now)
	}
	j.state, j.suspend, j.byHand, j.asleep = api.Running, false, false, false
	run.out.touch(j)
	run.lending.sendLimits(j)
	for part := range j.tasks {
		if t := &j.tasks[part]; t.end == nil {
			run.out.post(t.node, agent.Resume{Task: j.taskName(part)})
		}
	}
}

// awaits says whether a node that greets is still to be told of a loan or a task of a job.
func (run *runner) awaits(j *job, n *node, known map[agent.Task]bool, loans map[string]bool) bool {
	if j.stop != nil {
		return false
	}
	for i := range j.loans {
		if l := &j.loans[i]; l.node == n && !loans[j.taskName(int(l.part)).String()] && (!l.home || j.mayTellHome(l.part)) {
			return true
		}
	}
	for part := range j.tasks {
		if t := &j.tasks[part]; t.node == n && t.end == nil && t.state == agent.Unknown && !j.lending && !known[j.taskName(part)] {
			return true
		}
	}
	return false
}

// blame notes that a node hung up when it was told to start a job, and ends the attempt if that
// happens again and again. An agent reads in order, and remembers what it has read: so only the
// first job that it does not know can be the reason.
func (run *runner) blame(j *job, n *node) {
	if j.blamed++; j.blamed >= maxLaunches {
		run.stopJob(j, stop{
			Cause: agent.NotBegun, Reason: fmt.Sprintf("node %s hung up again and again when it was told to start it: %s", n.name, n.left),
			Outcome: api.Failed, Requeue: j.requeues < maxLaunches,
		})
	}
}

// missing handles a task that its agent does not know. A task that the agent has reported before is
// lost. Any other was never started, or its Start was lost, and is started now.
func (run *runner) missing(j *job, part int) {
	t := &j.tasks[part]
	switch {
	case t.state != agent.Unknown:
		run.taskEnded(j, part, &agent.End{Cause: agent.NodeLost, Reason: "the node has forgotten the task"})
	case j.stop != nil:
		// A Start may still be on its way from an earlier connection. So the agent must be told
		// that the task is not wanted, and reports that; only then is the task over.
		run.sendStop(j, part)
	case !j.lending:
		run.sendStart(j, part)
	}
}

// preempt stops a running job in favour of another, in the way that the policy chose.
func (run *runner) preempt(j *job, st policy.Stop) {
	reason := "preempted"
	if o := run.desk.numbered[st.For]; o != nil {
		reason = "preempted by job " + o.name()
	}
	run.notePreempted(j, st)
	switch st.How {
	case policy.Move:
		run.move(j)
	case policy.Suspend:
		run.suspendJob(j)
	case policy.Requeue:
		run.stopJob(j, stop{Cause: agent.Stopped, Reason: reason, Requeue: true})
	default:
		run.stopJob(j, stop{Cause: agent.Stopped, Reason: reason, Outcome: api.Preempted})
	}
}

// maxPreempted is how many times are kept at which a job made way for another.
const maxPreempted = 16

// notePreempted notes which attempt of a job makes way, for whom and why.
func (run *runner) notePreempted(j *job, st policy.Stop) {
	p := record.Preemption{At: run.now, How: st.How.String(), Reason: "the policy stops it", Attempt: j.nth, Start: j.start, Nodes: j.nodeNames()}
	if o := run.desk.numbered[st.For]; o != nil {
		p.By, p.ByUser, p.Reason = o.name(), o.user, "it makes way for job "+o.name()
		if mine, other := j.said.QOS, o.said.QOS; mine != other {
			p.Reason += fmt.Sprintf(": class %s may stop class %s", cmp.Or(other, "none"), cmp.Or(mine, "none"))
		}
	}
	for part := range j.alloc.Parts {
		for _, d := range j.alloc.DevicesOf(part) {
			p.Devices = append(p.Devices, fmt.Sprintf("%s:%d", run.fleet.nodes[d.Node].name, d.Device))
		}
	}
	if n := len(j.preempted); n > 0 { // asked again, since it has not made way yet
		if last := &j.preempted[n-1]; last.Attempt == p.Attempt && last.By == p.By && last.How == p.How {
			return
		}
	}
	j.preempted = append(j.preempted[max(0, len(j.preempted)+1-maxPreempted):], p)
	run.out.touch(j)
}

// maxLaunches is how often a job is started again after its start failed through no fault of its
// own.
const maxLaunches = 3

// begin starts an attempt with the allocation that the policy chose. If it borrows devices, its
// tasks start when all nodes that lend have confirmed (whenLent).
func (run *runner) begin(j *job, a *model.Allocation, alternative int) {
	run.roster.starts++
	j.attempt = attempt{nth: j.nth + 1, starts: run.roster.starts, start: run.now, usual: run.cfg.Holds, alloc: &model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}, alternative: j.grantedAs(alternative)}
	spread(j.alloc)
	j.state = api.Running
	run.roster.countPending(j, -1)
	run.desk.count(j, false)
	run.roster.running++
	j.tasks = make([]task, len(a.Parts))
	for i := range a.Parts {
		n := run.fleet.nodes[a.Parts[i].Node]
		j.tasks[i] = task{node: n, incarnation: n.incarnation, state: agent.Unknown}
		n.add(j)
	}
	run.borrow(j)
	run.desk.bookStarted(j, run.now)
	run.setSignal(j)
	run.awaitLoans(j)
	run.out.touch(j)
	run.queue.happenedTo(j)
	if !j.lending {
		run.startTasks(j)
	}
}

// borrow lists the nodes that lend devices to the job, and tells them to.
func (run *runner) borrow(j *job) {
	run.lending.listLoans(j)
	for i := range j.loans {
		l := &j.loans[i]
		l.node.add(j)
		switch {
		case l.home:
			j.lending = true
			continue
		case l.node == j.tasks[l.part].node:
			l.lent = true // no need to wait: messages to a node arrive in order, so it hears of the loan before the task
		default:
			j.lending = true
		}
		run.lending.sendLend(j, l)
	}
	run.lending.tellHomes(j)
}

// awaitLoans has it looked whether nodes have answered, when a node that was away would be given up.
func (run *runner) awaitLoans(j *job) {
	if j.lending {
		run.timers.set(timer{at: run.now + run.cfg.NodeTimeout, what: ringLoans, job: j.id, attempt: j.nth})
	}
}

// unanswered takes the silence of nodes that are connected for a refusal. Those that are away are given up by
// another timer.
func (run *runner) unanswered(j *job) {
	refused := slices.Clone(j.loans)
	for _, l := range refused {
		if !j.lending || j.stop != nil {
			return
		}
		if l.told && !l.lent && l.node.connected() && run.now >= l.asked+run.cfg.NodeTimeout {
			run.lent(l.node, agent.Lent{ID: j.taskName(int(l.part)).String(), Error: fmt.Sprintf("it is connected, and has not answered for %v", run.cfg.NodeTimeout)}, true)
		}
	}
	run.awaitLoans(j)
}

// useRelays has the programs of a part joined to the nodes of its devices by relays, since its own node cannot have
// the devices. It is told of its own devices alone, if the part has any.
func (run *runner) useRelays(j *job, l *loan, why string) {
	j.relays = append(j.relays, relay{l.part, agent.Reason(fmt.Sprintf("GPUs of other nodes are used by relays, since node %s cannot have them as its own: %s", l.node.name, why))})
	l.home = false
	own := len(run.lending.loanOf(j, l).Devices) > 0
	if l.lent = true; own {
		run.lending.sendLend(j, l)
	} else {
		j.loans = slices.DeleteFunc(j.loans, func(o loan) bool { return o.node == l.node && o.part == l.part })
	}
	run.out.touch(j)
	run.whenLent(j)
}

// lent processes a node's answer to Lend: it serves the devices, or it cannot. again says whether
// the job may be started anew then.
func (run *runner) lent(n *node, m agent.Lent, again bool) {
	for _, id := range n.activeJobs() {
		j := run.roster.jobs[id]
		for i := range j.loans {
			l := &j.loans[i]
			if l.node != n || j.taskName(int(l.part)).String() != m.ID || j.stop != nil {
				continue
			}
			run.answered(j, l, m.Error, again)
			return
		}
	}
}

// answered notes that a loan is confirmed, or ends the attempt: the lender has refused, or no
// program of the job could reach it. What the programs can do without ends nothing: a home that cannot have the
// devices of others, before the programs start, and a lender whose device is one of those that a home has.
func (run *runner) answered(j *job, l *loan, refusal string, again bool) {
	if refusal == "" {
		refusal = run.lending.unreachable(j, l)
	}
	switch {
	case refusal != "" && l.home && !l.lent:
		run.useRelays(j, l, refusal)
		return
	case refusal != "" && run.lending.canDoWithout(j, l):
		run.lending.troubled(j, l, refusal)
		return
	case refusal != "":
		run.stopJob(j, stop{Cause: agent.NotBegun, Reason: fmt.Sprintf("node %s cannot %s: %s", l.node.name, run.lending.what(j, l), refusal), Outcome: api.Failed, Requeue: again && j.requeues < maxLaunches})
		return
	}
	l.lent = true
	run.lending.troubled(j, l, "")
	run.whenLent(j)
}

// whenLent starts the tasks of a job once all its loans are confirmed.
func (run *runner) whenLent(j *job) {
	if !j.lending {
		return
	}
	run.lending.tellHomes(j)
	if !j.allLent() {
		return
	}
	j.lending = false
	run.out.touch(j)
	run.startTasks(j)
}

// lendAgain tells a node that has greeted of the loans that it does not know, and takes those that
// it knows as confirmed.
func (run *runner) lendAgain(j *job, n *node, has map[string]bool) {
	for i := range j.loans {
		l := &j.loans[i]
		if l.node != n {
			continue
		}
		if !has[j.taskName(int(l.part)).String()] {
			if !l.home || j.mayTellHome(l.part) {
				run.lending.sendLend(j, l)
			}
			continue
		}
		run.lending.sendLimit(j, l) // the limit may have changed while the agent was away
		if !l.lent || l.trouble != "" {
			run.answered(j, l, "", true)
		}
		if len(j.loans) == 0 { // the answer has ended the attempt
			return
		}
	}
}

func (run *runner) startTasks(j *job) {
	for part := range j.tasks {
		run.sendStart(j, part)
	}
}

func (run *runner) sendStart(j *job, part int) {
	t := &j.tasks[part]
	run.out.post(t.node, agent.Start{Task: j.taskName(part), Incarnation: t.incarnation, Spec: run.specOf(j, part), Grant: run.lending.grantOf(j, part), From: j.passage.from})
}

// specOf is what a part runs, without what the bulk record holds; its variables go before those there.
func (run *runner) specOf(j *job, part int) agent.Spec {
	p := &j.alloc.Parts[part]
	r := j.request()
	b := &j.said.Batch
	name := j.onNode(j.tasks[part].node.name)
	s := agent.Spec{
		Name: j.title(), User: j.user, Account: j.said.Account, Directory: j.dir,
		Nodes: j.nodeNames(), Cores: int(p.Cores), CoresPerProcess: max(1, r.Threads()), Memory: p.Memory,
		Time: j.left(j.timeLimit(run.cfg.TimeLimit)), Grace: run.cfg.Grace,
		Input: j.file(b.Input, name), Output: j.file(j.output(), name), Error: j.file(b.Error, name), Append: b.Append || len(j.tasks) > 1 || j.nth > 1,
	}
	if m := j.said.GPU.Mapping; m != "" {
		s.Environment = []string{"MUSTER_MAPPING=" + m}
	}
	if j.task >= 0 {
		s.ArrayJob, s.ArrayTask = j.array, uint32(j.task)
	}
	s.Processes, s.First, s.All = j.processes(part)
	if j.allocation() {
		s.Processes = 0
	}
	s.PerNode = j.perNode()
	return s
}

// steer tells an agent which state a task should have, if it has another.
func (run *runner) steer(j *job, part int) {
	t := &j.tasks[part]
	switch {
	case j.stop != nil:
		run.sendStop(j, part)
	case j.suspend && (t.state == agent.Starting || t.state == agent.Running):
		run.out.post(t.node, agent.Suspend{Task: j.taskName(part)})
	case !j.suspend && t.state == agent.Suspended:
		run.out.post(t.node, agent.Resume{Task: j.taskName(part)})
	case j.suspend:
		run.save(j)
	}
}

func (run *runner) sendStop(j *job, part int) {
	grace := run.cfg.Grace
	if j.isSaved() { // what it would still do would be done twice
		grace = 0
	}
	run.out.post(j.tasks[part].node, agent.Stop{Task: j.taskName(part), Cause: j.stop.Cause, Reason: agent.Reason(j.stop.Reason), Grace: grace})
}

// stopJob stops all tasks of an active job. The first stop decides the outcome.
func (run *runner) stopJob(j *job, s stop) {
	if j.stop != nil || !j.active() {
		return
	}
	j.unwanted()
	if s.Requeue && j.allocation() { // its command would not know that it waits again
		s.Requeue, s.Outcome = false, cmp.Or(s.Outcome, api.Preempted)
	}
	j.stop = &s
	j.state = api.Completing
	run.desk.park(j)
	run.out.touch(j)
	if j.lending { // no Start was sent: there is nothing to wait for
		j.lending = false
		for part := range j.tasks {
			if j.tasks[part].end == nil {
				j.tasks[part].end = &agent.End{Cause: s.Cause, Reason: s.Reason}
			}
		}
		run.finish(j)
		return
	}
	for part := range j.tasks {
		if j.tasks[part].end == nil {
			run.sendStop(j, part)
		}
	}
}

// taskEnded notes that a task has ended or was given up. With the last one the attempt is over.
func (run *runner) taskEnded(j *job, part int, end *agent.End) {
	t := &j.tasks[part]
	t.end, t.state = end, agent.Ended
	j.cpu += end.CPU
	j.peak = max(j.peak, end.Memory)
	run.out.touch(j)
	if !j.allEnded() {
		run.partEnded(j, part, end)
		run.whenSuspended(j)
		return
	}
	run.finish(j)
}

// partEnded decides what the end of one task means for the tasks that still run.
func (run *runner) partEnded(j *job, part int, end *agent.End) {
	switch {
	case end.Cause == agent.NodeLost:
		run.stopJob(j, stop{Cause: agent.Abandoned, Reason: end.Reason, Outcome: api.NodeFail, Requeue: j.said.Batch.Requeue})
	case end.Cause == agent.NotBegun, end.Cause == agent.NotReady:
		run.stopJob(j, stop{Cause: agent.Abandoned, Reason: end.Reason, Outcome: api.Failed})
	case end.Cause == agent.TimedOut, end.Cause == agent.NoMemory:
		run.stopJob(j, stop{Cause: end.Cause, Reason: end.Reason})
	case part == 0 && j.script():
		run.stopJob(j, stop{Cause: agent.Stopped, Reason: "its script has ended"})
	}
}

// finish ends an attempt all of whose tasks have ended. It concludes first, while j.stop and the
// ends of the tasks are there, and then frees what the attempt held: the policy may use that from
// the next step on.
func (run *runner) finish(j *job) {
	saved := j.passage.wanted && j.asleep // in part, and nobody says so
	if saved {
		j.unwanted()
	}
	run.desk.comesBack(j)
	again := j.conclude()
	if j.state == api.Failed && j.reason == "" {
		j.reason = j.lenderAway()
	}
	run.release(j)
	run.roster.running--
	j.end = run.now
	j.awake(run.now)
	if again {
		if saved {
			run.fleet.discard(run.out, j)
		}
		run.requeue(j)
		return
	}
	must(run.desk.state.End(j.number))
	run.desk.due()
	run.queue.settleEnded(j)
}

// release returns what an attempt borrowed, and removes the job from its nodes' lists.
func (run *runner) release(j *job) {
	for i := range j.loans {
		l := &j.loans[i]
		run.out.post(l.node, agent.Unlend{ID: j.taskName(int(l.part)).String()})
		delete(l.node.jobs, j.id)
	}
	for i := range j.tasks {
		delete(j.tasks[i].node.jobs, j.id)
	}
	j.loans, j.lending = nil, false
}

// requeue makes a job wait again. It keeps its places at the gates.
func (run *runner) requeue(j *job) {
	moved := j.passage.attempt > 0 // the policy has it with the nodes and the time of what was saved
	if j.passage.from == "" {
		j.requeues++
		j.passage.forget()
		if j.stop != nil && j.stop.Cause == agent.NotBegun { // what was in its way may pass
			j.notBefore = run.now + min(time.Second<<min(j.requeues-1, 10), time.Minute)
		}
	}
	j.state = api.Pending
	j.takeBack()
	run.roster.countPending(j, 1)
	run.desk.count(j, true)
	j.gate = atPolicy
	err := run.desk.state.Requeue(j.number)
	switch {
	case errors.Is(err, policy.ErrImpossible):
		// Nodes or devices that it needs are gone: it waits until others join.
		delete(run.desk.numbered, j.number)
		j.number = -1
		run.desk.isImpossible(j, err)
	default:
		must(err)
		run.desk.bookSubmitted(j)
	}
	if moved || run.fleet.chooses(j) || run.fleet.parts.ever { // the nodes that it may use may have changed since it was submitted to the policy
		run.desk.offerAfresh(j)
	}
	if j.number < 0 {
		run.desk.ranking.Stopped(j.id, run.now)
	}
	run.desk.due()
	run.out.touch(j)
	if j.notBefore > run.now {
		turn := j.turn
		run.queue.leave(j)
		j.turn = turn // it stands where it stood
	}
	if j.held != 0 || j.notBefore > run.now {
		run.queue.advanceJob(j)
	}
	if d := &j.said.Batch.Deadline; d.Set && run.moment(d, j) <= run.now { // its timer rang while the tasks were being stopped
		run.late(j)
	}
}

// whenSuspended notes that all tasks of a job that is to be suspended have stopped. Only then may
// the policy give its cores and GPUs to others.
func (run *runner) whenSuspended(j *job) {
	if !j.suspend || j.state != api.Running || j.stop != nil || !j.allStopped() {
		return
	}
	must(run.desk.state.Suspended(j.number))
	run.desk.ranking.Stopped(j.id, run.now)
	j.state, j.asleep, j.suspendedSince = api.Suspended, true, run.now
	run.lending.limitLenders(j)
	run.desk.park(j)
	run.desk.due()
	run.out.touch(j)
	if slices.ContainsFunc(j.alloc.Grants, func(g model.Grant) bool { return run.fleet.nodes[g.Node].removed }) {
		run.stopJob(j, stop{Cause: agent.NodeLost, Reason: "it cannot go on with a GPU of a node that was removed", Outcome: api.NodeFail, Requeue: j.said.Batch.Requeue})
		return
	}
	run.save(j)
}
