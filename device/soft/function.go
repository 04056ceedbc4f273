package soft

import (
	"fmt"
	"slices"

	"muster/device"
	"muster/device/kernelmemory"
	"muster/ptx/simt"
	"muster/ptx/simt/heap"
	"muster/ptx/simt/shape"
)

// function is a kernel of a module. It has no pointer into the program, so that Unload frees the
// program even if the user keeps the function; Launch finds the kernel by name.
type function struct {
	module   *module
	info     device.FunctionInfo
	required uint64  // threads a block must have (.reqntid); 0 if any number will do
	pace     float64 // nanoseconds per instruction, see undisturbed; guarded by the device's turn
}

var _ device.Function = (*function)(nil)

func (m *module) function(k *simt.Kernel) *function {
	return &function{module: m, info: m.describe(k), required: k.Required.Count()}
}

// Info returns what is known of the kernel.
func (f *function) Info() device.FunctionInfo {
	info := f.info
	info.Params = slices.Clone(info.Params)
	return info
}

// describe returns what is known of a kernel.
func (m *module) describe(k *simt.Kernel) device.FunctionInfo {
	info := device.FunctionInfo{
		Name: k.Name, ParamSize: k.ParamSize, MaxThreads: k.MaxBlock, Shared: k.Shared, Local: k.Local,
		Registers: registers(k), PTXVersion: m.target, Binary: compute.Arch(), Cluster: device.Dim(k.Cluster), Heap: k.Heap,
	}
	for _, p := range k.Params {
		info.Params = append(info.Params, device.Param(p))
	}
	info.Touches, info.Follows = kernelmemory.In(k.Uses())
	return info
}

// registers guesses how many registers a thread of the kernel would have in machine code: few
// enough that the kernel's largest block fits on a multiprocessor, as a compiler ensures.
func registers(k *simt.Kernel) int {
	const unit = 8 // a warp's registers are handed out in units of 256
	most := limits.Registers / int(alignUp(uint64(max(1, k.MaxBlock)), uint64(limits.Warp)))
	return min(max(k.Registers, 16), most/unit*unit, 255)
}

// Occupancy returns how many blocks a multiprocessor holds at a time.
func (f *function) Occupancy(threads int, shared uint64) (int, error) {
	if err := f.module.check(); err != nil {
		return 0, err
	}
	if threads < 1 {
		return 0, fmt.Errorf("blocks of %d threads: %w", threads, device.ErrInvalidValue)
	}
	return f.resident(uint64(threads), shared), nil
}

// SharedFor returns how much dynamic shared memory each of blocks resident blocks can have.
func (f *function) SharedFor(blocks, threads int) (uint64, error) {
	if err := f.module.check(); err != nil {
		return 0, err
	}
	if blocks < 1 || threads < 1 {
		return 0, fmt.Errorf("%d blocks of %d threads: %w", blocks, threads, device.ErrInvalidValue)
	}
	taken := limits.SharedReserved + alignUp(uint64(f.info.Shared), 16)
	each := min(limits.SharedMultiprocessor/uint64(blocks), limits.SharedBlock+limits.SharedReserved)
	if each <= taken {
		return 0, nil
	}
	return each - taken, nil
}

// Clusters returns how many clusters of a launch run at a time: each worker runs one. For a
// launch without a cluster size it returns how many blocks a cluster may have.
func (f *function) Clusters(l device.Launch) (clusters, blocks int, err error) {
	if err := f.module.check(); err != nil {
		return 0, 0, err
	}
	size := l.Cluster
	if size == (device.Dim{}) {
		size = f.info.Cluster
	}
	if size == (device.Dim{}) {
		if l.LargeCluster {
			return 0, shape.MaxCluster, nil
		}
		return 0, portableCluster, nil
	}
	if n := size.Count(); n == 0 || n > shape.MaxCluster {
		return 0, 0, fmt.Errorf("clusters of %d blocks: from 1 to %d: %w", n, shape.MaxCluster, device.ErrInvalidValue)
	}
	if f.resident(l.Block.Count(), l.Shared) == 0 {
		return 0, 0, nil
	}
	return f.module.c.dev.profile.Workers, 0, nil
}

// portableCluster is the largest cluster, in blocks, that every device with clusters supports.
const portableCluster = 8

func (f *function) resident(threads, shared uint64) int {
	if threads > uint64(f.info.MaxThreads) || f.required != 0 && threads != f.required {
		return 0
	}
	return residentBlocks(uint64(f.info.Registers), uint64(f.info.Shared), threads, shared)
}

// residentBlocks counts the blocks for which a multiprocessor has enough of
// each resource.
func residentBlocks(registers, static, threads, dynamic uint64) int {
	const registerUnit, sharedUnit = 256, 128 // allocation units: registers of a warp, bytes of a block
	static = alignUp(static, 16)              // where the dynamic part begins
	if dynamic > limits.SharedBlock || static+dynamic > limits.SharedBlock || threads > uint64(limits.Threads) {
		return 0
	}
	warp := uint64(limits.Warp)
	warps := alignUp(threads, warp) / warp
	return int(min(
		uint64(limits.BlocksResident),
		uint64(limits.ThreadsResident)/(warps*warp),
		uint64(limits.Registers)/(alignUp(registers*warp, registerUnit)*warps),
		limits.SharedMultiprocessor/(alignUp(static+dynamic, sharedUnit)+limits.SharedReserved),
	))
}

// Launch submits a kernel.
func (s *stream) Launch(f device.Function, l device.Launch) error {
	own, ok := f.(*function)
	if !ok || own.module.c != s.c {
		return fmt.Errorf("a function of another context: %w", device.ErrInvalidValue)
	}
	s.c.mu.Lock()
	k, err := own.module.kernel(own.info.Name)
	common := s.c.launch()
	s.c.mu.Unlock()
	if err != nil {
		return err
	}
	var guarded *guard
	if l.Guard != nil {
		guarded = newGuard(s.c.mem, l.Guard)
	}
	x, err := own.start(k, common, l, guarded)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", own.info.Name, err)
	}
	return s.submit(&kernel{function: own, execution: x, timed: s.timed, guard: guarded})
}

// start makes a launch ready to run. The engine checks all sizes; start checks only the limits
// of the device, which the engine does not know.
func (f *function) start(k *simt.Kernel, launch simt.Launch, l device.Launch, guarded *guard) (*simt.Execution, error) {
	c := f.module.c
	if l.Shared > limits.SharedBlock || l.Stack > limits.Local {
		return nil, fmt.Errorf("%d bytes of shared memory, %d of stack: at most %d and %d: %w", l.Shared, l.Stack, limits.SharedBlock, limits.Local, device.ErrInvalidValue)
	}
	if err := c.hasHeap(k, launch.Heap); err != nil {
		return nil, err
	}
	launch.Grid, launch.Block, launch.Cluster, launch.Cooperative = shape.Dim(l.Grid), shape.Dim(l.Block), shape.Dim(l.Cluster), l.Cooperative
	launch.Shared, launch.Stack, launch.Params = int(l.Shared), int(alignUp(l.Stack, 16)), l.Params
	if guarded != nil {
		launch.Memory = guarded
	}
	launch.Workers = int(min(uint64(launch.Workers), l.Grid.Count()))
	x, err := k.Start(launch)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, device.ErrInvalidValue)
	}
	most := uint64(f.resident(l.Block.Count(), l.Shared)) * uint64(c.dev.profile.Workers)
	if l.Cooperative && l.Grid.Count() > most {
		return nil, fmt.Errorf("%d blocks, at most %d fit: %w", l.Grid.Count(), most, device.ErrTooLarge)
	}
	return x, nil
}

// hasHeap returns an error if the kernel calls malloc or free and its heap is not mapped.
func (c *Context) hasHeap(k *simt.Kernel, heap *heap.Heap) error {
	if !k.Heap {
		return nil
	}
	if heap == nil {
		return fmt.Errorf("it calls malloc or free, and the arena has no room for a heap: open a larger one: %w", device.ErrInvalidValue)
	}
	if _, ok := c.mem.bytes(heap.Base, heap.Size); !ok {
		return fmt.Errorf("it calls malloc or free: map %d bytes at %#x for the heap: %w", heap.Size, heap.Base, device.ErrInvalidValue)
	}
	return nil
}

// launch returns what all launches of a context have in common. The caller must hold c.mu.
func (c *Context) launch() simt.Launch {
	return simt.Launch{Memory: c.mem, Textures: c, Heap: c.heap, Print: c.print, Complain: c.complain, Check: c.checker, Workers: c.dev.profile.Workers, Engine: c.dev.profile.Engine}
}
