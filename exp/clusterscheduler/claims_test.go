package clusterscheduler

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"muster/exp"
)

var update = flag.Bool("update", false, "write testdata/tables.txt anew: read the difference before you commit it")

// recorded is what `muster reproduce clusterscheduler --runs 3 --save FILE` measured.
const recorded = "testdata/measured.json"

func recordedResult(t *testing.T) (*measured, *exp.Result) {
	t.Helper()
	m, err := study().Frame().Load(recorded)
	if err != nil {
		t.Fatal(err)
	}
	r, err := study().Result(m)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// What the recorded measurements say of the paper's statements is what docs/papers.md says.
func TestClaims(t *testing.T) {
	m, _ := recordedResult(t)
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, c := range claims() {
		v, because := c.Verdict(m)
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
	m, _ := recordedResult(t)
	figures := len(study().Figures()) - 1 // Fig. 4-5 with GPUs bound late is not among them
	if len(m.Seeds) < 3 || len(m.Figures) != figures || m.Missing != "" {
		t.Errorf("%d runs of %d figures, missing %q", len(m.Seeds), len(m.Figures), m.Missing)
	}
	if busy := m.Disturbed(tooLate); busy > 0.2 {
		t.Errorf("%.0f %% of the runs were disturbed", 100*busy)
	}
}

// The tables of the recorded measurements, with what the simulator says of the same runs today.
func TestTablesOfTheRecord(t *testing.T) {
	const golden = "testdata/tables.txt"
	_, r := recordedResult(t)
	var text strings.Builder
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
