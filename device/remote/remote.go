// Package remote is a device of another node: a device.Device whose work is done by that
// node's gateway, worker and GPU.
//
// To the lender it is a guest: a client like others, with a worker, a share, limits and swap
// room of its own. A guest differs in that it says where its device addresses lie, maps
// memory there in whole chunks, and may say where the variables of modules are to be. So what
// was copied away from a device here can be put at the same addresses there, and back.
//
// Work is pipelined: submitting sends a message and returns, and whether arguments are right
// is known here, from what was mapped and loaded. Only what must bring an answer waits for
// one: mapping, loading, and the end of work. What has ended is learned by probes, messages
// that are answered when a stream is there, so that Done does not wait either.
//
// Data are read from and written to the host's memory by this process, in the order of the
// streams: a copy to the device behind a copy or a call that may write its bytes is kept here
// until that is over, and what follows in its stream with it (stream.go).
//
// A connection that ends, whoever ended it and why, is the loss of the device for the contexts
// on it: every call answers with a *device.Fault of kind DeviceLost. The lender is trusted
// with the results and nothing else: what it answers is bounded, checked and used for the
// context concerned alone.
package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"muster/client"
	"muster/device"
	"muster/wire"
)

// Granularity is the unit of memory of all devices that are lent: a chunk of the lender's
// directory.
const Granularity = 2 << 20

// Options say which device it is.
type Options struct {
	// Lender is how its node is reached.
	Lender client.Remote
	// Device is its number among those that the node lends.
	Device int
	// Name is what programs here see as its name; "" for the lender's.
	Name string
}

// Device is one that another node lends. Nothing is connected until a context is opened.
type Device struct {
	options Options
	info    device.Info

	mu       sync.Mutex
	mapped   uint64 // bytes, by all contexts of this process
	contexts int
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Placer = (*Device)(nil)
)

// greeting is what a guest says first.
func greeting() wire.Hello {
	host, err := os.Hostname()
	if err != nil {
		host = "another machine"
	}
	hello := client.Hello("a node's device, lent to "+host, 0)
	hello.Guest = 1
	return hello
}

// Open asks a node what its device is like.
func Open(ctx context.Context, o Options) (*Device, error) {
	welcome, devices, err := client.Greet(ctx, o.Lender, greeting())
	if err != nil {
		return nil, fmt.Errorf("a device of another node: %w", err)
	}
	if o.Device < 0 || o.Device >= len(devices) {
		return nil, fmt.Errorf("the node lends %d devices, and none has number %d: give one from 0 to %d", len(devices), o.Device, len(devices)-1)
	}
	info, err := describe(welcome, devices[o.Device])
	if err != nil {
		return nil, fmt.Errorf("what the node says of its device %d: %w", o.Device, err)
	}
	if o.Name != "" {
		info.Name = o.Name
	}
	return &Device{options: o, info: info}, nil
}

// maxName is as long as a name may be that the lender tells.
const maxName = 200

// describe makes a device's description of what the lender says of it, which may be anything.
func describe(welcome wire.Welcome, d wire.Device) (device.Info, error) {
	a, err := attributes(d.Attributes)
	if err != nil {
		return device.Info{}, err
	}
	number := func(attribute int) uint64 { return uint64(max(0, a[attribute])) }
	sides := func(x int) device.Dim {
		return device.Dim{X: uint32(number(x)), Y: uint32(number(x + 1)), Z: uint32(number(x + 2))}
	}
	info := device.Info{
		Name: d.Name, Driver: int(min(welcome.Driver, math.MaxInt32)), Granularity: Granularity,
		ContextCost: number(wire.LentContext) << 10, Multiprocessors: int(number(16)),
		Compute: device.Compute{Major: int(number(75)), Minor: int(number(76))},
		Speed:   float64(number(wire.LentSpeed)) / 1e6, CopyBandwidth: number(wire.LentBandwidth) << 10,
		Limits: device.Limits{
			Warp: int(number(10)), Threads: int(number(1)), Block: sides(2), Grid: sides(5),
			SharedBlock: number(97), SharedMultiprocessor: number(81), SharedReserved: number(111),
			Local: number(wire.LentLocal) << 10, Registers: int(number(wire.LentRegisters)),
			ThreadsResident: int(number(39)), BlocksResident: int(number(106)), Constant: number(wire.LentConstant),
		},
		CallsAlone: number(wire.LentCallsAlone) != 0, Attributes: a,
	}
	const most = 1 << 46 // bytes
	switch {
	case len(d.Uuid) != len(info.UUID):
		return info, fmt.Errorf("a UUID of %d bytes", len(d.Uuid))
	case info.Name == "" || len(info.Name) > maxName:
		return info, fmt.Errorf("a name of %d bytes", len(info.Name))
	case d.Memory < Granularity || d.Memory > most || info.Speed <= 0 || info.Multiprocessors < 1 || info.Limits.Warp < 1 || info.Limits.Threads < 1:
		return info, fmt.Errorf("memory of %d bytes, %d multiprocessors, warps of %d threads and speed %g are not what a device has", d.Memory, info.Multiprocessors, info.Limits.Warp, info.Speed)
	}
	copy(info.UUID[:], d.Uuid)
	for _, own := range []int{wire.LentContext, wire.LentLocal, wire.LentSpeed, wire.LentBandwidth, wire.LentRegisters, wire.LentConstant, wire.LentCallsAlone} {
		delete(a, own)
	}
	// What the node shows is beside the context, as it is for programs.
	info.Memory = d.Memory&^(Granularity-1) + info.ContextCost
	return info, nil
}

// attributes reads pairs of a number and a value.
func attributes(pairs []byte) (map[int]int, error) {
	if len(pairs)%8 != 0 {
		return nil, fmt.Errorf("attributes of %d bytes", len(pairs))
	}
	a := map[int]int{}
	for ; len(pairs) > 0; pairs = pairs[8:] {
		a[int(binary.LittleEndian.Uint32(pairs))] = int(int32(binary.LittleEndian.Uint32(pairs[4:])))
	}
	return a, nil
}

// Info describes the device.
func (d *Device) Info() device.Info { return d.info }

// Open becomes a guest of the node. Each context is a guest of its own.
func (d *Device) Open(c device.Config) (device.Context, error) {
	a := c.Arena
	if a.Size == 0 || (a.Base|a.Size)%Granularity != 0 || a.Base+a.Size < a.Base {
		return nil, fmt.Errorf("an arena of %d bytes at %#x: give multiples of %d: %w", a.Size, a.Base, Granularity, device.ErrInvalidValue)
	}
	attach := wire.Attach{Device: uint32(d.options.Device), ArenaBase: a.Base, ArenaSize: a.Size}
	guest, err := client.Connect(context.Background(), d.options.Lender, greeting(), attach)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("the node that lends %s: %w", d.info.Name, err)
	case err != nil:
		return nil, lost(err.Error())
	}
	if got := guest.Attached; got.ArenaBase != a.Base || got.ArenaSize != a.Size {
		guest.Close()
		return nil, lost("the lender gives other device addresses than those that were asked for")
	}
	d.mu.Lock()
	d.contexts++
	d.mu.Unlock()
	return newContext(d, c, guest), nil
}

// LoadAt loads an image with its variables where they were in another context.
func (d *Device) LoadAt(c device.Context, image []byte, globals []device.Global) (device.Module, error) {
	own, ok := c.(*Context)
	if !ok || own.dev != d {
		return nil, fmt.Errorf("a context of another device: %w", device.ErrInvalidValue)
	}
	if globals == nil {
		globals = []device.Global{}
	}
	return own.load(image, globals)
}

// take counts memory that a context maps.
func (d *Device) take(size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if free := d.free(); size > free {
		return fmt.Errorf("%d bytes, and %d of %d are free: %w", size, free, d.info.Memory, device.ErrOutOfMemory)
	}
	d.mapped += size
	return nil
}

// free is what is left of the device's memory; the lock is held.
func (d *Device) free() uint64 {
	used := d.mapped + uint64(d.contexts)*d.info.ContextCost
	return d.info.Memory - min(used, d.info.Memory)
}

// giveBack counts memory that a context has no more.
func (d *Device) giveBack(size uint64, context bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mapped -= size
	if context {
		d.contexts--
	}
}
