package script

import (
	"fmt"
	"strings"
)

// shallow refuses a file whose brackets, or operators before a value, are nested so
// deep that reading it would take much of the stack: the parser calls itself for each.
func shallow(file string, source []byte) *Error {
	s := scanner{text: string(source), line: 1}
	depth, before := 0, 0
	for {
		word, line, column := s.next()
		switch word {
		case "":
			return nil
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth, before = max(0, depth-1), 0
			continue
		case "-", "+", "~", "*", "not", "lambda", ":", "if", "else", "\n":
			if word == "\n" && depth == 0 {
				before = 0
				continue
			}
			if word != "\n" {
				before++
			}
		case ",":
			before = 0
		}
		if depth > maxSourceDepth || before > maxOperators {
			return &Error{File: file, Line: line, Column: column, Message: fmt.Sprintf("this is nested more than %d levels deep", maxSourceDepth)}
		}
	}
}

// maxOperators is how many operators that may nest a statement may have.
const maxOperators = 500

// scanner cuts a file into words, as far as shallow needs it: strings and comments
// are skipped.
type scanner struct {
	text         string
	at           int
	line, column int
}

// next is the next bracket, operator, name or end of a line; "" at the end. What is
// none of these is skipped.
func (s *scanner) next() (word string, line, column int) {
	for s.at < len(s.text) {
		line, column = s.line, s.column+1
		switch c := s.text[s.at]; {
		case c == '\n':
			s.skip(1)
			s.line, s.column = s.line+1, 0
			return "\n", line, column
		case c == '#':
			n := strings.IndexByte(s.text[s.at:], '\n')
			if n < 0 {
				n = len(s.text) - s.at
			}
			s.skip(n)
		case c == '"' || c == '\'':
			s.quoted(c)
		case letter(c):
			n := 1
			for s.at+n < len(s.text) && (letter(s.text[s.at+n]) || s.text[s.at+n] >= '0' && s.text[s.at+n] <= '9') {
				n++
			}
			word = s.text[s.at : s.at+n]
			s.skip(n)
			return word, line, column
		case strings.IndexByte("([{}])-+~*:,", c) >= 0:
			s.skip(1)
			return string(c), line, column
		default:
			s.skip(1)
		}
	}
	return "", s.line, s.column
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }

func (s *scanner) skip(n int) { s.at, s.column = s.at+n, s.column+n }

// quoted skips a string, short or long. An r before it changes nothing here: a
// backslash before a quote does not end a raw string either.
func (s *scanner) quoted(quote byte) {
	long := strings.Repeat(string(quote), 3)
	isLong := strings.HasPrefix(s.text[s.at:], long)
	s.skip(1)
	if isLong {
		s.skip(2)
	}
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '\\' && s.at+1 < len(s.text):
			if s.text[s.at+1] == '\n' {
				s.line, s.column = s.line+1, -2
			}
			s.skip(2)
		case c == '\n':
			if !isLong {
				return // the parser will complain
			}
			s.skip(1)
			s.line, s.column = s.line+1, 0
		case c == quote && !isLong:
			s.skip(1)
			return
		case c == quote && strings.HasPrefix(s.text[s.at:], long):
			s.skip(3)
			return
		default:
			s.skip(1)
		}
	}
}
