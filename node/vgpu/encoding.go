package vgpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// In JSON events and effects are objects with their kind first and then all
// fields of that kind, and times are in nanoseconds:
//
//	{"kind":"want","client":1,"need":4194304,"estimate_ns":0,"pinned":-1}
//	{"kind":"grant","client":1,"device":0,"slot":0,"memory":4194304,"lease":1}
//
// There is one way to write each, and nothing else is read.

func byKind(all ...Event) map[string]reflect.Type {
	kinds := map[string]reflect.Type{}
	for _, e := range all {
		kinds[e.Kind()] = reflect.TypeOf(e)
	}
	return kinds
}

// AppendEvent appends an event's JSON form.
func AppendEvent(b []byte, e Event) ([]byte, error) {
	if name := nameIn(e); !utf8.ValidString(name) {
		return b, fmt.Errorf("the name %q in %s is not UTF-8, and JSON cannot hold it", name, e.Kind())
	}
	fields, err := json.Marshal(e)
	if err != nil {
		return b, fmt.Errorf("encoding %s: %w", e.Kind(), err)
	}
	return appendObject(b, e.Kind(), fields), nil
}

// nameIn returns the text in an event that comes from outside, and so may not be valid
// UTF-8.
func nameIn(e Event) string {
	switch e := e.(type) {
	case Attach:
		return e.User + string(e.Grant)
	case Adopt:
		return e.User + string(e.Grant)
	case Limit:
		return e.User
	case Admit:
		return string(e.Grant)
	case Withdraw:
		return string(e.Grant)
	case Restrict:
		return string(e.Grant)
	case Added:
		return e.Device.Name
	case Returned:
		return e.Is.Name
	}
	return ""
}

// appendObject appends the fields of an object, behind its kind.
func appendObject(b []byte, kind string, fields []byte) []byte {
	b = append(b, `{"kind":"`...)
	b = append(b, kind...)
	b = append(b, '"')
	if len(fields) > len("{}") {
		b = append(b, ',')
	}
	return append(b, fields[1:]...)
}

// ParseEvent reads what AppendEvent writes.
func ParseEvent(b []byte) (Event, error) {
	name, err := kindOf(b)
	if err != nil {
		return nil, err
	}
	typ, ok := eventKinds[name]
	if !ok {
		return nil, fmt.Errorf("there is no event %q", name)
	}
	to := reflect.New(typ)
	if err := json.Unmarshal(b, to.Interface()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e := to.Elem().Interface().(Event)
	if err := checkDevice(e); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	again, err := AppendEvent(nil, e)
	if err != nil {
		return nil, err
	}
	if err := sameBytes(b, again); err != nil {
		return nil, err
	}
	return e, nil
}

// checkDevice says what is wrong with the device that an event describes.
func checkDevice(e Event) error {
	switch e := e.(type) {
	case Added:
		return e.Device.Check()
	case Returned:
		return e.Is.Check()
	}
	return nil
}

func kindOf(b []byte) (string, error) {
	if len(b) == 0 || b[0] != '{' { // json.Unmarshal would accept null for anything
		return "", errors.New("not a JSON object")
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return "", err
	}
	return head.Kind, nil
}

// sameBytes refuses text that differs from what this package would write: with fields
// that are missing, unknown or repeated, with other capitals, or with blanks.
func sameBytes(b, want []byte) error {
	if bytes.Equal(b, want) {
		return nil
	}
	return fmt.Errorf("%s should read %s", quoted(b), quoted(want))
}

// quoted keeps what a message quotes to a length that people read.
func quoted(b []byte) string {
	const most = 200
	if len(b) <= most {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:most]), "") + " ..."
}

// effectJSON has all fields that any kind of effect has; those of other kinds
// are nil.
type effectJSON struct {
	Client *ClientID  `json:"client"`
	Device *DeviceID  `json:"device,omitempty"`
	Slot   *int       `json:"slot,omitempty"`
	Memory *uint64    `json:"memory,omitempty"`
	Lease  *int       `json:"lease,omitempty"`
	Coming *someBytes `json:"coming,omitzero"`
	On     *bool      `json:"on,omitempty"`
	Reason *Reason    `json:"reason,omitempty"`
	Keep   *someBytes `json:"keep,omitzero"`
	Step   *someBytes `json:"step,omitzero"`
}

// someBytes is a number of bytes that is written if there are any.
type someBytes uint64

// IsZero says whether there are none.
func (b someBytes) IsZero() bool { return b == 0 }

// fields returns the fields of an effect's kind, which are the effect's own.
func (e *Effect) fields() effectJSON {
	f := effectJSON{Client: &e.Client}
	switch e.Kind {
	case Grant:
		f.Device, f.Slot, f.Memory, f.Lease, f.Coming = &e.Device, &e.Slot, &e.Memory, &e.Lease, (*someBytes)(&e.Coming)
	case Revoke:
		f.Device, f.Reason, f.Keep, f.Step = &e.Device, &e.Reason, (*someBytes)(&e.Keep), (*someBytes)(&e.Step)
	case Watch:
		f.On = &e.On
	case Deny:
		f.Reason = &e.Reason
	case Gone:
		f.Device = &e.Device
	}
	return f
}

// AppendEffects appends a list of effects.
func AppendEffects(b []byte, all []Effect) ([]byte, error) {
	b = append(b, '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		fields, err := json.Marshal(all[i].fields())
		if err != nil {
			return b, fmt.Errorf("encoding %s: %w", all[i].Kind, err)
		}
		b = appendObject(b, all[i].Kind.String(), fields)
	}
	return append(b, ']'), nil
}

// ParseEffects reads what AppendEffects writes.
func ParseEffects(b []byte) ([]Effect, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	all := make([]Effect, len(list))
	for i, text := range list {
		if err := all[i].parse(text); err != nil {
			return nil, fmt.Errorf("effect %d: %w", i+1, err)
		}
	}
	again, err := AppendEffects(nil, all)
	if err != nil {
		return nil, err
	}
	if err := sameBytes(b, again); err != nil {
		return nil, err
	}
	return all, nil
}

func (e *Effect) parse(text []byte) error {
	name, err := kindOf(text)
	if err != nil {
		return err
	}
	for i, known := range kindNames {
		if known == name {
			e.Kind = Kind(i)
			fields := e.fields()
			return json.Unmarshal(text, &fields) // through the pointers, into e
		}
	}
	return fmt.Errorf("there is no effect %q", name)
}
