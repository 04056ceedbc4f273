// Package remote is a device.Device whose work another process does: for a device of another node
// that node's gateway, worker and GPU, and for a device of this node whose contexts need a process
// each (Over) another worker, which shares memory with this process. What is said of lenders
// here holds for this node, too, if it lends to itself in this way.
//
// The lender, the other node, treats each context as a guest: a client like others, with its own
// worker, share, limits and swap space. A guest differs in that it chooses its range of device
// addresses, maps memory there in whole chunks, and may choose the addresses of modules'
// variables. So memory that was copied away from a device of this node can be put at the same
// addresses on the lender's, and back.
//
// Work is pipelined: submitting sends a message and returns. This process checks the arguments
// itself, since it knows what is mapped and loaded. Only calls that need an answer wait for one:
// mapping, loading, and the end of work. To learn that work has ended, a stream sends a probe, a
// message that the lender answers when it gets there; Done does not wait for the answer.
//
// This process reads and writes host memory for the copies, in the order of the streams. If an
// earlier copy or call of the same stream may still write the bytes that a copy to the device
// reads, the copy is kept here until that has ended, and so is all later work of its stream
// (stream.go).
//
// When the connection of a context ends, for any reason, the device counts as lost: every call
// of the context answers with a *device.Fault of kind DeviceLost. The lender is trusted only to
// compute results. Its answers are bounded and checked, and affect only the context that they
// belong to.
package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/client"
)

// LentTo begins the name by which a lender knows what a node does there for its programs.
const LentTo = "a node's device, lent to "

// Granularity is the unit of memory of all devices that are lent: a chunk of the lender's
// directory.
const Granularity = 2 << 20

// Options select a device of another node.
type Options struct {
	// Lender says how to reach the node.
	Lender client.Remote
	// Device is the device's number among those that the node lends.
	Device int
	// Name is the device's name as programs on this node see it; "" for the lender's.
	Name string
	// Gateway is where other lenders find this one, as HOST:PORT; "" if it has no certificate by which
	// they could know it.
	Gateway string
}

// Device is a device that another node lends. It holds no connection; each context has one.
type Device struct {
	options Options
	over    atomic.Pointer[client.Session] // of a device of this node: the connection for its only context
	local   bool                           // it is one
	info    device.Info
	device.DeviceCan
	calls int
	each  time.Duration
	apart apart

	mu       sync.Mutex
	mapped   uint64 // bytes that all contexts of this process have mapped
	contexts int
}

var _ device.Device = (*Device)(nil)

// greeting is the first message of a guest.
func greeting() wire.Hello {
	host, err := os.Hostname()
	if err != nil {
		host = "another machine"
	}
	hello := client.Hello(LentTo+host, 0)
	hello.Guest = wire.Guest
	return hello
}

// Open asks a node to describe one of its devices.
func Open(ctx context.Context, o Options) (*Device, error) {
	asks := greeting()
	asks.Guest = wire.GuestAsks
	welcome, devices, err := client.Greet(ctx, o.Lender, asks)
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
	if o.Gateway != "" {
		info.Peers = Peers
	}
	d := &Device{options: o, info: info}
	d.LoadAt = d.loadAt
	if a, err := attributes(devices[o.Device].Attributes); err == nil {
		const most = 1000 << 10 // as many programs as no device has
		d.calls, d.each = min(max(0, a[wire.LentCalls]), most), time.Duration(max(0, a[wire.LentEach]))*time.Microsecond
	}
	return d, nil
}

// Over opens a device of this machine by way of another worker process, for devices whose contexts need
// a process each. The daemon at the other end of the connection shows that device alone. The device is
// good for one context, and takes the connection over.
func Over(conn *net.UnixConn, name string) (*Device, error) {
	session, err := client.Over(conn, greeting())
	if err != nil {
		return nil, fmt.Errorf("a device in another process: %w", err)
	}
	if len(session.Devices) != 1 {
		session.Close()
		return nil, fmt.Errorf("a device in another process: the node shows %d devices, and not one", len(session.Devices))
	}
	info, err := describe(session.Welcome, session.Devices[0])
	if err != nil {
		session.Close()
		return nil, fmt.Errorf("what the node says of a device in another process: %w", err)
	}
	if name != "" {
		info.Name = name
	}
	d := &Device{info: info, local: true}
	d.LoadAt = d.loadAt
	d.over.Store(session)
	return d, nil
}

// Load is how busy the lender said the device is with others than this node's programs, when it was
// opened: how many programs have work there, in thousandths, and how long their kernels take.
func (d *Device) Load() (calls int, each time.Duration) { return d.calls, d.each }

// maxName is the longest device name, in bytes, that is accepted from a lender.
const maxName = 200

// describe turns the lender's description of a device into device.Info. It refuses values that
// no device has, since the lender may send anything.
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
	for _, own := range []int{wire.LentContext, wire.LentLocal, wire.LentSpeed, wire.LentBandwidth, wire.LentRegisters, wire.LentConstant, wire.LentCallsAlone, wire.LentCalls, wire.LentEach} {
		delete(a, own)
	}
	// The lender reports the memory left for programs, without the cost of their context.
	// Info.Memory includes that cost.
	info.Memory = d.Memory&^(Granularity-1) + info.ContextCost
	return info, nil
}

// attributes decodes pairs of an attribute's number and its value.
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

// Open connects to the node as a new guest, with the arena as its addresses.
func (d *Device) Open(c device.Config) (device.Context, error) {
	a := c.Arena
	if a.Size == 0 || (a.Base|a.Size)%Granularity != 0 || a.Base+a.Size < a.Base {
		return nil, fmt.Errorf("an arena of %d bytes at %#x: give multiples of %d: %w", a.Size, a.Base, Granularity, device.ErrInvalidValue)
	}
	attach := wire.Attach{Device: uint32(d.options.Device), ArenaBase: a.Base, ArenaSize: a.Size}
	guest, err := d.connect(attach)
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

// connect becomes a guest.
func (d *Device) connect(attach wire.Attach) (*client.Direct, error) {
	if !d.local {
		return client.Connect(context.Background(), d.options.Lender, greeting(), attach)
	}
	session := d.over.Swap(nil)
	if session == nil {
		return nil, errors.New("its connection is good for one context only")
	}
	if err := session.AttachAs(attach); err != nil {
		session.Close()
		return nil, err
	}
	return session.Direct(), nil
}

// loadAt loads an image with its variables at given addresses. An empty list that is not nil
// tells load to check that the image has no variables.
func (d *Device) loadAt(c device.Context, image []byte, globals []device.Global) (device.Module, error) {
	own, ok := c.(*Context)
	if !ok || own.dev != d {
		return nil, fmt.Errorf("a context of another device: %w", device.ErrInvalidValue)
	}
	if globals == nil {
		globals = []device.Global{}
	}
	return own.load(image, globals)
}

// take adds to the memory that contexts have mapped, or refuses if it exceeds the device's.
func (d *Device) take(size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if free := d.free(); size > free {
		return fmt.Errorf("%d bytes, and %d of %d are free: %w", size, free, d.info.Memory, device.ErrOutOfMemory)
	}
	d.mapped += size
	return nil
}

// free returns the device's free memory. The caller must hold d.mu.
func (d *Device) free() uint64 {
	used := d.mapped + uint64(d.contexts)*d.info.ContextCost
	return d.info.Memory - min(used, d.info.Memory)
}

// giveBack subtracts memory that a context has unmapped, and the context itself if it has ended.
func (d *Device) giveBack(size uint64, context bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mapped -= size
	if context {
		d.contexts--
	}
}
