package worker

import (
	"muster/wire/control"
)

// readyAhead makes the host pages that the client will need when it leaves its device, in the
// background, and says whether that is under way. It is called while another client waits for the
// device, or after the client had to leave once.
func (w *worker) readyAhead() bool {
	if w.host.InFile() {
		return false
	}
	if !w.readying.CompareAndSwap(false, true) {
		return true
	}
	make := w.host.Ahead(w.core.Allocations())
	if make == nil {
		w.readying.Store(false)
		return false
	}
	w.others.Go(func() {
		make(w.ctx)
		w.readying.Store(false)
		w.inbox.Put(readied{})
		w.consumer.Wake()
	})
	return true
}

// readied tells the loop that readyAhead has ended.
type readied struct{ control.Revoke }

// postpones says whether the worker leaves its device only later, because pages of the host are
// being made for that: kernels of the client run meanwhile, which would otherwise have to wait as
// long as the client that comes.
func (w *worker) postpones(m control.Revoke) bool {
	if w.revoked != nil || w.replay != nil || w.serve.Guest || !w.core.Lease.Held || !w.readyAhead() {
		return false
	}
	w.revoked = &m
	return true
}

// leaves hands the core a revocation. One that was postponed is void then.
func (w *worker) leaves(m control.Revoke) error {
	w.revoked = nil
	return w.handle(w.core.Control(w.now(), m))
}

// leaveNow hands the core a revocation that was postponed.
func (w *worker) leaveNow() error {
	if w.revoked == nil {
		return nil
	}
	return w.leaves(*w.revoked)
}

// --- memory of the program -----------------------------------------------------------

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
