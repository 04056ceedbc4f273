package door

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Sealed carries bulk data over a connection that TLS has set up. TLS has checked who the two sides
// are, and both derive fresh keys from its secrets (an exporter, RFC 8446, section 7.5). From then on
// they encrypt with AES-GCM as TLS does, but in longer records, from where the data are and to where
// they go: Go's TLS copies each byte once more on either side, 16 KiB at a time.
//
// A record is u32 length of the plaintext, little-endian, which is authenticated with it, then the
// ciphertext with its tag of 16 bytes. Each direction has a key of its own, and the nonce is the
// number of the record under that key, so a record that is changed, left out, repeated or moved is
// refused, and so is everything after it. After recordsPerKey the next key follows from the secret,
// which is then replaced.
//
// No nonce is ever used twice under one key:
//
//   - The secrets are those of one handshake, to which both sides have contributed fresh random
//     bytes. So each lane of a client, and each lane that replaces a broken one, has keys of its own;
//     nothing is taken over from another connection. The exporter's label is used for nothing else,
//     and Seal is called once for a connection on each side.
//   - The two directions have keys of their own, so a record that is sent back to its writer is
//     refused, too.
//   - The number counts up before the record is made, and stays counted if that fails.
//
// What an attacker on the way can do besides is to end the connection. An end between two records
// looks like one that the writer meant: whoever reads must know how much is to come, as the parcels
// of wire/lanes do. The length is bounded before any memory is used for it. Whether there is a Sealed
// at all depends on the cipher that TLS agreed on and has confirmed (the handshake covers it); the
// alternative is TLS itself, never nothing.
//
// The bytes may be in memory that another process changes meanwhile: the tag is that of the
// ciphertext, so the worst is that the reader refuses the record. Go decrypts a record while it
// computes the tag, and overwrites it with zeros if the tag is wrong. So until Read has returned, what
// is at the reader's place means nothing, and a place where that matters must not be read into.
//
// One goroutine may read and one may write.
type Sealed struct {
	net.Conn
	in, out half

	arrived    []byte // read from Conn: arrived[start:end] has not been decrypted
	start, end int
	rest       []byte // was decrypted and not been read; a part of arrived
	refused    bool   // a record: what follows it does not count
	ready      []byte // records to be written
}

const (
	// sealedMost is how many bytes a record may have, and sealedMore how many it has beyond them.
	sealedMost = 128 << 10
	sealedMore = 4 + 16
	// shortMost is the length of a record that WriteBoth can put before another.
	shortMost = 64
	// recordsPerKey keeps the data under one key, 128 GiB, below what RFC 8446, section 5.5, allows.
	recordsPerKey = 1 << 20

	secretSize    = 32
	exporterLabel = "EXPORTER-muster-lane"
)

// ErrUnsealed says that a record is damaged or not the one that is due.
var ErrUnsealed = errors.New("a record of bulk data that does not decrypt")

// half is one direction of a Sealed.
type half struct {
	secret []byte
	key    int // its size
	aead   cipher.AEAD
	number uint64 // of the next record under this key
	nonce  [12]byte
}

// Seal takes a connection over from TLS. Nothing may be on its way there: neither side may send
// before it knows that the other one has read all that TLS carried. It returns nil if TLS does not
// use AES-GCM, since the machines have no instructions for it then; both sides see the same.
func Seal(conn *tls.Conn, client bool) (*Sealed, error) {
	state := conn.ConnectionState()
	key := 0
	switch state.CipherSuite {
	case tls.TLS_AES_128_GCM_SHA256:
		key = 16
	case tls.TLS_AES_256_GCM_SHA384:
		key = 32
	default:
		return nil, nil
	}
	secrets, err := state.ExportKeyingMaterial(exporterLabel, nil, 2*secretSize)
	if err != nil {
		return nil, err
	}
	s := &Sealed{Conn: conn.NetConn()}
	s.out, s.in = half{secret: secrets[:secretSize], key: key}, half{secret: secrets[secretSize:], key: key}
	if !client {
		s.in, s.out = s.out, s.in
	}
	return s, errors.Join(s.in.rekey(), s.out.rekey())
}

// NetConn is the connection below.
func (s *Sealed) NetConn() net.Conn { return s.Conn }

// rekey makes a key of the secret, and replaces the secret by its successor.
func (h *half) rekey() error {
	key, err := hkdf.Expand(sha256.New, h.secret, "key", h.key)
	if err != nil {
		return err
	}
	if h.secret, err = hkdf.Expand(sha256.New, h.secret, "next", secretSize); err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	h.number = 0
	h.aead, err = cipher.NewGCM(block)
	return err
}

// next sets the nonce for the next record.
func (h *half) next() error {
	if h.number == recordsPerKey {
		if err := h.rekey(); err != nil {
			return err
		}
	}
	binary.BigEndian.PutUint64(h.nonce[4:], h.number)
	h.number++
	return nil
}

// seal appends a record to those that are ready.
func (s *Sealed) seal(b []byte) error {
	if s.ready == nil {
		s.ready = make([]byte, 0, shortMost+sealedMost+2*sealedMore)
	}
	if err := s.out.next(); err != nil {
		return err
	}
	at := len(s.ready)
	s.ready = binary.LittleEndian.AppendUint32(s.ready, uint32(len(b)))
	s.ready = s.out.aead.Seal(s.ready, s.out.nonce[:], b, s.ready[at:])
	return nil
}

func (s *Sealed) flush() error {
	_, err := s.Conn.Write(s.ready)
	s.ready = s.ready[:0]
	return err
}

// Write writes bytes. After an error the connection cannot be used.
func (s *Sealed) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n := min(len(b)-done, sealedMost)
		if err := s.seal(b[done : done+n]); err != nil {
			return done, err
		}
		if err := s.flush(); err != nil {
			return done, err
		}
		done += n
	}
	return len(b), nil
}

// WriteBoth writes a few bytes and those that follow them.
func (s *Sealed) WriteBoth(head, b []byte) error {
	if len(head) > shortMost {
		return fmt.Errorf("a head of %d bytes is too long", len(head))
	}
	if err := s.seal(head); err != nil {
		return err
	}
	if len(b) == 0 {
		return s.flush()
	}
	_, err := s.Write(b)
	return err
}

// Read reads bytes of one record. A record that fits is decrypted to where the caller wants it.
func (s *Sealed) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(s.rest) == 0 {
		n, err := s.open(b)
		if err != nil || n > 0 {
			return n, err
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// open decrypts the next record: into b, or, if it does not fit there, into rest.
func (s *Sealed) open(b []byte) (n int, err error) {
	if s.refused {
		return 0, ErrUnsealed
	}
	if err := s.fill(4); err != nil {
		return 0, err
	}
	size := int(binary.LittleEndian.Uint32(s.arrived[s.start:]))
	if size == 0 || size > sealedMost {
		return 0, s.refuse()
	}
	if err := s.fill(size + sealedMore); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	if err := s.in.next(); err != nil {
		return 0, err
	}
	record := s.arrived[s.start:][:size+sealedMore]
	s.start += len(record)
	if size <= len(b) {
		if _, err := s.in.aead.Open(b[:0], s.in.nonce[:], record[4:], record[:4]); err != nil {
			return 0, s.refuse()
		}
		return size, nil
	}
	if s.rest, err = s.in.aead.Open(record[4:4], s.in.nonce[:], record[4:], record[:4]); err != nil {
		return 0, s.refuse()
	}
	return 0, nil
}

func (s *Sealed) refuse() error {
	s.refused = true
	return ErrUnsealed
}

// fill reads until there are n bytes that were not decrypted.
func (s *Sealed) fill(n int) error {
	if s.arrived == nil {
		s.arrived = make([]byte, shortMost+sealedMost+2*sealedMore)
	}
	if s.start == s.end {
		s.start, s.end = 0, 0
	}
	if s.start+n > len(s.arrived) {
		s.end = copy(s.arrived, s.arrived[s.start:s.end])
		s.start = 0
	}
	for s.end-s.start < n {
		got, err := s.Conn.Read(s.arrived[s.end:])
		s.end += got
		if err != nil && s.end-s.start < n {
			if s.end > s.start && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
