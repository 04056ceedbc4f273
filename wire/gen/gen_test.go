package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	goFile, cFile := filepath.Join(t.TempDir(), "messages_gen.go"), filepath.Join(t.TempDir(), "wire_gen.h")
	if err := run("../messages.txt", goFile, cFile); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(goFile)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../messages_gen.go"); err != nil || !bytes.Equal(got, want) {
		t.Error("messages_gen.go is old: go generate ./wire", err)
	}
}

func TestDescriptionIsStrict(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"record a { u32 b }\nasync c { } in # why\ncall d { text e; bytes f } out -> { }", ""},
		{"async a { } fault-ok\nasync b { } in fault-ok\ncall c { } fault-ok -> { }\ncall d { } out(e) fault-ok -> { u64 e }\ncall f { } out(8*g) -> { u32 g }", ""},
		{"async a { } fault-ok out", "1: not understood: async a { } fault-ok out"},
		{"async a { } fault-okay", "1: not understood: async a { } fault-okay"},
		{"async a { } in out", "1: not understood: async a { } in out"},
		{"call a { } in(b) -> { u32 b }", "1: not understood: call a { } in(b) -> { u32 b }"},
		{"call a { } out(0*b) -> { u32 b }", "1: not understood: call a { } out(0*b) -> { u32 b }"},
		{"call a { u32 b } out(b) -> { }", "1: the reply of a has no field b of type u32 or u64"},
		{"call a { } out(b) -> { i32 b }", "1: the reply of a has no field b of type u32 or u64"},
		{"call a { } out(2*b) -> { u64 b }", "1: the reply of a has no field b of type u32"},
		{"async a { } out(b)", "1: the reply of a has no field b of type u32 or u64"},
		{"record a { } in", "1: a record has neither data nor faults: a"},
		{"record a { } fault-ok", "1: a record has neither data nor faults: a"},
		{"recrod a { }", "1: not understood: recrod a { }"},
		{"\nrecord a { u33 b }", `2: not a field: "u33 b"`},
		{"record a { u32 }", `1: not a field: "u32"`},
		{"record a { }\nasync a { }", "2: there is a a already"},
		{"call a { }", "1: a call, and only a call, has a reply: a"},
		{"async a { } -> { }", "1: a call, and only a call, has a reply: a"},
		{"call a { } -> { u8 b }", `1: not a field: "u8 b"`},
	} {
		_, err := parse(c.text)
		if got := ""; err != nil || c.want != "" {
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q: got %q, want %q", c.text, got, c.want)
			}
		}
	}
}

// What a side does with a message does not travel, and is not in the schema.
func TestSchemaCoversWhatTravels(t *testing.T) {
	hash := func(text string) uint32 {
		d, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return d.hash()
	}
	if hash("call a { } out -> { u32 b }") != hash("call a { } out(4*b) fault-ok -> { u32 b }") {
		t.Error("the schema tells descriptions apart that have the same bytes")
	}
}

// Every change that an older side would misread must change the schema.
func TestSchemaFollowsTheDescription(t *testing.T) {
	seen := map[uint32]string{}
	for _, text := range []string{
		"call a { u32 b } -> { }", "call a { u64 b } -> { }", "call a { u32 c } -> { }", "call a { u32 b } in -> { }", "call a { u32 b } out -> { }",
		"call a { u32 b } -> { u32 c }", "async a { u32 b }", "call b { u32 b } -> { }",
	} {
		d, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[d.hash()]; ok {
			t.Errorf("%q and %q have one schema", text, other)
		}
		seen[d.hash()] = text
	}
}
