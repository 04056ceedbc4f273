package main

import (
	"io"
	"os"

	"muster/report"
)

// screen is a writer whose text will be shown in this many columns; 0 if that
// is unknown.
type screen struct {
	io.Writer
	columns int
}

// writeTable writes a table so that it fits the terminal, where there is one.
func writeTable(w io.Writer, t *report.Table) error { return t.WriteFitted(w, columnsOf(w)) }

// columnsOf returns how many columns a writer's text is shown in; 0 if that is
// unknown.
func columnsOf(w io.Writer) (columns int) {
	switch w := w.(type) {
	case screen:
		columns = w.columns
	case *os.File:
		if isTerminal(w) {
			columns, _, _ = terminalSize(w)
		}
	}
	return columns
}
