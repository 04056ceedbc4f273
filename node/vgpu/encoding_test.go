package vgpu

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
)

// Recordings are kept: what is written today must be read tomorrow.
var goldenEvents = []struct {
	event Event
	text  string
}{
	{Attach{Client: 1, User: "ann", Weight: 2}, `{"kind":"attach","client":1,"user":"ann","weight":2}`},
	{Attach{Client: 2, User: "a \"b\" <ü>\u2028", Weight: 0}, `{"kind":"attach","client":2,"user":"a \"b\" \u003cü\u003e\u2028","weight":0}`},
	{Detach{18446744073709551615}, `{"kind":"detach","client":18446744073709551615}`},
	{Want{1, 4 << 20, 3 * time.Millisecond, AnyDevice}, `{"kind":"want","client":1,"need":4194304,"estimate_ns":3000000,"pinned":-1}`},
	{Grow{1, 8 << 20}, `{"kind":"grow","client":1,"need":8388608}`},
	{Busy{1}, `{"kind":"busy","client":1}`},
	{Idle{1, 5}, `{"kind":"idle","client":1,"for_ns":5}`},
	{SyncPoint{1}, `{"kind":"sync_point","client":1}`},
	{Released{Client: 1, Keeps: 7}, `{"kind":"released","client":1,"keeps":7}`},
	{Ran{1, 3, time.Second}, `{"kind":"ran","client":1,"kernels":3,"busy_ns":1000000000}`},
	{Faulted{1}, `{"kind":"faulted","client":1}`},
	{Lost{1}, `{"kind":"lost","device":1}`},
	{Added{Device{"gpu", 4, 0.5, 1 << 30, 1 << 20, false, true}}, `{"kind":"added","device":{"name":"gpu","slots":4,"speed":0.5,"memory":1073741824,"context_cost":1048576,"granted":true}}`},
	{Tick{}, `{"kind":"tick"}`},
	{Move{1, 2}, `{"kind":"move","client":1,"device":2}`},
	{Drain{1}, `{"kind":"drain","device":1}`},
	{Resume{1}, `{"kind":"resume","device":1}`},
	{Remove{1}, `{"kind":"remove","device":1}`},
	{Returned{3, Device{"gpu", 4, 0.5, 1 << 30, 1 << 20, true, false}}, `{"kind":"returned","device":3,"is":{"name":"gpu","slots":4,"speed":0.5,"memory":1073741824,"context_cost":1048576,"elsewhere":true}}`},
	{Adopt{Client: 1, User: "ann", Weight: 2, Device: 3, Held: true, Memory: 4, Kept: 5, Lease: 6, Pinned: AnyDevice, Kernels: 7, Busy: 8, Waited: 9, Preemptions: 10, Moves: Moves{11, 12, 13}},
		`{"kind":"adopt","client":1,"user":"ann","weight":2,"device":3,"held":true,"memory":4,"kept":5,"lease":6,"pinned":-1,"kernels":7,"busy_ns":8,"waited_ns":9,"preemptions":10,"moves":{"auto":11,"by_hand":12,"drain":13}}`},
	{Configure{Policy: Credit, MaxIdle: 5, SlotLimit: 2, Migrate: true}, `{"kind":"configure","policy":"credit","max_idle_ns":5,"slot_limit":2,"migrate":true}`},
	{Configure{Policy: FCFS, Quantum: time.Second}, `{"kind":"configure","policy":"fcfs","max_idle_ns":0,"slot_limit":0,"migrate":false,"quantum_ns":1000000000}`},
	{Resize{3, 2}, `{"kind":"resize","device":3,"slots":2}`},
	{Freed{7, 5}, `{"kind":"freed","client":7,"left":5}`},
	{Began{7, 3}, `{"kind":"began","client":7,"took_ns":3}`},
	{Released{7, 1, 9}, `{"kind":"released","client":7,"keeps":1,"took_ns":9}`},
	{Limit{"ann", true, 2}, `{"kind":"limit","user":"ann","own":true,"slots":2}`},
	{Attach{Client: 1, User: "ann", Weight: 2, Grant: "7.1.0", Share: 1}, `{"kind":"attach","client":1,"user":"ann","weight":2,"grant":"7.1.0","share":1}`},
	{Admit{"7.1.0", []Share{{0, 0, 0, model.ReachDevice}, {2, 5, 7, model.ReachNode}}, -1}, `{"kind":"admit","grant":"7.1.0","shares":[{"device":0,"memory":0},{"device":2,"memory":5,"beyond":7,"reach":"node"}],"limit":-1}`},
	{Withdraw{"7.1.0"}, `{"kind":"withdraw","grant":"7.1.0"}`},
	{Restrict{"7.1.0", 1}, `{"kind":"restrict","grant":"7.1.0","limit":1}`},
}

var goldenEffects = []struct {
	effect Effect
	text   string
}{
	{Effect{Kind: Grant, Client: 1, Memory: 5, Lease: 2}, `{"kind":"grant","client":1,"device":0,"slot":0,"memory":5,"lease":2}`},
	{Effect{Kind: Revoke, Client: 1, Device: 2, Reason: ForIdle}, `{"kind":"revoke","client":1,"device":2,"reason":"idle"}`},
	{Effect{Kind: Watch, Client: 1}, `{"kind":"watch","client":1,"on":false}`},
	{Effect{Kind: Deny, Client: 1, Reason: NoRoom}, `{"kind":"deny","client":1,"reason":"no room"}`},
	{Effect{Kind: Gone, Client: 1, Device: 2}, `{"kind":"gone","client":1,"device":2}`},
	{Effect{Kind: Grant, Client: 1, Memory: 5, Lease: 2, Coming: 9}, `{"kind":"grant","client":1,"device":0,"slot":0,"memory":5,"lease":2,"coming":9}`},
	{Effect{Kind: Revoke, Client: 1, Device: 2, Reason: ForQuantum, Keep: 3, Step: 4}, `{"kind":"revoke","client":1,"device":2,"reason":"quantum","keep":3,"step":4}`},
}

func TestEventsAndEffectsInJSON(t *testing.T) {
	left := maps.Clone(eventKinds)
	for _, c := range goldenEvents {
		delete(left, c.event.Kind())
		b, err := AppendEvent(nil, c.event)
		if err != nil || string(b) != c.text {
			t.Errorf("%+v: %v\ngot  %s\nwant %s", c.event, err, b, c.text)
		}
		if e, err := ParseEvent([]byte(c.text)); err != nil || !reflect.DeepEqual(e, c.event) {
			t.Errorf("%s: %+v, %v", c.text, e, err)
		}
	}
	if len(left) > 0 {
		t.Errorf("not tried: %v", slices.Collect(maps.Keys(left)))
	}
	var all []Effect
	var texts []string
	for i, c := range goldenEffects {
		if i < len(kindNames) && c.effect.Kind != Kind(i) {
			t.Errorf("%v is not tried", Kind(i))
		}
		all, texts = append(all, c.effect), append(texts, c.text)
	}
	text := "[" + strings.Join(texts, ",") + "]"
	b, err := AppendEffects(nil, all)
	if err != nil || string(b) != text {
		t.Errorf("%v\ngot  %s\nwant %s", err, b, text)
	}
	if got, err := ParseEffects([]byte(text)); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%+v, %v", got, err)
	}
	if len(goldenEffects) < len(kindNames) {
		t.Errorf("%d of %d kinds of effects were tried", len(goldenEffects), len(kindNames))
	}
}

// Every type that is an event is known by its kind.
func TestEveryEventHasAKind(t *testing.T) {
	known := map[string]bool{}
	for _, typ := range eventKinds {
		known[typ.Name()] = true
	}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Name.Name != "apply" {
				continue
			}
			found++
			if name := method.Recv.List[0].Type.(*ast.Ident).Name; !known[name] {
				t.Errorf("eventKinds does not have %s", name)
			}
		}
	}
	if found != len(known) {
		t.Errorf("%d types can be applied, and %d are known", found, len(known))
	}
}

func TestWhatIsNoEventIsRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "not a JSON object"},
		{`null`, "not a JSON object"},
		{`[]`, "not a JSON object"},
		{`{`, "unexpected end of JSON input"},
		{`{}`, `there is no event ""`},
		{`{"kind":"shrink"}`, `there is no event "shrink"`},
		{`{"kind":7}`, "json: cannot unmarshal number into Go struct field .kind of type string"},
		{`{"kind":"busy"}`, `{"kind":"busy"} should read {"kind":"busy","client":0}`},
		{`{"kind":"busy","client":1,"client":1}`, `{"kind":"busy","client":1,"client":1} should read {"kind":"busy","client":1}`},
		{`{"kind":"busy","Client":1}`, `{"kind":"busy","Client":1} should read {"kind":"busy","client":1}`},
		{`{"kind":"busy","client":1,"more":2}`, `{"kind":"busy","client":1,"more":2} should read {"kind":"busy","client":1}`},
		{`{"kind": "busy","client":1}`, `{"kind": "busy","client":1} should read {"kind":"busy","client":1}`},
		{`{"client":1,"kind":"busy"}`, `{"client":1,"kind":"busy"} should read {"kind":"busy","client":1}`},
		{`{"kind":"busy","client":null}`, `{"kind":"busy","client":null} should read {"kind":"busy","client":0}`},
		{`{"kind":"busy","client":-1}`, "busy: json: cannot unmarshal number -1 into Go struct field Busy.client of type vgpu.ClientID"},
		{`{"kind":"busy","client":1}x`, "invalid character 'x' after top-level value"},
		{`{"kind":"added","device":{"name":"x","slots":4,"speed":1,"memory":0,"context_cost":0}}`, `added: device "x": 0 bytes of memory leave nothing for clients whose contexts cost 0`},
		{`{"kind":"attach","client":1,"user":"` + "\xff" + `","weight":1}`, `{"kind":"attach","client":1,"user":"` + "\xff" + `","weight":1} should read {"kind":"attach","client":1,"user":"` + "\ufffd" + `","weight":1}`},
	} {
		if e, err := ParseEvent([]byte(c.text)); err == nil || err.Error() != c.want || e != nil {
			t.Errorf("%s: %+v\ngot  %v\nwant %s", c.text, e, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{`{}`, "json: cannot unmarshal object into Go value of type []json.RawMessage"},
		{`null`, "null should read []"},
		{`[{"kind":"bless","client":1}]`, `effect 1: there is no effect "bless"`},
		{`[{"kind":"watch","client":1,"on":true},{"kind":"gone","client":1}]`, `[{"kind":"watch","client":1,"on":true},{"kind":"gone","client":1}] should read [{"kind":"watch","client":1,"on":true},{"kind":"gone","client":1,"device":0}]`},
		{`[{"kind":"watch","client":1,"on":true,"slot":1}]`, `[{"kind":"watch","client":1,"on":true,"slot":1}] should read [{"kind":"watch","client":1,"on":true}]`},
	} {
		if _, err := ParseEffects([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// A name that JSON would change must not be recorded as another one.
func TestNamesThatJSONCannotHold(t *testing.T) {
	for _, e := range []Event{Attach{Client: 1, User: "ann\xff", Weight: 1}, Attach{Grant: "\xff"}, Admit{Grant: "\xff"}, Withdraw{"\xff"}, Restrict{Grant: "\xff"}, Added{Device{Name: "\xc3", Memory: 1}}} {
		if b, err := AppendEvent([]byte("kept"), e); err == nil || !strings.Contains(err.Error(), "is not UTF-8") || string(b) != "kept" {
			t.Errorf("%+v: %q, %v", e, b, err)
		}
	}
	for _, h := range []Header{
		{Node: "\xff"}, {Config: Config{Devices: []Device{{Name: "\xff"}}}}, {Config: Config{SlotLimits: map[string]int{"\xff": 1}}},
	} {
		if b, err := AppendHeader([]byte("kept"), h); err == nil || !strings.Contains(err.Error(), "is not UTF-8") || string(b) != "kept" {
			t.Errorf("%+v: %q, %v", h, b, err)
		}
	}
}

// What is read is written again with the same bytes.
func FuzzEvent(f *testing.F) {
	for _, c := range goldenEvents {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		again, err := AppendEvent(nil, e)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s: %s, %v", text, again, err)
		}
	})
}

func FuzzEffects(f *testing.F) {
	for _, c := range goldenEffects {
		f.Add([]byte("[" + c.text + "]"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := ParseEffects(text)
		if err != nil {
			return
		}
		again, err := AppendEffects(nil, all)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s: %s, %v", text, again, err)
		}
	})
}
