package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"muster/wire/envelope"
)

// ErrRefused says that the other side sent what it must not.
var ErrRefused = errors.New("a message between head and agent was refused")

// MaxMessage is how many bytes a message may have: a script, and an environment as large as the
// system allows, fit.
const MaxMessage = 16 << 20

// MaxReason is how many bytes a reason may have.
const MaxReason = 4 << 10

// The kinds of messages, by name.
var (
	kindsToHead  = envelope.Of[ToHead](Hello{}, Inventory{}, Report{}, Lent{}, Pong{}, AskPeers{})
	kindsToAgent = envelope.Of[ToAgent](Welcome{}, Refused{}, Ping{}, Start{}, Stop{}, Signal{}, Suspend{}, Resume{}, Done{}, Lend{}, Unlend{}, Limit{}, Open{}, Peers{})
)

// Encode appends the encoding of a message.
func Encode(to []byte, m message) ([]byte, error) {
	body, err := envelope.Encode(m)
	if err != nil {
		return to, err
	}
	if len(body) > MaxMessage {
		return to, fmt.Errorf("%s of %d bytes is longer than a message may be", m.Kind(), len(body))
	}
	to = binary.LittleEndian.AppendUint32(to, uint32(len(body)))
	return append(to, body...), nil
}

// ReadToHead reads a message of an agent.
func ReadToHead(r io.Reader) (ToHead, error) { return read[ToHead](r, kindsToHead) }

// ReadToAgent reads a message of the head.
func ReadToAgent(r io.Reader) (ToAgent, error) { return read[ToAgent](r, kindsToAgent) }

func read[M message](r io.Reader, kinds envelope.Kinds[M]) (M, error) {
	var none M
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return none, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > MaxMessage {
		return none, fmt.Errorf("%w: it is said to have %d bytes", ErrRefused, size)
	}
	// The buffer grows with what arrives: a peer that announces much and sends little must not
	// cost memory.
	var body bytes.Buffer
	if n, err := io.CopyN(&body, r, int64(size)); err != nil {
		return none, fmt.Errorf("a message breaks off after %d of %d bytes: %w", n, size, err)
	}
	m, err := kinds.Decode(body.Bytes(), func(m M) error { return m.check() })
	if err != nil {
		return none, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return m, nil
}
