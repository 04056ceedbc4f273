package kernelpage

import (
	"math"

	"muster/report"
	"muster/sim/kernels"
)

// The JSON form of a study of mappers is flat, with times in seconds, sizes in bytes, and fractions
// from 0 to 1. Values that do not exist, such as the mean wait of no call, are null.
// docs/kernels.md lists the names.
type (
	// Document is a study as JSON.
	Document struct {
		Input Input     `json:"input"`
		Runs  []jsonRun `json:"runs"`
		// Summary has an entry for each mapper and size: means over the seeds with the half-widths
		// of their 95 % confidence intervals, which are null for one seed.
		Summary []jsonSummary `json:"summary"`
		// Explained are the calls that the user asked about.
		Explained []jsonExplainedCall `json:"explained,omitempty"`
	}
	// Input has the inputs: Cluster and Workload as the user named them, Hold and Send as the flags
	// spell them.
	Input struct {
		Cluster  string   `json:"cluster"`
		Nodes    []int    `json:"nodes"`
		GPUs     []int    `json:"gpus"` // of each size
		Workload string   `json:"workload"`
		Policies []string `json:"policies"`
		Seeds    []uint64 `json:"seeds"`
		Span     *float64 `json:"span_s"` // null: until all processes have ended
		Window   int      `json:"window"`
		Hold     string   `json:"hold"`
		Send     string   `json:"send"`

		Delay         float64 `json:"delay_s"`
		FalsePositive float64 `json:"false_positive"`
		FalseNegative float64 `json:"false_negative"`

		// The network; null if the nodes differ. A bandwidth of 0 means no limit.
		Bandwidth *int64   `json:"link_bytes_per_s"`
		Latency   *float64 `json:"latency_s"` // of a call to another node
		Overhead  float64  `json:"overhead"`
		Far       float64  `json:"far"`
	}
	jsonRun struct {
		Policy         string  `json:"policy"`
		Seed           uint64  `json:"seed"`
		Nodes          int     `json:"nodes"`
		GPUs           int     `json:"gpus"`
		End            float64 `json:"end_s"`
		GPUUtilization float64 `json:"gpu_utilization"`
		GPUHeldForData float64 `json:"gpu_held_for_data"`
		BytesMoved     int64   `json:"moved_bytes"`
		jsonCalls
		Apps []jsonApp `json:"apps"`
	}
	// jsonCalls has the results of calls: of a whole run, or of an application. The means are over
	// the calls that are done.
	jsonCalls struct {
		Kernels        int64    `json:"kernels"`
		Launched       int64    `json:"launched"`
		RemoteShare    *float64 `json:"remote_share"`
		MeanTurnaround *float64 `json:"mean_turnaround_s"`
		MeanWait       *float64 `json:"mean_wait_s"`
		MeanQueue      *float64 `json:"mean_queue_s"`
		MeanTransfer   *float64 `json:"mean_transfer_s"`
		MeanRun        *float64 `json:"mean_run_s"`
	}
	jsonApp struct {
		Name      string `json:"name"`
		Nodes     int    `json:"nodes"`
		Processes int    `json:"processes"`
		jsonCalls
		KernelsPerSecond float64  `json:"kernels_per_s"`
		OwnGPUs          *float64 `json:"own_gpu_utilization"` // null if its nodes have none
		Ended            int      `json:"processes_ended"`
		End              *float64 `json:"end_s"` // null if some process has not ended
	}
	jsonSummary struct {
		Policy         string       `json:"policy"`
		Nodes          int          `json:"nodes"`
		Seeds          int          `json:"seeds"`
		GPUUtilization jsonInterval `json:"gpu_utilization"`
		GPUHeldForData jsonInterval `json:"gpu_held_for_data"`
		BytesMoved     jsonInterval `json:"moved_bytes"`
		jsonCallsSummary
		// Comparison with the first mapper, seed by seed; null for the first.
		Comparison *jsonComparison  `json:"comparison"`
		Apps       []jsonAppSummary `json:"apps"`
	}
	jsonCallsSummary struct {
		Kernels        jsonInterval `json:"kernels"`
		Launched       jsonInterval `json:"launched"`
		RemoteShare    jsonInterval `json:"remote_share"`
		MeanTurnaround jsonInterval `json:"mean_turnaround_s"`
		MeanWait       jsonInterval `json:"mean_wait_s"`
		MeanQueue      jsonInterval `json:"mean_queue_s"`
		MeanTransfer   jsonInterval `json:"mean_transfer_s"`
		MeanRun        jsonInterval `json:"mean_run_s"`
	}
	jsonAppSummary struct {
		Name string `json:"name"`
		jsonCallsSummary
		KernelsPerSecond jsonInterval       `json:"kernels_per_s"`
		OwnGPUs          jsonInterval       `json:"own_gpu_utilization"`
		End              jsonInterval       `json:"end_s"`
		Comparison       *jsonAppComparison `json:"comparison"`
	}
	jsonComparison struct {
		Against           string       `json:"against"`
		UtilizationPoints jsonInterval `json:"gpu_utilization_change_points"`
		WaitChange        jsonInterval `json:"wait_change_pct"`
		TurnaroundChange  jsonInterval `json:"turnaround_change_pct"`
		KernelsChange     jsonInterval `json:"kernels_change_pct"`
	}
	jsonAppComparison struct {
		Against          string       `json:"against"`
		WaitChange       jsonInterval `json:"wait_change_pct"`
		TurnaroundChange jsonInterval `json:"turnaround_change_pct"`
		RateChange       jsonInterval `json:"kernels_per_s_change_pct"`
	}
	// jsonExplainedCall is a launch, as --explain asks for it.
	jsonExplainedCall struct {
		Policy   string  `json:"policy"`
		Seed     uint64  `json:"seed"`
		Nodes    int     `json:"nodes"`
		Call     int64   `json:"call"`
		At       float64 `json:"at_s"`
		App      string  `json:"app"`
		Rank     int32   `json:"rank"`
		Node     string  `json:"node"`
		Kernel   string  `json:"kernel"`
		Upload   int64   `json:"upload_bytes"`
		Download int64   `json:"download_bytes"`
		// Device is the device of the call; null if the call waits for any free one.
		Device *jsonDevice `json:"device"`
		Reason string      `json:"reason,omitempty"`
		// Choices are the devices that the mapper compared, the best first. Unseen is the number of
		// devices that it did not look at, because none could be better.
		Choices []jsonChoice `json:"choices,omitempty"`
		Unseen  int          `json:"unseen,omitempty"`
	}
	// jsonDevice is the number of a device on its node.
	jsonDevice struct {
		Node   string `json:"node"`
		Device int    `json:"device"`
	}
	jsonChoice struct {
		jsonDevice
		Local  bool  `json:"local"`
		Chosen bool  `json:"chosen"`
		Queued int32 `json:"queued"`
		Truth  int32 `json:"queued_in_truth"`
		Held   int64 `json:"held_bytes"`
		*jsonCosts
		*jsonChance
	}
	// jsonCosts are expected times, for mappers that minimise their sum.
	jsonCosts struct {
		Wait     float64 `json:"wait_s"`
		Run      float64 `json:"run_s"`
		Transfer float64 `json:"transfer_s"`
		Care     float64 `json:"care_s"`
		Sum      float64 `json:"sum_s"`
	}
	// jsonChance is the probability of the choice, for mappers that draw at random.
	jsonChance struct {
		Weight      float64 `json:"weight"`
		Probability float64 `json:"probability"`
	}
	// jsonInterval is a mean over seeds; null if the number is missing for some seed.
	jsonInterval struct {
		Mean *float64 `json:"mean"`
		CI95 *float64 `json:"ci95"`
	}
)

// Document is the study for other programs.
func (s *Study) Document(input Input) Document {
	out := Document{Input: input, Runs: make([]jsonRun, 0, len(s.Runs))}
	for i := range s.Runs {
		out.Runs = append(out.Runs, runJSON(&s.Runs[i]))
	}
	for size := range s.Nodes {
		for k := range s.Policies {
			out.Summary = append(out.Summary, summaryJSON(s, size, k))
		}
	}
	for i := range s.Policies {
		for k := range s.Runs[i].Result.Explained {
			out.Explained = append(out.Explained, explainedCallJSON(&s.Runs[i], &s.Runs[i].Result.Explained[k]))
		}
	}
	return out
}

// InputOf is the input as the sweep knows it. The caller adds the names that the user gave.
func InputOf(s *kernels.Sweep) Input {
	first := s.Sizes[0].Cluster
	in := Input{
		Policies: s.Mappers, Seeds: s.Seeds, Window: s.Common.Window,
		Delay: s.Common.Status.Delay.Seconds(), FalsePositive: s.Common.Status.FalsePositive, FalseNegative: s.Common.Status.FalseNegative,
		Overhead: orOne(first.Remote.Overhead), Far: orOne(first.Remote.Far),
	}
	if s.Common.Span > 0 {
		in.Span = new(s.Common.Span.Seconds())
	}
	for _, size := range s.Sizes {
		in.Nodes, in.GPUs = append(in.Nodes, len(size.Cluster.Nodes)), append(in.GPUs, size.Cluster.TotalGPUs())
	}
	if link, same := first.SameLink(); same {
		in.Bandwidth, in.Latency = new(link.Bandwidth), new((link.Latency + first.Remote.Latency).Seconds())
	}
	return in
}

// orOne is a factor; 0 means that none was given, which is 1.
func orOne(factor float64) float64 {
	if factor == 0 {
		return 1
	}
	return factor
}

func summaryJSON(s *Study, size, policy int) jsonSummary {
	over := func(of Measure) jsonInterval { return intervalJSON(s.Over(size, policy, of), 1) }
	change := func(of Measure) jsonInterval { return intervalJSON(s.Against(size, policy, of), 100) }
	calls := func(of CallMeasures) jsonCallsSummary {
		return jsonCallsSummary{
			Kernels: over(of.Kernels), Launched: over(of.Launched), RemoteShare: over(of.Remote), MeanTurnaround: over(of.Turnaround),
			MeanWait: over(of.Wait), MeanQueue: over(of.Queue), MeanTransfer: over(of.Transfer), MeanRun: over(of.KernelTime),
		}
	}
	out := jsonSummary{
		Policy: s.Policies[policy], Nodes: s.Nodes[size], Seeds: len(s.Seeds),
		GPUUtilization: over(Utilisation), GPUHeldForData: over(ForData), BytesMoved: over(Moved),
		jsonCallsSummary: calls(OfAll),
	}
	if policy > 0 {
		out.Comparison = &jsonComparison{
			Against: s.Policies[0], UtilizationPoints: intervalJSON(s.Margin(size, policy, Utilisation), 100),
			WaitChange: change(Wait), TurnaroundChange: change(Turnaround), KernelsChange: change(Kernels),
		}
	}
	for i := range s.Runs[0].Result.Apps {
		its := OfApp(i)
		app := jsonAppSummary{
			Name: s.Runs[0].Result.Apps[i].Name, jsonCallsSummary: calls(its.CallMeasures),
			KernelsPerSecond: over(its.Rate), OwnGPUs: over(its.OwnGPUs), End: over(its.End),
		}
		if policy > 0 {
			app.Comparison = &jsonAppComparison{
				Against: s.Policies[0], WaitChange: change(its.Wait), TurnaroundChange: change(its.Turnaround), RateChange: change(its.Rate),
			}
		}
		out.Apps = append(out.Apps, app)
	}
	return out
}

func explainedCallJSON(r *Run, e *kernels.Explained) jsonExplainedCall {
	c := &e.Launched
	out := jsonExplainedCall{
		Policy: r.Policy, Seed: r.Seed, Nodes: r.Nodes(), Call: e.Call, At: e.At.Seconds(),
		App: r.Workload.Apps[c.App].Name, Rank: c.Rank, Node: r.Cluster.Nodes[c.Node].Name, Kernel: r.Workload.Kernels()[c.Kernel],
		Upload: c.In, Download: c.Out, Reason: e.Reason, Unseen: e.Unseen,
	}
	var devices []jsonDevice
	for n := range r.Cluster.Nodes {
		for k := range r.Cluster.Nodes[n].GPUs {
			devices = append(devices, jsonDevice{r.Cluster.Nodes[n].Name, k})
		}
	}
	if e.Given >= 0 {
		out.Device = &devices[e.Given]
	}
	for i := range e.Choices {
		one := &e.Choices[i]
		choice := jsonChoice{
			jsonDevice: devices[one.Device], Local: r.Result.Devices[one.Device].Node == c.Node, Chosen: one.Device == e.Device,
			Queued: one.Queued, Truth: e.Truth[i], Held: one.Held,
		}
		if e.Drawn {
			choice.jsonChance = &jsonChance{one.Weight, one.Chance}
		} else {
			choice.jsonCosts = &jsonCosts{one.Wait.Seconds(), one.Run.Seconds(), one.Transfer.Seconds(), one.Care.Seconds(), one.Sum().Seconds()}
		}
		out.Choices = append(out.Choices, choice)
	}
	return out
}

func runJSON(r *Run) jsonRun {
	out := jsonRun{
		Policy: r.Policy, Seed: r.Seed, Nodes: r.Nodes(), GPUs: len(r.Result.Devices), End: r.Result.End.Seconds(),
		GPUUtilization: Utilisation(r), GPUHeldForData: ForData(r), BytesMoved: int64(Moved(r)),
		jsonCalls: callsJSON(r, OfAll),
	}
	for i := range r.Result.Apps {
		a, its := &r.Result.Apps[i], OfApp(i)
		out.Apps = append(out.Apps, jsonApp{
			Name: a.Name, Nodes: r.Workload.Apps[i].Nodes, Processes: a.Processes, jsonCalls: callsJSON(r, its.CallMeasures),
			KernelsPerSecond: its.Rate(r), OwnGPUs: numberJSON(its.OwnGPUs(r)), Ended: a.Ended, End: numberJSON(its.End(r)),
		})
	}
	return out
}

func callsJSON(r *Run, of CallMeasures) jsonCalls {
	number := func(m Measure) *float64 { return numberJSON(m(r)) }
	return jsonCalls{
		Kernels: int64(of.Kernels(r)), Launched: int64(of.Launched(r)), RemoteShare: number(of.Remote), MeanTurnaround: number(of.Turnaround),
		MeanWait: number(of.Wait), MeanQueue: number(of.Queue), MeanTransfer: number(of.Transfer), MeanRun: number(of.KernelTime),
	}
}

// numberJSON is null for NaN.
func numberJSON(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// intervalJSON converts an interval to another unit.
func intervalJSON(i report.Interval, scale float64) jsonInterval {
	return jsonInterval{Mean: numberJSON(i.Mean * scale), CI95: numberJSON(i.Half * scale)}
}
