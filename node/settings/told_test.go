package settings

import (
	"errors"
	"testing"

	"muster/model"
	"muster/node/vgpu"
)

// What the head says goes before the node's own configuration, and what it leaves out does not.
func TestToldByTheHead(t *testing.T) {
	own := Default()
	own.Name, own.Devices, own.Swap.Size, own.VGPUs, own.Policy = "n1", []Device{software("a")}, 1<<30, 3, vgpu.SJF
	keep := 2
	for _, c := range []struct {
		told  model.NodeSettings
		vgpus int
		is    vgpu.Policy
		err   bool
	}{
		{told: model.NodeSettings{}, vgpus: 3, is: vgpu.SJF},
		{told: model.NodeSettings{VGPUs: 8, Policy: "credit", Profiling: 5}, vgpus: 8, is: vgpu.Credit},
		{told: model.NodeSettings{VGPUs: 8, Sharing: model.Exclusive}, vgpus: 1, is: vgpu.SJF},
		{told: model.NodeSettings{Sharing: model.Shared}, vgpus: 3, is: vgpu.SJF},
		{told: model.NodeSettings{VGPUs: -1}, err: true},
		{told: model.NodeSettings{Above: 2}, err: true},
		{told: model.NodeSettings{Keep: &keep}, err: true},
	} {
		got, err := own.Told(c.told)
		if (err != nil) != c.err || err == nil && (got.VGPUs != c.vgpus || got.Policy != c.is) {
			t.Errorf("%v: %d vGPUs, %v, %v", c.told, got.VGPUs, got.Policy, err)
		}
	}
	// A threshold that means nothing to the node is refused, and is not in force.
	above, other := model.NodeSettings{Above: 2}, model.NodeSettings{Keep: &keep}
	own.Remote.Listen = ":9421"
	if _, err := own.Told(above); !errors.Is(err, ErrBorrowsNone) {
		t.Error(err)
	}
	if got, err := own.Told(other); err != nil || got.InForce().Above != 0 || *got.InForce().Keep != 2 {
		t.Error(got.InForce(), err)
	}
	own.Offload.Peers, own.Remote.Listen = []string{"n2:9421"}, ""
	if _, err := own.Told(other); !errors.Is(err, ErrLendsNone) {
		t.Error(err)
	}
	if got, err := own.Told(above); err != nil || got.InForce().Keep != nil || got.InForce().Above != 2 {
		t.Error(got.InForce(), err)
	}
	own.Remote.Listen = ":9421"
	got, err := own.Told(model.NodeSettings{Above: 5, Keep: &keep})
	if err != nil || got.Offload.Above != 5 || got.Offload.Keep != 2 {
		t.Errorf("%+v, %v", got.Offload, err)
	}
	if in := got.InForce(); in.String() != "vgpus 3, shared, policy sjf, above 5, keep 2" || in.Check() != nil {
		t.Error(in)
	}
}

// The head's words are the dispatcher's, with the same bounds.
func TestTheHeadKnowsTheNodesPolicies(t *testing.T) {
	for i, name := range model.NodePolicies {
		if p, err := vgpu.ParsePolicy(name); err != nil || p != vgpu.Policy(i) || p.String() != name {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if _, err := vgpu.Policy(len(model.NodePolicies)).MarshalText(); err == nil {
		t.Error("the dispatcher has policies of which the head does not know")
	}
	for slots, ok := range map[int]bool{model.MaxVGPUs: true, model.MaxVGPUs + 1: false} {
		if err := (vgpu.Device{Memory: 1, Slots: slots}).Check(); (err == nil) != ok {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
}
