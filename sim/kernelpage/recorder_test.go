package kernelpage

import (
	"context"
	"slices"
	"testing"
	"time"

	"muster/mapping"
	"muster/model/clusterfile"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// What the recorder saw is what the simulator says: the time of each device in
// kernels, in blocks that do not overlap.
func TestRecorderAgreesWithTheResult(t *testing.T) {
	for _, c := range []struct {
		workload, mapper string
		hold, ahead      bool
	}{
		{"W4", "st", false, false}, {"W4", "gr", false, false}, {"W4", "gr", true, false}, {"W3", "ar", true, false}, {"async", "ag", false, false}, {"mpi", "probe", true, false},
		{"W4", "ag", false, true}, {"W3", "ar", true, true}, {"async", "ag", false, true}, {"mpi", "probe", true, true},
	} {
		cluster, err := clusterfile.Preset("gremm")
		if err != nil {
			t.Fatal(err)
		}
		wl, err := phased.Load(c.workload, len(cluster.Nodes))
		if err != nil {
			t.Fatal(err)
		}
		const everything = 1 << 30
		r := NewRecorder(cluster, wl, everything)
		result, err := kernels.Run(context.Background(), kernels.Config{
			Cluster: cluster, Workload: wl, Seed: 3, Span: 20 * time.Second, HoldResults: c.hold, SendAhead: c.ahead, Observe: r,
			Mapper: func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New(c.mapper, l) },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.finish(result.End)
		kernel, held, last := make([]time.Duration, len(r.devices)), make([]time.Duration, len(r.devices)), make([]time.Duration, len(r.devices))
		for _, b := range r.blocks {
			if b.to < b.from || b.from < last[b.device] || b.to > result.End {
				t.Fatalf("%v: the block %+v begins before %v, where another ends", c, b, last[b.device])
			}
			last[b.device] = b.to
			held[b.device] += b.to - b.from
			if b.kernel {
				kernel[b.device] += b.to - b.from
			}
		}
		done, remote := 0, 0
		for i := range r.calls {
			if r.calls[i].done >= 0 {
				done++
				if r.calls[i].remote {
					remote++
				}
			}
		}
		for _, a := range result.Apps {
			done, remote = done-int(a.Done), remote-int(a.Remote)
		}
		if done != 0 || remote != 0 {
			t.Errorf("%v: the recorder has %d calls too many, %d remote", c, done, remote)
		}
		for d, want := range result.Devices {
			sum := time.Duration(0)
			for _, busy := range r.busy[d] {
				sum += busy
			}
			if sum != want.Busy || kernel[d] != want.Busy || held[d] != want.Held {
				t.Fatalf("%v: device %d was in kernels for %v, held for %v; the recorder has %v by application, blocks of %v and %v", c, d, want.Busy, want.Held, sum, kernel[d], held[d])
			}
		}
	}
}

// A GPU is not held for data that were sent ahead: blocks begin with the turn of a call, not when its data set out. A call that
// is left to any GPU has its turn first.
func TestRecorderOfDataSentAhead(t *testing.T) {
	cluster, err := clusterfile.Preset("gremm")
	if err != nil {
		t.Fatal(err)
	}
	wl, err := phased.Load("W4", len(cluster.Nodes))
	if err != nil {
		t.Fatal(err)
	}
	run := Run{Cluster: cluster, Workload: wl, Recorder: NewRecorder(cluster, wl, 100)}
	const device = 71 // of the last node; processes 0 to 2 are on the first
	for _, e := range []struct {
		at    time.Duration
		call  int64
		stage kernels.Stage
	}{
		{0, 0, kernels.Launched}, {0, 0, kernels.Queued}, {1, 0, kernels.Sending}, {2, 1, kernels.Launched}, {2, 1, kernels.Queued}, {3, 2, kernels.Launched}, {3, 2, kernels.Queued}, {3, 1, kernels.Sending},
		{5, 1, kernels.Holding}, {5, 1, kernels.Running}, {9, 1, kernels.Released}, {9, 0, kernels.Holding}, {9, 0, kernels.Running}, {9, 1, kernels.Returning},
		{10, 1, kernels.Done}, {12, 0, kernels.Released}, {12, 2, kernels.Holding}, {12, 0, kernels.Returning}, {13, 0, kernels.Done},
		{14, 2, kernels.Sending}, {15, 2, kernels.Running}, {16, 2, kernels.Released}, {16, 2, kernels.Returning}, {16, 2, kernels.Done},
	} {
		on := int32(device)
		if e.stage == kernels.Launched {
			on = -1
		}
		run.Recorder.Event(kernels.Event{At: e.at * time.Second, Call: e.call, Process: int32(e.call), Device: on, Stage: e.stage})
	}
	run.Recorder.finish(16 * time.Second)
	want := []block{
		{device: device, call: 1, from: 5 * time.Second, to: 9 * time.Second, kernel: true},
		{device: device, call: 0, from: 9 * time.Second, to: 12 * time.Second, kernel: true},
		{device: device, call: 2, from: 12 * time.Second, to: 15 * time.Second},
		{device: device, call: 2, from: 15 * time.Second, to: 16 * time.Second, kernel: true},
	}
	if !slices.Equal(run.Recorder.blocks, want) {
		t.Errorf("the blocks are %+v", run.Recorder.blocks)
	}
	for call, lines := range [][2]string{{"Queued for\t9 s", "Held before\t0 s"}, {"Queued for\t3 s", "Held before\t0 s"}, {"Queued for\t9 s", "Held before\t3 s"}} {
		told := run.tell(&run.Recorder.calls[call], "n24:2")
		for _, line := range lines {
			if !slices.Contains(told.Lines, line) {
				t.Errorf("call %d: there is no %q in %q", call, line, told.Lines)
			}
		}
	}
}

// A picture that is full says from when on it lacks blocks, and has all before.
func TestRecorderKeepsSoManyBlocks(t *testing.T) {
	cluster, err := clusterfile.Preset("gremm")
	if err != nil {
		t.Fatal(err)
	}
	wl, err := phased.Load("W4", len(cluster.Nodes))
	if err != nil {
		t.Fatal(err)
	}
	run := func(limit int) *Recorder {
		r := NewRecorder(cluster, wl, limit)
		result, err := kernels.Run(context.Background(), kernels.Config{
			Cluster: cluster, Workload: wl, Seed: 3, Span: 30 * time.Second, Observe: r,
			Mapper: func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New("ag", l) },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.finish(result.End)
		return r
	}
	all, some := run(1<<30), run(500)
	if some.until <= 0 || some.until >= all.until || len(some.blocks) < 500 || len(some.blocks) > 500+2*len(some.devices) {
		t.Fatalf("%d blocks until %v, of %d until %v", len(some.blocks), some.until, len(all.blocks), all.until)
	}
	for i, b := range all.blocks {
		if b.from >= some.until {
			break
		}
		if got := some.blocks[i]; got.device != b.device || got.from != b.from || got.to != b.to || got.kernel != b.kernel {
			t.Fatalf("block %d is %+v, want %+v", i, got, b)
		}
	}
	if len(some.calls) > 5000 {
		t.Errorf("%d calls are kept for 500 blocks", len(some.calls))
	}
}
