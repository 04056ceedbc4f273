package door

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Of many events in a minute the first are logged, and the next minute says how many were not.
func TestFloodsAreLoggedSparingly(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	now := time.Unix(1000, 0)
	s := &Sparing{Most: 2, Now: func() time.Time { return now }}
	logged := func() (events, counts int) {
		events, counts = strings.Count(text.String(), "msg=refused"), strings.Count(text.String(), `"left out"=3`)
		text.Reset()
		return events, counts
	}
	for range 5 {
		s.Info(log, "refused")
	}
	if events, counts := logged(); events != 2 || counts != 0 {
		t.Errorf("%d events, and %d counts", events, counts)
	}
	now = now.Add(time.Minute)
	for range 2 {
		s.Info(log, "refused")
	}
	if events, counts := logged(); events != 2 || counts != 1 {
		t.Errorf("in the next minute %d events, and %d counts", events, counts)
	}
}
