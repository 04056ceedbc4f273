package grants

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/vgpu"
	"muster/wire/grant"
)

// theNode notes what it is told.
type theNode struct {
	told    []vgpu.Event
	refuses error
	saved   int
	ended   string
	now     time.Time
}

func (n *theNode) Tell(e vgpu.Event) error { n.told = append(n.told, e); return n.refuses }
func (n *theNode) Step(e vgpu.Event)       { n.told = append(n.told, e) }

func newBook() (*theNode, *Book) {
	n := &theNode{now: time.Unix(1000, 0)}
	return n, NewBook(Node{
		Dispatcher: n, Now: func() time.Time { return n.now }, Save: func() { n.saved++ }, Log: slog.New(slog.DiscardHandler),
		End: func(g *Granted, reason string) { n.ended = g.ID + ": " + reason },
	})
}

// A grant is known by its name and by its credential until it is revoked or its time is over, and is
// another one if anything but its limit differs.
func TestBook(t *testing.T) {
	n, b := newBook()
	first := func() *Granted {
		return &Granted{ID: "first", User: "ann", Hash: grant.NewCredential().Hash(), Devices: []ask.GrantedDevice{{Device: 0}}, Limit: grant.AllDevices}
	}
	g := first()
	if err := b.Admit(g); err != nil || len(n.told) != 1 || n.saved != 1 {
		t.Fatal(err, n)
	}
	again := *g
	if err := b.Admit(&again); err != nil || len(n.told) != 1 || n.saved != 1 {
		t.Error("the same grant is another one", err)
	}
	if err := b.Admit(first()); err == nil || !strings.Contains(err.Error(), "is known already, and was another one") {
		t.Error(err)
	}
	thief := *g
	thief.ID = "second"
	if err := b.Admit(&thief); err == nil || !strings.Contains(err.Error(), "has the credential of another grant") {
		t.Error(err)
	}
	if b.Find(g.Hash) != g || b.Claimed(grant.Claim{Hash: g.Hash}, "ann") != g || b.Claimed(grant.Claim{Hash: g.Hash}, "bob") != nil {
		t.Error("it is not found by its credential")
	}
	if err := b.Limit("first", 1); err != nil || g.Limit != 1 || n.saved != 2 {
		t.Error(err, g.Limit)
	}
	if err := b.Limit("first", 1); err != nil || n.saved != 2 {
		t.Error("the same limit is another one", err)
	}
	under := Under{Granted: g}
	if why := b.Ended(under); why != "" {
		t.Error(why)
	}
	if err := b.Revoke("first", "it is over"); err != nil || n.ended != "first: it is over" || b.Ended(under) != "grant first has ended" {
		t.Error(err, b.Ended(under))
	}
	if err := b.Revoke("first", ""); err == nil {
		t.Error("it was revoked twice")
	}
}

// What the dispatcher refuses is not known.
func TestRefusedGrant(t *testing.T) {
	n, b := newBook()
	n.refuses = errors.New("no")
	g := &Granted{ID: "g", User: "ann", Hash: grant.NewCredential().Hash(), Devices: []ask.GrantedDevice{{Device: 3}}, Limit: 1}
	if err := b.Admit(g); err != n.refuses || b.Of("g") != nil {
		t.Error(err)
	}
}

// Grants end when their time is over, and those without a time do not.
func TestDueGrants(t *testing.T) {
	n, b := newBook()
	now := n.now
	for id, ends := range map[string]time.Time{"never": {}, "soon": now.Add(time.Second), "later": now.Add(time.Minute)} {
		g := &Granted{ID: id, User: "ann", Hash: grant.NewCredential().Hash(), Devices: []ask.GrantedDevice{{Device: 0}}, Limit: 1, Expires: ends}
		if err := b.Admit(g); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		after time.Duration
		left  string
	}{{0, "later never soon"}, {time.Second, "later never"}, {time.Hour, "never"}} {
		n.now = now.Add(c.after)
		b.Expire()
		if left := strings.Join(b.Ids(), " "); left != c.left {
			t.Errorf("after %v: %q", c.after, left)
		}
	}
	if at, any := b.Next(); any {
		t.Error(at, any)
	}
}
