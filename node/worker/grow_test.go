package worker

import (
	"bytes"
	"testing"

	"muster/wire"
	"muster/wire/control"
)

// noMore is a daemon that gives a client what it wants at first, and never more.
func noMore(m control.Want) (device int, memory uint64) {
	if m.Pinned >= 0 { // a Grow
		return 0, 0
	}
	return 0, m.Memory
}

// A function of the program has not returned, and may wait for what the program does next. Copies of
// memory for which the device has no room are then done without the device, which the client cannot
// leave.
func TestCopiesBesideAFunctionNeedNoRoom(t *testing.T) {
	c := newClient(t, options{grant: noMore})
	for _, id := range []uint32{3, 4} {
		c.post(&wire.StreamCreate{Stream: id, Flags: nonBlocking})
	}
	c.post(&wire.HostFunction{Stream: 3, Cookie: 1})
	at := c.alloc(2 * chunk)
	want := bytes.Repeat([]byte{5}, 4096)
	c.in(at, want)
	c.post(&wire.CopyWithin{Dst: at + chunk, Src: at, Size: 4096, Stream: 4})
	c.post(&wire.Fill{Dst: at, Value: 6, Width: 1, Count: 4096, Height: 1, Stream: 4})
	if got := c.outOn(4, at+chunk, 4096); !bytes.Equal(got, want) {
		t.Errorf("%d is there", got[0])
	}
	c.post(&wire.HostDone{Cookie: 1})
	c.must(&wire.Synchronise{}, nil)
	if got := c.out(at, 4096); !bytes.Equal(got, bytes.Repeat([]byte{6}, 4096)) {
		t.Errorf("%d is there in the end", got[0])
	}
}
