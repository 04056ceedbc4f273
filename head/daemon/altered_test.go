package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/head/store"
	"muster/wire/agent"
	"muster/wire/api"
)

// Altered records are named as a problem and not served. One of what a job runs fails that job, and
// the node and other jobs go on.
func TestAlteredRecordsAreNotServed(t *testing.T) {
	state := t.TempDir()
	cfg := Default()
	cfg.State = state
	c := startIn(t, cfg, nil)
	alice := c.user("alice")
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	over := alice.submit(api.Submission{Options: []string{"--comment=ofAnEndedJob"}, Arguments: []string{"true"}, Directory: "/"})
	n1.say(agent.Report{Task: heard[agent.Start](n1).Task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}})
	waitFor(t, alice, over, api.Completed)
	held := alice.submit(api.Submission{Options: []string{"--hold"}, Arguments: []string{"true"}, Directory: "/", Environment: []string{"A=ofAHeldJob"}})
	other := alice.submit(api.Submission{Options: []string{"--hold"}, Arguments: []string{"true"}, Directory: "/"})
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(state, store.FileName)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"ofAnEndedJob", "ofAHeldJob"} {
		text = bytes.ReplaceAll(text, []byte(word), []byte(strings.ToUpper(word)))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c = startIn(t, cfg, nil)
	alice = c.user("alice")
	for _, path := range []string{fmt.Sprint("/v1/jobs/", over), "/v1/history"} {
		if status, problem := alice.do("GET", path, nil, nil); status != http.StatusInternalServerError || !strings.Contains(problem, fmt.Sprintf("the record ended of job %d is not as it was written", over)) || !strings.Contains(problem, "put a backup in its place") {
			t.Errorf("%s: %d %s", path, status, problem)
		}
	}
	for deadline := time.Now().Add(4 * time.Minute); ; { // it is looked for beside the work
		var info api.Cluster
		alice.must("GET", "/v1/cluster", nil, &info)
		if all := strings.Join(info.Problems, "\n"); strings.Contains(all, "2 altered records in "+file) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the problems are %q", all)
		}
	}
	n1 = c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	alice.must("POST", fmt.Sprintf("/v1/jobs/%d/release", held), nil, nil)
	if j := waitFor(t, alice, held, api.Failed); !strings.Contains(j.Why, "what the job runs is damaged or missing on the head's disk") {
		t.Errorf("it failed: %q", j.Why)
	}
	alice.must("POST", fmt.Sprintf("/v1/jobs/%d/release", other), nil, nil)
	if s := heard[agent.Start](n1); s.Task.Job != other {
		t.Errorf("started is %v", s.Task)
	}
}
