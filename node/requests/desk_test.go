package requests

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"muster/device"
	"muster/model"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/loop"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/grant"
	"muster/wire/status"
)

// clients are one of ann's.
type clients struct{ ended string }

func (clients) Owner(id vgpu.ClientID) (settings.Account, bool) {
	return settings.Account{UID: 7, Name: "ann"}, id == 1
}
func (clients) Status(id vgpu.ClientID) status.Client { return status.Client{ID: uint64(id)} }
func (c *clients) End(_ vgpu.ClientID, why string)    { c.ended = why }

func who(uid uint32, pid int32) socket.Peer {
	return socket.Peer{User: settings.Account{UID: uid, Name: map[uint32]string{0: "root", 7: "ann", 8: "ben", 9: "owner"}[uid]}, PID: pid}
}

// Users act on their own clients, root and the owner on all, the gateway on none of its own account.
func TestRights(t *testing.T) {
	r := Rights{Own: settings.Account{UID: 9, Name: "owner"}, Gateway: 33, Agent: true}
	for _, c := range []struct {
		who                socket.Peer
		change, grant, act bool
	}{{who(0, 1), true, true, true}, {who(9, 1), true, true, true}, {who(7, 1), false, false, true}, {who(8, 1), false, false, false}, {who(9, 33), false, true, false}} {
		if change, grant, act := r.MayChange(c.who) == nil, r.mayGrant(c.who) == nil, r.MayActOn(c.who, 1, &clients{}) == nil; change != c.change || grant != c.grant || act != c.act {
			t.Errorf("%+v: %v, %v, %v", c.who, change, grant, act)
		}
	}
	if err := r.MayActOn(who(0, 1), 2, &clients{}); err == nil {
		t.Error("there is a client 2")
	}
}

// A line is answered by whom it is for, and what nobody knows is refused with the nearest right name.
func TestLines(t *testing.T) {
	l, all := loop.New(time.Now), &clients{}
	go l.Run(func() bool { return true }, nil, func() {})
	defer func() { l.Do(l.Drain); <-l.Ended() }()
	d := New(Options{
		Rights: Rights{Own: settings.Account{UID: 9}}, Loop: l, Clients: all, Log: slog.New(slog.DiscardHandler),
		Handlers: map[string]Handler{"status": func(socket.Peer, []byte) (any, error) { return "fine", nil }},
		Orders:   map[string]Order{"checkpoint": func(_ *Talk, r ask.OrderRequest) (uint64, error) { return r.Client + 1, nil }},
	})
	for _, c := range []struct{ line, answer string }{
		{`{"request":"status"}`, `"fine"`},
		{`{"request":"statu"}`, `{"error":"there is no request \"statu\": did you mean status?"}`},
		{`[]`, `{"error":"a request is one JSON object, as {\"request\":\"status\"}"}`},
		{`{"request":"end","client":1,"more":2}`, `{"error":"the request cannot be read: unknown field \"more\""}`},
		{`{"request":"end","client":2}`, `{"error":"there is no client 2: muster ps lists those there are"}`},
		{`{"request":"checkpoint","client":4}`, `{"bytes":5}`},
	} {
		if got := asked(t, d, who(7, 1), c.line); got != c.answer {
			t.Errorf("%s: %s, want %s", c.line, got, c.answer)
		}
	}
	if got := asked(t, d, who(7, 1), `{"request":"end","client":1,"reason":"enough"}`); all.ended != "user ann ended it (muster kill): enough" {
		t.Error(got, all.ended)
	}
}

// far is a device of another node.
type far struct{ device.Device }

func (far) Info() device.Info { return device.Info{Memory: 1 << 30, Granularity: 1 << 16, Speed: 1} }

// Lenders that are slow or silent are waited for at the same time, so that a grant with many of them does not
// keep its node's agent from the grants behind it.
func TestSlowLendersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 3 * time.Second
		l := loop.New(time.Now)
		go l.Run(func() bool { return true }, nil, func() {})
		defer func() { l.Do(l.Drain); <-l.Ended() }()
		open := func(c control.DeviceConfig) (device.Device, error) {
			time.Sleep(patience)
			if c.Index > 12 {
				return nil, fmt.Errorf("no answer of device %d", c.Index)
			}
			return far{}, nil
		}
		d := New(Options{
			Rights: Rights{Own: settings.Account{UID: 9}}, Loop: l, Log: slog.New(slog.DiscardHandler),
			Grants: grants.NewBook(grants.Node{Now: time.Now}), Stock: &stock.Stock{Options: stock.Options{Open: open}},
		})
		secret, limit := grant.NewCredential(), grant.AllDevices
		r := ask.AdmitRequest{ID: "1.1.0", User: "ann", Hash: secret.Hash(), Limit: &limit, Secrets: map[string]grant.Credential{"far:9421": secret}, Authority: "a"}
		for place := range grant.MaxDevices {
			r.Devices = append(r.Devices, ask.GrantedDevice{Lender: "far:9421", Place: place, Reach: model.ReachNode})
		}
		began := time.Now()
		_, err := d.answerGrantAdmit(who(0, 1), r)
		if took := time.Since(began); err == nil || !strings.HasPrefix(err.Error(), "device 13, of the node at far:9421: no answer of device 13;") || took != patience {
			t.Errorf("%v after %v", err, took)
		}
		r.Devices = append(r.Devices, ask.GrantedDevice{Lender: "far", Place: 5, Reach: model.ReachNode})
		if _, err := d.answerGrantAdmit(who(0, 1), r); err == nil || time.Since(began) != patience {
			t.Errorf("a document that is refused was looked at for %v: %v", time.Since(began)-patience, err)
		}
	})
}

// asked is what the desk answers to a line.
func asked(t *testing.T, d *Desk, who socket.Peer, line string) string {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		if ends[i], err = connectionOf(fd); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
	}
	d.Answer(ends[0], strings.NewReader(line), who)
	_ = ends[0].CloseWrite()
	var answer json.RawMessage
	if err := json.NewDecoder(ends[1]).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func connectionOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "end")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
