package worker

import (
	"bytes"
	"errors"
	"syscall"

	"muster/device"
	"muster/internal/together"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/keeper"
	"muster/node/worker/staging"
)

// copies carries out copies between the program's memory, or the staging memory through which it sends data,
// and devices or host copies, and keeps the data for the journal. The loop owns it.
type copies struct {
	*session
	waits *waits

	inFlight copying
	sent     uint64 // bytes of copies that a device can write to the journal itself
	refused  bool   // it did not want to
}

func (c *copies) toHost(m *message, o *clientcore.Op) error {
	if err := c.host.TouchArea(o.To, o.To.Dense()); err != nil {
		return err
	}
	c.keeper.Keep(m, o.Data, c.core)
	return c.host.CopyIn(o.To, o.Data)
}

func (c *copies) fillHost(o *clientcore.Op) error {
	if err := c.host.TouchArea(o.To, o.To.Dense()); err != nil {
		return err
	}
	return c.host.Fill(o.To, o.Value, o.Width)
}

func (c *copies) withinHost(o *clientcore.Op) error { return c.host.Copy(o.To, o.From) }

func (c *copies) fromHost(m *message, o *clientcore.Op) error {
	out, err := c.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	err = c.host.CopyOut(out, o.From)
	c.keeper.Given(m)
	return err
}

func (c *copies) in(m *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	if done, err := c.inEchoed(m, g, on, o); done || err != nil {
		return err
	}
	to, data := o.To, o.Data
	kept := func() {}
	if m.Header.Release != 0 {
		kept = c.keeper.Aside(m, o.Data)
	} else if m.Header.Op.TakesData() {
		var err error
		if kept, err = c.attachLater(m, on, data); err != nil {
			return err
		}
	}
	if o.Staged && m.Stage.IsOpen() && c.waits.hosts.outstanding() > 0 {
		// The program may be waiting for this memory before it reports that its host function has
		// returned, and the copy may be waiting for that function. A copy of the data breaks the
		// cycle.
		data = bytes.Clone(data)
		kept()
		kept = func() {}
		c.staging.Free(m.Stage.Taken())
	}
	submit := on.CopyIn
	if m.Header.Op.TakesData() {
		if err := c.pinProgram(g, m.Header.Data, uint64(len(data))); err != nil {
			kept()
			return err
		}
	} else if taken := on.Can().CopyTaken; taken != nil {
		submit = taken
	}
	err := c.waits.blockLong(func() error {
		return to.Rows(func(addr, offset, size uint64) error { return submit(addr, data[offset:offset+size]) })
	})
	kept()
	c.inFlight += copying(len(data))
	if err != nil || !m.Stage.IsOpen() {
		return err
	}
	if done, err := on.Done(); done || err != nil {
		return err // perform frees the staging memory
	}
	lent := m.Stage.Taken() // freed when the copy has ended, or with the context
	c.staging.Lend(lent, g)
	return c.waits.block(func() error { return notify(on, func() { c.staging.Free(lent) }) })
}

// notify has f called when a stream has done what it was given. Later work need not wait for f, but
// does on devices that have only Call.
func notify(on device.Stream, f func()) error {
	if notify := on.Can().Notify; notify != nil {
		return notify(f)
	}
	return on.Call(f)
}

func (c *copies) out(m *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	out, err := c.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	if err := c.pinProgram(g, o.Out.Offset, o.Out.Length); err != nil {
		return err
	}
	from := o.From
	err = c.waits.blockLong(func() error {
		return from.Rows(func(addr, offset, size uint64) error { return on.CopyOut(out[offset:offset+size], addr) })
	})
	c.inFlight += copying(o.Out.Length)
	if err == nil {
		err = c.givenLater(m, on)
	}
	return err
}

// attachLater is Keeper.Aside for the program's own memory. The program may write to it until the
// stream reads it. If the stream is idle, that is now, and until the program can hear of the end of
// the copy, for which it must ask the loop, it leaves the memory alone. Otherwise a function in the
// stream copies the data to the log at that point.
func (c *copies) attachLater(m *message, on device.Stream, data []byte) (kept func(), err error) {
	kept = func() {}
	if !c.keeper.Wants(m) {
		return kept, nil
	}
	if done, err := on.Done(); err != nil {
		return kept, err
	} else if done {
		return c.keeper.Aside(m, data), nil
	}
	fill := c.keeper.Later(m, uint64(len(data)))
	if fill == nil {
		return kept, nil
	}
	return kept, c.waits.block(func() error { return on.Call(func() { fill.Fill(data) }) })
}

// givenLater marks that the program has its bytes, once the stream has done what it was given.
func (c *copies) givenLater(m *message, on device.Stream) error {
	if !c.keeper.Marks(m) {
		return nil
	}
	if done, err := on.Done(); done || err != nil {
		c.keeper.Given(m)
		return err
	}
	kept := *m
	return c.waits.block(func() error { return notify(on, func() { c.keeper.Given(&kept) }) })
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
func (c *copies) pinProgram(g *gpu, offset, size uint64) error {
	arena, geometry := c.shared.Arena(), c.shared.Geometry()
	first := geometry.Staging + geometry.Bounce // pinned when the context was opened
	if size < pinWorth || offset < first || offset+size > uint64(len(arena)) {
		return nil
	}
	runs := g.unpinned((offset-first)/pinGranule, (offset-first+size-1)/pinGranule+1)
	if len(runs) == 0 {
		return nil
	}
	if quiet, err := g.quiet(); !quiet || err != nil {
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
		err := c.waits.blockLong(func() error {
			if _, err := g.context.Pin(part); err != nil {
				c.log.Debug("pinning memory of the program's", "bytes", len(part), "error", err) // copies are slower without
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

// Large data that the program copies to a device must be in the journal, too, before the program may
// change them. The host writes them there no faster than its memory is, which is half as fast as a
// bus. So a device that can sends them back itself, right into the journal, while it still gets
// the rest (device.StreamCan.CopyInKept). The data then count from a host function in the stream on, behind which
// the program is told of nothing.
const (
	// echoWorth is the least size of such a copy in bytes.
	echoWorth = 1 << 20
	// echoAfter is how many bytes the client has sent in such copies before memory of the journal is
	// pinned for its device: pinning takes longer than a few copies.
	echoAfter = 256 << 20
	// echoGranule is how much of the journal is pinned together.
	echoGranule = 32 << 20
)

// echo is a copy to a device whose data the device writes to the journal.
type echo struct {
	space *journal.Space
	data  []byte
	stage *staging.Stage // that has the data; nil if they are in the program's own memory
}

// inEchoed is in for what the device writes to the journal itself; false if it cannot, and
// nothing has been done.
func (c *copies) inEchoed(m *message, g *gpu, on device.Stream, o *clientcore.Op) (done bool, err error) {
	size := uint64(len(o.Data))
	copyInKept := on.Can().CopyInKept
	if copyInKept == nil || size < echoWorth || size > keeper.MaxAttached || !o.To.Dense() || !c.keeper.Wants(m) || c.waits.hosts.outstanding() > 0 {
		return false, nil
	}
	if c.sent += size; c.sent < echoAfter || c.refused {
		return false, nil
	}
	if err := c.pinProgram(g, m.Header.Data, size); err != nil {
		return true, err
	}
	if ready, err := c.pinJournal(g, size); !ready || err != nil {
		return err != nil, err
	}
	space := c.keeper.Journal().Reserve(m.Entry, size)
	if space == nil {
		return false, nil
	}
	err = c.waits.blockLong(func() error { return copyInKept(o.To.Addr, o.Data, space.Memory()) })
	if errors.Is(err, device.ErrNotSupported) { // the program's memory cannot be pinned: the space is lost until the next base
		c.refused = true
		return false, nil
	}
	c.inFlight += copying(size)
	if err != nil {
		return true, err
	}
	e := &echo{space, o.Data, m.Stage.Taken()}
	if e.stage != nil {
		c.staging.Lend(e.stage, g)
	}
	g.mu.Lock()
	if g.echoes == nil {
		g.echoes = map[*echo]bool{}
	}
	g.echoes[e] = true
	g.mu.Unlock()
	return true, c.waits.block(func() error { return on.Call(func() { c.echoed(g, e) }) })
}

// echoed notes that the journal has the data of a copy. The device calls it, in the stream.
func (c *copies) echoed(g *gpu, e *echo) {
	g.mu.Lock()
	pending := g.echoes[e]
	delete(g.echoes, e)
	g.mu.Unlock()
	if pending {
		e.space.Count()
		c.staging.Free(e.stage)
	}
}

// returned gives back what a context that is closed had of the client. Staging memory may hold the
// only copy of data that it has not sent to the journal any more.
func (c *copies) returned(g *gpu) {
	g.mu.Lock()
	left := g.echoes
	g.echoes = nil
	g.mu.Unlock()
	for e := range left {
		if e.stage != nil {
			e.space.Fill(e.data)
		}
	}
	c.staging.Returned(g)
}

// journalPin is a granule of the journal that a context has pinned.
type journalPin struct {
	granule journal.Granule
	unpin   func() error // nil: pinning was refused, and is not tried again
}

// pinJournal pins the memory to which data of the current message would be written; false if that
// cannot be done now.
func (c *copies) pinJournal(g *gpu, size uint64) (ready bool, err error) {
	for _, part := range c.keeper.Journal().Ahead(size, echoGranule) {
		p, known := g.journalPins[part.At]
		if !known {
			if quiet, err := g.quiet(); !quiet || err != nil { // pinning may wait for kernels
				return false, err
			}
			p = journalPin{granule: part}
			makePages(part.Memory)
			err := c.waits.blockLong(func() (err error) {
				if p.unpin, err = g.context.Pin(part.Memory); err != nil {
					c.log.Debug("pinning memory of the journal", "error", err) // copies are slower without
				}
				return nil
			})
			if err != nil {
				return false, err
			}
			if g.journalPins == nil {
				g.journalPins = map[uint64]journalPin{}
			}
			g.journalPins[part.At] = p
		}
		if p.unpin == nil {
			return false, nil
		}
	}
	return true, nil
}

// unpinJournal unpins parts of the journal in all contexts, before their pages are given back.
func (c *copies) unpinJournal(from, to uint64) {
	for _, g := range c.contexts.open {
		for at, p := range g.journalPins {
			if at >= to || at+uint64(len(p.granule.Memory)) <= from {
				continue
			}
			delete(g.journalPins, at)
			if p.unpin == nil {
				continue
			}
			if err := p.unpin(); err != nil {
				c.log.Debug("unpinning memory of the journal", "error", err) // the context has ended, and writes nothing any more
			}
		}
	}
}

// giveSpare gives back memory that the journal only keeps for later, unless that has to wait for
// kernels.
func (c *copies) giveSpare() error {
	for _, g := range c.contexts.open {
		if len(g.journalPins) == 0 {
			continue
		}
		if quiet, err := g.quiet(); !quiet || err != nil {
			return err
		}
	}
	c.keeper.Journal().GiveSpare()
	return nil
}

// makePages makes pages with several threads, and changes no contents. Where the system cannot, the
// pages are made when they are needed.
func makePages(memory []byte) {
	const populate, part = 23, 2 << 20 // MADV_POPULATE_WRITE
	together.Do((len(memory)+part-1)/part, func(i int) {
		_ = syscall.Madvise(memory[i*part:min((i+1)*part, len(memory))], populate)
	})
}
