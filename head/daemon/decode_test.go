package daemon

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/api"
)

// A refusal says why, and has the status of a client's mistake.
func isRefusal(t *testing.T, err error) {
	t.Helper()
	var refused *head.Refusal
	if !errors.As(err, &refused) || refused.Status < 400 || refused.Status > 499 || refused.Reason == "" {
		t.Errorf("refused with %v", err)
	}
}

func FuzzSubmissions(f *testing.F) {
	for _, text := range []string{
		`{"arguments":["a"],"directory":"/"}`, `[{"script":"#!/bin/sh\n","directory":"/","key":"k"},{}]`, `[]`, `[`, `{"options":["-n2"]} x`, ` [{}] `, `null`, `[null]`, `[[]]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, isList, err := submissions(text)
		if err != nil {
			isRefusal(t, err)
			return
		}
		if len(list) == 0 || len(list) > api.MaxBatch || !isList && len(list) != 1 {
			t.Errorf("%d submissions, list %v", len(list), isList)
		}
		// What was accepted is accepted again after it was encoded.
		again, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		same, _, err := submissions(again)
		if err != nil || !reflect.DeepEqual(normal(same), normal(list)) {
			t.Errorf("%s became %+v, %v", again, same, err)
		}
	})
}

// normal makes empty lists nil, since the two mean the same.
func normal(list []api.Submission) []api.Submission {
	for i := range list {
		for _, field := range []*[]string{&list[i].Options, &list[i].Arguments, &list[i].Environment} {
			if len(*field) == 0 {
				*field = nil
			}
		}
	}
	return list
}

func FuzzQuery(f *testing.F) {
	for _, text := range []string{"user=a&state=PENDING,RUNNING", "since=1.5&limit=7", "signal=TERM", "arg=a&arg=b", "%zz", "follow=true;x", "state=", "limit=-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := query(raw, "user", "state", "since", "limit", "signal", "follow", "stream", "arg*")
		if err != nil {
			isRefusal(t, err)
			return
		}
		_, _, _ = p.text("user"), p.states("state"), p.list("arg")
		if s := p.instant("since"); p.err == nil && !(s >= 0) {
			t.Errorf("an instant %v", s)
		}
		if n := p.number("limit", 5, 100); p.err == nil && n > 100 {
			t.Errorf("a number %d", n)
		}
		if s := p.signal("signal"); p.err == nil && (s < 0 || s > 64) {
			t.Errorf("a signal %d", s)
		}
		_, _ = p.bool("follow"), p.oneOf("stream", "output", "output", "error")
		if p.err != nil {
			isRefusal(t, p.err)
		}
	})
}

func FuzzRef(f *testing.F) {
	for _, text := range []string{"17", "17_3", "0", "_", "1_-1", "99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ref(text)
		if err != nil {
			isRefusal(t, err)
		} else if r.Job == 0 || r.Task < -1 || r.Task >= 1<<32 {
			t.Errorf("%q is %+v", text, r)
		}
	})
}

func FuzzDocuments(f *testing.F) {
	f.Add(`{"priority":5}`)
	f.Add(`{"devices":-1}`)
	f.Add(`{"reason":"a"}{}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, into := range []any{&api.Priority{}, &api.Limit{}, &api.Drain{}} {
			if err := strictly([]byte(text), into); err != nil {
				isRefusal(t, err)
			}
		}
	})
}

// A submission that is accepted fits into the message that starts it, whatever it contains.
func TestSubmissionsFitIntoMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes large texts")
	}
	for _, filling := range []string{"a", "<", "\u2028", "漢"} {
		// As much text as is accepted.
		size := min((api.MaxSubmission-1)/len(filling), (maxEscaped-20)/(escapedSize(filling)-3))
		text, err := json.Marshal(api.Submission{Script: strings.Repeat(filling, size), Directory: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := submission(text); err != nil {
			t.Errorf("%d of %q: %v", size, filling, err)
		}
		start := agent.Start{Task: agent.Task{Job: 1, Attempt: 1}, Incarnation: "x", Spec: agent.Spec{
			User: "alice", Directory: "/", Output: "o", Nodes: []string{"n1"}, Cores: 1, Script: strings.Repeat(filling, size),
		}}
		if _, err := agent.Encode(nil, start); err != nil {
			t.Errorf("%d of %q: %v", size, filling, err)
		}
	}
}

// Bodies count for as long as they are in memory, and no longer.
func TestBodies(t *testing.T) {
	b := newBudget(1<<20, 512<<10)
	read := func(user string, size int) (func(), error) {
		_, free, err := b.body(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size))), user, 1<<20)
		return free, err
	}
	one, err := read("alice", 200<<10)
	if err != nil {
		t.Fatal(err)
	}
	two, err := read("alice", 300<<10)
	if err == nil || !strings.Contains(err.Error(), "too much of what was sent is waiting") {
		t.Errorf("alice has more than her part: %v", err)
	}
	three, err := read("bob", 200<<10)
	if err != nil {
		t.Errorf("bob waits for alice: %v", err)
	}
	for _, free := range []func(){one, two, three} {
		free()
	}
	if b.taken != 0 || len(b.users) != 0 {
		t.Errorf("%d bytes are still taken", b.taken)
	}
}
