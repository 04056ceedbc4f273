package door

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Resumable is a connection that outlives its links, the TCP connections that carry it, one at a
// time. When a link breaks, one side dials another, and both go on where they were: each byte is
// delivered once, in order. Neither the protocol above nor TLS below knows of it.
//
// The bytes travel in segments: u32 length, u32 kind, u64 offset of the first byte in the stream,
// u64 how many bytes of the other direction were consumed, then the bytes; all little-endian. A
// sender keeps its segments until the other side has consumed them, and sends them again on the next
// link from the byte that the other side wants. It keeps at most mostKept bytes, and waits when it
// has as many: so there is a window for each direction, and a receiver can always take what arrives.
//
// Both sides send a segment at least every quarter of Silence, so a side that hears nothing for
// Silence knows that the link is dead, even if no packet says so. For that somebody must always
// read: a goroutine does (pump) while the caller does not.
//
// One goroutine may read and one may write. Locks are taken in this order: wmu or rmu, then mu.
type Resumable struct {
	settings Resuming
	idle     Idle

	wmu     gate      // held while a link is written to; protects kept but for the open segment, and allowed
	kept              // the writer's
	allowed time.Time // when the link's deadline for writing was set

	incoming

	wanted       atomic.Int32 // Read waits for pump to stop
	heard, spoke atomic.Bool  // since the last tick
	kick         chan struct{}
	done         chan struct{}
	parting      sync.WaitGroup // what Close has left to do

	mu      sync.Mutex
	change  *sync.Cond
	link    net.Conn      // nil while there is none
	muted   bool          // it cannot be written to
	lost    chan struct{} // closed when link is given up
	links   int           // how many there were
	err     error         // why it has ended
	until   time.Time     // while it waits for a link that the other side dials: for how long
	hurried bool          // no further link
	once    bool          // the other side does not dial again
	starved bool          // the writer waits for room
	counts
	pending []byte // bytes that have arrived and were not consumed
}

// incoming is what is read from a link.
type incoming struct {
	rmu  gate // held while a link is read; protects the others
	in   *bufio.Reader
	from net.Conn // what in reads
	left int      // bytes of the segment that were not read
	head [segmentHead]byte
}

// counts are numbers of bytes since the connection began.
type counts struct {
	written  uint64 // in sealed segments
	taken    uint64 // of these, consumed by the other side
	arrived  uint64 // that links have brought
	consumed uint64 // of these, by Read
	told     uint64 // of these, that the other side was told of
}

// Resuming says when a link is dead, and what follows.
type Resuming struct {
	// Silence is how long the other side may send nothing.
	Silence time.Duration
	// Window is how long the connection waits for another link; 0 if the first break ends it.
	Window time.Duration
	// Redial dials another link, on which it tells the other side how many bytes have arrived, and
	// learns the same. With last it only says that the connection has ended. It returns an *Ended if
	// the other side has ended the connection. The side without Redial waits for the other (Resume).
	Redial func(ctx context.Context, arrived uint64, last bool) (link net.Conn, theirs uint64, err error)
	// Cut is called when a link breaks and the connection waits for another, GivenUp when none has come
	// in time; nil: nobody is told. They must not use the connection, whose lock is held.
	Cut     func(why error)
	GivenUp func()
}

// Ended is the error of a connection that the other side does not resume.
type Ended struct{ Reason string }

func (e *Ended) Error() string { return e.Reason }

// ErrSilent says that nothing was heard from the other side for too long.
var ErrSilent = errors.New("nothing was heard from the other side: it hangs, or the network drops what is sent")

// errReplaced ends a link for which there is a newer one.
var errReplaced = fmt.Errorf("the other side has made a new connection: %w", net.ErrClosed)

const (
	segmentHead = 24
	blockSize   = 64 << 10
	mostBlocks  = 16
	mostKept    = mostBlocks * blockSize
	tellEvery   = 2 * blockSize // bytes that are consumed before the other side is told
	leastRoom   = 512           // in a block, for another segment

	kindData = 0 // a segment without bytes says that its sender is there
	kindOnce = 1 // its sender does not dial again if the link breaks
	kindEnd  = 2 // its sender has ended the connection

	firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	redialTime               = 10 * time.Second
	partTime                 = 3 * time.Second // for the end
	// refusedTime is how long nothing may listen where the other side was: then the process that had
	// its part of the connection has ended.
	refusedTime = 2 * time.Second
)

// gate is a lock that is held for as long as a link takes.
type gate chan struct{}

func (g gate) lock()   { g <- struct{}{} }
func (g gate) unlock() { <-g }
func (g gate) tryLock() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

// NewResumable continues a connection that both sides have set up. Early is what was read from it
// already.
func NewResumable(link net.Conn, early []byte, idle Idle, settings Resuming) *Resumable {
	r := &Resumable{
		settings: settings, idle: idle, kept: newKept(), link: link, lost: make(chan struct{}), links: 1,
		wmu: make(gate, 1), incoming: incoming{rmu: make(gate, 1), from: link, in: bufio.NewReaderSize(link, 4<<10)}, kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if len(early) > 0 {
		r.in.Reset(io.MultiReader(bytes.NewReader(bytes.Clone(early)), link))
	}
	r.change = sync.NewCond(&r.mu)
	WhileIdle(link, idle)
	go r.keep()
	return r
}

func (s Resuming) mayRedial() bool { return s.Redial != nil && s.Window > 0 }

// Kept is how many bytes are kept to be sent again, or to be read, and whether there is no link.
func (r *Resumable) Kept() (bytes uint64, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written - r.taken + uint64(len(r.pending)), r.link == nil
}

// Err is why the connection has ended; nil while it has not.
func (r *Resumable) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Done is closed when the connection has ended. Bytes that arrived before can still be read.
func (r *Resumable) Done() <-chan struct{} { return r.done }

// --- writing -------------------------------------------------------------------

// Write takes bytes, which Flush sends. It waits while as many are kept as may be. It holds no lock
// while it reads b, which may be memory without a page.
func (r *Resumable) Write(b []byte) (int, error) {
	for done := 0; ; {
		n := copy(r.current.bytes[r.fill:], b[done:])
		r.fill += n
		if done += n; done == len(b) && r.fill < blockSize {
			return done, nil
		}
		if err := r.nextBlock(); err != nil {
			return done, err
		}
		if done == len(b) {
			return done, nil
		}
	}
}

// Flush sends what was written. Without a link it is sent later.
func (r *Resumable) Flush() error {
	if r.fill == r.current.sealed+segmentHead {
		return r.Err()
	}
	if r.fill > blockSize-leastRoom {
		return r.nextBlock()
	}
	r.wmu.lock()
	defer r.wmu.unlock()
	r.seal()
	r.fill = r.current.sealed + segmentHead
	return r.send()
}

// nextBlock seals and sends the current block, and takes another.
func (r *Resumable) nextBlock() error {
	r.wmu.lock()
	defer r.wmu.unlock()
	r.seal()
	if err := r.send(); err != nil {
		return err
	}
	for end := uint64(0); ; end = r.blocks[0].end {
		r.wmu.unlock()
		taken, err := r.awaitTaken(end)
		r.wmu.lock()
		if err != nil {
			return err
		}
		if r.reclaim(taken); len(r.blocks) < mostBlocks {
			r.open()
			return nil
		}
	}
}

// awaitTaken waits until the other side has consumed so many bytes. It returns how many it has.
func (r *Resumable) awaitTaken(end uint64) (taken uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.err == nil && r.taken < end {
		r.starved = true
		r.wake()
		r.change.Wait()
	}
	r.starved = false
	return r.taken, r.err
}

// seal makes a segment of what was written. The caller holds wmu.
func (r *Resumable) seal() {
	n := r.fill - r.current.sealed - segmentHead
	if n <= 0 {
		return
	}
	r.mu.Lock()
	putSegment(r.current.bytes[r.current.sealed:], n, kindData, r.written, r.consumed)
	r.told = r.consumed
	r.written += uint64(n)
	r.current.sealed, r.current.end = r.fill, r.written
	r.mu.Unlock()
}

// send writes sealed segments to the link, if there is one. The caller holds wmu.
func (r *Resumable) send() error {
	for {
		link, err := r.toWrite()
		if err != nil || link == nil {
			return err
		}
		if r.at >= len(r.blocks) {
			return nil
		}
		b := r.blocks[r.at]
		if r.off < b.sealed {
			if err := r.write(link, b.bytes[r.off:b.sealed]); err != nil {
				r.mute(link)
				continue
			}
			r.off = b.sealed
		}
		if r.at == len(r.blocks)-1 {
			return nil
		}
		r.at, r.off = r.at+1, 0
	}
}

// write writes to a link, with a deadline. The caller holds wmu.
func (r *Resumable) write(link net.Conn, b []byte) error {
	// To set a deadline takes longer than to encrypt a short segment.
	if now := time.Now(); now.Sub(r.allowed) > r.settings.Silence/16 {
		r.mu.Lock()
		if !r.hurried {
			r.allowed = now
			_ = link.SetWriteDeadline(now.Add(r.settings.Silence))
		}
		r.mu.Unlock()
	}
	r.spoke.Store(true)
	_, err := link.Write(b)
	return err
}

// toWrite is the link that can be written to; nil if there is none.
func (r *Resumable) toWrite() (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.muted {
		return nil, r.err
	}
	return r.link, r.err
}

// mute notes that a link takes nothing any more. It may still bring what the other side has sent
// before it closed the link, so it is read to its end.
func (r *Resumable) mute(link net.Conn) {
	r.mu.Lock()
	if r.link == link {
		r.muted = true
		_ = link.SetReadDeadline(time.Now().Add(partTime))
	}
	r.mu.Unlock()
	r.Pump()
}

// say writes a segment without bytes. The caller holds wmu.
func (r *Resumable) say(link net.Conn, kind uint32) error {
	var b [segmentHead]byte
	r.mu.Lock()
	// Sealed segments may be unsent, so this offset says nothing.
	putSegment(b[:], 0, kind, 0, r.consumed)
	r.told = r.consumed
	r.mu.Unlock()
	return r.write(link, b[:])
}

// --- reading -------------------------------------------------------------------

// Read reads bytes. While there is no link it waits for one.
func (r *Resumable) Read(b []byte) (int, error) {
	for {
		n, link, err := r.takePending(b)
		if n > 0 || err != nil {
			return n, err
		}
		if !r.rmu.tryLock() { // pump has it
			r.wanted.Add(1)
			if r.idle != nil {
				r.idle.Sleep()
			}
			r.rmu.lock()
			r.wanted.Add(-1)
			r.rmu.unlock()
			continue
		}
		n, err = r.readFrom(link, b, true)
		r.rmu.unlock()
		if err != nil {
			r.lose(link, err)
		}
		if n > 0 {
			return n, nil
		}
	}
}

// takePending returns bytes that are there, or the link that brings more.
func (r *Resumable) takePending(b []byte) (n int, link net.Conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case len(r.pending) > 0 && !errors.Is(r.err, net.ErrClosed):
			n = copy(b, r.pending)
			if r.pending = r.pending[n:]; len(r.pending) == 0 {
				r.pending = nil
			}
			r.consume(n)
			return n, nil, nil
		case r.err != nil:
			return 0, nil, r.err
		case r.link != nil:
			return 0, r.link, nil
		}
		r.change.Wait()
	}
}

// consume counts bytes that Read returns. The caller holds mu.
func (r *Resumable) consume(n int) {
	r.consumed += uint64(n)
	if r.consumed-r.told >= tellEvery || r.starved {
		r.wake()
	}
}

func (r *Resumable) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// readFrom reads bytes of a segment from a link; for Read, or for later. It returns none of a segment
// that has none. The caller holds rmu.
func (r *Resumable) readFrom(link net.Conn, b []byte, now bool) (int, error) {
	if r.from != link {
		r.in.Reset(link)
		r.from, r.left = link, 0
	}
	if r.left == 0 {
		if err := r.readHead(link); err != nil || r.left == 0 {
			return 0, err
		}
	}
	n, err := r.in.Read(b[:min(len(b), r.left)])
	if n == 0 {
		return 0, err
	}
	r.heard.Store(true)
	r.left -= n
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != link { // the next one brings these bytes again
		return 0, errReplaced
	}
	r.arrived += uint64(n)
	if now {
		r.consume(n)
	} else {
		r.pending = append(r.pending, b[:n]...)
	}
	return n, nil
}

// readHead reads the head of a segment, and what the segment brings a second time.
func (r *Resumable) readHead(link net.Conn) error {
	if _, err := io.ReadFull(r.in, r.head[:]); err != nil {
		return err
	}
	r.heard.Store(true)
	le := binary.LittleEndian
	length, kind := int(le.Uint32(r.head[:])), le.Uint32(r.head[4:])
	offset, taken := le.Uint64(r.head[8:]), le.Uint64(r.head[16:])
	again, err := r.hear(link, length, kind, offset, taken)
	if err != nil {
		return err
	}
	if _, err := r.in.Discard(again); err != nil {
		return err
	}
	r.left = length - again
	return nil
}

// ErrSegment says that the other side sent what it must not.
var ErrSegment = errors.New("a damaged segment")

// hear notes what the head of a segment says. It returns how many of its bytes were there before.
func (r *Resumable) hear(link net.Conn, length int, kind uint32, offset, taken uint64) (again int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != link {
		return 0, errReplaced
	}
	ahead := length > 0 && (offset > r.arrived || offset+uint64(length) > r.consumed+mostKept)
	if length > blockSize || kind > kindEnd || kind != kindData && length > 0 || taken > r.written || ahead {
		r.end(fmt.Errorf("%w: %d bytes at %d of kind %d, %d consumed", ErrSegment, length, offset, kind, taken))
		return 0, r.err
	}
	if taken > r.taken {
		r.taken = taken
		r.change.Broadcast()
	}
	switch kind {
	case kindOnce:
		r.once = true
	case kindEnd:
		r.end(io.EOF)
		return 0, r.err
	}
	return int(min(uint64(length), r.arrived-min(offset, r.arrived))), nil
}

// Pump has somebody read the link while the caller does not: it must be known whether the other side
// is there.
func (r *Resumable) Pump() {
	if r.rmu.tryLock() {
		go r.pump()
	}
}

func (r *Resumable) pump() {
	defer r.rmu.unlock()
	link, _, err := r.now()
	if link == nil || err != nil {
		return
	}
	WhileIdle(link, nil) // what is idle is not Read
	defer WhileIdle(link, r.idle)
	b := make([]byte, 16<<10)
	for r.wanted.Load() == 0 {
		if _, err := r.readFrom(link, b, false); err != nil {
			r.lose(link, err)
			return
		}
	}
}

// --- links ---------------------------------------------------------------------

// now is the link at present; nil if there is none.
func (r *Resumable) now() (link net.Conn, lost <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link, r.lost, r.err
}

// keep sends what says that this side is there, and notices when the other is not.
func (r *Resumable) keep() {
	tick := time.NewTicker(r.settings.Silence / 4)
	defer tick.Stop()
	last, seen := time.Now(), 0
	if !r.settings.mayRedial() {
		r.tell(kindOnce)
	}
	for {
		select {
		case <-r.done:
			return
		case <-r.kick:
			r.tell(kindData)
			r.mu.Lock()
			starved := r.starved
			r.mu.Unlock()
			if starved { // what it waits for may be behind bytes that nobody reads
				r.Pump()
			}
			continue
		case <-tick.C:
		}
		r.mu.Lock()
		link, links := r.link, r.links
		r.mu.Unlock()
		switch now := time.Now(); {
		case r.heard.Swap(false) || link == nil || links != seen:
			last, seen = now, links
		case now.Sub(last) >= r.settings.Silence:
			r.lose(link, ErrSilent)
			continue
		}
		r.Pump()
		if !r.spoke.Swap(false) {
			r.tell(kindData)
		}
	}
}

// tell writes a segment without bytes to the link, if there is one.
func (r *Resumable) tell(kind uint32) {
	r.wmu.lock()
	defer r.wmu.unlock()
	link, _ := r.toWrite()
	if link == nil {
		return
	}
	if err := r.say(link, kind); err != nil {
		r.mute(link)
	}
}

// lose gives a link up. The connection waits for another, or ends.
func (r *Resumable) lose(link net.Conn, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != link || r.err != nil {
		return
	}
	r.drop()
	switch number := r.links; {
	case r.hurried || r.settings.Window == 0 || r.settings.Redial == nil && r.once:
		r.end(why)
	case r.settings.Redial != nil:
		go r.redial(why)
	default:
		r.until = time.Now().Add(r.settings.Window)
		if r.settings.Cut != nil {
			r.settings.Cut(why)
		}
		time.AfterFunc(r.settings.Window, func() { r.giveUp(number, why) })
	}
}

// giveUp ends the connection unless there was another link since the given one broke.
func (r *Resumable) giveUp(number int, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil || r.links != number || r.err != nil {
		return
	}
	if r.settings.GivenUp != nil {
		r.settings.GivenUp()
	}
	r.end(cutFor(r.settings.Window, why))
}

// Left is how long the other side may still dial another link; false if it need not.
func (r *Resumable) Left() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil || r.err != nil || r.until.IsZero() {
		return 0, false
	}
	return max(0, time.Until(r.until)), true
}

// drop hangs the link up. The caller holds mu.
func (r *Resumable) drop() {
	hangUp(r.link)
	close(r.lost)
	r.link = nil
	r.change.Broadcast()
}

func cutFor(window time.Duration, why error) error {
	return fmt.Errorf("%w; it could not be made again within %v", why, window)
}

// hangUp closes a connection without the closing handshake of TLS, which could block.
func hangUp(conn net.Conn) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	_ = conn.Close()
}

// end ends the connection. The caller holds mu.
func (r *Resumable) end(why error) {
	if r.err != nil {
		return
	}
	r.err = why
	close(r.done)
	if r.link != nil {
		r.drop()
	}
	r.change.Broadcast()
}

// redial dials until there is a link, or the time is over.
func (r *Resumable) redial(why error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.settings.Window)
	defer cancel()
	go func() {
		select {
		case <-r.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	var refused time.Time // since when nothing listens
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := r.dialOnce(ctx)
		var ended *Ended
		switch {
		case err == nil:
			return
		case errors.As(err, &ended):
			r.stop(err)
			return
		case !errors.Is(err, syscall.ECONNREFUSED):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) >= refusedTime:
			r.stop(fmt.Errorf("%w; then: %w", why, err))
			return
		}
		select {
		case <-ctx.Done():
			r.stop(cutFor(r.settings.Window, why))
			return
		case <-time.After(pause):
		}
	}
}

func (r *Resumable) dialOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redialTime)
	defer cancel()
	r.mu.Lock()
	arrived := r.arrived // nothing arrives without a link
	r.mu.Unlock()
	link, theirs, err := r.settings.Redial(ctx, arrived, false)
	if err != nil {
		return err
	}
	_, err = r.install(link, theirs)
	return err
}

func (r *Resumable) stop(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(why)
}

// Resume goes on with a link that the other side has dialled, and which theirs bytes have reached.
// Answer tells the other side how many have arrived here. The link is in use until lost is closed. A
// link that the other side has given up may come behind a newer one: it is refused if the newer one has
// brought more.
func (r *Resumable) Resume(link net.Conn, theirs uint64, answer func(arrived uint64) error) (lost <-chan struct{}, err error) {
	r.mu.Lock()
	old, late := r.link, theirs < r.taken
	r.mu.Unlock()
	if late {
		return nil, errReplaced
	}
	if old != nil {
		r.lose(old, errReplaced)
	}
	r.mu.Lock()
	arrived, number, err := r.arrived, r.links, r.err
	r.mu.Unlock()
	if err == nil {
		err = answer(arrived)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	late = r.links != number
	r.mu.Unlock()
	if late {
		return nil, errReplaced
	}
	return r.install(link, theirs)
}

// install makes a link that of the connection, and sends what the other side has not got.
func (r *Resumable) install(link net.Conn, theirs uint64) (lost <-chan struct{}, err error) {
	r.wmu.lock()
	defer r.wmu.unlock()
	r.mu.Lock()
	switch {
	case r.err != nil:
		err = r.err
	case r.link != nil, r.settings.Redial == nil && theirs < r.taken:
		err = errReplaced
	case theirs > r.written || theirs < r.taken:
		err = fmt.Errorf("%w: %d bytes are said to have come of %d to %d", ErrSegment, theirs, r.taken, r.written)
		r.end(err)
	}
	if err != nil {
		r.mu.Unlock()
		hangUp(link)
		return nil, err
	}
	WhileIdle(link, r.idle)
	r.link, r.lost, r.muted = link, make(chan struct{}), false
	lost = r.lost
	r.links++
	r.change.Broadcast()
	r.mu.Unlock()
	r.allowed = time.Time{}
	r.at, r.off = r.find(theirs)
	return lost, r.send()
}

// --- the end -------------------------------------------------------------------

// Hurry sets a final deadline for all further writes together. There will be no other link.
func (r *Resumable) Hurry(left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hurried = true
	switch {
	case r.link != nil:
		_ = r.link.SetWriteDeadline(time.Now().Add(left))
	case r.err == nil:
		r.end(net.ErrClosed)
	}
}

// Close ends the connection, and tells the other side so. It waits for neither reader nor writer:
// what is left to do then Wait waits for.
func (r *Resumable) Close() error {
	r.mu.Lock()
	link, lost, arrived, ended := r.link, r.lost, r.arrived, r.err != nil
	if ended {
		r.mu.Unlock()
		return nil
	}
	r.link, r.hurried = nil, true // nobody else uses it
	r.end(net.ErrClosed)
	r.mu.Unlock()
	if link != nil {
		_ = link.SetDeadline(time.Now().Add(partTime)) // ends reads and writes in progress soon
	}
	r.parting.Go(func() {
		r.part(link, arrived)
		if link != nil {
			close(lost)
		}
	})
	return nil
}

// Wait waits until the other side was told that the connection has ended, or cannot be.
func (r *Resumable) Wait() { r.parting.Wait() }

// part tells the other side that the connection has ended.
func (r *Resumable) part(link net.Conn, arrived uint64) {
	if link != nil {
		defer hangUp(link)
		r.wmu.lock() // a write in progress ends by its deadline
		err := r.say(link, kindEnd)
		r.wmu.unlock()
		if err == nil {
			// What is still arriving must be read: if it were left unread, closing would send a
			// reset, and that could overtake the end.
			drain(link)
			return
		}
		hangUp(link)
	}
	if r.settings.mayRedial() {
		ctx, cancel := context.WithTimeout(context.Background(), partTime)
		defer cancel()
		if link, _, err := r.settings.Redial(ctx, arrived, true); err == nil {
			hangUp(link)
		}
	}
}

// drain reads what arrives until the other side closes the link, or does the same.
func drain(link net.Conn) {
	if over, ok := link.(interface{ NetConn() net.Conn }); ok {
		link = over.NetConn()
	}
	if half, ok := link.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, link)
}
