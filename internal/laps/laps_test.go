package laps_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"

	"muster/internal/laps"
)

func TestALogHasEveryStep(t *testing.T) {
	var out bytes.Buffer
	l := laps.Begin()
	l.End("one")
	l.End("two")
	slog.New(slog.NewTextHandler(&out, nil)).Info("done", "took", l)
	if !regexp.MustCompile(`took\.all=[0-9.]+ms took\.one=[0-9.]+ms took\.two=[0-9.]+ms\n`).MatchString(out.String()) {
		t.Error(out.String())
	}
}
