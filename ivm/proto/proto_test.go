package proto

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"muster/ivm/core"
)

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	f := Frame{Op: Map, Tag: 7, Args: [6]uint64{1, 2, 3, 4, 5, 6}, Tail: []byte("name")}
	var b bytes.Buffer
	if err := f.Write(&b); err != nil || b.Len() != 68 {
		t.Fatal(err, b.Len())
	}
	got, err := Read(&b)
	if err != nil || !reflect.DeepEqual(*got, f) {
		t.Errorf("%v %v", got, err)
	}
}

func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	for _, e := range []core.Event{
		core.Ended{Element: 3, Reason: "a crash"},
		core.Create{Caller: core.Caller{Element: 1, Tag: 9}, Device: core.Device{Node: core.Any, Kind: core.GPU, Number: 2}, Count: 4},
		core.Malloc{Caller: core.Caller{Element: 1, Tag: 9}, Name: "A", Size: 1 << 40, Object: 1 << 33},
	} {
		if got, err := DecodeEvent(Encode(e)); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%#v is read as %#v, %v", e, got, err)
		}
	}
	answer := core.Answer{Node: 1, To: core.Caller{Element: 2, Tag: 3}, Failure: &core.Failure{Code: core.Dead, Text: "it died"}, Values: []uint64{4}}
	if got, err := DecodeEffect(Encode(answer)); err != nil || !reflect.DeepEqual(got, answer) {
		t.Errorf("%#v, %v", got, err)
	}
	if _, err := DecodeEvent(Encode(core.NodeLost{Node: 1})); err == nil {
		t.Error("a node must not say that another is lost")
	}
}

func TestLaunch(t *testing.T) {
	l := Launch{Nodes: []string{"b:9421", "c:9421"}, Executable: "/bin/p", Folder: "/", Args: []string{"p", "", "-x"}, Environment: []string{"A=1"}}
	if got, err := ParseLaunch(l.Append(nil)); err != nil || !reflect.DeepEqual(*got, l) {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []string{"", "\x00", "\x00p\x00/\x001\x00p\x00", "\x00/p\x00/\x009\x00p\x00", "\x00/p\x00/\x00x\x00p\x00"} {
		if _, err := ParseLaunch([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzTails(f *testing.F) {
	f.Add(AppendBlock(nil, 3, []uint32{1, 2}, nil))
	f.Add(AppendBlock(nil, 3, []uint32{1}, [][]byte{make([]byte, core.Page)}))
	f.Add((&Launch{Executable: "/p", Folder: "/", Args: []string{"p"}}).Append(nil))
	f.Add(Encode(core.Signal{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		pages := 0
		_ = ReadBlocks(b, func(int, uint32, []byte) error { pages++; return nil })
		if pages > len(b) {
			t.Errorf("%d pages of %d bytes", pages, len(b))
		}
		_, _ = ParseLaunch(b)
		_, _ = Ranges(b)
		_, _ = DecodeEvent(b)
		_, _ = DecodeEffect(b)
		_, _ = Read(bytes.NewReader(b))
	})
}

// A node that says anything of its elements hurts neither the root nor the elements of others.
func FuzzLyingNode(f *testing.F) {
	for _, e := range []core.Event{core.Started{Element: 1}, core.StartFailed{Element: 1, Reason: "no"}, core.Exit{Element: 1}, core.Ended{Element: 1},
		core.Create{Caller: core.Caller{Element: 1, Tag: 2}, Device: core.Device{Node: core.Any, Kind: 9, Number: -7}, Count: 3},
		core.Kill{Caller: core.Caller{Element: 1}, Elements: []core.ElementID{1, 1}}, core.Malloc{Caller: core.Caller{Element: 1}, Name: "A", Size: 1 << 63, Object: 5},
		core.Wait{Caller: core.Caller{Element: 1}, For: 0}, core.Barrier{Caller: core.Caller{Element: 1}}, core.Free{Caller: core.Caller{Element: 1}, Name: "A"}} {
		f.Add(append(append(Encode(core.Started{Element: 1}), '\n'), Encode(e)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := core.NewRoot(2)
		for n := range core.NodeID(2) {
			r.Step(core.Joined{Node: n, Info: core.NodeInfo{Cores: 2}})
		}
		r.Step(core.Create{Caller: core.Caller{Tag: 1}, Device: core.Device{Node: 1}, Count: 1})
		for line := range bytes.Lines(b) {
			e, err := DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
			if err == nil && r.Speaks(1, e) {
				if k, kills := e.(core.Kill); kills && slices.Contains(k.Elements, 0) {
					continue // whoever is in a program may end it
				}
				r.Step(e)
			}
		}
		for _, e := range r.Step(core.Signal{Caller: core.Caller{Tag: 2}}) {
			if a, ok := e.(core.Answer); ok && a.To.Element == 0 && a.Failure == nil {
				return
			}
		}
		t.Error("the first element is not answered any more")
	})
}
