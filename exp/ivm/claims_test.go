package ivm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"muster/exp"
)

// recorded is what `muster reproduce ivm --runs 3 --save FILE` measured.
const recorded = "testdata/measured.json"

func recordedRuns(t *testing.T) *measured {
	t.Helper()
	m, err := study().Frame().Load(recorded)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// docs/papers.md states the verdicts of the recorded measurements on the paper's statements, and
// has a cause for each that differs from the paper.
func TestClaims(t *testing.T) {
	m := recordedRuns(t)
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Join(strings.Fields(string(docs)), " ") // lines may end anywhere
	for _, c := range claims() {
		v, because := c.Verdict(m)
		if v == exp.Unknown {
			t.Errorf("%s: the recorded measurements do not tell", c.ID)
			continue
		}
		if v != exp.Confirmed && c.Cause == "" {
			t.Errorf("%s is %s (%s), and no cause is said", c.ID, v, because)
		}
		if line := fmt.Sprintf("| %s | %s | %s | %s |\n", v, c.Where, c.Says, because); !strings.Contains(string(docs), line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
		if v != exp.Confirmed && !strings.Contains(plain, c.Cause) {
			t.Errorf("docs/papers.md does not say why %s is %s: %s", c.ID, v, c.Cause)
		}
	}
}

// The record has all figures, and makes a result that can be shown.
func TestTheRecordIsComplete(t *testing.T) {
	m := recordedRuns(t)
	if len(m.Figures) != len(study().Figures()) || m.Missing != "" {
		t.Errorf("figures %v, missing %q", m.Figures, m.Missing)
	}
	r, err := study().Result(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}
