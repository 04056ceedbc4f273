package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// RingBytes is the size of the ring's memory, with its head and the slots.
func (g Geometry) RingBytes() uint64 { return ringAt + g.Ring }

// Contents calls do with the contents of shared memory, in order and in pieces of at most most
// bytes. It skips pages that were never touched, and does not allocate them.
func Contents(f *os.File, most int, do func(offset uint64, data []byte) error) error {
	const seekData, seekHole = 3, 4
	buffer := make([]byte, most)
	for at := int64(0); ; {
		from, err := f.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return nil // nothing follows
		}
		if err != nil {
			return fmt.Errorf("looking through shared memory: %w", err)
		}
		to, err := f.Seek(from, seekHole)
		if err != nil {
			return fmt.Errorf("looking through shared memory: %w", err)
		}
		for at = from; at < to; {
			n, err := f.ReadAt(buffer[:min(int64(most), to-at)], at)
			if err != nil && !errors.Is(err, io.EOF) || n == 0 {
				return fmt.Errorf("reading shared memory: %w", err)
			}
			if err := do(uint64(at), buffer[:n]); err != nil {
				return err
			}
			at += int64(n)
		}
	}
}

// SameGeometry says whether bytes from the beginning of a ring's memory have the same protocol and
// sizes as this one.
func (s *Shared) SameGeometry(head []byte) bool {
	return len(head) >= atTail && string(head[:atTail]) == string(s.ring[:atTail])
}
