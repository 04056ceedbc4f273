package policy

import (
	"testing"

	"muster/model"
)

// TestSharesCountTheDriversOwnUse: where the cluster says what driver and server
// take of a shared GPU, it is counted; the figures are those of the rCUDA paper.
func TestSharesCountTheDriversOwnUse(t *testing.T) {
	const mib = 1 << 20
	c := &model.Cluster{
		Nodes:    []model.Node{{Name: "a", Cores: 12, GPUs: []int{0}}, {Name: "b", Cores: 12}},
		GPUTypes: []model.GPUType{{Name: "k20", Memory: 5120 * mib, Speed: 1}},
		Remote:   model.Remote{DriverMemory: 10 * mib, ClientMemory: 63 * mib},
	}
	share := func(cores, perProcess int, data int64) model.Request {
		return model.Request{Cores: cores, CoresPerProcess: perProcess, Remote: &model.RemoteGPUs{Count: 1, Memory: data * mib, Shared: true}}
	}
	s := NewState(c, greedy{})
	for _, x := range []struct {
		request model.Request
		want    int64
	}{
		{share(6, 6, 1298), 1686}, // GPU-Blast
		{share(5, 1, 3202), 3275}, // LAMMPS
		{share(4, 1, 90), 163},    // MCUDA-MEME
	} {
		id, err := s.Submit(&model.Job{ID: "j", Run: 1, Request: x.request})
		if err != nil {
			t.Fatal(err)
		}
		s.Step(0)
		a := s.Allocation(id)
		if x.want == 163 { // 1686 + 3275 leave less than that of the GPU
			if a != nil {
				t.Errorf("%d MiB were found beside the others", x.want)
			}
			continue
		}
		if a == nil || len(a.Grants) != 1 || a.Grants[0].Memory != x.want*mib {
			t.Errorf("got %+v, want a share of %d MiB", a, x.want)
		}
	}
	if _, err := s.Submit(&model.Job{ID: "large", Run: 1, Request: share(1, 1, 5100)}); err == nil {
		t.Error("a job whose share leaves no room for the driver is possible")
	}
	local := model.Request{Nodes: 1, CoresPerNode: 4, Processes: 2, GPUs: 1, GPUMemory: 100 * mib}
	if got := s.shapeOf(&local).gpuMemory; got != (100+10+2*63)*mib {
		t.Errorf("a local share of 100 MiB for processes of two threads: %d MiB", got/mib)
	}
}

// greedy starts what fits.
type greedy struct{}

func (greedy) Traits() Traits          { return Traits{} }
func (greedy) Why(*View, JobID) string { return "" }
func (greedy) Step(v *View, p *Plan) {
	for _, id := range v.Arrived() {
		if a := v.Place(v.Shape(id), Sharing); a != nil {
			p.Start(id, a, Reason{})
		}
	}
}
