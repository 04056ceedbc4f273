package sessions

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/await"
	"muster/wire/agent"
)

func greeting(t *testing.T, say ...agent.ToHead) (agent.Hello, error) {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		for _, m := range say {
			text, _ := agent.Encode(nil, m)
			_, _ = far.Write(text)
		}
		_ = far.Close()
	}()
	return Greeting(near, time.Minute, "driver", func(node string) error {
		if node != "n1" {
			return errors.New("not for this node")
		}
		return nil
	})
}

// An agent begins with a greeting of this version, for a node for which it may speak.
func TestGreeting(t *testing.T) {
	hello := agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1}
	if got, err := greeting(t, hello); err != nil || got.Node != "n1" {
		t.Errorf("%+v, %v", got, err)
	}
	other, old := hello, hello
	other.Node, old.Version = "n2", agent.Version+1
	for want, say := range map[string][]agent.ToHead{
		"an agent begins with hello, not with pong": {agent.Pong{}},
		"not for this node":                         {other},
		"and the driver version":                    {old},
		"EOF":                                       nil,
	} {
		if _, err := greeting(t, say...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", say, err, want)
		}
	}
}

// led is a session whose messages are texts; what begins with ! cannot be encoded.
func led(silence time.Duration) (s *Session[string], far net.Conn, unsent func() string) {
	near, far := net.Pipe()
	var mu sync.Mutex
	var refused []string
	began := time.Now()
	s = New(near, Leader[string]{
		Silence: silence, Now: func() time.Duration { return time.Since(began) }, Log: slog.New(slog.DiscardHandler),
		Encode: func(text []byte, m string) ([]byte, error) {
			if strings.HasPrefix(m, "!") {
				return text, errors.New("no")
			}
			return append(text, m...), nil
		},
		Unsent: func(m string, err error) {
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, m+": "+err.Error())
		},
	})
	return s, far, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(refused, ", ")
	}
}

// What is put is written in order, all of it before the session hangs up; a message that cannot be
// encoded is left out, and its sender hears of it.
func TestPut(t *testing.T) {
	s, far, unsent := led(time.Minute)
	for _, m := range []string{"a", "b", "!c", "d"} {
		if !s.Put(m) {
			t.Fatalf("%s is not taken", m)
		}
	}
	s.HangUp()
	if s.Put("late") {
		t.Error("something was put behind the end")
	}
	got, text := "", make([]byte, 64)
	for {
		n, err := far.Read(text)
		if got += string(text[:n]); err != nil {
			break
		}
	}
	if got != "abd" || unsent() != "!c: no" || s.Quiet() > time.Minute {
		t.Errorf("%q came, and %q was not sent", got, unsent())
	}
}

// An agent that does not read is hung up when too much waits for it.
func TestUnsteady(t *testing.T) {
	s, far, _ := led(time.Hour)
	defer far.Close()
	for n := 0; s.Put("x"); n++ {
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
	for what, end := range map[string]func(near net.Conn){
		"End": func(near net.Conn) {
			s := New(near, Leader[string]{Silence: time.Hour, Now: func() time.Duration { return 0 }, Log: slog.New(slog.DiscardHandler),
				Encode: func(text []byte, m string) ([]byte, error) { return append(text, m...), nil }})
			s.Put("much that waits")
			s.End("refused")
			if s.Put("more") {
				t.Error("it is still written to")
			}
			await.Until(t, "the connection is closed", func() bool { return near.SetReadDeadline(time.Time{}) != nil })
		},
		"Refuse": func(near net.Conn) { Refuse(near, "no") },
	} {
		t.Run(what, func(t *testing.T) {
			near, far := net.Pipe() // nobody reads
			defer far.Close()
			end(near)
		})
	}
}

// Hear passes on what can be read, and ends when nothing comes.
func TestHear(t *testing.T) {
	s, far, _ := led(50 * time.Millisecond)
	go func() {
		text, _ := agent.Encode(nil, agent.Pong{})
		_, _ = far.Write(append(text, text...))
	}()
	heard := 0
	if err := s.Hear(func(agent.ToHead) error { heard++; return nil }); !errors.Is(err, errSilent) || heard != 2 {
		t.Errorf("%d messages, then %v", heard, err)
	}
	s, far, _ = led(time.Minute)
	go func() {
		text, _ := agent.Encode(nil, agent.Pong{})
		_, _ = far.Write(text)
	}()
	if err := s.Hear(func(agent.ToHead) error { return ErrTwice }); !errors.Is(err, ErrTwice) {
		t.Errorf("then %v", err)
	}
	s.Drop()
	if s.Put("x") {
		t.Error("a dropped session takes messages")
	}
}
