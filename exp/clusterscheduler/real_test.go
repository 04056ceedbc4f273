package clusterscheduler

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/exp/bench"
)

// tiny are programs that take a moment.
var (
	tinyPairs = app{"MM", "pairs", 16, 1, 4, 3 * 16 * 16 * 4, false}
	tinyAlign = app{"NW", "align", 16, 1, 4, 2*16 + 17*17*4, false}
	tinyADFA  = app{"ADFA", "adfa", 32, 0, 3, 32*16*2 + 8, true}
)

// tinyCluster has two nodes, with two GPUs and one.
var tinyCluster = cluster{"tiny", "tiny cluster", []machine{{"node1", []card{gtx480, gtx480}}, {"node2", []card{bench.K20c}}}, [3][]int{{2, 1}, {2, 4}, {4, 2}}, 2}

// Real runs in small: a head, nodes and jobs of all three programs, whose processes check their
// results, on the slots of a batch system and under each policy that shares GPUs. The simulator
// puts the jobs on the same nodes.
func TestRealClusters(t *testing.T) {
	l := workshop(t)
	flat := profile{Unit: map[string]map[string]float64{}, Start: 0.1}
	for _, a := range profiled {
		flat.Unit[a.name] = map[string]float64{gtx480.Name: 0.01, bench.K20c.Name: 0.01}
	}
	for i, s := range append(slices.Clone(schemes), &near) {
		list := []job{{app: &tinyPairs, processes: 2}, {app: &tinyADFA, processes: 3}, {app: &tinyAlign, processes: 2}}
		w := workload{key: s.key, setting: s.setting(&tinyCluster)}
		w.setting.roam = i == len(schemes) // the last one with GPUs that are bound late
		w.jobs = s.jobs(w.setting.reach(), list...)
		out, err := l.Make(&w, 7)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		predicted, err := flat.predict(w.setting, w.jobs)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for i, j := range out.Jobs {
			if j.Run <= 0 || j.Where == "" {
				t.Errorf("%s: %+v", s.name, j)
			}
			// The first job starts on an idle cluster. The places of the others depend on which
			// jobs have ended.
			if i == 0 && j.Where != predicted.Jobs[i].Where {
				t.Errorf("%s: %s is on %s, and in the simulator on %s", s.name, j.Name, j.Where, predicted.Jobs[i].Where)
			}
		}
		if out.Seconds <= 0 {
			t.Errorf("%s took %v s", s.name, out.Seconds)
		}
	}
}

// A program that fails is named with what it said, and its cluster is ended.
func TestFailure(t *testing.T) {
	l := workshop(t)
	wrong := app{"MM", "pairs", 17, 1, 4, 1, false} // no multiple of 16
	w := workload{"wrong", setting{"fcfs", tinyCluster.mapped([]int{1, 0}), false}, []job{{&wrong, 1, []string{"--gres=gpu:1"}}}}
	if _, err := l.Make(&w, 1); err == nil || !strings.Contains(err.Error(), "MM[1] ended as FAILED") || !strings.Contains(err.Error(), "--size must be a multiple of 16") {
		t.Error(err)
	}
	if l.up != nil {
		t.Error("the cluster is still there")
	}
	if _, err := l.Make(&workload{"none", setting{"no-such-policy", tinyCluster.whole(), false}, nil}, 1); err == nil || !strings.Contains(err.Error(), "no-such-policy") {
		t.Error(err)
	}
}

// An interrupt ends everything, and nothing is left.
func TestInterrupted(t *testing.T) {
	l := workshop(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.ctx = ctx
	endless := app{"ADFA", "adfa", 1024, 0, 64, 1, true}
	w := workload{"endless", setting{"fcfs", tinyCluster.mapped([]int{1, 0}), false}, []job{{&endless, 1, []string{"--gres=gpu:1"}}}}
	naming := func(dir string) (list []string) { // processes that name the folder
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if text, _ := os.ReadFile(file); strings.Contains(string(text), dir) {
				list = append(list, string(text))
			}
		}
		return list
	}
	up, err := l.cluster(w.setting)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for !strings.Contains(up.Waiting(ctx), "is RUNNING") && ctx.Err() == nil {
		}
		cancel()
	}()
	if _, err := l.Make(&w, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(up.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is still there: %v", err)
	}
	if left := naming(up.Dir); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// What is missing is said, with what to do about it.
func TestMissingTools(t *testing.T) {
	dir := t.TempDir()
	if _, err := bench.ToolsIn("muster", []string{"", dir}, dir, programs...); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.ToolsIn("muster", []string{"", dir}, dir, programs...); err == nil || !strings.Contains(err.Error(), "make examples") {
		t.Error(err)
	}
}
