package clientcore

import (
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// word makes a word usable on the device. It must be valid there and not in the host copies, so
// that work of other streams sees it in the stream's order. It returns false if the message must
// wait.
func (c *Core) word(st *Stream, addr uint64, width uint32) (vmm.Range, bool, error) {
	r := vmm.Range{Addr: addr, Size: uint64(width)}
	if width != 4 && width != 8 {
		return r, true, fmt.Errorf("a word of %d bytes: %w", width, ErrProtocol)
	}
	if addr%uint64(width) != 0 {
		return r, true, fmt.Errorf("a word of %d bytes at %#x: %w", width, addr, device.ErrInvalidValue)
	}
	if ok, err := c.together(); !ok || err != nil {
		return r, ok, err
	}
	at, _, err := c.where(st, r)
	if err != nil || at == later {
		return r, err != nil, err
	}
	if at == onDevice {
		return r, true, nil
	}
	ok, err := c.ready(c.needed(r))
	return r, ok, err
}

func (c *Core) streamWrite(_ *Message, d *wire.StreamWrite) (bool, error) {
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	r, ok, err := c.word(st, d.Addr, d.Width)
	if !ok || err != nil {
		return ok, err
	}
	c.give(d.Stream, st, c.place())
	c.emit(Op{Kind: WriteWord, Place: c.place(), Stream: d.Stream, Range: r, Word: Word{Value: d.Value}})
	c.written(c.place(), r)
	return true, nil
}

// streamAwait makes a stream wait for a word. The wait counts as a host function that has not
// returned, so the device is not given back: work that the program has not sent yet may write the
// word.
func (c *Core) streamAwait(_ *Message, d *wire.StreamAwait) (bool, error) {
	t := &c.Hosts
	if d.Cookie == 0 || t.Running[d.Cookie] {
		return true, fmt.Errorf("cookie %d of a word is taken: %w", d.Cookie, ErrProtocol)
	}
	if d.Compare > uint32(device.NotAll) {
		return true, fmt.Errorf("a word with comparison %d: %w", d.Compare, ErrProtocol)
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	if len(t.Running) >= maxObjects {
		return true, tooMany("streams that wait")
	}
	r, ok, err := c.word(st, d.Addr, d.Width)
	if !ok || err != nil {
		return ok, err
	}
	c.give(d.Stream, st, c.place())
	if t.Running == nil {
		t.Running = map[uint64]bool{}
	}
	if t.Words == nil {
		t.Words = map[uint64]bool{}
	}
	t.Running[d.Cookie], t.Words[d.Cookie], st.Held = true, true, true
	c.calling = d.Cookie
	c.emit(Op{Kind: AwaitWord, Place: c.place(), Stream: d.Stream, Range: r, Word: Word{d.Value, device.Compare(d.Compare)}, Cookie: d.Cookie})
	return true, nil
}
