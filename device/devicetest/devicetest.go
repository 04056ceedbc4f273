// Package devicetest defines what a device must do, as tests that every backend
// runs. It knows only the contract, and has its own kernels, which run on any
// GPU.
//
// A backend's test calls Run. Options lists what not every backend can do; tests
// for what a backend does not promise are skipped.
package devicetest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"muster/device"
)

// Options say what the backend promises beyond what every device must do.
type Options struct {
	// Isolated says that a fault ends only its own context and that two
	// contexts may have the same arena. Without it, tests that cause faults
	// are skipped.
	Isolated bool
	// Located says that faults tell the kernel, the block, the thread and the
	// address.
	Located bool
	// Stoppable says that Close stops kernels that would never end.
	Stoppable bool
	// FixedVariables says that modules loaded in the same order have their
	// variables at the same addresses, in every context.
	FixedVariables bool
	// ExactMemory says that Context.Memory is exact: memory that is unmapped
	// is free again at once.
	ExactMemory bool
	// Prints says that Config.Print receives what kernels print.
	Prints bool
	// Cubin, if set, is machine code without PTX that the device must refuse
	// as such.
	Cubin []byte
	// Fatbin, if set, holds a kernel "step" as in this package's own images.
	Fatbin []byte
}

//go:embed kernels/basic.ptx
var basic []byte

//go:embed kernels/variables.ptx
var variables []byte

//go:embed kernels/print.ptx
var printing []byte

//go:embed kernels/assert.ptx
var asserting []byte

// test is one requirement of the contract.
type test struct {
	name string
	skip func(Options) bool
	run  func(*bench)
}

func always(Options) bool        { return false }
func notIsolated(o Options) bool { return !o.Isolated }

// Run tests a device. open returns a device that is used by this test only, with at
// least 64 MiB of memory. Run calls it once for each test, and more often for tests
// that move work between devices; those may differ.
func Run(t *testing.T, open func(t *testing.T) device.Device, o Options) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"memory", memoryTests},
		{"streams", streamTests},
		{"modules", moduleTests},
		{"launches", launchTests},
		{"faults", faultTests},
		{"contexts", contextTests},
		{"memory of the host", hostTests},
		{"words", wordTests},
		{"graphs", graphTests},
		{"shared memory", sharedTests},
		{"programs", programTests},
		{"textures", textureTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.tests {
				t.Run(c.name, func(t *testing.T) {
					if c.skip(o) {
						t.Skip("this backend does not promise it")
					}
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					t.Cleanup(cancel)
					b := &bench{T: t, options: o, ctx: ctx, another: func() device.Device { return open(t) }}
					b.dev = b.another()
					c.run(b)
				})
			}
		})
	}
}

// patience is how long a wait may take before the test fails instead of
// hanging. No result depends on it.
const patience = 4 * time.Minute

// bench is a device with helpers around it.
type bench struct {
	*testing.T
	dev     device.Device
	another func() device.Device // of the same backend
	options Options
	ctx     context.Context
}

// arenaBase is where the tests' arenas begin. Real drivers can reserve large ranges
// at such addresses.
const arenaBase = uint64(0x6400_0000_0000)

const arenaSize = uint64(1 << 30)

func (b *bench) arena() device.Arena { return device.Arena{Base: arenaBase, Size: arenaSize} }

// opened is an open context with what most tests need.
type opened struct {
	*bench
	device.Context
	stream device.Stream
	module device.Module // the basic kernels
	g      uint64        // granularity
}

// open makes a context with a stream and the basic kernels.
func (b *bench) open() *opened { return b.openOn(b.dev, device.Config{Arena: b.arena()}) }

func (b *bench) openOn(d device.Device, c device.Config) *opened {
	b.Helper()
	x, err := d.Open(c)
	b.ok(err)
	b.Cleanup(func() { b.ok(x.Close()) })
	o := &opened{bench: b, Context: x, g: d.Info().Granularity}
	o.stream = o.newStream()
	o.module, err = x.Load(basic)
	b.ok(err)
	return o
}

func (o *opened) newStream() device.Stream {
	o.Helper()
	s, err := o.NewStream()
	o.ok(err)
	return s
}

func (o *opened) newEvent() device.Event {
	o.Helper()
	e, err := o.NewEvent()
	o.ok(err)
	return e
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// refused fails unless err is the given error of the contract.
func (b *bench) refused(err, want error) {
	b.Helper()
	if err == nil {
		b.Fatalf("it was accepted, want: %v", want)
	}
	if !isError(err, want) {
		b.Fatalf("refused with %q, want: %v", err, want)
	}
}

// mapped maps whole granules for size bytes at the n-th granule of the arena
// and returns the address.
func (o *opened) mapped(n, size uint64) uint64 {
	o.Helper()
	addr := arenaBase + n*o.g
	o.ok(o.Map(addr, (size+o.g-1)/o.g*o.g))
	return addr
}

func (o *opened) finish() {
	o.Helper()
	o.ok(o.stream.Synchronise(o.ctx))
}

// put copies to the device and waits.
func (o *opened) put(addr uint64, data []byte) {
	o.Helper()
	o.ok(o.stream.CopyIn(addr, data))
	o.finish()
}

// get copies from the device and waits.
func (o *opened) get(addr uint64, size int) []byte {
	o.Helper()
	data := make([]byte, size)
	o.ok(o.stream.CopyOut(data, addr))
	o.finish()
	return data
}

func (o *opened) getWords(addr uint64, n int) []uint32 {
	o.Helper()
	return words(o.get(addr, 4*n))
}

func (o *opened) putWords(addr uint64, w ...uint32) {
	o.Helper()
	o.put(addr, bytesOf(w))
}

func words(data []byte) []uint32 {
	w := make([]uint32, len(data)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return w
}

func bytesOf(w []uint32) []byte {
	var data []byte
	for _, x := range w {
		data = binary.LittleEndian.AppendUint32(data, x)
	}
	return data
}

func (o *opened) function(name string) device.Function {
	o.Helper()
	f, err := o.module.Function(name)
	o.ok(err)
	return f
}

// pack lays arguments out as a kernel's parameters.
func (o *opened) pack(f device.Function, arguments ...any) []byte {
	o.Helper()
	info := f.Info()
	if len(arguments) != len(info.Params) {
		o.Fatalf("%s has %d parameters, got %d arguments", info.Name, len(info.Params), len(arguments))
	}
	data := make([]byte, info.ParamSize)
	for i, a := range arguments {
		var one bytes.Buffer
		if f, ok := a.(float32); ok {
			a = math.Float32bits(f)
		}
		o.ok(binary.Write(&one, binary.LittleEndian, a))
		if one.Len() != info.Params[i].Size {
			o.Fatalf("%s: parameter %d has %d bytes, the argument %d", info.Name, i, info.Params[i].Size, one.Len())
		}
		copy(data[info.Params[i].Offset:], one.Bytes())
	}
	return data
}

// launch starts a kernel of one-dimensional blocks.
func (o *opened) launch(s device.Stream, name string, blocks, threads uint32, arguments ...any) {
	o.Helper()
	f := o.function(name)
	o.ok(s.Launch(f, device.Launch{Grid: line(blocks), Block: line(threads), Params: o.pack(f, arguments...)}))
}

func line(n uint32) device.Dim { return device.Dim{X: n, Y: 1, Z: 1} }

// same fails unless two lists are equal.
func same[T comparable](b *bench, what string, got, want []T) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			b.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// spinLimit bounds the loops of kernels that wait to be released: on a broken device
// the test then fails instead of hanging.
const spinLimit = uint64(1) << 26

// endless is a limit that no kernel reaches.
const endless = uint64(math.MaxUint64)

// pattern returns bytes whose period is no power of two, so that misplaced pieces show.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i%251) ^ seed
	}
	return p
}

func hex(addr uint64) string { return fmt.Sprintf("%#x", addr) }
