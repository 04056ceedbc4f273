package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
	"muster/wire/status"
)

// marker stands in everything that a job's user alone, and administrators, may see.
const marker = "S3CRET"

// lockedBuffer is a log that the head writes while the test goes on.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// What a job runs, with what, where, and what its user notes on it, is shown to its user and to
// administrators alone: no request of another user, no log and no file that others can read has it.
// --export is shown to nobody.
func TestPrivatePartsOfJobs(t *testing.T) {
	log := &lockedBuffer{}
	state := filepath.Join(t.TempDir(), "state")
	recording := filepath.Join(state, "decisions.jsonl")
	c := start(t, func(cfg *Config, o *Options) {
		withPage(cfg, o)
		cfg.Core.Admins, cfg.Core.Keep = []string{"boss"}, 0 // an ended job is read from the store
		cfg.State, cfg.HTTP, cfg.Record = state, "127.0.0.1:0", recording
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if err := os.MkdirAll(state, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	alice, bob, boss := c.user("alice"), c.user("bob"), c.user("boss")
	page := visitPage(t, c, bob)
	as := c.as("node", "n1")
	n1 := c.greet(as, hello("n1"))
	heard[agent.Welcome](n1)
	events := func(u *asker) (stop func() string) {
		answer, err := u.http.Get(u.base + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		lines := bufio.NewReader(answer.Body)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return func() (all string) {
			for !strings.Contains(all, `"FAILED"`) {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				all += line
			}
			return all
		}
	}
	alices, bobs := events(alice), events(bob)
	keys := 0
	private := func(script string) api.Submission {
		keys++
		return api.Submission{
			Key:    fmt.Sprint(marker, keys),
			Script: script, Arguments: []string{"train", "--token=" + marker}, Directory: "/home/" + marker, Environment: []string{"TOKEN=" + marker},
			Options: []string{
				"-n8", "--job-name=train", "--comment=" + marker, "--export=ALL,PASSWORD=" + marker, "--chdir=/home/" + marker + "/run",
				"--output=/home/" + marker + "/out", "--error=" + marker + ".err", "--input=/home/" + marker + "/in",
			},
		}
	}
	failed := alice.submit(private(""))
	first := heard[agent.Start](n1)
	n1.say(agent.Report{Task: first.Task, State: agent.Ended, End: &agent.End{Cause: agent.NotBegun, Exit: 126, Reason: "the job's directory: chdir /home/" + marker + ": no such file or directory"}})
	if all := bobs(); strings.Contains(all, marker) {
		t.Errorf("another user is told of changes:\n%s", all)
	}
	if all := alices(); !strings.Contains(all, "--token="+marker) {
		t.Errorf("a user is not told all of changes of her own job:\n%s", all)
	}
	running := alice.submit(private("#!/bin/sh\n#MUSTER --comment=" + marker + "\necho " + marker + "\n"))
	n1.say(agent.Report{Task: heard[agent.Start](n1).Task, State: agent.Running})
	waitFor(t, alice, running, api.Running)
	waiting := alice.submit(private(""))
	go func() { // the node's own status
		for {
			m, err := agent.ReadToAgent(n1.conn)
			if err != nil {
				return
			}
			if open, ok := m.(agent.Open); ok {
				conn, err := dial.DialStream(context.Background(), as, open.Stream)
				if err != nil {
					return
				}
				text, _ := json.Marshal(status.Node{Node: "n1", Clients: []status.Client{{ID: 3, User: "alice", Program: "/home/" + marker + "/train"}, {ID: 4, User: "bob", Program: "/home/bob/mine"}}})
				_, _ = conn.Write(agent.AppendOutcome(agent.AppendFrame(nil, agent.FrameOutput, text), agent.Outcome{}))
				_ = conn.Close()
			}
		}
	}()

	ask := func(u *asker, method, path, body string) string {
		r, err := http.NewRequest(method, u.base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := u.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	see := func(who string, do func(method, path, body string) string) {
		for _, r := range routes() {
			for _, id := range []uint64{failed, running, waiting} {
				path := strings.NewReplacer("{id}", fmt.Sprint(id), "{name}", "n1", "{stream}", "1").Replace(r.path)
				switch {
				case path == "/v1/events": // see above
					continue
				case path == "/v1/jobs":
					path += fmt.Sprint("?job=", id)
				case path == "/v1/openapi.json" && id != failed:
					continue
				}
				body := ""
				if r.body != nil {
					body = "{}"
				}
				if answer := do(r.method, path, body); strings.Contains(answer, marker) {
					t.Errorf("%s: %s %s shows\n%s", who, r.method, path, answer)
				}
			}
		}
		if answer := do("GET", "/v1/jobs", ""); strings.Contains(answer, marker) || !strings.Contains(answer, "-n 8") {
			t.Errorf("%s: the list of jobs is\n%s", who, answer)
		}
	}
	see("another user", func(method, path, body string) string { return ask(bob, method, path, body) })
	see("another user's page", func(method, path, body string) string {
		var sent any
		if body != "" {
			sent = struct{}{}
		}
		answer := page.do(method, path, sent, nil)
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	})
	for who, u := range map[string]*asker{"the user": alice, "an administrator": boss} {
		for _, id := range []uint64{failed, running, waiting} {
			var j api.Job
			u.must("GET", fmt.Sprint("/v1/jobs/", id), nil, &j)
			text := fmt.Sprint(j.Directory, j.Output, j.Error, j.Command, j.Comment)
			if strings.Count(text, marker) != 5 || strings.Contains(j.Options, marker) {
				t.Errorf("%s sees of job %d %s\nand %s", who, id, text, j.Options)
			}
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/healthz.json"} {
		answer, err := http.Get("http://" + c.at.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); err != nil || bytes.Contains(text, []byte(marker)) {
			t.Errorf("%s shows %s, %v", path, text, err)
		}
		_ = answer.Body.Close()
	}
	if strings.Contains(log.String(), marker) {
		t.Errorf("the log has\n%s", log.String())
	}
	if text, err := os.ReadFile(recording); err != nil || bytes.Contains(text, []byte(marker)) {
		t.Errorf("the recording has\n%s, %v", text, err)
	}
	err := filepath.WalkDir(state, func(path string, e fs.DirEntry, err error) error {
		info, err2 := e.Info()
		if err == nil && err2 == nil && info.Mode().Perm()&0o077 != 0 && path != state {
			t.Errorf("others may use %s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
