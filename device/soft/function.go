package soft

import (
	"bytes"
	"fmt"

	"muster/device"
	"muster/ptx/simt"
)

// function is a kernel of a module.
type function struct {
	module *module
	kernel *simt.Kernel
}

var _ device.Function = (*function)(nil)

// Info returns what is known of the kernel.
func (f *function) Info() device.FunctionInfo {
	k := f.kernel
	info := device.FunctionInfo{
		Name: k.Name, ParamSize: k.ParamSize, MaxThreads: k.MaxBlock, Shared: k.Shared, Local: k.Local,
		Registers: f.registers(), PTXVersion: f.module.target, Binary: compute.Arch(),
	}
	for _, p := range k.Params {
		info.Params = append(info.Params, device.Param(p))
	}
	return info
}

// registers is what a compiler would leave of the kernel's registers: never so
// many that its largest block does not fit.
func (f *function) registers() int {
	const unit = 8 // a warp's registers are handed out in units of 256
	most := limits.Registers / int(alignUp(uint64(f.kernel.MaxBlock), uint64(limits.Warp)))
	return min(max(f.kernel.Registers, 16), most/unit*unit, 255)
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

func (f *function) resident(threads, shared uint64) int {
	k := f.kernel
	if threads > uint64(k.MaxBlock) {
		return 0
	}
	return residentBlocks(uint64(f.registers()), uint64(k.Shared), threads, shared)
}

// residentBlocks counts the blocks for which a multiprocessor has enough of
// each resource.
func residentBlocks(registers, static, threads, dynamic uint64) int {
	const registerUnit, sharedUnit = 256, 128 // in which they are handed out, to a warp and to a block
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
	if err := own.module.check(); err != nil {
		return err
	}
	if err := own.checkLaunch(l); err != nil {
		return fmt.Errorf("kernel %s: %w", own.kernel.Name, err)
	}
	return s.submit(&kernel{function: own, launch: simt.Launch{
		Grid: simt.Dim(l.Grid), Block: simt.Dim(l.Block), Shared: int(l.Shared), Params: bytes.Clone(l.Params),
		Cooperative: l.Cooperative, Memory: s.c.mem, Print: s.c.print, Workers: s.c.dev.profile.Workers,
	}})
}

func (f *function) checkLaunch(l device.Launch) error {
	k := f.kernel
	switch {
	case !l.Block.Within(limits.Block) || l.Block.Count() > uint64(k.MaxBlock):
		return fmt.Errorf("block %v: at most %d threads, and %v: %w", l.Block, k.MaxBlock, limits.Block, device.ErrInvalidValue)
	case !l.Grid.Within(limits.Grid):
		return fmt.Errorf("grid %v: at most %v: %w", l.Grid, limits.Grid, device.ErrInvalidValue)
	case l.Shared > limits.SharedBlock || uint64(k.Shared)+l.Shared > limits.SharedBlock:
		return fmt.Errorf("%d bytes of dynamic and %d of static shared memory: at most %d together: %w", l.Shared, k.Shared, limits.SharedBlock, device.ErrInvalidValue)
	case len(l.Params) != k.ParamSize:
		return fmt.Errorf("%d bytes of parameters, it takes %d: %w", len(l.Params), k.ParamSize, device.ErrInvalidValue)
	}
	if most := uint64(f.resident(l.Block.Count(), l.Shared)) * uint64(f.module.c.dev.profile.Workers); l.Cooperative && l.Grid.Count() > most {
		return fmt.Errorf("%d blocks, at most %d fit: %w", l.Grid.Count(), most, device.ErrTooLarge)
	}
	return nil
}
