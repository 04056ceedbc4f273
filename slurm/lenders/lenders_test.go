package lenders_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/node/gateway"
	"muster/slurm/lenders"
	"muster/slurm/lenders/lenderstest"
	"muster/wire/agent"
	"muster/wire/client"
	"muster/wire/grant"
)

func listen(t *testing.T) *lenders.Lenders {
	t.Helper()
	l, err := lenders.Listen(lenders.Config{Address: "unix:" + filepath.Join(t.TempDir(), "s"), Cluster: "slurm"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func loan(id string) grant.Loan {
	return grant.Loan{ID: id, User: "ann", Devices: []grant.Device{{Node: "n1"}}, Limit: grant.AllDevices}
}

func known(t *testing.T, l *lenders.Lenders, names ...string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		var have []string
		nodes, _ := l.Nodes()
		for _, n := range nodes {
			have = append(have, n.Name)
		}
		if slices.Equal(have, names) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the nodes are %q, not %q", have, names)
		}
	}
}

func TestLend(t *testing.T) {
	l := listen(t)
	if err := l.Lend(t.Context(), "n1", loan("a")); err == nil || !strings.Contains(err.Error(), "is not connected: is its muster node running?") {
		t.Errorf("a node that is not there: %v", err)
	}
	n := lenderstest.Greet(t, l.Address(), "n1")
	known(t, l, "n1")
	if address, err := l.Gateway("n1"); address != "n1:9421" || err != nil {
		t.Errorf("the gateway is %q, %v", address, err)
	}
	lent := make(chan error)
	lend := func(id string) {
		go func() { lent <- l.Lend(context.Background(), "n1", loan(id)) }()
		n.Hears("lend " + id)
	}
	lend("a")
	n.Say(agent.Lent{ID: "a"})
	if err := <-lent; err != nil {
		t.Error(err)
	}
	lend("b")
	n.Say(agent.Lent{ID: "b", Error: "it is in use"})
	if err := <-lent; err == nil || err.Error() != "node n1 cannot lend its GPU: it is in use" {
		t.Errorf("a node that refuses: %v", err)
	}
	lend("c")
	n.Close()
	if err := <-lent; err == nil || !strings.Contains(err.Error(), "its connection has ended") {
		t.Errorf("a node that goes: %v", err)
	}
	known(t, l)
}

// A node that cannot have devices of other nodes for a job lends its own, which are what the caller waits for.
func TestHomeLendsItsOwn(t *testing.T) {
	l := listen(t)
	n := lenderstest.Greet(t, l.Address(), "n1")
	known(t, l, "n1")
	dir := t.TempDir()
	_, _, err := gateway.OpenAuthority(dir, time.Now())
	var authority []byte
	if err == nil {
		authority, err = os.ReadFile(filepath.Join(dir, client.FileCA))
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &grant.Grant{
		ID: "a", User: "ann", Secret: grant.NewCredential(), Limit: grant.AllDevices, Authority: string(authority),
		Devices: []grant.Device{{Node: "n1", Device: 3}, {Node: "n2", Address: "n2:9421", Reach: model.ReachNode}},
	}
	lent := make(chan error)
	go func() { lent <- l.Lend(context.Background(), "n1", g.HomeLoan("n1")) }()
	for _, want := range []struct {
		home    string
		devices int
		answer  string
	}{{"n1", 2, "no swap space"}, {"", 1, ""}} {
		if got := n.Hear().(agent.Lend).Loan; got.Home != want.home || len(got.Devices) != want.devices {
			t.Errorf("it is told %+v", got)
		}
		n.Say(agent.Lent{ID: "a", Error: want.answer})
	}
	if err := <-lent; err != nil {
		t.Error(err)
	}
	l.Keep(func(string) bool { return false })
	n.Hears("unlend a")
}

// A node that comes back first ends the loans that are no longer wanted, and then makes the missing
// ones.
func TestNodeComesBack(t *testing.T) {
	l := listen(t)
	l.Want("n1", loan("kept"))
	l.Want("n1", loan("over"))
	// Keep has not been called: what a driver before this one lent stays.
	n := lenderstest.Greet(t, l.Address(), "n1", "kept", "theirs")
	n.Hears("lend over")
	known(t, l, "n1")
	l.Keep(func(id string) bool { return id == "kept" })
	got := map[string]bool{}
	for range 2 {
		got[n.Hear().(agent.Unlend).ID] = true
	}
	if !got["over"] || !got["theirs"] {
		t.Errorf("ended: %v", got)
	}
	n.Close()
	known(t, l)
	l.Want("n1", loan("new"))
	again := lenderstest.Greet(t, l.Address(), "n1", "theirs", "kept")
	again.Hears("unlend theirs", "lend new")
	// A second connection of the node replaces the first.
	third := lenderstest.Greet(t, l.Address(), "n1", "kept", "new")
	third.Say(agent.Pong{})
	if _, err := agent.ReadToAgent(again); err == nil {
		t.Error("the first connection goes on")
	}
	if got := l.Lent("n1"); !slices.Equal(got, []string{"kept", "new"}) {
		t.Errorf("lent: %q", got)
	}
}

// A peer that does not speak as an agent does is refused, with a reason.
func TestStrangers(t *testing.T) {
	l := listen(t)
	n := lenderstest.Greet(t, l.Address(), "n1")
	n.Say(agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1})
	known(t, l)
	old := lenderstest.Dial(t, l.Address())
	old.Say(agent.Hello{Version: agent.Version + 1, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1})
	if m, ok := old.Hear().(agent.Refused); !ok || !strings.Contains(m.Reason, "use the same version of muster") {
		t.Errorf("another version: %+v", m)
	}
	if _, err := lenders.Listen(lenders.Config{Address: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "--tls-dir") {
		t.Errorf("a port without a certificate: %v", err)
	}
	if _, err := lenders.Listen(lenders.Config{Address: l.Address()}); err == nil || !strings.Contains(err.Error(), "answers on") {
		t.Errorf("a socket that is in use: %v", err)
	}
}

// A file that was named in place of a socket is not removed.
func TestFileIsNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := lenders.Listen(lenders.Config{Address: "unix:" + path}); err == nil {
		l.Close()
		t.Error("it listens there")
	}
	if text, err := os.ReadFile(path); string(text) != "precious" {
		t.Errorf("the file is gone: %v", err)
	}
}

// A node that says without pause that it lends no more, and one that comes and goes without pause, fill no log.
func TestLoudNodes(t *testing.T) {
	var log locked
	l, err := lenders.Listen(lenders.Config{Address: "unix:" + filepath.Join(t.TempDir(), "socket"), Cluster: "c", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := lenderstest.Greet(t, l.Address(), "n1")
	for i := range 500 {
		n.Say(agent.Lent{ID: fmt.Sprint(i), Error: "it does not want to"})
	}
	n.Close()
	known(t, l)
	for range 100 {
		n := lenderstest.Dial(t, l.Address())
		n.Say(agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1 << 30})
		n.Close()
	}
	l.Close()
	if lines := strings.Count(log.String(), "\n"); lines > 200 {
		t.Errorf("%d lines", lines)
	}
}
