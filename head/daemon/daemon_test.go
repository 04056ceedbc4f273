package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/internal/await"
	"muster/model"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
	wire "muster/wire/sessions"
)

func me(t testing.TB) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// A job goes from its user to an agent and back, over real sockets, and is still
// known after a restart.
func TestAJobsLife(t *testing.T) {
	c := start(t, nil)
	alice, local := c.user("alice"), c.user("")
	var info api.Cluster
	local.must("GET", "/v1/cluster", nil, &info)
	if info.User != me(t) || info.Name != "muster" || info.Version != "test" {
		t.Errorf("the cluster is %+v", info)
	}
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	if w := heard[agent.Welcome](n1); w.Cluster != "muster" || w.Silence != c.cfg.Core.Silence {
		t.Errorf("welcomed with %+v", w)
	}
	one := alice.submit(api.Submission{Options: []string{"-n2", "--job-name=first"}, Script: "#!/bin/sh\nhostname\n", Directory: "/home/alice", Environment: []string{"A=1"}})
	started := heard[agent.Start](n1)
	if started.Spec.Script != "#!/bin/sh\nhostname\n" || !slices.Contains(started.Spec.Environment, "A=1") || started.Spec.User != "alice" || started.Task.Job != one {
		t.Errorf("started %+v", started)
	}
	n1.say(agent.Report{Task: started.Task, State: agent.Running})
	waitFor(t, alice, one, api.Running)
	n1.say(agent.Report{Task: started.Task, State: agent.Ended, End: &agent.End{Cause: agent.Exited, Exit: 3}})
	if d := heard[agent.Done](n1); d.Task != started.Task {
		t.Errorf("done is %v", d)
	}
	if j := waitFor(t, alice, one, api.Failed); j.ExitCode != 3 || j.Name != "first" {
		t.Errorf("it ended as %+v", j)
	}
	var history api.Jobs
	alice.must("GET", "/v1/history?user=alice", nil, &history)
	if len(history.Jobs) != 1 || history.Jobs[0].ID != one {
		t.Errorf("the history is %+v", history)
	}
	two := alice.submit(command("true"))
	again := heard[agent.Start](n1)
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	c = startIn(t, c.cfg, nil)
	alice = c.user("alice")
	n1 = c.greet(c.as("node", "n1"), hello("n1"))
	if repeated := heard[agent.Start](n1); repeated.Task != again.Task || repeated.Task.Job != two {
		t.Errorf("after a restart %v is started, and was %v", repeated.Task, again.Task)
	}
	var ended api.Job
	alice.must("GET", fmt.Sprintf("/v1/jobs/%d", one), nil, &ended)
	if ended.State != api.Failed {
		t.Errorf("the ended job is %+v", ended)
	}
}

// waitFor polls a job until it is in a state.
func waitFor(t testing.TB, a *asker, job uint64, state api.State) (j api.Job) {
	t.Helper()
	for range 2000 {
		a.must("GET", fmt.Sprintf("/v1/jobs/%d", job), nil, &j)
		if j.State == state {
			return j
		}
		time.Sleep(time.Millisecond) // polling, as a user does
	}
	t.Fatalf("job %d is %s, and never was %s", job, j.State, state)
	return j
}

// What users may not do is refused, and what others keep private is not shown.
func TestOwnJobsAndOthers(t *testing.T) {
	c := start(t, func(cfg *Config, _ *Options) { cfg.Core.Admins = []string{"boss"} })
	alice, bob, boss := c.user("alice"), c.user("bob"), c.user("boss")
	job := fmt.Sprint("/v1/jobs/", alice.submit(command("train", "--token=secret")))
	for _, c := range []struct {
		who    *asker
		status int
	}{{bob, http.StatusForbidden}, {boss, http.StatusOK}, {alice, http.StatusOK}} {
		if status, problem := c.who.do("POST", job+"/hold", nil, nil); status != c.status {
			t.Errorf("holding: %d %s", status, problem)
		}
	}
	show := func(who *asker) string {
		var one json.RawMessage
		var list json.RawMessage
		who.must("GET", job, nil, &one)
		who.must("GET", "/v1/jobs", nil, &list)
		return string(one) + string(list)
	}
	if text := show(bob); strings.Contains(text, "secret") || !strings.Contains(text, "alice") {
		t.Errorf("bob sees %s", text)
	}
	for _, who := range []*asker{alice, boss} {
		if text := show(who); strings.Count(text, "secret") != 2 {
			t.Errorf("alice or the administrator sees %s", text)
		}
	}
	if status, _ := bob.do("DELETE", job, nil, nil); status != http.StatusForbidden {
		t.Errorf("cancelling: %d", status)
	}
	if status, _ := bob.do("POST", "/v1/jobs", api.Submission{Arguments: []string{"a"}, Directory: "/", User: "alice"}, nil); status != http.StatusForbidden {
		t.Errorf("submitting in another's name: %d", status)
	}
	for _, path := range []string{"/v1/nodes/n1/resume", "/v1/nodes/n1/remove"} {
		if status, _ := bob.do("POST", path, nil, nil); status != http.StatusForbidden {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := bob.do("GET", "/v1/backup", nil, nil); status != http.StatusForbidden {
		t.Errorf("backup: %d", status)
	}
	alice.must("DELETE", job, nil, nil)
	waitFor(t, alice, 1, api.Cancelled)
}

// Each error in a request is answered with a reason and the status of its kind.
func TestRequestsAreStrict(t *testing.T) {
	c := start(t, nil)
	u := c.user("")
	u.submit(command("true"))
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 404, "there is nothing at /"},
		{"GET", "/v2/jobs", "", 404, "there is nothing"},
		{"PUT", "/v1/jobs", "{}", 405, "use GET, POST"},
		{"GET", "/v1/jobs/1/hold", "", 405, "use POST"},
		{"GET", "/v1/jobs?usr=a", "", 400, "is ?user= meant?"},
		{"GET", "/v1/jobs?user=a&user=b", "", 400, "given twice"},
		{"GET", "/v1/jobs?state=PENDIN", "", 400, "states as PENDING,RUNNING"},
		{"GET", "/v1/jobs?user=%zz", "", 400, "the query"},
		{"GET", "/v1/jobs", "{}", 400, "nothing is expected in the body"},
		{"GET", "/v1/partitions?name=gpu", "", 400, "?name="},
		{"GET", "/v1/jobs/x", "", 400, "is no job: write 17"},
		{"GET", "/v1/jobs/0", "", 400, "is no job"},
		{"GET", "/v1/jobs/01", "", 400, "is no job"},
		{"GET", "/v1/jobs/1_", "", 400, "is no job"},
		{"GET", "/v1/jobs/99", "", 404, "there is no job 99"},
		{"DELETE", "/v1/jobs/1?signal=NONE", "", 400, "give a signal"},
		{"POST", "/v1/jobs/99/hold", "", 404, ""},
		{"POST", "/v1/jobs/1/priority", "{}", 400, "give priority or nice"},
		{"POST", "/v1/jobs/1/limit", `{}`, 400, "give devices"},
		{"POST", "/v1/jobs/1/limit", `{"devices":1,"x":2}`, 400, `unknown field "x"`},
		{"POST", "/v1/jobs", "", 400, "not a JSON object"},
		{"POST", "/v1/jobs", `{"arguments":["a"],"directory":"/","user":"a\u0000b"}`, 400, `user: "a\x00b" cannot be a user's name`},
		{"POST", "/v1/jobs", `{"Arguments":["a"],"directory":"/"}`, 400, `unknown field "Arguments": write "arguments"`},
		{"POST", "/v1/jobs", `{"arguments":["a"],"directory":"/","user":"bob","user":""}`, 400, `the name "user" is given twice`},
		{"POST", "/v1/jobs", `{"arguments":["a"],"directory":"/","colour":1}`, 400, `unknown field "colour"`},
		{"POST", "/v1/jobs", `{"arguments":["a"],"directory":"/"} {}`, 400, "something follows"},
		{"POST", "/v1/jobs", `[]`, 400, "an empty list"},
		{"POST", "/v1/jobs", `[{"arguments":["a"],"directory":"/"},{"arguments":7}]`, 400, "submission 1"},
		{"POST", "/v1/jobs", `[{"arguments":["a"],"directory":"/"}] x`, 400, "something follows"},
		{"POST", "/v1/jobs", `{"directory":"/"}`, 400, "nothing to run"},
		{"POST", "/v1/jobs", `{"arguments":["a"],"directory":"/","options":["--gress=gpu:1"]}`, 400, "--gress"},
		{"POST", "/v1/jobs", `{"arguments":["` + strings.Repeat("a", api.MaxSubmission) + `"],"directory":"/"}`, 413, "a submission may have"},
		{"POST", "/v1/jobs", `{"arguments":["` + strings.Repeat("<", 3<<20) + `"],"directory":"/"}`, 413, "a submission may have"},
		{"POST", "/v1/jobs", strings.Repeat(" ", maxSubmitBody+1), 413, "the request has more than"},
		{"POST", "/v1/jobs", "[" + strings.Repeat("{},", api.MaxBatch) + "{}]", 413, "more than 10000 submissions"},
		{"POST", "/v1/jobs/1/priority", `{"nice":` + strings.Repeat(" ", maxBody) + `1}`, 413, "the request has more than"},
		{"POST", "/v1/nodes/n1/drain", `{}`, 400, "give a reason"},
		{"POST", "/v1/nodes/n1/remove", `{"forced":true}`, 400, `unknown field "forced"`},
		{"POST", "/v1/nodes/n1/rename", `{"node":""}`, 404, "there is no node"},
		{"POST", "/v1/nodes/n1/label", `{}`, 400, "give a label"},
		{"GET", "/v1/nodes/n1", "", 404, "there is no node n1"},
		{"GET", "/v1/history?since=yesterday", "", 400, "seconds since 1970"},
		{"GET", "/v1/history?limit=-1", "", 400, "a whole number"},
		{"GET", "/v1/history?after=77", "", 404, "no job of that number has ended"},
		{"GET", "/v1/jobs/1/output?stream=in", "", 400, "give output or error"},
		{"GET", "/v1/jobs/1/output", "", 409, "no node yet"},
		{"POST", "/v1/jobs/1/exec", "", 400, "nothing to run"},
		{"POST", "/v1/jobs/1/exec?arg=a&terminal=80", "", 400, "rows and columns as 24x80"},
		{"POST", "/v1/jobs/1/keep", "", 409, "is no allocation"},
		{"POST", "/v1/jobs/1/finish", `{}`, 400, "an exit status from 0 to 255"},
		{"POST", "/v1/jobs", `{"script":"#!/bin/sh","allocation":true,"directory":"/"}`, 400, "an allocation runs no script"},
		{"GET", "/v1/whatif?period=day", "", 400, "period"},
		{"POST", "/v1/whatif", "", 400, "not a JSON object"},
		{"POST", "/v1/whatif", `{"period":"year"}`, 503, "cannot simulate"},
		{"GET", "/v1/agent", "", 426, "Upgrade: muster-agent"},
		{"GET", "/v1/agent/streams/x", "", 404, "no stream of this name"},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		status, problem := u.do(c.method, c.path, body, nil)
		if status != c.status || !strings.Contains(problem, c.want) {
			t.Errorf("%s %s %.60s: got %d %s, want %d %s", c.method, c.path, c.body, status, problem, c.status, c.want)
		}
	}
	var jobs api.Jobs
	u.must("GET", "/v1/jobs", nil, &jobs)
	if len(jobs.Jobs) != 1 {
		t.Errorf("%d jobs are there", len(jobs.Jobs))
	}
}

// Each submission of a list is answered; keys make repeating harmless, also across a restart.
func TestBatchesAndKeys(t *testing.T) {
	c := start(t, nil)
	u := c.user("alice")
	list := []api.Submission{command("a"), {Directory: "/"}, command("b")}
	list[0].Key, list[2].Key = "k0", "k2"
	var first, second, third []api.Submitted
	u.must("POST", "/v1/jobs", list, &first)
	u.must("POST", "/v1/jobs", list, &second)
	if len(first) != 3 || first[0].Job == 0 || first[1].Error == "" || first[2].Job != first[0].Job+1 || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("answered with %+v, then with %+v", first, second)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	c = startIn(t, c.cfg, nil)
	c.user("alice").must("POST", "/v1/jobs", list, &third)
	if fmt.Sprint(first) != fmt.Sprint(third) {
		t.Errorf("answered with %+v, after a restart with %+v", first, third)
	}
	if other := c.user("bob").submit(list[0]); other == first[0].Job {
		t.Error("another's key counted")
	}
}

// Subscribers are told of changes as they happen; one that does not read is cut off.
func TestEvents(t *testing.T) {
	c := start(t, nil)
	u := c.user("alice")
	answer, err := u.http.Get(u.base + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	in := bufio.NewScanner(answer.Body)
	if in.Scan(); in.Text() != ": from now on" {
		t.Fatalf("it begins with %q", in.Text())
	}
	job := u.submit(command("true"))
	for in.Scan() {
		text, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		var change api.Change
		if err := json.Unmarshal([]byte(text), &change); err != nil || change.Job == nil || change.Job.ID != job {
			t.Errorf("%s: %v", text, err)
		}
		break
	}
	l := newListeners()
	one, err := l.add("bob")
	if err != nil {
		t.Fatal(err)
	}
	l.publish(make([]api.Change, maxChanges))
	select {
	case <-one.cut:
		t.Error("cut off too early")
	default:
	}
	l.publish(make([]api.Change, 1))
	<-one.cut
	if l.count() != 0 || len(l.users) != 0 {
		t.Error("it still counts")
	}
}

// Output and commands are passed between a user and the job's agent.
func TestStreams(t *testing.T) {
	c := start(t, nil)
	alice := c.user("alice")
	as := c.as("node", "n1")
	n1 := c.greet(as, hello("n1"))
	job := alice.submit(command("cat"))
	started := heard[agent.Start](n1)
	// Until the node has said that the job began, there is nothing to read. Who follows it waits.
	if status, text := alice.do("GET", fmt.Sprintf("/v1/jobs/%d/output", job), nil, nil); status != http.StatusConflict || !strings.Contains(text, "is starting on n1, and has written nothing yet") {
		t.Errorf("output of a job that starts: %d %s", status, text)
	}
	n1.say(agent.Report{Task: started.Task, State: agent.Running})
	waitFor(t, alice, job, api.Running)

	ctx := context.Background()
	type outcome struct {
		status int
		text   string
	}
	outputs := make(chan outcome)
	read := func(query string) {
		answer, err := alice.http.Get(fmt.Sprintf("%s/v1/jobs/%d/output%s", alice.base, job, query))
		if err != nil {
			outputs <- outcome{0, err.Error()}
			return
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		outputs <- outcome{answer.StatusCode, string(text) + fmt.Sprint(err)}
	}
	for _, c := range []struct {
		frames []byte
		status int
		want   string
	}{
		{agent.AppendOutcome(agent.AppendFrame(agent.AppendFrame(nil, agent.FrameOutput, []byte("one ")), agent.FrameOutput, []byte("two")), agent.Outcome{}), 200, "one two<nil>"},
		{agent.AppendOutcome(nil, agent.Outcome{}), 200, "<nil>"},
		{agent.AppendOutcome(nil, agent.Outcome{Reason: "no such file"}), 404, "no such file"},
		{agent.AppendFrame(nil, agent.FrameOutput, []byte("half")), 200, "halfunexpected EOF"},
		{[]byte("nonsense"), 502, "broke off"},
	} {
		go read("?stream=error&offset=7&follow=true")
		open := heard[agent.Open](n1)
		if open.File != "error" || open.Offset != 7 || !open.Follow || open.Task != started.Task {
			t.Errorf("asked for %+v", open)
		}
		conn, err := dial.DialStream(ctx, as, open.Stream)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(c.frames); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if got := <-outputs; got.status != c.status || !strings.Contains(got.text, c.want) {
			t.Errorf("got %+v, want %d %s", got, c.status, c.want)
		}
		var refused *dial.Refusal
		if _, err := dial.DialStream(ctx, as, open.Stream); !errors.As(err, &refused) || refused.Status != 404 {
			t.Errorf("a stream's name was good twice: %v", err)
		}
	}
	if status, _ := c.user("bob").do("GET", fmt.Sprintf("/v1/jobs/%d/output", job), nil, nil); status != http.StatusForbidden {
		t.Errorf("bob reads alice's output: %d", status)
	}
	// A command: both ways, and another node cannot have its stream.
	type dialled struct {
		conn io.ReadWriteCloser
		err  error
	}
	execs := make(chan dialled)
	go func() {
		conn, err := dial.Upgrade(ctx, c.as("user", "alice"), "POST", fmt.Sprintf("/v1/jobs/%d/exec?arg=cat&arg=-u&env=A=1", job), dial.ProtocolStream)
		execs <- dialled{conn, err}
	}()
	open := heard[agent.Open](n1)
	if open.Exec == nil || fmt.Sprint(open.Exec.Arguments, open.Exec.Environment) != "[cat -u] [A=1]" {
		t.Errorf("asked for %+v", open)
	}
	if _, err := dial.DialStream(ctx, c.as("node", "n2"), open.Stream); err == nil || !strings.Contains(err.Error(), "not for node \"n1\"") {
		t.Errorf("another node: %v", err)
	}
	far, err := dial.DialStream(ctx, as, open.Stream)
	if err != nil {
		t.Fatal(err)
	}
	near := <-execs
	if near.err != nil {
		t.Fatal(near.err)
	}
	if _, err := near.conn.Write([]byte("to the command")); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, len("to the command"))
	if _, err := io.ReadFull(far, text); err != nil || string(text) != "to the command" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := far.Write([]byte("and back")); err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	if all, err := io.ReadAll(near.conn); err != nil || string(all) != "and back" {
		t.Errorf("got %q, %v", all, err)
	}
}

// Answers that take longer than a request may, because nothing happens for that long, continue and
// are completed.
func TestLongAnswers(t *testing.T) {
	t.Parallel()                 // it waits most of the time
	const patience = time.Second // in which a slow machine can answer a request
	c := start(t, func(cfg *Config, _ *Options) { cfg.Connections.Request = patience })
	as := c.as("", "")
	n1, u := c.greet(as, hello("n1")), c.user("")
	job := u.submit(command("cat"))
	started := heard[agent.Start](n1)
	n1.say(agent.Report{Task: started.Task, State: agent.Running})
	waitFor(t, u, job, api.Running)
	output := make(chan string, 1)
	go func() {
		answer, err := u.http.Get(fmt.Sprintf("%s/v1/jobs/%d/output?follow=true", u.base, job))
		if err != nil {
			output <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		output <- fmt.Sprint(string(text), err)
	}()
	far, err := dial.DialStream(context.Background(), as, heard[agent.Open](n1).Stream)
	if err != nil {
		t.Fatal(err)
	}
	events, err := u.http.Get(u.base + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	in := bufio.NewScanner(events.Body)
	in.Scan()
	for _, text := range []string{"one ", "two"} {
		time.Sleep(2 * patience) // that nothing happens is what is tested
		if _, err := far.Write(agent.AppendFrame(nil, agent.FrameOutput, []byte(text))); err != nil {
			t.Fatal(err)
		}
		u.must("POST", fmt.Sprintf("/v1/jobs/%d/priority", u.submit(command("-n9999"))), api.Priority{Nice: new(int64)}, nil)
		for in.Scan() && !strings.HasPrefix(in.Text(), "data: ") {
		}
		if !strings.HasPrefix(in.Text(), "data: ") {
			t.Fatalf("the events ended: %v", in.Err())
		}
	}
	time.Sleep(2 * patience)
	if _, err := far.Write(agent.AppendOutcome(nil, agent.Outcome{})); err != nil {
		t.Fatal(err)
	}
	if got := <-output; got != "one two<nil>" {
		t.Errorf("got %q", got)
	}
}

// A stream that a user gives up is given up at the agent too.
func TestStreamsEnd(t *testing.T) {
	c := start(t, nil)
	as := c.as("", "")
	n1 := c.greet(as, hello("n1"))
	u := c.user("")
	job := u.submit(command("cat"))
	started := heard[agent.Start](n1)
	n1.say(agent.Report{Task: started.Task, State: agent.Running})
	waitFor(t, u, job, api.Running)
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s/v1/jobs/%d/output?follow=true", u.base, job), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if answer, err := u.http.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}()
	far, err := dial.DialStream(context.Background(), as, heard[agent.Open](n1).Stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write(agent.AppendFrame(nil, agent.FrameOutput, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = far.SetReadDeadline(time.Now().Add(4 * time.Minute))
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the agent's side goes on: %v", err)
	}
}

// A configuration that is read again takes effect; one that is wrong does not.
func TestReload(t *testing.T) {
	reload, loaded := make(chan struct{}), make(chan func(Config) (Config, error), 1)
	var first Config
	c := start(t, func(cfg *Config, o *Options) {
		first = *cfg
		o.Reload = reload
		o.Load = func() (Config, error) { return (<-loaded)(first) }
	})
	alice := c.user("alice")
	isAdmin := func() bool {
		var info api.Cluster
		alice.must("GET", "/v1/cluster", nil, &info)
		return info.Admin
	}
	again := func(change func(Config) (Config, error)) {
		loaded <- change
		reload <- struct{}{}
		// The daemon takes the next one only when it has finished with this one.
		loaded <- func(Config) (Config, error) { return Config{}, errors.New("nothing is read") }
		reload <- struct{}{}
	}
	again(func(cfg Config) (Config, error) {
		cfg.Core.Admins, cfg.HTTP = []string{"alice"}, "127.0.0.1:1"
		return cfg, nil
	})
	if !isAdmin() {
		t.Error("alice is no administrator")
	}
	// Partitions are listed, and refuse what they do not take; a reload brings others.
	again(func(cfg Config) (Config, error) {
		cfg.Core.Admins = []string{"alice"}
		cfg.Core.Partitions = []model.Partition{{Name: "gpu", Nodes: []string{"g1", "g2"}, Default: true, MaxTime: time.Hour, PriorityTier: 1}}
		return cfg, nil
	})
	var parts api.Partitions
	alice.must("GET", "/v1/partitions", nil, &parts)
	if len(parts.List) != 1 || parts.List[0].Name != "gpu" || parts.List[0].NodeList != "g[1-2]" || parts.List[0].MaxTime != 3600 || !parts.List[0].Default {
		t.Errorf("%+v", parts)
	}
	job := command("true")
	job.Options = []string{"-p", "cpu"}
	if status, text := alice.do("POST", "/v1/jobs", job, nil); status != 400 || !strings.Contains(text, "there is no partition \"cpu\": there are gpu") {
		t.Errorf("%d %s", status, text)
	}
	again(func(cfg Config) (Config, error) { return cfg, errors.New("line 7") })
	again(func(cfg Config) (Config, error) { cfg.Core.Silence = 0; return cfg, nil })
	if !isAdmin() {
		t.Error("what was wrong took effect")
	}
}

// Another policy, and other priorities, decide without a restart, and the queue is as it was. What needs a restart
// is named. If the new policy is wrong, all stays.
func TestReloadOfThePolicy(t *testing.T) {
	var cfg Config
	look, scripted := make(chan time.Time), &file{text: startNone}
	c := start(t, func(first *Config, o *Options) {
		first.Policy = "site.star"
		cfg = *first
		o.ReadScript, o.LookAtScript = scripted.read, look
		o.Load = func() (Config, error) { return cfg, nil }
	})
	root, alice := c.user(""), c.user("alice")
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	first := alice.submit(command("true"))
	waitFor(t, alice, first, api.Pending)
	load := func(changed, restart string) {
		t.Helper()
		var done api.Reloaded
		root.must("POST", "/v1/reload", nil, &done)
		if got := fmt.Sprint(done.Changed, done.Restart); got != "["+changed+"] ["+restart+"]" {
			t.Errorf("changed and left: %s, want %s and %s", got, changed, restart)
		}
	}
	decides := func(policy string) {
		t.Helper()
		var info api.Cluster
		root.must("GET", "/v1/cluster", nil, &info)
		if info.Policy != policy || len(info.Problems) > 0 {
			t.Errorf("%s decides, with %q", info.Policy, info.Problems)
		}
	}
	load("", "")
	cfg.Policy = "nonsense"
	if status, problem := root.do("POST", "/v1/reload", nil, nil); status != 422 || !strings.Contains(problem, "everything stays") {
		t.Errorf("a policy that does not exist: %d %s", status, problem)
	}
	if status, _ := alice.do("POST", "/v1/reload", nil, nil); status != 403 {
		t.Errorf("alice is answered %d", status)
	}
	decides("site.star")
	cfg.Policy, cfg.HTTP, cfg.Core.Keep = "fcfs", "127.0.0.1:1", time.Hour
	cfg.Core.Priority = &priority.Config{WeightAge: 1000, MaxAge: time.Hour, CalcPeriod: time.Minute, DecayHalfLife: time.Hour, Dampening: 1}
	load("keep policy priority", "http")
	decides("fcfs")
	if started := heard[agent.Start](n1); started.Task.Job != first {
		t.Errorf("it started %v", started.Task)
	}
	var queue api.Priorities
	root.must("GET", "/v1/priorities", nil, &queue)
	scripted.set(startWrong, nil)
	look <- time.Time{} // nobody's script any more
	decides("fcfs")
	scripted.set(startAll, nil)
	cfg.Policy, cfg.Core.Priority = "site.star", nil
	load("policy priority", "http")
	decides("site.star")
	second := alice.submit(command("true"))
	if started := heard[agent.Start](n1); started.Task.Job != second {
		t.Errorf("it started %v", started.Task)
	}
}

// A name in the configuration that no node has is in the log, and where people look.
func TestNodesThatNoneHas(t *testing.T) {
	reload, log := make(chan struct{}), &lines{}
	var first Config
	c := start(t, func(cfg *Config, o *Options) {
		cfg.Core.NodeRules = []head.NodeRule{{Nodes: []string{"n1"}, Settings: model.NodeSettings{VGPUs: 2}}}
		first = *cfg
		first.Core.NodeRules = []head.NodeRule{{Nodes: []string{"n1", "onne"}, Settings: model.NodeSettings{VGPUs: 2}}}
		o.Reload, o.Log = reload, slog.New(slog.NewTextHandler(log, nil))
		o.Load = func() (Config, error) { return first, nil }
	})
	local := c.user("")
	heard[agent.Welcome](c.greet(c.as("node", "n1"), hello("n1")))
	problems := func() string {
		var info api.Cluster
		local.must("GET", "/v1/cluster", nil, &info)
		return strings.Join(info.Problems, " ")
	}
	if p := problems(); p != "" || log.has("have not come") {
		t.Errorf("the problems are %q", p)
	}
	reload <- struct{}{}
	reload <- struct{}{} // accepted only when the loop has taken the first
	if p := problems(); !strings.Contains(p, "names onne, and no node of that name has come") || !log.has("nodes=onne") {
		t.Errorf("the problems are %q", p)
	}
}

// A session that does not drain its messages is closed, and never holds more than its queue.
func TestSessionThatDoesNotRead(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	d := &daemon{cfg: Default(), log: slog.New(slog.DiscardHandler), Options: Options{Now: time.Now}, began: time.Now(), queue: newQueue(), streams: newStreams()}
	d.sessions = newSessions(d)
	d.sessions.server.Serve(near, d.sessions.of(caller{}))
	text, _ := agent.Encode(nil, hello("n1"))
	_, _ = far.Write(text)
	await.Until(t, "the session begins", func() bool { return d.sessions.find(1) != nil })
	sent := 0
	for d.sessions.send(&head.Send{Session: 1, Message: agent.Ping{}}) {
		if sent++; sent > 3*wire.MaxWaiting {
			t.Fatalf("%d messages wait", sent)
		}
	}
	if _, err := far.Read(make([]byte, 1)); err == nil {
		_, err = io.Copy(io.Discard, far)
		if err != nil {
			t.Error(err)
		}
	}
	if sent < wire.MaxWaiting {
		t.Errorf("hung up after %d messages", sent)
	}
}

// A list without anything in it is an empty list in every answer, so that scripts need not look for
// null.
func TestNoListIsNull(t *testing.T) {
	c := start(t, func(cfg *Config, _ *Options) { cfg.Core.Admins = []string{"alice"} })
	alice := c.user("alice")
	check := func(method, path string, body any) {
		t.Helper()
		var text json.RawMessage
		alice.must(method, path, body, &text)
		if bytes.Contains(text, []byte("null")) {
			t.Errorf("%s %s: %s", method, path, text)
		}
	}
	reads := func() {
		t.Helper()
		for _, r := range routes() {
			if r.method == "GET" && r.answer != nil && !r.forHeads && !strings.Contains(r.path, "{") && r.path != "/v1/events" {
				check(r.method, r.path, nil)
			}
		}
	}
	reads()
	heard[agent.Welcome](c.greet(c.as("node", "n1"), hello("n1")))
	reads()
	for _, test := range []struct {
		path string
		body any
	}{{"/v1/nodes/n1/drain", api.Drain{Reason: "new memory"}}, {"/v1/nodes/n1/resume", nil}} {
		check("POST", test.path, test.body)
	}
	check("GET", "/v1/nodes/n1", nil)
}
