package soft

import (
	"fmt"
	"time"

	"muster/device"
)

// checkWord returns why a word cannot be written or waited for, or nil.
func (s *stream) checkWord(addr uint64, width int) error {
	if width != 4 && width != 8 || addr%uint64(width) != 0 {
		return fmt.Errorf("a word of %d bytes at %#x: give 4 or 8 bytes, and an address that is a multiple: %w", width, addr, device.ErrInvalidValue)
	}
	if _, ok := s.c.mem.bytes(addr, uint64(width)); !ok {
		if err := s.check(); err != nil {
			return err
		}
		return fmt.Errorf("a word of %d bytes at %#x: nothing is mapped there: %w", width, addr, device.ErrInvalidValue)
	}
	return nil
}

// writeWord writes a word atomically: kernels and the program may read it at the same time.
func (s *stream) writeWord(addr uint64, width int, value uint64) error {
	if err := s.checkWord(addr, width); err != nil {
		return err
	}
	return s.submit(&transfer{name: "write", size: uint64(width), addrs: []uint64{addr},
		piece: func(m *memory, _, to uint64) error {
			b, err := reach(m, addr, to)
			if err == nil {
				storeWord(b, value)
			}
			return err
		}})
}

// waitWord waits until a word satisfies the comparison.
func (s *stream) waitWord(addr uint64, width int, value uint64, c device.Compare) error {
	if c > device.NotAll {
		return fmt.Errorf("waiting for a word with comparison %d: %w", c, device.ErrInvalidValue)
	}
	if err := s.checkWord(addr, width); err != nil {
		return err
	}
	return s.submit(&wordWait{addr, value, width, c})
}

// wordWait is work that ends when a word satisfies a comparison.
type wordWait struct {
	addr, value uint64
	width       int
	compare     device.Compare
}

// A waiting stream polls its word: after firstLook at first, after up to soonLook within the first
// moments, and never less often than every lastLook. The pauses grow, so that many streams with
// waits that never end do not use up a processor.
const (
	firstLook = 10 * time.Microsecond
	soonLook  = time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// nextLook returns the next pause of a stream that has waited for waited in total and whose last
// pause was pause. It delays a stream by at most a hundredth of its wait, or by a millisecond.
func nextLook(waited, pause time.Duration) time.Duration {
	return min(2*pause, max(soonLook, min(waited/100, lastLook)))
}

func (w *wordWait) do(s *stream) error {
	for began, pause := time.Now(), firstLook; ; pause = nextLook(time.Since(began), pause) {
		word, err := w.look(s)
		if err != nil || w.compare.Holds(word, w.value, w.width) {
			return err
		}
		select {
		case <-s.c.ended:
			return s.c.Err()
		case <-time.After(pause):
		}
	}
}

// look reads the word. The stream is busy only meanwhile, so a wait does not block still.
func (w *wordWait) look(s *stream) (uint64, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	b, err := reach(s.c.mem, w.addr, uint64(w.width))
	if err != nil {
		return 0, err
	}
	return loadWord(b), nil
}
