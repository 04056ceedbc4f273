package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Header precedes each message on the ring.
type Header struct {
	Op      Op
	Slot    int    // where the reply is due; -1 for none
	Seq     uint32 // sequence number
	Data    uint64 // offset in the data arena
	Length  uint64 // bytes there
	Release uint64 // staging memory up to this position is free once the bytes were read
}

// HeaderSize is the length of a header.
const HeaderSize = 40

const opPad = 0xffff

// put writes a header for a message of size bytes, including the header.
func (h Header) put(b []byte, size int) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(size))
	le.PutUint16(b[4:], uint16(h.Op))
	le.PutUint16(b[6:], uint16(h.Slot+1))
	le.PutUint32(b[8:], h.Seq)
	le.PutUint32(b[12:], 0)
	le.PutUint64(b[16:], h.Data)
	le.PutUint64(b[24:], h.Length)
	le.PutUint64(b[32:], h.Release)
}

// AppendMessage appends a message as it stands on the ring, without the padding to a multiple of 8.
func AppendMessage(b []byte, h Header, body []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, HeaderSize)...)
	h.put(b[at:], HeaderSize+len(body))
	return append(b, body...)
}

// DecodeMessage decodes and checks a message; the body is not copied.
func DecodeMessage(b []byte) (Header, []byte, error) {
	le := binary.LittleEndian
	if len(b) < HeaderSize {
		return Header{}, nil, fmt.Errorf("a message of %d bytes is too short", len(b))
	}
	h := Header{Op: Op(le.Uint16(b[4:])), Slot: int(le.Uint16(b[6:])) - 1, Seq: le.Uint32(b[8:]),
		Data: le.Uint64(b[16:]), Length: le.Uint64(b[24:]), Release: le.Uint64(b[32:])}
	is := h.Op.info()
	switch {
	case uint64(le.Uint32(b)) != uint64(len(b)) || len(b) > MaxMessage:
		return h, nil, fmt.Errorf("%v says it has %d bytes, and has %d", h.Op, le.Uint32(b), len(b))
	case is.name == "" || is.record:
		return h, nil, fmt.Errorf("%v is none that a client may send", h.Op)
	case le.Uint32(b[12:]) != 0:
		return h, nil, fmt.Errorf("%v has a damaged header", h.Op)
	case h.Slot >= slotCount:
		return h, nil, fmt.Errorf("%v wants its answer in slot %d of %d", h.Op, h.Slot, slotCount)
	case is.call && h.Slot < 0:
		return h, nil, fmt.Errorf("%v without a place for the answer", h.Op)
	case !is.call && h.Slot >= 0 && is.data != dataOut:
		return h, nil, fmt.Errorf("%v has no answer, but a place for it", h.Op)
	case is.data != dataIn && h.Release != 0, is.data == noData && (h.Data != 0 || h.Length != 0):
		return h, nil, fmt.Errorf("%v does not use the data arena, but names a part of it", h.Op)
	}
	return h, b[HeaderSize:], nil
}

// The errors of Next that do not mean a damaged message.
var (
	ErrStopped = errors.New("stopped")                      // after Stop
	ErrWoken   = errors.New("woken")                        // once after Wake
	ErrTimeout = errors.New("no message in the time given") // no message came within the timeout
)

// Consumer reads the messages of a ring. It trusts nothing that it finds there.
type Consumer struct {
	s       *Shared
	head    uint64
	seq     uint32
	buffer  []byte
	stopped atomic.Bool
	woken   atomic.Bool
	spins   int

	release  sync.Mutex
	released uint64

	// Linger is the least time for which Next looks for the next message before it sleeps, where
	// there are several processors. It looks for longer if messages used to come within mostHabit.
	Linger   time.Duration
	habit    time.Duration // for how long looking pays, as far as is known
	lingered time.Duration // since the last message
	quiet    time.Time     // when the first wait since the last message began to linger or sleep

	// Keep is called with each message before its room is given back, and with the position after
	// it; it may be nil. The bytes are valid during the call.
	Keep func(position uint64, message []byte)
}

// Position is where the next message begins, and its sequence number.
func (c *Consumer) Position() (position uint64, seq uint32) { return c.head, c.seq }

// Resume continues where a consumer that died has stopped: after the last message that its Keep has
// stored, at that position and with the given sequence number next.
func (c *Consumer) Resume(position uint64, seq uint32) {
	c.head = max(position, atomic.LoadUint64(c.s.u64(atHead)))
	c.seq = seq
	c.released = atomic.LoadUint64(c.s.u64(atStagingHead))
	c.s.resumeNotices()
	c.advance(0)
}

// NewConsumer makes the one consumer of a ring.
func NewConsumer(s *Shared) *Consumer {
	return &Consumer{s: s, buffer: make([]byte, MaxMessage), spins: minSpins}
}

// How often a consumer polls for a message before it looks at the clock or sleeps. The number
// doubles after a short sleep or a short time of looking, which polling would have avoided, and
// halves after a long one. Every minSpins polls it yields, since the client may need this processor:
// with an eighth as many yields calls on an H200's machine now and then took 2 ms, a time slice.
const (
	minSpins = 64
	maxSpins = 1024
	aMoment  = 100 * time.Microsecond
)

// Waking a process that sleeps takes tens of microseconds, on virtual machines hundreds, and keeps
// the waker busy for some of them. So a consumer whose messages come again and again within
// mostHabit polls for twice as long as the last gap was, on machines with cores to spare
// (mostSpins). After a longer gap it polls for half as long as before, and not at all below
// leastHabit. A consumer that loses its processor to other threads for lostCore stops polling,
// since they need the processor more.
const (
	mostHabit  = 4 * time.Millisecond
	leastHabit = 50 * time.Microsecond
	lostCore   = 50 * time.Microsecond
)

// learn notes how long after the last message the next one came.
func (c *Consumer) learn(gap time.Duration) {
	switch {
	case gap < mostHabit:
		c.habit = max(c.habit, min(2*gap, mostHabit))
	case c.habit/2 >= leastHabit:
		c.habit /= 2
	default:
		c.habit = 0
	}
}

// mostSpins is maxSpins for a consumer: some 80 us where cores are free, which is longer than
// a program elsewhere takes from one call with an answer to the next.
var mostSpins = spinsFor(runtime.GOMAXPROCS(0))

func spinsFor(cores int) int {
	if cores <= 2 {
		return maxSpins
	}
	return 4 * maxSpins
}

// Pending says whether messages wait.
func (c *Consumer) Pending() bool { return atomic.LoadUint64(c.s.u64(atTail)) != c.head }

// Follows says whether the next message is there and seems to be of this kind; it has not been
// checked yet.
func (c *Consumer) Follows(op Op) bool {
	at := c.head & (c.s.geometry.Ring - 1)
	return c.Pending() && Op(binary.LittleEndian.Uint16(c.s.ring[ringAt+at+4:])) == op
}

// Soon says whether messages wait, or arrive within about a microsecond.
func (c *Consumer) Soon() bool {
	for range minSpins {
		if c.Pending() {
			return true
		}
		pause()
	}
	return false
}

// Stop makes Next return ErrStopped once there is no message, now or later. Any goroutine may call
// it.
func (c *Consumer) Stop() {
	c.stopped.Store(true)
	c.s.wake(c.s.u32(atWorkerWaits))
}

// Wake makes one call of Next return ErrWoken, now or later. Any goroutine may call it.
func (c *Consumer) Wake() {
	c.woken.Store(true)
	c.s.wake(c.s.u32(atWorkerWaits))
}

// Next waits for a message, at most for a time. It copies the message out of the ring before it
// decodes it, so that the client cannot change it afterwards, and gives the room back. The body is
// valid until the next call. Errors other than ErrStopped, ErrWoken and ErrTimeout mean that the
// client has broken the protocol.
func (c *Consumer) Next(timeout time.Duration) (Header, []byte, error) {
	for {
		tail, err := c.wait(timeout)
		if err != nil {
			return Header{}, nil, err
		}
		size, err := c.frame(tail)
		if err != nil {
			return Header{}, nil, err
		}
		if size == 0 {
			continue
		}
		at := c.head & (c.s.geometry.Ring - 1)
		message := c.buffer[:size]
		copy(message, c.s.ring[ringAt+at:])
		padded := uint64(size+7) &^ 7
		h, body, err := DecodeMessage(message)
		if err != nil {
			return h, nil, err
		}
		if h.Seq != c.seq {
			return h, nil, fmt.Errorf("%v is message %d where %d was due", h.Op, h.Seq, c.seq)
		}
		if c.Keep != nil {
			c.Keep(c.head+padded, message)
		}
		c.advance(padded)
		c.seq++
		if !c.quiet.IsZero() {
			c.learn(time.Since(c.quiet))
			c.lingered, c.quiet = 0, time.Time{}
		}
		c.s.Asked(h)
		return h, body, nil
	}
}

// frame returns the size of the message at head, or 0 for a pad message before the end of the ring.
// The client can write anything at any time, so the size is read once, and only that checked copy
// is used.
func (c *Consumer) frame(tail uint64) (int, error) {
	g := c.s.geometry
	used := tail - c.head
	if used > g.Ring || used%8 != 0 {
		return 0, fmt.Errorf("the ring is damaged: %d bytes of %d are in use", used, g.Ring)
	}
	at := c.head & (g.Ring - 1)
	if used < 8 {
		return 0, errors.New("the ring is damaged: a message without a beginning")
	}
	size := uint64(atomic.LoadUint32(c.s.u32(int(ringAt + at))))
	op := binary.LittleEndian.Uint16(c.s.ring[ringAt+at+4:])
	// A pad is never the whole ring, so a client cannot keep Next busy forever with pads.
	if op == opPad && at > 0 && size == g.Ring-at && size <= used {
		c.advance(size)
		return 0, nil
	}
	if size < HeaderSize || size > MaxMessage || (size+7)&^7 > used || at+size > g.Ring {
		return 0, fmt.Errorf("the ring is damaged: a message of %d bytes, where %d are in use", size, used)
	}
	return int(size), nil
}

// advance gives room back to the client.
func (c *Consumer) advance(n uint64) {
	c.head += n
	atomic.StoreUint64(c.s.u64(atHead), c.head)
	c.s.wake(c.s.u32(atClientWaits))
}

// wait returns the tail once it differs from the head. Before it sleeps it sets atWorkerWaits and
// then looks at the tail again; the client writes the tail and then looks at that word. So one of
// the two sees the other, and no wake-up is lost.
func (c *Consumer) wait(timeout time.Duration) (uint64, error) {
	tail, waits := c.s.u64(atTail), c.s.u32(atWorkerWaits)
	if c.woken.Load() && c.woken.Swap(false) { // before messages: else they could keep it waiting for ever
		return 0, ErrWoken
	}
	for i := range c.spins {
		if t := atomic.LoadUint64(tail); t != c.head {
			return t, nil
		}
		if c.woken.Load() && c.woken.Swap(false) { // what it is woken for does not wait for the last poll
			return 0, ErrWoken
		}
		if i%minSpins == minSpins-1 {
			yield()
		} else {
			pause()
		}
	}
	start := time.Now()
	if c.quiet.IsZero() {
		c.quiet = start
	}
	if most := max(c.Linger, c.habit); c.lingered < most && mostSpins > maxSpins {
		if t := c.linger(tail, start, min(most-c.lingered, timeout)); t != c.head {
			c.spun(start)
			return t, nil
		}
		c.lingered += time.Since(start)
		timeout = max(timeout-time.Since(start), time.Microsecond)
	}
	defer c.spun(start)
	for {
		atomic.StoreUint32(waits, 1)
		t := atomic.LoadUint64(tail)
		stopped, woken := c.stopped.Load(), c.woken.Swap(false)
		if t == c.head && !stopped && !woken {
			if futexWait(waits, 1, timeout) {
				continue
			}
			t = atomic.LoadUint64(tail)
		}
		atomic.StoreUint32(waits, 0)
		switch {
		case woken:
			return 0, ErrWoken
		case t != c.head:
			return t, nil
		case stopped:
			return 0, ErrStopped
		}
		return 0, ErrTimeout
	}
}

// spun adapts the number of polls after those since start were not enough.
func (c *Consumer) spun(start time.Time) {
	if time.Since(start) < aMoment {
		c.spins = min(2*c.spins, mostSpins)
	} else {
		c.spins = max(c.spins/2, minSpins)
	}
}

// linger looks for a message for a while, or until it is to return, and returns the tail.
func (c *Consumer) linger(tail *uint64, start time.Time, limit time.Duration) uint64 {
	last := start
	for i := 0; ; i++ {
		t := atomic.LoadUint64(tail)
		if t != c.head || c.stopped.Load() || c.woken.Load() {
			return t
		}
		pause()
		if i%minSpins != minSpins-1 {
			continue
		}
		yield()
		now := time.Now()
		if now.Sub(start) >= limit {
			return t
		}
		if now.Sub(last) > lostCore && c.Linger == 0 {
			c.habit = 0
			return t
		}
		last = now
	}
}

// pause takes some 20 ns.
//
//go:noinline
func pause() {
	for range 40 {
	}
}

// Release tells the client that staging memory up to a position is free again. A smaller position
// has no effect, so the positions may come in any order.
func (c *Consumer) Release(position uint64) {
	c.release.Lock()
	defer c.release.Unlock()
	if position <= c.released {
		return
	}
	c.released = position
	atomic.StoreUint64(c.s.u64(atStagingHead), position)
	c.s.wake(c.s.u32(atClientWaits))
}

// Reply answers a call. Slot -1 means that no answer is wanted.
func (s *Shared) Reply(slot int, result int32, payload []byte) {
	if slot < 0 {
		return
	}
	at := slotsAt + slot*slotSize
	*s.u32(at + slotResult) = uint32(result)
	*s.u32(at + slotLength) = uint32(copy(s.ring[at+slotAnswer:at+slotSize], payload))
	if state := s.slot(slot); stateOf(atomic.SwapUint32(state, answered(s.asked[slot].Load())|slotDone)) == slotSleeping {
		futexWake(state)
	}
}

// Asked notes which message waits for an answer in a slot. The consumer calls it for each message
// that it reads.
func (s *Shared) Asked(h Header) {
	if h.Slot >= 0 {
		s.asked[h.Slot].Store(h.Seq)
	}
}

// Asks is the sequence number of the message whose answer is due in a slot.
func (s *Shared) Asks(slot int) uint32 { return s.asked[slot].Load() }

// Answered says whether the last answer in a message's slot is the answer to that message.
func (s *Shared) Answered(h Header) bool {
	return h.Slot >= 0 && atomic.LoadUint32(s.slot(h.Slot))&^(slotStates-1) == answered(h.Seq)
}

// setState changes the state on the client's side, and keeps the worker's part of the word.
func (s *Shared) setState(slot int, state uint32) {
	word := s.slot(slot)
	atomic.StoreUint32(word, atomic.LoadUint32(word)&^(slotStates-1)|state)
}

// Producer sends messages: the client's side of a ring, as the C library implements it. Its methods
// may be called concurrently. mu protects tail, seq and staging, and makes the order on the ring
// that of the sequence numbers.
type Producer struct {
	s *Shared

	// Waits is called before a method sleeps because the ring, the slots or the staging memory are
	// full; it may be nil.
	Waits func()

	mu      sync.Mutex
	tail    uint64
	seq     uint32
	staging uint64
	free    chan int

	// Messages with data must be sent in the order in which they took staging memory, since the
	// Release of each frees all memory before its own. Each has a turn.
	turns  uint64 // turns that were taken
	turn   uint64 // whose turn it is
	turned *sync.Cond
	quit   bool
}

// NewProducer makes the one producer of a ring.
func NewProducer(s *Shared) *Producer {
	p := &Producer{s: s, free: make(chan int, slotCount)}
	p.turned = sync.NewCond(&p.mu)
	for i := range slotCount {
		p.free <- i
	}
	return p
}

// ClosedError says why the client was ended.
type ClosedError struct{ Reason string }

func (e *ClosedError) Error() string { return e.Reason }

// Send sends a message, and fills in the header's Seq. It waits while the ring is full.
func (p *Producer) Send(h Header, body []byte) error { return p.SendNoted(h, body, nil) }

// SendNoted is Send that passes the message's number to note before the worker can read the message.
func (p *Producer) SendNoted(h Header, body []byte, note func(seq uint32)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.send(h, body, note)
}

func (p *Producer) send(h Header, body []byte, note func(seq uint32)) error {
	size := uint64(HeaderSize + len(body))
	if size > MaxMessage {
		return fmt.Errorf("%v of %d bytes is too long", h.Op, size)
	}
	g := p.s.geometry
	at := p.tail & (g.Ring - 1)
	if at+size > g.Ring {
		if err := p.room(g.Ring - at); err != nil {
			return err
		}
		mark := p.s.ring[ringAt+at:]
		binary.LittleEndian.PutUint32(mark, uint32(g.Ring-at))
		binary.LittleEndian.PutUint16(mark[4:], opPad)
		p.publish(g.Ring - at)
		at = 0
	}
	padded := (size + 7) &^ 7
	if err := p.room(padded); err != nil {
		return err
	}
	h.Seq = p.seq
	p.seq++
	if note != nil {
		note(h.Seq)
	}
	to := p.s.ring[ringAt+at:]
	h.put(to, int(size))
	copy(to[HeaderSize:], body)
	p.publish(padded)
	return nil
}

func (p *Producer) publish(n uint64) {
	p.tail += n
	atomic.StoreUint64(p.s.u64(atTail), p.tail)
	p.s.wake(p.s.u32(atWorkerWaits))
}

// room waits until the ring has room for n bytes.
func (p *Producer) room(n uint64) error {
	return p.until(func() bool { return p.tail+n-atomic.LoadUint64(p.s.u64(atHead)) <= p.s.geometry.Ring })
}

// until waits for something that the worker does. It sets the client's waiting word before it
// checks again, and the worker makes its change before it reads that word, so no wake-up is lost;
// the timeout is for a client that is closed.
func (p *Producer) until(done func() bool) error {
	waits := p.s.u32(atClientWaits)
	if p.Waits != nil && !done() {
		p.Waits()
	}
	for !done() {
		if reason, closed := p.s.Closed(); closed {
			return &ClosedError{reason}
		}
		atomic.StoreUint32(waits, 1)
		if done() {
			break
		}
		futexWait(waits, 1, 100*time.Millisecond)
	}
	return nil
}

// SendData sends a message with data for the worker, through staging memory.
func (p *Producer) SendData(h Header, body, data []byte) error {
	return p.SendFilled(h, body, uint64(len(data)), func(to []byte) error {
		copy(to, data)
		return nil
	})
}

// SendFilled is SendData for n bytes that fill writes to their place. If fill fails, nothing is
// sent.
func (p *Producer) SendFilled(h Header, body []byte, n uint64, fill func([]byte) error) error {
	size := p.s.geometry.Staging
	switch {
	case n > size/2:
		return fmt.Errorf("%v with %d bytes of data: send pieces of at most %d", h.Op, n, size/2)
	case HeaderSize+len(body) > MaxMessage:
		return fmt.Errorf("%v of %d bytes is too long", h.Op, HeaderSize+len(body))
	}
	at, err := p.stage(n)
	defer p.mu.Unlock()
	if err != nil {
		return err
	}
	staged := p.take(at, n)
	if err := fill(staged.Bytes); err != nil {
		return err
	}
	staged.turn, p.turns, p.staging = p.turns, p.turns+1, at+n
	return p.sendStaged(h, body, staged)
}

// Staged is staging memory for a message that was not sent yet.
type Staged struct {
	Bytes  []byte
	Offset uint64 // in the arena
	end    uint64 // the position behind it
	turn   uint64
}

func (p *Producer) take(at, n uint64) Staged {
	offset := at % p.s.geometry.Staging
	return Staged{Bytes: p.s.arena[offset : offset+n : offset+n], Offset: offset, end: at + n}
}

// Stage takes staging memory for n bytes of a message, which SendStaged sends when the bytes are
// there. Other messages with data wait until then if they took their memory later; Quit ends that.
func (p *Producer) Stage(n uint64) (Staged, error) {
	if most := p.s.geometry.Staging / 2; n > most {
		return Staged{}, fmt.Errorf("%d bytes of data: send pieces of at most %d", n, most)
	}
	at, err := p.stage(n)
	defer p.mu.Unlock()
	if err != nil {
		return Staged{}, err
	}
	staged := p.take(at, n)
	staged.turn, p.turns, p.staging = p.turns, p.turns+1, at+n
	return staged, nil
}

// SendStaged sends a message whose data are in memory that Stage took.
func (p *Producer) SendStaged(h Header, body []byte, staged Staged) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sendStaged(h, body, staged)
}

// sendStaged waits for the turn of a message with data, and sends it. The caller must hold mu, which
// is released meanwhile.
func (p *Producer) sendStaged(h Header, body []byte, staged Staged) error {
	for p.turn != staged.turn && !p.quit {
		p.turned.Wait()
	}
	if p.quit {
		reason, _ := p.s.Closed()
		return &ClosedError{reason}
	}
	h.Data, h.Length, h.Release = staged.Offset, uint64(len(staged.Bytes)), staged.end
	err := p.send(h, body, nil)
	p.turn++
	p.turned.Broadcast()
	return err
}

// Quit ends all waits for staged messages that will not be sent. The client must have been closed.
func (p *Producer) Quit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quit = true
	p.turned.Broadcast()
}

// stage waits for staging memory and returns its position, with the lock held (also with an error).
// It waits without the lock, since other goroutines have messages to send that need no staging
// memory.
func (p *Producer) stage(n uint64) (at uint64, err error) {
	size := p.s.geometry.Staging
	for {
		p.mu.Lock()
		if at = p.staging; at%size+n > size {
			at += size - at%size
		}
		// A signed comparison: while this goroutine waited, others may have taken staging
		// memory behind at and the worker released it, so that the head is beyond at + n.
		room := func() bool { return int64(at+n-atomic.LoadUint64(p.s.u64(atStagingHead))) <= int64(size) }
		if room() {
			return at, nil
		}
		p.mu.Unlock()
		if err := p.until(room); err != nil {
			p.mu.Lock()
			return at, err
		}
	}
}

// Pending is a call whose answer was not taken yet.
type Pending struct {
	p    *Producer
	slot int
}

// Start sends a call and does not wait for its answer. It waits while all slots are taken.
func (p *Producer) Start(h Header, body []byte) (*Pending, error) {
	slot, err := p.freeSlot()
	if err != nil {
		return nil, err
	}
	h.Slot = slot
	p.s.setState(slot, slotPending)
	if err := p.Send(h, body); err != nil {
		p.s.setState(slot, slotFree)
		p.free <- slot
		return nil, err
	}
	return &Pending{p, slot}, nil
}

// FreeSlots is how many more calls can wait for an answer.
func (p *Producer) FreeSlots() int { return len(p.free) }

func (p *Producer) freeSlot() (int, error) {
	select {
	case slot := <-p.free:
		return slot, nil
	default:
	}
	if p.Waits != nil {
		p.Waits()
	}
	for {
		select {
		case slot := <-p.free:
			return slot, nil
		case <-time.After(100 * time.Millisecond):
			if reason, closed := p.s.Closed(); closed {
				return 0, &ClosedError{reason}
			}
		}
	}
}

// Done says whether the answer is there.
func (c *Pending) Done() bool { return stateOf(atomic.LoadUint32(c.p.s.slot(c.slot))) == slotDone }

// doze sleeps until the answer is there, at most for timeout.
func (c *Pending) doze(timeout time.Duration) {
	state := c.p.s.slot(c.slot)
	word := atomic.LoadUint32(state)
	asleep := word | slotSleeping
	if stateOf(word) == slotPending && !atomic.CompareAndSwapUint32(state, word, asleep) {
		return
	}
	if stateOf(word) != slotDone {
		futexWait(state, asleep, timeout)
	}
}

// WaitDone waits until the answer is there, at most about timeout, and does not take it.
func (c *Pending) WaitDone(timeout time.Duration) bool {
	c.doze(timeout)
	return c.Done()
}

// Wait waits for the answer and takes it. It must be called once.
func (c *Pending) Wait() (result int32, payload []byte, err error) {
	for i := range maxSpins {
		if c.Done() {
			return c.take()
		}
		if i%minSpins == minSpins-1 {
			yield()
		} else {
			pause()
		}
	}
	for !c.Done() {
		// The answer may have come just before the end.
		if reason, closed := c.p.s.Closed(); closed && !c.Done() {
			return 0, nil, &ClosedError{reason}
		}
		c.doze(100 * time.Millisecond)
	}
	return c.take()
}

func (c *Pending) take() (int32, []byte, error) {
	s, at := c.p.s, slotsAt+c.slot*slotSize
	result := int32(*s.u32(at + slotResult))
	payload := make([]byte, min(*s.u32(at + slotLength), MaxReply))
	copy(payload, s.ring[at+slotAnswer:])
	s.setState(c.slot, slotFree)
	c.p.free <- c.slot
	return result, payload, nil
}

// Call sends a call and waits for its answer; reply may be nil.
func (p *Producer) Call(m Message, reply interface{ Decode([]byte) error }) (result int32, err error) {
	pending, err := p.Start(Header{Op: m.Op()}, m.Append(nil))
	if err != nil {
		return 0, err
	}
	result, payload, err := pending.Wait()
	if err != nil || result != 0 || reply == nil {
		return result, err
	}
	return 0, reply.Decode(payload)
}

// Post sends a message without an answer.
func (p *Producer) Post(m Message) error { return p.Send(Header{Op: m.Op(), Slot: -1}, m.Append(nil)) }
