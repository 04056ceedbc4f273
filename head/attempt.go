package head

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// attempt is one start of a job: what it has, what runs of it where, and how that ended. It knows
// neither its job nor the policy: the core tells it what happens and asks what follows. A job that
// was never started has an attempt with the number 0, of which only the end and its reason count.
type attempt struct {
	nth        uint32 // counts the job's attempts
	starts     int64  // roster.starts when it began; 0 if that was before this head started
	start, end time.Duration
	// blamed is how often a node hung up, and this was the first attempt that it had been told to
	// start.
	blamed int

	// After the end, alloc and tasks are what it had.
	alloc       *model.Allocation
	usual       model.Holds // how it has the devices, where its user says nothing; as when it began
	alternative int
	tasks       []task
	loans       []loan
	lending     bool    // it waits until the nodes of its borrowed devices serve them
	relays      []relay // in the order of the parts

	// suspend says that it should be suspended. Its tasks stop some time later: see asleep.
	suspend bool
	// byHand says that a user wants that: the policy leaves it suspended.
	byHand bool
	// asleep says that all its tasks have stopped, and that the policy may give its cores and GPUs
	// to other jobs.
	asleep bool
	// suspended is for how long it has been suspended, without the present suspension, which began
	// at suspendedSince (0: there is none).
	suspended      time.Duration
	suspendedSince time.Duration

	// stop is why its tasks are being stopped; nil if they are not.
	stop         *stop
	exit, signal int
	reason       string // why the job ended in its state
	cpu          time.Duration
	peak         int64
	measured     measured
}

// measured is what the programs of an attempt did, as nodes say: each tells it of every part of the job that it
// runs or lends to, and of all since they began.
type measured []onNode

type onNode struct {
	node *node
	part int32
	model.Measured
	ran time.Duration // for how long the attempt had run when the node said so
}

// take takes in what a node says of a part of an attempt that has run for so long.
func (m *measured) take(n *node, part int32, did model.Measured, ran time.Duration) {
	at := slices.IndexFunc(*m, func(o onNode) bool { return o.node == n && o.part == part })
	if at < 0 {
		*m = append(*m, onNode{n, part, did, ran})
		return
	}
	(*m)[at].Measured, (*m)[at].ran = did, ran
}

// ran is for how long the attempt had run when it was last said what its programs did.
func (m measured) ran() (longest time.Duration) {
	for i := range m {
		longest = max(longest, m[i].ran)
	}
	return longest
}

func (m measured) sum() (sum model.Measured) {
	for i := range m {
		sum = sum.Plus(m[i].Measured)
	}
	return sum
}

// task is a job's part on one node.
type task struct {
	node *node
	// incarnation is that of the node when the attempt began.
	incarnation string
	state       agent.State // Unknown until the agent has reported the task
	end         *agent.End
}

// givenUp says whether the head gave it up with its node. What an agent says of an end has a time.
func (t *task) givenUp() bool {
	return t.end != nil && t.end.Cause == agent.NodeLost && t.end.Ended == 0 && t.end.Signal == 0
}

// loan is what a node lends to one part of a job.
type loan struct {
	node *node
	part int32
	lent bool
	// home says that the part's own node is told of devices of other nodes, too. It asks these for them, so it is
	// told when they have confirmed their loans; told says that it was, by this head.
	home, told bool
	asked      time.Duration // when this head asked for it last
	// trouble is why the node does not lend any more, while the part's programs can do without it; "" if it does.
	trouble string
}

// lenderAway says which node that lends to the attempt is away now; "" if all are there.
func (a *attempt) lenderAway() string {
	for i := range a.loans {
		if l := &a.loans[i]; l.node != a.tasks[l.part].node && !l.node.connected() {
			return fmt.Sprintf("its programs failed while node %s, which lent it a GPU, was away", l.node.name)
		}
	}
	return ""
}

// relay says why the programs of a part are joined to the nodes of its devices by relays, though its own node could
// have those devices.
type relay struct {
	Part   int32
	Reason string
}

// stop is why the head stops the tasks of a job, and what becomes of the job then.
type stop struct {
	Cause   agent.Cause
	Reason  string
	Outcome api.State // the job's final state; "": its tasks' ends decide
	Requeue bool
	Exit    int // the exit status that goes with Outcome, if its tasks ended because of this
}

// takeBack makes the attempt one of a job that waits again. What it has used stays known.
func (a *attempt) takeBack() {
	a.stop, a.suspend, a.byHand = nil, false, false
	a.start, a.end, a.tasks, a.alloc, a.alternative, a.usual, a.relays = 0, 0, nil, nil, 0, model.Holds{}, nil
}

// allEnded says whether nothing of it runs any more.
func (a *attempt) allEnded() bool {
	return !slices.ContainsFunc(a.tasks, func(t task) bool { return t.end == nil })
}

// notBegun says whether a node could not start its part of it.
func (a *attempt) notBegun() bool {
	return slices.ContainsFunc(a.tasks, func(t task) bool {
		return t.end != nil && (t.end.Cause == agent.NotBegun || t.end.Cause == agent.NotReady)
	})
}

// allStopped says whether every task that has not ended is suspended.
func (a *attempt) allStopped() bool {
	return !slices.ContainsFunc(a.tasks, func(t task) bool { return t.end == nil && t.state != agent.Suspended })
}

// allLent says whether every node that lends to it has confirmed that.
func (a *attempt) allLent() bool {
	return !slices.ContainsFunc(a.loans, func(l loan) bool { return !l.lent })
}

// heldAtHome says whether the node of a part has devices of other nodes as its own, or is to have them.
func (a *attempt) heldAtHome(part int32) bool {
	return slices.ContainsFunc(a.loans, func(l loan) bool { return l.home && l.part == part })
}

// mayTellHome says whether all that others lend to a part is confirmed.
func (a *attempt) mayTellHome(part int32) bool {
	return !slices.ContainsFunc(a.loans, func(l loan) bool { return l.part == part && !l.home && !l.lent })
}

// awake ends a suspension, if there is one.
func (a *attempt) awake(now time.Duration) {
	if a.suspendedSince > 0 {
		a.suspended += now - a.suspendedSince
		a.suspendedSince = 0
	}
}

// elapsed is how long it has run, without the time that it was suspended.
func (a *attempt) elapsed(now time.Duration) time.Duration {
	if a.start == 0 {
		return 0
	}
	until := now
	if a.end > 0 {
		until = a.end
	}
	if a.suspendedSince > 0 {
		until = a.suspendedSince
	}
	return max(0, until-a.start-a.suspended)
}

// isOn says whether it has a task on a node, or borrows from it.
func (a *attempt) isOn(node string) bool {
	return slices.ContainsFunc(a.tasks, func(t task) bool { return t.node.name == node }) ||
		slices.ContainsFunc(a.loans, func(l loan) bool { return l.node.name == node })
}

func (a *attempt) nodeNames() []string {
	names := make([]string, len(a.tasks))
	for i := range a.tasks {
		names[i] = a.tasks[i].node.name
	}
	return names
}

// verdict is what the ends of an attempt's tasks make of the job.
type verdict struct {
	again        bool // it is started anew
	state        api.State
	exit, signal int
	reason       string
}

// verdict says how a job ends all of whose tasks have ended, by their ends and the reason why they
// were stopped. The job's user may want it to be started anew when it is cut off (requeue). An
// administrator who holds the job prevents that (may), and after some attempts it is not started
// again because a node was not ready (fresh). One that was saved, and of which nothing has run since (moves),
// still is what it was: whatever went wrong, it goes on from there later.
func (a *attempt) verdict(requeue, may, fresh, moves bool) verdict {
	first, lost, begun, ran := (*agent.End)(nil), "", false, false
	for i := range a.tasks {
		end := a.tasks[i].end
		if end.Cause == agent.NodeLost && lost == "" {
			lost = end.Reason
		}
		// The end of a task that was stopped because of another task says nothing about the job.
		wrong := end.Cause != agent.Stopped && end.Cause != agent.Abandoned && (end.Cause != agent.Exited || end.Exit != 0 || end.Signal != 0)
		if first == nil && wrong {
			first = end
		}
		ran = ran || end.Began > 0 || end.Cause == agent.Exited
		begun = begun || ran || end.Cause == agent.NodeLost
	}
	v := verdict{exit: a.exit, signal: a.signal, reason: a.reason}
	if first != nil {
		v.exit, v.signal, v.reason = first.Exit, first.Signal, first.Reason
	}
	s := a.stop
	switch {
	case s != nil && s.Outcome == api.Cancelled:
		v.state, v.reason = api.Cancelled, s.Reason
	case moves && !ran && (s == nil || s.Outcome == "" || s.Outcome == api.Failed || s.Outcome == api.NodeFail):
		v.again = true
	// A node that was not ready is no reason to fail, as long as nothing has begun anywhere.
	case (s == nil || s.Cause == agent.Abandoned) && first != nil && first.Cause == agent.NotReady && fresh && (!begun || requeue):
		v.again = true
	case s != nil && s.Requeue && may, s == nil && lost != "" && requeue:
		v.again = true
	case s != nil && s.Outcome != "":
		v.state, v.reason = s.Outcome, s.Reason
		if s.Exit != 0 {
			v.exit, v.signal = s.Exit, 0
		}
	case lost != "":
		v.state, v.reason = api.NodeFail, lost
	case first == nil:
		v = verdict{state: api.Completed}
	case first.Cause == agent.TimedOut:
		v.state = api.Timeout
	case first.Cause == agent.NoMemory:
		v.state = api.OutOfMemory
	default:
		v.state = api.Failed
	}
	return v
}

// spread moves borrowed devices from parts that have more than a grant may have to others. Policies
// give the devices of a job to its nodes as it suits them, and submissions are accepted for as many
// as all parts may have together.
func spread(a *model.Allocation) {
	count := make([]int, len(a.Parts))
	for part := range a.Parts {
		count[part] = len(a.DevicesOf(part))
	}
	if !slices.ContainsFunc(count, func(n int) bool { return n > grant.MaxDevices }) {
		return
	}
	for i := range a.Grants {
		g := &a.Grants[i]
		to := slices.Index(count, slices.Min(count))
		if count[g.For] <= grant.MaxDevices || g.Node == a.Parts[g.For].Node || slices.Contains(a.DevicesOf(to), model.Device{Node: g.Node, Device: g.Device}) {
			continue
		}
		count[g.For]--
		g.For = int32(to)
		count[to]++
	}
}

// shareOf is how many bytes of a device a part was given; 0 is the whole device.
func shareOf(a *model.Allocation, part int, d model.Device) int64 {
	for _, g := range a.Grants {
		if int(g.For) == part && g.Node == d.Node && g.Device == d.Device {
			return g.Memory
		}
	}
	return 0
}
