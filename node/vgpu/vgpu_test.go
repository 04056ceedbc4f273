package vgpu

import (
	"math"
	"reflect"
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
		{"negative passes", Config{Devices: []Device{ok}, MaxPasses: -1}, "negative"},
		{"negative limit", Config{Devices: []Device{ok}, SlotLimit: -1}, "negative"},
		{"no slot for a user", Config{Devices: []Device{ok}, SlotLimits: map[string]int{"ann": -1}}, `"ann"`},
		{"policy", Config{Devices: []Device{ok}, Policy: 7}, "number 7"},
		{"slots", Config{Devices: []Device{{Name: "x", Slots: -1, Memory: 1}}}, `"x": slots and speed`},
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
	if _, _, err := core.Added(0, Device{Name: "x"}); err == nil {
		t.Error("a device without memory was added")
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
	core.Attach(0, 1, "ann", 0)
	before := core.View()
	for _, id := range []ClientID{1, 9} {
		for _, effects := range [][]Effect{
			core.Busy(0, id), core.Idle(0, id), core.SyncPoint(0, id), core.Released(0, id, 5),
			core.Ran(0, id, -1, -time.Second), core.Detach(0, 9), core.Failed(0, 9), core.Lost(0, 9), core.Lost(0, -1),
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
	core.Tick(time.Second)
	core.Attach(time.Millisecond, 1, "ann", 1)
	if now := core.View().Now; now != time.Second {
		t.Errorf("it is %v", now)
	}
}

func TestViewCountsWaitsAndPreemptions(t *testing.T) {
	core, err := New(Config{Devices: gpus(1, 1), MaxIdle: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	any := Want{Need: 10, Pinned: AnyDevice}
	core.Attach(0, 1, "ann", 1)
	core.Attach(0, 2, "bob", 1)
	core.Want(0, 1, any)
	core.Want(0, 2, any)
	core.Ran(5*time.Millisecond, 1, 3, 4*time.Millisecond)
	core.Idle(5*time.Millisecond, 1)
	core.Tick(6 * time.Millisecond)
	core.Released(7*time.Millisecond, 1, 0)
	core.Want(8*time.Millisecond, 1, any)
	core.Tick(10 * time.Millisecond)
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
	core.Detach(11*time.Millisecond, 2)
	if view.Clients[1].State != Assigned {
		t.Error("the picture changed")
	}
}
