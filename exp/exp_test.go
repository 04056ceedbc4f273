package exp

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"testing"
)

func TestOver(t *testing.T) {
	r := Over("part", "metric", "s", []float64{3, 1, 8}).Against(2).Noting("%d seeds", 3)
	if r.Ours != 4 || r.Low != 1 || r.High != 8 || *r.Paper != 2 || r.Note != "3 seeds" {
		t.Errorf("got %+v", r)
	}
	if ratio, ok := r.Ratio(); !ok || ratio != 2 {
		t.Errorf("ratio %v %v", ratio, ok)
	}
}

func TestSeeds(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []uint64
	}{
		{Options{Seed: 1}, []uint64{1, 2, 3}},
		{Options{Seed: 7, Runs: 2}, []uint64{7, 8}},
	} {
		if got := c.o.Seeds(3); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.o, got, c.want)
		}
	}
}

// Scripts rely on the names of the JSON fields. paper is null where the paper has no number, and a
// single seed has no interval.
func TestJSON(t *testing.T) {
	got, err := json.Marshal(Result{Name: "x", Rows: []Row{Over("p", "m", "s", []float64{1}), Over("p", "n", "%", []float64{2, 2}).AgainstRange(1, 3)}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"x","rows":[{"part":"p","metric":"m","paper":null,"ours":1,"low":1,"high":1,"unit":"s"},` +
		`{"part":"p","metric":"n","paper":1,"paper_high":3,"ours":2,"low":2,"high":2,"ci95":0,"unit":"%"}],"notes":null}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTable(t *testing.T) {
	rows := []Row{
		Over("one", "a", "s", []float64{1, 3}).Against(4),
		Over("one", "b", "s", []float64{1}),
		Over("one", "c", "%", []float64{-20}).AgainstRange(-30, -15),
		Over("one", "d", "%", []float64{-40}).AgainstRange(-30, -15),
		Over("one", "e", "%", []float64{0}).AgainstRange(-30, -15),
		Over("one", "f", "%", []float64{5}).Against(0),
		Over("two", "g", "s", []float64{1}),
	}
	var b bytes.Buffer
	if err := Table(rows, "one").WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `one
metric       paper  ours  ±95 %      spread  unit   ratio
------  ----------  ----  -----  ----------  ----  ------
a                4     2     13      1 to 3  s       0.50
b                -     1      -      1 to 1  s          -
c       -30 to -15   -20      -  -20 to -20  %     within
d       -30 to -15   -40      -  -40 to -40  %      below
e       -30 to -15     0      -      0 to 0  %      above
f                0     5      -      5 to 5  %          -
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if got := Parts(rows); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("parts %v", got)
	}
}

func TestCheck(t *testing.T) {
	good := Over("p", "m", "s", []float64{1})
	for _, c := range []struct {
		name string
		rows []Row
		ok   bool
	}{
		{"good", []Row{good}, true},
		{"none", nil, false},
		{"twice", []Row{good, good}, false},
		{"no name", []Row{Over("p", "", "s", []float64{1})}, false},
		{"no values", []Row{Over("p", "m", "s", nil)}, false},
		{"not a number", []Row{Over("p", "m", "s", []float64{math.NaN()})}, false},
		{"endless", []Row{Over("p", "m", "s", []float64{math.Inf(1)})}, false},
	} {
		if err := (&Result{Rows: c.rows}).Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestFlags(t *testing.T) {
	f := Flag{Name: "machine", Values: []string{"S", "M", "L"}}
	for value, ok := range map[string]bool{"S": true, "L,S": true, "": false, "X": false, "S,X": false, "S,": false} {
		if err := f.Check(value); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
	if err := (&Flag{Name: "free"}).Check("anything"); err != nil {
		t.Error(err)
	}
	o := Options{Flags: map[string]string{"machine": "L,S"}, Figures: []string{"one"}}
	if got := o.Chosen("machine", f.Values); !slices.Equal(got, []string{"S", "L"}) {
		t.Errorf("chosen: %v", got)
	}
	if got := o.Chosen("table", []string{"5"}); !slices.Equal(got, []string{"5"}) {
		t.Errorf("not given: %v", got)
	}
	if !o.Wants("one") || o.Wants("two") || !(Options{}).Wants("two") {
		t.Error("figures")
	}
}
