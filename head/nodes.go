package head

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
)

// node is a machine whose agent has greeted at least once.
type node struct {
	name    string
	alias   string // the policy's name for it: the policy never sees a name twice
	number  int32  // the policy's number for it
	removed bool   // its number is retired; a node of the same name gets another

	incarnation string
	user        string
	cores       int
	memory      int64
	devices     []agent.Device // Up says whether jobs may have them
	said        []agent.Device // as the agent said last
	gateway     string

	session Session // 0 while the agent is away
	// answered says that the agent has read all that it was told when it greeted in this session.
	// mute says that an earlier session ended before that, and none has come so far since: such an
	// agent is as good as away, however often it greets.
	answered, mute bool
	since          time.Duration // when its agent answered or, of one that is away or mute, since when it is
	left           string        // why its last session ended
	down           bool          // its agent was away for NodeTimeout
	drained        bool          // by an administrator
	reason         string
	trouble        string          // why its agent takes no tasks for now; "" if it does
	usable         string          // the policy's state of the node that the node log has last
	jobs           map[uint64]bool // jobs that have a task or a loan here
	// stale are tasks of lost attempts that still run here. Until they have ended, the policy
	// places nothing new on the node.
	stale map[agent.Task]bool
}

// serves says whether the node's agent can start processes of a user.
func (n *node) serves(user string) bool { return n.user == "" || n.user == user }

// greeted processes an agent's greeting: what the node has, and which tasks and loans its agent
// knows. A name belongs to one machine at a time. The machine is recognised by the incarnation,
// which is that of its spool. The same name with another incarnation is refused while the old one
// is connected, and afterwards means that the tasks there are lost. A node whose hardware has
// changed gets a new number with the policy, because the policy's books cannot shrink a node.
func (c *Core) greeted(s Session, h agent.Hello) {
	refuse := func(format string, args ...any) {
		c.out.send(s, agent.Refused{Reason: fmt.Sprintf(format, args...)}, 0)
		c.out.hangUp(s)
	}
	if h.Version != agent.Version {
		refuse("this head speaks version %d, and the agent version %d: install the same Muster on both", agent.Version, h.Version)
		return
	}
	c.skipNumbers(&h)
	n := c.byName[h.Node]
	if c.retired[h.Node] >= maxRetired && (n == nil || !n.sameMachine(&h)) {
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
		c.out.hangUp(n.session)
		delete(c.sessions, n.session)
		n.hungUp(c.now, "it connected anew")
	}
	if n != nil && n.incarnation != h.Incarnation {
		c.loseTasks(n, "the node came back without its spool")
		n.incarnation = h.Incarnation
	}
	if n == nil || !n.sameMachine(&h) {
		var err error
		if n, err = c.addNode(n, &h); err != nil {
			refuse("%v", err)
			return
		}
	} else if n.user != h.User {
		c.offerAgain()
	}
	n.session, n.trouble = s, ""
	n.down = n.down && n.mute
	n.user, n.gateway = h.User, h.Gateway
	c.restricted = restricted{}
	if n.user != "" {
		c.private = true
		if !c.special { // once; the policy decides nothing before all jobs know which nodes they may use
			c.special = true
			c.offering = 1
		}
	}
	c.sessions[s] = n
	c.send(n, agent.Welcome{Cluster: c.cfg.Cluster, Silence: c.cfg.Silence}, 0)
	c.inventory(n, h.Devices)
	c.recount(n)
	c.clusterChanged()
	c.compare(n, &h)
	c.touchNode(n)
}

// maxRetired is how many numbers of one node may be retired. The core keeps them for ever, so a
// node that lies about what it has must not retire numbers without bound.
const maxRetired = 1000

// maxSkipped is how many job numbers one greeting may skip, so that a node that lies cannot use
// them up.
const maxSkipped = 10_000_000

// skipNumbers skips job numbers that a node remembers and this head does not know. The head was
// restored from a backup then, and had given those numbers to other jobs before.
func (c *Core) skipNumbers(h *agent.Hello) {
	if h.Cluster == c.cfg.Cluster && h.Last >= c.next && h.Last-c.next < maxSkipped {
		c.next = h.Last + 1
		c.setMeta()
	}
}

// sameMachine says whether a greeting shows the hardware that the node had; additional devices at
// the end of the list are allowed.
func (n *node) sameMachine(h *agent.Hello) bool {
	if n.cores != h.Cores || !about(n.memory, h.Memory) || len(h.Devices) < len(n.devices) {
		return false
	}
	for i := range n.devices {
		if !sameDevice(&n.devices[i], &h.Devices[i]) {
			return false
		}
	}
	return true
}

// about says whether two memory sizes may be those of one machine: they may differ by 5 %, since
// another kernel or a ballooning host leaves a little more or less.
func about(a, b int64) bool { return max(a, b)-min(a, b) <= max(a, b)/20 }

func sameDevice(a, b *agent.Device) bool {
	return a.Name == b.Name && a.Memory == b.Memory && a.Speed == b.Speed
}

// addNode adds a node to the policy: a new one, or a new number for one whose hardware has changed.
func (c *Core) addNode(old *node, h *agent.Hello) (*node, error) {
	n := &node{name: h.Node, incarnation: h.Incarnation, cores: h.Cores, memory: h.Memory, devices: slices.Clone(h.Devices), since: c.now}
	if old != nil {
		n.drained, n.reason, n.since, n.mute, n.down = old.drained, old.reason, old.since, old.mute, old.down
		c.retire(old)
		c.loseTasks(old, "the node came back with other cores, memory or devices")
	}
	if err := c.join(n); err != nil {
		return nil, err
	}
	c.offerAgain()
	return n, nil
}

// offerAgain has all waiting jobs for which the policy has a list of nodes submitted to it again, because
// the nodes that they may use (mayUse), or their names, have changed. The next steps do that.
func (c *Core) offerAgain() {
	c.offerAnew = c.offering > 0
	c.offering = max(c.offering, 1)
}

// offerSome submits some of these jobs again, and says whether that was all: the policy decides with the
// old names or with the new ones, not with both. If a node has changed meanwhile, it decides once all the
// same, so that nodes which change all the time do not keep it from that.
//
// Before these come jobs that no node could run (retryImpossible): for them the policy does not wait.
func (c *Core) offerSome() bool {
	looked := 0
	for ; len(c.retrying) > 0 && looked < maxLooked; looked += perImpossible {
		j := c.retrying[0]
		c.retrying = c.retrying[1:]
		j.impossible = ""
		if j.state == api.Pending && j.gate == atPolicy && j.number < 0 {
			c.offer(j)
		}
	}
	if c.offering == 0 {
		return true
	}
	for j := range c.roster.from(c.offering) {
		if looked >= maxLooked {
			c.offering = j.id
			return false
		}
		if looked++; j.state != api.Pending || j.number < 0 || !c.chooses(j) {
			continue
		}
		looked += perRequest
		c.offerAfresh(j)
	}
	c.offering = 0
	if c.offerAnew {
		c.offerAnew, c.offering = false, 1
	}
	return true
}

// offerAfresh submits a waiting job to the policy again.
func (c *Core) offerAfresh(j *job) {
	if j.number >= 0 {
		c.mustState(c.state.Cancel(j.number))
		delete(c.numbered, j.number)
		j.number = -1
	}
	c.offer(j)
}

// join gives a node an alias and a number with the policy.
func (c *Core) join(n *node) error {
	n.alias = n.name
	for k := 2; c.aliases[n.alias] != ""; k++ {
		n.alias = fmt.Sprintf("%s~%d", n.name, k)
	}
	m := model.Node{Name: n.alias, Cores: n.cores, Memory: n.memory}
	var types []model.GPUType
	for i := range n.devices {
		m.GPUs, types = append(m.GPUs, i), append(types, c.gpuType(&n.devices[i]))
	}
	number, err := c.state.AddNode(m, distinct(m.GPUs, types)...)
	if err != nil {
		return err
	}
	c.aliases[n.alias] = n.name
	c.restricted = restricted{}
	c.private = c.private || n.user != ""
	c.special = c.special || c.private || n.alias != n.name
	n.number = number
	c.nodes = append(c.nodes, n)
	c.byName[n.name] = n
	c.retryImpossible()
	return nil
}

// distinct lists each type once, and rewrites gpus from indexes into types to indexes into that
// list.
func distinct(gpus []int, types []model.GPUType) []model.GPUType {
	var once []model.GPUType
	for i := range gpus {
		t := types[gpus[i]]
		at := slices.Index(once, t)
		if at < 0 {
			at = len(once)
			once = append(once, t)
		}
		gpus[i] = at
	}
	return once
}

// gpuType is a device's type, whose name is the word that users write in --gres=gpu:TYPE:1. If
// devices of one name differ, the second kind has its memory in the word, and later kinds a number.
func (c *Core) gpuType(d *agent.Device) model.GPUType {
	t := model.GPUType{Memory: d.Memory, Speed: d.Speed}
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, d.Name)
	if word == "" {
		word = "gpu"
	}
	for k := 1; ; k++ {
		switch t.Name = word; k {
		case 1:
		case 2:
			t.Name += "-" + strings.ToLower(units.FormatSize(d.Memory))
		default:
			t.Name += fmt.Sprintf("-%d", k)
		}
		if known, ok := c.types[t.Name]; !ok || known == t {
			c.types[t.Name] = t
			return t
		}
	}
}

// retire takes a node's number out of use for ever, and disconnects the agent. Records of running
// and ended jobs refer to nodes by number, so numbers are never given again.
func (c *Core) retire(n *node) {
	n.removed, n.down = true, true
	c.restricted = restricted{}
	c.retired[n.name]++
	c.mustState(c.state.SetNode(n.number, policy.NodeDown))
	c.logTurn(n, policy.NodeDown)
	if c.byName[n.name] == n {
		delete(c.byName, n.name)
	}
	if n.session != 0 {
		delete(c.sessions, n.session)
		c.out.hangUp(n.session)
		n.session = 0
	}
	c.out.write(c.nodeRecord(n)) // kept: numbers are positions, and Restore needs all of them
	c.recount(n)
}

// inventory takes over which of a node's devices are up, and adds devices that are new.
func (c *Core) inventory(n *node, devices []agent.Device) {
	n.said = slices.Clone(devices)
	for i := range devices {
		d := &devices[i]
		up := d.Up && !c.lentWithin(n, d)
		switch {
		case i >= len(n.devices):
			c.mustState(c.state.AddDevices(n.number, []int{0}, c.gpuType(d)))
			n.devices = append(n.devices, *d)
		case !sameDevice(&n.devices[i], d):
			up = false // another device has this number now: the policy must place nothing on it
		}
		n.devices[i].Up, n.devices[i].Lender = up, d.Lender
		c.mustState(c.state.SetDevice(n.number, int32(i), up))
	}
	for i := len(devices); i < len(n.devices); i++ {
		n.devices[i].Up = false
		c.mustState(c.state.SetDevice(n.number, int32(i), false))
	}
	c.stepDue = true
	c.retryImpossible()
}

// lentWithin says whether another node of the cluster lends a device. That node has it in its own
// list: jobs must not be given it twice.
func (c *Core) lentWithin(n *node, d *agent.Device) bool {
	if d.Lender == "" {
		return false
	}
	return slices.ContainsFunc(c.nodes, func(o *node) bool {
		return o != n && !o.removed && (o.name == d.Lender || o.gateway == d.Lender)
	})
}

// recount looks again at devices that a node lends to others of the cluster, after it came or was
// removed.
func (c *Core) recount(lender *node) {
	for _, n := range c.nodes {
		if n != lender && !n.removed && slices.ContainsFunc(n.said, func(d agent.Device) bool {
			return d.Lender != "" && (d.Lender == lender.name || d.Lender == lender.gateway)
		}) {
			c.inventory(n, n.said)
			c.touchNode(n)
		}
	}
}

// connected says whether the node's agent is there and, if it was mute, has answered.
func (n *node) connected() bool { return n.session != 0 && !n.mute }

// setNodeState tells the policy whether it may use a node, and logs the change. A node that is
// away, takes no tasks for now, or on which tasks of lost attempts still run, is draining: what runs there continues.
func (c *Core) setNodeState(n *node) {
	state := policy.NodeUp
	switch {
	case n.down || n.removed:
		state = policy.NodeDown
	case n.drained || n.trouble != "" || !n.connected() || len(n.stale) > 0:
		state = policy.NodeDraining
	}
	c.mustState(c.state.SetNode(n.number, state))
	c.logTurn(n, state)
	c.stepDue = true
}

// mustState panics on an error of a call that cannot fail while the head's and the policy's books
// agree.
func (c *Core) mustState(err error) {
	if err != nil {
		panic("head: the policy's book and the head's disagree: " + err.Error())
	}
}

// compare reconciles what an agent has with what it should have. This replaces all messages that
// were lost while the agent was away, in both directions.
func (c *Core) compare(n *node, h *agent.Hello) {
	known := make(map[agent.Task]bool, len(h.Tasks))
	for i := range h.Tasks {
		known[h.Tasks[i].Task] = true
	}
	loans := make(map[string]bool, len(h.Loans))
	for _, id := range h.Loans {
		loans[id] = true
	}
	for _, id := range h.Loans {
		if !c.isLent(n, id) {
			c.send(n, agent.Unlend{ID: id}, 0)
		}
	}
	// Send what the agent should have and does not, loans first: messages arrive in order, so a
	// task finds its devices.
	blame := n.mute
	for _, id := range c.activeOn(n) {
		j := c.roster.jobs[id]
		if blame && c.awaits(j, n, known, loans) {
			blame = false
			if c.blame(j, n); j.stop != nil {
				continue
			}
		}
		if j.stop == nil {
			c.lendAgain(j, n, loans)
		}
		for part := 0; part < len(j.tasks); part++ { // taskEnded may requeue the job, which then has no tasks
			t := &j.tasks[part]
			if t.node == n && t.end == nil && !known[j.taskName(part)] {
				c.missing(j, part)
			}
		}
	}
	// The reports below fill stale again, with what still runs.
	n.stale = nil
	for i := range h.Tasks {
		c.report(n, &h.Tasks[i])
	}
	c.setNodeState(n)
	c.send(n, agent.Ping{}, 0) // its answer says that the agent has read all of this
}

// awaits says whether a node that greets is still to be told of a loan or a task of a job.
func (c *Core) awaits(j *job, n *node, known map[agent.Task]bool, loans map[string]bool) bool {
	if j.stop != nil {
		return false
	}
	for i := range j.loans {
		if l := &j.loans[i]; l.node == n && !loans[j.taskName(int(l.part)).String()] {
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
func (c *Core) blame(j *job, n *node) {
	if j.blamed++; j.blamed >= maxLaunches {
		c.stopJob(j, stop{
			Cause: agent.NotBegun, Reason: fmt.Sprintf("node %s hung up again and again when it was told to start it: %s", n.name, n.left),
			Outcome: api.Failed, Requeue: j.requeues < maxLaunches,
		})
	}
}

// missing handles a task that its agent does not know. A task that the agent has reported before is
// lost. Any other was never started, or its Start was lost, and is started now.
func (c *Core) missing(j *job, part int) {
	t := &j.tasks[part]
	switch {
	case t.state != agent.Unknown:
		c.taskEnded(j, part, &agent.End{Cause: agent.NodeLost, Reason: "the node has forgotten the task"})
	case j.stop != nil:
		// A Start may still be on its way from an earlier connection. So the agent must be told
		// that the task is not wanted, and reports that; only then is the task over.
		c.sendStop(j, part)
	case !j.lending:
		c.sendStart(j, part)
	}
}

// activeOn lists the jobs that have a task or a loan on a node, by number.
func (c *Core) activeOn(n *node) []uint64 {
	var ids []uint64
	for id := range n.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// said processes a message of an agent that has greeted.
func (c *Core) said(s Session, m agent.ToHead) {
	n := c.sessions[s]
	if n == nil {
		return // the core has closed this session; the message was still on its way
	}
	switch m := m.(type) {
	case agent.Pong:
		c.heardAll(n)
	case agent.Report:
		c.report(n, &m)
	case agent.Lent:
		c.lent(n, m, true)
	case agent.Inventory:
		n.trouble = m.Trouble
		c.setNodeState(n)
		c.inventory(n, m.Devices)
		c.touchNode(n)
	case agent.AskPeers:
		c.send(n, agent.Peers{Gateways: c.peersOf(n)}, 0)
	case agent.Hello:
		c.out.hangUp(s) // an agent greets once
	}
}

// heardAll notes that an agent has read all that it was told when it greeted.
func (c *Core) heardAll(n *node) {
	if !n.answered {
		n.answered, n.since = true, c.now
		c.touchNode(n)
	}
	if n.mute {
		n.mute, n.down = false, false
		c.setNodeState(n)
	}
}

// unsent ends the business of a message that its agent would refuse: what it says cannot be done
// there, nor anywhere else.
func (c *Core) unsent(ev Unsent) {
	n := c.sessions[ev.Session]
	if n == nil {
		return // the message is made again when the agent greets
	}
	switch m := ev.Message.(type) {
	case agent.Start:
		reason := fmt.Sprintf("it cannot be started on node %s: %s", n.name, ev.Reason)
		c.report(n, &agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.NotBegun, Reason: agent.Reason(reason)}})
	case agent.Lend:
		c.lent(n, agent.Lent{ID: m.Loan.ID, Error: ev.Reason}, false)
	}
}

// peersOf lists the gateways of the nodes from which a node may borrow virtual GPUs: those that
// follow it in the ring of all nodes. So each node is asked by equally many others.
func (c *Core) peersOf(n *node) (gateways []string) {
	own := slices.Index(c.nodes, n)
	for i := 1; i < len(c.nodes) && len(gateways) < agent.MaxPeers; i++ {
		o := c.nodes[(own+i)%len(c.nodes)]
		if o.session != 0 && !o.removed && !o.drained && o.gateway != "" && o.gateway != n.gateway && !slices.Contains(gateways, o.gateway) {
			gateways = append(gateways, o.gateway)
		}
	}
	return gateways
}

// hungUp notes that an agent is away. Its tasks continue, and the policy places nothing new there
// until the agent is back or the node is given up. One that greets again and again and never answers
// is away from the first time on.
func (c *Core) hungUp(s Session, reason string) {
	n := c.sessions[s]
	if n == nil {
		return
	}
	delete(c.sessions, s)
	n.hungUp(c.now, reason)
	c.setNodeState(n)
	c.timers.set(timer{at: model.After(n.since, c.cfg.NodeTimeout), what: ringNode, node: n})
	c.touchNode(n)
}

func (n *node) hungUp(now time.Duration, reason string) {
	if n.answered {
		n.since = now
	}
	n.session, n.answered, n.mute, n.left = 0, false, !n.answered, reason
}

// giveUp marks a node as down, and its tasks and loans as lost.
func (c *Core) giveUp(n *node) {
	n.down = true
	c.setNodeState(n)
	c.loseTasks(n, fmt.Sprintf("node %s has not been heard of for %s", n.name, units.FormatDuration(c.cfg.NodeTimeout)))
	c.touchNode(n)
}

// loseTasks gives up a node's tasks as lost, and stops jobs that borrowed from the node.
func (c *Core) loseTasks(n *node, reason string) {
	for _, id := range c.activeOn(n) {
		j := c.roster.jobs[id]
		lent := false
		for i := range j.loans {
			lent = lent || j.loans[i].node == n
		}
		for part := 0; part < len(j.tasks); part++ { // taskEnded may requeue the job, which then has no tasks
			if t := &j.tasks[part]; t.node == n && t.end == nil {
				c.taskEnded(j, part, &agent.End{Cause: agent.NodeLost, Reason: reason})
			}
		}
		if lent && j.active() && j.stop == nil {
			c.stopJob(j, stop{Cause: agent.NodeLost, Reason: "a GPU that it borrowed was lost: " + reason, Outcome: api.NodeFail, Requeue: j.said.Batch.Requeue})
		}
	}
}

// nodeAction performs an administrator's action on nodes.
func (c *Core) nodeAction(ev Node) {
	if !c.IsAdmin(ev.User) {
		c.out.answer(ev.Request, nil, refusal(statusForbidden, "nodes are for administrators, and %s is none", ev.User))
		return
	}
	var nodes []*node
	for _, name := range ev.Nodes {
		n := c.byName[name]
		if n == nil {
			c.out.answer(ev.Request, nil, refusal(statusNotFound, "there is no node %.64q", name))
			return
		}
		nodes = append(nodes, n)
	}
	if ev.Action == RemoveNode {
		for _, n := range nodes {
			if n.session != 0 || len(n.jobs) > 0 {
				c.out.answer(ev.Request, nil, refusal(statusConflict, "node %s is connected or has jobs: stop it there, and wait until it is down", n.name))
				return
			}
		}
	}
	for _, n := range nodes {
		switch ev.Action {
		case DrainNode:
			n.drained, n.reason = true, ev.Reason
		case ResumeNode:
			n.drained, n.reason = false, ""
		case RemoveNode:
			c.retire(n)
			continue
		default:
			c.out.answer(ev.Request, nil, refusal(statusBadRequest, "%q is nothing that can be done to a node", ev.Action))
			return
		}
		c.setNodeState(n)
		c.touchNode(n)
	}
	c.out.answer(ev.Request, &api.Changed{Jobs: []uint64{}}, nil)
}

// touchNode queues a node's record for the store and its document for subscribers.
func (c *Core) touchNode(n *node) {
	c.out.write(c.nodeRecord(n))
	doc := c.nodeDocument(n)
	c.out.publish(api.Change{Node: &doc})
}

// retryImpossible has the jobs that no node could run offered to the policy again, by the next steps.
func (c *Core) retryImpossible() {
	c.retrying = append(c.retrying, c.impossible...)
	c.impossible = nil
}

// policyTime converts an instant to the policy's clock, which starts when the cluster began. The
// cap leaves the policy room to add durations without overflow.
func (c *Core) policyTime(at time.Duration) time.Duration {
	return min(max(0, at-c.began), math.MaxInt64/4)
}
