package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/cmd/muster/jobs"
	"muster/head/daemon"
	"muster/node/gateway"
	"muster/policy/catalog"
	"muster/wire/agent"
	"muster/wire/client"
	"muster/wire/dial"
	"muster/wire/trust"
)

// realHead is a head daemon, and what its users need.
type realHead struct {
	socket, address string
	certs           string // the authority's folder
	state           string
}

// startRealHead runs a head in this process, at a socket and at a port.
func startRealHead(t *testing.T) *realHead {
	t.Helper()
	r := &realHead{socket: "unix:@muster-test-real-head-" + rand.Text(), certs: t.TempDir()}
	authority, _, err := gateway.OpenAuthority(r.certs, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := authority.Head([]string{"localhost", "127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"alice", "bob", "carol"} {
		if _, err := authority.User(user, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := authority.Node([]string{"n1"}, 1); err != nil {
		t.Fatal(err)
	}
	config, err := trust.Load(filepath.Join(folder, gateway.FileHead), filepath.Join(folder, gateway.FileHeadKey), filepath.Join(folder, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Default()
	cfg.Listen, cfg.Socket, cfg.State = "127.0.0.1:0", strings.TrimPrefix(r.socket, "unix:"), t.TempDir()
	cfg.Core.Admins = []string{"alice"}
	r.state = cfg.State
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan daemon.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, cfg, daemon.Options{
			TLS: config, Policy: catalog.New, Version: "test", Now: time.Now, Log: slog.New(slog.DiscardHandler), Simulate: jobs.HeadSimulator, Ready: func(a daemon.Addresses) { ready <- a },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-ready:
		r.address = a.Listen
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return r
}

// as runs a command as a user whom a certificate names, and returns its status and
// what it wrote.
func (r *realHead) as(t *testing.T, user, stdin string, args ...string) (int, string, string) {
	t.Helper()
	t.Setenv("MUSTER_HEAD", r.address)
	t.Setenv("MUSTER_TLS_DIR", filepath.Join(r.certs, "user-"+user))
	var stdout, stderr bytes.Buffer
	status := run(args, strings.NewReader(stdin), &stdout, &stderr, os.Getenv)
	return status, stdout.String(), stderr.String()
}

// must is as for what must go well, and match.
func (r *realHead) must(t *testing.T, user, want string, args ...string) string {
	t.Helper()
	status, out, errs := r.as(t, user, "", args...)
	if status != 0 || !regexp.MustCompile("(?m)"+want).MatchString(out) {
		t.Fatalf("muster %s: status %d\n%s%s\nwant a line %s", strings.Join(args, " "), status, out, errs, want)
	}
	return out
}

// refused is as for what must be refused at once.
func (r *realHead) refused(t *testing.T, user, want string, args ...string) {
	t.Helper()
	t.Setenv("MUSTER_HEAD", r.address)
	t.Setenv("MUSTER_TLS_DIR", filepath.Join(r.certs, "user-"+user))
	var stdout, stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(args, strings.NewReader(""), &stdout, &stderr, os.Getenv) }()
	select {
	case status := <-ended:
		if status != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("muster %s: status %d, %s", strings.Join(args, " "), status, &stderr)
		}
	case <-time.After(4 * time.Minute):
		t.Fatalf("muster %s was not refused", strings.Join(args, " "))
	}
}

// TestRealHead has the commands ask a head itself, over TLS.
func TestRealHead(t *testing.T) {
	r := startRealHead(t)
	script := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#MUSTER -t 5\necho hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.must(t, "bob", `^NODE +STATE`, "nodes")
	node := startFakeAgent(t, r)

	r.must(t, "bob", `^n1 +IDLE +0/4 +0/8G +0 +- +- +0 +-$`, "nodes")
	r.must(t, "bob", `^Submitted batch job 1$`, "submit", "-n2", "--mem=1G", script, "x")
	node.await(t, "1.1.0")
	r.must(t, "bob", `^1 +\S+ +job.sh +bob +R +0:0\d +1 +n1$`, "queue")
	r.must(t, "bob", `^1$`, "queue", "--me", "-h", "-o", "%i")
	r.must(t, "bob", `^on +n1: 2 cores, 1 GiB`, "job", "1")
	r.must(t, "bob", `^the output$`, "logs", "1")
	status, out, errs := r.as(t, "bob", "some input", "exec", "1", "-w", "n1", "--", "cat", "-n")
	if status != 3 || out != "cat -n: some input" || errs != "errors\n" {
		t.Errorf("exec: status %d, %q, %q", status, out, errs)
	}

	// A command, an array that waits, and what can be done to them.
	r.must(t, "bob", `^2$`, "submit", "--parsable", "-n4", "-J", "big", "--", "./a.out")
	r.must(t, "bob", `^Submitted batch job 3$`, "submit", "-a", "1-3", "-d", "afterok:2", script)
	for _, job := range []string{"1", "2"} { // one that runs, and one that waits
		r.refused(t, "carol", "is bob's: only its user and administrators may do that", "attach", job)
		r.refused(t, "carol", "is bob's: only its user and administrators may do that", "logs", "-f", job)
	}
	r.must(t, "bob", `^3_\[1-3\] .*\(Dependency\)$`, "queue", "-t", "PD")
	r.must(t, "bob", `^why +\S`, "job", "2")
	r.must(t, "bob", ``, "hold", "2")
	r.must(t, "bob", `held`, "job", "2")
	r.must(t, "bob", ``, "release", "2")
	if status, _, errs := r.as(t, "bob", "", "priority", "2", "100"); status != 1 || errs == "" {
		t.Errorf("bob set a priority: %d, %s", status, errs)
	}
	r.must(t, "alice", ``, "priority", "2", "100")
	// What administrators do to nodes, and a backup.
	r.must(t, "alice", ``, "nodes", "label", "n1", "rack=r3")
	r.must(t, "bob", `^n1 .* rack=r3 `, "nodes")
	if status, _, errs := r.as(t, "alice", "", "nodes", "remove", "n1"); status != 1 || !strings.Contains(errs, "n1 is connected or has jobs") {
		t.Errorf("a node with jobs was removed: %d, %s", status, errs)
	}
	backup, elsewhere := filepath.Join(t.TempDir(), "backup.db"), t.TempDir()
	if status, _, errs := r.as(t, "alice", "", "head", "backup", backup); status != 0 || !strings.Contains(errs, "1 nodes; the next job is 6") {
		t.Errorf("backup: %d, %s", status, errs)
	}
	if status, _, errs := r.as(t, "alice", "", "head", "restore", backup, "--state", r.state, "--force"); status != 1 || !strings.Contains(errs, "another head has") {
		t.Errorf("restored under a head that runs: %d, %s", status, errs)
	}
	if status, _, errs := r.as(t, "alice", "", "head", "restore", backup, "--state", elsewhere); status != 0 || !strings.Contains(errs, "restored: ") {
		t.Errorf("restore: %d, %s", status, errs)
	}
	if status, _, errs := r.as(t, "bob", "", "head", "backup", backup); status != 1 || !strings.Contains(errs, "only administrators") {
		t.Errorf("bob made a backup: %d, %s", status, errs)
	}
	if status, _, errs := r.as(t, "bob", "", "drain", "n1", "--reason", "x"); status != 1 || errs == "" {
		t.Errorf("bob drained a node: %d, %s", status, errs)
	}
	r.must(t, "alice", ``, "drain", "n1", "--reason", "new memory")
	r.must(t, "alice", `^n1 +DRAINING .* new memory$`, "nodes")
	r.must(t, "alice", ``, "resume", "n1")
	r.must(t, "bob", ``, "cancel", "3_2")
	r.must(t, "bob", ``, "cancel", "-n", "big,job.sh")
	node.await(t, "stop 1.1.0")
	if status, _, _ := r.as(t, "bob", "", "cancel", "77"); status != 1 {
		t.Errorf("a job that is not there was cancelled: %d", status)
	}

	// It ends; the history has it, as a log.
	if status, _, errs := r.as(t, "bob", "", "attach", "1"); status == 0 || !strings.Contains(errs, "CANCELLED") {
		t.Errorf("attach: status %d, %s", status, errs)
	}
	if status, _, errs := r.as(t, "bob", "", "submit", "--wait", "-n4", "--", "./short"); status != 7 {
		t.Errorf("a job that exits with 7: status %d, %s", status, errs)
	}
	log := r.must(t, "alice", `^1\|bob\|`, "history", "-P")
	var stdout, stderr bytes.Buffer
	if run([]string{"workload", "describe", "-"}, strings.NewReader(log), &stdout, &stderr, os.Getenv) != 0 {
		t.Errorf("%s\n%s", log, &stderr)
	}
	r.must(t, "alice", `^easy +error of the simulation `, "whatif", "--now", "--period", "day")
	r.must(t, "bob", `^priced-fit +simulated `, "whatif")
	if status, _, errs := r.as(t, "bob", "", "whatif", "--now"); status != 1 || !strings.Contains(errs, "only administrators") {
		t.Errorf("bob has the head simulate: %d, %s", status, errs)
	}
}

// fakeAgent is an agent whose jobs are words.
type fakeAgent struct {
	config dial.Config
	mu     sync.Mutex
	conn   net.Conn
	events chan string
}

// startFakeAgent greets as node n1, with 4 cores and 8 GiB.
func startFakeAgent(t *testing.T, r *realHead) *fakeAgent {
	t.Helper()
	config, err := client.LoadTLS(asUser(t, filepath.Join(r.certs, "node-n1")))
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{config: dial.Config{Head: r.address, TLS: config}, events: make(chan string, 64)}
	if a.conn, err = dial.DialAgent(context.Background(), a.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.conn.Close() })
	a.say(t, agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "i", Cores: 4, Memory: 8 << 30})
	if m, err := agent.ReadToAgent(a.conn); err != nil || m.Kind() != "welcome" {
		t.Fatalf("%+v, %v", m, err)
	}
	go a.serve(t)
	return a
}

// asUser makes a folder in which a node's certificate has the names of a user's.
func asUser(t *testing.T, folder string) string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{gateway.FileNode: client.FileUser, gateway.FileNodeKey: client.FileUserKey, client.FileCA: client.FileCA} {
		text, err := os.ReadFile(filepath.Join(folder, from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (a *fakeAgent) say(t *testing.T, m agent.ToHead) {
	text, err := agent.Encode(nil, m)
	if err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.conn.Write(text)
}

// await waits until the agent was told something.
func (a *fakeAgent) await(t *testing.T, what string) {
	t.Helper()
	late := time.After(4 * time.Minute)
	for {
		select {
		case said := <-a.events:
			if said == what {
				return
			}
		case <-late:
			t.Fatalf("the agent was not told %s", what)
		}
	}
}

func (a *fakeAgent) serve(t *testing.T) {
	for {
		m, err := agent.ReadToAgent(a.conn)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case agent.Ping:
			a.say(t, agent.Pong{})
		case agent.Start:
			a.say(t, agent.Report{Task: m.Task, State: agent.Running})
			if len(m.Spec.Arguments) > 0 && m.Spec.Arguments[0] == "./short" {
				a.say(t, agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.Exited, Exit: 7}})
			}
			a.events <- m.Task.String()
		case agent.Stop:
			a.say(t, agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.Stopped, Signal: 15}})
			a.events <- "stop " + m.Task.String()
		case agent.Open:
			go a.open(t, m)
		}
	}
}

// open is a stream: what was written, or a command that writes back what it reads.
func (a *fakeAgent) open(t *testing.T, m agent.Open) {
	conn, err := dial.DialStream(context.Background(), a.config, m.Stream)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if m.Exec == nil {
		_, _ = conn.Write(agent.AppendOutcome(agent.AppendFrame(nil, agent.FrameOutput, []byte("the output\n")), agent.Outcome{}))
		return
	}
	out := []byte(strings.Join(m.Exec.Arguments, " ") + ": ")
	buffer := make([]byte, agent.MaxFrame)
	for {
		_, text, err := agent.ReadFrame(conn, buffer)
		if err != nil {
			t.Errorf("reading the input: %v", err)
			return
		}
		if len(text) == 0 {
			break
		}
		out = append(out, text...)
	}
	frames := agent.AppendFrame(agent.AppendFrame(nil, agent.FrameOutput, out), agent.FrameError, []byte("errors\n"))
	_, _ = conn.Write(agent.AppendOutcome(frames, agent.Outcome{Exit: 3}))
}
