package aucsched

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"muster/exp"
	"muster/exp/live"
	"muster/internal/misuse"
	"muster/model"
	"muster/policy/catalog"
	"muster/sim"
	"muster/slurm/release"
)

// The flags of --live, in the order in which they are listed.
var liveFlags = []exp.Flag{
	{Name: "live", Summary: "run the jobs on a real Slurm with emulated nodes, and the same in the simulator", Switch: true},
	{Name: "full", Summary: "with --live: the paper's size, 4 hours of work in real time, and all 15 versions unless --versions chooses: 15 hours for each of them", Switch: true},
	{Name: "versions", Summary: "with --live: workloads of Table 4, as II.1,V.1 (default II.1)"},
	{Name: "speed", Summary: "with --live: how many times faster than in the paper jobs run (default 25, with --full 1)"},
	{Name: "nodes", Summary: "with --live: how many nodes to emulate (default 128, the paper's Machine-S)"},
	{Name: "slurm", Summary: "with --live: the release of Slurm", Values: release.Names()},
}

func versionNames() []string {
	return exp.Names(versions, func(v *version) string { return v.name })
}

// Defaults of --live.
const (
	liveHours = 0.4
	liveSpeed = 25
	liveNodes = 128
	nodeCores = 8
	nodeGPUs  = 2
)

// method is a scheduler.
type method struct {
	name, title string
	// policy is Muster's policy that drives Slurm; "" leaves the jobs to Slurm's own backfill.
	policy string
	// model is the policy that represents the method in the simulator.
	model string
	// paper is the paper's name for the method; "" if the paper does not have it.
	paper string
}

// liveMethods are the methods at a given speed: Slurm's backfill every 30 s, the auction every 5 s,
// both in the paper's time.
func liveMethods(speed float64) []method {
	auction := fmt.Sprintf("%s:interval=%dms", auctionPolicy, max(1, int(5000/speed)))
	return []method{
		{"slurm", "Slurm's backfill", "", fmt.Sprintf("slurm:depth=%d:bf_interval=%ds", backfillDepth, backfillEvery(speed)), slurmMethod},
		{"auction", "auction, driving Slurm", auction, auction, aucschedMethod},
		{"mosaic", "mosaic, driving Slurm", "mosaic", "mosaic", ""},
	}
}

// backfillDepth is how many jobs Slurm's backfill tries: Slurm's default at the time of the paper,
// and our model's.
const backfillDepth = 100

// backfillEvery is the interval of Slurm's backfill in seconds: 30 s of the paper's time, but at
// least 1 s, the shortest that Slurm allows.
func backfillEvery(speed float64) int { return max(1, int(math.Round(30/speed))) }

// schedulerParameters is Slurm's option of that name.
func schedulerParameters(speed float64) string {
	return fmt.Sprintf("sched_min_interval=1,batch_sched_delay=0,sched_interval=%d,default_queue_depth=%d,bf_interval=%d,bf_max_job_test=%d,bf_resolution=1",
		max(1, int(60/speed)), backfillDepth, backfillEvery(speed), backfillDepth)
}

// trial is a workload under a method.
type trial struct{ version, method string }

// measured is a run on the real Slurm with two predictions of the simulator: without and with the
// cost of starting a job.
type measured struct {
	real, plain, charged numbers
	out                  *live.Outcome
}

// liveLab makes the runs on real Slurms one after the other, because concurrent ones would disturb
// each other.
type liveLab struct {
	options  exp.Options
	hours    float64
	speed    float64
	nodes    int
	versions []string
	seeds    []uint64
	release  *release.Release
	methods  []method
	cluster  *model.Cluster
	// start is the cost of a job beyond its own run time: false is for Slurm's scheduler, true for
	// the driver.
	start map[bool]time.Duration
	found map[trial][]measured
	slurm string // version
}

func newLiveLab(o exp.Options) (*liveLab, error) {
	l := &liveLab{options: o, hours: liveHours, speed: liveSpeed, nodes: liveNodes, versions: []string{"II.1"},
		start: map[bool]time.Duration{}, found: map[trial][]measured{}}
	if o.Flags["full"] != "" {
		l.hours, l.speed, l.versions = 4, 1, versionNames()
	}
	if text, given := o.Flags["versions"]; given {
		all := exp.Flag{Name: "versions", Values: versionNames()}
		if err := all.Check(text); err != nil {
			return nil, misuse.Errorf("%v", err)
		}
		l.versions = o.Chosen("versions", versionNames())
	}
	var err error
	l.release, err = live.ReleaseOf(o)
	if err := cmp.Or(o.Number("hours", leastHours, mostHours, &l.hours), o.Number("speed", leastHours, mostHours, &l.speed), o.Whole("nodes", 8, 1024, &l.nodes), err); err != nil {
		return nil, err
	}
	l.seeds, l.methods = o.Seeds(1), liveMethods(l.speed)
	l.cluster = machineOf(l.nodes)
	return l, nil
}

// machineOf is the paper's machine with the given number of nodes.
func machineOf(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "live", GPUTypes: []model.GPUType{{Name: "gpu", Memory: 16 << 30, Speed: 1}}}
	for i := range nodes {
		n := model.Node{Name: fmt.Sprintf("n%d", i+1), Cores: nodeCores, Memory: 16 << 30}
		for range nodeGPUs {
			n.GPUs = append(n.GPUs, 0)
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func runLive(ctx context.Context, o exp.Options) (*exp.Result, error) {
	for _, other := range []string{"machine", "table"} {
		if _, given := o.Flags[other]; given || len(o.Figures) > 0 {
			return nil, misuse.Errorf("--live has no parts, tables and machines to choose from: leave --figure, --table and --machine out, and see --versions and --nodes")
		}
	}
	l, err := newLiveLab(o)
	if err != nil {
		return nil, err
	}
	steps, err := l.steps()
	if err != nil {
		return nil, err
	}
	missing, err := live.Measure(ctx, o, steps)
	if err != nil {
		return nil, err
	}
	if len(l.found) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l.result(missing), nil
}

// steps lists all measurements.
func (l *liveLab) steps() ([]live.Step, error) {
	var list []live.Step
	for _, driven := range []bool{false, true} {
		list = append(list, live.Step{Name: fmt.Sprintf("what a start takes, driven %t", driven), Work: chainLength, Do: func(ctx context.Context, _ func(int)) error {
			return l.profile(ctx, driven)
		}})
	}
	for _, v := range l.versions {
		for _, seed := range l.seeds {
			jobs, err := l.workload(v, seed)
			if err != nil {
				return nil, err
			}
			for _, m := range l.methods {
				list = append(list, live.Step{Name: fmt.Sprintf("%s with %s, seed %d", v, m.title, seed), Work: len(jobs), Do: func(ctx context.Context, progress func(int)) error {
					found, err := l.one(ctx, m, jobs, progress)
					if err == nil {
						l.found[trial{v, m.name}] = append(l.found[trial{v, m.name}], found)
					}
					return err
				}})
			}
		}
	}
	return list, nil
}

// workload gives the jobs of an instance as they are run: shortened by speed, with time limits in
// whole minutes of the paper's time, as Slurm has them. The limits leave room for the start of a
// job, even at the paper's own speed.
func (l *liveLab) workload(version string, seed uint64) ([]model.Job, error) {
	v := versionOf(version)
	jobs, err := generate(map[string]string{
		"workload": v.workload, "contiguous": fmt.Sprint(v.contiguous), "nodes": fmt.Sprint(l.nodes), "hours": fmt.Sprint(l.hours),
	}, seed)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		j := &jobs[i]
		j.ID = fmt.Sprintf("job%d", i)
		j.WallTime = (j.Run/time.Minute + 1) * time.Minute
		j.Run = time.Duration(float64(j.Run) / l.speed).Round(time.Millisecond)
	}
	return jobs, nil
}

// one runs the jobs on a real Slurm and in the simulator.
func (l *liveLab) one(ctx context.Context, m method, jobs []model.Job, progress func(int)) (measured, error) {
	var longest time.Duration
	list := make([]live.Job, len(jobs))
	for i := range jobs {
		list[i] = live.Job{Options: options(&jobs[i]), Script: fmt.Sprintf("sleep %.3f", jobs[i].Run.Seconds())}
		longest = max(longest, jobs[i].Run)
	}
	out, err := live.Run(ctx, l.setup(m, longest+2*time.Minute), list, progress)
	if err != nil {
		return measured{}, err
	}
	l.slurm = out.Version
	found := measured{out: out}
	if found.real, err = l.numbers(&sim.Result{Cluster: l.cluster, Jobs: jobs, Outcomes: out.Outcomes()}); err != nil {
		return found, err
	}
	if found.plain, err = l.predict(ctx, m, jobs, 0); err != nil {
		return found, err
	}
	found.charged, err = l.predict(ctx, m, jobs, l.start[m.policy != ""])
	return found, err
}

func (l *liveLab) setup(m method, patience time.Duration) live.Setup {
	return live.Setup{Nodes: l.nodes, CPUs: nodeCores, GPUs: nodeGPUs, Release: l.release, Scheduler: schedulerParameters(l.speed), Policy: m.policy, Speed: l.speed, Patience: patience}
}

// options are the sbatch options of a job.
func options(j *model.Job) []string {
	r := &j.Request
	list := []string{fmt.Sprintf("-t%d", int(j.WallTime/time.Minute))}
	if r.Nodes == 0 {
		list = append(list, fmt.Sprintf("-n%d", r.Cores))
	} else {
		list = append(list, fmt.Sprintf("-N%d", r.Nodes), fmt.Sprintf("--ntasks-per-node=%d", r.CoresPerNode))
	}
	if r.GPUs > 0 {
		list = append(list, fmt.Sprintf("--gres=gpu:%d", r.GPUs))
	}
	if r.Contiguous {
		list = append(list, "--contiguous")
	}
	return list
}

// asDriven changes a request without -N to what the driver makes of it: one node if that has enough
// cores. For more cores it is any nodes with free cores or, on releases of Slurm where the driver
// cannot recognise such a job, the fewest nodes that can hold it.
func (l *liveLab) asDriven(r *model.Request) {
	if r.Cores > nodeCores && l.release.TellsOpenNodes {
		return
	}
	r.Nodes = (r.Cores + nodeCores - 1) / nodeCores
	r.CoresPerNode, r.Cores = (r.Cores+r.Nodes-1)/r.Nodes, 0
}

// predict runs the same jobs in the simulator. A job occupies its nodes for start longer than its
// own run time.
func (l *liveLab) predict(ctx context.Context, m method, jobs []model.Job, start time.Duration) (numbers, error) {
	list := slices.Clone(jobs)
	for i := range list {
		j := &list[i]
		if m.policy != "" && j.Request.Nodes == 0 {
			l.asDriven(&j.Request)
		}
		if m.policy != "" {
			j.WallTime = time.Duration(float64(j.WallTime) / l.speed)
		}
		j.Run += start
		j.WallTime = max(j.WallTime, j.Run)
	}
	p, err := catalog.New(m.model)
	if err != nil {
		return numbers{}, err
	}
	r, err := sim.Run(ctx, sim.Config{Cluster: l.cluster, Jobs: list, Policy: p})
	if err != nil {
		return numbers{}, err
	}
	r.Jobs = jobs // a job's own run time excludes the start
	live.WithoutStart(r.Outcomes, start)
	return l.numbers(r)
}

// numbers are the paper's columns, in the paper's time.
func (l *liveLab) numbers(r *sim.Result) (numbers, error) {
	n, err := measure(r)
	for _, t := range []*float64{&n.theoretical, &n.runtime, &n.wait, &n.waitSTD} {
		*t *= l.speed
	}
	return n, err
}

// The chain is a sequence of jobs that run one after the other, which reveals the cost of a start.
const (
	chainLength = 5
	chainSleep  = 500 * time.Millisecond
)

// profile measures the cost of a job beyond its own run time: on a cluster of two nodes, jobs that
// each need the whole of one of them run there one after the other.
func (l *liveLab) profile(ctx context.Context, driven bool) error {
	s := l.setup(method{}, time.Minute)
	s.Nodes = 2
	if driven {
		s.Policy = "fcfs"
	}
	list := make([]live.Job, chainLength)
	for i := range list {
		list[i] = live.Job{Options: []string{"-t1", "-wn1", "-N1", "--exclusive"}, Script: fmt.Sprintf("sleep %.3f", chainSleep.Seconds())}
	}
	out, err := live.Run(ctx, s, list, nil)
	if err != nil {
		return err
	}
	first, last := out.Jobs[0].Start, time.Duration(0)
	for _, j := range out.Jobs {
		first, last = min(first, j.Start), max(last, j.Start)
	}
	l.start[driven] = max(0, (last-first)/(chainLength-1)-chainSleep)
	return nil
}

// outcomes are those of some runs.
func outcomes(list []measured) []*live.Outcome {
	var out []*live.Outcome
	for i := range list {
		out = append(out, list[i].out)
	}
	return out
}

func (l *liveLab) notes() []string {
	return []string{
		fmt.Sprintf("A real Slurm %s with %d emulated nodes of %d cores and %d pretended GPUs, a fresh one for each run; jobs sleep. They are submitted before the first may start. Slurm's own backfill with %s; the policies of Muster "+
			"through its driver (docs/slurm.md), which asks Slurm five times a second.", l.slurm, l.nodes, nodeCores, nodeGPUs, schedulerParameters(l.speed)),
		fmt.Sprintf("Time runs %g times faster than in the paper: a job of 60 to 600 s sleeps %.2g to %.2g s, and all times are given in the paper's. What Slurm takes to start and end a job does not shrink with it; a chain of jobs on one idle "+
			"node took %.2f s a job beyond the jobs' own time with Slurm's scheduler, and %.2f s with Muster's driver. In the paper's time that is %g times as much.", l.speed, 60/l.speed, 600/l.speed, l.start[false].Seconds(), l.start[true].Seconds(), l.speed),
		fmt.Sprintf("Time limits of Slurm are whole minutes: the jobs have those of the paper's time, so that Slurm knows which jobs are long, and takes all for %g times longer than they are. The driver is told limits in the right proportion. "+
			"The simulator is told the same as each of them; it says that too long limits change Slurm's utilisation little, and make its waits and slowdowns about a tenth shorter.", l.speed),
		fmt.Sprintf("Workloads of %g hours, the paper's are of 4: utilisation, fragmentation and spread can be compared, runtime, wait and slowdown only at 4.", l.hours),
		"Muster's driver gives a job that asks for cores alone (-n) one node if it has enough, and else cores wherever they are free, but with Slurm 24.11 as few nodes as can hold it: that release does not say whether a job asked for nodes. Such jobs are a third of workload V " +
			"and none of II. The simulator has the same limits for them here.",
		live.MeasuredNote("daemons and jobs", outcomes(slices.Concat(slices.Collect(maps.Values(l.found))...))),
	}
}
