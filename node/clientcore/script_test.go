package clientcore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"muster/device"
	"muster/internal/scripts"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// Scripts are text: an event, ----, the operations that came of it, and an empty
// line. Only record anew what you understand. Numbers may end in M (2^20).
//
//	client DEVICES [puts] [limited] [guest] [far] [graphs] [defer]   begin with so many devices of 64M, whose contexts take 1M;
//	                                limited: the client may allocate 8M; guest: it is another node;
//	                                far: the first device is another node's; graphs: they run graphs
//	alloc OFFSET SIZE               messages of the client; offsets are in its arena, or "nowhere".
//	chunks OFFSET SIZE | unchunk OFFSET SIZE   a guest's memory
//	place MODULE ADDRESS            where a guest's module v0 is to be
//	free OFFSET                     Calls are answered in slot 1
//	in OFFSET SIZE [STREAM]
//	out OFFSET SIZE [STREAM]
//	fill OFFSET SIZE [STREAM]       with bytes 7
//	load MODULE [VARIABLES]         the image is sent, and loaded with so many variables; of
//	                                modules from 100 on only a device can tell what they hold
//	                                the kernel of module 50 calls malloc
//	unload MODULE | log MODULE | limit NUMBER VALUE
//	function MODULE                 kernel k as function number MODULE
//	launch FUNCTION [STREAM]        with a parameter that points to the arena's begin
//	stream N [apart] | event N | record EVENT STREAM | wait STREAM EVENT
//	sync [STREAM] | elapsed FROM TO | query STREAM
//	call STREAM COOKIE | next [SLOT] | returned COOKIE [meanwhile] | reached COOKIE
//	write STREAM OFFSET VALUE | await STREAM OFFSET VALUE COOKIE | met COOKIE
//	share OFFSET SIZE | named SECRET | import OFFSET SIZE SECRET
//	texture OFFSET [surface]        of 64 by 64 elements of 4 bytes | untexture HANDLE [surface]
//	define GRAPH [more] STEP ; ...  a graph, or with more a part of it; - is the stream that it is launched in:
//	                                launch FUNCTION STREAM | fill OFFSET SIZE STREAM | copy TO FROM SIZE STREAM |
//	                                record EVENT STREAM | wait STREAM EVENT | bad
//	graph GRAPH STREAM | undefine GRAPH
//	reset | syncpoint
//	grant DEVICE MEMORY LEASE | deny WHY | revoke WHY | lost DEVICE | watch on|off
//	committed BYTES yes|no
//	adopted                         by another daemon
//	add DEVICE [puts]               a device of 128M comes
//	done                            the operation that asks has ended well
//	made HANDLE                     ... and the texture that it made has this handle
//	failed fault|moved|memory|ptx|handle   the last operation has not
//	failed-before                   the operation before the one that asks has not, for want of memory
//	found                           somebody who waited came upon a fault
//	passing | last                  an operation takes long; the client ends
//	observe quiet|busy | at TIME    the time is said in milliseconds
//	room BYTES                      that the daemon has committed; a GiB at first
//	saved                           go on from what Save wrote
//	fold                            make a base
//	rebuilt                         go on from the last base, which another executor was given
//	detach                          leave the device, for a checkpoint
//	point [whole]                   keep what SavePoint writes; whole: what Save does
//	replace [whole] | unpark        by what was kept; "reserves" is a word of client for MakeRoom
//	answered SLOT...                ... where the program got functions to call since the base
//	leased LEASE                    ... which the daemon has granted since
//	equip DEVICES [puts]            ... with so many devices, those that it does not know of 128M
//	refused-before RESULT [SLOT]    a message that was refused when it was handled first, again
//	waiting                         where the program waits for functions to call, and what every call answers
func TestScripts(t *testing.T) {
	scripts.Run(t, func(t *testing.T, text string) string {
		s := &script{t: t}
		return scripts.Answer(text, s.run)
	})
}

const (
	scriptBase = 1 << 32
	scriptMiB  = 1 << 20
)

// script is a client whose executor is a person.
type script struct {
	t    testing.TB
	core *Core
	now  Time
	last *Op // that asks, or was performed last
	base *Base

	variables map[uint32]int // of the module that is loaded
	next      uint64         // address of the next variable
	placed    map[uint64][]device.Global
	point     []byte
}

func (s *script) number(word string) uint64 {
	digits, mega := strings.CutSuffix(word, "M")
	n, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	if mega {
		n *= scriptMiB
	}
	return n
}

// run performs one event and returns what came of it.
func (s *script) run(words []string) string {
	if words[0] == "waiting" {
		return fmt.Sprintf("slots %v, lease %d, result %d\n", s.core.WaitingSlots(), s.core.Lease.Number, s.core.Result())
	}
	ops, err := s.event(words)
	var b strings.Builder
	for i := range ops {
		fmt.Fprintln(&b, ops[i].String())
	}
	if err != nil {
		fmt.Fprintf(&b, "the client ends: %v\n", err)
	}
	if n := len(ops); n > 0 {
		last := ops[n-1]
		s.last = &last
	}
	for i := range ops {
		if ops[i].Kind == Commit {
			s.base = ops[i].Base
			s.checkBase()
		}
	}
	if s.core != nil && s.core.Waits() && !s.core.asking {
		fmt.Fprintln(&b, "... waits")
	}
	return b.String()
}

// checkBase holds a base to this: the client that is made of it has the same one.
func (s *script) checkBase() {
	s.t.Helper()
	core, err := RestoreBase(*s.base, noMemory)
	if err != nil {
		s.t.Fatal(err)
	}
	again, err := core.base(nil, Outcome{})
	if err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Equal(again.Client, s.base.Client) || !slices.EqualFunc(again.Blobs, s.base.Blobs, bytes.Equal) {
		s.t.Errorf("a base that was restored makes another one:\n%s\nwas\n%s", again.Client, s.base.Client)
	}
}

func (s *script) event(words []string) ([]Op, error) {
	arg := func(i int) uint64 {
		if i >= len(words) {
			return 0
		}
		return s.number(words[i])
	}
	at := func(i int) uint64 { return scriptBase + arg(i) }
	switch words[0] {
	case "client":
		s.begin(words[1:])
		return nil, nil
	case "room":
		s.core.Committed = arg(1)
		return nil, nil
	case "at":
		s.now = Time(arg(1)) * 1e6
		return nil, nil
	case "alloc":
		if words[1] == "nowhere" {
			return s.call(&wire.MemAlloc{Size: arg(2)})
		}
		return s.call(&wire.MemAlloc{Addr: at(1), Size: arg(2)})
	case "chunks":
		return s.call(&wire.MemMap{Addr: at(1), Size: arg(2)})
	case "unchunk":
		return s.send(&wire.MemUnmap{Addr: at(1), Size: arg(2)}, wire.Header{Slot: -1}, nil)
	case "place":
		return s.send(&wire.ModulePlace{Module: uint32(arg(1))}, wire.Header{Slot: -1}, placesOf(device.Global{Name: "v0", Address: arg(2), Size: 4}))
	case "free":
		return s.send(&wire.MemFree{Addr: at(1)}, wire.Header{Slot: -1}, nil)
	case "map":
		return s.call(&wire.HostMap{Addr: arg(1), Offset: arg(2), Size: arg(3)})
	case "unmap":
		return s.send(&wire.HostUnmap{Addr: arg(1)}, wire.Header{Slot: -1}, nil)
	case "share":
		return s.call(&wire.MemShare{Addr: at(1), Size: arg(2)})
	case "import":
		return s.call(&wire.MemImport{Addr: at(1), Size: arg(2), A: 1, B: 2, C: 3, D: arg(3)})
	case "named":
		return s.core.Outcome(s.now, s.last, Outcome{Name: Name{1, 2, 3, arg(1)}})
	case "write":
		return s.send(&wire.StreamWrite{Stream: uint32(arg(1)), Addr: at(2), Value: arg(3), Width: 4}, wire.Header{Slot: -1}, nil)
	case "await":
		return s.send(&wire.StreamAwait{Stream: uint32(arg(1)), Addr: at(2), Value: arg(3), Width: 8, Compare: 1, Cookie: arg(4)}, wire.Header{Slot: -1}, nil)
	case "met":
		return s.core.Met(s.now, arg(1))
	case "in":
		return s.send(&wire.CopyIn{Dst: at(1), Stream: uint32(arg(3))}, wire.Header{Slot: -1, Length: arg(2), Release: 1}, make([]byte, arg(2)))
	case "out":
		return s.send(&wire.CopyOut{Src: at(1), Stream: uint32(arg(3))}, wire.Header{Slot: 1, Length: arg(2)}, nil)
	case "fill":
		return s.send(&wire.Fill{Dst: at(1), Stream: uint32(arg(3)), Value: 7, Width: 1, Count: arg(2), Height: 1}, wire.Header{Slot: -1}, nil)
	case "within":
		return s.send(&wire.CopyWithin{Dst: at(1), Src: at(2), Size: arg(3), Stream: uint32(arg(4))}, wire.Header{Slot: -1}, nil)
	case "load":
		return s.load(uint32(arg(1)), int(arg(2)))
	case "log":
		return s.send(&wire.ModuleLog{Module: uint32(arg(1))}, wire.Header{Slot: 1, Length: 4096}, nil)
	case "unload":
		return s.send(&wire.ModuleUnload{Module: uint32(arg(1))}, wire.Header{Slot: -1}, nil)
	case "function":
		return s.send(&wire.ModuleFunction{Module: uint32(arg(1)), Function: uint32(arg(1)), Name: "k"}, wire.Header{Slot: 1, Length: 64}, nil)
	case "launch":
		return s.send(&wire.Launch{Function: uint32(arg(1)), Stream: uint32(arg(2)), GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1,
			Params: binary.LittleEndian.AppendUint64(nil, scriptBase>>32<<32|uint64(uint32(arg(3))))}, wire.Header{Slot: -1}, nil)
	case "limit":
		return s.send(&wire.Limit{Limit: uint32(arg(1)), Value: arg(2)}, wire.Header{Slot: -1}, nil)
	case "define":
		return s.send(s.definition(words), wire.Header{Slot: -1}, nil)
	case "graph":
		return s.send(&wire.GraphLaunch{Graph: uint32(arg(1)), Stream: uint32(arg(2))}, wire.Header{Slot: -1}, nil)
	case "undefine":
		return s.send(&wire.GraphDestroy{Graph: uint32(arg(1))}, wire.Header{Slot: -1}, nil)
	case "stream":
		return s.send(&wire.StreamCreate{Stream: uint32(arg(1)), Flags: flag(len(words) > 2)}, wire.Header{Slot: -1}, nil)
	case "destroy":
		return s.send(&wire.StreamDestroy{Stream: uint32(arg(1))}, wire.Header{Slot: -1}, nil)
	case "event":
		return s.send(&wire.EventCreate{Event: uint32(arg(1))}, wire.Header{Slot: -1}, nil)
	case "record":
		return s.send(&wire.EventRecord{Event: uint32(arg(1)), Stream: uint32(arg(2))}, wire.Header{Slot: -1}, nil)
	case "wait":
		return s.send(&wire.StreamWait{Stream: uint32(arg(1)), Event: uint32(arg(2))}, wire.Header{Slot: -1}, nil)
	case "sync":
		if len(words) > 1 {
			return s.call(&wire.StreamSynchronise{Stream: uint32(arg(1))})
		}
		return s.call(&wire.Synchronise{})
	case "query":
		return s.call(&wire.StreamQuery{Stream: uint32(arg(1))})
	case "elapsed":
		return s.call(&wire.EventElapsed{Start: uint32(arg(1)), End: uint32(arg(2))})
	case "call":
		return s.send(&wire.HostFunction{Stream: uint32(arg(1)), Cookie: arg(2)}, wire.Header{Slot: -1}, nil)
	case "next":
		if len(words) > 1 {
			return s.send(&wire.HostNext{}, wire.Header{Slot: int(arg(1))}, nil)
		}
		return s.call(&wire.HostNext{})
	case "returned":
		if len(words) > 2 {
			done := wire.HostDone{Cookie: arg(1)}
			return s.core.UrgentMessage(Message{Header: wire.Header{Op: done.Op(), Slot: -1}, Body: done.Append(nil)})
		}
		return s.send(&wire.HostDone{Cookie: arg(1)}, wire.Header{Slot: -1}, nil)
	case "passing":
		return s.core.Passing(s.now), nil
	case "last":
		return s.core.Last(s.now), nil
	case "reached":
		return s.core.Reached(arg(1)), nil
	case "texture":
		return s.call(&wire.TextureCreate{Addr: scriptBase + arg(1), Format: 0x20, Channels: 1, Width: 64, Height: 64, Surface: flag(len(words) > 2)})
	case "untexture":
		return s.send(&wire.TextureDestroy{Handle: arg(1), Surface: flag(len(words) > 2)}, wire.Header{Slot: -1}, nil)
	case "made":
		return s.core.Outcome(s.now, s.last, Outcome{Handle: arg(1)})
	case "reset":
		return s.call(&wire.Reset{})
	case "syncpoint":
		return s.send(&wire.SyncPoint{}, wire.Header{Slot: -1}, nil)
	case "grant":
		g := control.Grant{Device: int(arg(1)), Memory: arg(2), Lease: arg(3)}
		if len(words) > 4 {
			g.Coming = arg(4)
		}
		return s.core.Control(s.now, g)
	case "deny": // what was asked last
		m := control.Deny{Reason: strings.Join(words[1:], " ")}
		if s.core.Lease.Held {
			m.Lease = s.core.Lease.Number
		}
		return s.core.Control(s.now, m)
	case "denygrow": // of a lease, which may be an earlier one
		return s.core.Control(s.now, control.Deny{Lease: arg(1), Reason: strings.Join(words[2:], " ")})
	case "revoke":
		r := control.Revoke{Reason: words[1]}
		if len(words) > 3 {
			r.Keep, r.Step = arg(2), arg(3)
		}
		return s.core.Control(s.now, r)
	case "lost":
		return s.core.Lost(s.now, control.Lost{Device: int(arg(1)), Reason: "unplugged"}, len(words) < 3 || words[2] != "working")
	case "watch":
		return s.core.Watch(s.now, words[1] == "on", true, false)
	case "add":
		return s.core.AddDevice(s.now, int(arg(1)), Device{Name: fmt.Sprint("new", words[1]), Memory: 128 * scriptMiB, ContextCost: scriptMiB, Puts: len(words) > 2})
	case "committed":
		return s.core.Control(s.now, control.Committed{Bytes: arg(1), Granted: words[2] == "yes", Reason: "the swap area is full"})
	case "adopted":
		return s.core.Adopted(s.now)
	case "observe":
		return s.core.Observe(s.now, words[1] == "quiet", 0)
	case "found":
		return s.core.Found(s.now, s.core.World, &device.Fault{Kind: device.IllegalAddress})
	case "done":
		if len(words) > 1 {
			return s.core.Outcome(s.now, s.last, Outcome{})
		}
		return s.core.Outcome(s.now, s.last, s.outcome())
	case "failed":
		return s.core.Outcome(s.now, s.last, Outcome{Err: map[string]error{
			"fault": &device.Fault{Kind: device.IllegalAddress}, "moved": ErrMoved, "handle": fmt.Errorf("the driver gives no texture the handle 0x1: %w", device.ErrNotSupported), "memory": device.ErrOutOfMemory,
			"image": device.ErrInvalidImage,
			"ptx":   fmt.Errorf("%w: module.ptx:7:2: nonsense.u32: this instruction is not supported\nmodule.ptx:9:1: \"%%r\" is not declared", device.ErrInvalidPTX),
		}[words[1]]})
	case "failed-before":
		return s.core.Outcome(s.now, &Op{Kind: Drain}, Outcome{Err: device.ErrOutOfMemory})
	case "fold":
		return s.core.Fold(s.now)
	case "rebuilt":
		core, err := RestoreBase(*s.base, noMemory)
		if err != nil {
			s.t.Fatal(err)
		}
		s.core = core
		return nil, nil
	case "detach":
		return s.core.Detach(s.now)
	case "point":
		save := s.core.SavePoint
		if len(words) > 1 {
			save = s.core.Save
		}
		var err error
		if s.point, err = save(); err != nil {
			s.t.Fatal(err)
		}
		return nil, nil
	case "replace":
		by, err := Rehomed(s.point, noMemory, s.core.config.Config)
		if err != nil {
			s.t.Fatal(err)
		}
		return s.core.Replace(s.now, by, len(words) > 1)
	case "unpark":
		return s.core.Unpark(s.now)
	case "answered":
		s.core.Answered(func(slot int) bool { return slices.Contains(words[1:], fmt.Sprint(slot)) })
		return nil, nil
	case "leased":
		s.core.Leased(arg(1))
		return nil, nil
	case "equip":
		return nil, s.core.Equip(s.equipment(int(arg(1)), len(words) > 2))
	case "refused-before":
		slot := -1
		if len(words) > 2 {
			slot = int(arg(2))
		}
		return s.core.RefuseAgain(s.now, wire.Header{Op: wire.OpLaunch, Slot: slot}, Result(arg(1)))
	case "saved":
		data, err := s.core.Save()
		if err != nil {
			s.t.Fatal(err)
		}
		if s.core, err = Restore(data, noMemory); err != nil {
			s.t.Fatal(err)
		}
		return nil, nil
	}
	s.t.Fatalf("there is no event %q", words[0])
	return nil, nil
}

// definition is a graph, or a part of one.
func (s *script) definition(words []string) *wire.GraphDefine {
	d := &wire.GraphDefine{Graph: uint32(s.number(words[1]))}
	words = words[2:]
	if words[0] == "more" {
		d.More, words = 1, words[1:]
	}
	for step := range strings.SplitSeq(strings.Join(words, " "), ";") {
		d.Steps = s.appendStep(d.Steps, strings.Fields(step))
	}
	return d
}

func (s *script) appendStep(steps []byte, words []string) []byte {
	stream := func(i int) uint32 {
		if words[i] == "-" {
			return wire.LaunchStream
		}
		return uint32(s.number(words[i]))
	}
	number := func(i int) uint64 { return s.number(words[i]) }
	switch words[0] {
	case "launch":
		return wire.AppendStep(steps, &wire.Launch{Function: uint32(number(1)), Stream: stream(2), GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1,
			Params: binary.LittleEndian.AppendUint64(nil, scriptBase>>32<<32)})
	case "fill":
		return wire.AppendStep(steps, &wire.Fill{Dst: scriptBase + number(1), Pitch: number(2), Width: 1, Count: number(2), Height: 1, Stream: stream(3)})
	case "copy":
		return wire.AppendStep(steps, &wire.CopyWithin{Dst: scriptBase + number(1), Src: scriptBase + number(2), Size: number(3), Stream: stream(4)})
	case "record":
		return wire.AppendStep(steps, &wire.EventRecord{Event: uint32(number(1)), Stream: stream(2)})
	case "wait":
		return wire.AppendStep(steps, &wire.StreamWait{Stream: stream(1), Event: uint32(number(2))})
	}
	return wire.AppendStep(steps, &wire.GraphLaunch{Graph: 1})
}

// equipment are devices that there are now.
func (s *script) equipment(count int, puts bool) []Device {
	devices := slices.Clone(s.core.config.Devices[:min(count, len(s.core.config.Devices))])
	for i := len(devices); i < count; i++ {
		devices = append(devices, Device{Place: vmm.Device(i), Name: fmt.Sprint("new", i), Memory: 128 * scriptMiB, ContextCost: scriptMiB, Puts: puts})
	}
	return devices
}

// noMemory is for clients without pinned memory.
func noMemory(wire.Header) ([]byte, error) { return nil, errors.New("no memory of the program's") }

func (s *script) begin(words []string) {
	c := Config{Arena: vmm.Range{Addr: scriptBase, Size: 1 << 30}, Chunk: 2 * scriptMiB, Defer: len(words) > 1 && words[len(words)-1] == "defer"}
	for i := range int(s.number(words[0])) {
		c.Devices = append(c.Devices, Device{Place: vmm.Device(i), Name: fmt.Sprint("gpu", i), Memory: 64 * scriptMiB, ContextCost: scriptMiB,
			Puts: len(words) > 1 && words[1] == "puts"})
	}
	c.Reserves, c.Guest = slices.Contains(words, "reserves"), slices.Contains(words, "guest")
	if slices.Contains(words, "far") {
		c.Devices[0].Far = true
	}
	for i := range c.Devices {
		c.Devices[i].Graphs = slices.Contains(words, "graphs")
	}
	if slices.Contains(words, "limited") {
		c.Limit, c.LimitBy = 8*scriptMiB, "raise it with --memory"
	}
	core, err := New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	core.Committed = 1 << 30 // scripts about swap room say otherwise
	*s = script{t: s.t, core: core, variables: map[uint32]int{}, next: 1 << 20, placed: map[uint64][]device.Global{}, point: s.point}
}

func (s *script) call(m wire.Message) ([]Op, error) { return s.send(m, wire.Header{Slot: 1}, nil) }

func (s *script) send(m wire.Message, h wire.Header, data []byte) ([]Op, error) {
	h.Op = m.Op()
	return s.core.Message(s.now, Message{Header: h, Body: m.Append(nil), Data: data})
}

// load sends an image, in which its number of variables stands for what it holds.
func (s *script) load(module uint32, variables int) ([]Op, error) {
	image := []byte{byte(module), byte(variables)}
	ops, err := s.send(&wire.ModuleData{Module: module}, wire.Header{Slot: -1, Release: 1, Length: 2}, image)
	if len(ops) > 0 || err != nil {
		return ops, err
	}
	return s.call(&wire.ModuleLoad{Module: module})
}

// allocating is the module whose kernel calls malloc.
const allocating = 50

// blind is the first module whose image tells nothing before a device has loaded it.
const blind = 100

// info is what an image of load holds; without addresses.
func info(image []byte) (i device.ImageInfo) {
	i.Functions = []device.FunctionInfo{{Name: "k", ParamSize: 8, Params: []device.Param{{Offset: 0, Size: 8}}, Heap: image[0] == allocating}}
	for n := range int(image[1]) {
		i.Globals = append(i.Globals, device.Global{Name: fmt.Sprint("v", n), Size: 8})
	}
	return i
}

// outcome is how the last operation ends well.
func (s *script) outcome() (o Outcome) {
	switch s.last.Kind {
	case Inspect:
		if s.last.Image[0] < blind {
			o.Known, o.Info = true, info(s.last.Image)
		}
	case Describe:
		o.Functions = info([]byte{0, 0}).Functions
	case Load:
		i := info(s.last.Image)
		for n := range i.Globals {
			i.Globals[n].Address = s.next
			s.next += 256
		}
		for n := range i.Functions { // kernels are looked at later
			i.Functions[n] = device.FunctionInfo{Name: i.Functions[n].Name, Unread: true}
		}
		o.Globals, o.Functions = i.Globals, i.Functions
	case Leave, Backup:
		for range s.last.Events {
			o.Times = append(o.Times, s.now)
		}
		o.Saved = map[uint64][][]byte{}
		for _, m := range s.last.Modules {
			var contents [][]byte
			for range m.Globals {
				contents = append(contents, make([]byte, 8))
			}
			o.Saved[m.Module] = contents
		}
	}
	return o
}

// A client that is saved and restored between any two events does what it would
// have done: the scripts again, with a save before each event.
func TestScriptsFromSavedClients(t *testing.T) {
	for _, file := range scripts.Files(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &script{t: t}
		for _, e := range scripts.Parse(string(text)) {
			if s.core != nil && !s.core.asking && s.core.ended == nil {
				s.event([]string{"saved"})
			}
			if got := s.run(strings.Fields(e.Event)); got != e.Answer {
				t.Fatalf("%s: %s, of a client that was saved and restored:\n%swant:\n%s", file, e.Event, got, e.Answer)
			}
		}
	}
}

func TestSaveWhileAsking(t *testing.T) {
	s := &script{t: t}
	for _, line := range []string{"client 1", "load 1"} {
		s.run(strings.Fields(line))
	}
	if _, err := s.core.Save(); err == nil {
		t.Error("a client was saved while its image was inspected")
	}
	if _, err := Restore([]byte(`{"Version":1}`), noMemory); !errors.Is(err, ErrSaved) {
		t.Error(err)
	}
}

// What is restored is written again to the byte, and can be worked with.
func FuzzRestore(f *testing.F) {
	for _, file := range scripts.Files(f) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		s := &script{t: f}
		for _, e := range scripts.Parse(string(text)) {
			s.run(strings.Fields(e.Event))
			if s.core != nil && !s.core.asking {
				if data, err := s.core.Save(); err == nil {
					f.Add(data)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Restore(data, noMemory)
		if err != nil {
			return
		}
		first, err := c.Save()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Restore(first, noMemory)
		if err != nil {
			t.Fatalf("what was saved is refused: %v", err)
		}
		if second, _ := again.Save(); string(second) != string(first) {
			t.Fatalf("%s became %s", first, second)
		}
		// No event may panic. Outcomes are those of an executor that refuses all.
		events := []func() ([]Op, error){
			func() ([]Op, error) { return c.Control(c.Now, control.Deny{Reason: "no"}) },
			func() ([]Op, error) { return c.Control(c.Now, control.Revoke{Reason: "memory"}) },
			func() ([]Op, error) { return c.Adopted(c.Now) },
			func() ([]Op, error) { return c.Next(c.Now) },
			func() ([]Op, error) { return c.Observe(c.Now, true, 0) },
			func() ([]Op, error) { return c.Found(c.Now, c.World, &device.Fault{Kind: device.Trap}) },
		}
		for _, event := range events {
			ops, err := event()
			for err == nil && len(ops) > 0 && ops[len(ops)-1].Kind.Asks() {
				last := ops[len(ops)-1]
				ops, err = c.Outcome(c.Now, &last, Outcome{Err: device.ErrOutOfMemory})
			}
			if err != nil {
				return
			}
		}
	})
}

// What is left of a load that failed, a function that could not be called, and
// pinned memory that messages name: nothing.
func TestNothingIsLeftOfWhatFailed(t *testing.T) {
	s := &script{t: t}
	play := func(events ...string) {
		for _, e := range events {
			s.run(strings.Fields(e))
		}
	}
	play("client 1", "load 1 1", "done unknown", "grant 0 4M 1", "done", "failed image")
	if m := s.core.Modules; len(m.All)+len(m.ByID)+len(m.Unplaced)+m.Kept > 0 {
		t.Errorf("of an image that the device refused: %v, %v, %d bytes", m.ByID, m.Unplaced, m.Kept)
	}
	play("load 2", "done", "function 2", "stream 3", "launch 2", "done", "call 3 11")
	if s.core.Outstanding() != 1 {
		t.Fatal("the function is not called")
	}
	if _, err := s.core.Outcome(s.now, &Op{Kind: After}, Outcome{Err: device.ErrOutOfMemory}); err != nil {
		t.Fatal(err)
	}
	if s.core.Outstanding() != 0 {
		t.Error("a function that is never called is waited for")
	}
	pinned := make([]byte, 64<<20)
	for range 40 {
		if err := s.core.Later(Message{Body: make([]byte, 16), Data: pinned, Pinned: true}); err != nil {
			t.Fatalf("memory of the program's counts as kept: %v", err)
		}
	}
}
