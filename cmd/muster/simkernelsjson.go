package main

import (
	"math"

	"muster/mapping"
	"muster/model"
	"muster/report"
	"muster/report/kernelpage"
	"muster/sim/kernels"
)

// The JSON form of a study of mappers: flat, times in seconds, sizes in bytes.
type (
	jsonKernels struct {
		Runs []jsonKernelRun `json:"runs"`
		// Summary has a line for each mapper and size: means over the seeds, and how far on either side
		// of them the truth lies with a confidence of 95 %, null where there is one seed.
		Summary []jsonKernelSummary `json:"summary"`
		// Explained are the calls that were asked for.
		Explained []jsonExplainedCall `json:"explained,omitempty"`
	}
	jsonKernelRun struct {
		Policy         string          `json:"policy"`
		Seed           uint64          `json:"seed"`
		Nodes          int             `json:"nodes"`
		GPUs           int             `json:"gpus"`
		End            float64         `json:"end_s"`
		GPUUtilization float64         `json:"gpu_utilization"`
		GPUHeldForData float64         `json:"gpu_held_for_data"`
		MeanWait       float64         `json:"mean_wait_s"`
		MeanQueue      float64         `json:"mean_queue_s"`
		MeanTransfer   float64         `json:"mean_transfer_s"`
		Kernels        int64           `json:"kernels"`
		Launched       int64           `json:"launched"`
		RemoteShare    float64         `json:"remote_share"`
		BytesMoved     int64           `json:"bytes_moved"`
		Apps           []jsonKernelApp `json:"apps"`
	}
	jsonKernelApp struct {
		Name         string   `json:"name"`
		Processes    int      `json:"processes"`
		Launched     int64    `json:"launched"`
		Kernels      int64    `json:"kernels"`
		Remote       int64    `json:"remote"`
		MeanQueue    float64  `json:"mean_queue_s"`
		MeanTransfer float64  `json:"mean_transfer_s"`
		MeanRun      float64  `json:"mean_run_s"`
		Ended        int      `json:"processes_ended"`
		End          *float64 `json:"end_s"` // null where some process had not ended
	}
	jsonKernelSummary struct {
		Policy         string       `json:"policy"`
		Nodes          int          `json:"nodes"`
		Seeds          int          `json:"seeds"`
		GPUUtilization jsonInterval `json:"gpu_utilization"`
		MeanWait       jsonInterval `json:"mean_wait_s"`
		MeanQueue      jsonInterval `json:"mean_queue_s"`
		MeanTransfer   jsonInterval `json:"mean_transfer_s"`
		Kernels        jsonInterval `json:"kernels"`
		RemoteShare    jsonInterval `json:"remote_share"`
		BytesMoved     jsonInterval `json:"bytes_moved"`
		// Comparison with the first mapper, seed by seed; null for the first.
		Comparison *jsonKernelComparison `json:"comparison"`
	}
	jsonKernelComparison struct {
		Against           string        `json:"against"`
		UtilizationPoints jsonInterval  `json:"gpu_utilization_change_points"`
		WaitChange        *jsonInterval `json:"wait_change_pct"` // null where nothing waited
		KernelsChange     *jsonInterval `json:"kernels_change_pct"`
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
		// Device has the call; null where it waits for any that is free.
		Device *jsonDevice `json:"device"`
		Reason string      `json:"reason,omitempty"`
		// Choices are the devices that were compared, the best first; Unseen how many more
		// the mapper did not look at, since none could be better.
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
	// jsonCosts are expected times, of mappers that look for the least sum.
	jsonCosts struct {
		Wait     float64 `json:"wait_s"`
		Run      float64 `json:"run_s"`
		Transfer float64 `json:"transfer_s"`
		Care     float64 `json:"care_s"`
		Sum      float64 `json:"sum_s"`
	}
	// jsonChance is how likely it was, of mappers that draw.
	jsonChance struct {
		Weight      float64 `json:"weight"`
		Probability float64 `json:"probability"`
	}
	jsonInterval struct {
		Mean float64  `json:"mean"`
		CI95 *float64 `json:"ci95"`
	}
)

func kernelsJSON(s *kernelpage.Study) jsonKernels {
	out := jsonKernels{Runs: make([]jsonKernelRun, 0, len(s.Runs))}
	for i := range s.Runs {
		out.Runs = append(out.Runs, kernelRunJSON(&s.Runs[i]))
	}
	for size, nodes := range s.Nodes {
		for k, policy := range s.Policies {
			over := func(of kernelpage.Measure) jsonInterval { return intervalJSON(s.Over(size, k, of), 1) }
			line := jsonKernelSummary{
				Policy: policy, Nodes: nodes, Seeds: len(s.Seeds),
				GPUUtilization: over(kernelpage.Utilisation), MeanWait: over(kernelpage.Wait), MeanQueue: over(kernelpage.Queue),
				MeanTransfer: over(kernelpage.Transfer), Kernels: over(kernelpage.Kernels), RemoteShare: over(kernelpage.Remote), BytesMoved: over(kernelpage.Moved),
			}
			if k > 0 {
				line.Comparison = &jsonKernelComparison{
					Against:           s.Policies[0],
					UtilizationPoints: intervalJSON(s.Margin(size, k, kernelpage.Utilisation), 100),
					WaitChange:        changeJSON(s.Against(size, k, kernelpage.Wait)),
					KernelsChange:     changeJSON(s.Against(size, k, kernelpage.Kernels)),
				}
			}
			out.Summary = append(out.Summary, line)
		}
	}
	for i := range s.Policies {
		for k := range s.Runs[i].Result.Explained {
			out.Explained = append(out.Explained, explainedCallJSON(&s.Runs[i], &s.Runs[i].Result.Explained[k]))
		}
	}
	return out
}

func explainedCallJSON(r *kernelpage.Run, e *kernels.Explained) jsonExplainedCall {
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

func kernelRunJSON(r *kernelpage.Run) jsonKernelRun {
	out := jsonKernelRun{
		Policy: r.Policy, Seed: r.Seed, Nodes: r.Nodes(), GPUs: len(r.Result.Devices), End: r.Result.End.Seconds(),
		GPUUtilization: kernelpage.Utilisation(r), GPUHeldForData: kernelpage.ForData(r),
		MeanWait: kernelpage.Wait(r), MeanQueue: kernelpage.Queue(r), MeanTransfer: kernelpage.Transfer(r),
		Kernels: int64(kernelpage.Kernels(r)), RemoteShare: kernelpage.Remote(r), BytesMoved: int64(kernelpage.Moved(r)),
		Apps: []jsonKernelApp{},
	}
	for i := range r.Result.Apps {
		a := &r.Result.Apps[i]
		out.Launched += a.Launched
		out.Apps = append(out.Apps, kernelAppJSON(a))
	}
	return out
}

func kernelAppJSON(a *kernels.AppResult) jsonKernelApp {
	out := jsonKernelApp{
		Name: a.Name, Processes: a.Processes, Launched: a.Launched, Kernels: a.Done, Remote: a.Remote, Ended: a.Ended,
	}
	if calls := float64(a.Done); calls > 0 {
		out.MeanQueue, out.MeanTransfer, out.MeanRun = a.Queue.Seconds()/calls, a.Transfer.Seconds()/calls, a.Run.Seconds()/calls
	}
	if a.Ended == a.Processes {
		out.End = new(a.LastEnd.Seconds())
	}
	return out
}

// intervalJSON gives an interval in another unit.
func intervalJSON(i report.Interval, scale float64) jsonInterval {
	out := jsonInterval{Mean: i.Mean * scale}
	if !math.IsNaN(i.Half) {
		out.CI95 = new(i.Half * scale)
	}
	return out
}

// changeJSON gives a change in per cent, where there is one.
func changeJSON(i report.Interval) *jsonInterval {
	if math.IsNaN(i.Mean) {
		return nil
	}
	out := intervalJSON(i, 100)
	return &out
}

func mappersJSON() jsonPolicies {
	var out jsonPolicies
	for _, e := range mapping.Entries {
		out.Policies = append(out.Policies, jsonPolicy{Name: e.Name, Summary: e.Summary, Settings: settingsJSON(e.Options)})
	}
	return out
}

func settingsJSON(options []model.Option) []jsonSetting {
	list := []jsonSetting{}
	for _, o := range options {
		list = append(list, jsonSetting{o.Name, o.Default, o.Summary})
	}
	return list
}
