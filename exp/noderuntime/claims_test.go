package noderuntime

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"muster/exp"
)

// recorded is what `muster reproduce noderuntime --runs 3 --patience 1m --save FILE` measured, before there were
// figures of two nodes; recordedCluster is of `--figure 3-12,3-13,3-21 --runs 3 --patience 90s` alone.
const (
	recorded        = "testdata/measured.json"
	recordedCluster = "testdata/cluster.json"
)

// loadRecorded is both together.
func loadRecorded(t *testing.T) *measured {
	t.Helper()
	m, err := study().Frame().Load(recorded)
	if err != nil {
		t.Fatal(err)
	}
	two, err := study().Frame().Load(recordedCluster)
	if err != nil {
		t.Fatal(err)
	}
	m.Figures = append(m.Figures, two.Figures...)
	maps.Copy(m.Outcomes, two.Outcomes)
	return m
}

// What holds of the paper's statements and what is refuted, on the recorded
// measurements, is what docs/papers.md says.
func TestClaims(t *testing.T) {
	m := loadRecorded(t)
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
		verdict := "**refuted**"
		if v == exp.Confirmed {
			verdict = "holds"
		}
		line := fmt.Sprintf("| %s | %s | %s | %s |\n", c.Where, c.Says, verdict, because)
		if lines++; !strings.Contains(string(docs), line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
	}
	// Nothing else is claimed there.
	if got := strings.Count(string(docs), " | holds | ") + strings.Count(string(docs), " | **refuted** | "); got != lines {
		t.Errorf("docs/papers.md has %d verdicts, and there are %d statements", got, lines)
	}
}

// The measurements are good enough to judge statements by: several runs of each, on a
// machine that was quiet for most of them.
func TestRecordedMeasurements(t *testing.T) {
	m := loadRecorded(t)
	if len(m.Seeds) < 3 || len(m.Figures) != len(figures()) || m.Scale != defaultScale {
		t.Errorf("%d runs of %d figures at scale %d", len(m.Seeds), len(m.Figures), m.Scale)
	}
	if busy := m.Disturbed(tooLate); busy > 0.2 {
		t.Errorf("%.0f %% of the measurements were disturbed", 100*busy)
	}
}

// The paper says that sharing uses idle time. So no speed-up, of the paper's or ours, can exceed
// what was idle. Each of ours is compared with the measured time of batch scheduling divided by the
// time that the GPUs need.
func TestOurSpeedupsAreWithinTheirBounds(t *testing.T) {
	m := loadRecorded(t)
	for _, f := range figures() {
		for _, part := range f.parts {
			for _, p := range part.measured(m) {
				bound := exp.Median(part.inIdle(m, p))
				for _, how := range part.schemes[1:] {
					if got := exp.Median(part.speedups(m, p, how)); got > bound*(1+nearly) {
						t.Errorf("%s: %.2f times as fast as batch scheduling, and its idle time leaves room for %.2f", part.name(p, how), got, bound)
					}
				}
			}
		}
	}
}
