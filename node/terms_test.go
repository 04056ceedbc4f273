package node

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/whois"
	"muster/model"
	"muster/node/ask"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/wire"
	"muster/wire/grant"
	"muster/wire/status"
)

// testGrant is a grant for this user's programs.
func testGrant(id string, devices ...grant.Device) *grant.Grant {
	names := new(whois.Names)
	for i := range devices {
		devices[i].Node = "test"
	}
	return &grant.Grant{ID: id, User: names.Of(uint32(os.Getuid())), Secret: grant.NewCredential(), Devices: devices, Limit: grant.AllDevices}
}

func mustAdmit(t *testing.T, f *fixture, g *grant.Grant) {
	t.Helper()
	if _, err := ask.Admit(f.socket, g, g.Devices, g.Limit, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// connectUnder attaches to a device of a grant.
func connectUnder(f *fixture, g *grant.Grant, device uint32) (*program, error) {
	h := hello()
	h.Grant = string(g.Secret)
	return connect(f.socket, h, device)
}

func mustConnectUnder(t *testing.T, f *fixture, g *grant.Grant, device uint32) *program {
	t.Helper()
	p, err := connectUnder(f, g, device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.leave)
	return p
}

// A program under a grant sees the devices that were granted, in that order, each with its
// own name and its share.
func TestWhatProgramsUnderGrantsSee(t *testing.T) {
	f := run(t, testConfig())
	g := testGrant("g", grant.Device{Device: 1}, grant.Device{Device: 0, Memory: 64 << 20})
	mustAdmit(t, f, g)
	p := mustConnectUnder(t, f, g, 1)
	if len(p.devices) != 2 || p.devices[0].Name != "Small" || p.devices[0].Memory != 128<<20 || p.devices[1].Name != "Big" || p.devices[1].Memory != 64<<20 {
		t.Errorf("%+v", p.devices)
	}
	if p.attached.Memory != 64<<20 || p.attached.ArenaBase != shown.ArenaOf(1, 1).Base {
		t.Errorf("%+v", p.attached)
	}
	p.synchronise(t)
	if c := statusOf(t, f).Clients[0]; c.Grant != "g" || c.Device == nil || *c.Device != 0 {
		t.Errorf("%+v", c)
	}
}

// A program whose grant reaches other devices is put on the better one, has its home when others need that, and
// is shown no more than all of them can do.
func TestProgramsUnderGrantsThatReach(t *testing.T) {
	f := run(t, testConfig())
	g := testGrant("g", grant.Device{Device: 1, Memory: 64 << 20, Reach: model.ReachNode, Beyond: 32 << 20})
	g.Turns = model.Turns{Class: model.ClassLatency, Weight: 7}
	mustAdmit(t, f, g)
	p := mustConnectUnder(t, f, g, 0)
	if len(p.devices) != 1 || p.devices[0].Memory != 96<<20 || p.devices[0].Name != "Muster vGPU" {
		t.Errorf("%+v", p.devices)
	}
	on := func(want int) {
		t.Helper()
		p.synchronise(t)
		if c := statusOf(t, f).Clients[0]; c.Grant != "g" || c.Device == nil || *c.Device != want || c.Class != model.ClassLatency || c.Weight != 7 {
			t.Errorf("it is not on device %d: %+v", want, c)
		}
	}
	on(0)
	mustAdmit(t, f, testGrant("other", grant.Device{Device: 0}))
	eventually(t, "it leaves", func() bool { return statusOf(t, f).Clients[0].State == "waiting" })
	on(1)
	all := testGrant("all", grant.Device{Device: 1, Memory: 32 << 20, Beyond: model.AllBeyond})
	mustAdmit(t, f, all)
	if p := mustConnectUnder(t, f, all, 0); p.devices[0].Memory != 128<<20 {
		t.Errorf("with all that is free it sees %d bytes", p.devices[0].Memory)
	}
}

func TestGrantRequests(t *testing.T) {
	f := run(t, testConfig())
	g := testGrant("g", grant.Device{Device: 0, Memory: 64 << 20})
	mustAdmit(t, f, g)
	mustAdmit(t, f, g) // whoever is not sure says it again
	hash := `"` + testGrant("x").Secret.Hash().String() + `"`
	for _, c := range []struct{ name, request, want string }{
		{"no limit", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":0}]}`, "the limit is missing"},
		{"no hash", `{"request":"grant-admit","id":"h","user":"u","devices":[{"device":0}],"limit":-1}`, "the hash of the grant's credential is missing"},
		{"bad hash", `{"request":"grant-admit","id":"h","user":"u","hash":"00","devices":[{"device":0}],"limit":-1}`, "the hash of a credential is 32 bytes"},
		{"bad id", `{"request":"grant-admit","id":"h h","user":"u","hash":` + hash + `,"devices":[{"device":0}],"limit":-1}`, "has characters that no name has"},
		{"no devices", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"limit":-1}`, "a grant of 0 devices"},
		{"device", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":7}],"limit":-1}`, "there is no device #7"},
		{"negative device", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":-1}],"limit":-1}`, "there is no device #-1"},
		{"taken", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":0}],"limit":-1}`, "cannot be granted whole"},
		{"limit", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1}],"limit":2}`, "a limit of 2"},
		{"expired", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1}],"limit":-1,"expires":1}`, "has expired already"},
		{"another", `{"request":"grant-admit","id":"g","user":"u","hash":` + hash + `,"devices":[{"device":1}],"limit":-1}`, "was another one: revoke it first"},
		{"same credential", `{"request":"grant-admit","id":"h","user":"u","hash":"` + g.Secret.Hash().String() + `","devices":[{"device":1}],"limit":-1}`, "has the credential of another grant"},
		{"no such reach", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1,"reach":"all"}],"limit":-1}`, "is no reach"},
		{"beyond a whole device", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1,"beyond":1}],"limit":-1}`, "device 0: 1 bytes beyond the share of a whole GPU"},
		{"no such class", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1}],"limit":-1,"class":"any"}`, "there is no class"},
		{"no such weight", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1}],"limit":-1,"weight":1001}`, "give 1 to 1000"},
		{"unknown field", `{"request":"grant-admit","credential":"x"}`, "unknown field"},
		{"no secret", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"lender":"far:9421"}],"limit":-1}`, "the secret with which this node would use them is missing"},
		{"needless secret", `{"request":"grant-admit","id":"h","user":"u","hash":` + hash + `,"devices":[{"device":1}],"limit":-1,"secrets":{"far:9421":"x"}}`, "the grant has none: leave them out"},
		{"unknown grant", `{"request":"grant-revoke","id":"h"}`, `there is no grant \"h\"`},
		{"no new limit", `{"request":"grant-limit","id":"g"}`, "the limit is missing"},
		{"bad limit", `{"request":"grant-limit","id":"g","limit":2}`, "a limit of 2"},
	} {
		var reply json.RawMessage
		err := ask.Request(f.socket, json.RawMessage(c.request), &reply, 4*time.Minute)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, `\"`), strings.ReplaceAll(strings.ReplaceAll(c.want, `\"`, `"`), `"`, `\"`)) {
			t.Errorf("%s: %s, %v", c.name, reply, err)
		}
	}
	var all json.RawMessage
	if err := ask.Request(f.socket, map[string]string{"request": "grants"}, &all, 4*time.Minute); err != nil || strings.Contains(string(all), g.Secret.Hash().String()) || strings.Contains(string(all), string(g.Secret)) {
		t.Errorf("%s, %v", all, err)
	}
}

// A credential is good for the user of the grant alone, and only while there is the grant.
func TestGrantCredentials(t *testing.T) {
	cfg := testConfig()
	cfg.Grants = settings.GrantsRequired
	f := run(t, cfg)
	own, other := testGrant("own", grant.Device{Device: 0}), testGrant("other", grant.Device{Device: 1})
	other.User = "somebody"
	mustAdmit(t, f, own)
	mustAdmit(t, f, other)
	refused := func(what string, h *wire.Hello, want string) {
		t.Helper()
		_, err := connect(f.socket, h, 0)
		var why *wire.Refused
		if !errors.As(err, &why) || why.Result != refusal.NotPermitted || !strings.Contains(why.Reason, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	with := func(credential grant.Credential, token string) *wire.Hello {
		h := hello()
		h.Grant, h.Token = string(credential), token
		return h
	}
	refused("none", hello(), "grants: required")
	var reply json.RawMessage
	if err := ask.Request(f.socket, ask.OrderRequest{Request: ask.ReviveRequest, Program: "p", Memory: 1 << 20}, &reply, 4*time.Minute); err == nil || !strings.Contains(err.Error(), "grants: required") {
		t.Errorf("a program that is restored: %s, %v", reply, err)
	}
	refused("made up", with(grant.NewCredential(), ""), "knows no grant")
	refused("the hash", with(grant.Credential(own.Secret.Hash().String()), ""), "knows no grant")
	refused("another user's", with(other.Secret, ""), "grant other is user somebody's")
	refused("another machine's user", with(own.Secret, wire.SpeaksFor+"mallory"), "may not use it")
	p, err := connect(f.socket, with(other.Secret, wire.SpeaksFor), 0) // as the gateway does for a job
	if err != nil {
		t.Fatal(err)
	}
	p.leave()
	waiting := mustConnectUnder(t, f, own, 0)
	if _, err := ask.RevokeGrant(f.socket, "own", "enough"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program is told", func() bool {
		reason, closed := waiting.shared.Closed()
		return closed && reason == "enough"
	})
	refused("revoked", with(own.Secret, ""), "knows no grant")
}

// A grant ends when its time is over.
func TestGrantsExpire(t *testing.T) {
	opts := testOptions()
	var ahead atomic.Int64
	opts.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	f := runWith(t, testConfig(), opts)
	g := testGrant("g", grant.Device{Device: 0})
	if _, err := ask.Admit(f.socket, g, g.Devices, g.Limit, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	p := mustConnectUnder(t, f, g, 0)
	ahead.Store(int64(2 * time.Hour))
	if _, err := connectUnder(f, g, 0); err == nil || !strings.Contains(err.Error(), "knows no grant") {
		t.Errorf("a grant whose time is over: %v", err)
	}
	eventually(t, "the program is told", func() bool {
		reason, closed := p.shared.Closed()
		return closed && reason == "the time of grant g is over"
	})
}

// A daemon that was killed leaves its grants to the next, which gives devices their numbers
// even if the configuration has them in another order.
func TestGrantsWithoutClientsOutliveTheDaemon(t *testing.T) {
	socket, state := freshSocket(), filepath.Join(t.TempDir(), "state")
	cfg := testConfig()
	cfg.State, cfg.OrphanGrace = state, time.Minute
	daemon := process(t, "daemon", socket, "MUSTER_TEST_CONFIG="+toJSON(t, cfg), "MUSTER_TEST_WORKER=worker")
	f := &fixture{socket: socket}
	g := testGrant("g", grant.Device{Device: 1, Memory: 32 << 20})
	mustAdmit(t, f, g)
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	cfg.Devices[0], cfg.Devices[1] = cfg.Devices[1], cfg.Devices[0]
	process(t, "daemon", socket, "MUSTER_TEST_CONFIG="+toJSON(t, cfg), "MUSTER_TEST_WORKER=worker")
	known, err := ask.Grants(socket)
	want := status.GrantedDevice{Device: 1, Name: "Small", Memory: 32 << 20}
	if err != nil || len(known.Grants) != 1 || known.Grants[0].Devices[0] != want {
		t.Fatalf("%+v, %v", known, err)
	}
	mustConnectUnder(t, f, g, 0)
}

// The gateway's process may not admit grants, unless it is the node's agent too.
func TestGrantsOfAnAgentBesideTheGateway(t *testing.T) {
	for _, agent := range []bool{false, true} {
		opts := testOptions()
		opts.Gateway, opts.Agent = os.Getpid(), agent
		f := runWith(t, testConfig(), opts)
		g := testGrant("g", grant.Device{Device: 0})
		if _, err := ask.Admit(f.socket, g, g.Devices, g.Limit, time.Time{}); (err == nil) != agent {
			t.Errorf("agent %v: %v", agent, err)
		}
		if _, err := ask.DrainDevice(f.socket, "#0"); err == nil {
			t.Errorf("agent %v: it changes devices", agent)
		}
	}
}
