package jobtable

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"muster/report"
)

// Format is the selection of columns for jobs.
type Format struct {
	columns []column
	// asWritten says that columns have the widths that the user gave, and text between them.
	asWritten bool
}

// column is a column of a format; field is nil for literal text.
type column struct {
	field *field
	text  string
	width int
	right bool
}

// ParseFormat parses squeue's --format: %[.][WIDTH]LETTER, with text between.
func ParseFormat(format string) (*Format, error) {
	var columns []column
	text := ""
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) || format[i+1] == '%' {
			text += format[i : i+1]
			if format[i] == '%' {
				i++
			}
			continue
		}
		k := column{}
		i++
		if format[i] == '.' {
			k.right = true
			i++
		}
		start := i
		for i < len(format) && format[i] >= '0' && format[i] <= '9' {
			i++
		}
		if i == len(format) || i-start > 3 {
			return nil, fmt.Errorf("--format %q: behind %%, a point and a width of up to 3 digits stands a letter, as in %%.18i", format)
		}
		k.width, _ = strconv.Atoi(format[start:i])
		if k.field = byLetter(format[i]); k.field == nil {
			return nil, fmt.Errorf("--format %q: %%%c is not known here; --Format has the same by name", format, format[i])
		}
		if text != "" {
			columns, text = append(columns, column{text: text}), ""
		}
		columns = append(columns, k)
	}
	if text != "" {
		columns = append(columns, column{text: text})
	}
	return &Format{columns, true}, nil
}

// ParseFields parses squeue's --Format: NAME[:[.]WIDTH],... If one column has a width, those
// without get squeue's defaults.
func ParseFields(list string) (*Format, error) {
	var columns []column
	otherwise := 0
	if strings.Contains(list, ":") {
		otherwise = 20
	}
	for item := range strings.SplitSeq(list, ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(item), ":")
		field, err := byName(name)
		if err != nil {
			return nil, err
		}
		k := column{field: field, width: otherwise}
		if sized {
			width, k.right = strings.CutPrefix(width, ".")
			if k.width, err = strconv.Atoi(width); err != nil || k.width < 1 || k.width > 999 {
				return nil, fmt.Errorf("--Format %q: behind the colon stands a width from 1 to 999, as in name:20", item)
			}
		}
		if !sized && field.name == "why" {
			k.width = 0 // a truncated sentence would be useless
		}
		if otherwise > 0 && len(columns) > 0 {
			columns = append(columns, column{text: " "})
		}
		columns = append(columns, k)
	}
	return &Format{columns, otherwise > 0}, nil
}

// Shows says whether a field is among the columns.
func (f *Format) Shows(name string) bool {
	return slices.ContainsFunc(f.columns, func(k column) bool { return k.field != nil && k.field.name == name })
}

// writeAsWritten writes lines as squeue does: columns with a width are cut or padded.
func (f *Format) writeAsWritten(w io.Writer, jobs []Line, header bool) error {
	var b strings.Builder
	line := func(value func(*field) string) {
		var l strings.Builder
		for _, k := range f.columns {
			switch {
			case k.field == nil:
				l.WriteString(k.text)
			case k.width > 0:
				l.WriteString(report.Pad(report.Printable(value(k.field)), k.width, k.right))
			default:
				l.WriteString(report.Printable(value(k.field)))
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	if header {
		line(func(f *field) string { return f.header })
	}
	for i := range jobs {
		line(func(f *field) string { return f.value(&jobs[i]) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Write writes lines, below the names of the columns if header is set. Columns without widths are
// as wide as needed. room, unless 0, is the maximum width of a line.
func (f *Format) Write(w io.Writer, jobs []Line, header bool, room int) error {
	if f.asWritten {
		return f.writeAsWritten(w, jobs, header)
	}
	var names []string
	shrink := -1
	for i, k := range f.columns {
		names = append(names, k.field.header)
		if k.field.letter == 'j' {
			shrink = i
		}
	}
	rows := make([][]string, len(jobs))
	for i := range jobs {
		for _, k := range f.columns {
			rows[i] = append(rows[i], k.field.value(&jobs[i]))
		}
	}
	if !header {
		names = nil
	}
	return report.WriteColumns(w, names, rows, shrink, room)
}
