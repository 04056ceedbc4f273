package exptest

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"muster/exp"
	"muster/report"
)

// made is a result with one number.
func made(number float64) *exp.Result {
	return &exp.Result{
		Name: "made",
		Rows: []exp.Row{{Part: "all", Metric: "jobs", Ours: number}},
		Page: &report.Page{Title: "made"},
	}
}

func TestSameWithWorkers(t *testing.T) {
	asked := 0
	r := SameWithWorkers(t, func(workers int) (*exp.Result, error) {
		asked += workers
		return made(7), nil
	}, 1, 3)
	if asked != 4 || Row(t, r, "jobs").Ours != 7 || !strings.Contains(Page(t, r), "made") || !strings.Contains(Shown(t, r), `"jobs"`) {
		t.Errorf("%d workers in sum, %+v", asked, r)
	}
}

// recorder is a test that notes that it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatal(...any)          { r.failed = true; runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }

// A check that finds nothing proves nothing: here each must find its fault.
func TestFaultsAreFound(t *testing.T) {
	for name, check := range map[string]func(testing.TB){
		"results that differ": func(t testing.TB) {
			SameWithWorkers(t, func(n int) (*exp.Result, error) { return made(float64(n)), nil }, 1, 2)
		},
		"an experiment that fails": func(t testing.TB) {
			SameWithWorkers(t, func(int) (*exp.Result, error) { return nil, errors.New("no cluster") }, 1)
		},
		"no such row":           func(t testing.TB) { Row(t, made(1), "nodes") },
		"a result without rows": func(t testing.TB) { Page(t, &exp.Result{Page: &report.Page{}}) },
	} {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			check(r)
		}()
		if <-done; !r.failed {
			t.Errorf("%s: the test passes", name)
		}
	}
}
