package workload

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// cell is one value of a line, with the position of its start, from 1.
type cell struct {
	text   string
	column int
}

// splitCSV splits a line at its commas. A cell in double quotes may contain commas, and quotes
// written twice; no cell contains a line break.
func splitCSV(line []byte, cells []cell) ([]cell, *fault) {
	cells = cells[:0]
	for i := 0; ; i++ {
		start := i
		if i < len(line) && line[i] == '"' {
			text, end, ok := quoted(line, i+1)
			if !ok {
				return nil, faultf(start+1, "a quote opens here and does not close")
			}
			if end < len(line) && line[end] != ',' {
				return nil, faultf(end+1, "a comma is missing after the closing quote")
			}
			cells = append(cells, cell{text, start + 1})
			i = end
		} else {
			for i < len(line) && line[i] != ',' {
				i++
			}
			cells = append(cells, cell{string(bytes.TrimSpace(line[start:i])), start + 1})
		}
		if i >= len(line) {
			return cells, nil
		}
	}
}

// quoted reads up to the closing quote, and returns the index after it.
func quoted(line []byte, i int) (text string, end int, ok bool) {
	var out []byte
	for ; i < len(line); i++ {
		if line[i] != '"' {
			out = append(out, line[i])
			continue
		}
		if i+1 < len(line) && line[i+1] == '"' {
			out = append(out, '"')
			i++
			continue
		}
		return string(out), i + 1, true
	}
	return "", 0, false
}

// table is what the CSV formats have in common: a header line, then rows with a cell for each of
// its names.
type table struct {
	header []string
	cells  []cell
}

// row splits a line. It returns nil cells for empty lines and for the header.
func (t *table) row(line []byte) ([]cell, *fault) {
	if len(strings.TrimSpace(string(line))) == 0 {
		return nil, nil
	}
	cells, f := splitCSV(line, t.cells)
	if f != nil {
		f.fatal = t.header == nil
		return nil, f
	}
	t.cells = cells
	if t.header == nil {
		for _, c := range cells {
			t.header = append(t.header, strings.ToLower(c.text))
		}
		return nil, checkColumns(len(cells))
	}
	if len(cells) != len(t.header) {
		return nil, faultf(len(line)+1, "the row has %s, the header names %d", units.Plural(len(cells), "cell"), len(t.header))
	}
	return cells, nil
}

// index is the index of a column; -1 if the table does not have it.
func (t *table) index(name string) int { return slices.Index(t.header, name) }

// csvDecoder reads the plain CSV: one row per job, with the columns that the header names, in any
// order. Lines that start with # are comments; "# start: " and a time give the time of offset 0. A
// row with a number in the column alternative is another request of the job in the row above with
// the same id, and only its request columns count.
type csvDecoder struct {
	*batch
	table
	columns     []*column // nil for the column alternative
	submit      int
	alternative int
	rows        int
	dated       string // "dates" or "offsets": the kind of submission times; "" before the first
}

func (d *csvDecoder) line(text []byte) *fault {
	if len(text) > 0 && text[0] == '#' {
		return d.comment(string(bytes.TrimSpace(text[1:])))
	}
	inHeader := d.header == nil
	cells, f := d.row(text)
	switch {
	case f != nil:
		return f
	case cells != nil:
		return d.decode(cells)
	case inHeader && d.header != nil:
		return d.bind()
	}
	return nil
}

func (d *csvDecoder) comment(line string) *fault {
	if value, ok := strings.CutPrefix(line, "start:"); ok {
		if at, known, err := parseInstant(strings.TrimSpace(value)); err == nil && known {
			d.origin, d.originKnown = at, true
			return nil
		}
	}
	return d.keepComment(line)
}

// bind finds the columns that the header names.
func (d *csvDecoder) bind() *fault {
	d.submit, d.alternative = d.index("submit"), d.index(alternativeColumn)
	for i, name := range d.header {
		c := findColumn(name)
		switch {
		case c == nil && name != alternativeColumn:
			return fatalf(d.cells[i].column, "unknown column %q: %s", name, didYouMean(name, columnNames()))
		case d.index(name) != i:
			return fatalf(d.cells[i].column, "the column %q is there twice", name)
		}
		d.columns = append(d.columns, c)
	}
	if d.index("run") < 0 {
		return fatalf(1, "the column \"run\" is missing: it says how long each job runs, as 90, 1:30:00 or 2h")
	}
	return nil
}

func (d *csvDecoder) decode(cells []cell) *fault {
	if d.alternative >= 0 && cells[d.alternative].text != "" && cells[d.alternative].text != "0" {
		return d.addAlternative(cells)
	}
	d.rows++
	j := d.job()
	for i, c := range cells {
		col := d.columns[i]
		if col == nil || c.text == "" {
			continue
		}
		var err error
		if i == d.submit {
			err = d.setSubmit(j, c.text)
		} else {
			err = col.set(j, &j.Request, c.text)
		}
		if err != nil {
			d.drop()
			return faultf(c.column, "%s: %v", col.name, err)
		}
		if bytes, err := strconv.ParseInt(c.text, 10, 64); err == nil && strings.Contains(col.name, "memory") && units.LacksUnit(bytes) {
			d.note("asking for less than 1 MiB of " + col.name + ": a number without a unit is bytes, write 4GB for gigabytes")
		}
	}
	if j.ID == "" {
		j.ID = fmt.Sprint(d.rows)
	}
	j.User, j.Group, j.Queue, j.QOS = d.word([]byte(j.User)), d.word([]byte(j.Group)), d.word([]byte(j.Queue)), d.word([]byte(j.QOS))
	return d.keep(1)
}

// setSubmit parses an offset such as 90 or 1:30:00, or a date and time. A log must not mix the two.
func (d *csvDecoder) setSubmit(j *model.Job, text string) error {
	kind := "offsets"
	if strings.Count(text, "-") >= 2 && strings.Contains(text, ":") {
		kind = "dates"
	}
	if d.dated != "" && d.dated != kind {
		return fmt.Errorf("%q: the log has %s so far and %s here: use one of them throughout", text, d.dated, kind)
	}
	var err error
	if kind == "dates" {
		j.Submit, _, err = parseInstant(text)
	} else {
		j.Submit, err = parseSpan(text)
	}
	if err != nil {
		return err
	}
	d.dated = kind
	if kind == "dates" {
		d.origin, d.originKnown = 0, true
	}
	return nil
}

func (d *csvDecoder) addAlternative(cells []cell) *fault {
	id := ""
	if i := d.index("id"); i >= 0 {
		id = cells[i].text
	}
	at := cells[d.alternative].column
	if len(d.wl.Jobs) == 0 || id == "" || d.wl.Jobs[len(d.wl.Jobs)-1].ID != id {
		return faultf(at, "an alternative must follow the row of its job and have the same id")
	}
	j := &d.wl.Jobs[len(d.wl.Jobs)-1]
	var r model.Request
	for i, c := range cells {
		if col := d.columns[i]; col != nil && col.ofRequest {
			if err := col.set(j, &r, c.text); err != nil {
				return faultf(c.column, "%s: %v", col.name, err)
			}
		}
	}
	if err := r.Validate(); err != nil {
		return faultf(at, "alternative of job %s: %v", id, err)
	}
	j.Alternatives = append(j.Alternatives, r)
	return d.charge(sizeOfRequest + requestCost(&r))
}

// writeCSV writes the columns that some job uses, with a row for each alternative.
func writeCSV(w *bufio.Writer, wl *Workload) error {
	for _, line := range wl.Header {
		fmt.Fprintln(w, strings.TrimRight("# "+strings.NewReplacer("\n", " ", "\r", " ").Replace(line), " "))
	}
	if !wl.Start.IsZero() {
		fmt.Fprintln(w, "# start: "+wl.Start.Format(time.RFC3339Nano))
	}
	used, alternatives := usedColumns(wl.Jobs)
	var row []string
	for _, c := range used {
		row = append(row, c.name)
	}
	if alternatives {
		row = append(row, alternativeColumn)
	}
	fmt.Fprintln(w, strings.Join(row, ","))
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		for k := -1; k < len(j.Alternatives); k++ {
			if err := writeRow(w, csvRow(row[:0], j, k, used, alternatives)); err != nil {
				return fmt.Errorf("job %s: %w", j.ID, err)
			}
		}
	}
	return nil
}

// csvRow is the row of the job if k is -1, and otherwise that of an alternative.
func csvRow(row []string, j *model.Job, k int, used []*column, alternatives bool) []string {
	r := &j.Request
	if k >= 0 {
		r = &j.Alternatives[k]
	}
	for _, c := range used {
		text := ""
		if k < 0 || c.ofRequest || c.name == "id" {
			text = c.get(j, r)
		}
		row = append(row, text)
	}
	switch {
	case alternatives && k < 0:
		row = append(row, "")
	case alternatives:
		row = append(row, fmt.Sprint(k+1))
	}
	return row
}

// usedColumns are the columns with a value for some job, and always the first few.
func usedColumns(jobs []model.Job) (used []*column, alternatives bool) {
	for i := range columns {
		c := &columns[i]
		always := c.name == "id" || c.name == "submit" || c.name == "run"
		if always || anyJob(jobs, c.usedBy) {
			used = append(used, c)
		}
	}
	alternatives = anyJob(jobs, func(j *model.Job) bool { return len(j.Alternatives) > 0 })
	return used, alternatives
}

// usedBy says whether the job, or an alternative of it, has a value.
func (c *column) usedBy(j *model.Job) bool {
	if c.get(j, &j.Request) != "" {
		return true
	}
	for i := range j.Alternatives {
		if c.ofRequest && c.get(j, &j.Alternatives[i]) != "" {
			return true
		}
	}
	return false
}

func writeRow(w *bufio.Writer, row []string) error {
	for i, text := range row {
		if i > 0 {
			w.WriteByte(',')
		}
		switch {
		case strings.Contains(text, "\n"):
			return fmt.Errorf("%q holds a line break, which a cell cannot", text)
		case strings.ContainsAny(text, ",\"\r") || strings.TrimSpace(text) != text || (i == 0 && strings.HasPrefix(text, "#")):
			text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
		}
		w.WriteString(text)
	}
	_, err := w.WriteString("\n")
	return err
}
