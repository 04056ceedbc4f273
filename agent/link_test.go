package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster/agent/agentcore"
	wire "muster/wire/agent"
	"muster/wire/grant"
)

// answers runs an agent's keepConnected for ten minutes of virtual time against a head that gives
// each connection to serve. It returns when the agent came, and what it logged.
func answers(t *testing.T, serve func(n int, conn net.Conn) error) (came []time.Duration, said string) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		begin := time.Now()
		a := &agent{
			log:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			events:  make(chan agentcore.Event),
			devices: make(chan struct{}),
			link:    newLink(),
			cfg: Config{
				Random: rand.New(rand.NewPCG(1, 2)),
				Dial: func(context.Context) (net.Conn, error) {
					came = append(came, time.Since(begin))
					mine, heads := net.Pipe()
					if err := serve(len(came)-1, heads); err != nil {
						return nil, err
					}
					return mine, nil
				},
			},
		}
		close(a.devices)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		go func() {
			for {
				select {
				case <-a.events:
				case <-ctx.Done():
					return
				}
			}
		}()
		a.keepConnected(ctx)
		said = log.String()
	})
	return came, said
}

// tell sends messages, holds the connection for a time and ends it.
func tell(conn net.Conn, hold time.Duration, messages ...wire.ToAgent) {
	go func() {
		defer conn.Close()
		for _, m := range messages {
			text, err := wire.Encode(nil, m)
			if err != nil {
				panic(err)
			}
			if _, err := conn.Write(text); err != nil {
				return
			}
		}
		_ = conn.SetReadDeadline(time.Now().Add(hold))
		_, _ = io.Copy(io.Discard, conn) // until then, or until the agent hangs up
	}()
}

// intervals are the times between arrivals.
func intervals(came []time.Duration) (between []time.Duration) {
	for i := range came[1:] {
		between = append(between, came[i+1]-came[i])
	}
	return between
}

// An agent that the head refuses comes back less and less often, and says why once for each reason.
func TestRefusedAgentsBackOff(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(n int, conn net.Conn) error
		says  []string
	}{
		{"refused", func(n int, conn net.Conn) error {
			tell(conn, time.Second, wire.Refused{Reason: map[bool]string{true: "the name is taken", false: "the version is old"}[n < 5]})
			return nil
		}, []string{"the name is taken", "the version is old"}},
		{"not reached", func(int, net.Conn) error { return errors.New("no such certificate") }, []string{"no such certificate"}},
		{"hung up on", func(_ int, conn net.Conn) error { return conn.Close() }, []string{"EOF"}},
		{"reset, each time at another port", func(n int, _ net.Conn) error {
			return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 4000 + n}, Err: errors.New("reset")}
		}, []string{"reset"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			came, said := answers(t, c.serve)
			pause := firstPause
			for i, d := range intervals(came) {
				if d < pause/2 || d > pause {
					t.Errorf("it came again %v after attempt %d, not after %v or a little less", d, i, pause)
				}
				pause = min(2*pause, longestPause)
			}
			if got := strings.Count(said, "\n"); got != len(c.says) {
				t.Errorf("it said %d things, not %d:\n%s", got, len(c.says), said)
			}
			for _, s := range c.says {
				if strings.Count(said, s) != 1 {
					t.Errorf("it does not say %q once:\n%s", s, said)
				}
			}
		})
	}
}

// An agent that is accepted and soon dropped, again and again, is not back at once each time, but
// never stays away for long; one whose connection lasted is back at once.
func TestAcceptedAgentsComeBack(t *testing.T) {
	welcome := wire.Welcome{Cluster: "c", Silence: time.Minute}
	came, said := answers(t, func(_ int, conn net.Conn) error {
		tell(conn, 0, welcome)
		return nil
	})
	for i, d := range intervals(came) {
		if d > welcomePause {
			t.Errorf("it stays away for %v", d)
		}
		if i > 10 && d < welcomePause/2 {
			t.Errorf("it comes again after %v", d)
		}
	}
	if strings.Count(said, "\n") != 1 {
		t.Errorf("it does not say one thing:\n%s", said)
	}

	came, said = answers(t, func(_ int, conn net.Conn) error {
		tell(conn, time.Minute, welcome)
		return nil
	})
	for _, d := range intervals(came) {
		if d > time.Minute+firstPause {
			t.Errorf("it stays away for %v", d-time.Minute)
		}
	}
	if strings.Count(said, "\n") != len(came)-1 {
		t.Errorf("it was dropped %d times, and says:\n%s", len(came)-1, said)
	}

	// The end of a connection that lasted is news, also if others ended in the same way before; and it is
	// the connection that must last, not the way to it.
	came, said = answers(t, func(n int, conn net.Conn) error {
		if n != 3 {
			time.Sleep(2 * steadyTime)
			tell(conn, 0, welcome)
		} else {
			tell(conn, time.Minute, welcome)
		}
		return nil
	})
	if len(came) < 6 || strings.Count(said, "\n") != 2 {
		t.Errorf("it came %d times, and says:\n%s", len(came), said)
	}
}

// A node whose processes may run on all cores for the time of some hands out that many, and pins nobody.
func TestCoresUnderAQuota(t *testing.T) {
	own := []int{4, 5, 6, 7}
	for _, c := range []struct {
		want, quota int
		cores       []int
		pin         bool
	}{
		{0, 8, []int{4, 5, 6, 7}, true},
		{0, 4, []int{4, 5, 6, 7}, true},
		{0, 2, []int{0, 1}, false},
		{2, 1, []int{4, 5}, true},
		{6, 4, []int{0, 1, 2, 3, 4, 5}, false},
	} {
		if cores, pin := coresOf(own, c.want, c.quota); !slices.Equal(cores, c.cores) || pin != c.pin {
			t.Errorf("%d wanted and %d allowed: %v, pinned: %v", c.want, c.quota, cores, pin)
		}
	}
}

// A message that cannot be read ends its own business: the head hears why, and the session goes on.
func TestUnreadableMessages(t *testing.T) {
	h := newHead(t)
	h.run()
	bad := h.job(1, "true")
	bad.Spec.Name = "x\x00"
	h.sendAnyway(bad)
	h.sendAnyway(wire.Lend{Loan: grant.Loan{ID: "1.1.0"}})
	h.sendAnyway(wire.Stop{Task: bad.Task, Cause: "whim"})
	h.sendAnyway(tomorrows{})
	good := h.job(2, "true")
	h.send(good)
	var said []string
	for {
		switch m := h.next().(type) {
		case wire.Hello:
			t.Fatal("it hung up, and came again")
		case wire.Lent:
			said = append(said, m.ID+" "+m.Error)
		case wire.Report:
			if m.End == nil {
				continue
			}
			said = append(said, fmt.Sprint(m.Task, " ", m.End.Cause, " ", m.End.Reason))
			if m.Task != good.Task {
				continue
			}
			want := []string{
				"1.1.0 not begun the node cannot read what it is told to do: start with name: it has a zero byte (NUL): remove it",
				"1.1.0 the node cannot read what it is told to do: lend with the user is missing",
				"2.1.0 exited ",
			}
			if !slices.Equal(said, want) {
				t.Errorf("%q", said)
			}
			return
		}
	}
}

// tomorrows is a message of a later version.
type tomorrows struct{}

func (tomorrows) Kind() string { return "tomorrow" }

// Of several heads, one that led earlier is refused, until others are in charge.
func TestReign(t *testing.T) {
	var r reign
	for _, c := range []struct {
		heads   string
		term    uint64
		refused bool
	}{{"", 0, false}, {"h", 3, false}, {"h", 5, false}, {"h", 4, true}, {"h", 5, false}, {"i", 1, false}, {"", 0, false}, {"h", 2, false}} {
		if err := r.follow(wire.Welcome{Heads: c.heads, Term: c.term}); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
