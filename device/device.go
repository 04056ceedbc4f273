// Package device is the contract between Muster and a GPU, real or software.
//
// A device opens contexts. A context owns a range of device addresses (its
// arena), the memory that is mapped there, the modules that were loaded, and
// streams on which copies and kernels run in order. Addresses are the caller's
// choice: memory that is copied away and mapped again at the same address is
// the same memory to the programs that use it, on this device or another.
//
// The package says nothing of who owns a context, of CUDA's default stream, or
// of what to do when memory runs out: the layers above decide that. It knows
// no backend. All methods may be called by several goroutines at a time.
package device

import (
	"context"
	"time"
)

// Device is one GPU.
type Device interface {
	Info() Info
	// Open makes a context. Its memory counts against the device's, together
	// with that of all other contexts.
	Open(c Config) (Context, error)
}

// Inspector is what a device offers that can tell what an image holds before
// there is a context. Others need the image to be loaded.
type Inspector interface {
	Inspect(image []byte) (ImageInfo, error)
}

// Preparer is what a device offers whose contexts take long to make: most of a context can be made
// before it is known for whom.
type Preparer interface {
	// Prepare makes a context, which takes the device's memory as others do, and which the next Open
	// completes. Host memory that the context will use, if any is given, is pinned there if that is
	// possible.
	Prepare(host []byte) error
	// Discard closes the context that Prepare made, unless an Open has taken it.
	Discard() error
}

// Placer is what a device offers that can load an image with its variables where
// they were in another context. Elsewhere variables have the same addresses only
// if the same images were loaded and unloaded in the same order.
type Placer interface {
	// LoadAt is Load into a context of this device, with the variables at the given
	// addresses, as Module.Globals told them: ErrInvalidValue if they cannot be
	// there, or are not the image's.
	LoadAt(c Context, image []byte, globals []Global) (Module, error)
}

// Limiter is what a context offers that has limits for what kernels do by
// themselves, such as the size of their heap.
type Limiter interface {
	// SetLimit sets one, by CUDA's number of it (CUlimit). Those that were
	// submitted before may see either.
	SetLimit(limit int, value uint64) error
}

// LimitHeap is CUDA's number of the limit for the heap of kernels, and DefaultHeap its size in bytes
// before a program sets one.
const (
	LimitHeap   = 2
	DefaultHeap = 8 << 20
)

// Taker is what a stream offers that can copy data which the caller needs again at once.
type Taker interface {
	// CopyTaken is Stream.CopyIn, with src read before it returns.
	CopyTaken(dst uint64, src []byte) error
}

// PeerCopier is what a stream offers that can copy from another context of this process, on a device
// with the same Info.Peers, without the host's memory between them.
type PeerCopier interface {
	// CopyFrom is CopyIn, but what is copied is memory of another context: ErrNotSupported if that
	// context is none that the device knows. The caller makes sure that nothing of the other
	// context changes, unmaps or closes that memory until the copy is done.
	CopyFrom(dst uint64, from Context, src, size uint64) error
}

// Wrapper is a context around another one, on which work is done.
type Wrapper interface {
	Inner() Context
}

// Innermost returns the context inside all wrappers.
func Innermost(c Context) Context {
	for {
		w, ok := c.(Wrapper)
		if !ok {
			return c
		}
		c = w.Inner()
	}
}

// Watcher is what streams and events offer of a device that works by itself, outside this process:
// whoever waits for a moment need not let goroutines run meanwhile.
type Watcher interface {
	// DoneWithin is Done, and waits for that for about so long at most.
	DoneWithin(limit time.Duration) (bool, error)
}

// Launcher is what a stream offers that can leave launches to a thread of its own, so that the caller
// need not wait for the driver.
type Launcher interface {
	// LaunchLater is Launch, but what it says with later set is that the launch was only taken. To
	// everybody it is as if it had been made, except that it can still be refused, which
	// Refused tells: such launches of a context are numbered from 0. More says that another
	// launch is expected at once.
	LaunchLater(f Function, l Launch, more bool) (number uint64, later bool, err error)
	// Refused waits until all launches were made that streams of the context have taken so far, and
	// returns those that were refused since it was last called, in their order.
	Refused() []Refusal
}

// Refusal is a launch that was taken, and then refused.
type Refusal struct {
	Number uint64
	Err    error
}

// Prioritiser is what a context offers that prefers the work of some streams.
type Prioritiser interface {
	// NewStreamOf is NewStream with a priority as CUDA counts them: less is more.
	NewStreamOf(priority int) (Stream, error)
}

// Asker is what a context offers whose driver works out things that nobody else can.
type Asker interface {
	// Ask answers one of the questions below: ErrInvalidValue where the driver
	// refuses what it is asked about.
	Ask(what int, about []byte) ([]byte, error)
}

// Questions to a driver.
const (
	// AskTopology: how multiprocessors lie together. Of each pair a byte, then of each
	// another, which NVIDIA's libraries understand.
	AskTopology = 1 + iota
	// AskTiled, AskIm2col: the descriptor of a tensor, about what the program gave
	// for it, as TensorMap in device/cuda/driver.h has it.
	AskTiled
	AskIm2col
	// AskReplaced: about a descriptor and behind it another address for it.
	AskReplaced
)

// HostMapper is what a context offers whose kernels reach memory of the host.
type HostMapper interface {
	// MapHost lets kernels read and write host memory at the address that it has in
	// this process, atomics among that: ErrNotSupported where the device cannot.
	// Address and length are multiples of 4096. The memory must stay where it is
	// until unmap is called or the context is closed.
	MapHost(host []byte) (unmap func() error, err error)
}

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
	// Print receives what kernels print, in whole calls of printf and never
	// two at a time; nil drops it. It must neither call the context nor wait
	// for somebody who does.
	Print func(text []byte)
	// Complain receives what kernels say whose assertions do not hold, in whole
	// lines, before anybody is answered with that fault: what a program has on its
	// standard error. It is called like Print, and never at the same time.
	Complain func(text []byte)
}

// Arena is a range of device addresses.
type Arena struct{ Base, Size uint64 }

// Contains says whether all of size bytes from addr on lie in the arena.
func (a Arena) Contains(addr, size uint64) bool {
	return addr >= a.Base && size <= a.Size && addr-a.Base <= a.Size-size
}

// Heap returns where the heap lies from which kernels allocate memory (FunctionInfo.Heap), of a size
// that LimitHeap has: it ends where the first quarter of the arena does, which is rarely used so far.
// It is empty if the size is larger than that quarter.
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
// then on every call answers with that *Fault until Close, and what was under
// way is dropped. Other contexts go on.
type Context interface {
	// Map puts memory at addr; addr and size are multiples of the granularity
	// and nothing may be mapped there. What it contains is not defined.
	// Memory mapped piece by piece without a gap is one stretch to kernels.
	Map(addr, size uint64) error
	// Unmap gives memory back; all of the range must be mapped, however many
	// calls of Map made it. It does not wait for streams: work that still uses
	// the memory faults, and hurts only this context.
	Unmap(addr, size uint64) error
	// Memory returns what is free on the device now, and its size.
	Memory() (free, total uint64, err error)

	// Load makes the kernels and variables of an image usable: PTX text, a
	// cubin or a fat binary. The context keeps no reference to the bytes.
	Load(image []byte) (Module, error)
	// Link makes an image of several, in which what one declares is what another
	// defines: ErrLink if they do not fit together. It returns nil for a Link that
	// only checks.
	Link(l Link) ([]byte, error)

	NewStream() (Stream, error)
	NewEvent() (Event, error)

	// Pin tells the device that host memory will be copied to or from often.
	// It is never needed and may make copies faster. The memory must stay
	// where it is until unpin is called or the context is closed.
	Pin(host []byte) (unpin func() error, err error)

	// Synchronise waits until all work that was submitted before the call has
	// ended, on every stream.
	Synchronise(ctx context.Context) error
	// Err returns the fault that ended the context, ErrClosed, or nil.
	Err() error
	// Close drops what is waiting, stops what is under way (or waits for it,
	// where the device cannot stop a kernel), and gives all memory back. It
	// returns when nothing of the context runs any more. A second Close does
	// nothing.
	Close() error
}

// Stream is a queue of work that runs in the order of submission. Work on two
// streams may overlap. Submitting returns before the work is done; it may wait
// while very much work is pending. Arguments are checked at submission: bad
// ones are refused with ErrInvalidValue and nothing changes.
//
// Host memory given to a copy must stay valid, and must not be touched, until
// the work is done; if the context ends before, until its Close has returned.
type Stream interface {
	// CopyIn copies from the host to the device.
	CopyIn(dst uint64, src []byte) error
	// CopyOut copies from the device to the host.
	CopyOut(dst []byte, src uint64) error
	// Copy copies within the device. Of ranges that overlap, what the second one then holds
	// is the device's affair, as it is the driver's.
	Copy(dst, src, size uint64) error
	// Fill writes count elements of width bytes (1, 2 or 4), each the low
	// bytes of value; dst is a multiple of width.
	Fill(dst uint64, value uint32, width int, count uint64) error
	Launch(f Function, l Launch) error

	// Record lets e stand for the work submitted to this stream so far.
	Record(e Event) error
	// Wait holds later work back until the work is done that e stands for at
	// the time of this call. An event that was never recorded is done.
	Wait(e Event) error
	// Call runs f when the work before it is done; later work waits for it. f
	// must not call the device. It is not called if the context ends before.
	Call(f func()) error

	// Done says whether all submitted work has ended.
	Done() (bool, error)
	// Synchronise waits until all work submitted before the call has ended.
	Synchronise(ctx context.Context) error
	// Close takes no more work and lets the work that is pending end by
	// itself.
	Close() error
}

// Event stands for a point in the work of a stream.
type Event interface {
	// Done says whether the work that the event stands for has ended.
	Done() (bool, error)
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
	// Unload gives back what the module took. Its functions and variables
	// must not be used any more.
	Unload() error
}

// Global is a variable of a module. Its address is the backend's choice and
// lies outside the arena; copies and fills reach it like any memory.
type Global struct {
	Name    string
	Address uint64
	Size    uint64
	Managed bool // programs are to reach it at the same address
}

// Function is a kernel.
type Function interface {
	Info() FunctionInfo
	// Occupancy returns how many blocks of that many threads, with that much
	// dynamic shared memory each, one multiprocessor holds at a time: 0 if
	// Launch would refuse them. A cooperative launch has at most this many
	// blocks times Info.Multiprocessors.
	Occupancy(threads int, shared uint64) (blocks int, err error)
	// SharedFor returns how much dynamic shared memory each of that many blocks
	// of a multiprocessor can have.
	SharedFor(blocks, threads int) (uint64, error)
	// Clusters returns how many clusters of a launch the device holds at a time; of a
	// launch without clusters, how many blocks one may have: ErrNotSupported where
	// there are no clusters.
	Clusters(l Launch) (clusters, blocks int, err error)
}

// FunctionInfo is what is known of a kernel before it runs.
type FunctionInfo struct {
	Name       string
	Unread     bool // nobody has looked at the kernel, and only its name is known
	Params     []Param
	ParamSize  int // bytes in Launch.Params
	MaxThreads int // of a block
	Shared     int // static bytes a block
	Local      int // bytes a thread
	Constant   int // bytes that the program gives
	Registers  int // a thread
	PTXVersion int // target of the PTX it was made from: 70 for sm_70; 0 if unknown
	Binary     int // target of the machine code: 90 for sm_90

	Cluster       Dim  // of blocks, that it was compiled for; zero if the launch chooses
	ClusterNeeded bool // the launch must choose

	// Heap says that the kernel allocates memory itself, from a heap that the caller provides: all of
	// Config.Arena.Heap must be mapped, with zeros in its first 64 bytes before the first such launch of
	// a program. What kernels have allocated is in that memory, wherever it is moved. Where it is false
	// the kernel allocates nothing, or the device has a heap of its own.
	Heap bool `json:",omitempty"`

	// Touches is what memory the kernel uses; nil if that may be any.
	Touches *Touches `json:",omitempty"`
	// Follows says of a kernel without Touches that it has none only because it follows pointers which
	// it finds in memory: it uses memory of the arena, and nothing else that a context has.
	Follows bool `json:",omitempty"`
}

// Touches is what memory of the arena a kernel uses: only what its parameters point to. A
// kernel that follows pointers which it finds in memory, or uses variables or textures, has none.
type Touches struct {
	Accesses []Access
}

// Access is a use of memory by an address that is made from some of the 64-bit words of
// Launch.Params, by their number: a pointer, and maybe lengths that are added to it.
type Access struct {
	Words  []int
	Writes bool
}

// touchedWords is how many words of parameters can be written down as bits, and touchWrites the bit
// of an access that writes.
const (
	touchedWords = 60
	touchWrites  = 1 << 63
)

// Words is what a kernel touches as a number for each access: a bit for each word of the parameters, and the
// highest one if it writes. It is false if that is not known, or cannot be written so.
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

// TouchesOf reads what Words has written, of a kernel with so many bytes of parameters; nil if it
// cannot be that.
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
	Cluster     Dim    // of blocks that run together; zero: as the kernel was compiled
	// LargeCluster allows clusters of more blocks than every device has.
	LargeCluster bool
	// Guard restricts what memory the kernel uses; nil for none. Only devices with Info.Guards heed it.
	Guard *Guard
}

// Guard is what memory of the arena a launch is expected to use. Memory that is not of the arena may be
// used by all.
type Guard struct {
	// Ranges may be used. They are in the order of addresses, and none overlaps the next.
	Ranges []Arena
	// Trap is called before a thread uses memory of the arena that is in none of them, and returns a
	// range around the address that may be used from now on, or false: then that is a fault, as it is if
	// nothing is mapped there. The kernel stands still meanwhile; memory may be mapped and copied. It may
	// be called by several threads at a time. Where it is nil all memory may be used.
	Trap func(addr uint64) (Arena, bool)
	// Touched, if it is not nil, is told when the kernel has ended well which ranges it used, those that
	// Trap returned included.
	Touched func([]Arena)
}

// Dim is a size or a position in three dimensions.
type Dim struct{ X, Y, Z uint32 }
