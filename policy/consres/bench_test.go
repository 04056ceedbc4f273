package consres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/consres"
	"muster/sim"
)

// mixedMachine has nodes of 8 cores and 2 GPUs.
func mixedMachine(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "machine", GPUTypes: []model.GPUType{{Name: "gpu", Memory: 6e9, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%04d", i), Cores: 8, GPUs: []int{0, 0}})
	}
	return c
}

// mixedJobs are submitted at once: a third wants cores anywhere, a third nodes
// with 4 or 8 cores, and a third nodes with one or two GPUs; 60 to 600 s each, hours
// in all.
func mixedJobs(nodes, contiguous int, hours, seed uint64) []model.Job {
	rng := rand.New(rand.NewPCG(seed, 1))
	var jobs []model.Job
	most := max(1, nodes/16)
	for left := float64(nodes*8) * 3600 * float64(hours); left > 0; {
		run := time.Duration(60+rng.IntN(541)) * time.Second
		cores := 8 * (1 + rng.IntN(most))
		var r model.Request
		switch k := rng.IntN(6); k {
		case 0, 1:
			r.Cores = cores
		case 2, 3:
			per := 4 << rng.IntN(2)
			r.Nodes, r.CoresPerNode = max(1, cores/per), per
		default:
			r.GPUs = k - 3
			per := r.GPUs * (1 + rng.IntN(2))
			r.Nodes, r.CoresPerNode = min(nodes, max(1, cores/per)), per
		}
		r.Contiguous = rng.IntN(100) < contiguous
		left -= run.Seconds() * float64(r.TotalCores())
		jobs = append(jobs, model.Job{ID: fmt.Sprint(len(jobs)), Run: run, Request: r, Priority: int64(r.TotalCores())})
	}
	return jobs
}

func BenchmarkMixed(b *testing.B) {
	for _, nodes := range []int{128, 1024} {
		for _, contiguous := range []int{0, 50, 100} {
			for _, spec := range []string{"", "bf_interval=0"} {
				b.Run(fmt.Sprintf("nodes=%d/contiguous=%d/%s", nodes, contiguous, spec), func(b *testing.B) {
					bench(b, mixedMachine(nodes), mixedJobs(nodes, contiguous, 4, 1), &consres.Slurm, spec)
				})
			}
		}
	}
}

// BenchmarkRemote is the same with all GPUs anywhere, whole or shared.
func BenchmarkRemote(b *testing.B) {
	for _, nodes := range []int{128, 1024} {
		for _, x := range []struct {
			shared bool
			spec   string
		}{{false, ""}, {true, ""}, {true, "select=all"}} {
			jobs := mixedJobs(nodes, 0, 4, 1)
			for i := range jobs {
				if r := &jobs[i].Request; r.GPUs > 0 {
					r.Remote = &model.RemoteGPUs{Count: r.Nodes * r.GPUs}
					if x.shared {
						r.Remote.Memory, r.Remote.Shared = 2e9, true
					}
					r.GPUs = 0
					jobs[i].Intensity = 0.5
				}
			}
			b.Run(fmt.Sprintf("nodes=%d/shared=%v/%s", nodes, x.shared, x.spec), func(b *testing.B) {
				bench(b, mixedMachine(nodes), jobs, &consres.RGPU, x.spec)
			})
		}
	}
}

func bench(b *testing.B, c *model.Cluster, jobs []model.Job, e *policy.Entry, spec string) {
	for b.Loop() {
		p, err := e.Make(spec)
		if err != nil {
			b.Fatal(err)
		}
		r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p})
		if err != nil || r.Refused > 0 {
			b.Fatal(err, r.Refused)
		}
		s := r.Summarize()
		b.ReportMetric(100*s.CoreUtilization, "%util")
		b.ReportMetric(s.Fragmentation.Mean, "frag")
		b.ReportMetric(s.Wait.Mean/3600, "wait-h")
		b.ReportMetric(float64(len(jobs)), "jobs")
		b.ReportMetric(float64(r.Steps), "steps")
	}
}
