package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/campaign/vitals"
	"muster/head/client"
	"muster/wire/api"
)

// settle waits after the last fault until everything is quiet, and reports what does not become so.
func (c *campaign) settle() {
	report := func(wrong func() []string) {
		for _, w := range c.eventually(wrong) {
			c.violate("%s", w)
		}
	}
	for _, d := range c.daemons() {
		if !d.alive() {
			c.violate("%s has ended by itself: %v", d.name, d.cmd.ProcessState)
		}
	}
	report(c.away)
	report(c.clearAll)
	report(c.unfinished)
	report(c.strays)
	report(func() []string {
		var left []string
		for _, m := range c.machines {
			left = append(left, m.inSpool()...)
			g, err := m.grants()
			if err != nil {
				left = append(left, fmt.Sprintf("%s does not say what it has granted: %v", m.name, err))
				continue
			}
			for _, one := range g.Grants {
				left = append(left, fmt.Sprintf("%s still lends for %s", m.name, one.ID))
			}
		}
		return left
	})
	report(c.grown)
}

// strays are processes that should not exist when there are no jobs.
func (c *campaign) strays() []string {
	var left []string
	pids := map[int]bool{}
	for _, d := range c.daemons() {
		pids[d.pid()] = true
	}
	waiting := map[string]int{}
	for _, s := range c.watch.look() {
		switch {
		case s.role == isDaemon && pids[s.pid]:
		case s.role == isWorker && waiting[s.node] < 1:
			waiting[s.node]++
		default:
			left = append(left, fmt.Sprintf("process %d is left of %v: %s", s.pid, s.task, vitals.Words(s.pid)))
		}
	}
	return left
}

// grown says what daemons have more of than after the first jobs.
func (c *campaign) grown() []string {
	var left []string
	look := func(d *daemon, before vitals.Vitals) {
		now, err := vitals.Read(d.pid())
		if err != nil {
			left = append(left, err.Error())
			return
		}
		for _, g := range vitals.Grown(before, now) {
			left = append(left, d.name+" has "+g)
		}
	}
	before := c.before
	state := filepath.Join(c.o.Dir, "head.state")
	if store, err := os.Stat(filepath.Join(state, "head.db")); slices.Contains(c.disks, state) && err == nil {
		before.AllowShared(store.Size()) // on a disk in memory, the store that the head has mapped is shared memory
	}
	look(&c.head, before)
	for _, m := range c.machines {
		look(&m.daemon, m.before)
	}
	return left
}

// line is a line that a job has written.
type line struct {
	what          string
	attempt, part int
}

// lines reads what a job has written.
func (c *campaign) lines(job uint64) (list []line, err error) {
	text, err := os.ReadFile(filepath.Join(c.o.Dir, "lines", strconv.FormatUint(job, 10)))
	if os.IsNotExist(err) {
		return nil, nil
	}
	for text := range strings.Lines(string(text)) {
		var l line
		var at float64
		if _, err := fmt.Sscan(text, &l.what, &l.attempt, &l.part, &at); err != nil {
			return nil, fmt.Errorf("line %q of job %d: %w", text, job, err)
		}
		l.attempt++
		list = append(list, l)
	}
	return list, err
}

// check compares what the head says with the submissions, with the lines that the jobs wrote, and
// with the faults.
func (c *campaign) check() {
	jobs := c.everything()
	for _, a := range c.load.all {
		c.checkSubmission(a, jobs)
	}
	for _, h := range c.faults.hits {
		c.report.Faults[h.kind]++
	}
	c.report.PassedOver = c.faults.passed
	for _, m := range c.machines {
		if err := m.stop(syscall.SIGTERM, c.o.Patience); err != nil {
			c.violate("in the end %v", err)
		}
	}
	if err := c.head.stop(syscall.SIGTERM, c.o.Patience); err != nil {
		c.violate("in the end %v", err)
	}
	for _, s := range c.eventually(func() []string {
		var left []string
		for _, s := range c.watch.look() {
			left = append(left, fmt.Sprintf("process %d is left of the cluster: %s", s.pid, vitals.Words(s.pid)))
		}
		return left
	}) {
		c.violate("%s", s)
	}
	for _, d := range c.daemons() {
		for _, t := range d.trouble() {
			c.violate("%s", t)
		}
	}
}

// everything is all jobs that the head knows, in its queue and in its history.
func (c *campaign) everything() map[uint64]*api.Job {
	all := map[uint64]*api.Job{}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Patience)
	defer cancel()
	ended, err := c.asks.History(ctx, client.Period{})
	if err != nil {
		c.violate("the history cannot be read: %v", err)
	}
	for i := range ended {
		if all[ended[i].ID] != nil {
			c.violate("job %d is twice in the history", ended[i].ID)
		}
		all[ended[i].ID] = &ended[i]
	}
	active, err := c.load.jobs(ctx)
	if err != nil {
		c.violate("the queue cannot be read: %v", err)
	}
	for i := range active {
		j := &active[i]
		if known := all[j.ID]; known != nil && known.State != j.State {
			c.violate("job %d is %s in the history, and %s in the queue", j.ID, known.State, j.State)
		}
		all[j.ID] = j
	}
	return all
}

// checkSubmission checks the jobs of a submission.
func (c *campaign) checkSubmission(a *asked, jobs map[uint64]*api.Job) {
	var own []*api.Job
	for _, j := range jobs {
		if j.Name == a.name {
			own = append(own, j)
		}
	}
	slices.SortFunc(own, func(x, y *api.Job) int { return int(x.ID) - int(y.ID) })
	if len(own) != a.tasks {
		c.violate("submission %s was acknowledged as job %d, and there are %d jobs of %d", a.name, a.job, len(own), a.tasks)
	}
	for _, j := range own {
		c.report.Jobs[string(j.State)]++
		c.report.Attempts += int(j.Attempt)
		if borrows(j) {
			c.report.Borrowed++
		}
		for _, w := range c.wrongWith(a, j) {
			c.violate("job %d (%s, %s: %s, attempt %d on %v): %s", j.ID, strings.Join(a.doc.Options, " "), j.State, j.Why, j.Attempt, j.Nodes, w)
		}
	}
}

// wrongWith says what is wrong with the outcome of a job.
func (c *campaign) wrongWith(a *asked, j *api.Job) []string {
	lines, err := c.lines(j.ID)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	count := map[line]int{}
	begun := map[int]bool{}
	for _, l := range lines {
		count[l]++
		if count[l] > 1 {
			wrong = append(wrong, fmt.Sprintf("part %d says %s twice in attempt %d", l.part, l.what, l.attempt))
		}
		if l.attempt > int(j.Attempt) {
			wrong = append(wrong, fmt.Sprintf("it has an attempt %d", l.attempt))
		}
		begun[l.attempt] = true
	}
	if len(begun) > 1 && !a.requeue && !a.requeued[j.ID] {
		wrong = append(wrong, fmt.Sprintf("it began in %d attempts, and may not be started anew", len(begun)))
	}
	if j.State == api.Completed {
		for part := range a.parts {
			for _, what := range []string{"begin", "end"} {
				if count[line{what, int(j.Attempt), part}] != 1 {
					wrong = append(wrong, fmt.Sprintf("part %d says no %s in its last attempt: %v", part, what, lines))
				}
			}
		}
	}
	if why := c.unexcused(a, j); why != "" {
		wrong = append(wrong, why)
	}
	return wrong
}

// unexcused says why the outcome of a job is not explained by any fault or request; "" if it is.
func (c *campaign) unexcused(a *asked, j *api.Job) string {
	switch j.State {
	case api.Completed:
		return ""
	case api.Cancelled:
		if !a.cancelled[j.ID] {
			return "nobody cancelled it"
		}
		return ""
	case api.NodeFail:
		if strings.Contains(j.Why, "has not been heard of") {
			if !c.awayForLong(j) {
				return "no fault kept its nodes away for long enough"
			}
			return ""
		}
		if !c.wasHit(j, []Kind{SupervisorKill}, []Kind{MachineKill}) {
			return "no fault lost its processes"
		}
		return ""
	case api.Failed:
		if j.ExitCode == 4 {
			return "its GPU's memory was wrong"
		}
		if c.wasHit(j, []Kind{JobKill, SupervisorKill}, nil) { // a supervisor may die before its task begins, and after another part has
			return ""
		}
		if a.parts > 1 && c.wasHit(j, nil, []Kind{SpoolDiskFull}) { // it may have begun on the other node
			return ""
		}
		if a.gpus && (c.wasHit(j, nil, gpuFaults(j)) || j.ExitCode == 5 && c.cutForLong(j)) {
			return ""
		}
		return fmt.Sprintf("no fault made it fail: exit status %d, signal %d", j.ExitCode, j.Signal)
	}
	return "no fault explains that"
}

// gpuFaults are the faults of nodes that a program with GPUs may not survive. GPUs of its own node
// survive the daemon; borrowed ones are lost with the lender's daemon. A session outlives its
// connection, once it is there: a program that has all its devices (see gpu.c) survives its links.
func gpuFaults(j *api.Job) []Kind {
	kinds := []Kind{NodeRestart}
	if borrows(j) {
		kinds = append(kinds, NodeKill, NodePause, NodeHandover, MachineKill)
		if j.ExitCode == 3 {
			kinds = append(kinds, GatewayCut, GatewayStall, GatewayHalfOpen)
		}
	}
	return kinds
}

func borrows(j *api.Job) bool {
	return slices.ContainsFunc(j.Devices, func(d api.Device) bool { return d.Borrowed })
}

// cutForLong says whether faults kept a job from a lender of its GPUs for longer than sessions are
// kept. A program dials again within the longest pause between two attempts, so faults that follow
// each other sooner count as one.
func (c *campaign) cutForLong(j *api.Job) bool {
	for _, d := range j.Devices {
		var from, until time.Time
		for _, h := range c.faults.hits {
			if !d.Borrowed || h.node != d.Node || h.kind != GatewayCut && h.kind != GatewayStall {
				continue
			}
			if h.from.After(until.Add(3 * time.Second)) {
				from = h.from
			}
			if until = h.until; until.Sub(from) > gatewayResume && from.Before(instant(j.End)) {
				return true
			}
		}
	}
	return false
}

// nodesOf are a job's own nodes, and those that lend it GPUs.
func nodesOf(j *api.Job) []string {
	list := slices.Clone(j.Nodes)
	for _, d := range j.Devices {
		list = append(list, d.Node)
	}
	return list
}

// wasHit says whether a fault hit a job itself, or one of its nodes while it ran (with a second of
// tolerance for the clocks and for delayed effects).
func (c *campaign) wasHit(j *api.Job, itself, nodes []Kind) bool {
	return slices.ContainsFunc(c.faults.hits, func(h hit) bool {
		if h.job == j.ID && slices.Contains(itself, h.kind) {
			return true
		}
		return h.job == 0 && slices.Contains(nodes, h.kind) && slices.Contains(nodesOf(j), h.node) && h.from.Before(instant(j.End).Add(time.Second)) && h.until.Add(time.Second).After(instant(j.Start))
	})
}

// instant converts a time of a document.
func instant(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

// awayForLong says whether faults may have separated one of a job's nodes from the head for longer
// than nodeTimeout. An agent that cannot reach the head retries after a pause that grows with the
// time that it has tried, so each fault counts for twice its length plus 2 s.
func (c *campaign) awayForLong(j *api.Job) bool {
	for _, node := range nodesOf(j) {
		var from, until time.Time
		for _, h := range c.faults.hits {
			if h.node != "" && h.node != node || h.job != 0 || h.kind.ofGateway() || h.kind == SpoolDiskFull {
				continue
			}
			if h.from.After(until) {
				from, until = h.from, h.from
			}
			if end := h.until.Add(h.until.Sub(h.from) + 2*time.Second); end.After(until) {
				until = end
			}
			if until.Sub(from) > nodeTimeout && from.Before(instant(j.End)) {
				return true
			}
		}
	}
	return false
}
