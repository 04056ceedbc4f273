package worker

import (
	"testing"

	"muster/wire"
)

// BenchmarkMessages is what a message takes in the worker: launches in a row of a kernel that does next to
// nothing, small copies in, and small copies out, each of which is waited for.
func BenchmarkMessages(b *testing.B) {
	for _, recovers := range []bool{false, true} {
		name := "-not-kept"
		if recovers {
			name = "-kept"
		}
		c := newClient(b, options{recovers: recovers})
		v := newVectors(c, 1)
		v.round(0)
		b.Run("launch"+name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				v.launch(0)
				if n%512 == 511 {
					v.call(&wire.Synchronise{}, nil)
				}
			}
			v.call(&wire.Synchronise{}, nil)
		})
		data := make([]byte, 4096)
		at := c.alloc(4096)
		b.Run("copy-in"+name, func(b *testing.B) {
			for b.Loop() {
				v.in(at, data)
			}
			v.call(&wire.Synchronise{}, nil)
		})
		b.Run("copy-out"+name, func(b *testing.B) {
			for b.Loop() {
				v.out(at, 4096)
			}
		})
	}
}
