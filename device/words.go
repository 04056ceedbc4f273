package device

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
