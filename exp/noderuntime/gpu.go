package noderuntime

import (
	"context"
	"fmt"

	"muster/client"
	"muster/device"
	"muster/node"
	"muster/wire"
	"muster/wire/status"
)

// gpu is what a script runs on: a device itself, or a virtual one of a node.
type gpu interface {
	// prepare makes memory and kernel known. It is not part of what is timed.
	prepare(memory uint64, k *kernel) error
	base() uint64
	copyIn(to uint64, data []byte) error
	launch(grid, block device.Dim, params []byte) error
	synchronise() error
	copyOut(from uint64, into []byte) error
	// usage tells what happened to the script's memory; only before close.
	usage() (use, error)
	close()
}

// use is how often a script lost its device.
type use struct{ swaps, preemptions uint64 }

// bare is a script's own context on a device of this process: what a program has
// without a runtime between.
type bare struct {
	context  device.Context
	stream   device.Stream
	function device.Function
}

const bareBase = 0x6400_0000_0000

func newBare(d device.Device) (*bare, error) {
	c, err := d.Open(device.Config{Arena: device.Arena{Base: bareBase, Size: 1 << 30}})
	if err != nil {
		return nil, err
	}
	s, err := c.NewStream()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &bare{context: c, stream: s}, nil
}

func (b *bare) prepare(memory uint64, k *kernel) error {
	module, err := b.context.Load(k.image())
	if err != nil {
		return err
	}
	if b.function, err = module.Function(k.name); err != nil {
		return err
	}
	return b.context.Map(bareBase, (memory+granule-1)/granule*granule)
}

func (b *bare) base() uint64                        { return bareBase }
func (b *bare) copyIn(to uint64, data []byte) error { return b.stream.CopyIn(to, data) }
func (b *bare) synchronise() error                  { return b.stream.Synchronise(context.Background()) }
func (b *bare) usage() (use, error)                 { return use{}, nil }
func (b *bare) close()                              { _ = b.context.Close() }

func (b *bare) launch(grid, block device.Dim, params []byte) error {
	return b.stream.Launch(b.function, device.Launch{Grid: grid, Block: block, Params: params})
}

func (b *bare) copyOut(from uint64, into []byte) error {
	if err := b.stream.CopyOut(into, from); err != nil {
		return err
	}
	return b.synchronise()
}

// attached is a script that is a client of a node.
type attached struct {
	session *client.Session
	socket  string
}

// attach becomes a client of the node at a socket.
func attach(socket, program string) (*attached, error) {
	s, err := client.Attach(socket, client.Hello(program, 0), 0)
	if err != nil {
		return nil, err
	}
	return &attached{s, socket}, nil
}

func (a *attached) base() uint64 { return a.session.Attached.ArenaBase }

func (a *attached) call(m wire.Message) error {
	return answered(m.Op(), func() (int32, error) { return a.session.Producer.Call(m, nil) })
}

// answered turns a result of the protocol into an error.
func answered(op wire.Op, call func() (int32, error)) error {
	result, err := call()
	if err == nil && result != 0 {
		err = fmt.Errorf("the node answers with result %d", result)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", op, err)
	}
	return nil
}

// The numbers that a script gives its one module and its one function.
const moduleID, functionID = 1, 1

func (a *attached) prepare(memory uint64, k *kernel) error {
	if err := a.call(&wire.MemAlloc{Addr: a.base(), Size: memory}); err != nil {
		return err
	}
	if err := a.send(&wire.ModuleData{Module: moduleID}, k.image()); err != nil {
		return err
	}
	if err := a.call(&wire.ModuleLoad{Module: moduleID}); err != nil {
		return err
	}
	return a.fetch(&wire.ModuleFunction{Module: moduleID, Function: functionID, Name: k.name}, wire.BounceBuffer)
}

func (a *attached) send(m wire.Message, data []byte) error {
	return a.session.Producer.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data)
}

// fetch is for messages whose answer comes with bytes: they lie in the bounce
// buffer then.
func (a *attached) fetch(m wire.Message, size uint64) error {
	return answered(m.Op(), func() (int32, error) {
		pending, err := a.session.Producer.Start(wire.Header{Op: m.Op(), Data: a.bounce(), Length: size}, m.Append(nil))
		if err != nil {
			return 0, err
		}
		result, _, err := pending.Wait()
		return result, err
	})
}

func (a *attached) bounce() uint64 { return a.session.Shared.Geometry().Staging }

func (a *attached) copyIn(to uint64, data []byte) error {
	const most = 1 << 20 // bytes of staging memory at a time
	for len(data) > 0 {
		n := min(len(data), most)
		if err := a.send(&wire.CopyIn{Dst: to}, data[:n]); err != nil {
			return err
		}
		to, data = to+uint64(n), data[n:]
	}
	return nil
}

func (a *attached) copyOut(from uint64, into []byte) error {
	for len(into) > 0 {
		n := min(len(into), wire.BounceBuffer)
		if err := a.fetch(&wire.CopyOut{Src: from}, uint64(n)); err != nil {
			return err
		}
		data, err := a.session.Shared.Data(a.bounce(), uint64(n))
		if err != nil {
			return err
		}
		copy(into, data)
		from, into = from+uint64(n), into[n:]
	}
	return nil
}

func (a *attached) launch(grid, block device.Dim, params []byte) error {
	return a.session.Producer.Post(&wire.Launch{
		Function: functionID, GridX: grid.X, GridY: grid.Y, GridZ: grid.Z, BlockX: block.X, BlockY: block.Y, BlockZ: block.Z, Params: params,
	})
}

func (a *attached) synchronise() error { return a.call(&wire.Synchronise{}) }

func (a *attached) usage() (use, error) {
	c, err := a.status()
	return use{c.Swaps, c.Preemptions}, err
}

// status is what the node says of this client.
func (a *attached) status() (status.Client, error) {
	all, err := node.Ask(a.socket)
	if err != nil {
		return status.Client{}, err
	}
	for _, c := range all.Clients {
		if c.ID == a.session.Attached.Client {
			return c, nil
		}
	}
	return status.Client{}, fmt.Errorf("the node does not know client %d any more", a.session.Attached.Client)
}

func (a *attached) close() { a.session.Close() }
