package head

import (
	"encoding/binary"
	"fmt"
	"slices"

	"muster/head/record"
	"muster/internal/units"
	"muster/model"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
)

// agents is what is said to the head by those on the nodes: it keeps the fleet as they say it is, and
// compares what runs there with what should.
type agents struct {
	ground
	desk    *desk
	lending *lending
	runner  *runner
	views   *views
	// ended reads the record of a job that has ended; nil if there is none. It may be nil itself.
	ended func(job uint64) *record.Ended
}

// greeted processes an agent's greeting: what the node has, and which tasks and loans its agent
// knows. A name belongs to one machine at a time. The machine is recognised by the incarnation,
// which is that of its spool. The same name with another incarnation is refused while the old one
// is connected, and afterwards means that the tasks there are lost. A node whose hardware has
// changed gets a new number with the policy, because the policy's books cannot shrink a node.
func (a *agents) greeted(s Session, h agent.Hello) {
	refuse := func(format string, args ...any) {
		a.out.send(s, agent.Refused{Reason: fmt.Sprintf(format, args...)})
		a.out.hangUp(s)
	}
	if h.Version != agent.Version {
		refuse("this head speaks version %d, and the agent version %d: install the same Muster on both", agent.Version, h.Version)
		return
	}
	a.skipNumbers(&h)
	n := a.fleet.byName[h.Node]
	if a.fleet.retired[h.Node] >= maxRetired && (n == nil || !n.sameMachine(&h)) {
		refuse("node %s has come with other cores, memory or devices, or was removed, %d times: find out why, and give it another name", h.Node, maxRetired)
		return
	}
	if n != nil && n.session != 0 && n.incarnation != h.Incarnation {
		// Either two machines have this name, or one machine has lost its spool and the head has
		// not noticed yet that the old connection is dead. In the first case the tasks on the
		// connected machine must not be given up.
		refuse("node %s is connected already, with another spool: give one of the two another name; if there is one only, its old connection is given up within a minute or so", h.Node)
		return
	}
	if n != nil && n.session != 0 {
		// The agent has reconnected before the head noticed that the old connection had ended.
		a.out.hangUp(n.session)
		a.fleet.close(n, a.now, "it connected anew")
	}
	if n != nil && n.incarnation != h.Incarnation {
		a.loseTasks(n, "the node came back without its spool")
		n.incarnation = h.Incarnation
	}
	if n == nil || !n.sameMachine(&h) {
		var err error
		if n, err = a.addNode(n, &h); err != nil {
			refuse("%v", err)
			return
		}
	} else if n.user != h.User || n.checkpoints != h.Checkpoints {
		a.desk.offerAgain()
	}
	n.checkpoints, n.noCheckpoints = h.Checkpoints, h.NoCheckpoints
	n.trouble, n.gateway, n.down = "", h.Gateway, n.down && n.mute
	if a.fleet.open(s, n, h.User) {
		a.desk.offerAll() // the policy decides nothing before all jobs know which nodes they may use
	}
	a.out.post(n, agent.Welcome{Cluster: a.cfg.Cluster, Silence: a.cfg.Silence, Heads: a.cfg.Heads, Term: a.cfg.Term})
	a.inventory(n, h.Devices)
	a.recount(n)
	a.desk.clusterChanged()
	a.fleet.unsettle(n)
	a.hear(n)
	a.compare(n, &h)
	a.touchNode(n)
}

// maxRetired is how many numbers of one node may be retired. The core keeps them for ever, so a
// node that lies about what it has must not retire numbers without bound.
const maxRetired = 1000

// maxSkipped is how many job numbers one greeting may skip, so that a node that lies cannot use
// them up.
const maxSkipped = 10_000_000

// skipNumbers skips job numbers that a node remembers and this head does not know. The head was
// restored from a backup then, and had given those numbers to other jobs before.
func (a *agents) skipNumbers(h *agent.Hello) {
	if h.Cluster == a.cfg.Cluster && h.Last >= a.roster.next && h.Last-a.roster.next < maxSkipped {
		a.roster.next = h.Last + 1
		a.out.write(metaRecord(a.began, a.roster.next))
	}
}

// addNode adds a node to the policy: a new one, or a new number for one whose hardware has changed.
func (a *agents) addNode(old *node, h *agent.Hello) (*node, error) {
	n := &node{name: h.Node, incarnation: h.Incarnation, cores: h.Cores, memory: h.Memory, devices: slices.Clone(h.Devices), since: a.now}
	if old != nil {
		n.drain, n.since, n.mute, n.down = old.drain, old.since, old.mute, old.down
		a.retire(old)
		a.loseTasks(old, "the node came back with other cores, memory or devices")
	}
	if err := a.join(n); err != nil {
		return nil, err
	}
	a.desk.offerAgain()
	return n, nil
}

// join gives a node an alias and a number with the policy.
func (a *agents) join(n *node) error {
	n.alias, n.features = a.fleet.alias(n.name), a.desk.featuresOf(n.name)
	var all []model.GPUType
	for i := range n.devices {
		all = append(all, a.fleet.gpuType(&n.devices[i]))
	}
	types, gpus := model.DistinctTypes(all)
	number, err := a.desk.state.AddNode(model.Node{Name: n.alias, Cores: n.cores, Memory: n.memory, GPUs: gpus, Weight: a.desk.weightOf(n.name)}, types...)
	if err != nil {
		return err
	}
	n.number = number
	a.fleet.add(n)
	a.desk.retryImpossible()
	return nil
}

// retire takes a node's number out of use for ever, and disconnects the agent. Records of running
// and ended jobs refer to nodes by number, so numbers are never given again.
func (a *agents) retire(n *node) {
	must(a.desk.state.SetNode(n.number, policy.NodeDown))
	a.logTurn(n, policy.NodeDown)
	if n.session != 0 {
		a.out.hangUp(n.session)
	}
	a.fleet.retire(n)
	a.out.write(a.views.nodeRecord(n)) // kept: numbers are positions, and Restore needs all of them
	a.recount(n)
}

// inventory takes over which of a node's devices are up, and adds devices that are new.
func (a *agents) inventory(n *node, devices []agent.Device) {
	n.said = slices.Clone(devices)
	for i := range devices {
		d := &devices[i]
		up := d.Up && !a.fleet.lentWithin(n, d)
		switch {
		case i >= len(n.devices):
			must(a.desk.state.AddDevices(n.number, []int{0}, a.fleet.gpuType(d)))
			n.devices = append(n.devices, *d)
		case !sameDevice(&n.devices[i], d):
			up = false // another device has this number now: the policy must place nothing on it
		}
		n.devices[i].Up, n.devices[i].Lender = up, d.Lender
		must(a.desk.state.SetDevice(n.number, int32(i), up))
	}
	for i := len(devices); i < len(n.devices); i++ {
		n.devices[i].Up = false
		must(a.desk.state.SetDevice(n.number, int32(i), false))
	}
	a.desk.due()
	a.desk.retryImpossible()
}

// recount looks again at devices that a node lends to others of the cluster, after it came or was
// removed.
func (a *agents) recount(lender *node) {
	for _, n := range a.fleet.nodes {
		if n != lender && !n.removed && slices.ContainsFunc(n.said, func(d agent.Device) bool {
			return d.Lender != "" && (d.Lender == lender.name || d.Lender == lender.gateway)
		}) {
			a.inventory(n, n.said)
			a.touchNode(n)
		}
	}
}

// setNodeState tells the policy whether it may use a node, and logs the change. A node that is
// away, takes no tasks for now, or on which tasks of lost attempts still run, is draining: what runs there continues.
func (a *agents) setNodeState(n *node) {
	state := policy.NodeUp
	switch {
	case n.down || n.removed:
		state = policy.NodeDown
	case n.drained || n.trouble != "" || !n.connected() || len(n.stale) > 0:
		state = policy.NodeDraining
	}
	must(a.desk.state.SetNode(n.number, state))
	a.logTurn(n, state)
	a.desk.due()
}

// compare reconciles what an agent has with what it should have. This replaces all messages that
// were lost while the agent was away, in both directions.
func (a *agents) compare(n *node, h *agent.Hello) {
	known := make(map[agent.Task]bool, len(h.Tasks))
	for i := range h.Tasks {
		known[h.Tasks[i].Task] = true
	}
	loans := make(map[string]bool, len(h.Loans))
	for _, id := range h.Loans {
		loans[id] = true
	}
	for _, id := range h.Loans {
		if !a.lending.isLent(n, id) {
			a.out.post(n, agent.Unlend{ID: id})
		}
	}
	// Send what the agent should have and does not, loans first: messages arrive in order, so a
	// task finds its devices.
	blame := n.mute
	for _, id := range n.activeJobs() {
		j := a.roster.jobs[id]
		if p := &j.passage; p.used != "" && p.shared == n.checkpoints {
			a.out.post(n, agent.Discard{Folder: p.used})
		}
		if blame && a.runner.awaits(j, n, known, loans) {
			blame = false
			if a.runner.blame(j, n); j.stop != nil {
				continue
			}
		}
		if j.stop == nil {
			a.runner.lendAgain(j, n, loans)
		}
		for part := 0; part < len(j.tasks); part++ { // taskEnded may requeue the job, which then has no tasks
			t := &j.tasks[part]
			if t.node == n && t.end == nil && !known[j.taskName(part)] {
				a.runner.missing(j, part)
			}
		}
	}
	// The reports below fill stale again, with what still runs.
	n.stale = nil
	for i := range h.Tasks {
		a.report(n, &h.Tasks[i])
	}
	a.setNodeState(n)
	a.out.post(n, agent.Ping{}) // its answer says that the agent has read all of this
}

// said processes a message of an agent that has greeted.
func (a *agents) said(s Session, m agent.ToHead) {
	n := a.fleet.sessions[s]
	if n == nil {
		return // the core has closed this session; the message was still on its way
	}
	a.hear(n)
	switch m := m.(type) {
	case agent.Pong:
		a.heardAll(n)
	case agent.Report:
		a.report(n, &m)
	case agent.Lent:
		a.runner.lent(n, m, true)
	case agent.Checkpointed:
		a.runner.saved(n, m)
	case agent.Inventory:
		n.trouble = m.Trouble
		a.setNodeState(n)
		a.inventory(n, m.Devices)
		a.touchNode(n)
	case agent.Load:
		n.load, n.loadAt = &m, a.now // subscribers hear of it, and of notices, with the node's next change: it is not worth one of its own
		a.out.notice(n.notices.Heard(a.now, n.name, &m, n.memories()))
	case agent.Profiles:
		a.measured(n, m.Tasks)
	case agent.Configured:
		a.configured(n, m)
	case agent.AskPeers:
		a.out.post(n, agent.Peers{Gateways: a.fleet.peersOf(n)})
	case agent.Hello:
		a.out.hangUp(s) // an agent greets once
	}
}

// heardAll notes that an agent has read all that it was told when it greeted.
func (a *agents) heardAll(n *node) {
	if !n.answered {
		n.answered, n.since = true, a.now
		a.touchNode(n)
	}
	if n.mute {
		n.mute, n.down = false, false
		a.setNodeState(n)
	}
}

// unsent ends the business of a message that its agent would refuse: what it says cannot be done
// there, nor anywhere else.
func (a *agents) unsent(ev Unsent) {
	n := a.fleet.sessions[ev.Session]
	if n == nil {
		return // the message is made again when the agent greets
	}
	switch m := ev.Message.(type) {
	case agent.Start:
		reason := fmt.Sprintf("it cannot be started on node %s: %s", n.name, ev.Reason)
		a.report(n, &agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.NotBegun, Reason: agent.Reason(reason)}})
	case agent.Lend:
		a.runner.lent(n, agent.Lent{ID: m.Loan.ID, Error: ev.Reason}, false)
	case agent.Configure:
		a.configured(n, agent.Configured{Told: n.is.Told, InForce: n.is.InForce, Error: ev.Reason})
	}
}

// hungUp notes that an agent is away. Its tasks continue, and the policy places nothing new there
// until the agent is back or the node is given up. One that greets again and again and never answers
// is away from the first time on.
func (a *agents) hungUp(s Session, reason string) {
	n := a.fleet.sessions[s]
	if n == nil {
		return
	}
	a.fleet.close(n, a.now, reason)
	a.desk.hear(n)
	a.setNodeState(n)
	a.timers.set(timer{at: model.After(n.since, a.cfg.NodeTimeout), what: ringNode, node: n})
	a.touchNode(n)
}

// giveUp marks a node as down, and its tasks and loans as lost.
func (a *agents) giveUp(n *node) {
	n.down = true
	a.setNodeState(n)
	a.loseTasks(n, fmt.Sprintf("node %s has not been heard of for %s", n.name, units.FormatDuration(a.cfg.NodeTimeout)))
	a.touchNode(n)
}

// loseTasks gives up a node's tasks as lost, and stops jobs that borrowed from the node and cannot do without.
func (a *agents) loseTasks(n *node, reason string) {
	for _, id := range n.activeJobs() {
		j := a.roster.jobs[id]
		lent := false
		for i := range j.loans {
			l := &j.loans[i]
			if l.node != n {
				continue
			}
			if a.lending.canDoWithout(j, l) {
				a.lending.troubled(j, l, reason)
			} else {
				lent = true
			}
		}
		for part := 0; part < len(j.tasks); part++ { // taskEnded may requeue the job, which then has no tasks
			if t := &j.tasks[part]; t.node == n && t.end == nil {
				a.runner.taskEnded(j, part, &agent.End{Cause: agent.NodeLost, Reason: reason})
			}
		}
		if lent && j.active() && j.stop == nil {
			a.runner.stopJob(j, stop{Cause: agent.NodeLost, Reason: "a GPU that it borrowed was lost: " + reason, Outcome: api.NodeFail, Requeue: j.said.Batch.Requeue})
		}
	}
}

// touchNode queues a node's record for the store and its document for subscribers.
func (a *agents) touchNode(n *node) {
	a.out.write(a.views.nodeRecord(n))
	a.showNode(n)
}

// logTurn appends the policy's new state of a node to the node log, if it has changed.
func (a *agents) logTurn(n *node, state policy.NodeState) {
	is := state.String()
	if n.usable == is {
		return
	}
	key := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(a.now)), uint32(n.number))
	a.out.write(Record{NodeLog, key, encoded(NodeTurn{a.now, n.number, n.usable, is})})
	n.usable = is
}

// report processes an agent's report on a task. A task that does not belong to a job's present
// attempt is stopped and forgotten (staleReport).
func (a *agents) report(n *node, r *agent.Report) {
	j := a.roster.jobs[r.Task.Job]
	part := int(r.Task.Part)
	if j == nil || !j.active() || r.Task.Attempt != j.nth || part >= len(j.tasks) || j.tasks[part].node != n || j.tasks[part].end != nil {
		a.staleReport(n, r)
		return
	}
	t := &j.tasks[part]
	switch r.State {
	case agent.Ended:
		a.runner.taskEnded(j, part, r.End)
		a.out.post(n, agent.Done{Task: r.Task})
	case agent.Unknown:
		// The agent does not have the task. If it was told to stop it, it will not start it later
		// either.
		if j.stop != nil {
			a.runner.taskEnded(j, part, &agent.End{Cause: j.stop.Cause, Reason: j.stop.Reason})
		} else if t.state == agent.Unknown && !j.lending {
			a.runner.sendStart(j, part)
		}
	default:
		if t.state != r.State {
			t.state = r.State
			a.out.touch(j)
		}
		if r.State != agent.Starting {
			a.arrived(j)
		}
		a.runner.steer(j, part)
		a.runner.whenSuspended(j)
	}
}

// measured notes what a node says that programs did there, of tasks that it runs or lends to. Nobody is told: a
// job's document has it whenever that is made, and its record when the job ends.
func (a *agents) measured(n *node, profiles []agent.Profile) {
	for i := range profiles {
		p := &profiles[i]
		j, part := a.roster.jobs[p.Task.Job], p.Task.Part
		if j == nil || !j.active() || p.Task.Attempt != j.nth || int(part) >= len(j.tasks) {
			continue
		}
		lends := slices.ContainsFunc(j.loans, func(l loan) bool { return l.node == n && l.part == part })
		if j.tasks[part].node == n || lends && !j.heldAtHome(part) { // else the part's own node has measured it too
			j.measured.take(n, part, p.Measured, j.elapsed(a.now))
			a.desk.measured(j)
		}
	}
}

// staleReport handles a report on a task that the head no longer wants. The node takes nothing new
// until such tasks have ended, since they still use its cores and GPUs.
func (a *agents) staleReport(n *node, r *agent.Report) {
	switch r.State {
	case agent.Starting, agent.Running, agent.Suspended:
		a.out.post(n, agent.Stop{Task: r.Task, Cause: agent.Stopped, Reason: "the head does not want it any more", Grace: a.cfg.Grace})
		if n.stale == nil {
			n.stale = map[agent.Task]bool{}
		}
		if len(n.stale) < agent.MaxTasks { // no honest agent has more
			n.stale[r.Task] = true
		}
	case agent.Ended:
		a.lateResult(n, r)
		a.out.post(n, agent.Done{Task: r.Task})
		delete(n.stale, r.Task)
	default:
		delete(n.stale, r.Task)
	}
	a.setNodeState(n)
}

// partLost is the state of a job's part whose node was given up.
const partLost = "lost"

// lateResult takes the result of a job that ended as NODE_FAIL because its node was away for too long: the node is
// back, nobody else has run the job since, and this is how it really ended. That is so for jobs of one node alone,
// since the head stops the other parts of a job when it gives one up.
func (a *agents) lateResult(n *node, r *agent.Report) {
	switch r.End.Cause {
	case agent.Exited, agent.TimedOut, agent.NoMemory:
	default:
		return // it did not come to an end of its own
	}
	late := attempt{tasks: []task{{node: n, state: agent.Ended, end: r.End}}}
	v := late.verdict(false, false, false, false)
	v.reason = fmt.Sprintf("node %s was away when it ended, and told of it at %s", n.name, a.clock(a.now)) + because(v.reason)
	ran := r.End.Ended - r.End.Began
	if j := a.roster.jobs[r.Task.Job]; j != nil {
		if j.state != api.NodeFail || j.nth != r.Task.Attempt || len(j.tasks) != 1 || j.tasks[0].node.name != n.name || !j.tasks[0].givenUp() {
			return
		}
		j.tasks, j.stop = late.tasks, nil
		j.state, j.exit, j.signal, j.reason = v.state, v.exit, v.signal, v.reason
		j.cpu, j.peak = j.cpu+r.End.CPU, max(j.peak, r.End.Memory)
		if r.End.Began > 0 && ran >= 0 {
			j.end = j.start + max(0, min(a.now-j.start, ran)) // it may say anything
		}
		a.out.touch(j)
		a.runner.queue.corrected(j.id, j.array, j.state)
		return
	}
	if a.ended == nil {
		return
	}
	e := a.ended(r.Task.Job)
	if e == nil || e.State != string(api.NodeFail) || e.Attempt != r.Task.Attempt || len(e.Parts) != 1 || e.Parts[0].Node != n.name || e.Parts[0].State != partLost {
		return
	}
	e.State, e.ExitCode, e.Signal, e.Why = string(v.state), v.exit, v.signal, v.reason
	e.CPUTime, e.Peak = e.CPUTime+seconds(r.End.CPU), max(e.Peak, r.End.Memory)
	e.Parts[0].State = string(agent.Ended)
	if r.End.Began > 0 && ran >= 0 {
		end := min(seconds(a.now), e.Start+seconds(ran))
		e.Elapsed, e.End = max(0, e.Elapsed+end-e.End), end
	}
	a.out.write(Record{Ended, Number(e.ID), encoded(e)})
	a.out.publish(api.Change{Job: e.Document()})
	a.runner.queue.corrected(e.ID, e.ArrayJob, v.state)
}

// configureNodes tells nodes how to serve programs if they have not heard it in this session, or it is something
// else now. One that has to be told nothing is told so only if an earlier head told it something.
func (a *agents) configureNodes() {
	for _, n := range a.fleet.unsettled {
		n.unsettled = false
		if n.session == 0 || n.removed {
			continue
		}
		want := a.desk.wanted(n)
		if n.sent == nil && want.IsZero() && n.is.Told.IsZero() || n.sent != nil && want.Equal(*n.sent) {
			continue
		}
		n.sent = &want
		a.out.post(n, agent.Configure{Settings: want})
		a.showNode(n)
	}
	a.fleet.unsettled = a.fleet.unsettled[:0]
}

// configured notes how a node serves programs.
func (a *agents) configured(n *node, m agent.Configured) {
	n.is = m
	if n.sent == nil && !m.Told.IsZero() {
		a.fleet.unsettle(n)
		a.desk.due()
	}
	a.showNode(n)
}

// hear notes that a node's agent has said something.
func (a *agents) hear(n *node) {
	n.heardAt = a.now
	a.desk.hear(n)
}

// showNode tells subscribers of a node of which nothing has changed that must outlive the head.
func (a *agents) showNode(n *node) {
	doc := a.views.nodeDocument(n)
	a.out.publish(api.Change{Node: &doc})
}
