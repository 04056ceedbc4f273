package agent

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	long := Outcome{Exit: 3, Reason: strings.Repeat("x", 2*MaxReason)}
	b := AppendFrame(nil, FrameInput, []byte("hello"))
	b = AppendFrame(b, FrameInput, nil)
	b = AppendOutcome(b, long)
	r, buffer := bytes.NewReader(b), make([]byte, MaxFrame)
	for _, want := range []string{"hello", ""} {
		kind, got, err := ReadFrame(r, buffer)
		if kind != FrameInput || string(got) != want || err != nil {
			t.Fatalf("%v %q %v", kind, got, err)
		}
	}
	kind, got, err := ReadFrame(r, buffer)
	if kind != FrameEnd || err != nil {
		t.Fatal(kind, err)
	}
	if o, err := ParseOutcome(got); err != nil || o.Exit != 3 || len(o.Reason) != MaxReason {
		t.Error(o, err)
	}
	if _, _, err := ReadFrame(r, buffer); err != io.EOF {
		t.Error(err)
	}
}

func TestFramesRefused(t *testing.T) {
	buffer := make([]byte, MaxFrame)
	for _, b := range [][]byte{{9, 0, 0, 0, 0}, {0, 1, 0, 1, 0}, {0, 0xff, 0xff, 0xff, 0xff}} {
		if _, _, err := ReadFrame(bytes.NewReader(b), buffer); !errors.Is(err, ErrRefused) {
			t.Errorf("% x: %v", b, err)
		}
	}
	if _, _, err := ReadFrame(bytes.NewReader([]byte{0, 2, 0, 0, 0, 1}), buffer); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	for _, text := range []string{`{"exit":256}`, `{"exit":0,"more":1}`, `[]`, `{"exit":0} 1`, `{"exit":0,"signal":65}`} {
		if _, err := ParseOutcome([]byte(text)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(AppendFrame(nil, FrameOutput, []byte("x")))
	f.Add(AppendOutcome(nil, Outcome{Exit: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		buffer := make([]byte, MaxFrame)
		kind, got, err := ReadFrame(bytes.NewReader(b), buffer)
		if err != nil {
			return
		}
		if again := AppendFrame(nil, kind, got); !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("% x became % x", b, again)
		}
		if kind != FrameEnd {
			return
		}
		if o, err := ParseOutcome(got); err == nil && len(o.Reason) <= MaxReason {
			_, body, _ := ReadFrame(bytes.NewReader(AppendOutcome(nil, o)), make([]byte, MaxFrame))
			if again, err := ParseOutcome(body); err != nil || again != o {
				t.Errorf("%v became %v, %v", o, again, err)
			}
		}
	})
}
