package held

import (
	"os"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/node/proc"
	"muster/wire/control"
)

// self is this process, which holds what its tests open.
type self struct{}

func (self) PID() int        { return os.Getpid() }
func (self) IsRunning() bool { return true }

// Descriptors are copied out of a process by what they refer to.
func TestTake(t *testing.T) {
	files, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	defer Close(files)
	ids, err := Identify(files)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := Take(self{}, ids)
	if err != nil {
		need.Missing(t, need.System, "copies of another process's descriptors:", err)
	}
	defer Close(taken)
	if again, err := Identify(taken); err != nil || sameFiles(ids, again, len(taken)) != nil {
		t.Errorf("%v are %v, %v", ids, again, err)
	}
	if _, err := Take(self{}, map[string]proc.FileID{"journal": {Device: 1, Number: 1}}); err == nil || err.Error() != "it has no journal" {
		t.Error(err)
	}
}

// A worker must bring what it was given, and nothing else.
func TestSameFiles(t *testing.T) {
	a, b := proc.FileID{Number: 1}, proc.FileID{Number: 2}
	given := map[string]proc.FileID{"ring": a, "arena": b}
	for _, c := range []struct {
		brought map[string]proc.FileID
		want    string
	}{
		{map[string]proc.FileID{"ring": a, "arena": b}, ""},
		{map[string]proc.FileID{"ring": a}, "1 where 2 are due"},
		{map[string]proc.FileID{"ring": a, "arena": a}, "the arena is another one"},
	} {
		err := sameFiles(given, c.brought, len(c.brought))
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%v: %v", c.brought, err)
		}
	}
}

// A client outlives its worker if all of its files are there, in their order.
func TestCanOutlive(t *testing.T) {
	var all []control.Held
	for _, name := range strings.Fields("ring arena host0 host1 journal") {
		if CanOutlive(all) {
			t.Errorf("%d files are enough", len(all))
		}
		all = append(all, control.Held{Name: name})
	}
	if !CanOutlive(all) {
		t.Error("all files are not enough")
	}
}
