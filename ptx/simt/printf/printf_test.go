package printf

import "testing"

// fake has numbers and texts by their addresses.
type fake struct {
	numbers map[uint64]uint64
	texts   map[uint64]string
}

func (f fake) Number(addr, size uint64) uint64 { return f.numbers[addr] & (1<<(8*size-1)<<1 - 1) }
func (f fake) Text(addr uint64) string         { return f.texts[addr] }

func TestFormat(t *testing.T) {
	from := fake{
		numbers: map[uint64]uint64{0: 0xffff_fffe, 8: 0x3ff8_0000_0000_0000, 16: 100, 24: 7},
		texts:   map[uint64]string{100: "text"},
	}
	for _, c := range []struct {
		format, want string
		n            int
	}{
		{"plain %% text", "plain % text", 0},
		{"%d", "-2", 1},
		{"%u", "4294967294", 1},
		{"%x %f", "fffffffe 1.500000", 2}, // the double lies at the next multiple of 8
		{"%d %g %s", "-2 1.5 text", 3},
		{"%d %g %6s|%-3d|", "-2 1.5   text|7  |", 4},
		{"ends in %", "ends in %", 0},
	} {
		if got, n := Format(c.format, 0, from); got != c.want || n != c.n {
			t.Errorf("%q: got %q and %d arguments, want %q and %d", c.format, got, n, c.want, c.n)
		}
	}
}
