package policy

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"muster/model"
)

// TestPlaceExactly: on the nodes that first fit has chosen a request gets what first fit gave
// it, and with a node less, one too many or more cores than there are it gets nothing.
func TestPlaceExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	placed := 0
	for range 400 {
		s := NewState(small(), &scripted{func(*View, *Plan) {}})
		s.policy.(*scripted).propose = func(v *View, p *Plan) {
			for _, id := range v.Arrived() {
				sh := v.Shape(id)
				a := v.Place(sh, Sharing)
				if a == nil {
					continue
				}
				placed++
				want := model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
				on := make([]OnNode, len(a.Parts))
				for i, part := range want.Parts {
					on[i] = OnNode{part.Node, part.Cores}
					if got := v.Gives(sh, part.Node, part.Cores); got != part.Cores {
						t.Fatalf("node %d gives %d cores, not %d", part.Node, got, part.Cores)
					}
				}
				if got := v.PlaceExactly(sh, on[1:]); got != nil {
					t.Fatalf("a node less: %+v", got)
				}
				if got := v.PlaceExactly(sh, append(slices.Clone(on), OnNode{9, 1})); got != nil {
					t.Fatalf("a node that is not there: %+v", got)
				}
				if sh.Nodes() == 0 {
					more := slices.Clone(on)
					more[0].Cores++
					if got := v.PlaceExactly(sh, more); got != nil {
						t.Fatalf("too many cores: %+v", got)
					}
				}
				got := v.PlaceExactly(sh, on)
				if got == nil || !reflect.DeepEqual(got.Parts, want.Parts) || len(got.Grants) != len(want.Grants) ||
					len(want.Grants) > 0 && !reflect.DeepEqual(got.Grants, want.Grants) {
					t.Fatalf("%+v: got %+v, want %+v", sh.Request, got, want)
				}
				if !p.Start(id, got, Reason{}) || !p.Limit(id, 1) || p.Limit(id, 0) || p.Limit(id, -2) {
					t.Fatal("it is not started, or not limited")
				}
			}
		}
		for range 6 {
			r := model.Request{Cores: 1 + rng.IntN(6), GPUs: rng.IntN(2)}
			if rng.IntN(2) == 0 {
				r = model.Request{Nodes: 1 + rng.IntN(3), CoresPerNode: 1 + rng.IntN(3), GPUs: rng.IntN(3), Memory: rng.Int64N(50), Contiguous: rng.IntN(4) == 0}
			}
			if r.GPUs > 0 && rng.IntN(2) == 0 {
				r.GPUMemory = 1 + rng.Int64N(8)
			}
			if rng.IntN(4) == 0 {
				r.Remote = &model.RemoteGPUs{Count: 1, Memory: 2, Shared: true}
			}
			_, _ = s.Submit(&model.Job{ID: "j", Request: r}) // some are impossible
		}
		plan := s.Step(0)
		for _, st := range plan.Starts {
			if st.Err != nil {
				t.Fatal(st.Err)
			}
		}
		if len(plan.Limits) != len(plan.Starts) {
			t.Fatalf("%d limits of %d jobs", len(plan.Limits), len(plan.Starts))
		}
		mark := Mark{}
		if plan.UndoTo(mark); len(plan.Limits) != 0 {
			t.Fatal("limits are left")
		}
	}
	if placed < 400 {
		t.Fatalf("only %d were placed", placed)
	}
}
