package vmm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// exampleSpace is a space in which every part of a snapshot has something.
func exampleSpace(t testing.TB) *Space {
	t.Helper()
	s, err := New(Config{Arena: Range{0x10000, 0x8000}, Chunk: 0x1000, Devices: Devices(2), Limit: 0x4000})
	if err != nil {
		t.Fatal(err)
	}
	must := func(_ Plan, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Range{{0x10000, 0x1800}, {0x11800, 0x100}, {0x14000, 0x1001}} {
		must(nil, s.Alloc(r))
	}
	must(nil, s.Nest(0x14000, []uint64{0x10000, 0x14000}))
	must(s.HostWrite(Range{0x10000, 0x1800}))
	must(s.Prepare(Device(1), []Range{{0x10000, 0x1800}}, 0x4000))
	must(s.Prepare(Device(0), []Range{{0x14000, 1}}, 0x4000))
	s.Launched(Device(0), []Range{{0x14000, 1}})
	must(nil, s.Fill(Range{0x15000, 1}, 0xff))
	return s
}

// The bytes are a format: a change of them is a new version.
const exampleSnapshot = "766d6d05" + // head
	"808004" + "808002" + "0c" + "808001" + "00" + "02" + "00" + "01" + // config
	"02" + // needs
	"03" + // allocations
	"00" + "8030" + "01" + "00" +
	"00" + "8002" + "00" + "00" +
	"804e" + "8120" + "00" + "02" + "00" + "01" +
	"02" + "05" + "05" + "00" + "00" + // chunks 0 and 1, on the host and device 1
	"01" + "02" + "02" + "00" + "02" + // chunk 4, on device 0
	"01" + "00" + "00" + "8002" + "00" // chunk 5, filled with 0xff

func TestSnapshotGolden(t *testing.T) {
	s := exampleSpace(t)
	data, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(data); got != exampleSnapshot {
		t.Errorf("got  %s\nwant %s", got, exampleSnapshot)
	}
	var back Space
	if err := back.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	if got, want := picture(&back), picture(s); got != want {
		t.Errorf("got %swant %s", got, want)
	}
	if !reflect.DeepEqual(back.Config(), s.Config()) {
		t.Errorf("got %+v, want %+v", back.Config(), s.Config())
	}
}

func TestSnapshotRefusesDamage(t *testing.T) {
	const config = "766d6d05" + "808004" + "808002" + "0c" + "00" + "00" + "02" + "00" + "01"
	for _, c := range []struct{ name, data, want string }{
		{"nothing", "", "does not begin"},
		{"another version", strings.Replace(exampleSnapshot, "766d6d05", "766d6d01", 1), "does not begin"},
		{"cut off", exampleSnapshot[:len(exampleSnapshot)-2], "cut off"},
		{"left over", exampleSnapshot + "00", "1 bytes are left over"},
		{"a long number", "766d6d05" + "8000", "malformed"},
		{"a number too large", "766d6d05" + "ffffffffffffffffffff01", "malformed"},
		{"a chunk of 2^64", "766d6d05" + "00" + "01" + "40" + "00" + "00" + "01" + "00" + "00", "power of two"},
		{"no devices", "766d6d05" + "808004" + "808002" + "0c" + "00" + "00" + "00" + "00", "0 devices"},
		{"one device twice", "766d6d05" + "808004" + "808002" + "0c" + "00" + "00" + "02" + "00" + "00" + "00", "twice"},
		{"a device without end", "766d6d05" + "808004" + "808002" + "0c" + "00" + "00" + "01" + "ffffffffffffffffff01" + "00", "of a device"},
		{"too many needs", config + "09" + "00", "9 needs cannot follow"},
		{"an idle need", config + "01" + "00", "not used"},
		{"an unknown need", config + "00" + "01" + "0001" + "01" + "00" + "0000000000", "need 1 was not announced"},
		{"too many allocations", config + "00" + "7f", "127 allocations cannot follow"},
		{"an empty allocation", config + "00" + "01" + "00" + "00" + "00" + "00", "must have a size"},
		{"an allocation far away", config + "00" + "01" + "ffffffffffffffffff01" + "01" + "00" + "00", "not in the arena"},
		{"an unknown child", config + "00" + "01" + "00" + "01" + "00" + "01" + "01" + "0100000000", "child is not among 1"},
		{"a far child", config + "00" + "01" + "00" + "01" + "00" + "01" + "ffffffffffffffffff01" + "0100000000", "child is not among 1"},
		{"an empty row", config + "00" + "01" + "00010000" + "0000000000", "row of 0 chunks"},
		{"a long row", config + "00" + "01" + "00010000" + "0200000000", "row of 2 chunks"},
		{"rows too long", config + "00" + "02" + "00010000" + "ff1f010000" + "0100000000" + "0201010000", "1 too many"},
		{"a third device", config + "00" + "01" + "00010000" + "0108000000", "held on 0x8 of 0x7"},
		{"valid without memory", config + "00" + "01" + "00010000" + "0102040000", "valid on places 0x4"},
		{"a fill with more than a word", config + "00" + "01" + "00010000" + "010000" + "8180808010" + "00", "filled with 0x100000000"},
		{"rows alike", config + "00" + "01" + "0081200000" + "0100000000" + "0100000000", "alike"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := hex.DecodeString(c.data)
			if err != nil {
				t.Fatal(err)
			}
			s := exampleSpace(t)
			err = s.UnmarshalBinary(data)
			if !errors.Is(err, ErrSnapshot) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if after, _ := s.MarshalBinary(); hex.EncodeToString(after) != exampleSnapshot {
				t.Error("the space has changed")
			}
		})
	}
}

// What is accepted is encoded to the same bytes again, and is usable.
func FuzzSnapshot(f *testing.F) {
	seed, err := hex.DecodeString(exampleSnapshot)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(snapshotHead))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := new(Space)
		if s.UnmarshalBinary(data) != nil {
			return
		}
		again, err := s.MarshalBinary()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x became %x: %v", data, again, err)
		}
		devices := s.Config().Devices
		for _, dev := range devices {
			s.Launched(dev, nil)
			s.Evict(dev, 1)
			s.Evict(dev, 0)
		}
		s.Prepare(devices[0], s.Allocations(), s.Usage().Chunked)
		for _, r := range s.Allocations() {
			if _, err := s.Free(r.Addr); err != nil {
				t.Fatal(err)
			}
		}
		for p, left := range s.tallies {
			if left != (tally{}) {
				t.Fatalf("%v has %+v when everything is freed", s.place(slot(p)), left)
			}
		}
	})
}
