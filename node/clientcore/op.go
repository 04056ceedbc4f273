package clientcore

import (
	"fmt"
	"strings"
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

// kind says of a kind of operation what scripts and logs call it, whether the core waits for its outcome,
// and what of an operation they show besides its place; nil: nothing.
type kind struct {
	name string
	asks bool
	show func(o *Op, put putter)
}

type putter = func(format string, args ...any)

// kinds is the table of all of them. What an executor does is in its own (node/worker/operations.go).
var kinds = [Kinds]kind{
	Reply:      {name: "reply", show: showReply},
	ReplyAfter: {name: "reply-after", show: showReplyAfter},
	Write:      {name: "write", show: func(o *Op, put putter) { put("%d bytes at %d", len(o.Data), o.Out.Offset) }},
	SetStatus:  {name: "status", show: showStatus},
	Tell:       {name: "tell", show: func(o *Op, put putter) { put("%q", o.Text) }},

	Say:        {name: "say", show: func(o *Op, put putter) { put("%s %+v", o.Message.Kind(), o.Message) }},
	WatchWaits: {name: "watch-waits", show: func(o *Op, put putter) { put("%v", o.On) }},

	Refused: {name: "refused", show: func(o *Op, put putter) { put("%d", o.Result) }},
	Commit:  {name: "commit"},

	HostIn:   {name: "host-in", show: showTo},
	HostOut:  {name: "host-out", show: func(o *Op, put putter) { put("%v to %d", o.From, o.Out.Offset) }},
	HostCopy: {name: "host-copy", show: func(o *Op, put putter) { put("%v to %v", o.From, o.To) }},
	HostFill: {name: "host-fill", show: showTo},
	Reserve:  {name: "reserve", show: showRoom},
	GiveBack: {name: "give-back", show: showRoom},

	MapHost:     {name: "map-host", show: showRange},
	UnmapHost:   {name: "unmap-host", show: showRange},
	CloseShared: {name: "close-shared", show: showRange},

	CopyIn:      {name: "copy-in", show: showStreamTo},
	CopyOut:     {name: "copy-out", show: func(o *Op, put putter) { put("stream %d %v to %d", o.Stream, o.From, o.Out.Offset) }},
	Copy:        {name: "copy", show: func(o *Op, put putter) { put("stream %d %v to %v", o.Stream, o.From, o.To) }},
	Fill:        {name: "fill", show: showStreamTo},
	Launch:      {name: "launch", show: showLaunch},
	RunGraph:    {name: "run-graph", show: func(o *Op, put putter) { put("stream %d graph %d, %d nodes", o.Stream, o.Graph, len(o.Run.Nodes)) }},
	After:       {name: "after", show: showAfter},
	Record:      {name: "record", show: showStreamEvent},
	Wait:        {name: "wait", show: showStreamEvent},
	Call:        {name: "call", show: func(o *Op, put putter) { put("stream %d cookie %d", o.Stream, o.Cookie) }},
	WriteWord:   {name: "write-word", show: func(o *Op, put putter) { put("stream %d %v value %d", o.Stream, o.Range, o.Word.Value) }},
	AwaitWord:   {name: "await-word", show: showAwaitWord},
	Settle:      {name: "settle", show: showStream},
	Drain:       {name: "drain"},
	LeaveStream: {name: "leave-stream", show: showStream},
	CloseEvent:  {name: "close-event", show: showEvent},
	Unload:      {name: "unload", show: showModule},
	SetLimit:    {name: "set-limit", show: func(o *Op, put putter) { put("%v", o.Limits) }},
	DropTexture: {name: "drop-texture", show: showTextures},
	DropGraph:   {name: "drop-graph", show: func(o *Op, put putter) { put("graph %d", o.Graph) }},
	Close:       {name: "close"},
	Abandon:     {name: "abandon"},
	HostReturn:  {name: "host-return", show: func(o *Op, put putter) { put("cookie %d", o.Cookie) }},
	HostDrop:    {name: "host-drop"},

	Query:      {name: "query", show: asked(func(o *Op, put putter) { put("streams %v", o.Streams) })},
	QueryEvent: {name: "query-event", show: asked(showEvent)},
	Elapsed:    {name: "elapsed", show: asked(func(o *Op, put putter) { put("from %v to %v", o.Start, o.End) })},
	Printed:    {name: "printed", show: asked(func(*Op, putter) {})},
	Occupancy:  {name: "occupancy", show: asked(showOccupancy)},
	SharedFor:  {name: "shared-for", show: asked(showSharedFor)},
	Clusters:   {name: "clusters", show: asked(showClusters)},
	Ask:        {name: "ask", show: asked(func(o *Op, put putter) { put("question %d, %d bytes", o.What, len(o.Params)) })},

	GoOn:         {name: "go-on", asks: true},
	Finish:       {name: "finish", asks: true},
	Inspect:      {name: "inspect", asks: true, show: showImage},
	Open:         {name: "open", asks: true, show: showOpen},
	Load:         {name: "load", asks: true, show: showModule},
	Describe:     {name: "describe", asks: true, show: func(o *Op, put putter) { put("%s of module %d", o.Name, o.Module) }},
	Link:         {name: "link", asks: true, show: showImage},
	MakeTextures: {name: "make-textures", asks: true, show: showTextures},
	Move:         {name: "move", asks: true, show: showPlan},
	Leave:        {name: "leave", asks: true, show: showPlan},
	Backup:       {name: "backup", asks: true, show: showPlan},
	MakeShared:   {name: "make-shared", asks: true, show: showRange},
	Share:        {name: "share", asks: true, show: showShare},
	OpenShared:   {name: "open-shared", asks: true, show: showRange},

	MakeRoom: {name: "make-room", asks: true},
	Refill:   {name: "refill", asks: true, show: showPlan},
}

func (k Kind) String() string {
	if k < Kinds {
		return kinds[k].name
	}
	return fmt.Sprintf("operation %d", uint8(k))
}

// Asks says whether the core waits for the operation's outcome.
func (k Kind) Asks() bool { return k < Kinds && kinds[k].asks }

// Op is an operation for the executor. Fields that its kind does not name are zero.
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

	Slot    int
	Result  Result
	Payload []byte
	Text    string

	Stream, Other, Event uint32
	Streams              []uint32
	Events               []uint32
	Start, End           Moment
	Cookie               uint64

	Range    vmm.Range
	Ranges   []vmm.Range
	Share    Name
	To, From Area
	Data     []byte
	Out      Span
	Value    uint32
	Width    int
	Word     Word

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

func (m Moment) String() string {
	return fmt.Sprintf("{Event:%d Pending:%v At:%v}", m.Event, m.Pending, m.At)
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

func (a Area) String() string {
	if a.Dense() {
		return fmt.Sprintf("%#x+%#x", a.Addr, a.Width*a.Height)
	}
	return fmt.Sprintf("%#x+%dx%d/%d", a.Addr, a.Height, a.Width, a.Pitch)
}

// String describes the operation, for scripts and logs.
func (o *Op) String() string {
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	b.WriteString(o.Kind.String())
	if o.Place != vmm.Host {
		put("%v", o.Place)
	}
	if o.Kind < Kinds && kinds[o.Kind].show != nil {
		kinds[o.Kind].show(o, put)
	}
	return b.String()
}

// asked is show for a question, which names the slot of its answer first.
func asked(show func(o *Op, put putter)) func(o *Op, put putter) {
	return func(o *Op, put putter) {
		put("slot %d", o.Slot)
		show(o, put)
	}
}

func showReply(o *Op, put putter) {
	put("slot %d", o.Slot)
	put("result %d", o.Result)
	if len(o.Payload) > 0 {
		put("%x", o.Payload)
	}
}

func showReplyAfter(o *Op, put putter) {
	put("slot %d", o.Slot)
	switch {
	case o.All:
		put("all")
	case o.OfEvent:
		put("event %d", o.Event)
	default:
		put("stream %d", o.Stream)
	}
	put("result %d", o.Result)
}

func showStatus(o *Op, put putter) {
	put("%d", o.Result)
	if o.Text != "" {
		put("%q", o.Text)
	}
}

func showTo(o *Op, put putter) { put("%v", o.To) }

func showRange(o *Op, put putter) { put("%v", o.Range) }

func showStream(o *Op, put putter) { put("stream %d", o.Stream) }

func showStreamTo(o *Op, put putter) { put("stream %d %v", o.Stream, o.To) }

func showEvent(o *Op, put putter) { put("event %d", o.Event) }

func showModule(o *Op, put putter) { put("module %d", o.Module) }

func showImage(o *Op, put putter) { put("%d bytes", len(o.Image)) }

func showRoom(o *Op, put putter) {
	if o.All {
		put("all")
	} else {
		put("%v", o.Range)
	}
}

func showLaunch(o *Op, put putter) {
	put("stream %d function %d (%s) of module %d, %v blocks of %v", o.Stream, o.Function, o.Name, o.Module, o.How.Grid, o.How.Block)
}

func showAfter(o *Op, put putter) {
	put("stream %d after %d", o.Stream, o.Other)
	showOrigin(o, put)
}

func showStreamEvent(o *Op, put putter) {
	put("stream %d event %d", o.Stream, o.Event)
	showOrigin(o, put)
}

func showOrigin(o *Op, put putter) {
	if o.Origin != vmm.Host {
		put("at %v", o.Origin)
	}
}

func showAwaitWord(o *Op, put putter) {
	put("stream %d %v value %d compare %d cookie %d", o.Stream, o.Range, o.Word.Value, o.Word.Compare, o.Cookie)
}

func showTextures(o *Op, put putter) {
	for _, t := range o.Textures {
		put("handle %d", t.Handle)
	}
}

func showOccupancy(o *Op, put putter) {
	put("function %d (%s) of module %d, %d threads, %d bytes", o.Function, o.Name, o.Module, o.Threads, o.Shared)
}

func showSharedFor(o *Op, put putter) {
	put("function %d (%s) of module %d, %d blocks of %d threads", o.Function, o.Name, o.Module, o.Blocks, o.Threads)
}

func showClusters(o *Op, put putter) {
	put("function %d (%s) of module %d, %v blocks of %v threads in clusters of %v", o.Function, o.Name, o.Module, o.How.Grid, o.How.Block, o.How.Cluster)
}

func showOpen(o *Op, put putter) {
	for _, m := range o.Modules {
		verb := "with"
		if m.Unload {
			verb = "without"
		}
		put("%s module %d", verb, m.Module)
	}
}

func showShare(o *Op, put putter) {
	put("%v", o.Range)
	showSteps(o, put)
}

func showPlan(o *Op, put putter) {
	if o.Shut {
		put("for good")
	}
	if o.Part {
		put("in part")
	}
	showSteps(o, put)
	if len(o.Events) > 0 {
		put("events %v", o.Events)
	}
}

func showSteps(o *Op, put putter) {
	for _, step := range o.Plan {
		put("[%v]", step)
	}
}
