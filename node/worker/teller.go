package worker

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"muster/node/clientcore"
)

// teller tells the program's user reasons, in lines that the library prints. A program that fails
// again and again must not flood its terminal: the first toldAtOnce lines are shown at once, later
// ones every toldEach. Any goroutine may use it.
type teller struct {
	notify func(text string) bool // false: no room
	now    func() clientcore.Time
	log    *slog.Logger

	mu      sync.Mutex
	told    int             // lines since the last long pause
	last    clientcore.Time // when the last line was told
	dropped int             // lines dropped since then
}

const (
	toldAtOnce  = 10
	toldEach    = 10 * time.Second // interval after the first toldAtOnce
	tellerRests = time.Minute      // after a pause this long the count starts again
)

// tell shows a line, unless there were too many. It never blocks.
func (t *teller) tell(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	pause := now - t.last
	if t.told > 0 && pause >= tellerRests {
		t.told = 0
	}
	if t.told >= toldAtOnce && pause < toldEach {
		t.dropped++
		return
	}
	line := text
	switch {
	case t.dropped > 0:
		line += fmt.Sprintf(" (and %d more since the last)", t.dropped)
	case t.told+1 == toldAtOnce:
		line += fmt.Sprintf(" (if more follow, one each %v is shown)", toldEach)
	}
	if !t.notify(line) {
		t.dropped++
		return
	}
	t.told, t.last, t.dropped = t.told+1, now, 0
	t.log.Info("the program was told", "text", line)
}
