package report

import (
	"fmt"
	"io"
	"strings"
)

// Facts is what is known of one thing, a line for each fact: a name, and what is known.
type Facts struct{ lines strings.Builder }

// Add adds a fact. One of which nothing is known is left out.
func (f *Facts) Add(name, format string, args ...any) {
	if text := Printable(fmt.Sprintf(format, args...)); text != "" {
		fmt.Fprintf(&f.lines, "%-10s %s\n", name, text)
	}
}

// WriteText writes all of them.
func (f *Facts) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, f.lines.String())
	return err
}

// Join writes those of some words that are not empty, with something between them.
func Join(between string, words ...string) string {
	var kept []string
	for _, w := range words {
		if w != "" {
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, between)
}

// Around puts something before and behind a text, if there is one.
func Around(before, text, behind string) string {
	if text == "" {
		return ""
	}
	return before + text + behind
}
