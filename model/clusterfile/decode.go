package clusterfile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"muster/model"
)

// decoder turns the syntax tree of one file into a cluster. The tree is walked
// by hand, since only so does every error know its place and its remedy.
type decoder struct {
	file    string
	cluster model.Cluster
	links   map[string]model.Link
	// lineOf says where a node was described first.
	lineOf map[string]int
}

func decode(text []byte, file string) (*model.Cluster, error) {
	d := &decoder{file: file, links: map[string]model.Link{}, lineOf: map[string]int{}}
	root, err := d.parse(text)
	if err != nil {
		return nil, err
	}
	if err := d.document(root); err != nil {
		return nil, err
	}
	return &d.cluster, nil
}

func (d *decoder) errorAt(tok *token.Token, format string, args ...any) error {
	line, column := 1, 1
	if tok != nil && tok.Position != nil {
		line, column = max(1, tok.Position.Line), max(1, tok.Position.Column)
	}
	return &Error{File: d.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

func (d *decoder) parse(text []byte) (root ast.Node, err error) {
	if !utf8.Valid(text) {
		return nil, d.errorAt(nil, "the file is not UTF-8 text: a cluster description is YAML")
	}
	// The parser is someone else's: if it breaks on a file, the file is at fault.
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, d.errorAt(nil, "not valid YAML: the parser gave up (%v)", p)
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if err := d.checkDepth(tokens); err != nil {
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
			return nil, d.errorAt(tok, "not valid YAML: %s%s", bad.GetMessage(), hint)
		}
		return nil, d.errorAt(nil, "not valid YAML: %v", err)
	}
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			return nil, d.errorAt(start(doc.Body), "a second document: describe one cluster a file")
		}
		root = doc.Body
	}
	if root == nil {
		return nil, d.errorAt(nil, "the file is empty: describe the nodes, as nodes: [{name: n1, cores: 8, memory: 64GB}]")
	}
	return root, nil
}

// checkDepth refuses nesting that no cluster description has and that would
// exhaust the parser's stack.
func (d *decoder) checkDepth(tokens token.Tokens) error {
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
			return d.errorAt(tok, "nested too deeply for a cluster description")
		}
	}
	return nil
}

// field is one key of a mapping, and what reads its value.
type field struct {
	key  string
	read func(value ast.Node) error
}

type entry struct {
	key   *token.Token
	value ast.Node
}

// entries lists the keys of a mapping; each appears once.
func (d *decoder) entries(n ast.Node, what string) ([]entry, error) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		return nil, d.errorAt(start(n), "%s must be a mapping of keys to values, not %s", what, kind(n))
	}
	seen := make(map[string]int, len(values))
	list := make([]entry, 0, len(values))
	for _, v := range values {
		tok, err := d.scalar(v.Key, "a key")
		if err != nil {
			return nil, err
		}
		if line, twice := seen[tok.Value]; twice {
			return nil, d.errorAt(tok, "%q is given twice, first on line %d: remove one", tok.Value, line)
		}
		seen[tok.Value] = tok.Position.Line
		list = append(list, entry{tok, v.Value})
	}
	return list, nil
}

// fields reads a mapping with fixed keys and reports which were there.
func (d *decoder) fields(n ast.Node, what string, fields ...field) (map[string]bool, error) {
	entries, err := d.entries(n, what)
	if err != nil {
		return nil, err
	}
	given := make(map[string]bool, len(entries))
	for _, e := range entries {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key.Value })
		if i < 0 {
			return nil, d.unknown(e.key, "key of "+what, fieldKeys(fields))
		}
		if err := fields[i].read(e.value); err != nil {
			return nil, err
		}
		given[e.key.Value] = true
	}
	return given, nil
}

func fieldKeys(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// unknown is the error for a word that is not among those known.
func (d *decoder) unknown(tok *token.Token, what string, known []string) error {
	switch near := model.Nearest(tok.Value, known); {
	case near != "":
		return d.errorAt(tok, "%q is no %s: did you mean %s?", tok.Value, what, near)
	case len(known) == 0:
		return d.errorAt(tok, "%q is no %s: none is described", tok.Value, what)
	default:
		return d.errorAt(tok, "%q is no %s: it is one of %s", tok.Value, what, strings.Join(known, ", "))
	}
}

// scalar returns the token of a plain value.
func (d *decoder) scalar(n ast.Node, what string) (*token.Token, error) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken(), nil
	}
	return nil, d.errorAt(start(n), "%s must be a plain value, not %s", what, kind(n))
}

// start is where a value begins. The token of a mapping in block style is its
// first colon, which is not what people call its beginning.
func start(n ast.Node) *token.Token {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return m.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return m.Key.GetToken()
	}
	return n.GetToken()
}

func kind(n ast.Node) string {
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

func (d *decoder) size(what string, into *int64) func(ast.Node) error {
	return reader(d, what, into, model.ParseSize)
}

func (d *decoder) bandwidth(what string, into *int64) func(ast.Node) error {
	return reader(d, what, into, model.ParseBandwidth)
}

func (d *decoder) duration(what string, into *time.Duration) func(ast.Node) error {
	return reader(d, what, into, model.ParseDuration)
}

func (d *decoder) number(what, need string, fits func(float64) bool, into *float64) func(ast.Node) error {
	return reader(d, what, into, func(s string) (float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsInf(x, 0) || !fits(x) {
			return 0, fmt.Errorf("must be a number %s, not %q", need, s)
		}
		return x, nil
	})
}

func above0(x float64) bool { return x > 0 }

func atLeast1(x float64) bool { return x >= 1 }

func (d *decoder) count(what string, least, most int, into *int) func(ast.Node) error {
	return reader(d, what, into, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be a whole number from %d to %d, not %q", least, most, s)
		}
		return n, nil
	})
}

// word reads a name of the kind that is safe in every file format and command line.
func (d *decoder) word(what string, into *string) func(ast.Node) error {
	return reader(d, what, into, func(s string) (string, error) { return s, checkWord(s) })
}

func checkWord(s string) error {
	bad := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-+", r))
	}
	if s == "" || len(s) > 255 || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("must be made of letters, digits and ._-+, not %q", s)
	}
	return nil
}

func reader[T any](d *decoder, what string, into *T, parse func(string) (T, error)) func(ast.Node) error {
	return func(n ast.Node) error {
		tok, err := d.scalar(n, what)
		if err != nil {
			return err
		}
		v, err := parse(tok.Value)
		if err != nil {
			return d.errorAt(tok, "%s: %v", what, err)
		}
		*into = v
		return nil
	}
}

// document reads the whole file. The keys may stand in any order, but nodes
// need the types and links, so they are read last.
func (d *decoder) document(root ast.Node) error {
	var types, links, nodes ast.Node
	keep := func(into *ast.Node) func(ast.Node) error {
		return func(n ast.Node) error { *into = n; return nil }
	}
	d.cluster.Remote.Overhead = 1
	given, err := d.fields(root, "a cluster description",
		field{"name", d.word("name", &d.cluster.Name)},
		field{"gpu_types", keep(&types)},
		field{"links", keep(&links)},
		field{"remote_gpus", d.remote},
		field{"nodes", keep(&nodes)},
	)
	if err != nil {
		return err
	}
	if given["gpu_types"] {
		if err := d.gpuTypes(types); err != nil {
			return err
		}
	}
	if given["links"] {
		if err := d.linkTypes(links); err != nil {
			return err
		}
	}
	if !given["nodes"] {
		return d.errorAt(start(root), "there are no nodes: add nodes: [{name: n1, cores: 8, memory: 64GB}]")
	}
	return d.nodes(nodes)
}

func (d *decoder) gpuTypes(n ast.Node) error {
	entries, err := d.entries(n, "gpu_types")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := checkWord(e.key.Value); err != nil {
			return d.errorAt(e.key, "the name of a GPU type %v", err)
		}
		t := model.GPUType{Name: e.key.Value, Speed: 1}
		if _, err := d.fields(e.value, "GPU type "+t.Name,
			field{"memory", d.size("memory", &t.Memory)},
			field{"speed", d.number("speed", "above 0", above0, &t.Speed)},
			field{"peer_bandwidth", d.bandwidth("peer_bandwidth", &t.PeerBandwidth)},
		); err != nil {
			return err
		}
		d.cluster.GPUTypes = append(d.cluster.GPUTypes, t)
	}
	return nil
}

func (d *decoder) linkTypes(n ast.Node) error {
	entries, err := d.entries(n, "links")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := checkWord(e.key.Value); err != nil {
			return d.errorAt(e.key, "the name of a link %v", err)
		}
		var l model.Link
		if _, err := d.fields(e.value, "link "+e.key.Value,
			field{"bandwidth", d.bandwidth("bandwidth", &l.Bandwidth)},
			field{"latency", d.duration("latency", &l.Latency)},
		); err != nil {
			return err
		}
		if l.Bandwidth == 0 {
			return d.errorAt(e.key, "link %s has no bandwidth: add bandwidth: 10GB/s", e.key.Value)
		}
		d.links[e.key.Value] = l
	}
	return nil
}

func (d *decoder) remote(n ast.Node) error {
	r := &d.cluster.Remote
	_, err := d.fields(n, "remote_gpus",
		field{"latency", d.duration("latency", &r.Latency)},
		field{"overhead", d.number("overhead", "of at least 1", atLeast1, &r.Overhead)},
	)
	return err
}

func (d *decoder) nodes(n ast.Node) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return d.errorAt(start(n), "nodes must be a list, not %s: write - {name: n1, cores: 8, memory: 64GB}", kind(n))
	}
	for _, v := range list.Values {
		if err := d.node(v); err != nil {
			return err
		}
	}
	if len(d.cluster.Nodes) == 0 {
		return d.errorAt(n.GetToken(), "there are no nodes: add - {name: n1, cores: 8, memory: 64GB}")
	}
	return nil
}

// node reads one entry, which may stand for a range of equal nodes.
func (d *decoder) node(n ast.Node) error {
	var node model.Node
	var names []string
	var nameToken *token.Token
	given, err := d.fields(n, "a node",
		field{"name", func(n ast.Node) (err error) {
			if nameToken, err = d.scalar(n, "name"); err != nil {
				return err
			}
			if names, err = model.ExpandNodes(nameToken.Value); err != nil {
				return d.errorAt(nameToken, "%v", err)
			}
			return nil
		}},
		field{"cores", d.count("cores", 1, math.MaxInt32, &node.Cores)},
		field{"memory", d.size("memory", &node.Memory)},
		field{"gpus", func(n ast.Node) (err error) {
			node.GPUs, err = d.gpus(n)
			return err
		}},
		field{"link", func(n ast.Node) error {
			tok, err := d.scalar(n, "link")
			if err != nil {
				return err
			}
			link, ok := d.links[tok.Value]
			if !ok {
				return d.unknown(tok, "link", d.linkNames())
			}
			node.Link = link
			return nil
		}},
	)
	if err != nil {
		return err
	}
	for _, need := range []struct{ key, example string }{{"name", "n[1-8]"}, {"cores", "8"}, {"memory", "64GB"}} {
		if !given[need.key] {
			return d.errorAt(start(n), "this node has no %s: add %s: %s", need.key, need.key, need.example)
		}
	}
	if len(names)+len(d.cluster.Nodes) > model.MaxNodeNames {
		return d.errorAt(nameToken, "the cluster has more than %d nodes", model.MaxNodeNames)
	}
	for _, name := range names {
		if line, twice := d.lineOf[name]; twice {
			return d.errorAt(nameToken, "node %q is described twice, first on line %d: give each node one name", name, line)
		}
		d.lineOf[name] = nameToken.Position.Line
		node.Name = name
		d.cluster.Nodes = append(d.cluster.Nodes, node)
	}
	return nil
}

func (d *decoder) linkNames() []string {
	names := make([]string, 0, len(d.links))
	for name := range d.links {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// gpus reads {k20x: 2, p100: 1}, or [k20x, p100, k20x] where their order in
// the node matters.
func (d *decoder) gpus(n ast.Node) ([]int, error) {
	var devices []int
	add := func(tok *token.Token, count int) error {
		t := d.cluster.GPUType(tok.Value)
		if t < 0 {
			return d.unknown(tok, "GPU type", d.gpuTypeNames())
		}
		if len(devices)+count > model.MaxGPUsPerNode {
			return d.errorAt(tok, "%d GPUs in a node: at most %d are supported", len(devices)+count, model.MaxGPUsPerNode)
		}
		devices = append(devices, slices.Repeat([]int{t}, count)...)
		return nil
	}
	if list, ok := n.(*ast.SequenceNode); ok {
		for _, v := range list.Values {
			tok, err := d.scalar(v, "a GPU type")
			if err != nil {
				return nil, err
			}
			if err := add(tok, 1); err != nil {
				return nil, err
			}
		}
		return devices, nil
	}
	entries, err := d.entries(n, "gpus")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var count int
		if err := d.count("the number of GPUs", 0, math.MaxInt32, &count)(e.value); err != nil {
			return nil, err
		}
		if err := add(e.key, count); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

func (d *decoder) gpuTypeNames() []string {
	names := make([]string, len(d.cluster.GPUTypes))
	for i, t := range d.cluster.GPUTypes {
		names[i] = t.Name
	}
	return names
}
