package exp

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"muster/internal/misuse"
)

func someExperiments() []Experiment {
	return []Experiment{
		{Name: "first", Title: "A first one", Summary: "It is first.", Runs: 3, Figures: []string{"1", "2"}, Flags: []Flag{{Name: "size", Summary: "how large", Values: []string{"S", "L"}}}},
		{Name: "second", Title: "A second one", Summary: "It is second.", Runs: 1},
	}
}

// What a user may get wrong about an experiment is a misuse.Error that says what to write instead.
func TestUsageOfExperiments(t *testing.T) {
	list := someExperiments()
	find := func(name string) error { _, err := Find(list, name); return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{find("frist"), "did you mean first?"},
		{find("zzzzzzzzz"), "there are first, second"},
		{list[0].CheckFigures([]string{"1", "3"}), "--figure 3: experiment first has 1, 2"},
		{list[1].CheckFigures([]string{"1"}), "experiment second is made as a whole"},
		{list[1].CheckFlag(list, "size", "S"), "--size: experiment second has no such flag: it belongs to first"},
		{list[0].CheckFlag(list, "size", "M"), "give one of S, L"},
		{find("second"), ""}, {list[0].CheckFigures([]string{"2"}), ""}, {list[0].CheckFlag(list, "size", "S,L"), ""},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (!misuse.Is(c.err) || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("got %v, want %q", c.err, c.want)
		}
	}
}

func TestExperimentsAreListed(t *testing.T) {
	text, err := json.Marshal(List(someExperiments()))
	if err != nil || bytes.Contains(text, []byte("null")) || !bytes.Contains(text, []byte(`"flags":[{"name":"size","summary":"how large","values":["S","L"]}]`)) {
		t.Errorf("%s, %v", text, err)
	}
	var b bytes.Buffer
	list := someExperiments()
	list[0].WriteHelp(&b)
	for _, want := range []string{"first: A first one\n", "3 runs unless --runs", "with --figure: 1, 2\n", "  --size  how large (S, L)\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestResultAsText(t *testing.T) {
	r := Result{Rows: []Row{Over("a part", "speed", "x", []float64{2})}, Notes: []string{strings.Repeat("long ", 30)}}
	var b bytes.Buffer
	if err := r.WriteText(&b, "A title", 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A title\n\na part\n", "speed", "\nNotes\n- long", "\n  long"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
