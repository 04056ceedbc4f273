package slurm

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
	"muster/slurm/words"
)

// ledger keeps the policy's book as Slurm's word is: what is placed and what runs has what Slurm says, and
// what the book has no room for closes its node.
type ledger struct {
	ground
	reader *reader
	ranks  *ranks

	asleep int           // the number of jobs that the policy takes for suspended
	open   map[int32]int // within one step: nodes of jobs that were placed and have not started (see startsFirst)
}

// enter moves a job to another phase.
func (l *ledger) enter(j *job, p phase) {
	if j.phase != p {
		j.phase, j.since = p, l.now
	}
}

// withdraw removes a job from the policy's book, undoes choose, and puts the job aside.
func (l *ledger) withdraw(j *job) {
	if j.number >= 0 {
		l.ranks.unrank(j)
		if j.phase == waiting {
			must(l.book.state.Cancel(j.number))
		} else {
			must(l.book.state.End(j.number))
		}
		delete(l.book.numbered, j.number)
		j.number = -1
		l.book.due()
	}
	for _, id := range j.parts {
		must(l.book.state.End(id))
		delete(l.book.numbered, id)
		l.book.due()
	}
	j.parts = nil
	l.setAsleep(j, false)
	j.halting, j.rousing = false, false
	if j.before != nil {
		j.comment, j.before = *j.before, nil
		j.borrower = j.borrows()
	}
	l.roster.count(j)
	if j.phase != aside {
		l.enter(j, aside)
	}
}

// pause is how long a job stands aside: twice as long each time, up to Retry.
func (l *ledger) pause(j *job) time.Duration {
	j.tries++
	return min(l.cfg.Retry, time.Second<<min(j.tries, 20))
}

// recall asks for a job to be held again. The job keeps what it was given until a listing shows it
// held, since Slurm may start it before.
func (l *ledger) recall(j *job, why string) {
	if j.phase != recalling {
		l.out.counts.Recalled++
		l.out.note("job %s is recalled: %s", j.Ref, why)
	}
	if j.phase == waiting {
		l.withdraw(j) // the policy has given it nothing yet
	}
	l.enter(j, recalling)
	l.crowdLenders(j)
	j.why, j.until = why, l.now+l.pause(j)
	j.busy = true
	l.out.effects.Recalls = append(l.out.effects.Recalls, j.Ref)
}

// asPlanned says whether a job has what the book says.
func (l *ledger) asPlanned(j *job) bool {
	a := l.book.state.Allocation(j.number)
	if a == nil || len(a.Parts) != len(j.fact.Uses) {
		return false
	}
	for _, u := range j.fact.Uses {
		n := l.fleet.byName[u.Node]
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
		if int(p.Cores) != u.CPUs || l.cfg.Memory && p.Memory != u.Memory || gpus != u.GPUs {
			l.out.counts.Uneven++
			l.out.note("job %s was to have %d processors, %d MB and GPUs %b of node %s, and has %d, %d and %b", j.Ref, p.Cores, p.Memory>>20, gpus, u.Node, u.CPUs, u.Memory>>20, u.GPUs)
			return false
		}
	}
	return true
}

// grantsOf are the GPUs that are lent to a job, from the book or, after a restart, from its
// comment.
func (l *ledger) grantsOf(j *job) []model.Grant {
	if j.number >= 0 && j.phase != waiting && !j.short {
		return lentOf(j, l.book.state.Allocation(j.number))
	}
	if j.plan == nil {
		return nil
	}
	var list []model.Grant
	j.short = false
	for i, d := range j.plan.Devices {
		n := l.fleet.byName[d.Node]
		if n == nil || d.Device >= n.book {
			if j.short = l.cfg.Lending && n != nil; !j.short {
				l.out.note("job %s: its comment names GPU %s, which does not exist", j.Ref, d)
			}
			continue
		}
		list = append(list, model.Grant{For: int32(j.plan.UserOf(i)), Node: n.number, Device: int32(d.Device), Memory: j.share()})
	}
	return list
}

// adopt enters what a running job has into the book: as one job if a request can describe it,
// otherwise node by node. If something does not fit, its node is closed to other jobs (crowd).
func (l *ledger) adopt(j *job, grants []model.Grant) {
	defer l.roster.count(j)
	var parts []model.Part
	for _, u := range j.fact.Uses {
		n := l.fleet.byName[u.Node]
		if n == nil {
			continue // a node that Slurm does not list
		}
		p := model.Part{Node: n.number, Cores: int32(min(u.CPUs, n.CPUs)), GPUs: u.GPUs}
		if u.GPUs == 0 && u.Count > 0 {
			p.GPUs = lowest(l.book.state.View().FreeGPUs(n.number), u.Count)
		}
		p.GPUs &= 1<<n.book - 1
		if l.cfg.Memory {
			p.Memory = min(u.Memory, n.Memory)
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b model.Part) int { return int(a.Node) - int(b.Node) })
	if l.adoptWhole(j, parts, grants) {
		return
	}
	for _, p := range parts {
		l.adoptPart(j, p)
	}
	for _, g := range grants {
		l.out.note("job %s: the book has no room for GPU %d of node %s, which it borrows", j.Ref, g.Device, l.fleet.nodes[g.Node].Name)
		l.fleet.crowd(g.Node)
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

// adoptWhole adopts a job whose nodes all give the same, or differ only in processors.
func (l *ledger) adoptWhole(j *job, parts []model.Part, grants []model.Grant) bool {
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
	id, err := l.enterBook(j, r, &model.Allocation{Parts: parts, Grants: grants})
	if err != nil {
		return false
	}
	j.number = id
	l.book.numbered[id] = j
	return true
}

// adoptPart adopts what a job has of one node.
func (l *ledger) adoptPart(j *job, p model.Part) {
	r := model.Request{Nodes: 1, CoresPerNode: int(p.Cores), Memory: p.Memory, GPUs: bits.OnesCount64(p.GPUs)}
	id, err := l.enterBook(j, r, &model.Allocation{Parts: []model.Part{p}})
	if err != nil {
		l.fleet.crowd(p.Node)
		return
	}
	j.parts = append(j.parts, id)
	l.book.numbered[id] = j
}

func (l *ledger) enterBook(j *job, r model.Request, a *model.Allocation) (policy.JobID, error) {
	spec := &model.Job{ID: j.Ref.String(), User: j.fact.User, Group: j.fact.Account, Queue: j.fact.Partition, QOS: l.reader.class(&j.fact), WallTime: l.reader.expected(&j.fact), Request: r, Fixed: !j.mayStop()}
	if err := spec.Validate(); err != nil {
		return -1, err
	}
	started := l.now
	if j.fact.Started > 0 {
		started = min(l.now, j.fact.Started)
	}
	return l.book.state.Adopt(spec, 0, a, l.policyTime(started))
}

// crowdLenders closes the nodes whose GPUs were lent to a job that is being recalled and that is
// not in the book: Slurm may start it before it is held.
func (l *ledger) crowdLenders(j *job) {
	if j.number >= 0 || !j.plan.For(j.ID, j.fact.Restarts) {
		return
	}
	for _, d := range j.lent() {
		if n := l.fleet.byName[d.Node]; n != nil {
			l.fleet.crowd(n.number)
		}
	}
}

func (l *ledger) onCrowded(j *job) bool {
	on := func(name string) bool { n := l.fleet.byName[name]; return n != nil && n.crowded }
	for _, u := range j.fact.Uses {
		if on(u.Node) {
			return true
		}
	}
	return j.plan != nil && slices.ContainsFunc(j.plan.Devices, func(d words.Device) bool { return on(d.Node) })
}

// findPlaced enters a job into the book that was placed by a driver before this one, or by a
// request without an answer.
func (l *ledger) findPlaced(j *job) {
	l.withdraw(j)
	j.plan = j.comment.Answer
	spec, err := l.reader.understand(j)
	if err != nil {
		l.recall(j, err.Error())
		return
	}
	a := &model.Allocation{Grants: l.grantsOf(j)}
	if j.short {
		if spec.Request.Remote.Count = len(a.Grants); len(a.Grants) == 0 {
			spec.Request.Remote = nil
		}
	}
	for _, name := range j.plan.Nodes {
		n := l.fleet.byName[name]
		if n == nil {
			l.recall(j, "it was placed on node "+name+", which is not there any more")
			return
		}
		p := model.Part{Node: n.number, Cores: int32(spec.Request.CoresOnNode()), Memory: spec.Request.Memory, GPUs: lowest(l.book.state.View().FreeGPUs(n.number), spec.Request.GPUs)}
		if spec.Request.Exclusive {
			p.Cores, p.Exclusive = int32(n.CPUs), true
		}
		a.Parts = append(a.Parts, p)
	}
	slices.SortFunc(a.Parts, func(a, b model.Part) int { return int(a.Node) - int(b.Node) })
	if l.placedSpread(j, spec, a) {
		return
	}
	id, err := l.book.state.Adopt(spec, 0, a, l.policyTime(l.now))
	if err != nil {
		l.recall(j, fmt.Sprintf("where it was placed there is no room: %v", err))
		return
	}
	j.spec, j.number = spec, id
	l.book.numbered[id] = j
	l.roster.count(j)
	l.enter(j, placed)
}

// placedSpread enters a job into the book that was placed without pinned processors: they are
// wherever Slurm finds them free on its nodes.
func (l *ledger) placedSpread(j *job, spec *model.Job, a *model.Allocation) bool {
	r := &spec.Request
	if len(a.Parts) < 2 || r.Exclusive || r.GPUs > 0 || j.fact.TasksPerNode > 0 || r.Nodes > 0 && j.fact.MinCPUsPerNode >= r.CoresOnNode() {
		return false
	}
	parts := slices.Clone(a.Parts)
	for i := range parts {
		parts[i].Cores = 0
	}
	if !l.greedy(&j.fact, parts) || !l.adoptWhole(j, parts, a.Grants) {
		return false
	}
	j.spec, j.spread = spec, true
	l.roster.count(j)
	l.enter(j, placed)
	return true
}

// setAsleep notes whether the policy takes a job for suspended.
func (l *ledger) setAsleep(j *job, yes bool) {
	if j.asleep != yes {
		j.asleep = yes
		if yes {
			l.asleep++
		} else {
			l.asleep--
		}
	}
}
