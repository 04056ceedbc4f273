package script

import (
	"fmt"
	"strings"

	"go.starlark.net/starlark"
)

// guardedMethods charge a call of a method before it is done, by its name, whatever
// type of the language has it.
var guardedMethods = map[string]func(m *meter, recv starlark.Value, args starlark.Tuple) error{
	"capitalize": wholeText, "lower": wholeText, "title": wholeText, "upper": wholeText,
	"format": formatting, "join": joining, "replace": replacing,
	"split": splitting, "rsplit": splitting, "splitlines": splitting,

	"extend": unguarded, "index": searching, "insert": moving, "pop": moving, "remove": searching,

	"items": listing, "keys": listing, "values": listing, "popitem": moving, "clear": moving,

	"add": inserting, "setdefault": inserting,

	"update": merging, "union": merging, "difference": merging, "intersection": merging,
	"symmetric_difference": merging, "issubset": merging, "issuperset": merging,
}

// freeMethods cost a constant, or what the strings do that they are of: a string is
// bounded.
var freeMethods = []string{
	"append", "codepoint_ords", "codepoints", "count", "discard", "elem_ords", "elems", "endswith", "find", "get",
	"isalnum", "isalpha", "isdigit", "islower", "isspace", "istitle", "isupper", "lstrip", "partition", "removeprefix", "removesuffix",
	"rfind", "rindex", "rpartition", "rstrip", "startswith", "strip",
}

// unguarded is for what method itself does.
func unguarded(*meter, starlark.Value, starlark.Tuple) error { return nil }

// method is a method of a value, guarded if it is one of the language's types.
func (m *meter) method(recv starlark.Value, name string) (starlark.Value, error) {
	has, ok := recv.(starlark.HasAttrs)
	if !ok {
		return nil, fmt.Errorf("%s has no .%s field or method", recv.Type(), name)
	}
	plain, err := has.Attr(name)
	if err != nil || plain == nil {
		if err == nil {
			err = fmt.Errorf("%s has no .%s field or method", recv.Type(), name)
		}
		return nil, err
	}
	inner, ok := plain.(*starlark.Builtin)
	if !ok || !ofTheLanguage(recv) {
		return plain, nil
	}
	guard := guardedMethods[name]
	return starlark.NewBuiltin(name, func(t *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		if list, ok := recv.(*starlark.List); ok && name == "extend" && len(args) == 1 && len(named) == 0 {
			return starlark.None, m.extend(list, args[0])
		}
		args, err := m.sequences(recv, name, args)
		if err != nil {
			return nil, err
		}
		if err := guard(m, recv, withNamed(args, named)); err != nil {
			return nil, err
		}
		z, err := inner.CallInternal(t, args, named)
		if err != nil {
			return nil, err
		}
		if list, ok := z.(*starlark.List); ok && name == "items" {
			return m.tuples(list)
		}
		return m.result(z)
	}).BindReceiver(recv), nil // so that what it keeps can be weighed
}

// withNamed are all values that a call is given.
func withNamed(args starlark.Tuple, named []starlark.Tuple) starlark.Tuple {
	for _, kv := range named {
		args = append(args[:len(args):len(args)], kv[1])
	}
	return args
}

func ofTheLanguage(v starlark.Value) bool {
	switch v.(type) {
	case starlark.String, starlark.Bytes, *starlark.List, starlark.Tuple, *starlark.Dict, *starlark.Set:
		return true
	}
	return false
}

// sequences replaces arguments that are iterated over by lists whose length is known.
func (m *meter) sequences(recv starlark.Value, name string, args starlark.Tuple) (starlark.Tuple, error) {
	switch name {
	case "join", "update", "union", "difference", "intersection", "symmetric_difference", "issubset", "issuperset":
	default:
		return args, nil
	}
	out := make(starlark.Tuple, len(args))
	for i, a := range args {
		out[i] = a
		if !is[starlark.Iterable](a) || is[*starlark.Dict](a) || is[*starlark.Set](a) {
			continue
		}
		list, err := m.collect(a, maxCollected)
		if err != nil {
			return nil, err
		}
		switch out[i] = starlark.NewList(list); recv.(type) {
		case *starlark.Dict:
			out[i], err = m.dictOf(starlark.NewList(list))
		case *starlark.Set:
			out[i], err = m.setOf(list)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

func wholeText(m *meter, recv starlark.Value, _ starlark.Tuple) error {
	return m.text(starlark.Len(recv))
}

func formatting(m *meter, recv starlark.Value, args starlark.Tuple) error {
	// A template may name a value many times.
	uses := strings.Count(string(recv.(starlark.String)), "{")
	n := 0
	for _, a := range args {
		w, err := weigh(a, maxString)
		if err != nil {
			return err
		}
		n += w
	}
	return m.format(starlark.Len(recv), starlark.String(strings.Repeat(" ", min(n*uses, 1<<16)*8)))
}

func joining(m *meter, recv starlark.Value, args starlark.Tuple) error {
	if len(args) != 1 {
		return nil
	}
	n := 0
	list, ok := args[0].(*starlark.List)
	if !ok {
		return nil
	}
	for i := range list.Len() {
		n += starlark.Len(recv) + max(0, starlark.Len(list.Index(i)))
	}
	return m.text(n)
}

func replacing(m *meter, recv starlark.Value, args starlark.Tuple) error {
	s, _ := starlark.AsString(recv)
	n := len(s)
	if len(args) >= 2 {
		from, _ := starlark.AsString(args[0])
		to, _ := starlark.AsString(args[1])
		n += strings.Count(s, from) * max(0, len(to)-len(from))
	}
	return m.text(n)
}

// splitting charges a list with a value for each byte at most.
func splitting(m *meter, recv starlark.Value, _ starlark.Tuple) error {
	return m.charge(starlark.Len(recv), 2*valueBytes)
}

// moving charges that all elements behind one are moved.
func moving(m *meter, recv starlark.Value, _ starlark.Tuple) error {
	return m.work(max(0, starlark.Len(recv)) / 8)
}

func listing(m *meter, recv starlark.Value, _ starlark.Tuple) error {
	return m.charge(starlark.Len(recv), valueBytes+pairBytes)
}

// searching charges that a list is searched from the front.
func searching(m *meter, recv starlark.Value, args starlark.Tuple) error {
	list, ok := recv.(*starlark.List)
	if !ok {
		return m.work(starlark.Len(recv) / 32)
	}
	if err := m.work(list.Len()); err != nil || len(args) == 0 || scalar(args[0]) {
		return err
	}
	_, err := m.weighed(recv, args[0])
	return err
}

func merging(m *meter, recv starlark.Value, args starlark.Tuple) error {
	n := max(0, starlark.Len(recv))
	for _, a := range args {
		n += max(0, starlark.Len(a))
	}
	if err := m.alloc(dictBytes); err != nil {
		return err
	}
	if err := m.charge(n, entryBytes); err != nil || !isTable(recv) {
		return err
	}
	for _, a := range args {
		if isTable(a) {
			if err := m.mayMerge(recv, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// inserting makes sure that a dictionary or a set can take a key.
func inserting(m *meter, recv starlark.Value, args starlark.Tuple) error {
	if len(args) == 0 || !isTable(recv) {
		return nil
	}
	return m.mayInsert(recv, args[0])
}
