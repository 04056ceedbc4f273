package worker

import (
	"bytes"
	"fmt"
	"testing"

	"muster/wire"
)

// A copy within memory that overlaps itself, or is onto itself, gives what one on a
// device gives, also where the client is kept and chunks change sides.
func TestOverlappingCopiesOfKeptClients(t *testing.T) {
	for _, shift := range []uint64{0, 4096, 2 * mib} {
		for _, down := range []bool{true, false} {
			t.Run(fmt.Sprint(shift, down), func(t *testing.T) {
				c := newClient(t, options{recovers: true})
				const size = 8 * mib
				a := c.alloc(size + 4*mib)
				data := floats((size+4*mib)/4, func(i int) float32 { return float32(i) })
				for at := 0; at < len(data); at += mib { // more than is kept in the journal: a base is made meanwhile
					c.in(a+uint64(at), data[at:at+mib])
				}
				c.must(&wire.Synchronise{}, nil)
				from, to := a, a+shift
				if down {
					from, to = a+shift, a
				}
				c.post(&wire.CopyWithin{Dst: to, Src: from, Size: size})
				want := bytes.Clone(data)
				copy(want[to-a:][:size], data[from-a:][:size])
				for at := uint64(0); at < uint64(len(want)); at += mib {
					if !bytes.Equal(c.out(a+at, mib), want[at:at+mib]) {
						t.Fatalf("other bytes at %d", at)
					}
				}
			})
		}
	}
}
