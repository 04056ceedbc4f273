package vmm

import (
	"errors"
	"reflect"
	"testing"
)

// A space that has left its devices continues on others, with its allocations, their nesting and
// the contents on the host.
func TestRehomed(t *testing.T) {
	s := exampleSpace(t)
	to := Config{Arena: Range{0x10000, 0x10000}, Chunk: 0x1000, Devices: []Place{Device(7)}}
	if _, err := s.Rehomed(to); !errors.Is(err, ErrInvalid) {
		t.Error("with memory on devices:", err)
	}
	s.Evict(Device(0), 0)
	s.Evict(Device(1), 0)
	want := []Range{{0x10000, 0x2000}, {0x14000, 0x1000}}
	if got := s.Held(); !reflect.DeepEqual(got, want) {
		t.Errorf("the host holds %v, want %v", got, want)
	}
	fresh, err := s.Rehomed(to)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fresh.Allocations(), s.Allocations()) || !reflect.DeepEqual(fresh.Held(), want) || fresh.Limit() != 0 {
		t.Errorf("%v, %v", fresh.Allocations(), fresh.Held())
	}
	if got := fresh.Reachable([]byte{0, 0x40, 1, 0, 0, 0, 0, 0}); len(got) != 2 {
		t.Errorf("what is nested is lost: %v", got)
	}
	plan, err := fresh.PrepareAll(Device(7), 1<<20)
	if err != nil || plan.Bytes(CopyIn) != 0x3000 || plan.Bytes(Map) != 0x4000 {
		t.Errorf("%v, %v", plan, err)
	}
	for _, wrong := range []Config{
		{Arena: Range{0x10000, 0x10000}, Chunk: 0x2000, Devices: Devices(1)},
		{Arena: Range{0x10000, 0x4000}, Chunk: 0x1000, Devices: Devices(1)},
		{Arena: Range{0x10000, 0x10000}, Chunk: 0x1000, Devices: Devices(1), Limit: 0x100},
	} {
		if _, err := s.Rehomed(wrong); err == nil {
			t.Errorf("%+v was taken", wrong)
		}
	}
}
