package fatbin

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

func TestExpandLZ4(t *testing.T) {
	for _, c := range []struct {
		name, block, want string
	}{
		{"nothing", "\x00", ""},
		{"literals", "\x30abc", "abc"},
		{"long literals", "\xf0\x01" + strings.Repeat("x", 16), strings.Repeat("x", 16)},
		{"longer literals", "\xf0\xff\x00" + strings.Repeat("x", 270), strings.Repeat("x", 270)},
		{"copy", "\x40abcd\x04\x00\x10e", "abcdabcde"},
		{"overlapping copy", "\x21ab\x02\x00\x10c", "abababac"},
		{"run", "\x1fa\x01\x00\x05\x00", strings.Repeat("a", 1+15+5+4)},
	} {
		got, err := expandLZ4([]byte(c.block), len(c.want))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestExpandLZ4SaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, block string
		size        int
		want        string
	}{
		{"empty", "", 0, "ends before its last literals"},
		{"no last literals", "\x40abcd\x04\x00", 8, "ends before its last literals"},
		{"within a length", "\xf0\xff", 300, "ends within a length"},
		{"within a distance", "\x40abcd\x04", 8, "ends within a distance"},
		{"few literals", "\x30ab", 3, "3 literal bytes at byte 0 of 3, and 2 are left"},
		{"many literals", "\x30abc", 2, "3 literal bytes at byte 0 of 2"},
		{"distance 0", "\x40abcd\x00\x00\x00", 8, "a copy of 4 bytes from 0 back"},
		{"distance before the start", "\x40abcd\x05\x00\x00", 8, "a copy of 4 bytes from 5 back at byte 4"},
		{"long copy", "\x40abcd\x04\x00\x00", 7, "a copy of 4 bytes"},
		{"short", "\x30abc", 4, "comes to 3 bytes, not 4"},
	} {
		if _, err := expandLZ4([]byte(c.block), c.size); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Sequences are drawn, written as a block by one rule and as output by
// another, plainly a byte at a time.
func TestExpandLZ4OfAnySequences(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		var block, want []byte
		for range rapid.IntRange(0, 8).Draw(t, "sequences") {
			literals := drawLiterals(t, 1)
			want = append(want, literals...)
			distance := rapid.IntRange(1, min(len(want), 65535)).Draw(t, "distance")
			length := rapid.OneOf(rapid.IntRange(4, 40), rapid.IntRange(4, 2000)).Draw(t, "length")
			for range length {
				want = append(want, want[len(want)-distance])
			}
			block = append(block, byte(min(len(literals), 15)<<4|min(length-4, 15)))
			block = appendLength(block, len(literals))
			block = append(block, literals...)
			block = append(block, byte(distance), byte(distance>>8))
			block = appendLength(block, length-4)
		}
		last := drawLiterals(t, 0)
		block = append(block, byte(min(len(last), 15)<<4))
		block = slices.Concat(appendLength(block, len(last)), last)
		want = append(want, last...)

		got, err := expandLZ4(block, len(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("block %x: %v\ngot  %x\nwant %x", block, err, got, want)
		}
	})
}

func drawLiterals(t *rapid.T, least int) []byte {
	return rapid.OneOf(rapid.SliceOfN(rapid.Byte(), least, 20), rapid.SliceOfN(rapid.Byte(), least, 600)).Draw(t, "literals")
}

func appendLength(block []byte, length int) []byte {
	if length < 15 {
		return block
	}
	for length -= 15; length >= 255; length -= 255 {
		block = append(block, 255)
	}
	return append(block, byte(length))
}
