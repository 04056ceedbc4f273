package worker

import (
	"errors"
	"syscall"

	"muster/device"
	"muster/internal/together"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/keeper"
	"muster/node/worker/staging"
)

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
	if copyInKept == nil || size < echoWorth || size > keeper.MaxAttached || !o.To.Dense() || !c.keeper.Wants(m) || c.outstanding() > 0 {
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
	err = c.blockLong(func() error { return copyInKept(o.To.Addr, o.Data, space.Memory()) })
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
	return true, c.block(func() error { return on.Call(func() { c.echoed(g, e) }) })
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
			if idle, err := g.idle(); !idle || err != nil { // pinning may wait for kernels
				return false, err
			}
			p = journalPin{granule: part}
			makePages(part.Memory)
			err := c.blockLong(func() (err error) {
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
		if idle, err := g.idle(); !idle || err != nil {
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
