// Package strictjson decodes JSON strictly: one object, with nothing after it, in which each name
// occurs once, and exactly as it is documented. encoding/json alone takes names in any case, and the
// last of several equal ones, so that two programs may read one document differently.
//
// All of Muster's strict decoders are this one.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
)

// Decode reads an object into v, which must be discarded if there is an error.
func Decode(b []byte, v any) error {
	if first := bytes.TrimLeft(b, space); len(first) == 0 || first[0] != '{' {
		return errors.New("not a JSON object")
	}
	if json.Unmarshal(b, v) == nil {
		w := walker{b}
		if w.value(reflect.TypeOf(v)) == nil {
			return nil
		}
	}
	return why(b, v)
}

// why says why an object is refused. A decoder that knows of unknown fields has the better words, and costs
// more.
func why(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	w := walker{b}
	return w.value(reflect.TypeOf(v))
}

const space = " \t\r\n"

// walker checks the names in a text that encoding/json has accepted, so it need not check the
// syntax again.
type walker struct{ rest []byte }

// next is the next byte that is no space.
func (w *walker) next() byte {
	w.rest = bytes.TrimLeft(w.rest, space)
	return w.rest[0]
}

// value passes over a value that is read into a t; nil if the names in it are free.
func (w *walker) value(t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if t != nil && (t.Kind() == reflect.Interface || decodesItself(t)) {
		t = nil
	}
	switch w.next() {
	case '{':
		return w.object(t)
	case '[':
		return w.list(t)
	case '"':
		w.text()
	default:
		end := bytes.IndexAny(w.rest, ",]}"+space)
		if end < 0 {
			end = len(w.rest)
		}
		w.rest = w.rest[end:]
	}
	return nil
}

// text passes over a string, and returns what is between its quotes.
func (w *walker) text() []byte {
	for end := 1; ; end++ {
		end += bytes.IndexByte(w.rest[end:], '"')
		text := w.rest[1:end]
		if escapes := len(text) - len(bytes.TrimRight(text, `\`)); escapes%2 == 0 {
			w.rest = w.rest[end+1:]
			return text
		}
	}
}

func (w *walker) list(t reflect.Type) error {
	var each reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		each = t.Elem()
	}
	w.rest = w.rest[1:]
	for w.next() != ']' {
		if err := w.value(each); err != nil {
			return err
		}
		if w.next() == ',' {
			w.rest = w.rest[1:]
		}
	}
	w.rest = w.rest[1:]
	return nil
}

func (w *walker) object(t reflect.Type) error {
	var fields map[string]reflect.Type
	var each reflect.Type
	if t != nil && t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	} else if t != nil && t.Kind() == reflect.Map {
		each = t.Elem()
	}
	var seen names
	w.rest = w.rest[1:]
	for w.next() != '}' {
		name := plain(w.text())
		if !seen.add(name) {
			return fmt.Errorf("the name %q is given twice", name)
		}
		within := each
		if fields != nil {
			var known bool
			if within, known = fields[string(name)]; !known {
				return fmt.Errorf("unknown field %q: %s", name, instead(name, fields))
			}
		}
		w.next() // :
		w.rest = w.rest[1:]
		if err := w.value(within); err != nil {
			return err
		}
		if w.next() == ',' {
			w.rest = w.rest[1:]
		}
	}
	w.rest = w.rest[1:]
	return nil
}

// plain is a name without escapes.
func plain(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	var text string
	_ = json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &text) // it was accepted before
	return []byte(text)
}

// instead tells how a name must be written that encoding/json takes for a field's.
func instead(name []byte, fields map[string]reflect.Type) string {
	for field := range fields {
		if strings.EqualFold(field, string(name)) {
			return fmt.Sprintf("write %q", field)
		}
	}
	return "names are read to the letter"
}

// names are those of an object. Most objects have few, for which a map would cost more.
type names struct {
	few  [16][]byte
	n    int // of few
	many map[string]bool
}

func (n *names) add(name []byte) bool {
	if n.many == nil {
		for _, other := range n.few[:n.n] {
			if bytes.Equal(other, name) {
				return false
			}
		}
		n.few[n.n] = name
		if n.n++; n.n == len(n.few) {
			n.many = make(map[string]bool, 64)
			for _, each := range n.few {
				n.many[string(each)] = true
			}
		}
		return true
	}
	if n.many[string(name)] {
		return false
	}
	n.many[string(name)] = true
	return true
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// decodesItself says that encoding/json leaves the names in such a value to the value's own method.
func decodesItself(t reflect.Type) bool {
	return t.Implements(unmarshaler) || t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshaler)
}

var known sync.Map // of reflect.Type, the fields

// fieldsOf are a struct's fields by their names in JSON. Where several have the same, those of outer
// structs come before those of embedded ones, as with encoding/json.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if fields, ok := known.Load(t); ok {
		return fields.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for level, seen := []reflect.Type{t}, map[reflect.Type]bool{t: true}; len(level) > 0; {
		here := map[string]reflect.Type{}
		var next []reflect.Type
		for _, outer := range level {
			for i := range outer.NumField() {
				f := outer.Field(i)
				tag := f.Tag.Get("json")
				name, _, _ := strings.Cut(tag, ",")
				inner := f.Type
				if inner.Kind() == reflect.Pointer {
					inner = inner.Elem()
				}
				switch {
				case tag == "-" || !f.IsExported() && !(f.Anonymous && inner.Kind() == reflect.Struct):
				case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
					if !seen[inner] {
						seen[inner] = true
						next = append(next, inner)
					}
				default:
					if name == "" {
						name = f.Name
					}
					here[name] = f.Type
				}
			}
		}
		for name, of := range here {
			if _, outer := fields[name]; !outer {
				fields[name] = of
			}
		}
		level = next
	}
	known.Store(t, fields)
	return fields
}
