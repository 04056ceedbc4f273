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
		core.Step(0, Attach{id, "ann", 1})
		core.Step(0, Want{id, 10, 0, 0})
		core.Step(0, Released{id, 5})
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
		core.Step(0, Attach{id, "ann", 1})
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
