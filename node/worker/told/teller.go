package told

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"muster/node/clientcore"
)

// Teller tells the program's user reasons, in lines that the library prints. A program that fails
// again and again must not flood its terminal: the first AtOnce lines are shown at once, later
// ones every toldEach. Any goroutine may use it.
type Teller struct {
	notify func(text string) bool // false: no room
	now    func() clientcore.Time
	log    *slog.Logger

	mu      sync.Mutex
	told    int             // lines since the last long pause
	last    clientcore.Time // when the last line was told
	dropped int             // lines dropped since then
}

const (
	AtOnce      = 10
	toldEach    = 10 * time.Second // interval after the first AtOnce
	tellerRests = time.Minute      // after a pause this long the count starts again
)

// Tell shows a line, unless there were too many. It never blocks.
func (t *Teller) Tell(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	pause := now - t.last
	if t.told > 0 && pause >= tellerRests {
		t.told = 0
	}
	if t.told >= AtOnce && pause < toldEach {
		t.dropped++
		return
	}
	line := text
	switch {
	case t.dropped > 0:
		line += fmt.Sprintf(" (and %d more since the last)", t.dropped)
	case t.told+1 == AtOnce:
		line += fmt.Sprintf(" (if more follow, one each %v is shown)", toldEach)
	}
	if !t.notify(line) {
		t.dropped++
		return
	}
	t.told, t.last, t.dropped = t.told+1, now, 0
	t.log.Info("the program was told", "text", line)
}
