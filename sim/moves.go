package sim

import (
	"math/bits"
	"time"

	"muster/model"
	"muster/policy"
)

// Moving says how long it takes to save what a job has done, and to go on from there: each takes Fixed, and
// what its host and device memory take at Rate.
type Moving struct {
	Fixed time.Duration
	Rate  int64 // bytes a second
}

// DefaultMoving is what docs/checkpoints.md says of two cores and a slow disk.
var DefaultMoving = Moving{Fixed: 100 * time.Millisecond, Rate: 300 << 20}

// cost is how long a save or a restore takes.
func (m Moving) cost(bytes int64) time.Duration {
	if m.Rate <= 0 {
		return m.Fixed
	}
	hi, lo := bits.Mul64(uint64(bytes), uint64(time.Second))
	if hi >= uint64(m.Rate) {
		return horizon
	}
	took, _ := bits.Div64(hi, lo, uint64(m.Rate))
	return min(horizon, m.Fixed+time.Duration(min(took, uint64(horizon-m.Fixed))))
}

// moves are jobs that go on elsewhere with what they have done (policy.Move). Such a job is suspended, and in
// the queue again when it is saved. Only a job on one node that borrows nothing can be saved, as in a real
// cluster; others stay suspended where they are.
type moves struct {
	saving map[policy.JobID]bool
	left   map[policy.JobID]moved // of jobs that wait, or have waited, in the queue
}

// moved is what a saved job has left to do, out of whole, for how long it has run, and what its going on costs.
type moved struct {
	left      uint64
	ran, cost time.Duration
}

// save begins to save a job that is suspended.
func (m *moves) save(r *run, id policy.JobID) {
	a := r.state.Allocation(id)
	if len(a.Parts) != 1 || len(a.Grants) > 0 && a.UsesBorrowed() {
		r.must(r.state.Stays(id))
		return
	}
	m.saving[id] = true
	r.events.push(event{at: model.After(r.now, r.Moving.cost(r.bytesOf(id))), job: id, attempt: r.attemptOf(id), saved: true})
}

// giveUp forgets that a job was being saved, which goes on or ends.
func (m *moves) giveUp(r *run, id policy.JobID) {
	if m.saving[id] {
		delete(m.saving, id)
		r.events.remove(id)
	}
}

// saved puts a job back into the queue that is saved.
func (m *moves) saved(r *run, id policy.JobID) {
	i := int(r.jobOf[id])
	j := r.Jobs[i].As(int(r.result.Outcomes[i].Alternative))
	a := r.state.Allocation(id)
	p := r.paused[id]
	left := moved{left: p.left, ran: p.ran, cost: r.Moving.cost(r.bytesOf(id))}
	if total := r.network.alone(id, j, a).Time; !p.shares && total > 0 {
		end := total
		if p.killed {
			end = j.WallTime
		}
		left.ran = max(0, end-p.rest)
		left.left = partOf(max(0, total-left.ran), total)
	}
	m.left[id] = left
	delete(m.saving, id)
	delete(r.paused, id)
	r.must(r.state.Requeue(id))
	r.ranking.requeued(id, r.now)
	r.result.Outcomes[i] = Outcome{}
	r.result.Moves++
}

// enter lets a job go on that was saved. It returns false for one that begins.
func (m *moves) enter(r *run, id policy.JobID, j *model.Job, a *model.Allocation) bool {
	left, ok := m.left[id]
	if !ok {
		return false
	}
	delete(m.left, id)
	n := r.network
	n.enter(id, j, a)
	total := n.alone(id, j, a).Time
	if s, shares := n.slotOf[id]; shares {
		u := &n.users[s]
		u.left, u.start = left.left, r.now-left.ran
		if total > 0 { // what it takes to go on is more of the same work
			u.left = min(whole, u.left+partOf(min(left.cost, total), total))
		}
		return true
	}
	end := r.events.remove(id)
	rest := time.Duration(mulDiv(uint64(total), left.left, whole))
	if end.killed = !r.NoKill && j.WallTime > 0 && rest > j.WallTime-left.ran; end.killed {
		rest = max(0, j.WallTime-left.ran)
	}
	end.at = model.After(r.now, model.After(left.cost, rest)) // the time limit does not run while it is made again
	r.events.push(end)
	return true
}

// partOf is a part of a time, out of whole, rounded up: that much of the same time is the same part again.
func partOf(part, of time.Duration) uint64 {
	hi, lo := bits.Mul64(whole, uint64(part))
	q, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		q++
	}
	return q
}

// bytesOf is how much of a job is saved: its memory, and what it has of devices.
func (r *run) bytesOf(id policy.JobID) (bytes int64) {
	a := r.state.Allocation(id)
	for i := range a.Parts {
		bytes += a.Parts[i].Memory
		node := &r.Cluster.Nodes[a.Parts[i].Node]
		for set := a.Parts[i].GPUs; set != 0; set &= set - 1 {
			bytes += r.Cluster.GPUTypes[node.GPUs[bits.TrailingZeros64(set)]].Memory
		}
	}
	for _, g := range a.Grants {
		if share := g.Memory; share > 0 {
			bytes += share
		} else {
			bytes += r.Cluster.GPUTypes[r.Cluster.Nodes[g.Node].GPUs[g.Device]].Memory
		}
	}
	return bytes
}

// attemptOf counts how often a job was put back into the queue by failures.
func (r *run) attemptOf(id policy.JobID) uint16 {
	if r.outages.attempt == nil {
		return 0
	}
	return r.outages.attempt[id]
}
