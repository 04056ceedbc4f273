package agree

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/exp/bench"
	"muster/head"
	"muster/head/whatif"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy/catalog"
	"muster/sim"
	"muster/wire/api"
)

// Record is what the runs left.
type Record struct {
	Machine string `json:"machine"`
	Runs    []Run  `json:"runs"`
}

// Run is what a head knows of the jobs under a policy when all have ended.
type Run struct {
	Policy string    `json:"policy"`
	Late   float64   `json:"late"`  // the machine's mean wake-up delay meanwhile, in seconds
	Moves  int       `json:"moves"` // of programs to faster or emptier GPUs, by the nodes
	Jobs   []api.Job `json:"jobs"`
}

// policies are run one after the other.
var policies = []string{"fcfs", "easy", "sjf", "first-fit"}

// gpus are the speeds of the GPUs of each node.
var gpus = [][]float64{{0.25, 0.25}, {0.5, 0.5}, {1}}

const (
	// rate is how many operations a second a GPU of speed 1 executes: so few that programs wait for GPUs and not
	// for this machine's processors. An automaton of so many states then takes unit on a
	// GPU of speed 1.
	rate, states = 1e7, 160
	unit         = 162500 * time.Microsecond

	cores, nodeMemory = 16, 8 << 30
	gpuMemory         = 1 << 30

	// program waits for each of its kernels, of which it has eight for an automaton. One that launches all at once
	// could not be moved before they have ended.
	program = "adfa"
)

// job is the nth job: a share that it has for itself on a GPU, or that leaves room for a second job, and 0.3 to
// 1.6 s of work for a GPU of speed 1. The limits tell policies which are long.
func job(n int) (options []string, automata int) {
	share := []string{"300M", "600M", "450M"}[n%3]
	automata = []int{4, 2, 7, 3, 10}[n%5]
	return []string{"-n1", "--gres=gpu:1:" + share, "--gpu-reach=cluster", fmt.Sprintf("--time=%d", automata)}, automata
}

const jobs = 30

// record runs the jobs under a policy, live.
func record(ctx context.Context, t bench.Tools, policy string) (Run, error) {
	spec := bench.ClusterSpec{Policy: policy, Memory: nodeMemory, Lend: true}
	for i, speeds := range gpus {
		var list []string
		for k, speed := range speeds {
			list = append(list, fmt.Sprintf("soft:name=gpu%g #%d,speed=%g,rate=%.0f,workers=1,memory=%d", speed, k, speed, rate*speed, int64(gpuMemory)))
		}
		spec.Hosts = append(spec.Hosts, bench.Host{Name: nodeName(i), Cores: cores, Devices: strings.Join(list, ";")})
	}
	up, err := bench.StartCluster(ctx, t, "agree", spec)
	if err != nil {
		return Run{}, err
	}
	defer up.Stop()
	submission := func(n int) *api.Submission {
		options, automata := job(n)
		return &api.Submission{Options: options, Arguments: []string{filepath.Join(t.Programs, program), "--size", fmt.Sprint(states), "--repeat", fmt.Sprint(automata), "--seed", "1"}}
	}
	if _, err := up.Run(ctx, []*api.Submission{submission(1)}); err != nil { // the first job on a cluster takes longer than all others
		return Run{}, err
	}
	before, err := up.Moves()
	if err != nil {
		return Run{}, err
	}
	var list []*api.Submission
	for n := range jobs {
		list = append(list, submission(n))
	}
	machine := bench.Watch()
	ended, err := up.Run(ctx, list)
	run := Run{Policy: policy, Late: machine()}
	if err != nil {
		return run, err
	}
	if run.Moves, err = up.Moves(); err != nil {
		return run, err
	}
	run.Moves -= before
	for i := range ended {
		if text := up.Output(ended[i].ID); ended[i].State != api.Completed || !strings.Contains(text, " right, ") {
			return run, fmt.Errorf("job %d ended as %s: %s\n%s", ended[i].ID, ended[i].State, ended[i].Why, text)
		}
		run.Jobs = append(run.Jobs, kept(&ended[i]))
	}
	return run, nil
}

// kept is what what-if reads of a job.
func kept(j *api.Job) api.Job {
	return api.Job{
		ID: j.ID, User: "user", State: j.State, Options: j.Options, Priority: j.Priority, Submit: j.Submit, Eligible: j.Eligible, Start: j.Start, End: j.End, Elapsed: j.Elapsed,
		Parts: j.Parts, Devices: j.Devices, Cores: j.Cores, GPUs: j.GPUs, GPUShare: j.GPUShare,
	}
}

func nodeName(i int) string { return fmt.Sprint("node", i+1) }

// cluster is what the head was told of its nodes.
func cluster() *model.Cluster {
	c := &model.Cluster{}
	for i, speeds := range gpus {
		n := model.Node{Name: nodeName(i), Cores: cores, Memory: nodeMemory}
		for _, speed := range speeds {
			t := slices.IndexFunc(c.GPUTypes, func(t model.GPUType) bool { return t.Speed == speed })
			if t < 0 {
				t = len(c.GPUTypes)
				c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: fmt.Sprintf("gpu%g", speed), Memory: gpuMemory, Speed: speed})
			}
			n.GPUs = append(n.GPUs, t)
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// Figures are what is compared: the mean wait of a job and the time until the last has ended, in seconds.
type Figures struct{ MeanWait, Makespan float64 }

// workload is the run as what-if sees it.
func (r *Run) workload() (*whatif.Workload, error) {
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	from, to := at(r.Jobs[0].Submit), time.Duration(0)
	for i := range r.Jobs {
		from, to = min(from, at(r.Jobs[i].Submit)), max(to, at(r.Jobs[i].End))
	}
	from -= 10 * time.Millisecond
	h := whatif.Header{Name: "day", Began: from, From: from, To: to + time.Minute, Cluster: cluster()}
	for i := range gpus {
		h.Machines = append(h.Machines, head.Machine{Name: nodeName(i), Is: "up"})
	}
	y, err := whatif.New(h)
	if err != nil {
		return nil, err
	}
	for i := range r.Jobs {
		y.Add(&r.Jobs[i])
	}
	return y.Workload(), nil
}

// Measured is what the run gave.
func (r *Run) Measured() (Figures, error) {
	w, err := r.workload()
	if err != nil {
		return Figures{}, err
	}
	return figures(w.Period().Measured), nil
}

// Simulated is what another policy, or the same, would have given by what-if.
func (r *Run) Simulated(spec string) (Figures, error) {
	w, err := r.workload()
	if err != nil {
		return Figures{}, err
	}
	p, err := catalog.New(spec)
	if err != nil {
		return Figures{}, err
	}
	trial, err := w.Try(context.Background(), p, nil)
	if err != nil {
		return Figures{}, err
	}
	return figures(trial.Figures), nil
}

// Bound is what the simulator says of the run from the jobs' work alone, if nodes bind their shares late as these
// did, and how many moves that takes. Starts take no time there.
func (r *Run) Bound() (f Figures, moves int, err error) {
	var list []model.Job
	for n := range r.Jobs {
		options, automata := job(n)
		said, err := slurmopt.Parse(append([]string{slurmopt.Submit}, options...))
		if err != nil {
			return f, 0, err
		}
		j := model.Job{ID: fmt.Sprint(n), User: "user", Submit: time.Duration((r.Jobs[n].Submit - r.Jobs[0].Submit) * float64(time.Second)), Run: time.Duration(automata) * unit}
		said.Apply(&j)
		j.Request.Run = 0
		list = append(list, j)
	}
	p, err := catalog.New(r.Policy)
	if err != nil {
		return f, 0, err
	}
	result, err := sim.Run(context.Background(), sim.Config{Cluster: cluster(), Jobs: list, Policy: p, NoKill: true, Bind: &sim.Binding{Usual: model.DefaultHolds(), Cost: 100 * time.Millisecond, Bandwidth: 2 << 30}})
	if err != nil {
		return f, 0, err
	}
	for i, o := range result.Outcomes {
		f.MeanWait += (o.Start - list[i].Submit).Seconds() / float64(len(list))
		f.Makespan = max(f.Makespan, o.End.Seconds())
	}
	return f, result.Rebinds, nil
}

func figures(f api.WhatIfFigures) Figures { return Figures{f.MeanWait, f.Makespan} }
