package slurm

import (
	"math/bits"
	"slices"
	"time"
)

// Status is what the driver knows, for people and scripts.
type Status struct {
	// Problem says why the driver could not read Slurm in its latest round; everything else is then
	// from the last round that succeeded. It is empty if all is well.
	Problem string `json:"problem,omitempty"`

	Nodes   int `json:"nodes"`
	Up      int `json:"nodes_up"`
	Waiting int `json:"waiting"`
	Placed  int `json:"placed"`
	Running int `json:"running"`
	Slurms  int `json:"slurms"`
	// Lenders is how many nodes lend GPUs now, Lendable how many GPUs they lend, and Borrowed how
	// many are lent to jobs, a shared one counted for each of its jobs.
	Lenders  int         `json:"lenders"`
	Lendable int         `json:"gpus_lendable"`
	Borrowed int         `json:"gpus_borrowed"`
	Counts   Counts      `json:"counts"`
	Jobs     []JobStatus `json:"jobs"`
}

// JobStatus describes a job of Muster.
type JobStatus struct {
	ID    uint64 `json:"id"`
	Name  string `json:"name"`
	User  string `json:"user"`
	State string `json:"state"`
	// Nodes is where the job was placed, Devices what it borrows.
	Nodes   []string `json:"nodes,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Why     string   `json:"why,omitempty"`
	// Priority of a waiting job is what Slurm would compute if it were not held; 0 if Slurm does
	// not rank jobs.
	Priority int64   `json:"priority,omitempty"`
	Since    float64 `json:"since_at"`
}

// Status describes the driver's state. It lists at most most jobs, with the reasons why they wait.
func (c *Core) Status(most int) Status {
	s := Status{Counts: c.out.counts, Jobs: []JobStatus{}}
	for _, n := range c.fleet.nodes {
		if n.gone {
			continue
		}
		s.Nodes++
		if n.up() && !n.crowded {
			s.Up++
		}
		if c.cfg.Lending && n.lends != 0 {
			s.Lenders++
			s.Lendable += bits.OnesCount64(n.lends)
		}
	}
	ids := c.roster.sorted(func(j *job) bool {
		switch {
		case !j.managed || j.phase == slurms || j.phase == leaving:
			s.Slurms++
			return false
		case j.phase == running:
			s.Running++
			s.Borrowed += len(j.lent())
		case j.phase == placed || j.phase == placing:
			s.Placed++
			s.Borrowed += len(j.lent())
		default:
			s.Waiting++
		}
		return true
	})
	for _, id := range ids[:min(most, len(ids))] {
		s.Jobs = append(s.Jobs, c.jobStatus(c.roster.jobs[id]))
	}
	return s
}

func (c *Core) jobStatus(j *job) JobStatus {
	d := JobStatus{ID: j.ID, Name: j.fact.Name, User: j.fact.User, State: j.phase.String(), Why: c.Why(j.ID), Since: time.Duration(j.since).Seconds()}
	switch {
	case j.phase == running && j.asleep:
		d.State = "suspended"
	case j.phase == running && j.halting:
		d.State = "stopping"
	}
	d.Priority, _ = c.ranks.Priority(j.ID)
	if j.plan != nil {
		d.Nodes = slices.Clone(j.plan.Nodes)
		for _, g := range j.plan.Devices {
			d.Devices = append(d.Devices, g.String())
		}
	}
	return d
}

// Held lists the jobs that wait for Muster, with their comments. A driver that stops for long hands
// them to Slurm's scheduler. Jobs that need borrowed GPUs, or that a user or administrator holds,
// are not listed.
func (c *Core) Held(why string) []Say {
	var list []Say
	for _, id := range c.roster.sorted(func(j *job) bool { return j.managed && (j.phase == waiting || j.phase == aside) && j.fact.Held }) {
		j := c.roster.jobs[id]
		if r := j.comment.Request; r.GPUs > 0 || r.Held || j.fact.Reason == "JobHeldAdmin" || c.lending.mixes(j) {
			continue
		}
		say := j.comment
		say.Answer, say.Why = nil, why
		list = append(list, Say{j.Ref, say.String()})
	}
	return list
}

// Counts are the numbers of events so far.
type Counts struct {
	Placed     int `json:"placed"`
	Started    int `json:"started"`
	Ended      int `json:"ended"`
	Refused    int `json:"refused"`
	Unknown    int `json:"unknown"`
	Recalled   int `json:"recalled"`
	HandedOver int `json:"handed_over"`
	// Clashes is how often Slurm gave a job a GPU that was lent to another.
	Clashes int `json:"gpu_clashes"`
	// Stopped is the number of jobs that were suspended, requeued or cancelled in favour of others.
	Stopped int `json:"stopped"`
	// Wrong is the number of jobs that started on other nodes than they were placed on; Uneven that
	// of jobs that started on the right nodes with other shares of them.
	Wrong  int `json:"wrong"`
	Uneven int `json:"uneven"`
}
