package ask

import (
	"testing"

	"muster/wire/status"
)

func TestWhoHoldsUpADevice(t *testing.T) {
	zero, one := 0, 1
	s := &status.Node{Devices: []status.Device{{Name: "a"}, {Name: "b"}}}
	for _, c := range []struct {
		other   string // the state of the other device
		clients []status.Client
		want    string
	}{
		{"up", nil, "waiting for what programs keep on device #0 (a)"},
		{"up", []status.Client{{ID: 3, Device: &zero}, {ID: 4, Device: &one}, {ID: 5, Device: &zero}, {ID: 6, Parked: true}},
			"waiting for client 3, 5 to leave device #0 (a): kernels are let to their end"},
		{"up", []status.Client{{ID: 4, Device: &one}, {ID: 6, Parked: true}},
			"client 6 waits for a device, and may be able to use none but device #0 (a): add one that it can use, or remove this one with --force"},
		{"drained", []status.Client{{ID: 6, Parked: true}},
			"client 6 waits for a device, and other devices are drained: let one take programs again (muster device resume '#1'), add one, or remove device #0 (a) with --force, after which the client fails"},
	} {
		s.Clients, s.Devices[1].State = c.clients, c.other
		if got := whoHoldsUp(s, 0); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
