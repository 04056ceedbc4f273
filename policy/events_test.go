package policy

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/model"
)

// TestEvents tells one state what happens by its methods, and another the events that the first
// one's recorder heard: both must answer the same.
func TestEvents(t *testing.T) {
	start := func(v *View, p *Plan) {
		for q := v.Queue(); ; {
			id, _, ok := q.Next()
			if !ok {
				return
			}
			if a := v.Place(v.Shape(id), Sharing); a != nil {
				p.Start(id, a, Reason{})
			}
		}
	}
	said := func(a Answer) string {
		text := fmt.Sprint(a.Job, a.Node, a.Err)
		if a.Plan != nil {
			for _, st := range a.Plan.Starts {
				text += fmt.Sprint(" ", st.Job, *st.Alloc, st.Err)
			}
		}
		return text
	}
	heard := 0
	other := NewState(small(), &scripted{start})
	s := NewState(small(), &scripted{start})
	s.SetRecorder(func(e Event, a Answer) {
		heard++
		if got, want := said(other.Apply(e)), said(a); got != want {
			t.Errorf("event %d, %#v: the answer is %s, and was %s", heard, e, got, want)
		}
	})
	one := func(cores int) *model.Job {
		return &model.Job{ID: "j", Run: time.Minute, Request: model.Request{Nodes: 1, CoresPerNode: cores}}
	}
	a, _ := s.Submit(one(3))
	b, _ := s.Submit(one(4))
	s.Submit(one(5))
	s.Step(0)
	s.Suspended(a)
	s.Resumed(a)
	s.Requeue(a)
	s.Rank(a, 7)
	s.Cancel(a)
	s.Cancel(a)
	s.End(b)
	s.AddNode(model.Node{Name: "new", Cores: 5, GPUs: []int{0}}, model.GPUType{Name: "c", Memory: 1, Speed: 1})
	s.AddNode(model.Node{Name: "new", Cores: 5})
	s.AddDevices(3, []int{1})
	s.SetNode(1, NodeDown)
	s.SetDevice(0, 1, false)
	s.SetWindows([]Window{{Name: "w", From: 2, Until: 1}})
	s.Adopt(one(2), 0, alloc(part(3, 2)), -time.Second)
	s.Adopt(one(2), 0, alloc(part(9, 2)), 0)
	s.Submit(one(5))
	s.Configured(0, model.NodeSettings{VGPUs: 2})
	s.Hear(0, Heard{Alive: true})
	s.Hear(9, Heard{})
	s.Weigh(0, 2)
	s.Step(time.Second)
	if heard != 25 {
		t.Errorf("the recorder heard %d events", heard)
	}
	s.SetRecorder(nil)
	s.Step(2 * time.Second)
	if heard != 25 {
		t.Error("the recorder still hears")
	}
}

// TestPossible: a question is no event, and neither the policy nor later numbers tell that it was
// asked.
func TestPossible(t *testing.T) {
	arrived := 0
	s := NewState(small(), &scripted{func(v *View, _ *Plan) { arrived += len(v.Arrived()) + len(v.Left()) }})
	s.SetRecorder(func(e Event, _ Answer) {
		if _, step := e.(Stepped); !step {
			t.Errorf("%#v was recorded", e)
		}
	})
	fits := &model.Job{ID: "fits", Reservation: "r", Request: model.Request{Nodes: 3, CoresPerNode: 4}}
	if err := s.Possible(fits); err != nil {
		t.Error(err)
	}
	large := &model.Job{ID: "large", Request: model.Request{Nodes: 4, CoresPerNode: 4}}
	err := s.Possible(large)
	if !errors.Is(err, ErrImpossible) {
		t.Errorf("a job of four nodes on three: %v", err)
	}
	if s.Step(0); arrived > 0 || s.NextID() != 0 || s.Waiting() != 0 {
		t.Errorf("the policy heard of %d jobs, the next is number %d, and %d wait", arrived, s.NextID(), s.Waiting())
	}
	s.SetRecorder(nil)
	if _, again := s.Submit(large); again == nil || again.Error() != err.Error() {
		t.Errorf("asked: %v, submitted: %v", err, again)
	}
}
