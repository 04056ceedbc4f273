package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/device"
	"muster/model"
	"muster/node/ask"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/status"
)

// reloading is a node whose configuration can change.
type reloading struct {
	*fixture
	t      *testing.T
	log    *logbook
	reload chan struct{}

	mu  sync.Mutex
	cfg settings.Config
	err error
}

// withReload starts a node with the tests' workers, or with real ones.
func withReload(t *testing.T, worker string, change func(*settings.Config)) *reloading {
	t.Helper()
	r := &reloading{t: t, log: &logbook{}, reload: make(chan struct{}), cfg: testConfig()}
	r.cfg.Migrate = false
	if change != nil {
		change(&r.cfg)
	}
	opts := testOptions()
	opts.WorkerCommand = workerCommand(worker)
	opts.Log, opts.Reload = r.log.logger(), r.reload
	opts.Load = func() (settings.Config, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.cfg, r.err
	}
	opts.Open = func(c control.DeviceConfig) (device.Device, error) {
		if c.Name == "Broken" {
			return nil, errors.New("it is on fire")
		}
		return openSoft(c)
	}
	r.fixture = runWith(t, r.cfg, opts)
	return r
}

// again has the node read a configuration that was changed, and returns what its log
// says of it: what was changed, what takes a restart, or what is wrong.
func (r *reloading) again(change func(*settings.Config), broken error) (changed, restart, wrong string) {
	r.t.Helper()
	r.mu.Lock()
	r.cfg.Devices, r.err = slices.Clone(r.cfg.Devices), broken
	if change != nil {
		change(&r.cfg)
	}
	r.mu.Unlock()
	from := len(r.lines())
	r.reload <- struct{}{}
	r.reload <- struct{}{} // taken when the first has been dealt with
	for _, line := range r.lines()[from:] {
		switch line["msg"] {
		case "the configuration was read again":
			changed += line["changed"]
		case "some settings have changed that take effect when the node is started again":
			restart = line["settings"]
		case "the configuration was read again and is not used: everything stays as it was":
			wrong = line["error"]
		}
	}
	r.reload <- struct{}{}
	eventually(r.t, "the third has been dealt with", func() bool { // what it says is not of what comes next
		said := 0
		for _, line := range r.lines()[from:] {
			if strings.HasPrefix(line["msg"], "the configuration was read again") {
				said++
			}
		}
		return said == 3
	})
	return changed, restart, wrong
}

// lines are those of the log, with their texts.
func (r *reloading) lines() (all []map[string]string) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for line := range strings.Lines(r.log.text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			r.t.Fatal(err)
		}
		texts := map[string]string{}
		for k, v := range fields {
			texts[k] = fmt.Sprint(v)
		}
		all = append(all, texts)
	}
	return all
}

// A file that says what it said before changes nothing, and a broken one neither.
func TestReloadThatChangesNothing(t *testing.T) {
	r := withReload(t, "worker", nil)
	changes(t)(ask.AddDevice(r.socket, softDevice("by hand")))
	mustConnect(t, r.fixture).synchronise(t)
	var before status.Node
	eventually(t, "its worker's report has come", func() bool {
		before = statusOf(t, r.fixture)
		return before.Clients[0].Kernels == 3 && before.Clients[0].Swaps > 0
	})
	for _, c := range []struct {
		name   string
		change func(*settings.Config)
		broken error
		wrong  string
	}{
		{"as it was", nil, nil, ""},
		{"no YAML", nil, errors.New("node.yaml:1:1: not valid YAML"), "node.yaml:1:1: not valid YAML"},
		{"no devices", func(c *settings.Config) { c.Devices = nil }, nil, "the node has no devices, serves no cluster and borrows of no peers: add some to its configuration"},
		{"a device that cannot be opened", func(c *settings.Config) {
			c.Devices, c.Limits.Clients = append(testConfig().Devices, softDevice("Broken")), 1
		}, nil, "device soft Broken: it is on fire"},
		{"no virtual GPUs", func(c *settings.Config) { c.Devices, c.VGPUs = testConfig().Devices, 0 }, nil, "0 virtual GPUs on a device: give 1 or more"},
		{"no swap folder", func(c *settings.Config) { c.VGPUs, c.Swap.Dir = 4, filepath.Join(t.TempDir(), "gone") }, nil, "there is no such folder: make it, or name another"},
		{"as it was again", func(c *settings.Config) { c.Swap.Dir, c.Limits.Clients = "", settings.Default().Limits.Clients }, nil, ""},
	} {
		changed, restart, wrong := r.again(c.change, c.broken)
		if changed != "" || restart != "" || !strings.Contains(wrong, c.wrong) || (wrong == "") != (c.wrong == "") {
			t.Errorf("%s: changed %q, needs a restart %q, wrong %q\nwant %q", c.name, changed, restart, wrong, c.wrong)
		}
		after := statusOf(t, r.fixture)
		if len(after.Clients) != len(before.Clients) {
			t.Errorf("%s: %d clients, and %d before", c.name, len(after.Clients), len(before.Clients))
		}
		after.Up, after.Clients = before.Up, before.Clients // whose reports may come at any time
		if toJSON(t, before) != toJSON(t, after) {
			t.Errorf("%s: something has changed:\n%s", c.name, toJSON(t, after))
		}
	}
}

// Devices of the file come and go while a program runs; those that came by hand stay.
func TestReloadOfDevices(t *testing.T) {
	r := withReload(t, "real worker", nil)
	a := startAdding(t, mustConnect(t, r.fixture), vecadd(t))
	changes(t)(ask.AddDevice(r.socket, softDevice("by hand")))
	// The first goes, a third one comes; the second has another place in the list now.
	changed, restart, wrong := r.again(func(c *settings.Config) { c.Devices = []settings.Device{c.Devices[1], softDevice("New")} }, nil)
	if changed != "devices" || restart != "" || wrong != "" {
		t.Errorf("changed %q, needs a restart %q, wrong %q", changed, restart, wrong)
	}
	eventually(t, "the first is removed", isState(t, r.fixture, 0, "removed"))
	var names []string
	for _, d := range statusOf(t, r.fixture).Devices {
		names = append(names, d.Name+" "+d.State)
	}
	if got := strings.Join(names, ", "); got != "Big removed, Small up, by hand up, New up" {
		t.Error(got)
	}
	a.goesOn(t)
	// What came by hand is written into the file; what is in it went by hand.
	changes(t)(ask.RemoveDevice(r.socket, "New", false))
	eventually(t, "it went by hand", isState(t, r.fixture, 3, "removed"))
	if changed, _, wrong = r.again(func(c *settings.Config) { c.Devices = append(c.Devices, softDevice("by hand")) }, nil); changed != "devices" || wrong != "" {
		t.Errorf("changed %q, wrong %q", changed, wrong)
	}
	if s := statusOf(t, r.fixture); len(s.Devices) != 4 || s.Devices[3].State != "removed" || s.Devices[2].State != "up" {
		t.Errorf("%+v", s.Devices)
	}
	// From now on it is the file's.
	if changed, _, wrong = r.again(func(c *settings.Config) { c.Devices = c.Devices[:1] }, nil); changed != "devices" || wrong != "" {
		t.Errorf("changed %q, wrong %q", changed, wrong)
	}
	eventually(t, "it is removed with the file", isState(t, r.fixture, 2, "removed"))
	a.goesOn(t)
	a.end(t)
}

// Limits, users, policy and moves change at once; what cannot is named.
func TestReloadOfSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	r := withReload(t, "worker", func(c *settings.Config) { c.Socket.Address, c.Allow = path, []string{} })
	mode := func() os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if mode() != 0o600 {
		t.Errorf("the socket has mode %o", mode())
	}
	p := mustConnect(t, r.fixture)
	alloc := func(size uint64) int32 {
		result, err := p.Call(&wire.MemAlloc{Size: size}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	user := statusOf(t, r.fixture).Clients[0].User
	changed, restart, wrong := r.again(func(c *settings.Config) {
		c.Allow, c.Policy, c.MaxIdle, c.Migrate, c.Grace, c.Warm, c.VGPUs = []string{settings.AllowAny}, vgpu.SJF, time.Second, true, time.Second, 0, 2
		c.Limits.Users = map[string]settings.UserLimits{user: {Clients: 1, Memory: 16 << 20, VGPUs: 1}}
		c.Name, c.HTTP, c.Remote.Token, c.Connections.Local, c.Swap.Size = "other", "127.0.0.1:1", "SECRET", 3, 2<<30
	}, nil)
	if want := "allow, vgpus, policy, max_idle, migrate, swap.size, limits, warm, grace"; changed != want || wrong != "" {
		t.Errorf("changed %q, wrong %q\nwant %q", changed, wrong, want)
	}
	if want := "name, http, token, connections"; restart != want {
		t.Errorf("needs a restart %q\nwant %q", restart, want)
	}
	for _, line := range r.lines() {
		if strings.Contains(fmt.Sprint(line), "SECRET") {
			t.Error("the log has the token")
		}
	}
	s := statusOf(t, r.fixture)
	if s.Policy != "sjf" || s.SwapSize != 2<<30 || s.Node != "test" || mode() != 0o666 {
		t.Errorf("%+v, mode %o", s, mode())
	}
	// A client that is there has its user's limits, and another of that user may not come.
	if result := alloc(32 << 20); result != refusal.OutOfMemory {
		t.Errorf("an allocation beyond the new limit: %d", result)
	}
	var refused *wire.Refused
	if _, err := connect(r.socket, hello(), 0); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "as many as limits.clients allows") {
		t.Errorf("a second program: %v", err)
	}
	if added := changes(t)(ask.AddDevice(r.socket, softDevice("new"))); added.Device.Slots != 2 {
		t.Errorf("a new device has %d virtual GPUs", added.Device.Slots)
	}
	r.again(func(c *settings.Config) { c.Limits.Users = nil }, nil)
	if result := alloc(32 << 20); result != 0 {
		t.Errorf("an allocation without a limit: %d", result)
	}
}

// What the dispatcher is told when settings change is recorded, and can be played again.
func TestReloadIsRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	r := withReload(t, "worker", func(c *settings.Config) { c.Record = settings.Record{File: file, Limit: 1 << 20} })
	mustConnect(t, r.fixture).synchronise(t)
	r.again(func(c *settings.Config) {
		c.Policy, c.Migrate = vgpu.Credit, true
		c.Limits.Users = map[string]settings.UserLimits{"ann": {VGPUs: 2}, "ben": {}}
	}, nil)
	r.again(func(c *settings.Config) {
		c.Limits.Users = map[string]settings.UserLimits{"ben": {}}
		c.Devices = append(c.Devices, softDevice("new"))
	}, nil)
	changes(t)(ask.DrainDevice(r.socket, "Big"))
	close(r.kill)
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	r.done <- nil
	text, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if played, err := vgpu.Replay(text); err != nil || played.Difference != nil {
		t.Errorf("%+v, %v", played, err)
	}
	all, _ := os.ReadFile(file)
	for _, want := range []string{
		`{"kind":"configure","policy":"credit","max_idle_ns":10000000,"slot_limit":0,"migrate":true,"quantum_ns":2000000000}`,
		`{"kind":"limit","user":"ann","own":true,"slots":2}`, `{"kind":"limit","user":"ben","own":true,"slots":0}`,
		`{"kind":"limit","user":"ann","own":false,"slots":0}`, `{"kind":"added","device":{"name":"new"`, `{"kind":"drain","device":0}`,
	} {
		if strings.Count(string(all), want) != 1 {
			t.Errorf("the recording does not have once %s:\n%s", want, all)
		}
	}
}

// A device that is described anew twice, while it empties, comes as it was described
// last: two descriptions of one piece of hardware are never there at a time.
func TestReloadOfADeviceThatEmpties(t *testing.T) {
	gpu := func(reserve uint64) settings.Device {
		return settings.Device{DeviceConfig: control.DeviceConfig{Kind: "cuda"}, Reserve: reserve}
	}
	opts := testOptions()
	opts.Open = func(c control.DeviceConfig) (device.Device, error) {
		return openSoft(control.DeviceConfig{Name: "gpu", Memory: 64 << 20, Speed: 1, Workers: 1})
	}
	cfg := testConfig()
	cfg.Devices = []settings.Device{gpu(0)}
	d, err := newDaemon(cfg, opts)
	if err == nil {
		err = d.equip(&survival.Left{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.stock.CloseLocks()
	d.staff.pool = workers.NewPool([]string{"/bin/sh", "-c", "cat <&3"}, d.staff.bounds, 0, nil, d.log)
	defer d.staff.pool.Stop()
	describe := func(reserve uint64) {
		next := cfg
		next.Devices = []settings.Device{gpu(reserve)}
		add, err := d.stock.ExamineAll(settings.AddedDevices(d.settings.Load().Devices, next.Devices))
		if err != nil {
			t.Fatal(err)
		}
		d.reloads.apply(next, add)
	}
	d.dispatcher.Step(vgpu.Attach{Client: 1, User: "ann"})
	d.dispatcher.Step(vgpu.Want{Client: 1, Need: 1, Pinned: vgpu.AnyDevice})
	describe(2 << 20)
	describe(4 << 20)
	if is := d.dispatcher.State(0); is != vgpu.DeviceDraining {
		t.Errorf("the old one is %v", is)
	}
	d.dispatcher.Step(vgpu.Detach{Client: 1})
	is := d.stock.Load().Entries
	if len(is) != 1 || !is[0].Here || is[0].Reserve != 4<<20 || is[0].Info.Memory != 60<<20 || d.dispatcher.State(0) != vgpu.DeviceUp {
		t.Errorf("%+v, %v", is, d.dispatcher.State(0))
	}
}

// What the head says goes before the node's configuration, which can change meanwhile, until the head takes it
// back. A node that cannot do it stays as it is.
func TestHeadConfiguresTheNode(t *testing.T) {
	r := withReload(t, "worker", func(c *settings.Config) { c.VGPUs, c.Policy = 3, vgpu.SJF })
	is := func(want string) {
		t.Helper()
		s := statusOf(t, r.fixture)
		got := s.Settings.String()
		for _, d := range s.Devices {
			got += fmt.Sprint("; ", d.Slots)
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	say := func(s model.NodeSettings, wrong string) {
		t.Helper()
		got, err := ask.Configure(r.socket, s)
		switch {
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%v: %v, want %s", s, err, wrong)
		case wrong == "" && (err != nil || !got.Equal(*statusOf(t, r.fixture).Settings)):
			t.Errorf("%v: it says that it is %v, %v", s, got, err)
		}
	}
	is("vgpus 3, shared, policy sjf; 3; 3")
	say(model.NodeSettings{VGPUs: 2, Policy: "credit"}, "")
	is("vgpus 2, shared, policy credit; 2; 2")
	say(model.NodeSettings{VGPUs: 2000}, "2000 virtual GPUs")
	say(model.NodeSettings{VGPUs: 5, Above: 3}, "borrows no virtual GPUs")
	is("vgpus 2, shared, policy credit; 2; 2")

	// The file may say something else meanwhile; a device that comes is as the others.
	if changed, _, wrong := r.again(func(c *settings.Config) {
		c.VGPUs, c.Policy, c.MaxIdle, c.Devices = 6, vgpu.FCFS, time.Second, append(c.Devices, softDevice("New"))
	}, nil); changed != "devices, max_idle" || wrong != "" {
		t.Errorf("changed %q, wrong %q", changed, wrong)
	}
	is("vgpus 2, shared, policy credit; 2; 2; 2")
	say(model.NodeSettings{Sharing: model.Exclusive}, "")
	is("vgpus 1, exclusive, policy fcfs; 1; 1; 1")
	say(model.NodeSettings{}, "")
	is("vgpus 6, shared, policy fcfs; 6; 6; 6")

	// What the file says counts again at once.
	if changed, _, wrong := r.again(func(c *settings.Config) { c.VGPUs = 1 }, nil); changed != "vgpus" || wrong != "" {
		t.Errorf("changed %q, wrong %q", changed, wrong)
	}
	is("vgpus 1, exclusive, policy fcfs; 1; 1; 1")
}
