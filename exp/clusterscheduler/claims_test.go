package clusterscheduler

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"muster/exp"
)

var update = flag.Bool("update", false, "write testdata/tables.txt anew: read the difference before you commit it")

// records are what `muster reproduce clusterscheduler --runs 3 --save FILE` measured, the second with --figure 4-5,late.
var records = []string{"testdata/measured.json", "testdata/mixed.json"}

func recordedResult(t *testing.T, file string) (*measured, *exp.Result) {
	t.Helper()
	m, err := study().Frame().Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := study().Result(m)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// verdict is that of the record that has what the claim is about.
func verdict(t *testing.T, c *claim) (exp.Verdict, string) {
	t.Helper()
	for _, file := range records {
		m, _ := recordedResult(t, file)
		if v, because := c.Verdict(m); v != exp.Unknown {
			return v, because
		}
	}
	return exp.Unknown, ""
}

// What the recorded measurements say of the paper's statements is what docs/papers.md says.
func TestClaims(t *testing.T) {
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, c := range claims() {
		v, because := verdict(t, &c)
		if v == exp.Unknown {
			t.Errorf("%s: the recorded measurements do not tell", c.ID)
			continue
		}
		if v != exp.Confirmed && c.Cause == "" {
			t.Errorf("%s is %s (%s), and no cause is said", c.ID, v, because)
		}
		line := fmt.Sprintf("| %s | %s | %s | %s |\n", strings.TrimPrefix(c.Where, "Fig. "), c.Says, v, because)
		if lines++; !strings.Contains(string(docs), line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
	}
	got := 0
	for _, v := range []exp.Verdict{exp.Refuted, exp.Direction, exp.Confirmed} {
		got += strings.Count(string(docs), " | "+v.String()+" | ")
	}
	if got != lines {
		t.Errorf("docs/papers.md has %d verdicts, and there are %d statements", got, lines)
	}
}

// The measurements are good enough to judge statements by: several runs of each figure, on a
// machine that was quiet for most of them.
func TestRecordedMeasurements(t *testing.T) {
	shown := map[string]bool{}
	for _, file := range records {
		m, _ := recordedResult(t, file)
		if len(m.Seeds) < 3 || m.Missing != "" {
			t.Errorf("%s: %d runs, missing %q", file, len(m.Seeds), m.Missing)
		}
		if busy := m.Disturbed(tooLate); busy > 0.2 {
			t.Errorf("%s: %.0f %% of the runs were disturbed", file, 100*busy)
		}
		for _, f := range m.Figures {
			shown[f] = true
		}
	}
	if len(shown) != len(study().Figures()) {
		t.Errorf("only the figures %v were measured", shown)
	}
}

// While the machine was quiet the simulator is off by a tenth at most, but for these, as docs/papers.md says.
func TestPredictionsAreClose(t *testing.T) {
	further := map[string]float64{
		mixKey(&highEnd, &quick): 18, mixKey(&commodity, &quick): 15, // jobs run on other nodes than in the simulator
		mixKey(&highEnd, &near): 15, mixKey(&commodity, &near): 15,
	}
	m, _ := recordedResult(t, records[1])
	runs := 0
	for _, f := range []figure{mixFigure, lateFigure} {
		for key, errors := range m.quietErrors(f) {
			most, known := further[key]
			if !known {
				most = tolerance
			}
			worst := 0.0
			for _, e := range errors {
				runs++
				worst = max(worst, math.Abs(e))
			}
			if worst > most || known && worst <= tolerance {
				t.Errorf("%s: off by %.1f %%, and %v %% are known", key, worst, most)
			}
		}
	}
	if runs < 15 {
		t.Errorf("only %d runs were quiet", runs)
	}
}

// The tables of the recorded measurements, with what the simulator says of the same runs today.
func TestTablesOfTheRecord(t *testing.T) {
	const golden = "testdata/tables.txt"
	var text strings.Builder
	for _, file := range records {
		_, r := recordedResult(t, file)
		fmt.Fprintf(&text, "%s\n", file)
		for _, part := range exp.Parts(r.Rows) {
			fmt.Fprintf(&text, "%s\n", part)
			for _, row := range r.Rows {
				if row.Part == part {
					paper := "-"
					if row.Paper != nil {
						paper = fmt.Sprintf("%.4g", *row.Paper)
					}
					fmt.Fprintf(&text, "  %s: paper %s, ours %.3g %s. %s\n", row.Metric, paper, row.Ours, row.Unit, row.Note)
				}
			}
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text.String() {
		t.Errorf("the tables differ from %s: look at what -update changes", golden)
	}
}
