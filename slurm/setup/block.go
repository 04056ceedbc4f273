package setup

import (
	"errors"
	"fmt"
	"strings"
)

// Muster's lines in a file that belongs to others stand between two marks. The first mark remembers
// whether the text before it lacked a newline, or the file did not exist, so that removing the
// block restores every byte.
const (
	beginMark = " BEGIN muster: written by muster slurm setup, which takes it out with --remove"
	endMark   = " END muster"
	noNewline = " (no newline before)"
	newFile   = " (in a new file)"
)

func begin(comment string) string { return comment + beginMark }

// withBlock returns a text in which Muster's block has this body; "" as body removes the block. A
// new block goes to the end of the text, or before the last line that is neither empty nor a
// comment, if before returns true for that line.
func withBlock(text, comment, body string, before func(line string) bool) (string, error) {
	start, end, err := findBlock(text, comment)
	if err != nil {
		return "", err
	}
	if start >= 0 {
		head, tail := text[:start], text[end:]
		note := noteOf(text[start:], comment)
		if body != "" {
			return head + block(comment, body, note) + tail, nil
		}
		if note == noNewline {
			head = strings.TrimSuffix(head, "\n")
		}
		return head + tail, nil
	}
	if body == "" {
		return text, nil
	}
	at := len(text)
	if before != nil {
		at = lastLine(text, comment, before)
	}
	head, tail, note := text[:at], text[at:], ""
	if head != "" && !strings.HasSuffix(head, "\n") {
		head, note = head+"\n", noNewline
	}
	return head + block(comment, body, note) + tail, nil
}

// noteOf is what the first mark of a block remembers.
func noteOf(block, comment string) string {
	for _, note := range []string{noNewline, newFile} {
		if strings.HasPrefix(block, begin(comment)+note) {
			return note
		}
	}
	return ""
}

func block(comment, body, note string) string {
	return begin(comment) + note + "\n" + body + comment + endMark + "\n"
}

// findBlock is where the block begins and ends; start is -1 if there is none.
func findBlock(text, comment string) (start, end int, err error) {
	start = -1
	at := 0
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, "\r\n")
		switch {
		case bare == begin(comment)+noteOf(bare, comment):
			if start >= 0 {
				return 0, 0, errors.New("it has two blocks of Muster: take one out by hand")
			}
			start = at
		case bare == comment+endMark && start >= 0 && end == 0:
			end = at + len(line)
		}
		at += len(line)
	}
	if start >= 0 && end == 0 {
		return 0, 0, fmt.Errorf("the block of Muster has no end: write a line %q behind it", comment+endMark)
	}
	return start, end, nil
}

// lastLine is where the last line begins that is neither empty nor a comment, if is returns true
// for it, and otherwise the end of the text.
func lastLine(text, comment string, is func(line string) bool) int {
	at, found := 0, len(text)
	for line := range strings.Lines(text) {
		if bare := strings.TrimSpace(line); bare != "" && !strings.HasPrefix(bare, comment) {
			found = len(text)
			if is(line) {
				found = at
			}
		}
		at += len(line)
	}
	return found
}
