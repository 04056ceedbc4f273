package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/wire/agent"
	"muster/wire/api"
)

// file is the file of a policy that a test changes.
type file struct {
	mu   sync.Mutex
	text string
	err  error
}

func (f *file) set(text string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text, f.err = text, err
}

func (f *file) read(string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.text), f.err
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

const (
	startAll   = "def decide(view, plan):\n  for job in view.fitting():\n    plan.start(job)\n"
	startNone  = "def decide(view, plan):\n  pass\n"
	startWrong = "def decide(view, plan):\n  for job in view.queue():\n    plan.start(jobb)\n"
	startFails = "def decide(view, plan):\n  for job in view.queue():\n    plan.start(job.id)\n"
)

// A head takes over a changed script without a restart, keeps the present one if the new one is
// wrong, and reports both where people look.
func TestScriptThatChanges(t *testing.T) {
	script, look, log := &file{text: startNone}, make(chan time.Time), &lines{}
	c := start(t, func(cfg *Config, o *Options) {
		cfg.Policy = "site.star"
		o.ReadScript, o.LookAtScript = script.read, look
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	local := c.user("")
	again := func(text string, err error) {
		script.set(text, err)
		look <- time.Time{}
		look <- time.Time{} // accepted only when the daemon has finished with the first
	}
	problems := func() string {
		var info api.Cluster
		local.must("GET", "/v1/cluster", nil, &info)
		if info.Policy != "site.star" {
			t.Errorf("the policy is %q", info.Policy)
		}
		return strings.Join(info.Problems, "\n")
	}
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	one := local.submit(command("true"))
	if j := waitFor(t, local, one, api.Pending); !strings.Contains(j.Why, "site.star has not started it") {
		t.Errorf("it waits because %q", j.Why)
	}
	again(startWrong, nil)
	if p := problems(); !strings.Contains(p, "site.star:3:16: undefined: jobb") || !strings.Contains(p, "stays in force") {
		t.Errorf("the problems are %q", p)
	}
	if !log.has("line=3 column=16") {
		t.Error("the place is not in the log")
	}
	again(startAll, nil)
	if started := heard[agent.Start](n1); started.Task.Job != one {
		t.Errorf("started %v", started.Task)
	}
	if p := problems(); p != "" {
		t.Errorf("the problems are %q", p)
	}
	again(startFails, nil)
	two := local.submit(command("true"))
	if started := heard[agent.Start](n1); started.Task.Job != two {
		t.Errorf("the fallback started %v", started.Task)
	}
	if p := problems(); !strings.Contains(p, "site.star:3:15: start: got string, want a job") {
		t.Errorf("the problems are %q", p)
	}
	if !log.has("the policy failed: its fallback decides") {
		t.Error("the failure is not in the log")
	}
	again("", errors.New("it is gone"))
	if p := problems(); !strings.Contains(p, "it is gone") {
		t.Errorf("the problems are %q", p)
	}
	again(startAll, nil)
	if p := problems(); p != "" {
		t.Errorf("in the end the problems are %q", p)
	}
}

// A head continues while the file of its policy cannot be read to its end, such as a pipe that was
// put in its place.
func TestScriptThatIsAPipe(t *testing.T) {
	look, reads, end := make(chan time.Time), make(chan struct{}), make(chan struct{})
	first := true
	c := start(t, func(cfg *Config, o *Options) {
		cfg.Policy = "site.star"
		o.LookAtScript = look
		o.ReadScript = func(string) ([]byte, error) {
			if !first {
				close(reads)
				<-end
			}
			first = false
			return []byte(startFails), nil
		}
	})
	defer close(end)
	local := c.user("")
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	look <- time.Time{}
	<-reads
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		one := local.submit(command("true"))
		if started := heard[agent.Start](n1); started.Task.Job != one { // by the fallback, whose trouble is told
			t.Errorf("started %v", started.Task)
		}
		var info api.Cluster
		local.must("GET", "/v1/cluster", nil, &info)
		if !strings.Contains(strings.Join(info.Problems, ""), "site.star:3:15") {
			t.Errorf("the problems are %q", info.Problems)
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("the head waits for a file")
	}
}

// A head does not start with a script that is wrong.
func TestScriptThatIsWrongFromTheStart(t *testing.T) {
	cfg := Default()
	cfg.State, cfg.Policy, cfg.Socket, cfg.Listen = t.TempDir(), "site.star", "@muster-head-test-wrong-script", ""
	script := &file{text: startWrong}
	err := Run(t.Context(), cfg, Options{ReadScript: script.read, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "site.star:3:16: undefined: jobb") {
		t.Errorf("it says %v", err)
	}
}
