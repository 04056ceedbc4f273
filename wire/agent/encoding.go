package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// ErrRefused says that the other side sent what it must not.
var ErrRefused = errors.New("a message between head and agent was refused")

// MaxMessage is how many bytes a message may take: a script, and an environment as
// large as the system lets one be, fit.
const MaxMessage = 16 << 20

// MaxReason is how many bytes of a reason are said.
const MaxReason = 4 << 10

// The kinds of messages, by name.
var (
	kindsToHead  = byKind[ToHead](Hello{}, Inventory{}, Report{}, Lent{}, Pong{})
	kindsToAgent = byKind[ToAgent](Welcome{}, Refused{}, Ping{}, Start{}, Stop{}, Signal{}, Suspend{}, Resume{}, Done{}, Lend{}, Unlend{}, Limit{}, Open{})
)

func byKind[M message](all ...M) map[string]reflect.Type {
	kinds := map[string]reflect.Type{}
	for _, m := range all {
		kinds[m.Kind()] = reflect.TypeOf(m)
	}
	return kinds
}

type envelope struct {
	Kind    string          `json:"kind"`
	Message json.RawMessage `json:"message"`
}

// Encode appends a message as it lies on a connection.
func Encode(to []byte, m message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err == nil {
		body, err = json.Marshal(envelope{m.Kind(), body})
	}
	if err != nil {
		return to, fmt.Errorf("encoding %s: %w", m.Kind(), err)
	}
	if len(body) > MaxMessage {
		return to, fmt.Errorf("%s of %d bytes is longer than a message may be", m.Kind(), len(body))
	}
	to = binary.LittleEndian.AppendUint32(to, uint32(len(body)))
	return append(to, body...), nil
}

// ReadToHead reads what an agent sent.
func ReadToHead(r io.Reader) (ToHead, error) { return read[ToHead](r, kindsToHead) }

// ReadToAgent reads what the head sent.
func ReadToAgent(r io.Reader) (ToAgent, error) { return read[ToAgent](r, kindsToAgent) }

func read[M message](r io.Reader, kinds map[string]reflect.Type) (M, error) {
	var none M
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return none, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > MaxMessage {
		return none, fmt.Errorf("%w: it is said to have %d bytes", ErrRefused, size)
	}
	// Whoever announces much and sends little must not cost the memory.
	var body bytes.Buffer
	if n, err := io.CopyN(&body, r, int64(size)); err != nil {
		return none, fmt.Errorf("a message breaks off after %d of %d bytes: %w", n, size, err)
	}
	return decode[M](body.Bytes(), kinds)
}

func decode[M message](b []byte, kinds map[string]reflect.Type) (M, error) {
	var none M
	var e envelope
	if err := strictly(b, &e); err != nil {
		return none, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	kind, ok := kinds[e.Kind]
	if !ok {
		return none, fmt.Errorf("%w: its kind is %.40q, which is not known here", ErrRefused, e.Kind)
	}
	to := reflect.New(kind)
	if err := strictly(e.Message, to.Interface()); err != nil {
		return none, fmt.Errorf("%w: %s: %w", ErrRefused, e.Kind, err)
	}
	m := to.Elem().Interface().(M)
	if err := m.check(); err != nil {
		return none, fmt.Errorf("%w: %s with %w", ErrRefused, e.Kind, err)
	}
	return m, nil
}

// strictly reads one JSON object, without fields that v does not have and with
// nothing behind it.
func strictly(b []byte, v any) error {
	if first := bytes.TrimLeft(b, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return errors.New("not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the message")
	}
	return nil
}
