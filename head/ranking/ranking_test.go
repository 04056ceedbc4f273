package ranking

import (
	"testing"
	"time"

	"muster/policy"
	"muster/policy/priority"
)

// The book hears of each job once, and of nothing that it does not rank; without a book nothing happens.
func TestRanking(t *testing.T) {
	var none *Ranking
	none.Submitted(1, 0, nil)
	none.Started(1, 0, priority.TRES{})
	none.Stopped(1, 0)
	none.Gone(1, 0)
	if none.Adjust(1, 5, nil) || none.Due() != policy.Never || none.Knows(1) {
		t.Error("without a book, a job is ranked")
	}
	cfg := priority.Defaults()
	r, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	entry := func() priority.Submission { asked++; return priority.Submission{User: "ann"} }
	r.Submitted(1, 0, entry)
	r.Submitted(1, 0, entry)
	r.Submitted(2, 0, entry)
	r.Stopped(3, 0)
	if asked != 2 || !r.Adjust(1, 5, nil) || r.Adjust(3, 5, nil) || r.Due() == policy.Never {
		t.Errorf("asked %d times about %v", asked, r.in)
	}
	r.Started(1, time.Second, priority.TRES{})
	if r.Adjust(1, 6, nil) {
		t.Error("a running job has a place in the queue")
	}
	r.Submitted(1, time.Minute, entry) // requeued
	r.Gone(2, time.Minute)
	document := r.Book.Export()
	again, err := New(cfg, &document)
	if err != nil || asked != 2 || !again.Knows(1) || again.Knows(2) || again.Wrote != time.Minute {
		t.Errorf("from its document: %+v, %v", again, err)
	}
	if again.Compare(func(uint64) bool { return false }); again.Knows(1) || again.Book.Waiting() != 0 {
		t.Error("a job that is not there any more is ranked")
	}
}
