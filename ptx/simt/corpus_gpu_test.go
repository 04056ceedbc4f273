package simt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
)

const kernelFolder = "../testdata/kernels"

// entry is a program over one or several kernels of a corpus file: it makes
// data, launches, and compares with a plain reference.
type entry struct {
	file    string
	kernels string // those it launches, with spaces between
	run     func(g *gpu)
}

// options say how to run an entry; none of them may change a result, but for
// small, which decides the size of the data.
type options struct {
	small    bool // as in short mode
	width    int
	workers  int
	shuffled bool   // blocks start in a random order
	stop     uint64 // the first stop; the later ones are each twice as far
	steady   bool   // all stops are as far
	moved    bool   // memory moves at every stop
	saved    bool   // at every stop the state is saved and resumed over a copy of memory
	flat     bool   // memory has no holes
	engine   simt.Engine
	checked  bool // a checker looks, and must find nothing
	changing bool // at every stop at which the state is saved, the other engine goes on
}

func (o options) String() string {
	return fmt.Sprintf("width=%d,workers=%d,shuffled=%t,stop=%d,steady=%t,moved=%t,saved=%t,flat=%t,engine=%v,changing=%t",
		o.width, o.workers, o.shuffled, o.stop, o.steady, o.moved, o.saved, o.flat, o.engine, o.changing)
}

// gpu is what an entry runs on: one loaded module, memory, and random numbers.
type gpu struct {
	*testing.T
	variant  string
	rng      *rand.Rand
	program  *simt.Program
	memory   *arena
	options  options
	chooser  *rand.Rand // for what the options leave open, apart from the data
	printed  []string
	launched map[string]bool
	checker  *memcheck.Checker // nil if nobody looks
}

// image is a loaded corpus file.
type image struct {
	program *simt.Program
	sizes   []int // of the module's variables, in the order of their places
	err     error
}

// images keeps loaded files, which all tests share.
var images sync.Map // of func() *image by path

// load reads, parses and lowers a file, once.
func load(path string) *image {
	once, _ := images.LoadOrStore(path, sync.OnceValue(func() *image { return loadFile(path) }))
	return once.(func() *image)()
}

func loadFile(path string) *image {
	text, err := os.ReadFile(path)
	if err != nil {
		return &image{err: err}
	}
	module, err := ptx.Parse(path, string(text))
	if err != nil {
		return &image{err: err}
	}
	// The variables get the places that an arena will give them.
	im := &image{}
	layout := newArena(false)
	defer layout.release()
	im.program, im.err = simt.Load(path, module, func(v *ptx.Variable) (uint64, error) {
		im.sizes = append(im.sizes, v.Size())
		return layout.reserve(v.Size()), nil
	})
	return im
}

// variants returns the compilers that a corpus file was compiled with.
func variants(t testing.TB, file string) []string {
	paths, err := filepath.Glob(filepath.Join(kernelFolder, file+".*.ptx"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no PTX for %s in %s: run build.sh there (%v)", file, kernelFolder, err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(p), file+"."), ".ptx"))
	}
	return names
}

// newGPU loads a variant of a file into fresh memory. The same label and seed
// give the same random numbers.
func newGPU(t *testing.T, file, variant, label string, seed uint64, o options) *gpu {
	im := load(filepath.Join(kernelFolder, file+"."+variant+".ptx"))
	if im.err != nil {
		t.Fatal(im.err)
	}
	h := fnv.New64a()
	h.Write([]byte(label))
	g := &gpu{
		T:        t,
		variant:  variant,
		rng:      rand.New(rand.NewPCG(seed, h.Sum64())),
		chooser:  rand.New(rand.NewPCG(seed, ^h.Sum64())),
		program:  im.program,
		memory:   newArena(o.flat),
		options:  o,
		launched: map[string]bool{},
	}
	t.Cleanup(func() { g.memory.release() })
	for _, size := range im.sizes {
		g.memory.reserve(size)
	}
	if o.checked {
		g.checker = memcheck.New(memcheck.Checks{Race: true, Init: true, Memory: true}, 0, func(d *memcheck.Defect) { t.Errorf("a defect where there is none: %v", d) })
	}
	for _, v := range im.program.Globals() {
		copy(g.memory.at(v.Address, len(v.Data)), v.Data)
		if g.checker != nil {
			g.checker.Allocate(v.Address, uint64(len(v.Data)), v.Name, true)
		}
	}
	return g
}

// variable returns a variable of the module as an array.
func variable[T number](g *gpu, name string) array[T] {
	for _, v := range g.program.Globals() {
		if v.Name == name {
			return array[T]{v.Address, len(v.Data) / sizeOf[T]()}
		}
	}
	g.Fatalf("the module has no variable %s", name)
	return array[T]{}
}

// extent is how a kernel is launched.
type extent struct {
	grid, block shape.Dim
	shared      int
	cooperative bool
}

func line(grid, block int) extent { return plane(grid, 1, block, 1) }

func plane(gridX, gridY, blockX, blockY int) extent {
	return extent{
		grid:  shape.Dim{X: uint32(gridX), Y: uint32(gridY), Z: 1},
		block: shape.Dim{X: uint32(blockX), Y: uint32(blockY), Z: 1},
	}
}

// launch runs a kernel to its end and fails the test if it does not get there.
func (g *gpu) launch(s extent, kernel string, args ...any) {
	g.Helper()
	if err := g.try(s, kernel, args...); err != nil {
		g.Fatalf("%s with grid %v, block %v: %v", kernel, s.grid, s.block, err)
	}
}

// try runs a kernel and returns how it ended.
func (g *gpu) try(s extent, kernel string, args ...any) error {
	k := g.program.Kernel(kernel)
	if k == nil {
		return fmt.Errorf("the module has no kernel %s", kernel)
	}
	g.launched[kernel] = true
	params, err := packParams(k, args)
	if err != nil {
		return err
	}
	l := simt.Launch{
		Grid: s.grid, Block: s.block, Shared: s.shared, Cooperative: s.cooperative,
		Params: params, Memory: g.memory,
		Print:   func(text []byte) { g.printed = append(g.printed, string(text)) },
		Workers: g.options.workers, Width: g.options.width, Engine: g.options.engine, Check: g.checker,
	}
	if g.options.shuffled {
		order := g.chooser.Perm(int(s.grid.Count()))
		l.Order = func(n uint64) uint64 { return uint64(order[n]) }
	}
	return g.execute(k, l)
}

// patience is how many instructions a worker may take for one launch.
const patience = 1 << 26

// execute runs a launch with the stops that the options ask for.
func (g *gpu) execute(k *simt.Kernel, l simt.Launch) error {
	x, err := k.Start(l)
	if err != nil {
		return err
	}
	step := uint64(patience)
	if g.options.stop != 0 {
		step = g.options.stop
	}
	for spent := uint64(0); spent < patience; spent += step {
		if spent > 0 && !g.options.steady {
			step *= 2
		}
		if err := x.RunFor(step); !errors.Is(err, simt.ErrStopped) {
			return err
		}
		if g.options.moved {
			g.memory.move()
		}
		if g.options.saved {
			state, err := x.Save()
			if err != nil {
				return fmt.Errorf("saving: %w", err)
			}
			g.restore()
			l.Memory = g.memory
			if g.options.changing {
				l.Engine = otherEngine(l.Engine)
			}
			if x, err = k.Resume(l, state); err != nil {
				return fmt.Errorf("resuming: %w", err)
			}
		}
	}
	return fmt.Errorf("no end in sight after %d instructions", patience)
}

// restore goes on with a copy of memory; the original is gone.
func (g *gpu) restore() {
	next := g.memory.clone()
	g.memory.release()
	g.memory = next
}

// packParams lays arguments out as the kernel wants them.
func packParams(k *simt.Kernel, args []any) ([]byte, error) {
	if len(args) != len(k.Params) {
		return nil, fmt.Errorf("%s takes %d parameters, not %d", k.Name, len(k.Params), len(args))
	}
	params := make([]byte, k.ParamSize)
	for i, arg := range args {
		var value []byte
		switch v := arg.(type) {
		case []byte:
			value = v
		case interface{ address() uint64 }:
			value = binary.LittleEndian.AppendUint64(nil, v.address())
		case int:
			value = binary.LittleEndian.AppendUint32(nil, uint32(v))
		case float32:
			value = binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
		case uint64:
			value = binary.LittleEndian.AppendUint64(nil, v)
		default:
			return nil, fmt.Errorf("argument %d of %s has type %T, which tests do not pass", i, k.Name, arg)
		}
		if len(value) != k.Params[i].Size {
			return nil, fmt.Errorf("argument %d of %s has %d bytes, the parameter %d", i, k.Name, len(value), k.Params[i].Size)
		}
		copy(params[k.Params[i].Offset:], value)
	}
	return params, nil
}

// outcome is what a run leaves behind that no option may change.
type outcome struct {
	memory  map[uint64][]byte // by address
	printed []string
}

func (g *gpu) outcome() outcome {
	o := outcome{memory: map[uint64][]byte{}, printed: slices.Sorted(slices.Values(g.printed))}
	for _, s := range g.memory.stretches {
		if !s.unordered {
			o.memory[s.addr] = bytes.Clone(g.memory.at(s.addr, s.size))
		}
	}
	return o
}

// differs says how another outcome of the same program is different.
func (o outcome) differs(other outcome) error {
	if len(o.memory) != len(other.memory) {
		return fmt.Errorf("%d arrays against %d", len(o.memory), len(other.memory))
	}
	for _, addr := range slices.Sorted(maps.Keys(o.memory)) {
		a, b := o.memory[addr], other.memory[addr]
		if len(a) != len(b) {
			return fmt.Errorf("the array at %#x has %d bytes against %d", addr, len(a), len(b))
		}
		for i := range a {
			if a[i] != b[i] {
				return fmt.Errorf("byte %d of the %d bytes at %#x is %#x against %#x", i, len(a), addr, a[i], b[i])
			}
		}
	}
	if !slices.Equal(o.printed, other.printed) {
		return fmt.Errorf("printed %q against %q", o.printed, other.printed)
	}
	return nil
}

// play runs an entry once and returns what it left.
func (e entry) play(t *testing.T, variant string, seed uint64, o options) outcome {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s (%s), compiled by %s, seed %d, %v", e.file, e.kernels, variant, seed, o)
		}
	})
	o.small = o.small || testing.Short()
	g := newGPU(t, e.file, variant, e.file+" "+e.kernels, seed, o)
	e.run(g)
	for _, k := range strings.Fields(e.kernels) {
		if !g.launched[k] {
			t.Errorf("the program for %s did not launch %s", e.file, k)
		}
	}
	return g.outcome()
}

// size returns a random number of elements from 1 to limit, fewer in short mode.
func (g *gpu) size(limit int) int {
	if g.options.small {
		limit = min(limit, 300)
	}
	return 1 + g.rng.IntN(limit)
}

// times returns a random small count from 1 to limit, at most 2 in short mode.
func (g *gpu) times(limit int) int {
	if g.options.small {
		limit = min(limit, 2)
	}
	return 1 + g.rng.IntN(limit)
}

// cover returns a random launch with at least n threads, in one dimension.
func (g *gpu) cover(n int) extent {
	block := g.block(1024)
	for block*48 < n {
		block *= 2
	}
	block = min(block, 1024)
	return line((n+block-1)/block+g.rng.IntN(2), block)
}

// block returns a random number of threads, whole warps as often as not.
func (g *gpu) block(limit int) int {
	if g.rng.IntN(2) == 0 {
		return 1 + g.rng.IntN(min(limit, 300))
	}
	return g.warps(limit)
}

// warps returns a random number of threads that is a multiple of 32.
func (g *gpu) warps(limit int) int {
	if g.options.small {
		limit = min(limit, 256)
	}
	return 32 * (1 + g.rng.IntN(limit/32))
}

// stride returns a random launch for a kernel that strides over its elements.
func (g *gpu) stride() extent { return line(g.times(6), g.block(1024)) }

// random returns n random values.
func random[T any](n int, value func() T) []T {
	values := make([]T, n)
	for i := range values {
		values[i] = value()
	}
	return values
}

// between returns a random float from low to high.
func (g *gpu) between(low, high float32) float32 { return low + (high-low)*g.rng.Float32() }

// small returns a random integer from -limit to limit.
func (g *gpu) small(limit int32) int32 {
	return int32(g.rng.Int64N(2*int64(limit)+1) - int64(limit))
}

// floats returns n random floats from low to high.
func (g *gpu) floats(n int, low, high float32) []float32 {
	return random(n, func() float32 { return g.between(low, high) })
}

// words returns n random words.
func (g *gpu) words(n int) []uint32 { return random(n, g.rng.Uint32) }

// ints returns n random integers from -limit to limit.
func (g *gpu) ints(n int, limit int32) []int32 {
	return random(n, func() int32 { return g.small(limit) })
}

// same fails unless an array holds exactly the wanted values.
func same[T number](g *gpu, what string, a array[T], want []T) {
	g.Helper()
	got := read(g, a)
	if len(got) != len(want) {
		g.Fatalf("%s has %d elements, the reference %d", what, len(got), len(want))
	}
	for i := range want {
		if !alike(got[i], want[i]) {
			g.Fatalf("%s[%d] of %d = %s, want %s", what, i, len(want), spell(got[i]), spell(want[i]))
		}
	}
}

// alike compares bit for bit. The NaNs of floats are all 0x7fffffff unless an
// operation only moves bits; what the NaNs of doubles carry is left open.
func alike[T number](x, y T) bool {
	switch v := any(x).(type) {
	case float32:
		return math.Float32bits(v) == math.Float32bits(any(y).(float32))
	case float64:
		w := any(y).(float64)
		return math.Float64bits(v) == math.Float64bits(w) || math.IsNaN(v) && math.IsNaN(w)
	}
	return x == y
}

// spell writes a number and its bits.
func spell[T number](x T) string {
	switch v := any(x).(type) {
	case float32:
		return fmt.Sprintf("%g (%#08x)", v, math.Float32bits(v))
	case float64:
		return fmt.Sprintf("%g (%#016x)", v, math.Float64bits(v))
	}
	return fmt.Sprintf("%v (%#[1]x)", x)
}

// sameBits is same for floats kept as bits in a narrow format; NaNs are alike.
func sameBits(g *gpu, what string, f format, a array[uint16], want []uint16) {
	g.Helper()
	for i, got := range read(g, a) {
		if got != want[i] && !(f.isNaN(uint64(got)) && f.isNaN(uint64(want[i]))) {
			g.Fatalf("%s[%d] of %d = %#04x, want %#04x", what, i, len(want), got, want[i])
		}
	}
}

// near fails unless each element is within its tolerance.
func near[T float32 | float64](g *gpu, what string, a array[T], want []float64, tolerance func(i int) float64) {
	g.Helper()
	for i, got := range read(g, a) {
		if d := math.Abs(float64(got) - want[i]); !(d <= tolerance(i)) && float64(got) != want[i] {
			g.Fatalf("%s[%d] of %d = %g, want %g within %g", what, i, len(want), got, want[i], tolerance(i))
		}
	}
}

// permutation fails unless values holds each of 0 .. len(values)-1 once.
func permutation(g *gpu, what string, values []uint32) {
	g.Helper()
	for i, v := range slices.Sorted(slices.Values(values)) {
		if v != uint32(i) {
			g.Fatalf("%s is no permutation of 0 to %d: sorted, place %d holds %d", what, len(values)-1, i, v)
		}
	}
}
