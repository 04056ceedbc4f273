package mccs

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// NoLimit lets a job use all the devices that it holds.
const NoLimit = -1

// Job is the library's picture of a job.
type Job struct {
	// ID names it in the view.
	ID policy.JobID
	// Spec is what the user submitted.
	Spec *model.Job
	// Tag is free for the code that binds the library to a language.
	Tag any

	shape *policy.Shape
	// processes are those of the whole job; unit is how many cores each has where they
	// are spread over any nodes, and 0 where the user has said how many nodes.
	processes int
	unit      int32

	on       []OnNode // processes by node, in the order in which they were given
	assigned int      // sum of them
	placed   bool     // on is what the job holds

	limit  int
	told   int // the limit that the driver knows
	state  jobState
	queue  *Queue
	stands *Queue // in whose list it has a place, though it may have left
	seq    int64
	rank   int64
	round  uint64 // in which RemoveJob handed it out
	parked uint64 // the room in which it did not fit; 0 where it is to be handed out always
}

type jobState uint8

const (
	jobWaits jobState = iota
	jobRuns
	jobStandsStill
	jobOver
)

// OnNode is how many processes of a job a node has.
type OnNode struct {
	Node      *Node
	Processes int
	load      int // what they count for at the node
}

// Name is what the paper calls the application's name: that of the program where it is
// known, or else the job's own.
func (j *Job) Name() string {
	if l := j.Spec.Logged; l != nil && l.Executable != "" {
		return l.Executable
	}
	return j.Spec.ID
}

// NumProcesses counts the processes of the whole job.
func (j *Job) NumProcesses() int { return j.processes }

// RemainingProcesses counts those that no node has been given yet.
func (j *Job) RemainingProcesses() int { return j.processes - j.assigned }

// Nodes are the nodes that were given processes, with how many.
func (j *Job) Nodes() []OnNode { return j.on }

// GPUs is how many GPUs, or shares of them, each node gives; 0 for a job without any in
// its own nodes.
func (j *Job) GPUs() int { return j.Spec.Request.GPUs }

// Limit is what SetDeviceLimit said last, or NoLimit.
func (j *Job) Limit() int { return j.limit }

// Suspended says that a job stands still.
func (j *Job) Suspended() bool { return j.state == jobStandsStill }

// Assigned says that a job has been started, and has not ended.
func (j *Job) Assigned() bool {
	return j.state == jobRuns || j.state == jobStandsStill
}

// Queue is where the job is; nil if in none.
func (j *Job) Queue() *Queue { return j.queue }

// Estimate is how long the job must be expected to run: part of its profile.
func (j *Job) Estimate() time.Duration { return j.Spec.Estimate() }

// Rank is the job's priority: larger ones stand first.
func (j *Job) Rank() int64 { return j.rank }

func newJob(v *policy.View, id policy.JobID) *Job {
	j := &Job{ID: id, limit: NoLimit, told: NoLimit}
	j.reshape(v)
	return j
}

// reshape reads the job from the view.
func (j *Job) reshape(v *policy.View) {
	j.Spec, j.shape, j.rank = v.Job(j.ID), v.Shape(j.ID), v.Rank(j.ID)
	r := &j.Spec.Request
	switch {
	case r.Nodes > 0:
		j.unit, j.processes = 0, max(r.Nodes, r.Processes)
	case r.CoresPerProcess > 0:
		j.unit, j.processes = int32(r.CoresPerProcess), r.Cores/r.CoresPerProcess
	default:
		j.unit, j.processes = 1, r.Cores
	}
}

// piece is how many processes the next node takes of a job whose user has said how
// many nodes.
func (j *Job) piece() int {
	nodes := j.Spec.Request.Nodes
	each := j.processes / nodes
	if len(j.on) < j.processes%nodes {
		each++
	}
	return each
}

// loadOf is what a number of processes on a node count for there: at least one for each device they
// hold. Processes that use none of the node's devices count nothing.
func (j *Job) loadOf(processes int) int {
	if j.GPUs() == 0 {
		return 0
	}
	return max(processes, j.GPUs())
}

// counts is what a job counts for on a node now.
func (j *Job) counts(o *OnNode) int {
	switch {
	case j.state == jobStandsStill:
		return 0
	case j.limit > 0:
		return min(o.load, j.limit)
	}
	return o.load
}

// give adds or takes away what the job counts for on its nodes.
func (j *Job) give(sign int) {
	for i := range j.on {
		j.on[i].Node.add(sign * j.counts(&j.on[i]))
	}
}

// chosen is the nodes of a job as the view wants them.
func (j *Job) chosen(into []policy.OnNode) []policy.OnNode {
	into = into[:0]
	for _, o := range j.on {
		into = append(into, policy.OnNode{Node: o.Node.index, Cores: int32(o.Processes) * j.unit})
	}
	slices.SortFunc(into, func(a, b policy.OnNode) int { return cmp.Compare(a.Node, b.Node) })
	return into
}

// holds reads the nodes of a job that runs already from what it holds.
func (j *Job) holds(l *Library, a *model.Allocation) {
	j.on, j.assigned = j.on[:0], 0
	for i := range a.Parts {
		p := &a.Parts[i]
		n := j.processes / len(a.Parts)
		if i < j.processes%len(a.Parts) {
			n++
		}
		if j.unit > 0 {
			n = int(p.Cores / j.unit)
		}
		gpus := bits.OnesCount64(p.GPUs)
		for _, g := range a.Grants {
			if int(g.For) == i && g.Node == p.Node {
				gpus++
			}
		}
		load := 0
		if j.GPUs() > 0 {
			load = max(n, gpus)
		}
		j.on = append(j.on, OnNode{Node: l.nodes[p.Node], Processes: n, load: load})
		j.assigned += n
	}
	j.placed = true
}

func (j *Job) String() string { return fmt.Sprintf("job %s", j.Spec.ID) }
