package workload

import (
	"fmt"
	"strconv"
	"time"
)

// instantLayouts are the ways in which logs write instants.
var instantLayouts = []string{
	"2006-01-02T15:04:05",
	"2006-01-02T15:04:05Z07:00",
	"2006-01-02T15:04:05-0700",
	"2006-01-02 15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05-0700",
	"2006-01-02T15:04",
	"2006-01-02 15:04",
}

// parseInstant parses an instant as a Unix time. A time without a zone is taken as UTC, since only
// differences matter. Plain numbers are Unix times in seconds.
func parseInstant(text string) (at time.Duration, known bool, err error) {
	switch text {
	case "", "Unknown", "None", "N/A", "NONE", "unknown":
		return 0, false, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return instant(time.Unix(n, 0), text)
	}
	for _, layout := range instantLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return instant(t, text)
		}
	}
	return 0, false, fmt.Errorf("%q is not a time such as 2024-03-01T12:00:00", text)
}

func instant(t time.Time, text string) (time.Duration, bool, error) {
	if s := t.Unix(); s <= 0 || s > maxSeconds {
		return 0, false, fmt.Errorf("%q is not after 1970, or too far ahead", text)
	}
	return time.Duration(t.Unix())*time.Second + time.Duration(t.Nanosecond()), true, nil
}
