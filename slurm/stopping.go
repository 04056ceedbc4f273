package slurm

import (
	"fmt"
	"time"

	"muster/policy"
)

// A policy may stop running jobs in favour of others: requeue, cancel or suspend them. Slurm does
// it, and listings show when it is done. Only then may the policy use their place.
//
// Of a suspended job, Slurm takes back only the processors: it keeps its memory and its GPUs, and a
// node that it has to itself. A job with GPUs, or with whole nodes, is therefore requeued instead.
// Slurm also resumes a job although others have its processors now, so the driver must ensure that
// none do.
//
// Before the driver suspends a job, it writes paused=yes into the comment. From that a restarted
// driver knows which suspended jobs it must resume; it leaves those alone that an administrator has
// suspended. Jobs of Slurm's own are never stopped.

// stopping is how far a job is on its way to being stopped, or resumed.
type stopping struct {
	halting bool   // the policy wants it stopped
	asleep  bool   // it is suspended, and the policy knows
	rousing bool   // the policy wants it resumed
	stopFor string // the job in whose favour it was stopped
}

// stopper has jobs stopped and resumed, and finds out whether they were.
type stopper struct {
	ground
	ledger *ledger

	preempts bool // the policy resumes suspended jobs by itself
}

// Stop asks for a job to be stopped.
type Stop struct {
	Job Ref
	How policy.How
	// Comment is written before the job is suspended.
	Comment string
}

// mayStop says whether the driver may stop a running job: only if it has placed it.
func (j *job) mayStop() bool { return j.managed && j.plan != nil }

// halt asks for a job to be stopped in favour of another.
func (s *stopper) halt(st *policy.Stop) {
	j := s.book.numbered[st.Job]
	if j.halting {
		return // the job is stopped as a whole, and this is another part of it
	}
	if other := s.book.numbered[st.For]; other != nil {
		j.stopFor = other.Ref.String()
	}
	j.halting = true
	how := st.How
	if how == policy.Move { // Slurm moves no job: it goes on where it was
		how = policy.Suspend
	}
	if how == policy.Suspend && j.fact.State == "SUSPENDED" {
		s.cannotStop(j, "an administrator has suspended it, and Slurm keeps its place")
		return
	}
	if how == policy.Suspend && !s.freesWhenSuspended(j) {
		how = policy.Requeue
	}
	if how == policy.Requeue && j.fact.NoRequeue {
		if st.How == policy.Suspend || st.How == policy.Move {
			s.cannotStop(j, "suspended it would keep its GPUs or nodes, and it must not be requeued")
			return
		}
		how = policy.Cancel // as Slurm does
	}
	s.askToStop(j, how)
}

// cannotStop leaves a job running. After a while standing tells the policy that it was not stopped.
func (s *stopper) cannotStop(j *job, why string) {
	s.out.note("job %s cannot make way: %s", j.Ref, why)
	j.until = s.now + s.ledger.pause(j)
}

func (s *stopper) askToStop(j *job, how policy.How) {
	s.out.note("job %s is stopped (%s)%s", j.Ref, how, j.inFavour())
	j.halting, j.busy = true, true
	stop := Stop{Job: j.Ref, How: how}
	if how == policy.Suspend {
		stop.Comment = s.paused(j, true)
	}
	s.out.effects.Stops = append(s.out.effects.Stops, stop)
}

func (j *job) inFavour() string {
	if j.stopFor == "" {
		return ""
	}
	return " to make way for job " + j.stopFor
}

// paused is a job's comment with or without the mark that the driver has suspended it.
func (s *stopper) paused(j *job, yes bool) string {
	say, request := j.comment, *j.comment.Request
	request.Paused = yes
	say.Request = &request
	return say.String()
}

// freesWhenSuspended says whether other jobs can have a job's place while it is suspended.
func (s *stopper) freesWhenSuspended(j *job) bool {
	if j.number < 0 {
		return false
	}
	a := s.book.state.Allocation(j.number)
	for i := range a.Parts {
		if p := &a.Parts[i]; p.Exclusive || p.GPUs != 0 {
			return false
		}
	}
	return len(a.Grants) == 0 && !j.fact.Exclusive
}

// rouse asks for a suspended job to be resumed.
func (s *stopper) rouse(j *job) {
	j.rousing, j.busy = true, true
	s.out.note("job %s goes on", j.Ref)
	s.out.effects.Resumes = append(s.out.effects.Resumes, Say{j.Ref, s.paused(j, false)})
}

// rouseIdle resumes suspended jobs whose place is free, under a policy that does not resume jobs
// itself. A driver before this one suspended them.
func (s *stopper) rouseIdle() {
	if s.preempts || s.ledger.asleep == 0 {
		return
	}
	for _, id := range s.roster.sorted(func(j *job) bool { return j.asleep && !j.rousing && !j.halting && !j.busy && j.until <= s.now }) {
		if j := s.roster.jobs[id]; s.book.state.Resumed(j.number) == nil {
			s.rouse(j)
		}
	}
}

// standing updates what the policy knows about whether a job with nodes is suspended, being stopped
// or being resumed. While open is true, a request may still take effect, and the listing proves
// nothing.
func (s *stopper) standing(j *job, asked time.Duration) {
	if !j.managed || j.number < 0 && len(j.parts) == 0 {
		return
	}
	open := asked <= j.told+s.cfg.Settle || s.now < j.until
	still := j.fact.State == "SUSPENDED" && j.comment.Request.Paused
	switch {
	case still && len(j.parts) > 0:
		// It cannot be resumed as a whole.
		if !j.halting {
			s.askToStop(j, policy.Requeue)
		}
	case still && !j.asleep && j.number >= 0:
		must(s.book.state.Suspended(j.number))
		s.ledger.setAsleep(j, true)
		j.halting, j.rousing = false, false
		s.book.due()
	case still && j.rousing && !open:
		j.rousing = false // the resume had no effect
		must(s.book.state.Suspended(j.number))
		s.book.due()
	case still && j.halting && !open:
		s.askToStop(j, policy.Requeue)
	case !still && j.asleep:
		s.goesOn(j)
	case !still && j.halting && !open && !j.fact.Completing:
		j.halting = false // the stop had no effect
		s.notStopped(j)
		s.book.due()
	}
}

// goesOn notes that a suspended job runs again, resumed by the driver or by a user of Slurm.
func (s *stopper) goesOn(j *job) {
	s.book.due()
	if s.book.state.Resumed(j.number) == nil || !s.book.state.View().Suspended(j.number) {
		s.ledger.setAsleep(j, false)
		j.rousing = false
		return
	}
	// Other jobs have its place, because a user has resumed it by hand.
	grants := s.ledger.grantsOf(j)
	s.ledger.withdraw(j)
	s.ledger.enter(j, running)
	s.ledger.adopt(j, grants)
}

// notStopped tells the policy that a job which it wanted stopped still runs.
func (s *stopper) notStopped(j *job) {
	for _, id := range append([]policy.JobID{j.number}, j.parts...) {
		if id >= 0 && s.book.state.View().Stopping(id) {
			must(s.book.state.Resumed(id))
		}
	}
}

// toldOfStop handles the outcome of a request to stop or resume a job.
func (s *stopper) toldOfStop(j *job, fate Fate, err error) {
	switch {
	case fate == Refused:
		s.out.counts.Refused++
		s.out.note("job %s: %v", j.Ref, err)
		j.until = s.now + s.ledger.pause(j)
	case fate == Unknown:
		s.out.counts.Unknown++
		s.out.note("job %s: %v", j.Ref, err)
	case j.halting:
		s.out.counts.Stopped++
	}
}

// whyStopped says why a job is stopped and what it waits for; "" for others.
func (j *job) whyStopped() string {
	switch {
	case j.asleep && j.rousing:
		return "it is let go on"
	case j.asleep:
		return fmt.Sprintf("it is suspended%s, and goes on when its place is free", j.inFavour())
	case j.halting:
		return "it is being stopped" + j.inFavour()
	}
	return ""
}
