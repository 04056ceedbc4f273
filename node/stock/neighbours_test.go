package stock

import "testing"

func TestHeldByOthers(t *testing.T) {
	for _, c := range []struct{ total, free, own, want uint64 }{
		{100, 100, 0, 0},
		{100, 95, 5, 0},  // the context of the process that looked
		{100, 95, 20, 0}, // a client has gone meanwhile
		{100, 35, 5, 60}, // another node, or a program without one
		{100, 120, 5, 0}, // a driver that is wrong
		{100, 0, 100, 0}, // all is the node's own
		{100, 0, 10, 90},
	} {
		if got := heldByOthers(c.total, c.free, c.own); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
