package vmm

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"muster/internal/proportion"
)

// A list behaves as a sorted slice, whatever is added and removed.
func TestListIsInOrder(t *testing.T) {
	for seed := range uint64(8) {
		chance := rand.New(rand.NewPCG(seed, 0))
		var l list
		var want []*allocation
		for step := range 12_000 {
			addr := chance.Uint64N(3000)
			i, taken := search(want, addr)
			fills := step/3000%2 == 0 // it grows to several blocks, and shrinks again
			switch {
			case !taken && (fills || chance.IntN(4) == 0):
				a := &allocation{Range: Range{addr, 1}}
				l.insert(a)
				want = slices.Insert(want, i, a)
			case taken && (!fills || chance.IntN(4) == 0):
				l.remove(want[i])
				want = slices.Delete(want, i, i+1)
			}
			checkUpto(t, &l, want, chance.Uint64N(3001))
			if step%500 == 0 {
				checkList(t, &l, want)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

func checkUpto(t *testing.T, l *list, want []*allocation, addr uint64) {
	i, exact := search(want, addr)
	if exact {
		i++
	}
	at := l.upto(addr)
	var last, behind *allocation
	if i > 0 {
		last = want[i-1]
	}
	if i < len(want) {
		behind = want[i]
	}
	if at.get() != last || at.next().get() != behind {
		t.Errorf("at %d: got %v and %v, want %v and %v", addr, at.get(), at.next().get(), last, behind)
	}
}

func checkList(t *testing.T, l *list, want []*allocation) {
	var got []*allocation
	for at := l.first(); at.get() != nil; at = at.next() {
		got = append(got, at.get())
	}
	if !slices.Equal(got, want) || l.len() != len(want) {
		t.Errorf("%d allocations, %d counted, want %d", len(got), l.len(), len(want))
	}
	for i, b := range l.blocks {
		if len(b) == 0 || len(b) > blockMost {
			t.Errorf("a block of %d", len(b))
		}
		if i > 0 && cmp.Compare(l.blocks[i-1][0].Addr, b[0].Addr) >= 0 {
			t.Errorf("block %d is not in order", i)
		}
	}
}

// What is left of many allocations is not spread over as many blocks.
func TestListForgetsBlocks(t *testing.T) {
	var l list
	var all []*allocation
	for i := range 64 * blockMost {
		all = append(all, &allocation{Range: Range{uint64(i), 1}})
		l.insert(all[i])
	}
	for i, a := range all {
		if i%blockMost != 0 {
			l.remove(a)
		}
	}
	if len(l.blocks) > 2 {
		t.Errorf("%d allocations in %d blocks", l.len(), len(l.blocks))
	}
}

// Removing an allocation costs about the same beside four times as many others; when all pointers
// behind it were moved, it cost four times as much.
func TestFreeBesideMany(t *testing.T) {
	beside := func(live int) func() {
		s := crowded(t, live)
		return func() {
			for range 5 {
				for i := range 1000 {
					if _, err := s.Free(smallAt(i).Addr); err != nil {
						t.Fatal(err)
					}
				}
				for i := range 1000 {
					if err := s.Alloc(smallAt(i)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	proportion.Hold(t, "freeing and allocating beside 25,000 others, and beside 100,000", 2, beside(25_000), beside(100_000))
}

// A kernel that may need everything does not cost a list of everything.
func TestLaunchBesideMany(t *testing.T) {
	s := crowded(t, 20_000)
	if _, err := s.PrepareAll(Device(0), unbounded); err != nil {
		t.Fatal(err)
	}
	s.Launched(Device(0), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 50
	for i := range rounds {
		if err := s.Alloc(Range{0x600000000000 + uint64(100+i)*benchChunk, benchChunk}); err != nil {
			t.Fatal(err)
		}
		plan, err := s.PrepareAll(Device(0), unbounded)
		if err != nil || len(plan) != 1 || plan[0].Op != Map {
			t.Fatalf("%v, %v", plan, err)
		}
		s.Launched(Device(0), nil)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 4096 {
		t.Errorf("a launch beside 20,000 allocations takes %d bytes of memory", each)
	}
}
