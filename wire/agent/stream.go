package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"muster/internal/strictjson"
)

// A stream is a separate connection, which the agent dials when the head has sent Open. It carries
// frames: a byte with the kind, four bytes with the length, little-endian, and the bytes.
//
// For a command (Open.Exec) the head sends FrameInput, an empty one at the end of the input, and
// the agent FrameOutput and FrameError. For a file (Open.File) and for the node's status the agent
// sends FrameOutput. The last frame is FrameEnd, with an Outcome as JSON. If the head closes its
// side before that, the command is killed. While a command does not read its input, the agent sends
// an empty FrameOutput about once a second, so that each hop notices when the next one has
// disconnected.
//
// A command with a terminal (Exec.Terminal) writes FrameOutput alone, and the head may send FrameSize:
// the size of the user's terminal has changed. The empty FrameInput is typed as the end of input there.

// FrameKind is the kind of a frame.
type FrameKind uint8

// The kinds.
const (
	FrameInput FrameKind = iota
	FrameOutput
	FrameError
	FrameEnd
	FrameSize
	frameKinds
)

// MaxFrame is how many bytes a frame may have.
const MaxFrame = 64 << 10

const frameHead = 5

// SizeBytes is how many bytes a FrameSize has: rows and columns, two bytes each, little-endian.
const SizeBytes = 4

// AppendSize appends a frame with the size of a terminal.
func AppendSize(to []byte, t Terminal) []byte {
	body := binary.LittleEndian.AppendUint16(nil, t.Rows)
	return AppendFrame(to, FrameSize, binary.LittleEndian.AppendUint16(body, t.Columns))
}

// ParseSize parses the contents of a FrameSize.
func ParseSize(b []byte) (Terminal, error) {
	if len(b) != SizeBytes {
		return Terminal{}, fmt.Errorf("%w: the size of a terminal in %d bytes", ErrRefused, len(b))
	}
	return Terminal{Rows: binary.LittleEndian.Uint16(b), Columns: binary.LittleEndian.Uint16(b[2:])}, nil
}

// Outcome is how a command, or the reading of a file, ended.
type Outcome struct {
	Exit   int `json:"exit"`
	Signal int `json:"signal,omitempty"`
	// Reason says why there was nothing to run or to read; "" if there was.
	Reason string `json:"reason,omitempty"`
}

// AppendFrame appends the encoding of a frame. bytes must not exceed MaxFrame.
func AppendFrame(to []byte, kind FrameKind, bytes []byte) []byte {
	to = append(to, byte(kind))
	to = binary.LittleEndian.AppendUint32(to, uint32(len(bytes)))
	return append(to, bytes...)
}

// AppendOutcome appends the frame that ends a stream.
func AppendOutcome(to []byte, o Outcome) []byte {
	if len(o.Reason) > MaxReason {
		o.Reason = o.Reason[:MaxReason]
	}
	body, err := json.Marshal(o)
	if err != nil {
		panic(err) // cannot fail: numbers and a text
	}
	return AppendFrame(to, FrameEnd, body)
}

// ReadFrame reads a frame into a buffer with room for MaxFrame bytes, and returns the part that was
// used.
func ReadFrame(r io.Reader, buffer []byte) (FrameKind, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	kind, size := FrameKind(head[0]), binary.LittleEndian.Uint32(head[1:])
	if kind >= frameKinds || size > MaxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of kind %d with %d bytes", ErrRefused, kind, size)
	}
	if n, err := io.ReadFull(r, buffer[:size]); err != nil {
		return 0, nil, fmt.Errorf("a frame breaks off after %d of %d bytes: %w", n, size, err)
	}
	return kind, buffer[:size], nil
}

// ParseOutcome parses the contents of a FrameEnd.
func ParseOutcome(b []byte) (Outcome, error) {
	var o Outcome
	if err := strictjson.Decode(b, &o); err != nil {
		return o, fmt.Errorf("%w: the end of a stream: %w", ErrRefused, err)
	}
	if o.Exit < 0 || o.Exit > 255 || o.Signal < 0 || o.Signal > 64 || !goodText(o.Reason, 6*MaxReason) {
		return o, fmt.Errorf("%w: a stream that ends with status %d and signal %d", ErrRefused, o.Exit, o.Signal)
	}
	return o, nil
}
