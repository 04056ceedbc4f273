package simt

import "syscall"

// KeepOneImage makes a program forget the code of a kernel as soon as another
// is launched for the first time.
func (p *Program) KeepOneImage() { p.imageRoom = 0 }

// CompileNarrow makes kernels that are compiled from now on use AVX2 alone, or what the
// processor has.
func CompileNarrow(on bool) { narrowCode.Store(on) }

// ProcessorSeconds is the processor time of this process, which says more than the
// clock on a machine that others use too.
func ProcessorSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
