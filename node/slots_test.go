package node

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"muster/wire/control"
)

// Whatever of a document was written when the daemon was killed, the one before it is
// read, or the whole new one.
func TestSlotsAreWhole(t *testing.T) {
	type document struct {
		Text string `json:"text"`
	}
	folder := &stateFolder{dir: t.TempDir()}
	open := func() *slots {
		s, err := folder.openSlots("s")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := filepath.Join(folder.dir, "s")
	s := open()
	var got document
	if err := s.read(&got); err != errNoSlot {
		t.Errorf("of an empty file: %v", err)
	}
	for i := range 5 {
		if err := s.write(document{fmt.Sprint(strings.Repeat("long ", 10*(5-i)), i)}); err != nil {
			t.Fatal(err)
		}
		if err := open().read(&got); err != nil || !strings.HasSuffix(got.Text, fmt.Sprint(i)) {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(document{"the last"}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := len(after)
	for last > 0 && last <= len(before) && after[last-1] == before[last-1] {
		last--
	}
	for n := range last { // so many bytes of it were written
		torn := append(append([]byte{}, after[:n]...), before[min(n, len(before)):]...)
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		next := open()
		if err := next.read(&got); err != nil || got.Text != "the last" && !strings.HasSuffix(got.Text, " 4") {
			t.Fatalf("%d bytes: %+v, %v", n, got, err)
		}
		if err := next.write(document{"more"}); err != nil { // it goes on from there
			t.Fatal(err)
		}
		if err := open().read(&got); err != nil || got.Text != "more" {
			t.Fatalf("%d bytes, and more: %+v, %v", n, got, err)
		}
		next.close()
	}
	if err := s.write(document{strings.Repeat("x", slotSize)}); err == nil {
		t.Error("a document is longer than its room")
	}
	s.close()
}

// What a client has fits into its slot, however large the numbers are.
func TestStandingsFit(t *testing.T) {
	full := fullest(clientState{})
	if room := slotSize - slotHead; len(full) > room/2 {
		t.Errorf("%d bytes, of %d: give slots more room", len(full), room)
	}
	many := clientState{Counters: countersFile{Links: make(links, maxLinks)}, Stats: control.Stats{Links: make(links, maxLinks)}}
	text, err := json.Marshal(many.withoutLinks())
	if err != nil || len(text) > slotSize-slotHead {
		t.Errorf("a client with many links takes %d bytes, %v", len(text), err)
	}
}

// fullest is the longest that a document can be: every number is as long as it gets.
func fullest(document any) string {
	v := reflect.New(reflect.TypeOf(document)).Elem()
	var fill func(reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i))
				}
			}
		case reflect.Int, reflect.Int64:
			v.SetInt(math.MinInt64)
		case reflect.Uint64:
			v.SetUint(math.MaxUint64)
		case reflect.Bool:
		case reflect.Slice: // of links, which are left out
		default:
			panic(v.Kind())
		}
	}
	fill(v)
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic(err)
	}
	return string(text)
}
