// Package exptest has what the tests of all experiments ask of their results: that they are whole, can
// be shown, and are the same with any number of workers. It knows no experiment.
package exptest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"muster/exp"
)

// Shown checks a result as Page does, and returns everything that users see of it: the JSON, the page
// and the tables as text.
func Shown(t testing.TB, r *exp.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		t.Fatal(err)
	}
	b.WriteString(Page(t, r))
	for _, table := range r.Tables {
		if err := table.WriteText(&b); err != nil {
			t.Error(err)
		}
	}
	return b.String()
}

// Page checks that a result is whole, and returns its page.
func Page(t testing.TB, r *exp.Result) string {
	t.Helper()
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	var b strings.Builder
	if err := r.Page.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// SameWithWorkers runs an experiment with each number of workers, and fails the test unless users see
// the same of all results. It returns the first result.
func SameWithWorkers(t testing.TB, run func(workers int) (*exp.Result, error), workers ...int) *exp.Result {
	t.Helper()
	var first *exp.Result
	shown := ""
	for _, n := range workers {
		r, err := run(n)
		if err != nil {
			t.Fatal(err)
		}
		now := Shown(t, r)
		switch {
		case first == nil:
			first, shown = r, now
		case now != shown:
			t.Errorf("%d workers find something else than %d", n, workers[0])
		}
	}
	return first
}

// Row returns the row of a metric.
func Row(t testing.TB, r *exp.Result, metric string) exp.Row {
	t.Helper()
	i := slices.IndexFunc(r.Rows, func(row exp.Row) bool { return row.Metric == metric })
	if i < 0 {
		t.Fatalf("there is no row %s", metric)
	}
	return r.Rows[i]
}
