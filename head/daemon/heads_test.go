package daemon

import (
	"fmt"
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
