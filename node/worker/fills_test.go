package worker

import (
	"bytes"
	"path/filepath"
	"testing"

	"muster/device/soft"
	"muster/node/checkpoint"
	"muster/wire"
	"muster/wire/control"
)

// fill fills memory with a byte.
func (c *client) fill(addr uint64, value byte, size uint64) {
	c.t.Helper()
	c.post(&wire.Fill{Dst: addr, Value: uint32(value), Width: 1, Count: size, Height: 1})
}

// Memory that is filled where no device has it takes no device, no room in a checkpoint and no copy, and
// has the right contents wherever it is read: on the host, on a device, after a restore, and after
// its worker has died.
func TestFillsAreRemembered(t *testing.T) {
	const size = 12 * mib
	for _, recovers := range []bool{false, true} {
		var kill trigger
		o := options{devices: []soft.Profile{{Name: "test", Memory: 128 * mib, Speed: 1, Workers: 1}}}
		if recovers {
			o.killed = kill.pull
		}
		c := newClient(t, o)
		v := newVectors(c, 1000)
		addr := c.alloc(size)
		want := bytes.Repeat([]byte{1}, size)
		check := func(when string) {
			t.Helper()
			if got := c.out(addr, size); !bytes.Equal(got, want) {
				t.Fatalf("recovers %v: %s other bytes are there", recovers, when)
			}
		}
		part := func(from, to uint64, value byte) {
			c.fill(addr+from, value, to-from)
			copy(want[from:to], bytes.Repeat([]byte{value}, int(to-from)))
		}
		part(0, size, 2)
		c.must(&wire.Synchronise{}, nil)
		if n := said[control.Want](c); n > 0 {
			t.Errorf("recovers %v: a device was wanted to fill memory", recovers)
		}
		path := filepath.Join(t.TempDir(), "saved")
		if n := written(c.checkpoint(path)); n > 0 {
			t.Errorf("recovers %v: %d bytes of filled memory were saved", recovers, n)
		}
		if answer := c.restore(path); answer.Error != "" {
			t.Fatal(answer.Error)
		}
		part(3*mib+5, 7*mib+1, 3) // the ends are of chunks that keep the rest
		v.round(1)
		check("on the device")
		part(0, size, 4) // there, and remembered
		part(mib, mib+3, 5)
		c.revoke("memory")
		if n := written(c.checkpoint(path)); n > 4*mib { // the chunks of the vectors, and one of this
			t.Errorf("recovers %v: %d bytes were saved, most of them filled", recovers, n)
		}
		part(6*mib, 10*mib, 6)
		if recovers {
			c.fold()
			kill.Store(true)
			c.must(&wire.Synchronise{}, nil)
		}
		v.round(2)
		check("on the device again")
		c.revoke("memory")
		check("on the host")
		if recovers && c.died.Load() == 0 {
			t.Error("no worker has died")
		}
	}
}

// written is how much memory a file has.
func written(f *checkpoint.File) (bytes uint64) {
	for _, r := range f.Written {
		bytes += r.Size
	}
	return bytes
}
