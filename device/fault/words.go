package fault

import (
	"fmt"

	"muster/device"
)

var _ device.Words = (*stream)(nil)

var errNoWords = fmt.Errorf("words in memory: %w", device.ErrNotSupported)

// WriteWord is that of the inner stream, if it implements Words. It counts as "fill" for the rules.
func (s *stream) WriteWord(addr uint64, width int, value uint64) error {
	inner, ok := s.Stream.(device.Words)
	if !ok {
		return errNoWords
	}
	return s.submit("fill", func(verdict) error { return inner.WriteWord(addr, width, value) })
}

// WaitWord is that of the inner stream, if it implements Words. It counts as "wait" for the rules.
func (s *stream) WaitWord(addr uint64, width int, value uint64, c device.Compare) error {
	inner, ok := s.Stream.(device.Words)
	if !ok {
		return errNoWords
	}
	return s.submit("wait", func(verdict) error { return inner.WaitWord(addr, width, value, c) })
}
