package simt

import (
	"testing"

	"muster/ptx/simt/shape"
)

// A warp that has observed a publication stays ordered after it, however much the same block
// publishes later; a warp that has observed none is not.
func TestPublicationsAreNotForgotten(t *testing.T) {
	launch := &launchCheck{first: 1, most: 8}
	writer := &blockCheck{launch: launch, warps: 2}
	reader := &blockCheck{launch: launch, warps: 2}
	writer.begin(0)
	reader.begin(1)
	at := func(w int) record {
		return record(writer.id)<<blockShift | record(writer.clock[w])<<clockShift | record(w*shape.WarpSize)<<threadShift
	}
	var written, observed []record
	for i := range 3 * maxPublications {
		written = append(written, at(i%2))
		writer.fence(i % 2)
		writer.publish(i % 2)
		if i == 0 || i == maxPublications/2 || i == 2*maxPublications {
			reader.observe(0)
			observed = written
		}
		for n, r := range observed {
			if !reader.ordered(r, 0) {
				t.Fatalf("after %d publications the reader is not ordered after access %d, which was published before it observed", i+1, n)
			}
		}
	}
	if len(launch.ids[0].published) > maxPublications {
		t.Errorf("%d publications are kept", len(launch.ids[0].published))
	}
	if last := written[len(written)-1]; reader.ordered(last, 0) || reader.ordered(written[0], 1) {
		t.Error("the reader is ordered after what it has not observed")
	}
}
