package statefolder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever of a document was written when the daemon was killed, the one before it is
// read, or the whole new one.
func TestSlotsAreWhole(t *testing.T) {
	type document struct {
		Text string `json:"text"`
	}
	folder := &Folder{Dir: t.TempDir()}
	open := func() *Slots {
		s, err := folder.Slots("s")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := filepath.Join(folder.Dir, "s")
	s := open()
	var got document
	if err := s.Read(&got); err != errNoSlot {
		t.Errorf("of an empty file: %v", err)
	}
	for i := range 5 {
		if err := s.Write(document{fmt.Sprint(strings.Repeat("long ", 10*(5-i)), i)}); err != nil {
			t.Fatal(err)
		}
		if err := open().Read(&got); err != nil || !strings.HasSuffix(got.Text, fmt.Sprint(i)) {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(document{"the last"}); err != nil {
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
		if err := next.Read(&got); err != nil || got.Text != "the last" && !strings.HasSuffix(got.Text, " 4") {
			t.Fatalf("%d bytes: %+v, %v", n, got, err)
		}
		if err := next.Write(document{"more"}); err != nil { // it goes on from there
			t.Fatal(err)
		}
		if err := open().Read(&got); err != nil || got.Text != "more" {
			t.Fatalf("%d bytes, and more: %+v, %v", n, got, err)
		}
		next.Close()
	}
	if err := s.Write(document{strings.Repeat("x", slotSize)}); err == nil {
		t.Error("a document is longer than its room")
	}
	s.Close()
}
