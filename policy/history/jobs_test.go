package history_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy/history"
)

// The jobs of a history run as long as they did, also where the driver told of them more than once.
func TestJobs(t *testing.T) {
	var b bytes.Buffer
	s := easy(t, two())
	history.Record(&b, history.Header{Policy: "easy"}, s)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	job := func(id string, submit time.Duration, cores int) *model.Job {
		return &model.Job{ID: id, Submit: submit, WallTime: time.Hour, Request: model.Request{Nodes: 1, CoresPerNode: cores}}
	}
	early, err := s.Submit(job("early", 5*time.Second, 4))
	must(err)
	withdrawn, err := s.Submit(job("late", 6*time.Second, 4))
	must(err)
	must(s.Cancel(withdrawn))
	s.Step(10 * time.Second)
	must(s.AddDevices(1, []int{0}, model.GPUType{Name: "more", Memory: 4, Speed: 1}))
	_, err = s.AddNode(model.Node{Name: "c", Cores: 4, GPUs: []int{0}}, model.GPUType{Name: "more", Memory: 4, Speed: 1})
	must(err)
	late, err := s.Submit(job("late", 6*time.Second, 3))
	must(err)
	s.Step(20 * time.Second)
	// It runs otherwise than was planned.
	must(s.End(late))
	late, err = s.Adopt(job("late", 6*time.Second, 2), 0, &model.Allocation{Parts: []model.Part{{Node: 0, Cores: 2}}}, 21*time.Second)
	must(err)
	_, err = s.Submit(job("waits", 22*time.Second, 4))
	must(err)
	must(s.End(early))
	s.Step(70 * time.Second)
	must(s.End(late))
	s.Step(100 * time.Second)

	w, err := history.Jobs(bytes.NewReader(b.Bytes()))
	must(err)
	var got []string
	for _, j := range w.Jobs {
		got = append(got, fmt.Sprintf("%s at %v for %v on %d cores", j.ID, j.Submit, j.Run, j.Request.CoresPerNode))
	}
	want := []string{"early at 0s for 1m0s on 4 cores", "late at 1s for 1m19s on 3 cores", "waits at 17s for 30s on 4 cores"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the jobs are\n%s", strings.Join(got, "\n"))
	}
	if w.Running != 1 || w.Waiting != 0 {
		t.Errorf("%d still run, %d never did", w.Running, w.Waiting)
	}
	if err := w.Cluster.Validate(); err != nil || len(w.Cluster.Nodes) != 3 || len(w.Cluster.GPUTypes) != 2 || fmt.Sprint(w.Cluster.Nodes[1].GPUs, w.Cluster.Nodes[2].GPUs) != "[1] [1]" {
		t.Errorf("the cluster is %+v, %v", w.Cluster, err)
	}
	if _, err := history.Jobs(strings.NewReader("no history\n")); err == nil {
		t.Error("what is no history was read")
	}
}
