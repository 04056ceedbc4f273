package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// ErrRefused says that the other side sent what it must not. Errors of Receive
// that are not this one say that the connection has ended.
var ErrRefused = errors.New("a control message was refused")

// maxMessage is how many bytes a message may take on the connection.
const maxMessage = 128 << 10

// maxReason is how many bytes of a reason are sent: it may quote what a program
// said, and JSON makes it up to six times as long.
const maxReason = 8 << 10

// The kinds of messages, by name.
var (
	kindsToWorker = byKind[ToWorker](Serve{}, Grant{}, Deny{}, Revoke{}, Lost{}, Watch{}, Parked{}, Committed{}, Ping{}, AddDevice{}, Hold{}, End{}, Probe{}, Checkpoint{}, Restore{}, Proceed{})
	kindsToDaemon = byKind[ToDaemon](Want{}, Grow{}, Released{}, Busy{}, Idle{}, SyncPoint{}, Ran{}, Commit{}, Report{}, Failed{}, CannotServe{}, Pong{}, Standing{}, Rebuild{}, Rebuilt{}, Ended{}, Checkpointed{}, Restored{})
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

func encode(m message) ([]byte, error) {
	body, err := json.Marshal(shortened(m))
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", m.Kind(), err)
	}
	b, err := json.Marshal(envelope{m.Kind(), body})
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", m.Kind(), err)
	}
	if len(b) > maxMessage {
		return nil, fmt.Errorf("%s of %d bytes is longer than a control message may be", m.Kind(), len(b))
	}
	return b, nil
}

// shortened cuts a long reason, so that what matters of the message arrives.
func shortened(m message) message {
	cut := func(reason string) string { return reason[:min(len(reason), maxReason)] }
	switch m := m.(type) {
	case Deny:
		return Deny{cut(m.Reason)}
	case Revoke:
		return Revoke{cut(m.Reason)}
	case Lost:
		return Lost{m.Device, cut(m.Reason)}
	case Committed:
		return Committed{m.Bytes, m.Granted, cut(m.Reason)}
	case Failed:
		return Failed{m.Lease, cut(m.Reason)}
	case CannotServe:
		return CannotServe{cut(m.Reason)}
	case Checkpointed:
		return Checkpointed{m.Held, m.Bytes, cut(m.Error)}
	case Restored:
		return Restored{m.Bytes, cut(m.Error)}
	}
	return m
}

// decode reads a message of one direction.
func decode[M message](b []byte, kinds map[string]reflect.Type) (M, error) {
	var none M
	var e envelope
	if err := strictly(b, &e); err != nil {
		return none, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	kind, ok := kinds[e.Kind]
	if !ok {
		return none, fmt.Errorf("%w: its kind is %q, which is not known here", ErrRefused, e.Kind)
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
