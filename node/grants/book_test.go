package grants

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/strictjson"
	"muster/model"
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
	for what, change := range map[string]func(*Granted){
		"reach": func(o *Granted) { o.Devices = []ask.GrantedDevice{{Device: 0, Reach: model.ReachNode}} },
		"class": func(o *Granted) { o.Class = model.ClassLatency }, "weight": func(o *Granted) { o.Weight = 2 },
	} {
		other := *g
		change(&other)
		if err := b.Admit(&other); err == nil || !strings.Contains(err.Error(), "was another one") {
			t.Errorf("another %s: %v", what, err)
		}
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

// What a grant says is there again after a restart, and cannot be what no grant says.
func TestTerms(t *testing.T) {
	g := &Granted{ID: "g", User: "ann", Hash: grant.NewCredential().Hash(), Limit: 1, Turns: model.Turns{Class: model.ClassLatency, Weight: 3}, Devices: []ask.GrantedDevice{
		{Device: 0, Memory: 1 << 30, Reach: model.ReachNode, Beyond: model.AllBeyond}, {Device: 1, Reach: model.ReachCluster},
	}}
	text, err := json.Marshal(g)
	var again Granted
	if err := errors.Join(err, strictjson.Decode(text, &again), again.Check()); err != nil || !g.same(&again) {
		t.Errorf("%s: %+v %v", text, again, err)
	}
	for want, change := range map[string]func(*Granted){
		"device 1: 5 bytes beyond the share of a whole GPU": func(g *Granted) { g.Devices[1].Beyond = 5 }, "device 0: there is no reach 3": func(g *Granted) { g.Devices[0].Reach = 3 },
		"a weight of 1001": func(g *Granted) { g.Weight = 1001 }, `no class "any"`: func(g *Granted) { g.Class = "any" },
	} {
		bad := *g
		bad.Devices = slices.Clone(g.Devices)
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A device of another node is added with its grant and removed with it, also if the grant is refused, and has
// another number each time: the grant is the same nevertheless.
func TestDevicesOfOthers(t *testing.T) {
	n, b := newBook()
	var added, removed []int
	b.node.Add = func(l Lent) (int, error) {
		if l.Index == 9 {
			return 0, errors.New("no room")
		}
		added = append(added, l.Index)
		return 10 + len(added), nil
	}
	b.node.Remove = func(number int) { removed = append(removed, number) }
	make := func(places ...int) (*Granted, []Lent) {
		g, lent := &Granted{ID: "g", User: "ann", Hash: grant.Hash{1}, Limit: 1, Devices: []ask.GrantedDevice{{Device: 0}}}, []Lent(nil)
		for _, place := range places {
			g.Devices = append(g.Devices, ask.GrantedDevice{Lender: "far:9421", Place: place, Reach: model.ReachNode})
			l := Lent{}
			l.Index = place
			lent = append(lent, l)
		}
		return g, lent
	}
	g, lent := make(0, 1)
	if err := b.Admit(g, lent...); err != nil || g.Devices[1].Device != 11 || g.Devices[2].Device != 12 {
		t.Fatal(err, g.Devices)
	}
	again, _ := make(0, 1)
	if err := b.Admit(again); err != nil || len(added) != 2 {
		t.Error("the same grant is another one", err, added)
	}
	if err := b.Revoke("g", ""); err != nil || !slices.Equal(removed, []int{11, 12}) {
		t.Error(err, removed)
	}
	if g, lent = make(3, 9); b.Admit(g, lent...) == nil || !slices.Equal(removed, []int{11, 12, 13}) || b.Of("g") != nil {
		t.Error("what was added of a grant that cannot be kept is there still", removed)
	}
	if g, _ = make(4); b.Admit(g) == nil {
		t.Error("a device was added that nobody has looked at")
	}
	removed, n.refuses = nil, errors.New("no")
	if g, lent = make(5); b.Admit(g, lent...) == nil || len(removed) != 1 {
		t.Error("the dispatcher refused, and the device is there", removed)
	}
	for want, d := range map[string]ask.GrantedDevice{
		"no lender": {Place: 1}, "that node's affair": {Lender: "far:9421", Memory: 1}, "is not HOST:PORT": {Lender: "far"}, "its place at the lender": {Lender: "far:9421", Place: -1},
	} {
		if err := checkDevice(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", d, err)
		}
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
