package client

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

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
	h, err := Open("unix:"+socket, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.awaitOutput(context.Background(), "17", Output{}); err == nil || !strings.Contains(err.Error(), "has nothing of it") {
		t.Errorf("without -f: %v", err)
	}
	output, err := h.awaitOutput(context.Background(), "17", Output{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	if text, err := io.ReadAll(output); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
}
