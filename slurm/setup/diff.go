package setup

import (
	"fmt"
	"strings"
)

// around is how many lines around a change are shown.
const around = 3

// Diff shows the change as diff -u does. A file changes in one place only, so there is one hunk.
func (c Change) Diff() string {
	old, now := c.Path, c.Path
	if c.Before == nil {
		old = "/dev/null"
	}
	if c.After == nil {
		now = "/dev/null"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n--- %s\n+++ %s\n", c.What, old, now)
	if c.Binary || c.Secret {
		what := "replaced"
		if c.Before == nil {
			what = "new"
		} else if c.After == nil {
			what = "removed"
		}
		fmt.Fprintf(&b, "(%s; its contents are not shown)\n", what)
		return b.String()
	}
	before, after := lines(string(c.Before)), lines(string(c.After))
	same := 0
	for same < len(before) && same < len(after) && before[same] == after[same] {
		same++
	}
	tail := 0
	for tail < len(before)-same && tail < len(after)-same && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	from, behind := max(0, same-around), min(tail, around)
	fmt.Fprintf(&b, "@@ -%s +%s @@\n", span(from, len(before)-tail+behind), span(from, len(after)-tail+behind))
	write := func(sign string, list []string) {
		for _, line := range list {
			b.WriteString(sign + line)
			if !strings.HasSuffix(line, "\n") {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	write(" ", before[from:same])
	write("-", before[same:len(before)-tail])
	write("+", after[same:len(after)-tail])
	write(" ", before[len(before)-tail:len(before)-tail+behind])
	return b.String()
}

func lines(text string) (list []string) {
	for line := range strings.Lines(text) {
		list = append(list, line)
	}
	return list
}

// span formats a range of lines as diff does: an empty one begins at the line before it.
func span(from, to int) string {
	if to == from {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
