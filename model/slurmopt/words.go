package slurmopt

import (
	"fmt"
	"slices"
	"strings"
)

// Word is one word of a line, with the position of its start.
type Word struct {
	Text string
	// Column counts bytes from 1; 0 if the word is not from a line.
	Column int

	index, line int
	of          int // index of the directive of its line
}

func (w *Word) errorf(format string, args ...any) error {
	return &Error{Word: w.index, Line: w.line, Column: w.Column, Reason: fmt.Sprintf(format, args...)}
}

// Words splits a line at blanks as a shell does: '...' is literal, in "..." a backslash escapes
// quotes and backslashes, and outside of quotes it escapes any character. Nothing else is special.
func Words(line string) ([]Word, error) {
	var words []Word
	for i := 0; i < len(line); {
		if isBlank(line[i]) {
			i++
			continue
		}
		text, end, err := word(line, i)
		if err != nil {
			return nil, err
		}
		words = append(words, Word{Text: text, Column: i + 1, index: len(words)})
		i = end
	}
	return words, nil
}

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f'
}

// word reads the word at i and returns the index after it.
func word(line string, i int) (string, int, error) {
	var out strings.Builder
	quote, opened := byte(0), 0
	for ; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && isBlank(c):
			return out.String(), i, nil
		case quote == 0 && (c == '\'' || c == '"'):
			quote, opened = c, i
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(line) && (quote == 0 || line[i+1] == '"' || line[i+1] == '\\'):
			i++
			out.WriteByte(line[i])
		default:
			out.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", 0, &Error{Column: opened + 1, Reason: "a quote opens here and does not close"}
	}
	return out.String(), i, nil
}

// plain are the characters that are not special in any shell.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-"

// quoteWord quotes a word so that Words, and a shell, read it back.
func quoteWord(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// quoteWords joins words to a line.
func quoteWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quoteWord(w)
	}
	return strings.Join(quoted, " ")
}

// directives begin the lines of a script that have options; a later one takes precedence.
var directives = []string{"#SBATCH", "#MUSTER"}

// directive is the directive of the word's line in a script.
func (w *Word) directive() string { return directives[w.of] }

// maxScriptOptions limits the options in a script: strangers send scripts.
const maxScriptOptions = 64 << 10

// scriptLines are the options in a script: the lines that start with #SBATCH, up to the first line
// that is neither empty nor a comment. For the tool Submit, those that start with #MUSTER follow.
func scriptLines(script, tool string) ([][]Word, error) {
	if !strings.HasPrefix(script, "#!") {
		return nil, &Error{Line: 1, Column: 1, Reason: "a script starts with #! and what runs it, such as #!/bin/sh"}
	}
	known := directives
	if tool != Submit {
		known = directives[:1]
	}
	lines := make([][][]Word, len(known))
	number, bytes := 0, 0
	for line := range strings.SplitSeq(script, "\n") {
		number++
		trimmed := strings.TrimSpace(line)
		if trimmed != "" && trimmed[0] != '#' {
			break
		}
		for i, directive := range known {
			rest, ok := strings.CutPrefix(line, directive)
			if !ok {
				continue
			}
			if bytes += len(rest); bytes > maxScriptOptions {
				return nil, &Error{Line: number, Column: 1, Reason: fmt.Sprintf("the options of a script have more than %d bytes: give fewer", maxScriptOptions)}
			}
			words, err := scriptLine(rest, number, i)
			if err != nil {
				return nil, err
			}
			lines[i] = append(lines[i], words)
		}
	}
	return slices.Concat(lines...), nil
}

// scriptLine parses the rest of a line after the directive.
func scriptLine(rest string, number, directive int) ([]Word, error) {
	before := len(directives[directive])
	words, err := Words(beforeComment(rest))
	if err != nil {
		place := err.(*Error)
		place.Line, place.Column = number, place.Column+before
		return nil, place
	}
	for i := range words {
		words[i].line, words[i].of, words[i].Column = number, directive, words[i].Column+before
	}
	return words, nil
}

// beforeComment cuts a line at a # outside quotes, even within a word.
func beforeComment(line string) string {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote == 0 && c == '#':
			return line[:i]
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'':
			i++
		}
	}
	return line
}
