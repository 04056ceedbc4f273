package device

// Words is implemented by streams that can write, and wait for, single words of 4 or 8 bytes
// in device memory or in host memory that kernels reach (HostMapper). The address is a
// multiple of the width. Both are work in the order of the stream: they begin when the work
// submitted before has ended, and work submitted later waits for them.
type Words interface {
	// WriteWord writes the word atomically.
	WriteWord(addr uint64, width int, value uint64) error
	// WaitWord waits until c.Holds(word, value, width). Work of other streams goes on
	// meanwhile.
	WaitWord(addr uint64, width int, value uint64, c Compare) error
}

// Compare is the condition that WaitWord waits for, by CUDA's numbers.
type Compare uint8

const (
	AtLeast  Compare = iota // word - value >= 0 as a signed number, so that counters may wrap around
	Equal                   // word == value
	SomeBits                // word & value != 0
	NotAll                  // ^(word | value) != 0
)

// Holds says whether the word satisfies the condition.
func (c Compare) Holds(word, value uint64, width int) bool {
	mask := ^uint64(0)
	if width == 4 {
		mask = 1<<32 - 1
	}
	word, value = word&mask, value&mask
	switch c {
	case AtLeast:
		if width == 4 {
			return int32(uint32(word)-uint32(value)) >= 0
		}
		return int64(word-value) >= 0
	case Equal:
		return word == value
	case SomeBits:
		return word&value != 0
	}
	return ^(word|value)&mask != 0
}
