package agent

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	wire "muster/wire/agent"
)

// onTerminal runs a command on a terminal of 24 rows and 80 columns.
func (h *head) onTerminal(id wire.Task, arguments ...string) net.Conn {
	h.t.Helper()
	return h.open(wire.Open{Stream: "s", Task: id, Exec: &wire.Exec{Arguments: arguments, Terminal: &wire.Terminal{Rows: 24, Columns: 80}}})
}

// typed sends what a user types.
func (h *head) typed(conn net.Conn, text string) {
	h.t.Helper()
	if _, err := conn.Write(wire.AppendFrame(nil, wire.FrameInput, []byte(text))); err != nil {
		h.t.Fatal(err)
	}
}

// until reads what a terminal shows until it shows a text.
func (h *head) until(conn net.Conn, want string) string {
	h.t.Helper()
	var shown strings.Builder
	buffer := make([]byte, wire.MaxFrame)
	for !strings.Contains(shown.String(), want) {
		kind, b, err := wire.ReadFrame(conn, buffer)
		if err != nil || kind != wire.FrameOutput {
			h.t.Fatalf("%v, a frame of kind %d %q; before: %q; want %q", err, kind, b, shown.String(), want)
		}
		shown.Write(b)
	}
	return shown.String()
}

// A command on a terminal: the terminal is its user's alone, has the size of the user's own, and turns ^C
// into a signal. The task need not run anything itself.
func TestTerminal(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1)
	s.Spec.Arguments, s.Spec.Processes = nil, 0
	h.send(s)
	h.await(s.Task, wire.Running)

	conn := h.onTerminal(s.Task, "sh", "-c", `trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT
		stat -c '%u %a' "$(tty)"; stty size; sleep 1000 & echo rea''dy; while :; do wait; done`)
	if shown := h.until(conn, "ready"); !strings.Contains(shown, strconv.Itoa(os.Getuid())+" 600") || !strings.Contains(shown, "24 80") {
		t.Errorf("%q", shown)
	}
	if _, err := conn.Write(wire.AppendSize(nil, wire.Terminal{Rows: 33, Columns: 111})); err != nil {
		t.Fatal(err)
	}
	h.until(conn, "33 111")
	h.typed(conn, "\x03")
	output, errors, o := h.all(conn)
	if !strings.Contains(output, "interrupted") || errors != "" || o != (wire.Outcome{Exit: 3}) {
		t.Errorf("%q, %q, %+v", output, errors, o)
	}

	// A shell has its jobs. What reads lines sees the end of input.
	conn = h.onTerminal(s.Task, "bash", "--norc", "-i")
	h.typed(conn, "sh -c 'echo be''gun; exec sleep 1000'\n")
	h.until(conn, "begun\r\n")
	h.typed(conn, "\x1a")
	h.until(conn, "Stopped")
	h.typed(conn, "exit 5\nexit 5\n")
	if _, _, o := h.all(conn); o != (wire.Outcome{Exit: 5}) {
		t.Errorf("%+v", o)
	}
	conn = h.onTerminal(s.Task, "sh", "-c", "cat; exit 6")
	h.typed(conn, "line\n")
	if _, err := conn.Write(wire.AppendFrame(nil, wire.FrameInput, nil)); err != nil { // ^D
		t.Fatal(err)
	}
	if output, _, o := h.all(conn); !strings.Contains(output, "line") || o != (wire.Outcome{Exit: 6}) {
		t.Errorf("%q, %+v", output, o)
	}
	if output, _, o := h.all(h.onTerminal(s.Task, "./none")); o.Exit != 127 || !strings.Contains(output, "./none") {
		t.Errorf("%q, %+v", output, o)
	}

	// What is no size ends the command.
	conn = h.onTerminal(s.Task, "sh", "-c", "echo ready; exec sleep 1000")
	h.until(conn, "ready")
	if _, err := conn.Write(wire.AppendFrame(nil, wire.FrameSize, []byte("xx"))); err != nil {
		t.Fatal(err)
	}
	if _, _, o := h.all(conn); o.Signal != 1 {
		t.Errorf("%+v", o)
	}
}

// When the user has hung up, so does the terminal; what does not mind is killed. A user who does not read
// keeps nobody else waiting, and not the end of the task.
func TestTerminalHangsUp(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1)
	s.Spec.Arguments, s.Spec.Processes = nil, 0
	h.send(s)
	h.await(s.Task, wire.Running)
	var pids []string
	for i, trap := range []string{`'echo end > hup; exit'`, `''`} {
		name := "pid" + strconv.Itoa(i)
		conn := h.onTerminal(s.Task, "sh", "-c", "trap "+trap+" HUP; echo $$ > "+name+"; while :; do sleep 0.01; done")
		pids = append(pids, h.awaitFile(s, name))
		conn.Close()
	}
	for _, pid := range pids {
		h.isGone(pid)
	}
	if got := h.awaitFile(s, "hup"); got != "end" {
		t.Errorf("%q", got)
	}
	stalled := h.onTerminal(s.Task, "yes")
	defer stalled.Close()
	h.until(stalled, "y\r\n")
	if output, _, o := h.all(h.onTerminal(s.Task, "echo", "here")); output != "here\r\n" || o != (wire.Outcome{}) {
		t.Errorf("%q, %+v", output, o)
	}
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped})
	h.await(s.Task, wire.Ended)
}

// A terminal ends with the agent that carries it, and the task goes on. That of another user than the
// agent's is that user's.
func TestTerminalAndKilledAgent(t *testing.T) {
	h := newHead(t)
	h.spawn()
	s := h.job(1)
	s.Spec.Arguments, s.Spec.Processes = nil, 0
	if os.Getuid() == 0 {
		s.Spec.User = "nobody"
	}
	h.send(s)
	h.await(s.Task, wire.Running)
	conn := h.onTerminal(s.Task, "sh", "-c", `stat -c 'of %U %a' "$(tty)"; echo own > "$(tty)"; echo pid $$; echo rea''dy; while :; do sleep 0.01; done`)
	shown := h.until(conn, "ready")
	if !strings.Contains(shown, "of "+s.Spec.User+" 600") || !strings.Contains(shown, "own") {
		t.Errorf("%q", shown)
	}
	_, pid, _ := strings.Cut(shown, "pid ")
	pid, _, _ = strings.Cut(pid, "\r")
	h.kill()
	h.isGone(pid)
	h.spawn()
	if len(h.hello.Tasks) != 1 || h.hello.Tasks[0].State != wire.Running { // it may know that before it greets
		h.await(s.Task, wire.Running)
	}
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped})
	h.await(s.Task, wire.Ended)
}
