package nodetable

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/node/vgpu"
)

// What is said of a recording: how far it goes, how it ends, and where another decision is made now.
func TestWriteReplayed(t *testing.T) {
	whole := vgpu.Replayed{Header: vgpu.Header{Node: "n1", Started: "today", Muster: "muster 1"}, Events: 2, Effects: 1, Last: 1500 * time.Millisecond, End: "stopped"}
	cutOff, killed, differs, hostile := whole, whole, whole, whole
	cutOff.Cut, killed.End, hostile.Header.Node = true, "", "n\x1b[31m"
	differs.Difference = &vgpu.Difference{Line: 7, Now: time.Second, Event: json.RawMessage(`"e"`), Recorded: json.RawMessage(`"r"`), Decided: json.RawMessage(`"d"`)}
	for want, r := range map[string]vgpu.Replayed{
		"2 events in 1.5s, 1 effect: the same decisions\nthe recording's end: stopped\n": whole,
		"cut off in the middle of a line":                                                cutOff,
		"it has no end":                                                                  killed,
		"the first difference is in line 7, after 1s:\n  event     \"e\"\n  recorded  \"r\"\n  now       \"d\"\n": differs,
	} {
		var b strings.Builder
		if err := WriteReplayed(&b, r); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%q, %v; want %q", b.String(), err, want)
		}
	}
	var b strings.Builder
	if err := WriteReplayed(&b, hostile); err != nil || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%q, %v", b.String(), err)
	}
	if d := ReplayedJSON("f", differs); d.Same || d.Difference == nil || d.Difference.Line != 7 || d.Time != 1.5 {
		t.Errorf("%+v", d)
	}
	if d := ReplayedJSON("f", whole); !d.Same || d.Difference != nil || d.File != "f" || d.End != "stopped" {
		t.Errorf("%+v", d)
	}
}

func TestUnreadableRecording(t *testing.T) {
	bad := errors.New("no JSON")
	line := &vgpu.LineError{Line: 3, Err: bad}
	for want, err := range map[string]error{
		"f: no JSON":   UnreadableRecording("f", vgpu.Replayed{}, bad),
		"f:3: no JSON": UnreadableRecording("f", vgpu.Replayed{}, line),
		"f:3: no JSON (1 event before that: the same decisions)": UnreadableRecording("f", vgpu.Replayed{Events: 1}, line),
	} {
		if err.Error() != want || !errors.Is(err, bad) {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
