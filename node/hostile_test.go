package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/ports"
	"muster/node/ask"
	"muster/node/refusal"
	"muster/wire"
	"muster/wire/status"
)

// Strangers are refused at the socket, whatever they want, and however many
// they are.
func TestStrangersAreRefused(t *testing.T) {
	cfg := testConfig()
	cfg.Allow = []string{"4321"}
	f := run(t, cfg)
	asUser(t, 4321, func() {
		p, err := connect(f.socket, hello(), 0)
		if err != nil {
			t.Error("one who is allowed:", err)
			return
		}
		p.leave()
	})
	asUser(t, 4322, func() {
		var refused *wire.Refused
		if _, err := connect(f.socket, hello(), 0); !errors.As(err, &refused) || refused.Result != refusal.NotPermitted ||
			!strings.HasPrefix(refused.Reason, "this node is user root's, and user 4322 may not use it: run a node of your own") {
			t.Errorf("a program of a stranger: %v", err)
		}
		if _, err := ask.Status(f.socket); err == nil || !strings.Contains(err.Error(), "user 4322 may not use it") {
			t.Errorf("a request of a stranger: %v", err)
		}
		before := openFiles(t)
		const many = 500
		for range many { // they want to hear nothing
			conn, err := net.Dial("unix", f.socket)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
		}
		eventually(t, "few of them are kept", func() bool { return openFiles(t)-before-many < maxTurnedEach+20 })
	})
	mustConnect(t, f).synchronise(t)
}

// openFiles is how many descriptors this process has.
func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// The node is full of one user's clients: root still has some.
func TestRootHasAReserve(t *testing.T) {
	cfg := testConfig()
	cfg.Limits.Clients = 16
	f := run(t, cfg)
	asUser(t, 4321, func() {
		for i := range 16 {
			p, err := connect(f.socket, hello(), 0)
			if err != nil {
				t.Error(i, err)
				return
			}
			t.Cleanup(p.leave)
		}
		if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "the node serves 16 clients, as many as it may") {
			t.Errorf("one too many: %v", err)
		}
	})
	mustConnect(t, f).synchronise(t)
	if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "the node serves 17 clients, as many as it may") {
		t.Errorf("more than the reserve: %v", err)
	}
}

// A user elsewhere who is called root has none of root's clients.
func TestRootElsewhereIsAnotherUser(t *testing.T) {
	cfg := testConfig()
	cfg.Limits.Default.Clients = 1
	f := run(t, cfg)
	h := hello()
	h.Token = wire.SpeaksFor + "root"
	p, err := connect(f.socket, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.leave()
	if os.Getuid() == 0 {
		mustConnect(t, f).synchronise(t)
	}
	if got := statusOf(t, f).Clients[0].User; got != "remote:root" {
		t.Errorf("it is called %s", got)
	}
}

// While the last programs end, whoever comes is told.
func TestDrainingNodeAnswers(t *testing.T) {
	f := run(t, testConfig())
	p := mustConnect(t, f)
	p.synchronise(t)
	f.stop()
	eventually(t, "it shuts down", func() bool { return statusOf(t, f).Draining })
	var refused *wire.Refused
	if _, err := connect(f.socket, hello(), 0); !errors.As(err, &refused) || refused.Reason != "the node is shutting down" {
		t.Errorf("a program was told %v", err)
	}
	s := statusOf(t, f)
	if len(s.Clients) != 1 || len(s.Problems) != 1 || s.Problems[0].String() != "node: the node is shutting down" {
		t.Errorf("%+v", s)
	}
	cfg := testConfig()
	cfg.Socket.Address = f.socket
	if err := Run(t.Context(), cfg, testOptions()); err == nil || !strings.Contains(err.Error(), "is still shutting down: wait for it") {
		t.Error(err)
	}
	silent, err := net.Dial("unix", f.socket) // does not keep it from ending
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p.leave()
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
}

// healthOf asks a node how it is.
func healthOf(t testing.TB, address string) (code int, text string, document status.Health) {
	t.Helper()
	get := func(path string) []byte {
		reply, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		code = reply.StatusCode
		return text
	}
	if err := json.Unmarshal(get("/healthz.json"), &document); err != nil {
		t.Fatal(err)
	}
	if document.Healthy != (code == http.StatusOK) || document.Healthy != (len(document.Problems) == 0) {
		t.Errorf("status %d for %+v", code, document)
	}
	return code, string(get("/healthz")), document
}

// freePort returns an address where nobody listens.
func freePort(t testing.TB) string {
	t.Helper()
	address, err := ports.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// becomes waits until the node says what it is to say of its health.
func becomes(t testing.TB, address, want string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the node says %q, not %q", last, want)
		}
	}()
	eventually(t, "its health is told", func() bool {
		status, text, _ := healthOf(t, address)
		last = text
		return strings.Contains(text, want) && (status == http.StatusOK) == (text == "ok\n")
	})
}

// status.Health tells the truth of the swap folder and of other parts.
func TestHealthOfTheSwapFolder(t *testing.T) {
	cfg := testConfig()
	cfg.HTTP = freePort(t)
	cfg.Swap.Dir = filepath.Join(t.TempDir(), "swap")
	if err := os.Mkdir(cfg.Swap.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	opts := testOptions()
	var gateway error
	opts.Checks = []Check{{"gateway", func() error { return gateway }}}
	runWith(t, cfg, opts)
	if status, text, _ := healthOf(t, cfg.HTTP); status != http.StatusOK || text != "ok\n" {
		t.Error(status, text)
	}
	if err := os.Remove(cfg.Swap.Dir); err != nil {
		t.Fatal(err)
	}
	becomes(t, cfg.HTTP, "swap: ")
	gateway = errors.New("it has gone")
	code, text, document := healthOf(t, cfg.HTTP)
	want := "gateway: it has gone\nswap: no file can be made: open " + cfg.Swap.Dir
	if code != http.StatusServiceUnavailable || !strings.HasPrefix(text, want) || strings.Count(text, "\n") != 2 {
		t.Errorf("%d %q", code, text)
	}
	if len(document.Problems) != 2 || document.Problems[0] != (status.Problem{Part: "gateway", What: "it has gone"}) || document.Node != "test" {
		t.Errorf("%+v", document)
	}
	gateway = nil
	if err := os.Mkdir(cfg.Swap.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	becomes(t, cfg.HTTP, "ok\n")
	if left, err := os.ReadDir(cfg.Swap.Dir); err != nil || len(left) > 0 {
		t.Error("files are left:", left, err)
	}
	if err := checkSwap(cfg.Swap.Dir, 1<<60); err == nil || !strings.Contains(err.Error(), "and 1152921504606846976 may be needed: make room") {
		t.Error(err)
	}
}

// status.Health tells the truth of workers: that none can be started, that they do not
// stay, that one does not answer.
func TestHealthOfWorkers(t *testing.T) {
	t.Run("not started", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "env")
		if err := os.Symlink("/usr/bin/env", program); err != nil {
			t.Fatal(err)
		}
		cfg, opts := testConfig(), testOptions()
		cfg.HTTP, opts.WorkerCommand = freePort(t), append([]string{program}, workerCommand("worker")[1:]...)
		f := runWith(t, cfg, opts)
		becomes(t, cfg.HTTP, "ok\n")
		if err := os.Rename(program, program+"-gone"); err != nil {
			t.Fatal(err)
		}
		becomes(t, cfg.HTTP, "workers: none can be started: ")
		if err := os.Rename(program+"-gone", program); err != nil {
			t.Fatal(err)
		}
		becomes(t, cfg.HTTP, "ok\n")
		mustConnect(t, f).synchronise(t)
	})
	t.Run("not staying", func(t *testing.T) {
		cfg, opts := testConfig(), testOptions()
		cfg.HTTP, opts.WorkerCommand = freePort(t), []string{"/bin/false"}
		runWith(t, cfg, opts)
		becomes(t, cfg.HTTP, "workers: a worker ended before it had a client: exit status 1\n")
	})
	t.Run("not answering", func(t *testing.T) {
		cfg := testConfig()
		cfg.HTTP = freePort(t)
		f := run(t, cfg)
		mustConnect(t, f).synchronise(t)
		worker := 0
		for _, child := range children(t) {
			var pid int
			if _, err := fmt.Sscan(child, &pid); err != nil {
				t.Fatal(err)
			}
			if len(sharedMemory(child)) > 0 {
				worker = pid
			}
		}
		if worker == 0 {
			t.Fatal("there is no worker")
		}
		becomes(t, cfg.HTTP, "ok\n")
		_ = syscall.Kill(worker, syscall.SIGSTOP)
		becomes(t, cfg.HTTP, fmt.Sprintf("workers: 1 do not answer: client 1's (process %d) is stopped\n", worker))
		_ = syscall.Kill(worker, syscall.SIGCONT)
		becomes(t, cfg.HTTP, "ok\n")
	})
}

// Nobody can make the server for metrics keep connections without end.
func TestManyWebConnections(t *testing.T) {
	cfg := testConfig()
	cfg.HTTP = freePort(t)
	run(t, cfg)
	before := openFiles(t)
	const many = 300
	for range many {
		conn, err := net.Dial("tcp", cfg.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status, text, _ := healthOf(t, cfg.HTTP); status != http.StatusOK {
		t.Error(status, text)
	}
	eventually(t, "few are kept", func() bool { return openFiles(t)-before-many < maxWebEach+20 })
}

// Users whom the node refuses, again and again, do not fill the disk that has its log.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	var log syncBuffer
	opts := testOptions()
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	f := runWith(t, testConfig(), opts)
	for range 2 * maxRefusals {
		other := hello()
		other.Version++
		if _, err := connect(f.socket, other, 0); err == nil {
			t.Fatal("a program of another version was not refused")
		}
	}
	f.stop()
	if lines := strings.Count(log.String(), "a client was refused"); lines != maxRefusals {
		t.Errorf("%d lines of %d refusals", lines, 2*maxRefusals)
	}
}
