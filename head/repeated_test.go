package head_test

import (
	"strings"
	"testing"
)

// Options without end are refused before they are read, and a job waits once for another, however often
// and in whichever way its dependency names it.
func TestOptionsWithoutEnd(t *testing.T) {
	p := newPlayer()
	play := func(line string) error { return p.play(strings.Fields(line)) }
	if err := play("node n1 cores=16"); err != nil {
		t.Fatal(err)
	}
	p.out.Reset()
	_ = play("alice submit " + strings.Repeat("-k ", 40_000))
	if out := p.out.String(); !strings.Contains(out, "options of more than 65536 bytes") {
		t.Errorf("it said %.200q", out)
	}
}
