package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/head"
	"muster/internal/await"
	"muster/wire/agent"
	"muster/wire/api"
)

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}

// An agent that reports without pause, each time across its bounds, is slowed down: others are served, what
// another node reports is shown, and the log has a line for each of its notices and no more.
func TestFloodOfLoads(t *testing.T) {
	var log logged
	c := start(t, func(_ *Config, o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	hostile := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](hostile)
	quiet, err := agent.Encode(nil, agent.Load{})
	if err != nil {
		t.Fatal(err)
	}
	loud, err := agent.Encode(nil, agent.Load{Waiting: 1, Longest: time.Hour, SwapIn: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, hostile.conn)
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		both := bytes.Repeat(append(quiet, loud...), 1000)
		for {
			if _, err := hostile.conn.Write(both); err != nil {
				return
			}
		}
	}()
	defer func() { _ = hostile.conn.Close(); <-flooded }()
	other, user := c.greet(c.as("node", "n2"), hello("n2")), c.user("alice")
	heard[agent.Welcome](other)
	for waiting := range 20 {
		other.say(agent.Load{Waiting: waiting})
		await.Until(t, "the other node's report is shown", func() bool {
			var nodes api.Nodes
			user.must("GET", "/v1/nodes", nil, &nodes)
			return len(nodes.Nodes) == 2 && nodes.Nodes[0].Load != nil && nodes.Nodes[1].Load != nil && nodes.Nodes[1].Load.Waiting == waiting
		})
	}
	if n := log.count("notice="); n == 0 || n > 20 { // two notices, and a minute may end more than once
		t.Errorf("%d lines of notices", n)
	}
}

// A session's next report waits until the core has taken the last one.
func TestLoadsWaitForTheCore(t *testing.T) {
	q := newQueue()
	d := &daemon{queue: q, ending: make(chan struct{})}
	d.sessions = newSessions(d)
	one := d.sessions.of(caller{})
	const most = 5
	said := make(chan int, most)
	go func() {
		for n := range most {
			if err := one.Heard(agent.Load{Waiting: n}); err != nil {
				t.Error(err)
			}
			said <- n
		}
	}()
	for n := range most {
		if got := <-said; got != n {
			t.Errorf("%d was taken in, not %d", got, n)
		}
		await.Until(t, "the report is gathered", func() bool { return q.waiting() > 0 })
		if len(said) > 0 || q.waiting() != 1 {
			t.Fatalf("the core has not taken report %d, and %d more were taken in", n, len(said))
		}
		u, _ := q.take()
		if l, ok := u.call.events[0].(head.Said).Message.(agent.Load); !ok || l.Waiting != n {
			t.Errorf("report %d is %+v", n, l)
		}
	}
}

// A node that comes and goes without pause waits for its sessions in the end, and then gets none: neither the log
// nor the store fills, and other nodes are taken.
func TestFloodOfSessions(t *testing.T) {
	var log logged
	c := start(t, func(_ *Config, o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	const most = 100
	var all sync.WaitGroup
	for range most {
		hostile := c.greet(c.as("node", "n1"), hello("n1"))
		all.Go(func() {
			_, _ = agent.ReadToAgent(hostile.conn)
			_ = hostile.conn.Close()
		})
	}
	other := c.greet(c.as("node", "n2"), hello("n2"))
	heard[agent.Welcome](other)
	all.Wait()
	for _, word := range []string{"an agent greets", "an agent was refused", "an agent has gone"} {
		if n := log.count(word); n > most/2 {
			t.Errorf("%d lines: %s", n, word)
		}
	}
	if log.count("an agent was refused") == 0 {
		t.Error("all were taken")
	}
}
