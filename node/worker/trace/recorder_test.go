package trace

import (
	"testing"
	"time"

	"muster/wire/control"
	"muster/wire/timeline"
)

// A program that does not read its records costs a bounded amount of memory.
func TestRecordsAreBounded(t *testing.T) {
	r := &Recorder{known: map[uint32]bool{}}
	now := time.Now()
	for range maxRecorded/timeline.Size + 100 {
		r.add(timeline.Record{Kind: timeline.Kernel}, "k", now, now)
	}
	if len(r.records) > maxRecorded+timeline.Size || r.lost != 101 { // the name took a place
		t.Errorf("%d bytes, %d lost", len(r.records), r.lost)
	}
	var n Neighbours
	for i := range uint64(3 * maxHeld) {
		n.Note(control.Neighbour{Client: i, On: true})
		n.Note(control.Neighbour{Client: i, On: i%2 == 0, At: int64(time.Hour)})
	}
	if len(n.held) > maxHeld || len(n.past) > maxPast {
		t.Errorf("%d others, %d spans", len(n.held), len(n.past))
	}
}
