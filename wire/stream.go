package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Between machines there is no shared memory: both sides have a ring and an arena of their own, and
// a connection keeps them in step. It begins with records as on the socket; after `attached` both
// sides send frames. Numbers are little-endian.
//
//	frame     u32 size of what follows the head, u8 kind, 3 bytes of zero
//	geometry  u64 ring, staging, bounce, pinned, u64 how many lanes, u64 from how many
//	          bytes they are used, u64 silence, u64 how long a session is kept, in
//	          milliseconds, 32 bytes of key: the first frame, from the node
//	message   a message as on the ring; behind it its bytes, if they were staged
//	data      u64 offset in the arena, then the bytes there, at most MaxPiece
//	reply     u32 seq of the message, u16 1 + slot or 0, u16 print, i32 result,
//	          i32 status, then the answer
//	state     i32 status, u32 print
//	notice    a line for the user, from the node; it comes before the reply that
//	          it explains
//	closed    the reason; the last frame, from the node
//	away      u64 offset in the arena, u64 length: bytes that come over the lanes
//	resume    u64 how many bytes of frames have arrived, u64 1 if it is the end, 32
//	          bytes of key
//
// After the geometry, the frames travel in a connection that outlives a broken link
// (door.Resumable). The program's side resumes it over a new link, which begins with a hello, with the
// same credentials, and a frame that has the session's key; the node answers with a frame that has no
// key, or with the reason why not. A side from which nothing is heard for the time of silence is gone.
//
// Lanes (package lanes) are connections for bulk data. The client's side makes them when it has
// some, and each begins with the key. Staged bytes of a message may go over them, too: then none
// follow the message.
//
// Data for a message come before it, and data that a message gives come before its reply and before
// the reply to whatever waited for it. Each message that gives data gets a reply, so that the
// client knows which bytes are outstanding.

// FrameKind says what a frame holds.
type FrameKind uint8

// The kinds of frames.
const (
	FrameGeometry FrameKind = iota + 1
	FrameMessage
	FrameData
	FrameReply
	FrameState
	FrameClosed
	FrameNotice
	FrameAway
	FrameResume
)

var frameNames = [...]string{FrameGeometry: "geometry", FrameMessage: "message", FrameData: "data", FrameReply: "reply", FrameState: "state", FrameClosed: "closed", FrameNotice: "notice", FrameAway: "away", FrameResume: "resume"}

func (k FrameKind) String() string {
	if int(k) < len(frameNames) && k > 0 {
		return frameNames[k]
	}
	return fmt.Sprintf("frame %d", uint8(k))
}

// MaxPiece is how many bytes one frame of data may carry.
const MaxPiece = 1 << 20

// StreamProtocol names the protocol in the negotiation of TLS.
const StreamProtocol = "muster/2"

// ResumeProtocol names the protocol by which a session is resumed.
const ResumeProtocol = "muster-resume/1"

// LaneProtocol names the protocol of lanes. The client sends the key, the node answers with a byte
// when it has accepted the lane, and the client with another: until then neither side sends data.
// With the client's byte the encryption of bulk data begins (door.Sealed), if TLS uses AES-GCM.
const LaneProtocol = "muster-lane/3"

// LaneKey identifies the client of a lane, or of a session that is resumed. It is a secret: a peer
// that has it may write the client's data.
type LaneKey [32]byte

// SpeaksFor begins the token of a hello from the gateway; behind it comes the name of the user on
// whose behalf the gateway connects. A daemon accepts it only from its own user.
const SpeaksFor = "gateway:"

// SpeakFor is the token of a hello on behalf of a user of another machine, at an address. Without a
// name the grant says who the user is.
func SpeakFor(user, address string) string { return SpeaksFor + user + "\n" + address }

// SpokenFor reads what SpeakFor writes: a token that has no address is a token all the same. No name
// of a user has a line's end in it (wire/identity).
func SpokenFor(token string) (user, address string, ok bool) {
	rest, ok := strings.CutPrefix(token, SpeaksFor)
	if !ok {
		return "", "", false
	}
	user, address, _ = strings.Cut(rest, "\n")
	return user, address, true
}

const (
	streamHead = 8
	maxSmall   = 4096
)

// Frame is a frame without the bytes of the arena that it carries.
type Frame struct {
	Kind     FrameKind
	Geometry Geometry
	Header   Header // of a message
	Body     []byte // of a message; the answer of a reply; valid until the next frame
	Offset   uint64 // of data; of a resume: how many bytes have arrived
	Length   uint64 // of data that go over the lanes
	Lanes    uint64 // of a geometry: how many there may be
	From     uint64 // of a geometry: from how many bytes on lanes are used
	Silence  uint64 // of a geometry: milliseconds
	Keep     uint64 // of a geometry: how long a session is kept whose connection broke, in milliseconds
	Last     bool   // of a resume: the session is to end
	Key      LaneKey
	Seq      uint32 // of the message that a reply is for
	Slot     int    // of a reply; -1 for none
	Result   int32
	Status   int32
	Print    bool
	Reason   string // of the end; the text of a notice
	Bytes    uint64 // how many bytes of the arena follow
}

// Append appends the frame's bytes; those of the arena follow it.
func (f *Frame) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, streamHead)...)
	switch f.Kind {
	case FrameGeometry:
		g := f.Geometry
		b = appendU64(appendU64(appendU64(appendU64(b, g.Ring), g.Staging), g.Bounce), g.Pinned)
		b = append(appendU64(appendU64(appendU64(appendU64(b, f.Lanes), f.From), f.Silence), f.Keep), f.Key[:]...)
	case FrameMessage:
		b = AppendMessage(b, f.Header, f.Body)
	case FrameData:
		b = appendU64(b, f.Offset)
	case FrameAway:
		b = appendU64(appendU64(b, f.Offset), f.Length)
	case FrameResume:
		last := uint64(0)
		if f.Last {
			last = 1
		}
		b = append(appendU64(appendU64(b, f.Offset), last), f.Key[:]...)
	case FrameReply:
		b = appendU32(b, f.Seq)
		b = binary.LittleEndian.AppendUint16(b, uint16(f.Slot+1))
		b = binary.LittleEndian.AppendUint16(b, uint16(printWord(f.Print)))
		b = appendI32(appendI32(b, f.Result), f.Status)
		b = append(b, f.Body[:min(len(f.Body), MaxReply)]...)
	case FrameState:
		b = appendU32(appendI32(b, f.Status), printWord(f.Print))
	case FrameClosed, FrameNotice:
		b = append(b, f.Reason[:min(len(f.Reason), maxSmall)]...)
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(uint64(len(b)-at-streamHead)+f.Bytes))
	b[at+4] = byte(f.Kind)
	return b
}

func printWord(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// FrameReader reads frames. It trusts nothing that it reads.
type FrameReader struct {
	r      io.Reader
	buffer []byte
	owed   uint64
}

// NewFrameReader reads frames from a connection.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: r, buffer: make([]byte, MaxMessage)}
}

// ReadBytes reads bytes of the arena that follow a frame.
func (r *FrameReader) ReadBytes(to []byte) error {
	if uint64(len(to)) > r.owed {
		return fmt.Errorf("%d bytes were asked for where %d follow", len(to), r.owed)
	}
	if _, err := io.ReadFull(r.r, to); err != nil {
		return breaksOff("data", err)
	}
	r.owed -= uint64(len(to))
	return nil
}

// Next reads a frame. The bytes of the last one must have been read. The end of the connection
// between two frames is io.EOF.
func (r *FrameReader) Next() (Frame, error) {
	if r.owed > 0 {
		return Frame{}, fmt.Errorf("%d bytes of a frame were not read", r.owed)
	}
	head := r.buffer[:streamHead]
	if _, err := io.ReadFull(r.r, head); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = breaksOff("a frame's head", err)
		}
		return Frame{}, err
	}
	size, f := uint64(binary.LittleEndian.Uint32(head)), Frame{Kind: FrameKind(head[4]), Slot: -1}
	if head[5]|head[6]|head[7] != 0 {
		return f, fmt.Errorf("a damaged frame: %v of %d bytes", f.Kind, size)
	}
	var err error
	switch f.Kind {
	case FrameMessage:
		err = r.message(&f, size)
	case FrameData:
		err = r.data(&f, size)
	case FrameGeometry, FrameReply, FrameState, FrameClosed, FrameNotice, FrameAway, FrameResume:
		err = r.small(&f, size)
	default:
		err = fmt.Errorf("%v is of no kind that is known", f.Kind)
	}
	r.owed = f.Bytes
	return f, err
}

func (r *FrameReader) take(what string, n uint64) ([]byte, error) {
	b := r.buffer[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, breaksOff(what, err)
	}
	return b, nil
}

func (r *FrameReader) message(f *Frame, size uint64) error {
	if size < HeaderSize {
		return fmt.Errorf("a message of %d bytes is too short", size)
	}
	b, err := r.take("a message", 4)
	if err != nil {
		return err
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if n < HeaderSize || n > MaxMessage || n > size {
		return fmt.Errorf("a message of %d bytes in a frame of %d", n, size)
	}
	if _, err := io.ReadFull(r.r, r.buffer[4:n]); err != nil {
		return breaksOff("a message", err)
	}
	if f.Header, f.Body, err = DecodeMessage(r.buffer[:n]); err != nil {
		return err
	}
	if f.Bytes = size - n; f.Bytes != 0 && (!f.Header.Op.TakesData() || f.Bytes != f.Header.Length) {
		return fmt.Errorf("%v with %d bytes of data, where it names %d", f.Header.Op, f.Bytes, f.Header.Length)
	}
	return nil
}

func (r *FrameReader) data(f *Frame, size uint64) error {
	if size < 8 || size > 8+MaxPiece {
		return fmt.Errorf("a frame of data of %d bytes", size)
	}
	b, err := r.take("data", 8)
	if err != nil {
		return err
	}
	f.Offset, f.Bytes = binary.LittleEndian.Uint64(b), size-8
	return nil
}

func (r *FrameReader) small(f *Frame, size uint64) error {
	if size > maxSmall {
		return fmt.Errorf("%v of %d bytes is too long", f.Kind, size)
	}
	b, err := r.take(f.Kind.String(), size)
	if err != nil {
		return err
	}
	fields := reader{rest: b}
	printed := uint32(0)
	switch f.Kind {
	case FrameGeometry:
		f.Geometry = Geometry{Ring: fields.u64(), Staging: fields.u64(), Bounce: fields.u64(), Pinned: fields.u64()}
		f.Lanes, f.From = fields.u64(), fields.u64()
		f.Silence, f.Keep = fields.u64(), fields.u64()
		copy(f.Key[:], fields.take(len(f.Key)))
		if err := f.Geometry.check(); err != nil {
			return err
		}
	case FrameAway:
		f.Offset, f.Length = fields.u64(), fields.u64()
	case FrameResume:
		f.Offset = fields.u64()
		last := fields.u64()
		copy(f.Key[:], fields.take(len(f.Key)))
		if f.Last = last == 1; last > 1 {
			return fmt.Errorf("a damaged frame: %v of %d bytes", f.Kind, size)
		}
	case FrameReply:
		f.Seq = fields.u32()
		both := fields.u32()
		f.Slot, printed = int(both&0xffff)-1, both>>16
		f.Result, f.Status = fields.i32(), fields.i32()
		f.Body, fields.rest = fields.rest, nil
	case FrameState:
		f.Status, printed = fields.i32(), fields.u32()
	case FrameClosed, FrameNotice:
		f.Reason, fields.rest = string(b), nil
	}
	f.Print = printed == 1
	if printed > 1 || f.Slot >= slotCount || len(f.Body) > MaxReply {
		return fmt.Errorf("a damaged frame: %v of %d bytes", f.Kind, size)
	}
	return fields.end(f.Kind.String())
}

// breaksOff makes the error of a connection that ended within a frame: unlike an end between two
// frames, that is never orderly.
func breaksOff(what string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s breaks off: %w", what, err)
}
