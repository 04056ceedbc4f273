package model

import (
	"math"
	"testing"
)

func TestNodeSettings(t *testing.T) {
	keep := func(n int) *int { return &n }
	for _, c := range []struct {
		is   NodeSettings
		want string
	}{
		{NodeSettings{}, ""},
		{NodeSettings{VGPUs: 1, Sharing: Exclusive, Policy: "credit", Above: 3, Keep: keep(0), Profiling: 3600}, ""},
		{NodeSettings{VGPUs: -1}, "vgpus: -1 virtual GPUs on a device: give 1 to 1024"},
		{NodeSettings{VGPUs: 1025}, "vgpus: 1025 virtual GPUs on a device: give 1 to 1024"},
		{NodeSettings{Sharing: "both"}, `sharing: must be shared or exclusive, not "both"`},
		{NodeSettings{Policy: "easy"}, `policy: must be one of fcfs, sjf, credit, not "easy"`},
		{NodeSettings{Above: -1}, "above: -1 programs that wait: give 1 to 1048576"},
		{NodeSettings{Keep: keep(-1)}, "keep: -1 virtual GPUs that are not lent: give 0 to 1048576"},
		{NodeSettings{Profiling: 0.5}, "profiling: a period of 0.5 s: give 1 s to 3600 s"},
		{NodeSettings{Profiling: math.NaN()}, "profiling: a period of NaN s: give 1 s to 3600 s"},
	} {
		err := c.is.Check()
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%+v: %v, want %q", c.is, err, c.want)
		}
	}
	base := NodeSettings{VGPUs: 2, Policy: "sjf", Keep: keep(1)}
	got := NodeSettings{Policy: "fcfs", Keep: keep(0), Above: 4}.Over(base)
	if want := (NodeSettings{VGPUs: 2, Policy: "fcfs", Above: 4, Keep: keep(0)}); !got.Equal(want) || got.Equal(base) || base.Equal(NodeSettings{VGPUs: 2, Policy: "sjf"}) {
		t.Errorf("%v over %v", got, base)
	}
	if got := got.String(); got != "vgpus 2, policy fcfs, above 4, keep 0" {
		t.Error(got)
	}
}
