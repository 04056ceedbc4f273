package vmm

import (
	"errors"
	"fmt"
	"testing"
)

// The paper's page table entry is one allocation on one device; here it is one chunk. These tests
// rely only on its text: flags and actions.

const (
	entryAddr = 0x1000
	entrySize = 0x100
)

var entry = Range{entryAddr, entrySize}

func newEntry(t *testing.T) *Space {
	t.Helper()
	s, err := New(Config{Arena: Range{entryAddr, 4 * entrySize}, Chunk: entrySize, Devices: Devices(1)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call does what the node runtime does when the application makes a call.
func call(t *testing.T, s *Space, name string) Plan {
	t.Helper()
	var plan Plan
	var err error
	switch name {
	case "malloc":
		err = s.Alloc(entry)
	case "copyHD":
		plan, err = s.HostWrite(entry)
	case "copyDH":
		plan, err = s.HostRead(entry)
	case "launch":
		plan, err = s.Prepare(Device(0), []Range{entry}, 4*entrySize)
		s.Launched(Device(0), []Range{entry})
	case "swap":
		plan = s.Evict(Device(0), 0)
	case "free":
		plan, err = s.Free(entryAddr)
	default:
		t.Fatalf("no call %q", name)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return plan
}

// flags are isAllocated/toCopy2Dev/toCopy2Swap as the figure writes them.
func flags(s *Space) string {
	letter := func(b bool) string {
		if b {
			return "T"
		}
		return "F"
	}
	for _, c := range s.all() {
		dev := slot(1).bit()
		return fmt.Sprintf("%s/%s/%s", letter(c.held&dev != 0), letter(c.valid == hostSlot.bit()), letter(c.valid == dev))
	}
	return "none"
}

func TestFigure3_5(t *testing.T) {
	for _, c := range []struct {
		before []string // calls that lead to the state
		state  string
		call   string
		want   string
	}{
		{nil, "none", "malloc", "F/F/F"},
		{[]string{"malloc"}, "F/F/F", "copyHD", "F/T/F"},
		{[]string{"malloc"}, "F/F/F", "copyDH", "F/F/F"},
		{[]string{"malloc"}, "F/F/F", "swap", "F/F/F"},
		{[]string{"malloc"}, "F/F/F", "launch", "T/F/T"},
		{[]string{"malloc", "copyHD"}, "F/T/F", "copyHD", "F/T/F"},
		{[]string{"malloc", "copyHD"}, "F/T/F", "copyDH", "F/T/F"},
		{[]string{"malloc", "copyHD"}, "F/T/F", "swap", "F/T/F"},
		{[]string{"malloc", "copyHD"}, "F/T/F", "launch", "T/F/T"},
		{[]string{"malloc", "launch"}, "T/F/T", "launch", "T/F/T"},
		{[]string{"malloc", "launch"}, "T/F/T", "copyDH", "T/F/F"},
		{[]string{"malloc", "launch"}, "T/F/T", "copyHD", "T/T/F"},
		{[]string{"malloc", "launch"}, "T/F/T", "swap", "F/T/F"},
		{[]string{"malloc", "launch", "copyDH"}, "T/F/F", "launch", "T/F/T"},
		{[]string{"malloc", "launch", "copyDH"}, "T/F/F", "copyDH", "T/F/F"},
		{[]string{"malloc", "launch", "copyDH"}, "T/F/F", "copyHD", "T/T/F"},
		{[]string{"malloc", "launch", "copyDH"}, "T/F/F", "swap", "F/T/F"},
		{[]string{"malloc", "launch", "copyHD"}, "T/T/F", "launch", "T/F/T"},
		{[]string{"malloc", "launch", "copyHD"}, "T/T/F", "copyHD", "T/T/F"},
		{[]string{"malloc", "launch", "copyHD"}, "T/T/F", "copyDH", "T/T/F"},
		{[]string{"malloc", "launch", "copyHD"}, "T/T/F", "swap", "F/T/F"},
		{[]string{"malloc", "launch"}, "T/F/T", "free", "none"},
	} {
		t.Run(c.state+" "+c.call, func(t *testing.T) {
			s := newEntry(t)
			for _, name := range c.before {
				call(t, s, name)
			}
			if got := flags(s); got != c.state {
				t.Fatalf("after %v: %s, want %s", c.before, got, c.state)
			}
			call(t, s, c.call)
			if got := flags(s); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The second column: what each routine does to the device and the swap area.
func TestTable3_1Actions(t *testing.T) {
	const (
		mapped   = "map dev0 0x1000+0x100"
		copiedHD = "copy-in dev0 0x1000+0x100"
		copiedDH = "copy-out dev0 0x1000+0x100"
		unmapped = "unmap dev0 0x1000+0x100"
		dropped  = "discard host 0x1000+0x100"
	)
	for _, c := range []struct {
		name   string
		before []string
		call   string
		want   string
	}{
		{"Malloc defers", nil, "malloc", ""},
		{"CopyHD defers", []string{"malloc"}, "copyHD", ""},
		{"CopyHD over a device's copy", []string{"malloc", "launch"}, "copyHD", ""},
		{"CopyDH, !toCopy2Swap", []string{"malloc", "copyHD"}, "copyDH", ""},
		{"CopyDH, toCopy2Swap", []string{"malloc", "launch"}, "copyDH", copiedDH},
		{"Free, only malloc", []string{"malloc"}, "free", ""},
		{"Free, !isAllocated", []string{"malloc", "copyHD"}, "free", dropped},
		{"Free, isAllocated", []string{"malloc", "copyHD", "launch"}, "free", unmapped + "\n" + dropped},
		{"Launch, !isAllocated", []string{"malloc"}, "launch", mapped},
		{"Launch, !isAllocated, toCopy2Dev", []string{"malloc", "copyHD"}, "launch", mapped + "\n" + copiedHD},
		{"Launch, isAllocated, toCopy2Dev", []string{"malloc", "launch", "copyHD"}, "launch", copiedHD},
		{"Launch, isAllocated", []string{"malloc", "launch"}, "launch", ""},
		{"Swap, toCopy2Swap", []string{"malloc", "launch"}, "swap", copiedDH + "\n" + unmapped},
		{"Swap, !toCopy2Swap", []string{"malloc", "launch", "copyDH"}, "swap", unmapped},
		{"Swap, !isAllocated", []string{"malloc", "copyHD"}, "swap", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newEntry(t)
			for _, name := range c.before {
				call(t, s, name)
			}
			if got := call(t, s, c.call).String(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// The third column: errors are found here, before they reach a device.
func TestTable3_1Errors(t *testing.T) {
	s := newEntry(t)
	call(t, s, "malloc")
	second := func(_ Plan, err error) error { return err }
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"Malloc: a virtual address cannot be assigned", s.Alloc(entry), ErrOverlap},
		{"Malloc: outside the arena", s.Alloc(Range{0, 8}), ErrInvalid},
		{"CopyHD: no valid entry", second(s.HostWrite(Range{entryAddr + entrySize, 8})), ErrBounds},
		{"CopyHD: size mismatch", second(s.HostWrite(Range{entryAddr, entrySize + 1})), ErrBounds},
		{"CopyDH: no valid entry", second(s.HostRead(Range{entryAddr + entrySize, 8})), ErrBounds},
		{"Free: no valid entry", second(s.Free(entryAddr + 1)), ErrUnknown},
		{"Launch: no valid entry", second(s.Prepare(Device(0), []Range{{entryAddr + entrySize, 8}}, entrySize)), ErrBounds},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, c.err, c.want)
		}
	}
	if got := flags(s); got != "F/F/F" {
		t.Errorf("calls that failed left the entry at %s", got)
	}
}
