package whatifrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/head"
	"muster/head/whatif"
	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/wire/api"
)

const childVariable = "MUSTER_WHATIFRUN_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if Serve(os.Stdin, os.Stdout, strangePolicy) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// strange is a policy that misbehaves.
type strange struct {
	policy.Policy
	how  string
	kept [][]byte
}

func strangePolicy(spec string) (policy.Policy, error) {
	how, ok := strings.CutPrefix(spec, "strange-")
	if !ok {
		return catalog.New(spec)
	}
	p, err := catalog.New("fcfs")
	return &strange{Policy: p, how: how}, err
}

func (s *strange) Step(v *policy.View, p *policy.Plan) {
	s.Policy.Step(v, p)
	switch s.how {
	case "panics":
		panic("no more")
	case "slow": // it computes, and asks for another step for ever
		for began := processorTime(); processorTime()-began < 10*time.Millisecond; {
		}
		p.Wake = v.Now() + time.Nanosecond
	case "hungry":
		for range 64 {
			s.kept = append(s.kept, make([]byte, 1<<20))
			for i := 0; i < 1<<20; i += 4096 {
				s.kept[len(s.kept)-1][i] = 1
			}
		}
		p.Wake = v.Now() + time.Nanosecond
	case "modest": // it reports the limits of the process
		nice, _ := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
		score, _ := os.ReadFile("/proc/self/oom_score_adj")
		panic(fmt.Sprintf("nice %d, oom %s", 20-nice, strings.TrimSpace(string(score))))
	}
}

func child(ctx context.Context) *exec.Cmd {
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Env = append(os.Environ(), childVariable+"=1")
	return c
}

func order(specs ...string) Order {
	o := Order{
		Header: whatif.Header{
			Name: "day", Began: 1000 * time.Second, From: 1000 * time.Second, To: 90000 * time.Second,
			Cluster: &model.Cluster{Nodes: []model.Node{{Name: "n1", Cores: 2, Memory: 1 << 30}}}, Machines: []head.Machine{{Name: "n1", Is: "up"}},
		},
		PolicyTime: 300 * time.Millisecond, Memory: 512 << 20,
	}
	for i, s := range specs {
		o.Policies = append(o.Policies, whatif.Candidate{Name: s, Spec: s, InForce: i == 0})
	}
	return o
}

func jobs(n int) Jobs {
	return func(visit func([]byte) (bool, error)) error {
		for i := range n {
			at := float64(1000 + i)
			j := api.Job{ID: uint64(i + 1), User: "alice", State: api.Completed, Options: "-n1 --time=1", Submit: at, Eligible: at, Start: at, End: at + 1, Elapsed: 1, Cores: 1, Parts: []api.Part{{Node: "n1", Cores: 1}}}
			text, err := json.Marshal(j)
			if err != nil {
				return err
			}
			if more, err := visit(text); err != nil || !more {
				return err
			}
		}
		return nil
	}
}

// A policy that takes too long, or fails, is listed with its error, and the others are tried.
func TestPoliciesThatMisbehave(t *testing.T) {
	heard := 0
	p, err := Run(context.Background(), child, order("fcfs", "strange-panics", "strange-slow", "no-such", "strange-modest", "easy"), jobs(500), func(Message) { heard++ })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", "the policy failed: no more", "not done in 300ms of the processor's time", `there is no policy "no-such"`, "nice 19, oom 1000", ""}
	for i, l := range p.Policies {
		if l.Error != want[i] && (want[i] == "" || !strings.Contains(l.Error, want[i])) || (l.Figures == nil) != (want[i] != "") {
			t.Errorf("%s: %q, want %q", l.Policy, l.Error, want[i])
		}
	}
	if len(p.Policies) != 6 || p.Jobs != 500 || heard < 6 || p.Model == nil || p.Model.StartedTogether != 1 {
		t.Errorf("%d policies, %d jobs, %d messages, %+v", len(p.Policies), p.Jobs, heard, p.Model)
	}
}

// A policy that takes all memory ends the process, and nothing else.
func TestMemoryIsBounded(t *testing.T) {
	o := order("strange-hungry")
	o.PolicyTime = time.Hour
	_, err := Run(context.Background(), child, o, jobs(10), func(Message) {})
	// The race detector words the error in its own way.
	if err == nil || !strings.Contains(err.Error(), "out of memory") && !strings.Contains(err.Error(), "failed to allocate") {
		t.Errorf("it ended with %v", err)
	}
}

// The process ends when the process that started it is gone: nothing else tells it to.
func TestProcessEndsWithItsHead(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	c := child(ctx)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	o := order("strange-slow")
	o.PolicyTime = time.Hour
	if err := feed(in, &o, jobs(10)); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := out.Read(first); err != nil { // it is working
		t.Fatal(err)
	}
	_ = in.Close()
	if err := c.Wait(); ctx.Err() != nil {
		t.Errorf("it goes on for ever: %v", err)
	}
}

// A process that cannot be started, or that sends nonsense, is an error.
func TestProcessesThatAreNone(t *testing.T) {
	folder := t.TempDir()
	for text, want := range map[string]string{
		"":                                    "cannot be started",
		"#!/bin/sh\nexit 3\n":                 "has ended (exit status 3)",
		"#!/bin/sh\necho hello\n":             "makes no sense",
		"#!/bin/sh\necho oh no >&2\nexit 1\n": "has ended (exit status 1): oh no",
	} {
		path := filepath.Join(folder, fmt.Sprint(len(text)))
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Run(context.Background(), func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, path) }, order("fcfs"), jobs(10), func(Message) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
