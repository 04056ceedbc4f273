package gateway

import (
	"muster/wire"
	"muster/wire/lanes"
)

// A long copy from the device is asked of the worker in parts, so that the first are on their way to
// the client while the device copies the others. The client gets one answer, after the data of all
// parts. Copies to the device come in parts from the relay already.

const (
	// mostParts is how many parts a copy may have.
	mostParts = 16
	// slotsForParts is how many reply slots must be free. Each part takes one, and what is queued
	// behind a function of the program's may need many.
	slotsForParts = wire.Slots - 4*mostParts
)

// part is a part of a copy from the device.
type part struct {
	pending        *wire.Pending
	offset, length uint64 // of the arena
}

// inParts says whether a message is a copy from the device that is long enough for parts.
func (b *bridge) inParts(h wire.Header) bool {
	return h.Op == wire.OpCopyOut && h.Length > 2*lanes.Part(b.visitor.LaneFrom) && b.lanes.Open() > 0 && b.session.Producer.FreeSlots() >= slotsForParts
}

// startParts asks the worker for all but the last part of a copy. The copy itself becomes the last
// part: startParts changes its header, and returns its body.
func (b *bridge) startParts(g *given, body []byte) ([]byte, error) {
	var m wire.CopyOut
	if err := m.Decode(body); err != nil {
		return nil, err
	}
	h := &g.header
	each := max(lanes.Part(b.visitor.LaneFrom), (h.Length+mostParts-1)/mostParts)
	for h.Length > each {
		pending, err := b.session.Producer.Start(wire.Header{Op: h.Op, Data: h.Data, Length: each}, m.Append(nil))
		if err != nil {
			return nil, err
		}
		g.parts = append(g.parts, part{pending, h.Data, each})
		h.Data, h.Length, m.Src = h.Data+each, h.Length-each, m.Src+each
	}
	return m.Append(nil), nil
}

// next is the worker's next answer that g waits for.
func (g *given) next() *wire.Pending {
	if len(g.parts) > 0 {
		return g.parts[0].pending
	}
	return g.pending
}

// sendParts sends the parts that have arrived, in order. The caller must hold mu.
func (b *bridge) sendParts(g *given) {
	for len(g.parts) > 0 && g.parts[0].pending.Done() {
		p := g.parts[0]
		g.parts = g.parts[1:]
		result, _, err := p.pending.Wait()
		switch {
		case err != nil:
		case result != 0:
			g.failed = result
		default:
			data, _ := b.session.Shared.Data(p.offset, p.length)
			b.box.put(outgoing{offset: p.offset, data: data})
		}
	}
}
