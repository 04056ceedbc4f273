package world

import (
	"flag"
	"runtime"
	"sync"
	"testing"
)

var (
	seed  = flag.Uint64("seed", 0, "run this seed alone, with a trace")
	first = flag.Uint64("first", 1, "the first seed")
	seeds = flag.Uint64("seeds", 8, "how many seeds to run")
	hours = flag.Float64("hours", 8, "how many hours each lives")
)

func config(seed uint64) Config {
	policies := []string{"fcfs", "easy", "first-fit", "conservative"}
	nodes := 3 + int(seed%10)
	return Config{
		Reorder: 0.05 * float64(seed%2),
		Seed:    seed, Nodes: nodes, Hours: *hours, Jobs: 5 * float64(nodes), Faults: 4, Repeat: 0.02, Policy: policies[seed%uint64(len(policies))],
	}
}

// Whatever fails, no job is lost or run twice, and nothing is left behind.
func TestWorld(t *testing.T) {
	if *seed != 0 {
		cfg := config(*seed)
		cfg.Trace = func(line string) { t.Log(line) }
		if _, err := Run(cfg); err != nil {
			t.Fatal(err)
		}
		return
	}
	var mu sync.Mutex
	var all Result
	var workers sync.WaitGroup
	next := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range next {
				r, err := Run(config(s))
				mu.Lock()
				if err != nil {
					t.Errorf("%v\nrun it again with a trace: go test ./campaign/world -run TestWorld -seed %d -hours %v -v", err, s, *hours)
				} else {
					all.Add(r)
				}
				mu.Unlock()
			}
		})
	}
	count := *seeds
	if testing.Short() {
		count = min(count, 6)
	}
	for s := *first; s < *first+count && !t.Failed(); s++ {
		next <- s
	}
	close(next)
	workers.Wait()
	t.Logf("%d seeds of %v hours: %d events, %d jobs, %d of them complete, %d lost with a node, %d that wait for ever", count, *hours,
		all.Events, all.Submitted, all.Completed, all.Lost, all.Rest)
}

// A hundred nodes, where faults come one upon the other.
func TestManyNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	r, err := Run(Config{Seed: 100, Nodes: 100, Hours: 1, Jobs: 150, Faults: 80, Repeat: 0.05, Policy: "easy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events, %d jobs, %d complete, %d lost with a node", r.Events, r.Submitted, r.Completed, r.Lost)
}

// The same seed is the same run.
func TestSameTwice(t *testing.T) {
	var traces [2][]string
	for i := range traces {
		cfg := config(7)
		cfg.Hours = 2
		cfg.Trace = func(line string) { traces[i] = append(traces[i], line) }
		if _, err := Run(cfg); err != nil {
			t.Fatal(err)
		}
	}
	for i := range min(len(traces[0]), len(traces[1])) {
		if traces[0][i] != traces[1][i] {
			t.Fatalf("line %d is %q, and then %q", i, traces[0][i], traces[1][i])
		}
	}
	if len(traces[0]) != len(traces[1]) || len(traces[0]) < 100 {
		t.Errorf("%d lines, and then %d", len(traces[0]), len(traces[1]))
	}
}
