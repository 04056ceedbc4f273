package mccs

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// Event is something that a program may register a function for.
type Event uint8

// The events of section 4.2.2.
const (
	// NewJobArrival: a job was submitted, was requeued, or its start was refused.
	NewJobArrival Event = iota
	// PriorityChange: a waiting job has another priority.
	PriorityChange
	// JobComplete: a job that ran has ended.
	JobComplete
	// ProfileReceived: there is news of a running job; see SetProfilingPeriod.
	ProfileReceived
	// Termination: the program's time is over.
	Termination
	numEvents
)

var eventNames = [numEvents]string{"NewJobArrival", "PriorityChange", "JobComplete", "ProfileReceived", "Termination"}

func (e Event) String() string {
	if e < numEvents {
		return eventNames[e]
	}
	return fmt.Sprintf("event %d", uint8(e))
}

// Callback is called when an event has happened to a job; for Termination the job is
// nil. Its error ends the step.
type Callback func(j *Job) error

// Program is a policy written with the library.
type Program interface {
	// Init registers functions and sets up what the program needs. It is called in the
	// first step, and again after Reset.
	Init(l *Library) error
	// Main is called after the events of each step.
	Main(l *Library) error
}

// maxReports is how many reports are kept of one step.
const maxReports = 100

// Library is the scheduling library: the calls are its methods. It is of one Program
// and one policy.State.
// Its many methods are the calls of the paper, one each (calls.go, jobcalls.go, describe.go).
type Library struct {
	// UnassignedJobQueue is for jobs that wait, AssignedJobQueue for those that run.
	UnassignedJobQueue, AssignedJobQueue *Queue

	program   Program
	callbacks [numEvents]Callback
	ready     bool // Init has been called
	cleaned   bool

	jobs map[policy.JobID]*Job
	nodeTable

	generation uint64
	round      uint64
	room       uint64   // grows whenever something may fit that did not; never 0
	misfits    []uint64 // by shape: the round in which it did not fit
	least      leastNodes

	resumed bool // the last step asked for jobs to be resumed: it may have been refused

	period, due time.Duration
	talk

	// During a step.
	view    *policy.View
	plan    *policy.Plan
	came    arrivals
	open    []*Job // jobs that were given nodes in this step and not started
	places  []policy.OnNode
	ranking ranking
	Reports []string // of the latest step
	// Looked is the number of nodes and jobs that calls have examined, for a caller that charges
	// for it.
	Looked int
}

// talk is what is said to nodes and heard of them.
type talk struct {
	unsettled bool // nodes may have to be told how to serve programs
	watches   bool // the driver was asked to tell what it hears of nodes
}

// New returns a library for a program.
func New(p Program) *Library {
	l := &Library{
		UnassignedJobQueue: &Queue{Name: "UnassignedJobQueue", ranked: true},
		AssignedJobQueue:   &Queue{Name: "AssignedJobQueue"},
		program:            p,
	}
	l.Reset()
	return l
}

// Reset forgets everything but the program: its Init is called in the next step,
// every waiting job arrives again, and all that runs is in the queue of assigned jobs.
func (l *Library) Reset() {
	l.UnassignedJobQueue.empty()
	l.AssignedJobQueue.empty()
	l.callbacks = [numEvents]Callback{}
	l.ready, l.cleaned = false, false
	l.jobs = map[policy.JobID]*Job{}
	l.nodeTable = nodeTable{byName: map[string]*Node{}, weights: map[string]int{}}
	l.generation, l.period, l.room = 0, 0, l.room+1
	l.talk = talk{unsettled: true}
	l.misfits, l.least = nil, leastNodes{of: map[int]int{}}
	l.open = nil
}

// Step turns what has changed into events, and lets the program decide. After an error the
// caller must take back what was proposed, and call Reset.
func (l *Library) Step(v *policy.View, p *policy.Plan) error {
	l.view, l.plan = v, p
	l.Reports = l.Reports[:0]
	l.round++
	if v.Freed() || v.Reordered() || l.generation != v.Generation() {
		l.makeRoom()
	}
	l.UnassignedJobQueue.cursor = 0
	err := l.happen()
	if err == nil && !l.cleaned {
		err = l.program.Main(l)
	}
	l.tidy()
	return err
}

// makeRoom notes that what did not fit may fit now.
func (l *Library) makeRoom() {
	l.room++
	l.UnassignedJobQueue.skip = 0
}

// tidy ends a step: nodes that were given to jobs which were not started are free
// again, and Plan.Wake is the time of the next profile.
func (l *Library) tidy() {
	for _, j := range l.open {
		if j.state == jobWaits {
			l.undo(j)
			if q := l.AssignedJobQueue; j.queue == q { // it was not started
				q.take(j)
				l.UnassignedJobQueue.tail(j)
			}
		}
	}
	clear(l.open)
	l.open = l.open[:0]
	l.UnassignedJobQueue.sweep()
	l.AssignedJobQueue.sweep()
	l.configure()
	if l.period > 0 && l.AssignedJobQueue.Len() > 0 {
		l.plan.Wake = min(l.plan.Wake, l.due)
	}
}

// happen follows what the view says has changed, and calls the program's functions.
func (l *Library) happen() error {
	v := l.view
	fresh := !l.ready
	changed := l.generation != v.Generation()
	if changed {
		l.generation = v.Generation()
		l.follow(v)
	}
	if fresh {
		l.ready = true
		if err := l.program.Init(l); err != nil {
			return err
		}
	}
	if v.Reordered() && !fresh {
		if err := l.reorder(); err != nil {
			return err
		}
	}
	if err := l.leave(); err != nil {
		return err
	}
	if changed || l.resumed {
		l.resumed = false
		l.discover()
	}
	return l.arrive(fresh)
}

// reorder sorts the queue after ranks have changed.
func (l *Library) reorder() error {
	var moved []*Job
	l.UnassignedJobQueue.sort(func(j *Job) int64 {
		now := l.view.Rank(j.ID)
		if now != j.rank {
			moved = append(moved, j)
		}
		return now
	})
	for _, j := range moved {
		if err := l.call(PriorityChange, j); err != nil {
			return err
		}
	}
	return nil
}

// hasArrived says whether the view tells that a job has come. Of many it makes a set.
func (l *Library) hasArrived(id policy.JobID) bool {
	list := l.view.Arrived()
	if len(list) < 16 {
		return slices.Contains(list, id)
	}
	if l.came.round != l.round {
		l.came = arrivals{l.round, make(map[policy.JobID]bool, len(list))}
		for _, id := range list {
			l.came.jobs[id] = true
		}
	}
	return l.came.jobs[id]
}

// arrivals are the jobs that have come in a round.
type arrivals struct {
	round uint64
	jobs  map[policy.JobID]bool
}

// leave follows the jobs that have ended, were cancelled, or wait again.
func (l *Library) leave() error {
	for _, id := range l.view.Left() {
		j := l.jobs[id]
		if j == nil {
			continue
		}
		if j.state == jobWaits && l.view.Waits(id) && l.hasArrived(id) {
			continue // it may use other nodes than before: see arrive
		}
		if j.state == jobWaits && l.view.Held(id) != nil {
			l.begun(j) // another policy has started it
			continue
		}
		ran := j.state != jobWaits
		l.drop(j)
		if ran && !l.view.Waits(id) {
			if err := l.call(JobComplete, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// discover follows jobs that were started, suspended or resumed by others.
func (l *Library) discover() {
	still := map[policy.JobID]bool{}
	for _, id := range l.view.StandStill() {
		still[id] = true
		l.find(id)
	}
	for _, id := range l.view.Running() {
		l.find(id)
	}
	l.AssignedJobQueue.Jobs(func(j *Job) bool {
		switch {
		case !j.Assigned():
		case still[j.ID]:
			l.setState(j, jobStandsStill)
		case !l.view.Stopping(j.ID): // else it is as it was, until that has happened
			l.setState(j, jobRuns)
		}
		return true
	})
}

// find makes sure that the library knows a job that holds something. If it finds the job suspended,
// it assumes that the program suspended it.
func (l *Library) find(id policy.JobID) {
	j := l.jobs[id]
	if j != nil && j.Assigned() {
		return
	}
	if j == nil {
		j = newJob(l.view, id)
		l.jobs[id] = j
	}
	l.begun(j)
	if slices.Contains(l.view.StandStill(), id) {
		j.limit = 0
	}
}

// begun notes that a job runs which the program did not start.
func (l *Library) begun(j *Job) {
	l.undo(j)
	if q := j.queue; q != nil {
		q.take(j)
	}
	j.holds(l, l.view.Held(j.ID))
	j.state = jobRuns
	j.give(1)
	l.AssignedJobQueue.tail(j)
}

// setState notes that a job runs or stands still now.
func (l *Library) setState(j *Job, s jobState) {
	if j.state == s {
		return
	}
	j.give(-1)
	j.state = s
	j.give(1)
}

// arrive tells the program of new jobs.
func (l *Library) arrive(fresh bool) error {
	list := l.view.Arrived()
	if fresh { // all that wait are new to the program
		list = l.view.WaitingJobs()
	}
	for _, id := range slices.Clone(list) {
		if j := l.jobs[id]; j != nil {
			j.reshape(l.view)
			j.parked, l.UnassignedJobQueue.skip = 0, 0
			continue
		}
		if !l.view.Waits(id) {
			continue // another policy has started it
		}
		j := newJob(l.view, id)
		l.jobs[id] = j
		if err := l.call(NewJobArrival, j); err != nil {
			return err
		}
	}
	return l.profiles()
}

// profiles tells of the running jobs when it is time to.
func (l *Library) profiles() error {
	now := l.view.Now()
	if l.period == 0 || now < l.due {
		return nil
	}
	l.due = model.After(now, l.period)
	for _, j := range l.AssignedJobQueue.List() {
		if j.state == jobRuns {
			if err := l.call(ProfileReceived, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// call tells the program of an event.
func (l *Library) call(e Event, j *Job) error {
	if f := l.callbacks[e]; f != nil && !l.cleaned {
		return f(j)
	}
	return nil
}

// Terminate tells the program that its time is over.
func (l *Library) Terminate() error { return l.call(Termination, nil) }

// drop forgets a job.
func (l *Library) drop(j *Job) {
	if j.state == jobWaits {
		l.undo(j)
	} else {
		j.give(-1)
	}
	if q := j.queue; q != nil {
		q.take(j)
	}
	j.state = jobOver
	delete(l.jobs, j.ID)
}

// undo takes a waiting job's nodes away.
func (l *Library) undo(j *Job) {
	j.give(-1)
	j.on, j.assigned, j.placed = j.on[:0], 0, false
}
