package node

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"muster/node/survival"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// says has the test worker say something to the daemon, right or wrong.
func (p *program) says(t *testing.T, packet string) {
	t.Helper()
	if err := p.Post(&wire.CopyInline{Data: []byte(packet)}); err != nil {
		t.Fatal(err)
	}
}

// A worker that says what it must not ends its own client, and nothing else.
func TestLyingWorkersAreEnded(t *testing.T) {
	cfg := testConfig()
	cfg.WorkerTimeout = 0 // no pings but those at the beginning
	f := run(t, cfg)
	other := mustConnect(t, f)
	other.synchronise(t)
	before := statusOf(t, f)
	const broken = "its worker is broken: "
	for _, c := range []struct {
		name   string
		leased bool
		packet string
		want   string
	}{
		{"not JSON", false, `hello`, broken + "a control message was refused: not a JSON object"},
		{"an unknown kind", false, `{"kind":"shrink","message":{}}`, broken + `a control message was refused: its kind is "shrink", which is not known here`},
		{"the daemon's word", false, `{"kind":"grant","message":{}}`, broken + `a control message was refused: its kind is "grant", which is not known here`},
		{"negative time", true, `{"kind":"ran","message":{"kernels":1,"busy":-1}}`, broken + "a control message was refused: ran with a negative busy time: -1ns"},
		{"negative kernels", true, `{"kind":"ran","message":{"kernels":-1}}`, broken + "a control message was refused: ran with a negative number of kernels: -1"},
		{"negative total", true, `{"kind":"report","message":{"stats":{"swaps":-1}}}`, broken + "a control message was refused: report: cannot unmarshal number -1 into Go struct field Stats.stats.swaps of type uint64"},
		{"kernels in two places", true, `{"kind":"report","message":{"stats":{"kernels":1}}}`, broken + `a control message was refused: report: unknown field "kernels"`},
		{"a release without a lease", false, `{"kind":"released","message":{}}`, broken + "it releases a device and never had one"},
		{"a release of a lease to come", true, `{"kind":"released","message":{"lease":2}}`, broken + "it speaks of lease 2, and the last that it was granted is 1"},
		{"a failure of a lease to come", true, `{"kind":"failed","message":{"lease":18446744073709551615}}`, broken + "it speaks of lease 18446744073709551615, and the last that it was granted is 1"},
		{"an answer to no ping", true, `{"kind":"pong","message":{"number":9}}`, broken + "it answers ping 9, after 1 of 1"},
		{"a checkpoint of nobody", false, `{"kind":"checkpointed","message":{"bytes":1}}`, broken + "it speaks of a checkpoint that nobody ordered"},
		{"a restored client of nobody", false, `{"kind":"restored","message":{"bytes":1}}`, broken + "it speaks of a checkpoint that nobody ordered"},
		{"an excuse", false, `{"kind":"cannot_serve","message":{"reason":"there is no memory for its streams"}}`, "the node cannot serve the program: there is no memory for its streams"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := mustConnect(t, f)
			if c.leased {
				p.synchronise(t)
			}
			p.says(t, c.packet)
			_, err := p.Call(&wire.Synchronise{}, nil) // it would have to want a device after that
			var closed *wire.ClosedError
			if !errors.As(err, &closed) || closed.Reason != c.want {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			eventually(t, "it is forgotten", func() bool { return len(statusOf(t, f).Clients) == 1 })
		})
	}
	other.again(t)
	after := statusOf(t, f)
	if after.Devices[0].Free != before.Devices[0].Free || after.Devices[1].Free != before.Devices[1].Free || after.Devices[0].Assigned != 1 || after.Devices[1].Assigned != 0 {
		t.Errorf("before %+v\nafter  %+v", before.Devices, after.Devices)
	}
}

// again is synchronise for a program that has its device already.
func (p *program) again(t *testing.T) {
	t.Helper()
	if err := p.Post(&wire.SyncPoint{}); err != nil {
		t.Fatal(err)
	}
	p.synchronise(t)
}

// Claims beyond all measure make no counter negative, and none that goes back.
func TestCountersDoNotOverflow(t *testing.T) {
	cfg := testConfig()
	f := run(t, cfg)
	ran := fmt.Sprintf(`{"kind":"ran","message":{"kernels":%d,"busy":%d}}`, math.MaxInt64, math.MaxInt64)
	report := strings.ReplaceAll(`{"kind":"report","message":{"stats":{"allocated":MAX,"resident":MAX,"swapped":MAX,
		"copied_in":MAX,"copied_out":MAX,"swap_in":MAX,"swap_out":MAX,"swaps":MAX,"messages":MAX}}}`, "MAX", "18446744073709551615")
	idle := fmt.Sprintf(`{"kind":"idle","message":{"for":%d}}`, math.MaxInt64)
	for range 3 {
		p := mustConnect(t, f)
		p.synchronise(t)
		for _, said := range []string{ran, ran, report, ran, report, idle} {
			p.says(t, said)
		}
		p.again(t)
		s := statusOf(t, f)
		c := s.Clients[0]
		if c.Kernels != tally.MaxCount || c.BusyTime != time.Duration(tally.MaxCount).Seconds() || c.SwapIn != tally.MaxCount {
			t.Errorf("%+v", c)
		}
		p.leave()
		eventually(t, "it is forgotten", func() bool { return len(statusOf(t, f).Clients) == 0 })
	}
	for i, dev := range statusOf(t, f).Devices {
		if dev.BusyTime < 0 || i == 0 && dev.BusyTime != time.Duration(math.MaxInt64).Seconds() {
			t.Errorf("device %d was busy for %v s", i, dev.BusyTime)
		}
	}
}

func TestSumsStay(t *testing.T) {
	if got := tally.Sum(math.MaxInt64, tally.MaxCount); got != math.MaxInt64 {
		t.Error(got)
	}
	if got := tally.Sum(2, 3); got != 5 {
		t.Error(got)
	}
}

// What the dispatcher decides is what the worker is told.
func TestWhatWorkersAreTold(t *testing.T) {
	d, err := newDaemon(testConfig(), testOptions())
	if err == nil {
		err = d.equip(&survival.Left{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.stock.CloseLocks()
	c := &client{id: 1, holding: holding{device: vgpu.AnyDevice}, worker: workers.Fake(0, 0)}
	d.clients[c.id] = c
	d.Perform([]vgpu.Effect{
		{Kind: vgpu.Grant, Client: 1, Device: 1, Memory: 5, Lease: 7}, {Kind: vgpu.Watch, Client: 1, On: true},
		{Kind: vgpu.Revoke, Client: 1, Device: 1, Reason: vgpu.ForIdle}, {Kind: vgpu.Gone, Client: 1, Device: 1},
		{Kind: vgpu.Deny, Client: 1, Reason: vgpu.NoDevice}, {Kind: vgpu.Watch, Client: 99},
	})
	posted := c.worker.Posted()
	for i, want := range []control.ToWorker{
		control.Grant{Lease: 7, Device: 1, Memory: 5}, control.Watch{On: true}, control.Revoke{Reason: "idle"}, control.Ping{Number: 1},
		control.Lost{Device: 1, Reason: "the device is lost"}, control.Deny{Reason: "no device"},
	} {
		if got := posted[i]; got != want {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	if c.device != vgpu.AnyDevice {
		t.Error("the client is still on device", c.device)
	}
	d.message(c, control.Pong{Number: 1})
	if c.ponged != 1 {
		t.Error("the answer to the ping was not noted")
	}
	c.device, c.lease = 1, 7
	d.Perform([]vgpu.Effect{{Kind: vgpu.Deny, Client: 1, Reason: vgpu.NoRoom}})
	if got := c.worker.Posted()[0]; got != (control.Deny{Lease: 7, Reason: "no room"}) {
		t.Errorf("a client that may not grow is told %+v", got)
	}
	// A worker whose kernel takes too long says so beside its loop, which may then end for want of the
	// program and say that.
	d.message(c, control.Ended{Reason: "kernel k: timeout", Fault: true})
	d.message(c, control.Ended{Reason: "the program has ended"})
	if c.fault != "kernel k: timeout" || c.why != c.fault || c.counters.Failures != 1 {
		t.Errorf("the client ended because %q, %q, after %d failures", c.why, c.fault, c.counters.Failures)
	}
}
