package slurmopt

import (
	"fmt"
	"strings"
	"time"
)

// ParsePast reads a time of a history: one without a date is today's, one without a
// year is this year's, and now-7days is a week ago.
func ParsePast(s string, now time.Time) (time.Time, error) {
	if back, ok := strings.CutPrefix(strings.ToLower(s), "now-"); ok {
		m, err := ParseMoment("now+" + back)
		if err != nil {
			return now, fmt.Errorf("%q is no time: write now-7days, 16:30, 2026-11-30 or 2026-11-30T16:30", s)
		}
		return now.Add(-m.After), nil
	}
	m, err := ParseMoment(s)
	if err != nil {
		return now, err
	}
	year, month, day := now.Date()
	switch {
	case m.Month > 0 && m.Year == 0:
		m.Year = year
	case m.Month == 0 && m.HasClock && !m.Today:
		m.Year, m.Month, m.Day = year, int(month), day
	}
	return m.Time(now), nil
}
