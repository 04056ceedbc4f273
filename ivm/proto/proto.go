// Package proto is what IVM's parts say to each other: elements to the daemon of their node, on
// its socket, and daemons among themselves, over TLS. ivm/c/ivm.c has the element's part in C.
//
// Everything is frames: a head of 64 bytes and a tail. Numbers are little-endian.
//
//	u32 op   u32 length of the tail   u64 tag   u64 arguments[6]
//
// An element begins with the line {"request":"ivm"}\n and waits for the line {}\n before it sends
// frames. Every frame is answered by one with the op Reply and the same tag, in any order; its
// first argument is a core.Code, and the tail says why if that is not 0.
//
// The package knows no socket and no daemon.
package proto

import (
	"encoding/binary"
	"fmt"
	"io"

	"muster/ivm/core"
)

// Version is the protocol's: it is the second argument of Enter, and of Join and Data.
const Version = 1

// Greeting and Welcome are the lines with which a conversation begins.
const (
	Request  = "ivm"
	Greeting = `{"request":"` + Request + `"}` + "\n"
	Welcome  = "{}\n"
)

// ALPN is what daemons call their conversation in TLS.
const ALPN = "muster-ivm/2"

// Op says what a frame is.
type Op uint32

// What elements say. Arguments are in the order in which they are named; names are in the tail.
const (
	Reply Op = iota
	Enter    // program (0: a new one), version, element; tail: Launch, with descriptors of stdout and stderr, or the element's key. Reply: element, group, kind, GPU, node
	Exit
	Create // node, kind, number, count. Reply's tail: u64 elements
	Kill   // tail: u64 elements
	SetMax // greatest number
	Wait   // element, 1: all its signals so far count as told
	WaitAny
	Signal
	Barrier
	Malloc   // size; tail: name. Reply: object, size, with a descriptor
	Free     // tail: name
	Map      // offset, length (0: all); tail: name. Reply: object, size, bytes that were fetched, with a descriptor
	Put      // object, offset, length, 1: also what has not changed. Reply: bytes that moved
	Get      // object, offset, length. Reply: bytes that moved
	PutGroup // object; tail: u64 offset, u64 length of each range
	GetGroup
	Nodes   // Reply's tail: JSON of []core.NodeInfo
	Devices // Reply's tail: u64 cores, u64 GPUs of each node
	Cancel  // the tag of a Wait, WaitAny or Barrier, which is answered as core.Cancelled if it was not answered before. It has no reply
)

// What daemons say.
const (
	Join      Op = iota + 100 // version; tail: Program. The connection is the one to the root then
	ToRoot                    // tail: an event
	FromRoot                  // tail: an effect
	Output                    // element, stream; tail: bytes that it wrote
	Data                      // program, version; tail: the program's key. The connection is for what follows
	PutPages                  // object; tail: patches. Reply's tail: u32 page, u32 version each
	GetPages                  // object, first page; tail: u32 versions. Replies until one with a second argument of 1; tails: pages
	SyncGroup                 // object, 1: put to the master; tail: ranges. Sent to a mirror's node by the master's
	AskGroup                  // likewise, sent to the master's node
	Beat                      // the sender is there; on the connection between root and member, both ways
)

// MaxTail is the longest tail of a frame: a block of pages, or a program's environment.
const MaxTail = 2 << 20

const headBytes = 64

// Frame is one message.
type Frame struct {
	Op   Op
	Tag  uint64
	Args [6]uint64
	Tail []byte
}

// Append writes a frame behind to.
func (f *Frame) Append(to []byte) []byte {
	le := binary.LittleEndian
	to = le.AppendUint64(le.AppendUint32(le.AppendUint32(to, uint32(f.Op)), uint32(len(f.Tail))), f.Tag)
	for _, a := range f.Args {
		to = le.AppendUint64(to, a)
	}
	return append(to, f.Tail...)
}

// Write sends a frame in one piece.
func (f *Frame) Write(w io.Writer) error {
	_, err := w.Write(f.Append(make([]byte, 0, headBytes+len(f.Tail))))
	return err
}

// Room is what a frame whose tail is written first begins with: Seal fills it in.
func Room(buffer []byte) []byte { return append(buffer[:0], make([]byte, headBytes)...) }

// Seal makes a frame of what was written behind Room: f's head, and the rest as its tail.
func Seal(buffer []byte, f Frame) []byte {
	f.Tail = nil
	f.Append(buffer[:0])
	binary.LittleEndian.PutUint32(buffer[4:], uint32(len(buffer)-headBytes))
	return buffer
}

// Read reads a frame.
func Read(r io.Reader) (*Frame, error) { return ReadInto(r, nil) }

// ReadInto reads a frame. Its tail is in the buffer, if that is long enough.
func ReadInto(r io.Reader, buffer []byte) (*Frame, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	f := &Frame{Op: Op(le.Uint32(head[:])), Tag: le.Uint64(head[8:])}
	for i := range f.Args {
		f.Args[i] = le.Uint64(head[16+8*i:])
	}
	length := int(le.Uint32(head[4:]))
	if length > MaxTail {
		return nil, fmt.Errorf("a message of %d bytes: %d is the most", length, MaxTail)
	}
	if length > len(buffer) {
		buffer = make([]byte, length)
	}
	f.Tail = buffer[:length:length]
	_, err := io.ReadFull(r, f.Tail)
	return f, err
}

// Done answers a frame that was done.
func Done(tag uint64, args ...uint64) *Frame {
	f := &Frame{Op: Reply, Tag: tag}
	copy(f.Args[1:], args)
	return f
}

// WithFile is the last argument of a reply that a descriptor comes with.
const WithFile = 1

// Failed answers a frame with why it could not be done.
func Failed(tag uint64, why *core.Failure) *Frame {
	return &Frame{Op: Reply, Tag: tag, Args: [6]uint64{uint64(why.Code)}, Tail: []byte(why.Text)}
}

// Err is the failure that a reply tells of; nil if there is none.
func (f *Frame) Err() error {
	if f.Args[0] == 0 {
		return nil
	}
	return &core.Failure{Code: core.Code(f.Args[0]), Text: string(f.Tail)}
}

// AppendNumbers writes numbers as tails have them.
func AppendNumbers(to []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		to = binary.LittleEndian.AppendUint64(to, n)
	}
	return to
}

// Numbers reads a tail of numbers.
func Numbers(tail []byte) ([]uint64, error) {
	if len(tail)%8 != 0 {
		return nil, fmt.Errorf("a list of numbers has %d bytes", len(tail))
	}
	numbers := make([]uint64, len(tail)/8)
	for i := range numbers {
		numbers[i] = binary.LittleEndian.Uint64(tail[8*i:])
	}
	return numbers, nil
}

// AppendRanges writes ranges as tails have them.
func AppendRanges(to []byte, ranges []core.Range) []byte {
	for _, r := range ranges {
		to = AppendNumbers(to, r.Offset, r.Length)
	}
	return to
}

// Ranges reads a tail of ranges.
func Ranges(tail []byte) ([]core.Range, error) {
	numbers, err := Numbers(tail)
	if err != nil || len(numbers)%2 != 0 {
		return nil, fmt.Errorf("a list of ranges has %d bytes", len(tail))
	}
	ranges := make([]core.Range, len(numbers)/2)
	for i := range ranges {
		ranges[i] = core.Range{Offset: numbers[2*i], Length: numbers[2*i+1]}
	}
	return ranges, nil
}

// Pages are sent in blocks: u32 first page, u32 count, u32 form, u32 zero; a u32 version each; and,
// unless they are all zeros that the receiver never had, the pages themselves.
const (
	BlockPages = 32 // what is compared and sent should stay in a processor's cache meanwhile
	formData   = 0
	formZeros  = 1
	blockHead  = 16
)

// AppendBlock writes a block of pages with their versions; there are no pages if they are zeros.
func AppendBlock(to []byte, first int, versions []uint32, pages [][]byte) []byte {
	le := binary.LittleEndian
	form := uint32(formData)
	if len(pages) == 0 {
		form = formZeros
	}
	to = le.AppendUint32(le.AppendUint32(to, uint32(first)), uint32(len(versions)))
	to = le.AppendUint32(le.AppendUint32(to, form), 0)
	for _, v := range versions {
		to = le.AppendUint32(to, v)
	}
	for _, page := range pages {
		to = append(to, page...)
	}
	return to
}

// ReadBlocks calls take for each page of a tail of blocks. Data is nil for zeros.
func ReadBlocks(tail []byte, take func(page int, version uint32, data []byte) error) error {
	le := binary.LittleEndian
	for len(tail) > 0 {
		if len(tail) < blockHead {
			return errBlock
		}
		first, count, form := int(le.Uint32(tail)), int(le.Uint32(tail[4:])), le.Uint32(tail[8:])
		tail = tail[blockHead:]
		each := 4
		if form == formData {
			each += core.Page
		}
		if count > BlockPages || form > formZeros || count*each > len(tail) {
			return errBlock
		}
		versions, pages := tail[:4*count], tail[4*count:count*each]
		tail = tail[count*each:]
		for i := range count {
			var data []byte
			if form == formData {
				data = pages[i*core.Page : (i+1)*core.Page]
			}
			if err := take(first+i, le.Uint32(versions[4*i:]), data); err != nil {
				return err
			}
		}
	}
	return nil
}

var errBlock = fmt.Errorf("a block of pages is damaged")
