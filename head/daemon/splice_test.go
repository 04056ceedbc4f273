package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
)

// tcpPair is two ends of a connection.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err == nil {
		b, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

// flood writes until the other side accepts no more.
func flood(t *testing.T, conn net.Conn) {
	t.Helper()
	frame := agent.AppendFrame(nil, agent.FrameInput, make([]byte, agent.MaxFrame))
	for range 1 << 12 {
		_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := conn.Write(frame); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("somebody takes all bytes")
}

// A user who has closed the sending side, and reads nothing, does not keep a stream open.
func TestSpliceEndsWithoutReader(t *testing.T) {
	user, near := tcpPair(t)
	far, node := tcpPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		splice(near, far, 100*time.Millisecond)
	}()
	flood(t, node)
	if err := closeWrite(user); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(4 * time.Minute):
		t.Fatal("the stream goes on")
	}
}

// A user who disconnects with input that the command does not read is noticed when the agent sends
// empty output, as it does then: the agent's connection ends.
func TestHangUpWithInput(t *testing.T) {
	c := start(t, nil)
	as := c.as("node", "n1")
	n1, alice := c.greet(as, hello("n1")), c.user("alice")
	job := alice.submit(command("cat"))
	started := heard[agent.Start](n1)
	n1.say(agent.Report{Task: started.Task, State: agent.Running})
	waitFor(t, alice, job, api.Running)
	users := make(chan net.Conn, 1)
	go func() {
		defer close(users)
		conn, err := dial.Upgrade(context.Background(), c.as("user", "alice"), "POST", fmt.Sprintf("/v1/jobs/%d/exec?arg=sleep", job), dial.ProtocolStream)
		if err != nil {
			t.Error(err)
			return
		}
		users <- conn
	}()
	far, err := dial.DialStream(context.Background(), as, heard[agent.Open](n1).Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	user, ok := <-users
	if !ok {
		t.FailNow()
	}
	flood(t, user)
	_ = user.Close()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := far.Write(agent.AppendFrame(nil, agent.FrameOutput, nil)); err != nil {
			return
		}
	}
	t.Fatal("the head keeps the stream of a user who has hung up")
}
