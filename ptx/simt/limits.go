package simt

import "muster/ptx"

// This file refuses kernels that no launch could run: what they ask for is
// beyond the limits of the GPU. Launches themselves are checked by Start.

// blockSize reads .maxntid and .reqntid.
func (l *lowering) blockSize(f *ptx.Function) {
	k := l.kernel
	var most, required *ptx.Directive
	for i := range f.Directives {
		switch d := &f.Directives[i]; d.Name {
		case "maxntid":
			most = d
		case "reqntid":
			required = d
		}
	}
	if most != nil {
		k.MaxBlock = 1
		d := l.sides(most)
		for _, side := range []uint32{d.X, d.Y, d.Z} {
			k.MaxBlock = int(min(uint64(k.MaxBlock)*uint64(side), MaxThreads))
		}
	}
	if required == nil {
		return
	}
	if most != nil {
		l.fail(required.Pos, ".reqntid and .maxntid cannot both be given")
		return
	}
	d := l.sides(required)
	if d.X > MaxBlockX || d.Y > MaxBlockY || d.Z > MaxBlockZ || d.Count() > MaxThreads {
		l.fail(required.Pos, ".reqntid %v: no block can be so large: at most %d by %d by %d threads and %d in all", d, MaxBlockX, MaxBlockY, MaxBlockZ, MaxThreads)
		return
	}
	k.Required, k.MaxBlock = d, int(d.Count())
}

// sides returns the sides of a block that a directive names; those it leaves
// out are 1.
func (l *lowering) sides(directive *ptx.Directive) Dim {
	d := Dim{1, 1, 1}
	sides := []*uint32{&d.X, &d.Y, &d.Z}
	if len(directive.Values) > len(sides) {
		l.fail(directive.Pos, ".%s has %d sizes: a block has three", directive.Name, len(directive.Values))
		return d
	}
	for i, v := range directive.Values {
		if v == 0 || v > 1<<32-1 {
			l.fail(directive.Pos, ".%s %d: a side of a block has from 1 to 4294967295 threads", directive.Name, v)
			return d
		}
		*sides[i] = uint32(v)
	}
	return d
}

// checkSizes refuses a kernel that needs more memory than there is.
func (l *lowering) checkSizes(f *ptx.Function) {
	if k := l.kernel; k.Shared > MaxShared {
		l.fail(f.Pos, "kernel %s has %d bytes of shared memory a block: at most %d", k.Name, k.Shared, MaxShared)
	} else if k.Local > MaxLocal {
		l.fail(f.Pos, "kernel %s takes %d bytes of local memory a thread: at most %d", k.Name, k.Local, MaxLocal)
	}
}
