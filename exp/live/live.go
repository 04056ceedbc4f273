// Package live runs the jobs of an experiment on a real Slurm: a private cluster of emulated nodes
// on this machine (slurm/emulate). Either Slurm's own backfill scheduler places the jobs, or a
// policy of Muster does, through the driver (slurm/driver). The jobs are submitted with sbatch;
// each writes to a file when and where it ran. The experiments define the jobs and interpret their
// times; this package knows no experiment.
//
// Unless Setup.AtOnce is set, no job can start before all are submitted. With Slurm's own scheduler
// the partition is down until then; with Muster's policy the jobs are held, as Muster's jobs always
// are, until the driver starts.
//
// What all such experiments say of their runs is here, too: what scheduling cost, by how much the
// simulator is off, and whether the machine was busy.
package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/exp/bench"
	"muster/model"
	"muster/policy/catalog"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/engine"
	"muster/slurm/release"
)

// Setup describes a cluster and the scheduler of its jobs.
type Setup struct {
	// Each of the Nodes has CPUs processors. The first GPUNodes of them have GPUs emulated GPUs
	// each.
	Nodes, CPUs, GPUs, GPUNodes int
	// Release is the release of Slurm; nil selects the newest.
	Release *release.Release
	// Scheduler is Slurm's SchedulerParameters; "" keeps the default of package emulate.
	Scheduler string
	// Policy is the policy of Muster that places the jobs; "" leaves them to Slurm's own backfill.
	Policy string
	// Lending configures how the driver lends GPUs of other nodes to jobs; nil disables lending.
	Lending *driver.Lending
	// JobSubmit is the job_submit.lua for runs with a policy. It must hold and mark all jobs; ""
	// selects a script that does only that.
	JobSubmit string
	// PlugStack is the text of plugstack.conf.
	PlugStack string
	// Speed is the factor by which jobs are shorter than their time limits, which Slurm keeps in
	// whole minutes. The driver is told limits shortened by this factor; Slurm's own scheduler
	// cannot be. 0 means 1.
	Speed float64
	// Parallel is how many sbatch processes run at the same time; 0 means one, which keeps the
	// order of the jobs.
	Parallel int
	// AtOnce lets jobs start while others are still being submitted.
	AtOnce bool
	// Patience is how long the run may go without any job ending before it is abandoned; 0 means 2
	// minutes. It must exceed the longest job's run time.
	Patience time.Duration
}

// Job is one job to submit.
type Job struct {
	// Options are sbatch's.
	Options []string
	// Script is the job's bash script. $OUT is a folder of the run that all jobs can write to, and
	// $JOB the job's index in the experiment.
	Script string
}

// Ended is the result of a job. Times count from the moment at which jobs could start.
type Ended struct {
	Start, End time.Duration
	// Nodes are indices of the job's nodes, in ascending order.
	Nodes []int32
	// ID is Slurm's job ID.
	ID uint64
	// Borrows are the GPUs that other nodes lent to the job.
	Borrows []slurm.Borrow
}

// Outcome is the result of a run.
type Outcome struct {
	Jobs    []Ended
	Version string // of Slurm
	// Submit is the time it took to submit all jobs; Refused is how many jobs sbatch failed to
	// submit.
	Submit  time.Duration
	Refused int
	// Controller, REST and Driver are the CPU times of slurmctld, slurmrestd and this process.
	Controller, REST, Driver time.Duration
	// Latency is, for each job, the time from Slurm's answer to its placement to its first command;
	// nil without a policy.
	Latency []time.Duration
	Counts  slurm.Counts
	// Load is the machine's load average at the end: how many processes wanted a processor in the
	// minute before.
	Load float64
}

// holdAll is the job_submit.lua that hands all jobs to Muster's driver.
const holdAll = `
function slurm_job_submit(job, partitions, uid)
  job.admin_comment = "muster:req"
  job.priority = 0
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
`

// Run starts a cluster, submits the jobs, waits until all have ended, and stops the cluster. It
// calls progress with the number of jobs that have ended.
func Run(ctx context.Context, s Setup, jobs []Job, progress func(ended int)) (out *Outcome, err error) {
	o := emulate.Options{Nodes: s.Nodes, CPUs: s.CPUs, GPUs: s.GPUs, GPUNodes: s.GPUNodes, Release: s.Release,
		PlugStack: s.PlugStack, Extra: "MaxJobCount=50000\n"}
	if s.Scheduler != "" {
		o.Extra += "SchedulerParameters=" + s.Scheduler + "\n"
	}
	if s.Policy != "" {
		o.JobSubmit = s.JobSubmit
		if o.JobSubmit == "" {
			o.JobSubmit = holdAll
		}
	}
	c, err := emulate.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := c.Close(); err == nil {
			err = closed
		}
	}()
	if s.Lending != nil {
		s.Lending.OneUser = c.OneUser
	}
	r := &run{Setup: s, cluster: c, jobs: jobs, progress: progress, out: filepath.Join(c.Folder, "out")}
	if err := os.Mkdir(r.out, 0o777); err != nil {
		return nil, err
	}
	os.Chmod(r.out, 0o777)
	return r.run(ctx)
}

// run is one run on a started cluster.
type run struct {
	Setup
	cluster  *emulate.Cluster
	jobs     []Job
	progress func(ended int)
	out      string // folder that the jobs write to; $OUT in their scripts

	began time.Time // when jobs could start
}

func (r *run) run(ctx context.Context) (*Outcome, error) {
	e, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Version: e.Version()}
	if r.Policy == "" && !r.AtOnce {
		if err := r.command(ctx, "scontrol", "update", "partitionname=main", "state=down"); err != nil {
			return nil, err
		}
	}
	clock := &clocked{Engine: e, placed: map[uint64]placement{}}
	var stop func() slurm.Counts
	start := func() error {
		r.began = time.Now()
		if r.Policy == "" {
			return r.command(ctx, "scontrol", "update", "partitionname=main", "state=up")
		}
		stop, err = r.drive(ctx, clock)
		return err
	}
	controller, rest, err := r.loads(ctx)
	if err != nil {
		return nil, err
	}
	if r.AtOnce {
		if err := start(); err != nil {
			return nil, err
		}
	}
	submitting := time.Now()
	if o.Refused, err = r.submit(ctx); err == nil {
		o.Submit = time.Since(submitting)
		if !r.AtOnce {
			// Take the CPU times now: the cost of submitting is no cost of scheduling.
			if controller, rest, err = r.loads(ctx); err == nil {
				err = start()
			}
		}
	}
	own := ownTime()
	if err == nil {
		err = r.wait(ctx, len(r.jobs)-o.Refused)
	}
	o.Load, o.Driver = loadAverage(), ownTime()-own
	if stop != nil {
		o.Counts = stop()
	}
	if err != nil {
		return nil, err
	}
	controllerAfter, restAfter, err := r.loads(ctx)
	if err != nil {
		return nil, err
	}
	o.Controller, o.REST = controllerAfter-controller, restAfter-rest
	return o, r.collect(o, clock)
}

// connect makes a client of the cluster's REST interface.
func (r *run) connect(ctx context.Context) (*engine.Engine, error) {
	address, token := r.cluster.REST()
	return engine.New(ctx, engine.Options{
		Command: r.cluster.CommandContext, Address: address, User: r.cluster.User, Token: func(context.Context) (string, error) { return token, nil },
	})
}

// clocked is an Engine that records which jobs were placed, and when Slurm answered.
type clocked struct {
	driver.Engine
	mu     sync.Mutex
	placed map[uint64]placement
}

type placement struct {
	slurm.Place
	at time.Time
}

func (c *clocked) Place(ctx context.Context, p slurm.Place) error {
	err := c.Engine.Place(ctx, p)
	if err == nil {
		c.mu.Lock()
		c.placed[p.Job.ID] = placement{p, time.Now()}
		c.mu.Unlock()
	}
	return err
}

// hurried is an Engine that divides the time limits that the driver sees by a factor.
type hurried struct {
	driver.Engine
	speed float64
}

func (h *hurried) Jobs(ctx context.Context, since int64, threads map[string]int) (engine.Listing, error) {
	l, err := h.Engine.Jobs(ctx, since, threads)
	for i := range l.Jobs {
		l.Jobs[i].TimeLimit = time.Duration(float64(l.Jobs[i].TimeLimit) / h.speed)
	}
	return l, err
}

// pollEvery is the driver's polling interval; it is short because the jobs are.
const pollEvery = 200 * time.Millisecond

// drive starts the driver. The function that it returns stops the driver and returns its counters.
func (r *run) drive(ctx context.Context, e driver.Engine) (func() slurm.Counts, error) {
	if r.Speed > 0 {
		e = &hurried{e, r.Speed}
	}
	d, err := driver.New(e, driver.Config{Spec: r.Policy, Policy: catalog.New, Poll: pollEvery, Lending: r.Lending,
		Core: slurm.Config{Settle: time.Millisecond}, // no driver was here before
		Log:  slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(within) }()
	return func() slurm.Counts {
		cancel()
		<-done
		return d.Status().Counts
	}, nil
}

// command runs one of Slurm's commands.
func (r *run) command(ctx context.Context, name string, args ...string) error {
	text, err := r.cluster.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}

// loads is the CPU time that slurmctld and slurmrestd have used so far.
func (r *run) loads(ctx context.Context) (controller, rest time.Duration, err error) {
	text, err := r.cluster.CommandContext(ctx, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true").Output()
	if err != nil {
		return 0, 0, fmt.Errorf("reading what the daemons took: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, took := processTime(line)
		switch name {
		case "slurmctld":
			controller += took
		case "slurmrestd":
			rest += took
		}
	}
	return controller, rest, nil
}

// processTime parses a line of /proc/PID/stat: the program's name and its CPU time. The kernel
// counts ticks of 10 ms.
func processTime(line string) (name string, took time.Duration) {
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return "", 0
	}
	f := strings.Fields(line[to+1:])
	if len(f) < 13 {
		return "", 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return line[from+1 : to], time.Duration(user+system) * 10 * time.Millisecond
}

// ownTime is this process's CPU time.
func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// submit submits the jobs, each with its script in a file, and returns how many Slurm refused.
func (r *run) submit(ctx context.Context) (refused int, err error) {
	var lines strings.Builder
	for i := range r.jobs {
		script := fmt.Sprintf("#!/bin/bash\nLC_ALL=C\nOUT=%s JOB=%d\necho \"$EPOCHREALTIME $SLURM_JOB_ID $SLURM_JOB_NODELIST\" > $OUT/$JOB.start\n%s\necho \"$EPOCHREALTIME $?\" > $OUT/$JOB.new\nmv $OUT/$JOB.new $OUT/$JOB.end\n",
			r.out, i, r.jobs[i].Script)
		path := r.file(i, "sh")
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			return 0, err
		}
		words := append([]string{"-Q", "-J", fmt.Sprintf("job%d", i), "-o", r.file(i, "out")}, r.jobs[i].Options...)
		fmt.Fprintf(&lines, "%s %s\n", strings.Join(words, " "), path)
	}
	list := filepath.Join(r.out, "list")
	if err := os.WriteFile(list, []byte(lines.String()), 0o644); err != nil {
		return 0, err
	}
	// A job that sbatch fails to submit is counted, and the others are submitted nevertheless.
	text, err := r.cluster.CommandContext(ctx, "sh", "-c", fmt.Sprintf("xargs -P%d -L1 sh -c 'sbatch \"$@\" || echo refused' sbatch < %s 2>&1", max(1, r.Parallel), list)).CombinedOutput()
	refused = strings.Count(string(text), "refused\n")
	if err != nil || refused == len(r.jobs) || refused > 0 && r.Parallel <= 1 {
		return refused, fmt.Errorf("submitting %d jobs: %w: %s", len(r.jobs), errors.Join(err, ctx.Err()), firstLine(text))
	}
	return refused, nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}

func (r *run) file(job int, kind string) string {
	return filepath.Join(r.out, strconv.Itoa(job)+"."+kind)
}

// lookEvery is how often wait checks the folder for jobs that have ended.
const lookEvery = 200 * time.Millisecond

// wait waits until the given number of jobs have ended. It counts the files that the jobs write and
// does not ask Slurm, so that waiting costs slurmctld nothing.
func (r *run) wait(ctx context.Context, want int) error {
	patience := r.Patience
	if patience == 0 {
		patience = 2 * time.Minute
	}
	over, latest := make([]bool, len(r.jobs)), time.Now()
	for ended := 0; ended < want; {
		if err := bench.Pause(ctx, lookEvery); err != nil {
			return err
		}
		for i := range r.jobs {
			if over[i] {
				continue
			}
			if _, err := os.Stat(r.file(i, "end")); err == nil {
				over[i], latest = true, time.Now()
				ended++
			}
		}
		if r.progress != nil {
			r.progress(ended)
		}
		if time.Since(latest) > patience {
			return fmt.Errorf("%d of %d jobs have not ended, and none has for %s: %s", want-ended, want, patience, r.stuck(ctx))
		}
	}
	return nil
}

// stuck is what squeue says about the first jobs that have not ended.
func (r *run) stuck(ctx context.Context) string {
	text, err := r.cluster.CommandContext(ctx, "sh", "-c", "squeue -h -O JobID:8,State:12,Reason:30,admin_comment:120 | head -3").Output()
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// collect reads what the jobs have written.
func (r *run) collect(o *Outcome, clock *clocked) error {
	o.Jobs = make([]Ended, len(r.jobs))
	for i := range r.jobs {
		j, err := r.read(i)
		if errors.Is(err, os.ErrNotExist) && o.Refused > 0 {
			continue // sbatch failed to submit this one
		}
		if err != nil {
			return fmt.Errorf("job %d: %w", i, err)
		}
		if p, placed := clock.placed[j.ID]; placed {
			j.Borrows = slices.Concat(p.Borrows...)
			o.Latency = append(o.Latency, r.began.Add(j.Start).Sub(p.at))
		}
		o.Jobs[i] = j
	}
	return nil
}

func (r *run) read(i int) (Ended, error) {
	var j Ended
	start, err := os.ReadFile(r.file(i, "start"))
	if err != nil {
		return j, err
	}
	end, err := os.ReadFile(r.file(i, "end"))
	if err != nil {
		return j, err
	}
	begin, over := strings.Fields(string(start)), strings.Fields(string(end))
	if len(begin) != 3 || len(over) != 2 {
		return j, fmt.Errorf("it wrote %q and %q", start, end)
	}
	if over[1] != "0" {
		text, _ := os.ReadFile(r.file(i, "out"))
		return j, fmt.Errorf("it ended with status %s: %s", over[1], firstLine(text))
	}
	if j.ID, err = strconv.ParseUint(begin[1], 10, 64); err != nil {
		return j, err
	}
	if j.Start, err = r.since(begin[0]); err != nil {
		return j, err
	}
	if j.End, err = r.since(over[0]); err != nil {
		return j, err
	}
	names, err := model.ExpandNodes(begin[2])
	for _, name := range names {
		j.Nodes = append(j.Nodes, int32(slices.Index(r.cluster.Nodes, name)))
	}
	slices.Sort(j.Nodes)
	return j, err
}

// since parses bash's EPOCHREALTIME: seconds with six decimals.
func (r *run) since(text string) (time.Duration, error) {
	whole, part, ok := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	micros, err2 := strconv.ParseInt(part, 10, 64)
	if !ok || err != nil || err2 != nil || len(part) != 6 {
		return 0, fmt.Errorf("%q is no time", text)
	}
	return time.Unix(seconds, micros*1000).Sub(r.began), nil
}

// MedianLatency is the median of Latency; 0 if there is none.
func (o *Outcome) MedianLatency() time.Duration {
	if len(o.Latency) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(o.Latency))[len(o.Latency)/2]
}

// loadAverage is the load average of the last minute; 0 if the system does not report one.
func loadAverage() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		fmt.Sscan(string(text), &load)
	}
	return load
}

// BusyNote is a note that the machine was busy with other work; "" if it was not. The emulated
// cluster by itself keeps the load below three per processor.
func BusyNote(load float64) string {
	if load < 3*float64(runtime.NumCPU()) {
		return ""
	}
	return fmt.Sprintf(" Others used it, too (load average %.0f in the worst run): starts took longer than on a quiet machine, and more so with Muster's driver, which has to ask what has happened.", load)
}
