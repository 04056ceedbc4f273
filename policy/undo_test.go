package policy_test

import (
	"slices"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
)

// doing is a policy whose steps a test writes.
type doing struct {
	step func(v *policy.View, p *policy.Plan)
}

func (d *doing) Traits() policy.Traits                      { return policy.Traits{Ends: true} }
func (d *doing) Step(v *policy.View, p *policy.Plan)        { d.step(v, p) }
func (d *doing) Why(v *policy.View, id policy.JobID) string { return "" }
func startNow(v *policy.View, p *policy.Plan, id policy.JobID) bool {
	a := v.Place(v.Shape(id), policy.Sharing)
	return a != nil && p.Start(id, a, policy.Reason{})
}

// What is undone was never proposed: starts, stops, resumes and the wish for a step.
func TestUndoTo(t *testing.T) {
	d := &doing{}
	s := policy.NewState(&model.Cluster{Nodes: []model.Node{{Name: "n", Cores: 4, Memory: 8}}}, d)
	submit := func(cores int) policy.JobID {
		id, err := s.Submit(&model.Job{ID: "j", WallTime: time.Hour, Request: model.Request{Nodes: 1, CoresPerNode: cores, Memory: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	runs, still, waits, ahead := submit(1), submit(1), submit(2), submit(1)
	d.step = func(v *policy.View, p *policy.Plan) { startNow(v, p, runs); startNow(v, p, still) }
	s.Step(0)
	if err := s.Suspended(still); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can be done again
		d.step = func(v *policy.View, p *policy.Plan) {
			if v.Waits(ahead) && !startNow(v, p, ahead) {
				t.Error("a job that is kept was not started")
			}
			mark := p.Mark()
			if !p.Resume(still) || !p.Stop(runs, policy.Requeue, -1) {
				t.Error("nothing is stopped or resumed")
			}
			for _, id := range v.WaitingJobs() {
				startNow(v, p, id)
			}
			p.Wake, p.Skipped = 7, true
			p.Profile(true)
			p.Watch(true)
			p.Configure(0, model.NodeSettings{VGPUs: 1})
			p.UndoTo(mark)
			if !v.Waits(waits) || v.Stopping(runs) || !v.CanStop(runs) || !v.Suspended(still) || v.Waits(ahead) || p.Wake != policy.Never || p.Skipped || p.Profiles != policy.SameProfiles || p.Watches != policy.SameWatches || len(p.Nodes) > 0 {
				t.Error("something is left of what was undone")
			}
			if v.FreeCores(0) != 2 || !v.MayFit(v.Shape(waits), policy.Sharing) {
				t.Errorf("%d cores are free", v.FreeCores(0))
			}
		}
		if p := s.Step(1); len(p.Stops)+len(p.Resumes) > 0 || len(p.Starts) > 1 {
			t.Errorf("the plan is %+v", p)
		}
	}
}

// A policy that missed steps is told of all who wait.
func TestAnewAndSetPolicy(t *testing.T) {
	d := &doing{step: func(*policy.View, *policy.Plan) {}}
	s := policy.NewState(&model.Cluster{Nodes: []model.Node{{Name: "n", Cores: 4, Memory: 8}}}, d)
	var all []policy.JobID
	for range 3 {
		id, err := s.Submit(&model.Job{ID: "j", Request: model.Request{Nodes: 1, CoresPerNode: 4}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
		s.Step(0)
	}
	look := func(v *policy.View) {
		if !slices.Equal(v.Arrived(), all) || len(v.Left()) > 0 || !v.Freed() {
			t.Errorf("it is told that %v came and %v left, freed %v", v.Arrived(), v.Left(), v.Freed())
		}
	}
	seen := uint64(0)
	d.step = func(v *policy.View, _ *policy.Plan) {
		seen = v.Generation()
		v.Anew(func() { look(v) })
		if len(v.Arrived()) > 0 || v.Freed() || v.Generation() == seen {
			t.Error("the view is not as it was")
		}
	}
	s.Step(1)
	steps := 0
	s.SetPolicy(&doing{step: func(v *policy.View, _ *policy.Plan) {
		if steps++; steps == 1 {
			look(v)
		} else if len(v.Arrived()) > 0 {
			t.Error("they came again")
		}
	}})
	s.Step(2)
	s.Step(3)
}
