package report

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	leastProse = 24 // minimum width of the last column if it is wrapped
	leastCell  = 6  // minimum width of a shortened column
	usefulCell = 12 // width to which text is shortened before a column is left out
	cut        = "…"
)

// WriteFitted writes the table as WriteText does, in lines of at most the given number of columns
// if possible. The last column is wrapped if it is text; otherwise the widest columns of text are
// shortened, and end in an ellipsis. Numbers are never shortened. 0 columns means as many as the
// table needs.
func (t *Table) WriteFitted(w io.Writer, columns int) error {
	if err := t.check(); err != nil || columns <= 0 || len(t.Columns) == 0 {
		return t.WriteText(w)
	}
	width := t.widths()
	excess := 2*(len(width)-1) - columns
	for _, n := range width {
		excess += n
	}
	if excess <= 0 {
		return t.WriteText(w)
	}
	last := len(width) - 1
	if !t.Columns[last].Right && width[last]-excess >= leastProse {
		return t.wrapped(width[last] - excess).WriteText(w)
	}
	for ; excess > 0; excess-- {
		widest := -1
		for i, n := range width {
			least := max(leastCell, utf8.RuneCountInString(clean(t.Columns[i].Name)))
			if !t.Columns[i].Right && n > least && (widest < 0 || n > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // no column can be shortened further
		}
		width[widest]--
	}
	return t.shortened(width).WriteText(w)
}

// Without is the table without the named columns.
func (t *Table) Without(names ...string) *Table {
	s := *t
	s.Columns, s.Rows = nil, make([][]string, len(t.Rows))
	for i, c := range t.Columns {
		if slices.Contains(names, c.Name) {
			continue
		}
		s.Columns = append(s.Columns, c)
		for r, row := range t.Rows {
			s.Rows[r] = append(s.Rows[r], row[i])
		}
	}
	return &s
}

// Narrowed is the table with as many columns as fit into a width with text shortened a little, and
// how many columns it leaves out: first those that have nothing but zeros and dashes, then others,
// from the right. The first keep columns stay. 0 columns means as many as the table needs.
func (t *Table) Narrowed(columns, keep int) (narrow *Table, left int) {
	if columns <= 0 || t.check() != nil {
		return t, 0
	}
	excess := 2*(len(t.Columns)-1) - columns
	width := t.widths()
	for i, n := range width {
		if c := t.Columns[i]; !c.Right {
			width[i] = min(n, max(usefulCell, utf8.RuneCountInString(clean(c.Name))))
		}
		excess += width[i]
	}
	var names []string
	for _, evenIfTold := range []bool{false, true} {
		for i := len(width) - 1; i >= keep && excess > 0; i-- {
			if name := t.Columns[i].Name; !slices.Contains(names, name) && (evenIfTold || !t.tells(i)) {
				names = append(names, name)
				excess -= width[i] + 2
			}
		}
	}
	return t.Without(names...), len(names)
}

// tells says whether a column has more than zeros and dashes.
func (t *Table) tells(column int) bool {
	return slices.ContainsFunc(t.Rows, func(row []string) bool {
		return !slices.Contains([]string{"", "-", "0", "0 B"}, row[column])
	})
}

// widths are the widths of the columns, in characters.
func (t *Table) widths() []int {
	width := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		width[i] = utf8.RuneCountInString(clean(c.Name))
		for _, row := range t.Rows {
			width[i] = max(width[i], utf8.RuneCountInString(clean(row[i])))
		}
	}
	return width
}

// shortened is the table with cells of at most these widths.
func (t *Table) shortened(width []int) *Table {
	s := *t
	s.Rows = make([][]string, len(t.Rows))
	for r, row := range t.Rows {
		s.Rows[r] = make([]string, len(row))
		for i, cell := range row {
			if runes := []rune(clean(cell)); len(runes) > width[i] {
				cell = string(runes[:width[i]-1]) + cut
			}
			s.Rows[r][i] = cell
		}
	}
	return &s
}

// wrapped is the table with the text of its last column wrapped to a width. Each further line is a
// row of its own.
func (t *Table) wrapped(width int) *Table {
	s := *t
	s.Rows = nil
	last := len(t.Columns) - 1
	for _, row := range t.Rows {
		for i, line := range wrap(clean(row[last]), width) {
			next := make([]string, len(row))
			if i == 0 {
				copy(next, row)
			}
			next[last] = line
			s.Rows = append(s.Rows, next)
		}
	}
	return &s
}

// wrap breaks a text between words into lines of at most width characters. A longer word gets a
// line of its own.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
