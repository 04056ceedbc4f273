package onekernel

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"muster/ptx"
	"muster/ptx/number"
	"muster/report"
)

// writeFiles writes the buffers that the user wants in files, which it makes with the given function,
// and prints the files' names.
func (r *Kernel) writeFiles(told io.Writer, writeFile func(path string, write func(io.Writer) error) error) error {
	for i, a := range r.args {
		if a.file == "" {
			continue
		}
		if err := writeFile(a.file, func(w io.Writer) error { _, err := w.Write(r.buffers[i]); return err }); err != nil {
			return err
		}
		fmt.Fprintf(told, "%s: argument %d, %s\n", a.file, a.number, a.shape())
	}
	return nil
}

// shown is how many elements of a buffer are printed without --all.
const shown = 64

// writeBuffers prints the buffers that the user wants and that go to no file: the first elements, or
// all. It prints how many are left out.
func (r *Kernel) writeBuffers(w, told io.Writer, all bool) error {
	b := bufio.NewWriter(w)
	for i, a := range r.args {
		if !a.wanted() || a.file != "" {
			continue
		}
		n := a.count
		if !all {
			n = min(n, shown)
		}
		fmt.Fprintf(b, "argument %d, %s:\n", a.number, a.shape())
		writeElements(b, a.typ, r.buffers[i], n)
		if more := a.count - n; more > 0 {
			defer fmt.Fprintf(told, "argument %d has %s more: --all prints them\n", a.number, report.Plural(more, "element"))
		}
	}
	return b.Flush()
}

// writeElements prints rows of elements, each after the index of its first element.
func writeElements(w io.Writer, t ptx.Type, b []byte, n int) {
	const row = 8
	width := 0
	for i := range n {
		width = max(width, len(number.Format(t, number.Get(t, b, i))))
	}
	place := len(strconv.Itoa(max(0, n-1)))
	for i := range n {
		if i%row == 0 {
			fmt.Fprintf(w, "  %*d:", place, i)
		}
		fmt.Fprintf(w, " %*s", width, number.Format(t, number.Get(t, b, i)))
		if i%row == row-1 || i == n-1 {
			fmt.Fprintln(w)
		}
	}
}
