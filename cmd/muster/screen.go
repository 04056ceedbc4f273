package main

import (
	"io"
	"os"

	"muster/report"
)

// screen is a writer whose text will be shown in so many columns; 0: nobody knows.
type screen struct {
	io.Writer
	columns int
}

// writeTable writes a table so that it fits the terminal, where there is one.
func writeTable(w io.Writer, t *report.Table) error {
	columns := 0
	switch w := w.(type) {
	case screen:
		columns = w.columns
	case *os.File:
		if isTerminal(w) {
			columns, _, _ = terminalSize(w)
		}
	}
	return t.WriteFitted(w, columns)
}
