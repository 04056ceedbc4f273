package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/build"
	"muster/internal/need"
	"muster/node/ask"
	"muster/wire/status"

	"golang.org/x/sys/unix"
)

// patience limits every wait, so that a test fails with a message instead of hanging. No test
// depends on its length.
const patience = 4 * time.Minute

var built struct {
	dir      string   // muster, lib/ and the programs in C
	programs sync.Map // what makes a program of testdata, by its name
}

func TestMain(m *testing.M) {
	if mode := os.Getenv("MUSTER_STACK_PROCESS"); mode != "" {
		testProcess(mode)
		return
	}
	leaveOutside()
	if err := chooseTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	runMoreTests()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "muster-stack-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		built.dir = dir
		if err := buildAll(); err != nil {
			fmt.Fprintln(os.Stderr, "building what the tests need:", err)
			return 1
		}
		status := m.Run()
		if files, _ := filepath.Glob("/dev/shm/*muster*"); len(files) > 0 {
			fmt.Fprintln(os.Stderr, "shared memory was left:", files)
			return 1
		}
		return status
	}())
}

// runMoreTests runs more tests at a time than there are processors, unless the user has said how many: most of
// their time they wait for processes.
func runMoreTests() {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set(parallel.Name, fmt.Sprint(2*runtime.GOMAXPROCS(0)))
	}
}

// leaveOutside separates the tests' programs from what is outside of their container: CRIU cannot
// save a program whose session leader is outside, or with a file open that was opened there. Such a
// container may also have no init process that reaps orphans, so that their PIDs stay in use; then
// this process reaps them, and the tests run in a child.
func leaveOutside() {
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	if session, _, errno := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0); errno != 0 || session != 0 {
		return
	}
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	child, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = syscall.Kill(child, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err != nil && err != syscall.EINTR:
			os.Exit(1)
		case pid == child && status.Exited():
			os.Exit(status.ExitStatus())
		case pid == child && status.Signaled():
			os.Exit(128 + int(status.Signal()))
		}
	}
}

// lookAtSources visits all sources. The go command caches test results together with the files that
// tests have looked at, and so notices when one changes.
var lookAtSources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && filepath.Base(path) == ".git" {
			return filepath.SkipDir
		}
		return err
	})
})

// buildAll builds muster, its libraries and the small program.
func buildAll() error {
	if err := os.Mkdir(filepath.Join(built.dir, "lib"), 0o755); err != nil {
		return err
	}
	var group sync.WaitGroup
	errs := make([]error, 4)
	group.Go(func() {
		errs[0] = buildMuster(made("muster"))
	})
	group.Go(func() {
		if errs[1] = build.Library("../..", made("lib/libcuda.so.1")); errs[1] == nil {
			errs[1] = errors.Join(compile("small"), compile("threads"))
		}
	})
	group.Go(func() {
		errs[2] = build.Collectives("../..", made("lib/libmuster-mpi.so"))
	})
	group.Go(func() {
		if errs[3] = build.Monitor("../..", made("lib/libnvidia-ml.so.1")); errs[3] == nil {
			errs[3] = command("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-o", made("query"), "../../nvml/test/query.c", "-ldl")
		}
	})
	group.Wait()
	return errors.Join(errs...)
}

func made(name string) string { return filepath.Join(built.dir, name) }

// compile builds a program of testdata, once.
func compile(name string) error {
	once, _ := built.programs.LoadOrStore(name, sync.OnceValue(func() error { return compileAs(made(name), name, made("lib")) }))
	return once.(func() error)()
}

func compileAs(to, name, lib string, flags ...string) error {
	args := append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-I../../shim/include"}, flags...)
	return command("gcc", append(args, "testdata/"+name+".c", "-o", to, "-L"+lib, "-l:libcuda.so.1")...)
}

func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// example returns an example program, or skips the test.
func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		need.Missing(t, need.Examples, name, "is not built: run make examples first")
	}
	return path
}

// world has the processes of one test. A mark in their environment identifies them, so that none is
// overlooked.
type world struct {
	*testing.T
	mark string
	temp string
}

var worlds atomic.Int64

// newWorld makes a world. At the end of the test it checks that no process is left.
func newWorld(t *testing.T) *world {
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, mark: fmt.Sprintf("MUSTER_STACK_WORLD=%d-%d", os.Getpid(), worlds.Add(1)), temp: t.TempDir()}
	t.Cleanup(func() {
		w.eventually("no process is left", func() bool { return len(w.processes()) == 0 })
		for _, pid := range w.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if files, _ := filepath.Glob(w.temp + "/*"); len(files) > 0 {
			t.Errorf("files were left: %v", files)
		}
	})
	return w
}

// processes lists the running processes of this world.
func (w *world) processes() []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(w.mark+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		found = append(found, pid)
	}
	return found
}

func (w *world) environment(more ...string) []string {
	return append(append(os.Environ(), w.mark, "TMPDIR="+w.temp, "GORACE=halt_on_error=1 atexit_sleep_ms=0"), more...)
}

// eventually waits for a condition that other processes bring about.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	pause := time.Millisecond // it grows, so that tests that wait leave the processors to those that work
	for end := time.Now().Add(patience); !is(); time.Sleep(pause) {
		pause = min(pause*5/4, 30*time.Millisecond)
		if time.Now().After(end) {
			w.Fatalf("not within %v: %s\nthe processes of this test: %v", patience, what, w.processes())
		}
	}
}

// notebook is a log that can be read while it is written.
type notebook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notebook) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// theNode is a daemon that runs as a process.
type theNode struct {
	*world
	socket  string
	cmd     *exec.Cmd
	stdin   io.Closer
	log     *notebook
	exited  chan struct{}
	web     string // address of the metrics
	gateway string // address for other machines
	killed  bool
	faulty  bool // a worker's panic is what the test is about: the log may have it
}

var sockets atomic.Int64

// start starts a node, and stops it at the end of the test, which fails if there are errors in the
// node's log.
func (w *world) start(args ...string) *theNode {
	w.Helper()
	return w.startAs(nil, args...)
}

// startAs starts a node as another user; nil is this one.
func (w *world) startAs(user *syscall.Credential, args ...string) *theNode {
	w.Helper()
	n := &theNode{world: w, socket: fmt.Sprintf("@muster-stack-%d-%d", os.Getpid(), sockets.Add(1)), log: &notebook{}, exited: make(chan struct{})}
	all := append([]string{"node", "--child", "--json-log", "--socket", n.socket, "--http", "127.0.0.1:0"}, args...)
	n.cmd = exec.Command(made("muster"), all...)
	n.cmd.Env = w.environment()
	n.cmd.Stderr = n.log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	stdin, err := n.cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	n.stdin = stdin
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	line := make([]byte, 6)
	_, err = io.ReadFull(stdout, line)
	go func() {
		_ = n.cmd.Wait()
		close(n.exited)
	}()
	if err != nil || string(line) != "ready\n" {
		stdin.Close()
		<-n.exited
		w.Fatalf("the node did not come up: %q\n%s", line, n.log)
	}
	w.Cleanup(n.finish)
	w.eventually("the log arrives", func() bool { return n.logged("the node is up", "socket") != "" })
	n.web, n.gateway = n.logged("metrics and health are served", "address"), n.logged("programs on other machines are served", "address")
	return n
}

// finish stops the node, and reports what is wrong with it.
func (n *theNode) finish() {
	if !n.killed {
		n.stdin.Close()
	}
	select {
	case <-n.exited:
	case <-time.After(patience):
		n.Error("the node does not end")
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
	text := n.log.String()
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE", "goroutine "} {
		if strings.Contains(text, bad) && !n.faulty {
			n.Errorf("the log has %q", bad)
		}
	}
	if n.Failed() {
		n.Logf("the node's log:\n%s", text)
	}
}

// kill kills the daemon, as the system does when memory runs out.
func (n *theNode) kill() {
	n.killed = true
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// logged returns an attribute of the first line with a message.
func (n *theNode) logged(message, attribute string) string {
	for line := range strings.Lines(n.log.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			return fmt.Sprint(entry[attribute])
		}
	}
	return ""
}

// nodeStatus asks a node for its status. On a slow machine a busy daemon may take longer to answer than
// users wait, and is asked again.
func nodeStatus(socket string) (*status.Node, error) {
	for end := time.Now().Add(patience); ; {
		s, err := ask.Status(socket)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			return s, err
		}
	}
}

// status asks the node for its status.
func (n *theNode) status() *status.Node {
	n.Helper()
	s, err := nodeStatus(n.socket)
	if err != nil {
		n.Fatal(err)
	}
	return s
}

// total is one of the node's metrics, which include clients that have left.
func (n *theNode) total(name string) float64 {
	n.Helper()
	reply, err := http.Get(n.web + "/metrics")
	if err != nil {
		n.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		n.Fatal(err)
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			n.Fatal(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		n.Fatalf("there is no metric %s", name)
	}
	return sum
}

// idle waits until the node has no clients, and all its resources are free again.
func (n *theNode) idle() {
	n.Helper()
	n.eventually("the node is free again", func() bool {
		s := n.status()
		for _, d := range s.Devices {
			if d.Free != d.Memory || d.Assigned != 0 {
				return false
			}
		}
		return len(s.Clients) == 0 && s.Committed == 0
	})
}

// program is a program that runs under muster run.
type program struct {
	*world
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	output *notebook
	exited chan struct{}
}

// launch starts a program on the node.
func (n *theNode) launch(path string, args ...string) *program {
	n.Helper()
	return n.launchWith([]string{"--socket", n.socket}, path, args...)
}

// launchWith starts a program with options of muster run.
func (w *world) launchWith(options []string, path string, args ...string) *program {
	w.Helper()
	all := append(append(append([]string{"run"}, options...), "--", path), args...)
	return w.execute(made("muster"), all...)
}

// execute starts a command.
func (w *world) execute(path string, args ...string) *program {
	w.Helper()
	return w.executeWith([]string{"MUSTER_SOCKET=@muster-stack-nowhere"}, path, args...)
}

// executeWith starts a command with more variables in its environment.
func (w *world) executeWith(environment []string, path string, args ...string) *program {
	w.Helper()
	p := &program{world: w, name: strings.Join(append([]string{filepath.Base(path)}, args...), " "), output: &notebook{}, exited: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = w.environment(environment...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		w.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	return p
}

// ended says whether the program has ended.
func (p *program) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// wait returns how the program ended: an exit code, or -1 for a signal.
func (p *program) wait() int {
	p.Helper()
	p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.Errorf("%s does not end; it said: %s", p.name, p.output)
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return p.cmd.ProcessState.ExitCode()
}

// right waits for the program, which must succeed, and returns its output.
func (p *program) right() string {
	p.Helper()
	if code := p.wait(); code != 0 {
		p.Errorf("%s ended with %d (%v): %s", p.name, code, p.cmd.ProcessState, p.output)
	}
	return p.output.String()
}

// says waits until the program has said something.
func (p *program) says(what string) {
	p.Helper()
	p.eventually(p.name+" says "+what, func() bool {
		if strings.Contains(p.output.String(), what) {
			return true
		}
		select {
		case <-p.exited:
			if !strings.Contains(p.output.String(), what) {
				p.Fatalf("%s ended (%v) without saying %q: %s", p.name, p.cmd.ProcessState, what, p.output)
			}
		default:
		}
		return false
	})
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// muster runs a command of muster to its end.
func (w *world) muster(args ...string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, made("muster"), args...)
	cmd.Env = w.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
