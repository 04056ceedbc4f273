// Package wire is the protocol between a program, the node daemon and a worker: the messages, their
// bytes, the frames on a socket, and the ring of shared memory that carries them within a machine.
//
// Messages are described once, in messages.txt; the types here and the C side in shim/lib/transport/wire_gen.h
// are generated from it. The package knows no device, no scheduling, and not what a message means.
package wire

//go:generate go run ./gen

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Version must change with every change that an older side would misread.
const Version = 9

// Magic begins every conversation: "MUST".
const Magic = 0x5453554d

// Attributes of devices that are lent to guests, for which CUDA has no numbers. Sizes are in KiB,
// except for constants (bytes); the speed is in millionths.
const (
	LentContext    = 1<<16 + iota // memory that a context takes
	LentLocal                     // memory of a thread
	LentSpeed                     // relative to other devices
	LentBandwidth                 // between host and device, per second
	LentRegisters                 // of a multiprocessor
	LentConstant                  // of a module
	LentCallsAlone                // 1: functions that streams call run one at a time
	LentCalls                     // how many programs of others have work there, in thousandths
	LentEach                      // how long their kernels take, in microseconds
)

// What a hello says in Guest. GuestAsks is a guest that only wants to know of the devices, and is told
// how busy they are, too. Since that changes, other guests are not told: what they were shown must
// still be true when they ask for a device.
const (
	Guest     = 1
	GuestAsks = 2
)

// Op is the kind of a message.
type Op uint16

type opInfo struct {
	name         string
	record, call bool
	data         direction
	afterFault   bool
}

// direction is which way the data of a message go.
type direction uint8

// The directions, as messages.txt has them.
const (
	noData  direction = iota
	dataIn            // the worker reads bytes of the arena
	dataOut           // the worker fills bytes of the arena
)

func (o Op) info() opInfo {
	if int(o) < len(opTable) {
		return opTable[o]
	}
	return opInfo{}
}

// String returns the message's name.
func (o Op) String() string {
	if name := o.info().name; name != "" {
		return name
	}
	return fmt.Sprintf("message %d", uint16(o))
}

// Known says whether there is such a message on the ring.
func (o Op) Known() bool { return o.info().name != "" && !o.info().record }

// IsCall says whether a reply is due.
func (o Op) IsCall() bool { return o.info().call }

// TakesData says whether the worker reads bytes of the arena.
func (o Op) TakesData() bool { return o.info().data == dataIn }

// GivesData says whether the worker fills bytes of the arena.
func (o Op) GivesData() bool { return o.info().data == dataOut }

// Given returns how many of the length bytes that a message gives are of use: some replies say so.
func (o Op) Given(length uint64, reply []byte) uint64 {
	if n, said := given(o, reply); said {
		return min(n, length)
	}
	return length
}

// AfterFault says whether the message is sent and handled even after a fault without a reset.
func (o Op) AfterFault() bool { return o.info().afterFault }

// Ops returns all messages of the ring, in order.
func Ops() []Op {
	var all []Op
	for o := range opTable {
		if Op(o).Known() {
			all = append(all, Op(o))
		}
	}
	return all
}

// Message is any of the generated types.
type Message interface {
	// Op is the message's kind.
	Op() Op
	// Append adds the message's bytes.
	Append(b []byte) []byte
	// Decode reads the message and refuses what is too short or too long. Bytes are not copied.
	Decode(b []byte) error
}

// MaxRecord is how many bytes a record on the socket may have.
const MaxRecord = 64 << 10

const frameSize = 8

// WriteRecord sends one record.
func WriteRecord(w io.Writer, m Message) error {
	b := m.Append(make([]byte, frameSize, 256))
	if len(b)-frameSize > MaxRecord {
		return fmt.Errorf("%v of %d bytes is longer than a record may be", m.Op(), len(b)-frameSize)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameSize))
	binary.LittleEndian.PutUint16(b[4:], uint16(m.Op()))
	_, err := w.Write(b)
	return err
}

// ReadRecord receives one record.
func ReadRecord(r io.Reader) (Op, []byte, error) {
	var frame [frameSize]byte
	if _, err := io.ReadFull(r, frame[:]); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(frame[:])
	op := Op(binary.LittleEndian.Uint16(frame[4:]))
	switch {
	case !op.info().record:
		return 0, nil, fmt.Errorf("%v where a record was due", op)
	case size > MaxRecord || binary.LittleEndian.Uint16(frame[6:]) != 0:
		return 0, nil, fmt.Errorf("a damaged frame: %v of %d bytes", op, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, fmt.Errorf("%v breaks off: %w", op, err)
	}
	return op, body, nil
}

// ReadAs receives one record, which must be of the kind of m. If the other side refuses, the error
// is a *Refused.
func ReadAs(r io.Reader, m Message) error {
	op, body, err := ReadRecord(r)
	if err != nil {
		return err
	}
	if op == OpRefused && m.Op() != OpRefused {
		refused := &Refused{}
		if err := refused.Decode(body); err != nil {
			return err
		}
		return refused
	}
	if op != m.Op() {
		return fmt.Errorf("%v where %v was due", op, m.Op())
	}
	return m.Decode(body)
}

// Error says why the other side refused.
func (m *Refused) Error() string { return m.Reason }

// reader takes fields from a message. After an error it returns zeros, and end reports it.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.bad = true
		return make([]byte, min(n, 8))
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u32() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64  { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) i32() int32   { return int32(r.u32()) }
func (r *reader) f64() float64 { return math.Float64frombits(r.u64()) }

func (r *reader) bytes() []byte {
	n := r.u32()
	if uint64(n) > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	return r.take(int(n))
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) end(name string) error {
	if r.bad {
		return fmt.Errorf("%s is too short", name)
	}
	if len(r.rest) > 0 {
		return fmt.Errorf("%s has %d bytes too many", name, len(r.rest))
	}
	return nil
}

func appendU32(b []byte, v uint32) []byte  { return binary.LittleEndian.AppendUint32(b, v) }
func appendU64(b []byte, v uint64) []byte  { return binary.LittleEndian.AppendUint64(b, v) }
func appendI32(b []byte, v int32) []byte   { return appendU32(b, uint32(v)) }
func appendF64(b []byte, v float64) []byte { return appendU64(b, math.Float64bits(v)) }
func appendText(b []byte, v string) []byte { return append(appendU32(b, uint32(len(v))), v...) }
func appendBytes(b, v []byte) []byte       { return append(appendU32(b, uint32(len(v))), v...) }
