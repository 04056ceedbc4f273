package hostcopy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"muster/device"
	"muster/internal/need"
	"muster/internal/seeds"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy/hostcopytest"
	"muster/vmm"
)

// Host copies of a client that is to outlive its worker have two sides. These tests
// hold them to this: whatever is written, what a chunk held when commit was called can
// be read where the base says that it is, until the next commit; and no more room is
// taken than that needs.

const sideChunks = 6

// keptHost is host memory with two sides, and what a base of it would say.
type keptHost struct {
	*Memory
	t     testing.TB
	files []*os.File

	data        []byte // what the client has written
	held        []bool // by chunk: the host has a copy
	allocations map[int]int
	base        *hostBase // nil: there is none
}

// hostBase is what a base says of host memory.
type hostBase struct {
	data        []byte
	held        []bool
	allocations map[int]int // first chunk and number
	which       []byte
}

func chunkRange(first, count int) vmm.Range {
	return vmm.Range{Addr: testBase + uint64(first)*chunk, Size: uint64(count) * chunk}
}

// keepHost makes host memory with two sides, in memory or in files.
func keepHost(t testing.TB, dir string) *keptHost {
	t.Helper()
	k := &keptHost{t: t, data: make([]byte, sideChunks*chunk), held: make([]bool, sideChunks), allocations: map[int]int{}}
	for range 2 {
		f, err := CreateFile(sideChunks*chunk, dir, true)
		if err != nil {
			t.Fatal(err)
		}
		k.files = append(k.files, f)
	}
	k.open(dir)
	t.Cleanup(func() {
		k.Memory.Close()
		closeFiles(k.files)
	})
	return k
}

func (k *keptHost) open(dir string) {
	k.t.Helper()
	h, err := New(chunkRange(0, sideChunks), dir, duplicates(k.t, k.files))
	if err != nil {
		k.t.Fatal(err)
	}
	k.Memory = h
}

// stripes is pattern, for many bytes.
func stripes(n int, seed byte) []byte {
	b := make([]byte, n)
	for at := copy(b, pattern(min(n, 4099), seed)); at < n; at *= 2 {
		copy(b[at:], b[:at])
	}
	return b
}

// put writes bytes somewhere, as the worker does: what cannot be kept is given up.
func (k *keptHost) put(at int, data []byte, all bool) {
	k.t.Helper()
	r := vmm.Range{Addr: testBase + uint64(at), Size: uint64(len(data))}
	if err := k.touch(r, all); err != nil {
		if !errors.Is(err, errBase) {
			k.t.Fatal(err)
		}
		k.Abandon()
		k.base = nil
		if err := k.touch(r, all); err != nil {
			k.t.Fatalf("without a base there is no room: %v", err)
		}
	}
	_ = k.Each(r, func(addr uint64, piece []byte) error {
		copy(piece, data[addr-r.Addr:])
		return nil
	})
	for i := at / chunk; i <= (at+len(data)-1)/chunk; i++ {
		if !k.held[i] { // it may hold anything beside that
			k.Read(k.data[i*chunk:(i+1)*chunk], testBase+uint64(i)*chunk)
		}
		k.held[i] = true
	}
	copy(k.data[at:], data)
}

// commit makes a base.
func (k *keptHost) commit() {
	k.Memory.Commit()
	k.base = &hostBase{bytes.Clone(k.data), slices.Clone(k.held), map[int]int{}, bytes.Clone(k.which)}
	for first, count := range k.allocations {
		k.base.allocations[first] = count
	}
}

// alloc reserves chunks; false if there is no room.
func (k *keptHost) alloc(first, count int) bool {
	if err := k.Reserve(chunkRange(first, count)); err != nil {
		return false
	}
	k.allocations[first] = count
	return true
}

// free is what freeing an allocation does.
func (k *keptHost) free(first int) {
	count := k.allocations[first]
	delete(k.allocations, first)
	k.Release(chunkRange(first, count))
	k.Discard(chunkRange(first, count))
	clear(k.held[first : first+count])
}

// die is a worker that is killed, and another that goes on from the base.
func (k *keptHost) die() {
	k.t.Helper()
	dir := k.dir
	k.Close()
	k.open(dir)
	var held, allocations []vmm.Range
	for i, is := range k.base.held {
		if is {
			held = append(held, chunkRange(i, 1))
		}
	}
	clear(k.allocations)
	for first, count := range k.base.allocations {
		allocations = append(allocations, chunkRange(first, count))
		k.allocations[first] = count
	}
	if err := k.Resume(k.base.which, held, allocations); err != nil {
		k.t.Fatal(err)
	}
	copy(k.data, k.base.data)
	copy(k.held, k.base.held)
}

// check looks at what the client sees, at what a base says, and at the room that both
// take.
func (k *keptHost) check(what string) {
	k.t.Helper()
	got := make([]byte, chunk)
	for i := range sideChunks {
		if k.held[i] {
			want := k.data[i*chunk : (i+1)*chunk]
			if k.Read(got, testBase+uint64(i)*chunk); !bytes.Equal(got, want) {
				k.t.Fatalf("%s: chunk %d is not what was written: %s", what, i, difference(got, want))
			}
		}
		if k.base == nil || !k.base.held[i] {
			continue
		}
		side := k.sides[k.base.which[i/8]>>(i%8)&1].bytes[i*chunk : (i+1)*chunk]
		if want := k.base.data[i*chunk : (i+1)*chunk]; !bytes.Equal(side, want) {
			k.t.Fatalf("%s: chunk %d is not what it was when the base was made: %s", what, i, difference(side, want))
		}
	}
	k.checkRoom(what)
}

func difference(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %d and should be %d", i, got[i], want[i])
		}
	}
	return "nothing differs"
}

// checkRoom holds the pages of both sides to what they are needed for.
func (k *keptHost) checkRoom(what string) {
	k.t.Helper()
	spare := 0
	for i := range k.chunks {
		if k.chunks[i].spare {
			spare++
		}
	}
	if spare != k.spare {
		k.t.Fatalf("%s: %d chunks have spare pages, and %d are counted", what, spare, k.spare)
	}
	if k.dir != "" {
		for on := range k.sides {
			var room int64
			for i := range k.chunks {
				room += int64(k.chunks[i].room>>on&1) * chunk
			}
			if got := k.taken(on); got/chunk != room/chunk { // some file systems add a block of their own
				k.t.Fatalf("%s: side %d takes %d bytes, and %d are counted", what, on, got, room)
			}
		}
		return
	}
	for i := range k.chunks {
		c, now := &k.chunks[i], k.side(i)
		for on := range uint8(2) {
			ofBase := k.base != nil && k.base.held[i] && k.base.which[i/8]>>(i%8)&1 == on
			if k.hasPages(on, i) && !(c.used && (on == now || c.spare)) && !ofBase {
				k.t.Fatalf("%s: chunk %d takes room on side %d, which nobody needs (%+v, it is on side %d)", what, i, on, *c, now)
			}
		}
	}
}

// taken is how many bytes a side's file takes.
func (k *keptHost) taken(on int) int64 {
	info, err := k.sides[on].file.Stat()
	if err != nil {
		k.t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// hasPages says whether a chunk takes room on a side in memory.
func (k *keptHost) hasPages(on uint8, i int) bool {
	const seekData = 3
	at, err := k.sides[on].file.Seek(int64(i)*chunk, seekData)
	return err == nil && at < int64(i+1)*chunk
}

// everywhere runs a test in memory and in files.
func everywhere(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("memory", func(t *testing.T) { test(t, "") })
	t.Run("files", func(t *testing.T) { test(t, t.TempDir()) })
}

// What is written after a base goes to the other side: all of a chunk, a part of it,
// and parts of several.
func TestBaseIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	for _, c := range []struct {
		name  string
		at, n int
		moved []int
	}{
		{"all of a chunk", chunk, chunk, []int{1}},
		{"a byte", 2*chunk - 1, 1, []int{1}},
		{"the end of one and the begin of the next", 2*chunk - 5, 10, []int{1, 2}},
		{"a part, all, a part", chunk + 7, 2*chunk + 3, []int{1, 2, 3}},
		{"everything", 0, 4 * chunk, []int{0, 1, 2, 3}},
		{"what the base has not", 4 * chunk, chunk, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, dir string) {
				k := keepHost(t, dir)
				k.alloc(0, 5)
				k.put(0, stripes(4*chunk, 1), true)
				k.commit()
				k.put(c.at, stripes(c.n, 9), true)
				k.check("after a write")
				if !slices.Equal(k.moved, c.moved) {
					t.Errorf("chunks %v have left a side, and %v should have", k.moved, c.moved)
				}
				k.put(c.at, stripes(c.n, 10), false) // where it is now
				k.check("after another")
				if len(k.moved) != len(c.moved) {
					t.Errorf("chunks %v have left a side by then", k.moved)
				}
				k.die()
				k.put(c.at, stripes(c.n, 11), false)
				k.check("after a write of the next worker")
				k.commit()
				k.put(0, stripes(5*chunk, 12), false)
				k.check("after the next base, and a write to all")
				k.die()
				k.check("after death again")
			})
		})
	}
}

// A chunk that is freed and allocated anew keeps what the base has of it, and gives
// everything back when the next base is made without it.
func TestBaseOutlivesItsAllocation(t *testing.T) {
	everywhere(t, func(t *testing.T, dir string) {
		k := keepHost(t, dir)
		k.alloc(1, 3)
		k.put(chunk, stripes(3*chunk, 1), true)
		k.commit()
		k.free(1)
		k.check("freed")
		k.alloc(2, 1)
		k.put(2*chunk+5, stripes(100, 2), true)
		k.check("allocated anew")
		k.free(2)
		k.check("freed again")
		k.die()
		k.check("after death")
		k.put(2*chunk, stripes(chunk, 3), true)
		k.free(1)
		k.commit()
		k.check("a base of nothing")
		if n := k.taken(0) + k.taken(1); n >= chunk {
			t.Errorf("%d bytes are taken where nothing is", n)
		}
		k.die()
		k.check("dead with nothing")
	})
}

// After abandon chunks are written where they are, until the next base.
func TestAbandonedBase(t *testing.T) {
	everywhere(t, func(t *testing.T, dir string) {
		k := keepHost(t, dir)
		k.alloc(0, 4)
		k.put(0, stripes(4*chunk, 1), true)
		k.commit()
		k.put(chunk, stripes(chunk, 2), true)
		k.Abandon()
		k.base = nil
		k.check("abandoned")
		k.put(0, stripes(4*chunk, 3), false)
		if len(k.moved) > 0 {
			t.Errorf("chunks %v have left a side for a base that is not there", k.moved)
		}
		k.check("written in place")
		k.free(0)
		k.check("freed")
		k.alloc(0, 2)
		k.put(0, stripes(2*chunk, 4), true)
		k.commit()
		k.put(0, stripes(2*chunk, 5), true)
		k.check("written after a base")
		k.die()
		k.check("after death")
	})
}

// Pages that are kept because they will be used again are counted, and bounded.
func TestSparePages(t *testing.T) {
	k := keepHost(t, "")
	k.put(0, stripes(3*chunk, 1), true)
	k.commit()
	want := func(what string, n int) {
		t.Helper()
		if k.check(what); k.spare != n {
			t.Errorf("%s: %d chunks are spare, and %d should be", what, k.spare, n)
		}
	}
	want("a base", 0)
	k.put(0, stripes(3*chunk, 2), true)
	want("all is on both sides", 0)
	k.commit()
	want("the next base", 3)
	k.put(0, stripes(chunk, 3), true)
	want("one is used again", 2)
	k.Discard(chunkRange(1, 1))
	k.held[1] = false
	want("one is dropped", 1)
	k.commit()
	want("another base", 2)
	k.Abandon()
	k.base = nil
	k.Discard(chunkRange(0, 3))
	clear(k.held)
	want("abandoned, and all dropped", 0)
	k.Memory.spare, k.maySpare = leastSpare, func() int { return leastSpare } // of others
	k.put(0, stripes(chunk, 4), true)
	k.commit()
	k.put(0, stripes(chunk, 5), true)
	k.commit()
	if k.chunks[0].spare || k.hasPages(1-k.side(0), 0) {
		t.Error("more is spare than may be")
	}
	k.Memory.spare = 0
}

// The disk is full in the middle of a write: what has no room on its other side ends
// the base, and the write goes on in place.
func TestDiskIsFullForTheOtherSide(t *testing.T) {
	dir := hostcopytest.SmallDisk(t, 5*chunk)
	k := keepHost(t, dir)
	k.alloc(0, 3)
	k.put(0, stripes(3*chunk, 1), true)
	k.commit()
	k.check("a base")
	r := chunkRange(0, 3)
	if err := k.touch(r, false); !errors.Is(err, errBase) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("three chunks where two fit: %v", err)
	}
	if !slices.Equal(k.moved, []int{0, 1}) {
		t.Errorf("chunks %v have left their side", k.moved)
	}
	k.check("full") // the base is there, and what the client has
	k.Abandon()
	k.base = nil
	k.check("abandoned")
	if n := hostcopytest.Used(t, dir); n != 3*chunk {
		t.Errorf("%d bytes are taken by three chunks", n)
	}
	k.put(0, stripes(3*chunk, 2), false)
	k.check("written")
	k.commit()
	k.put(chunk, stripes(chunk, 3), true)
	k.check("one chunk fits")
	k.die()
	k.check("after death")
	if k.alloc(3, 3) {
		t.Error("three chunks more fit")
	}
	k.check("refused")
	if !k.alloc(3, 2) {
		t.Error("two chunks more do not fit")
	}
	k.put(3*chunk, stripes(2*chunk, 4), true)
	k.check("all is full")
	k.commit()
	k.put(chunk-1, stripes(2, 5), true) // which ends the base
	k.check("written where all is full")
	if k.base != nil {
		t.Error("there is room that is not there")
	}
}

// A worker that goes on from a base has the room that the base's allocations had,
// though it was given back since, and though others have taken it: or it says so.
func TestRoomOfTheBaseIsTakenAgain(t *testing.T) {
	dir := hostcopytest.SmallDisk(t, 4*chunk)
	k := keepHost(t, dir)
	k.alloc(0, 2) // never written before the base
	k.commit()
	k.put(0, stripes(2*chunk, 1), true)
	k.free(0)
	k.die()
	k.check("after death")
	k.put(0, stripes(2*chunk, 2), true)
	k.check("as before")
	k.free(0)
	defer hostcopytest.Fill(t, dir)()
	k.Close()
	k.open(dir)
	if err := k.Resume(k.base.which, nil, []vmm.Range{chunkRange(0, 2)}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("goes on where there is no room: %v", err)
	}
}

// A copy from one place to another that overlap, within host copies that belong to a
// base, is what it is on a device: all is read before any is written.
func TestCopiesThatOverlap(t *testing.T) {
	everywhere(t, func(t *testing.T, dir string) {
		for _, c := range []struct{ to, from, n int }{
			{0, 4, 4*chunk - 4}, {4, 0, 4*chunk - 4}, {0, chunk, 3 * chunk}, {chunk, 0, 3 * chunk}, {0, 0, 4 * chunk}, {0, 2 * chunk, 2 * chunk},
		} {
			k := keepHost(t, dir)
			k.alloc(0, 4)
			k.put(0, stripes(4*chunk, 1), true)
			k.commit()
			area := func(at int) clientcore.Area {
				return clientcore.Area{Addr: testBase + uint64(at), Pitch: uint64(c.n), Width: uint64(c.n), Height: 1}
			}
			if err := k.Copy(area(c.to), area(c.from)); err != nil {
				t.Fatal(err)
			}
			copy(k.data[c.to:c.to+c.n], k.data[c.from:c.from+c.n])
			k.check(fmt.Sprintf("%d bytes from %d to %d", c.n, c.from, c.to))
		}
	})
}

// Sides of another size are refused.
func TestResumeRefuses(t *testing.T) {
	k := keepHost(t, "")
	if err := k.Resume(make([]byte, 2), nil, nil); err == nil {
		t.Error("sides of 16 chunks where there are 6")
	}
	if _, err := New(chunkRange(0, sideChunks+1), "", duplicates(t, k.files)); err == nil {
		t.Error("files of 6 chunks where there are 7")
	}
}

// Anything in any order, with a disk that is sometimes full.
func TestSidesAtRandom(t *testing.T) {
	seed, _ := seeds.First(t)
	steps := need.Rounds(80, 150)
	if testing.Short() {
		steps = 60
	}
	test := func(t *testing.T, dir string) {
		k, r := keepHost(t, dir), rand.New(rand.NewPCG(seed, 0))
		for range steps {
			what := k.random(r)
			k.check(what)
		}
	}
	everywhere(t, test)
	t.Run("a small disk", func(t *testing.T) { test(t, hostcopytest.SmallDisk(t, (sideChunks+2)*chunk)) })
}

// random does something.
func (k *keptHost) random(r *rand.Rand) string {
	taken := make([]bool, sideChunks)
	for first, count := range k.allocations {
		for i := range count {
			taken[first+i] = true
		}
	}
	first := r.IntN(sideChunks)
	count := 1 + r.IntN(sideChunks-first)
	switch n := r.IntN(100); {
	case n < 15:
		if slices.Contains(taken[first:first+count], true) {
			return "nothing"
		}
		return fmt.Sprint("alloc ", first, " ", count, " ", k.alloc(first, count))
	case n < 25:
		if _, ok := k.allocations[first]; ok {
			k.free(first)
			return fmt.Sprint("free ", first)
		}
		return "nothing"
	case n < 75:
		count, ok := k.allocations[first]
		if !ok {
			return "nothing"
		}
		at := r.IntN(count * chunk)
		size := 1 + r.IntN(count*chunk-at)
		switch r.IntN(3) {
		case 0:
			at, size = at/chunk*chunk, chunk
		case 1:
			size = min(size, 1000)
		}
		all := r.IntN(2) == 0
		k.put(first*chunk+at, stripes(size, byte(r.Uint32())), all)
		return fmt.Sprint("put ", first*chunk+at, " ", size, " ", all)
	case n < 90:
		k.commit()
		return "commit"
	case n < 93:
		k.Abandon()
		k.base = nil
		return "abandon"
	case k.base != nil && k.dir == "" || k.base != nil && k.fits():
		k.die()
		return "die"
	}
	return "nothing"
}

// fits says whether the disk has room for all that the base's allocations may have
// given back.
func (k *keptHost) fits() bool {
	var disk syscall.Statfs_t
	if err := syscall.Fstatfs(int(k.files[0].Fd()), &disk); err != nil {
		k.t.Fatal(err)
	}
	return disk.Bavail*uint64(disk.Bsize) >= sideChunks*chunk
}
