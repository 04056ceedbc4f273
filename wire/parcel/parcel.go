// Package parcel is how data go from the gateway of one lender to that of another.
//
// A program whose kernels run on devices of two lenders, A and B, has chunks on A that B needs. Its
// own node is a guest of both. It draws a secret key for each piece of at most a bounce buffer, and
// sends two messages at once (device/remote):
//
//   - parcel_give to A: read these bytes of my memory, and put them on the shelf under this key, for
//     the node with this certificate;
//   - parcel_take to B: fetch the bytes that lie there under this key, from the node with this
//     address and this certificate, and copy them to this range of my memory.
//
// Both go to gateways (node/gateway), which know copies from the device and copies to it already.
// B's connects to A's by TLS, each with its node's certificate, and shows the key. What B answers
// decides: the bytes are on their way to the device, or they are not, and then none of them ever
// will be. In the second case the program's node carries them itself, as it did before.
//
// So nobody gets a right that is larger than the parcel. A parcel is bound to its size, to one
// fetch, to the taker's public key, and to a time (Patience). A can change only the bytes that B
// asked it for, which are A's own results; B can read only what it was to get. Who listens to
// neither connection learns nothing, and a key that becomes known later is worth nothing. B connects
// only to gateways that its own node names as peers, so a guest cannot use it to look around in B's
// network.
//
// On the connection numbers are little-endian:
//
//	request   32 bytes of key
//	answer    u32 size, or 0 if nobody left such a parcel; u32 zero; the bytes
//
// Requests may be sent before earlier ones are answered; answers come in their order.
//
// The package knows no message, no device, and not who may connect.
package parcel

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Protocol names the protocol in the negotiation of TLS.
const Protocol = "muster-parcel/1"

const (
	// Most is how many bytes a parcel may have.
	Most = 1 << 20
	// Patience is how long a parcel lies on the shelf, and how long one that was not left yet is
	// waited for: the two messages of a parcel are sent at the same moment, to two nodes.
	Patience = 10 * time.Second
	// Idle is how long a connection may be unused before the giver ends it.
	Idle = time.Minute

	head = 8
)

// Key is the secret by which a parcel is fetched.
type Key [32]byte

// Holder tells nodes apart by the public keys of their certificates.
type Holder [sha256.Size]byte

// HolderOf is whose certificate it is.
func HolderOf(c *x509.Certificate) Holder { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// Shelf is where parcels lie until they are fetched.
type Shelf struct {
	// Guard calls a function that reads the bytes of a parcel, and returns an error if their memory
	// cannot be used. It is set where that memory is shared with another process (wire.Guard), before
	// the shelf is used; nil calls the function as it is.
	Guard func(func() error) error

	patience time.Duration // for how long one that is not there is waited for

	mu      sync.Mutex
	parcels map[Key]*Parcel
	changed chan struct{} // closed, and replaced, when a parcel comes or is filled
}

// Parcel is a parcel on a shelf.
type Parcel struct {
	shelf *Shelf
	key   Key
	taker Holder
	data  []byte        // nil until Fill
	taken chan struct{} // closed when it was fetched
}

// NewShelf makes an empty shelf.
func NewShelf() *Shelf {
	return &Shelf{patience: Patience, parcels: map[Key]*Parcel{}, changed: make(chan struct{})}
}

// Leave makes room for a parcel, whose bytes come with Fill. The caller must withdraw it.
func (s *Shelf) Leave(key Key, taker Holder) (*Parcel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parcels[key] != nil {
		return nil, errors.New("there is a parcel with this key")
	}
	p := &Parcel{shelf: s, key: key, taker: taker, taken: make(chan struct{})}
	s.parcels[key] = p
	s.change()
	return p, nil
}

// change wakes those who wait for a parcel. The caller must hold mu.
func (s *Shelf) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Fill says what is in the parcel. The bytes must not change before Withdraw.
func (p *Parcel) Fill(data []byte) {
	p.shelf.mu.Lock()
	defer p.shelf.mu.Unlock()
	p.data = data
	p.shelf.change()
}

// Taken is closed when the parcel was fetched.
func (p *Parcel) Taken() <-chan struct{} { return p.taken }

// Withdraw takes the parcel off the shelf. When it returns, nobody reads its bytes any more.
func (p *Parcel) Withdraw() {
	p.shelf.mu.Lock()
	defer p.shelf.mu.Unlock()
	if p.shelf.parcels[p.key] == p {
		delete(p.shelf.parcels, p.key)
	}
}

// Take waits until a parcel is there for its taker, copies it to a buffer of Most bytes, and returns
// its size. It returns 0 if none comes in time, or before ctx ends.
func (s *Shelf) Take(ctx context.Context, key Key, taker Holder, to []byte) int {
	late := time.NewTimer(s.patience)
	defer late.Stop()
	for {
		n, changed := s.look(key, taker, to)
		if changed == nil {
			return n
		}
		select {
		case <-changed:
		case <-late.C:
			return 0
		case <-ctx.Done():
			return 0
		}
	}
}

// look copies a parcel, or returns what will be closed when that is worth another try.
func (s *Shelf) look(key Key, taker Holder, to []byte) (n int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parcels[key]
	switch {
	case p == nil || p.data == nil && p.taker == taker:
		return 0, s.changed
	case p.taker != taker || len(p.data) > len(to):
		return 0, nil
	}
	delete(s.parcels, key)
	if !s.copy(to, p.data) { // under the lock: Withdraw waits for it
		return 0, nil // whoever left it waits in vain, as for a taker that does not come
	}
	close(p.taken)
	return len(p.data), nil
}

// copy copies the bytes of a parcel, and says whether they could be read.
func (s *Shelf) copy(to, from []byte) bool {
	if s.Guard == nil {
		copy(to, from)
		return true
	}
	return s.Guard(func() error { copy(to, from); return nil }) == nil
}

// Conn is a connection to another gateway.
type Conn interface {
	io.ReadWriter
	SetDeadline(time.Time) error
}

// Serve gives a node the parcels that it asks for, until it hangs up, is silent for too long, or ctx
// ends.
func (s *Shelf) Serve(ctx context.Context, conn Conn, taker Holder) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var buffer []byte // as soon as it is needed
	var key Key
	for {
		_ = conn.SetDeadline(time.Now().Add(Idle))
		if err := ctx.Err(); err != nil { // its end had set a deadline, which was just replaced
			return err
		}
		if _, err := io.ReadFull(conn, key[:]); err != nil {
			return err
		}
		if buffer == nil {
			buffer = make([]byte, head+Most)
		}
		n := s.Take(ctx, key, taker, buffer[head:])
		binary.LittleEndian.PutUint64(buffer, uint64(n))
		_ = conn.SetDeadline(time.Now().Add(Patience))
		if _, err := conn.Write(buffer[:head+n]); err != nil {
			return err
		}
	}
}

// Ask asks for a parcel. Receive gets what was asked for, in the same order.
func Ask(conn Conn, key Key) error {
	_ = conn.SetDeadline(time.Now().Add(Patience))
	_, err := conn.Write(key[:])
	return err
}

// ErrNone says that nobody left such a parcel. The connection can be used further.
var ErrNone = errors.New("the other node has no such parcel")

// Receive reads the answer to a request into all of to. It never reads more than was asked for: a
// node that sends another number of bytes gets an error, after which the connection is of no use.
func Receive(conn Conn, to []byte) error {
	_ = conn.SetDeadline(time.Now().Add(2 * Patience)) // it may wait for the parcel to be left, and then send it
	var about [head]byte
	if _, err := io.ReadFull(conn, about[:]); err != nil {
		return err
	}
	switch n := binary.LittleEndian.Uint64(about[:]); {
	case n == 0:
		return ErrNone
	case n != uint64(len(to)):
		return fmt.Errorf("a parcel of %d bytes where %d are due", n, len(to))
	}
	_, err := io.ReadFull(conn, to)
	return err
}
