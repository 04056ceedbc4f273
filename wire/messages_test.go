package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// body is what messages and replies have in common.
type body interface {
	Append(b []byte) []byte
	Decode(b []byte) error
}

// allMessages returns an empty message of each kind.
func allMessages() []Message {
	return []Message{
		&Hello{}, &Welcome{}, &Device{}, &Attach{}, &Attached{}, &Refused{},
		&MemAlloc{}, &MemFree{}, &MemNest{}, &CopyInline{}, &CopyIn{}, &CopyOut{}, &CopyWithin{},
		&CopyIn2D{}, &CopyOut2D{}, &CopyWithin2D{}, &Fill{}, &HostMap{}, &HostUnmap{}, &MemMap{}, &MemUnmap{},
		&ModuleData{}, &ModuleLoad{}, &ModuleUnload{}, &ModuleNames{}, &ModuleFunction{}, &ModuleGlobal{}, &FunctionOccupancy{}, &FunctionShared{}, &FunctionClusters{}, &FunctionTouches{}, &Launch{}, &Limit{}, &DriverAsk{}, &ModuleLog{}, &ModuleLink{}, &ModuleFetch{}, &ModulePlace{},
		&StreamCreate{}, &StreamDestroy{}, &StreamQuery{}, &StreamSynchronise{}, &StreamWait{},
		&EventCreate{}, &EventDestroy{}, &EventRecord{}, &EventQuery{}, &EventSynchronise{}, &EventElapsed{}, &Synchronise{},
		&HostFunction{}, &HostNext{}, &HostDone{}, &HostStop{}, &PrintFetch{}, &SyncPoint{}, &Reset{},
		&TextureCreate{}, &TextureDestroy{},
		&StreamWrite{}, &StreamAwait{}, &MemShare{}, &MemImport{}, &TraceRead{}, &GraphDefine{}, &GraphLaunch{}, &GraphDestroy{}, &ParcelGive{}, &ParcelTake{},
	}
}

// allReplies returns one of each that has fields, by the name of its call.
func allReplies() map[string]body {
	return map[string]body{
		"module_load": &ModuleLoadReply{}, "module_names": &ModuleNamesReply{}, "module_function": &ModuleFunctionReply{},
		"module_global": &ModuleGlobalReply{}, "function_occupancy": &FunctionOccupancyReply{}, "function_shared": &FunctionSharedReply{}, "function_clusters": &FunctionClustersReply{}, "function_touches": &FunctionTouchesReply{}, "event_elapsed": &EventElapsedReply{},
		"host_next": &HostNextReply{}, "print_fetch": &PrintFetchReply{}, "module_log": &ModuleLogReply{}, "module_link": &ModuleLinkReply{}, "module_fetch": &ModuleFetchReply{}, "driver_ask": &DriverAskReply{}, "texture_create": &TextureCreateReply{}, "mem_share": &MemShareReply{}, "trace_read": &TraceReadReply{},
	}
}

// described finds the replies with fields in the description.
var described = regexp.MustCompile(`(?m)^call\s+(\w+)\s.*->\s*\{\s*\w`)

func TestTheListsHereAreComplete(t *testing.T) {
	all := allMessages()
	if len(all) != len(opTable)-1 {
		t.Errorf("%d messages are tested, there are %d", len(all), len(opTable)-1)
	}
	for i, m := range all {
		if m.Op() != Op(i+1) {
			t.Errorf("%v stands where %v should", m.Op(), Op(i+1))
		}
	}
	text, err := os.ReadFile("messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := described.FindAllStringSubmatch(string(text), -1)
	if len(names) != len(allReplies()) {
		t.Errorf("%d replies are tested, there are %d", len(allReplies()), len(names))
	}
	for _, n := range names {
		if allReplies()[n[1]] == nil {
			t.Errorf("the reply to %s is not tested", n[1])
		}
	}
}

// fill gives each field a value of its own.
func fill[T any](m T) T {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		n := uint64(i + 1)
		switch f.Kind() {
		case reflect.Uint32:
			f.SetUint(0xa0b0c000 + n)
		case reflect.Uint64:
			f.SetUint(0x8899aabbccdd0000 + n)
		case reflect.Int32:
			f.SetInt(-0x1020300 - int64(n))
		case reflect.Float64:
			f.SetFloat(-1234.5 * float64(n))
		case reflect.String:
			f.SetString(fmt.Sprintf("é text %d", n))
		case reflect.Slice:
			f.SetBytes([]byte{0, 0xff, byte(n)})
		default:
			panic("a field of an unknown kind: " + f.Kind().String())
		}
	}
	return m
}

// fields lists a message's fields with their values.
func fields(m any) string {
	var b strings.Builder
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i).Interface().(type) {
		case string:
			fmt.Fprintf(&b, "  %s %q\n", v.Type().Field(i).Name, f)
		case []byte:
			fmt.Fprintf(&b, "  %s %x\n", v.Type().Field(i).Name, f)
		case uint32, uint64:
			fmt.Fprintf(&b, "  %s %#x\n", v.Type().Field(i).Name, f)
		default:
			fmt.Fprintf(&b, "  %s %v\n", v.Type().Field(i).Name, f)
		}
	}
	return b.String()
}

// golden compares with a file that records the protocol: a difference means that older sides would
// misread something.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./wire -update makes it)", err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s, line %d: %q; older sides know %q. If that is meant, go test ./wire -update writes it down; raise Version if messages.txt has not changed", path, i+1, g[i], append(w, "nothing")[min(i, len(w))])
		}
	}
	t.Fatalf("%s has more lines than there should be", path)
}

func TestGoldenBodies(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "schema %#x\n", Schema)
	for _, m := range allMessages() {
		fill(m)
		fmt.Fprintf(&b, "%d %v\n%s  = %x\n", uint16(m.Op()), m.Op(), fields(m), m.Append(nil))
		if r := allReplies()[m.Op().String()]; r != nil {
			fill(r)
			fmt.Fprintf(&b, "reply to %v\n%s  = %x\n", m.Op(), fields(r), r.Append(nil))
		}
	}
	golden(t, "bodies.golden", b.String())
}

func TestGoldenFrames(t *testing.T) {
	var b strings.Builder
	for _, m := range allMessages() {
		if !m.Op().info().record {
			continue
		}
		var frame bytes.Buffer
		if err := WriteRecord(&frame, fill(m)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "record %v\n  = %x\n", m.Op(), frame.Bytes())
	}
	for _, m := range allMessages() {
		if m.Op().info().record {
			continue
		}
		h := headerFor(m.Op())
		fmt.Fprintf(&b, "message %v\n%s  = %x\n", m.Op(), fields(&h), AppendMessage(nil, h, fill(m).Append(nil)))
	}
	golden(t, "frames.golden", b.String())
}

// headerFor is a valid header for a kind of message.
func headerFor(op Op) Header {
	h := Header{Op: op, Slot: -1, Seq: 7}
	if op.IsCall() {
		h.Slot = 255
	}
	if op.TakesData() || op.GivesData() {
		h.Data, h.Length = 0x1122334455667788, 0x99
	}
	if op.TakesData() {
		h.Release = 0xaabb
	}
	return h
}

func TestDecodeIsStrict(t *testing.T) {
	bodies := map[string][2]body{}
	for _, m := range allMessages() {
		bodies[m.Op().String()] = [2]body{fill(m), reflect.New(reflect.TypeOf(m).Elem()).Interface().(body)}
	}
	for name, r := range allReplies() {
		bodies[name+" reply"] = [2]body{fill(r), reflect.New(reflect.TypeOf(r).Elem()).Interface().(body)}
	}
	for name, pair := range bodies {
		t.Run(name, func(t *testing.T) {
			want, got := pair[0], pair[1]
			b := want.Append(nil)
			if err := got.Decode(b); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v came back as %+v", want, got)
			}
			for cut := range b {
				if err := got.Decode(b[:cut]); err == nil {
					t.Errorf("%d of %d bytes were enough", cut, len(b))
				}
			}
			if err := got.Decode(append(b, 0)); err == nil {
				t.Error("a byte too many was accepted")
			}
		})
	}
}

func TestReadRecord(t *testing.T) {
	frame := func(size uint32, op, zero uint16, body string) string {
		b := appendU32(nil, size)
		b = append(b, byte(op), byte(op>>8), byte(zero), byte(zero>>8))
		return string(b) + body
	}
	for _, c := range []struct{ name, in, want string }{
		{"good", frame(4, uint16(OpAttach), 0, "\x01\x00\x00\x00"), ""},
		{"nothing", "", "EOF"},
		{"half a frame", "\x01\x02", "unexpected EOF"},
		{"half a body", frame(4, uint16(OpAttach), 0, "\x01"), "attach breaks off: unexpected EOF"},
		{"no body", frame(4, uint16(OpAttach), 0, ""), "attach breaks off: EOF"},
		{"too long", frame(MaxRecord+1, uint16(OpHello), 0, ""), "a damaged frame: hello of 65537 bytes"},
		{"damaged", frame(4, uint16(OpHello), 1, "abcd"), "a damaged frame: hello of 4 bytes"},
		{"a message", frame(4, uint16(OpMemFree), 0, "abcd"), "mem_free where a record was due"},
		{"an unknown number", frame(4, 999, 0, "abcd"), "message 999 where a record was due"},
		{"number 0", frame(0, 0, 0, ""), "message 0 where a record was due"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := ReadRecord(strings.NewReader(c.in))
			if got := fmt.Sprint(err); (c.want == "") != (err == nil) || err != nil && got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if err := WriteRecord(&bytes.Buffer{}, &Refused{Reason: strings.Repeat("x", MaxRecord)}); err == nil {
		t.Error("a record that is too long was sent")
	}
}

func TestReadAs(t *testing.T) {
	send := func(m Message) *bytes.Buffer {
		var b bytes.Buffer
		if err := WriteRecord(&b, m); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	var refused *Refused
	if err := ReadAs(send(&Refused{Result: 2, Reason: "full"}), &Welcome{}); !errors.As(err, &refused) || refused.Result != 2 || err.Error() != "full" {
		t.Errorf("a refusal came as %v", err)
	}
	if err := ReadAs(send(&Attach{}), &Welcome{}); err == nil || err.Error() != "attach where welcome was due" {
		t.Errorf("the wrong record: %v", err)
	}
	var got Attach
	if err := ReadAs(send(&Attach{Device: 3}), &got); err != nil || got.Device != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := ReadAs(send(&Refused{Reason: "why"}), &Refused{}); err != nil {
		t.Errorf("a refusal that was expected: %v", err)
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	change := func(op Op, do func(h *Header)) []byte {
		h := headerFor(op)
		do(&h)
		return AppendMessage(nil, h, nil)
	}
	damaged := AppendMessage(nil, headerFor(OpReset), nil)
	damaged[12] = 1
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"short", make([]byte, HeaderSize-1), "a message of 39 bytes is too short"},
		{"size", append(AppendMessage(nil, headerFor(OpReset), nil), 0), "reset says it has 40 bytes, and has 41"},
		{"too long", AppendMessage(nil, headerFor(OpReset), make([]byte, MaxMessage)), "reset says it has 65576 bytes, and has 65576"},
		{"record", change(OpReset, func(h *Header) { h.Op = OpHello }), "hello is none that a client may send"},
		{"unknown", change(OpReset, func(h *Header) { h.Op = 500 }), "message 500 is none that a client may send"},
		{"zero", damaged, "reset has a damaged header"},
		{"slot", change(OpReset, func(h *Header) { h.Slot = 256 }), "reset wants its answer in slot 256 of 256"},
		{"largest slot", change(OpReset, func(h *Header) { h.Slot = 0xfffe }), "reset wants its answer in slot 65534 of 256"},
		{"call without slot", change(OpReset, func(h *Header) { h.Slot = -1 }), "reset without a place for the answer"},
		{"async with slot", change(OpMemFree, func(h *Header) { h.Slot = 1 }), "mem_free has no answer, but a place for it"},
		{"data", change(OpMemFree, func(h *Header) { h.Data = 1 }), "mem_free does not use the data arena, but names a part of it"},
		{"length", change(OpMemFree, func(h *Header) { h.Length = 1 }), "mem_free does not use the data arena, but names a part of it"},
		{"release", change(OpCopyOut, func(h *Header) { h.Release = 1 }), "copy_out does not use the data arena, but names a part of it"},
		{"out with slot", change(OpCopyOut, func(h *Header) { h.Slot = 3 }), "<nil>"},
	} {
		if _, _, err := DecodeMessage(c.b); fmt.Sprint(err) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	for _, op := range Ops() {
		want := headerFor(op)
		h, body, err := DecodeMessage(AppendMessage(nil, want, []byte("body")))
		if err != nil || h != want || string(body) != "body" {
			t.Errorf("%v: %+v, %q, %v", op, h, body, err)
		}
	}
}

func FuzzBodies(f *testing.F) {
	for i, m := range allMessages() {
		f.Add(i, fill(m).Append(nil))
	}
	names := []string{}
	for name := range allReplies() {
		names = append(names, name)
	}
	f.Fuzz(func(t *testing.T, which int, b []byte) {
		all := []body{}
		for _, m := range allMessages() {
			all = append(all, m)
		}
		for _, name := range names {
			all = append(all, allReplies()[name])
		}
		m := all[uint(which)%uint(len(all))]
		if err := m.Decode(b); err != nil {
			return
		}
		if again := m.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%T: %s was read as %s", m, hex.EncodeToString(b), hex.EncodeToString(again))
		}
	})
}

func FuzzReadRecord(f *testing.F) {
	for _, m := range allMessages()[:6] {
		var b bytes.Buffer
		if err := WriteRecord(&b, fill(m)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		op, body, err := ReadRecord(bytes.NewReader(b))
		if err == nil && (len(body) > MaxRecord || !op.info().record) {
			t.Errorf("%v of %d bytes was accepted", op, len(body))
		}
		for _, m := range allMessages()[:6] {
			_ = ReadAs(bytes.NewReader(b), m)
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	for _, op := range Ops() {
		f.Add(AppendMessage(nil, headerFor(op), []byte("body")))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, err := DecodeMessage(b)
		if err != nil {
			return
		}
		if again := AppendMessage(nil, h, body); !bytes.Equal(again, b) {
			t.Errorf("%x was read as %x", b, again)
		}
	})
}

// The attributes of messages, as a person would list them.
func TestAttributes(t *testing.T) {
	lists := map[string]string{}
	for _, op := range Ops() {
		name := " " + op.String()
		if op.AfterFault() {
			lists["after a fault"] += name
		}
		switch op.info().data {
		case dataIn:
			lists["in"] += name
		case dataOut:
			lists["out"] += name
		}
	}
	for what, want := range map[string]string{
		"after a fault": " stream_destroy event_destroy host_next host_done host_stop print_fetch reset trace_read graph_destroy",
		"in":            " copy_in copy_in_2d module_data module_place",
		"out":           " copy_out copy_out_2d module_names module_function function_touches driver_ask module_log module_fetch print_fetch trace_read parcel_give",
	} {
		if lists[what] != want {
			t.Errorf("%s:%s\nwant%s", what, lists[what], want)
		}
	}
	if unknown := Op(9999); unknown.AfterFault() || unknown.info().data != noData {
		t.Error("an unknown message has attributes")
	}
}

// A reply may say that less was given than there was room for, and no more.
func TestGiven(t *testing.T) {
	for _, c := range []struct {
		op     Op
		reply  []byte
		length uint64
		want   uint64
	}{
		{OpPrintFetch, (&PrintFetchReply{Size: 7}).Append(nil), 100, 7},
		{OpPrintFetch, (&PrintFetchReply{Size: 700}).Append(nil), 100, 100},
		{OpPrintFetch, []byte{1}, 100, 100}, // damaged
		{OpModuleNames, (&ModuleNamesReply{Total: 1 << 63}).Append(nil), 100, 100},
		{OpModuleNames, (&ModuleNamesReply{Total: 9}).Append(nil), 100, 9},
		{OpModuleFunction, (&ModuleFunctionReply{Params: 3}).Append(nil), 100, 24},
		{OpModuleFunction, (&ModuleFunctionReply{Params: 1<<32 - 1}).Append(nil), 1 << 40, 8 * (1<<32 - 1)},
		{OpCopyOut, nil, 100, 100}, // says nothing
	} {
		if got := c.op.Given(c.length, c.reply); got != c.want {
			t.Errorf("%v with %x for %d bytes gives %d, not %d", c.op, c.reply, c.length, got, c.want)
		}
	}
}
