package simpage

import (
	"maps"
	"math"
	"slices"

	"muster/sim"
)

// The JSON form of a study is flat; its times are in seconds.
type (
	// Document is a study as JSON.
	Document struct {
		Runs      []jsonRun       `json:"runs"`
		Why       []jsonWhy       `json:"why,omitempty"`
		Explained []jsonExplained `json:"explained,omitempty"`
	}
	// jsonRun is one run; it has a field for each figure.
	jsonRun struct {
		Policy          string  `json:"policy"`
		Seed            uint64  `json:"seed"`
		Nodes           int     `json:"nodes"`
		Jobs            int     `json:"jobs"`
		Finished        int     `json:"finished"`
		Killed          int     `json:"killed"`
		Impossible      int     `json:"impossible"`
		Borrowing       int     `json:"borrowing"`
		Stops           int     `json:"stops,omitempty"`     // how often a job was stopped in favour of one of a higher class
		Preempted       int     `json:"preempted,omitempty"` // jobs that were cancelled for that
		Rebinds         int     `json:"rebinds,omitempty"`   // how often a share was bound to another device while its job ran
		Lost            int     `json:"lost,omitempty"`
		Requeues        int     `json:"requeues,omitempty"`
		NodeHoursLost   float64 `json:"node_hours_lost,omitempty"`
		CoreHoursLost   float64 `json:"core_hours_lost,omitempty"`
		Makespan        float64 `json:"makespan_s"`
		GPUUtilization  float64 `json:"gpu_utilization"`
		CoreUtilization float64 `json:"core_utilization"`
		MeanWait        float64 `json:"mean_wait_s"`
		MedianWait      float64 `json:"median_wait_s"`
		P95Wait         float64 `json:"p95_wait_s"`
		MaxWait         float64 `json:"max_wait_s"`
		MeanRun         float64 `json:"mean_run_s"`
		MedianRun       float64 `json:"median_run_s"`
		P95Run          float64 `json:"p95_run_s"`
		MaxRun          float64 `json:"max_run_s"`
		MeanLife        float64 `json:"mean_life_s"`
		MedianLife      float64 `json:"median_life_s"`
		P95Life         float64 `json:"p95_life_s"`
		MaxLife         float64 `json:"max_life_s"`
		MeanSlowdown    float64 `json:"mean_slowdown"`
		MedianSlowdown  float64 `json:"median_slowdown"`
		P95Slowdown     float64 `json:"p95_slowdown"`
		MaxSlowdown     float64 `json:"max_slowdown"`
		// The number of contiguous blocks of a job's nodes, and the nodes that it spans divided by
		// those it has.
		MeanFragmentation   float64 `json:"mean_fragmentation"`
		MedianFragmentation float64 `json:"median_fragmentation"`
		P95Fragmentation    float64 `json:"p95_fragmentation"`
		MaxFragmentation    float64 `json:"max_fragmentation"`
		MeanSpread          float64 `json:"mean_spread"`
		MedianSpread        float64 `json:"median_spread"`
		P95Spread           float64 `json:"p95_spread"`
		MaxSpread           float64 `json:"max_spread"`
		// Comparison with the first policy for the same seed and size; null for the first.
		Comparison     *jsonComparison  `json:"comparison"`
		ImpossibleJobs []jsonImpossible `json:"impossible_jobs,omitempty"`
		// Shares of accounts and users at the end of the run, with --priority.
		Shares []jsonShare `json:"shares,omitempty"`
	}
	// jsonShare is an account, or with a user's name that user in it.
	jsonShare struct {
		Account   string   `json:"account"`
		User      string   `json:"user,omitempty"`
		Depth     int      `json:"depth"`
		Jobs      int      `json:"jobs"`
		MeanWait  float64  `json:"mean_wait_s"`
		Raw       int64    `json:"raw_shares"`
		Norm      float64  `json:"norm_shares"`
		Usage     float64  `json:"raw_usage_s"`
		NormUsage float64  `json:"norm_usage"`
		Effective float64  `json:"effective_usage"`
		Level     *float64 `json:"level_fs"` // null if nothing was used
		FairShare *float64 `json:"fair_share,omitempty"`
	}
	jsonComparison struct {
		Against        string  `json:"against"`
		Jobs           int     `json:"jobs"`
		WaitChange     float64 `json:"wait_change_pct"`
		RunChange      float64 `json:"run_change_pct"`
		LifeChange     float64 `json:"life_change_pct"`
		WaitLonger     float64 `json:"wait_longer_pct"`
		WaitLongerMean float64 `json:"wait_longer_mean_s"`
		WaitLongerMax  float64 `json:"wait_longer_max_s"`
		RunLonger      float64 `json:"run_longer_pct"`
		RunLongerMean  float64 `json:"run_longer_mean_s"`
		RunLongerMax   float64 `json:"run_longer_max_s"`
		EndLater       float64 `json:"end_later_pct"`
		EndLaterMean   float64 `json:"end_later_mean_s"`
		EndLaterMax    float64 `json:"end_later_max_s"`
	}
	jsonImpossible struct {
		Job    string `json:"job"`
		Reason string `json:"reason"`
	}
	// jsonWhy is the reason of a watched job at one instant of a run.
	jsonWhy struct {
		Policy string  `json:"policy"`
		Seed   uint64  `json:"seed"`
		Nodes  int     `json:"nodes"`
		Job    string  `json:"job"`
		At     float64 `json:"at_s"`
		Text   string  `json:"text"`
	}
	// jsonExplained is a step of a run, as --explain asks for it.
	jsonExplained struct {
		Policy string      `json:"policy"`
		Seed   uint64      `json:"seed"`
		Nodes  int         `json:"nodes"`
		Step   int         `json:"step"`
		At     float64     `json:"at_s"`
		Lead   string      `json:"lead"`
		Tables []jsonTable `json:"tables"`
		Bars   []jsonBar   `json:"bars,omitempty"`
	}
	jsonTable struct {
		Title   string     `json:"title"`
		Columns []string   `json:"columns"`
		Rows    [][]string `json:"rows"`
	}
	// jsonBar is a range of nodes, inclusive, that something wanted.
	jsonBar struct {
		Row   int32  `json:"row"`
		From  int32  `json:"from"`
		To    int32  `json:"to"`
		Won   bool   `json:"won"`
		Label string `json:"label"`
	}
)

// Document is the study for other programs.
func (s *Study) Document() Document {
	out := Document{Runs: make([]jsonRun, 0, len(s.Runs))}
	for i := range s.Runs {
		r := &s.Runs[i]
		out.Runs = append(out.Runs, runJSON(r, s.Policies[0]))
		for _, w := range r.Result.Watched {
			out.Why = append(out.Why, jsonWhy{r.Policy, r.Seed, r.Nodes, r.Result.Jobs[w.Job].ID, w.At.Seconds(), w.Text})
		}
		for k := range r.Result.Explained {
			out.Explained = append(out.Explained, explainedJSON(r, &r.Result.Explained[k]))
		}
	}
	return out
}

func explainedJSON(r *Run, e *sim.Explained) jsonExplained {
	out := jsonExplained{Policy: r.Policy, Seed: r.Seed, Nodes: r.Nodes, Step: e.Step, At: e.At.Seconds(), Lead: e.Lead, Tables: []jsonTable{}}
	for _, t := range e.Tables {
		out.Tables = append(out.Tables, jsonTable(t))
	}
	for _, b := range e.Bars {
		out.Bars = append(out.Bars, jsonBar(b))
	}
	return out
}

func runJSON(r *Run, first string) jsonRun {
	s := &r.Summary
	out := jsonRun{
		Policy: r.Policy, Seed: r.Seed, Nodes: r.Nodes,
		Jobs: s.Jobs, Finished: s.Finished, Killed: s.Killed, Impossible: s.Impossible, Borrowing: s.Borrowing, Stops: r.Result.Stops, Rebinds: r.Result.Rebinds, Preempted: s.Preempted,
		Lost: s.Lost, Requeues: s.Requeues, NodeHoursLost: s.NodeHoursLost, CoreHoursLost: s.CoreHoursLost,
		Makespan: s.Makespan, GPUUtilization: s.GPUUtilization, CoreUtilization: s.CoreUtilization,
		MeanWait: s.Wait.Mean, MedianWait: s.Wait.Median, P95Wait: s.Wait.P95, MaxWait: s.Wait.Max,
		MeanRun: s.Run.Mean, MedianRun: s.Run.Median, P95Run: s.Run.P95, MaxRun: s.Run.Max,
		MeanLife: s.Life.Mean, MedianLife: s.Life.Median, P95Life: s.Life.P95, MaxLife: s.Life.Max,
		MeanSlowdown: s.Slowdown.Mean, MedianSlowdown: s.Slowdown.Median, P95Slowdown: s.Slowdown.P95, MaxSlowdown: s.Slowdown.Max,
		MeanFragmentation: s.Fragmentation.Mean, MedianFragmentation: s.Fragmentation.Median, P95Fragmentation: s.Fragmentation.P95, MaxFragmentation: s.Fragmentation.Max,
		MeanSpread: s.Spread.Mean, MedianSpread: s.Spread.Median, P95Spread: s.Spread.P95, MaxSpread: s.Spread.Max,
	}
	if r.Against != nil {
		out.Comparison = comparisonJSON(r.Against, first)
	}
	for i := range r.Result.Shares {
		out.Shares = append(out.Shares, shareJSON(&r.Result.Shares[i]))
	}
	for _, job := range slices.Sorted(maps.Keys(r.Result.Reasons)) {
		out.ImpossibleJobs = append(out.ImpossibleJobs, jsonImpossible{r.Result.Jobs[job].ID, r.Reason(job)})
	}
	return out
}

func shareJSON(s *sim.Share) jsonShare {
	out := jsonShare{
		Account: s.Account, User: s.User, Depth: s.Depth, Jobs: s.Jobs, MeanWait: s.MeanWait,
		Raw: s.Shares, Norm: s.NormShares, Usage: s.Usage, NormUsage: s.NormUsage, Effective: s.Effective,
	}
	if !math.IsInf(s.Level, 0) {
		out.Level = &s.Level
	}
	if s.User != "" {
		out.FairShare = &s.FairShare
	}
	return out
}

func comparisonJSON(c *sim.Comparison, first string) *jsonComparison {
	return &jsonComparison{
		Against: first, Jobs: c.Jobs,
		WaitChange: c.WaitChange, RunChange: c.RunChange, LifeChange: c.LifeChange,
		WaitLonger: c.WaitLonger.Percent, WaitLongerMean: c.WaitLonger.Mean, WaitLongerMax: c.WaitLonger.Max,
		RunLonger: c.RunLonger.Percent, RunLongerMean: c.RunLonger.Mean, RunLongerMax: c.RunLonger.Max,
		EndLater: c.EndLater.Percent, EndLaterMean: c.EndLater.Mean, EndLaterMax: c.EndLater.Max,
	}
}
