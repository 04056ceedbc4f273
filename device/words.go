package device

// Words is what a stream offers that can write and wait for single words, of 4 or 8 bytes,
// in device memory or in memory of the host that kernels reach. The address is a multiple
// of the width. It is work of the stream like any other: what was submitted before has
// ended, and what is submitted later waits.
type Words interface {
	// WriteWord writes all of the word at once.
	WriteWord(addr uint64, width int, value uint64) error
	// WaitWord waits until the word is what it is compared with. Work of other streams
	// goes on meanwhile.
	WaitWord(addr uint64, width int, value uint64, c Compare) error
}

// Compare says what a stream waits for, by CUDA's numbers.
type Compare uint8

const (
	AtLeast  Compare = iota // the difference to the value, as a signed number, is not below 0
	Equal                   // the value
	SomeBits                // any bit that the value has
	NotAll                  // a bit that neither the word nor the value has
)

// Holds says whether a word is what is waited for.
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
