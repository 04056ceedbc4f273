package workload

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/model"
)

func TestDescribe(t *testing.T) {
	text := `# start: 2024-03-01T08:00:00Z
id,submit,run,walltime,nodes,cores,cores_per_node,gpus,gpu_memory,remote_gpus,user,queue,status
a,0,100,200,2,,4,1,,,us1,G,completed
b,0,50,,,10,,,,3,us2,S,failed
c,1h,10,10,1,1,,2,1GiB,,us1,G,completed
d,24h,0,,1,1,,,,,,G,
`
	wl, _ := read(t, "x.csv", text, ReadOptions{})
	s := Describe(wl)
	if s.Jobs != 4 || s.Users != 2 || s.Groups != 0 || s.Span != 86400 || s.JobsPerDay != 4 {
		t.Errorf("jobs %d, users %d, groups %d, span %v, a day %v", s.Jobs, s.Users, s.Groups, s.Span, s.JobsPerDay)
	}
	run := s.Run
	run.Bins = nil
	if want := (Distribution{Count: 4, Min: 0, Mean: 40, Median: 10, P95: 100, Max: 100}); !reflect.DeepEqual(run, want) {
		t.Errorf("run %+v", run)
	}
	if want := []Bin{{0, 1, 1}, {1, 10, 0}, {10, 60, 2}, {60, 600, 1}}; !reflect.DeepEqual(s.Run.Bins, want) {
		t.Errorf("bins of run %v", s.Run.Bins)
	}
	if s.WallTime.Count != 2 || s.Accuracy.Mean != 0.75 || s.Accuracy.Bins[len(s.Accuracy.Bins)-1].From != 1 {
		t.Errorf("wall time %+v, accuracy %+v", s.WallTime, s.Accuracy)
	}
	if s.NodeSeconds != 2*100+10 || s.CoreSeconds != 8*100+10*50+10 || s.GPUSeconds != 2*100+3*50+2*10 {
		t.Errorf("node %v, core %v, GPU seconds %v", s.NodeSeconds, s.CoreSeconds, s.GPUSeconds)
	}
	if l := s.Load(1, 10, 0); l.Cores != 1310./864000 || l.GPUs != 0 {
		t.Errorf("load %+v", l)
	}
	if s.ByHour[8] != 3 || s.ByHour[9] != 1 || !reflect.DeepEqual(s.ByWeekday, []int{0, 0, 0, 0, 3, 1, 0}) {
		t.Errorf("by hour %v, by weekday %v", s.ByHour, s.ByWeekday)
	}
	if want := []GPUShare{{0, 2, 0.5}, {1, 1, 0.25}, {2, 1, 0.25}}; !reflect.DeepEqual(s.GPUMix, want) {
		t.Errorf("GPU mix %v", s.GPUMix)
	}
	if s.SharedGPUs != 1 || s.RemoteGPUs != 1 {
		t.Errorf("shared %d, remote %d", s.SharedGPUs, s.RemoteGPUs)
	}
	if want := []Group{{"us1", 2, 0.5, 810}, {"us2", 1, 0.25, 500}, {"", 1, 0.25, 0}}; !reflect.DeepEqual(s.TopUsers, want) {
		t.Errorf("users %v", s.TopUsers)
	}
	if s.Statuses[0].Name != "completed" || s.Queues[0].Name != "G" || s.Queues[0].Jobs != 3 {
		t.Errorf("statuses %v, queues %v", s.Statuses, s.Queues)
	}
	out, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(out), `"run_s":{"count":4,"min":0`) {
		t.Errorf("JSON: %v %s", err, out)
	}
}

func TestDescribeLittle(t *testing.T) {
	if s := Describe(&Workload{}); s.Jobs != 0 || s.Run.Count != 0 {
		t.Errorf("an empty workload: %+v", s)
	}
	one := &Workload{Jobs: []model.Job{{ID: "1", Run: 100 * 24 * time.Hour, Request: model.Request{Cores: 1}}}}
	s := Describe(one)
	if s.Load(1, 1, 1) != (Load{}) || s.ByWeekday != nil {
		t.Errorf("one job: load %+v, by weekday %v", s.Load(1, 1, 1), s.ByWeekday)
	}
	last := s.Run.Bins[len(s.Run.Bins)-1]
	if last.Count != 1 || last.To <= s.Run.Max || math.IsInf(last.To, 0) {
		t.Errorf("the longest run time is in no bin: %+v", s.Run.Bins)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}
