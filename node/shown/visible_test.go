package shown

import (
	"encoding/binary"
	"maps"
	"testing"

	"muster/device"
	"muster/wire"
)

func attributesOf(d wire.Device) map[int]int {
	all := map[int]int{}
	for b := d.Attributes; len(b) >= 8; b = b[8:] {
		all[int(binary.LittleEndian.Uint32(b))] = int(int32(binary.LittleEndian.Uint32(b[4:])))
	}
	return all
}

// A program may be moved to any device, so it is told of the least of all.
func TestVirtualDevicesClaimTheLeast(t *testing.T) {
	big := device.Info{Name: "Big", Compute: device.Compute{Major: 9, Minor: 0}, Attributes: map[int]int{
		1: 1024, 16: 132, 81: 228 << 10, 14: 512, 75: 9, 76: 0, 111: 1024, 95: 1,
		19: 1, 33: 7, 34: 8, 50: 9, 83: 1, 88: 1, 115: 1, 120: 1, 999: 5,
	}}
	small := device.Info{Name: "Small", Compute: device.Compute{Major: 8, Minor: 6}, Attributes: map[int]int{
		1: 1024, 16: 20, 81: 100 << 10, 14: 1024, 75: 8, 76: 6, 111: 2048,
		19: 1, 33: 7, 83: 1,
	}}
	var devices []wire.Device
	for i := range 3 {
		devices = append(devices, Visible("n", []device.Info{big, small}, i, i, 77))
	}
	if len(devices) != 3 || devices[2].Memory != 77 || devices[0].Name != "Muster vGPU" || len(devices[0].Uuid) != 16 {
		t.Fatalf("%+v", devices)
	}
	for i, d := range devices {
		got := attributesOf(d)
		for number, want := range map[int]int{
			1: 1024, 16: 20, 81: 100 << 10, // the smaller
			14: 1024, 111: 2048, // the larger is the safer one
			75: 8, 76: 6, // together, not each for itself
			33: 1 + i, 34: 0, 50: 0, // their own
			19: 0, 83: 0, 88: 0, 95: 0, 115: 0, 120: 0, 999: 0, // not all can, or we cannot
		} {
			if got[number] != want {
				t.Errorf("device %d: attribute %d is %d, want %d", i, number, got[number], want)
			}
		}
	}
	if one := Visible("n", []device.Info{big, big}, 0, 0, 77); one.Name != "Big" || attributesOf(one)[16] != 132 || attributesOf(one)[95] != 1 {
		t.Errorf("equal devices are not what they are: %+v", attributesOf(one))
	}
	if string(Visible("other", []device.Info{big}, 0, 0, 77).Uuid) == string(devices[0].Uuid) {
		t.Error("devices of two nodes have the same UUID")
	}
}

func TestArenas(t *testing.T) {
	for _, c := range []struct {
		ordinal      int
		memory       uint64
		base, length uint64
	}{
		{0, 1, 0x6400_0000_0000, 16 << 30},
		{1, 16 << 30, 0x6500_0000_0000, 256 << 30},
		{15, 141 << 30, 0x7300_0000_0000, 1 << 40},
		{0, 1 << 60, 0x6400_0000_0000, 1 << 40},
	} {
		if got := ArenaOf(c.ordinal, c.memory); got != (device.Arena{Base: c.base, Size: c.length}) {
			t.Errorf("device %d with %d bytes: %#x, %d", c.ordinal, c.memory, got.Base, got.Size)
		}
	}
}

// A program that is told of a newer driver than there is asks for what is not there.
func TestDriverVersionIsTheLeast(t *testing.T) {
	for _, c := range []struct {
		drivers []int
		want    uint32
	}{{nil, 13000}, {[]int{0}, 13000}, {[]int{12080, 0, 12060}, 12060}, {[]int{13020}, 13000}} {
		var infos []device.Info
		for _, d := range c.drivers {
			infos = append(infos, device.Info{Driver: d})
		}
		if got := driverVersion(infos); got != c.want {
			t.Errorf("%v: %d", c.drivers, got)
		}
	}
}

// A device may be added that is slower than what programs were told, but none that can
// do less.
func TestCannotDo(t *testing.T) {
	shown := map[int]int{AttrComputeMajor: 7, AttrComputeMinor: 5, 1: 1024, 13: 1_000_000, 36: 900, AttrTextureAlignment: 512}
	info := func(change func(map[int]int)) device.Info {
		a := maps.Clone(shown)
		change(a)
		return device.Info{Compute: device.Compute{Major: 7, Minor: 5}, Attributes: a}
	}
	for _, c := range []struct {
		name   string
		change func(map[int]int)
		want   string
	}{
		{"the same", func(map[int]int) {}, ""},
		{"slower", func(a map[int]int) { a[13], a[36] = 500_000, 1 }, ""},
		{"smaller blocks", func(a map[int]int) { a[1] = 512 }, "has 512 for CUDA's device attribute 1, and programs were told 1024"},
		{"coarser alignment", func(a map[int]int) { a[AttrTextureAlignment] = 1024 }, "has 1024 for CUDA's device attribute 14, and programs were told 512"},
	} {
		if got := CannotDo(info(c.change), shown); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
