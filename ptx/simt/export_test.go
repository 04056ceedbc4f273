package simt

// KeepOneImage makes a program forget the code of a kernel as soon as another
// is launched for the first time.
func (p *Program) KeepOneImage() { p.imageRoom = 0 }

// CompileNarrow makes kernels that are compiled from now on use AVX2 alone, or what the
// processor has.
func CompileNarrow(on bool) { narrowCode.Store(on) }
