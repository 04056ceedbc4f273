package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is rows of text under named columns.
type Table struct {
	Title, Note string
	Columns     []Column
	Rows        [][]string
}

// Column is the head of a column. Numbers should be aligned to the right.
type Column struct {
	Name string
	// Help explains the name, as a tooltip in the page.
	Help  string
	Right bool
}

func (t *Table) check() error {
	for i, row := range t.Rows {
		if len(row) != len(t.Columns) {
			return fmt.Errorf("table %q: row %d has %d cells for %d columns", t.Title, i+1, len(row), len(t.Columns))
		}
	}
	return nil
}

// WriteText writes the table for a terminal, aligned and without colour.
func (t *Table) WriteText(w io.Writer) error {
	if err := t.check(); err != nil {
		return err
	}
	names := make([]string, len(t.Columns))
	rule := make([]string, len(t.Columns))
	width := t.widths()
	for i, c := range t.Columns {
		names[i] = c.Name
		rule[i] = strings.Repeat("-", width[i])
	}
	b := bufio.NewWriter(w)
	writeParagraph(b, t.Title)
	t.writeRow(b, names, width)
	t.writeRow(b, rule, width)
	for _, row := range t.Rows {
		t.writeRow(b, row, width)
	}
	writeParagraph(b, t.Note)
	return b.Flush()
}

func (t *Table) writeRow(b *bufio.Writer, cells []string, width []int) {
	var line strings.Builder
	for i, cell := range cells {
		if i > 0 {
			line.WriteString("  ")
		}
		cell = clean(cell)
		fill := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
		if t.Columns[i].Right {
			line.WriteString(fill + cell)
		} else {
			line.WriteString(cell + fill)
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

func writeParagraph(b *bufio.Writer, s string) {
	if s != "" {
		b.WriteString(clean(s) + "\n")
	}
}

// WriteTables writes tables as text for a terminal of this many columns (0 if unknown), separated
// by empty lines.
func WriteTables(w io.Writer, tables []*Table, columns int) error {
	for i, t := range tables {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := t.WriteFitted(w, columns); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) writeHTML(h *htmlWriter) {
	h.raw(`<figure class="table">`)
	h.caption(t.Title)
	h.raw(`<div class="scroll"><table><thead><tr>`)
	for _, c := range t.Columns {
		h.raw("<th" + side(c) + ` scope="col"`)
		if c.Help != "" {
			h.raw(` class="help" tabindex="0" data-tip="` + escape(c.Help) + `"`)
		}
		h.raw(">" + escape(c.Name) + "</th>")
	}
	h.raw("</tr></thead>\n<tbody>\n")
	for _, row := range t.Rows {
		h.raw("<tr>")
		for i, cell := range row {
			h.raw("<td" + side(t.Columns[i]) + ">" + escape(cell) + "</td>")
		}
		h.raw("</tr>\n")
	}
	h.raw("</tbody></table></div>")
	h.note(t.Note)
	h.raw("</figure>\n")
}

func side(c Column) string {
	if c.Right {
		return " data-right"
	}
	return ""
}

// WriteColumns writes a table with a line of names and no rule below it, as Slurm's tools do. If it
// is wider than room, the column shrink is truncated; a room of 0 means no limit.
func WriteColumns(w io.Writer, names []string, rows [][]string, shrink, room int) error {
	all := rows
	if names != nil {
		all = append([][]string{names}, rows...)
	}
	if len(all) == 0 {
		return nil
	}
	width := make([]int, len(all[0]))
	total := 0
	for i := range width {
		for _, row := range all {
			width[i] = max(width[i], utf8.RuneCountInString(Printable(row[i])))
		}
		total += width[i] + 2
	}
	if room > 0 && total-2 > room && shrink >= 0 {
		width[shrink] = max(8, width[shrink]-(total-2-room))
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(Pad(Printable(cell), width[i], false) + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Pad pads a text to a width, or cuts it.
func Pad(s string, width int, right bool) string {
	n := utf8.RuneCountInString(s)
	switch {
	case n > width:
		return string([]rune(s)[:width])
	case right:
		return strings.Repeat(" ", width-n) + s
	}
	return s + strings.Repeat(" ", width-n)
}

// Columns makes columns of names; the sign before a name says on which side of its column text is, as
// in "<NAME" and ">MEMORY".
func Columns(names ...string) []Column {
	list := make([]Column, len(names))
	for i, name := range names {
		list[i] = Column{Name: name[1:], Right: name[0] == '>'}
	}
	return list
}

// Item writes a paragraph as an item of a list, "- " and indented lines of at most width characters.
func Item(text string, width int) string {
	var b strings.Builder
	column := 2
	b.WriteString("-")
	for _, word := range strings.Fields(text) {
		if n := utf8.RuneCountInString(word); column+1+n > width {
			b.WriteString("\n  " + word)
			column = 2 + n
		} else {
			b.WriteString(" " + word)
			column += 1 + n
		}
	}
	return b.String()
}
