package clientcore

import (
	"fmt"
	"strings"
	"testing"

	"muster/vmm"
)

// How scripts write operations.

// kind says what scripts call a kind of operation, and what of an operation they show besides its place; nil:
// nothing.
type kind struct {
	name string
	show func(o *Op, put putter)
}

type putter = func(format string, args ...any)

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

	GoOn:         {name: "go-on"},
	Finish:       {name: "finish"},
	Inspect:      {name: "inspect", show: showImage},
	Open:         {name: "open", show: showOpen},
	Load:         {name: "load", show: showModule},
	Describe:     {name: "describe", show: func(o *Op, put putter) { put("%s of module %d", o.Name, o.Module) }},
	Link:         {name: "link", show: showImage},
	MakeTextures: {name: "make-textures", show: showTextures},
	Move:         {name: "move", show: showPlan},
	Leave:        {name: "leave", show: showPlan},
	Backup:       {name: "backup", show: showPlan},
	MakeShared:   {name: "make-shared", show: showRange},
	Share:        {name: "share", show: showShare},
	OpenShared:   {name: "open-shared", show: showRange},

	MakeRoom: {name: "make-room"},
	Refill:   {name: "refill", show: showPlan},
}

func (k Kind) String() string {
	if k < Kinds {
		return kinds[k].name
	}
	return fmt.Sprintf("operation %d", uint8(k))
}

// String describes the operation.
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

func (a Area) String() string {
	if a.Dense() {
		return fmt.Sprintf("%#x+%#x", a.Addr, a.Width*a.Height)
	}
	return fmt.Sprintf("%#x+%dx%d/%d", a.Addr, a.Height, a.Width, a.Pitch)
}

func (m Moment) String() string {
	return fmt.Sprintf("{Event:%d Pending:%v At:%v}", m.Event, m.Pending, m.At)
}

func TestEveryKindHasAName(t *testing.T) {
	for k := range Kinds {
		if kinds[k].name == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
}
