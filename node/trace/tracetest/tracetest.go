// Package tracetest checks timelines against the rules of their format, for the tests of all
// packages that write some.
package tracetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/internal/strictjson"
)

// Event is an event as a reader of the format sees it.
type Event struct {
	Name *string         `json:"name"`
	Ph   string          `json:"ph"`
	Cat  string          `json:"cat"`
	Ts   *json.Number    `json:"ts"`
	Dur  *json.Number    `json:"dur"`
	Pid  *int            `json:"pid"`
	Tid  *int            `json:"tid"`
	ID   int             `json:"id"`
	Bp   string          `json:"bp"`
	Args json.RawMessage `json:"args"`
}

// nanoseconds parses a time without rounding it.
func nanoseconds(t testing.TB, n *json.Number) int64 {
	t.Helper()
	if n == nil {
		t.Fatal("an event without its time")
	}
	whole, part, ok := strings.Cut(n.String(), ".")
	var w, p int64
	if _, err := fmt.Sscanf(whole+" "+part, "%d %d", &w, &p); err != nil || !ok || len(part) != 3 {
		t.Fatalf("%q is no time in microseconds", n)
	}
	if strings.HasPrefix(whole, "-") {
		return w*1000 - p
	}
	return w*1000 + p
}

type place struct{ pid, tid int }

// Check checks a timeline against the Trace Event Format of Chrome, which Perfetto reads: complete
// events have times, events of a row nest, flows begin and end exactly once and inside a slice, and
// rows have names. It returns the complete events.
func Check(t testing.TB, document []byte) []Event {
	t.Helper()
	var d struct {
		Unit   string            `json:"displayTimeUnit"`
		About  map[string]string `json:"otherData"`
		Events []Event           `json:"traceEvents"`
	}
	if err := strictjson.Decode(document, &d); err != nil {
		t.Fatalf("not well-formed: %v", err)
	}
	if d.Unit != "ns" && d.Unit != "ms" {
		t.Errorf("displayTimeUnit %q", d.Unit)
	}
	named, begun, ended := map[place]bool{}, map[int]Event{}, map[int]Event{}
	rows := map[place][][2]int64{}
	var complete []Event
	for _, e := range d.Events {
		if e.Name == nil || *e.Name == "" || e.Pid == nil || e.Tid == nil {
			t.Fatalf("%+v lacks its name or its row", e)
		}
		at := place{*e.Pid, *e.Tid}
		switch e.Ph {
		case "M":
			if !slices.Contains([]string{"process_name", "process_sort_index", "thread_name", "thread_sort_index"}, *e.Name) || len(e.Args) == 0 {
				t.Errorf("%+v is no metadata", e)
			}
			named[at] = named[at] || *e.Name == "thread_name"
		case "X":
			begin := nanoseconds(t, e.Ts)
			took := nanoseconds(t, e.Dur)
			if took < 0 || begin < 0 {
				t.Errorf("%s takes %d from %d", *e.Name, took, begin)
			}
			rows[at] = append(rows[at], [2]int64{begin, begin + took})
			complete = append(complete, e)
		case "C":
			if nanoseconds(t, e.Ts) < 0 || len(e.Args) == 0 {
				t.Errorf("%+v counts nothing", e)
			}
		case "s":
			if _, twice := begun[e.ID]; twice || e.ID == 0 {
				t.Errorf("flow %d begins twice", e.ID)
			}
			begun[e.ID] = e
		case "f":
			if _, twice := ended[e.ID]; twice || e.Bp != "e" {
				t.Errorf("flow %d ends twice, or nowhere", e.ID)
			}
			ended[e.ID] = e
		default:
			t.Errorf("phase %q is not used here", e.Ph)
		}
	}
	checkRows(t, rows, named)
	checkFlows(t, rows, begun, ended)
	return complete
}

func checkRows(t testing.TB, rows map[place][][2]int64, named map[place]bool) {
	t.Helper()
	for at, all := range rows {
		if !named[at] {
			t.Errorf("row %v has no name", at)
		}
		slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(b[1], a[1])) })
		var open [][2]int64
		for _, s := range all {
			for len(open) > 0 && open[len(open)-1][1] <= s[0] {
				open = open[:len(open)-1]
			}
			if len(open) > 0 && s[1] > open[len(open)-1][1] {
				t.Fatalf("row %v: %v and %v overlap and do not nest", at, open[len(open)-1], s)
			}
			open = append(open, s)
		}
	}
}

func checkFlows(t testing.TB, rows map[place][][2]int64, begun, ended map[int]Event) {
	t.Helper()
	if len(begun) != len(ended) {
		t.Errorf("%d flows begin, %d end", len(begun), len(ended))
	}
	for id, from := range begun {
		to, ok := ended[id]
		if !ok || nanoseconds(t, to.Ts) < nanoseconds(t, from.Ts) {
			t.Errorf("flow %d ends before it begins, or never", id)
			continue
		}
		for _, e := range []Event{from, to} {
			at, inside := nanoseconds(t, e.Ts), false
			for _, s := range rows[place{*e.Pid, *e.Tid}] {
				inside = inside || s[0] <= at && at <= s[1]
			}
			if !inside {
				t.Errorf("flow %d is bound to no slice at %d", id, at)
			}
		}
	}
}
