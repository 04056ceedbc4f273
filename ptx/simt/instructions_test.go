package simt_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// The files in testdata/instructions and testdata/refused carry what they need
// and what must come of it in comments at their head; testdata/README.md
// explains the words.

// endless is more instructions than any of the small kernels needs.
const endless = 1 << 20

func TestInstructions(t *testing.T) {
	variants := []struct {
		name   string
		launch simt.Launch
	}{
		{"widest", simt.Launch{Engine: simt.Interpret}},
		{"compiled", simt.Launch{Engine: simt.Compile}},
		{"compiled, width 32", simt.Launch{Engine: simt.Compile, Width: 32}},
		{"width 32, two workers", simt.Launch{Width: 32, Workers: 2}},
		{"width 64", simt.Launch{Width: 64}},
	}
	for _, c := range instructionCases(t, "instructions") {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range variants {
				if t.Failed() {
					break
				}
				c.run(t, v.name, v.launch, func(x *simt.Execution) (*simt.Execution, error) {
					return x, x.RunFor(endless)
				})
			}
		})
	}
}

// A kernel that is stopped after every few instructions, saved and continued
// from its bytes by the other engine comes to the same end.
func TestInstructionsStopped(t *testing.T) {
	for _, c := range instructionCases(t, "instructions") {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, "stopped", simt.Launch{}, func(x *simt.Execution) (*simt.Execution, error) {
				for range endless / 16 {
					err := x.RunFor(3)
					if !errors.Is(err, simt.ErrStopped) {
						return x, err
					}
					state, err := x.Save()
					if err != nil {
						return x, err
					}
					c.launch.Engine = otherEngine(c.launch.Engine)
					x, err = c.resume(state)
					if err != nil {
						return x, err
					}
				}
				return x, simt.ErrStopped
			})
		})
	}
}

// What is not supported is refused by Load, with its line and its name.
func TestRefused(t *testing.T) {
	for _, c := range instructionCases(t, "refused") {
		t.Run(c.name, func(t *testing.T) {
			module, err := ptx.Parse(c.name, c.source)
			if err == nil {
				_, err = simt.Load(c.name, module, (&testMemory{}).place)
			}
			var all ptx.Errors
			if !errors.As(err, &all) {
				t.Fatalf("got %v, want an error at line %d with %q", err, c.errorLine, c.errorText)
			}
			for _, e := range all {
				if e.Line == c.errorLine && strings.Contains(e.Msg, c.errorText) {
					return
				}
			}
			t.Errorf("got %v, want an error at line %d with %q", err, c.errorLine, c.errorText)
		})
	}
}

type instructionCase struct {
	name, source string
	grid, block  shape.Dim
	shared       int
	in, params   []byte
	want         []wanted
	outSize      int
	loaded       loadedProgram // kept from run to run
	prints       string
	faults       string
	refusable    string // Load may refuse the file if it names this
	errorLine    int
	errorText    string

	// Of the run in progress.
	memory *testMemory
	kernel *simt.Kernel
	launch simt.Launch
}

// wanted is one element of the output.
type wanted struct {
	line         int // of the file
	offset, size int
	kind         string // "u32"
	text         string // as written
	bits         uint64
	anyNaN       bool
	ulps         uint64
	relative     float64
	absolute     float64
}

func instructionCases(t *testing.T, folder string) []*instructionCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.ptx"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata/%s: %v", folder, err)
	}
	var all []*instructionCase
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := readCase(strings.TrimSuffix(filepath.Base(file), ".ptx"), string(source))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, c)
	}
	return all
}

// readCase reads the head of a file: lines of prose, then from "launch" or
// "error" on a word and its value a line.
func readCase(name, source string) (*instructionCase, error) {
	c := &instructionCase{name: name, source: source}
	words := false
	for n, line := range strings.Split(source, "\n") {
		text, comment := strings.CutPrefix(line, "// ")
		if !comment {
			break
		}
		word, value, _ := strings.Cut(text, ": ")
		words = words || word == "launch" || word == "error"
		if !words {
			continue
		}
		known := len(c.want)
		if err := c.readWord(word, value); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		for i := range c.want[known:] {
			c.want[known+i].line = n + 1
		}
	}
	switch {
	case !words:
		return nil, errors.New(`the head has neither "launch" nor "error"`)
	case c.errorLine == 0 && len(c.want) == 0 && c.faults == "" && c.prints == "":
		return nil, errors.New("the head expects nothing")
	}
	return c, nil
}

func (c *instructionCase) readWord(word, value string) error {
	word, rest, _ := strings.Cut(word, " ")
	var err error
	switch word {
	case "launch":
		return c.readLaunch(value)
	case "in":
		c.in, err = appendValues(c.in, rest, value)
	case "param":
		c.params, err = appendValues(c.params, rest, value)
	case "out":
		err = c.readOut(rest, value)
	case "prints":
		c.prints, err = strconv.Unquote(value)
	case "faults":
		c.faults = value
	case "refusable":
		c.refusable = value
	case "error":
		line, text, _ := strings.Cut(value, ": ")
		c.errorLine, err = strconv.Atoi(line)
		c.errorText = text
	default:
		err = fmt.Errorf("unknown word %q", word)
	}
	return err
}

var launchPattern = regexp.MustCompile(`^grid (\d+)(?: (\d+))?(?: (\d+))? block (\d+)(?: (\d+))?(?: (\d+))?(?: shared (\d+))?$`)

func (c *instructionCase) readLaunch(value string) error {
	m := launchPattern.FindStringSubmatch(value)
	if m == nil {
		return fmt.Errorf("malformed launch %q", value)
	}
	number := func(i int, otherwise uint32) uint32 {
		if m[i] == "" {
			return otherwise
		}
		v, _ := strconv.ParseUint(m[i], 10, 32)
		return uint32(v)
	}
	c.grid = shape.Dim{X: number(1, 1), Y: number(2, 1), Z: number(3, 1)}
	c.block = shape.Dim{X: number(4, 1), Y: number(5, 1), Z: number(6, 1)}
	c.shared = int(number(7, 0))
	return nil
}

// readOut reads the elements of the output: "f32 within 2 ulp", "f32 within
// 2^-22" (of the wanted value) and "f32 within 2^-20 of 1" (absolute).
func (c *instructionCase) readOut(head, value string) error {
	kind, tolerance, _ := strings.Cut(head, " within ")
	form := wanted{kind: kind, size: kindSize(kind)}
	if form.size == 0 {
		return fmt.Errorf("unknown type %q", kind)
	}
	if err := form.tolerate(tolerance); err != nil {
		return err
	}
	c.outSize = align(c.outSize, form.size)
	for _, text := range strings.Fields(value) {
		w := form
		w.text = text
		w.anyNaN = text == "nan"
		bits, err := parseValue(kind, text)
		if err != nil {
			return err
		}
		w.bits, w.offset = bits, c.outSize
		c.outSize += w.size
		c.want = append(c.want, w)
	}
	return nil
}

var tolerancePattern = regexp.MustCompile(`^(?:(\d+) ulp|2\^(-?[\d.]+)( of 1)?)$`)

func (w *wanted) tolerate(text string) error {
	if text == "" {
		return nil
	}
	m := tolerancePattern.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("malformed tolerance %q", text)
	}
	if m[1] != "" {
		ulps, err := strconv.ParseUint(m[1], 10, 64)
		w.ulps = ulps
		return err
	}
	power, err := strconv.ParseFloat(m[2], 64)
	if m[3] == "" {
		w.relative = math.Exp2(power)
	} else {
		w.absolute = math.Exp2(power)
	}
	return err
}

// matches compares one element with what was found.
func (w *wanted) matches(got uint64) bool {
	if got == w.bits {
		return true
	}
	if w.anyNaN {
		return isNaN(w.kind, got)
	}
	if isNaN(w.kind, got) || isNaN(w.kind, w.bits) {
		return false
	}
	if w.ulps > 0 {
		a, b := ordered(got, w.size), ordered(w.bits, w.size)
		return uint64(max(a, b)-min(a, b)) <= w.ulps
	}
	g, v := toFloat(w.kind, got), toFloat(w.kind, w.bits)
	if v == 0 && w.absolute == 0 || math.IsInf(v, 0) {
		return false
	}
	return math.Abs(g-v) <= w.absolute+w.relative*math.Abs(v)
}

// ordered turns the bits of a float into a number that counts representable
// values; both zeros are 0.
func ordered(bits uint64, size int) int64 {
	sign := uint64(1) << (8*size - 1)
	if bits&sign != 0 {
		return -int64(bits &^ sign)
	}
	return int64(bits)
}

var exponentMasks = map[string]uint64{"f16": 0x7c00, "bf16": 0x7f80, "f32": 0x7f800000, "f64": 0x7ff0000000000000}

func isNaN(kind string, bits uint64) bool {
	mask := exponentMasks[kind]
	sign := uint64(1) << (8*kindSize(kind) - 1)
	return mask != 0 && bits&^sign > mask
}

// toFloat is for the types that relative and absolute tolerances are used with.
func toFloat(kind string, bits uint64) float64 {
	switch kind {
	case "f32":
		return float64(math.Float32frombits(uint32(bits)))
	case "bf16":
		return float64(math.Float32frombits(uint32(bits) << 16))
	case "f16":
		// The exponent moves from bias 15 to bias 127; the multiplication puts it right and normalises subnormals.
		magnitude := math.Float32frombits(uint32(bits&0x7fff)<<13) * 0x1p112
		return math.Copysign(float64(magnitude), -float64(bits>>15))
	case "f64":
		return math.Float64frombits(bits)
	}
	return math.NaN()
}

func kindSize(kind string) int {
	switch strings.TrimLeft(kind, "abfsu") {
	case "8":
		return 1
	case "16":
		return 2
	case "32":
		return 4
	case "64":
		return 8
	}
	return 0
}

func parseValue(kind, text string) (uint64, error) {
	size := kindSize(kind)
	if strings.HasPrefix(text, "0x") {
		return strconv.ParseUint(text[2:], 16, 8*size)
	}
	switch kind[0] {
	case 'f':
		v, err := strconv.ParseFloat(text, 8*size)
		if size == 4 {
			return uint64(math.Float32bits(float32(v))), err
		}
		return math.Float64bits(v), err
	case 's':
		v, err := strconv.ParseInt(text, 10, 8*size)
		return uint64(v) & (^uint64(0) >> (64 - 8*size)), err
	}
	return strconv.ParseUint(text, 10, 8*size)
}

func align(n, size int) int { return (n + size - 1) / size * size }

func appendValues(to []byte, kind, value string) ([]byte, error) {
	size := kindSize(kind)
	if size == 0 {
		return nil, fmt.Errorf("unknown type %q", kind)
	}
	to = append(to, make([]byte, align(len(to), size)-len(to))...)
	for _, text := range strings.Fields(value) {
		bits, err := parseValue(kind, text)
		if err != nil {
			return nil, err
		}
		to = append(to, binary.LittleEndian.AppendUint64(nil, bits)[:size]...)
	}
	return to, nil
}

const (
	inAddress     = 0x1_0000_0000
	outAddress    = 0x2_0000_0000
	globalAddress = 0x3_0000_0000
)

// testMemory is three separate stretches of global memory: input, output and
// the variables of the module.
type testMemory struct {
	regions []simt.Region
	globals int // bytes placed
}

func (m *testMemory) Find(addr uint64) (simt.Region, bool) {
	for _, r := range m.regions {
		if addr >= r.Base && addr-r.Base < uint64(len(r.Bytes)) {
			return r, true
		}
	}
	return simt.Region{}, false
}

func (m *testMemory) Generation() uint64 { return 1 }

func (m *testMemory) place(v *ptx.Variable) (uint64, error) {
	m.globals = align(m.globals, max(v.Alignment(), 16))
	at := m.globals
	m.globals += v.Size()
	return globalAddress + uint64(at), nil
}

// add maps fresh pages, which the race detector does not watch: kernels may race.
func (m *testMemory) add(t *testing.T, base uint64, size int) []byte {
	t.Helper()
	pages, err := syscall.Mmap(-1, 0, max(size, 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(pages); err != nil {
			t.Error(err)
		}
	})
	m.regions = append(m.regions, simt.Region{Base: base, Bytes: pages[:size]})
	return pages[:size]
}

func (c *instructionCase) resume(state []byte) (*simt.Execution, error) {
	return c.kernel.Resume(simt.Launch{Memory: c.launch.Memory, Print: c.launch.Print, Workers: c.launch.Workers, Engine: c.launch.Engine}, state)
}

// run loads the file, lets drive run its kernel to the end and checks what came of it.
func (c *instructionCase) run(t *testing.T, how string, launch simt.Launch, drive func(*simt.Execution) (*simt.Execution, error)) {
	t.Helper()
	if c.loaded.Program == nil {
		module, err := ptx.Parse(c.name+".ptx", c.source)
		if err != nil {
			t.Fatal(err)
		}
		memory := &testMemory{}
		program, err := simt.Load(c.name+".ptx", module, memory.place)
		if err != nil && c.refusable != "" && strings.Contains(err.Error(), c.refusable) {
			t.Skipf("not supported, as Load says: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.loaded = loadedProgram{program, memory.globals}
	}
	c.memory = &testMemory{globals: c.loaded.globals}
	c.kernel = c.loaded.Kernel("run")
	if c.kernel == nil {
		t.Fatal("no kernel run")
	}
	out := c.fill(t, c.loaded.Program)
	var printed strings.Builder
	launch.Grid, launch.Block, launch.Shared, launch.Memory = c.grid, c.block, c.shared, c.memory
	launch.Params = c.parameters()
	launch.Print = func(text []byte) { printed.Write(text) }
	c.launch = launch
	x, err := c.kernel.Start(launch)
	if err == nil {
		_, err = drive(x)
	}
	if c.faults != "" {
		var fault *simt.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.faults) {
			t.Errorf("%s: got %v, want a fault with %q", how, err, c.faults)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", how, err)
		return
	}
	c.compare(t, how, out)
	if got := printed.String(); got != c.prints {
		t.Errorf("%s: printed %q, want %q", how, got, c.prints)
	}
}

// fill makes the memory of a run and returns the output.
func (c *instructionCase) fill(t *testing.T, program *simt.Program) []byte {
	t.Helper()
	copy(c.memory.add(t, inAddress, len(c.in)), c.in)
	out := c.memory.add(t, outAddress, c.outSize)
	variables := c.memory.add(t, globalAddress, c.memory.globals)
	for _, g := range program.Globals() {
		copy(variables[g.Address-globalAddress:], g.Data)
	}
	return out
}

func (c *instructionCase) parameters() []byte {
	all := make([]byte, c.kernel.ParamSize)
	addresses := binary.LittleEndian.AppendUint64(nil, inAddress)
	addresses = binary.LittleEndian.AppendUint64(addresses, outAddress)
	copy(all, slices.Concat(addresses, c.params))
	return all
}

func (c *instructionCase) compare(t *testing.T, how string, out []byte) {
	t.Helper()
	wrong := 0
	for i, w := range c.want {
		var wide [8]byte
		copy(wide[:w.size], out[w.offset:])
		got := binary.LittleEndian.Uint64(wide[:])
		if w.matches(got) {
			continue
		}
		if wrong++; wrong > 8 {
			t.Errorf("%s: and more", how)
			return
		}
		t.Errorf("%s: out[%d], of line %d, is %s, want %s (%s)", how, i, w.line, show(w.kind, got), w.text, show(w.kind, w.bits))
	}
}

func show(kind string, bits uint64) string {
	digits := 2 * kindSize(kind)
	if kind == "f32" || kind == "f64" {
		return fmt.Sprintf("%v = 0x%0*x", toFloat(kind, bits), digits, bits)
	}
	return fmt.Sprintf("%d = 0x%0*x", bits, digits, bits)
}
