package fatbin

import (
	"errors"
	"fmt"
)

// expandLZ4 decompresses one LZ4 block without a frame, which must come to
// exactly size bytes.
//
// A block is a row of sequences: a token with two lengths of four bits, that
// many literal bytes, and a copy of earlier output (a two-byte distance, and a
// length less four). A length of 15 goes on in further bytes. The last
// sequence has literals only.
func expandLZ4(block []byte, size int) ([]byte, error) {
	out := make([]byte, 0, size)
	for {
		if len(block) == 0 {
			return nil, errors.New("it ends before its last literals")
		}
		token := block[0]
		literals, rest, err := lz4Length(token>>4, block[1:])
		if err != nil {
			return nil, err
		}
		if literals > len(rest) || literals > size-len(out) {
			return nil, fmt.Errorf("%d literal bytes at byte %d of %d, and %d are left", literals, len(out), size, len(rest))
		}
		out = append(out, rest[:literals]...)
		if block = rest[literals:]; len(block) == 0 {
			break
		}

		if len(block) < 2 {
			return nil, errors.New("it ends within a distance")
		}
		distance := int(order.Uint16(block))
		copied, rest, err := lz4Length(token&15, block[2:])
		if err != nil {
			return nil, err
		}
		copied += 4
		if distance == 0 || distance > len(out) || copied > size-len(out) {
			return nil, fmt.Errorf("a copy of %d bytes from %d back at byte %d of %d", copied, distance, len(out), size)
		}
		out = repeat(out, distance, copied)
		block = rest
	}
	if len(out) != size {
		return nil, fmt.Errorf("it comes to %d bytes, not %d", len(out), size)
	}
	return out, nil
}

// lz4Length completes a length of which a token has the first four bits.
func lz4Length(nibble byte, block []byte) (length int, rest []byte, err error) {
	length = int(nibble)
	if nibble < 15 {
		return length, block, nil
	}
	for i, b := range block {
		length += int(b)
		if b < 255 {
			return length, block[i+1:], nil
		}
	}
	return 0, nil, errors.New("it ends within a length")
}

// repeat appends length bytes that begin distance back. They may reach into
// what is being appended.
func repeat(out []byte, distance, length int) []byte {
	for length > 0 {
		n := min(distance, length)
		from := len(out) - distance
		out = append(out, out[from:from+n]...)
		length -= n
	}
	return out
}
