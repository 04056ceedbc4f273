package devicetest

import (
	"bytes"
	"errors"

	"muster/device"
)

var memoryTests = []test{
	{"info", always, testInfo},
	{"copies", always, testCopies},
	{"pieces join", always, testPiecesJoin},
	{"map and unmap", always, testMapUnmap},
	{"addresses stay", always, testAddressesStay},
	{"fill", always, testFill},
	{"out of memory", always, testOutOfMemory},
	{"misuse", always, testMemoryMisuse},
	{"pin", always, testPin},
	{"pinned in parts", always, testPinnedParts},
	{"data that are taken", always, testTaken},
}

func isError(err, want error) bool { return errors.Is(err, want) }

func testInfo(b *bench) {
	i := b.dev.Info()
	l := i.Limits
	for what, ok := range map[string]bool{
		"it has a name":                        i.Name != "",
		"it has a UUID":                        i.UUID != [16]byte{},
		"memory is whole granules or more":     i.Memory >= i.Granularity && i.Memory >= 64<<20,
		"the granularity is a power of two":    i.Granularity > 0 && i.Granularity&(i.Granularity-1) == 0,
		"contexts cost less than there is":     i.ContextCost < i.Memory,
		"it has multiprocessors":               i.Multiprocessors > 0,
		"it has a speed":                       i.Speed > 0,
		"it has a compute capability":          i.Compute.Arch() >= 70,
		"warps have 32 threads":                l.Warp == 32,
		"blocks may have 1024 threads":         l.Threads >= 1024 && l.Block.X >= 1024,
		"grids are large":                      l.Grid.X >= 1<<31-1 && l.Grid.Y >= 65535 && l.Grid.Z >= 65535,
		"blocks have 48 KiB of shared memory":  l.SharedBlock >= 48<<10,
		"a block's shared memory fits":         l.SharedBlock+l.SharedReserved <= l.SharedMultiprocessor,
		"threads have memory of their own":     l.Local >= 64<<10,
		"a block fits":                         l.ThreadsResident >= l.Threads && l.BlocksResident > 0,
		"attributes agree on multiprocessors":  i.Attributes[16] == i.Multiprocessors,
		"attributes agree on the capability":   i.Attributes[75] == i.Compute.Major && i.Attributes[76] == i.Compute.Minor,
		"attributes agree on threads":          i.Attributes[1] == l.Threads,
		"attributes agree on shared memory":    i.Attributes[97] == int(l.SharedBlock),
		"attributes agree on what is resident": i.Attributes[39] == l.ThreadsResident && i.Attributes[106] == l.BlocksResident,
	} {
		if !ok {
			b.Errorf("this should be true: %s", what)
		}
	}
}

func testCopies(b *bench) {
	o := b.open()
	addr := o.mapped(3, 2*o.g)
	data := pattern(int(o.g+4097), 0x5a)
	o.put(addr+1, data)
	if !bytes.Equal(o.get(addr+1, len(data)), data) {
		b.Error("what was copied in did not come out")
	}
	// Copy within the device, at odd addresses, then read a part of it back.
	to := o.mapped(9, 2*o.g) + 7
	o.ok(o.stream.Copy(to, addr+1, uint64(len(data))))
	if !bytes.Equal(o.get(to+100, 1000), data[100:1100]) {
		b.Error("what was copied within did not come out")
	}
	// Overlapping ranges: drivers accept them, and memory beside them must not change.
	o.ok(o.stream.Copy(to+200, to+100, 1000))
	o.ok(o.stream.Copy(to+3000, to+3100, 1000))
	for _, at := range []int{0, 1200, 2900, 4000} {
		if !bytes.Equal(o.get(to+uint64(at), 100), data[at:at+100]) {
			b.Errorf("a copy of overlapping ranges changed what is at %d", at)
		}
	}
	o.ok(o.stream.CopyIn(addr, nil))
	o.ok(o.stream.CopyOut(nil, addr))
	o.ok(o.stream.Copy(addr, to, 0))
	o.ok(o.stream.Fill(addr, 1, 4, 0))
	o.finish()
}

// A stretch that was mapped in pieces, in any order, is one stretch to copies
// and kernels.
func testPiecesJoin(b *bench) {
	o := b.open()
	for _, n := range []uint64{2, 4, 3} {
		o.mapped(n, o.g)
	}
	start := arenaBase + 2*o.g
	data := pattern(int(3*o.g), 1)
	o.put(start, data)
	if !bytes.Equal(o.get(start, len(data)), data) {
		b.Error("a copy over three pieces went wrong")
	}
	at := start + 2*o.g - 64 // 32 words: half of them before the seam
	o.putWords(at, make([]uint32, 32)...)
	o.launch(o.stream, "step", 1, 32, at, uint32(5), uint32(32))
	for i, w := range o.getWords(at, 32) {
		if w != 5 {
			b.Fatalf("word %d around the seam is %d, want 5", i, w)
		}
	}
	// Unmap the middle; the rest stays.
	o.ok(o.Unmap(start+o.g, o.g))
	if !bytes.Equal(o.get(start, 1000), data[:1000]) || !bytes.Equal(o.get(start+2*o.g+100, 1000), data[2*o.g+100:2*o.g+1100]) {
		b.Error("unmapping the middle changed its neighbours")
	}
	o.refused(o.stream.CopyOut(make([]byte, 2*o.g), start), device.ErrInvalidValue)
}

// freeAgain fails unless as much memory is free as before.
func (o *opened) freeAgain(before uint64) {
	o.Helper()
	after, _, err := o.Memory()
	o.ok(err)
	if o.options.ExactMemory && after != before {
		o.Errorf("%d bytes free, before it were %d", after, before)
	}
}

func testMapUnmap(b *bench) {
	o := b.open()
	free, total, err := o.Memory()
	b.ok(err)
	if total != b.dev.Info().Memory || free > total {
		b.Errorf("%d of %d bytes free on a device with %d", free, total, b.dev.Info().Memory)
	}
	addr := o.mapped(0, 4*o.g)
	last := o.mapped(arenaSize/o.g-1, o.g)
	o.putWords(last+o.g-4, 77)
	if after, _, err := o.Memory(); err != nil || free-after < 5*o.g {
		b.Errorf("mapping 5 granules took %d bytes (%v)", free-after, err)
	}
	o.ok(o.Unmap(addr, 2*o.g))
	o.ok(o.Unmap(addr+2*o.g, 2*o.g))
	o.ok(o.Unmap(last, o.g))
	o.freeAgain(free)
	o.mapped(0, 4*o.g) // the same place again
}

// Memory that is copied out, unmapped, mapped and copied in again is the same
// to a kernel with a pointer into it.
func testAddressesStay(b *bench) {
	o := b.open()
	addr := o.mapped(5, o.g)
	o.putWords(addr, 1, 2, 3, 4)
	o.launch(o.stream, "step", 1, 4, addr, uint32(1), uint32(4))
	saved := o.get(addr, int(o.g))
	o.ok(o.Unmap(addr, o.g))
	o.mapped(6, o.g)
	o.mapped(5, o.g)
	o.put(addr, saved)
	o.launch(o.stream, "step", 1, 4, addr, uint32(1), uint32(4))
	same(b, "words", o.getWords(addr, 4), []uint32{13, 22, 31, 40})
}

func testFill(b *bench) {
	o := b.open()
	addr := o.mapped(0, 2*o.g)
	o.ok(o.stream.Fill(addr, 0, 1, 2*o.g))
	for _, c := range []struct {
		width int
		want  []byte
	}{
		{1, []byte{0x44}},
		{2, []byte{0x44, 0x33}},
		{4, []byte{0x44, 0x33, 0x22, 0x11}},
	} {
		at := addr + o.g - 8
		const count = 5
		o.ok(o.stream.Fill(at, 0x11223344, c.width, count))
		got := o.get(at-4, 4+count*c.width+4)
		want := append(make([]byte, 4), bytes.Repeat(c.want, count)...)
		want = append(want, make([]byte, 4)...)
		if !bytes.Equal(got, want) {
			b.Errorf("filling with elements of %d bytes: % x, want % x", c.width, got, want)
		}
		o.ok(o.stream.Fill(addr, 0, 4, 2*o.g/4))
	}
	o.refused(o.stream.Fill(addr, 1, 3, 1), device.ErrInvalidValue)
	o.refused(o.stream.Fill(addr, 1, 0, 1), device.ErrInvalidValue)
	o.refused(o.stream.Fill(addr+2, 1, 4, 1), device.ErrInvalidValue)
	o.refused(o.stream.Fill(addr+1, 1, 2, 1), device.ErrInvalidValue)
	o.refused(o.stream.Fill(addr, 1, 4, 1<<63), device.ErrInvalidValue)
	o.refused(o.stream.Fill(addr+2*o.g-4, 1, 4, 2), device.ErrInvalidValue)
}

func testOutOfMemory(b *bench) {
	info := b.dev.Info()
	size := info.Memory/info.Granularity*info.Granularity + info.Granularity
	o := b.openOn(b.dev, device.Config{Arena: device.Arena{Base: arenaBase, Size: size}})
	addr := o.mapped(0, o.g)
	o.putWords(addr, 42)
	free, _, err := o.Memory()
	b.ok(err)
	o.refused(o.Map(addr+o.g, size-o.g), device.ErrOutOfMemory)
	o.freeAgain(free)
	o.ok(o.Map(addr+o.g, o.g))
	same(b, "memory after a refusal", o.getWords(addr, 1), []uint32{42})
}

func testMemoryMisuse(b *bench) {
	o := b.open()
	addr := o.mapped(4, 2*o.g)
	g := o.g
	for what, err := range map[string]error{
		"mapping what is mapped":                o.Map(addr, g),
		"mapping over a mapped end":             o.Map(addr+g, 2*g),
		"mapping around":                        o.Map(addr-g, 4*g),
		"mapping nothing":                       o.Map(addr+4*g, 0),
		"mapping at half a granule":             o.Map(addr+4*g+g/2, g),
		"mapping half a granule":                o.Map(addr+4*g, g/2),
		"mapping below the arena":               o.Map(arenaBase-g, g),
		"mapping over the arena's start":        o.Map(arenaBase-g, 2*g),
		"mapping over the arena's end":          o.Map(arenaBase+arenaSize-g, 2*g),
		"mapping beyond the arena":              o.Map(arenaBase+arenaSize, g),
		"mapping more than addresses go":        o.Map(arenaBase, -g),
		"unmapping a hole":                      o.Unmap(arenaBase, g),
		"unmapping more than is mapped":         o.Unmap(addr, 3*g),
		"unmapping from before":                 o.Unmap(addr-g, 2*g),
		"unmapping nothing":                     o.Unmap(addr, 0),
		"unmapping half a granule":              o.Unmap(addr, g/2),
		"unmapping outside":                     o.Unmap(arenaBase+arenaSize, g),
		"copying into a hole":                   o.stream.CopyIn(arenaBase, make([]byte, 1)),
		"copying over an end":                   o.stream.CopyIn(addr+2*g-1, make([]byte, 2)),
		"copying from a hole":                   o.stream.CopyOut(make([]byte, 1), addr+2*g),
		"copying from before":                   o.stream.CopyOut(make([]byte, 2), addr-1),
		"copying from nowhere":                  o.stream.CopyOut(make([]byte, 8), 0),
		"copying from the end of all addresses": o.stream.CopyOut(make([]byte, 8), 1<<64-4),
		"copying within to a hole":              o.stream.Copy(addr+2*g, addr, 8),
		"copying within from a hole":            o.stream.Copy(addr, addr+2*g, 8),
		"copying within, far too much":          o.stream.Copy(addr, addr+8, 1<<63),
		"filling a hole":                        o.stream.Fill(addr+2*g, 0, 1, 1),
	} {
		if !errors.Is(err, device.ErrInvalidValue) {
			b.Errorf("%s: answered %v, want: %v", what, err, device.ErrInvalidValue)
		}
	}
	o.putWords(addr, 9) // none of it ended the context
	same(b, "memory", o.getWords(addr, 1), []uint32{9})

	for _, a := range []device.Arena{{}, {Base: arenaBase}, {Base: arenaBase + 1, Size: g}, {Base: arenaBase, Size: g + 1}, {Base: -g, Size: 2 * g}} {
		if x, err := b.dev.Open(device.Config{Arena: a}); !errors.Is(err, device.ErrInvalidValue) {
			b.Errorf("opening an arena of %d bytes at %s: answered %v", a.Size, hex(a.Base), err)
			if err == nil {
				b.ok(x.Close())
			}
		}
	}
}

func testPin(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	host := pattern(1<<20, 3)
	unpin, err := o.Pin(host)
	b.ok(err)
	o.put(addr, host)
	back := o.get(addr, len(host))
	b.ok(unpin())
	if !bytes.Equal(back, host) {
		b.Error("a copy from pinned memory went wrong")
	}
}

// Memory that was pinned in parts is copied as a whole, from any place to any.
func testPinnedParts(b *bench) {
	o := b.open()
	const part = 1 << 20
	addr := o.mapped(0, 4*part)
	host := b.hostPages(4 * part)
	copy(host, pattern(len(host), 5))
	for _, from := range []int{2 * part, 0, part} { // the last part is not pinned
		_, err := o.Pin(host[from : from+part])
		b.ok(err)
	}
	for _, c := range [][2]int{{0, 3 * part}, {part - 100, 300}, {part / 2, 2 * part}, {2*part + 7, part - 7}, {3*part - 5, 10}, {0, 4 * part}} {
		from, n := c[0], c[1]
		b.ok(o.stream.Fill(addr, 0, 1, 4*part))
		o.put(addr+uint64(from), host[from:from+n])
		if !bytes.Equal(o.get(addr+uint64(from), n), host[from:from+n]) {
			b.Errorf("%d bytes at %d went wrong", n, from)
		}
		back := b.hostPages(4 * part)
		_, err := o.Pin(back[part : 2*part])
		b.ok(err)
		b.ok(o.stream.CopyOut(back[from:from+n], addr+uint64(from)))
		o.finish()
		if !bytes.Equal(back[from:from+n], host[from:from+n]) {
			b.Errorf("%d bytes at %d came back as others", n, from)
		}
	}
}

// After CopyTaken the caller may reuse its bytes at once, however much work is pending.
func testTaken(b *bench) {
	o := b.open()
	taker := o.stream.Can()
	if taker.CopyTaken == nil {
		b.Skip("the backend takes no data")
	}
	const size, count = 3000, 3000
	addr := o.mapped(0, size*count)
	data, plain := make([]byte, size), pattern(5<<20, 9)
	for i := range count {
		for j := range data {
			data[j] = byte(i + j)
		}
		b.ok(taker.CopyTaken(addr+uint64(i)*size, data))
		switch i {
		case 500, 1500: // copies of other kinds in between
			b.ok(o.stream.CopyIn(addr, plain[:100<<10]))
			b.ok(o.stream.Call(func() {}))
		case 2000:
			b.ok(o.stream.CopyIn(addr, plain))
		}
	}
	got := o.get(addr, size*count)
	if !bytes.Equal(got[:len(plain)], plain) {
		b.Error("the copies in between went wrong")
	}
	for i := (len(plain) + size - 1) / size; i < count; i++ {
		for j := range size {
			if got[i*size+j] != byte(i+j) {
				b.Fatalf("byte %d of copy %d is %d", j, i, got[i*size+j])
			}
		}
	}
}
