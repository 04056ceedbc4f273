package device

import "testing"

func TestArenaContains(t *testing.T) {
	a := Arena{Base: 0x1000, Size: 0x100}
	for _, c := range []struct {
		addr, size uint64
		want       bool
	}{
		{0x1000, 0x100, true},
		{0x1000, 0, true},
		{0x10ff, 1, true},
		{0x1100, 0, true},
		{0x1100, 1, false},
		{0xfff, 1, false},
		{0xfff, 2, false},
		{0x10ff, 2, false},
		{0x1000, 1<<64 - 1, false},
		{1<<64 - 1, 2, false},
		{0, 1<<64 - 1, false},
	} {
		if got := a.Contains(c.addr, c.size); got != c.want {
			t.Errorf("%d bytes at %#x: %v", c.size, c.addr, got)
		}
	}
}

func TestDim(t *testing.T) {
	limit := Dim{4, 3, 2}
	for d, want := range map[Dim]bool{
		{4, 3, 2}: true, {1, 1, 1}: true, {0, 1, 1}: false, {1, 0, 1}: false, {1, 1, 0}: false,
		{5, 1, 1}: false, {1, 4, 1}: false, {1, 1, 3}: false,
	} {
		if got := d.Within(limit); got != want {
			t.Errorf("%v within %v: %v", d, limit, got)
		}
	}
	if n := (Dim{1 << 31, 65535, 65535}).Count(); n != 1<<31*65535*65535 {
		t.Errorf("count %d", n)
	}
}

func TestFaultError(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Kind: DeviceLost}, "device lost"},
		{Fault{Kind: Trap, Kernel: "k"}, "kernel k: trap"},
		{Fault{Kind: 77}, "fault 77"},
		{Fault{Kind: IllegalAddress, Located: true, Address: 0x1234, Detail: "a copy"}, "illegal address 0x1234: a copy"},
		{
			Fault{Kind: IllegalAddress, Kernel: "k", Located: true, Block: Dim{1, 2, 3}, Thread: Dim{4, 5, 6}, Address: 0xabc, Line: 7, Instruction: "st.global.u32 [%rd1], %r1"},
			"kernel k: illegal address 0xabc in block (1,2,3), thread (4,5,6), at line 7 (st.global.u32 [%rd1], %r1)",
		},
		{Fault{Kind: Deadlock, Kernel: "k", Located: true}, "kernel k: deadlock in block (0,0,0), thread (0,0,0)"},
	} {
		if got := c.fault.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
