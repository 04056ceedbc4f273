// Package jsontable declares the columns of a table together with the fields of the JSON document that have
// the same values, so that people who read a table and scripts that read the document find the same
// thing under names that docs/columns.md sets side by side. It knows nothing of what is shown.
package jsontable

import (
	"io"
	"slices"

	"muster/report"
)

// Column is a column of a table that has a row for each T.
type Column[T any] struct {
	Name string
	// Field is the JSON field of T with the same value; "" where the table alone says it. A column
	// with two values, as 3/16, has two fields with a slash between them.
	Field string
	Value func(*T) string
}

// Columns are those of a table.
type Columns[T any] []Column[T]

// Write writes a table with a row for each of list, as Slurm's tools do. If it is wider than room, the
// column that is named is truncated.
func (c Columns[T]) Write(w io.Writer, list []T, shrink string, room int) error {
	names := make([]string, len(c))
	for i := range c {
		names[i] = c[i].Name
	}
	var rows [][]string
	for i := range list {
		row := make([]string, len(c))
		for k := range c {
			row[k] = c[k].Value(&list[i])
		}
		rows = append(rows, row)
	}
	return report.WriteColumns(w, names, rows, slices.Index(names, shrink), room)
}

// Said is what docs/columns.md says of a column.
type Said struct{ Name, Field string }

// Said is what docs/columns.md says of the columns.
func (c Columns[T]) Said() []Said {
	said := make([]Said, len(c))
	for i := range c {
		said[i] = Said{c[i].Name, c[i].Field}
	}
	return said
}
