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

// Column heads a table's column. Numbers belong on the right.
type Column struct {
	Name string
	// Help explains the name: a tooltip in the page.
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

// WriteText writes the table for a terminal: aligned, without colour.
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
