package clientcore

import (
	"fmt"
	"slices"

	"muster/wire"
)

// Hosts are the program's host functions: a stream that reaches one waits until the program has run
// it.
type Hosts struct {
	Running map[uint64]bool // cookies of functions that have not returned
	Queue   []uint64        // cookies that are due, and that the program was not given yet
	Slots   []int           // where threads of the program wait for a cookie
	Words   map[uint64]bool // cookies in Running that are waits for a word, not functions

	// While a message waits for functions to return (awaitReturn): WaitBy is when it fails if none has,
	// AskAt when it asks for memory again. Both are 0 when a function has returned, or the message got
	// its memory. After a message that failed they stay, so that the next one fails at once.
	WaitBy Time `json:",omitempty"`
	AskAt  Time `json:",omitempty"`
}

// returned notes that a function has returned, or that a wait for a word is over.
func (c *Core) returned(cookie uint64) {
	c.notOut(cookie)
	c.emit(Op{Kind: HostReturn, Cookie: cookie})
}

// notOut notes that nothing waits for a function any more.
func (c *Core) notOut(cookie uint64) {
	t := &c.Hosts
	delete(t.Words, cookie)
	delete(t.Running, cookie)
	t.Queue = slices.DeleteFunc(t.Queue, func(due uint64) bool { return due == cookie })
	t.WaitBy, t.AskAt = 0, 0
	c.unhold()
}

// unhold notes that no stream waits for a function, if none is out.
func (c *Core) unhold() {
	if c.Outstanding() > 0 {
		return
	}
	for _, st := range c.Streams.ByID {
		st.Held = false
	}
	for _, e := range c.Events {
		e.Held = false
	}
}

// match gives due cookies to the threads that wait for them.
func (c *Core) match() {
	t := &c.Hosts
	for len(t.Queue) > 0 && len(t.Slots) > 0 {
		c.reply(t.Slots[0], success, (&wire.HostNextReply{Cookie: t.Queue[0]}).Append(nil))
		c.ops[len(c.ops)-1].Cookie = t.Queue[0]
		t.Queue, t.Slots = t.Queue[1:], t.Slots[1:]
	}
}

// reached notes that a stream has reached a host function, or that its wait for a word is over.
func (c *Core) reached(cookie uint64) {
	if c.Hosts.Words[cookie] {
		c.returned(cookie)
		return
	}
	if c.Hosts.Running[cookie] { // otherwise it was dropped
		c.Hosts.Queue = append(c.Hosts.Queue, cookie)
		c.match()
	}
}

// dropHosts releases all streams that wait for host functions: the context has failed.
func (c *Core) dropHosts() {
	if len(c.Hosts.Running) > 0 {
		c.emit(Op{Kind: HostDrop})
	}
	c.Hosts.Running, c.Hosts.Queue, c.Hosts.Words = nil, nil, nil
	c.Hosts.WaitBy, c.Hosts.AskAt = 0, 0
	c.unhold()
}

// once is the flag of a function whose work cannot be repeated in the same order.
const once = 1

func (c *Core) hostFunction(_ *Message, d *wire.HostFunction) (bool, error) {
	if d.Cookie == 0 {
		return true, fmt.Errorf("a function without a cookie: %w", ErrProtocol)
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	t := &c.Hosts
	if t.Running[d.Cookie] {
		return true, fmt.Errorf("cookie %d is taken: %w", d.Cookie, ErrProtocol)
	}
	if len(t.Running) >= maxObjects {
		return true, tooMany("functions of the program's that have not returned")
	}
	// The stream's later work must come after the function, so from here on it has to run on the
	// device. Work on host copies would happen too early; or everything would have to wait for the
	// function, which may itself wait for this client, since it may touch managed memory.
	if !c.isReady() {
		if ok, err := c.ready(c.needs(nil)); !ok || err != nil {
			return ok, err
		}
	}
	c.give(d.Stream, st, c.place())
	if t.Running == nil {
		t.Running = map[uint64]bool{}
	}
	t.Running[d.Cookie], st.Held = true, true
	c.calling = d.Cookie
	c.emit(Op{Kind: Call, Place: c.place(), Stream: d.Stream, Cookie: d.Cookie, Once: d.Flags&once != 0})
	return true, nil
}

func (c *Core) hostNext(m *Message, _ *wire.HostNext) (bool, error) {
	t := &c.Hosts
	if len(t.Slots) >= wire.Slots {
		return true, fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, ErrProtocol)
	}
	t.Slots = append(t.Slots, m.Header.Slot)
	c.match()
	return true, nil
}

func (c *Core) hostDone(_ *Message, d *wire.HostDone) (bool, error) {
	if c.Hosts.Running[d.Cookie] { // otherwise the context has failed meanwhile
		c.returned(d.Cookie)
	}
	return true, nil
}

func (c *Core) hostStop(*Message, *wire.HostStop) (bool, error) {
	for _, slot := range c.Hosts.Slots {
		c.reply(slot, success, (&wire.HostNextReply{}).Append(nil))
	}
	c.Hosts.Slots = nil
	return true, nil
}

// Backlog is the queue of messages that were read ahead, in order.
type Backlog struct {
	Messages []Message
	Bytes    int
}

// These bound what a program can send while the worker waits for one of its host functions.
const (
	maxBacklog      = 1 << 18
	maxBacklogBytes = 1 << 30
)

// size is how many bytes of a message are kept, not counting memory of the program that it may
// name.
func (m *Message) size() int {
	if m.Pinned {
		return len(m.Body)
	}
	return len(m.Body) + len(m.Data)
}

func (b *Backlog) next() (Message, bool) {
	if len(b.Messages) == 0 {
		return Message{}, false
	}
	m := b.Messages[0]
	b.Messages[0] = Message{}
	b.Messages = b.Messages[1:]
	b.Bytes -= m.size()
	return m, true
}

func (b *Backlog) add(m Message) error {
	b.Bytes += m.size()
	if len(b.Messages) >= maxBacklog || b.Bytes > maxBacklogBytes {
		return fmt.Errorf("%d messages while a function of the program's was waited for", len(b.Messages)+1)
	}
	m.Owned = true
	b.Messages = append(b.Messages, m)
	return nil
}
