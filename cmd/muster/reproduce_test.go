package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"muster/exp"
	"muster/exp/all"
	"muster/internal/misuse"
	"muster/report"
)

// An experiment that is interrupted shows what it has; the status is 130,
// and the reason is told.
func TestPartialResultIsShown(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	partly := exp.Experiment{
		Name: "partly", Title: "Partly", Summary: "s", Runs: 1,
		Run: func(ctx context.Context, o exp.Options) (*exp.Result, error) {
			interrupt()
			if o.Flags["how"] == "nothing" {
				return nil, ctx.Err()
			}
			return &exp.Result{
				Name: "partly", Partial: "the other half", Rows: []exp.Row{exp.Over("p", "half_done", "", []float64{1})},
				Page: &report.Page{Title: "a page of it"},
			}, nil
		},
		Flags: []exp.Flag{{Name: "how", Summary: "how"}},
	}
	defer func(before []exp.Experiment) { all.Experiments = before }(all.Experiments)
	all.Experiments = append(all.Experiments[:len(all.Experiments):len(all.Experiments)], partly)

	page := filepath.Join(t.TempDir(), "page.html")
	for _, c := range []struct {
		args, stdout []string
		err          string
	}{
		{[]string{"--html", page}, []string{"Partly", "half_done"}, "missing: the other half"},
		{[]string{"--json"}, []string{`"partial": "the other half"`, `"metric": "half_done"`}, "missing: the other half"},
		{[]string{"--how", "nothing"}, nil, "interrupted: nothing was written"},
	} {
		var out, told bytes.Buffer
		root := newRoot(&out, &told, func(string) string { return "" })
		root.SetArgs(append([]string{"reproduce", "partly"}, c.args...))
		err := root.ExecuteContext(ctx)
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %v", c.args, err)
		}
		if misuse.Is(err) {
			t.Errorf("%v: an interrupt is no wrong usage", c.args)
		}
		for _, want := range c.stdout {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, out.String())
			}
		}
		if c.stdout == nil && out.Len() > 0 {
			t.Errorf("%v: printed\n%s", c.args, out.String())
		}
	}
}
