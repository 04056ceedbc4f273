package daemon

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/wire/agent"
	"muster/wire/api"
)

// A running head lets a class preempt another and keeps to a window; what it has
// recorded of that, and a snapshot, are decided again.
func TestRecordingOfARunningHead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	const spec = "easy:preempt=suspend:qos=low<high"
	c := start(t, func(cfg *Config, _ *Options) {
		now := time.Duration(time.Now().UnixNano())
		cfg.Policy, cfg.Record = spec, file
		cfg.Core.Zone = time.FixedZone("", 3600)
		cfg.Core.Windows = []head.Window{{Name: "course", From: now + 48*time.Hour, Until: now + 72*time.Hour, Users: []string{"bob"}}}
	})
	alice, bob := c.user("alice"), c.user("bob")
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	low := alice.submit(api.Submission{Options: []string{"-n8", "-t60", "--qos=low"}, Arguments: []string{"true"}, Directory: "/"})
	first := heard[agent.Start](n1)
	n1.say(agent.Report{Task: first.Task, State: agent.Running})
	waitFor(t, alice, low, api.Running)
	bob.submit(api.Submission{Options: []string{"-n8", "-t60", "--qos=high"}, Arguments: []string{"true"}, Directory: "/"})
	if s := heard[agent.Suspend](n1); s.Task != first.Task {
		t.Fatalf("suspended is %v", s.Task)
	}
	n1.say(agent.Report{Task: first.Task, State: agent.Suspended})
	second := heard[agent.Start](n1)
	n1.say(agent.Report{Task: second.Task, State: agent.Running})
	waitFor(t, alice, low, api.Suspended)

	// Without a time limit it would run into the window; bob names it.
	long := alice.submit(api.Submission{Options: []string{"-n1", "-t4-0"}, Arguments: []string{"true"}, Directory: "/"})
	named := bob.submit(api.Submission{Options: []string{"-n1", "-t60", "--reservation=course"}, Arguments: []string{"true"}, Directory: "/"})
	instant := func(d time.Duration) string {
		return time.Unix(0, int64(d)).In(c.cfg.Core.Zone).Format("2006-01-02T15:04:05")
	}
	begins, ends := instant(c.cfg.Core.Windows[0].From), instant(c.cfg.Core.Windows[0].Until)
	for id, why := range map[uint64]string{
		long:  "by its time limit it would run into course, from " + begins + " to " + ends + ", and too few nodes are left without it",
		named: "reservation course begins at " + begins,
	} {
		var j api.Job
		alice.must("GET", fmt.Sprintf("/v1/jobs/%d", id), nil, &j)
		if j.State != api.Pending || j.Why != why {
			t.Errorf("job %d is %s: %q, not %q", id, j.State, j.Why, why)
		}
	}

	if status, _ := alice.do("GET", "/v1/snapshot", nil, nil); status != http.StatusForbidden {
		t.Errorf("anybody may have a snapshot: %d", status)
	}
	snapshot := c.user("root").bytes("/v1/snapshot")
	if r, err := history.Replay(bytes.NewReader(snapshot), catalog.New); err != nil || r.Difference != nil || r.Steps != 1 || r.Header.Policy != spec {
		t.Errorf("the snapshot played: %+v, %v\n%s", r, err, snapshot)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := history.Replay(bytes.NewReader(text), catalog.New)
	if err != nil || r.Difference != nil || r.Starts != 2 || r.Cut || r.Header.Muster != "test" {
		t.Errorf("the recording played: %+v, %v\n%s", r, err, text)
	}
	for _, word := range []string{`"do":"set-windows"`, `"how":"suspend"`, `"do":"suspended"`, `"reservation":"course"`} {
		if !strings.Contains(string(text), word) {
			t.Errorf("the recording has no %s:\n%s", word, text)
		}
	}
}

// bytes reads an answer that is no document.
func (a *asker) bytes(path string) []byte {
	a.t.Helper()
	response, err := a.http.Get(a.base + path)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		a.t.Fatalf("%s: %s, %v: %s", path, response.Status, err, text)
	}
	return text
}

// At its limit a recording ends with a whole line, and the head continues.
func TestRecordingsLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	c := start(t, func(cfg *Config, _ *Options) { cfg.Record, cfg.RecordLimit = file, 2000 })
	alice := c.user("alice")
	for range 20 {
		alice.submit(command("true"))
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(text) > 2000 || len(text) < 1000 {
		t.Fatalf("%d bytes were recorded: %v", len(text), err)
	}
	if r, err := history.Replay(bytes.NewReader(text), catalog.New); err != nil || r.Difference != nil || r.Cut {
		t.Errorf("played: %+v, %v", r, err)
	}
}
