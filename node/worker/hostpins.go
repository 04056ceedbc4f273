package worker

import (
	"sync/atomic"
	"syscall"

	"muster/internal/machine"
	"muster/internal/together"
	"muster/vmm"
	"muster/wire/control"

	"golang.org/x/sys/unix"
)

// Host copies that are moved in bulk are pinned, and stay pinned as long as they have their pages:
// the device then copies them by itself, at the speed of its bus. Pinning existing pages costs
// about as much as copying them once, making pages ten times as much.
const (
	// hostPinWorth is the size in bytes from which pinning pays for a plan.
	hostPinWorth = 16 << 20
	// hostPinMost is how many chunks are pinned together. To give one of them back, all have to be
	// unpinned.
	hostPinMost = (64 << 20) / chunk
	// roomShare bounds what is prepared ahead: 1/roomShare of the free memory.
	roomShare = 2
	// roomLeft ends that early: other workers prepare pages at the same time, and if 1/roomLeft of
	// what was free is left, the system would soon have to kill one of them.
	roomLeft = 4
)

// hostPins are the chunks of host memory that a context has pinned.
type hostPins map[hostChunkAt]*hostPin

// hostChunkAt is a chunk on a side.
type hostChunkAt struct {
	on uint8
	i  int
}

// hostPin is a run of chunks that were pinned together.
type hostPin struct {
	run
	unpin func() error // nil: pinning was refused, and is not tried again
}

// readyHost prepares host copies for the copies of a plan. Chunks that will be written get their
// side, and their pages, which several threads make at once; then all of them are pinned, if
// possible. No work may be running on the devices. Calling it again for the same plan costs
// nothing. It says whether it pinned anything.
func (w *worker) readyHost(plan vmm.Plan) (pinned bool) {
	w.touchAll(plan)
	if w.host.dir != "" || plan.Bytes(vmm.CopyOut)+plan.Bytes(vmm.CopyIn) < hostPinWorth {
		return false // pages of a file on disk cannot be pinned
	}
	var fresh [][]byte
	for _, step := range plan {
		if step.Op != vmm.CopyOut {
			continue
		}
		g := w.gpus[step.Device]
		for _, r := range w.unpinnedHost(g, step.Range) {
			piece := w.host.bytes(r)
			w.host.expect(piece)
			fresh = append(fresh, piece)
		}
	}
	touchTogether(fresh)
	for _, step := range plan {
		if step.Op != vmm.CopyOut && step.Op != vmm.CopyIn {
			continue
		}
		g := w.gpus[step.Device]
		for _, r := range w.unpinnedHost(g, step.Range) {
			w.pinHost(g, r)
			pinned = true
		}
	}
	return pinned
}

// touchAll calls touch for everything that a plan writes on the host.
func (w *worker) touchAll(plan vmm.Plan) {
	for _, step := range plan {
		if step.Op == vmm.CopyOut || step.Op == vmm.Fill && step.Device == vmm.Host {
			w.touch(step.Range, true)
		}
	}
}

// unpinnedHost returns the chunks of a range that a context has not pinned, in runs to be pinned
// together. All chunks of the range must have their side already.
func (w *worker) unpinnedHost(g *gpu, r vmm.Range) (rows runs) {
	first, last := w.host.span(r)
	for i := first; i <= last; i++ {
		on := w.host.side(i)
		if _, ok := g.hostPins[hostChunkAt{on, i}]; ok {
			continue
		}
		if n := len(rows) - 1; n >= 0 && rows[n].count == hostPinMost {
			rows = append(rows, run{row{i, 1}, on})
		} else {
			rows.add(i, on)
		}
	}
	return rows
}

// pinHost pins chunks of host memory, once. If it fails, copies are slower.
func (w *worker) pinHost(g *gpu, r run) {
	if g.hostPins == nil {
		g.hostPins = hostPins{}
	}
	p := &hostPin{run: r}
	var err error
	if p.unpin, err = g.context.Pin(w.host.bytes(r)); err != nil {
		w.log.Debug("pinning host copies", "bytes", r.size(), "error", err) // copies are slower without
	}
	for i := r.first; i < r.first+r.count; i++ {
		g.hostPins[hostChunkAt{r.on, i}] = p
	}
}

// unpinHost unpins chunks in all contexts, before their pages are given back.
func (w *worker) unpinHost(on uint8, gone row) {
	for _, g := range w.gpus {
		for i := gone.first; len(g.hostPins) > 0 && i < gone.first+gone.count; i++ {
			if p := g.hostPins[hostChunkAt{on, i}]; p != nil {
				g.dropHostPin(w, p)
			}
		}
	}
}

func (g *gpu) dropHostPin(w *worker, p *hostPin) {
	for i := p.first; i < p.first+p.count; i++ {
		delete(g.hostPins, hostChunkAt{p.on, i})
	}
	if p.unpin == nil {
		return
	}
	if err := p.unpin(); err != nil {
		w.log.Debug("unpinning host copies", "error", err) // the context has ended, and copies nothing any more
	}
}

// hostPart is consecutive memory on one side, all of it pinned or none.
type hostPart struct {
	addr   uint64
	memory []byte
	pinned bool
}

// hostParts splits the host copies of a range into parts.
func (w *worker) hostParts(g *gpu, r vmm.Range) (parts []hostPart) {
	_ = w.host.each(r, func(addr uint64, piece []byte) error {
		for own := len(parts); len(piece) > 0; {
			i := int((addr - w.host.base) / chunk)
			p := g.hostPins[hostChunkAt{w.host.side(i), i}]
			n := min(len(piece), int(uint64(i+1)*chunk-(addr-w.host.base)))
			pinned := p != nil && p.unpin != nil
			if last := len(parts) - 1; last >= own && parts[last].pinned == pinned {
				parts[last].memory = parts[last].memory[:len(parts[last].memory)+n]
			} else {
				parts = append(parts, hostPart{addr, piece[:n], pinned})
			}
			piece, addr = piece[n:], addr+uint64(n)
		}
		return nil
	})
	return parts
}

// copyHost submits the copies of consecutive steps of a plan. Those of unpinned memory come first:
// they go through buffers, which works only while the stream has no other work.
func (w *worker) copyHost(steps vmm.Plan) (failed vmm.Step, err error) {
	for _, pinned := range []bool{false, true} {
		for _, step := range steps {
			g, err := w.at(step.Device)
			if err != nil {
				return step, err
			}
			for _, part := range w.hostParts(g, step.Range) {
				switch {
				case part.pinned != pinned:
				case step.Op == vmm.CopyIn:
					err = g.mover.CopyIn(part.addr, part.memory)
				default:
					err = g.mover.CopyOut(part.memory, part.addr)
				}
				if err != nil {
					return step, err
				}
			}
		}
	}
	return failed, nil
}

// touchTogether makes the pages of memory whose contents do not matter, with several threads.
func touchTogether(pieces [][]byte) {
	together.Do(len(pieces), func(i int) {
		for at := 0; at < len(pieces[i]); at += 4096 {
			pieces[i][at] = 0
		}
	})
}

// readyAhead makes the host pages that the client will need when it leaves its device, in the
// background, and says whether that is under way. It is called while another client waits for the
// device, or after the client had to leave once. It changes no contents, so the loop may use the
// memory meanwhile. Before Linux 5.14 there is no MADV_POPULATE_WRITE; pages are then made when they
// are needed.
func (w *worker) readyAhead() bool {
	if w.host.dir != "" {
		return false
	}
	if !w.readying.CompareAndSwap(false, true) {
		return true
	}
	pieces, bytes := w.host.lacking(w.core.Allocations())
	free := freeHere()
	if bytes < hostPinWorth || bytes > free/roomShare {
		w.readying.Store(false)
		return false
	}
	w.others.Go(func() {
		makeAhead(pieces, func(piece []byte) bool {
			return w.ctx.Err() == nil && freeHere() >= free/roomLeft && syscall.Madvise(piece, unix.MADV_POPULATE_WRITE) == nil
		})
		w.readying.Store(false)
		w.inbox.Put(readied{})
		w.consumer.Wake()
	})
	return true
}

// makeAhead makes pieces, until one cannot be made.
func makeAhead(pieces [][]byte, make func([]byte) bool) {
	var refused atomic.Bool
	together.Do(len(pieces), func(i int) {
		if !refused.Load() && !make(pieces[i]) {
			refused.Store(true)
		}
	})
}

// freeHere is how many bytes of memory are free for this process; 0 if that is not known.
func freeHere() uint64 {
	free, _ := machine.FreeMemory()
	return free
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
