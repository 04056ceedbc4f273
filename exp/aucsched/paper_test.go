package aucsched

import (
	"math"
	"testing"
)

// The transcript has every line of the paper's tables, and no other.
func TestPaperIsComplete(t *testing.T) {
	counts := map[string]int{}
	for _, p := range paper {
		counts[p.table]++
		if p.method != aucschedMethod && p.method != slurmMethod {
			t.Errorf("table %s, %s: method %q", p.table, p.version, p.method)
		}
	}
	for table, want := range map[string]int{"5": 15 * 2, "6": 15 * 2, "7": 15 * 2, "8": 14 * 2} {
		if counts[table] != want {
			t.Errorf("table %s has %d lines, want %d", table, counts[table], want)
		}
	}
	p := &plan{tables: []string{"5", "6", "7", "8"}, machines: machines}
	lines := p.lines()
	if len(lines) != len(paper) {
		t.Fatalf("we run %d lines, the paper has %d", len(lines), len(paper))
	}
	for i, ln := range lines { // in the paper's order
		if q := &paper[i]; ln.table != q.table || ln.version != q.version || ln.method != q.method {
			t.Errorf("line %d is table %s, %s, %s; the paper has table %s, %s, %s", i, ln.table, ln.version, ln.method, q.table, q.version, q.method)
		}
		if v := versionOf(ln.scenario.version); v.contiguous != paper[i].contiguous {
			t.Errorf("%s: %d %% contiguous, the paper has %d", v.name, v.contiguous, paper[i].contiguous)
		}
	}
}

// Utilisation is theoretical over real run time: where the paper's three numbers
// agree, none of them was copied wrongly. Both are rounded, and means of ratios
// are not ratios of means, so a point and a half is allowed.
func TestPaperAgreesWithItself(t *testing.T) {
	for _, p := range paper {
		if p.table == "6" && p.version == "I.1" {
			continue // the paper's slip
		}
		if got := 100 * p.theoretical / p.runtime; math.Abs(got-p.utilization) > 1.5 {
			t.Errorf("table %s, %s, %s: %.2f h of %.2f h are %.1f %%, not %.0f %%", p.table, p.version, p.method, p.theoretical, p.runtime, got, p.utilization)
		}
		if p.contiguous == 100 && (p.fragmentation != 1 || p.fragmentationSTD != 0 || p.spread != 1 || p.spreadSTD != 0) {
			t.Errorf("table %s, %s, %s: all jobs are contiguous, yet %+v", p.table, p.version, p.method, p.numbers)
		}
		if p.version == "V.2" && p.table == "8" && p.method == aucschedMethod {
			continue // the paper's slip: 3.00
		}
		if p.slowdown < 15 || p.slowdown > 50 {
			t.Errorf("table %s, %s, %s: slowdown %v", p.table, p.version, p.method, p.slowdown)
		}
	}
}

// The slips are kept as they are printed.
func TestPaperKeepsItsSlips(t *testing.T) {
	if p, ok := inPaper("8", "V.2", aucschedMethod); !ok || p.slowdown != 3 {
		t.Errorf("%+v", p)
	}
	if p, ok := inPaper("7", "IV.3", slurmMethod); !ok || p.wait != 1.64 {
		t.Errorf("%+v", p)
	}
	if p, ok := inPaper("6", "I.1", aucschedMethod); !ok || p.utilization != 97 || p.runtime != 4.47 {
		t.Errorf("%+v", p)
	}
	if _, ok := inPaper("5", "V.1-largest", slurmMethod); ok {
		t.Error("table 5 has no line of table 8")
	}
}
