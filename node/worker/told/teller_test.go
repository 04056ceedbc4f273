package told

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"muster/node/clientcore"
)

// A program that fails a thousand times is told of a few of them, and of how many
// were left out.
func TestTellerDoesNotFlood(t *testing.T) {
	var lines []string
	var now clientcore.Time
	full := false
	told := &Teller{
		notify: func(text string) bool {
			if !full {
				lines = append(lines, text)
			}
			return !full
		},
		now: func() clientcore.Time { return now }, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	expect := func(want ...string) {
		t.Helper()
		if !reflect.DeepEqual(lines, want) {
			t.Errorf("at %v: told %q\nwant %q", now, lines, want)
		}
		lines = nil
	}
	for i := range 1000 {
		now += time.Millisecond
		told.Tell(fmt.Sprint("fault ", i+1))
	}
	expect("fault 1", "fault 2", "fault 3", "fault 4", "fault 5", "fault 6", "fault 7", "fault 8", "fault 9", "fault 10 (if more follow, one each 10s is shown)")
	now += toldEach
	told.Tell("fault 1001")
	told.Tell("fault 1002")
	expect("fault 1001 (and 990 more since the last)")
	now += tellerRests
	told.Tell("later")
	told.Tell("at once")
	expect("later (and 1 more since the last)", "at once")
	full = true
	told.Tell("lost")
	full = false
	told.Tell("next")
	expect("next (and 1 more since the last)")
}
