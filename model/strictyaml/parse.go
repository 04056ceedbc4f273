package strictyaml

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The parser supports the subset of YAML 1.2 in which settings are written: mappings and lists, by
// indentation or in brackets, and plain and quoted values. It reads each byte a bounded number of
// times, so that the time is proportional to the size of the file, however odd. Anchors, tags,
// directives, block scalars and complex keys are refused by name.

const (
	// maxDepth is deeper than any of our files is nested.
	maxDepth = 32
	// maxValues limits the memory of a file's tree: keys and values are 56 bytes each, and a file
	// may have one for every two bytes.
	maxValues = 4 << 20
)

type kind uint8

const (
	nothing kind = iota
	scalar
	list
	mapping
)

// node is a value in the file.
type node struct {
	text         string // of a scalar
	items        []node // items of a list; alternating keys and values of a mapping
	line, column int32
	kind         kind
}

func (n *node) place() Place { return Place{int(n.line), int(n.column)} }

// parser is the state of parsing a text.
// Its many methods are one a form of YAML, each of which reads
// on from where the last one ended.
type parser struct {
	file  *File
	text  string
	at    int // the next byte
	line  int // its line, from 1
	start int // where that line begins

	// column is the column of the byte at mark. Columns count characters; counting them from the
	// start of the line each time would take quadratic time on long lines.
	mark, column int

	depth, values int
}

// errorf makes an error at the current position.
func (p *parser) errorf(format string, args ...any) error {
	return p.errorAt(p.place(), format, args...)
}

func (p *parser) errorAt(at Place, format string, args ...any) error {
	return p.file.Errorf(at, "not valid YAML: "+format, args...)
}

// place is the current position.
func (p *parser) place() Place {
	if p.mark < p.start || p.mark > p.at {
		p.mark, p.column = p.start, 1
	}
	p.column += utf8.RuneCountInString(p.text[p.mark:p.at])
	p.mark = p.at
	return Place{p.line, p.column}
}

// value makes a node that begins at a place.
func (p *parser) value(k kind, at Place, text string) (node, error) {
	if p.values++; p.values > maxValues {
		return node{}, p.file.Errorf(at, "the file has more than %d keys and values: split it", maxValues)
	}
	return node{kind: k, text: text, line: int32(at.Line), column: int32(at.Column)}, nil
}

// enter counts a nested list or mapping.
func (p *parser) enter(at Place) error {
	if p.depth++; p.depth > maxDepth {
		return p.file.Errorf(at, "nested too deeply for %s: at most %d levels are read", p.file.What, maxDepth)
	}
	return nil
}

// peek is the byte at a distance; a line break beyond the end of the text.
func (p *parser) peek(ahead int) byte {
	if p.at+ahead < len(p.text) {
		return p.text[p.at+ahead]
	}
	return '\n'
}

func (p *parser) ended() bool { return p.at == len(p.text) }

func isBlank(c byte) bool         { return c == ' ' || c == '\t' }
func isSpace(c byte) bool         { return isBlank(c) || c == '\n' }
func isFlowIndicator(c byte) bool { return strings.IndexByte(",[]{}", c) >= 0 }

// newLine skips a line break.
func (p *parser) newLine() {
	p.at++
	p.line++
	p.start = p.at
}

func (p *parser) skipBlanks() {
	for isBlank(p.peek(0)) {
		p.at++
	}
}

// skip advances to the next byte that is not a blank, line break or comment.
func (p *parser) skip() {
	for !p.ended() {
		switch c := p.peek(0); {
		case isBlank(c):
			p.at++
		case c == '\n':
			p.newLine()
		case c == '#' && (p.at == p.start || isBlank(p.text[p.at-1])):
			if end := strings.IndexByte(p.text[p.at:], '\n'); end >= 0 {
				p.at += end
			} else {
				p.at = len(p.text)
			}
		default:
			return
		}
	}
}

// markerAt says whether the line that begins at a byte is a document separator.
func (p *parser) markerAt(start int) bool {
	rest := p.text[start:]
	return (strings.HasPrefix(rest, "---") || strings.HasPrefix(rest, "...")) && (len(rest) == 3 || isSpace(rest[3]))
}

func (p *parser) atMarker() bool { return p.at == p.start && p.markerAt(p.at) }

// dash says whether a list item begins here.
func (p *parser) dash() bool { return p.peek(0) == '-' && isSpace(p.peek(1)) }

// document reads the only document of the file; nil if there is none.
func (p *parser) document() (root Node, err error) {
	for {
		p.skip()
		switch {
		case p.ended():
			return root, nil
		case p.atMarker():
			p.at += 3
			line := p.line
			if p.skip(); !p.ended() && p.line == line {
				return nil, p.errorf("a document begins on the line after its mark: start a new line")
			}
			continue
		case p.at == p.start && p.peek(0) == '%':
			return nil, p.file.Errorf(p.place(), "a directive, which is not read: leave it out")
		case root != nil:
			return nil, p.file.Errorf(p.place(), "a second document: write %s into a file of its own", p.file.What)
		}
		indent, err := p.indent()
		if err != nil {
			return nil, err
		}
		n, err := p.block(indent, -1, false)
		if err != nil {
			return nil, err
		}
		if !p.ended() && !p.atMarker() {
			return nil, p.errorf("this does not belong to what is above: indent it alike")
		}
		root = &n
	}
}

// indent is the indentation of the current line.
func (p *parser) indent() (int, error) {
	if strings.IndexByte(p.text[p.start:p.at], '\t') >= 0 {
		return 0, p.errorf("a tab before the first word of the line: indent with spaces")
	}
	return p.at - p.start, nil
}

// block reads a value that is indented more than parent, and advances to what follows it on a later
// line. inline says that the value is on the line of its key, where neither a list nor a mapping
// may begin without brackets.
func (p *parser) block(column, parent int, inline bool) (node, error) {
	at := p.place()
	switch {
	case p.dash() && inline:
		return node{}, p.errorf("a list behind its key: begin it on the next line, or write [a, b]")
	case p.dash():
		return p.blockList(column, at)
	}
	n, err := p.flowOrScalar(parent, false)
	if err != nil {
		return n, err
	}
	if p.skipBlanks(); !p.colon() || n.kind == list || n.kind == mapping {
		return n, p.endOfLine()
	}
	if inline {
		return n, p.errorf("a second colon behind a key: put the value in quotes, or begin a mapping on the next line")
	}
	if int(n.line) != p.line {
		return n, p.errorf("a key has one line only")
	}
	return p.blockMapping(column, n)
}

// colon says whether a colon that ends a key is here.
func (p *parser) colon() bool { return p.peek(0) == ':' && isSpace(p.peek(1)) }

// endOfLine advances to the next line that is not empty.
func (p *parser) endOfLine() error {
	line := p.line
	if p.skip(); !p.ended() && p.line == line {
		return p.errorf("%q after the end of a value: put the value in quotes, or begin a new line", p.rune())
	}
	return nil
}

func (p *parser) rune() rune {
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return r
}

// sibling says whether the current position belongs to the mapping or list at a column.
func (p *parser) sibling(column int) (bool, error) {
	if p.ended() || p.atMarker() {
		return false, nil
	}
	indent, err := p.indent()
	if err != nil || indent < column {
		return false, err
	}
	if indent > column {
		return false, p.errorf("indented more than its neighbours above, which begin at column %d", column+1)
	}
	return true, nil
}

// blockMapping reads a mapping by indentation. The parser must be at the first colon.
func (p *parser) blockMapping(column int, key node) (node, error) {
	m, err := p.value(mapping, key.place(), "")
	if err == nil {
		err = p.enter(key.place())
	}
	for err == nil {
		var v node
		if v, err = p.below(column, true); err != nil {
			break
		}
		m.items = append(m.items, key, v)
		more := false
		if more, err = p.sibling(column); err != nil || !more {
			break
		}
		if p.dash() {
			err = p.errorf("an entry of a list among the keys of a mapping: indent it more, or less")
			break
		}
		if key, err = p.key(column); err != nil {
			break
		}
	}
	p.depth--
	return m, err
}

// key reads a key of a mapping by indentation.
func (p *parser) key(column int) (node, error) {
	n, err := p.flowOrScalar(column, false)
	if err != nil {
		return n, err
	}
	if p.skipBlanks(); !p.colon() || int(n.line) != p.line {
		return n, p.errorAt(n.place(), "a key is expected, and behind it a colon and a blank")
	}
	if n.kind == list || n.kind == mapping {
		return n, p.complexKey(n.place())
	}
	return n, nil
}

// blockList reads a list by indentation. The parser must be at the first dash.
func (p *parser) blockList(column int, at Place) (node, error) {
	l, err := p.value(list, at, "")
	if err == nil {
		err = p.enter(at)
	}
	for err == nil {
		var v node
		if v, err = p.below(column, false); err != nil {
			break
		}
		l.items = append(l.items, v)
		more := false
		if more, err = p.sibling(column); err != nil || !more || !p.dash() {
			break
		}
	}
	p.depth--
	return l, err
}

// below reads the value of the key or dash in a column: on the same line, or indented on the lines
// below, or empty. The parser must be at the colon or dash.
func (p *parser) below(column int, isKey bool) (node, error) {
	empty := p.place()
	empty.Column += 2 // where the value would be
	p.at++
	line := p.line
	if p.skip(); !p.ended() && p.line == line {
		if !isKey && strings.IndexByte(p.text[p.mark:p.at], '\t') >= 0 {
			return node{}, p.errorf("a tab behind a dash: use a space")
		}
		return p.block(p.at-p.start, column, isKey)
	}
	if p.ended() || p.atMarker() {
		return p.value(nothing, empty, "")
	}
	indent, err := p.indent()
	switch {
	case err != nil:
		return node{}, err
	case indent > column:
		return p.block(indent, column, false)
	case indent == column && isKey && p.dash(): // a list may have the indentation of its key
		return p.block(indent, column-1, false)
	}
	return p.value(nothing, empty, "")
}

// flowOrScalar reads a value in brackets, or a plain or quoted one.
func (p *parser) flowOrScalar(parent int, inFlow bool) (node, error) {
	switch p.peek(0) {
	case '[':
		return p.flowList()
	case '{':
		return p.flowMapping()
	}
	return p.scalar(parent, inFlow)
}

// flowList reads [a, b].
func (p *parser) flowList() (node, error) {
	at := p.place()
	l, err := p.value(list, at, "")
	if err == nil {
		err = p.enter(at)
	}
	p.at++
	for err == nil {
		if p.skip(); p.peek(0) == ']' {
			break
		}
		var v node
		if v, err = p.flowEntry(at, ']'); err != nil {
			break
		}
		l.items = append(l.items, v)
		err = p.separator(at, ']')
	}
	p.at++
	p.depth--
	return l, err
}

// flowMapping reads {a: 1, b: 2}.
func (p *parser) flowMapping() (node, error) {
	at := p.place()
	m, err := p.value(mapping, at, "")
	if err == nil {
		err = p.enter(at)
	}
	p.at++
	for err == nil {
		if p.skip(); p.peek(0) == '}' {
			break
		}
		var k, v node
		if k, err = p.flowKey(at); err != nil {
			break
		}
		empty := p.place()
		empty.Column += 2
		p.at++
		if p.skip(); p.peek(0) == ',' || p.peek(0) == '}' {
			v, err = p.value(nothing, empty, "")
		} else {
			v, err = p.flowEntry(at, '}')
		}
		if err != nil {
			break
		}
		m.items = append(m.items, k, v)
		err = p.separator(at, '}')
	}
	p.at++
	p.depth--
	return m, err
}

// flowKey reads a key between braces, up to its colon.
func (p *parser) flowKey(opened Place) (node, error) {
	quoted := p.peek(0) == '"' || p.peek(0) == '\''
	k, err := p.flowEntry(opened, '}')
	if err != nil {
		return k, err
	}
	if k.kind == list || k.kind == mapping {
		return k, p.complexKey(k.place())
	}
	p.skipBlanks()
	switch c := p.peek(0); {
	case int(k.line) != p.line:
		return k, p.errorAt(k.place(), "a key has one line only: is a comma missing?")
	case c == ':' && (quoted || isSpace(p.peek(1)) || isFlowIndicator(p.peek(1))):
		return k, nil
	case c == '[' || c == '{':
		return k, p.bracketInWord()
	case p.ended():
		return k, p.unclosed(opened, '}')
	}
	return k, p.errorAt(k.place(), "%q has no value: write a colon and a blank behind a key, and a value with a comma in quotes", shorten(k.text))
}

// flowEntry reads a value between brackets; opened is the place of the opening one.
func (p *parser) flowEntry(opened Place, closing byte) (node, error) {
	if p.ended() || p.atMarker() {
		return node{}, p.unclosed(opened, closing)
	}
	if p.peek(0) == ',' {
		return node{}, p.errorf("a value is missing before the comma")
	}
	return p.flowOrScalar(0, true)
}

// separator reads the comma after a value, unless the bracket closes.
func (p *parser) separator(opened Place, closing byte) error {
	line := p.line
	p.skip()
	switch c := p.peek(0); {
	case p.ended() || p.atMarker():
		return p.unclosed(opened, closing)
	case c == closing:
		return nil
	case c == ',':
		p.at++
		return nil
	case (c == '[' || c == '{') && p.line == line:
		return p.bracketInWord()
	case c == ':' && closing == ']':
		return p.errorf("a colon in a list: put braces around the pair, as [{a: 1}]")
	}
	return p.errorf("',' or '%c' is missing before this", closing)
}

func (p *parser) bracketInWord() error {
	return p.errorf("a bracket in the middle of a value: put a name with brackets in quotes")
}

func (p *parser) unclosed(opened Place, closing byte) error {
	return p.errorAt(opened, "the bracket that opens here is not closed: add '%c'", closing)
}

// refuse explains why no plain value can begin with the current character.
func (p *parser) refuse() error {
	switch c := p.peek(0); c {
	case '&', '*':
		return p.file.Errorf(p.place(), "an anchor or alias, which are not read: write the value out")
	case '!':
		return p.file.Errorf(p.place(), "a tag, which is not read: leave it out")
	case '|', '>':
		return p.file.Errorf(p.place(), "a block of text, which is not read: write the value in quotes")
	case '?':
		return p.complexKey(p.place())
	case '-':
		return p.errorf("an entry of a list between brackets: write [a, b]")
	case '%', '@', '`':
		return p.errorf("a value cannot begin with %c: put it in quotes", c)
	default:
		return p.errorf("%q where a value is expected", p.rune())
	}
}

func (p *parser) complexKey(at Place) error {
	return p.file.Errorf(at, "a complex key, which is not read: a key is a plain word")
}

// scalar reads a plain or quoted value. It may continue on lines that are indented more than parent
// or, between brackets, on any line.
func (p *parser) scalar(parent int, inFlow bool) (node, error) {
	at := p.place()
	switch c := p.peek(0); c {
	case '"', '\'':
		text, err := p.quoted(c)
		if err != nil {
			return node{}, err
		}
		return p.value(scalar, at, text)
	case '-', '?', ':':
		if next := p.peek(1); isSpace(next) || inFlow && isFlowIndicator(next) {
			return node{}, p.refuse()
		}
	case ',', '[', ']', '{', '}', '#', '&', '*', '!', '|', '>', '%', '@', '`':
		return node{}, p.refuse()
	}
	text, err := p.plain(parent, inFlow)
	if err != nil {
		return node{}, err
	}
	switch text {
	case "null", "Null", "NULL", "~":
		return p.value(nothing, at, "")
	}
	return p.value(scalar, at, text)
}

// plain reads a value without quotes.
func (p *parser) plain(parent int, inFlow bool) (string, error) {
	text := p.plainLine(inFlow)
	if !p.continues(parent, inFlow) {
		return text, nil
	}
	joined := []byte(text)
	for p.continues(parent, inFlow) {
		joined = append(joined, fold(p.lineBreaks())...)
		joined = append(joined, p.plainLine(inFlow)...)
		if p.peek(0) == ':' {
			return "", p.errorf("a colon in a value of several lines: put the value in quotes, or indent this line as the one above; between braces a comma may be missing")
		}
	}
	return string(joined), nil
}

// plainLine reads the part of a plain value on this line.
func (p *parser) plainLine(inFlow bool) string {
	from, solid := p.at, p.at
	for ; ; p.at++ {
		c := p.peek(0)
		switch {
		case c == '\n',
			c == ':' && (isSpace(p.peek(1)) || inFlow && isFlowIndicator(p.peek(1))),
			c == '#' && p.at > from && isBlank(p.text[p.at-1]),
			inFlow && isFlowIndicator(c):
			return p.text[from:solid]
		case !isBlank(c):
			solid = p.at + 1
		}
	}
}

// continues says whether the plain value that ends with this line continues on the next line that
// is not empty.
func (p *parser) continues(parent int, inFlow bool) bool {
	if p.ended() || p.peek(0) != '\n' {
		return false
	}
	start := p.at + 1
	i := start
	for ; i < len(p.text) && isSpace(p.text[i]); i++ {
		if p.text[i] == '\n' {
			start = i + 1
		}
	}
	if i == len(p.text) || p.text[i] == '#' || p.markerAt(start) {
		return false
	}
	if inFlow {
		return !isFlowIndicator(p.text[i]) && p.text[i] != ':'
	}
	return i-start > parent
}

// lineBreaks skips line breaks and the blanks around them, and counts the breaks.
func (p *parser) lineBreaks() (n int) {
	for !p.ended() && isSpace(p.peek(0)) {
		if p.peek(0) == '\n' {
			p.newLine()
			n++
		} else {
			p.at++
		}
	}
	return n
}

// fold is what line breaks inside a value become: a single one becomes a blank; of several, all but
// the first remain.
func fold(breaks int) string {
	if breaks == 1 {
		return " "
	}
	return strings.Repeat("\n", breaks-1)
}

// quoted reads a value between quotes.
func (p *parser) quoted(quote byte) (string, error) {
	opened := p.place()
	p.at++
	// If nothing needs to be changed, the value can be a substring of the text.
	if end := strings.IndexAny(p.text[p.at:min(len(p.text), p.at+shortQuoted)], "\"'\\\n"); end >= 0 && p.text[p.at+end] == quote && p.peek(end+1) != quote {
		text := p.text[p.at : p.at+end]
		p.at += end + 1
		return text, nil
	}
	var out []byte
	solid := 0 // length without blanks at the end of the line
	for !p.ended() {
		c := p.peek(0)
		switch {
		case c == quote && quote == '\'' && p.peek(1) == quote:
			out = append(out, quote)
			p.at += 2
		case c == quote:
			p.at++
			return string(out), nil
		case c == '\n':
			out = append(out[:solid], fold(p.lineBreaks())...)
			if p.atMarker() {
				return "", p.errorAt(opened, "the quote that opens here is not closed")
			}
		case c == '\\' && quote == '"':
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		default:
			out = append(out, c)
			p.at++
			if isBlank(c) {
				continue
			}
		}
		solid = len(out)
	}
	return "", p.errorAt(opened, "the quote that opens here is not closed")
}

// shortQuoted is how far quoted searches for the end of a value that it need not copy.
const shortQuoted = 256

// escapes maps the character after a backslash to its meaning.
var escapes = map[byte]string{
	'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
	' ': " ", '"': `"`, '/': "/", '\\': `\`, 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029",
}

// escape appends the meaning of the escape sequence at the current position.
func (p *parser) escape(out []byte) ([]byte, error) {
	c := p.peek(1)
	if c == '\n' { // the value continues on the next line without a break
		if p.at++; p.ended() {
			return out, nil
		}
		breaks := p.lineBreaks()
		return append(out, strings.Repeat("\n", breaks-1)...), nil
	}
	if text, ok := escapes[c]; ok {
		p.at += 2
		return append(out, text...), nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 || p.at+2+digits > len(p.text) {
		return nil, p.errorf("a backslash before %q means nothing: write \\\\ for a backslash", p.text[p.at+1:min(len(p.text), p.at+2)])
	}
	hex := p.text[p.at+2 : p.at+2+digits]
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || !utf8.ValidRune(rune(n)) {
		return nil, p.errorf(`\%c%s is no character`, c, hex)
	}
	p.at += 2 + digits
	return utf8.AppendRune(out, rune(n)), nil
}

// clean normalises line breaks, and refuses control characters.
func (f *File) clean(text []byte) (string, error) {
	if !utf8.Valid(text) {
		return "", f.Errorf(Place{}, "the file is not UTF-8 text: %s is YAML", f.What)
	}
	// Remove the byte order mark that some editors write.
	clean := strings.ReplaceAll(strings.TrimPrefix(string(text), "\ufeff"), "\r\n", "\n")
	bad := strings.IndexFunc(clean, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f })
	if bad < 0 {
		return clean, nil
	}
	before := clean[:bad]
	line := strings.Count(before, "\n")
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return "", f.Errorf(Place{line + 1, column + 1}, "the control character %q: %s is plain text", clean[bad], f.What)
}

// shorten cuts a text to a length that fits a message.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
