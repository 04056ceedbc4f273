package vgpu

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBadConfigurationsAreRefused(t *testing.T) {
	ok := Device{Name: "gpu", Memory: 100}
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"negative time", Config{Devices: []Device{ok}, MaxIdle: -1}, "negative"},
		{"negative cost", Config{Devices: []Device{ok}, Migrate: true, MoveCost: -1}, "negative"},
		{"negative passes", Config{Devices: []Device{ok}, MaxPasses: -1}, "negative"},
		{"negative limit", Config{Devices: []Device{ok}, SlotLimit: -1}, "negative"},
		{"no slot for a user", Config{Devices: []Device{ok}, SlotLimits: map[string]int{"ann": -1}}, `"ann"`},
		{"policy", Config{Devices: []Device{ok}, Policy: 7}, "number 7"},
		{"slots", Config{Devices: []Device{{Name: "x", Slots: -1, Memory: 1}}}, `"x": slots and speed`},
		{"many slots", Config{Devices: []Device{{Name: "x", Slots: 1 << 62, Memory: 1}}}, `"x": 4611686018427387904 slots: give at most 1024`},
		{"many devices", Config{Devices: slices.Repeat([]Device{ok}, maxDevices+1)}, `"gpu" is one too many`},
		{"long period", Config{Devices: []Device{ok}, Period: math.MaxInt64}, "a period of"},
		{"speed", Config{Devices: []Device{{Name: "x", Speed: -1, Memory: 1}}}, "slots and speed"},
		{"no number", Config{Devices: []Device{{Name: "x", Speed: math.NaN(), Memory: 1}}}, "slots and speed"},
		{"no memory", Config{Devices: []Device{{Name: "x"}}}, "leave nothing"},
		{"all for the context", Config{Devices: []Device{{Name: "x", Memory: 5, ContextCost: 5}}}, "leave nothing"},
		{"too much memory", Config{Devices: []Device{{Name: "x", Memory: 1 << 63}}}, "leave nothing"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
	core, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	core.Step(0, Added{Device{Name: "x"}})
	if len(core.View().Devices) != 0 {
		t.Error("a device without memory was added")
	}
	for range maxDevices + 1 {
		core.Step(0, Added{ok})
	}
	if n := len(core.View().Devices); n != maxDevices {
		t.Errorf("there are %d devices", n)
	}
}

// Further devices of clients that are at home elsewhere do not make a device look busy: the next
// client finds its home there.
func TestHomesAreChosenBesideVisitors(t *testing.T) {
	gpu := Device{Name: "gpu", Slots: 8, Memory: 100}
	core, err := New(Config{Devices: []Device{gpu, gpu, gpu}})
	if err != nil {
		t.Fatal(err)
	}
	next := ClientID(100)
	for home := range DeviceID(3) {
		id := ClientID(home + 1)
		core.Step(0, Attach{Client: id, User: "ann"})
		granted := core.Step(0, Want{Client: id, Need: 1, Pinned: AnyDevice})
		if len(granted) != 1 || granted[0].Kind != Grant || granted[0].Device != home {
			t.Fatalf("client %d: %v", id, granted)
		}
		for other := range DeviceID(3) {
			if other != home {
				next++
				core.Step(0, Attach{Client: next, User: "ann", Further: true})
				core.Step(0, Want{Client: next, Need: 1, Pinned: other})
			}
		}
	}
	for id := ClientID(1); id <= next; id++ {
		core.Step(0, Detach{Client: id})
	}
	for _, d := range core.all {
		if d.load() != 0 || d.visitors != 0 || d.bound != 0 {
			t.Errorf("device %d has load %d with %d visitors when all are gone", d.id, d.load(), d.visitors)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	for _, p := range []Policy{FCFS, SJF, Credit} {
		if got, err := ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v is read as %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("lottery"); err == nil || !strings.Contains(err.Error(), "use fcfs, sjf or credit") {
		t.Errorf("an unknown policy: %v", err)
	}
}

// Workers may speak late or of what is no more; that changes nothing.
func TestEventsOfNobody(t *testing.T) {
	core, err := New(Config{Devices: gpus(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	core.Step(0, Attach{Client: 1, User: "ann", Weight: 0})
	before := core.View()
	for _, id := range []ClientID{1, 9} {
		for _, effects := range [][]Effect{
			core.Step(0, Busy{id}), core.Step(0, Idle{Client: id}), core.Step(0, SyncPoint{id}), core.Step(0, Released{Client: id, Keeps: 5}),
			core.Step(0, Ran{id, -1, -time.Second}), core.Step(0, Detach{9}), core.Step(0, Faulted{9}), core.Step(0, Lost{9}), core.Step(0, Lost{-1}),
			core.Step(0, Move{9, 0}), core.Step(0, Move{1, 9}), core.Step(0, Drain{9}), core.Step(0, Drain{-1}), core.Step(0, Resume{9}), core.Step(0, Resume{0}),
			core.Step(0, Remove{0}), core.Step(0, Remove{9}), core.Step(0, Returned{0, Device{Name: "x", Memory: 1}}), core.Step(0, Returned{9, Device{Name: "x", Memory: 1}}),
		} {
			if effects != nil {
				t.Errorf("client %d: %v", id, effects)
			}
		}
	}
	if after := core.View(); !reflect.DeepEqual(before, after) {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
}

func TestTimeDoesNotGoBack(t *testing.T) {
	core, err := New(Config{Devices: gpus(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	core.Step(time.Second, Tick{})
	core.Step(time.Millisecond, Attach{Client: 1, User: "ann", Weight: 1})
	if now := core.View().Now; now != time.Second {
		t.Errorf("it is %v", now)
	}
}

func TestViewCountsWaitsAndPreemptions(t *testing.T) {
	core, err := New(Config{Devices: gpus(1, 1), MaxIdle: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := func(id ClientID) Want { return Want{Client: id, Need: 10, Pinned: AnyDevice} }
	core.Step(0, Attach{Client: 1, User: "ann", Weight: 1})
	core.Step(0, Attach{Client: 2, User: "bob", Weight: 1})
	core.Step(0, want(1))
	core.Step(0, want(2))
	core.Step(5*time.Millisecond, Ran{1, 3, 4 * time.Millisecond})
	core.Step(5*time.Millisecond, Idle{Client: 1})
	core.Step(6*time.Millisecond, Tick{})
	core.Step(7*time.Millisecond, Released{Client: 1, Keeps: 0})
	core.Step(8*time.Millisecond, want(1))
	core.Step(10*time.Millisecond, Tick{})
	view := core.View()
	one, two := view.Clients[0], view.Clients[1]
	if one.State != Ready || one.Preemptions != 1 || one.Waits != 2*time.Millisecond || one.Kernels != 3 || one.GPUTime != 4*time.Millisecond || one.Grants != 1 {
		t.Errorf("client 1: %+v", one)
	}
	if two.State != Assigned || two.Waits != 7*time.Millisecond || two.Device != 0 || two.Slot != 0 || two.Memory != 10 {
		t.Errorf("client 2: %+v", two)
	}
	if view.Ready != 1 || view.Assigned != 1 || view.Devices[0].Used != 1 || view.Devices[0].Free != 990 {
		t.Errorf("%+v", view)
	}
	core.Step(11*time.Millisecond, Detach{2})
	if view.Clients[1].State != Assigned {
		t.Error("the picture changed")
	}
}

// Kernels and GPU time are counted once for the client, the device and those who
// have gone, whatever becomes of clients and devices.
func TestUsage(t *testing.T) {
	core, err := New(Config{Devices: gpus(2, 1)})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, clients []Usage, devices []Usage, past, total Usage) {
		t.Helper()
		v := core.View()
		for i, want := range clients {
			if v.Clients[i].Usage != want {
				t.Errorf("%s: client %d used %+v, want %+v", when, v.Clients[i].ID, v.Clients[i].Usage, want)
			}
			if one, ok := core.Client(v.Clients[i].ID); !ok || one != v.Clients[i] {
				t.Errorf("%s: %+v, %v", when, one, ok)
			}
		}
		for i, want := range devices {
			if v.Devices[i].Usage != want {
				t.Errorf("%s: device %d was used %+v, want %+v", when, i, v.Devices[i].Usage, want)
			}
		}
		if len(v.Clients) != len(clients) || v.Past != past || v.Total() != total {
			t.Errorf("%s: past %+v, total %+v", when, v.Past, v.Total())
		}
	}
	for _, id := range []ClientID{1, 2, 3} {
		core.Step(0, Attach{Client: id, User: "ann", Weight: 1})
	}
	core.Step(0, Ran{1, 1, 1}) // it never had a device
	check("without a device", []Usage{{1, 1}, {}, {}}, []Usage{{}, {}}, Usage{}, Usage{1, 1})
	core.Step(0, Want{1, 1, 0, 0})
	core.Step(0, Want{2, 1, 0, 1})
	core.Step(0, Ran{1, 2, 10})
	core.Step(0, Ran{2, 3, 20})
	core.Step(0, Ran{9, 3, 20}) // nobody
	core.Step(0, Ran{2, -3, -20})
	check("bound", []Usage{{3, 11}, {3, 20}, {}}, []Usage{{2, 10}, {3, 20}}, Usage{}, Usage{6, 31})
	core.Step(0, Faulted{1})
	core.Step(0, Ran{1, 1, 5}) // what ran before the fault, told late
	check("late", []Usage{{4, 16}, {3, 20}, {}}, []Usage{{3, 15}, {3, 20}}, Usage{}, Usage{7, 36})
	core.Step(0, Detach{2})
	check("gone", []Usage{{4, 16}, {}}, []Usage{{3, 15}, {3, 20}}, Usage{3, 20}, Usage{7, 36})
	core.Step(0, Lost{1})
	core.Step(0, Added{Device{Name: "gpu1", Memory: 5}})
	check("a device came back", []Usage{{4, 16}, {}}, []Usage{{3, 15}, {3, 20}}, Usage{3, 20}, Usage{7, 36})
	if _, ok := core.Client(2); ok {
		t.Error("client 2 is still there")
	}

	// Numbers beyond all measure.
	for range 3 {
		core.Step(0, Ran{1, math.MaxInt64, math.MaxInt64})
	}
	most := Usage{maxUsage, maxUsage}
	check("much", []Usage{most, {}}, []Usage{{maxUsage - 1, maxUsage - 1}, {3, 20}}, Usage{3, 20}, Usage{maxUsage + 3, maxUsage + 20})
	core.Step(0, Want{3, 1, 0, 0})
	core.Step(0, Ran{3, math.MaxInt64, math.MaxInt64})
	core.Step(0, Detach{1})
	core.Step(0, Detach{3})
	all := Usage{math.MaxInt64, math.MaxInt64}
	check("too much", nil, []Usage{{math.MaxInt64 - 2, math.MaxInt64 - 2}, {3, 20}}, all, all)
}

// What a client came to with an earlier dispatcher is shown, and counted on.
func TestAdoptedClientsGoOn(t *testing.T) {
	core, err := New(Config{Devices: gpus(2, 1)})
	if err != nil {
		t.Fatal(err)
	}
	core.Step(0, Adopt{Client: 1, User: "ann", Weight: 3, Device: 1, Held: true, Memory: 10, Lease: 7, Pinned: AnyDevice,
		Kernels: 5, Busy: time.Second, Waited: time.Minute, Preemptions: 2, Moves: Moves{1, 2, 3}})
	want := ClientView{
		ID: 1, User: "ann", State: Assigned, Device: 1, Slot: 0, Memory: 10, Need: 10, Busy: true, Grants: 7, Waits: time.Minute, Preemptions: 2, Moves: Moves{1, 2, 3},
		Target: AnyDevice, Usage: Usage{5, time.Second}, Weight: 3,
	}
	if got, _ := core.Client(1); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	core.Step(0, Move{1, 0})
	core.Step(0, Released{Client: 1, Keeps: 0})
	if effects := core.Step(0, Want{1, 10, 0, AnyDevice}); len(effects) != 1 || effects[0].Lease != 8 || effects[0].Device != 0 {
		t.Errorf("%v", effects)
	}
	core.Step(0, Detach{1})
	if v := core.View(); v.Past != (Usage{5, time.Second}) || v.PastMoves != (Moves{1, 3, 3}) || v.Devices[1].Usage != (Usage{}) {
		t.Errorf("%+v", v)
	}
	// A damaged state of the earlier one does not make anything overflow.
	for id := range ClientID(3) {
		core.Step(0, Adopt{Client: id, User: "ann", Device: 0, Held: true, Memory: maxAdoptedBytes, Lease: math.MaxInt64, Kernels: math.MaxUint64, Busy: math.MaxInt64, Waited: math.MaxInt64, Preemptions: math.MaxInt64,
			Moves: Moves{math.MaxInt64, math.MaxInt64, math.MinInt64}})
	}
	v := core.View()
	if v.Assigned != 2 || v.Failed != 1 || v.Devices[0].Taken > maxAdoptedUsed || v.Devices[0].Free != 0 || v.Total() != (Usage{math.MaxInt64, math.MaxInt64}) {
		t.Errorf("%+v", v)
	}
	for id := range ClientID(3) {
		core.Step(0, Detach{id})
	}
	if v := core.View(); v.PastMoves != (Moves{1 + 3*maxAdoptedCount, 3 + 3*maxAdoptedCount, 3}) || v.Devices[0].Taken != 0 {
		t.Errorf("%+v", v)
	}
}

func TestDeviceStates(t *testing.T) {
	core, err := New(Config{Devices: gpus(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	core.Step(0, Attach{Client: 1, User: "ann", Weight: 1})
	core.Step(0, Want{1, 1, 0, AnyDevice})
	for _, c := range []struct {
		event Event
		want  string
	}{
		{Tick{}, "up"}, {Drain{0}, "draining"}, {Released{Client: 1, Keeps: 1}, "draining"}, {Released{Client: 1, Keeps: 0}, "drained"}, {Resume{0}, "up"}, {Lost{0}, "lost"}, {Resume{0}, "lost"},
		{Returned{0, gpus(1, 1)[0]}, "up"}, {Drain{0}, "drained"}, {Remove{0}, "removed"}, {Lost{0}, "removed"}, {Added{gpus(1, 1)[0]}, "up"},
	} {
		core.Step(0, c.event)
		if d, ok := core.Device(0); !ok || d.State.String() != c.want || d != core.View().Devices[0] {
			t.Errorf("after %+v: %+v, want %s", c.event, d, c.want)
		}
	}
	if _, ok := core.Device(1); ok {
		t.Error("there is a second device")
	}
}
