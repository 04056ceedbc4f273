package door

import (
	"encoding/binary"
	"slices"
)

// kept are the segments of a writer that the other side has not consumed, in blocks, and the open one,
// which begins at current.sealed; fill is where its bytes end.
type kept struct {
	current *block
	fill    int
	blocks  []*block // not all of whose bytes were consumed; the last is current
	spare   *block
	at, off int // what is to be written to the link next, in blocks
}

// block is memory for segments. Bytes before sealed do not change.
type block struct {
	bytes  [blockSize]byte
	sealed int
	end    uint64 // of the stream, behind what is sealed
}

func newKept() kept {
	first := &block{}
	return kept{current: first, fill: segmentHead, blocks: []*block{first}}
}

// AvailableBuffer is an empty buffer with room, to append to and to pass to Write at once.
func (k *kept) AvailableBuffer() []byte { return k.current.bytes[k.fill:k.fill] }

// open begins another block.
func (k *kept) open() {
	if k.current, k.spare = k.spare, nil; k.current == nil {
		k.current = &block{}
	}
	k.current.sealed, k.current.end = 0, 0
	k.fill = segmentHead
	k.blocks = append(k.blocks, k.current)
}

// reclaim takes back blocks that were consumed, of which none is being written to a link.
func (k *kept) reclaim(taken uint64) {
	n := 0
	for n < len(k.blocks) && k.blocks[n].end <= taken && k.blocks[n].sealed > 0 {
		n++
	}
	if n > 0 && k.spare == nil {
		k.spare = k.blocks[0]
	}
	k.blocks = slices.Delete(k.blocks, 0, n)
	if k.at -= n; k.at < 0 { // all was sent and consumed
		k.at, k.off = 0, 0
	}
}

// find returns the first segment with a byte that the other side has not got.
func (k *kept) find(theirs uint64) (at, off int) {
	for at, b := range k.blocks {
		for off := 0; off < b.sealed && b.end > theirs; {
			length, offset := binary.LittleEndian.Uint32(b.bytes[off:]), binary.LittleEndian.Uint64(b.bytes[off+8:])
			if offset+uint64(length) > theirs {
				return at, off
			}
			off += segmentHead + int(length)
		}
	}
	last := len(k.blocks) - 1
	return last, k.blocks[last].sealed
}

func putSegment(b []byte, length int, kind uint32, offset, consumed uint64) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(length))
	le.PutUint32(b[4:], kind)
	le.PutUint64(b[8:], offset)
	le.PutUint64(b[16:], consumed)
}
