package rgpu

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
	"muster/internal/misuse"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy/catalog"
	"muster/sim"
	"muster/slurm/release"
)

// liveFlags are --live and the flags that go with it.
var liveFlags = []exp.Flag{
	{Name: "live", Summary: "run the jobs on a real Slurm with emulated nodes and real CUDA programs on software GPUs, and the same in the simulator", Switch: true},
	{Name: "full", Summary: "with --live: the paper's size, the workloads of 2, 4 and 8 hours in real time (days)", Switch: true},
	{Name: "speed", Summary: "with --live: how many times faster than in the paper jobs run (default 40, with --full 1)"},
	{Name: "jobs", Summary: "with --live: how many jobs, in the proportions of Table II (default 18)"},
	{Name: "burst", Summary: "with --live: how many jobs the burst of submissions has (default 200, with --full 2000); 0 for none"},
	{Name: "meme", Summary: "with --live: how much of its time MCUDA-MEME keeps a GPU busy, in per cent (default 25)", Values: []string{"25", "50", "95"}},
	{Name: "gpus", Summary: "with --live: GPUs of the cluster", Values: []string{"8", "6", "4"}},
	{Name: "slurm", Summary: "with --live: the release of Slurm", Values: release.Names()},
	{Name: "programs", Summary: "with --live: the folder of the programs to run (default: examples/ beside this program)"},
}

// The paper's cluster.
const (
	liveNodes = 8
	liveCores = 12
)

// liveMode is a way to use GPUs, with the policy that schedules it on the real Slurm and the one
// that models it in the simulator.
type liveMode struct {
	key, title string
	// policy is Muster's policy that drives Slurm; "" leaves the jobs to Slurm's own backfill, as
	// in the paper's original mode.
	policy string
	model  string // the policy in the simulator
}

var liveModes = []liveMode{
	{cuda, "original (CUDA)", "", "slurm:bf_interval=1s"},
	{exclusive, "exclusive", "rgpu", "rgpu"},
	{rcuda, "shared (rCUDA)", "rgpu", "rgpu"},
}

// liveTrial is a workload in a mode on a number of GPUs.
type liveTrial struct {
	hours int
	mode  string
	gpus  int
}

func (t liveTrial) String() string {
	return fmt.Sprintf("%d hours, %s, %d GPUs", t.hours, t.mode, t.gpus)
}

// liveNumbers are the results of a run, in the paper's time.
type liveNumbers struct {
	seconds, perMinute, wait, slowdown float64
	fragmentation, spread              float64
	cores                              float64 // utilisation, per cent
	allocated                          []float64
}

// liveFound is a run on the real Slurm, with the simulator's prediction of it.
type liveFound struct {
	real, predicted liveNumbers
	out             *live.Outcome
}

// alone identifies a profile: an application with GPUs of its own nodes, or with borrowed ones.
type alone struct {
	app      int
	borrowed bool
}

// liveLab makes the runs on real Slurms, one after the other.
type liveLab struct {
	options exp.Options
	tools   bench.Tools
	speed   float64
	jobs    int // 0 for all of Table II
	burst   int
	meme    float64
	hours   []int
	gpus    []int
	seeds   []uint64
	release *release.Release
	paper   *model.Cluster
	folder  string

	// start is the time between the end of a job and the start of the next one on its node: false
	// is for Slurm's scheduler with local GPUs, true for the driver with borrowed ones. alone is an
	// application's run time on GPUs that no other job uses.
	start  map[bool]time.Duration
	alone  map[alone]time.Duration
	found  map[liveTrial][]liveFound
	bursts map[bool]*burstFound
	slurm  string
}

func newLiveLab(o exp.Options) (*liveLab, error) {
	l := &liveLab{options: o, speed: 40, jobs: 18, burst: 200, meme: 0.25, hours: workloads[:1], gpus: []int{8, 6, 4}, seeds: o.Seeds(1),
		start: map[bool]time.Duration{}, alone: map[alone]time.Duration{}, found: map[liveTrial][]liveFound{}, bursts: map[bool]*burstFound{}}
	if o.Flags["full"] != "" {
		l.speed, l.jobs, l.burst, l.hours = 1, 0, 2000, workloads
	}
	meme := 100 * l.meme
	if err := cmp.Or(o.Number("speed", 0.1, 100, &l.speed), o.Whole("jobs", 4, 327, &l.jobs), o.Whole("burst", 0, 10_000, &l.burst), o.Number("meme", 1, 100, &meme)); err != nil {
		return nil, err
	}
	l.meme = meme / 100
	l.gpus = slices.DeleteFunc(l.gpus, func(n int) bool { return !slices.Contains(o.Chosen("gpus", []string{"8", "6", "4"}), strconv.Itoa(n)) })
	var err error
	if l.release, err = live.ReleaseOf(o); err != nil {
		return nil, err
	}
	l.paper, err = clusterfile.Preset("rgpu")
	return l, err
}

func runLive(ctx context.Context, o exp.Options) (*exp.Result, error) {
	if len(o.Figures) > 0 {
		return nil, misuse.Errorf("--live has no parts to choose from: leave --figure out, and see --gpus and --burst")
	}
	l, err := newLiveLab(o)
	if err != nil {
		return nil, err
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], gpuProgram); err != nil {
		return nil, err
	}
	return l.run(ctx)
}

// run makes all runs in a folder of its own, and shows the complete ones.
func (l *liveLab) run(ctx context.Context) (*exp.Result, error) {
	var err error
	if l.folder, err = os.MkdirTemp("", "muster-rgpu-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(l.folder)
	if err := os.Chmod(l.folder, 0o755); err != nil {
		return nil, err
	}
	steps, err := l.steps()
	if err != nil {
		return nil, err
	}
	missing, err := live.Measure(ctx, l.options, steps)
	if err != nil {
		return nil, err
	}
	if len(l.found) == 0 && len(l.bursts) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l.result(missing), nil
}

// steps lists all measurements. The profiles come first, because predictions need them.
func (l *liveLab) steps() ([]live.Step, error) {
	var list []live.Step
	for _, borrowed := range []bool{false, true} {
		list = append(list, live.Step{Name: fmt.Sprintf("what a start takes, borrowing %t", borrowed), Work: profiled, Do: func(ctx context.Context, _ func(int)) error {
			return l.profile(ctx, borrowed)
		}})
	}
	for _, hours := range l.hours {
		for _, gpus := range l.gpus {
			for _, m := range liveModes {
				for _, seed := range l.seeds {
					t := liveTrial{hours, m.key, gpus}
					jobs, err := l.workload(t, seed)
					if err != nil {
						return nil, err
					}
					list = append(list, live.Step{Name: fmt.Sprintf("%v, seed %d", t, seed), Work: len(jobs), Do: func(ctx context.Context, progress func(int)) error {
						found, err := l.one(ctx, m, t, jobs, progress)
						if err == nil {
							l.found[t] = append(l.found[t], found)
						}
						return err
					}})
				}
			}
		}
	}
	if l.burst > 0 {
		for _, driven := range []bool{false, true} {
			list = append(list, live.Step{Name: fmt.Sprintf("the burst of submissions, driven %t", driven), Work: l.burst / 4, Do: func(ctx context.Context, _ func(int)) error {
				return l.burstOf(ctx, driven)
			}})
		}
	}
	return list, nil
}

// liveJob is a job of one of the applications.
type liveJob struct {
	model.Job
	app   int
	words []string      // sbatch's options
	own   time.Duration // its run time alone, shortened by speed
	// processes use GPUs; each keeps its GPU busy for the fraction busy of its time.
	processes int
	busy      float64
}

// processesOf and busyOf are indexed by application. The latter follow from the paper's numbers and
// our guesses (docs/papers.md). GROMACS uses no GPU; its jobs sleep.
var processesOf = []int{1, 5, 4, 0}

func (l *liveLab) busyOf(app int) float64 { return []float64{0.5, 0.5, l.meme, 0}[app] }

// job makes a job of an application, without its request.
func (l *liveLab) job(app int) liveJob {
	return liveJob{app: app, own: time.Duration(applications[app].seconds / l.speed * float64(time.Second)), processes: processesOf[app], busy: l.busyOf(app)}
}

// workload lists the jobs of a trial, in the order that the seed gives. With fewer jobs than Table
// II has, each application keeps its share, and at least one job.
func (l *liveLab) workload(t liveTrial, seed uint64) ([]liveJob, error) {
	jobs, err := jobsOf(scenario{hours: t.hours, setting: setting{launch: "throughput", gpus: t.gpus}, mode: t.mode, jobs: fmt.Sprintf("meme_intensity=%g", l.meme)}, seed)
	if err != nil {
		return nil, err
	}
	quota := slices.Clone(table2[t.hours])
	if l.jobs > 0 && l.jobs < len(jobs) {
		for i := range quota {
			quota[i] = max(1, int(math.Round(float64(quota[i]*l.jobs)/float64(len(jobs)))))
		}
	}
	var list []liveJob
	for _, j := range jobs {
		app := applicationOf(&j)
		if quota[app] == 0 {
			continue
		}
		quota[app]--
		one := l.job(app)
		one.Job, one.words = j, append([]string{fmt.Sprintf("-t%d", int(applications[app].seconds/60)+1)}, strings.Fields(launchLine(t, app))...)
		one.ID = fmt.Sprintf("job%d", len(list))
		list = append(list, one)
	}
	return list, nil
}

// launchLine is the line of Table IV for an application. The exclusive mode asks for whole GPUs
// instead of memory.
func launchLine(t liveTrial, app int) string {
	if t.mode == cuda {
		return table4[app].cuda
	}
	line := table4[app].rcuda
	if t.gpus == 4 && applications[app].name == "LAMMPS" {
		line = lammpsOnFour
	}
	if t.mode == rcuda {
		return line
	}
	words := strings.Fields(line)
	for i, w := range words {
		if gres, ok := strings.CutPrefix(w, "--gres="); ok {
			words[i] = "--rcuda-mode=excl --gres=" + strings.Join(strings.Split(gres, ":")[:2], ":")
		}
	}
	return strings.Join(words, " ")
}

// gpuProgram multiplies matrices on a GPU, sleeps in between, and checks its results. A product of
// this size takes kernelTime at gpuRate.
const (
	gpuProgram = "mm"
	gpuSize    = 32
	kernelTime = 17 * time.Millisecond
)

// script is the job's script: it starts the processes, each on the GPU with its index, and waits
// for them. Each process alternates between kernels and sleeps, so that its GPU is busy for the
// fraction busy of the time.
func (l *liveLab) script(j *liveJob, mode string, have *gpus) string {
	if j.processes == 0 {
		return fmt.Sprintf("sleep %.3f", j.own.Seconds())
	}
	repeat := max(1, int(math.Round(float64(j.own)*j.busy/float64(kernelTime))))
	pause := (float64(j.own) - float64(repeat)*float64(kernelTime)) / float64(repeat) / float64(time.Millisecond)
	run := fmt.Sprintf("%s/%s --size %d --repeat %d --cpu-sleep --cpu-ms %.3f --quiet", l.tools.Programs, gpuProgram, gpuSize, repeat, max(0, pause))
	var b strings.Builder
	if mode == cuda {
		fmt.Fprintf(&b, "export LD_LIBRARY_PATH=%s\nnodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))\n", l.tools.Lib)
	}
	b.WriteString("pids=\n")
	for i := range j.processes {
		if mode == cuda {
			fmt.Fprintf(&b, "MUSTER_SOCKET=%s${nodes[$((%d %% ${#nodes[@]}))]} %s --device 0 &\n", have.prefix, i, run)
		} else {
			fmt.Fprintf(&b, "%s --device $((%d %% RCUDA_DEVICE_COUNT)) &\n", run, i)
		}
		b.WriteString("pids=\"$pids $!\"\n")
	}
	b.WriteString("bad=0; for p in $pids; do wait $p || bad=1; done; (exit $bad)")
	return b.String()
}

// on starts the daemons of the given number of GPUs and a Slurm, and runs jobs there. change, if
// not nil, adjusts the set-up first.
func (l *liveLab) on(ctx context.Context, m liveMode, count int, change func(*live.Setup), jobs func(have *gpus) []live.Job, progress func(int)) (*live.Outcome, error) {
	folder, err := os.MkdirTemp(l.folder, "gpus-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	have, err := startGPUs(ctx, l.tools, folder, names)
	if err != nil {
		return nil, err
	}
	defer have.stop()
	s := live.Setup{Nodes: liveNodes, CPUs: liveCores, Release: l.release, Policy: m.policy, Speed: l.speed, Patience: 3*time.Minute + time.Duration(600/l.speed)*time.Second}
	if m.policy == "" {
		s.GPUs, s.GPUNodes = 1, count
	} else if err := plugin(ctx, &s, have, l.release, l.folder); err != nil { // Slurm does not know the GPUs that Muster lends
		return nil, err
	}
	if change != nil {
		change(&s)
	}
	out, err := live.Run(ctx, s, jobs(have), progress)
	if err == nil {
		l.slurm, err = out.Version, have.Lost()
	}
	return out, err
}

// one runs the jobs of a trial on the real Slurm and in the simulator.
func (l *liveLab) one(ctx context.Context, m liveMode, t liveTrial, jobs []liveJob, progress func(int)) (liveFound, error) {
	out, err := l.on(ctx, m, t.gpus, nil, func(have *gpus) []live.Job {
		list := make([]live.Job, len(jobs))
		for i := range jobs {
			list[i] = live.Job{Options: jobs[i].words, Script: l.script(&jobs[i], t.mode, have)}
		}
		return list
	}, progress)
	if err != nil {
		return liveFound{}, err
	}
	found := liveFound{out: out}
	cluster, err := variant(l.paper, likePaper, t.gpus)
	if err != nil {
		return found, err
	}
	found.real = l.numbers(cluster, jobs, out.Outcomes(), func(i int) *model.Allocation {
		return allocation(&jobs[i], &out.Jobs[i], t.gpus)
	})
	found.predicted, err = l.predict(ctx, m, cluster, jobs)
	return found, err
}

// allocation is what a job used: GPUs of its own nodes, or those that the driver lent to it.
func allocation(j *liveJob, ran *live.Ended, gpus int) *model.Allocation {
	a := &model.Allocation{}
	for _, n := range ran.Nodes {
		part := model.Part{Node: n}
		if j.Request.GPUs > 0 && int(n) < gpus {
			part.GPUs = 1
		}
		a.Parts = append(a.Parts, part)
	}
	for _, b := range ran.Borrows {
		n, _ := strconv.Atoi(strings.TrimPrefix(b.Node, "n"))
		a.Grants = append(a.Grants, model.Grant{Node: int32(n - 1), Device: int32(b.Device.Device), Memory: b.Memory})
	}
	return a
}

// numbers computes the results of a run, in the paper's time. had returns the allocation of a job.
// For the allocation of GPUs it replays the starts and ends of all jobs in time order.
func (l *liveLab) numbers(c *model.Cluster, jobs []liveJob, list []sim.Outcome, had func(i int) *model.Allocation) liveNumbers {
	type event struct {
		at    time.Duration
		job   int
		start bool
	}
	var events []event
	var n liveNumbers
	end, work := time.Duration(0), 0.0
	for i := range list {
		o := &list[i]
		end = max(end, o.End)
		events = append(events, event{o.Start, i, true}, event{o.End, i, false})
		n.wait += l.speed * o.Start.Seconds()
		n.slowdown += float64(o.End) / float64(o.End-o.Start)
		n.fragmentation += o.Fragmentation()
		n.spread += o.Spread()
		work += float64(o.End-o.Start) * float64(jobs[i].Request.TotalCores())
	}
	count := float64(len(list))
	for _, v := range []*float64{&n.wait, &n.slowdown, &n.fragmentation, &n.spread} {
		*v /= count
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	seen := watch(c)
	for _, e := range events {
		if e.start {
			seen.Started(e.at, e.job, had(e.job))
		} else {
			seen.Ended(e.at, e.job)
		}
	}
	n.allocated = seen.allocated(end)
	n.cores = 100 * work / float64(end) / float64(c.TotalCores())
	n.seconds = l.speed * end.Seconds()
	n.perMinute = count / (n.seconds / 60)
	return n
}

// predict runs the same jobs in the simulator. A job's run time is the one measured alone plus the
// cost of a start; jobs slow each other down on GPUs that they share.
func (l *liveLab) predict(ctx context.Context, m liveMode, c *model.Cluster, jobs []liveJob) (liveNumbers, error) {
	start := l.start[m.policy != ""]
	list := make([]model.Job, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		one := j.Job
		if r := &one.Request; m.policy != "" && r.Nodes == 0 {
			// The driver gives a job without -N the fewest nodes that can hold it.
			r.Nodes = (r.Cores + liveCores - 1) / liveCores
			r.CoresPerNode, r.Cores = r.Cores/r.Nodes, 0
		}
		one.Run = start + j.own
		if j.processes > 0 {
			one.Run = start + l.alone[alone{j.app, m.policy != ""}]
			one.Intensity = max(0.0001, min(1, j.load()*float64(j.own)/float64(one.Run)))
		}
		one.WallTime = max(one.Run, time.Duration(float64(time.Duration(int(applications[j.app].seconds/60)+1)*time.Minute)/l.wallSpeed(m)))
		list[i] = one
	}
	p, err := catalog.New(m.model)
	if err != nil {
		return liveNumbers{}, err
	}
	had := make(map[int]*model.Allocation)
	r, err := sim.Run(ctx, sim.Config{Cluster: c, Jobs: list, Policy: p, NoKill: true, Observe: &noting{had}})
	if err != nil {
		return liveNumbers{}, err
	}
	for i := range r.Outcomes {
		if r.Outcomes[i].State != sim.Finished {
			return liveNumbers{}, fmt.Errorf("job %s is %v in the simulator: %s", r.Jobs[i].ID, r.Outcomes[i].State, r.Reasons[i])
		}
	}
	live.WithoutStart(r.Outcomes, start)
	return l.numbers(c, jobs, r.Outcomes, func(i int) *model.Allocation { return had[i] }), nil
}

// wallSpeed is the factor by which the time limits that a scheduler sees are shortened. Slurm's own
// scheduler sees them in whole minutes of the paper's time.
func (l *liveLab) wallSpeed(m liveMode) float64 {
	if m.policy == "" {
		return 1
	}
	return l.speed
}

// load is the fraction of a GPU that the job's processes on it need together.
func (j *liveJob) load() float64 {
	gpus := j.Request.TotalGPUs()
	if gpus == 0 {
		return 0
	}
	return j.busy * math.Ceil(float64(j.processes)/float64(gpus))
}

// noting is an observer that keeps the allocations of jobs.
type noting struct{ had map[int]*model.Allocation }

var _ sim.Observer = (*noting)(nil)

func (n *noting) Started(_ time.Duration, job int, a *model.Allocation) {
	own := model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
	n.had[job] = &own
}

func (n *noting) Ended(time.Duration, int) {}

// profiled is the number of applications that use GPUs; a profile has one job of each.
const profiled = 3

// profile measures the run times of applications alone, and the time between the end of a job and
// the start of the next one that waits for its node. All its jobs need the first node whole, so
// they run one after the other.
func (l *liveLab) profile(ctx context.Context, borrowed bool) error {
	m := liveModes[0]
	if borrowed {
		m = liveModes[1]
	}
	out, err := l.on(ctx, m, 5, nil, func(have *gpus) []live.Job {
		list := make([]live.Job, profiled)
		for app := range list {
			j := l.job(app)
			list[app] = live.Job{Options: append([]string{"-t5", "-c12"}, profileWords(&j, borrowed)...), Script: l.script(&j, m.key, have)}
		}
		return list
	}, nil)
	if err != nil {
		return err
	}
	for app, o := range out.Jobs {
		l.alone[alone{app, borrowed}] = o.End - o.Start
	}
	slices.SortFunc(out.Jobs, func(a, b live.Ended) int { return int(a.Start - b.Start) })
	between := time.Duration(0)
	for i := range out.Jobs[1:] {
		between += out.Jobs[i+1].Start - out.Jobs[i].End
	}
	l.start[borrowed] = max(0, between/(profiled-1))
	return nil
}

// profileWords are sbatch options for the first node, and for as many GPUs as the application has
// in the paper's throughput runs.
func profileWords(j *liveJob, borrowed bool) []string {
	switch {
	case borrowed:
		return []string{"-wn1", "-N1", "-n1", fmt.Sprintf("--rgpu=%d", j.processes)}
	case applications[j.app].name == "MCUDA-MEME":
		return []string{"-wn[1-4]", "-N4", "-n4", "--gres=gpu:1"}
	}
	return []string{"-wn1", "-N1", "-n1", "--gres=gpu:1"}
}

// burstFound is the result of a burst.
type burstFound struct {
	jobs, refused int
	submit        time.Duration // until the last sbatch returned
	all           time.Duration // until the last job had ended
	out           *live.Outcome
}

// burstWide is how many sbatch processes run at the same time.
const burstWide = 16

// burstOf submits jobs as fast as sbatch can, while earlier ones are already being placed and run.
// The jobs do nothing. With the driver each asks for a share of a GPU.
func (l *liveLab) burstOf(ctx context.Context, driven bool) error {
	m, line := liveModes[0], "-n1"
	if driven {
		m, line = liveModes[2], "-n1 --rgpu=1:64M"
	}
	out, err := l.on(ctx, m, 8, func(s *live.Setup) { s.AtOnce, s.Parallel = true, burstWide }, func(*gpus) []live.Job {
		list := make([]live.Job, l.burst)
		for i := range list {
			list[i] = live.Job{Options: append([]string{"-t1"}, strings.Fields(line)...), Script: ":"}
		}
		return list
	}, nil)
	if err != nil {
		return err
	}
	found := &burstFound{jobs: l.burst, refused: out.Refused, submit: out.Submit, out: out}
	for _, j := range out.Jobs {
		found.all = max(found.all, j.End)
	}
	l.bursts[driven] = found
	return nil
}
