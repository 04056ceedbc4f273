package soft

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
	"unicode"

	"muster/device"
	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
)

// Profile says which GPU a software device models.
type Profile struct {
	Name   string
	Memory uint64 // bytes; a multiple of the granularity
	// Speed is the speed of kernels relative to this machine at full speed, from a
	// millionth to 1.
	Speed float64
	// Rate, if not 0, fixes how many operations of single lanes kernels do in a second, the
	// same on every machine that is fast enough. Speed then does not slow kernels down and
	// only tells schedulers how the device compares with others.
	Rate float64
	// CopyBandwidth is bytes per second between host and device; 0 for no limit.
	CopyBandwidth uint64
	// Workers is how many processors of the host run kernels. Programs see the same
	// number of multiprocessors.
	Workers int
	// Engine selects the interpreter, or also compiled code.
	Engine simt.Engine
	// OwnProcess makes contexts behave as those of NVIDIA's driver do: two of one process cannot have
	// the same addresses (device.Info.OneArena), launches are not guarded, there are no peers, and
	// Config.Kernels does not count.
	OwnProcess bool
	// Check selects the defects that kernels are checked for. If there are any, the
	// interpreter runs all kernels.
	Check memcheck.Checks
}

// granule is the granularity of mappings, the same as on current GPUs.
const granule = 2 << 20

const (
	maxWorkers = 1024
	maxMemory  = 1 << 46
	maxName    = 255
	minSpeed   = 1e-6 // below this a kernel would appear to hang
	minRate    = 1e3  // likewise
	maxRate    = 1e15
)

// Validate returns what is wrong with a profile, or nil.
func (p Profile) Validate() error {
	switch {
	case p.Name == "" || strings.TrimSpace(p.Name) != p.Name || len(p.Name) > maxName || strings.ContainsFunc(p.Name, notPrintable):
		return fmt.Errorf("profile name %q: give 1 to %d printable characters", p.Name, maxName)
	case p.Memory == 0 || p.Memory%granule != 0 || p.Memory > maxMemory:
		return fmt.Errorf("profile %s: memory of %d bytes: give a multiple of 2 MiB up to 64 TiB", p.Name, p.Memory)
	case math.IsNaN(p.Speed) || p.Speed < minSpeed || p.Speed > 1:
		return fmt.Errorf("profile %s: speed %v: give a number from 0.000001 to at most 1, where 1 is as fast as this machine runs kernels", p.Name, p.Speed)
	case p.Rate != 0 && !(p.Rate >= minRate && p.Rate <= maxRate):
		return fmt.Errorf("profile %s: rate %v: give a number of operations a second from %.0e to %.0e, or none", p.Name, p.Rate, minRate, maxRate)
	case p.Workers < 1 || p.Workers > maxWorkers:
		return fmt.Errorf("profile %s: %d workers: give 1 to %d", p.Name, p.Workers, maxWorkers)
	}
	return nil
}

func notPrintable(r rune) bool { return !unicode.IsPrint(r) }

// Clock is a device's source of time.
type Clock interface {
	// Now returns the time since some moment in the past.
	Now() time.Duration
	// Sleep returns when Now has advanced by d or more.
	Sleep(d time.Duration)
}

// compute is the capability that the device claims: PTX made for it or for
// older ones runs.
var compute = device.Compute{Major: 9, Minor: 0}

// The limits are those of GPUs of that capability.
var limits = device.Limits{
	Warp:                 shape.WarpSize,
	Threads:              shape.MaxThreads,
	Block:                device.Dim{X: shape.MaxBlockX, Y: shape.MaxBlockY, Z: shape.MaxBlockZ},
	Grid:                 device.Dim{X: shape.MaxGridX, Y: shape.MaxGridY, Z: shape.MaxGridZ},
	SharedBlock:          shape.MaxShared,
	SharedMultiprocessor: 228 << 10,
	SharedReserved:       1 << 10,
	Local:                shape.MaxLocal,
	Registers:            64 << 10,
	ThreadsResident:      2048,
	BlocksResident:       32,
	Constant:             64 << 10,
}

func (p Profile) info(uuid [16]byte) device.Info {
	info := device.Info{
		Guards:          true,
		StopsKernels:    true,
		Peers:           "soft",
		Name:            p.Name,
		UUID:            uuid,
		Memory:          p.Memory,
		Granularity:     granule,
		Compute:         compute,
		Multiprocessors: p.Workers,
		Limits:          limits,
		Speed:           p.Speed,
		CopyBandwidth:   p.CopyBandwidth,
		Attributes:      attributes(p),
	}
	if p.OwnProcess {
		info.OneArena, info.Guards, info.Peers, info.StopsKernels = true, false, "", false
	}
	return info
}

// attributes answers what programs ask a device for by number: the numbers are
// those of CUdevice_attribute.
func attributes(p Profile) map[int]int {
	const (
		clockKHz = 1_000_000
		busBits  = 512
		maxPitch = 1<<31 - 1
	)
	all := map[int]int{
		1: limits.Threads, // of a block
		2: int(limits.Block.X), 3: int(limits.Block.Y), 4: int(limits.Block.Z),
		5: int(limits.Grid.X), 6: int(limits.Grid.Y), 7: int(limits.Grid.Z),
		8:   defaultShared,
		9:   int(limits.Constant),
		10:  limits.Warp,
		11:  maxPitch,
		12:  limits.Registers, // of a block
		13:  int(clockKHz * p.Speed),
		14:  512, // texture alignment
		15:  1,   // copies and kernels overlap
		16:  p.Workers,
		31:  1, // kernels of several streams overlap
		36:  clockKHz,
		37:  busBits,
		38:  32 << 20, // level 2 cache
		39:  limits.ThreadsResident,
		40:  2, // copy engines
		41:  1, // unified addressing
		51:  32,
		75:  compute.Major,
		76:  compute.Minor,
		78:  1, // stream priorities
		81:  int(limits.SharedMultiprocessor),
		82:  limits.Registers, // of a multiprocessor
		87:  2,                // speed of f32 relative to f64
		90:  1,                // kernels can be preempted
		95:  1,                // cooperative launches
		97:  int(limits.SharedBlock),
		106: limits.BlocksResident,
		108: 24 << 20,  // level 2 cache for persisting accesses: ignored here, as the hint that it is
		109: 128 << 20, // size of an access policy window
		111: int(limits.SharedReserved),
		120: 1, // clusters of blocks
	}
	maps.Copy(all, textureLimits)
	return all
}

// defaultShared is the shared memory that a block can have unless the program opts in to
// more. CUDA has this rule; the layers above apply it.
const defaultShared = 48 << 10
