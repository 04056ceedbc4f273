package policy

import (
	"strings"
	"testing"
	"time"

	"muster/model"
)

// Reasons write times as the driver says; without its word, as they always were.
func TestReasonsWriteTimesAsTheDriverSays(t *testing.T) {
	s := NewState(&model.Cluster{Nodes: []model.Node{{Name: "a", Cores: 1}}}, &scripted{func(*View, *Plan) {}})
	if err := s.SetWindows([]Window{{Name: "w", From: time.Hour, Until: 2 * time.Hour, Nodes: []int32{0}, Users: []string{"u"}}}); err != nil {
		t.Fatal(err)
	}
	id, err := s.Submit(&model.Job{ID: "j", User: "u", WallTime: time.Minute, Reservation: "w", Request: model.Request{Cores: 1}})
	if err != nil {
		t.Fatal(err)
	}
	s.Step(0)
	if why := s.Why(id); why != "reservation w begins at "+Clock(time.Hour) {
		t.Errorf("without a clock: %s", why)
	}
	s.SetClock(func(t time.Duration) string { return "noon and " + t.String() })
	s.Step(time.Second)
	s.windows.next = 0 // have it looked at again
	s.Step(2 * time.Second)
	if why := s.Why(id); !strings.HasSuffix(why, "begins at noon and 1h0m0s") {
		t.Errorf("with a clock: %s", why)
	}
	r := Reason{Code: EndsBefore, Job: id, At: time.Minute}
	if text := r.Text(&s.view); text != "it ends before the reservation of job j at noon and 1m0s" {
		t.Error(text)
	}
}
