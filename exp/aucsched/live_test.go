package aucsched

import (
	"context"
	"errors"
	"strings"
	"testing"

	"muster/exp"
	"muster/exp/live"
	"muster/internal/misuse"
	"muster/slurm/emulate/emulatetest"
)

// The whole experiment in small: a real Slurm of 8 nodes with each of the three schedulers, the
// simulator beside it, and every table.
func TestLive(t *testing.T) {
	emulatetest.Need(t, nil)
	told := int64(0)
	r, err := Experiment.Run(t.Context(), exp.Options{Seed: 1, Flags: map[string]string{"live": exp.On, "versions": "V.1", "nodes": "8", "hours": "0.02", "speed": "100"},
		Progress: func(done, total int64) {
			if done < told || done > total {
				t.Errorf("%d of %d jobs have ended, after %d", done, total, told)
			}
			told = done
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if r.Partial != "" || r.Page == nil || told == 0 {
		t.Errorf("partial %q, %d jobs were told of", r.Partial, told)
	}
	rows := map[string]exp.Row{}
	for _, row := range r.Rows {
		rows[row.Metric] = row
	}
	for _, m := range []string{"slurm", "auction", "mosaic"} {
		if u := rows["live_V.1_"+m+"_utilization_pct"].Ours; u <= 0 || u > 100 {
			t.Errorf("%s: utilisation %v", m, u)
		}
		if f := rows["live_V.1_"+m+"_fragmentation"].Ours; f < 1 {
			t.Errorf("%s: fragmentation %v", m, f)
		}
		if _, ok := rows["error_V.1_"+m+"_runtime_h"]; !ok {
			t.Errorf("%s: no error of the prediction", m)
		}
		if m != "slurm" && rows["wrong_nodes_V.1_"+m].Ours != 0 {
			t.Errorf("%s: jobs on wrong nodes", m)
		}
	}
}

// An interrupt keeps the runs that are complete and names the others; before any is, it is an error.
func TestLiveInterrupted(t *testing.T) {
	l, err := newLiveLab(exp.Options{Seed: 3, Flags: map[string]string{"live": exp.On, "versions": "V.1"}})
	if err != nil {
		t.Fatal(err)
	}
	l.found[trial{"V.1", "slurm"}] = []measured{fake(60, 1, 2, 2, 3)}
	if r := l.result([]string{"V.1 with mosaic, seed 3"}); r.Check() != nil || r.Partial == "" {
		t.Errorf("%v, partial %q", r.Check(), r.Partial)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := runLive(ctx, exp.Options{Seed: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// fake is a run with these columns.
func fake(utilization, wait, fragmentation, slowdown, spread float64) measured {
	n := numbers{utilization: utilization, runtime: 1, wait: wait, fragmentation: fragmentation, slowdown: slowdown, spread: spread}
	return measured{real: n, plain: n, charged: n, out: &live.Outcome{Jobs: make([]live.Ended, 10)}}
}

// Statements are judged by the runs and by the paper's own rows.
func TestLiveClaims(t *testing.T) {
	l, err := newLiveLab(exp.Options{Seed: 1, Flags: map[string]string{"versions": "V.1,V.3"}})
	if err != nil {
		t.Fatal(err)
	}
	l.found[trial{"V.1", "slurm"}] = []measured{fake(65, 1.0, 2, 20, 3)}
	l.found[trial{"V.1", "auction"}] = []measured{fake(66, 1.14, 1.9, 25, 2)}
	l.found[trial{"V.1", "mosaic"}] = []measured{fake(70, 0.9, 1, 21, 1)}
	want := map[string]exp.Verdict{
		"utilization": exp.Confirmed, "slowdown": exp.Direction, "wait": exp.Confirmed, "spread": exp.Confirmed, "fragmentation": exp.Refuted,
		"mosaic_utilization": exp.Confirmed, "mosaic_wait": exp.Confirmed, "mosaic_slowdown": exp.Refuted, "mosaic_fragmentation": exp.Confirmed, "mosaic_spread": exp.Confirmed,
	}
	for _, s := range liveStatements {
		if v, because := l.judge(&s, "V.1"); v != want[s.id] {
			t.Errorf("%s is %s (%s), want %s", s.id, v, because, want[s.id])
		}
		if v, _ := l.judge(&s, "V.3"); v != exp.Unknown {
			t.Errorf("%s is %s without any run", s.id, v)
		}
	}
	for _, row := range l.claimRows() {
		if strings.Contains(row.Metric, "V.3") {
			t.Errorf("a row of what was not measured: %+v", row)
		}
	}
}

func TestLiveUsage(t *testing.T) {
	for _, flags := range []map[string]string{
		{"speed": "2"}, {"full": exp.On}, {"live": exp.On, "table": "5"}, {"live": exp.On, "speed": "none"}, {"live": exp.On, "nodes": "2"}, {"live": exp.On, "slurm": "19.05"},
	} {
		if _, err := Experiment.Run(t.Context(), exp.Options{Flags: flags}); !misuse.Is(err) {
			t.Errorf("%v: %v", flags, err)
		}
	}
}
