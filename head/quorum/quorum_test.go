package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"muster/head"
	"muster/head/store"
)

// one is a head in memory, with its files on disk.
type one struct {
	t     *testing.T
	name  string
	dir   string
	store *store.Store
	log   *store.Log
	node  *Node
	net   *raft.InmemTransport
	term  *Term // the last that it was told of
}

func (o *one) begin(first bool) {
	o.t.Helper()
	var err error
	if o.store, err = store.Open(o.dir); err != nil {
		o.t.Fatal(err)
	}
	if o.log, err = store.OpenLog(o.dir); err != nil {
		o.t.Fatal(err)
	}
	if first {
		if err := Bootstrap(o.log, o.store, o.name); err != nil {
			o.t.Fatal(err)
		}
	}
	_, o.net = raft.NewInmemTransport(raft.ServerAddress(o.name))
	if o.node, err = Open(Config{Self: o.name, Store: o.store, Log: o.log, Transport: o.net}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *one) end() {
	o.net.DisconnectAll()
	o.node.Close()
	_ = o.net.Close()
	if err := errors.Join(o.log.Close(), o.store.Close()); err != nil {
		o.t.Error(err)
	}
}

// hear notes if the head leads.
func (o *one) hear() {
	select {
	case o.term = <-o.node.Terms():
	default:
	}
}

// trio are three heads.
type trio struct {
	t   *testing.T
	all []*one
}

func newTrio(t *testing.T) *trio {
	g := &trio{t: t}
	for i := range 3 {
		o := &one{t: t, name: fmt.Sprint("h", i), dir: filepath.Join(t.TempDir(), fmt.Sprint(i))}
		g.all = append(g.all, o)
		if i == 0 {
			s, err := store.Open(o.mkdir())
			if err == nil { // what it had when it was alone
				err = errors.Join(s.Commit([]head.Record{{Bucket: head.Meta, Key: []byte("old"), Value: []byte("alone")}}), s.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		o.mkdir()
		o.begin(i == 0)
		g.connect()
		lead := g.leader()
		if i > 0 {
			for _, vote := range []bool{false, true} {
				if err := lead.node.Add(o.name, vote); err != nil {
					t.Fatal(err)
				}
				g.until("it has all", o.node.UpToDate)
			}
		}
	}
	return g
}

func (o *one) mkdir() string {
	_ = os.MkdirAll(o.dir, 0o700)
	return o.dir
}

// connect connects all who run.
func (g *trio) connect() {
	for _, a := range g.all {
		for _, b := range g.all {
			if a != b {
				a.net.Connect(raft.ServerAddress(b.name), b.net)
			}
		}
	}
}

// apart cuts a head off.
func (g *trio) apart(o *one) {
	o.net.DisconnectAll()
	for _, other := range g.all {
		other.net.Disconnect(raft.ServerAddress(o.name))
	}
}

func (g *trio) until(what string, is func() bool) {
	g.t.Helper()
	for range 6000 {
		for _, o := range g.all {
			o.hear()
		}
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	g.t.Fatalf("not within a minute: %s", what)
}

// leader waits for one that leads.
func (g *trio) leader() (lead *one) {
	g.t.Helper()
	g.until("one leads", func() bool {
		for _, o := range g.all {
			if o.term != nil && o.term.Commit(nil) == nil {
				lead = o
				return true
			}
		}
		return false
	})
	return lead
}

func note(key, value string) []head.Record {
	return []head.Record{{Bucket: head.Meta, Key: []byte(key), Value: []byte(value)}}
}

func (o *one) has(t *testing.T) map[string]string {
	has := map[string]string{}
	if err := o.store.Each(head.Meta, func(r head.Record) error { has[string(r.Key)] = string(r.Value); return nil }); err != nil {
		t.Error(err)
	}
	return has
}

// In virtual time, with the real Raft: leaders are cut off, ended and begin again, at random. What was
// committed stays, and at no time two heads may let something out.
func TestNothingCommittedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		random := rand.New(rand.NewPCG(7, 7))
		committed := map[string]string{"old": "alone"}
		for round := range 12 {
			lead := g.leader()
			for i := range 5 {
				key := fmt.Sprintf("%d-%d", round, i)
				if lead.term.Commit(note(key, lead.name)) == nil {
					committed[key] = lead.name
				}
			}
			old := lead.term
			switch random.IntN(3) {
			case 0: // its machine has no network for a while, and it does not know
				g.apart(lead)
				g.until("another one leads", func() bool { return g.leader() != lead })
				if err := old.Commit(note("stale", "written")); !errors.Is(err, ErrDeposed) {
					t.Errorf("one that was cut off commits: %v", err)
				}
				if err := old.Commit(nil); !errors.Is(err, ErrDeposed) {
					t.Errorf("one that was cut off lets out what it knew: %v", err)
				}
				g.connect()
			case 1: // its machine dies
				g.apart(lead)
				lead.end()
				lead.term = nil
				lead.begin(false)
				g.connect()
			case 2: // it ends
				lead.node.Resign()
				g.until("another one leads", func() bool { return g.leader() != lead })
				if err := old.Commit(nil); !errors.Is(err, ErrDeposed) {
					t.Errorf("one that has resigned lets out what it knew: %v", err)
				}
			}
		}
		g.leader()
		for _, o := range g.all {
			g.until("all have all", func() bool { return len(o.has(t)) >= len(committed) })
			has := o.has(t)
			for key, by := range committed {
				if has[key] != by {
					t.Errorf("%s: %s is %q, and was committed as %q", o.name, key, has[key], by)
				}
			}
			if has["stale"] != "" {
				t.Errorf("%s has what a head wrote that did not lead", o.name)
			}
		}
		for _, o := range g.all {
			o.end()
		}
	})
}

// A head that is left alone has all that was agreed on, and is no longer one of several.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		if err := g.leader().term.Commit(note("a", "b")); err != nil {
			t.Fatal(err)
		}
		for _, o := range g.all {
			g.until("all have it", func() bool { return o.has(t)["a"] == "b" })
		}
		for _, o := range g.all {
			o.end()
		}
		o := g.all[1]
		s, err := store.Open(o.dir)
		if err != nil {
			t.Fatal(err)
		}
		log, err := store.OpenLog(o.dir)
		if err == nil {
			err = errors.Join(Alone(log, s), log.Close(), store.RemoveLog(o.dir))
		}
		o.store = s
		if known, err2 := Known(o.dir); err != nil || err2 != nil || known || s.Group() != "" || o.has(t)["a"] != "b" || o.has(t)["old"] != "alone" {
			t.Errorf("%v %v %v %q %v", err, err2, known, s.Group(), o.has(t))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An entry that was altered is refused, wherever it was.
func TestEntries(t *testing.T) {
	records := []head.Record{{Bucket: head.Jobs, Key: []byte("k"), Value: []byte("v")}, {Bucket: head.Keys, Key: []byte{}, Value: []byte{}}, {Bucket: head.Bulk, Key: []byte("gone")}}
	text := encode(7, records)
	term, got, err := decode(text)
	if err != nil || term != 7 || len(got) != 3 || string(got[0].Value) != "v" || got[1].Value == nil || got[2].Value != nil || got[2].Bucket != head.Bulk {
		t.Fatalf("%d %+v %v", term, got, err)
	}
	for i := range text {
		altered := []byte(strings.Clone(string(text)))
		altered[i] ^= 0x10
		if _, _, err := decode(altered); err == nil {
			t.Errorf("byte %d altered, and nobody notices", i)
		}
		if _, _, err := decode(text[:i]); err == nil {
			t.Errorf("%d bytes are taken for all", i)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(1, note("a", "b")))
	f.Fuzz(func(t *testing.T, text []byte) { _, _, _ = decode(text) })
}
