package question

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"muster/internal/misuse"
	"muster/internal/units"
	"muster/internal/wholefile"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy/preempt"
	"muster/policy/priority"
	"muster/sim"
	"muster/sim/source"
	"muster/workload"
)

// What jobs move over the network: what the TSUBAME paper estimates, where the log does not say, or
// what the log says.
const (
	TrafficEstimate = "estimate"
	TrafficAsLogged = "as-logged"
)

// maxRuns bounds a sweep, so that a slip costs an error.
const maxRuns = 100_000

// Jobs is a question about a log of jobs on a cluster.
type Jobs struct {
	// Cluster is a file or a preset; "" is the cluster of a recorded history. Workload is a log, a
	// name, a generator with its parameters, or - for standard input.
	Cluster, Workload string
	// Bundled says that the workload comes with Muster: no file is looked for.
	Bundled bool
	// Policies are names or scripts with their settings, with commas between.
	Policies string
	Scripts  Scripts
	// Nodes and Seeds are lists or ranges; without Nodes the cluster is taken as it is.
	Nodes, Seeds string
	// Traffic is TrafficEstimate or TrafficAsLogged.
	Traffic string
	// Outages and Priority are files; ReadPriority reads the latter.
	Outages, Priority string
	ReadPriority      func(file string) (*priority.Config, error)
	// Why names jobs, Explain steps, with commas between.
	Why, Explain string
	NoKill       bool
	// LateBinding is the time of a move to another GPU, and behind a colon the bandwidth of its copies;
	// "" keeps shares where they were granted.
	LateBinding string
	Workers     int
}

// Sweep is what to run, but for the jobs (see Read).
func (q *Jobs) Sweep() (*sim.Sweep, error) {
	cluster, err := q.cluster()
	if err != nil {
		return nil, err
	}
	policies, err := q.Scripts.parse(q.Policies)
	if err != nil {
		return nil, err
	}
	s := &sim.Sweep{Cluster: cluster, Policies: policies, NoKill: q.NoKill, Workers: q.Workers}
	if q.Priority != "" {
		if s.Priority, err = q.ReadPriority(q.Priority); err != nil {
			return nil, err
		}
	}
	rules, err := preempt.RulesOf(s.Priority, cluster.Partitions)
	if err != nil {
		return nil, err
	}
	s.Policies = q.Scripts.withClasses(policies, rules)
	if q.Nodes != "" {
		if s.Nodes, err = model.ParseRange(q.Nodes); err != nil {
			return nil, misuse.Errorf("--nodes: %v", err)
		}
		if slices.Contains(s.Nodes, 0) {
			return nil, misuse.Errorf("--nodes: a cluster needs at least one node")
		}
	}
	if s.Seeds, err = parseSeeds(q.Seeds); err != nil {
		return nil, err
	}
	if err := checkRuns(len(s.Seeds) * max(1, len(s.Nodes)) * len(policies)); err != nil {
		return nil, err
	}
	if s.Outages, err = q.readOutages(cluster); err != nil {
		return nil, err
	}
	if s.Explain, err = parseMoments(q.Explain, "step", "1h30m"); err != nil {
		return nil, err
	}
	if s.Bind, err = parseBinding(q.LateBinding); err != nil {
		return nil, err
	}
	if q.Workers < 1 {
		return nil, misuse.Errorf("--workers must be 1 or more, not %d", q.Workers)
	}
	if q.Traffic != TrafficEstimate && q.Traffic != TrafficAsLogged {
		return nil, misuse.Errorf("--traffic %s: use %s or %s", q.Traffic, TrafficEstimate, TrafficAsLogged)
	}
	return s, nil
}

// parseBinding reads COST[:BANDWIDTH].
func parseBinding(text string) (*sim.Binding, error) {
	if text == "" {
		return nil, nil
	}
	b := &sim.Binding{Usual: model.DefaultHolds()}
	cost, bandwidth, copies := strings.Cut(text, ":")
	var err error
	if b.Cost, err = time.ParseDuration(cost); err != nil || b.Cost < 0 {
		return nil, misuse.Errorf("--late-binding %s: write the time of a move, as 100ms, and perhaps the bandwidth of its copies, as 100ms:10GB/s", text)
	}
	if copies {
		if b.Bandwidth, err = units.ParseBandwidth(bandwidth); err == nil && b.Bandwidth == 0 {
			err = errors.New("0 is no bandwidth: leave it out for copies that take no time")
		}
		if err != nil {
			return nil, misuse.Errorf("--late-binding %s: %v", text, err)
		}
	}
	return b, nil
}

// outagesLimit is for a table of outages.
var outagesLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a table of outages?"}

// readOutages reads the table of outages.
func (q *Jobs) readOutages(c *model.Cluster) ([]sim.Outage, error) {
	if q.Outages == "" {
		return nil, nil
	}
	text, err := outagesLimit.ReadFile(q.Outages)
	if err != nil {
		return nil, err
	}
	list, err := sim.ReadOutages(bytes.NewReader(text), c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Outages, err)
	}
	return list, nil
}

func (q *Jobs) cluster() (*model.Cluster, error) {
	if q.Cluster == "" && source.IsRecord(q.Workload) {
		h, err := source.Record(q.Workload)
		if err != nil {
			return nil, err
		}
		return h.Cluster, nil
	}
	if q.Cluster == "" {
		return nil, misuse.Errorf("say which cluster: --cluster FILE, or a name that muster cluster list lists")
	}
	return clusterfile.Load(q.Cluster)
}

// Read opens the jobs and reads those of the first seed, which the sweep then watches and explains. The
// sweep gets the jobs of every seed.
func (q *Jobs) Read(s *sim.Sweep, stdin io.Reader, opt workload.ReadOptions) (first *workload.Workload, read *workload.ReadReport, err error) {
	jobs, err := q.source(stdin, opt)
	if err != nil {
		return nil, nil, err
	}
	first, read, err = jobs(s.Seeds[0])
	if err != nil {
		return nil, nil, err
	}
	if s.Watch, err = findJobs(q.Why, first.Jobs); err != nil {
		return nil, nil, err
	}
	s.Workload = func(seed uint64) ([]model.Job, error) {
		wl, _, err := jobs(seed)
		if err != nil {
			return nil, err
		}
		if q.Traffic == TrafficEstimate {
			return workload.EstimateTraffic(wl.Jobs, seed), nil
		}
		return wl.Jobs, nil
	}
	return first, read, nil
}

// source gives the workload of each seed.
func (q *Jobs) source(stdin io.Reader, opt workload.ReadOptions) (source.Source, error) {
	if q.Workload == "" {
		return nil, misuse.Errorf("say which jobs: --workload FILE, or one of %s", strings.Join(source.Names(), ", "))
	}
	opt.SkipLogged = !readsNames(q.Policies)
	if q.Bundled {
		return source.Named(q.Workload, opt)
	}
	return source.Open(stdin, q.Workload, opt)
}

// readsNames says whether a policy is a script, which may know jobs by the names of their
// programs.
func readsNames(policies string) bool {
	return strings.Contains(policies, "mccs-") || strings.Contains(policies, ".star")
}

// findJobs gives the indexes of the jobs with these IDs.
func findJobs(list string, jobs []model.Job) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var found []int
	for id := range strings.SplitSeq(list, ",") {
		id = strings.TrimSpace(id)
		i := slices.IndexFunc(jobs, func(j model.Job) bool { return j.ID == id })
		switch {
		case i < 0 && len(jobs) == 0:
			return nil, misuse.Errorf("--why: there is no job %q: the workload is empty", id)
		case i < 0:
			return nil, misuse.Errorf("--why: there is no job %q: the first of the workload is %q, the last %q", id, jobs[0].ID, jobs[len(jobs)-1].ID)
		case slices.Contains(found, i):
			return nil, misuse.Errorf("--why: %s is named twice", id)
		}
		found = append(found, i)
	}
	return found, nil
}

// Unexplained is nil if every step that was asked for was explained in the runs of the first seed and
// size, and else says why one was not.
func (q *Jobs) Unexplained(s *sim.Sweep, runs []sim.RunOf) error {
	if i, why := sim.Unexplained(runs[:len(s.Policies)], s.Explain); i >= 0 {
		return notExplained(q.Explain, i, why)
	}
	return nil
}

// Asked tells in words what was asked.
func (q *Jobs) Asked(first *workload.Workload, s *sim.Sweep) [][2]string {
	rows := [][2]string{
		{"Cluster", fmt.Sprintf("%s: %s", cmp.Or(q.Cluster, s.Cluster.Name), s.Cluster.Summary())},
		{"Workload", fmt.Sprintf("%s: %s", q.Workload, units.Plural(len(first.Jobs), "job"))},
		{"Policies", strings.ReplaceAll(q.Policies, ",", ", ")},
	}
	if q.Nodes != "" {
		rows = append(rows, [2]string{"Nodes", q.Nodes})
	}
	if len(s.Seeds) > 1 {
		rows = append(rows, [2]string{"Seeds", q.Seeds})
	}
	traffic := "as the log says"
	if q.Traffic == TrafficEstimate {
		traffic = "estimated as in the TSUBAME paper where the log does not say"
	}
	rows = append(rows, [2]string{"Network traffic", traffic})
	if q.Outages != "" {
		rows = append(rows, [2]string{"Outages", fmt.Sprintf("%s: %s", q.Outages, units.Plural(len(s.Outages), "outage"))})
	}
	if q.Priority != "" {
		rows = append(rows, [2]string{"Priorities", q.Priority})
	}
	if q.LateBinding != "" {
		rows = append(rows, [2]string{"Late binding of shares", "a move takes " + q.LateBinding})
	}
	if q.NoKill {
		rows = append(rows, [2]string{"Wall times", "do not kill"})
	}
	return rows
}
