package sim

import (
	"time"

	"muster/model"
	"muster/policy"
)

// pause is the remaining work of a suspended job.
type pause struct {
	// For a job whose rate depends on others: its remaining work, out of whole, and how long it has
	// run.
	shares bool
	left   uint64
	ran    time.Duration
	// For any other job: the time until its end, and whether it is killed then.
	rest   time.Duration
	killed bool
}

// obey carries out what a plan says about running jobs, immediately. It returns whether it stopped
// any: then the policy may have more to decide at this instant.
func (r *run) obey(plan *policy.Plan) bool {
	for k := range plan.Resumes {
		if plan.Resumes[k].Err == nil {
			r.resume(plan.Resumes[k].Job)
		}
	}
	for k := range plan.Stops {
		r.stop(&plan.Stops[k], plan.View())
	}
	return len(plan.Stops) > 0
}

func (r *run) stop(s *policy.Stop, v *policy.View) {
	i := int(r.jobOf[s.Job])
	o := &r.result.Outcomes[i]
	r.result.Stops++
	rest, still := r.paused[s.Job]
	if still {
		r.moves.giveUp(r, s.Job)
	} else {
		rest = r.network.pause(s.Job)
	}
	r.leave(s.Job, i)
	switch s.How {
	case policy.Move:
		if !still {
			r.must(r.state.Suspended(s.Job))
			r.ranking.stopped(s.Job, r.now)
		}
		r.paused[s.Job] = rest
		r.moves.save(r, s.Job)
	case policy.Suspend:
		r.must(r.state.Suspended(s.Job))
		r.ranking.stopped(s.Job, r.now)
		r.paused[s.Job] = rest
	case policy.Requeue:
		r.must(r.state.Requeue(s.Job))
		r.ranking.requeued(s.Job, r.now)
		delete(r.moves.left, s.Job)
		*o = Outcome{}
	case policy.Cancel:
		r.must(r.state.End(s.Job))
		r.ranking.gone(s.Job, r.now)
		o.End, o.State = r.now, Preempted
		r.over(i)
	}
	if len(r.Watch) > 0 {
		r.note(i, s.How.String()+": "+s.Reason.Text(v))
	}
}

func (r *run) resume(id policy.JobID) {
	i := int(r.jobOf[id])
	p := r.paused[id]
	delete(r.paused, id)
	r.moves.giveUp(r, id)
	r.must(r.state.Resumed(id))
	a := r.state.Allocation(id)
	r.since[id] = r.now
	r.running++
	r.network.binding.hold(a, 1)
	r.network.resume(id, r.Jobs[i].As(int(r.result.Outcomes[i].Alternative)), a, p)
	r.ranking.started(id, r.now, a)
	if r.Observe != nil {
		r.Observe.Started(r.now, i, a)
	}
	if len(r.Watch) > 0 {
		r.note(i, "resumed")
	}
}

// count adds what a running job has held since its start, or since it was resumed, to the totals.
func (r *run) count(id policy.JobID, o *Outcome) {
	from := o.Start
	if since, resumed := r.since[id]; resumed {
		from = since
	}
	a := r.state.Allocation(id)
	held := (r.now - from).Seconds()
	// The conversions prevent a fused multiply-add, which would make machines round differently.
	r.result.CoreSeconds += float64(held * float64(coresOf(a)))
	r.result.GPUSeconds += float64(held * gpusOf(r.Cluster, a))
}

// pause removes a running job from the network, and its end from the events. It returns what is
// left to do.
func (n *network) pause(id policy.JobID) pause {
	end := n.run.events.remove(id)
	s, shares := n.slotOf[id]
	if !shares {
		return pause{rest: max(0, end.at-n.run.now), killed: end.killed}
	}
	u := &n.users[s]
	u.work(n.run.now)
	p := pause{shares: true, left: u.left, ran: n.run.now - u.start}
	n.leave(id)
	return p
}

// resume continues a job where it was paused, on the same allocation.
func (n *network) resume(id policy.JobID, j *model.Job, a *model.Allocation, p pause) {
	if !p.shares {
		n.run.events.push(event{at: model.After(n.run.now, p.rest), job: id, killed: p.killed, attempt: n.run.outages.attempt[id]})
		return
	}
	n.enter(id, j, a)
	u := &n.users[n.slotOf[id]]
	u.left, u.start = p.left, n.run.now-p.ran
}

// remove removes all events of a job, and returns the newest, which is the valid one. It scans the
// whole heap, since jobs are rarely stopped.
func (q *events) remove(id policy.JobID) (end event) {
	kept := q.heap[:0]
	for _, e := range q.heap {
		if e.job != id {
			kept = append(kept, e)
		} else if end.job != id || e.turn >= end.turn {
			end = e
		}
	}
	q.heap = nil
	for _, e := range kept {
		q.push(e)
	}
	return end
}
