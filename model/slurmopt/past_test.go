package slurmopt

import (
	"testing"
	"time"
)

func TestParsePast(t *testing.T) {
	now := time.Date(2026, 11, 17, 12, 30, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"now-7days":        "2026-11-10T12:30",
		"NOW-1hour":        "2026-11-17T11:30",
		"16:30":            "2026-11-17T16:30", // of today, even if that is still to come
		"2026-10-01":       "2026-10-01T00:00",
		"2026-10-01T08:15": "2026-10-01T08:15",
		"0301":             "2026-03-01T00:00",
		"now-":             "",
		"yesterdayish":     "",
	} {
		got, err := ParsePast(text, now)
		if want == "" {
			if err == nil {
				t.Errorf("%q is %v", text, got)
			}
			continue
		}
		if err != nil || got.Format("2006-01-02T15:04") != want {
			t.Errorf("%q is %v, %v; want %s", text, got, err, want)
		}
	}
}
