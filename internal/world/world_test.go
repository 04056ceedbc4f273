package world

import (
	"flag"
	"testing"
)

var (
	seed  = flag.Uint64("seed", 0, "run this seed alone, with a trace")
	seeds = flag.Int("seeds", 30, "how many seeds to run")
	hours = flag.Float64("hours", 12, "how many hours each lives")
)

func config(seed uint64) Config {
	policies := []string{"fcfs", "easy", "first-fit", "conservative"}
	nodes := 3 + int(seed%10)
	return Config{
		Seed: seed, Nodes: nodes, Hours: *hours, Jobs: 5 * float64(nodes), Faults: 4, Repeat: 0.02, Policy: policies[seed%uint64(len(policies))],
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
	var all Result
	for s := range uint64(*seeds) {
		r, err := Run(config(s + 1))
		if err != nil {
			t.Fatalf("%v\nrun it again with a trace: go test ./internal/world -run TestWorld -seed %d -hours %v -v", err, s+1, *hours)
		}
		all.Events += r.Events
		all.Submitted += r.Submitted
		all.Completed += r.Completed
		all.Lost += r.Lost
		all.Rest += r.Rest
	}
	t.Logf("%d seeds of %v hours: %d events, %d jobs, %d of them complete, %d lost with a node, %d that wait for ever", *seeds, *hours,
		all.Events, all.Submitted, all.Completed, all.Lost, all.Rest)
}
