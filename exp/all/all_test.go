package all

import (
	"slices"
	"testing"
)

func TestEveryExperimentIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Experiments {
		if e.Name == "" || e.Title == "" || e.Summary == "" || e.Runs < 1 || e.Run == nil || seen[e.Name] {
			t.Errorf("experiment %q: it needs a name of its own, a title, a summary, a number of runs and a function", e.Name)
		}
		seen[e.Name] = true
	}
}

// Two experiments that have a flag of the same name must accept the same values: the help shows it
// once.
func TestFlagsAgree(t *testing.T) {
	values := map[string][]string{}
	for _, e := range Experiments {
		for _, f := range e.Flags {
			if f.Name == "" || f.Summary == "" {
				t.Errorf("%s: a flag needs a name and a summary: %+v", e.Name, f)
			}
			if known, twice := values[f.Name]; twice && !slices.Equal(known, f.Values) {
				t.Errorf("--%s: %s takes %v, another experiment %v", f.Name, e.Name, f.Values, known)
			}
			values[f.Name] = f.Values
		}
	}
}
