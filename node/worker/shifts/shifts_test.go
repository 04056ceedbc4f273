package shifts

import (
	"encoding/binary"
	"slices"
	"testing"

	"muster/device"
)

// Words that the driver has made point to where a variable is now stay as they are; what the
// program has put there itself is put back as it was.
func TestRepoint(t *testing.T) {
	was := []device.Global{{Name: "b", Address: 0x2000, Size: 16}, {Name: "a", Address: 0x1000, Size: 8}}
	now := []device.Global{{Name: "b", Address: 0x9000, Size: 16}, {Name: "a", Address: 0x5000, Size: 8}}
	s, err := Between(was, now)
	if err != nil {
		t.Fatal(err)
	}
	bytes := func(words ...uint64) (all []byte) {
		for _, w := range words {
			all = binary.LittleEndian.AppendUint64(all, w)
		}
		return all
	}
	for _, c := range []struct {
		what              string
		saved, fresh, now []byte
	}{
		{"as the image has it", bytes(0x1000, 0x200f), bytes(0x5000, 0x900f), bytes(0x5000, 0x900f)},
		{"another value of the program's", bytes(0x1000, 0x2008), bytes(7, 0x9000), bytes(0x1000, 0x2008)},
		{"behind the end of a variable", bytes(0x1008, 0x2010), bytes(0x5008, 0x9010), bytes(0x1008, 0x2010)},
		{"no address", bytes(7, 0), bytes(8, 0x5000), bytes(7, 0)},
		{"a part of a word at the end", append(bytes(0x1000), 1, 2, 3), append(bytes(0x5000), 4, 5, 6), append(bytes(0x5000), 1, 2, 3)},
	} {
		if got := s.Repoint(c.saved, c.fresh); !slices.Equal(got, c.now) {
			t.Errorf("%s: %x, want %x", c.what, got, c.now)
		}
	}
	for addr, want := range map[uint64]uint64{0x1000: 0x5000, 0x1007: 0x5007, 0x1008: 0x1008, 0xfff: 0xfff, 0x200f: 0x900f, 0: 0} {
		if got := s.Of(addr); got != want {
			t.Errorf("%#x is at %#x, want %#x", addr, got, want)
		}
	}
	if got, want := s.Known(bytes(0x5007, 0x1000, 0x9000)), bytes(0x1007, 0x1000, 0x2000); !slices.Equal(got, want) {
		t.Errorf("the program knows %x, want %x", got, want)
	}
	if s.Apart([]device.Global{{Address: 0x1008, Size: 8}, {Address: 0x5000, Size: 8}}) != nil || s.Apart([]device.Global{{Address: 0x1004, Size: 8}}) == nil {
		t.Error("variables that lie where others were are not found")
	}
	if _, err := Between(was, now[:1]); err == nil {
		t.Error("a variable that is gone is not missed")
	}
	if s.PointedTo(bytes(0x1008, 0x2010, 7)) || !s.PointedTo(bytes(7, 0x1007)) {
		t.Error("what points to a variable is not found")
	}
}
