package all

import "testing"

func TestEveryExperimentIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Experiments {
		if e.Name == "" || e.Title == "" || e.Summary == "" || e.Runs < 1 || e.Run == nil || seen[e.Name] {
			t.Errorf("experiment %q: it needs a name of its own, a title, a summary, a number of runs and a function", e.Name)
		}
		seen[e.Name] = true
	}
}
