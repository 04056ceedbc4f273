package wire

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func someSteps() []Message {
	return []Message{
		&EventRecord{Event: 1, Stream: LaunchStream},
		&StreamWait{Stream: 7, Event: 1},
		&Launch{Function: 3, Stream: 7, GridX: 1, GridY: 2, GridZ: 3, BlockX: 4, BlockY: 5, BlockZ: 6, Params: []byte("parameters")},
		&CopyWithin{Dst: 1 << 40, Src: 2 << 40, Size: 12, Stream: LaunchStream},
		&CopyWithin2D{Dst: 1 << 40, DstPitch: 16, Src: 2 << 40, SrcPitch: 32, Width: 8, Height: 4, Stream: 7},
		&Fill{Dst: 1 << 40, Pitch: 4, Value: 9, Width: 1, Count: 4, Height: 1, Stream: 7},
	}
}

func TestSteps(t *testing.T) {
	var b []byte
	for _, m := range someSteps() {
		b = AppendStep(b, m)
	}
	got, err := DecodeSteps(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, someSteps()) {
		t.Errorf("steps became others")
	}
	if none, err := DecodeSteps(nil); err != nil || len(none) != 0 {
		t.Errorf("no steps: %v, %v", none, err)
	}
}

// What a graph cannot contain is refused: other messages, above all graphs, and truncated bytes.
func TestStepsAreStrict(t *testing.T) {
	whole := AppendStep(nil, &EventRecord{Event: 1, Stream: 2})
	for _, x := range []struct {
		name  string
		steps []byte
		want  string
	}{
		{"a graph in a graph", AppendStep(whole[:len(whole):len(whole)], &GraphLaunch{Graph: 1}), "step 1 of a graph is message 66"},
		{"a call", AppendStep(nil, &Synchronise{}), "which graphs do not have"},
		{"a number that is none", []byte{15, 0, 1, 0, 0, 0, 0, 0}, "is message 65551"},
		{"half a head", whole[:5], "no whole head"},
		{"half a body", whole[:len(whole)-1], "says it has 8 bytes, and 7 are there"},
		{"a body that is too short", append([]byte{byte(OpEventRecord), 0, 0, 0, 4, 0, 0, 0}, 1, 2, 3, 4), "step 0 of a graph"},
	} {
		if _, err := DecodeSteps(x.steps); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}

// Whatever the bytes, what is decoded is what they say.
func FuzzDecodeSteps(f *testing.F) {
	var b []byte
	for _, m := range someSteps() {
		b = AppendStep(b, m)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := DecodeSteps(b)
		if err != nil {
			return
		}
		var again []byte
		for _, m := range all {
			again = AppendStep(again, m)
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
