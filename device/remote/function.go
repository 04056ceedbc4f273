package remote

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"muster/device"
	"muster/wire"
)

// function is a kernel of a module.
type function struct {
	module *module
	id     uint32
	info   device.FunctionInfo

	mu       sync.Mutex
	resident map[shape]int // the lender's answers: blocks per multiprocessor
}

var _ device.Function = (*function)(nil)

// shape has the parameters of a launch that decide how many blocks a multiprocessor holds.
type shape struct {
	threads uint64
	shared  uint64
}

// maxShapes bounds how many answers are remembered for a kernel.
const maxShapes = 4096

// Function returns a kernel.
func (m *module) Function(name string) (device.Function, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	f := m.known[name]
	m.mu.Unlock()
	if f != nil {
		return f, nil
	}
	if _, ok := slices.BinarySearch(m.functions, name); !ok {
		return nil, fmt.Errorf("kernel %q: %w", name, device.ErrNotFound)
	}
	f = &function{module: m, id: m.c.last.Add(1), resident: map[shape]int{}}
	var reply wire.ModuleFunctionReply
	layout, err := m.c.fetch("kernel "+name, &wire.ModuleFunction{Module: m.id, Function: f.id, Name: name}, &reply, func() uint64 { return 8 * uint64(reply.Params) })
	if err != nil {
		return nil, err
	}
	if f.info, err = functionInfo(name, &reply, layout); err != nil {
		m.c.end(lost(err.Error()))
		return nil, m.c.ended()
	}
	if f.info.Touches, err = f.touches(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.known[name]; known != nil { // another goroutine asked at the same time
		return known, nil
	}
	m.known[name] = f
	return f, nil
}

// touches asks what memory the kernel uses; nil if the lender does not know.
func (f *function) touches() (*device.Touches, error) {
	const most = 1024 // accesses; a longer answer is ignored
	var reply wire.FunctionTouchesReply
	said, err := f.module.c.fetch("what kernel "+f.info.Name+" uses", &wire.FunctionTouches{Function: f.id}, &reply, func() uint64 { return 8 * min(uint64(reply.Accesses), most+1) })
	if err != nil {
		return nil, err
	}
	if reply.Known == 0 || reply.Accesses > most {
		return nil, nil
	}
	var words []uint64
	for ; len(said) >= 8; said = said[8:] {
		words = append(words, binary.LittleEndian.Uint64(said))
	}
	return device.TouchesOf(words, f.info.ParamSize), nil
}

// functionInfo decodes the lender's description of a kernel, and refuses values that no kernel has.
func functionInfo(name string, r *wire.ModuleFunctionReply, layout []byte) (device.FunctionInfo, error) {
	info := device.FunctionInfo{
		Name: name, ParamSize: int(r.ParamSize), MaxThreads: int(r.MaxThreads), Shared: int(r.Shared), Local: int(r.Local), Constant: int(r.Constant),
		Registers: int(r.Registers), PTXVersion: int(r.Ptx), Binary: int(r.Binary),
		Cluster: device.Dim{X: r.ClusterX, Y: r.ClusterY, Z: r.ClusterZ}, ClusterNeeded: r.ClusterNeeded != 0, Heap: r.Heap != 0,
	}
	const most = 32 << 10 // bytes of parameters: CUDA has fewer
	if r.ParamSize > most || r.MaxThreads < 0 || r.Shared < 0 || r.Local < 0 || r.Registers < 0 || r.Constant < 0 {
		return info, fmt.Errorf("the lender says of kernel %s what no kernel has", name)
	}
	for ; len(layout) >= 8; layout = layout[8:] {
		p := device.Param{Offset: int(binary.LittleEndian.Uint32(layout)), Size: int(binary.LittleEndian.Uint32(layout[4:]))}
		if p.Offset > info.ParamSize || p.Size > info.ParamSize-p.Offset {
			return info, fmt.Errorf("the lender says of kernel %s that a parameter lies outside of them", name)
		}
		info.Params = append(info.Params, p)
	}
	return info, nil
}

// Info returns what is known of the kernel.
func (f *function) Info() device.FunctionInfo {
	info := f.info
	info.Params = slices.Clone(info.Params)
	return info
}

// Occupancy returns how many blocks a multiprocessor holds at a time.
func (f *function) Occupancy(threads int, shared uint64) (int, error) {
	if err := f.module.check(); err != nil {
		return 0, err
	}
	if threads < 1 || uint64(threads) > math.MaxUint32 {
		return 0, fmt.Errorf("blocks of %d threads: %w", threads, device.ErrInvalidValue)
	}
	return f.blocks(shape{uint64(threads), shared})
}

// blocks returns the occupancy. It asks the lender once for each shape, so that repeated launches do
// not wait for an answer.
func (f *function) blocks(of shape) (int, error) {
	f.mu.Lock()
	blocks, known := f.resident[of]
	f.mu.Unlock()
	if known {
		return blocks, nil
	}
	var reply wire.FunctionOccupancyReply
	if err := f.module.c.demand("the occupancy of kernel "+f.info.Name, &wire.FunctionOccupancy{Function: f.id, Threads: uint32(of.threads), Shared: of.shared}, &reply); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.resident) >= maxShapes {
		clear(f.resident)
	}
	f.resident[of] = int(min(reply.Blocks, math.MaxInt32))
	return f.resident[of], nil
}

// SharedFor returns how much dynamic shared memory each of blocks resident blocks can have.
func (f *function) SharedFor(blocks, threads int) (uint64, error) {
	if err := f.module.check(); err != nil {
		return 0, err
	}
	if blocks < 1 || threads < 1 || blocks > math.MaxInt32 || threads > math.MaxInt32 {
		return 0, fmt.Errorf("%d blocks of %d threads: %w", blocks, threads, device.ErrInvalidValue)
	}
	var reply wire.FunctionSharedReply
	err := f.module.c.demand("the shared memory of kernel "+f.info.Name, &wire.FunctionShared{Function: f.id, Blocks: uint32(blocks), Threads: uint32(threads)}, &reply)
	return reply.Shared, err
}

// Clusters returns how many clusters of a launch the device holds at a time.
func (f *function) Clusters(l device.Launch) (clusters, blocks int, err error) {
	if err := f.module.check(); err != nil {
		return 0, 0, err
	}
	var reply wire.FunctionClustersReply
	err = f.module.c.demand("the clusters of kernel "+f.info.Name, &wire.FunctionClusters{
		Function: f.id, GridX: l.Grid.X, GridY: l.Grid.Y, GridZ: l.Grid.Z, BlockX: l.Block.X, BlockY: l.Block.Y, BlockZ: l.Block.Z,
		Shared: uint32(min(l.Shared, math.MaxUint32)), Flags: launchFlags(&l), ClusterX: l.Cluster.X, ClusterY: l.Cluster.Y, ClusterZ: l.Cluster.Z,
	}, &reply)
	return int(min(reply.Clusters, math.MaxInt32)), int(min(reply.Blocks, math.MaxInt32)), err
}

func launchFlags(l *device.Launch) uint32 { return flag(l.Cooperative) | flag(l.LargeCluster)<<1 }

// check refuses a launch that the lender would refuse. It must be done here, since a launch is a
// message without an answer.
func (f *function) check(l *device.Launch) error {
	limits := f.module.c.dev.info.Limits
	threads := l.Block.Count()
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("kernel %s: %s: %w", f.info.Name, fmt.Sprintf(format, args...), device.ErrInvalidValue)
	}
	switch {
	case len(l.Params) != f.info.ParamSize:
		return wrong("%d bytes of parameters, it takes %d", len(l.Params), f.info.ParamSize)
	case !l.Block.Within(limits.Block) || threads > uint64(limits.Threads):
		return wrong("blocks of %v threads", l.Block)
	case !l.Grid.Within(limits.Grid):
		return wrong("a grid of %v blocks", l.Grid)
	case l.Shared > limits.SharedBlock || l.Stack > limits.Local:
		return wrong("%d bytes of shared memory and %d of stack: at most %d and %d", l.Shared, l.Stack, limits.SharedBlock, limits.Local)
	}
	blocks, err := f.blocks(shape{threads, l.Shared})
	switch {
	case err != nil:
		return err
	case blocks == 0:
		return wrong("blocks of %d threads with %d bytes of shared memory", threads, l.Shared)
	case l.Cooperative && l.Grid.Count() > uint64(blocks)*uint64(f.module.c.dev.info.Multiprocessors):
		return fmt.Errorf("kernel %s: %d blocks: %w", f.info.Name, l.Grid.Count(), device.ErrTooLarge)
	}
	return nil
}

// Launch submits a kernel.
func (s *stream) Launch(f device.Function, l device.Launch) error {
	if err := s.c.check(); err != nil {
		return err
	}
	own, ok := f.(*function)
	if !ok || own.module.c != s.c {
		return fmt.Errorf("a function of another context: %w", device.ErrInvalidValue)
	}
	if err := own.module.check(); err != nil {
		return err
	}
	if err := own.check(&l); err != nil {
		return err
	}
	m := &wire.Launch{
		Function: own.id, Stream: s.id, GridX: l.Grid.X, GridY: l.Grid.Y, GridZ: l.Grid.Z, BlockX: l.Block.X, BlockY: l.Block.Y, BlockZ: l.Block.Z,
		Shared: uint32(l.Shared), Flags: launchFlags(&l), ClusterX: l.Cluster.X, ClusterY: l.Cluster.Y, ClusterZ: l.Cluster.Z, Stack: l.Stack, Params: slices.Clone(l.Params),
	}
	return s.simple(m)
}
