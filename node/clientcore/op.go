package clientcore

import (
	"fmt"
	"time"

	"muster/device"
	"muster/vmm"
	"muster/wire/control"
)

// Kind says what an operation does.
type Kind uint8

// Operations. Those on devices name a place, and the streams, events, modules and functions there
// by the client's numbers. The executor creates streams and events when they are first named in a
// context.
const (
	// To the program.
	Reply      Kind = iota // answer the call in Slot with Result and Payload
	ReplyAfter             // the same once Stream, or all streams if All, or Event if OfEvent, has completed what was submitted so far
	Write                  // put Data at Out.Offset of the data arena
	SetStatus              // every later call fails with Result, and Text tells the program's user why; 0 begins a new world
	Tell                   // Text is for the program's user, before the results that come after it
	// To the daemon.
	Say        // Message
	WatchWaits // On: from now on the ends of waits for replies are of interest
	// To the worker that rebuilds the client if this executor dies.
	Refused // the message was refused with Result
	Commit  // Base is the client as it is now, with the host copies as they are
	// On the host copies.
	HostIn   // from Data to To
	HostOut  // from From to Out of the data arena
	HostCopy // from From to To
	HostFill // To with Value of Width bytes
	Reserve  // room for the allocation Range, before anything is written there
	GiveBack // the room of the allocation Range, or of all of them if All
	// On the program's memory.
	MapHost   // let the kernels of all contexts, now and later, access Out of the data arena at Range
	UnmapHost // end that
	// On memory shared with other clients.
	CloseShared // unmap Range, the memory named Share, from all contexts
	// On a device. They only submit work, except Settle and Drain.
	CopyIn      // from Data to To, on Stream; Staged: the data are in staging memory
	CopyOut     // from From to Out of the data arena, on Stream
	Copy        // from From to To, on Stream
	Fill        // To with Value of Width bytes, on Stream
	Launch      // Function of Module, on Stream
	RunGraph    // all nodes of Run, which is made of Graph, on Stream
	After       // later work of Stream waits for what Other, at Origin, was given so far
	Record      // let Event stand for what Stream was given so far
	Wait        // later work of Stream waits for Event, at Origin
	Call        // the host function with Cookie, on Stream
	WriteWord   // Word at Range, on Stream
	AwaitWord   // later work of Stream waits for Word at Range; then Cookie is met
	Settle      // wait until Stream has completed its work
	Drain       // wait until all work at Place has ended
	LeaveStream // Stream gets no more work; what it has may end
	CloseEvent  // Event is no longer used
	Unload      // Module, with its functions
	SetLimit    // Limits
	DropTexture // Textures, of which only the handles count
	DropGraph   // what was built of Graph
	Close       // the context, with everything in it
	Abandon     // the same on a lost device, which cannot be asked
	HostReturn  // the host function with Cookie has returned: its stream goes on
	HostDrop    // release all streams that wait for host functions
	// Questions to the device, answered to Slot.
	Query      // are Streams done, each at its place of At?
	QueryEvent // is Event done?
	Elapsed    // time from Start to End
	Printed    // what kernels have printed, to Out
	Occupancy  // of Function, with Threads and Shared
	SharedFor  // Function, with Threads and Blocks
	Clusters   // of Function, launched as in How
	Ask        // What of the driver, about Params, to Out
	// Operations that ask: see the package comment.
	GoOn         // nothing; the operations so far are to be performed first
	Finish       // wait until all work at all places has ended, however it ends
	Inspect      // what does Image hold?
	Open         // a context at Place with Limits, and with Modules loaded and their contents restored; Anew: the first one in this process
	Load         // Image as Module; with its variables where Globals says, unless that is nil
	Describe     // what are the attributes of kernel Name of Module?
	Link         // link the images in Image into one, or only check them if On
	MakeTextures // Textures; report the handle of the last
	Move         // Plan, once all work on the devices it names has ended
	Leave        // Drain, Plan, report the times of Events; if Shut, report the contents of Modules and close
	Backup       // Drain all places, Plan, report the times of Events (each at its place of At) and the contents of Modules; everything stays
	MakeShared   // memory of the size of Range, which others find under the name that is reported
	Share        // Drain, Plan, and map the memory named Share at Range in all contexts, with the contents of the host copies of Ranges
	OpenShared   // map another client's memory, named Share, at Range in all contexts
	// Of Replace: they concern the client that replaces this one.
	MakeRoom // room for its allocations, in addition to the present ones
	Refill   // Plan, then the host copies of its memory
	Kinds    // how many there are
)

// Asks says whether the core waits for the operation's outcome.
func (k Kind) Asks() bool { return k >= GoOn && k < Kinds }

// Op is an operation for the executor. Its many fields are those of all kinds: each kind has the few that
// its comment names, and the others are zero. They are one struct because the list of an event is made in
// the place of the last one's, without an allocation: a launch is written in 65 ns, of which most is the zeros.
// With a struct for each kind, behind an interface, it takes 400 ns and an allocation of 160 bytes.
type Op struct {
	Kind    Kind
	All     bool // ReplyAfter: all streams
	OfEvent bool // ReplyAfter: Event
	Staged  bool // CopyIn
	On      bool // WatchWaits, Link; Share: give back the room of Ranges
	Shut    bool // Leave
	Part    bool // Leave, Move: another one follows, with the rest of the client's memory
	Once    bool // Call: from here on the client cannot be rebuilt
	Place   vmm.Place
	Origin  vmm.Place   // After, Wait: the place of Other or Event; vmm.Host stands for Place
	At      []vmm.Place // Query, Backup: the places of Streams or Events; nil stands for Place

	// To the program.
	Slot    int
	Result  Result
	Payload []byte
	Text    string

	// Streams, events and functions of the program.
	Stream, Other, Event uint32
	Streams              []uint32
	Events               []uint32
	Start, End           Moment
	Cookie               uint64

	// Memory.
	Range    vmm.Range
	Ranges   []vmm.Range
	Share    Name
	To, From Area
	Data     []byte
	Out      Span
	Value    uint32
	Width    int
	Word     Word

	// Modules, kernels, textures and graphs.
	Module   uint64
	Function uint32
	Name     string
	How      device.Launch
	Threads  int
	Blocks   int
	Shared   uint64
	Image    []byte
	Globals  []device.Global
	Modules  []Loaded
	Limits   map[uint32]uint64
	Anew     bool
	Textures []Textured
	What     int
	Params   []byte
	Plan     vmm.Plan
	Now      bool     // Move: do not wait for running work
	Guard    *Guarded // Launch: how it is watched or guarded; nil: not at all
	Ticket   uint64   // Launch: report its run time with Ran; 0: no report
	Graph    uint32   // the graph's number
	Run      *Run     // what the graph does

	// To the daemon, and to the worker that rebuilds the client.
	Message control.ToDaemon
	Base    *Base
}

// Word is the value that a word in memory gets, or is compared with.
type Word struct {
	Value   uint64
	Compare device.Compare
}

// Span is a part of the data arena.
type Span struct{ Offset, Length uint64 }

// Moment is a point in time: of an event that a context knows, or one that the core knows.
type Moment struct {
	Event   uint32
	Pending bool
	At      Time
	Place   vmm.Place // of the context
}

// Loaded is a module of a context that is to be opened, in the order of loading.
type Loaded struct {
	Module  uint64
	Image   []byte
	Globals []device.Global // where its variables must be
	Saved   [][]byte        // their contents; nil: as in the image
	Unload  bool            // unload it again: it only affects where others are placed
}

// Outcome is how the last operation that was performed has ended. The fields besides Err are for
// operations that ask.
type Outcome struct {
	Err error

	Known     bool                  // Inspect: the device could tell
	Info      device.ImageInfo      // Inspect
	Globals   []device.Global       // Load
	Functions []device.FunctionInfo // Load: their names, and more if known; Describe: one
	Image     []byte                // Link
	Handle    uint64                // MakeTextures: of the last
	Name      Name                  // MakeShared
	Times     []Time                // Leave, Backup: of Events
	Took      Time                  // Open, Move; Leave: after running work had ended
	Legs      []Leg                 // Move: what was copied, by device
	Saved     map[uint64][][]byte   // Leave with Shut, Backup: contents of variables, by module
}

// Leg is one device's part in a move, and how long it took after all work there had ended.
type Leg struct {
	Place vmm.Place
	Bytes uint64
	Took  Time
}

// Time is the time since the client began.
type Time = time.Duration

// Area is memory in rows: Height rows of Width bytes, Pitch bytes apart.
type Area struct{ Addr, Pitch, Width, Height uint64 }

func line(addr, size uint64) Area { return Area{addr, size, size, 1} }

// Span returns the range from the first to the last byte; empty if there are none.
func (a Area) Span() (vmm.Range, error) {
	if a.Width == 0 || a.Height == 0 {
		return vmm.Range{}, nil
	}
	const most = 1 << 48
	if a.Pitch < a.Width && a.Height > 1 || a.Pitch > most || a.Width > most || a.Height > most/max(a.Pitch, 1) {
		return vmm.Range{}, fmt.Errorf("%d rows of %d bytes, %d bytes apart: %w", a.Height, a.Width, a.Pitch, device.ErrInvalidValue)
	}
	return vmm.Range{Addr: a.Addr, Size: (a.Height-1)*a.Pitch + a.Width}, nil
}

// Dense says whether the area is contiguous.
func (a Area) Dense() bool { return a.Pitch == a.Width || a.Height == 1 }

// Rows calls f for each row, or once for all if they are contiguous. Offset is the position of the
// row's bytes in memory without gaps.
func (a Area) Rows(f func(addr, offset, size uint64) error) error {
	if a.Dense() {
		return f(a.Addr, 0, a.Width*a.Height)
	}
	for i := range a.Height {
		if err := f(a.Addr+i*a.Pitch, i*a.Width, a.Width); err != nil {
			return err
		}
	}
	return nil
}
