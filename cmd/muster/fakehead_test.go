package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/wire/agent"
	"muster/wire/api"
)

// fakeHead answers with the files of a script: GET /v1/jobs/17 is head/GET-jobs-17. A
// first line "HTTP 404" is the status. A file that ends in .1 is the first answer,
// .2 the second and so on; the last one stays. What ?after=N asks for is in the file
// that ends in -after-N. What was asked is in the file requests.
type fakeHead struct {
	folder, log string

	mu    sync.Mutex
	asked map[string]int
}

// startFakeHead serves a script that has a folder head, at $MUSTER_HEAD.
func startFakeHead(env *testscript.Env) error {
	folder := filepath.Join(env.WorkDir, "head")
	if _, err := os.Stat(folder); err != nil {
		return nil
	}
	socket := "@muster-test-head-" + rand.Text()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &fakeHead{folder: folder, log: filepath.Join(env.WorkDir, "requests"), asked: map[string]int{}}}
	go func() { _ = server.Serve(listener) }()
	env.Defer(func() { server.Close() })
	env.Setenv("MUSTER_HEAD", "unix:"+socket)
	env.Setenv("TZ", "UTC")
	return nil
}

func (h *fakeHead) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if err := h.note(r, body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.Header.Get("Upgrade") == "muster-stream" {
		_, err := os.Stat(filepath.Join(h.folder, "run-commands"))
		serveExec(w, r, err == nil)
		return
	}
	name := r.Method + strings.ReplaceAll(strings.TrimPrefix(r.URL.Path, "/v1"), "/", "-")
	if after := r.URL.Query().Get("after"); after != "" {
		name += "-after-" + after
	}
	text, err := h.answer(name)
	status := http.StatusOK
	switch {
	case err != nil:
		status, text = http.StatusNotFound, []byte(fmt.Sprintf(`{"error": "there is no %s"}`, r.URL.Path))
	case bytes.HasPrefix(text, []byte("HANG UP")):
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
		return
	case bytes.HasPrefix(text, []byte("CUT\n")): // an answer that breaks off, as that of a head that is killed
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n%s", text[4:])
			conn.Close()
		}
		return
	case bytes.HasPrefix(text, []byte("HTTP ")):
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if n, err := strconv.Atoi(string(line[5:])); err == nil {
			status, text = n, rest
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// answer is the text of a file, or of the next of several.
func (h *fakeHead) answer(name string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	path := filepath.Join(h.folder, name)
	for n := h.asked[name] + 1; n > 0; n-- {
		text, err := os.ReadFile(fmt.Sprintf("%s.%d", path, n))
		if err == nil {
			h.asked[name] = n
			return text, nil
		}
	}
	return os.ReadFile(path)
}

// note writes down what was asked. What differs from run to run is left out.
func (h *fakeHead) note(r *http.Request, body []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := os.OpenFile(h.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.URL.Path == "/v1/jobs" && r.Method == http.MethodPost {
		var s api.Submission
		if err := json.Unmarshal(body, &s); err != nil {
			return err
		}
		if s.Key == "" {
			return fmt.Errorf("a submission without a key")
		}
		s.Key = "KEY"
		s.Directory = strings.ReplaceAll(s.Directory, filepath.Dir(h.folder), "WORK")
		for i := range s.Options {
			s.Options[i] = strings.ReplaceAll(s.Options[i], filepath.Dir(h.folder), "WORK")
		}
		s.Environment = slices.DeleteFunc(s.Environment, func(v string) bool { return !strings.HasPrefix(v, "TEST_") })
		if body, err = json.Marshal(s); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(f, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	return err
}

// serveExec is a command that says what it was given, and ends with its last argument
// as the status; or one that is really run, here.
func serveExec(w http.ResponseWriter, r *http.Request, really bool) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "muster-stream")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, stream, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if really {
		runCommand(conn, stream.Reader, r.URL.Query()["arg"])
		return
	}
	var input []byte
	buffer := make([]byte, agent.MaxFrame)
	for {
		kind, data, err := agent.ReadFrame(stream, buffer)
		if err != nil || kind != agent.FrameInput {
			return
		}
		if len(data) == 0 {
			break
		}
		input = append(input, data...)
	}
	q := r.URL.Query()
	said := fmt.Sprintf("node %q, arguments %q, folder %q, environment %q, input %q\n", q.Get("node"), q["arg"], q.Get("dir"), q["env"], input)
	out := agent.AppendFrame(nil, agent.FrameOutput, []byte(said))
	out = agent.AppendFrame(out, agent.FrameError, []byte("to standard error\n"))
	outcome := agent.Outcome{}
	last := q["arg"][len(q["arg"])-1]
	if n, err := strconv.Atoi(last); err == nil {
		outcome.Exit = n
	}
	if last == "killed" {
		outcome.Signal = 9
	}
	if last == "nowhere" {
		outcome.Reason = "there is no program nowhere"
	}
	_, _ = conn.Write(agent.AppendOutcome(out, outcome))
}

// runCommand runs a command with its streams in frames.
func runCommand(conn net.Conn, in io.Reader, arguments []string) {
	command := exec.Command(arguments[0], arguments[1:]...)
	input, err := command.StdinPipe()
	if err != nil {
		return
	}
	go func() {
		defer input.Close()
		buffer := make([]byte, agent.MaxFrame)
		for {
			_, data, err := agent.ReadFrame(in, buffer)
			if err != nil || len(data) == 0 {
				return
			}
			_, _ = input.Write(data)
		}
	}()
	var mu sync.Mutex
	command.Stdout, command.Stderr = &framer{&mu, conn, agent.FrameOutput}, &framer{&mu, conn, agent.FrameError}
	_ = command.Run()
	outcome := agent.Outcome{Exit: command.ProcessState.ExitCode()}
	_, _ = conn.Write(agent.AppendOutcome(nil, outcome))
}

// framer writes frames of a kind.
type framer struct {
	mu   *sync.Mutex
	to   io.Writer
	kind agent.FrameKind
}

func (f *framer) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for part := range slices.Chunk(b, agent.MaxFrame) {
		if _, err := f.to.Write(agent.AppendFrame(nil, f.kind, part)); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
