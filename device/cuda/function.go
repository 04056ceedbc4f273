//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"math"

	"muster/device"
)

// function is a kernel of a module.
type function struct {
	module  *module
	handle  C.mcu_handle
	info    device.FunctionInfo
	offsets []C.uint32_t // of the parameters in Launch.Params
}

var _ device.Function = (*function)(nil)

func (m *module) newFunction(handle C.mcu_handle) (*function, error) {
	c := m.c
	var info C.mcu_function
	shared := C.int(c.dev.info.Limits.SharedBlock)
	if err := c.call(func() C.mcu_result { return C.mcu_function_info(c.handle, handle, shared, &info) }); err != nil {
		return nil, err
	}
	f := &function{module: m, handle: handle, info: device.FunctionInfo{
		Name: C.GoString(info.name), MaxThreads: int(info.max_threads), Shared: int(info.shared), Local: int(info.local),
		Registers: int(info.registers), PTXVersion: int(info.ptx), Binary: int(info.binary), Constant: int(info.constant),
		Cluster: device.Dim{X: uint32(info.cluster[0]), Y: uint32(info.cluster[1]), Z: uint32(info.cluster[2])}, ClusterNeeded: info.cluster_needed != 0,
	}}
	f.info.Touches = m.touches[f.info.Name]
	if err := f.readParams(); err != nil {
		return nil, fmt.Errorf("parameters of kernel %s: %w", f.info.Name, err)
	}
	return f, nil
}

// readParams asks the driver for one parameter after the other until it has no more.
func (f *function) readParams() error {
	c := f.module.c
	for {
		var offset, size C.size_t
		index := C.size_t(len(f.offsets))
		err := c.call(func() C.mcu_result { return C.mcu_function_param(c.handle, f.handle, index, &offset, &size) })
		if errors.Is(err, device.ErrInvalidValue) {
			return nil
		}
		if err != nil {
			return err
		}
		f.offsets = append(f.offsets, C.uint32_t(offset))
		f.info.Params = append(f.info.Params, device.Param{Offset: int(offset), Size: int(size)})
		f.info.ParamSize = max(f.info.ParamSize, int(offset+size))
	}
}

// Info returns what is known of the kernel.
func (f *function) Info() device.FunctionInfo { return f.info }

// Occupancy returns how many blocks a multiprocessor holds at a time.
func (f *function) Occupancy(threads int, shared uint64) (int, error) {
	if err := f.module.usable(); err != nil {
		return 0, err
	}
	if threads < 1 {
		return 0, fmt.Errorf("blocks of %d threads: %w", threads, device.ErrInvalidValue)
	}
	if threads > f.info.MaxThreads || f.checkShared(shared) != nil {
		return 0, nil
	}
	c := f.module.c
	var blocks C.int
	err := c.call(func() C.mcu_result {
		return C.mcu_function_occupancy(c.handle, f.handle, C.int(threads), C.size_t(shared), &blocks)
	})
	if errors.Is(err, device.ErrInvalidValue) {
		return 0, nil // a launch would be refused in the same way
	}
	return int(blocks), err
}

// SharedFor returns how much dynamic shared memory each of blocks resident blocks can have.
func (f *function) SharedFor(blocks, threads int) (uint64, error) {
	if err := f.module.usable(); err != nil {
		return 0, err
	}
	c := f.module.c
	var shared C.size_t
	err := c.call(func() C.mcu_result {
		return C.mcu_function_shared(c.handle, f.handle, C.int(blocks), C.int(threads), &shared)
	})
	return uint64(shared), err
}

// Clusters returns how many clusters of a launch the device holds at a time; for a launch without
// a cluster size, how large clusters may be.
func (f *function) Clusters(l device.Launch) (int, int, error) {
	if err := f.module.usable(); err != nil {
		return 0, 0, err
	}
	c, s := f.module.c, shape(l)
	var clusters, blocks C.int
	err := c.call(func() C.mcu_result { return C.mcu_function_clusters(c.handle, f.handle, &s, &clusters, &blocks) })
	return int(clusters), int(blocks), err
}

func (f *function) checkShared(dynamic uint64) error {
	most := f.module.c.dev.info.Limits.SharedBlock
	if static := uint64(f.info.Shared); dynamic > most || static+dynamic > most {
		return fmt.Errorf("%d bytes of shared memory beside the kernel's own %d: a block has %d: %w", dynamic, static, most, device.ErrInvalidValue)
	}
	return nil
}

// check returns why a launch must be refused, or nil.
func (f *function) check(l device.Launch) error {
	limits := f.module.c.dev.info.Limits
	switch {
	case !l.Grid.Within(limits.Grid):
		return fmt.Errorf("grid %v: sides from 1 to %v: %w", l.Grid, limits.Grid, device.ErrInvalidValue)
	case !l.Block.Within(limits.Block) || l.Block.Count() > uint64(f.info.MaxThreads):
		return fmt.Errorf("block %v: sides from 1 to %v and %d threads at most: %w", l.Block, limits.Block, f.info.MaxThreads, device.ErrInvalidValue)
	case l.Stack > limits.Local:
		return fmt.Errorf("%d bytes of stack: at most %d: %w", l.Stack, limits.Local, device.ErrInvalidValue)
	case len(l.Params) != f.info.ParamSize:
		return fmt.Errorf("%d bytes of parameters, it takes %d: %w", len(l.Params), f.info.ParamSize, device.ErrInvalidValue)
	}
	if err := f.checkShared(l.Shared); err != nil || !l.Cooperative {
		return err
	}
	return f.checkCooperative(l)
}

func (f *function) checkCooperative(l device.Launch) error {
	blocks, err := f.Occupancy(int(l.Block.Count()), l.Shared)
	if err != nil {
		return err
	}
	if blocks == 0 {
		return fmt.Errorf("no multiprocessor holds a block of %d threads with %d bytes of shared memory: %w", l.Block.Count(), l.Shared, device.ErrInvalidValue)
	}
	if most := uint64(blocks) * uint64(f.module.c.dev.info.Multiprocessors); gridCount(l.Grid) > most {
		return fmt.Errorf("grid %v: the device holds %d such blocks at a time: %w", l.Grid, most, device.ErrTooLarge)
	}
	return nil
}

// gridCount returns the number of blocks, capped at MaxUint64.
func gridCount(d device.Dim) uint64 {
	area := uint64(d.X) * uint64(d.Y)
	if area > math.MaxUint64/uint64(d.Z) {
		return math.MaxUint64
	}
	return area * uint64(d.Z)
}

// Launch submits a kernel.
func (s *stream) Launch(fn device.Function, l device.Launch) error {
	f, err := s.launchable(fn, l)
	if err != nil {
		return err
	}
	err = s.submit(func() C.mcu_result { return s.launch(f, l) })
	s.c.launched(f.module.prints)
	return s.named(f, err)
}

// launchable returns fn as this package's type, or why the launch must be refused. It enlarges the
// context's stack if the launch needs more.
func (s *stream) launchable(fn device.Function, l device.Launch) (*function, error) {
	f, ok := fn.(*function)
	if !ok || f == nil || f.module.c != s.c {
		return nil, fmt.Errorf("a function of another context: %w", device.ErrInvalidValue)
	}
	if err := f.module.usable(); err != nil {
		return nil, err
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	err := f.check(l)
	if err == nil {
		err = s.c.stack.grow(l.Stack)
	}
	return f, s.named(f, err)
}

// shape converts a launch to its C form.
func shape(l device.Launch) C.mcu_shape {
	number := func(b bool) C.int {
		if b {
			return 1
		}
		return 0
	}
	return C.mcu_shape{
		sides:       [6]C.uint32_t{C.uint32_t(l.Grid.X), C.uint32_t(l.Grid.Y), C.uint32_t(l.Grid.Z), C.uint32_t(l.Block.X), C.uint32_t(l.Block.Y), C.uint32_t(l.Block.Z)},
		cluster:     [3]C.uint32_t{C.uint32_t(l.Cluster.X), C.uint32_t(l.Cluster.Y), C.uint32_t(l.Cluster.Z)},
		shared:      C.uint(l.Shared),
		cooperative: number(l.Cooperative), large_cluster: number(l.LargeCluster),
	}
}
