package daemon

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/head/store"
	"muster/wire/agent"
	"muster/wire/api"
)

// What no agent could start is refused, with the option and what to do.
func TestPoisonIsRefused(t *testing.T) {
	c := start(t, nil)
	for _, k := range []struct{ body, want string }{
		{`{"script":"#!/bin/sh\nid\n","directory":"/","options":["-a","0-2","-N","1","--exclusive","-J","x\u0000"]}`, "--job-name: it has a zero byte (NUL): remove it"},
		{`{"script":"#!/bin/sh\nid\n","directory":"/","options":["-p","x\u0000"]}`, "--partition: it has a zero byte"},
		{`{"script":"#!/bin/sh\nid\n","directory":"/","options":["--gres=rgpu:17"]}`, "--gres: it asks for 17 GPUs for the programs of a node, which can have 16"},
		{"{\"script\":\"#!/bin/sh\\nid\\n\",\"directory\":\"/\xff\"}", "the body is not valid UTF-8"},
		{"[{\"script\":\"#!/bin/sh\\nid\\n\",\"directory\":\"/\xff\"}]", "submission 0: the body is not valid UTF-8"},
	} {
		if status, problem := c.user("alice").do("POST", "/v1/jobs", k.body, nil); status != http.StatusBadRequest || !strings.Contains(problem, k.want) {
			t.Errorf("%s: %d %s", k.body, status, problem)
		}
	}
}

// poisoned makes a store as an earlier head left it, which accepted jobs that agents refuse: of four
// jobs the first has a name with a zero byte, and what the second and third run is damaged and missing.
func poisoned(t *testing.T) Config {
	t.Helper()
	cfg := Default()
	cfg.State = t.TempDir()
	c := startIn(t, cfg, nil)
	for range 4 {
		c.user("alice").submit(api.Submission{Script: "#!/bin/sh\nid\n", Directory: "/", Options: []string{"-J", "name", "--exclusive"}})
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(cfg.State)
	if err != nil {
		t.Fatal(err)
	}
	var changed []head.Record
	if err := s.Each(head.Jobs, func(r head.Record) error {
		if bytes.Equal(r.Key, head.Number(1)) {
			r.Value = bytes.Replace(r.Value, []byte("--job-name=name"), []byte(`'--job-name=x\u0000'`), 1)
			changed = append(changed, r)
		}
		return nil
	}); err != nil || len(changed) != 1 || !bytes.Contains(changed[0].Value, []byte(`\u0000`)) {
		t.Fatal(changed, err)
	}
	changed = append(changed, head.Record{Bucket: head.Bulk, Key: head.Number(2), Value: []byte("{")}, head.Record{Bucket: head.Bulk, Key: head.Number(3)})
	if err := s.Commit(changed); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A head whose store has jobs that no agent can start fails these, says why, and serves the others.
// The node stays connected.
func TestPoisonedStore(t *testing.T) {
	c := startIn(t, poisoned(t), nil)
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	started := heard[agent.Start](n1)
	if started.Task.Job != 4 {
		t.Errorf("job %v starts", started.Task)
	}
	n1.say(agent.Report{Task: started.Task, State: agent.Running})
	var list api.Jobs
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Millisecond) {
		list = api.Jobs{}
		c.user("alice").must("GET", "/v1/jobs", nil, &list)
		if slices.IndexFunc(list.Jobs, func(j api.Job) bool { return j.State == api.Pending }) < 0 || time.Now().After(deadline) {
			break
		}
	}
	for i, want := range []struct {
		state api.State
		why   string
	}{
		{api.Failed, "it cannot be started on node n1: start with name: it has a zero byte (NUL): remove it"},
		{api.Failed, "it cannot be started on node n1: what the job runs is damaged or missing on the head's disk"},
		{api.Failed, "it cannot be started on node n1: what the job runs is damaged or missing on the head's disk"},
		{api.Running, ""},
	} {
		if j := &list.Jobs[i]; j.State != want.state || !strings.HasPrefix(j.Why, want.why) {
			t.Errorf("job %d is %s: %s", j.ID, j.State, j.Why)
		}
	}
	// Others' jobs there can be cancelled, over the same connection.
	c.user("alice").must("DELETE", "/v1/jobs/4", nil, nil)
	if stop := heard[agent.Stop](n1); stop.Task != started.Task {
		t.Errorf("%+v", stop)
	}
}
