package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Between machines that trust the network between them TLS may be left out, if both sides were told
// so. They still prove to each other that they know the same token, in three steps:
//
//	program   16 bytes "muster-plain/1\n" and a zero, u8 1 for messages, 2 for a lane or 3 to
//	          resume a session,
//	          32 random bytes
//	node      32 random bytes
//	program   32 bytes: proof of the program
//	node      32 bytes: proof of the node, or nothing where the other proof is wrong
//
// A proof is HMAC-SHA256 with the token as its key, over the name of the side, the kind, and
// both random parts. So an eavesdropper learns no token and can neither replay a proof nor reflect
// one side's proof back to it. The data that follow are not protected: an attacker who can change
// packets can take over the connection. A token that can be guessed can be found offline by trying.

const (
	plainMagic = "muster-plain/1\n\x00"
	nonceSize  = 32
)

// PlainKind says what a connection without TLS is for.
type PlainKind byte

// The kinds of connections without TLS.
const (
	PlainStream PlainKind = iota + 1
	PlainLane
	PlainResume
)

// PlainFirst is the first byte of a connection without TLS; TLS begins with another.
const PlainFirst = 'm'

// ErrProof says that the other side has not proved that it knows the token.
var ErrProof = errors.New("the other side does not know the token")

// errNotTheToken is the error of a program whose proof the node refuses.
var errNotTheToken = errors.New("the node wants a token, and was given none or another: put the one that its administrator has into $MUSTER_TOKEN")

// proof is the proof of one side.
func proof(token, side string, kind PlainKind, program, node []byte) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("muster-plain/1 " + side))
	mac.Write([]byte{0, byte(kind)})
	mac.Write(program)
	mac.Write(node)
	return mac.Sum(nil)
}

// GreetPlain performs the handshake without TLS on the program's side.
func GreetPlain(conn io.ReadWriter, kind PlainKind, token string) error {
	ours, theirs, shown := make([]byte, nonceSize), make([]byte, nonceSize), make([]byte, sha256.Size)
	if _, err := rand.Read(ours); err != nil {
		return err
	}
	if _, err := conn.Write(append(append([]byte(plainMagic), byte(kind)), ours...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, theirs); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("it hung up, so it seems that it does not take connections without TLS (plain: true in its configuration): use --tls-dir, with the folder that muster cert made for you, instead of --plain (%w)", err)
	} else if err != nil {
		return fmt.Errorf("waiting for the node's answer: %w", err)
	}
	if _, err := conn.Write(proof(token, "program", kind, ours, theirs)); err != nil {
		return err
	}
	// The node closes the connection when the token is wrong: that is its only answer.
	if _, err := io.ReadFull(conn, shown); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return errNotTheToken
	} else if err != nil {
		return fmt.Errorf("waiting for the node to show that it knows the token: %w", err)
	}
	if !hmac.Equal(shown, proof(token, "node", kind, ours, theirs)) {
		return ErrProof
	}
	return nil
}

// MeetPlain performs the handshake without TLS on the node's side. If the program does not know the
// token, the error is ErrProof.
func MeetPlain(conn io.ReadWriter, token string) (PlainKind, error) {
	first := make([]byte, len(plainMagic)+1+nonceSize)
	if _, err := io.ReadFull(conn, first); err != nil {
		return 0, err
	}
	kind, theirs := PlainKind(first[len(plainMagic)]), first[len(plainMagic)+1:]
	if string(first[:len(plainMagic)]) != plainMagic || kind < PlainStream || kind > PlainResume {
		return 0, errors.New("it speaks neither TLS nor as a program does without")
	}
	ours, shown := make([]byte, nonceSize), make([]byte, sha256.Size)
	if _, err := rand.Read(ours); err != nil {
		return 0, err
	}
	if _, err := conn.Write(ours); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, shown); err != nil {
		return 0, err
	}
	if !hmac.Equal(shown, proof(token, "program", kind, theirs, ours)) {
		return 0, ErrProof
	}
	_, err := conn.Write(proof(token, "node", kind, theirs, ours))
	return kind, err
}
