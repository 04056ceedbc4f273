package sessions

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/await"
	"muster/wire/agent"
	"muster/wire/trust"
)

// agentOf is an agent of which the test is the leader: it may speak for n1, and must not be told to signal
// with 9.
type agentOf struct {
	mu      sync.Mutex
	session *Session
	heard   []agent.ToHead
	twice   bool
	refused error
	unsent  []string
	left    chan error
}

func (*agentOf) May(node string) error {
	if node != "n1" {
		return errors.New("not for this node")
	}
	return nil
}
func (a *agentOf) Greeted(s *Session, _ agent.Hello) error { a.session = s; return nil }
func (a *agentOf) Refused(_ agent.Hello, err error)        { a.left <- err }
func (a *agentOf) Left(err error)                          { a.left <- err }
func (a *agentOf) Heard(m agent.ToHead) error {
	a.heard = append(a.heard, m)
	if a.twice {
		return ErrTwice
	}
	return nil
}
func (*agentOf) Complete(m agent.ToAgent) (agent.ToAgent, error) {
	if m, is := m.(agent.Signal); is && m.Signal == 9 {
		return nil, errors.New("no")
	}
	return m, nil
}
func (a *agentOf) Unsent(m agent.ToAgent, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsent = append(a.unsent, string(m.Kind())+": "+err.Error())
}

// serverOf has sessions in which nobody is silent for longer than a time.
func serverOf(silence time.Duration) *Server {
	began := time.Now()
	return &Server{Leader: "driver", Greet: time.Minute, Silence: silence, Now: func() time.Duration { return time.Since(began) }, Log: slog.New(slog.DiscardHandler)}
}

var hello = agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1}

// greet serves an agent that says something, and waits until it has its session or none.
func greet(t *testing.T, v *Server, say ...agent.ToHead) (a *agentOf, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	a = &agentOf{left: make(chan error, 1)}
	v.Serve(near, a)
	for _, m := range say {
		text, _ := agent.Encode(nil, m)
		_, _ = far.Write(text)
	}
	return a, far
}

// An agent begins with a greeting of this version, for a node for which it may speak; another is told why
// it gets no session.
func TestGreeting(t *testing.T) {
	v := serverOf(time.Minute)
	a, far := greet(t, v, hello)
	await.Until(t, "the session begins", func() bool { return v.Count() == 1 })
	far.Close()
	if err := <-a.left; err == nil || v.Count() != 0 {
		t.Errorf("it has ended with %v, and there are %d", err, v.Count())
	}
	other, old := hello, hello
	other.Node, old.Version = "n2", agent.Version+1
	for want, m := range map[string]agent.ToHead{
		"an agent begins with hello, not with pong": agent.Pong{},
		"not for this node":                         other,
		"and the driver version":                    old,
	} {
		a, far := greet(t, v, m)
		told, _ := agent.ReadToAgent(far)
		if err := <-a.left; err == nil || !strings.Contains(err.Error(), want) || told != (agent.Refused{Reason: err.Error()}) {
			t.Errorf("%v: %v, want %s; it was told %v", m, err, want, told)
		}
	}
	v.Close()
	a, _ = greet(t, v, hello)
	if err := <-a.left; err == nil {
		t.Error("a closed server has sessions")
	}
	v.Wait()
}

// led is a session that has begun.
func led(t *testing.T, silence time.Duration) (a *agentOf, far net.Conn) {
	t.Helper()
	v := serverOf(silence)
	a, far = greet(t, v, hello)
	await.Until(t, "the session begins", func() bool { return v.Count() == 1 })
	return a, far
}

// What is put is written in order, all of it before the session hangs up; a message that cannot be
// written is left out, and its sender hears of it.
func TestPut(t *testing.T) {
	a, far := led(t, time.Minute)
	for _, m := range []agent.ToAgent{agent.Ping{}, agent.Unlend{ID: "x"}, agent.Signal{Task: agent.Task{Job: 1, Attempt: 1}, Signal: 9}, agent.Ping{}} {
		if !a.session.Put(m) {
			t.Fatalf("%v is not taken", m)
		}
	}
	a.session.HangUp()
	if a.session.Put(agent.Ping{}) {
		t.Error("something was put behind the end")
	}
	got := ""
	for {
		m, err := agent.ReadToAgent(far)
		if err != nil {
			break
		}
		got += " " + string(m.Kind())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if got != " ping unlend ping" || strings.Join(a.unsent, ", ") != "signal: no" || a.session.quiet() > time.Minute {
		t.Errorf("%q came, and %q was not sent", got, a.unsent)
	}
}

// An agent that does not read is hung up when too much waits for it.
func TestUnsteady(t *testing.T) {
	a, far := led(t, time.Hour)
	for n := 0; a.session.Put(agent.Ping{}); n++ {
		if n > 2*MaxWaiting {
			t.Fatal("there is no end of what is put")
		}
	}
	if _, err := far.Write([]byte{0}); err == nil {
		t.Error("the connection goes on")
	}
}

// Neither an agent that is told why its session ends, nor one that gets none, keeps its connection by not
// reading.
func TestEndedSessionsDoNotWaitForTheirAgents(t *testing.T) {
	a, _ := led(t, time.Hour)
	a.session.Put(agent.Ping{})
	a.session.server.EndRevoked(func(m Member) *trust.Revoked {
		if m != a {
			t.Errorf("asked of %v", m)
		}
		return &trust.Revoked{Certificate: &x509.Certificate{}}
	})
	if a.session.Put(agent.Ping{}) {
		t.Error("it is still written to")
	}
	var revoked *trust.Revoked
	if err := <-a.left; !errors.As(err, &revoked) {
		t.Errorf("it ended with %v", err)
	}
	a, _ = greet(t, serverOf(time.Hour), agent.Pong{})
	<-a.left
}

// What can be read is passed on, and the session ends when nothing comes, or when its leader says so.
func TestHear(t *testing.T) {
	a, far := led(t, 100*time.Millisecond)
	text, _ := agent.Encode(nil, agent.Pong{})
	_, _ = far.Write(append(text, text...))
	if err := <-a.left; !errors.Is(err, errSilent) || len(a.heard) != 2 {
		t.Errorf("%d messages, then %v", len(a.heard), err)
	}
	a, far = led(t, time.Minute)
	a.twice = true
	_, _ = far.Write(text)
	if err := <-a.left; !errors.Is(err, ErrTwice) {
		t.Errorf("then %v", err)
	}
	await.Until(t, "the session has ended", func() bool { return !a.session.Put(agent.Ping{}) })
}

// An agent to which nothing was said for a while is pinged.
func TestPing(t *testing.T) {
	a, far := led(t, 100*time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go a.session.server.Ping(ctx)
	if m, err := agent.ReadToAgent(far); m != (agent.Ping{}) || err != nil {
		t.Errorf("%v, %v", m, err)
	}
}

// Who connects and says nothing does not keep the leader from ending, before it is closed or after.
func TestClosedServersDoNotWaitForGreetings(t *testing.T) {
	v := serverOf(time.Hour)
	v.Greet = time.Hour
	early, _ := greet(t, v)
	await.Until(t, "the agent is expected to greet", func() bool { v.mu.Lock(); defer v.mu.Unlock(); return len(v.coming) == 1 })
	v.Close()
	late, _ := greet(t, v)
	v.Wait()
	for _, a := range []*agentOf{early, late} {
		if err := <-a.left; err == nil {
			t.Error("an agent that said nothing was refused without a reason")
		}
	}
}

// Messages that cannot be read are passed over. The log has the first and the next kind of trouble a minute later, also
// if an agent sends different ones without pause.
func TestUnreadableMessagesDoNotFillTheLog(t *testing.T) {
	v := serverOf(time.Minute)
	var log strings.Builder
	v.Log = slog.New(slog.NewTextHandler(&log, nil))
	var now atomic.Int64
	v.Now = func() time.Duration { return time.Duration(now.Load()) }
	a, far := greet(t, v, hello)
	send := func(text string) {
		_, _ = far.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	for n := range 1000 {
		send([]string{"{}", "nonsense", "[1]"}[n%3])
	}
	now.Store(int64(time.Minute))
	send("nonsense")
	send("{}")
	far.Close()
	<-a.left
	if n := strings.Count(log.String(), "cannot be read"); n != 2 || !strings.Contains(log.String(), "more=") {
		t.Errorf("%d lines: %.1000s", n, log.String())
	}
}

// An agent that is told much, and has nothing to say to it, is not taken for silent: it is asked.
func TestToldAndAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := serverOf(30 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Ping(ctx)
		a, far := greet(t, v, hello)
		synctest.Wait()
		go func() {
			for {
				m, err := agent.ReadToAgent(far)
				if err != nil {
					return
				}
				if m == (agent.Ping{}) {
					text, _ := agent.Encode(nil, agent.Pong{})
					_, _ = far.Write(text)
				}
			}
		}()
		for range 60 {
			time.Sleep(9 * time.Second)
			a.session.Put(agent.Unlend{ID: "x"})
		}
		select {
		case err := <-a.left:
			t.Errorf("its session has ended: %v", err)
		default:
			far.Close()
			<-a.left
		}
	})
}
