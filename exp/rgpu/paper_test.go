package rgpu

import (
	"slices"
	"testing"
	"time"

	"muster/exp"
	"muster/model"
	"muster/model/slurmopt"
)

func TestPaperAddsUp(t *testing.T) {
	for _, h := range workloads {
		sum := 0
		for _, n := range table2[h] {
			sum += n
		}
		if sum != table2Totals[h] || len(table2[h]) != len(applications) {
			t.Errorf("%d hours: %d jobs, want %d", h, sum, table2Totals[h])
		}
	}
	if len(table5) != len(settings)*len(workloads) {
		t.Errorf("Table V has %d lines", len(table5))
	}
	for _, line := range table5 {
		if len(line.percent) != line.setting.gpus {
			t.Errorf("%s: %d GPUs", line.setting.title, len(line.percent))
		}
		if !slices.IsSortedFunc(line.percent, func(a, b float64) int { return int(100*b) - int(100*a) }) {
			t.Errorf("%s, %d hours: the paper's numbers fall from GPU to GPU, these do not: %v", line.setting.title, line.hours, line.percent)
		}
	}
}

// Tables III and IV as Slurm reads them.
func TestLaunchLines(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		line string
		want func(*model.Request) bool
	}{
		{table3[0].cuda, func(r *model.Request) bool { return r.Nodes == 1 && r.TotalCores() == 6 && r.GPUs == 1 }},
		{table3[1].cuda, func(r *model.Request) bool { return r.Nodes == 5 && r.TotalCores() == 5 && r.GPUs == 1 }},
		{table3[1].rcuda, func(r *model.Request) bool {
			return r.Nodes == 5 && r.GPUs == 0 && *r.Remote == model.RemoteGPUs{Count: 5, Memory: 3275 * mb, Shared: true}
		}},
		{table3[3].cuda, func(r *model.Request) bool { return r.Nodes == 2 && r.TotalCores() == 24 && r.TotalGPUs() == 0 }},
		{table4[1].rcuda, func(r *model.Request) bool { return r.Nodes == 0 && r.Cores == 5 && r.Remote.Count == 5 }},
		{table4[2].cuda, func(r *model.Request) bool { return r.Nodes == 4 && r.CoresOnNode() == 1 && r.GPUs == 1 }},
		{lammpsOnFour, func(r *model.Request) bool { return r.Cores == 5 && r.Remote.Count == 4 }},
	} {
		o, err := slurmopt.ParseLine(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
		} else if !c.want(&o.Request) {
			t.Errorf("%s: %+v", c.line, o.Request)
		}
	}
}

// A GPU that serves two jobs, one after the other and at once, is allocated while either runs.
func TestAllocatedTime(t *testing.T) {
	c := &model.Cluster{
		GPUTypes: []model.GPUType{{Name: "gpu", Memory: 100, Speed: 1}},
		Nodes:    []model.Node{{Name: "a", Cores: 1, GPUs: []int{0}}, {Name: "b", Cores: 1}, {Name: "c", Cores: 1, GPUs: []int{0, 0}}},
	}
	d := watch(c)
	on := func(memory int64) *model.Allocation {
		return &model.Allocation{Parts: []model.Part{{Node: 1}}, Grants: []model.Grant{{Node: 0, Memory: memory}}}
	}
	d.Started(0, 0, on(60))
	d.Started(10, 1, on(30))
	d.Ended(20, 0)
	d.Started(20, 2, on(60))
	d.Ended(30, 1)
	d.Ended(40, 2)
	d.Started(60, 3, &model.Allocation{Parts: []model.Part{{Node: 2, GPUs: 2}}})
	d.Ended(100, 3)
	if got := d.allocated(time.Duration(100)); !slices.Equal(got, []float64{40, 0, 40}) {
		t.Errorf("got %v", got)
	}
	for i, want := range []span{{0, 0.6}, {0.6, 0.9}, {0, 0.6}, {0, 1}} {
		for _, s := range d.closed {
			if s.job == i && s.span != want && (s.lo-want.lo > 1e-6 || s.hi-want.hi > 1e-6) {
				t.Errorf("job %d is drawn at %v, want %v", i, s.span, want)
			}
		}
	}
}

func TestVariants(t *testing.T) {
	l, err := newLab(exp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, gpus := range []int{8, 6, 4} {
		for _, kind := range clusters {
			c, err := variant(l.paper, kind, gpus)
			if err != nil {
				t.Fatal(err)
			}
			if c.TotalGPUs() != gpus || c.TotalCores() != l.paper.TotalCores() {
				t.Errorf("%s, %d GPUs: %d GPUs, %d cores", kind, gpus, c.TotalGPUs(), c.TotalCores())
			}
			fast, far := 0, 0
			for i := range c.Nodes {
				for _, g := range c.Nodes[i].GPUs {
					if c.GPUTypes[g].Speed == 2 {
						fast++
					}
				}
				if c.Distance(0, int32(i)) == 2 {
					far++
				}
			}
			varied := kind == twoSpeeds || kind == bothVaried
			apart := kind == twoSwitches || kind == bothVaried
			if (fast == gpus/2) != varied || (far == 4) != apart {
				t.Errorf("%s, %d GPUs: %d fast, %d nodes far from the first", kind, gpus, fast, far)
			}
		}
	}
	if l.paper.TotalGPUs() != 8 || len(l.paper.GPUTypes) != 1 {
		t.Error("the paper's cluster was changed")
	}
}
