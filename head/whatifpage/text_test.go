package whatifpage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster/wire/api"
)

func history() *api.WhatIf {
	return &api.WhatIf{Next: 3600, Periods: []api.WhatIfPeriod{
		{Name: "day", MadeAt: 1, Policy: "easy", Policies: []api.WhatIfPolicy{{Policy: "easy", InForce: true}, {Policy: "fcfs"}, {Policy: "rgpu"}}, Notes: []string{"held jobs: 3"}},
		{Name: "week", Running: true, Progress: 0.25},
	}}
}

func TestChoose(t *testing.T) {
	w := history()
	Choose(w, "day", []string{"rgpu"})
	if len(w.Periods) != 1 || w.Periods[0].Name != "day" {
		t.Fatalf("got %+v", w)
	}
	if got := w.Periods[0].Policies; len(got) != 2 || got[0].Policy != "easy" || got[1].Policy != "rgpu" {
		t.Errorf("got %+v", got)
	}
	w = history()
	if Choose(w, "", nil); len(w.Periods) != 2 || len(w.Periods[0].Policies) != 3 {
		t.Errorf("got %+v", w)
	}
}

func TestWrite(t *testing.T) {
	var out strings.Builder
	var told []string
	text := Text{Zone: time.UTC, Tell: func(s string) { told = append(told, s) }}
	if err := text.Write(&out, history()); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "Last day") || strings.Contains(got, "Last week") {
		t.Errorf("got %s", got)
	}
	want := []string{
		"note: last day: held jobs: 3", "note: the last week is being simulated anew, 25.0 % done",
		"note: the last week has not been simulated yet: it will be at 1970-01-01 01:00, or now with --now",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	told = nil
	if err := text.Write(&out, &api.WhatIf{Periods: []api.WhatIfPeriod{{Name: "day", Error: "no memory"}, {Name: "week"}}}); err != nil {
		t.Fatal(err)
	}
	want = []string{"the last day could not be simulated: no memory", "note: the last week has not been simulated yet: an administrator can have that done (--now)"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
