package clientcore

import (
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
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

// hosts knows which host functions the program has to run, or is running.
type hosts struct {
	*standing
	Hosts
	streams *streams
}

func (hs *hosts) register(h *handlers) {
	h[wire.OpHostNext] = decoding(hs.hostNext)
	h[wire.OpHostDone] = decoding(hs.hostDone)
	h[wire.OpHostStop] = decoding(hs.hostStop)
}

func (hs *hosts) save(to *State)   { to.Hosts = hs.Hosts }
func (hs *hosts) load(from *State) { hs.Hosts = from.Hosts }

// returned notes that a function has returned, or that a wait for a word is over.
func (hs *hosts) returned(cookie uint64) {
	hs.notOut(cookie)
	hs.emit(Op{Kind: HostReturn, Cookie: cookie})
}

// notOut notes that nothing waits for a function any more.
func (hs *hosts) notOut(cookie uint64) {
	delete(hs.Words, cookie)
	delete(hs.Running, cookie)
	hs.Queue = slices.DeleteFunc(hs.Queue, func(due uint64) bool { return due == cookie })
	hs.awaitNoMore()
	hs.unhold()
}

// unhold notes that no stream waits for a function, if none is out.
func (hs *hosts) unhold() {
	if hs.Outstanding() > 0 {
		return
	}
	for _, st := range hs.streams.ByID {
		st.Held = false
	}
	for _, e := range hs.streams.Events {
		e.Held = false
	}
}

// match gives due cookies to the threads that wait for them.
func (hs *hosts) match() {
	for len(hs.Queue) > 0 && len(hs.Slots) > 0 {
		hs.reply(hs.Slots[0], success, (&wire.HostNextReply{Cookie: hs.Queue[0]}).Append(nil))
		hs.ops[len(hs.ops)-1].Cookie = hs.Queue[0]
		hs.Queue, hs.Slots = hs.Queue[1:], hs.Slots[1:]
	}
}

// reached notes that a stream has reached a host function, or that its wait for a word is over.
func (hs *hosts) reached(cookie uint64) {
	if hs.Words[cookie] {
		hs.returned(cookie)
		return
	}
	if hs.Running[cookie] { // otherwise it was dropped
		hs.Queue = append(hs.Queue, cookie)
		hs.match()
	}
}

// dropHosts releases all streams that wait for host functions: the context has failed.
func (hs *hosts) dropHosts() {
	if len(hs.Running) > 0 {
		hs.emit(Op{Kind: HostDrop})
	}
	hs.Running, hs.Queue, hs.Words = nil, nil, nil
	hs.awaitNoMore()
	hs.unhold()
}

// once is the flag of a function whose work cannot be repeated in the same order.
const once = 1

func (hs *hosts) hostNext(m *Message, _ *wire.HostNext) (bool, error) {
	if len(hs.Slots) >= wire.Slots {
		return true, fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, ErrProtocol)
	}
	hs.Slots = append(hs.Slots, m.Header.Slot)
	hs.match()
	return true, nil
}

func (hs *hosts) hostDone(_ *Message, d *wire.HostDone) (bool, error) {
	if hs.Running[d.Cookie] { // otherwise the context has failed meanwhile
		hs.returned(d.Cookie)
	}
	return true, nil
}

func (hs *hosts) hostStop(*Message, *wire.HostStop) (bool, error) {
	for _, slot := range hs.Slots {
		hs.reply(slot, success, (&wire.HostNextReply{}).Append(nil))
	}
	hs.Slots = nil
	return true, nil
}

func (hs *hosts) check() error {
	for i, slot := range hs.Slots {
		if slot < 0 || slot >= wire.Slots {
			return fmt.Errorf("the program waits in slot %d", slot)
		}
		if slices.Contains(hs.Slots[:i], slot) {
			return fmt.Errorf("the program waits twice in slot %d", slot)
		}
	}
	if len(hs.Running) > 0 && len(hs.Contexts) == 0 {
		return errors.New("functions are under way where there is no context")
	}
	return nil
}

// waits has streams wait for host functions of the program, and for words in memory.
type waits struct {
	*standing
	streams *streams
	hosts   *hosts
	memory  *memory
	arrival *arrival
	copies  *copies
}

func (w *waits) register(h *handlers) {
	h[wire.OpHostFunction] = decoding(w.hostFunction)
	h[wire.OpStreamWrite] = decoding(w.streamWrite)
	h[wire.OpStreamAwait] = decoding(w.streamAwait)
}

// mayWait returns a stream that is to wait for something, under a cookie.
func (w *waits) mayWait(stream uint32, cookie uint64, of string) (*Stream, error) {
	if cookie == 0 || w.hosts.Running[cookie] {
		return nil, fmt.Errorf("cookie %d%s is taken: %w", cookie, of, ErrProtocol)
	}
	if w.hosts.Outstanding() >= maxObjects {
		return nil, tooMany("functions and words that streams wait for")
	}
	return w.streams.find(stream)
}

// wait notes that the later work of a stream waits.
func (w *waits) wait(stream uint32, st *Stream, cookie uint64) {
	w.streams.give(stream, st, w.place())
	if w.hosts.Running == nil {
		w.hosts.Running = map[uint64]bool{}
	}
	w.hosts.Running[cookie], st.Held = true, true
	w.calling = cookie
}

// hostFunction has a stream wait for a function of the program. The stream's later work must come after the
// function, so from here on it has to run on the device. Work on host copies would happen too early; or everything
// would have to wait for the function, which may itself wait for this client, since it may touch managed memory.
func (w *waits) hostFunction(_ *Message, d *wire.HostFunction) (bool, error) {
	st, err := w.mayWait(d.Stream, d.Cookie, "")
	if err != nil {
		return true, err
	}
	if !w.arrival.isReady() {
		if ok, err := w.arrival.ready(w.arrival.needs(nil)); !ok || err != nil {
			return ok, err
		}
	}
	w.wait(d.Stream, st, d.Cookie)
	w.emit(Op{Kind: Call, Place: w.place(), Stream: d.Stream, Cookie: d.Cookie, Once: d.Flags&once != 0})
	return true, nil
}

// word makes a word usable on the device. It must be valid there and not in the host copies, so
// that work of other streams sees it in the stream's order. It returns false if the message must
// wait.
func (w *waits) word(st *Stream, addr uint64, width uint32) (vmm.Range, bool, error) {
	r := vmm.Range{Addr: addr, Size: uint64(width)}
	if width != 4 && width != 8 {
		return r, true, fmt.Errorf("a word of %d bytes: %w", width, ErrProtocol)
	}
	if addr%uint64(width) != 0 {
		return r, true, fmt.Errorf("a word of %d bytes at %#x: %w", width, addr, device.ErrInvalidValue)
	}
	if ok, err := w.arrival.together(); !ok || err != nil {
		return r, ok, err
	}
	at, _, err := w.copies.where(st, r)
	if err != nil || at == later {
		return r, err != nil, err
	}
	if at == onDevice {
		return r, true, nil
	}
	ok, err := w.arrival.ready(w.copies.needed(r))
	return r, ok, err
}

func (w *waits) streamWrite(_ *Message, d *wire.StreamWrite) (bool, error) {
	st, err := w.streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	r, ok, err := w.word(st, d.Addr, d.Width)
	if !ok || err != nil {
		return ok, err
	}
	w.streams.give(d.Stream, st, w.place())
	w.emit(Op{Kind: WriteWord, Place: w.place(), Stream: d.Stream, Range: r, Word: Word{Value: d.Value}})
	w.memory.written(w.place(), r)
	return true, nil
}

// streamAwait makes a stream wait for a word. The wait counts as a host function that has not
// returned, so the device is not given back: work that the program has not sent yet may write the
// word.
func (w *waits) streamAwait(_ *Message, d *wire.StreamAwait) (bool, error) {
	if d.Compare > uint32(device.NotAll) {
		return true, fmt.Errorf("a word with comparison %d: %w", d.Compare, ErrProtocol)
	}
	st, err := w.mayWait(d.Stream, d.Cookie, " of a word")
	if err != nil {
		return true, err
	}
	r, ok, err := w.word(st, d.Addr, d.Width)
	if !ok || err != nil {
		return ok, err
	}
	if w.hosts.Words == nil {
		w.hosts.Words = map[uint64]bool{}
	}
	w.hosts.Words[d.Cookie] = true
	w.wait(d.Stream, st, d.Cookie)
	w.emit(Op{Kind: AwaitWord, Place: w.place(), Stream: d.Stream, Range: r, Word: Word{d.Value, device.Compare(d.Compare)}, Cookie: d.Cookie})
	return true, nil
}

// Outstanding is how many host functions of the program have not returned.
func (hs *hosts) Outstanding() int { return len(hs.Running) }

// Reached says that a stream has reached a host function. It may be called at any time, like
// UrgentMessage.
func (hs *hosts) Reached(cookie uint64) []Op { return hs.aside(func() { hs.reached(cookie) }) }

// WaitingSlots returns the slots in which the program waits for host functions to call.
func (hs *hosts) WaitingSlots() []int { return hs.Slots }

// Answered says in which slots the program was given a host function since the base.
func (hs *hosts) Answered(is func(slot int) bool) { hs.Slots = slices.DeleteFunc(hs.Slots, is) }

// awaitReturn notes that the current message waits for host functions to return. It returns an error
// when none has for functionPatience.
func (hs *hosts) awaitReturn() error {
	if hs.WaitBy == 0 {
		hs.WaitBy = hs.Now + functionPatience
	}
	if hs.Now >= hs.WaitBy {
		return errNoneReturns
	}
	return nil
}

// awaitNoMore notes that a function has returned, or that the message has what it waited for.
func (hs *hosts) awaitNoMore() { hs.WaitBy, hs.AskAt = 0, 0 }

// asksAgain says, growAgain after it was first called, and so on, that the message asks for memory again.
func (hs *hosts) asksAgain() bool {
	if hs.AskAt == 0 {
		hs.AskAt = hs.Now + growAgain
	} else if hs.Now >= hs.AskAt {
		hs.AskAt = 0
	}
	return hs.AskAt == 0
}
