package clientcore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"muster/device"
	"muster/wire"
)

func (ms *modules) moduleNames(m *Message, d *wire.ModuleNames) (bool, error) {
	mod, err := ms.of(d.Module)
	if err != nil {
		return true, err
	}
	var names bytes.Buffer
	for _, f := range mod.Info.Functions {
		names.WriteString(f.Name + "\x00")
	}
	for _, g := range mod.Info.Globals {
		names.WriteString(g.Name + "\x00")
	}
	ms.write(m, names.Bytes())
	ms.reply(m.Header.Slot, success, (&wire.ModuleNamesReply{
		Total: uint64(names.Len()), Functions: uint32(len(mod.Info.Functions)), Globals: uint32(len(mod.Info.Globals)),
	}).Append(nil))
	return true, nil
}

func (ms *modules) moduleFunction(m *Message, d *wire.ModuleFunction) (bool, error) {
	mod, err := ms.of(d.Module)
	if err != nil {
		return true, err
	}
	if _, taken := ms.Functions[d.Function]; taken {
		return true, fmt.Errorf("function %d is taken: %w", d.Function, ErrProtocol)
	}
	if len(ms.Functions) >= maxObjects {
		return true, tooMany("functions")
	}
	i, ok := mod.function(d.Name)
	if !ok {
		return true, fmt.Errorf("kernel %q: %w", d.Name, device.ErrNotFound)
	}
	if described, err := ms.describe(mod, ms.ByID[d.Module], i); !described || err != nil {
		return described, err
	}
	info := mod.Info.Functions[i]
	if m.Header.Length < 8*uint64(len(info.Params)) {
		return true, fmt.Errorf("no room for %d parameters: %w", len(info.Params), ErrProtocol)
	}
	var layout []byte
	for _, p := range info.Params {
		layout = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(layout, uint32(p.Offset)), uint32(p.Size))
	}
	ms.write(m, layout)
	serial := ms.ByID[d.Module]
	ms.Functions[d.Function] = Function{Module: serial, Info: info}
	ms.known.functions[serial] = append(ms.known.functions[serial], d.Function)
	ms.reply(m.Header.Slot, success, (&wire.ModuleFunctionReply{
		Params: uint32(len(info.Params)), ParamSize: uint32(info.ParamSize), MaxThreads: int32(info.MaxThreads),
		Shared: int32(info.Shared), Local: int32(info.Local), Registers: int32(info.Registers),
		Ptx: int32(info.PTXVersion), Binary: int32(info.Binary), Constant: int32(info.Constant),
		ClusterX: info.Cluster.X, ClusterY: info.Cluster.Y, ClusterZ: info.Cluster.Z, ClusterNeeded: flag(info.ClusterNeeded), Heap: flag(info.Heap),
	}).Append(nil))
	return true, nil
}

// describe finds out about a kernel of which only the name is known. Devices report just the names
// when they load a module, since modules of libraries have thousands of kernels. It returns false
// if the message must wait.
func (ms *modules) describe(mod *Module, serial uint64, i int) (bool, error) {
	f := &mod.Info.Functions[i]
	if !f.Unread {
		return true, nil
	}
	if ms.queue.found() == nil {
		if ok, err := ms.arrival.ready(need{}); !ok || err != nil {
			return ok, err
		}
		if err := ms.usable(&Function{Module: serial, Info: *f}); err != nil {
			return true, err
		}
		ms.ask(Op{Kind: Describe, Place: ms.here().Place, Module: serial, Name: f.Name})
		return false, nil
	}
	o := ms.queue.Head.found
	if o.Err != nil {
		return true, o.Err
	}
	if len(o.Functions) != 1 || o.Functions[0].Name != f.Name || o.Functions[0].Unread {
		return true, fmt.Errorf("the device tells nothing of kernel %q: %w", f.Name, device.ErrNotFound)
	}
	*f = o.Functions[0]
	return true, nil
}

func (ms *modules) moduleGlobal(m *Message, d *wire.ModuleGlobal) (bool, error) {
	mod, err := ms.of(d.Module)
	if err != nil {
		return true, err
	}
	find := func() int { return mod.variable(d.Name) }
	if find() < 0 {
		return true, fmt.Errorf("variable %q: %w", d.Name, device.ErrNotFound)
	}
	if !mod.Placed { // the device chooses the addresses
		if ok, err := ms.arrival.ready(need{}); !ok || err != nil {
			return ok, err
		}
		if mod.Refused != nil {
			return true, mod.Refused
		}
	}
	g := mod.Info.Globals[find()]
	reply := &wire.ModuleGlobalReply{Addr: g.Address, Size: g.Size}
	if g.Managed {
		reply.Managed = 1
	}
	ms.reply(m.Header.Slot, success, reply.Append(nil))
	return true, nil
}

// usable returns why a kernel cannot be used in the open context.
func (ms *modules) usable(f *Function) error {
	mod := ms.All[f.Module]
	if mod.Loaded {
		return nil
	}
	why := error(errHandle)
	if mod.Refused != nil {
		why = mod.Refused
	}
	return fmt.Errorf("kernel %s is of a module that is not loaded: %w", f.Info.Name, why)
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (ms *modules) functionOccupancy(m *Message, d *wire.FunctionOccupancy) (bool, error) {
	return ms.askFunction(m, d.Function, Op{Kind: Occupancy, Threads: int(d.Threads), Shared: d.Shared})
}

func (ms *modules) functionShared(m *Message, d *wire.FunctionShared) (bool, error) {
	return ms.askFunction(m, d.Function, Op{Kind: SharedFor, Threads: int(d.Threads), Blocks: int(d.Blocks)})
}

func (ms *modules) functionClusters(m *Message, d *wire.FunctionClusters) (bool, error) {
	return ms.askFunction(m, d.Function, Op{Kind: Clusters, How: device.Launch{
		Grid: device.Dim{X: d.GridX, Y: d.GridY, Z: d.GridZ}, Block: device.Dim{X: d.BlockX, Y: d.BlockY, Z: d.BlockZ}, Shared: uint64(d.Shared),
		Cooperative: d.Flags&cooperative != 0, Cluster: device.Dim{X: d.ClusterX, Y: d.ClusterY, Z: d.ClusterZ}, LargeCluster: d.Flags&largeCluster != 0,
	}})
}

func (ms *modules) driverAsk(m *Message, d *wire.DriverAsk) (bool, error) {
	if ok, err := ms.arrival.ready(need{}); !ok || err != nil {
		return ok, err
	}
	x := ms.anyContext()
	if x == nil {
		return true, errors.New("there is no context to ask")
	}
	ms.emit(Op{Kind: Ask, Place: x.Place, Slot: m.Header.Slot, What: int(d.What), Params: bytes.Clone(d.About), Out: Span{m.Header.Data, m.Header.Length}})
	return true, nil
}

// askFunction has the device answer a question about a kernel.
func (ms *modules) askFunction(m *Message, function uint32, o Op) (bool, error) {
	f, ok := ms.Functions[function]
	if !ok {
		return true, fmt.Errorf("function %d: %w", function, errHandle)
	}
	if mod := ms.All[f.Module]; !mod.Loaded {
		if ok, err := ms.arrival.ready(need{}); !ok || err != nil {
			return ok, err
		}
	}
	if err := ms.usable(&f); err != nil {
		return true, err
	}
	x := ms.anyContext()
	if x == nil {
		return true, errors.New("there is no context for a module that is loaded")
	}
	o.Place, o.Slot, o.Module, o.Function, o.Name = x.Place, m.Header.Slot, f.Module, function, f.Info.Name
	ms.emit(o)
	return true, nil
}

// functionTouches tells a guest what memory a kernel uses, as far as the device knows, so that the
// guest's node may run the kernel elsewhere.
func (ms *modules) functionTouches(m *Message, d *wire.FunctionTouches) (bool, error) {
	f, ok := ms.Functions[d.Function]
	if !ok {
		return true, fmt.Errorf("function %d: %w", d.Function, ErrProtocol)
	}
	words, known := f.Info.Touches.Words()
	if !known || uint64(len(words)) > m.Header.Length/8 {
		ms.reply(m.Header.Slot, success, (&wire.FunctionTouchesReply{}).Append(nil))
		return true, nil
	}
	var data []byte
	for _, w := range words {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	ms.write(m, data)
	ms.reply(m.Header.Slot, success, (&wire.FunctionTouchesReply{Known: 1, Accesses: uint32(len(words))}).Append(nil))
	return true, nil
}
