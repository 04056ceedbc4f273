package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// A duration in a daemon's log has its unit, in both forms.
func TestLoggedDurations(t *testing.T) {
	for _, text := range []bool{false, true} {
		var written bytes.Buffer
		log, err := logger(&written, "info", text, !text)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("done", "took", 92*time.Millisecond)
		if !strings.Contains(written.String(), "92ms") {
			t.Errorf("text %v: %s", text, written.String())
		}
	}
}
