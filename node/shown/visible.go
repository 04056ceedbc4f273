package shown

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"

	"muster/device"
	"muster/node/refusal"
	"muster/node/settings"
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
	AttrTextureAlignment      = 14
	attrECC                   = 32
	attrPCIBus                = 33
	attrPCIDevice             = 34
	attrMemoryClock           = 36
	attrBusWidth              = 37
	attrPCIDomain             = 50
	attrSurfaceAlignment      = 30
	attrTexturePitchAlignment = 51
	AttrComputeMajor          = 75
	AttrComputeMinor          = 76
	attrDoubleRatio           = 87
	attrSharedReserved        = 111
)

// honest lists the attributes that hold for a virtual device if they hold for the real ones.
// All others are left out, which is 0 to programs: memory that host and device see at once,
// memory pools, sharing between processes, and whatever future devices claim.
var honest = []int{
	1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, AttrTextureAlignment, 15, 16, // sizes, warp, clock, overlap, multiprocessors
	31, 32, 36, 37, 38, 39, 40, 41, attrTexturePitchAlignment, // concurrent kernels, ECC, memory clock and bus, L2, threads, copy engines, one address space
	AttrComputeMajor, AttrComputeMinor, 78, 79, 80, 81, 82, attrDoubleRatio, 90, 95, 97, 106, attrSharedReserved,
	21, 22, 23, 24, 25, 26, 27, 28, 29, attrSurfaceAlignment, 42, 43, 44, 45, 46, 47, 48, 49, // textures, layers, gathers
	118, 120, 127, 131, 139, 140, // order of writes, clusters, tensor maps, and what libraries know the model by
	108, 109, 126, // what stays in the level 2 cache, and domains of memory: hints of programs
	52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 77, // cubes, surfaces, linear memory, mipmaps
}

// larger lists the attributes whose larger value is the safer one to report.
var larger = []int{AttrTextureAlignment, attrSurfaceAlignment, attrTexturePitchAlignment, attrDoubleRatio, attrSharedReserved}

// speeds lists the attributes that say how fast a device is, and nothing of what it can
// do: clocks, the width of the bus, the cache and the hints for it, and the ratio of single to
// double precision.
var speeds = []int{13, 36, 37, 38, attrDoubleRatio, 108, 109, 126}

// Visible describes a device that a program sees, by its number on the node and its place
// among the program's devices. Any of the real devices in infos may serve it, so it claims no
// more than all of them can do.
func Visible(node string, infos []device.Info, number, place int, memory uint64) wire.Device {
	a := LeastOf(infos)
	a[attrPCIDomain], a[attrPCIBus], a[attrPCIDevice] = 0, 1+place, 0
	uuid := sha256.Sum256(fmt.Appendf(nil, "muster %s device %d", node, number))
	return wire.Device{Memory: memory, Name: nameOf(infos), Uuid: uuid[:16], Attributes: AttributePairs(a)}
}

func nameOf(infos []device.Info) string {
	for _, info := range infos {
		if info.Name != infos[0].Name {
			return "Muster vGPU"
		}
	}
	return infos[0].Name
}

func LeastOf(infos []device.Info) map[int]int {
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
	least[AttrComputeMajor], least[AttrComputeMinor] = oldest.Compute.Major, oldest.Compute.Minor
	return least
}

// AttributePairs writes attributes in order of their numbers.
func AttributePairs(a map[int]int) []byte {
	var b []byte
	for _, number := range slices.Sorted(maps.Keys(a)) {
		b = binary.LittleEndian.AppendUint32(b, uint32(number))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(a[number])))
	}
	return b
}

// ArenaOf places the arena of a program's virtual device. It is at least 16 times as large as
// the memory, up to maxArena, so that gaps between allocations do not matter and programs can
// reserve more addresses than they have memory, as PyTorch does for each stream.
func ArenaOf(ordinal int, memory uint64) device.Arena {
	size := uint64(settings.MinArena)
	for size/16 < memory && size < settings.MaxArena {
		size *= 2
	}
	return device.Arena{Base: settings.ArenaBase + uint64(ordinal)*settings.MaxArena, Size: size}
}

// Lent describes a device to a guest: all of its CUDA attributes, and what CUDA has no
// attribute for.
func Lent(node string, info device.Info, number int, memory uint64) wire.Device {
	shown := Visible(node, []device.Info{info}, number, number, memory)
	a := map[int]int{}
	for attribute, value := range info.Attributes {
		a[attribute] = value
	}
	const most = 1<<31 - 1
	a[wire.LentContext] = int(min(info.ContextCost>>10, most))
	a[wire.LentLocal] = int(min(info.Limits.Local>>10, most))
	a[wire.LentSpeed] = int(min(info.Speed*1e6, most))
	a[wire.LentBandwidth] = int(min(info.CopyBandwidth>>10, most))
	a[wire.LentRegisters] = info.Limits.Registers
	a[wire.LentConstant] = int(min(info.Limits.Constant, most))
	if info.CallsAlone {
		a[wire.LentCallsAlone] = 1
	}
	shown.Attributes = AttributePairs(a)
	return shown
}

// CannotDo says which of the attributes that a program was shown a device cannot offer; "" if
// it has all.
func CannotDo(info device.Info, shown map[int]int) string {
	arch := shown[AttrComputeMajor]*10 + shown[AttrComputeMinor]
	if has := info.Compute.Major*10 + info.Compute.Minor; has < arch {
		return fmt.Sprintf("has compute capability %d.%d, and programs were told %d.%d", has/10, has%10, arch/10, arch%10)
	}
	for _, number := range slices.Sorted(maps.Keys(shown)) {
		value, has := shown[number], info.Attributes[number]
		switch {
		case number == AttrComputeMajor || number == AttrComputeMinor:
		case slices.Contains(speeds, number): // a slower device does the same
		case slices.Contains(larger, number) && has > value, !slices.Contains(larger, number) && has < value:
			return fmt.Sprintf("has %d for CUDA's device attribute %d, and programs were told %d", has, number, value)
		}
	}
	return ""
}

// ArenaFor is where a client's device addresses lie. A guest says where: anywhere in the
// range in which clients of a node have theirs.
func ArenaFor(hello *wire.Hello, attach *wire.Attach, memory uint64) (device.Arena, error) {
	a := device.Arena{Base: attach.ArenaBase, Size: attach.ArenaSize}
	all := device.Arena{Base: settings.ArenaBase, Size: settings.MaxDevices * settings.MaxArena}
	switch {
	case a == device.Arena{}:
		return ArenaOf(int(attach.Place), memory), nil
	case hello.Guest == 0:
		return a, refusal.New(refusal.Mismatch, "a program does not choose its device addresses")
	case a.Size == 0 || a.Size > settings.MaxArena || (a.Base|a.Size)%settings.DeviceGranule != 0 || !all.Contains(a.Base, a.Size):
		return a, refusal.New(refusal.InvalidDevice, "device addresses from %#x on, %d bytes: they must be whole pieces of 2 MiB between %#x and %#x, of 1 TiB at most", a.Base, a.Size, all.Base, all.Base+all.Size)
	}
	return a, nil
}

// Offer is what a program is shown.
type Offer struct {
	Infos   [][]device.Info // for each device, the real ones that may be behind it
	Numbers []int           // the devices' numbers, for guests only
	Memory  []uint64        // that the program sees on each
	Devices []wire.Device
}

// driver is the version of CUDA that programs are told.
func (o *Offer) driver() uint32 { return driverVersion(slices.Concat(o.Infos...)) }

func (o *Offer) Add(infos []device.Info, memory uint64, shown wire.Device) {
	o.Infos, o.Memory, o.Devices = append(o.Infos, infos), append(o.Memory, memory), append(o.Devices, shown)
}

// Send tells a program what it can use.
func (o *Offer) Send(conn *net.UnixConn) error {
	var out bytes.Buffer
	_ = wire.WriteRecord(&out, &wire.Welcome{Version: wire.Version, Driver: o.driver(), Devices: uint32(len(o.Devices))})
	for i := range o.Devices {
		if err := wire.WriteRecord(&out, &o.Devices[i]); err != nil {
			return err
		}
	}
	_, err := conn.Write(out.Bytes())
	return err
}
