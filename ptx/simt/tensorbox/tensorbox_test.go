package tensorbox

import (
	"testing"

	"muster/ptx/simt/tensormap"
)

// A box that lies partly outside of its tensor: rows outside have nothing inside of it, and the
// others end where the tensor does.
func TestRows(t *testing.T) {
	b := Box{Map: tensormap.Map{Type: tensormap.F32, Rank: 2, Address: 1 << 20}}
	b.Sizes[0], b.Sizes[1] = 10, 3
	b.Strides[0] = 64
	b.Map.Box[0], b.Map.Box[1] = 4, 2
	b.Steps[0], b.Steps[1] = 1, 1
	b.Corner[0], b.Corner[1] = 8, 2
	if b.Bytes() != 32 {
		t.Errorf("a box of 4 by 2 floats has %d bytes", b.Bytes())
	}
	var got []Row
	for r := range b.Rows() {
		got = append(got, r)
	}
	if len(got) != 2 || got[0].Inside != 8 || got[0].Global != 1<<20+2*64+32 || got[1].Inside != 0 || got[1].Shared != 16 {
		t.Errorf("got rows %+v", got)
	}
}
