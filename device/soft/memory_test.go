package soft

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"muster/device"
	"muster/internal/seeds"
)

const base = uint64(0x6400_0000_0000)

// Random changes of the memory, compared with a plain list of granules.
func TestMemoryAgainstModel(t *testing.T) {
	const granules, limit = 24, 16
	seeds.Check(t, func(t *rapid.T) {
		b := &budget{total: limit * granule}
		m, err := newMemory(b, device.Arena{Base: base, Size: granules * granule})
		if err != nil {
			t.Fatal(err)
		}
		defer m.release()
		var mapped [granules]bool
		used := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			from := rapid.IntRange(0, granules-1).Draw(t, "from")
			n := rapid.IntRange(1, min(6, granules-from)).Draw(t, "n")
			have := 0
			for _, is := range mapped[from : from+n] {
				if is {
					have++
				}
			}
			addr, size := base+uint64(from)*granule, uint64(n)*granule
			if rapid.Bool().Draw(t, "map") {
				err := m.add(m.arena, addr, size)
				want := error(nil)
				switch {
				case have > 0:
					want = device.ErrInvalidValue
				case used+n > limit:
					want = device.ErrOutOfMemory
				}
				if !errors.Is(err, want) {
					t.Fatalf("mapping %d at %d: answered %v, want %v", n, from, err, want)
				}
				if err == nil {
					used += n
					fill(mapped[from:from+n], true)
				}
			} else {
				before := m.Generation()
				err := m.remove(m.arena, addr, size)
				if (err == nil) != (have == n) {
					t.Fatalf("unmapping %d at %d: answered %v", n, from, err)
				}
				if err == nil {
					used -= n
					fill(mapped[from:from+n], false)
					if m.Generation() == before {
						t.Fatal("memory was taken away and nobody can tell")
					}
				}
			}
			checkAgainst(t, m, mapped[:])
			if b.free() != uint64(limit-used)*granule {
				t.Fatalf("%d bytes free, want %d granules", b.free(), limit-used)
			}
		}
	})
}

func fill(list []bool, v bool) {
	for i := range list {
		list[i] = v
	}
}

// checkAgainst fails unless Find returns, for each granule, the stretch that the
// model has around it, and the granule can be written.
func checkAgainst(t *rapid.T, m *memory, mapped []bool) {
	for i, want := range mapped {
		at := base + uint64(i)*granule
		r, ok := m.Find(at + granule/2)
		if ok != want {
			t.Fatalf("granule %d: found %v, want %v", i, ok, want)
		}
		if !ok {
			continue
		}
		from, to := i, i+1
		for from > 0 && mapped[from-1] {
			from--
		}
		for to < len(mapped) && mapped[to] {
			to++
		}
		if r.Base != base+uint64(from)*granule || len(r.Bytes) != (to-from)*granule {
			t.Fatalf("granule %d: stretch of %d bytes at %#x, want granules %d to %d", i, len(r.Bytes), r.Base, from, to)
		}
		r.Bytes[at-r.Base] = 1
	}
}

// Memory that is unmapped and mapped again is zero: no client reads what another left.
func TestUnmappedMemoryIsCleared(t *testing.T) {
	m, err := newMemory(&budget{total: 4 * granule}, device.Arena{Base: base, Size: 4 * granule})
	if err != nil {
		t.Fatal(err)
	}
	defer m.release()
	for range 2 {
		if err := m.add(m.arena, base, granule); err != nil {
			t.Fatal(err)
		}
		b, _ := m.bytes(base, granule)
		for i, x := range b {
			if x != 0 {
				t.Fatalf("byte %d is %d", i, x)
			}
		}
		b[0], b[granule-1] = 1, 2
		if err := m.remove(m.arena, base, granule); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRoomForVariables(t *testing.T) {
	m, err := newMemory(&budget{total: 64 * granule}, device.Arena{Base: base, Size: granule})
	if err != nil {
		t.Fatal(err)
	}
	defer m.release()
	start := varsBases[0]
	take := func(size, want uint64) {
		t.Helper()
		at, ok := m.roomForVariables(size * granule)
		if !ok || at != start+want*granule {
			t.Fatalf("%d granules at %#x (%v), want the %d-th granule", size, at, ok, want)
		}
		if err := m.add(m.vars, at, size*granule); err != nil {
			t.Fatal(err)
		}
	}
	take(1, 0)
	take(3, 2)
	take(1, 6)
	if err := m.remove(m.vars, start+2*granule, 3*granule); err != nil {
		t.Fatal(err)
	}
	take(4, 8) // in the gap it would touch its neighbour
	take(2, 2)
	take(1, 13)
	if _, ok := m.roomForVariables(varsSize); ok {
		t.Error("there is room for more than the area holds")
	}
}

// The area of variables moves to another base where the arena overlaps the first.
func TestVariablesBesideArena(t *testing.T) {
	for _, c := range []struct{ at, size, want uint64 }{
		{base, 1 << 40, varsBases[0]},
		{varsBases[0], granule, varsBases[1]},
		{varsBases[0] - granule, 2 * granule, varsBases[1]},
		{varsBases[0] + varsSize - granule, 2 * granule, varsBases[1]},
		{varsBases[0] - granule, granule, varsBases[0]},
		{varsBases[0], varsBases[1] - varsBases[0] + granule, varsBases[2]},
	} {
		m, err := newMemory(&budget{}, device.Arena{Base: c.at, Size: c.size})
		if err != nil {
			t.Fatal(err)
		}
		if m.vars.at.Base != c.want {
			t.Errorf("arena of %d bytes at %#x: variables at %#x, want %#x", c.size, c.at, m.vars.at.Base, c.want)
		}
		if err := m.release(); err != nil {
			t.Error(err)
		}
	}
	if m, err := newMemory(&budget{}, device.Arena{Base: granule, Size: 1 << 43}); !errors.Is(err, device.ErrInvalidValue) {
		t.Errorf("an arena over all of it: answered %v, %v", m, err)
	}
}

// Shared memory takes nothing of the device's budget, so nothing is given back with a part of it, or with
// memory beside it: such an unmapping is refused.
func TestSharedMemoryIsUnmappedAsAWhole(t *testing.T) {
	const base, page = 0x6400_0000_0000, 2 << 20
	d, err := New(Profile{Name: "shared", Memory: 16 << 20, Speed: 1, Workers: 1}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.Can().NewShared(2 * page)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(c.Map(base, page), c.Can().MapShared(base+page, 2*page, f), c.Map(base+3*page, page)); err != nil {
		t.Fatal(err)
	}
	free := d.budget.free()
	for _, s := range [][2]uint64{{0, 2}, {1, 1}, {2, 1}, {2, 2}, {0, 4}} {
		if err := c.Unmap(base+s[0]*page, s[1]*page); !errors.Is(err, device.ErrInvalidValue) {
			t.Errorf("pages %d to %d: %v", s[0], s[0]+s[1]-1, err)
		}
	}
	if now := d.budget.free(); now != free {
		t.Errorf("%d bytes are free, and were %d", now, free)
	}
	if err := c.Unmap(base+page, 2*page); err != nil || d.budget.free() != free {
		t.Errorf("%v; %d bytes are free", err, d.budget.free())
	}
}
