package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/wire/api"
	"muster/wire/dial"
)

// together waits until so many heads count for a majority.
func (a *asker) together(count int) {
	a.t.Helper()
	for end := time.Now().Add(4 * time.Minute); ; {
		var all api.Heads
		votes := 0
		status, problem := a.do("GET", "/v1/heads", nil, &all)
		for _, h := range all.Heads {
			if h.Votes && h.Applied > 0 {
				votes++
			}
		}
		if votes == count {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%d %s: %+v", status, problem, all)
		}
	}
}

// heads asks the one of several heads that leads.
func heads(t testing.TB, user string, all ...*cluster) *asker {
	list := ""
	for i, c := range all {
		if i > 0 {
			list += ","
		}
		list += c.at.Listen
	}
	h, base, err := dial.Client(dial.Config{Head: list, TLS: certOf(t, "user", user)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	return &asker{t, h, base}
}

// A head that was alone is joined by two others, while it has jobs. When it ends, another one goes on with
// what it had; who asks one that does not lead is told who does.
func TestThreeHeads(t *testing.T) {
	a := start(t, nil)
	before := a.user("alice").submit(command("true"))
	joins := func(cfg *Config, o *Options) { cfg.Join = a.at.Listen }
	b := start(t, joins)
	u := heads(t, "alice", a, b)
	u.together(2)
	c := start(t, joins)
	u.together(3)
	between := u.submit(command("true"))
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]*asker{"all": heads(t, "alice", a, b, c), "b": b.user("alice"), "c": c.user("alice")} {
		for _, id := range []uint64{before, between} {
			var j api.Job
			u.must("GET", fmt.Sprintf("/v1/jobs/%d", id), nil, &j)
			if j.User != "alice" || j.State != api.Pending {
				t.Errorf("%s: %+v", name, j)
			}
		}
	}
	if after := b.user("alice").submit(command("true")); after <= between {
		t.Errorf("job %d after job %d", after, between)
	}
}

// A head that is removed ends, also when it starts again, and one with jobs of its own cannot join others. One
// that is left without a majority decides nothing, until it is alone.
func TestHeadsLeave(t *testing.T) {
	admin := func(cfg *Config) { cfg.Core.Admins = []string{"alice"} }
	a := start(t, func(cfg *Config, _ *Options) { admin(cfg) })
	before := a.user("alice").submit(command("true"))
	joins := func(cfg *Config, _ *Options) { admin(cfg); cfg.Join = a.at.Listen }
	b := start(t, joins)
	u := heads(t, "alice", a, b)
	u.together(2)
	c := start(t, joins)
	u.together(3)
	if status, problem := heads(t, "bob", a, b).do("DELETE", "/v1/heads/"+c.at.Listen, nil, nil); status != http.StatusForbidden {
		t.Errorf("bob removes a head: %d %s", status, problem)
	}
	if status, problem := u.do("DELETE", "/v1/heads/localhost:1", nil, nil); status != http.StatusNotFound {
		t.Errorf("a head that is not there is removed: %d %s", status, problem)
	}
	if status, problem := u.do("POST", "/v1/heads", api.JoinHeads{Address: "localhost:1"}, nil); status != http.StatusForbidden {
		t.Errorf("a user joins as a head: %d %s", status, problem)
	}
	u.must("DELETE", "/v1/heads/"+c.at.Listen, nil, nil)
	if err := c.wait(); !errors.Is(err, errRemoved) {
		t.Errorf("one that was removed ends with %v", err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // nothing may come of it, however long
	defer cancel()
	if err := dial.Ask(ctx, dial.Config{Head: a.at.Listen, TLS: certOf(t, "user", "alice")}, "POST", "/v1/jobs", command("true"), nil); err == nil {
		t.Error("one of two takes a job")
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if err := GoAlone(a.cfg.State); err != nil {
		t.Fatal(err)
	}
	a = startIn(t, a.cfg, func(cfg *Config, _ *Options) { admin(cfg) })
	var j api.Job
	a.user("alice").must("GET", fmt.Sprintf("/v1/jobs/%d", before), nil, &j)
	a.user("alice").submit(command("true"))
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	own := a.cfg
	own.Join = "127.0.0.1:1"
	if err := Run(t.Context(), own, Options{Now: time.Now, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "has jobs or nodes of its own") {
		t.Errorf("one with jobs joins others: %v", err)
	}
}
