package mccs

import (
	"fmt"
	"time"

	"muster/model"
	"muster/policy"
)

// ---- Job and queue management ----

// check says what is wrong with a job that a call names.
func (l *Library) check(j *Job) error {
	if j == nil || l.jobs[j.ID] != j {
		return fmt.Errorf("the job is over, or was requeued: it is told by an event")
	}
	return nil
}

func (l *Library) mayJoin(j *Job, q *Queue) error {
	if err := l.check(j); err != nil {
		return err
	}
	switch {
	case j.queue == q && q != l.AssignedJobQueue:
		return fmt.Errorf("%s is in the %s already", j, q.Name)
	case j.queue != nil && j.queue != q:
		return fmt.Errorf("%s is in the %s: remove it from there first", j, j.queue.Name)
	case q == l.UnassignedJobQueue && j.Assigned():
		return fmt.Errorf("%s runs: it cannot be in the %s", j, q.Name)
	}
	return nil
}

// AddJob puts a job into a queue, behind all others. One that RemoveJob has handed out in
// this step stands again where it stood: had the program been through with all others
// after it, as in the paper, the queue would be the same.
func (l *Library) AddJob(j *Job, q *Queue) error { return l.add(j, q, false) }

// AddJobToTail is AddJob.
func (l *Library) AddJobToTail(j *Job, q *Queue) error { return l.add(j, q, false) }

// AddJobUntilFits is AddJob, and says that the program need not see the job again
// before it may fit: RemoveJob passes over it until then.
func (l *Library) AddJobUntilFits(j *Job, q *Queue) error { return l.add(j, q, true) }

func (l *Library) add(j *Job, q *Queue, park bool) error {
	if err := l.mayJoin(j, q); err != nil {
		return err
	}
	if j.queue == q { // as StartJob has put it there
		return nil
	}
	if j.parked = 0; park {
		j.parked = l.room
	}
	if j.round == l.round && q.back(j) {
		return nil
	}
	q.tail(j)
	return nil
}

// AddJobToHead puts a job into a queue, before all others. If RemoveJob has handed it
// out in this step, the round is over with it.
func (l *Library) AddJobToHead(j *Job, q *Queue) error {
	if err := l.mayJoin(j, q); err != nil {
		return err
	}
	j.parked = 0
	if j.queue == q {
		q.take(j)
	}
	q.head(j)
	if j.round == l.round {
		q.cursor = len(q.jobs)
	}
	return nil
}

// RemoveJob takes the next job out of a queue; nil if there is none. Of the queue of
// unassigned jobs each is handed out once in a step: nil says that the program has seen them
// all, and must wait.
func (l *Library) RemoveJob(q *Queue) *Job { return l.RemoveShortJob(q, policy.Never) }

// RemoveShortJob is RemoveJob for those jobs of the queue of unassigned jobs whose
// estimate is not longer than this; the others are passed over in this step.
func (l *Library) RemoveShortJob(q *Queue, longest time.Duration) *Job {
	if q != l.UnassignedJobQueue {
		j := l.RetrieveJob(q)
		if j != nil {
			q.take(j)
		}
		return j
	}
	q.cursor = max(q.cursor, q.skip)
	for q.cursor < len(q.jobs) {
		j := q.jobs[q.cursor]
		q.cursor++
		l.Looked++
		switch {
		case j.queue != q || l.passes(j):
			if q.skip == q.cursor-1 {
				q.skip = q.cursor
			}
		case j.round != l.round && j.Estimate() <= longest:
			j.round = l.round
			q.take(j)
			return j
		}
	}
	return nil
}

// passes says that a job does not fit, and the program does not want to see it then.
func (l *Library) passes(j *Job) bool {
	if j.parked == 0 {
		return false
	}
	if j.parked == l.room {
		return true
	}
	id := j.shape.ID()
	for id >= len(l.misfits) {
		l.misfits = append(l.misfits, 0)
	}
	if l.misfits[id] != l.round && !l.mayFit(j) {
		l.misfits[id] = l.round
	}
	if l.misfits[id] == l.round { // what is free only gets less within a round
		j.parked = l.room
		return true
	}
	return false
}

// mayFit is a quick test: false means that no node has anything for the job.
func (l *Library) mayFit(j *Job) bool {
	return (j.GPUs() == 0 || l.spare > 0) && l.view.MayFit(j.shape, policy.Sharing)
}

// RetrieveJob is the first job of a queue, which stays there; nil if there is none.
func (l *Library) RetrieveJob(q *Queue) (first *Job) {
	q.Jobs(func(j *Job) bool { first = j; return false })
	return first
}

// Suspended lists the assigned jobs whose limit is 0.
func (l *Library) Suspended() (list []*Job) {
	l.Looked += l.AssignedJobQueue.Len()
	l.AssignedJobQueue.Jobs(func(j *Job) bool {
		if j.limit == 0 && j.Assigned() && !l.view.Parked(j.ID) {
			list = append(list, j)
		}
		return true
	})
	return list
}

// Find is the job of a queue that its user knows by an ID; nil if there is none.
func (l *Library) Find(q *Queue, id string) (found *Job) {
	q.Jobs(func(j *Job) bool {
		if j.Spec.ID == id {
			found = j
		}
		return found == nil
	})
	return found
}

// SetProfilingPeriod says how often the program is told of each running job; 0 is never. It is also how often
// nodes report what programs measured, but for periods that are longer than an hour.
func (l *Library) SetProfilingPeriod(d time.Duration) error {
	if d < 0 || d > 0 && d < time.Second {
		return fmt.Errorf("the period of profiles is 0 for none, or a second at least, not %s", d)
	}
	l.period, l.unsettled = d, true
	l.plan.Profile(d > 0)
	if l.due = policy.Never; d > 0 {
		l.due = model.After(l.view.Now(), d)
	}
	return nil
}

// Profile is what is known of a job while it runs.
type Profile struct {
	Estimate time.Duration // of the whole run
	Elapsed  time.Duration // since it was started, if it was
	Left     time.Duration // of the estimate; 0 if it does not run
	// Intensity is the part of its run in which the job keeps its GPUs busy, Bytes what
	// it moves between its nodes, in all.
	Intensity float64
	Bytes     int64
	// Measured is what the nodes measured of its processes since it was started; nothing before a period
	// was set, and in the simulator.
	Measured model.Measured
}

// ProfileOf is what is known of a job.
func (l *Library) ProfileOf(j *Job) Profile {
	p := Profile{Estimate: j.Estimate(), Intensity: j.Spec.GPULoad(), Bytes: j.Spec.Traffic.NetBytes}
	if j.state == jobRuns {
		p.Measured = l.view.Measured(j.ID)
		p.Elapsed, p.Left = l.view.Now()-l.view.StartedAt(j.ID), l.view.ExpectedEnd(j.ID)-l.view.Now()
	}
	return p
}

// AddNodeToJob gives a node up to n more processes of a job, and answers how many it
// took: what it has free for them, and as many as are left. Where the user has said how
// many nodes the job wants, a node takes its part of the processes, whatever n is, or none. A job
// that wants neighbouring nodes is placed as a whole, at the first place there is.
func (l *Library) AddNodeToJob(j *Job, n *Node, processes int) (int, error) {
	if err := l.check(j); err != nil {
		return 0, err
	}
	switch {
	case j.Assigned():
		return 0, fmt.Errorf("%s runs: its nodes cannot be changed", j)
	case n == nil || l.byName[n.Name] != n:
		return 0, fmt.Errorf("%s: the node is not in the list of nodes: see mccsAddNode", j)
	}
	if j.shape.Request.Contiguous {
		return l.addNeighbours(j), nil
	}
	took := l.takes(j, n, processes)
	if took > 0 {
		l.assign(j, n, took)
	}
	return took, nil
}

// assign notes that a node has more processes of a job.
func (l *Library) assign(j *Job, n *Node, processes int) {
	if len(j.on) == 0 {
		l.open = append(l.open, j)
	}
	at := j.at(n)
	if at < 0 {
		at = len(j.on)
		j.on = append(j.on, OnNode{Node: n})
	}
	o := &j.on[at]
	n.add(-j.counts(o))
	o.Processes += processes
	o.load = j.loadOf(o.Processes)
	n.add(j.counts(o))
	j.assigned += processes
}

// addNeighbours gives a job the first run of nodes that it fits on.
func (l *Library) addNeighbours(j *Job) int {
	if len(j.on) > 0 {
		return 0
	}
	a := l.view.Place(j.shape, policy.Sharing)
	if a == nil {
		return 0
	}
	for i := range a.Parts {
		n, processes := l.nodes[a.Parts[i].Node], 0
		if j.unit > 0 {
			processes = int(a.Parts[i].Cores / j.unit)
		} else {
			processes = j.piece()
		}
		l.assign(j, n, processes)
	}
	return j.assigned
}

// RemoveAllNodesFromJob takes all nodes from a job that was not started.
func (l *Library) RemoveAllNodesFromJob(j *Job) error {
	if err := l.check(j); err != nil {
		return err
	}
	if j.Assigned() {
		return fmt.Errorf("%s runs: suspend it with mccsSetDeviceLimit, or end it with mccsDiscardJob", j)
	}
	l.undo(j)
	return nil
}

// ConfigureNodes says whether a job can be started on the nodes that it was given: all
// its processes have one, and all that they need is free.
func (l *Library) ConfigureNodes(j *Job) (bool, error) {
	if err := l.check(j); err != nil {
		return false, err
	}
	return !j.Assigned() && l.place(j) != nil, nil
}

func (l *Library) place(j *Job) *model.Allocation {
	if j.RemainingProcesses() > 0 || j.limit == 0 {
		return nil
	}
	l.places = j.chosen(l.places)
	return l.view.PlaceExactly(j.shape, l.places)
}

// StartJob starts a job on the nodes that it was given. It is false, and nothing has
// happened, if that cannot be.
func (l *Library) StartJob(j *Job) (bool, error) {
	if err := l.check(j); err != nil {
		return false, err
	}
	if j.Assigned() {
		return false, fmt.Errorf("%s runs already", j)
	}
	a := l.place(j)
	if a == nil || !l.plan.Start(j.ID, a, policy.Reason{Code: policy.Fitted}) {
		return false, nil
	}
	j.state, j.placed = jobRuns, true
	l.tell(j)
	if q := j.queue; q == l.UnassignedJobQueue {
		q.take(j)
	}
	if j.queue == nil {
		l.AssignedJobQueue.tail(j)
	}
	return true, nil
}

// SetDeviceLimit says how many GPUs a job may use on each of its nodes, NoLimit for
// all that it holds. 0 suspends a running job, and anything else lets it go on:
// answered is whether that can be. A waiting job is not started while its limit is 0.
func (l *Library) SetDeviceLimit(j *Job, devices int) (bool, error) {
	if err := l.check(j); err != nil {
		return false, err
	}
	if devices < NoLimit {
		return false, fmt.Errorf("%s: a limit is a number of GPUs, or -1 for all, not %d", j, devices)
	}
	switch {
	case j.state == jobWaits:
		j.give(-1)
		j.limit = devices
		j.give(1)
		return true, nil
	case devices == 0:
		return l.suspend(j), nil
	case l.view.Stopping(j.ID):
		return false, nil // it goes on when it has stopped
	case j.state == jobStandsStill && !l.resume(j):
		return false, nil
	}
	j.give(-1)
	j.limit = devices
	j.give(1)
	l.tell(j)
	return true, nil
}

// tell proposes the limit of a job that holds something, if the driver does not know it.
func (l *Library) tell(j *Job) {
	if j.told != j.limit && l.plan.Limit(j.ID, j.limit) {
		j.told = j.limit
	}
}

func (l *Library) suspend(j *Job) bool {
	if j.state == jobStandsStill {
		j.limit = 0
		return true
	}
	if !l.plan.Stop(j.ID, policy.Suspend, -1) {
		return false
	}
	j.limit = 0
	return true
}

func (l *Library) resume(j *Job) bool {
	if !l.plan.Resume(j.ID) {
		return false
	}
	l.setState(j, jobRuns)
	l.resumed = true
	return true
}

// WouldFit says whether a waiting job would find room somewhere if these running
// jobs were suspended.
func (l *Library) WouldFit(j *Job, without []*Job) (bool, error) {
	if err := l.check(j); err != nil {
		return false, err
	}
	l.Looked += 4*len(without) + 4*len(l.nodes)
	stops := make([]policy.Stop, 0, len(without))
	for _, o := range without {
		if err := l.check(o); err != nil {
			return false, err
		}
		stops = append(stops, policy.Stop{Job: o.ID, How: policy.Suspend})
	}
	return j.state == jobWaits && l.view.Suppose(stops, nil, j.shape, policy.Sharing) != nil, nil
}

// MoveJob has a suspended job go on elsewhere, with what it has done: it is back in the queue of unassigned
// jobs, as one that comes, when it has been saved. It is false, and nothing has happened, if the job could
// go on nowhere else now, or cannot be saved.
func (l *Library) MoveJob(j *Job) (bool, error) {
	if err := l.check(j); err != nil {
		return false, err
	}
	if j.state != jobStandsStill || l.view.Stopping(j.ID) {
		return false, nil
	}
	l.Looked += len(l.nodes)
	return l.view.Place(j.shape, policy.Sharing) != nil && l.plan.Stop(j.ID, policy.Move, -1), nil
}

// DiscardJob ends a running job. A waiting one leaves its queue and its nodes, and is
// never started.
func (l *Library) DiscardJob(j *Job) error {
	if err := l.check(j); err != nil {
		return err
	}
	if j.Assigned() {
		l.plan.Stop(j.ID, policy.Cancel, -1)
		return nil
	}
	l.undo(j)
	if q := j.queue; q != nil {
		q.take(j)
	}
	return nil
}
