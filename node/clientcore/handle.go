package clientcore

import (
	"bytes"
	"errors"
	"fmt"

	"muster/device"
	"muster/wire"
)

var errDecode = errors.New("a damaged message")

// handler does what a message asks for. It returns false if the message must wait: then it has
// changed nothing that counts, and is called again.
type handler func(*Core, *Message) (done bool, err error)

// decoding makes a handler from one that takes the decoded message.
func decoding[M any, P interface {
	*M
	wire.Message
}](f func(*Core, *Message, P) (bool, error)) handler {
	return func(c *Core, m *Message) (bool, error) {
		var d M
		if err := P(&d).Decode(m.Body); err != nil {
			return true, errors.Join(err, errDecode)
		}
		return f(c, m, &d)
	}
}

func (c *Core) dispatch(m *Message) (bool, error) {
	if int(m.Header.Op) >= len(handlers) || handlers[m.Header.Op] == nil {
		return true, fmt.Errorf("no such message: %w", ErrProtocol)
	}
	return handlers[m.Header.Op](c, m)
}

var handlers [73]handler

func init() {
	handlers = [73]handler{
		wire.OpMemAlloc:          decoding((*Core).memAlloc),
		wire.OpMemFree:           decoding((*Core).memFree),
		wire.OpMemNest:           decoding((*Core).memNest),
		wire.OpHostMap:           decoding((*Core).hostMap),
		wire.OpHostUnmap:         decoding((*Core).hostUnmap),
		wire.OpMemMap:            decoding((*Core).memMap),
		wire.OpMemUnmap:          decoding((*Core).memUnmap),
		wire.OpCopyInline:        decoding((*Core).copyInline),
		wire.OpCopyIn:            decoding((*Core).copyInMessage),
		wire.OpCopyOut:           decoding((*Core).copyOutMessage),
		wire.OpCopyWithin:        decoding((*Core).copyWithinMessage),
		wire.OpCopyIn2D:          decoding((*Core).copyIn2D),
		wire.OpCopyOut2D:         decoding((*Core).copyOut2D),
		wire.OpCopyWithin2D:      decoding((*Core).copyWithin2D),
		wire.OpFill:              decoding((*Core).fill),
		wire.OpModuleData:        decoding((*Core).moduleData),
		wire.OpModuleLoad:        decoding((*Core).moduleLoad),
		wire.OpModuleUnload:      decoding((*Core).moduleUnload),
		wire.OpModuleNames:       decoding((*Core).moduleNames),
		wire.OpModuleFunction:    decoding((*Core).moduleFunction),
		wire.OpModuleGlobal:      decoding((*Core).moduleGlobal),
		wire.OpFunctionOccupancy: decoding((*Core).functionOccupancy),
		wire.OpFunctionShared:    decoding((*Core).functionShared),
		wire.OpFunctionClusters:  decoding((*Core).functionClusters),
		wire.OpFunctionTouches:   decoding((*Core).functionTouches),
		wire.OpDriverAsk:         decoding((*Core).driverAsk),
		wire.OpLaunch:            decoding((*Core).launch),
		wire.OpModuleLog:         decoding((*Core).moduleLog),
		wire.OpModuleLink:        decoding((*Core).moduleLink),
		wire.OpModuleFetch:       decoding((*Core).moduleFetch),
		wire.OpModulePlace:       decoding((*Core).modulePlace),
		wire.OpStreamCreate:      decoding((*Core).streamCreate),
		wire.OpStreamDestroy:     decoding((*Core).streamDestroy),
		wire.OpStreamQuery:       decoding((*Core).streamQuery),
		wire.OpStreamSynchronise: decoding((*Core).streamSynchronise),
		wire.OpStreamWait:        decoding((*Core).streamWait),
		wire.OpEventCreate:       decoding((*Core).eventCreate),
		wire.OpEventDestroy:      decoding((*Core).eventDestroy),
		wire.OpEventRecord:       decoding((*Core).eventRecord),
		wire.OpEventQuery:        decoding((*Core).eventQuery),
		wire.OpEventSynchronise:  decoding((*Core).eventSynchronise),
		wire.OpEventElapsed:      decoding((*Core).eventElapsed),
		wire.OpSynchronise:       decoding((*Core).synchronise),
		wire.OpHostFunction:      decoding((*Core).hostFunction),
		wire.OpHostNext:          decoding((*Core).hostNext),
		wire.OpHostDone:          decoding((*Core).hostDone),
		wire.OpHostStop:          decoding((*Core).hostStop),
		wire.OpPrintFetch:        decoding((*Core).printFetch),
		wire.OpSyncPoint:         decoding((*Core).syncPoint),
		wire.OpLimit:             decoding((*Core).limit),
		wire.OpTextureCreate:     decoding((*Core).textureCreate),
		wire.OpTextureDestroy:    decoding((*Core).textureDestroy),
		wire.OpMemShare:          decoding((*Core).memShare),
		wire.OpMemImport:         decoding((*Core).memImport),
		wire.OpStreamWrite:       decoding((*Core).streamWrite),
		wire.OpStreamAwait:       decoding((*Core).streamAwait),
		wire.OpGraphDefine:       decoding((*Core).graphDefine),
		wire.OpGraphLaunch:       decoding((*Core).graphLaunch),
		wire.OpGraphDestroy:      decoding((*Core).graphDestroy),
		wire.OpReset:             decoding(func(c *Core, m *Message, _ *wire.Reset) (bool, error) { return c.reset(m) }),
	}
}

// Flags of a launch.
const (
	cooperative = 1 << iota
	largeCluster
)

// launch launches a kernel, on the client's device or on one that it gets first.
func (c *Core) launch(m *Message, d *wire.Launch) (bool, error) {
	f, ok := c.Modules.Functions[d.Function]
	if !ok {
		return true, fmt.Errorf("function %d: %w", d.Function, errHandle)
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	if len(d.Params) != f.Info.ParamSize {
		return true, fmt.Errorf("%d bytes of parameters for kernel %s, which takes %d: %w", len(d.Params), f.Info.Name, f.Info.ParamSize, device.ErrInvalidValue)
	}
	if f.Info.Heap {
		if ok, err := c.provideHeap(); !ok || err != nil {
			return ok, err
		}
	}
	run := launching{}
	if c.mapping != nil {
		if run, err = c.mapLaunch(&f, d.Function, d.Params); err != nil {
			return true, fmt.Errorf("kernel %s: %w", f.Info.Name, err)
		}
		if run.waits {
			return false, nil
		}
	}
	if !run.mapped && !c.isReady() {
		ok, err := c.ready(c.needs(d.Params))
		if err != nil {
			return true, fmt.Errorf("kernel %s: %w", f.Info.Name, err)
		}
		if !ok {
			return false, nil
		}
	}
	if err := c.usable(&f); err != nil {
		return true, err
	}
	if !c.Lease.Began {
		c.Lease.begin(c)
	}
	at, ticket := c.place(), uint64(0)
	if run.mapped {
		at = run.at
		ticket = c.mapping.took(c)
	}
	c.Activity.launched(c, at == c.place())
	c.give(d.Stream, st, at)
	switch {
	case !run.mapped:
		c.space.Launched(at, nil)
	case len(run.written) > 0:
		c.space.Launched(at, run.written)
	}
	params := d.Params
	if c.Outstanding() > 0 {
		params = bytes.Clone(params) // the ring may be read ahead while the launch waits
	}
	o := c.next(Launch)
	o.Place, o.Stream, o.Module, o.Function, o.Name, o.Ticket = at, d.Stream, f.Module, d.Function, f.Info.Name, ticket
	if o.Guard = run.guard; !run.mapped {
		o.Guard = c.watch(&f, d.Function)
	}
	o.How = howOf(d)
	o.How.Params = params
	return true, nil
}

// howOf returns the launch parameters of a message.
func howOf(d *wire.Launch) device.Launch {
	return device.Launch{
		Grid: device.Dim{X: d.GridX, Y: d.GridY, Z: d.GridZ}, Block: device.Dim{X: d.BlockX, Y: d.BlockY, Z: d.BlockZ},
		Shared: uint64(d.Shared), Stack: d.Stack, Params: d.Params, Cooperative: d.Flags&cooperative != 0,
		Cluster: device.Dim{X: d.ClusterX, Y: d.ClusterY, Z: d.ClusterZ}, LargeCluster: d.Flags&largeCluster != 0,
	}
}

// needs returns what must be on the device for a kernel: everything, if any device of the node can
// hold it, since a kernel may follow pointers in memory; otherwise what its parameters point to and
// what textures read. For a guest it is everything: only the guest's node knows what points where,
// and it has mapped only what is needed.
func (c *Core) needs(params []byte) need {
	all := need{all: true}
	if c.config.Guest {
		return all
	}
	size := c.bytes(all)
	for _, d := range c.config.Devices {
		if size+d.ContextCost <= d.Memory {
			return all
		}
	}
	return need{ranges: c.withHeap(c.withTextures(c.space.Reachable(params)))}
}

// limit notes a limit that the program sets, and sets it in open contexts.
func (c *Core) limit(_ *Message, d *wire.Limit) (bool, error) {
	const most = 16 // CUDA has fewer
	if d.Limit >= most {
		return true, fmt.Errorf("limit %d: %w", d.Limit, device.ErrInvalidValue)
	}
	if c.Limits == nil {
		c.Limits = map[uint32]uint64{}
	}
	if d.Limit == device.LimitHeap && c.Heap > 0 && c.heapFor(d.Value) != c.heap() {
		c.explain(errHeapInUse)
		return true, nil
	}
	c.Limits[d.Limit] = d.Value
	for _, x := range c.Contexts {
		c.emit(Op{Kind: SetLimit, Place: x.Place, Limits: map[uint32]uint64{d.Limit: d.Value}})
	}
	return true, nil
}

func (c *Core) syncPoint(*Message, *wire.SyncPoint) (bool, error) {
	if c.Lease.Held {
		c.Activity.atSyncPoint(c)
	}
	return true, nil
}

// printFetch leaves the answer to the executor, which has the output of kernels.
func (c *Core) printFetch(m *Message, _ *wire.PrintFetch) (bool, error) {
	c.emit(Op{Kind: Printed, Slot: m.Header.Slot, Out: Span{m.Header.Data, m.Header.Length}})
	return true, nil
}
