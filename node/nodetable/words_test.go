package nodetable

import (
	"strings"
	"testing"

	"muster/wire/status"
)

// A program that is to see more devices than it can have is told what it gets instead.
func TestSharing(t *testing.T) {
	up := status.Device{State: "up"}
	borrowed := status.Device{State: "up", Borrowed: true}
	for _, c := range []struct {
		node status.Node
		gpus int
		want string
	}{
		{status.Node{Devices: []status.Device{up, up}}, 2, ""},
		{status.Node{Devices: []status.Device{up, borrowed}}, 2, "no peers"},
		{status.Node{Devices: []status.Device{up}, Peers: []status.Peer{{Free: 2}, {Free: 1}}}, 3, ""},
		{status.Node{Devices: []status.Device{up}, Peers: []status.Peer{{Free: 2}, {Free: 0}}}, 3, "1 of its peers can lend one"},
		{status.Node{Devices: []status.Device{up}, Peers: []status.Peer{{Free: 9, Self: true}, {Heard: -1}, {Free: 0}}}, 3, "none to lend at present"},
	} {
		got := Sharing(&c.node, c.gpus)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v with %d devices: %q, and not %q", c.node, c.gpus, got, c.want)
		}
	}
}
