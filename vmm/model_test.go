package vmm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// Rapid's defaults take only a moment.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "2000", "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// machine is what the plans are for: memory of a host and of devices, with real bytes, beside the
// flat memory that the client believes in.
type machine struct {
	t     *rapid.T
	space *Space
	chunk uint64

	memory [][]byte // by place
	mapped [][]bool // by place and chunk; the host's is not used
	noise  byte     // the contents of memory that was never written

	flat    []byte
	defined []bool // the client, or a kernel, has written it
	owner   []int  // by byte: the number of the allocation, 0: none
	allocs  map[int]*fact
	number  int
	written []bool // by chunk: since it was first allocated
	fills   []fill // by chunk: what it was filled with, whole, and not written since

	devices  int      // that the space knows
	words    []string // of all devices, as Direct is told
	last     launch
	launches int
	partial  []int // by chunk: the launch that last needed some of it
}

// launch is a request to Prepare.
type launch struct {
	dev      Place
	need     []Range
	capacity uint64
	all      bool // need is everything allocated, and PrepareAll is called
}

func (l launch) prepare(s *Space) (Plan, error) {
	if l.all {
		return s.PrepareAll(l.dev, l.capacity)
	}
	return s.Prepare(l.dev, l.need, l.capacity)
}

// fact is an allocation as the test knows it.
type fact struct {
	Range
	needed   int
	children []int
}

const (
	modelBase    = 0x4000
	modelChunk   = 8
	modelChunks  = 12
	modelDevices = 3
	modelSize    = modelChunk * modelChunks
)

func newMachine(t *rapid.T) *machine {
	limit := rapid.SampledFrom([]uint64{0, 1, 40, modelSize}).Draw(t, "limit")
	devices := rapid.IntRange(1, modelDevices).Draw(t, "devices")
	space, err := New(Config{Arena: Range{modelBase, modelSize}, Chunk: modelChunk, Devices: modelPlaces[:devices], Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{
		t: t, space: space, chunk: modelChunk,
		devices: devices,
		last:    launch{dev: modelPlaces[0], need: []Range{}},
		flat:    make([]byte, modelSize), defined: make([]bool, modelSize), owner: make([]int, modelSize),
		words:  make([]string, modelDevices),
		allocs: map[int]*fact{}, written: make([]bool, modelChunks), fills: make([]fill, modelChunks), partial: make([]int, modelChunks),
	}
	for range modelDevices + 1 {
		m.memory = append(m.memory, make([]byte, modelSize))
		m.mapped = append(m.mapped, make([]bool, modelChunks))
	}
	return m
}

// offsets iterates over the offsets of a range.
func offsets(r Range) (from, to int) { return int(r.Addr - modelBase), int(r.end() - modelBase) }

func chunksOf(r Range) (from, to int) {
	a, b := offsets(r)
	return a / modelChunk, (b-1)/modelChunk + 1
}

// modelPlaces are three devices.
var modelPlaces = []Place{Device(1), Device(2), Device(4)}

// at is where the model keeps a place's memory: the host's first.
func (m *machine) at(p Place) int { return 1 + slices.Index(modelPlaces, p) }

func (m *machine) scramble(place Place, from, to int) {
	for i := from; i < to; i++ {
		m.noise = m.noise*5 + 77
		m.memory[m.at(place)][i] = m.noise
	}
}

func (m *machine) count(dev Place) (n int) {
	for _, is := range m.mapped[m.at(dev)] {
		if is {
			n++
		}
	}
	return n
}

// perform executes a plan as a worker would, and refuses impossible steps.
func (m *machine) perform(plan Plan, capacity uint64) {
	for i, step := range plan {
		if i > 0 {
			if last := plan[i-1]; last.Op == step.Op && last.Device == step.Device && last.From == step.From && last.Word == step.Word && last.Range.end() == step.Range.Addr {
				m.t.Fatalf("neighbours are not one step:\n%v", plan)
			}
		}
		if step.Range.Addr%m.chunk != 0 || step.Range.Size%m.chunk != 0 {
			m.t.Fatalf("%v is not of whole chunks", step)
		}
		if (step.Op == Discard) != (step.Device == Host) && (step.Op != Fill || step.Device != Host) {
			m.t.Fatalf("%v is on the wrong place", step)
		}
		from, to := offsets(step.Range)
		for c := from / modelChunk; c < to/modelChunk; c++ {
			m.stepChunk(plan, step, c)
		}
		if step.Op == Map && uint64(m.count(step.Device))*m.chunk > capacity {
			m.t.Fatalf("%v maps beyond %d bytes:\n%v", step, capacity, plan)
		}
	}
}

func (m *machine) stepChunk(plan Plan, step Step, c int) {
	from, to := c*modelChunk, (c+1)*modelChunk
	mapped := &m.mapped[m.at(step.Device)][c]
	if step.Device != Host && *mapped != (step.Op != Map) {
		m.t.Fatalf("%v: chunk %d has mapped = %v in\n%v", step, c, *mapped, plan)
	}
	switch step.Op {
	case Map, Unmap:
		*mapped = step.Op == Map
		m.scramble(step.Device, from, to)
	case Fill:
		if m.fills[c] != fillOf(step.Word) {
			m.t.Fatalf("%v: chunk %d has other contents in\n%v", step, c, plan)
		}
		for i := from; i < to; i++ {
			m.memory[m.at(step.Device)][i] = wordAt(step.Word, i)
		}
	case CopyIn, CopyOut:
		if m.fills[c] != 0 {
			m.t.Fatalf("%v: chunk %d is copied, and known as a fill, in\n%v", step, c, plan)
		}
		if !m.written[c] {
			m.t.Fatalf("%v: chunk %d was never written in\n%v", step, c, plan)
		}
		src, dst := Host, step.Device
		if step.Op == CopyOut {
			src, dst = dst, src
		}
		copy(m.memory[m.at(dst)][from:to], m.memory[m.at(src)][from:to])
	case CopyAcross:
		if !m.written[c] || m.fills[c] != 0 || !m.mapped[m.at(step.From)][c] || m.word(step.From) == "" || m.word(step.From) != m.word(step.Device) {
			m.t.Fatalf("%v: chunk %d cannot be copied so in\n%v", step, c, plan)
		}
		copy(m.memory[m.at(step.Device)][from:to], m.memory[m.at(step.From)][from:to])
	case Discard:
		m.scramble(Host, from, to)
	}
}

// word is the same for devices that copy to each other.
func (m *machine) word(p Place) string { return m.words[m.at(p)-1] }

// link changes which devices copy to each other.
func (m *machine) link() {
	m.words = rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "a", "b"}), modelDevices, modelDevices).Draw(m.t, "words")
	m.space.Direct(m.word)
}

// agrees fails where a place does not have what the client believes.
func (m *machine) agrees(place Place, r Range) {
	from, to := offsets(r)
	for i := from; i < to; i++ {
		if m.defined[i] && m.memory[m.at(place)][i] != m.flat[i] {
			m.t.Fatalf("%v has %#x at %#x, not %#x", place, m.memory[m.at(place)][i], modelBase+i, m.flat[i])
		}
	}
}

// write changes some or all bytes of a range, at a place and for the client.
func (m *machine) write(place Place, r Range, all bool) {
	from, to := offsets(r)
	pattern := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(m.t, "bytes")
	for i := from; i < to; i++ {
		if b := pattern[i%len(pattern)]; all || b&1 == 0 {
			m.memory[m.at(place)][i] = b + byte(i)
			m.flat[i], m.defined[i] = b+byte(i), true
		}
	}
	a, b := chunksOf(r)
	for c := a; c < b; c++ {
		m.written[c], m.fills[c] = true, 0
	}
}

// wordAt is the byte of a fill at an offset.
func wordAt(word uint32, offset int) byte { return byte(word >> (8 * (offset % 4))) }

// fillBytes changes all bytes of a range, at a place and for the client.
func (m *machine) fillBytes(place Place, r Range, word uint32) {
	from, to := offsets(r)
	for i := from; i < to; i++ {
		m.memory[m.at(place)][i] = wordAt(word, i)
		m.flat[i], m.defined[i] = wordAt(word, i), true
	}
	a, b := chunksOf(r)
	for c := a; c < b; c++ {
		m.written[c], m.fills[c] = true, 0
	}
}

// whole returns the chunks in which nothing is allocated but r.
func (m *machine) whole(r Range) (chunks []int) {
	from, to := offsets(r)
	a, b := chunksOf(r)
	for c := a; c < b; c++ {
		outside := func(i int) bool { return (i < from || i >= to) && m.owner[i] > 0 }
		alone := true
		for i := c * modelChunk; i < (c+1)*modelChunk; i++ {
			alone = alone && !outside(i)
		}
		if alone {
			chunks = append(chunks, c)
		}
	}
	return chunks
}

var modelWords = []uint32{0, 0xffffffff, 0x01020304}

// fill fills memory wherever it is. Only what is not whole chunks is written.
func (m *machine) fill() {
	_, r := m.some()
	word := rapid.SampledFrom(modelWords).Draw(m.t, "word")
	edges := map[int]bool{}
	for _, e := range m.space.Edges(r) {
		plan, err := m.space.HostWrite(e)
		if err != nil {
			m.t.Fatal(err)
		}
		m.perform(plan, 0)
		m.fillBytes(Host, e, word)
		a, b := chunksOf(e)
		for c := a; c < b; c++ {
			edges[c] = true
		}
	}
	if err := m.space.Fill(r, word); err != nil {
		m.t.Fatal(err)
	}
	whole := m.whole(r)
	if a, b := chunksOf(r); len(whole)+len(edges) != b-a {
		m.t.Fatalf("%d chunks of %v are written and %d are whole", len(edges), r, len(whole))
	}
	for _, c := range whole {
		from, to := c*modelChunk, (c+1)*modelChunk
		for i := from; i < to; i++ {
			m.flat[i], m.defined[i] = wordAt(word, i), m.owner[i] > 0
		}
		m.written[c], m.fills[c] = true, fillOf(word)
	}
}

// deviceFill fills memory that is resident.
func (m *machine) deviceFill() {
	dev := m.device()
	_, r := m.some()
	if !m.space.Resident(dev, r) {
		m.t.Skip("not resident")
	}
	word := rapid.SampledFrom(modelWords).Draw(m.t, "word")
	m.fillBytes(dev, r, word)
	m.space.Filled(dev, r, word)
	for _, c := range m.whole(r) {
		m.fills[c] = fillOf(word)
	}
}

func (m *machine) numbers() []int {
	var list []int
	for n := range m.allocs {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Compare(m.allocs[a].Addr, m.allocs[b].Addr) })
	return list
}

// some draws an allocation, and a range in it.
func (m *machine) some() (*fact, Range) {
	list := m.numbers()
	if len(list) == 0 {
		m.t.Skip("nothing is allocated")
	}
	f := m.allocs[rapid.SampledFrom(list).Draw(m.t, "allocation")]
	if rapid.Bool().Draw(m.t, "whole") {
		return f, f.Range
	}
	at := rapid.Uint64Range(0, f.Size-1).Draw(m.t, "at")
	return f, Range{f.Addr + at, rapid.Uint64Range(1, f.Size-at).Draw(m.t, "size")}
}

func (m *machine) ranges() []Range {
	list := []Range{} // not nil, which Launched takes for everything
	for range rapid.IntRange(0, 3).Draw(m.t, "ranges") {
		_, r := m.some()
		list = append(list, r)
	}
	return list
}

func (m *machine) device() Place {
	return modelPlaces[rapid.IntRange(0, m.devices-1).Draw(m.t, "device")]
}

func (m *machine) allocate() {
	r := Range{modelBase - 4 + rapid.Uint64Range(0, modelSize+8).Draw(m.t, "at"), rapid.Uint64Range(0, 3*modelChunk).Draw(m.t, "size")}
	var want error
	var sum uint64
	for _, f := range m.allocs {
		sum += f.Size
	}
	if r.Size == 0 || r.Addr < modelBase || r.end() > modelBase+modelSize {
		want = ErrInvalid
	} else if from, to := offsets(r); slices.ContainsFunc(m.owner[from:to], func(n int) bool { return n > 0 }) {
		want = ErrOverlap
	} else if limit := m.space.Limit(); limit > 0 && sum+r.Size > limit {
		want = ErrLimit
	}
	if err := m.space.Alloc(r); !errors.Is(err, want) {
		m.t.Fatalf("alloc %v: got %v, want %v", r, err, want)
	}
	if want != nil {
		return
	}
	m.number++
	m.allocs[m.number] = &fact{Range: r}
	from, to := offsets(r)
	for i := from; i < to; i++ {
		m.owner[i] = m.number
		m.defined[i] = false
	}
}

func (m *machine) free() {
	f, r := m.some()
	if r.Addr != f.Addr {
		if _, err := m.space.Free(r.Addr); !errors.Is(err, ErrUnknown) {
			m.t.Fatalf("free %#x within %v: %v", r.Addr, f.Range, err)
		}
		return
	}
	plan, err := m.space.Free(f.Addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.perform(plan, 0)
	for n, g := range m.allocs {
		if g == f {
			delete(m.allocs, n)
		}
	}
	from, to := offsets(f.Range)
	for i := from; i < to; i++ {
		m.owner[i], m.defined[i] = 0, false
	}
	a, b := chunksOf(f.Range)
	for c := a; c < b; c++ {
		if !m.used(c) {
			m.written[c], m.fills[c], m.partial[c] = false, 0, 0
			for _, mapped := range m.mapped {
				if mapped[c] {
					m.t.Fatalf("chunk %d is mapped after the last allocation of it was freed", c)
				}
			}
		}
	}
}

func (m *machine) used(c int) bool {
	return slices.ContainsFunc(m.owner[c*modelChunk:(c+1)*modelChunk], func(n int) bool { return n > 0 })
}

// age is when a chunk was last needed.
func (m *machine) age(c int) int {
	age := m.partial[c]
	for _, n := range m.owner[c*modelChunk : (c+1)*modelChunk] {
		if n > 0 {
			age = max(age, m.allocs[n].needed)
		}
	}
	return age
}

// gaveWay checks which chunks left dev: as many as had to, in the right order, and none that were
// needed.
func (m *machine) gaveWay(dev Place, mappedBefore []bool, dirtyBefore []bool, needed map[int]bool, count int) {
	type candidate struct {
		chunk, age int
		dirty      bool
	}
	var list []candidate
	for c, was := range mappedBefore {
		if was && !needed[c] {
			list = append(list, candidate{c, m.age(c), dirtyBefore[c]})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		if a.age == b.age && a.dirty != b.dirty {
			if a.dirty {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.age, b.age)
	})
	for i, v := range list {
		if m.mapped[m.at(dev)][v.chunk] != (i >= count) {
			m.t.Fatalf("chunk %d: mapped is %v, and it is number %d of %d to give way: %v", v.chunk, m.mapped[m.at(dev)][v.chunk], i, count, list)
		}
	}
}

// dirty lists which chunks are valid only on dev, by asking the space.
func (m *machine) dirty(dev Place) []bool {
	marks := make([]bool, modelChunks)
	for i, c := range m.space.all() {
		marks[i] = c.only(slot(m.at(dev)))
	}
	return marks
}

// launchNew makes up a launch, with some preference for a roomy device.
func (m *machine) launchNew() {
	capacity := uint64(modelSize)
	if rapid.Bool().Draw(m.t, "tight") {
		capacity = uint64(rapid.IntRange(0, modelSize+3).Draw(m.t, "capacity"))
	}
	m.launch(launch{dev: m.device(), need: m.ranges(), capacity: capacity})
}

// launchAll is a launch that may need everything.
func (m *machine) launchAll() {
	l := launch{dev: m.device(), need: []Range{}, capacity: modelSize, all: true}
	if rapid.Bool().Draw(m.t, "tight") {
		l.capacity = uint64(rapid.IntRange(0, modelSize).Draw(m.t, "capacity"))
	}
	for _, n := range m.numbers() {
		l.need = append(l.need, m.allocs[n].Range)
	}
	m.launch(l)
}

// launchAgain repeats the last launch, perhaps with another capacity, and perhaps in the belief
// that everything is where it was.
func (m *machine) launchAgain() {
	l := m.last
	l.all = false // what is allocated may have changed
	if rapid.Bool().Draw(m.t, "another capacity") {
		l.capacity = uint64(rapid.IntRange(0, modelSize).Draw(m.t, "capacity"))
	}
	resident := func(r Range) bool { return m.space.Resident(l.dev, r) }
	if !rapid.Bool().Draw(m.t, "unprepared") || slices.ContainsFunc(l.need, func(r Range) bool { return !resident(r) }) {
		m.launch(l)
		return
	}
	m.kernel(l)
}

func (m *machine) launch(l launch) {
	m.last = l
	needed := map[int]bool{}
	missing := 0
	for _, r := range l.need {
		if f := m.allocs[m.owner[r.Addr-modelBase]]; f == nil || r.end() > f.end() {
			if _, err := m.space.Prepare(l.dev, l.need, l.capacity); !errors.Is(err, ErrBounds) {
				m.t.Fatalf("%v was freed: %v", r, err)
			}
			return
		}
		a, b := chunksOf(r)
		for c := a; c < b; c++ {
			if !needed[c] && !m.mapped[m.at(l.dev)][c] {
				missing++
			}
			needed[c] = true
		}
	}
	before, dirty := slices.Clone(m.mapped[m.at(l.dev)]), m.dirty(l.dev)
	room := int(l.capacity / modelChunk)
	surplus := max(0, m.count(l.dev)+missing-room)
	plan, err := l.prepare(m.space)
	if len(needed) > room {
		if !errors.Is(err, ErrCapacity) {
			m.t.Fatalf("%d chunks in %d bytes: %v", len(needed), l.capacity, err)
		}
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.perform(plan, l.capacity)
	m.gaveWay(l.dev, before, dirty, needed, surplus)
	m.launches++
	for _, r := range l.need {
		m.needs(r)
		if !m.space.Resident(l.dev, r) {
			m.t.Fatalf("%v is not resident after Prepare", r)
		}
	}
	m.kernel(l)
}

// kernel reads what it needs and writes to some of it, or to everything that it can reach.
func (m *machine) kernel(l launch) {
	for _, r := range l.need {
		m.agrees(l.dev, r)
	}
	switch rapid.SampledFrom([]string{"known", "unknown", "only prepared"}).Draw(m.t, "kernel") {
	case "known":
		for _, r := range l.need {
			m.write(l.dev, r, false)
		}
		m.space.Launched(l.dev, l.need)
	case "unknown":
		m.kernelEverywhere(l.dev)
	}
}

func (m *machine) needs(r Range) {
	if f := m.allocs[m.owner[r.Addr-modelBase]]; f.Range == r {
		f.needed = m.launches
		return
	}
	a, b := chunksOf(r)
	for c := a; c < b; c++ {
		m.partial[c] = m.launches
	}
}

// kernelEverywhere writes to everything resident, as a kernel may whose accesses are unknown.
func (m *machine) kernelEverywhere(dev Place) {
	for _, n := range m.numbers() {
		f := m.allocs[n]
		for at := f.Addr; at < f.end(); at++ {
			if r := (Range{at, 1}); m.space.Resident(dev, r) {
				m.agrees(dev, r)
				m.write(dev, r, false)
			}
		}
	}
	m.space.Launched(dev, nil)
}

func (m *machine) hostRead() {
	_, r := m.some()
	plan, err := m.space.HostRead(r)
	if err != nil {
		m.t.Fatal(err)
	}
	m.perform(plan, 0)
	m.agrees(Host, r)
}

func (m *machine) hostWrite() {
	_, r := m.some()
	plan, err := m.space.HostWrite(r)
	if err != nil {
		m.t.Fatal(err)
	}
	m.perform(plan, 0)
	m.write(Host, r, true)
}

func (m *machine) deviceWrite() {
	dev := m.device()
	_, r := m.some()
	if !m.space.Resident(dev, r) {
		m.t.Skip("not resident")
	}
	m.agrees(dev, r)
	m.write(dev, r, true)
	m.space.Written(dev, r)
}

// backup makes the host able to do without any device.
func (m *machine) backup() {
	m.perform(m.space.Backup(), 0)
	for _, n := range m.numbers() {
		f := m.allocs[n]
		for at := f.Addr; at < f.end(); at++ {
			if m.fills[(at-modelBase)/modelChunk] == 0 {
				m.agrees(Host, Range{at, 1})
			}
		}
	}
	if m.space.Dirty() > 0 {
		m.t.Fatalf("%d bytes are on devices only", m.space.Dirty())
	}
}

func (m *machine) evict() {
	dev := m.device()
	atLeast := uint64(rapid.IntRange(0, modelSize+9).Draw(m.t, "at least"))
	before, dirty := slices.Clone(m.mapped[m.at(dev)]), m.dirty(dev)
	count := int((atLeast + modelChunk - 1) / modelChunk)
	if n := m.count(dev); count == 0 || count > n {
		count = n
	}
	m.perform(m.space.Evict(dev, atLeast), 0)
	m.gaveWay(dev, before, dirty, nil, count)
}

// bring brings memory to a device that has room for a part of it, and nothing gives way.
func (m *machine) bring() {
	dev := m.device()
	capacity := uint64(rapid.IntRange(0, modelSize+9).Draw(m.t, "capacity"))
	before := slices.Clone(m.mapped[m.at(dev)])
	m.perform(m.space.Bring(dev, nil, capacity), capacity)
	for c, was := range before {
		if was && !m.mapped[m.at(dev)][c] {
			m.t.Fatalf("chunk %d gave way", c)
		}
	}
}

func (m *machine) lose() {
	dev := m.device()
	for _, r := range m.space.Lost(dev) {
		from, to := offsets(r)
		for i := from; i < to; i++ {
			m.defined[i] = false
		}
		for c := from / modelChunk; c < to/modelChunk; c++ {
			m.written[c] = false
		}
	}
	m.mapped[m.at(dev)] = make([]bool, modelChunks)
	m.scramble(dev, 0, modelSize)
}

func (m *machine) nest() {
	parent, r := m.some()
	parent.children = nil
	var addrs []uint64
	for range rapid.IntRange(0, 3).Draw(m.t, "children") {
		_, c := m.some()
		addrs = append(addrs, c.Addr)
		parent.children = append(parent.children, m.owner[c.Addr-modelBase])
	}
	if err := m.space.Nest(r.Addr, addrs); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) reach() {
	words := rapid.SliceOfN(rapid.Uint64Range(modelBase-2, modelBase+modelSize+2), 0, 3).Draw(m.t, "words")
	var params []byte
	found := map[int]bool{}
	var see func(n int)
	see = func(n int) {
		if f := m.allocs[n]; f != nil && !found[n] {
			found[n] = true
			for _, c := range f.children {
				see(c)
			}
		}
	}
	for _, w := range words {
		params = binary.LittleEndian.AppendUint64(params, w)
		if w >= modelBase && w < modelBase+modelSize {
			see(m.owner[w-modelBase])
		}
	}
	params = append(params, make([]byte, rapid.IntRange(0, 7).Draw(m.t, "tail"))...)
	want := []Range{}
	for _, n := range m.numbers() {
		if found[n] {
			want = append(want, m.allocs[n].Range)
		}
	}
	if got := m.space.Reachable(params); !slices.Equal(got, want) {
		m.t.Fatalf("%#x reach %v, want %v", words, got, want)
	}
}

// check compares what the space says with what is true.
func (m *machine) check(t *rapid.T) {
	var sum uint64
	var ranges []Range
	for _, n := range m.numbers() {
		sum += m.allocs[n].Size
		ranges = append(ranges, m.allocs[n].Range)
	}
	s := m.space
	if got := s.Allocations(); !slices.Equal(got, ranges) || s.Allocated() != sum {
		t.Fatalf("allocations %v of %d bytes, want %v of %d", got, s.Allocated(), ranges, sum)
	}
	chunks := 0
	tallies := make([]tally, m.devices+1)
	for i := range m.written {
		if m.used(i) {
			chunks++
		}
	}
	for i, c := range s.all() {
		if c.written() != m.written[i] || c.valid&^c.held != 0 || c.fill != m.fills[i] {
			t.Fatalf("chunk %d: valid at %b, held at %b, fill %#x, written: %v, filled: %#x", i, c.valid, c.held, c.fill, m.written[i], m.fills[i])
		}
		for p := range tallies {
			bit := slot(p).bit()
			if p > 0 && (c.held&bit != 0) != m.mapped[p][i] {
				t.Fatalf("chunk %d: the space thinks that it is held at %b", i, c.held)
			}
			add := func(n *int, is bool) {
				if is {
					*n++
				}
			}
			add(&tallies[p].held, c.held&bit != 0)
			add(&tallies[p].valid, c.valid&bit != 0)
			add(&tallies[p].only, c.valid == bit && c.fill == 0)
			add(&tallies[p].ready, c.ready(slot(p)))
		}
	}
	dirty, filled := 0, 0
	for _, c := range s.all() {
		if c.fill != 0 {
			filled++
		} else if c.valid != 0 && c.valid&hostSlot.bit() == 0 {
			dirty++
		}
	}
	if s.Usage().Filled != uint64(filled)*m.chunk {
		t.Fatalf("%d bytes are known as fills, not %d", s.Usage().Filled, uint64(filled)*m.chunk)
	}
	if s.Dirty() != uint64(dirty)*m.chunk {
		t.Fatalf("%d bytes are dirty, not %d", s.Dirty(), uint64(dirty)*m.chunk)
	}
	if s.Chunked() != uint64(chunks)*m.chunk || !slices.Equal(s.tallies, tallies) {
		t.Fatalf("counts %d %v, want %d %v", s.Chunked()/m.chunk, s.tallies, chunks, tallies)
	}
	for _, dev := range modelPlaces[:m.devices] {
		if got, want := s.Mapped(dev), uint64(m.count(dev))*m.chunk; got != want {
			t.Fatalf("%v has %d bytes mapped, not %d", dev, got, want)
		}
		all := true
		for _, r := range ranges {
			all = all && s.Resident(dev, r)
		}
		if s.AllResident(dev) != all {
			t.Fatalf("all resident on %v: %v", dev, !all)
		}
	}
}

// add adds another device: what was found out about the others stays true.
func (m *machine) add() {
	if m.devices == modelDevices {
		m.t.Skip("there are no more")
	}
	if err := m.space.AddDevice(modelPlaces[0]); !errors.Is(err, ErrInvalid) {
		m.t.Fatalf("a device is added twice: %v", err)
	}
	if err := m.space.AddDevice(modelPlaces[m.devices]); err != nil {
		m.t.Fatal(err)
	}
	m.devices++
	m.space.Direct(m.word)
}

// replace continues with another space from a snapshot.
func (m *machine) replace() {
	data, err := m.space.MarshalBinary()
	if err != nil {
		m.t.Fatal(err)
	}
	next := new(Space)
	if err := next.UnmarshalBinary(data); err != nil {
		m.t.Fatalf("%v: %x", err, data)
	}
	again, err := next.MarshalBinary()
	if err != nil || !slices.Equal(data, again) {
		m.t.Fatalf("%x became %x, %v", data, again, err)
	}
	m.space = next
	m.space.Direct(m.word)
}

// Whatever happens, the client sees flat memory.
func TestClientSeesFlatMemory(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		with := func(f func()) func(*rapid.T) {
			return func(t *rapid.T) { m.t = t; f() }
		}
		t.Repeat(map[string]func(*rapid.T){
			"":             m.check,
			"alloc":        with(m.allocate),
			"alloc 2":      with(m.allocate),
			"free":         with(m.free),
			"launch":       with(m.launchNew),
			"launch 2":     with(m.launchNew),
			"launch again": with(m.launchAgain),
			"launch all":   with(m.launchAll),
			"host read":    with(m.hostRead),
			"host write":   with(m.hostWrite),
			"device":       with(m.deviceWrite),
			"fill":         with(m.fill),
			"device fill":  with(m.deviceFill),
			"backup":       with(m.backup),
			"evict":        with(m.evict),
			"bring":        with(m.bring),
			"lose":         with(m.lose),
			"add":          with(m.add),
			"nest":         with(m.nest),
			"reach":        with(m.reach),
			"trim":         with(func() { m.perform(m.space.Trim(), 0) }),
			"replace":      with(m.replace),
			"out of reach": with(m.outOfReach),
			"link":         with(m.link),
		})
	})
}

// outOfReach tries ranges that are not within one allocation.
func (m *machine) outOfReach() {
	r := Range{rapid.Uint64().Draw(m.t, "addr"), rapid.Uint64().Draw(m.t, "size")}
	if rapid.Bool().Draw(m.t, "near") {
		r.Addr = modelBase + r.Addr%(modelSize+8)
		r.Size %= modelSize
	}
	inside := r.Size > 0 && r.Addr >= modelBase && r.Addr < modelBase+modelSize && r.Size <= modelSize
	if inside {
		f := m.allocs[m.owner[r.Addr-modelBase]]
		inside = f != nil && r.end() <= f.end()
	}
	if inside {
		m.t.Skip("it is within one")
	}
	_, read := m.space.HostRead(r)
	_, write := m.space.HostWrite(r)
	_, prepare := m.space.Prepare(m.device(), []Range{r}, modelSize)
	for _, err := range []error{m.space.Check(r), read, write, prepare, m.space.Fill(r, 0)} {
		if !errors.Is(err, ErrBounds) {
			m.t.Fatalf("%v: %v", r, err)
		}
	}
}
