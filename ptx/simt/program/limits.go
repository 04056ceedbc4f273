package program

import (
	"fmt"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// This file refuses kernels that no launch could run: what they ask for is
// beyond the limits of the GPU. Launches themselves are checked by Start.

// blockLimit says which blocks a kernel accepts.
type blockLimit struct {
	most     int       // threads
	required shape.Dim // the only one, if not zero
	cluster  shape.Dim // of blocks: the only one, if not zero
}

// blockSize reads .maxntid, .reqntid and .reqnctapercluster.
func (l *lowering) blockSize(f *ptx.Function) {
	var most, required *ptx.Directive
	for i := range f.Directives {
		switch d := &f.Directives[i]; d.Name {
		case "maxntid":
			most = d
		case "reqntid":
			required = d
		case "reqnctapercluster":
			if l.threads.cluster = l.sides(d); l.threads.cluster.Count() > shape.MaxCluster {
				l.fail(d.Pos, ".reqnctapercluster %v: a cluster has at most %d blocks", l.threads.cluster, shape.MaxCluster)
			}
		}
	}
	if most != nil {
		l.threads.most = 1
		d := l.sides(most)
		for _, side := range []uint32{d.X, d.Y, d.Z} {
			l.threads.most = int(min(uint64(l.threads.most)*uint64(side), shape.MaxThreads))
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
	if d.X > shape.MaxBlockX || d.Y > shape.MaxBlockY || d.Z > shape.MaxBlockZ || d.Count() > shape.MaxThreads {
		l.fail(required.Pos, ".reqntid %v: no block can be so large: at most %d by %d by %d threads and %d in all", d, shape.MaxBlockX, shape.MaxBlockY, shape.MaxBlockZ, shape.MaxThreads)
		return
	}
	l.threads.most, l.threads.required = int(d.Count()), d
}

// sides returns the sides of a block that a directive names; those it leaves
// out are 1.
func (l *lowering) sides(directive *ptx.Directive) shape.Dim {
	d := shape.Dim{X: 1, Y: 1, Z: 1}
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

// checkSizes finds out how much static shared memory the kernels need, and
// refuses those that need more memory than there is.
func (p *Program) checkSizes() {
	walks := marks{last: make([]int, len(p.units))}
	for _, u := range p.units {
		if u == p.anyone || !u.f.Entry || u.anyErrs {
			continue
		}
		if u.anyShared {
			u.sharedBytes = layoutShared(p.closure(u, walks.begin()), 0, map[*ptx.Variable]int{})
		}
		if u.sharedBytes > shape.MaxShared {
			u.fail(p, "kernel %s has %d bytes of shared memory a block: at most %d", u.f.Name, u.sharedBytes, shape.MaxShared)
		} else if u.depth > shape.MaxLocal {
			u.fail(p, "kernel %s takes %d bytes of local memory a thread: at most %d", u.f.Name, u.depth, shape.MaxLocal)
		}
	}
}

// fail notes what is wrong with a kernel as a whole.
func (u *unit) fail(p *Program, format string, args ...any) {
	u.errs = append(u.errs, &ptx.Error{File: p.file, Pos: u.f.Pos, Msg: fmt.Sprintf(format, args...)})
	u.anyErrs = true
}
