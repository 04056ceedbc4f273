package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/node/grants"
	"muster/node/settings"
	"muster/wire"
	"muster/wire/status"
)

// A kernel that holds its device for longer than it may ends in a fault: between two instructions where
// the device can stop it, and with its worker where it cannot. Other programs go on.
func TestKernelTime(t *testing.T) {
	for _, c := range []struct {
		name       string
		ownProcess bool // as a real GPU, which cannot stop kernels
	}{{"a kernel that can be stopped", false}, {"a kernel that cannot be stopped", true}} {
		t.Run(c.name, func(t *testing.T) { testKernelTime(t, c.ownProcess) })
	}
}

func testKernelTime(t *testing.T, ownProcess bool) {
	cfg := testConfig()
	cfg.KernelTime.Batch = settings.KernelTime(100 * time.Millisecond)
	for i := range cfg.Devices {
		cfg.Devices[i].OwnProcess = ownProcess
	}
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	f := runWith(t, cfg, opts)
	other := startGrowing(t, f)
	p := mustConnect(t, f)
	const spin = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry spin() {\nagain: bra again;\n}\n"
	if err := errors.Join(p.load([]byte(spin), "spin"), p.Post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})); err != nil {
		t.Fatal(err)
	}
	const timedOut, reason = 702, "kernel spin: timeout: it ran for longer than 100ms, which is the kernel_time of programs of class batch in the node's configuration"
	r, err := p.Call(&wire.Synchronise{}, nil)
	if ownProcess && err != nil && strings.HasPrefix(err.Error(), reason) { // the library returns the status then
		r, err = p.shared.Status(), nil
	}
	if r != timedOut || err != nil {
		t.Errorf("the program is told %v, %v", r, err)
	}
	eventually(t, "the node tells why", func() bool {
		s := statusOf(t, f)
		list := s.Clients
		if ownProcess { // it has ended with its worker
			list = s.Ended
		}
		return slices.ContainsFunc(list, func(c status.Client) bool {
			return c.ID == p.attached.Client && strings.HasPrefix(c.Fault, reason)
		})
	})
	other.step()
	other.expect(1)
}

// The user's limit goes before that of the class, and without either there is one where devices are
// granted to jobs.
func TestKernelTimeOf(t *testing.T) {
	for _, c := range []struct {
		name    string
		class   settings.KernelTimes
		user    settings.KernelTime
		head    string
		granted bool
		latency bool
		want    time.Duration
		by      string
	}{
		{name: "nothing is said"},
		{name: "class", class: settings.KernelTimes{Batch: 5, Latency: 7}, want: 5, by: "class batch"},
		{name: "another class", class: settings.KernelTimes{Batch: 5, Latency: 7}, latency: true, want: 7, by: "class latency"},
		{name: "user", class: settings.KernelTimes{Batch: 5}, user: 9, want: 9, by: "under limits"},
		{name: "user without a limit", class: settings.KernelTimes{Batch: 5}, user: settings.NoKernelTime},
		{name: "cluster", head: "h", want: time.Hour, by: "granted to jobs"},
		{name: "grant", granted: true, want: time.Hour, by: "granted to jobs"},
		{name: "cluster without a limit", head: "h", class: settings.KernelTimes{Batch: settings.NoKernelTime}},
	} {
		d, p := &staff{common: common{settings: new(settings.Live)}}, &client{allowance: allowance{latency: c.latency, limits: settings.UserLimits{KernelTime: c.user}}}
		d.settings.Store(&settings.Config{KernelTime: c.class, Head: settings.Head{Address: c.head}})
		if c.granted {
			p.under.Granted = &grants.Granted{}
		}
		if got, by := d.kernelTimeOf(p); got != c.want || !strings.Contains(by, c.by) {
			t.Errorf("%s: %v, %s", c.name, got, by)
		}
	}
}
