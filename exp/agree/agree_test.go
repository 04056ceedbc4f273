package agree

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"muster/exp/bench"
	"muster/exp/bench/benchtest"
)

var update = flag.Bool("update", false, "make the runs anew, which takes four minutes, and write them to testdata")

func TestMain(m *testing.M) { benchtest.Main(m) }

const recorded = "testdata/runs.json"

// rounds is how often each policy is run.
const rounds = 2

func load(t *testing.T) *Record {
	t.Helper()
	if *update {
		tools := benchtest.Tools(t, program)
		var lines []string
		for range rounds {
			for _, p := range policies {
				run, err := record(t.Context(), tools, p)
				if err != nil {
					t.Fatal(err)
				}
				line, err := json.Marshal(run)
				if err != nil {
					t.Fatal(err)
				}
				lines = append(lines, string(line))
			}
		}
		text := fmt.Sprintf("{\"machine\":%q,\"runs\":[\n%s\n]}\n", bench.Machine(), strings.Join(lines, ",\n"))
		if err := os.WriteFile(recorded, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	r := &Record{}
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != rounds*len(policies) {
		t.Fatalf("%d runs", len(r.Runs))
	}
	return r
}

// The policy in force is simulated as it was, and what the history of a run says of other policies is off by what
// docs/whatif.md says.
func TestAgreement(t *testing.T) {
	r := load(t)
	first, again := r.Runs[:len(policies)], r.Runs[len(policies):]
	moves := 0
	for i := range first {
		from := &first[i]
		moves += from.Moves
		var cells []string
		for k := range first {
			of := &first[k]
			wait, makespan := off(simulated(t, from, of.Policy), measured(t, of))
			most := 35.0
			if i == k {
				most = 10
			}
			if math.Abs(wait) > most || math.Abs(makespan) > most {
				t.Errorf("from the history under %s, %s is off by %.1f %% in mean waiting and %.1f %% in makespan", from.Policy, of.Policy, wait, makespan)
			}
			cells = append(cells, percent(wait)+", "+percent(makespan))
		}
		inDocs(t, from.Policy, cells)
	}
	var cells []string
	for i := range again {
		wait, makespan := off(measured(t, &again[i]), measured(t, &first[i]))
		cells = append(cells, percent(wait)+", "+percent(makespan))
		if wait, makespan := off(simulated(t, &again[i], again[i].Policy), measured(t, &again[i])); math.Abs(wait) > 10 || math.Abs(makespan) > 10 {
			t.Errorf("run again, %s is off by %.1f %% and %.1f %%", again[i].Policy, wait, makespan)
		}
	}
	inDocs(t, "run again", cells)
	if moves < 8 {
		t.Errorf("programs moved %d times in all runs: this says little of late binding", moves)
	}
}

// The simulator binds shares as the nodes did: told of the jobs' work alone, it has about as many moves, and is too
// fast by little more than what starts take.
func TestLateBinding(t *testing.T) {
	r := load(t)
	wait, makespan, moves, were := 0.0, 0.0, 0, 0
	for i := range r.Runs {
		run := &r.Runs[i]
		said, rebinds, err := run.Bound()
		if err != nil {
			t.Fatal(err)
		}
		w, m := off(said, measured(t, run))
		wait, makespan = wait+w/float64(len(r.Runs)), makespan+m/float64(len(r.Runs))
		moves, were = moves+rebinds, were+run.Moves
	}
	if math.Abs(wait) > 15 || math.Abs(makespan) > 15 || moves < were/2 || moves > 2*were {
		t.Errorf("%.1f %% in mean waiting, %.1f %% in makespan, %d moves instead of %d", wait, makespan, moves, were)
	}
	inDocs(t, "from the jobs' work", []string{percent(wait), percent(makespan), fmt.Sprintf("%d instead of %d", moves, were)})
}

func simulated(t *testing.T, from *Run, policy string) Figures {
	t.Helper()
	f, err := from.Simulated(policy)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func measured(t *testing.T, r *Run) Figures {
	t.Helper()
	f, err := r.Measured()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// off is by how many per cent figures differ from others.
func off(is, was Figures) (wait, makespan float64) {
	return 100 * (is.MeanWait/was.MeanWait - 1), 100 * (is.Makespan/was.Makespan - 1)
}

func inDocs(t *testing.T, name string, cells []string) {
	t.Helper()
	docs, err := os.ReadFile("../../docs/whatif.md")
	if err != nil {
		t.Fatal(err)
	}
	if line := "| " + name + " | " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(string(docs), line) {
		t.Errorf("docs/whatif.md does not have the line\n%s", line)
	}
}

func percent(v float64) string {
	if math.Abs(v) < 0.5 {
		return "0 %"
	}
	return fmt.Sprintf("%+.0f %%", v)
}
