package memcheck

import (
	"testing"

	"muster/ptx/simt/shape"
)

// A warp that has observed a publication stays ordered after it, however much the same block
// publishes later; a warp that has observed none is not.
func TestPublicationsAreNotForgotten(t *testing.T) {
	launch := &Launch{Lowest: 1, most: 8}
	writer := &Block{Launch: launch, Warps: 2}
	reader := &Block{Launch: launch, Warps: 2}
	writer.Begin(0)
	reader.Begin(1)
	at := func(w int) Record {
		return Record(writer.ID)<<BlockShift | Record(writer.Clock[w])<<ClockShift | Record(w*shape.WarpSize)<<ThreadShift
	}
	var written, observed []Record
	for i := range 3 * maxPublications {
		written = append(written, at(i%2))
		writer.Fence(i % 2)
		writer.Publish(i % 2)
		if i == 0 || i == maxPublications/2 || i == 2*maxPublications {
			reader.Observe(0)
			observed = written
		}
		for n, r := range observed {
			if !reader.Ordered(r, 0) {
				t.Fatalf("after %d publications the reader is not ordered after access %d, which was published before it observed", i+1, n)
			}
		}
	}
	if len(launch.ids[0].published) > maxPublications {
		t.Errorf("%d publications are kept", len(launch.ids[0].published))
	}
	if last := written[len(written)-1]; reader.Ordered(last, 0) || reader.Ordered(written[0], 1) {
		t.Error("the reader is ordered after what it has not observed")
	}
}
