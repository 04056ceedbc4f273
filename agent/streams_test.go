package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	wire "muster/wire/agent"
	"muster/wire/status"
)

// open has the agent open a stream.
func (h *head) open(o wire.Open) net.Conn {
	h.t.Helper()
	h.send(o)
	select {
	case conn := <-h.streams:
		_ = conn.SetDeadline(time.Now().Add(patience))
		return conn
	case <-time.After(patience):
		h.t.Fatal("the agent opens no stream")
	}
	return nil
}

// all reads a stream to its end.
func (h *head) all(conn net.Conn) (output, errors string, o wire.Outcome) {
	h.t.Helper()
	defer conn.Close()
	buffer := make([]byte, wire.MaxFrame)
	var said [2]strings.Builder
	for {
		kind, b, err := wire.ReadFrame(conn, buffer)
		switch {
		case err != nil:
			h.t.Fatal(err)
		case kind == wire.FrameEnd:
			o, err := wire.ParseOutcome(b)
			if err != nil {
				h.t.Fatal(err)
			}
			return said[0].String(), said[1].String(), o
		case kind == wire.FrameOutput:
			said[0].Write(b)
		default:
			said[1].Write(b)
		}
	}
}

func (h *head) file(id wire.Task, name string, follow bool) (string, wire.Outcome) {
	h.t.Helper()
	output, _, o := h.all(h.open(wire.Open{Stream: "s", Task: id, File: name, Follow: follow}))
	return output, o
}

func (h *head) exec(id wire.Task, arguments ...string) net.Conn {
	h.t.Helper()
	return h.open(wire.Open{Stream: "s", Task: id, Exec: &wire.Exec{Arguments: arguments, Environment: []string{"MORE=more"}}})
}

// What a task writes can be read, from anywhere in it, while it runs and after that.
func TestFiles(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", "echo one; echo wrong >&2; while ! [ -e go ]; do sleep 0.01; done; echo two")
	s.Spec.Error = "err"
	h.send(s)
	h.awaitFile(s, "err")
	if got, o := h.file(s.Task, "error", false); got != "wrong\n" || o != (wire.Outcome{}) {
		t.Errorf("%q %+v", got, o)
	}
	following := h.open(wire.Open{Stream: "s", Task: s.Task, File: "output", Follow: true, Offset: 1})
	if kind, b, err := wire.ReadFrame(following, make([]byte, wire.MaxFrame)); err != nil || kind != wire.FrameOutput || string(b) != "ne\n" {
		t.Errorf("%v %q %v", kind, b, err)
	}
	if err := os.WriteFile(s.Spec.Directory+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _, o := h.all(following); got != "two\n" || o != (wire.Outcome{}) {
		t.Errorf("%q %+v", got, o)
	}
	h.await(s.Task, wire.Ended)
	if got, _ := h.file(s.Task, "output", true); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	if _, o := h.file(wire.Task{Job: 9, Attempt: 1}, "output", true); !strings.Contains(o.Reason, "has nothing of it: the job ended some time ago") {
		t.Errorf("%+v", o)
	}
	// The head says where a job wrote of which the node knows nothing any more.
	forgotten := wire.Open{Stream: "s", Task: wire.Task{Job: 9, Attempt: 1}, File: "output", Follow: true, Ended: &wire.Written{User: me(t), Directory: s.Spec.Directory, File: "out"}}
	if got, _, o := h.all(h.open(forgotten)); got != "one\ntwo\n" || o != (wire.Outcome{}) {
		t.Errorf("%q %+v", got, o)
	}
	forgotten.Ended.File = "removed"
	if _, _, o := h.all(h.open(forgotten)); !strings.Contains(o.Reason, "removed: no such file") {
		t.Errorf("%+v", o)
	}
}

// A file may have what an earlier job wrote. Until the task has emptied it, nobody is shown that.
func TestOldOutputIsNotShown(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "echo", "new")
	s.Spec.Input = "in" // a pipe, which the task opens before its output: it waits until somebody writes
	if err := syscall.Mkfifo(filepath.Join(s.Spec.Directory, "in"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Spec.Directory, "out"), []byte("what an earlier job wrote\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.send(s)
	h.await(s.Task, wire.Running)
	if got, o := h.file(s.Task, "output", false); got != "" || !strings.Contains(o.Reason, "job 1 is starting, and has written nothing yet") {
		t.Errorf("of a task that starts: %q %+v", got, o)
	}
	following := h.open(wire.Open{Stream: "s", Task: s.Task, File: "output", Follow: true})
	in, err := os.OpenFile(filepath.Join(s.Spec.Directory, "in"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got, _, o := h.all(following); got != "new\n" || o != (wire.Outcome{}) {
		t.Errorf("followed: %q %+v", got, o)
	}
	if got, _ := h.file(s.Task, "output", false); got != "new\n" {
		t.Errorf("after the end: %q", got)
	}
}

// A command runs among a task's processes, with its environment, and ends with it, and
// with whoever wanted it.
func TestExec(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sleep", "1000")
	h.send(s)
	h.await(s.Task, wire.Running)

	conn := h.exec(s.Task, "sh", "-c", `echo $MUSTER_JOB_ID $MORE; pwd; wc -c; echo wrong >&2; exit 3`)
	_, _ = conn.Write(wire.AppendFrame(nil, wire.FrameInput, []byte("hello")))
	_, _ = conn.Write(wire.AppendFrame(nil, wire.FrameInput, nil))
	if out, errs, o := h.all(conn); out != "1 more\n"+s.Spec.Directory+"\n5\n" || errs != "wrong\n" || o != (wire.Outcome{Exit: 3}) {
		t.Errorf("%q %q %+v", out, errs, o)
	}
	if _, _, o := h.all(h.exec(s.Task, "no-such-command")); o.Exit != 127 || !strings.Contains(o.Reason, "not found in the job's PATH") {
		t.Errorf("%+v", o)
	}
	gone := h.exec(s.Task, "sh", "-c", "echo $$ > gone; sleep 1000; :")
	pid := h.awaitFile(s, "gone")
	gone.Close()
	h.isGone(pid)

	last := h.exec(s.Task, "sh", "-c", "echo $$ > last; sleep 1000; :")
	pid = h.awaitFile(s, "last")
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped})
	if _, _, o := h.all(last); o.Signal != 9 {
		t.Errorf("%+v", o)
	}
	h.isGone(pid)
	h.await(s.Task, wire.Ended)
	if _, _, o := h.all(h.exec(s.Task, "true")); !strings.Contains(o.Reason, "has ended") {
		t.Errorf("%+v", o)
	}
}

// told tells when the agent closes a stream.
type told struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *told) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A command that does not read its input is killed when whoever wanted it hangs up, though
// every hop then waits in a write and has bytes before the end of what it reads. The agent's
// stream ends too.
func TestExecHangUpWithInput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			h := newHead(t)
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "streams")
			}
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			closed := make(chan struct{})
			h.run(func(c *Config) {
				c.DialStream = func(context.Context, string) (net.Conn, error) {
					conn, err := net.Dial(network, l.Addr().String())
					return &told{Conn: conn, closed: closed}, err
				}
			})
			s := h.job(1, "sleep", "1000")
			h.send(s)
			h.await(s.Task, wire.Running)
			h.send(wire.Open{Stream: "s", Task: s.Task, Exec: &wire.Exec{Arguments: []string{"sh", "-c", "echo $$ > pid; sleep 1000; :"}}})
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			pid := h.awaitFile(s, "pid")
			fill(t, conn)
			conn.Close()
			h.isGone(pid)
			select {
			case <-closed:
			case <-time.After(patience):
				t.Fatal("the agent keeps the stream")
			}
		})
	}
}

// fill sends input until the other side takes no more.
func fill(t *testing.T, conn net.Conn) {
	t.Helper()
	frame := wire.AppendFrame(nil, wire.FrameInput, make([]byte, wire.MaxFrame))
	for range 1 << 12 {
		_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := conn.Write(frame); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("somebody takes all input")
}

// A command that takes its input late gets all of it, and the user sees nothing of what
// passed meanwhile.
func TestExecLateInput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	h := newHead(t)
	h.run()
	s := h.job(1, "sleep", "1000")
	h.send(s)
	h.await(s.Task, wire.Running)
	conn := h.exec(s.Task, "sh", "-c", "while ! [ -e go ]; do sleep 0.01; done; wc -c")
	const frames = 32
	sent := make(chan error, 1)
	go func() {
		var err error
		for range frames {
			_, err = conn.Write(wire.AppendFrame(nil, wire.FrameInput, make([]byte, wire.MaxFrame)))
		}
		_, _ = conn.Write(wire.AppendFrame(nil, wire.FrameInput, nil))
		sent <- err
	}()
	for range 2 { // the supervisor asks whether anybody is there
		if kind, b, err := wire.ReadFrame(conn, make([]byte, wire.MaxFrame)); err != nil || kind != wire.FrameOutput || len(b) != 0 {
			t.Fatalf("%v %q %v", kind, b, err)
		}
	}
	if err := os.WriteFile(s.Spec.Directory+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, o := h.all(conn); strings.TrimSpace(out) != strconv.Itoa(frames*wire.MaxFrame) || o != (wire.Outcome{}) {
		t.Errorf("%q %+v", out, o)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Much output is held back by a head that does not read, and arrives whole.
func TestExecMuch(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sleep", "1000")
	h.send(s)
	h.await(s.Task, wire.Running)
	if out, _, o := h.all(h.exec(s.Task, "head", "-c", "8000000", "/dev/zero")); len(out) != 8000000 || o != (wire.Outcome{}) {
		t.Errorf("%d bytes, %+v", len(out), o)
	}
}

// The node's status is asked for as a file is, without a task.
func TestStatus(t *testing.T) {
	h := newHead(t)
	answer := &status.Node{Node: "here", Clients: []status.Client{{ID: 7, Program: strings.Repeat("p", 3*wire.MaxFrame)}}}
	var away atomic.Bool
	h.run(func(c *Config) {
		c.Status = func(context.Context) (*status.Node, error) {
			if away.Load() {
				return nil, errors.New("the daemon has ended")
			}
			return answer, nil
		}
	})
	out, _, o := h.all(h.open(wire.Open{Stream: "s", File: wire.FileStatus}))
	var got status.Node
	if err := json.Unmarshal([]byte(out), &got); err != nil || o != (wire.Outcome{}) || got.Node != "here" || len(got.Clients) != 1 || got.Clients[0].Program != answer.Clients[0].Program {
		t.Errorf("%d bytes, %+v, %v", len(out), o, err)
	}
	away.Store(true)
	if out, _, o := h.all(h.open(wire.Open{Stream: "s", File: wire.FileStatus})); out != "" || o.Reason != "the daemon has ended" {
		t.Errorf("%q, %+v", out, o)
	}
}

// A node without a daemon has no status, and says so.
func TestNoStatus(t *testing.T) {
	h := newHead(t)
	h.run()
	if _, _, o := h.all(h.open(wire.Open{Stream: "s", File: wire.FileStatus})); !strings.Contains(o.Reason, "has no status") {
		t.Errorf("%+v", o)
	}
}

// readerOf finds the process by which this one reads a task's output.
func readerOf(t *testing.T) int {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		children, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range children {
			text, _ := os.ReadFile(list)
			for _, word := range strings.Fields(string(text)) {
				if said, _ := os.ReadFile("/proc/" + word + "/cmdline"); strings.HasSuffix(string(said), "\x00task\x00read\x00") {
					pid, err := strconv.Atoi(word)
					if err != nil {
						t.Fatal(err)
					}
					return pid
				}
			}
		}
	}
	t.Fatal("nobody reads the output")
	return 0
}

// A task's output is read by a process of its user, whose pipes the user's other processes can open. They
// do not keep the stream from ending.
func TestOthersHoldTheReadersPipes(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", "echo one; sleep 1000")
	h.send(s)
	h.awaitFile(s, "out")
	conn := h.open(wire.Open{Stream: "s", Task: s.Task, File: "output", Follow: true})
	pid := readerOf(t)
	for _, name := range []string{"1", "2"} {
		held, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/fd/"+name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
	}
	conn.Close()
	h.stop() // waits for all streams
}

// Of what a reader complains of, the beginning is kept, however much the user's processes write there.
func TestComplaintsAreBounded(t *testing.T) {
	var complaint beginning
	for _, text := range []string{"no such file: ", strings.Repeat("x", mostBeginning), "more"} {
		if n, err := complaint.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%d of %d bytes, %v", n, len(text), err)
		}
	}
	if len(complaint) != mostBeginning || !strings.HasPrefix(string(complaint), "no such file: x") {
		t.Errorf("%d bytes: %.20q", len(complaint), string(complaint))
	}
}
