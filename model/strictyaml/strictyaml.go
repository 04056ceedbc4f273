// Package strictyaml reads YAML files in which nothing may be wrong: every key
// is one that is known, nothing is given twice, and every error names file,
// line, column and remedy.
//
// It knows what a YAML file looks like, and not what any of them is about.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"muster/model"
)

// Error is something wrong at one place of a file.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// File is a file that is being read. The tree is walked by hand, since only so
// does every error know its place and its remedy.
type File struct {
	Name  string
	What  string // what the file is, as "a cluster description"
	Empty string // what to do about a file without contents
}

// Node is a value in the file.
type Node = ast.Node

// Place is where something is in the file.
type Place struct{ Line, Column int }

// Word is a plain value, or a key.
type Word struct {
	Place
	Text string
}

// Field is one key of a mapping, and what reads its value.
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

// Errorf says what is wrong at a place.
func (f *File) Errorf(at Place, format string, args ...any) error {
	return &Error{File: f.Name, Line: max(1, at.Line), Column: max(1, at.Column), Message: fmt.Sprintf(format, args...)}
}

func placeOf(tok *token.Token) Place {
	if tok == nil || tok.Position == nil {
		return Place{}
	}
	return Place{tok.Position.Line, tok.Position.Column}
}

// Parse returns the root of the file's only document.
func (f *File) Parse(text []byte) (root Node, err error) {
	if !utf8.Valid(text) {
		return nil, f.Errorf(Place{}, "the file is not UTF-8 text: %s is YAML", f.What)
	}
	// Some editors begin a file with this mark; the parser takes it for part of the first key.
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	// The parser is someone else's: if it breaks on a file, the file is at fault.
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, f.Errorf(Place{}, "not valid YAML: the parser gave up (%v)", p)
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if err := f.checkDepth(tokens); err != nil {
		return nil, err
	}
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var bad yaml.Error
		if errors.As(err, &bad) {
			tok, hint := bad.GetToken(), ""
			if tok != nil && tok.Type == token.SequenceStartType && strings.Contains(bad.GetMessage(), "must be specified") {
				hint = ": put a name with brackets in quotes"
			}
			return nil, f.Errorf(placeOf(tok), "not valid YAML: %s%s", bad.GetMessage(), hint)
		}
		return nil, f.Errorf(Place{}, "not valid YAML: %v", err)
	}
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			return nil, f.Errorf(Start(doc.Body), "a second document: write %s into a file of its own", f.What)
		}
		root = doc.Body
	}
	if root == nil {
		return nil, f.Errorf(Place{}, "the file is empty: %s", f.Empty)
	}
	return root, nil
}

// checkDepth refuses nesting that no file of ours has and that would exhaust
// the parser's stack.
func (f *File) checkDepth(tokens token.Tokens) error {
	const most = 32
	depth, opened := 0, 0
	for _, tok := range tokens {
		switch tok.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
			opened++
		case token.MappingEndType, token.SequenceEndType:
			depth--
			opened = 0
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.TagType, token.AnchorType:
			opened++
		default:
			opened = 0
		}
		if depth > most || opened > most {
			return f.Errorf(placeOf(tok), "nested too deeply for %s", f.What)
		}
	}
	return nil
}

// Entries lists the keys of a mapping; each appears once.
func (f *File) Entries(n Node, what string) ([]Entry, error) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		return nil, f.Errorf(Start(n), "%s must be a mapping of keys to values, not %s", what, Kind(n))
	}
	seen := make(map[string]int, len(values))
	list := make([]Entry, 0, len(values))
	for _, v := range values {
		key, err := f.Scalar(v.Key, "a key")
		if err != nil {
			return nil, err
		}
		if line, twice := seen[key.Text]; twice {
			return nil, f.Errorf(key.Place, "%q is given twice, first on line %d: remove one", key.Text, line)
		}
		seen[key.Text] = key.Line
		list = append(list, Entry{key, v.Value})
	}
	return list, nil
}

// Fields reads a mapping with fixed keys and reports which were there.
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

// Items lists what is in a list; ok is false for anything else.
func Items(n Node) (items []Node, ok bool) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, false
	}
	return list.Values, true
}

// IsMapping says whether a value has keys.
func IsMapping(n Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// Unknown is the error for a word that is not among those known.
func (f *File) Unknown(w Word, what string, known []string) error {
	switch near := model.Nearest(w.Text, known); {
	case near != "":
		return f.Errorf(w.Place, "%q is no %s: did you mean %s?", w.Text, what, near)
	case len(known) == 0:
		return f.Errorf(w.Place, "%q is no %s: none is described", w.Text, what)
	default:
		return f.Errorf(w.Place, "%q is no %s: it is one of %s", w.Text, what, strings.Join(known, ", "))
	}
}

// Scalar returns a plain value.
func (f *File) Scalar(n Node, what string) (Word, error) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		tok := n.GetToken()
		return Word{placeOf(tok), tok.Value}, nil
	}
	return Word{}, f.Errorf(Start(n), "%s must be a plain value, not %s", what, Kind(n))
}

// Start is where a value begins. The token of a mapping in block style is its
// first colon, which is not what people call its beginning.
func Start(n Node) Place {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return placeOf(m.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return placeOf(m.Key.GetToken())
	}
	return placeOf(n.GetToken())
}

// Kind says what a value is, in words.
func Kind(n Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor, alias or merge: write it out"
	case *ast.TagNode:
		return "a tag: leave it out"
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.MappingKeyNode:
		return "a complex key"
	}
	return "a plain value"
}
