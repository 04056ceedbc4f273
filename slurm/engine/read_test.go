package engine

import (
	"encoding/json"
	"testing"

	"muster/policy/priority"
)

func TestReadAccounting(t *testing.T) {
	shares, err := readShares("root|||\nroot|root|1.000000\n physics||\n  physics|alice|0.750000\n  physics|bob|0.250000\n")
	if err != nil || len(shares) != 3 || shares[priority.Member{Account: "physics", User: "bob"}] != 0.25 {
		t.Errorf("%v, %v", shares, err)
	}
	classes, err := readQOS("normal|0\nurgent|100\n\n")
	if err != nil || len(classes) != 2 || classes[1].Name != "urgent" || classes[1].Priority != 100 {
		t.Errorf("%v, %v", classes, err)
	}
	for _, wrong := range []string{"a|b|much\n", "a|b|2\n", "a|b|NaN\n"} {
		if _, err := readShares(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
	if _, err := readQOS("a|high\n"); err == nil {
		t.Error("a priority that is no number was taken")
	}
}

// What 22.05 says of "-N3 -n5 -c3".
func TestOldJobsAreMended(t *testing.T) {
	var d jobDocument
	if err := json.Unmarshal([]byte(`{"job_id":6,"cpus_per_task":null,"max_nodes":3,"node_count":4,"cpus":15,"tasks":5,"job_state":"PENDING"}`), &d); err != nil {
		t.Fatal(err)
	}
	if j := d.job(nil); j.MinNodes != 3 || j.CPUsPerTask != 3 {
		t.Errorf("%d nodes, %d processors a task", j.MinNodes, j.CPUsPerTask)
	}
}
