package live

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"muster/exp"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

func TestProcessTime(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"12 (slurmctld) S 1 12 12 0 -1 4194560 2091 0 0 0 150 25 0 0 20 0 9 0 100 1000 5": 1750 * time.Millisecond,
		"12 (a) b) S 1 12 12 0 -1 4194560 2091 0 0 0 0 1 0 0 20 0 9 0 100 1000 5":         10 * time.Millisecond,
		"12 (short) S 1": 0, "": 0, "no brackets": 0,
	} {
		if _, got := processTime(line); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	if name, _ := processTime("12 (a) b) S 1 12 12 0 -1 4194560 2091 0 0 0 0 1 0 0 20 0 9 0 100 1000 5"); name != "a) b" {
		t.Errorf("the name is %q", name)
	}
}

func TestTimesOfBash(t *testing.T) {
	r := &run{began: time.Unix(100, 0)}
	if got, err := r.since("101.000250"); err != nil || got != time.Second+250*time.Microsecond {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{"", "101", "101.5", "x.000000", "101,000250"} {
		if _, err := r.since(text); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
}

func TestMedianLatency(t *testing.T) {
	o := &Outcome{Latency: []time.Duration{5, 1, 3}}
	if got := o.MedianLatency(); got != 3 || o.Latency[0] != 5 {
		t.Errorf("%d of %v", got, o.Latency)
	}
	if (&Outcome{}).MedianLatency() != 0 {
		t.Error("nothing has a middle")
	}
}

// Steps run in order. An interrupt skips the running step and those after it; an error ends the
// measurement.
func TestMeasure(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var told []int64
	o := exp.Options{Progress: func(done, total int64) { told = append(told, done, total) }}
	step := func(name string, do func() error) Step {
		return Step{Name: name, Work: 10, Do: func(_ context.Context, progress func(int)) error { progress(5); return do() }}
	}
	fine := func() error { return nil }
	wrong := errors.New("no room")
	if _, err := Measure(ctx, o, []Step{step("first", fine), step("second", func() error { return wrong })}); !errors.Is(err, wrong) || err.Error() != "second: no room" {
		t.Error(err)
	}
	if !slices.Equal(told, []int64{5, 20, 15, 20}) {
		t.Errorf("told of %v", told)
	}
	missing, err := Measure(ctx, exp.Options{}, []Step{step("first", fine), step("second", func() error { interrupt(); return wrong }), step("third", fine)})
	if err != nil || !slices.Equal(missing, []string{"second", "third"}) {
		t.Errorf("missing %q, %v", missing, err)
	}
}

// BenchmarkStarts measures, on each release, the time between the end of a job and the start of the
// next one that waits for its node, and the CPU time of slurmctld per job, with Slurm's own
// scheduler and with Muster's driver.
//
//	go test ./exp/live -run - -bench Starts -benchtime 1x
func BenchmarkStarts(b *testing.B) {
	const jobs = 20
	for _, r := range release.All() {
		b.Run(r.Name, func(b *testing.B) {
			emulatetest.Need(b, r)
			for range b.N {
				for name, policy := range map[string]string{"slurm": "", "muster": "fcfs"} {
					list := make([]Job, jobs)
					for i := range list {
						list[i] = Job{Options: []string{"-t1", "-wn1", "-N1", "-n1", "-c8"}, Script: "sleep 0.1"}
					}
					out, err := Run(b.Context(), Setup{Nodes: 8, CPUs: 8, Release: r, Policy: policy}, list, nil)
					if err != nil {
						b.Fatal(err)
					}
					first, last := out.Jobs[0].Start, time.Duration(0)
					for _, j := range out.Jobs {
						first, last = min(first, j.Start), max(last, j.Start)
					}
					b.ReportMetric(((last-first)/(jobs-1) - 100*time.Millisecond).Seconds(), name+"-gap-s")
					b.ReportMetric(1e3*out.Controller.Seconds()/jobs, name+"-slurmctld-ms/job")
				}
			}
		})
	}
}
