package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"muster/model"
	"muster/model/clusterfile"
	"muster/policy/catalog"
	"muster/sim"
	"muster/workload"
)

// benchCluster has n nodes of 8 cores and 2 GPUs.
func benchCluster(n int) *model.Cluster {
	c := &model.Cluster{
		Name:     fmt.Sprint(n),
		GPUTypes: []model.GPUType{{Name: "g", Memory: 6e9, Speed: 1, PeerBandwidth: 171e9}},
		Remote:   model.Remote{Latency: 3470 * time.Microsecond, Overhead: 1.09},
	}
	for i := range n {
		c.Nodes = append(c.Nodes, model.Node{
			Name: fmt.Sprintf("n%05d", i), Cores: 8, Memory: 32e9, GPUs: []int{0, 0},
			Link: model.Link{Bandwidth: 10e9, Latency: 1200 * time.Microsecond},
		})
	}
	return c
}

// benchJobs makes jobs of 1-16 nodes with 1, 2, 4 or 8 cores and 0-2 GPUs
// each, arriving so that the cores of the cluster are offered load.
func benchJobs(jobs, nodes int, load float64, traffic bool) []model.Job {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]model.Job, jobs)
	const meanNodes, meanCores, meanRun = 8.5, 3.75, 3600.0
	gap := meanNodes * meanCores * meanRun / (float64(nodes) * 8 * load)
	at := 0.0
	for i := range out {
		at += rng.ExpFloat64() * gap
		run := time.Duration(rng.ExpFloat64()*meanRun*1e3) * time.Millisecond
		gpus := 0
		if x := rng.IntN(100); x >= 85 {
			gpus = 2
		} else if x >= 50 {
			gpus = 1
		}
		out[i] = model.Job{
			ID: "j", Submit: time.Duration(at*1e3) * time.Millisecond,
			Run: run, WallTime: run + time.Duration(rng.ExpFloat64()*float64(run)),
			Request: model.Request{Nodes: 1 + rng.IntN(16), CoresPerNode: 1 << rng.IntN(4), GPUs: gpus, Memory: 1e9},
		}
		if traffic {
			out[i].Traffic = model.Traffic{NetBytes: 1e9, GPUBytes: 1e9, NetConns: 1000, GPUConns: 1000}
		}
	}
	return out
}

func benchmarkPolicy(b *testing.B, spec string, nodes, jobs int, load float64, traffic bool) {
	benchmarkJobs(b, spec, benchCluster(nodes), benchJobs(jobs, nodes, load, traffic))
}

func benchmarkJobs(b *testing.B, spec string, c *model.Cluster, js []model.Job) {
	before := cpuTime()
	b.ResetTimer()
	for b.Loop() {
		p, err := catalog.New(spec)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: js, Policy: p}); err != nil {
			b.Fatal(err)
		}
	}
	all := float64(len(js)) * float64(b.N)
	b.ReportMetric(all/b.Elapsed().Seconds(), "jobs/s")
	// On a machine that others use too, the processor's time says more.
	b.ReportMetric(all/(cpuTime()-before).Seconds(), "jobs/cpu-s")
}

// cpuTime is what this process has used of the processor so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkPolicy(b *testing.B) {
	for _, bc := range []struct {
		spec string
		jobs int
	}{
		{"fcfs", 1_000_000}, {"sjf", 300_000}, {"first-fit", 300_000}, {"g-queue", 300_000},
		{"easy", 1_000_000}, {"conservative", 10_000},
	} {
		for _, nodes := range []int{1000, 10_000} {
			for _, load := range []float64{0.75, 0.85, 1.2} {
				b.Run(fmt.Sprintf("%s/nodes=%d/load=%g", bc.spec, nodes, load), func(b *testing.B) {
					benchmarkPolicy(b, bc.spec, nodes, bc.jobs, load, false)
				})
			}
		}
	}
}

// BenchmarkJobs shows how the cost of a job grows with their number.
func BenchmarkJobs(b *testing.B) {
	for _, jobs := range []int{1000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("easy/jobs=%d", jobs), func(b *testing.B) {
			benchmarkPolicy(b, "easy", 1000, jobs, 0.85, false)
		})
	}
}

// BenchmarkQueue shows how the cost of a job grows with the queue: all jobs
// are there at the start.
func BenchmarkQueue(b *testing.B) {
	for _, spec := range []string{"fcfs", "sjf", "first-fit", "g-queue", "r-queue", "easy", "conservative"} {
		for _, waiting := range []int{1000, 10_000, 50_000} {
			if spec == "conservative" && waiting > 10_000 {
				continue // minutes
			}
			b.Run(fmt.Sprintf("%s/waiting=%d", spec, waiting), func(b *testing.B) {
				benchmarkPolicy(b, spec, 1000, waiting, 1e9, false)
			})
		}
	}
}

// BenchmarkContention is the R queue with the network: a month of TSUBAME's
// jobs, and, as the worst case, a crowd of wide jobs that all use it; and jobs
// that share devices, six on each.
func BenchmarkContention(b *testing.B) {
	b.Run("tsubame", func(b *testing.B) {
		c, err := clusterfile.Preset("tsubame")
		if err != nil {
			b.Fatal(err)
		}
		w, err := workload.Generate("tsubame", map[string]string{"days": "30"}, 1)
		if err != nil {
			b.Fatal(err)
		}
		benchmarkJobs(b, "r-queue", c, w.Jobs)
	})
	b.Run("wide", func(b *testing.B) { benchmarkPolicy(b, "r-queue", 480, 20_000, 0.95, true) })
	b.Run("shares", func(b *testing.B) {
		jobs := benchJobs(20_000, 480, 0.95, false)
		for i := range jobs {
			jobs[i].Request.GPUs, jobs[i].Request.GPUMemory, jobs[i].Intensity = 1, 1e9, 0.3
		}
		benchmarkJobs(b, "first-fit", benchCluster(480), jobs)
	})
}
