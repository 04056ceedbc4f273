package whatif_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/head"
	"muster/head/whatif"
	"muster/model"
	"muster/model/clusterfile"
	"muster/model/slurmopt"
	"muster/policy/catalog"
	"muster/sim"
	"muster/wire/api"
	"muster/workload"
	"muster/workload/bundled"
)

const week = 7 * 24 * time.Hour

// weekOptions is what a job of the synthetic week asks for.
func weekOptions(rng *rand.Rand) (options string, nodes, gpus int) {
	nodes, gpus = 1, [...]int{0, 1, 1, 1, 1, 1, 2, 2, 4, 4}[rng.IntN(10)]
	if rng.IntN(20) == 0 {
		nodes = 2 << rng.IntN(3)
	}
	options = fmt.Sprintf("-N%d --ntasks-per-node=%d --mem=8G", nodes, max(1, 4*gpus))
	if gpus > 0 {
		options += fmt.Sprintf(" --gres=gpu:%d", gpus)
	}
	return options, nodes, gpus
}

// syntheticWeek is a week of jobs on nodes of 32 cores and 4 GPUs: of 200 users, by day more
// than by night, with limits of one to four times the run. They offer load of all GPUs.
func syntheticWeek(jobs, nodes int, load float64) (*model.Cluster, []model.Job, []string) {
	c := &model.Cluster{Name: "week", GPUTypes: []model.GPUType{{Name: "g", Memory: 40 << 30, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%03d", i), Cores: 32, Memory: 256 << 30, GPUs: []int{0, 0, 0, 0}})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	list, options := make([]model.Job, jobs), make([]string, jobs)
	runs, sum := make([]float64, jobs), 0.0
	for i := range list {
		text, n, gpus := weekOptions(rng)
		options[i] = text
		runs[i] = rng.ExpFloat64() * float64(1+rng.IntN(4))
		sum += runs[i] * float64(n*gpus)
	}
	unit := week.Seconds() * 4 * float64(nodes) * load / sum
	for i := range list {
		run := max(1, runs[i]*unit)
		minutes := int(run*(1+3*rng.Float64())/60) + 1
		options[i] += fmt.Sprintf(" --time=%d", minutes)
		said, err := slurmopt.Parse(append([]string{slurmopt.Submit}, words(options[i])...))
		if err != nil {
			panic(err)
		}
		// Twice as many at noon as on average, hardly any at midnight.
		day := (float64(i) + rng.Float64()) / float64(jobs) * 7
		day -= 0.9 * math.Sin(2*math.Pi*day) / (2 * math.Pi)
		j := &list[i]
		j.ID, j.User, j.Submit = fmt.Sprint(i+1), fmt.Sprint("u", rng.IntN(200)), time.Duration(day*86400)*time.Second
		said.Apply(j)
		j.Run = time.Duration(run*1e6) * time.Microsecond
	}
	for i := 1; i < jobs; i++ { // the times above are nearly in order
		list[i].Submit = max(list[i].Submit, list[i-1].Submit)
	}
	return c, list, options
}

func words(line string) (list []string) {
	all, err := slurmopt.Words(line)
	if err != nil {
		panic(err)
	}
	for _, w := range all {
		list = append(list, w.Text)
	}
	return list
}

// documents are what a head with a policy would have recorded of jobs; that head is simulated.
type documents struct {
	cluster *model.Cluster
	jobs    []api.Job
}

func (d *documents) Started(now time.Duration, job int, a *model.Allocation) {
	j := &d.jobs[job]
	j.Start, j.Parts, j.Devices, j.Cores, j.GPUs, j.GPUShare = (began + now).Seconds(), nil, nil, 0, 0, 0
	for i := range a.Parts {
		p, name := &a.Parts[i], d.cluster.Nodes[a.Parts[i].Node].Name
		j.Parts = append(j.Parts, api.Part{Node: name, Cores: int(p.Cores), Memory: p.Memory})
		j.Cores += int(p.Cores)
		for _, g := range a.DevicesOf(i) {
			j.Devices = append(j.Devices, api.Device{For: name, Node: d.cluster.Nodes[g.Node].Name, Device: int(g.Device)})
			j.GPUs++
			j.GPUShare++
		}
	}
}

func (d *documents) Ended(now time.Duration, job int) {
	j := &d.jobs[job]
	j.End = (began + now).Seconds()
	j.Elapsed, j.State = j.End-j.Start, api.Completed
}

// historyOf is the week that a head would have had with a policy.
func historyOf(c *model.Cluster, jobs []model.Job, options []string, spec string) (whatif.Header, []api.Job, error) {
	d := &documents{cluster: c, jobs: make([]api.Job, len(jobs))}
	for i := range jobs {
		at := (began + jobs[i].Submit).Seconds()
		d.jobs[i] = api.Job{ID: uint64(i + 1), Name: "j", User: jobs[i].User, State: api.Pending, Options: options[i], Submit: at, Eligible: at, Directory: "/"}
	}
	p, err := catalog.New(spec)
	if err != nil {
		return whatif.Header{}, nil, err
	}
	if _, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p, NoKill: true, Observe: d, Until: week}); err != nil {
		return whatif.Header{}, nil, err
	}
	h := whatif.Header{Name: "week", Began: began, From: began, To: began + week, Cluster: c}
	for i := range c.Nodes {
		h.Machines = append(h.Machines, head.Machine{Name: c.Nodes[i].Name, Is: "up"})
	}
	var ended []api.Job
	for _, j := range d.jobs {
		switch {
		case j.State == api.Completed:
			ended = append(ended, j)
		case j.Start > 0:
			j.State = api.Running
			h.Active = append(h.Active, j)
		default:
			h.Active = append(h.Active, j)
		}
	}
	return h, ended, nil
}

// bundledWeek is the log that comes with Muster, as options would have requested it.
func bundledWeek() (*model.Cluster, []model.Job, []string, error) {
	c, err := clusterfile.Preset("small")
	if err != nil {
		return nil, nil, nil, err
	}
	log := bundled.Logs()[0]
	w, _, err := workload.Read(bytes.NewReader(log.Data()), log.File, workload.ReadOptions{})
	if err != nil {
		return nil, nil, nil, err
	}
	options := make([]string, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.Traffic = model.Traffic{} // a head knows nothing of it
		r := &j.Request
		options[i] = fmt.Sprintf("-N%d --ntasks-per-node=%d --mem=%dM --time=%d", r.Nodes, r.CoresOnNode(), r.Memory>>20, j.WallTime/time.Minute+1)
		if r.GPUs > 0 {
			options[i] += fmt.Sprintf(" --gres=gpu:%d", r.GPUs)
		}
		said, err := slurmopt.Parse(append([]string{slurmopt.Submit}, words(options[i])...))
		if err != nil {
			return nil, nil, nil, errors.Join(fmt.Errorf("%q", options[i]), err)
		}
		run := j.Run
		said.Apply(j)
		j.Run, j.User = run.Round(time.Microsecond), fmt.Sprint("u", i%7)
		j.Submit = j.Submit.Round(time.Microsecond)
	}
	return c, w.Jobs, options, nil
}

// The bundled log, as a head would have recorded it, yields exactly what the simulator makes of it,
// and all policies can run it.
func TestBundledLog(t *testing.T) {
	c, jobs, options, err := bundledWeek()
	if err != nil {
		t.Fatal(err)
	}
	h, ended, err := historyOf(c, jobs, options, "easy")
	if err != nil {
		t.Fatal(err)
	}
	w := workloadOf(t, h, ended)
	p := w.Period()
	if trial := try(t, w, "easy"); p.Jobs != len(jobs) || trial.Figures != p.Measured || trial.StartedTogether != 1 {
		t.Errorf("%d jobs, measured %+v\nreplayed %+v", p.Jobs, p.Measured, trial.Figures)
	}
	if slow, fast := try(t, w, "g-queue").Figures, try(t, w, "r-queue").Figures; slow.MeanWait < 2*fast.MeanWait {
		t.Errorf("whole nodes make jobs wait for %v s, and borrowed GPUs for %v s", slow.MeanWait, fast.MeanWait)
	}
}

var theWeek = sync.OnceValues(func() (*whatif.Workload, error) {
	c, jobs, options := syntheticWeek(100_000, 200, 0.9)
	h, ended, err := historyOf(c, jobs, options, "easy")
	if err != nil {
		return nil, err
	}
	y, err := whatif.New(h)
	if err != nil {
		return nil, err
	}
	for i := range ended {
		y.Add(&ended[i])
	}
	return y.Workload(), nil
})

// BenchmarkWeek is a week of 100,000 jobs on 200 nodes, at a load of 0.9, under each policy; cpu-s
// is what counts. A policy that takes longer than maxEach is skipped.
func BenchmarkWeek(b *testing.B) {
	w, err := theWeek()
	if err != nil {
		b.Fatal(err)
	}
	const maxEach = 10 * time.Minute
	for _, e := range catalog.Entries {
		b.Run(e.Name, func(b *testing.B) {
			for b.Loop() {
				p, err := catalog.New(e.Name)
				if err != nil {
					b.Fatal(err)
				}
				done, before := 0, cpuTime()
				ctx, cancel := context.WithTimeout(context.Background(), maxEach)
				trial, err := w.Try(ctx, p, func(n int) { done = n })
				cancel()
				if err != nil {
					b.Logf("after %d jobs: %v", done, err)
				} else {
					b.ReportMetric(trial.Figures.MeanWait, "wait-s")
					b.ReportMetric(trial.Figures.Use*100, "gpu-%")
				}
				b.ReportMetric((cpuTime() - before).Seconds(), "cpu-s")
			}
		})
	}
}

// BenchmarkHistory measures what it costs to make a workload of 100,000 ended jobs.
func BenchmarkHistory(b *testing.B) {
	c, jobs, options := syntheticWeek(100_000, 200, 0.9)
	h, ended, err := historyOf(c, jobs, options, "easy")
	if err != nil {
		b.Fatal(err)
	}
	before := cpuTime()
	b.ResetTimer()
	for b.Loop() {
		y, err := whatif.New(h)
		if err != nil {
			b.Fatal(err)
		}
		for i := range ended {
			y.Add(&ended[i])
		}
		y.Workload().Period()
	}
	b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N), "cpu-s")
}

// cpuTime is the processor time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
