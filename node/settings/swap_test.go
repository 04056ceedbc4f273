package settings

import "testing"

const gib = 1 << 30

func TestSwapAgainstItsPlace(t *testing.T) {
	disk, memory := Swap{Size: 8 * gib, Dir: "/swap"}, Swap{Size: 8 * gib}
	type verdict struct {
		warning string
		err     error
	}
	onDisk := func(free, total uint64) (v verdict) {
		v.warning, v.err = disk.onDisk(free, total)
		return v
	}
	for _, c := range []struct {
		name          string
		got           verdict
		warning, fail string
	}{
		{"room", onDisk(8*gib, 9*gib), "", ""},
		{"too full", onDisk(3*gib, 9*gib),
			"the swap area may have 8 GiB and the disk of /swap has 3 GiB free: programs are refused memory when it is full; make room there, or give the swap area less (swap.size, --swap)", ""},
		{"too small", onDisk(3*gib, 4*gib), "",
			"the swap area is to have 8 GiB (swap.size, --swap), and the disk of /swap has 4 GiB in all: give it less, or another folder (swap.dir, --swap-dir)"},
		{"memory", verdict{warning: memory.inMemory(8 * gib)}, "", ""},
		{"little memory", verdict{warning: memory.inMemory(4 * gib)},
			"the swap area may have 8 GiB and is in memory, of which the machine has 4 GiB: when that is used up, the system kills programs; give the swap area less (swap.size, --swap) or a folder on a disk (swap.dir, --swap-dir)", ""},
	} {
		fail := ""
		if c.got.err != nil {
			fail = c.got.err.Error()
		}
		if c.got.warning != c.warning || fail != c.fail {
			t.Errorf("%s: got %q and %q, want %q and %q", c.name, c.got.warning, fail, c.warning, c.fail)
		}
	}
}
