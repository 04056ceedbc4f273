package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/head"
	"muster/head/store"
	"muster/head/whatifrun"
	"muster/policy/catalog"
	"muster/wire/agent"
	"muster/wire/api"
)

const simulatorVariable = "MUSTER_HEAD_TEST_SIMULATOR"

// simulatorChild is the simulating process, or one that misbehaves.
func simulatorChild() {
	switch os.Getenv(simulatorVariable) {
	case "killed":
		fmt.Println(`{"progress":0.5}`)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "forever":
		fmt.Println(`{"progress":0.5}`)
		select {}
	}
	if whatifrun.Serve(os.Stdin, os.Stdout, catalog.New) != nil {
		os.Exit(1)
	}
}

func simulator(how string) func(context.Context) *exec.Cmd {
	return func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, "/proc/self/exe")
		c.Env = append(os.Environ(), simulatorVariable+"="+how)
		return c
	}
}

// pastState is a folder of a head with two days of jobs, and a node.
func pastState(t *testing.T, now time.Time) string {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := time.Duration(now.Add(-48 * time.Hour).UnixNano())
	records := []head.Record{
		{Bucket: head.Meta, Key: []byte("head"), Value: fmt.Appendf(nil, `{"began":%d,"next":1000}`, began)},
		{Bucket: head.Nodes, Key: []byte{0, 0, 0, 0}, Value: []byte(`{"number":0,"name":"n1","incarnation":"i-n1","cores":8,"memory":8589934592,"since":0}`)},
	}
	// A job of 8 cores and half an hour every hour, of alice and bob: nobody waits.
	for i := range uint64(47) {
		at := now.Add(-48*time.Hour + time.Duration(i)*time.Hour).Truncate(time.Second)
		user := []string{"alice", "bob"}[i%2]
		j := api.Job{
			ID: i + 1, Name: "j", User: user, State: api.Completed, Options: "-n8 --time=60", Submit: float64(at.Unix()), Eligible: float64(at.Unix()), Start: float64(at.Unix()),
			End: float64(at.Unix() + 1800), Elapsed: 1800, Nodes: []string{"n1"}, Parts: []api.Part{{Node: "n1", Cores: 8}}, NumNodes: 1, Cores: 8, Directory: "/", TimeLimit: 3600,
		}
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, head.Record{Bucket: head.Ended, Key: head.Number(j.ID), Value: text})
	}
	if err := s.Commit(records); err != nil {
		t.Fatal(err)
	}
	return dir
}

// simulated waits until no simulation is in progress.
func simulated(t *testing.T, u *asker) api.WhatIf {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // asking again, as a user does
		var w api.WhatIf
		u.must("GET", "/v1/whatif", nil, &w)
		if !w.Periods[0].Running && !w.Periods[1].Running {
			return w
		}
	}
	t.Fatal("it is still being simulated")
	return api.WhatIf{}
}

// Administrators start simulations; every user sees the results, also after a restart of the head.
func TestWhatIf(t *testing.T) {
	cfg := Default()
	cfg.State, cfg.Core.Admins = pastState(t, time.Now()), []string{"alice"}
	cfg.WhatIf.Policies = []string{"easy:depth=7", "missing.star"}
	c := startIn(t, cfg, func(_ *Config, o *Options) { o.Simulate = simulator("well") })
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	alice, bob := c.user("alice"), c.user("bob")
	var before api.WhatIf
	bob.must("GET", "/v1/whatif", nil, &before)
	if len(before.Periods) != 2 || before.Periods[0].Name != "day" || before.Periods[0].MadeAt != 0 {
		t.Errorf("at first: %+v", before)
	}
	if status, problem := bob.do("POST", "/v1/whatif", api.WhatIfWanted{}, nil); status != 403 {
		t.Errorf("another user: %d %s", status, problem)
	}
	for body, want := range map[string]string{
		`{"period":"year"}`:         "give day or week",
		`{"policies":["esay"]}`:     `did you mean "easy"?`,
		`{"policies":["/x.star"]}`:  "only those in the head's configuration",
		`{"period":"day","x":true}`: `unknown field "x"`,
	} {
		if status, problem := alice.do("POST", "/v1/whatif", body, nil); status != 400 || !strings.Contains(problem, want) {
			t.Errorf("%s: %d %s", body, status, problem)
		}
	}
	alice.must("POST", "/v1/whatif", api.WhatIfWanted{}, nil)
	w := simulated(t, bob)
	for i, jobs := range []int{23, 47} {
		p := w.Periods[i]
		if p.Error != "" || p.Jobs < jobs-1 || p.Jobs > jobs || p.MadeAt == 0 || p.Policy != "easy" || len(p.Policies) != len(catalog.Entries)+2 {
			t.Fatalf("%s: %q, %d jobs, %d policies", p.Name, p.Error, p.Jobs, len(p.Policies))
		}
		if l := p.Policies[0]; !l.InForce || l.Figures == nil || *l.Figures != p.Measured || p.Model == nil || p.Model.StartedTogether != 1 || len(l.Users) != 2 {
			t.Errorf("%s: measured %+v, and replayed %+v, %+v", p.Name, p.Measured, l.Figures, p.Model)
		}
		if l := p.Policies[len(p.Policies)-1]; l.Policy != "missing.star" || l.Error == "" || l.Figures != nil {
			t.Errorf("a file that is not there: %+v", l)
		}
		if p.Measured.CoreUse < 0.4 || p.Measured.CoreUse > 0.51 {
			t.Errorf("%s: half of the cores were used, not %v", p.Name, p.Measured.CoreUse)
		}
	}
	alice.must("POST", "/v1/whatif", api.WhatIfWanted{Period: "day", Policies: []string{"fcfs"}}, nil)
	w = simulated(t, bob)
	if l := w.Periods[0].Policies; len(l) != 2 || l[1].Policy != "fcfs" || len(w.Periods[1].Policies) < 10 {
		t.Errorf("only fcfs: %+v", l)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	var again api.WhatIf
	startIn(t, c.cfg, nil).user("bob").must("GET", "/v1/whatif", nil, &again)
	w.Next, again.Next = 0, 0
	if !reflect.DeepEqual(again, w) {
		t.Errorf("after a restart something else is known")
	}
}

// If the process is killed, only the simulation is lost, and the earlier result stays.
func TestWhatIfProcessIsKilled(t *testing.T) {
	cfg := Default()
	cfg.State = pastState(t, time.Now())
	var how atomic.Value
	how.Store("well")
	c := startIn(t, cfg, func(_ *Config, o *Options) {
		o.Simulate = func(ctx context.Context) *exec.Cmd { return simulator(how.Load().(string))(ctx) }
	})
	heard[agent.Welcome](c.greet(c.as("node", "n1"), hello("n1")))
	root := c.user("")
	root.must("POST", "/v1/whatif", api.WhatIfWanted{Period: "day", Policies: []string{"fcfs"}}, nil)
	first := simulated(t, root)
	how.Store("killed")
	root.must("POST", "/v1/whatif", api.WhatIfWanted{Period: "day", Policies: []string{"fcfs"}}, nil)
	p := simulated(t, root).Periods[0]
	if !strings.Contains(p.Error, "has ended (signal: killed)") || len(p.Policies) != 2 || p.MadeAt != first.Periods[0].MadeAt {
		t.Errorf("after a process that was killed: %+v", p)
	}
	if job := root.submit(command("true")); job == 0 {
		t.Error("the head takes no jobs any more")
	}
	how.Store("well")
	root.must("POST", "/v1/whatif", api.WhatIfWanted{Period: "day", Policies: []string{"fcfs"}}, nil)
	if p := simulated(t, root).Periods[0]; p.Error != "" {
		t.Errorf("the next one: %s", p.Error)
	}
}

// A head that ends does not wait for a simulation.
func TestHeadEndsWhileItSimulates(t *testing.T) {
	cfg := Default()
	cfg.State = pastState(t, time.Now())
	c := startIn(t, cfg, func(_ *Config, o *Options) { o.Simulate = simulator("forever") })
	root := c.user("")
	root.must("POST", "/v1/whatif", api.WhatIfWanted{}, nil)
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Millisecond) { // asking again, as a user does
		var w api.WhatIf
		if root.must("GET", "/v1/whatif", nil, &w); w.Periods[0].Progress >= 0.5 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the process says nothing")
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- c.stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(4 * time.Minute):
		t.Fatal("the head does not end")
	}
}

func TestNightAfter(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	for now, want := range map[string]string{
		"2031-05-06T02:59:00+02:00": "2031-05-06T03:00:00+02:00",
		"2031-05-06T03:00:00+02:00": "2031-05-07T03:00:00+02:00",
		"2031-12-31T12:00:00+01:00": "2032-01-01T03:00:00+01:00",
		"2031-03-29T12:00:00+01:00": "2031-03-30T03:00:00+02:00", // clocks go forward
		"2031-10-25T12:00:00+02:00": "2031-10-26T03:00:00+01:00", // clocks go back
	} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		if got := nightAfter(at, 3*time.Hour, berlin).Format(time.RFC3339); got != want {
			t.Errorf("after %s: %s, want %s", now, got, want)
		}
	}
}
