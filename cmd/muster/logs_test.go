package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
)

// What Ctrl-C means while a job is followed is the user's choice.
func TestOnInterrupt(t *testing.T) {
	for answer, want := range map[string]struct {
		asked string
		left  bool
	}{
		"c\n": {"DELETE /v1/jobs/17", false}, "i\n": {"DELETE /v1/jobs/17?signal=INT", false}, "\n": {"", false}, "d\n": {"", true}, "": {"", true},
	} {
		socket := "@muster-test-interrupt-" + rand.Text()
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		asked := ""
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.RequestURI()
			_, _ = w.Write([]byte(`{"jobs": [17]}`))
		})}
		go func() { _ = server.Serve(listener) }()
		h, err := headclient.Open("unix:"+socket, "")
		if err != nil {
			t.Fatal(err)
		}
		c := &cobra.Command{}
		var stderr bytes.Buffer
		c.SetErr(&stderr)
		err = (&logsFlags{}).onInterrupt(context.Background(), c, h, "17", bufio.NewScanner(strings.NewReader(answer)))
		if asked != want.asked || errors.Is(err, errLeft) != want.left || !strings.Contains(stderr.String(), "job 17: c cancels it") {
			t.Errorf("%q: asked for %q, %v, %s", answer, asked, err, &stderr)
		}
		server.Close()
	}
}

// A job that is followed may not have started yet: its output is asked for until it has. Without
// -f the answer is why there is none.
func TestOutputOfAJobThatStarts(t *testing.T) {
	socket := "@muster-test-starts-" + rand.Text()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := "starting"
		if asked >= 3 {
			state = "running"
		}
		switch {
		case !strings.HasSuffix(r.URL.Path, "/output"):
			_, _ = w.Write([]byte(`{"jobs": [{"job": 17, "state": "RUNNING", "parts": [{"node": "n1", "state": "` + state + `"}]}]}`))
		case asked < 3:
			asked++
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error": "its node has nothing of it"}`))
		default:
			_, _ = w.Write([]byte("hello"))
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	h, err := headclient.Open("unix:"+socket, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := awaitOutput(context.Background(), h, "17", headclient.Output{}); err == nil || !strings.Contains(err.Error(), "has nothing of it") {
		t.Errorf("without -f: %v", err)
	}
	output, err := awaitOutput(context.Background(), h, "17", headclient.Output{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	if text, err := io.ReadAll(output); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
}
