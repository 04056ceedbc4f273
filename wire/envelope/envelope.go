// Package envelope encodes messages of several kinds as JSON, {"kind": ..., "message": ...}, and
// decodes them strictly: unknown kinds and fields, and anything after the message, are refused.
//
// It knows no message.
package envelope

import (
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
	var none M
	var e sealed
	if err := strictjson.Decode(b, &e); err != nil {
		return none, err
	}
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
