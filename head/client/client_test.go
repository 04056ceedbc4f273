package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
	"muster/wire/identity"
)

// serve answers at a socket of its own, and returns a client for it.
func serve(t *testing.T, handler http.HandlerFunc) *Head {
	t.Helper()
	socket := "@muster-test-client-" + rand.Text()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	h, err := Open("unix:"+socket, "")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A user whose certificate the head refuses hears what may have happened to it, and what to do.
func TestRefusedCertificate(t *testing.T) {
	h := &Head{where: "gpu1:9422"}
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for _, err := range []error{alert, identity.Refused(alert)} { // whoever dials may have put it into words
		err = h.notReached(t.Context(), err)
		if !errors.Is(err, ErrUnreachable) || !strings.HasPrefix(err.Error(), "the head at gpu1:9422: your certificate is refused, as it was revoked") || strings.Count(err.Error(), "is refused") != 1 {
			t.Errorf("got %v", err)
		}
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct{ address, dir, want string }{
		{"gpu1", "", "the head at gpu1:9422 is asked over TLS: give --tls-dir or MUSTER_TLS_DIR"},
		{"gpu1:7000", empty, "muster cert makes certificates"},
		{"unix:", "", "names no socket"},
		{"a b", "", "names no head"},
	} {
		if _, err := Open(c.address, c.dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v", c.address, c.dir, err)
		}
	}
	h, err := Open("unix:@muster-test-nobody", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Cluster(context.Background())
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no head answers at @muster-test-nobody on this machine") {
		t.Errorf("got %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status      int
		body, want  string
		unreachable bool
	}{
		{404, `{"error": "there is no job 7"}`, "there is no job 7", false},
		{500, `<html>`, "answers 500 Internal Server Error and no reason: is that a head?", true},
		{302, ``, "is that a head?", true},
		{200, `hello`, "does not answer as a head does", true},
		{200, `{}`, "it tells nothing about job 7", true},
	} {
		h := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		})
		_, err := h.Job(context.Background(), "7")
		var refused *Refused
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnreachable) != c.unreachable || errors.As(err, &refused) == c.unreachable {
			t.Errorf("%d %s: %v", c.status, c.body, err)
		}
	}
}

// TestSubmitAgain: a submission whose answer is lost is sent again, with the same key; one that is
// refused is not.
func TestSubmitAgain(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var s api.Submission
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			t.Error(err)
		}
		mu.Lock()
		keys = append(keys, s.Key)
		first := len(keys) == 1
		mu.Unlock()
		switch {
		case first:
			panic(http.ErrAbortHandler)
		case s.Key == "bad":
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error": "no"}`)
		default:
			fmt.Fprint(w, `{"job": 5}`)
		}
	})
	answer, err := h.Submit(context.Background(), &api.Submission{Key: "k"})
	if err != nil || answer.Job != 5 {
		t.Fatalf("got %+v, %v", answer, err)
	}
	if _, err = h.Submit(context.Background(), &api.Submission{Key: "bad"}); err == nil || err.Error() != "no" {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(keys, " "); got != "k k bad" {
		t.Errorf("got %s", got)
	}
}

// TestPages: a list is read to its end, and one whose pages form a circle is not read for ever.
func TestPages(t *testing.T) {
	circle := false
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch after := r.URL.Query().Get("after"); {
		case circle:
			fmt.Fprint(w, `{"jobs": [{"job": 1}], "next": 1}`)
		case after == "":
			fmt.Fprint(w, `{"jobs": [{"job": 1}, {"job": 2}], "next": 2}`)
		default:
			fmt.Fprint(w, `{"jobs": [{"job": 3}]}`)
		}
	})
	jobs, err := h.History(context.Background(), Period{Since: time.Unix(5, 0), User: "a"})
	if err != nil || len(jobs) != 3 {
		t.Errorf("got %v, %v", jobs, err)
	}
	circle = true
	if _, err := h.History(context.Background(), Period{}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

// TestJobOrTasks: an array is answered with a list.
func TestJobOrTasks(t *testing.T) {
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/jobs/17" {
			fmt.Fprint(w, `{"jobs": [{"job": 17, "array_job": 17, "array_task": 1}, {"job": 18, "array_job": 17, "array_task": 2}]}`)
			return
		}
		fmt.Fprint(w, `{"job": 18, "state": "RUNNING", "new_in_a_later_version": 5}`)
	})
	if jobs, err := h.Job(context.Background(), "17"); err != nil || len(jobs) != 2 || *jobs[1].ArrayTask != 2 {
		t.Errorf("got %+v, %v", jobs, err)
	}
	if jobs, err := h.Job(context.Background(), "17_2"); err != nil || len(jobs) != 1 || jobs[0].State != api.Running {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

// TestExec: a command fails if its head goes away, and ends if its user does.
func TestExec(t *testing.T) {
	gone := make(chan struct{})
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", dial.ProtocolStream)
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		switch r.URL.Query().Get("arg") {
		case "cut":
			_, _ = conn.Write(agent.AppendFrame(nil, agent.FrameOutput, []byte("half"))[:7])
		case "strange":
			_, _ = conn.Write(agent.AppendFrame(nil, agent.FrameInput, nil))
		case "hang":
			_, _ = conn.Write(agent.AppendFrame(nil, agent.FrameOutput, []byte("here")))
			_, _ = io.Copy(io.Discard, conn)
			close(gone)
		}
	})
	for _, arg := range []string{"cut", "strange"} {
		_, err := h.Exec(context.Background(), "1", &api.Exec{Arguments: []string{arg}}, Streams{Output: io.Discard, Error: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "the command's connection broke") {
			t.Errorf("%s: %v", arg, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := h.Exec(ctx, "1", &api.Exec{Arguments: []string{"hang"}}, Streams{Output: cancelling{cancel}, Error: io.Discard})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-gone
}

// cancelling cancels the context when something is written.
type cancelling struct{ cancel func() }

func (c cancelling) Write(b []byte) (int, error) {
	c.cancel()
	return len(b), nil
}

// A head that goes away in the middle of a request may have carried it out: the user is told so.
func TestHeadGoesAway(t *testing.T) {
	at := filepath.Join(t.TempDir(), "head")
	listener, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			_, _ = conn.Read(make([]byte, 1))
			conn.Close()
		}
	}()
	h, err := Open("unix:"+at, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Cancel(t.Context(), "7", ""); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "may have done what it was asked for") {
		t.Errorf("%v", err)
	}
}
