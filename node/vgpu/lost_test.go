package vgpu

import (
	"slices"
	"testing"
)

// Whoever keeps bytes on a device that is lost is told, before it is granted
// anything else: its worker has a context there.
func TestKeepersAreToldOfALoss(t *testing.T) {
	core, err := New(Config{Devices: gpus(2, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ClientID{1, 2} {
		core.Step(0, Attach{Client: id, User: "ann", Weight: 1})
		core.Step(0, Want{id, 10, 0, 0})
		core.Step(0, Released{Client: id, Keeps: 5})
	}
	core.Step(0, Want{2, 10, 0, 1}) // it is told to let go first
	got := core.Step(0, Lost{0})
	want := []Effect{{Kind: Gone, Client: 1}, {Kind: Gone, Client: 2}, {Kind: Grant, Client: 2, Device: 1, Memory: 10, Lease: 2}}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if x, _ := core.Client(1); x.State != Waiting || x.Device != AnyDevice {
		t.Errorf("%+v", x)
	}
}

// A client that can go on nowhere but on a device that is lost waits for it,
// if it is pinned to it or was there; a new one is told that there is none.
func TestLostDevicesAreWaitedFor(t *testing.T) {
	core, err := New(Config{Devices: gpus(1, 4)})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ClientID{1, 2, 3} {
		core.Step(0, Attach{Client: id, User: "ann", Weight: 1})
	}
	core.Step(0, Want{1, 10, 0, AnyDevice})
	core.Step(0, Lost{0})
	for _, c := range []struct {
		want   Want
		denied bool
	}{{Want{1, 10, 0, AnyDevice}, false}, {Want{2, 10, 0, 0}, false}, {Want{3, 10, 0, AnyDevice}, true}} {
		denied := slices.ContainsFunc(core.Step(0, c.want), func(e Effect) bool { return e.Kind == Deny && e.Reason == NoDevice })
		if denied != c.denied {
			t.Errorf("%+v: denied is %v", c.want, denied)
		}
	}
	got := core.Step(0, Added{gpus(1, 4)[0]})
	if len(got) != 2 || got[0].Kind != Grant || got[0].Client != 1 || got[1].Kind != Grant || got[1].Client != 2 {
		t.Errorf("%v", got)
	}
}

// A client that only a device could hold which is lost waits for it, though it was never
// there: it is not told that it needs too much.
func TestLostDevicesLeaveNobodyTooLarge(t *testing.T) {
	devices := gpus(2, 4)
	devices[1].Memory /= 2
	core, err := New(Config{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ClientID{1, 2} {
		core.Step(0, Attach{Client: id, User: "ann", Weight: 1})
	}
	core.Step(0, Want{1, 10, 0, 1}) // on the small one
	core.Step(0, Released{Client: 1, Keeps: 0})
	core.Step(0, Lost{0})
	large := devices[1].Memory + 1
	for _, id := range []ClientID{1, 2} {
		if got := core.Step(0, Want{id, large, 0, AnyDevice}); len(got) > 0 {
			t.Errorf("client %d: %v", id, got)
		}
		if x, _ := core.Client(id); !x.Parked {
			t.Errorf("%+v", x)
		}
	}
	got := core.Step(0, Returned{0, devices[0]})
	if len(got) == 0 || got[0].Kind != Grant || got[0].Client != 1 || got[0].Device != 0 {
		t.Errorf("%v", got)
	}
}
