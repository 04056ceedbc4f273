package history

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// Workload is what a history is to a simulator: the jobs that ran, and where.
type Workload struct {
	Header  Header
	Cluster *model.Cluster
	// Jobs are in order of submission, the first at 0. Each has the request that it ran with, and runs
	// as long as it did; of one that still ran at the end, as far as that was seen.
	Jobs []model.Job
	// Waiting is how many never ran, and are left out; Running how many had not ended.
	Waiting, Running int
}

// Jobs reads the jobs of a history. A job that a driver has told of more than once, because it was
// withdrawn and offered again, or entered anew when it ran otherwise than planned, is one.
func Jobs(in io.Reader) (*Workload, error) {
	r := &reader{in: bufio.NewReaderSize(in, 1<<16)}
	h, err := r.header()
	if err != nil {
		return nil, err
	}
	g := &gatherer{cluster: *h.Cluster, jobs: map[string]*gathered{}, numbers: map[policy.JobID]*gathered{}}
	for {
		e, _, err := r.event()
		if err != nil {
			return nil, err
		}
		if e == nil {
			return g.workload(*h), nil
		}
		if err := g.take(e); err != nil {
			return nil, r.wrong(err)
		}
	}
}

// gatherer puts together what events say of jobs and of the cluster.
type gatherer struct {
	now     time.Duration
	cluster model.Cluster
	jobs    map[string]*gathered
	order   []*gathered
	numbers map[policy.JobID]*gathered
	ending  []*gathered
}

type gathered struct {
	job *model.Job
	// ran says that it has started, from when and until when.
	ran, runs   bool
	from, until time.Duration
	as          int
}

func (g *gatherer) take(e event) error {
	switch e := e.(type) {
	case *submitted:
		if e.Error == "" {
			m := e.Job.model()
			j := g.enter(m, e.ID)
			m.ID, m.Submit = j.job.ID, j.job.Submit // what it asks for may have changed meanwhile
			j.job = m
		}
	case *adopted:
		if e.Error == "" {
			j := g.enter(e.Job.model(), e.ID)
			g.start(j, time.Duration(e.Started), e.Alternative)
		}
	case *changed:
		g.tell(e)
	case *nodeAdded:
		return g.addNode(e)
	case *devicesAdded:
		return g.addDevices(e)
	case *stepped:
		g.now = max(g.now, time.Duration(e.At))
		g.settle()
		for _, st := range e.Plan.Starts {
			if j := g.numbers[st.ID]; j != nil && st.Error == "" {
				g.start(j, g.now, st.Alternative)
			}
		}
	}
	return nil
}

// settle gives those that have ended since the step before their time: ends have none of their own,
// and a step follows at once.
func (g *gatherer) settle() {
	for _, j := range g.ending {
		if !j.runs {
			j.until = g.now
		}
	}
	g.ending = nil
}

// enter finds a job by its name, or makes it. Two with one name that run at a time are parts of a job
// that stand for themselves.
func (g *gatherer) enter(m *model.Job, number policy.JobID) *gathered {
	name := m.ID
	for n := 2; g.jobs[name] != nil && g.jobs[name].runs; n++ {
		name = fmt.Sprintf("%s+%d", m.ID, n)
	}
	j := g.jobs[name]
	if j == nil {
		m.ID = name
		if m.Submit == 0 {
			m.Submit = g.now
		}
		j = &gathered{job: m}
		g.jobs[name] = j
		g.order = append(g.order, j)
	}
	g.numbers[number] = j
	return j
}

func (g *gatherer) start(j *gathered, at time.Duration, as int) {
	j.ran, j.runs, j.as, j.from = true, true, as, at
}

func (g *gatherer) tell(e *changed) {
	j := g.numbers[e.ID]
	if j == nil || e.Error != "" {
		return
	}
	switch e.Do {
	case endWord:
		j.runs = false
		g.ending = append(g.ending, j)
		delete(g.numbers, e.ID)
	case requeueWord:
		j.runs, j.ran = false, false
	case cancelWord:
		delete(g.numbers, e.ID)
	}
}

func (g *gatherer) addNode(e *nodeAdded) error {
	if e.Error != "" {
		return nil
	}
	n := e.Node.model()
	g.addTypes(n.GPUs, modelTypes(e.Types))
	g.cluster.Nodes = append(g.cluster.Nodes, n)
	return nil
}

func (g *gatherer) addDevices(e *devicesAdded) error {
	if e.Error != "" {
		return nil
	}
	if uint(e.Number) >= uint(len(g.cluster.Nodes)) {
		return fmt.Errorf("there is no node number %d", e.Number)
	}
	gpus := slices.Clone(e.GPUs)
	g.addTypes(gpus, modelTypes(e.Types))
	n := &g.cluster.Nodes[e.Number]
	n.GPUs = slices.Concat(n.GPUs, gpus)
	return nil
}

// addTypes makes GPUs that were counted among some types those of the cluster.
func (g *gatherer) addTypes(gpus []int, types []model.GPUType) {
	for i, t := range gpus {
		if t >= len(types) {
			continue // one of the cluster's already
		}
		at := slices.IndexFunc(g.cluster.GPUTypes, func(known model.GPUType) bool { return known.Name == types[t].Name })
		if at < 0 {
			at = len(g.cluster.GPUTypes)
			g.cluster.GPUTypes = append(g.cluster.GPUTypes, types[t])
		}
		gpus[i] = at
	}
}

// workload is what was put together.
func (g *gatherer) workload(h Header) *Workload {
	w := &Workload{Header: h, Cluster: &g.cluster}
	g.settle()
	for _, j := range g.order {
		if !j.ran {
			w.Waiting++
			continue
		}
		if j.runs {
			w.Running++
			j.until = g.now
		}
		m := *j.job
		if j.as > 0 && j.as <= len(m.Alternatives) {
			m.Request = m.Alternatives[j.as-1]
		}
		m.Alternatives = nil
		m.Submit = max(0, min(m.Submit, j.from))
		m.Run = max(time.Second, j.until-j.from)
		m.Request.Run = 0
		w.Jobs = append(w.Jobs, m)
	}
	slices.SortStableFunc(w.Jobs, func(a, b model.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	if len(w.Jobs) > 0 {
		for first, i := w.Jobs[0].Submit, 0; i < len(w.Jobs); i++ {
			w.Jobs[i].Submit -= first
		}
	}
	return w
}
