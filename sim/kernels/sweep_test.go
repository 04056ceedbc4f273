package kernels

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/model/clusterfile"
	"muster/workload/phased"
)

func smallSweep(t *testing.T, workers int) *Sweep {
	t.Helper()
	whole, err := clusterfile.Preset("gremm")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sweep{Common: Config{Span: 3 * time.Second, Explain: []Moment{{Call: 5}}}, Mappers: []string{"st", "ag", "ar"}, Seeds: []uint64{1, 2}, Workers: workers}
	for _, n := range []int{8, 16} {
		c, err := whole.Resize(n)
		if err != nil {
			t.Fatal(err)
		}
		wl, err := phased.Load("W4", n)
		if err != nil {
			t.Fatal(err)
		}
		s.Sizes = append(s.Sizes, Size{c, wl})
	}
	return s
}

// Results, their order and the trace are the same with any number of workers; the trace and the
// accounts are those of the first seed and size.
func TestSweepIsTheSameInParallel(t *testing.T) {
	sweep := func(workers int) string {
		var trace bytes.Buffer
		s := smallSweep(t, workers)
		s.Trace = &trace
		runs, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, r := range runs {
			if (len(r.Explained) > 0) != s.First(r.Index) {
				t.Errorf("run %d explains %d calls", r.Index, len(r.Explained))
			}
			out += fmt.Sprintln(r.Index, r.Mapper, r.Seed, len(r.Cluster.Nodes), *r.Result)
		}
		for line := range strings.Lines(trace.String()) {
			if !strings.HasPrefix(line, "policy,seed,nodes,") && !strings.Contains(line, ",1,8,") {
				t.Fatalf("the trace has a line of another run: %s", line)
			}
		}
		return out + trace.String()
	}
	one := sweep(1)
	if sweep(4) != one {
		t.Fatal("four workers gave another result than one")
	}
}

// A mapper that is not there ends the sweep, and the error says which run it was.
func TestSweepStops(t *testing.T) {
	s := smallSweep(t, 2)
	s.Mappers = []string{"none"}
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "none on ") || !strings.Contains(err.Error(), "seed 1") {
		t.Errorf("got %v", err)
	}
}

// An error in writing the trace is reported, although all runs were made.
func TestSweepTellsOfABrokenTrace(t *testing.T) {
	s := smallSweep(t, 1)
	s.Trace = brokenWriter{}
	if _, err := s.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

var errBroken = errors.New("no room")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
