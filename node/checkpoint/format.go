package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"muster/vmm"
)

// Version is the version that this package writes, and the only one that it reads.
const Version = 1

const (
	magic      = "MusterCheckpoint"
	headSize   = len(magic) + 8
	recordSize = 24

	// MaxPiece is how many bytes of memory one record has at most.
	MaxPiece = 2 << 20

	maxAbout       = 2 << 20
	maxCore        = 8 << 30 // enough, as a client's images and messages are bounded too
	maxAllocations = 1 << 24
	block          = 64 << 10 // the unit in which zeros are left out
)

// Kind says what a record holds.
type Kind uint32

// The kinds, in the order in which they stand in a file.
const (
	about Kind = 1 + iota
	core
	allocations
	Memory // of the device, by address
	Ring   // the memory of messages and answers, by offset
	Data   // the data arena, by offset
	end
)

func (k Kind) String() string {
	if k >= about && k <= end {
		return [...]string{"about", "core", "allocations", "memory", "ring", "data", "end"}[k-about]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// ErrFile is wrapped by errors about files that are damaged or not Muster's.
var ErrFile = errors.New("not a checkpoint that can be used")

// About is what a file says of itself.
type About struct {
	Taken   time.Time `json:"taken"`
	Program string    `json:"program,omitempty"`
	// Identity is unique to the client.
	Identity string `json:"identity,omitempty"`
	// Arena is where the client's device memory may lie.
	ArenaBase uint64 `json:"arena_base"`
	ArenaSize uint64 `json:"arena_size"`
	// Shared is what else is known of a client that was saved with its program; nil for
	// one that was not.
	Shared *Shared `json:"shared,omitempty"`
}

// Shared is where a worker stands with the memory that it shares with a program.
type Shared struct {
	RingSize  uint64 `json:"ring_size"` // of all of the ring's memory
	ArenaSize uint64 `json:"arena_size"`
	Head      uint64 `json:"head"` // position in the ring: messages before it were read
	Seq       uint32 `json:"seq"`  // sequence number of the next message
	Printed   []byte `json:"printed,omitempty"`
	Turns     []int  `json:"turns,omitempty"` // how Printed is divided: numbers of bytes, alternately for standard output and standard error
	// Asked are the calls in which the program waits for functions that it is to run,
	// by their reply slots.
	Asked map[int]uint32 `json:"asked,omitempty"`
}

// record is the header before a record's bytes.
type record struct {
	kind     Kind
	check    uint32
	at, size uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a record with these bytes.
func (r record) sum(data []byte) uint32 {
	var b [20]byte
	binary.LittleEndian.PutUint32(b[0:], uint32(r.kind))
	binary.LittleEndian.PutUint64(b[4:], r.at)
	binary.LittleEndian.PutUint64(b[12:], r.size)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, data)
}

func (r record) put(b []byte) {
	binary.LittleEndian.PutUint32(b[0:], uint32(r.kind))
	binary.LittleEndian.PutUint32(b[4:], r.check)
	binary.LittleEndian.PutUint64(b[8:], r.at)
	binary.LittleEndian.PutUint64(b[16:], r.size)
}

func getRecord(b []byte) record {
	return record{Kind(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
}

func putRanges(ranges []vmm.Range) []byte {
	b := make([]byte, 0, 16*len(ranges))
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint64(b, r.Addr)
		b = binary.LittleEndian.AppendUint64(b, r.Size)
	}
	return b
}

// getRanges reads ranges, which must be in order and lie in the arena.
func getRanges(b []byte, arena vmm.Range) ([]vmm.Range, error) {
	if len(b)%16 != 0 || len(b)/16 > maxAllocations {
		return nil, fmt.Errorf("%d bytes of allocations", len(b))
	}
	ranges := make([]vmm.Range, len(b)/16)
	end := arena.Addr
	for i := range ranges {
		r := vmm.Range{Addr: binary.LittleEndian.Uint64(b[16*i:]), Size: binary.LittleEndian.Uint64(b[16*i+8:])}
		if r.Addr < end || r.Size == 0 || r.Addr-arena.Addr > arena.Size || r.Size > arena.Size-(r.Addr-arena.Addr) {
			return nil, fmt.Errorf("allocation %d, %v, is not behind the one before it and in the arena %v", i, r, arena)
		}
		ranges[i], end = r, r.Addr+r.Size
	}
	return ranges, nil
}
