package rgpu

import (
	"context"
	"strings"
	"testing"

	"muster/exp"
	"muster/exp/exptest"
	"muster/policy"
	"muster/policy/catalog"
)

// standIn has a policy of no account, for tests of what is done with the runs.
func standIn(t *testing.T, o exp.Options) *lab {
	t.Helper()
	l, err := newLab(o)
	if err != nil {
		t.Fatal(err)
	}
	l.policies = func(string) (policy.Policy, error) { return catalog.New("easy") }
	return l
}

// All parts together give a result that can be shown, the same with any number of workers.
func TestEveryPart(t *testing.T) {
	o := exp.Options{Seed: 1, Runs: 1}
	if testing.Short() {
		o.Figures = []string{"workloads", "figures", "table-v"}
	}
	r := exptest.SameWithWorkers(t, func(workers int) (*exp.Result, error) {
		o.Workers = workers
		return standIn(t, o).make(t.Context())
	}, 1, 2)
	papers := map[string]int{}
	for _, row := range r.Rows {
		if row.Paper != nil {
			papers[row.Part]++
		}
	}
	if papers[sharesTitle] != len(readings)*3*(8+8+6+4) || papers[workloadsTitle] != 3*5 {
		t.Errorf("numbers of the paper: %v", papers)
	}
}

// Any choice of parts gives a result that can be shown.
func TestEveryChoiceCanBeShown(t *testing.T) {
	for set := 1; set < 1<<len(parts); set++ {
		var names []string
		for i, p := range parts {
			if set>>i&1 == 1 {
				names = append(names, p.Name)
			}
		}
		l := standIn(t, exp.Options{Seed: 1, Runs: 1, Figures: names})
		chosen := exp.Wanted(l.options, parts, partName)
		for _, p := range chosen {
			l.Want(p.Wants(l)...)
		}
		for _, s := range l.Wanted {
			l.Found[s] = []outcome{{seconds: 1, perMinute: 1, wait: 1, run: 1, allocated: make([]float64, 8), counts: make([]int, len(applications))}}
		}
		if err := simulation.Report(l, chosen, nil, "").Check(); err != nil {
			t.Errorf("%v: %v", names, err)
		}
	}
}

// What is done when the pictures are interrupted is not lost.
func TestInterruptedPictures(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 1, Figures: []string{"figures"}})
	ended := 0
	l.policies = func(string) (policy.Policy, error) {
		if ended++; ended > len(wantFigures(l)) { // those of the pictures
			cancel()
		}
		return catalog.New("easy")
	}
	r, err := l.make(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(r.Partial, "pictures") || l.Found[twelve] == nil {
		t.Errorf("missing: %q", r.Partial)
	}
	exptest.Page(t, r)
}

// The exclusive mode is shown beside the others on 8, 6 and 4 GPUs, without the paper's numbers,
// which are for shared GPUs.
func TestExclusiveIsShown(t *testing.T) {
	r, err := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 2, Figures: []string{"figures"}}).make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, row := range r.Rows {
		if strings.Contains(row.Metric, "_exclusive_") {
			count++
			if row.Paper != nil {
				t.Errorf("%s: the paper has no number", row.Metric)
			}
		}
	}
	if want := len(workloads) * (3*3 + 1); count != want { // time, throughput and speed-up on each; and what is kept
		t.Errorf("%d rows, want %d", count, want)
	}
}

// An interrupted experiment shows what is complete, and names the rest.
func TestPartial(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 1, Figures: []string{"figures"}})
	l.options.Progress = func(done, total int64) {
		if 2*done >= total {
			cancel()
		}
	}
	r, err := l.make(ctx)
	if err != nil {
		t.Fatal(err)
	}
	exptest.Page(t, r)
	if !strings.Contains(r.Partial, "4 GPUs") || strings.Contains(r.Partial, "8 GPUs") {
		t.Errorf("missing: %s", r.Partial)
	}
}
