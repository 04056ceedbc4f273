package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/agent/agentcore"
	wire "muster/wire/agent"
	"muster/wire/envelope"
)

// The test's binary is supervisors and agents too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "task":
			os.Exit(Main(os.Args[2:], Tools{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), ServeGrant: testServe, Save: testSave}))
		case "agent":
			os.Exit(agentMain(os.Args[2], os.Args[3], os.Args[4]))
		case "hog":
			hog()
		}
	}
	os.Exit(m.Run())
}

// agentMain is an agent as a process of its own, which can be killed.
func agentMain(spool, head, cgroup string) int {
	cfg := testConfig(spool, head, cgroup, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	cfg.Checkpoints = Checkpoints{Dir: os.Getenv("AGENT_TEST_CHECKPOINTS"), CRIU: "criu"}
	if script := os.Getenv("AGENT_TEST_SUPERVISOR"); script != "" {
		own, err := os.Executable()
		if err != nil {
			panic(err)
		}
		cfg.Supervisor = []string{"sh", "-c", script, "sh", own, "task"}
	}
	err := Run(context.Background(), cfg)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func testConfig(spool, head, cgroup string, log *slog.Logger) Config {
	dial := func(ctx context.Context, first string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", head)
		if err == nil {
			_, err = io.WriteString(conn, first+"\n")
		}
		return conn, err
	}
	return Config{
		Node: "n1", Spool: spool, Cores: 4, Memory: 1 << 40, Cgroup: cgroup, Log: log,
		Dial:       func(ctx context.Context) (net.Conn, error) { return dial(ctx, "agent") },
		DialStream: dial,
	}
}

// head is the other side, in a test.
type head struct {
	t       testing.TB
	spool   string
	address string
	cgroup  string
	listen  net.Listener
	mu      sync.Mutex
	conn    net.Conn
	inbox   chan wire.ToHead // all that the agent says
	streams chan net.Conn
	hello   wire.Hello // the last
	silence time.Duration
	stop    func()
	process *exec.Cmd
}

const patience = 4 * time.Minute

func newHead(t testing.TB) *head {
	t.Helper()
	root := t.TempDir()
	h := &head{t: t, spool: filepath.Join(root, "spool"), address: filepath.Join(root, "head"), cgroup: "none", silence: time.Minute, inbox: make(chan wire.ToHead, 4096), streams: make(chan net.Conn, 64)}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", h.address)
	if err != nil {
		t.Fatal(err)
	}
	h.listen = l
	go h.accept()
	t.Cleanup(func() {
		l.Close()
		if h.stop != nil {
			h.stop()
		}
		if h.process != nil {
			h.kill()
		}
		h.endAll()
	})
	return h
}

// endAll ends what a test has left behind.
func (h *head) endAll() {
	dirs, _ := filepath.Glob(filepath.Join(h.spool, tasksName, "[0-9]*"))
	for _, dir := range dirs {
		if pid, err := lockHolder(filepath.Join(dir, lockName)); err == nil && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGTERM)
			if conn, err := dialIn(dir, socketName); err == nil {
				c := control{conn}
				c.say(request{Order: &agentcore.Order{Stop: &wire.Stop{Task: wire.Task{Job: 1, Attempt: 1}, Cause: wire.Stopped}}})
				_, _ = io.Copy(io.Discard, conn)
			}
		}
	}
}

func (h *head) accept() {
	for {
		conn, err := h.listen.Accept()
		if err != nil {
			return
		}
		go func() {
			in := bufio.NewReader(conn)
			first, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if first != "agent\n" {
				h.streams <- &buffered{conn, in}
				return
			}
			h.mu.Lock()
			h.conn = conn
			h.mu.Unlock()
			for {
				m, err := wire.ReadToHead(in)
				if err != nil {
					return
				}
				h.inbox <- m
			}
		}()
	}
}

type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// run starts an agent in this process.
func (h *head) run(change ...func(*Config)) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cfg := testConfig(h.spool, h.address, h.cgroup, slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	for _, c := range change {
		c(&cfg)
	}
	go func() { done <- Run(ctx, cfg) }()
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
		h.stop = nil
	}
	h.welcome()
}

// spawn starts an agent as a process of its own.
func (h *head) spawn() {
	h.t.Helper()
	h.process = exec.Command("/proc/self/exe", "agent", h.spool, h.address, h.cgroup)
	h.process.Stderr = h.t.Output()
	if err := h.process.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.welcome()
}

// kill kills the agent.
func (h *head) kill() {
	_ = h.process.Process.Kill()
	_ = h.process.Wait()
	h.process = nil
}

func (h *head) welcome() {
	h.t.Helper()
	for {
		if hello, ok := h.next().(wire.Hello); ok {
			h.hello = hello
			h.send(wire.Welcome{Cluster: "c", Silence: h.silence})
			return
		}
	}
}

func (h *head) next() wire.ToHead {
	h.t.Helper()
	select {
	case m := <-h.inbox:
		return m
	case <-time.After(patience):
		h.t.Fatal("the agent says nothing")
	}
	return nil
}

func (h *head) send(m wire.ToAgent) {
	h.t.Helper()
	b, err := wire.Encode(nil, m)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(b)
}

// sendAnyway sends what no head sends.
func (h *head) sendAnyway(m envelope.Message) {
	h.t.Helper()
	b, err := envelope.Encode(m)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
}

func (h *head) write(b []byte) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.conn.Write(b); err != nil {
		h.t.Fatal(err)
	}
}

// await waits until a task is in a state.
func (h *head) await(id wire.Task, state wire.State) *wire.End {
	h.t.Helper()
	for i, r := range h.hello.Tasks {
		if r.Task == id && r.State == state && state == wire.Ended {
			h.hello.Tasks[i].State = "" // it was told once
			return r.End
		}
	}
	for {
		if r, ok := h.next().(wire.Report); ok && r.Task == id {
			if r.State == state {
				return r.End
			}
			if r.State == wire.Ended {
				h.t.Fatalf("task %v has ended: %+v", id, *r.End)
			}
		}
	}
}

// job is a task to be started.
func (h *head) job(number uint64, arguments ...string) wire.Start {
	dir := filepath.Join(h.t.TempDir())
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	return wire.Start{
		Task: wire.Task{Job: number, Attempt: 1}, Incarnation: h.hello.Incarnation,
		Spec: wire.Spec{
			Name: "job", User: me(h.t), Directory: dir, Environment: []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere"}, Arguments: arguments,
			Processes: 1, All: 1, Nodes: []string{"n1"}, Cores: 1, Grace: 10 * time.Second, Output: "out",
		},
	}
}

func me(t testing.TB) string {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

func (h *head) output(s wire.Start) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Spec.Directory, s.Spec.Output))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// awaitFile waits until a file of a job has a line, and returns it.
func (h *head) awaitFile(s wire.Start, name string) string {
	h.t.Helper()
	return h.awaitPath(filepath.Join(s.Spec.Directory, name))
}

func (h *head) awaitPath(path string) string {
	h.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "\n") {
			return strings.TrimSpace(string(text))
		}
	}
	h.t.Fatalf("nobody writes %s", path)
	return ""
}

func parsePid(text []byte) (int, error) { return strconv.Atoi(strings.TrimSpace(string(text))) }

// isGone waits until a process has ended.
func (h *head) isGone(pid string) {
	h.t.Helper()
	n, err := parsePid([]byte(pid))
	if err != nil {
		h.t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s, ok := statOf(n); !ok || s.state == 'Z' {
			return
		}
	}
	h.t.Fatalf("process %d goes on", n)
}
