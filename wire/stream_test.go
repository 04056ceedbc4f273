package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

// everyFrame returns frames of all kinds, with the bytes that follow them.
func everyFrame() []Frame {
	staged := Header{Op: OpCopyIn, Slot: -1, Seq: 3, Data: 64, Length: 5, Release: 69}
	return []Frame{
		{Kind: FrameGeometry, Slot: -1, Geometry: DefaultGeometry, Lanes: 8, From: 1 << 17, Silence: 20_000, Keep: 60_000, Key: LaneKey{1, 2, 31: 3}},
		{Kind: FrameMessage, Slot: -1, Header: Header{Op: OpReset, Slot: 9, Seq: 2}, Body: []byte{}},
		{Kind: FrameMessage, Slot: -1, Header: staged, Body: (&CopyIn{Dst: 0x1234, Stream: 5}).Append(nil), Bytes: 5},
		{Kind: FrameMessage, Slot: -1, Header: staged, Body: (&CopyIn{Dst: 0x1234, Stream: 5}).Append(nil)},
		{Kind: FrameData, Slot: -1, Offset: 0x1122334455667788, Bytes: 7},
		{Kind: FrameReply, Seq: 0xa0b0c0d0, Slot: 255, Result: -2, Status: 700, Print: true, Body: []byte("answer")},
		{Kind: FrameReply, Seq: 1, Slot: -1, Body: []byte{}},
		{Kind: FrameState, Slot: -1, Status: -3, Print: true},
		{Kind: FrameClosed, Slot: -1, Reason: "the device is gone"},
		{Kind: FrameAway, Slot: -1, Offset: 1 << 33, Length: 1 << 30},
		{Kind: FrameResume, Slot: -1, Offset: 1 << 34, Key: LaneKey{4, 31: 5}},
		{Kind: FrameResume, Slot: -1, Offset: 7, Last: true},
		{Kind: FrameNotice, Slot: -1, Reason: "kernel k: illegal address 0x10"},
	}
}

func TestGoldenStream(t *testing.T) {
	var b strings.Builder
	for _, f := range everyFrame() {
		fmt.Fprintf(&b, "%v\n", f.Kind)
		for v, i := reflect.ValueOf(f), 1; i < v.NumField(); i++ {
			if !v.Field(i).IsZero() {
				fmt.Fprintf(&b, "  %s %+v\n", v.Type().Field(i).Name, v.Field(i))
			}
		}
		fmt.Fprintf(&b, "  = %x\n", f.Append(nil))
	}
	golden(t, "stream.golden", b.String())
}

func TestFramesComeBack(t *testing.T) {
	var stream []byte
	for _, f := range everyFrame() {
		stream = append(f.Append(stream), bytes.Repeat([]byte{0xee}, int(f.Bytes))...)
	}
	r := NewFrameReader(bytes.NewReader(stream))
	for _, want := range everyFrame() {
		got, err := r.Next()
		if err != nil {
			t.Fatalf("%v: %v", want.Kind, err)
		}
		if got.Body == nil && len(want.Body) == 0 {
			got.Body = want.Body
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v came back as %+v", want, got)
		}
		if err := r.ReadBytes(make([]byte, got.Bytes+1)); err == nil {
			t.Error("more bytes were read than the frame has")
		}
		if got.Bytes > 0 {
			if _, err := r.Next(); err == nil {
				t.Error("bytes of a frame were passed over")
			}
		}
		if err := r.ReadBytes(make([]byte, got.Bytes)); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// A cut connection is noticed wherever it is cut; only between frames is it an orderly end.
func TestCutStreams(t *testing.T) {
	for _, f := range everyFrame() {
		whole := append(f.Append(nil), make([]byte, f.Bytes)...)
		for cut := range whole {
			r := NewFrameReader(bytes.NewReader(whole[:cut]))
			got, err := r.Next()
			if err == nil {
				err = r.ReadBytes(make([]byte, got.Bytes))
			}
			want := io.ErrUnexpectedEOF
			if cut == 0 {
				want = io.EOF
			}
			if !errors.Is(err, want) {
				t.Errorf("%v after %d of %d bytes: %v", f.Kind, cut, len(whole), err)
			}
		}
	}
}

func TestFrameReaderRefuses(t *testing.T) {
	head := func(size uint32, kind FrameKind, rest ...byte) []byte {
		return append(append(appendU32(nil, size), byte(kind), 0, 0, 0), rest...)
	}
	frame := func(change func(f *Frame)) []byte {
		f := Frame{Kind: FrameMessage, Header: Header{Op: OpCopyIn, Slot: -1, Length: 4}}
		change(&f)
		return f.Append(nil)
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"kind 0", head(0, 0), "frame 0 is of no kind that is known"},
		{"an unknown kind", head(0, 99), "frame 99 is of no kind that is known"},
		{"a damaged head", []byte{0, 0, 0, 0, byte(FrameState), 1, 0, 0}, "a damaged frame: state of 0 bytes"},
		{"a message that is too short", head(39, FrameMessage, make([]byte, 39)...), "a message of 39 bytes is too short"},
		{"a message that is too long", head(1<<30, FrameMessage, 0, 0, 0, 1), "a message of 16777216 bytes in a frame of 1073741824"},
		{"a message longer than its frame", head(40, FrameMessage, 41, 0, 0, 0), "a message of 41 bytes in a frame of 40"},
		{"bytes for a message that takes none", frame(func(f *Frame) { f.Header = Header{Op: OpMemFree, Slot: -1}; f.Bytes = 4 }), "mem_free with 4 bytes of data, where it names 0"},
		{"other bytes than it names", frame(func(f *Frame) { f.Bytes = 5 }), "copy_in with 5 bytes of data, where it names 4"},
		{"no such message", frame(func(f *Frame) { f.Header.Op = 99 }), "message 99 is none that a client may send"},
		{"data without an offset", head(7, FrameData), "a frame of data of 7 bytes"},
		{"too much data", head(8+MaxPiece+1, FrameData), "a frame of data of 1048585 bytes"},
		{"a reason that is too long", head(5000, FrameClosed), "closed of 5000 bytes is too long"},
		{"a reply that is too short", head(15, FrameReply, make([]byte, 15)...), "reply is too short"},
		{"an answer that is too long", head(16+MaxReply+1, FrameReply, make([]byte, 16+MaxReply+1)...), "a damaged frame: reply of 257 bytes"},
		{"a slot that is none", head(16, FrameReply, append([]byte{0, 0, 0, 0, 1, 1}, make([]byte, 10)...)...), "a damaged frame: reply of 16 bytes"},
		{"print", head(8, FrameState, 0, 0, 0, 0, 2, 0, 0, 0), "a damaged frame: state of 8 bytes"},
		{"a state that is too long", head(9, FrameState, make([]byte, 9)...), "state has 1 bytes too many"},
		{"a geometry that cannot be", head(32, FrameGeometry, make([]byte, 32)...), "the shared memory cannot have these sizes: {Ring:0 Staging:0 Bounce:0 Pinned:0}"},
	} {
		if _, err := NewFrameReader(bytes.NewReader(c.b)).Next(); fmt.Sprint(err) != c.want {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
	}
}

func FuzzFrameReader(f *testing.F) {
	for _, frame := range everyFrame() {
		f.Add(append(frame.Append(nil), make([]byte, frame.Bytes)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewFrameReader(bytes.NewReader(b))
		for at := 0; ; {
			frame, err := r.Next()
			if err != nil {
				return
			}
			again := frame.Append(nil)
			if !bytes.Equal(again, b[at:at+len(again)]) {
				t.Fatalf("%x was read as %x", b[at:at+len(again)], again)
			}
			if err := r.ReadBytes(make([]byte, min(frame.Bytes, uint64(len(b))))); err != nil {
				return
			}
			at += len(again) + int(frame.Bytes)
		}
	})
}
