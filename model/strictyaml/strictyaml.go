// Package strictyaml reads YAML files strictly: every key must be known, nothing may be given
// twice, and every error names file, line, column and remedy.
//
// It supports the subset of YAML that such files need (parse.go says which), in time and memory
// proportional to the size of the file. It knows YAML, and not what any file is about.
package strictyaml

import (
	"fmt"
	"slices"
	"strings"

	"muster/model"
)

// Error is an error at one place of a file.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// File is a file that is being read. Callers walk the tree by hand, so that every error knows its
// place and its remedy.
type File struct {
	Name  string
	What  string // what the file is, as "a cluster description"
	Empty string // the remedy for an empty file
}

// Node is a value in the file.
type Node = *node

// Place is a position in the file.
type Place struct{ Line, Column int }

// Word is a plain value, or a key.
type Word struct {
	Place
	Text string
}

// Field is one key of a mapping, with the function that reads its value.
type Field struct {
	Key  string
	Read func(value Node) error
}

// Key makes a field.
func Key(key string, read func(value Node) error) Field { return Field{key, read} }

// Entry is one key of a mapping with its value.
type Entry struct {
	Key   Word
	Value Node
}

// Errorf makes an error at a place.
func (f *File) Errorf(at Place, format string, args ...any) error {
	return &Error{File: f.Name, Line: max(1, at.Line), Column: max(1, at.Column), Message: fmt.Sprintf(format, args...)}
}

// Parse returns the root of the file's only document.
func (f *File) Parse(text []byte) (Node, error) {
	clean, err := f.clean(text)
	if err != nil {
		return nil, err
	}
	p := &parser{file: f, text: clean, line: 1, column: 1}
	root, err := p.document()
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, f.Errorf(Place{}, "the file is empty: %s", f.Empty)
	}
	return root, nil
}

// Entries lists the keys of a mapping; each appears once.
func (f *File) Entries(n Node, what string) ([]Entry, error) {
	if n.kind != mapping {
		return nil, f.Errorf(Start(n), "%s must be a mapping of keys to values, not %s", what, Kind(n))
	}
	seen := make(map[string]int, len(n.items)/2)
	list := make([]Entry, 0, len(n.items)/2)
	for i := 0; i < len(n.items); i += 2 {
		key, err := f.Scalar(&n.items[i], "a key")
		if err != nil {
			return nil, err
		}
		if line, twice := seen[key.Text]; twice {
			return nil, f.Errorf(key.Place, "%q is given twice, first on line %d: remove one", shorten(key.Text), line)
		}
		seen[key.Text] = key.Line
		list = append(list, Entry{key, &n.items[i+1]})
	}
	return list, nil
}

// Fields reads a mapping with fixed keys and returns which of them were present.
func (f *File) Fields(n Node, what string, fields ...Field) (map[string]bool, error) {
	entries, err := f.Entries(n, what)
	if err != nil {
		return nil, err
	}
	given := make(map[string]bool, len(entries))
	for _, e := range entries {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Key == e.Key.Text })
		if i < 0 {
			return nil, f.Unknown(e.Key, "key of "+what, keysOf(fields))
		}
		if err := fields[i].Read(e.Value); err != nil {
			return nil, err
		}
		given[e.Key.Text] = true
	}
	return given, nil
}

func keysOf(fields []Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}

// Items lists the items of a list; ok is false for any other value.
func Items(n Node) (items []Node, ok bool) {
	if n.kind != list {
		return nil, false
	}
	items = make([]Node, len(n.items))
	for i := range n.items {
		items[i] = &n.items[i]
	}
	return items, true
}

// IsMapping says whether a value is a mapping.
func IsMapping(n Node) bool { return n.kind == mapping }

// Limits on an error about an unknown name, if there are very many names: it compares only some,
// and lists a few.
const (
	maxCompared = 1000
	maxListed   = 20
)

// Unknown is the error for a word that is not one of the known ones.
func (f *File) Unknown(w Word, what string, known []string) error {
	text := shorten(w.Text)
	switch near := model.Nearest(w.Text, known[:min(len(known), maxCompared)]); {
	case near != "":
		return f.Errorf(w.Place, "%q is no %s: did you mean %s?", text, what, near)
	case len(known) == 0:
		return f.Errorf(w.Place, "%q is no %s: none is described", text, what)
	case len(known) > maxListed:
		return f.Errorf(w.Place, "%q is no %s: it is one of %d, as %s", text, what, len(known), strings.Join(known[:maxListed], ", "))
	default:
		return f.Errorf(w.Place, "%q is no %s: it is one of %s", text, what, strings.Join(known, ", "))
	}
}

// Scalar returns a plain value.
func (f *File) Scalar(n Node, what string) (Word, error) {
	if n.kind != scalar {
		return Word{}, f.Errorf(Start(n), "%s must be a plain value, not %s", what, Kind(n))
	}
	return Word{n.place(), n.text}, nil
}

// Start is the place where a value begins; for a mapping without braces that of its first key.
func Start(n Node) Place { return n.place() }

// Kind describes the type of a value in words.
func Kind(n Node) string {
	switch n.kind {
	case nothing:
		return "nothing"
	case mapping:
		return "a mapping"
	case list:
		return "a list"
	}
	return "a plain value"
}
