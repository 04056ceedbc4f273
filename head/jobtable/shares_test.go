package jobtable

import (
	"slices"
	"strings"
	"testing"

	"muster/wire/api"
)

func TestShares(t *testing.T) {
	var usage, priorities strings.Builder
	factor := 0.7071
	err := WriteUsage(&usage, []api.UsageLine{{Account: "physics", Shares: 0.5, Used: 0.25, Raw: 5400}, {Account: "physics", User: "alice", Factor: &factor}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = WritePriorities(&priorities, []api.JobPriority{
		{Job: 17, User: "alice", Priority: 120, Factors: map[string]int64{"age": 20, "fairshare": 100}}, {Job: 18, User: "bob", Account: "b", Factors: map[string]int64{"size": 3}},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{usage.String(), "ACCOUNT USER SHARES USED FACTOR HOURS\nphysics - 0.5000 0.2500 - 1.5\nphysics alice 0.0000 0.0000 0.7071 0.0"},
		{priorities.String(), "JOBID USER ACCOUNT PRIORITY AGE FAIRSHARE SIZE\n17 alice - 120 20 100 0\n18 bob b 0 0 0 3"},
	} {
		var lines []string
		for line := range strings.Lines(c.got) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if want := strings.Split(c.want, "\n"); !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
	}
}
