package engine

import (
	"encoding/json"
	"testing"
	"time"

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

// Slurm has values for "not set" and "infinite" in each width of its numbers. None of them is a
// number, and a wider number may be as large as the values of a narrower one.
func TestValuesThatAreNone(t *testing.T) {
	for _, c := range []struct {
		text                               string
		cpusPerTask, tasksPerNode, minCPUs int
		tasks                              int
		memory                             int64
		limit                              time.Duration
	}{
		{`{"cpus_per_task": 65534, "tasks_per_node": 65535, "minimum_cpus_per_node": "65534", "tasks": 65534, "memory_per_node": 65535, "time_limit": 65534}`,
			0, 0, 0, 65534, 65535 << 20, 65534 * time.Minute},
		{`{"cpus_per_task": {"set": true, "infinite": false, "number": 65534}, "tasks_per_node": {"set": false, "number": 0}, "tasks": 4294967294, "memory_per_node": 18446744073709551614, "time_limit": 4294967295}`,
			0, 0, 0, 0, 0, 0},
		{`{"cpus_per_task": 65533, "tasks_per_node": {"set": true, "infinite": false, "number": 3}, "minimum_cpus_per_node": 4294967294, "memory_per_node": {"set": true, "infinite": true, "number": 7}, "time_limit": null}`,
			65533, 3, 0, 0, 0, 0},
	} {
		var d jobDocument
		if err := json.Unmarshal([]byte(c.text), &d); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		j := d.job(nil)
		if j.CPUsPerTask != c.cpusPerTask || j.TasksPerNode != c.tasksPerNode || j.MinCPUsPerNode != c.minCPUs || j.Tasks != c.tasks || j.MemoryPerNode != c.memory || j.TimeLimit != c.limit {
			t.Errorf("%s: %+v", c.text, j)
		}
	}
}
