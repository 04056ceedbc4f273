package main

import (
	"testing"

	"muster/wire/status"
)

func TestWhoHoldsUpADevice(t *testing.T) {
	zero, one := 0, 1
	s := &status.Node{Devices: []status.Device{{Name: "a"}, {Name: "b"}}}
	for _, c := range []struct {
		clients []status.Client
		want    string
	}{
		{nil, "waiting for what programs keep on device #0 (a)"},
		{[]status.Client{{ID: 3, Device: &zero}, {ID: 4, Device: &one}, {ID: 5, Device: &zero}, {ID: 6, Parked: true}},
			"waiting for client 3, 5 to leave device #0 (a): kernels are let to their end"},
		{[]status.Client{{ID: 4, Device: &one}, {ID: 6, Parked: true}},
			"client 6 waits for a device, and may be able to use none but device #0 (a): add one that it can use, or remove this one with --force"},
	} {
		s.Clients = c.clients
		if got := whoHoldsUp(s, 0); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
