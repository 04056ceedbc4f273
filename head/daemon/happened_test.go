package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"muster/wire/agent"
	"muster/wire/api"
)

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestDeclined: what a node cannot start, and why, is in the head's log and in the job.
func TestDeclined(t *testing.T) {
	var log lockedLog
	c := start(t, func(_ *Config, o *Options) {
		o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(&log, testWriter{t}), nil))
	})
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	u := c.user("alice")
	id := u.submit(command("true"))
	s := heard[agent.Start](n1)
	n1.say(agent.Report{Task: s.Task, State: agent.Ended, End: &agent.End{Cause: agent.NotBegun, Signal: agent.NoFiles, Reason: "the job's output /full/out: no space left on device"}})
	heard[agent.Done](n1)
	var j api.Job
	u.must("GET", fmt.Sprintf("/v1/jobs/%d", id), nil, &j)
	if j.State != api.Failed || j.Reason != api.JobLaunchFailure || j.Signal != agent.NoFiles || !strings.Contains(j.Why, "no space left") || j.ExitStatus() != 1 {
		t.Errorf("the job is %s (%s) %d:%d %q, exit status %d", j.State, j.Reason, j.ExitCode, j.Signal, j.Why, j.ExitStatus())
	}
	if text := log.String(); !strings.Contains(text, `msg="a node did not start a task" node=n1 job=1 attempt=1 part=0 reason="the job's output /full/out: no space left on device"`) {
		t.Errorf("the log does not say it:\n%s", text)
	}
}
