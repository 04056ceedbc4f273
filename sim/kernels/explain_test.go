package kernels

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"muster/mapping"
)

// TestExplainingChangesNothing: a run in which every launch is explained equals the run in which
// none is, and each explanation is about its launch.
func TestExplainingChangesNothing(t *testing.T) {
	runs := uint64(3000)
	if testing.Short() {
		runs = 300
	}
	compared, late, erring := 0, 0, 0
	for seed := range runs {
		choose := randomly(rand.New(rand.NewPCG(seed, 78)))
		config := smallConfig(choose)
		name := pick(choose, "mapper", mapperNames...)
		config.Mapper = func(l *mapping.Layout) (mapping.Mapper, error) { return namedMapper(name, l) }
		var plain, asked recorder
		config.Observe = &plain
		want, err := Run(context.Background(), config)
		if err != nil {
			continue // a split needs two applications with GPUs
		}
		for i := range plain.events {
			switch e := &plain.events[i]; {
			case e.Stage == Launched && e.Call%2 == 0:
				config.Explain = append(config.Explain, Moment{Call: e.Call + 1})
			case e.Stage == Launched:
				config.Explain = append(config.Explain, Moment{At: e.At})
			}
		}
		config.Explain = append(config.Explain, Moment{Call: 1 << 40})
		config.Observe = &asked
		got, err := Run(context.Background(), config)
		if err != nil {
			t.Fatalf("seed %d, mapper %s: %v", seed, name, err)
		}
		told := got.Explained
		got.Explained = nil
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(asked, plain) {
			t.Fatalf("seed %d, mapper %s: explained, the run is\n%+v, not\n%+v", seed, name, got, want)
		}
		compared++
		launch := make(map[int64][2]Event)
		for _, e := range plain.events {
			if e.Stage <= Queued {
				both := launch[e.Call]
				both[e.Stage] = e
				launch[e.Call] = both
			}
		}
		for i := range told {
			e := &told[i]
			l := launch[e.Call-1]
			if e.At != l[Launched].At || e.Launched.Process != l[Launched].Process || e.Given != l[Queued].Device || len(e.Truth) != len(e.Choices) {
				t.Fatalf("seed %d, mapper %s: the account %+v is not of %+v", seed, name, e, l)
			}
			for k := range e.Choices {
				switch remote := want.Devices[e.Choices[k].Device].Node != e.Launched.Node; {
				case e.Choices[k].Queued == e.Truth[k]:
				case remote && config.Status.Delay > 0:
					late++
				case remote && config.Status != (Status{}):
					erring++
				default:
					t.Fatalf("seed %d, mapper %s: device %d has %d calls, not %d", seed, name, e.Choices[k].Device, e.Truth[k], e.Choices[k].Queued)
				}
			}
		}
	}
	if compared < int(runs)*9/10 || late == 0 || erring == 0 {
		t.Errorf("%d of %d runs were compared; %d choices were seen late, %d wrongly", compared, runs, late, erring)
	}
}

// A process launches three kernels; two of them are meant by three moments, and two moments never come.
func TestMomentsOfLaunches(t *testing.T) {
	config := Config{
		Cluster: handCluster([]float64{2, 1}, []float64{2, 1}), Workload: handWorkload(handApp(1, 1, 3, 10, 5, 1000, 0)), Mapper: script(1, mapping.Anywhere, 0),
		Explain: []Moment{{At: 11 * time.Millisecond}, {Call: 1}, {At: 0}, {Call: 4}, {At: time.Hour}},
	}
	r, err := Run(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	// The first goes to the other node: 10 ms, 1 of latency, 1 for 1000 bytes, 5 for the kernel; then 10 again.
	if len(r.Explained) != 2 {
		t.Fatalf("%+v", r.Explained)
	}
	first, second := &r.Explained[0], &r.Explained[1]
	if first.Call != 1 || first.At != 10*time.Millisecond || first.Device != 1 || first.Given != 1 || first.Launched.In != 1000 || first.Reason == "" {
		t.Errorf("the first: %+v", first)
	}
	// Device 0 has never been used: it has been idle longest.
	if second.Call != 2 || second.At != 27*time.Millisecond || second.Device != mapping.Anywhere || second.Given != 0 {
		t.Errorf("the second: %+v", second)
	}
	for i, want := range []*Explained{second, first, first, nil, nil} {
		if got := r.ExplainedAt(config.Explain[i]); got != want {
			t.Errorf("%+v names %+v, want %+v", config.Explain[i], got, want)
		}
	}
}

// A moment at which a run launches no call is named, with what the run launched instead.
func TestUnexplained(t *testing.T) {
	run := RunOf{Point{Mapper: "st"}, &Result{Apps: []AppResult{{Launched: 3}, {Launched: 2}}, Explained: []Explained{{Call: 3}}}}
	for _, c := range []struct {
		moment Moment
		at     int
		want   string
	}{
		{Moment{Call: 3}, -1, ""},
		{Moment{Call: 6}, 0, "the run of st launched 5 calls"},
		{Moment{At: 1}, 0, "the run of st launched no call then or later"},
	} {
		if at, why := Unexplained([]RunOf{run}, []Moment{c.moment}); at != c.at || why != c.want {
			t.Errorf("%d %q, want %d %q", at, why, c.at, c.want)
		}
	}
}
