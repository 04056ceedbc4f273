package worker

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"muster/node/clientcore"
)

// teller gives the program's user reasons: lines that the library prints. A program
// that fails again and again, with a reset between, must not flood its terminal: a
// few lines come at once, later ones now and then. Several goroutines may use it.
type teller struct {
	notify func(text string) bool // false: there is no room
	now    func() clientcore.Time
	log    *slog.Logger

	mu      sync.Mutex
	told    int             // since the last pause
	last    clientcore.Time // when something was told
	dropped int             // since then
}

const (
	toldAtOnce  = 10
	toldEach    = 10 * time.Second // from then on
	tellerRests = time.Minute      // after such a pause all is as in the beginning
)

// tell says something, unless so much was said that nobody reads it. It never waits.
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
