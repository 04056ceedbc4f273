package clientcore

import (
	"bytes"
	"errors"
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// copies does the copies and fills of the program.
type copies struct {
	*standing
	verdicts *verdicts
	streams  *streams
	hosts    *hosts
	memory   *memory
	shared   *shared
	modules  *modules
	arrival  *arrival
}

func (cp *copies) register(h *handlers) {
	h[wire.OpCopyInline] = decoding(cp.copyInline)
	h[wire.OpCopyIn] = decoding(cp.copyInMessage)
	h[wire.OpCopyOut] = decoding(cp.copyOutMessage)
	h[wire.OpCopyWithin] = decoding(cp.copyWithinMessage)
	h[wire.OpCopyIn2D] = decoding(cp.copyIn2D)
	h[wire.OpCopyOut2D] = decoding(cp.copyOut2D)
	h[wire.OpCopyWithin2D] = decoding(cp.copyWithin2D)
	h[wire.OpFill] = decoding(cp.fill)
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
func (cp *copies) where(st *Stream, ranges ...vmm.Range) (target, *Context, error) {
	x := cp.here()
	if len(cp.Contexts) > 1 {
		x = cp.holder(st, ranges)
	}
	variables, resident := false, x != nil
	var arena []vmm.Range
	for _, r := range ranges {
		if r.Addr-cp.config.Arena.Addr >= cp.config.Arena.Size {
			if !cp.modules.holds(r.Addr, r.Size) && !cp.memory.mapsHost(r) {
				return later, nil, fmt.Errorf("%d bytes at %#x: no memory of the program's: %w", r.Size, r.Addr, device.ErrInvalidValue)
			}
			variables = true
			continue
		}
		if cp.shared.sharesRange(r) { // every context has it, and it has no host copies
			variables = true
			continue
		}
		if err := cp.memory.space.Check(r); err != nil {
			return later, nil, err
		}
		if len(ranges) > 1 {
			arena = append(arena, r)
		}
		resident = resident && cp.memory.space.Resident(x.Place, r)
	}
	if variables { // there is at most one range of the arena then
		if ok, err := cp.arrival.ready(need{ranges: arena}); !ok || err != nil {
			return later, nil, err
		}
		return onDevice, cp.here(), nil
	}
	if resident {
		return onDevice, x, nil
	}
	return onHost, nil, nil
}

// holder returns the context, of several, that has all of some ranges: the stream's own if it has
// them, else the first that does, else that of the lease.
func (cp *copies) holder(st *Stream, ranges []vmm.Range) *Context {
	has := func(x *Context) bool {
		for _, r := range ranges {
			if !cp.memory.space.Resident(x.Place, r) {
				return false
			}
		}
		return true
	}
	if st.Live {
		if x := cp.context(st.At); x != nil && has(x) {
			return x
		}
	}
	for _, x := range cp.Contexts {
		if has(x) {
			return x
		}
	}
	return cp.here()
}

// needed returns what must be on the device for work on some ranges: those. While functions of the
// program have not returned it is everything, if that fits: no memory can give way before they have.
func (cp *copies) needed(ranges ...vmm.Range) need {
	if all := cp.arrival.needs(nil); all.all && cp.hosts.Outstanding() > 0 {
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
func (cp *copies) behindFunctions(st *Stream, ranges ...vmm.Range) (target, *Context, error) {
	at, x, err := cp.where(st, ranges...)
	if err != nil || at != onHost || cp.hosts.Outstanding() == 0 {
		return at, x, err
	}
	free := !cp.streams.held(st)
	for _, r := range ranges { // a copy from the device waits for all work there
		free = free && cp.memory.space.HostReady(r)
	}
	n := cp.arrival.needs(nil)
	switch {
	case n.all:
		n.spared = free
		return cp.brought(n)
	case free: // the program is larger than every device
		return onHost, nil, nil
	}
	return later, nil, cp.hosts.awaitReturn()
}

// brought has memory brought to the device for work that would else be done on the host copies:
// onHost if no device can have it, later if the message must wait.
func (cp *copies) brought(n need) (target, *Context, error) {
	ok, unable := cp.arrival.ready(n)
	switch {
	case errors.Is(unable, errNoneReturns):
		return later, nil, unable
	case unable != nil:
		return onHost, nil, nil
	case !ok:
		return later, nil, nil
	}
	return onDevice, cp.here(), nil
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
func (cp *copies) copyIn(stream uint32, to Area, data []byte, from source) (bool, error) {
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
	st, err := cp.streams.find(stream)
	if err != nil {
		return true, err
	}
	at, x, err := cp.behindFunctions(st, r)
	if err != nil || at == later {
		return err != nil, err
	}
	if at == onHost || cp.config.Defer && cp.hosts.Outstanding() == 0 && cp.memory.space.Check(r) == nil {
		if from == pinned {
			cp.streams.settleStream(stream, st)
		}
		if ok, err := cp.memory.hostWrite(r, to); !ok || err != nil {
			return ok, err
		}
		cp.memory.stats.CopiedIn += r.Size
		o := cp.next(HostIn)
		o.To, o.Data = to, data
		return true, nil
	}
	cp.memory.stats.CopiedIn += uint64(len(data))
	cp.memory.carried(vmm.Host, x.Place, uint64(len(data)))
	cp.streams.give(stream, st, x.Place)
	o := cp.next(CopyIn)
	o.Place, o.Stream, o.To, o.Data, o.Staged = x.Place, stream, to, data, from == staged
	cp.memory.written(x.Place, r)
	return true, nil
}

func (cp *copies) copyInline(m *Message, d *wire.CopyInline) (bool, error) {
	// The device reads the bytes after the message is gone.
	return cp.copyIn(d.Stream, line(d.Dst, uint64(len(d.Data))), bytes.Clone(d.Data), inline)
}

func (cp *copies) copyInMessage(m *Message, d *wire.CopyIn) (bool, error) {
	return cp.copyIn(d.Stream, line(d.Dst, uint64(len(m.Data))), m.Data, sourceOf(m))
}

func (cp *copies) copyIn2D(m *Message, d *wire.CopyIn2D) (bool, error) {
	return cp.copyIn(d.Stream, Area{d.Dst, d.Pitch, d.Width, d.Height}, m.Data, sourceOf(m))
}

func (cp *copies) copyOutMessage(m *Message, d *wire.CopyOut) (bool, error) {
	return cp.copyOut(m, d.Stream, line(d.Src, m.Header.Length))
}

func (cp *copies) copyOut2D(m *Message, d *wire.CopyOut2D) (bool, error) {
	return cp.copyOut(m, d.Stream, Area{d.Src, d.Pitch, d.Width, d.Height})
}

// copyOut copies device memory to the data arena. The call is answered when the bytes are there.
func (cp *copies) copyOut(m *Message, stream uint32, from Area) (bool, error) {
	h := m.Header
	r, err := from.Span()
	if err != nil {
		return true, err
	}
	if from.Width*from.Height != h.Length {
		return true, fmt.Errorf("%d bytes for %d rows of %d: %w", h.Length, from.Height, from.Width, ErrProtocol)
	}
	st, err := cp.streams.find(stream)
	if err != nil {
		return true, err
	}
	if r.Size == 0 {
		cp.verdicts.answer(h.Slot)
		return true, nil
	}
	at, x, err := cp.behindFunctions(st, r)
	if err != nil || at == later {
		return err != nil, err
	}
	out := Span{h.Data, h.Length}
	if at == onHost {
		cp.streams.settleStream(stream, st)
		if ok, err := cp.memory.hostRead(r); !ok || err != nil {
			return ok, err
		}
		cp.memory.stats.CopiedOut += h.Length
		cp.emit(Op{Kind: HostOut, From: from, Out: out})
		cp.verdicts.answer(h.Slot)
		return true, nil
	}
	cp.memory.stats.CopiedOut += h.Length
	cp.memory.carried(x.Place, vmm.Host, h.Length)
	cp.streams.give(stream, st, x.Place)
	o := cp.next(CopyOut)
	o.Place, o.Stream, o.From, o.Out = x.Place, stream, from, out
	if h.Slot >= 0 {
		cp.verdicts.replyAfter(x.Place, m).Stream = stream
	}
	return true, nil
}

func (cp *copies) copyWithinMessage(_ *Message, d *wire.CopyWithin) (bool, error) {
	return cp.copyWithin(d.Stream, line(d.Dst, d.Size), line(d.Src, d.Size))
}

func (cp *copies) copyWithin2D(_ *Message, d *wire.CopyWithin2D) (bool, error) {
	return cp.copyWithin(d.Stream, Area{d.Dst, d.DstPitch, d.Width, d.Height}, Area{d.Src, d.SrcPitch, d.Width, d.Height})
}

// copyWithin copies between two areas of the same shape.
func (cp *copies) copyWithin(stream uint32, to, from Area) (bool, error) {
	dst, err := to.Span()
	if err != nil {
		return true, err
	}
	src, err := from.Span()
	if err != nil || dst.Size == 0 {
		return true, err
	}
	st, err := cp.streams.find(stream)
	if err != nil {
		return true, err
	}
	at, x, err := cp.behindFunctions(st, dst, src)
	if err != nil || at == later {
		return err != nil, err
	}
	if at == onHost {
		if ok, err := cp.memory.hostRead(src); !ok || err != nil {
			return ok, err
		}
		if ok, err := cp.memory.hostWrite(dst, to); !ok || err != nil {
			return ok, err
		}
		cp.emit(Op{Kind: HostCopy, To: to, From: from})
		return true, nil
	}
	cp.streams.give(stream, st, x.Place)
	cp.emit(Op{Kind: Copy, Place: x.Place, Stream: stream, To: to, From: from})
	cp.memory.written(x.Place, dst)
	return true, nil
}

func (cp *copies) fill(_ *Message, d *wire.Fill) (bool, error) {
	to, err := filled(d)
	if err != nil {
		return true, err
	}
	r, err := to.Span()
	if err != nil || r.Size == 0 {
		return true, err
	}
	st, err := cp.streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	at, x, err := cp.behindFunctions(st, r)
	if err != nil || at == later {
		return err != nil, err
	}
	o := Op{Kind: HostFill, Stream: d.Stream, To: to, Value: d.Value, Width: int(d.Width)}
	if at == onHost && to.Dense() {
		return cp.fillLater(o, r)
	}
	if at == onHost {
		if ok, err := cp.memory.hostWrite(r, to); !ok || err != nil {
			return ok, err
		}
		cp.emit(o)
		return true, nil
	}
	o.Kind, o.Place = Fill, x.Place
	cp.streams.give(d.Stream, st, x.Place)
	cp.emit(o)
	if cp.memory.written(o.Place, r); to.Dense() && len(cp.Contexts) == 1 && cp.streams.last(d.Stream) {
		cp.memory.space.Filled(o.Place, r, o.word())
	}
	return true, nil
}

// fillLater fills memory that is not on a device. Whole chunks are only known to be filled, and are
// written where they are next needed: on a device that takes less time than copying them there.
func (cp *copies) fillLater(o Op, r vmm.Range) (bool, error) {
	edges := cp.memory.space.Edges(r)
	for _, e := range edges {
		if ok, err := cp.memory.hostWrite(e, line(e.Addr, e.Size)); !ok || err != nil {
			return ok, err
		}
	}
	for _, e := range edges {
		o.To = line(e.Addr, e.Size)
		cp.emit(o)
	}
	return true, cp.memory.space.Fill(r, o.word())
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
