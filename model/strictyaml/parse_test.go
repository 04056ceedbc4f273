package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/proportion"
	"muster/internal/seeds"
)

func parse(text string) (Node, error) {
	f := File{Name: "f", What: "a file", Empty: "write something"}
	return f.Parse([]byte(text))
}

// tree is a value as the recorded documents have it.
func tree(n Node) any {
	switch n.kind {
	case nothing:
		return nil
	case scalar:
		return n.text
	case list:
		values := []any{}
		for i := range n.items {
			values = append(values, tree(&n.items[i]))
		}
		return values
	}
	keys, values := []any{}, []any{}
	for i := 0; i < len(n.items); i += 2 {
		keys, values = append(keys, tree(&n.items[i])), append(values, tree(&n.items[i+1]))
	}
	return map[string]any{"keys": keys, "values": values}
}

// flow writes a value on one line: {a: [1, null]}.
func flow(n Node) string {
	switch n.kind {
	case nothing:
		return "null"
	case scalar:
		return quoteAlways(n.text)
	case list:
		parts := make([]string, len(n.items))
		for i := range n.items {
			parts[i] = flow(&n.items[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var parts []string
	for i := 0; i < len(n.items); i += 2 {
		parts = append(parts, flow(&n.items[i])+": "+flow(&n.items[i+1]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func quoteAlways(s string) string {
	if q := Quote(s); q != s {
		return q
	}
	return `"` + s + `"`
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: 1\nb: two words # a comment\n", `{"a": "1", "b": "two words"}`},
		{"# first\n\na:\n  b:\n    c: 1\n  d: 2\n", `{"a": {"b": {"c": "1"}, "d": "2"}}`},
		{"a:\n- 1\n- 2\nb: 3\n", `{"a": ["1", "2"], "b": "3"}`},
		{"a:\n  - x: 1\n    y: 2\n  - - 3\n    - 4\n  -\n    z: 5\n  -\n", `{"a": [{"x": "1", "y": "2"}, ["3", "4"], {"z": "5"}, null]}`},
		{"a: {b: 1, c: [x, 'y z', \"w\"], d: {}, e: []}\n", `{"a": {"b": "1", "c": ["x", "y z", "w"], "d": {}, "e": []}}`},
		{"a: [1,\n 2, # two\n\n3,\n]\n", `{"a": ["1", "2", "3"]}`},
		{"a:\nb: ~\nc: null\nd: \"\"\ne: 'null'\n", `{"a": null, "b": null, "c": null, "d": "", "e": "null"}`},
		{"a: {b: , c:}\n", `{"a": {"b": null, "c": null}}`},
		{"{\"a\":1,'b':[2]}\n", `{"a": "1", "b": ["2"]}`},
		{"a: http://h:80/x#y\nb: -1\nc: :9421\nd: n[1-3],m{4}\ne: a,b\n", `{"a": "http://h:80/x#y", "b": "-1", "c": ":9421", "d": "n[1-3],m{4}", "e": "a,b"}`},
		{"a: \"tab\\tA\\x41\\u00e9\\U0001F600 \\\"q\\\" \\\\\"\nb: 'it''s'\n", "{\"a\": \"tab\\tAAé\U0001F600 \\\"q\\\" \\\\\", \"b\": \"it's\"}"},
		{"a: one\n  two\n\n  three\nb: \"four\n   five \\\n   six\"\n", `{"a": "one two\nthree", "b": "four five six"}`},
		{"a: [one\n two, three]\n", `{"a": ["one two", "three"]}`},
		{"---\na: 1\n...\n", `{"a": "1"}`},
		{"\ufeffa: 1\r\nb:\r\n  - 2\r\n", `{"a": "1", "b": ["2"]}`},
		{"\"a b\": 1\n'c': 2\n? x\n", "f:3:1: a complex key"},
		{"hello\n", `"hello"`},
		{"a:\t1\n", `{"a": "1"}`},
	} {
		n, err := parse(c.text)
		got := fmt.Sprint(err)
		if err == nil {
			got = flow(n)
		}
		if got != c.want && !(err != nil && strings.HasPrefix(got, c.want)) {
			t.Errorf("%q:\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("- ", 40) + "1\n"
	for _, c := range []struct{ text, want string }{
		{"a: [1, 2\nb: 3\n", "f:2:2: not valid YAML: a colon in a value of several lines: put the value in quotes, or indent this line as the one above; between braces a comma may be missing"},
		{"a: [1, 2\n", "f:1:4: not valid YAML: the bracket that opens here is not closed: add ']'"},
		{"a: {b: 1\n---\n", "f:1:4: not valid YAML: the bracket that opens here is not closed: add '}'"},
		{"a: {b: 1 \"c\": 2}\n", "f:1:13: not valid YAML: ',' or '}' is missing before this"},
		{"a: {b: 1\n c: 2}\n", "f:2:3: not valid YAML: a colon in a value of several lines: put the value in quotes, or indent this line as the one above; between braces a comma may be missing"},
		{"a: {b:1}\n", `f:1:5: not valid YAML: "b:1" has no value: write a colon and a blank behind a key, and a value with a comma in quotes`},
		{"a: {b c\n d: 1}\n", "f:2:3: not valid YAML: a colon in a value of several lines"},
		{"a: {b: n[1-3]}\n", "f:1:9: not valid YAML: a bracket in the middle of a value: put a name with brackets in quotes"},
		{"a: [b: 1]\n", "f:1:6: not valid YAML: a colon in a list: put braces around the pair, as [{a: 1}]"},
		{"a: [1, , 2]\n", "f:1:8: not valid YAML: a value is missing before the comma"},
		{"a: ]\n", "f:1:4: not valid YAML: ']' where a value is expected"},
		{"a: [- 1]\n", "f:1:5: not valid YAML: an entry of a list between brackets: write [a, b]"},
		{"a: b: c\n", "f:1:5: not valid YAML: a second colon behind a key: put the value in quotes, or begin a mapping on the next line"},
		{"a: - b\n", "f:1:4: not valid YAML: a list behind its key: begin it on the next line, or write [a, b]"},
		{"a: 1\n  b: 2\n", "f:2:4: not valid YAML: a colon in a value of several lines"},
		{"a:\n    b: 1\n  c: 2\n", "f:3:3: not valid YAML: indented more than its neighbours above, which begin at column 1"},
		{"a: 1\nb\n", "f:2:1: not valid YAML: a key is expected, and behind it a colon and a blank"},
		{"a: 1\n- b\n", "f:2:1: not valid YAML: an entry of a list among the keys of a mapping: indent it more, or less"},
		{"- a\nb: 1\n", "f:2:1: not valid YAML: this does not belong to what is above: indent it alike"},
		{"a: \"b\" c\n", "f:1:8: not valid YAML: 'c' after the end of a value: put the value in quotes, or begin a new line"},
		{"a: \"b\nc: 1\n", "f:1:4: not valid YAML: the quote that opens here is not closed"},
		{"a: 'b\n---\n", "f:1:4: not valid YAML: the quote that opens here is not closed"},
		{"a: \"\\q\"\n", `f:1:5: not valid YAML: a backslash before "q" means nothing: write \\ for a backslash`},
		{"a: \"\\ud800\"\n", `f:1:5: not valid YAML: \ud800 is no character`},
		{"a: \"é\\x4\"\n", `f:1:6: not valid YAML: \x4" is no character`},
		{"a: |\n  text\n", "f:1:4: a block of text, which is not read: write the value in quotes"},
		{"a: >-\n  text\n", "f:1:4: a block of text, which is not read: write the value in quotes"},
		{"a: *b\n", "f:1:4: an anchor or alias, which are not read: write the value out"},
		{"a: &b c\n", "f:1:4: an anchor or alias, which are not read: write the value out"},
		{"a: !!str b\n", "f:1:4: a tag, which is not read: leave it out"},
		{"%YAML 1.2\n---\na: 1\n", "f:1:1: a directive, which is not read: leave it out"},
		{"[a]: 1\n", "f:1:4: not valid YAML: ':' after the end of a value"},
		{"{[a]: 1}\n", "f:1:2: a complex key, which is not read: a key is a plain word"},
		{"a: @b\n", "f:1:4: not valid YAML: a value cannot begin with @: put it in quotes"},
		{"a:\n\tb: 1\n", "f:2:2: not valid YAML: a tab before the first word of the line: indent with spaces"},
		{"-\ta: 1\n", "f:1:3: not valid YAML: a tab behind a dash: use a space"},
		{"--- a\n", "f:1:5: not valid YAML: a document begins on the line after its mark: start a new line"},
		{"a: 1\n---\nb: 1\n", "f:3:1: a second document: write a file into a file of its own"},
		{"é: \x00\n", `f:1:4: the control character '\x00': a file is plain text`},
		{"a: 1\rb: 2\n", `f:1:5: the control character '\r': a file is plain text`},
		{deep, "f:1:65: nested too deeply for a file: at most 32 levels are read"},
		{"null: 1\n", ""},
	} {
		_, err := parse(c.text)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: got %v", c.text, err)
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
			t.Errorf("%q:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// Another reader of YAML reads the same, wherever ours reads at all.
// testdata/record.py says how the documents were made.
func TestRecordedDocuments(t *testing.T) {
	text, err := os.ReadFile("testdata/pyyaml.json")
	if err != nil {
		t.Fatal(err)
	}
	var documents []struct {
		Text  string
		Trees []any
	}
	if err := json.Unmarshal(text, &documents); err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, d := range documents {
		n, err := parse(d.Text)
		switch {
		case err != nil:
		case len(d.Trees) != 1 || !reflect.DeepEqual(tree(n), d.Trees[0]):
			t.Errorf("%q:\ngot  %v\nwant %v", d.Text, tree(n), d.Trees)
		default:
			same++
		}
	}
	if same < 300 {
		t.Errorf("only %d of %d documents were read", same, len(documents))
	}
}

// long are documents that grow with n, legal and not, each with what some reader
// of YAML takes long for. They have at least 20 bytes for each n.
var long = []struct {
	name string
	text func(n int) string
}{
	{"keys", func(n int) string { return repeat(n, "key%06d: value\n") }},
	{"keys-of-keys", func(n int) string { return repeat(n, "key%06d:\n  a: 1\n") }},
	{"keys-and-comments", func(n int) string { return repeat(n, "# comment\nkey%06d: 1 # more\n") }},
	{"keys-in-braces", func(n int) string { return "a: {" + repeat(n, "key%06d: value, ") + "}\n" }},
	{"list", func(n int) string { return "a:\n" + repeat(n, "  - value number %06d\n") }},
	{"list-of-mappings", func(n int) string { return "a:\n" + repeat(n, "  - {name: n%06d, cores: 8}\n") }},
	{"list-in-brackets", func(n int) string { return "a: [" + repeat(n, "value number %06d, ") + "]\n" }},
	{"empty-lists", func(n int) string { return "a: [" + strings.Repeat("[],", 7*n) + "]\n" }},
	{"plain", func(n int) string { return "a: " + strings.Repeat("x # - : ' ", 2*n) + "\n" }},
	{"key", func(n int) string { return strings.Repeat("x", 20*n) + ": 1\n" }},
	{"lines-of-plain", func(n int) string { return "a:\n" + strings.Repeat("  x - y\n\n", 2*n) }},
	{"quoted", func(n int) string { return "a: \"" + strings.Repeat("x", 20*n) + "\"\n" }},
	{"quoted-tabs", func(n int) string { return "a: \"" + strings.Repeat("\t", 20*n) + "\"\n" }},
	{"quoted-quotes", func(n int) string { return "a: '" + strings.Repeat("''", 10*n) + "'\n" }},
	{"quoted-lines", func(n int) string { return "a: \"" + strings.Repeat("x  \n\n", 4*n) + "\"\n" }},
	{"many-quoted", func(n int) string { return "a: [" + strings.Repeat(`"x" , 'y' ,`, 2*n) + "]\n" }},
	{"unclosed-quote", func(n int) string { return "a: '" + strings.Repeat("x ", 10*n) }},
	{"block-of-text", func(n int) string { return "a: |\n  x\n" + strings.Repeat("\n", 20*n) }},
	{"empty-lines", func(n int) string { return "a: 1" + strings.Repeat("\n", 20*n) + "b: 2\n" }},
	{"blanks", func(n int) string { return "a: 1" + strings.Repeat(" ", 20*n) + "\n" }},
	{"documents", func(n int) string { return strings.Repeat("---\n...\n", 3*n) + "a: 1\n" }},
	{"anchors", func(n int) string { return repeat(n, "key%06d: &a%06[1]d 1\n") }},
	{"deep", func(n int) string { return strings.Repeat("- ", 10*n) }},
	{"brackets", func(n int) string { return strings.Repeat("[", 20*n) }},
	{"comments", func(n int) string { return strings.Repeat("# 3456789 123456789\n", n) + "a: 1\n" }},
	{"é", func(n int) string { return "a: [" + strings.Repeat("é,", 7*n) + "]\n" }},
}

func repeat(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Sixteen times the text takes about sixteen times as long, whatever its content. A parser that
// scans the rest of the file for each part of it would take more than two hundred times as long.
func TestParseTakesTimeInProportion(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 125
	}
	for _, c := range long {
		one, many := c.text(n), c.text(16*n)
		proportion.Hold(t, c.name, 120, func() { _, _ = parse(one) }, func() { _, _ = parse(many) })
	}
}

func TestParseBoundsTheTree(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of values")
	}
	_, err := parse("[" + strings.Repeat("a,", maxValues+1) + "]")
	if want := "the file has more than 4194304 keys and values: split it"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, c := range long {
		text := c.text(100_000)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = parse(text)
			}
		})
	}
}

// anyTree draws a value, and writes it in one of the ways in which it can be written.
func anyTree(t *rapid.T, depth int) Node {
	kinds := []kind{nothing, scalar, scalar}
	if depth > 0 {
		kinds = append(kinds, list, mapping, mapping)
	}
	n := &node{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch n.kind {
	case scalar:
		n.text = rapid.OneOf(rapid.StringMatching(`[a-z]{1,8}`), rapid.StringMatching(`[a-zé0-9 :,#'"\[\]{}&*!|>%@?\\-]{0,12}`), rapid.String()).Draw(t, "text")
	case list:
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			n.items = append(n.items, *anyTree(t, depth-1))
		}
	case mapping:
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			key := node{kind: scalar, text: rapid.StringMatching(`[a-z ]{1,8}`).Draw(t, "key")}
			n.items = append(n.items, key, *anyTree(t, depth-1))
		}
	}
	return n
}

// write writes a value behind a key or a dash, by indentation where it can.
func write(t *rapid.T, b *strings.Builder, n Node, indent int) {
	if len(n.items) == 0 || rapid.IntRange(0, 3).Draw(t, "style") == 0 {
		text := flow(n)
		if n.kind == scalar && plainWord.MatchString(n.text) && Quote(n.text) == n.text {
			text = n.text
		}
		if n.kind == nothing && rapid.Bool().Draw(t, "empty") {
			text = ""
		}
		b.WriteString(strings.TrimRight(" "+text, " "))
		b.WriteString(rapid.SampledFrom([]string{"\n", " # why\n", "\n\n"}).Draw(t, "end"))
		return
	}
	b.WriteString("\n")
	indent += rapid.IntRange(1, 3).Draw(t, "indent")
	for i := range n.items {
		switch {
		case n.kind == list:
			b.WriteString(strings.Repeat(" ", indent) + "-")
			write(t, b, &n.items[i], indent)
		case i%2 == 0:
			b.WriteString(strings.Repeat(" ", indent) + quoteAlways(n.items[i].text) + ":")
			write(t, b, &n.items[i+1], indent)
		}
	}
}

func TestEveryTreeReadsBack(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		n := anyTree(t, 4)
		var b strings.Builder
		b.WriteString("root:")
		write(t, &b, n, 0)
		got, err := parse(b.String())
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if got := &got.items[1]; !reflect.DeepEqual(tree(got), tree(n)) {
			t.Fatalf("got  %s\nwant %s\nfrom\n%s", flow(got), flow(n), b.String())
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, c := range long {
		f.Add([]byte(c.text(2)))
	}
	f.Add([]byte("a: {b: [1, 'x', \"\\u00e9\"]}\nc:\n  - d: 1\n    e:\n  - - 2\n"))
	f.Add([]byte("---\n? a\n: b\n...\n%YAML\n&a *b !c |\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parse(string(text))
		if err != nil {
			checkPlace(t, err, string(text))
			return
		}
		checkTree(t, n, Place{1, 1})
		again, err := parse(flow(n))
		if err != nil || !reflect.DeepEqual(tree(again), tree(n)) {
			t.Fatalf("%s reads back as %v, %v", flow(n), again, err)
		}
	})
}

// checkPlace: an error names a place in the file.
func checkPlace(t *testing.T, err error, text string) {
	var at *Error
	if !errors.As(err, &at) {
		t.Fatalf("an error without a place: %v", err)
	}
	lines := strings.Split(text, "\n")
	if at.Line < 1 || at.Line > len(lines) || at.Column < 1 || at.Column > len(lines[at.Line-1])+3 {
		t.Fatalf("%v: there is no such place", err)
	}
}

// checkTree checks that values are in the order of the file.
func checkTree(t *testing.T, n Node, after Place) Place {
	if at := n.place(); at.Line < after.Line || at.Line == after.Line && at.Column < after.Column {
		t.Fatalf("%s at %v, after %v", flow(n), at, after)
	}
	after = n.place()
	for i := range n.items {
		after = checkTree(t, &n.items[i], after)
	}
	return after
}
