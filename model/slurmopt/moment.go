package slurmopt

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Moment is a point in time as a user writes it: a time from now, a date, or a time of day. This
// package reads no clock; Time converts a moment with the clock and zone of the caller.
type Moment struct {
	// Set distinguishes a moment from none.
	Set bool
	// After counts from now if there is neither date nor time of day.
	After time.Duration
	// Year, Month and Day are a date; if Year is 0, it is the next such day. A Clock without a date
	// is the next such time.
	Year, Month, Day int
	// Days counts from today if Today is set.
	Today bool
	Days  int
	// Clock is the time of day if HasClock is set.
	HasClock bool
	Clock    time.Duration
}

const momentHelp = "write now+1hour, 16:30, tomorrow, 2026-11-30 or 2026-11-30T16:30"

var clockNames = map[string]time.Duration{
	"midnight": 0, "noon": 12 * time.Hour, "elevenses": 11 * time.Hour, "fika": 15 * time.Hour, "teatime": 16 * time.Hour,
}

var momentUnits = []struct {
	name string
	unit time.Duration
}{{"seconds", time.Second}, {"minutes", time.Minute}, {"hours", time.Hour}, {"days", 24 * time.Hour}, {"weeks", 7 * 24 * time.Hour}}

// ParseMoment parses Slurm's moments: now[+COUNT[UNIT]], HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY],
// MM.DD[.YY], YYYY-MM-DD, each date with an optional T and time of day, today, tomorrow, midnight,
// noon, fika and teatime.
func ParseMoment(s string) (Moment, error) {
	m := Moment{Set: true}
	text := strings.ToLower(strings.Trim(s, blanks))
	bad := fmt.Errorf("%q is no time: %s", s, momentHelp)
	if rest, ok := strings.CutPrefix(text, "now"); ok {
		d, ok := parseAfter(rest)
		if !ok {
			return Moment{}, bad
		}
		m.After = d
		return m, nil
	}
	if d, ok := parseClock(text); ok {
		m.Clock, m.HasClock = d, true
		return m, nil
	}
	date, clock := text, ""
	if at := strings.IndexAny(text, "t "); at > 0 && text[0] >= '0' && text[0] <= '9' {
		date, clock = text[:at], text[at+1:]
	} else if at := strings.IndexByte(text, ' '); at > 0 {
		date, clock = text[:at], text[at+1:]
	}
	if !m.parseDate(date) {
		return Moment{}, bad
	}
	if clock != "" {
		d, ok := parseClock(clock)
		if !ok {
			return Moment{}, bad
		}
		m.Clock, m.HasClock = d, true
	} else if date != text {
		return Moment{}, bad
	}
	return m, nil
}

// parseAfter parses the part after "now".
func parseAfter(s string) (time.Duration, bool) {
	if s == "" {
		return 0, true
	}
	if s[0] != '+' {
		return 0, false
	}
	s = s[1:]
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, err := strconv.ParseUint(s[:digits], 10, 40)
	if err != nil {
		return 0, false
	}
	name := strings.Trim(s[digits:], blanks)
	for _, u := range momentUnits {
		// As in Slurm, a prefix is sufficient: min, hour, h.
		if strings.HasPrefix(u.name, name) {
			return time.Duration(n) * u.unit, n <= uint64(longest/u.unit)
		}
	}
	return 0, false
}

// parseClock reads HH:MM[:SS][AM|PM] and the names of times of day.
func parseClock(s string) (time.Duration, bool) {
	if d, ok := clockNames[s]; ok {
		return d, true
	}
	half := ""
	for _, h := range []string{"am", "pm"} {
		if rest, ok := strings.CutSuffix(s, h); ok {
			s, half = strings.TrimRight(rest, blanks), h
		}
	}
	fields := strings.Split(s, ":")
	if len(fields) != 2 && len(fields) != 3 {
		return 0, false
	}
	limits := []int{23, 59, 59}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	var d time.Duration
	for i, f := range fields {
		n, ok := digits(f)
		if !ok || len(f) > 2 || n > limits[i] {
			return 0, false
		}
		if i == 0 && half != "" {
			if n < 1 || n > 12 {
				return 0, false
			}
			n %= 12
			if half == "pm" {
				n += 12
			}
		}
		d += time.Duration(n) * units[i]
	}
	return d, true
}

func digits(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" || len(s) > 4 {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func (m *Moment) parseDate(s string) bool {
	switch s {
	case "today":
		m.Today = true
		return true
	case "tomorrow":
		m.Today, m.Days = true, 1
		return true
	}
	var fields []string
	switch {
	case strings.Contains(s, "-"):
		f := strings.Split(s, "-")
		if len(f) != 3 || len(f[0]) != 4 {
			return false
		}
		fields = []string{f[1], f[2], f[0]}
	case strings.Contains(s, "/"):
		fields = strings.Split(s, "/")
	case strings.Contains(s, "."):
		fields = strings.Split(s, ".")
	case len(s) == 4:
		fields = []string{s[:2], s[2:]}
	case len(s) == 6:
		fields = []string{s[:2], s[2:4], s[4:]}
	}
	if len(fields) != 2 && len(fields) != 3 {
		return false
	}
	var n [3]int
	for i, f := range fields {
		var ok bool
		if n[i], ok = digits(f); !ok {
			return false
		}
	}
	m.Month, m.Day = n[0], n[1]
	if len(fields) == 3 {
		switch len(fields[2]) {
		case 2:
			m.Year = 2000 + n[2]
		case 4:
			m.Year = n[2]
		default:
			return false
		}
		if m.Year < 1970 {
			return false
		}
	}
	// Without a year, assume a leap year, so that February 29 is valid.
	year := m.Year
	if year == 0 {
		year = 2000
	}
	day := time.Date(year, time.Month(m.Month), m.Day, 0, 0, 0, 0, time.UTC)
	return m.Month >= 1 && m.Month <= 12 && day.Day() == m.Day && int(day.Month()) == m.Month
}

// Time is the moment for a user whose clock says now, in the zone of now. A time of day that has
// passed is tomorrow's, and a date without a year that has passed is next year's.
func (m *Moment) Time(now time.Time) time.Time {
	if !m.Set {
		return time.Time{}
	}
	if m.Month == 0 && !m.Today && !m.HasClock {
		return now.Add(m.After)
	}
	on := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, int(m.Clock/time.Second), 0, now.Location())
	}
	year, month, day := now.Date()
	switch {
	case m.Today:
		return on(year, month, day+m.Days)
	case m.Month == 0:
		if at := on(year, month, day); !at.Before(now) {
			return at
		}
		return on(year, month, day+1)
	case m.Year > 0:
		return on(m.Year, time.Month(m.Month), m.Day)
	}
	// Two February 29ths are up to 8 years apart.
	for y := year; y <= year+8; y++ {
		at := on(y, time.Month(m.Month), m.Day)
		if at.Day() == m.Day && !at.AddDate(0, 0, 1).Before(now) && (!m.HasClock || !at.Before(now)) {
			return at
		}
	}
	return on(year, time.Month(m.Month), m.Day)
}

// String writes the moment in the form that ParseMoment reads; "" if it is not set.
func (m *Moment) String() string {
	clock := ""
	if m.HasClock {
		s := int(m.Clock / time.Second)
		clock = fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	date := ""
	switch {
	case !m.Set:
		return ""
	case m.Today && m.Days == 0:
		date = "today"
	case m.Today:
		date = "tomorrow"
	case m.Month > 0 && m.Year > 0:
		date = fmt.Sprintf("%04d-%02d-%02d", m.Year, m.Month, m.Day)
	case m.Month > 0:
		date = fmt.Sprintf("%02d/%02d", m.Month, m.Day)
	case !m.HasClock && m.After == 0:
		return "now"
	case !m.HasClock:
		return "now+" + strconv.FormatInt(int64(m.After/time.Second), 10)
	}
	switch {
	case date == "" || clock == "":
		return date + clock
	case m.Today:
		return date + " " + clock
	}
	return date + "T" + clock
}
