package clientcore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

func (c *Core) memAlloc(m *Message, d *wire.MemAlloc) (bool, error) {
	if d.Addr == 0 {
		return true, allocation(d.Size, c.noPlace(d.Size))
	}
	r := vmm.Range{Addr: d.Addr, Size: d.Size}
	if is, err := c.allocShared(m, r); is {
		return true, err
	}
	if limit, has := c.config.Limit, c.space.Allocated()+c.sharedLive(); limit > 0 && has > c.space.Allocated() && d.Size > limit-min(limit, has) {
		return true, allocation(d.Size, c.beyondLimit())
	}
	if err := c.space.Alloc(r); err != nil {
		if errors.Is(err, vmm.ErrLimit) {
			err = allocation(d.Size, c.beyondLimit())
		}
		return true, err
	}
	if ok, err := c.commit(c.onHost()); !ok || err != nil {
		// Nothing has used it yet, so there is no plan to perform. While the daemon is asked for
		// room the allocation is not the client's.
		if _, wrong := c.space.Free(d.Addr); wrong != nil {
			return true, wrong
		}
		if err != nil {
			err = allocation(d.Size, err)
		}
		return ok, err
	}
	if c.config.Reserves {
		c.emit(Op{Kind: Reserve, Range: r})
	}
	c.reply(m.Header.Slot, success, nil)
	return true, nil
}

func (c *Core) memFree(_ *Message, d *wire.MemFree) (bool, error) {
	if is, err := c.freeShared(d.Addr); is {
		return true, err
	}
	r, _ := c.space.Find(d.Addr)
	if c.Heap > 0 && r == c.heap() {
		return true, fmt.Errorf("free of %#x, where the heap of the program's kernels is: %w", d.Addr, device.ErrInvalidValue)
	}
	shared := c.space.SharedOn(r)
	plan, err := c.space.Free(d.Addr)
	if err != nil {
		return true, err
	}
	if c.config.Reserves {
		c.emit(Op{Kind: GiveBack, Range: r})
	}
	c.commitLess(c.onHost())
	// Where another allocation keeps a chunk on a device, no plan waits for that device. But the
	// program may reuse the addresses at once, so running kernels must end first. On a device that
	// maps nothing of the allocation no kernel can use it.
	for _, p := range shared {
		c.next(Drain).Place = p
	}
	if len(plan) > 0 {
		c.ask(Op{Kind: Move, Plan: plan})
	}
	return true, nil
}

// drainAll waits until all work has ended, in all contexts.
func (c *Core) drainAll() {
	for _, x := range c.Contexts {
		c.next(Drain).Place = x.Place
	}
}

func (c *Core) memNest(_ *Message, d *wire.MemNest) (bool, error) {
	if len(d.Children)%8 != 0 {
		return true, fmt.Errorf("mem_nest with %d bytes of addresses: %w", len(d.Children), ErrProtocol)
	}
	children := make([]uint64, len(d.Children)/8)
	for i := range children {
		children[i] = binary.LittleEndian.Uint64(d.Children[8*i:])
	}
	return true, c.space.Nest(d.Parent, children)
}

// target is where an operation on device memory is done.
type target uint8

const (
	later target = iota // something must come first
	onHost
	onDevice
)

// where decides where work of a stream on some ranges is done. If a device has all of them, it is
// done there; otherwise on the host copies. Variables of modules have no host copies, so work on
// them needs the device.
func (c *Core) where(st *Stream, ranges ...vmm.Range) (target, *Context, error) {
	x := c.here()
	if len(c.Contexts) > 1 {
		x = c.holder(st, ranges)
	}
	variables, resident := false, x != nil
	var arena []vmm.Range
	for _, r := range ranges {
		if r.Addr-c.config.Arena.Addr >= c.config.Arena.Size {
			if !c.Modules.holds(c.config.Chunk, r.Addr, r.Size) && !c.mapsHost(r) {
				return later, nil, fmt.Errorf("%d bytes at %#x: no memory of the program's: %w", r.Size, r.Addr, device.ErrInvalidValue)
			}
			variables = true
			continue
		}
		if c.sharesRange(r) { // every context has it, and it has no host copies
			variables = true
			continue
		}
		if err := c.space.Check(r); err != nil {
			return later, nil, err
		}
		if len(ranges) > 1 {
			arena = append(arena, r)
		}
		resident = resident && c.space.Resident(x.Place, r)
	}
	if variables { // there is at most one range of the arena then
		if ok, err := c.ready(need{ranges: arena}); !ok || err != nil {
			return later, nil, err
		}
		return onDevice, c.here(), nil
	}
	if resident {
		return onDevice, x, nil
	}
	return onHost, nil, nil
}

// holder returns the context, of several, that has all of some ranges: the stream's own if it has
// them, else the first that does, else that of the lease.
func (c *Core) holder(st *Stream, ranges []vmm.Range) *Context {
	has := func(x *Context) bool {
		for _, r := range ranges {
			if !c.space.Resident(x.Place, r) {
				return false
			}
		}
		return true
	}
	if st.Live {
		if x := c.context(st.At); x != nil && has(x) {
			return x
		}
	}
	for _, x := range c.Contexts {
		if has(x) {
			return x
		}
	}
	return c.here()
}

// written notes that memory was written on a device.
func (c *Core) written(p vmm.Place, r vmm.Range) {
	if c.space.Check(r) == nil {
		c.space.Written(p, r)
	}
}

// hostRead makes the host copies of a range valid. It returns false if the message must wait for
// that.
func (c *Core) hostRead(r vmm.Range) (bool, error) {
	plan, err := c.space.HostRead(r)
	if err != nil {
		return true, err
	}
	if len(plan) > 0 {
		c.move(plan)
		return false, nil
	}
	return true, nil
}

// hostWrite prepares the host copies of an area to be written; r is its span.
func (c *Core) hostWrite(r vmm.Range, a Area) (bool, error) {
	if !a.Dense() { // the bytes between the rows must be kept
		if ok, err := c.hostRead(r); !ok || err != nil {
			return ok, err
		}
	}
	plan, err := c.space.HostWrite(r)
	if err != nil {
		return true, err
	}
	if len(plan) > 0 {
		c.move(plan)
		return false, nil
	}
	return true, nil
}

// settle waits until the earlier work of a stream has ended: it may write or read the program's
// memory that the caller's copy is about to use.
func (c *Core) settle(id uint32, st *Stream) {
	if x := c.here(); x != nil {
		at := c.at(st, x)
		c.give(id, st, at)
		c.emit(Op{Kind: Settle, Place: at, Stream: id})
	}
}

// needed returns what must be on the device for work on some ranges: those. While functions of the
// program have not returned it is everything, if that fits: no memory can give way before they have.
func (c *Core) needed(ranges ...vmm.Range) need {
	if all := c.needs(nil); all.all && c.Outstanding() > 0 {
		return all
	}
	return need{ranges: ranges}
}

// behindFunctions is where, for work of a stream that may be waiting for a host function or a word. On
// the host copies the work would be done too early, and other streams would see it; or it would have
// to wait for the stream, and if the function waits for an answer to a message behind this one, that
// would be for ever. So while functions have not returned, the work is done on the device. If there
// is no room for it there, work that waits for no function is done on the host copies all the same,
// and other work when the functions have returned.
func (c *Core) behindFunctions(st *Stream, ranges ...vmm.Range) (target, *Context, error) {
	at, x, err := c.where(st, ranges...)
	if err != nil || at != onHost || c.Outstanding() == 0 {
		return at, x, err
	}
	free := !c.Streams.held(st)
	for _, r := range ranges { // a copy from the device waits for all work there
		free = free && c.space.HostReady(r)
	}
	n := c.needs(nil)
	switch {
	case n.all:
		n.spared = free
		return c.brought(n)
	case free: // the program is larger than every device
		return onHost, nil, nil
	}
	return later, nil, c.awaitReturn()
}

// brought has memory brought to the device for work that would else be done on the host copies:
// onHost if no device can have it, later if the message must wait.
func (c *Core) brought(n need) (target, *Context, error) {
	ok, unable := c.ready(n)
	switch {
	case errors.Is(unable, errNoneReturns):
		return later, nil, unable
	case unable != nil:
		return onHost, nil, nil
	case !ok:
		return later, nil, nil
	}
	return onDevice, c.here(), nil
}

// source says where the data of a copy to the device are.
type source uint8

const (
	inline source = iota // in the message, or copied
	staged               // in staging memory, which is given back once they are read
	pinned               // in the program's memory, which it may change later
)

func sourceOf(m *Message) source {
	switch {
	case m.Pinned:
		return pinned
	case m.Header.Release != 0:
		return staged
	}
	return inline
}

// copyIn copies data to device memory.
func (c *Core) copyIn(stream uint32, to Area, data []byte, from source) (bool, error) {
	r, err := to.Span()
	if err != nil {
		return true, err
	}
	if r.Size == 0 {
		return true, nil
	}
	if to.Width*to.Height != uint64(len(data)) {
		return true, fmt.Errorf("%d bytes for %d rows of %d: %w", len(data), to.Height, to.Width, ErrProtocol)
	}
	st, err := c.Streams.find(stream)
	if err != nil {
		return true, err
	}
	at, x, err := c.behindFunctions(st, r)
	if err != nil || at == later {
		return err != nil, err
	}
	if at == onHost || c.config.Defer && c.Outstanding() == 0 && c.space.Check(r) == nil {
		if from == pinned {
			c.settle(stream, st)
		}
		if ok, err := c.hostWrite(r, to); !ok || err != nil {
			return ok, err
		}
		c.stats.CopiedIn += r.Size
		o := c.next(HostIn)
		o.To, o.Data = to, data
		return true, nil
	}
	c.stats.CopiedIn += uint64(len(data))
	c.carried(vmm.Host, x.Place, uint64(len(data)))
	c.give(stream, st, x.Place)
	o := c.next(CopyIn)
	o.Place, o.Stream, o.To, o.Data, o.Staged = x.Place, stream, to, data, from == staged
	c.written(x.Place, r)
	return true, nil
}

func (c *Core) copyInline(m *Message, d *wire.CopyInline) (bool, error) {
	// The device reads the bytes after the message is gone.
	return c.copyIn(d.Stream, line(d.Dst, uint64(len(d.Data))), bytes.Clone(d.Data), inline)
}

func (c *Core) copyInMessage(m *Message, d *wire.CopyIn) (bool, error) {
	return c.copyIn(d.Stream, line(d.Dst, uint64(len(m.Data))), m.Data, sourceOf(m))
}

func (c *Core) copyIn2D(m *Message, d *wire.CopyIn2D) (bool, error) {
	return c.copyIn(d.Stream, Area{d.Dst, d.Pitch, d.Width, d.Height}, m.Data, sourceOf(m))
}

func (c *Core) copyOutMessage(m *Message, d *wire.CopyOut) (bool, error) {
	return c.copyOut(m, d.Stream, line(d.Src, m.Header.Length))
}

func (c *Core) copyOut2D(m *Message, d *wire.CopyOut2D) (bool, error) {
	return c.copyOut(m, d.Stream, Area{d.Src, d.Pitch, d.Width, d.Height})
}

// copyOut copies device memory to the data arena. The call is answered when the bytes are there.
func (c *Core) copyOut(m *Message, stream uint32, from Area) (bool, error) {
	h := m.Header
	r, err := from.Span()
	if err != nil {
		return true, err
	}
	if from.Width*from.Height != h.Length {
		return true, fmt.Errorf("%d bytes for %d rows of %d: %w", h.Length, from.Height, from.Width, ErrProtocol)
	}
	st, err := c.Streams.find(stream)
	if err != nil {
		return true, err
	}
	if r.Size == 0 {
		c.answer(h.Slot)
		return true, nil
	}
	at, x, err := c.behindFunctions(st, r)
	if err != nil || at == later {
		return err != nil, err
	}
	out := Span{h.Data, h.Length}
	if at == onHost {
		c.settle(stream, st)
		if ok, err := c.hostRead(r); !ok || err != nil {
			return ok, err
		}
		c.stats.CopiedOut += h.Length
		c.emit(Op{Kind: HostOut, From: from, Out: out})
		c.answer(h.Slot)
		return true, nil
	}
	c.stats.CopiedOut += h.Length
	c.carried(x.Place, vmm.Host, h.Length)
	c.give(stream, st, x.Place)
	o := c.next(CopyOut)
	o.Place, o.Stream, o.From, o.Out = x.Place, stream, from, out
	if h.Slot >= 0 {
		c.replyAfter(x.Place, m).Stream = stream
	}
	return true, nil
}

func (c *Core) copyWithinMessage(_ *Message, d *wire.CopyWithin) (bool, error) {
	return c.copyWithin(d.Stream, line(d.Dst, d.Size), line(d.Src, d.Size))
}

func (c *Core) copyWithin2D(_ *Message, d *wire.CopyWithin2D) (bool, error) {
	return c.copyWithin(d.Stream, Area{d.Dst, d.DstPitch, d.Width, d.Height}, Area{d.Src, d.SrcPitch, d.Width, d.Height})
}

// copyWithin copies between two areas of the same shape.
func (c *Core) copyWithin(stream uint32, to, from Area) (bool, error) {
	dst, err := to.Span()
	if err != nil {
		return true, err
	}
	src, err := from.Span()
	if err != nil || dst.Size == 0 {
		return true, err
	}
	st, err := c.Streams.find(stream)
	if err != nil {
		return true, err
	}
	at, x, err := c.behindFunctions(st, dst, src)
	if err != nil || at == later {
		return err != nil, err
	}
	if at == onHost {
		if ok, err := c.hostRead(src); !ok || err != nil {
			return ok, err
		}
		if ok, err := c.hostWrite(dst, to); !ok || err != nil {
			return ok, err
		}
		c.emit(Op{Kind: HostCopy, To: to, From: from})
		return true, nil
	}
	c.give(stream, st, x.Place)
	c.emit(Op{Kind: Copy, Place: x.Place, Stream: stream, To: to, From: from})
	c.written(x.Place, dst)
	return true, nil
}

func (c *Core) fill(_ *Message, d *wire.Fill) (bool, error) {
	to, err := filled(d)
	if err != nil {
		return true, err
	}
	r, err := to.Span()
	if err != nil || r.Size == 0 {
		return true, err
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	at, x, err := c.behindFunctions(st, r)
	if err != nil || at == later {
		return err != nil, err
	}
	o := Op{Kind: HostFill, Stream: d.Stream, To: to, Value: d.Value, Width: int(d.Width)}
	if at == onHost && to.Dense() {
		return c.fillLater(o, r)
	}
	if at == onHost {
		if ok, err := c.hostWrite(r, to); !ok || err != nil {
			return ok, err
		}
		c.emit(o)
		return true, nil
	}
	o.Kind, o.Place = Fill, x.Place
	c.give(d.Stream, st, x.Place)
	c.emit(o)
	if c.written(o.Place, r); to.Dense() && len(c.Contexts) == 1 && c.Streams.last(d.Stream) {
		c.space.Filled(o.Place, r, o.word())
	}
	return true, nil
}

// fillLater fills memory that is not on a device. Whole chunks are only known to be filled, and are
// written where they are next needed: on a device that takes less time than copying them there.
func (c *Core) fillLater(o Op, r vmm.Range) (bool, error) {
	edges := c.space.Edges(r)
	for _, e := range edges {
		if ok, err := c.hostWrite(e, line(e.Addr, e.Size)); !ok || err != nil {
			return ok, err
		}
	}
	for _, e := range edges {
		o.To = line(e.Addr, e.Size)
		c.emit(o)
	}
	return true, c.space.Fill(r, o.word())
}

// word is the word of which a fill consists.
func (o *Op) word() uint32 {
	switch o.Width {
	case 1:
		return o.Value & 0xff * 0x01010101
	case 2:
		return o.Value & 0xffff * 0x00010001
	}
	return o.Value
}

// filled is the area that a fill writes; empty if there is nothing to write.
func filled(d *wire.Fill) (Area, error) {
	if d.Width != 1 && d.Width != 2 && d.Width != 4 || d.Count > 1<<48 {
		return Area{}, fmt.Errorf("fill with %d elements of %d bytes: %w", d.Count, d.Width, ErrProtocol)
	}
	to := Area{d.Dst, d.Pitch, d.Count * uint64(d.Width), d.Height}
	if to.Height == 1 {
		to.Pitch = to.Width
	}
	r, err := to.Span()
	if err != nil || r.Size == 0 {
		return Area{}, err
	}
	if (d.Dst|to.Pitch)%uint64(d.Width) != 0 {
		return Area{}, fmt.Errorf("fill at %#x, rows %d bytes apart, with elements of %d bytes: give multiples: %w", d.Dst, to.Pitch, d.Width, device.ErrInvalidValue)
	}
	return to, nil
}
