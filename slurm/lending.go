package slurm

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"muster/model"
	"muster/slurm/words"
)

// lending is which GPUs nodes lend, and to whom.
type lending struct {
	ground
	ledger *ledger

	strangers map[string]bool // lenders that Slurm does not know, and that were logged
}

// takeLenders updates which GPUs can be lent. To the policy, the GPUs of a node that does not lend
// are down, since no node could grant them to a job.
func (ln *lending) takeLenders(list []Lender) {
	lends := map[string][]LentGPU{}
	for _, l := range list {
		lends[l.Node] = l.GPUs
		if ln.fleet.byName[l.Node] == nil && !ln.strangers[l.Node] {
			ln.strangers[l.Node] = true
			ln.out.note("node %s lends GPUs, and Slurm does not know it: its GPUs are not used; does muster node --name say what Slurm calls the node?", l.Node)
		}
	}
	for _, n := range ln.fleet.nodes {
		ln.setGPUs(n, lends[n.Name])
	}
}

// setGPUs takes over the GPUs that a node lends; none if it does not lend. The book never loses
// GPUs: those that are no longer lent are down.
func (ln *lending) setGPUs(n *node, lent []LentGPU) {
	if more := len(lent) - n.book; more > 0 {
		var all []model.GPUType
		for _, g := range lent[n.book:] {
			all = append(all, model.GPUType{Name: typeName(g), Memory: g.Memory, Speed: g.Speed})
		}
		types, gpus := model.DistinctTypes(all)
		if err := ln.book.state.AddDevices(n.number, gpus, types...); err != nil {
			if !n.odd {
				n.odd = true
				ln.out.note("the GPUs that node %s lends are not used: %v", n.Name, err)
			}
		} else {
			n.lends |= (1<<(n.book+more) - 1) &^ (1<<n.book - 1) // AddDevices adds devices that are up
			n.book += more
			ln.book.due()
			ln.reenter(n)
		}
	}
	up := uint64(0)
	for i, g := range lent[:min(len(lent), n.book)] {
		if g.Up {
			up |= 1 << i
		}
	}
	for changed := (up ^ n.lends) & (1<<n.book - 1); changed != 0; changed &= changed - 1 {
		d := bits.TrailingZeros64(changed)
		must(ln.book.state.SetDevice(n.number, int32(d), up>>d&1 != 0))
		ln.book.due()
	}
	n.lends = up
}

// reenter enters jobs into the book again that borrow GPUs of a node, now that its GPUs are known.
// A driver before this one placed them.
func (ln *lending) reenter(n *node) {
	for _, id := range ln.roster.sorted(func(j *job) bool {
		return j.short && j.plan != nil && slices.ContainsFunc(j.plan.Devices, func(d words.Device) bool { return d.Node == n.Name })
	}) {
		j := ln.roster.jobs[id]
		switch j.phase {
		case running:
			grants := ln.ledger.grantsOf(j)
			ln.ledger.withdraw(j)
			ln.ledger.enter(j, running)
			ln.ledger.adopt(j, grants)
		case placed:
			ln.ledger.findPlaced(j)
		}
	}
}

// typeName gives different names to GPUs that differ in anything that a policy looks at.
func typeName(g LentGPU) string {
	return fmt.Sprintf("%s-%dM-%g", g.Name, g.Memory>>20, g.Speed)
}

// borrowed lists the GPUs that are lent to each node of a job that asks for GPUs on any node. GPUs
// on the job's own nodes are lent like others: Slurm knows of none of them.
func (ln *lending) borrowed(j *job, a *model.Allocation) [][]Borrow {
	list := lentOf(j, a)
	if len(list) == 0 {
		return nil
	}
	out := make([][]Borrow, len(a.Parts))
	for _, g := range list {
		out[g.For] = append(out[g.For], j.borrow(words.Device{Node: ln.fleet.nodes[g.Node].Name, Device: int(g.Device)}, g.Memory))
	}
	return out
}

// lentOf lists the GPUs of an allocation that Muster lends, in the order of the nodes that use
// them.
func lentOf(j *job, a *model.Allocation) []model.Grant {
	if !j.borrower {
		return nil
	}
	var list []model.Grant
	for i := range a.Parts {
		p := &a.Parts[i]
		for set := p.GPUs; set != 0; set &= set - 1 {
			list = append(list, model.Grant{For: int32(i), Node: p.Node, Device: int32(bits.TrailingZeros64(set))})
		}
		for _, g := range a.Grants {
			if int(g.For) == i {
				list = append(list, g)
			}
		}
	}
	return list
}

// clash names a node on which some GPUs would be lent and others allocated by Slurm; "" if there is
// none. Slurm chooses which of a node's GPUs a job gets, and might choose one that is lent.
func (ln *lending) clash(j *job, a *model.Allocation, borrows [][]Borrow) string {
	own, lent := map[string]bool{}, map[string]bool{}
	for _, list := range borrows {
		for _, b := range list {
			lent[b.Node] = true
		}
	}
	if borrows == nil {
		for i := range a.Parts {
			if a.Parts[i].GPUs != 0 {
				own[ln.fleet.nodes[a.Parts[i].Node].Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lent)) {
		if n := ln.fleet.byName[name]; n.GPUs > 1 && ln.slurmGivesGPUs(n) {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if n := ln.fleet.byName[name]; n.GPUs > 1 && ln.isLentFrom(name, j) {
			return name
		}
	}
	return ""
}

// slurmGivesGPUs says whether a job has GPUs of a node from Slurm, or will have: a job that Muster
// places, or any other.
func (ln *lending) slurmGivesGPUs(n *node) bool {
	for _, j := range ln.roster.jobs {
		if j.phase == running && slices.ContainsFunc(j.fact.Uses, func(u Use) bool { return u.Node == n.Name && (u.GPUs != 0 || u.Count > 0) }) {
			return true
		}
		if j.borrower || j.number < 0 || j.phase == waiting {
			continue
		}
		for _, p := range ln.book.state.Allocation(j.number).Parts {
			if p.Node == n.number && p.GPUs != 0 {
				return true
			}
		}
	}
	return false
}

// isLentFrom says whether a GPU of a node is lent to a job other than but.
func (ln *lending) isLentFrom(node string, but *job) bool {
	for _, j := range ln.roster.jobs {
		if j == but || ln.Borrows(j.ID, j.fact.Restarts) == nil {
			continue
		}
		if slices.ContainsFunc(j.plan.Devices, func(d words.Device) bool { return d.Node == node }) {
			return true
		}
	}
	return false
}

// mixes says whether a job asks for Slurm's own GPUs while nodes lend some of these. Only the
// driver can keep them apart, so Slurm's scheduler must not have the job.
func (ln *lending) mixes(j *job) bool {
	if !ln.cfg.Lending || !strings.Contains(j.fact.TRESPerNode+j.fact.TRESPerJob+j.fact.TRESPerTask+j.fact.TRESPerSocket, "gpu") {
		return false
	}
	return slices.ContainsFunc(ln.fleet.nodes, func(n *node) bool { return n.GPUs > 0 && n.lends != 0 })
}

// noteClashes logs that Slurm has given a job a GPU that is lent to another. Only Slurm's scheduler
// does that: the driver did not place that job.
func (ln *lending) noteClashes(j *job) {
	gpus := map[string]uint64{}
	for _, u := range j.fact.Uses {
		if u.GPUs != 0 {
			gpus[u.Node] = u.GPUs
		}
	}
	if len(gpus) == 0 {
		return
	}
	for _, id := range ln.roster.sorted(func(o *job) bool { return o != j && ln.Borrows(o.ID, o.fact.Restarts) != nil }) {
		o := ln.roster.jobs[id]
		for _, d := range o.plan.Devices {
			if gpus[d.Node]>>d.Device&1 != 0 {
				ln.out.counts.Clashes++
				ln.out.note("Slurm has given job %s GPU %s, which is lent to job %s: let Muster place all jobs that ask for GPUs (muster slurm setup), or take gpu out of Gres= of that node", j.Ref, d, o.Ref)
			}
		}
	}
}

// ErrNotLent is wrapped by errors of placements for which nodes did not lend their GPUs.
var ErrNotLent = errors.New("the GPUs that it was to borrow are not lent")

// Loan is what a job borrows.
type Loan struct {
	User  string
	Nodes []string // nodes of its processes
	GPUs  []Borrow
}

// Borrows is what a job may use of the GPUs lent to it, in one start of the job; nil if that start
// is over.
func (ln *lending) Borrows(id uint64, start int) *Loan {
	j := ln.roster.jobs[id]
	if j == nil || !j.plan.For(id, start) {
		return nil
	}
	switch j.phase {
	case placing, placed, running, recalling:
	default:
		return nil
	}
	l := &Loan{User: j.fact.User, Nodes: j.plan.Nodes}
	for _, d := range j.plan.Devices {
		l.GPUs = append(l.GPUs, j.borrow(d, j.share()))
	}
	return l
}

// Lacking lists the loans of placed or started jobs for which has returns false. That happens
// because a slurmctld that was killed may forget that a job has ended, or that it was held again,
// and start it where it was placed before. Jobs for which the book has no room are not listed.
func (ln *lending) Lacking(has func(id uint64, start int) bool) []Place {
	var list []Place
	for _, id := range ln.roster.sorted(func(j *job) bool {
		return (j.phase == placed || j.phase == running) && j.number >= 0 && !j.short && len(j.lent()) > 0 && j.plan.For(j.ID, j.fact.Restarts) && !has(j.ID, j.plan.Start)
	}) {
		j := ln.roster.jobs[id]
		p := Place{Job: j.Ref, Nodes: j.plan.Nodes, Start: j.plan.Start, User: j.fact.User, UID: j.fact.UID, Borrows: make([][]Borrow, len(j.plan.Nodes))}
		for i, d := range j.plan.Devices {
			at := j.plan.UserOf(i)
			p.Borrows[at] = append(p.Borrows[at], j.borrow(d, j.share()))
		}
		list = append(list, p)
	}
	return list
}

// lent are the GPUs that are lent to a job.
func (j *job) lent() []words.Device {
	if j.plan == nil {
		return nil
	}
	return j.plan.Devices
}

// borrow is a GPU as it is lent to a job.
func (j *job) borrow(d words.Device, share int64) Borrow {
	var terms model.Terms
	if r := j.comment.Request; r != nil {
		terms = r.Terms
	}
	anywhere := model.Request{Remote: &model.RemoteGPUs{}} // all that is lent is asked for on any nodes
	return Borrow{d, share, terms.Of(&anywhere, share, true, model.DefaultHolds())}
}

// share is how many bytes a job has of each GPU lent to it; 0 is the whole GPU.
func (j *job) share() int64 {
	if r := j.comment.Request; r != nil && r.Shares() {
		return r.MemoryMB << 20
	}
	return 0
}
