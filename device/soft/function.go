package soft

import (
	"fmt"

	"muster/device"
	"muster/ptx/simt"
)

// function is a kernel of a module.
type function struct {
	module *module
	kernel *simt.Kernel
	pace   float64 // nanoseconds an instruction; whoever has the device's turn sets it
}

var _ device.Function = (*function)(nil)

// Info returns what is known of the kernel.
func (f *function) Info() device.FunctionInfo {
	k := f.kernel
	info := device.FunctionInfo{
		Name: k.Name, ParamSize: k.ParamSize, MaxThreads: f.maxThreads(), Shared: k.Shared, Local: k.Local,
		Registers: f.registers(), PTXVersion: f.module.target, Binary: compute.Arch(),
	}
	for _, p := range k.Params {
		info.Params = append(info.Params, device.Param(p))
	}
	return info
}

// maxThreads is how many a block of the kernel may have.
func (f *function) maxThreads() int {
	most := f.kernel.MaxBlock
	if n, ok := f.module.required[f.kernel.Name]; ok {
		most = int(min(uint64(most), n))
	}
	return most
}

// registers is what a compiler would leave of the kernel's registers: never so
// many that its largest block does not fit.
func (f *function) registers() int {
	const unit = 8 // a warp's registers are handed out in units of 256
	threads := uint64(max(1, f.maxThreads()))
	most := limits.Registers / int(alignUp(threads, uint64(limits.Warp)))
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
	if threads > uint64(f.maxThreads()) {
		return 0
	}
	if n, ok := f.module.required[f.kernel.Name]; ok && threads != n {
		return 0
	}
	return residentBlocks(uint64(f.registers()), uint64(f.kernel.Shared), threads, shared)
}

// residentBlocks counts the blocks for which a multiprocessor has enough of
// each resource.
func residentBlocks(registers, static, threads, dynamic uint64) int {
	const registerUnit, sharedUnit = 256, 128 // in which they are handed out, to a warp and to a block
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
	if err := own.module.check(); err != nil {
		return err
	}
	x, err := own.start(l)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", own.kernel.Name, err)
	}
	return s.submit(&kernel{function: own, execution: x})
}

// start makes a launch ready to run. The engine checks all sizes; this checks
// only what it does not know.
func (f *function) start(l device.Launch) (*simt.Execution, error) {
	c := f.module.c
	if l.Shared > limits.SharedBlock || l.Stack > limits.Local {
		return nil, fmt.Errorf("%d bytes of shared memory, %d of stack: at most %d and %d: %w", l.Shared, l.Stack, limits.SharedBlock, limits.Local, device.ErrInvalidValue)
	}
	launch := c.launch()
	launch.Grid, launch.Block, launch.Cooperative = simt.Dim(l.Grid), simt.Dim(l.Block), l.Cooperative
	launch.Shared, launch.Stack, launch.Params = int(l.Shared), int(alignUp(l.Stack, 16)), l.Params
	launch.Workers = int(min(uint64(launch.Workers), l.Grid.Count()))
	x, err := f.kernel.Start(launch)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, device.ErrInvalidValue)
	}
	most := uint64(f.resident(l.Block.Count(), l.Shared)) * uint64(c.dev.profile.Workers)
	if l.Cooperative && l.Grid.Count() > most {
		return nil, fmt.Errorf("%d blocks, at most %d fit: %w", l.Grid.Count(), most, device.ErrTooLarge)
	}
	return x, nil
}

// launch returns what all launches of a context have in common.
func (c *Context) launch() simt.Launch {
	return simt.Launch{Memory: c.mem, Print: c.print, Workers: c.dev.profile.Workers}
}
