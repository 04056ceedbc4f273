// Package laps measures the steps of something that a user waits for, so that a log says where the
// time went. It knows nothing about what is measured.
package laps

import (
	"fmt"
	"log/slog"
	"time"
)

// Laps are steps that follow each other without a gap.
type Laps struct {
	begin, last time.Time
	steps       []slog.Attr
}

// Begin begins the first step.
func Begin() *Laps {
	now := time.Now()
	return &Laps{begin: now, last: now}
}

// End ends a step, and begins the next.
func (l *Laps) End(step string) {
	now := time.Now()
	l.steps = append(l.steps, slog.String(step, brief(now.Sub(l.last))))
	l.last = now
}

// LogValue is all steps, and their sum, for a logger.
func (l *Laps) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("all", brief(l.last.Sub(l.begin)))}, l.steps...)...)
}

// brief is a duration in milliseconds, which can be compared at a glance.
func brief(d time.Duration) string { return fmt.Sprintf("%.2fms", d.Seconds()*1000) }
