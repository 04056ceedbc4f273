package head

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/model"
	"muster/wire/agent"
	"muster/wire/grant"
)

// lending knows which nodes lend what to a job, and tells them. It starts and ends nothing.
type lending struct {
	ground
}

// listLoans makes the list of a job's loans from its allocation. A part that uses devices of its
// own node has a loan from that node too; so has one whose node is told of devices of others. What was lent by a
// node that has been removed since is gone.
func (le *lending) listLoans(j *job) {
	j.loans, j.lending = nil, false
	for part := range j.tasks {
		home, seen, far := j.tasks[part].node, map[int32]bool{}, false
		for _, d := range j.alloc.DevicesOf(part) {
			n := le.fleet.nodes[d.Node]
			far = far || le.isForHome(j, part, d)
			if !seen[d.Node] && (n == home || !n.removed) {
				seen[d.Node] = true
				j.loans = append(j.loans, loan{node: n, part: int32(part)})
			}
		}
		if !far || slices.ContainsFunc(j.relays, func(r relay) bool { return int(r.Part) == part }) {
			continue
		}
		if own := slices.IndexFunc(j.loans, func(l loan) bool { return l.node == home && int(l.part) == part }); own >= 0 {
			j.loans[own].home = true
		} else {
			j.loans = append(j.loans, loan{node: home, part: int32(part), home: true})
		}
	}
}

// isForHome says whether the node of a part is told of a device of another node.
func (le *lending) isForHome(j *job, part int, d model.Device) bool {
	far := le.fleet.nodes[d.Node] != j.tasks[part].node
	return far && j.hold(part, d, shareOf(j.alloc, part, d)).Reach > model.ReachDevice
}

// grantOf is the right of a part's processes to use devices; nil if the part has none.
func (le *lending) grantOf(j *job, part int) *grant.Grant {
	devices := j.alloc.DevicesOf(part)
	if len(devices) == 0 {
		return nil
	}
	g := &grant.Grant{ID: j.taskName(part).String(), User: j.user, Secret: j.credential(part), Limit: grant.AllDevices, Turns: j.said.GPU.Turns}
	for _, d := range devices {
		n := le.fleet.nodes[d.Node]
		share := shareOf(j.alloc, part, d)
		hold := j.hold(part, d, share)
		device := grant.Device{Node: n.name, Device: int(d.Device), Memory: uint64(share), Reach: hold.Reach, Beyond: hold.Beyond}
		if n != j.tasks[part].node {
			device.Address = n.gateway
			g.Authority = le.cfg.Authority
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

// loanOf is what a node is told of a loan.
func (le *lending) loanOf(j *job, l *loan) grant.Loan {
	g := le.grantOf(j, int(l.part))
	if l.home {
		return g.HomeLoan(l.node.name)
	}
	return g.Loan(l.node.name)
}

func (le *lending) sendLend(j *job, l *loan) {
	l.told, l.asked = true, le.now
	le.out.post(l.node, agent.Lend{Loan: le.loanOf(j, l)})
}

// tellHomes tells the nodes of a job's parts of the devices that others lend, once these have confirmed that.
func (le *lending) tellHomes(j *job) {
	for i := range j.loans {
		if l := &j.loans[i]; l.home && !l.lent && !l.told && j.mayTellHome(l.part) {
			le.sendLend(j, l)
		}
	}
}

// what is what the node of a loan is asked for, as lend its GPU 0.
func (le *lending) what(j *job, l *loan) string {
	verb := "lend its"
	if l.node == j.tasks[l.part].node {
		verb = "give it"
	}
	var numbers []string
	for _, d := range j.alloc.DevicesOf(int(l.part)) {
		if le.fleet.nodes[d.Node] == l.node {
			numbers = append(numbers, strconv.Itoa(int(d.Device)))
		}
	}
	switch len(numbers) {
	case 0:
		return "have GPUs of other nodes as its own"
	case 1:
		return fmt.Sprintf("%s GPU %s", verb, numbers[0])
	}
	return fmt.Sprintf("%s GPUs %s", verb, strings.Join(numbers, ", "))
}

// sendLimits tells all nodes that lend to a job how many devices it may use.
func (le *lending) sendLimits(j *job) {
	for i := range j.loans {
		le.sendLimit(j, &j.loans[i])
	}
}

// sendLimit tells a node how many devices of a loan may be used. If a part's own node has the devices of others,
// its programs leave those before their lenders are told that none may be used (whenSuspended): what the programs
// have there is moved over meanwhile.
func (le *lending) sendLimit(j *job, l *loan) {
	if j.suspend && !j.asleep && !l.home && j.heldAtHome(l.part) {
		return
	}
	loan := le.loanOf(j, l)
	le.out.post(l.node, agent.Limit{ID: loan.ID, Limit: loan.Limit})
}

// limitLenders tells those nodes how many devices a suspended job may use that were not told when it was to be
// suspended.
func (le *lending) limitLenders(j *job) {
	for i := range j.loans {
		if l := &j.loans[i]; !l.home && j.heldAtHome(l.part) {
			le.sendLimit(j, l)
		}
	}
}

// isLent says whether the head wants a node to lend something under this name.
func (le *lending) isLent(n *node, id string) bool {
	for _, number := range n.activeJobs() {
		j := le.roster.jobs[number]
		for i := range j.loans {
			if l := &j.loans[i]; l.node == n && j.taskName(int(l.part)).String() == id {
				return true
			}
		}
	}
	return false
}

// canDoWithout says whether the programs of a job go on without what a node lends: their own node has it, and puts
// them on other devices, of its own or, with reach cluster, of others, or they wait there for this one.
func (le *lending) canDoWithout(j *job, l *loan) bool {
	home := j.tasks[l.part].node
	if j.lending || j.stop != nil || l.node.removed || l.node == home || !j.heldAtHome(l.part) {
		return false
	}
	own := slices.ContainsFunc(home.devices, func(d agent.Device) bool { return d.Up && d.Lender == "" })
	for _, d := range j.alloc.DevicesOf(int(l.part)) {
		if le.fleet.nodes[d.Node] != l.node {
			continue
		}
		reach := j.hold(int(l.part), d, shareOf(j.alloc, int(l.part), d)).Reach
		if reach != model.ReachCluster && (reach != model.ReachNode || !own) {
			return false
		}
	}
	return true
}

// troubled notes why a node does not lend what the programs can do without; "" if it does.
func (le *lending) troubled(j *job, l *loan, why string) {
	if l.trouble != why {
		l.trouble = why
		le.out.touch(j)
	}
}

// unreachable says why programs on the borrower have no way to the lender; "" if they have one.
func (le *lending) unreachable(j *job, l *loan) string {
	switch {
	case l.node == j.tasks[l.part].node:
		return ""
	case l.node.gateway == "":
		return "other nodes cannot reach it: start it with --listen and --tls-dir"
	case le.cfg.Authority == "":
		return "the head has no authority that vouches for it: start the head with --tls-dir"
	}
	return ""
}
