package fgd

// numbers are the authors' results; 0 where we took none over.
type numbers struct {
	// At 130 % arrived demand, in per cent of all GPUs.
	allocated, fragmented float64
	// The fraction of the idle GPUs that is fragments, at 80 and 90 %.
	ratio80, ratio90 float64
}

// published are the results of the authors' own program, as means over their ten seeds:
// experiments/analysis/expected_results of hkust-adsl/kubernetes-scheduler-simulator.
var published = map[string]map[string]numbers{
	"default": {
		"random-fit":     {87.47, 12.43, 74.6, 96.6},
		"dot-product":    {90.85, 9.08, 50.5, 94.2},
		"gpu-clustering": {91.88, 8.00, 46.9, 84.3},
		"gpu-packing":    {92.00, 7.91, 46.4, 83.6},
		"best-fit":       {93.08, 6.85, 41.5, 74.1},
		"fgd":            {95.39, 4.57, 29.9, 50.0},
	},
	"cpu050":     {"random-fit": {allocated: 91.24}, "best-fit": {allocated: 93.79}, "fgd": {allocated: 95.21}},
	"gpushare40": {"fgd": {allocated: 94.15}},
	"gpuspec10":  {"fgd": {allocated: 94.95}},
	"multigpu20": {"fgd": {allocated: 95.65}},
}
