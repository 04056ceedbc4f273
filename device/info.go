package device

import "fmt"

// Info describes a device. It does not change.
type Info struct {
	Guards bool // launches can be guarded (Launch.Guard)
	// Guard is how many bytes, at least, are to stay free around each allocation, because the device checks
	// the accesses of kernels; 0 if it does not.
	Guard uint32
	// StopsKernels says that a kernel can be stopped while it runs: the device keeps Config.Kernels.
	StopsKernels bool
	// CallsAlone says that functions which streams of a context call (Stream.Call) run one at a time: one
	// that waits holds up those of all other streams.
	CallsAlone bool
	// OneArena says that contexts of one process share a set of addresses, on all devices that say so: a
	// second context cannot have an arena that another one has. Each needs a process of its own then.
	OneArena bool
	// Peers names a group of devices. Contexts of one process on two devices with the same name copy
	// to each other directly (StreamCan.CopyFrom); "" if this device has no such peers.
	Peers string
	Name  string
	UUID  [16]byte

	// Driver is the version of CUDA that the driver offers, as 13000 for 13.0;
	// 0 where there is no driver.
	Driver int

	Memory      uint64 // bytes for all contexts together
	ContextCost uint64 // bytes of it that a context takes before anything is mapped
	Granularity uint64 // mapped addresses and sizes are multiples of this

	Compute         Compute
	Multiprocessors int
	Limits          Limits

	// Speed is how fast kernels run, relative to a reference that all devices
	// of a kind are measured by: of two devices, the one with twice the speed
	// needs half the time.
	Speed float64
	// CopyBandwidth is bytes a second between host and device; 0 if unknown.
	CopyBandwidth uint64

	// Attributes holds what programs ask for by number, as numbered by CUDA's
	// CUdevice_attribute. Programs get 0 for a number that is not in it.
	Attributes map[int]int
}

// Compute is a compute capability.
type Compute struct{ Major, Minor int }

// Arch returns it as one number: 90 for 9.0.
func (c Compute) Arch() int { return c.Major*10 + c.Minor }

// Limits are the largest sizes that the device takes.
type Limits struct {
	Warp                 int // threads
	Threads              int // of a block
	Block, Grid          Dim
	SharedBlock          uint64 // bytes a block, static and dynamic together
	SharedMultiprocessor uint64
	SharedReserved       uint64 // bytes a block that the device takes itself
	Local                uint64 // bytes a thread, the stack included
	Registers            int    // of a multiprocessor, and of a block
	ThreadsResident      int    // on a multiprocessor
	BlocksResident       int    // on a multiprocessor
	Constant             uint64 // bytes a module
}

// Count returns the number of positions: X*Y*Z.
func (d Dim) Count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// Within says whether no side is longer than that of limit, or zero.
func (d Dim) Within(limit Dim) bool {
	return d.X > 0 && d.Y > 0 && d.Z > 0 && d.X <= limit.X && d.Y <= limit.Y && d.Z <= limit.Z
}

// String returns (x,y,z).
func (d Dim) String() string { return fmt.Sprintf("(%d,%d,%d)", d.X, d.Y, d.Z) }
