package door

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Sparing logs what strangers, or users who mean harm, can make happen as often as they like: they would
// fill the disk that has the log. Of each minute it logs the first events, and then how many more there
// were; those only a log for debugging has one by one.
type Sparing struct {
	Most int              // that are logged in a minute
	Now  func() time.Time // the time; nil for time.Now

	mu       sync.Mutex
	began    time.Time // the minute
	had      int       // events of this minute
	unlogged int       // since the last that was logged
}

// Info logs an event, or counts it.
func (s *Sparing) Info(log *slog.Logger, text string, args ...any) {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	s.mu.Lock()
	if at := now(); at.Sub(s.began) >= time.Minute {
		s.began, s.had = at, 0
	}
	s.had++
	level, unlogged := slog.LevelInfo, s.unlogged
	if s.had > s.Most {
		level = slog.LevelDebug
		s.unlogged++
	} else {
		s.unlogged = 0
	}
	s.mu.Unlock()
	if level == slog.LevelInfo && unlogged > 0 {
		log.Info("there were more such events than are logged in a minute", "left out", unlogged)
	}
	log.Log(context.Background(), level, text, args...)
}
