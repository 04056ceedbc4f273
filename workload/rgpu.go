package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"muster/model"
	"muster/model/slurmopt"
)

// The workloads of the paper on Slurm with rCUDA: four applications, drawn until
// their times (Table I) add up to 2, 4 or 8 hours, or in exactly the numbers of
// Table II, submitted with the options of Tables III and IV. The order depends
// on the seed alone, so that ways of submitting can be compared.
//
// The paper publishes one figure on how busy the applications keep a GPU: twelve
// instances of MCUDA-MEME on the same GPUs take 1,884 s where one takes 165 s,
// so each needs 1884/(12 x 165) = 0.9515 of a device. Those of GPU-Blast
// and LAMMPS are not published; half of a device is a guess, for programs that
// compute on the CPU and the GPU in turn.
//
// Nor is it published how long LAMMPS takes with its five processes on one GPU,
// which is what it gets with CUDA where throughput is the aim, or on four: the
// time of Table I, with a GPU each, is used unless another is given.
var rgpuGenerator = Generator{
	Name:    "rgpu",
	Summary: "the four applications of the paper on Slurm with rCUDA, submitted with its launch lines",
	Parameters: []Parameter{
		{"hours", "2", "what the run times add up to; 2, 4 and 8 in the paper"},
		{"counts", "paper", "paper: as many of each application as in Table II; drawn: each as likely, until the hours are full"},
		{"launch", "throughput", "performance: the options of Table III; throughput: those of Table IV"},
		{"gpus", "rcuda", "cuda: GPUs of the job's own nodes; rcuda: shared remote GPUs; exclusive: whole remote GPUs"},
		{"cluster_gpus", "8", "GPUs of the cluster: LAMMPS asks for no more remote GPUs than that"},
		{"driver_memory", "10M", "memory of a shared GPU that the driver takes for each job"},
		{"client_memory", "63M", "memory of a shared GPU that the rCUDA server takes for each thread"},
		{"blast_intensity", "0.5", "part of its run in which GPU-Blast keeps its GPU busy; not published, a guess"},
		{"lammps_intensity", "0.5", "that of LAMMPS; not published, a guess"},
		{"meme_intensity", "0.9515", "that of MCUDA-MEME: 1884 s / (12 x 165 s), from the paper"},
		{"lammps_on_one_gpu", "15", "run time of LAMMPS with its processes on one GPU; not published, so that of Table I"},
		{"delay", "0", "time before the last submission; delays grow evenly from 0, as in the paper; 0 for all at once"},
		{"estimates", "exact", "exact: the scheduler knows run times; a number: wall times are so many times the run time"},
	},
	generate: generateRGPU,
}

// application is an application of Table I.
type application struct {
	name string
	run  time.Duration
	// threads is the number of threads that use a GPU at a time. memory is what the application
	// itself needs on each: that of its launch line minus the share of driver and server.
	threads int
	memory  int64
	// gpus is the number of remote GPUs that it asks for.
	gpus int
	// The values of -N: with CUDA and with rCUDA, for performance and for throughput. 0 omits the
	// option.
	cudaPerformance, rcudaPerformance, cudaThroughput, rcudaThroughput int
	size                                                               string
	intensity                                                          string // the name of its parameter
}

const megabyte = 1 << 20 // as Slurm counts them

var applications = []application{
	{name: "GPU-Blast", run: 21 * time.Second, threads: 6, memory: 1298 * megabyte, gpus: 1,
		cudaPerformance: 1, rcudaPerformance: 1, size: "-n1 -c6", intensity: "blast_intensity"},
	{name: "LAMMPS", run: 15 * time.Second, threads: 1, memory: 3202 * megabyte, gpus: 5,
		cudaPerformance: 5, rcudaPerformance: 5, size: "-n5 -c1", intensity: "lammps_intensity"},
	{name: "MCUDA-MEME", run: 165 * time.Second, threads: 1, memory: 90 * megabyte, gpus: 4,
		cudaPerformance: 4, cudaThroughput: 4, size: "-n4 -c1", intensity: "meme_intensity"},
	{name: "GROMACS", run: 167 * time.Second,
		cudaPerformance: 2, rcudaPerformance: 2, cudaThroughput: 2, rcudaThroughput: 2, size: "-n2 -c12"},
}

// tableII has the number of jobs of each application, by hours.
var tableII = map[int][]int{2: {12, 18, 18, 23}, 4: {43, 47, 36, 42}, 8: {81, 90, 77, 79}}

// launcher writes launch lines.
type launcher struct {
	gpus        string // cuda, rcuda or exclusive
	performance bool
	clusterGPUs int
	remote      model.Remote
}

// line is what follows srun in Table III or IV.
func (l *launcher) line(a *application) string {
	cuda := l.gpus == "cuda"
	nodes := a.rcudaThroughput
	switch {
	case cuda && l.performance:
		nodes = a.cudaPerformance
	case cuda:
		nodes = a.cudaThroughput
	case l.performance:
		nodes = a.rcudaPerformance
	}
	var words []string
	if nodes > 0 {
		words = append(words, fmt.Sprintf("-N%d", nodes))
	}
	words = append(words, a.size)
	count := min(a.gpus, l.clusterGPUs)
	switch {
	case a.gpus == 0:
	case cuda:
		words = append(words, "--gres=gpu:1")
	case l.gpus == "exclusive":
		words = append(words, fmt.Sprintf("--rcuda-mode=excl --gres=rgpu:%d", count))
	default:
		share := l.remote.ShareOf(a.memory, a.threads)
		words = append(words, fmt.Sprintf("--gres=rgpu:%d:%dM", count, ceilDiv(share, megabyte)))
	}
	return strings.Join(words, " ")
}

func generateRGPU(p *params, rng *rand.Rand) *Workload {
	hours := p.number("hours", 0.01, 100_000)
	exact := p.choice("counts", "paper", "drawn") == "paper"
	l := launcher{
		gpus:        p.choice("gpus", "cuda", "rcuda", "exclusive"),
		performance: p.choice("launch", "performance", "throughput") == "performance",
		clusterGPUs: p.count("cluster_gpus", 1, 1_000_000),
		remote:      model.Remote{DriverMemory: p.size("driver_memory"), ClientMemory: p.size("client_memory")},
	}
	onOne := time.Duration(p.seconds("lammps_on_one_gpu", false)*1000) * time.Millisecond
	delay := int64(p.seconds("delay", true) * 1000)
	estimate := p.estimates("estimates")
	var like []model.Job
	for i := range applications {
		like = append(like, p.application(&applications[i], &l))
	}
	if l.gpus == "cuda" && !l.performance {
		like[1].Run = onOne
	}
	var order []int
	switch counts := tableII[int(hours)]; {
	case p.err != nil:
		return nil
	case !exact:
		order = drawApplications(time.Duration(hours*3600)*time.Second, rng)
	case counts == nil || hours != float64(int(hours)):
		p.fail("hours", "Table II of the paper has 2, 4 and 8: take one of them, or counts=drawn")
		return nil
	default:
		for a, n := range counts {
			for range n {
				order = append(order, a)
			}
		}
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	wl := &Workload{Jobs: make([]model.Job, len(order))}
	var at int64 // in thousandths of a second
	for i, a := range order {
		j := like[a]
		j.WallTime = estimate(j.Run)
		if r := j.Request.Remote; r != nil { // exclusive: no two jobs share a device
			own := *r
			j.Request.Remote = &own
		}
		if i > 0 {
			at += delay * int64(i) / int64(len(order)-1)
		}
		j.Submit = time.Duration(at) * time.Millisecond
		wl.Jobs[i] = j
	}
	return wl
}

// drawApplications draws one of four with equal probability, until their total time exceeds the
// given time.
func drawApplications(total time.Duration, rng *rand.Rand) []int {
	var order []int
	for sum := time.Duration(0); sum <= total; {
		a := rng.IntN(len(applications))
		order = append(order, a)
		sum += applications[a].run
	}
	return order
}

// application makes a job of an application, from its parsed launch line.
func (p *params) application(a *application, l *launcher) model.Job {
	j := model.Job{Run: a.run}
	if a.intensity != "" {
		j.Intensity = p.number(a.intensity, 0.0001, 1)
	}
	logged(&j).Executable = a.name
	options, err := slurmopt.ParseLine(l.line(a))
	if err != nil {
		p.fail("gpus", "%s: %v", a.name, err)
		return j
	}
	options.Apply(&j)
	if l.gpus == "cuda" && j.Request.Nodes*j.Request.GPUs > l.clusterGPUs {
		p.fail("cluster_gpus", "%s runs on %d nodes with a GPU each: use launch=throughput or remote GPUs", a.name, j.Request.Nodes)
	}
	return j
}

// estimates is how users estimate wall times. The result is 0 (no wall time) for exact ones.
func (p *params) estimates(name string) func(run time.Duration) time.Duration {
	if p.text(name) == "exact" {
		return func(time.Duration) time.Duration { return 0 }
	}
	factor, err := strconv.ParseFloat(p.text(name), 64)
	if err != nil || !(factor >= 1 && factor <= 1000) {
		p.fail(name, "use exact, or a number from 1 to 1000")
	}
	return func(run time.Duration) time.Duration {
		return time.Duration(ceilSeconds(float64(float64(run/time.Millisecond)*factor)/1000)) * time.Second
	}
}

// ceilSeconds rounds up to whole seconds.
func ceilSeconds(x float64) int64 {
	n := int64(x)
	if float64(n) < x {
		n++
	}
	return n
}
