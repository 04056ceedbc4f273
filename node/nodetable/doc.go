// Package nodetable shows what nodes say of themselves: their devices, the programs that they serve,
// grants, peers, and all of that at work, as tables and as the pictures of muster top. The cluster's
// nodes as the head knows them are here too, and what came of a node's recording that was played again.
//
// A column is declared once, with its name and the JSON field that has the same value, so that
// muster ps, ps -l and top call a thing by the same name and scripts find it (docs/columns.md). The
// package has the documents that commands print of several nodes.
//
// It knows neither the node and the head that answer, nor the commands that ask, nor the terminal:
// callers say how many columns there are.
package nodetable

import (
	"io"
	"slices"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/report/jsontable"
	"muster/wire/status"
)

// column is a column of a table that has a row for each T, of which the node that says it is shown too
// (see package jsontable for other tables).
type column[T any] struct {
	// head is the column's name, behind the sign that report.Columns wants.
	head string
	// field is the JSON field of T with the same value; "" where the table alone says it. A column
	// with two values, as 3/16, has two fields with a slash between them.
	field string
	value func(*status.Node, *T) string
}

func (c *column[T]) name() string { return c.head[1:] }

// tableOf makes a table with a row for each of list.
func tableOf[T any](columns []column[T], s *status.Node, list []T) *report.Table {
	heads := make([]string, len(columns))
	for i := range columns {
		heads[i] = columns[i].head
	}
	t := &report.Table{Columns: report.Columns(heads...)}
	for i := range list {
		row := make([]string, len(columns))
		for k := range columns {
			row[k] = columns[k].value(s, &list[i])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// said is what docs/columns.md says of columns.
func said[T any](columns []column[T]) []jsontable.Said {
	list := make([]jsontable.Said, len(columns))
	for i := range columns {
		list[i] = jsontable.Said{Name: columns[i].name(), Field: columns[i].field}
	}
	return list
}

// pick is the named columns, in the order of the names.
func pick[T any](columns []column[T], names ...string) (picked []column[T]) {
	for _, name := range names {
		at := slices.IndexFunc(columns, func(c column[T]) bool { return c.name() == name })
		picked = append(picked, columns[at])
	}
	return picked
}

// gigabytes writes a size in a few characters: 1.5G.
func gigabytes(n int64) string {
	if n == 0 {
		return "0"
	}
	return strings.TrimSuffix(strings.ReplaceAll(units.BriefSize(uint64(n)), " ", ""), "iB")
}

// writeLines writes lines below a table, if there are any.
func writeLines(w io.Writer, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+strings.Join(lines, "\n")+"\n")
	return err
}
