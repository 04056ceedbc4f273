package question

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/misuse"
	"muster/internal/units"
	"muster/mapping"
	"muster/model"
	"muster/model/clusterfile"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// How long a remote call holds its GPU, and when its input is sent.
const (
	HoldKernel  = "kernel"
	HoldResults = "results"

	SendTurn  = "turn"
	SendAhead = "ahead"
)

// Kernels is a question about applications whose kernels run on the GPUs of all nodes.
type Kernels struct {
	// Cluster is a file or a preset, Workload a file or the name of applications that are built in.
	Cluster, Workload string
	// Policies are mappers with their settings, with commas between.
	Policies string
	// Nodes and Seeds are lists or ranges; without Nodes the cluster is taken as it is.
	Nodes, Seeds string
	// Span is how long to simulate; 0 until all processes have ended. Delay is how long nodes take to
	// learn what happens on others.
	Span, Delay string
	// Bandwidth and Latency replace the cluster's, unless "".
	Bandwidth, Latency string
	// Hold is HoldKernel or HoldResults, Send SendTurn or SendAhead.
	Hold, Send string
	// FalsePositive and FalseNegative are how often a GPU of another node seems busy or idle that is
	// not, 0 to 1.
	FalsePositive, FalseNegative float64
	// Window is how many of its last kernels the average of a GPU counts.
	Window, Workers int
	// Explain names calls, with commas between.
	Explain string
}

// Sweep is what to run.
func (q *Kernels) Sweep() (*kernels.Sweep, error) {
	s := &kernels.Sweep{Workers: q.Workers}
	if err := q.settings(&s.Common); err != nil {
		return nil, err
	}
	var err error
	if s.Mappers, err = parseMappers(q.Policies); err != nil {
		return nil, err
	}
	if s.Seeds, err = parseSeeds(q.Seeds); err != nil {
		return nil, err
	}
	if q.Workers < 1 {
		return nil, misuse.Errorf("--workers must be 1 or more, not %d", q.Workers)
	}
	moments, err := parseMoments(q.Explain, "call", "12.5s")
	if err != nil {
		return nil, err
	}
	for _, m := range moments {
		s.Common.Explain = append(s.Common.Explain, kernels.Moment{Call: int64(m.Step), At: m.At})
	}
	cluster, err := q.cluster()
	if err != nil {
		return nil, err
	}
	nodes := []int{len(cluster.Nodes)}
	if q.Nodes != "" {
		if nodes, err = model.ParseRange(q.Nodes); err != nil {
			return nil, misuse.Errorf("--nodes: %v", err)
		}
	}
	if err := checkRuns(len(s.Seeds) * len(nodes) * len(s.Mappers)); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		resized, err := cluster.Resize(n)
		if err != nil {
			return nil, misuse.Errorf("--nodes: %v", err)
		}
		wl, err := q.workload(n)
		if err != nil {
			return nil, err
		}
		for i := range wl.Apps {
			if s.Common.Span == 0 && wl.Apps[i].Iterations == 0 {
				return nil, misuse.Errorf("--span 0: application %s of %s has no end: give a span, or say how many iterations it makes", wl.Apps[i].Name, q.Workload)
			}
		}
		s.Sizes = append(s.Sizes, kernels.Size{Cluster: resized, Workload: wl})
	}
	return s, nil
}

// settings reads what all runs have in common.
func (q *Kernels) settings(c *kernels.Config) error {
	for _, t := range []struct {
		name, value string
		to          *time.Duration
	}{{"span", q.Span, &c.Span}, {"delay", q.Delay, &c.Status.Delay}} {
		var err error
		if *t.to, err = units.ParseDuration(t.value); err != nil {
			return misuse.Errorf("--%s: %v", t.name, err)
		}
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"false-positive", q.FalsePositive}, {"false-negative", q.FalseNegative}} {
		if !(p.value >= 0 && p.value <= 1) {
			return misuse.Errorf("--%s is a share, from 0 to 1, not %v: write 5 %% as 0.05", p.name, p.value)
		}
	}
	c.Status.FalsePositive, c.Status.FalseNegative = q.FalsePositive, q.FalseNegative
	if q.Window < 1 || q.Window > maxWindow {
		return misuse.Errorf("--window is 1 to %d kernels, not %d", maxWindow, q.Window)
	}
	c.Window = q.Window
	switch q.Hold {
	case HoldKernel:
	case HoldResults:
		c.HoldResults = true
	default:
		return misuse.Errorf("--hold %s: use %s or %s", q.Hold, HoldKernel, HoldResults)
	}
	switch q.Send {
	case SendTurn:
	case SendAhead:
		c.SendAhead = true
	default:
		return misuse.Errorf("--send %s: use %s or %s", q.Send, SendTurn, SendAhead)
	}
	return nil
}

// maxWindow bounds what is kept of each GPU, so that a slip costs an error.
const maxWindow = 100_000

// parseMappers reads "NAME:key=value,NAME".
func parseMappers(list string) ([]string, error) {
	var specs []string
	for spec := range strings.SplitSeq(list, ",") {
		spec = strings.TrimSpace(spec)
		if err := mapping.Check(spec); err != nil {
			return nil, misuse.Errorf("--policy: %v (--list-policies lists them)", err)
		}
		if slices.Contains(specs, spec) {
			return nil, misuse.Errorf("--policy: %s is named twice", spec)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// cluster reads the cluster and puts the network that was asked for in place of its own.
func (q *Kernels) cluster() (*model.Cluster, error) {
	c, err := clusterfile.Load(q.Cluster)
	if err != nil {
		return nil, err
	}
	if c.TotalGPUs() == 0 {
		return nil, misuse.Errorf("--cluster: %s has no GPUs to run kernels on", q.Cluster)
	}
	return withNetwork(c, q.Bandwidth, q.Latency)
}

// withNetwork is a cluster with another bandwidth of every node's port, and another latency of calls to
// other nodes, where these are not "".
func withNetwork(c *model.Cluster, bandwidth, latency string) (*model.Cluster, error) {
	own := *c
	own.Nodes = slices.Clone(c.Nodes)
	if bandwidth != "" {
		value, err := units.ParseBandwidth(bandwidth)
		switch _, plain := strconv.ParseFloat(bandwidth, 64); {
		case bandwidth == "0":
			value, err = 0, nil
		case plain == nil: // bytes a second are seldom meant
			err = fmt.Errorf("%s has no unit: write it as %sMB/s, or %sB/s for bytes", bandwidth, bandwidth, bandwidth)
		}
		if err != nil {
			return nil, misuse.Errorf("--bandwidth: %v", err)
		}
		for i := range own.Nodes {
			own.Nodes[i].Link.Bandwidth = value
		}
	}
	if latency != "" {
		var err error
		if own.Remote.Latency, err = units.ParseDuration(latency); err != nil {
			return nil, misuse.Errorf("--latency: %v", err)
		}
		for i := range own.Nodes {
			own.Nodes[i].Link.Latency = 0
		}
	}
	return &own, nil
}

// workload finds the applications for a cluster of this many nodes.
func (q *Kernels) workload(nodes int) (*phased.Workload, error) {
	wl, err := phased.Load(q.Workload, nodes)
	if err == nil {
		return wl, nil
	}
	// What looks like a path was meant as one: that it is not there, or bad, is no wrong usage.
	name, _, _ := strings.Cut(q.Workload, ":")
	_, missing := os.Stat(q.Workload)
	if errors.Is(missing, fs.ErrNotExist) && filepath.Ext(name) == "" && !strings.ContainsRune(name, filepath.Separator) {
		return nil, misuse.Errorf("--workload: %v", err)
	}
	return nil, err
}

// Unexplained is nil if every call that was asked for was explained in the runs of the first seed and
// size, and else says why one was not.
func (q *Kernels) Unexplained(s *kernels.Sweep, runs []kernels.RunOf) error {
	if i, why := kernels.Unexplained(runs[:len(s.Mappers)], s.Common.Explain); i >= 0 {
		return notExplained(q.Explain, i, why)
	}
	return nil
}
