// Package lanes carries bulk data between two machines over several connections beside the one with
// the messages, since encrypting one connection keeps only one core busy.
//
// The sender cuts data into pieces, and each piece takes the next free lane. A parcel is the data
// of one Send. Both sides count parcels, and messages on the main connection say when one is due.
// So the receiver knows where the bytes of each piece belong, even if pieces of different parcels
// overtake each other. Several parcels may be due at a time, so that no lane waits at the end of
// one. A piece of a parcel that is not due yet waits in its lane, one per lane.
//
// Numbers are little-endian. A piece is u64 parcel, u64 offset in it, u32 length, u32 how many pieces
// of this lane the sender has received, and the bytes. The offset is a multiple of 16 KiB: the receiver
// remembers where the pieces of a parcel begin, and a peer could make them single bytes. A piece of no
// bytes only says that its sender is there, and what it has received; each side sends one if it has had
// nothing else to send for a while.
//
// A lane may break at any time. Its pieces that were not received are sent again over the others, or
// over those that replace it. So a piece may arrive twice, and the second is ignored. On each lane the
// numbers of parcels only grow, so no piece waits behind one that is not due before it has arrived:
// a lane whose pieces are all of later parcels leaves what a broken one had to a new one.
//
// The package knows nothing of messages, of devices, or of who may connect.
package lanes

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// Piece is how many bytes a piece may have.
	Piece = 256 << 10
	// least is how many bytes are worth another lane.
	least = 32 << 10
	// Worth is how many bytes are worth a parcel.
	Worth = 128 << 10
	// Most is how many lanes there may be.
	Most = 8

	head   = 24
	record = 16 << 10 // parts of a parcel are whole records of TLS
	queued = 4        // pieces of each lane that wait to be sent

	mostUntaken = 64 // pieces of a lane that were sent, and not received as far as is known
	mostBeats   = 8  // for which a lane waits until a piece is due
	tellEvery   = 8  // pieces that a lane receives before it says so, unless a parcel is complete
)

// Part is how many bytes of a long copy make a parcel, if parcels have at least from bytes: the
// device copies one part while the next is on its way.
func Part(from uint64) uint64 { return 32 * from }

// Conn is a lane, such as door.Lane, whose Read fails when the other side is silent for too long.
type Conn interface {
	io.Reader
	// WriteBoth writes the head of a piece and its bytes.
	WriteBoth(head, b []byte) error
	// HangUp ends the connection without waiting, also for goroutines that read or write it.
	HangUp()
}

// ErrClosed is the error of lanes that were closed.
var ErrClosed = errors.New("the lanes are closed")

// Lanes are the lanes of one client. Parcels are numbered from 0, for each direction. mu protects
// everything except the fields that belong to the sender.
type Lanes struct {
	// Guard calls a function that reads or writes bytes of parcels, and returns an error if their
	// memory cannot be used. It is set before Serve, where that memory is shared with a program
	// (wire.Guard); nil calls the function as it is.
	Guard func(func() error) error

	patience time.Duration // how long a due parcel may make no progress
	beat     time.Duration // how often each lane says something

	mu     sync.Mutex
	change *sync.Cond
	lanes  []*lane
	err    error
	had    bool // a lane

	pieces chan piece
	again  []piece // of lanes that broke, in the order of their parcels
	ended  chan struct{}
	sent   uint64 // parcels sent so far; only Send uses it

	due      uint64    // parcels for which Expect was called
	arriving []*Parcel // those of them that are not complete
	progress uint64    // counts pieces that have arrived
	complete uint64    // counts parcels that have
}

// Parcel is a parcel that is due. Its lanes' mu protects it.
type Parcel struct {
	l       *Lanes
	number  uint64
	at      uint64 // where it goes, in the receiver's own terms
	to      []byte
	pieces  map[uint64]bool // by their offset: true for those that have arrived, false while a lane writes one
	missing uint64          // bytes that have not arrived
	writers int             // lanes that are writing to it
}

// lane is one connection. Its lanes' mu protects the last five.
type lane struct {
	conn Conn
	kick chan struct{} // the writer has something to do that is not in pieces
	gone chan struct{} // the reader has ended

	untaken  []piece // were sent, and not received as far as is known
	received uint32  // pieces, modulo 2^32
	told     uint32  // of these
	complete uint64  // Lanes.complete then
	dead     bool    // it is of no use any more
}

// piece is a part of a parcel to be sent.
type piece struct {
	parcel, offset uint64
	bytes          []byte
	done           func() // called when it was received
}

// New makes lanes, none of which is open yet. Each says something every beat. If no piece of a due
// parcel arrives for as long as patience, the lanes are closed with ErrLate.
func New(patience, beat time.Duration) *Lanes {
	l := &Lanes{patience: patience, beat: beat, pieces: make(chan piece, queued*Most), ended: make(chan struct{})}
	l.change = sync.NewCond(&l.mu)
	return l
}

// Open is how many lanes are open.
func (l *Lanes) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lanes)
}

// Had says whether there ever was a lane.
func (l *Lanes) Had() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.had
}

// Close closes the lanes and their connections. Pending and later calls of Send and Receive return
// err; only the first call of Close has an effect.
func (l *Lanes) Close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.ended)
		l.change.Broadcast()
		for _, c := range l.lanes {
			c.conn.HangUp()
		}
	}
}

// Join adds a lane; the caller then runs Serve for it.
func (l *Lanes) Join(conn Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case len(l.lanes) == Most:
		return fmt.Errorf("more than %d lanes", Most)
	}
	l.had = true
	l.lanes = append(l.lanes, &lane{conn: conn, kick: make(chan struct{}, 1), gone: make(chan struct{})})
	return nil
}

// Serve carries pieces over a connection that has joined, until it breaks or Close is called. When it
// has returned, this connection no longer reads or writes bytes of parcels. The error is that of
// Close; nil if there only is a lane less now.
func (l *Lanes) Serve(conn Conn) error {
	c := l.of(conn)
	var all sync.WaitGroup
	guard := l.Guard
	if guard == nil {
		guard = func(do func() error) error { return do() }
	}
	end := func(err error) {
		var broken *broken
		if !errors.As(err, &broken) {
			l.Close(err)
		}
		conn.HangUp() // ends the other one
		l.kill(c)
	}
	all.Go(func() { end(guard(func() error { return l.write(c) })) })
	all.Go(func() {
		defer close(c.gone)
		end(guard(func() error { return l.read(c) }))
	})
	all.Wait()
	l.leave(c)
	return l.why()
}

// kill ends the wait of a lane's reader.
func (l *Lanes) kill(c *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.dead = true
	l.change.Broadcast()
}

func (l *Lanes) of(conn Conn) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lanes[slices.IndexFunc(l.lanes, func(c *lane) bool { return c.conn == conn })]
}

// leave removes a lane. The others send what it may not have delivered.
func (l *Lanes) leave(c *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lanes = slices.DeleteFunc(l.lanes, func(other *lane) bool { return other == c })
	l.again = append(l.again, c.untaken...)
	slices.SortStableFunc(l.again, func(p, q piece) int { return cmp.Compare(p.parcel, q.parcel) })
	for _, other := range l.lanes {
		other.wake()
	}
}

func (c *lane) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// broken is the error of a connection, which ends only its lane.
type broken struct{ error }

// Send sends a parcel, and calls done when its bytes have been received; the caller must not change
// them before. It may wait for the receiver, so the message that announces this
// parcel must have been sent before. Only one goroutine may call it.
func (l *Lanes) Send(data []byte, done func()) error {
	if err := l.why(); err != nil {
		return err
	}
	// Each lane gets a part, but no part that is too small to be worth it.
	n := min(Piece, max(least, (len(data)+l.Open()-1)/max(1, l.Open())))
	n = (n + record - 1) &^ (record - 1)
	left := &countdown{n: (len(data) + n - 1) / n, done: done}
	number := l.sent
	l.sent++
	for offset := 0; offset < len(data); offset += n {
		p := piece{number, uint64(offset), data[offset:min(offset+n, len(data))], left.down}
		select {
		case l.pieces <- p:
		case <-l.ended:
			return l.why()
		}
	}
	return nil
}

// Err is why the lanes were closed; nil while they work.
func (l *Lanes) Err() error { return l.why() }

func (l *Lanes) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// countdown calls done when down was called n times.
type countdown struct {
	mu   sync.Mutex
	n    int
	done func()
}

func (c *countdown) down() {
	c.mu.Lock()
	c.n--
	last := c.n == 0
	c.mu.Unlock()
	if last && c.done != nil {
		c.done()
	}
}

func (l *Lanes) write(c *lane) error {
	about := make([]byte, head)
	beat := time.NewTicker(l.beat)
	defer beat.Stop()
	for wrote := false; ; {
		fresh, p, work := l.next(c)
		if !work {
			select {
			case p = <-fresh:
				l.took(c, p)
			case <-c.kick:
				continue
			case <-beat.C:
				if wrote { // since the last
					wrote = false
					continue
				}
			case <-c.gone:
				return &broken{io.ErrClosedPipe}
			case <-l.ended:
				return ErrClosed
			}
		}
		wrote = true
		le := binary.LittleEndian
		le.PutUint64(about, p.parcel)
		le.PutUint64(about[8:], p.offset)
		le.PutUint32(about[16:], uint32(len(p.bytes)))
		le.PutUint32(about[20:], l.tell(c))
		if err := c.conn.WriteBoth(about, p.bytes); err != nil {
			return &broken{err}
		}
	}
}

// next returns what a lane is to write: a piece that another could not deliver, or one of no bytes if
// there is something to tell. Otherwise it waits for a fresh piece, unless too many of its own were
// not received.
func (l *Lanes) next(c *lane) (fresh <-chan piece, p piece, work bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(c.untaken); n < mostUntaken {
		later := func(p piece) bool { return n == 0 || p.parcel >= c.untaken[n-1].parcel }
		if i := slices.IndexFunc(l.again, later); i >= 0 {
			p = l.again[i]
			l.again = slices.Delete(l.again, i, i+1)
			c.untaken = append(c.untaken, p)
			return nil, p, true
		}
		fresh = l.pieces
	}
	return fresh, p, l.hasNews(c)
}

// hasNews says whether a lane should tell what it has received: the sender may be waiting for the
// memory of a parcel that is complete. The caller holds mu.
func (l *Lanes) hasNews(c *lane) bool {
	return c.received-c.told >= tellEvery || c.received != c.told && c.complete != l.complete
}

func (l *Lanes) took(c *lane, p piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.untaken = append(c.untaken, p)
}

// tell returns how many pieces a lane has received.
func (l *Lanes) tell(c *lane) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.told, c.complete = c.received, l.complete
	return c.told
}

// hear notes how many pieces of a lane the other side has received.
func (l *Lanes) hear(c *lane, received, before uint32) error {
	n := int(received - before)
	if n == 0 {
		return nil
	}
	l.mu.Lock()
	if n > len(c.untaken) {
		l.mu.Unlock()
		return fmt.Errorf("%d pieces are said to have been received of %d", n, len(c.untaken))
	}
	taken := slices.Clone(c.untaken[:n])
	if len(c.untaken) >= mostUntaken {
		c.wake()
	}
	c.untaken = slices.Delete(c.untaken, 0, n)
	l.mu.Unlock()
	for _, p := range taken {
		p.done()
	}
	return nil
}

// Receive waits for the next parcel, whose bytes the lanes write to to. When it returns, also with
// an error, no lane writes there any longer: the caller may use the memory for something else.
func (l *Lanes) Receive(to []byte) error {
	p, err := l.Expect(0, to)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Expect tells the lanes where the next parcel goes, and does not wait for it. Of parcels that
// overlap, the later one must win, so Expect first waits until all that overlap this one are
// complete; at says where to is, by the same measure for all parcels. Only one goroutine may call
// it, and Wait must be called for each parcel, by any goroutine.
func (l *Lanes) Expect(at uint64, to []byte) (*Parcel, error) {
	if len(to) == 0 {
		return nil, errors.New("a parcel of no bytes")
	}
	p := &Parcel{l: l, at: at, to: to, pieces: map[uint64]bool{}, missing: uint64(len(to))}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && slices.ContainsFunc(l.arriving, p.overlaps) {
		l.change.Wait()
	}
	if l.err != nil {
		return nil, l.err
	}
	p.number = l.due
	l.due++
	l.arriving = append(l.arriving, p)
	l.change.Broadcast()
	return p, nil
}

func (p *Parcel) overlaps(q *Parcel) bool {
	return p.at < q.at+uint64(len(q.to)) && q.at < p.at+uint64(len(p.to))
}

// Wait waits until the parcel is complete. When it returns, also with an error, no lane writes to
// the parcel's memory any longer (writers is 0).
func (p *Parcel) Wait() error {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.missing > 0 && l.err == nil {
		defer l.watch(p, l.progress)()
	}
	for p.missing > 0 && l.err == nil || p.writers > 0 { // after Close, the lanes' reads fail at once, so writers soon is 0
		l.change.Wait()
	}
	if p.missing > 0 {
		return l.err
	}
	return nil
}

// watch closes the lanes if no piece arrives for as long as patience while a parcel is awaited.
func (l *Lanes) watch(p *Parcel, seen uint64) (stop func() bool) {
	var timer *time.Timer
	timer = time.AfterFunc(l.patience, func() {
		l.mu.Lock()
		now, waits := l.progress, p.missing > 0 && l.err == nil
		l.mu.Unlock()
		switch {
		case waits && now == seen:
			l.Close(ErrLate)
		case waits:
			seen = now
			timer.Reset(l.patience)
		}
	})
	return timer.Stop
}

// ErrLate says that a parcel did not arrive.
var ErrLate = errors.New("data that were announced did not come")

func (l *Lanes) read(c *lane) error {
	about := make([]byte, head)
	var aside []byte // holds a piece whose parcel is not due yet, that another lane is writing, or that came before
	for before := uint32(0); ; {
		if _, err := io.ReadFull(c.conn, about); err != nil {
			return &broken{err}
		}
		le := binary.LittleEndian
		parcel, offset, n, received := le.Uint64(about), le.Uint64(about[8:]), uint64(le.Uint32(about[16:])), le.Uint32(about[20:])
		if n > Piece {
			return fmt.Errorf("a damaged piece, of %d bytes", n)
		}
		if err := l.hear(c, received, before); err != nil {
			return err
		}
		before = received
		if n == 0 {
			continue
		}
		to, into, known, err := l.place(parcel, offset, n, nil)
		if err == nil && into != nil {
			err = l.fill(c, into, offset, to, c.conn)
		} else if err == nil {
			if aside == nil {
				aside = make([]byte, Piece)
			}
			if _, err := io.ReadFull(c.conn, aside[:n]); err != nil {
				return &broken{err}
			}
			if !known {
				// A lane that waits does not hear whether the other side is there. After a while it
				// gives up, and the piece comes again.
				late := time.AfterFunc(mostBeats*l.beat, func() { l.kill(c) })
				to, into, _, err = l.place(parcel, offset, n, c)
				late.Stop()
			}
			if err == nil && into != nil {
				err = l.fill(c, into, offset, to, bytes.NewReader(aside))
			}
		}
		if err != nil {
			return err
		}
		if into == nil { // it came before
			l.mu.Lock()
			l.count(c)
			l.mu.Unlock()
		}
	}
}

// count notes that a lane has received a piece. The caller holds mu, since the parcel became complete if
// it is: a writer that tells in between would think that it has told of this piece.
func (l *Lanes) count(c *lane) {
	c.received++
	for _, c := range l.lanes {
		if l.hasNews(c) {
			c.wake()
		}
	}
}

// fill reads the bytes of a piece to its place. It tells the parcel that this lane has finished also
// if the memory has no page and Guard ends the reader: who waits for the parcel waits for its writers.
func (l *Lanes) fill(c *lane, p *Parcel, offset uint64, to []byte, from io.Reader) (err error) {
	whole := false
	defer func() {
		if twice := l.arrived(c, p, offset, uint64(len(to)), whole); err == nil {
			err = twice
		}
	}()
	if _, err = io.ReadFull(from, to); err != nil {
		return &broken{err}
	}
	whole = true
	return nil
}

// place returns where a piece belongs, and in which parcel, if that is due. If its lane is given, it
// waits until the parcel is due. The caller writes the piece there and calls arrived. If the piece has
// arrived before, it is known and has no place. Until a lane is known to be broken, another may bring
// its piece a second time: then that one waits until the first has written it or has failed.
func (l *Lanes) place(parcel, offset, n uint64, wait *lane) (to []byte, into *Parcel, known bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wait != nil && (parcel >= l.due || l.isWritten(parcel, offset)) && l.err == nil && !wait.dead {
		l.change.Wait()
	}
	switch {
	case l.err != nil:
		return nil, nil, false, l.err
	case wait != nil && wait.dead:
		return nil, nil, false, &broken{io.ErrClosedPipe}
	case parcel >= l.due:
		return nil, nil, false, nil
	}
	at := slices.IndexFunc(l.arriving, func(p *Parcel) bool { return p.number == parcel })
	if at < 0 {
		return nil, nil, true, nil
	}
	p := l.arriving[at]
	if offset%record != 0 {
		return nil, nil, false, fmt.Errorf("a piece at %d of parcel %d, where none can begin", offset, parcel)
	}
	if offset > uint64(len(p.to)) || n > uint64(len(p.to))-offset {
		return nil, nil, false, fmt.Errorf("%d bytes at %d of parcel %d, where none are due", n, offset, parcel)
	}
	if arrived, begun := p.pieces[offset]; begun {
		return nil, nil, arrived, nil
	}
	p.pieces[offset] = false
	p.writers++
	return p.to[offset:][:n:n], p, false, nil
}

// isWritten says whether a lane is writing a piece. The caller holds mu.
func (l *Lanes) isWritten(parcel, offset uint64) bool {
	for _, p := range l.arriving {
		if p.number == parcel {
			arrived, begun := p.pieces[offset]
			return begun && !arrived
		}
	}
	return false
}

// arrived notes that a lane has finished with its place, and whether it has written all bytes: then it
// has received the piece. It returns an error if more bytes have come than the parcel has.
func (l *Lanes) arrived(c *lane, p *Parcel, offset, n uint64, whole bool) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.writers--
	switch {
	case !whole:
		delete(p.pieces, offset)
	case n > p.missing:
		err = fmt.Errorf("%d bytes at %d of parcel %d, some of which came already", n, offset, p.number)
	default:
		l.progress++
		p.pieces[offset] = true
		p.missing -= n
	}
	if p.missing == 0 && p.writers == 0 {
		l.arriving = slices.DeleteFunc(l.arriving, func(q *Parcel) bool { return p == q })
		l.complete++
	}
	if whole && err == nil {
		l.count(c)
	}
	l.change.Broadcast()
	return err
}
