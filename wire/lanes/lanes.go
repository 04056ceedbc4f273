// Package lanes carries bulk data between two machines over several connections beside the one with
// the messages, since encrypting one connection keeps only one core busy.
//
// The sender cuts data into pieces, and each piece takes the next free lane. A parcel is the data
// of one Send. Both sides count parcels, and messages on the main connection say when one is due.
// So the receiver knows where the bytes of each piece belong, even if pieces of different parcels
// overtake each other. Several parcels may be due at a time, so that no lane waits at the end of
// one. A piece of a parcel that is not due yet waits in its lane, one per lane.
//
// Numbers are little-endian. A piece is u64 parcel, u64 offset in it, u32 length, u32 zero,
// and the bytes.
//
// The package knows nothing of messages, of devices, or of who may connect.
package lanes

import (
	"bytes"
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
)

// Part is how many bytes of a long copy make a parcel, if parcels have at least from bytes: the
// device copies one part while the next is on its way.
func Part(from uint64) uint64 { return 32 * from }

// Conn is a lane, such as door.Lane, which sets deadlines for the other side.
type Conn interface {
	io.Reader
	// WriteBoth writes the head of a piece and its bytes.
	WriteBoth(head, b []byte) error
	// Begun tells the connection whether the other side has begun a piece, which it must finish
	// in time.
	Begun(bool)
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

	mu     sync.Mutex
	change *sync.Cond
	conns  []Conn
	err    error

	pieces chan piece
	ended  chan struct{}
	sent   uint64 // parcels sent so far; only Send uses it

	due      uint64    // parcels for which Expect was called
	arriving []*Parcel // those of them that are not complete
	progress uint64    // counts pieces that have arrived
}

// Parcel is a parcel that is due. Its lanes' mu protects it.
type Parcel struct {
	l        *Lanes
	number   uint64
	at       uint64 // where it goes, in the receiver's own terms
	to       []byte
	unplaced uint64 // bytes for which place has given out no room yet
	missing  uint64 // bytes that have not arrived
	writers  int    // lanes that are writing to it
}

// piece is a part of a parcel to be sent.
type piece struct {
	parcel, offset uint64
	bytes          []byte
	done           func() // called when it was sent
}

// New makes lanes, none of which is open yet. If no piece of a due parcel arrives for as long as
// patience, the lanes are closed with ErrLate.
func New(patience time.Duration) *Lanes {
	l := &Lanes{patience: patience, pieces: make(chan piece, queued*Most), ended: make(chan struct{})}
	l.change = sync.NewCond(&l.mu)
	return l
}

// Open is how many lanes are open.
func (l *Lanes) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
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
		for _, c := range l.conns {
			c.HangUp()
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
	case len(l.conns) == Most:
		return fmt.Errorf("more than %d lanes", Most)
	}
	l.conns = append(l.conns, conn)
	return nil
}

// Serve carries pieces over a connection that has joined, until a connection breaks or Close is
// called, and returns why. When it has returned, this connection no longer reads or writes bytes of
// parcels.
func (l *Lanes) Serve(conn Conn) error {
	var all sync.WaitGroup
	guard := l.Guard
	if guard == nil {
		guard = func(do func() error) error { return do() }
	}
	all.Go(func() { l.Close(guard(func() error { return l.write(conn) })) })
	all.Go(func() { l.Close(guard(func() error { return l.read(conn) })) })
	all.Wait()
	return l.why()
}

// Send sends a parcel, and calls done when its bytes have been written to the lanes; the caller
// must not change them before. It may wait for the receiver, so the message that announces this
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

func (l *Lanes) write(conn Conn) error {
	about := make([]byte, head)
	for {
		var p piece
		select {
		case p = <-l.pieces:
		case <-l.ended:
			return ErrClosed
		}
		le := binary.LittleEndian
		le.PutUint64(about, p.parcel)
		le.PutUint64(about[8:], p.offset)
		le.PutUint32(about[16:], uint32(len(p.bytes)))
		le.PutUint32(about[20:], 0)
		if err := conn.WriteBoth(about, p.bytes); err != nil {
			return err
		}
		p.done()
	}
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
	p := &Parcel{l: l, at: at, to: to, unplaced: uint64(len(to)), missing: uint64(len(to))}
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

func (l *Lanes) read(conn Conn) error {
	about := make([]byte, head)
	var aside []byte // holds a piece whose parcel is not due yet
	for {
		conn.Begun(false)
		if _, err := io.ReadFull(conn, about[:1]); err != nil {
			return err
		}
		conn.Begun(true)
		if _, err := io.ReadFull(conn, about[1:]); err != nil {
			return err
		}
		le := binary.LittleEndian
		parcel, offset, n := le.Uint64(about), le.Uint64(about[8:]), uint64(le.Uint32(about[16:]))
		if n == 0 || n > Piece || le.Uint32(about[20:]) != 0 {
			return fmt.Errorf("a damaged piece, of %d bytes", n)
		}
		to, into, err := l.place(parcel, offset, n, false)
		if err != nil {
			return err
		}
		here := into != nil
		if !here {
			if aside == nil {
				aside = make([]byte, Piece)
			}
			to = aside[:n]
		}
		if here {
			err = l.fill(into, to, conn)
		} else if _, err = io.ReadFull(conn, to); err == nil {
			conn.Begun(false)
			if to, into, err = l.place(parcel, offset, n, true); err == nil {
				err = l.fill(into, to, bytes.NewReader(aside))
			}
		}
		if err != nil {
			return err
		}
	}
}

// fill reads the bytes of a piece to its place. It tells the parcel that this lane has finished also
// if the memory has no page and Guard ends the reader: who waits for the parcel waits for its writers.
func (l *Lanes) fill(p *Parcel, to []byte, from io.Reader) (err error) {
	whole := false
	defer func() { l.arrived(p, uint64(len(to)), whole) }()
	_, err = io.ReadFull(from, to)
	whole = err == nil
	return err
}

// place returns where a piece belongs, and in which parcel, if that is due; with wait, it waits
// until the parcel is due. The caller writes the piece there and calls arrived. unplaced counts
// down the bytes for which places were given, so a sender cannot get more places than the parcel
// has bytes: when missing is 0, all writers have ended.
func (l *Lanes) place(parcel, offset, n uint64, wait bool) (to []byte, into *Parcel, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wait && parcel >= l.due && l.err == nil {
		l.change.Wait()
	}
	switch {
	case l.err != nil:
		return nil, nil, l.err
	case parcel >= l.due:
		return nil, nil, nil
	}
	at := slices.IndexFunc(l.arriving, func(p *Parcel) bool { return p.number == parcel })
	if at < 0 || offset > uint64(len(l.arriving[at].to)) || n > uint64(len(l.arriving[at].to))-offset {
		return nil, nil, fmt.Errorf("%d bytes at %d of parcel %d, where none are due", n, offset, parcel)
	}
	p := l.arriving[at]
	if n > p.unplaced {
		return nil, nil, fmt.Errorf("%d bytes at %d of parcel %d, some of which came already", n, offset, parcel)
	}
	p.unplaced -= n
	p.writers++
	return p.to[offset:][:n:n], p, nil
}

// arrived notes that a lane has finished with its place, and whether it has written all bytes.
func (l *Lanes) arrived(p *Parcel, n uint64, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.writers--
	if whole {
		l.progress++
		p.missing -= n
	}
	if p.missing == 0 {
		l.arriving = slices.DeleteFunc(l.arriving, func(q *Parcel) bool { return p == q })
	}
	if p.missing == 0 || l.err != nil {
		l.change.Broadcast()
	}
}
