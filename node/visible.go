package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"muster/device"
	"muster/wire"
)

// newestVersion is the newest version of CUDA of which the library offers all functions that
// its programs look for.
const newestVersion = 13000

// driverVersion is the version that programs are told: no more than every driver offers.
func driverVersion(devices []device.Info) uint32 {
	version := newestVersion
	for _, d := range devices {
		if d.Driver > 0 {
			version = min(version, d.Driver)
		}
	}
	return uint32(version)
}

// The values of CUdevice_attribute that the rules below name.
const (
	attrClock                 = 13 // in kHz
	attrTextureAlignment      = 14
	attrECC                   = 32
	attrPCIBus                = 33
	attrPCIDevice             = 34
	attrMemoryClock           = 36
	attrBusWidth              = 37
	attrPCIDomain             = 50
	attrSurfaceAlignment      = 30
	attrTexturePitchAlignment = 51
	attrComputeMajor          = 75
	attrComputeMinor          = 76
	attrDoubleRatio           = 87
	attrSharedReserved        = 111
)

// honest lists the attributes that hold for a virtual device if they hold for the real ones.
// All others are left out, which is 0 to programs: memory that host and device see at once,
// memory pools, sharing between processes, and whatever future devices claim.
var honest = []int{
	1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, attrTextureAlignment, 15, 16, // sizes, warp, clock, overlap, multiprocessors
	31, 32, 36, 37, 38, 39, 40, 41, attrTexturePitchAlignment, // concurrent kernels, ECC, memory clock and bus, L2, threads, copy engines, one address space
	attrComputeMajor, attrComputeMinor, 78, 79, 80, 81, 82, attrDoubleRatio, 90, 95, 97, 106, attrSharedReserved,
	21, 22, 23, 24, 25, 26, 27, 28, 29, attrSurfaceAlignment, 42, 43, 44, 45, 46, 47, 48, 49, // textures, layers, gathers
	118, 120, 127, 131, 139, 140, // order of writes, clusters, tensor maps, and what libraries know the model by
	108, 109, 126, // what stays in the level 2 cache, and domains of memory: hints of programs
	52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 77, // cubes, surfaces, linear memory, mipmaps
}

// larger lists the attributes whose larger value is the safer one to report.
var larger = []int{attrTextureAlignment, attrSurfaceAlignment, attrTexturePitchAlignment, attrDoubleRatio, attrSharedReserved}

// speeds lists the attributes that say how fast a device is, and nothing of what it can
// do: clocks, the width of the bus, the cache and the hints for it, and the ratio of single to
// double precision.
var speeds = []int{13, 36, 37, 38, attrDoubleRatio, 108, 109, 126}

// visible describes a device that a program sees, by its number on the node and its place
// among the program's devices. Any of the real devices in infos may serve it, so it claims no
// more than all of them can do.
func visible(node string, infos []device.Info, number, place int, memory uint64) wire.Device {
	a := leastOf(infos)
	a[attrPCIDomain], a[attrPCIBus], a[attrPCIDevice] = 0, 1+place, 0
	uuid := sha256.Sum256(fmt.Appendf(nil, "muster %s device %d", node, number))
	return wire.Device{Memory: memory, Name: nameOf(infos), Uuid: uuid[:16], Attributes: attributePairs(a)}
}

func nameOf(infos []device.Info) string {
	for _, info := range infos {
		if info.Name != infos[0].Name {
			return "Muster vGPU"
		}
	}
	return infos[0].Name
}

func leastOf(infos []device.Info) map[int]int {
	least := map[int]int{}
	for _, number := range honest {
		value := infos[0].Attributes[number]
		for _, info := range infos[1:] {
			if slices.Contains(larger, number) {
				value = max(value, info.Attributes[number])
			} else {
				value = min(value, info.Attributes[number])
			}
		}
		if value != 0 {
			least[number] = value
		}
	}
	oldest := slices.MinFunc(infos, func(a, b device.Info) int { return cmp.Compare(a.Compute.Arch(), b.Compute.Arch()) })
	least[attrComputeMajor], least[attrComputeMinor] = oldest.Compute.Major, oldest.Compute.Minor
	return least
}

// attributePairs writes attributes in order of their numbers.
func attributePairs(a map[int]int) []byte {
	var b []byte
	for _, number := range slices.Sorted(maps.Keys(a)) {
		b = binary.LittleEndian.AppendUint32(b, uint32(number))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(a[number])))
	}
	return b
}

// The device addresses of a program's virtual devices: one range each, in a part of the
// address space that real drivers let one choose and that sanitisers do not use.
const (
	arenaBase = 0x6400_0000_0000
	maxArena  = 1 << 40
	minArena  = 16 << 30
)

// arenaOf places the arena of a program's virtual device. It is at least 16 times as large as
// the memory, up to maxArena, so that gaps between allocations do not matter and programs can
// reserve more addresses than they have memory, as PyTorch does for each stream.
func arenaOf(ordinal int, memory uint64) device.Arena {
	size := uint64(minArena)
	for size/16 < memory && size < maxArena {
		size *= 2
	}
	return device.Arena{Base: arenaBase + uint64(ordinal)*maxArena, Size: size}
}
