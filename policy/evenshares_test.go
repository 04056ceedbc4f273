package policy_test

import (
	"fmt"
	"testing"

	"muster/model"
	"muster/policy"
)

// onTheFirst puts every job on the first node, whole.
type onTheFirst struct{ placed []string }

func (p *onTheFirst) Traits() policy.Traits { return policy.Traits{} }

func (p *onTheFirst) Step(v *policy.View, plan *policy.Plan) {
	for _, id := range v.Arrived() {
		sh := v.Shape(id)
		a := v.PlaceExactly(sh, []policy.OnNode{{Node: 0, Cores: int32(sh.Request.Cores)}})
		if a == nil {
			p.placed = append(p.placed, "nowhere")
			continue
		}
		text := ""
		for _, g := range a.Grants {
			text += fmt.Sprint(g.Device)
		}
		p.placed = append(p.placed, text)
		plan.Start(id, a, policy.Reason{})
	}
}

func (p *onTheFirst) Why(*policy.View, policy.JobID) string { return "" }

// A request that takes more than it asks for gets a share for each process on a chosen node, of the
// devices of which most is left; the ledger lets it have that. Others get what they ask for, of the
// first devices.
func TestSharesOfAChosenNode(t *testing.T) {
	c := &model.Cluster{Name: "one", GPUTypes: []model.GPUType{{Name: "g", Memory: 10, Speed: 1}},
		Nodes: []model.Node{{Name: "n", Cores: 64, Memory: 1 << 30, GPUs: []int{0, 0, 0}}}}
	p := &onTheFirst{}
	s := policy.NewState(c, p)
	for i, want := range []struct {
		request model.Request
		devices string
	}{
		{model.Request{Cores: 2, GPUs: 1, GPUMemory: 4, MoreGPUs: true}, "01"},
		{model.Request{Cores: 2, GPUs: 1, GPUMemory: 4}, "0"},
		{model.Request{Cores: 1, GPUs: 1, GPUMemory: 2, MoreGPUs: true}, "2"},
		{model.Request{Cores: 8, GPUs: 2, GPUMemory: 5, MoreGPUs: true}, "12"},
		{model.Request{Cores: 8, GPUs: 1, GPUMemory: 3, MoreGPUs: true}, "2"},
		{model.Request{Cores: 8, GPUs: 2, GPUMemory: 3, MoreGPUs: true}, "nowhere"},
	} {
		if _, err := s.Submit(&model.Job{ID: fmt.Sprint(i), Request: want.request}); err != nil {
			t.Fatal(err)
		}
		plan := s.Step(0)
		for _, st := range plan.Starts {
			if st.Err != nil {
				t.Errorf("job %d: %v", i, st.Err)
			}
		}
		if p.placed[i] != want.devices {
			t.Errorf("job %d has shares of devices %s, want %s", i, p.placed[i], want.devices)
		}
	}
	if err := (&model.Request{Cores: 1, GPUs: 1, MoreGPUs: true}).Validate(); err == nil {
		t.Error("more GPUs, whole ones, were taken")
	}
}
