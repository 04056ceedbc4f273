package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/browser"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
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
	if text := log.String(); !strings.Contains(text, `msg="a node did not start a task: muster job says why" node=n1 job=1 attempt=1 part=0 cause="not begun"`) {
		t.Errorf("the log does not say it:\n%s", text)
	}
}

// TestOutputOfEndedJobs: the head has the node read what a job wrote that has ended, also when the node and the core
// have forgotten the job, for its user and for as long as it is configured.
func TestOutputOfEndedJobs(t *testing.T) {
	c := start(t, func(cfg *Config, _ *Options) { cfg.Core.Keep = time.Nanosecond })
	as := c.as("node", "n1")
	n1 := c.greet(as, hello("n1"))
	u := c.user("alice")
	submission := command("true")
	submission.Options = []string{"-o", "out-%j", "-e", "err-%j"}
	id := u.submit(submission)
	s := heard[agent.Start](n1)
	n1.say(agent.Report{Task: s.Task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}})
	heard[agent.Done](n1)
	c.user("alice").submit(command("sleep")) // the core does what is due, and forgets the job
	heard[agent.Start](n1)
	output := fmt.Sprintf("/v1/jobs/%d/output", id)
	if status, text := c.user("bob").do("GET", output, nil, nil); status != http.StatusForbidden {
		t.Errorf("another user: %d %s", status, text)
	}
	if status, text := u.do("GET", output+"?part=1", nil, nil); status != http.StatusBadRequest {
		t.Errorf("a part that there was not: %d %s", status, text)
	}
	read := make(chan string, 1)
	go func() {
		answer, err := u.http.Get(u.base + output + "?stream=error")
		if err != nil {
			read <- err.Error()
			return
		}
		defer answer.Body.Close()
		all, err := io.ReadAll(answer.Body)
		read <- fmt.Sprint(string(all), err)
	}()
	open := heard[agent.Open](n1)
	if want := (agent.Written{User: "alice", Directory: "/tmp", File: fmt.Sprintf("err-%d", id)}); open.Ended == nil || *open.Ended != want || open.Task != s.Task {
		t.Errorf("the node is to open %+v of %v", open.Ended, open.Task)
	}
	conn, err := dial.DialStream(t.Context(), as, open.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(agent.AppendOutcome(agent.AppendFrame(nil, agent.FrameOutput, []byte("late words\n")), agent.Outcome{})); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "late words\n<nil>" {
		t.Errorf("read %q", got)
	}
	_ = conn.Close()

	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	c = startIn(t, c.cfg, func(cfg *Config, _ *Options) { cfg.Core.KeepOutput = time.Nanosecond })
	if status, text := c.user("alice").do("GET", output, nil, nil); status != http.StatusNotFound || !strings.Contains(text, fmt.Sprintf("it was written to out-%d (directory /tmp) on n1", id)) {
		t.Errorf("later: %d %s", status, text)
	}
}

// TestPageOfWhatHappened: the page submits and cancels jobs, names them and their users in the chart, shows those without
// a GPU beside those with one, says who preempted whom, and what ended jobs wrote, and when what it shows is old.
func TestPageOfWhatHappened(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	b := browser.Start(t)
	c := start(t, func(cfg *Config, o *Options) {
		withPage(cfg, o)
		cfg.Policy = "easy:preempt_classes=low/requeue<high/fixed/low"
	})
	c.busyNode("gpu1", 2)
	c.busyNode("gpu2", 0)
	alice, bob := c.user("alice"), c.user("bob")
	job := func(u *asker, name string, options ...string) uint64 {
		return u.submit(api.Submission{Arguments: []string{"sleep"}, Directory: "/tmp", Options: append([]string{"-n1", "-J", name}, options...)})
	}
	running := func(id uint64) {
		t.Helper()
		until(t, func() bool {
			var j api.Job
			alice.must("GET", fmt.Sprintf("/v1/jobs/%d", id), nil, &j)
			return j.State == api.Running && j.Parts[0].State == "running"
		})
	}
	for _, id := range []uint64{job(alice, "train", "-w", "gpu1", "--gres=gpu:1"), job(bob, "solve", "-w", "gpu1", "--gres=gpu:1"), job(bob, "prepare", "-w", "gpu1"), job(alice, "sweep", "-n8", "-w", "gpu2", "--qos=low")} {
		running(id)
	}
	running(job(bob, "urgent", "-n8", "-w", "gpu2", "--qos=high"))
	openPageAs(t, b, alice)
	visit(b, "#/gantt?span=60")
	b.Until("five names on as many blocks, of two users", `const d = document.querySelector("canvas.gantt").dataset; return d.blocks === "5" && d.rows === "4" && d.named > 0 && document.querySelector("main .legend").innerText.replace(/\s+/g, " ").trim() === "alice bob"`)
	b.Script(nil, `document.querySelector("canvas.gantt").focus()`)
	b.Until("who preempted whom", `document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "]"})); return document.querySelector(".told").textContent.includes("sweep of alice on gpu2: pending") && document.querySelector(".told").textContent.endsWith("preempted (requeue): it makes way for job 5: class high may stop class low, of bob")`)

	visit(b, "#/submit")
	b.Script(nil, `
		const set = (e, text) => { e.value = text; e.dispatchEvent(new Event("input", {bubbles: true})); };
		set(document.querySelector("textarea"), "#!/bin/sh\n#MUSTER -J paged -n 1 -w gpu1 -Z\nsleep 1\n");
		set(document.querySelector("form input"), "/tmp");
		document.querySelector("form button").click()`)
	b.Until("why it is refused", `return document.querySelector("form .wrong").textContent.includes("-Z")`)
	_ = b.Complaints() // the browser says so, too
	b.Script(nil, `const t = document.querySelector("textarea"); t.value = t.value.replace(" -Z", ""); document.querySelector("form button").click()`)
	b.Until("the job", `return document.querySelector("h1").textContent === "Job 6: paged" && document.querySelector(".pill").textContent === "running"`)
	b.Script(nil, `document.querySelector("main .buttons .danger").click(); document.querySelector("dialog .danger").click()`)
	b.Until("that it is cancelled", `return document.querySelector(".pill").textContent === "cancelled"`)
	var j api.Job
	if alice.must("GET", "/v1/jobs/6", nil, &j); j.User != "alice" || j.State != api.Cancelled || j.Directory != "/tmp" {
		t.Errorf("the page has submitted and cancelled %+v", j)
	}
	b.Load("#/job/6")
	b.Until("what it wrote", `return document.body.dataset.connection === "live" && document.querySelector(".output")?.textContent.includes("<img")`)
	quiet(t, b)

	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	b.Until("that this is old", `return document.body.dataset.stale === "" && /data of \d\d:\d\d:\d\d/.test(document.getElementById("status").textContent) && document.getElementById("problems").textContent.includes("What is shown is old, of ")`)
	_ = b.Complaints()
}

// until polls, as a user does, until something is so.
func until(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if so() {
			return
		}
	}
	t.Fatal("it never was")
}
