// Package device is the contract between Muster and a GPU, real or software.
//
// A device opens contexts. A context owns a range of device addresses (its
// arena), the memory that is mapped there, the modules that were loaded, and
// streams on which copies and kernels run in order. Addresses are the caller's
// choice: memory that is copied away and mapped again at the same address is
// the same memory to the programs that use it, on this device or another.
//
// The package says nothing about who owns a context, about CUDA's default stream, or
// about what to do when memory runs out: the layers above decide that. It knows
// no backend. Several goroutines may call any method at the same time, except where
// the method says otherwise.
//
// What only some backends can do, Device.Can, Context.Can and Stream.Can say.
package device

import (
	"context"
	"fmt"
	"time"
)

// Device is one GPU.
type Device interface {
	Info() Info
	// Open makes a context. Its memory counts against the device's, together
	// with that of all other contexts.
	Open(c Config) (Context, error)
	// Can says what else the device can do.
	Can() *DeviceCan
}

// LimitHeap is CUDA's number of the limit on the size of the kernels' heap, and DefaultHeap the size
// in bytes that applies until a program sets another.
const (
	LimitHeap   = 2
	DefaultHeap = 8 << 20
)

// ImageInfo is what an image holds, sorted by name. Variables have no address
// yet.
type ImageInfo struct {
	Functions []FunctionInfo
	Globals   []Global
	Memory    uint64 // bytes of the device that loading takes
}

// Config says what a context is to be like.
type Config struct {
	// Arena is the range in which memory will be mapped. Base and Size are
	// multiples of Info.Granularity; the context has these addresses or Open
	// fails.
	Arena Arena
	// Print receives what kernels print. The context makes one call at a time, each with
	// the text of one or more whole calls of printf; nil drops the text. It has all text of a
	// kernel before any call answers that the kernel has ended: Done and DoneWithin with true,
	// and Synchronise. Functions given to Call or Notify may run before. Print must neither
	// call the context nor wait for a goroutine that does, or the two would deadlock.
	Print func(text []byte)
	// Kernels bounds how long a kernel may run, on devices with Info.StopsKernels; others ignore it.
	Kernels KernelLimit
	// Touches asks for FunctionInfo.Touches also where the device must read all of a module's PTX to
	// know it, which takes time.
	Touches bool
	// Complain receives the messages of failed assertions in kernels, in whole lines,
	// before any call answers with the fault that they cause. A program would see them on
	// its standard error. The rules for Print apply, and Print and Complain never run at
	// the same time.
	Complain func(text []byte)
}

// KernelLimit bounds how long one kernel may run. Time in which it waits for other kernels, or for its
// turn on the device, does not count.
type KernelLimit struct {
	Time time.Duration // 0: no limit
	By   string        // which setting says so and how to change it, for the program's user
}

// Fault is what ends the context of a kernel that has run for longer.
func (l KernelLimit) Fault(kernel string) *Fault {
	return &Fault{Kind: Timeout, Kernel: kernel, Detail: fmt.Sprintf("it ran for longer than %v, %s", l.Time, l.By)}
}

// Arena is a range of device addresses.
type Arena struct{ Base, Size uint64 }

// Contains says whether all of size bytes from addr on lie in the arena.
func (a Arena) Contains(addr, size uint64) bool {
	return addr >= a.Base && size <= a.Size && addr-a.Base <= a.Size-size
}

// Heap returns the range of the heap from which kernels allocate memory (FunctionInfo.Heap). Size is
// the value of LimitHeap. The heap ends at the end of the arena's first quarter: programs' allocations
// fill that quarter from below and rarely get that far. The range follows from arena and size alone, so
// core and device compute the same one without a message. It is empty if size exceeds the quarter.
func (a Arena) Heap(size uint64) Arena {
	const unit = 2 << 20
	quarter := a.Size / 4 / unit * unit
	if size == 0 || size > quarter {
		return Arena{}
	}
	size = (size + unit - 1) / unit * unit
	return Arena{Base: a.Base + quarter - size, Size: size}
}

// Context is one user's part of a device. A fault of a kernel ends it: from
// then on every call answers with that *Fault until Close, and the device drops the
// context's unfinished work. Other contexts go on.
type Context interface {
	// Map puts memory at addr; addr and size are multiples of the granularity
	// and nothing may be mapped there. The contents of the new memory are undefined.
	// Memory mapped piece by piece without a gap is one stretch to kernels.
	Map(addr, size uint64) error
	// Unmap gives memory back; all of the range must be mapped, by any number of
	// calls of Map. It does not wait for streams: work that still uses
	// the memory faults, and ends only this context.
	Unmap(addr, size uint64) error
	// Memory returns the bytes that are free on the device now, and the device's total.
	Memory() (free, total uint64, err error)

	// Load makes the kernels and variables of an image usable: PTX text, a
	// cubin or a fat binary. The context keeps no reference to the bytes.
	Load(image []byte) (Module, error)
	// Link makes one image of several inputs and resolves the declarations of each with
	// the definitions of the others: ErrLink if they do not fit together. It returns nil
	// for a Link that only checks.
	Link(l Link) ([]byte, error)

	NewStream() (Stream, error)
	NewEvent() (Event, error)

	// Can says what else the context can do.
	Can() *ContextCan

	// Pin tells the device that the caller will copy to or from this host memory
	// often. It is never needed and may make copies faster. The memory must stay
	// mapped until the caller has called unpin or closed the context.
	Pin(host []byte) (unpin func() error, err error)

	// Synchronise waits until all work that was submitted before the call has
	// ended, on every stream.
	Synchronise(ctx context.Context) error
	// Err returns the fault that ended the context, ErrClosed, or nil.
	Err() error
	// Close drops work that has not begun, stops work that is running (or waits
	// for it, where the device cannot stop a kernel), and gives all memory back.
	// When it returns, no work of the context is running. A second Close does
	// nothing.
	Close() error
}

// Stream is a queue of work that runs in the order of submission. Work on two
// streams may overlap. Submitting returns before the work is done; it may block
// while the stream's queue is full. Arguments are checked at submission: bad
// ones are refused with ErrInvalidValue and nothing changes.
//
// Host memory given to a copy must stay valid, and must not be touched, until
// the work is done; if the context ends before, until its Close has returned.
type Stream interface {
	// CopyIn copies from the host to the device.
	CopyIn(dst uint64, src []byte) error
	// CopyOut copies from the device to the host.
	CopyOut(dst []byte, src uint64) error
	// Copy copies within the device. If the ranges overlap, the contents of dst afterwards are
	// undefined, as with CUDA's driver.
	Copy(dst, src, size uint64) error
	// Fill writes count elements of width bytes (1, 2 or 4), each the low
	// bytes of value; dst is a multiple of width.
	Fill(dst uint64, value uint32, width int, count uint64) error
	Launch(f Function, l Launch) error

	// Record lets e stand for the work submitted to this stream so far.
	Record(e Event) error
	// Wait makes later work of this stream wait for the work that e stands for at
	// the time of this call. An event that was never recorded counts as done.
	Wait(e Event) error
	// Call runs f when the work before it is done; later work waits for it. f
	// must not call the device. It is not called if the context ends before.
	Call(f func()) error

	// Can says what else the stream can do.
	Can() *StreamCan

	// Done says whether all submitted work has ended.
	Done() (bool, error)
	// Watch returns a function that is Done but waits up to about limit for the work to end. It is nil
	// unless the device works outside this process: then a caller may block its thread for a short time,
	// since no goroutine of this process has to run for the work to end.
	Watch() func(limit time.Duration) (bool, error)
	// Synchronise waits until all work submitted before the call has ended.
	Synchronise(ctx context.Context) error
	// Close makes the stream refuse more work. Pending work still runs to its end.
	Close() error
}

// Event stands for a point in the work of a stream.
type Event interface {
	// Done says whether the work that the event stands for has ended.
	Done() (bool, error)
	// Watch is as with streams.
	Watch() func(limit time.Duration) (bool, error)
	// Synchronise waits for that.
	Synchronise(ctx context.Context) error
	// Since returns the time between two recorded and ended events, both of
	// this context: ErrNotReady if one has not ended, ErrInvalidValue if one
	// was never recorded.
	Since(start Event) (time.Duration, error)
	Close() error
}

// Module is a loaded image.
type Module interface {
	// Functions returns the names of the kernels, sorted.
	Functions() []string
	// Function returns a kernel; ErrNotFound if there is none of that name.
	Function(name string) (Function, error)
	// Globals returns the variables that have an address, constants included,
	// sorted by name.
	Globals() []Global
	// Global returns one variable; ErrNotFound if there is none of that name.
	Global(name string) (Global, error)
	// Unload frees the module's memory. The caller must not use the module's functions
	// and variables any more.
	Unload() error
}

// Global is a variable of a module. Its address is the backend's choice and
// lies outside the arena; copies and fills reach it like any memory.
type Global struct {
	Name    string
	Address uint64
	Size    uint64
	Managed bool // declared __managed__: the program's host code uses it at the same address
}

// Function is a kernel.
type Function interface {
	Info() FunctionInfo
	// Occupancy returns how many blocks of that many threads, with that much
	// dynamic shared memory each, one multiprocessor holds at a time: 0 if
	// Launch would refuse them. A cooperative launch has at most this many
	// blocks times Info.Multiprocessors.
	Occupancy(threads int, shared uint64) (blocks int, err error)
	// SharedFor returns how much dynamic shared memory each block can have if that many
	// blocks of that many threads are to fit on a multiprocessor at a time.
	SharedFor(blocks, threads int) (uint64, error)
	// Clusters returns how many clusters of the launch the device holds at a time. For a
	// launch that names no cluster size it returns the largest number of blocks that a
	// cluster may have. ErrNotSupported where the device has no clusters.
	Clusters(l Launch) (clusters, blocks int, err error)
}

// FunctionInfo is what is known of a kernel before it runs.
type FunctionInfo struct {
	Name       string
	Unread     bool // the backend has not looked at the kernel yet: only Name is set
	Params     []Param
	ParamSize  int // bytes in Launch.Params
	MaxThreads int // of a block
	Shared     int // static bytes a block
	Local      int // bytes a thread
	Constant   int // bytes of constant memory that the program declares
	Registers  int // a thread
	PTXVersion int // target of the PTX it was made from: 70 for sm_70; 0 if unknown
	Binary     int // target of the machine code: 90 for sm_90

	Cluster       Dim  // size in blocks that the kernel was compiled for; zero if the launch chooses
	ClusterNeeded bool // the launch must choose a size

	// Heap says that the kernel calls malloc or free on a heap that the caller provides: the caller must
	// map all of Config.Arena.Heap, and clear its first 64 bytes before the program's first such launch.
	// That memory also holds all bookkeeping, so a caller that moves it moves the heap's allocations too.
	// Where Heap is false the kernel allocates nothing, or the device has a heap of its own.
	Heap bool `json:",omitempty"`

	// Touches is the memory that the kernel may use; nil if that cannot be told from its code.
	Touches *Touches `json:",omitempty"`
	// Follows says of a kernel without Touches that the only reason is that it follows pointers which
	// it loads from memory: it uses memory of the arena, but no variables or textures.
	Follows bool `json:",omitempty"`
}

// Touches is the memory of the arena that a kernel uses: only memory that its parameters point to. A
// kernel that follows pointers which it loads from memory, or uses variables or textures, has no Touches.
type Touches struct {
	Accesses []Access
}

// Access is a use of memory through an address that the kernel computes from some of the 64-bit
// words of Launch.Params: a pointer, and possibly offsets added to it. Words has their indexes.
type Access struct {
	Words  []int
	Writes bool
}

// touchedWords is how many words of parameters the encoding of Touches.Words has bits for, and
// touchWrites the bit of an access that writes.
const (
	touchedWords = 60
	touchWrites  = 1 << 63
)

// Words encodes each access as one number: bit n for word n of the parameters, and the highest bit if
// the access writes. It returns false if t is nil, or if an access uses a word beyond the encoding's bits.
func (t *Touches) Words() (words []uint64, ok bool) {
	if t == nil {
		return nil, false
	}
	for _, a := range t.Accesses {
		w := uint64(0)
		if a.Writes {
			w = touchWrites
		}
		for _, n := range a.Words {
			if n < 0 || n >= touchedWords {
				return nil, false
			}
			w |= 1 << n
		}
		words = append(words, w)
	}
	return words, true
}

// TouchesOf decodes what Words returned, for a kernel with params bytes of parameters. It returns nil
// if a bit stands for no word of these parameters.
func TouchesOf(words []uint64, params int) *Touches {
	t := &Touches{}
	for _, w := range words {
		a := Access{Writes: w&touchWrites != 0}
		for n := range 64 {
			switch {
			case w&(1<<n) == 0 || n == 63:
			case n >= touchedWords || 8*n+8 > params:
				return nil
			default:
				a.Words = append(a.Words, n)
			}
		}
		t.Accesses = append(t.Accesses, a)
	}
	return t
}

// Param is where a parameter lies in Launch.Params.
type Param struct{ Offset, Size int }

// Launch says how to run a kernel.
type Launch struct {
	Grid, Block Dim
	Shared      uint64 // dynamic bytes a block; up to Limits.SharedBlock with the static ones
	Stack       uint64 // bytes a thread has for the functions it calls; 0 for the device's default
	Params      []byte // FunctionInfo.ParamSize bytes; copied before Launch returns
	Cooperative bool   // all blocks run at the same time and may wait for each other
	Cluster     Dim    // size of clusters in blocks; zero: the size that the kernel was compiled for
	// LargeCluster allows clusters larger than the size that every device with clusters supports.
	LargeCluster bool
	// Guard restricts the memory that the kernel may use; nil for no restriction. Only devices with
	// Info.Guards enforce it.
	Guard *Guard
}

// Guard lists the memory of the arena that a launch is expected to use. Memory outside the arena is
// never restricted.
type Guard struct {
	// Ranges may be used without asking. They are sorted by address and do not overlap.
	Ranges []Arena
	// Trap is called before a kernel's thread uses memory of the arena outside all ranges. It returns a
	// range around addr that the kernel may use from now on; or false, and then the access is a fault.
	// An access to a range where nothing is mapped is also a fault. The thread waits for Trap, which may
	// map memory and copy to it meanwhile. Several threads may call Trap at a time. If Trap is nil the
	// kernel may use all memory, and Ranges only serve Touched.
	Trap func(addr uint64) (Arena, bool)
	// Touched, if not nil, is called after the kernel has ended without a fault, with the ranges that it
	// used, including those that Trap returned.
	Touched func([]Arena)
}

// Dim is a size or a position in three dimensions.
type Dim struct{ X, Y, Z uint32 }
