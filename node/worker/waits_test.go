package worker

import (
	"testing"

	"muster/internal/mailbox"
	"muster/wire"
)

// The loop hears of every host function that is due, and of a few faults: one that keeps coming must not
// fill its memory.
func TestManyFaultsAreNotReported(t *testing.T) {
	ring, arena := createShared(t)
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	x := &waits{session: &session{consumer: wire.NewConsumer(shared)}, notices: mailbox.New[notice](nil)}
	for i := range 1000 {
		x.report(notice{world: 1})
		x.report(notice{cookie: uint64(i + 1)})
	}
	faults, functions := 0, 0
	for n, ok := x.notices.Take(); ok; n, ok = x.notices.Take() {
		if n.cookie == 0 {
			faults++
		} else {
			functions++
		}
	}
	if faults == 0 || faults > manyNotices || functions != 1000 {
		t.Errorf("it hears of %d faults and %d functions", faults, functions)
	}
}
