package worker

// Memory that the program has as pinned is pinned here when copies come that are worth it:
// a part of the arena at a time, and only where nothing runs, since pinning may wait for
// kernels, and those for the program.
const (
	pinGranule = 4 << 20
	pinWorth   = 128 << 10 // bytes of a copy
)

// pinProgram pins the memory of a copy, if that may be done now. The copy is right without.
func (w *worker) pinProgram(g *gpu, offset, size uint64) error {
	arena, geometry := w.shared.Arena(), w.shared.Geometry()
	first := geometry.Staging + geometry.Bounce // which is pinned anyway
	if size < pinWorth || offset < first || offset+size > uint64(len(arena)) {
		return nil
	}
	runs := g.unpinned((offset-first)/pinGranule, (offset-first+size-1)/pinGranule+1)
	if len(runs) == 0 {
		return nil
	}
	if idle, err := g.idle(); !idle || err != nil {
		return err
	}
	if g.pinned == nil {
		g.pinned = map[uint64]bool{}
	}
	for _, r := range runs {
		for i := r.from; i < r.to; i++ {
			g.pinned[i] = true // once, however it ends
		}
		part := arena[first+r.from*pinGranule : min(first+r.to*pinGranule, uint64(len(arena)))]
		err := w.blockLong(func() error {
			if _, err := g.context.Pin(part); err != nil {
				w.log.Debug("pinning memory of the program's", "bytes", len(part), "error", err) // copies are slower without
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// granules are some that follow each other.
type granules struct{ from, to uint64 }

// unpinned returns those of a row of granules that are not pinned.
func (g *gpu) unpinned(from, to uint64) (runs []granules) {
	for i := from; i < to; i++ {
		switch n := len(runs); {
		case g.pinned[i]:
		case n > 0 && runs[n-1].to == i:
			runs[n-1].to++
		default:
			runs = append(runs, granules{i, i + 1})
		}
	}
	return runs
}

// idle says whether no stream of the context has work.
func (g *gpu) idle() (bool, error) {
	for _, on := range g.streams {
		if done, err := on.Done(); !done || err != nil {
			return false, err
		}
	}
	done, err := g.left()
	return done && err == nil, err
}
