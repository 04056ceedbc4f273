package device

import (
	"os"
	"time"
)

// DeviceCan is what a device can do beside what every device can. A function that is nil says "cannot": its
// caller must have another way. So it is with contexts and streams. A backend embeds these structs, fills them in
// when it makes the object and changes nothing afterwards; who wraps an object passes on what it can wrap.
type DeviceCan struct {
	// Inspect lists what an image holds without a context. On other devices the caller must load the image
	// to find out.
	Inspect func(image []byte) (ImageInfo, error)
	// Prepare makes a context, which takes the device's memory as others do, and which the next Open
	// completes: most of a context that takes long to make can be made before it is known for whom. Host
	// memory that the context will use, if any is given, is pinned there if that is possible.
	Prepare func(host []byte) error
	// Discard closes the context that Prepare made, unless an Open has taken it.
	Discard func() error
	// LoadAt is Load into a context of this device, with the variables at the addresses in globals, which
	// Module.Globals returned earlier: ErrInvalidValue if the addresses are not free, or if the image has
	// other variables. On other devices variables get the same addresses only if the same images are
	// loaded and unloaded in the same order.
	LoadAt func(c Context, image []byte, globals []Global) (Module, error)
	// NewGraph makes a graph in a context of the device: many kernels, copies and fills with dependencies
	// between them as one piece of work. A launch of the whole costs less per node than submitting the
	// nodes one by one. Each node comes after all nodes that it depends on. NewGraph refuses nodes that the
	// device cannot have in a graph. Before is nil, or the graph that the new one replaces: if the two
	// differ little, the device may turn it into the new one. In either case the caller must close before
	// and must not launch it any more.
	NewGraph func(c Context, nodes []GraphNode, before Graph) (Graph, error)
}

// Can is the device's method where the struct is embedded.
func (c *DeviceCan) Can() *DeviceCan { return c }

// ContextCan is what a context can do beside what every context can.
type ContextCan struct {
	// Self is the context as its own device knows it, whatever is wrapped around it; nil if no stream can
	// copy from it (StreamCan.CopyFrom).
	Self Context
	// SetLimit sets the limit with CUDA's number limit (CUlimit) on what kernels do by themselves, such as
	// the size of their heap. Kernels that were submitted before the call may run with the old or the new
	// value.
	SetLimit func(limit int, value uint64) error
	// NewStreamOf is NewStream with a priority as in CUDA: a lower number goes first.
	NewStreamOf func(priority int) (Stream, error)
	// Ask answers one of the questions below, which only a driver can: ErrInvalidValue where the driver
	// refuses the arguments in about.
	Ask func(what int, about []byte) ([]byte, error)
	// MapHost lets kernels read and write host memory, with atomics too, at the address that it has in this
	// process: ErrNotSupported where the device cannot. Address and length are multiples of 4096. The
	// memory must stay mapped in this process until the caller has called unmap or closed the context.
	MapHost func(host []byte) (unmap func() error, err error)
	// NewShared makes size bytes of memory that several processes share, each at its own address; size is
	// a multiple of the granularity. Such memory belongs to no device: every context that maps it, on any
	// device of the machine, reaches the same bytes. It exists until no context maps it and all its files
	// are closed. Any process that is passed the file can map it.
	NewShared func(size uint64) (*os.File, error)
	// MapShared maps all of the file's memory at addr, as Map does. The caller must unmap it as a whole, in
	// a single Unmap of this range. The caller keeps the file.
	MapShared func(addr, size uint64, f *os.File) error
	// NewTexture makes a texture or a surface, through which kernels read, or read and write, memory, and
	// returns its handle, the number that kernels use. The handle is wanted, or the device's choice if
	// wanted is 0. A device that cannot assign the wanted handle answers ErrNotSupported. The memory need
	// be mapped only while kernels use the texture.
	//
	// The contents of an array are memory of the context, in rows without gaps (see ArrayLevel): the caller
	// maps, copies and moves it like any other memory. A device whose hardware needs arrays in another
	// layout keeps an array of its own beside that memory, and updates one from the other when the memory
	// is copied to or from.
	NewTexture func(t Texture, wanted uint64) (handle uint64, err error)
	// DropTexture destroys a texture or a surface. Textures and surfaces may be numbered separately, so the
	// caller says which it means. All work that uses it must have ended.
	DropTexture func(handle uint64, surface bool) error
	// Know replaces the list of allocations, where the memory accesses of kernels are checked: the device
	// itself knows only what is mapped, and would miss an access beyond an allocation that still hits
	// mapped memory. The caller must call it before kernels use memory that is new in the list, and must
	// not make two calls at the same time.
	Know func(allocated []Arena)
}

// Can is the context's method where the struct is embedded.
func (c *ContextCan) Can() *ContextCan { return c }

// Questions to a driver.
const (
	// AskTopology asks how the multiprocessors are grouped. The answer has one byte for each
	// pair of multiprocessors, then one for each multiprocessor; only NVIDIA's libraries
	// interpret them.
	AskTopology = 1 + iota
	// AskTiled and AskIm2col ask for the descriptor of a tensor. The arguments are those of
	// the program, encoded as TensorMap in device/cuda/driver.h.
	AskTiled
	AskIm2col
	// AskReplaced asks for a copy of a descriptor with another address. The arguments are the
	// descriptor, followed by the address.
	AskReplaced
)

// StreamCan is what a stream can do beside what every stream can.
type StreamCan struct {
	// CopyTaken is Stream.CopyIn, but all of src has been read when it returns.
	CopyTaken func(dst uint64, src []byte) error
	// CopyInKept is Stream.CopyIn, after which keep holds what the device has at dst then: it sends back
	// what it receives while more arrives. Both are of the same size and stay in use until the stream has
	// done it, and so does dst for all but this stream. It returns ErrNotSupported, and does nothing, if
	// one of them is not pinned.
	CopyInKept func(dst uint64, src, keep []byte) error
	// CopyFrom is CopyIn with memory of another context of this process as the source, without a buffer in
	// host memory: ErrNotSupported unless that context is on a device with the same Info.Peers. Until the
	// copy has ended, the caller must keep all work from writing the source memory, must not unmap it, and
	// must not close the other context.
	CopyFrom func(dst uint64, from Context, src, size uint64) error
	// WriteWord and WaitWord write, and wait for, a word of 4 or 8 bytes in device memory or in host memory
	// that kernels reach (ContextCan.MapHost). The address is a multiple of the width. Both are work in
	// the order of the stream: they begin when the work submitted before has ended, and work submitted
	// later waits for them. WriteWord writes atomically. WaitWord waits until c.Holds(word, value, width);
	// work of other streams goes on meanwhile.
	WriteWord func(addr uint64, width int, value uint64) error
	WaitWord  func(addr uint64, width int, value uint64, c Compare) error
	// LaunchLater is Launch, but may only hand the launch to a thread of the backend, so that the caller
	// does not wait for the driver; it then returns later true and the launch's number, counted from 0 in
	// each context. All other calls behave as if a queued launch had been made. The one difference is that
	// the driver can still refuse it; Refused reports that. More says that the caller expects to make
	// another launch at once.
	LaunchLater func(f Function, l Launch, more bool) (number uint64, later bool, err error)
	// Refused waits until the driver has been given every launch that streams of the context have queued
	// so far. It returns the launches that the driver has refused since the last call of Refused, in their
	// order.
	Refused func() []Refusal
	// Notify arranges that f is called when all work submitted before has ended, where Call is an
	// expensive way to learn that: a stream on another node waits for a round trip while Call runs its
	// function. Later work does not wait for f. f must be quick and must not call the device. It is not
	// called if the context ends first.
	Notify func(f func()) error
	// Hold makes later work wait until the function is called that it gives to given, on whatever
	// goroutine, once or more often. It takes none of the driver's threads: NVIDIA's driver has one for the
	// functions of all streams of a context (Call), so a function that waits on it keeps those of all other
	// streams from being called, and copies that need one from ending. Hold calls given before later work
	// can be held, since submitting may take until then; if it then returns an error, nothing is held, and
	// it has called given again with a function that does nothing. The holds of a stream are released in
	// the order in which they were made, or all of them. Closing the context releases all.
	Hold func(given func(release func())) error
	// Time arranges that f is called at the end of each copy, fill and kernel submitted from now on, with
	// the times at which the device began and ended it, and the bytes that it copied or filled. On other
	// streams the caller can only record events around the work. Work that ends in a fault is not reported.
	// f must be quick and must not call the device; nil stops the reports. Time is not synchronised: the
	// goroutine that submits work to the stream must be the one that calls it.
	Time func(f func(begin, end time.Time, bytes uint64))
}

// Can is the stream's method where the struct is embedded.
func (c *StreamCan) Can() *StreamCan { return c }

// Watched is what streams and events embed for Watch.
type Watched struct {
	// DoneWithin is what Watch returns.
	DoneWithin func(limit time.Duration) (bool, error)
}

// Watch returns DoneWithin.
func (w *Watched) Watch() func(limit time.Duration) (bool, error) { return w.DoneWithin }

// Refusal is a launch that LaunchLater queued and the driver then refused.
type Refusal struct {
	Number uint64
	Err    error
}
