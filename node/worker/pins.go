package worker

// Memory that the program has pinned is pinned here too once it is used for large copies: a granule
// of the arena at a time, and only while the context is idle. Pinning may wait for kernels to end,
// and a kernel may wait for the program.
const (
	pinGranule = 4 << 20
	pinWorth   = 128 << 10 // least size of a copy in bytes
)

// pinProgram pins the memory of a copy, if that can be done now. If not, the copy is only slower.
func (w *worker) pinProgram(g *gpu, offset, size uint64) error {
	arena, geometry := w.shared.Arena(), w.shared.Geometry()
	first := geometry.Staging + geometry.Bounce // pinned when the context was opened
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
			g.pinned[i] = true // tried once, even if it fails
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

// granules is a range of consecutive granules.
type granules struct{ from, to uint64 }

// unpinned returns the granules of a range that are not pinned.
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
