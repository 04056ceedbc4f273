package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"muster/wire/envelope"
	"muster/wire/grant"
)

// ErrRefused says that a message is not one that the other side may send. It comes with an
// *Unreadable, unless the end of the message is unknown.
var ErrRefused = errors.New("a message between head and agent was refused")

// MaxMessage is how many bytes a message may have: a script, and an environment as large as the
// system allows, fit.
const MaxMessage = 16 << 20

// usualSize is a size that costs nothing worth mention.
const usualSize = 4 << 10

// MaxReason is how many bytes a reason may have.
const MaxReason = 4 << 10

// The kinds of messages, by name.
var (
	kindsToHead  = envelope.Of[ToHead](Hello{}, Inventory{}, Report{}, Lent{}, Pong{}, AskPeers{}, Load{}, Profiles{}, Checkpointed{}, Configured{})
	kindsToAgent = envelope.Of[ToAgent](Welcome{}, Refused{}, Ping{}, Start{}, Stop{}, Signal{}, Suspend{}, Resume{}, Done{}, Lend{}, Unlend{}, Limit{}, Open{}, Peers{}, Checkpoint{}, Discard{}, Configure{})
)

// Unreadable is a message that is refused: by its sender before it is sent, or by its receiver, who
// has read it to its end. The connection is good: the next message follows. A receiver is told whose
// business it was, as far as that could be read.
type Unreadable struct {
	Kind string
	Task Task   // of a message that concerns a task
	Loan string // the grant that Lend is about
	Err  error
}

func (u *Unreadable) Error() string { return fmt.Sprintf("%v: %v", ErrRefused, u.Err) }

func (u *Unreadable) Unwrap() []error { return []error{ErrRefused, u.Err} }

// unreadable finds out what a refused message was about.
func unreadable(body []byte, err error) *Unreadable {
	var m struct {
		Kind    string `json:"kind"`
		Message struct {
			Task Task       `json:"task"`
			Loan grant.Loan `json:"loan"`
		} `json:"message"`
	}
	_ = json.Unmarshal(body, &m) // it fills in what it can
	return &Unreadable{Kind: m.Kind, Task: m.Message.Task, Loan: m.Message.Loan.ID, Err: err}
}

// Check refuses what the receiver of a message would refuse: both sides use it.
func Check(m message) error {
	if err := m.check(); err != nil {
		return &Unreadable{Kind: m.Kind(), Err: fmt.Errorf("%s with %w", m.Kind(), err)}
	}
	return nil
}

// Encode appends the encoding of a message. It refuses what the receiver would refuse, and appends
// nothing then.
func Encode(to []byte, m message) ([]byte, error) {
	if err := Check(m); err != nil {
		return to, err
	}
	body, err := envelope.Encode(m)
	if err != nil {
		return to, err
	}
	if len(body) > MaxMessage {
		return to, &Unreadable{Kind: m.Kind(), Err: fmt.Errorf("%s of %d bytes: a message has at most %d", m.Kind(), len(body), MaxMessage)}
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
	body.Grow(int(min(size, usualSize)) + bytes.MinRead)
	if n, err := io.CopyN(&body, r, int64(size)); err != nil {
		return none, fmt.Errorf("a message breaks off after %d of %d bytes: %w", n, size, err)
	}
	m, err := kinds.Decode(body.Bytes(), func(m M) error { return m.check() })
	if err != nil {
		return none, unreadable(body.Bytes(), err)
	}
	return m, nil
}
