package cuda

import "muster/device"

// Numbers of attributes, as in CUDA's CUdevice_attribute.
const (
	lastAttribute = 160 // higher than the numbers that any driver knows today

	attrThreads              = 1
	attrBlockX               = 2
	attrGridX                = 5
	attrConstant             = 9
	attrWarp                 = 10
	attrClock                = 13 // kHz
	attrMultiprocessors      = 16
	attrThreadsResident      = 39
	attrMajor                = 75
	attrMinor                = 76
	attrSharedMultiprocessor = 81
	attrRegisters            = 82
	attrSharedBlock          = 97 // if the kernel opts in
	attrVirtualMemory        = 102
	attrBlocksResident       = 106
	attrSharedReserved       = 111
)

// localBytes is the local memory that a thread may have, on all architectures since
// 5.0. The driver has no attribute for it.
const localBytes = 512 << 10

// contextCost is the device memory that an empty context takes: measured as 0.5 GiB on an
// H200.
const contextCost = 512 << 20

// describe translates a device's attributes into device.Info.
func describe(name string, uuid [16]byte, memory, granularity uint64, a map[int]int) device.Info {
	compute := device.Compute{Major: a[attrMajor], Minor: a[attrMinor]}
	return device.Info{
		CallsAlone: true, OneArena: true,
		Name: name, UUID: uuid,
		Memory: memory, ContextCost: contextCost, Granularity: granularity,
		Compute: compute, Multiprocessors: a[attrMultiprocessors],
		Limits: device.Limits{
			Warp: a[attrWarp], Threads: a[attrThreads], Block: sides(a, attrBlockX), Grid: sides(a, attrGridX),
			SharedBlock: uint64(a[attrSharedBlock]), SharedMultiprocessor: uint64(a[attrSharedMultiprocessor]), SharedReserved: uint64(a[attrSharedReserved]),
			Local: localBytes, Registers: a[attrRegisters], ThreadsResident: a[attrThreadsResident], BlocksResident: a[attrBlocksResident],
			Constant: uint64(a[attrConstant]),
		},
		Speed:      speed(compute, a[attrMultiprocessors], a[attrClock]),
		Attributes: a,
	}
}

func sides(a map[int]int, x int) device.Dim {
	return device.Dim{X: uint32(a[x]), Y: uint32(a[x+1]), Z: uint32(a[x+2])}
}

// speed is the rate of single-precision operations relative to an H200's:
// multiprocessors times clock times lanes of a multiprocessor. A device that
// does not tell its clock counts as one of 1 GHz.
func speed(c device.Compute, multiprocessors, clock int) float64 {
	const h200 = 132 * 1_980_000 * 128
	if clock <= 0 {
		clock = 1_000_000
	}
	return float64(max(multiprocessors, 1)) * float64(clock) * float64(lanes(c)) / h200
}

// lanes returns how many single-precision operations a multiprocessor does at a
// time: 64 up to 8.0 (Volta, Turing, the large Ampere chip), then 128.
func lanes(c device.Compute) int {
	if c.Arch() < 86 {
		return 64
	}
	return 128
}
