package grants

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/vgpu"
	"muster/wire/grant"
)

// A grant is known by its name and by its credential until it is revoked or its time is over, and is
// another one if anything but its limit differs.
func TestBook(t *testing.T) {
	b, now := NewBook(), time.Unix(1000, 0)
	var told []vgpu.Event
	tell := func(e vgpu.Event) error { told = append(told, e); return nil }
	first := func() *Granted {
		return &Granted{ID: "first", User: "ann", Hash: grant.NewCredential().Hash(), Devices: []ask.GrantedDevice{{Device: 0}}, Limit: grant.AllDevices}
	}
	g := first()
	if isNew, err := b.Admit(g, now, tell); !isNew || err != nil || len(told) != 1 {
		t.Fatal(isNew, err, told)
	}
	again := *g
	if isNew, err := b.Admit(&again, now, tell); isNew || err != nil || len(told) != 1 {
		t.Error("the same grant is another one", err)
	}
	if _, err := b.Admit(first(), now, tell); err == nil || !strings.Contains(err.Error(), "is known already, and was another one") {
		t.Error(err)
	}
	thief := *g
	thief.ID = "second"
	if _, err := b.Admit(&thief, now, tell); err == nil || !strings.Contains(err.Error(), "has the credential of another grant") {
		t.Error(err)
	}
	if b.Find(g.Hash) != g || b.Claimed(grant.Claim{Hash: g.Hash}, "ann") != g || b.Claimed(grant.Claim{Hash: g.Hash}, "bob") != nil {
		t.Error("it is not found by its credential")
	}
	if changed, err := b.Limit("first", 1, tell); !changed || err != nil || g.Limit != 1 {
		t.Error(changed, err, g.Limit)
	}
	if changed, err := b.Limit("first", 1, tell); changed || err != nil {
		t.Error("the same limit is another one", err)
	}
	under := Under{Granted: g}
	if why := b.Ended(under); why != "" {
		t.Error(why)
	}
	if _, err := b.Revoke("first"); err != nil || b.Ended(under) != "grant first has ended" {
		t.Error(err, b.Ended(under))
	}
	if _, err := b.Revoke("first"); err == nil {
		t.Error("it was revoked twice")
	}
}

// What the dispatcher refuses is not known.
func TestRefusedGrant(t *testing.T) {
	b, no := NewBook(), errors.New("no")
	g := &Granted{ID: "g", User: "ann", Hash: grant.NewCredential().Hash(), Devices: []ask.GrantedDevice{{Device: 3}}, Limit: 1}
	if _, err := b.Admit(g, time.Time{}, func(vgpu.Event) error { return no }); err != no || b.Of("g") != nil {
		t.Error(err)
	}
}

// Grants end when their time is over, and those without a time do not.
func TestDueGrants(t *testing.T) {
	b, now := NewBook(), time.Unix(1000, 0)
	for id, ends := range map[string]time.Time{"never": {}, "soon": now.Add(time.Second), "later": now.Add(time.Minute)} {
		g := &Granted{ID: id, User: "ann", Hash: grant.NewCredential().Hash(), Devices: []ask.GrantedDevice{{Device: 0}}, Limit: 1, Expires: ends}
		if _, err := b.Admit(g, now, func(vgpu.Event) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		after time.Duration
		due   string
	}{{0, ""}, {time.Second, "soon"}, {time.Hour, "later soon"}} {
		if due := strings.Join(b.Due(now.Add(c.after)), " "); due != c.due {
			t.Errorf("after %v: %q", c.after, due)
		}
	}
	if at, any := b.Next(); !any || !at.Equal(now.Add(time.Second)) {
		t.Error(at, any)
	}
}
