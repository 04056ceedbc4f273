// Package envelope encodes messages of several kinds as JSON, {"kind": ..., "message": ...}, and
// decodes them strictly: unknown kinds and fields, and anything after the message, are refused.
//
// It knows no message.
package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"muster/internal/strictjson"
)

// Message is a message of one of several kinds.
type Message interface{ Kind() string }

// Kinds are the messages that may arrive, by kind.
type Kinds[M Message] map[string]reflect.Type

// Of makes Kinds from a value of each.
func Of[M Message](all ...M) Kinds[M] {
	kinds := Kinds[M]{}
	for _, m := range all {
		kinds[m.Kind()] = reflect.TypeOf(m)
	}
	return kinds
}

type sealed struct {
	Kind    string          `json:"kind"`
	Message json.RawMessage `json:"message"`
}

// Encode encodes a message.
func Encode(m Message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err == nil {
		body, err = json.Marshal(sealed{m.Kind(), body})
	}
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", m.Kind(), err)
	}
	return body, nil
}

// Decode decodes a message. check refuses values that are impossible.
func (k Kinds[M]) Decode(b []byte, check func(M) error) (M, error) {
	if e, ok := asEncoded(b); ok {
		if m, err := k.open(e, check); err == nil {
			return m, nil
		} // else say what is wrong with the whole
	}
	var none M
	var e sealed
	if err := strictjson.Decode(b, &e); err != nil {
		return none, err
	}
	return k.open(e, check)
}

// asEncoded takes a message apart that looks as Encode makes it. What it takes for the message may be more
// or less than that, and is no object then. Heads read thousands a second, and read each once by this.
func asEncoded(b []byte) (e sealed, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"kind":"`))
	kind, rest, separated := bytes.Cut(rest, []byte(`","message":`))
	if body, closed := bytes.CutSuffix(rest, []byte("}")); ok && separated && closed {
		return sealed{string(kind), body}, true
	}
	return e, false
}

// open decodes what is in an envelope.
func (k Kinds[M]) open(e sealed, check func(M) error) (M, error) {
	var none M
	kind, ok := k[e.Kind]
	if !ok {
		return none, fmt.Errorf("its kind is %.40q, which is not known here", e.Kind)
	}
	to := reflect.New(kind)
	if err := strictjson.Decode(e.Message, to.Interface()); err != nil {
		return none, fmt.Errorf("%s: %w", e.Kind, err)
	}
	m := to.Elem().Interface().(M)
	if err := check(m); err != nil {
		return none, fmt.Errorf("%s with %w", e.Kind, err)
	}
	return m, nil
}
