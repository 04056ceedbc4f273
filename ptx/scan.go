package ptx

import "strings"

type tokenKind uint8

const (
	tokEnd     tokenKind = iota // end of the file, or a failed statement
	tokInvalid                  // text says what is wrong
	tokName                     // add, %r1, $L1, _
	tokDotted                   // .global, .shared::cta; text without the dot
	tokInt
	tokDecimal // 1.5
	tokString  // text without the quotes
	tokPunct
)

type token struct {
	kind    tokenKind
	first   bool // it is the first token on its line
	text    string
	pos     Pos
	from    int // byte offsets
	through int
}

// scanner splits text into tokens, one at a time.
type scanner struct {
	src       string
	at        int
	line      int
	lineStart int
	first     bool
}

func newScanner(src string) scanner { return scanner{src: src, line: 1, first: true} }

const (
	isWord = 1 << iota
	isDigit
	isSpace
)

var charClass = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c >= '0' && c <= '9':
			t[c] = isWord | isDigit
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '$':
			t[c] = isWord
		case c == ' ', c == '\t', c == '\r', c == '\f', c == '\v':
			t[c] = isSpace
		}
	}
	return t
}()

func (s *scanner) peek(ahead int) byte {
	if s.at+ahead < len(s.src) {
		return s.src[s.at+ahead]
	}
	return 0
}

// skip skips white space and comments; it returns false at a comment without an end.
func (s *scanner) skip() bool {
	for s.at < len(s.src) {
		c := s.src[s.at]
		switch {
		case c == '\n':
			s.newline(s.at)
			s.at++
		case charClass[c]&isSpace != 0:
			s.at++
		case c == '/' && s.peek(1) == '/':
			if end := strings.IndexByte(s.src[s.at:], '\n'); end >= 0 {
				s.at += end
			} else {
				s.at = len(s.src)
			}
		case c == '/' && s.peek(1) == '*':
			length := strings.Index(s.src[s.at+2:], "*/")
			if length < 0 {
				return false
			}
			end := s.at + 2 + length + 2
			for i := s.at; i < end; i++ {
				if s.src[i] == '\n' {
					s.newline(i)
				}
			}
			s.at = end
		default:
			return true
		}
	}
	return true
}

func (s *scanner) newline(at int) {
	s.line++
	s.lineStart = at + 1
	s.first = true
}

func (s *scanner) next() token {
	closed := s.skip()
	t := token{first: s.first, pos: Pos{s.line, s.at - s.lineStart + 1}, from: s.at}
	s.first = false
	switch {
	case !closed:
		s.at = len(s.src)
		t.kind, t.text = tokInvalid, "comment without its end: expected */"
	case s.at == len(s.src):
		t.kind = tokEnd
	default:
		t.kind, t.text = s.scan()
	}
	t.through = s.at
	return t
}

func (s *scanner) scan() (tokenKind, string) {
	start := s.at
	c := s.src[start]
	switch {
	case charClass[c]&isDigit != 0:
		return s.number()
	case charClass[c]&isWord != 0, c == '%' && charClass[s.peek(1)]&isWord != 0:
		s.at++
		s.word()
		return tokName, s.src[start:s.at]
	case c == '.' && charClass[s.peek(1)]&isWord != 0:
		s.at++
		s.word()
		for s.peek(0) == ':' && s.peek(1) == ':' && charClass[s.peek(2)]&isWord != 0 {
			s.at += 2
			s.word()
		}
		return tokDotted, s.src[start+1 : s.at]
	case c == '"':
		return s.quoted()
	}
	if s.at+2 <= len(s.src) {
		switch two := s.src[s.at : s.at+2]; two {
		case "<<", ">>", "==", "!=", "<=", ">=", "&&", "||":
			s.at += 2
			return tokPunct, two
		}
	}
	s.at++
	if strings.IndexByte("{}[]()<>,;:=+-*/%&|^~!@?", c) < 0 {
		return tokInvalid, "unexpected character " + quote(s.src[start:s.at])
	}
	return tokPunct, s.src[start:s.at]
}

func (s *scanner) word() {
	for s.at < len(s.src) && charClass[s.src[s.at]]&isWord != 0 {
		s.at++
	}
}

func (s *scanner) number() (tokenKind, string) {
	start := s.at
	kind := tokInt
	for charClass[s.peek(0)]&isDigit != 0 {
		s.at++
	}
	if s.peek(0) == '.' && (charClass[s.peek(1)]&isDigit != 0 || charClass[s.peek(1)]&isWord == 0) {
		kind = tokDecimal
		s.at++
	}
	digits := s.at
	s.word()
	radix := s.src[start] == '0' && digits == start+1 && s.at > digits
	if e := strings.LastIndexAny(s.src[digits:s.at], "eE"); e >= 0 && !radix {
		kind = tokDecimal
		if c := s.peek(0); digits+e == s.at-1 && (c == '+' || c == '-') && charClass[s.peek(1)]&isDigit != 0 {
			s.at++
			s.word()
		}
	}
	return kind, s.src[start:s.at]
}

func (s *scanner) quoted() (tokenKind, string) {
	start := s.at + 1
	for s.at = start; s.at < len(s.src); s.at++ {
		switch s.src[s.at] {
		case '"':
			s.at++
			return tokString, s.src[start : s.at-1]
		case '\\':
			if s.peek(1) != 0 && s.peek(1) != '\n' {
				s.at++
			}
		case '\n':
			return tokInvalid, "string without its end: expected \" before the end of the line"
		}
	}
	s.at = min(s.at, len(s.src))
	return tokInvalid, "string without its end: expected \" before the end of the file"
}
