package gremm

import (
	"fmt"
	"strings"

	"muster/exp"
	"muster/report"
)

// sweep is a figure of the paper, or one of ours: lines over a quantity that varies.
type sweep struct {
	// key is the prefix of the metrics of its rows.
	key, title, note string
	// axis names the quantity that varies. labels are its values in words. xs, if set, are its
	// values on the axis of a chart; without them the sweep is drawn as bars.
	axis   string
	labels []string
	xs     []float64
	logX   bool
	lines  []line
	// shows lists the numbers to show, one picture each.
	shows []measured
	// over, if set, is the line with which all others are compared, seed by seed. The differences
	// are shown.
	over *line
	// overOwn gives each line its own line to compare with.
	overOwn func(line) line
}

// against is the line with which a line is compared; nil if its own values are shown.
func (s *sweep) against(ln line) *line {
	if s.overOwn != nil {
		other := s.overOwn(ln)
		return &other
	}
	return s.over
}

// line is one way to map kernels. at gives its scenario at the label with index i.
type line struct {
	name string
	at   func(i int) scenario
}

// measured is a number that can be computed from an outcome.
type measured struct {
	key, title, unit string
	of               func(*outcome) float64
	digits           int
}

var (
	utilisation = measured{"utilisation_pct", "GPU utilisation", "%", func(o *outcome) float64 { return o.utilisation }, 1}
	waiting     = measured{"wait_s", "mean waiting time", "s", func(o *outcome) float64 { return o.wait }, 2}
	// waitingOfProcess gives all processes equal weight, while waiting gives more to one with many
	// short kernels.
	waitingOfProcess = measured{"wait_of_process_s", "mean waiting time, mean over the processes", "s", func(o *outcome) float64 { return o.waitOfProcess }, 2}
	moved            = measured{"moved_MB", "data moved for a kernel", "MB", func(o *outcome) float64 { return o.moved }, 1}
	remoteShare      = measured{"remote_pct", "kernels on another node", "%", func(o *outcome) float64 { return o.remote }, 1}
)

// finished is the number of kernels that a client finishes in a time.
func finished(app string, seconds float64) measured {
	return measured{
		fmt.Sprintf("%s_kernels_in_%.0fs", app, seconds), fmt.Sprintf("kernels that client %s finishes in %s s", app, report.Number(seconds)), "kernels",
		func(o *outcome) float64 { return o.ofApp(app) * seconds }, 0,
	}
}

// margin is the number with the name and unit of a difference.
func (m measured) margin() measured {
	m.key += "_more"
	if m.unit == "%" {
		m.key, m.unit = strings.TrimSuffix(m.key, "_pct_more")+"_points_more", "points"
	}
	return m
}

func (s *sweep) scenarios() []scenario {
	var list []scenario
	for i := range s.labels {
		for _, ln := range s.lines {
			if other := s.against(ln); other != nil {
				list = append(list, other.at(i))
			}
			list = append(list, ln.at(i))
		}
	}
	return list
}

// values are a number of a line at label i, one per seed; nil if not all seeds were run.
func (l *lab) values(s *sweep, ln line, i int, m measured) []float64 {
	found := l.Found[ln.at(i)]
	if found == nil {
		return nil
	}
	values := exp.Values(found, m.of)
	other := s.against(ln)
	if other == nil {
		return values
	}
	base := l.Found[other.at(i)]
	if base == nil {
		return nil
	}
	return minus(values, exp.Values(base, m.of))
}

func minus(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// showSweep adds the rows, tables and pictures of a sweep.
func (l *lab) showSweep(s *shown, sw sweep) {
	for _, m := range sw.shows {
		l.showOne(s, &sw, m)
	}
}

func (l *lab) showOne(s *shown, sw *sweep, m measured) {
	told, caption := m, sw.title+": "+m.title
	if other := sw.against(sw.lines[0]); other != nil {
		told = m.margin()
		caption += " above that of " + other.name
	}
	t := &report.Table{Title: caption + ", " + told.unit, Columns: []report.Column{{Name: sw.axis}}}
	for _, line := range sw.lines {
		t.Columns = append(t.Columns, report.Column{Name: line.name, Right: true})
	}
	series := make([][]exp.Row, len(sw.lines)) // a row without a metric is a gap
	any := false
	for i, label := range sw.labels {
		cells, some := []string{label}, false
		for k, line := range sw.lines {
			values := l.values(sw, line, i, m)
			if values == nil {
				series[k] = append(series[k], exp.Row{})
				cells = append(cells, "-")
				continue
			}
			some = true
			row := exp.Over(s.Title, metric(sw.key, label, line.name, told.key), told.unit, values)
			series[k] = append(series[k], row)
			s.Rows = append(s.Rows, row)
			cells = append(cells, cell(row, told.digits))
		}
		if some {
			any = true
			t.Rows = append(t.Rows, cells)
		}
	}
	if !any {
		return
	}
	s.Tables = append(s.Tables, t)
	note := "Bars of error: 95 % confidence of the mean over the seeds."
	if sw.note != "" {
		note = sw.note + " " + note
	}
	if sw.xs != nil {
		s.Pictures = append(s.Pictures, sw.chart(caption, note, told, series))
	} else {
		s.Pictures = append(s.Pictures, sw.bars(caption, note, told, series))
	}
}

func (sw *sweep) chart(caption, note string, m measured, series [][]exp.Row) report.Section {
	c := &report.Chart{Title: caption, XLabel: sw.axis, YLabel: m.unit, Note: note, LogX: sw.logX}
	for k, rows := range series {
		one := report.Series{Name: sw.lines[k].name, X: sw.xs, Points: true}
		for _, r := range rows {
			y, lo, hi := ends(r)
			one.Y, one.Lo, one.Hi = append(one.Y, y), append(one.Lo, lo), append(one.Hi, hi)
		}
		c.Series = append(c.Series, one)
	}
	return c
}

func (sw *sweep) bars(caption, note string, m measured, series [][]exp.Row) report.Section {
	b := &report.Bars{Title: caption, YLabel: m.unit, Note: note, Groups: sw.labels}
	for k, rows := range series {
		one := report.BarSeries{Name: sw.lines[k].name}
		for _, r := range rows {
			y, lo, hi := ends(r)
			one.Values, one.Lo, one.Hi = append(one.Values, y), append(one.Lo, lo), append(one.Hi, hi)
		}
		b.Series = append(b.Series, one)
	}
	return b
}

// ends are a row's mean and the bounds of its interval; NaN where missing.
func ends(r exp.Row) (mean, lo, hi float64) {
	switch {
	case r.Metric == "":
		return exp.Nothing, exp.Nothing, exp.Nothing
	case r.HalfWidth == nil:
		return r.Ours, exp.Nothing, exp.Nothing
	}
	return r.Ours, r.Ours - *r.HalfWidth, r.Ours + *r.HalfWidth
}

// cell writes a mean with its interval, for the tables that people read.
func cell(r exp.Row, digits int) string {
	text := fmt.Sprintf("%.*f", digits, r.Ours)
	if r.HalfWidth != nil {
		text += fmt.Sprintf(" ±%.*f", digits, *r.HalfWidth)
	}
	return text
}

// metric joins words to a name that scripts can split again.
func metric(words ...string) string {
	for i, w := range words {
		var b strings.Builder
		for _, r := range strings.ToLower(w) {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
				b.WriteRune(r)
			case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
				b.WriteByte('_')
			}
		}
		words[i] = strings.TrimSuffix(b.String(), "_")
	}
	return strings.Join(words, "_")
}

// claim is a statement of the paper, with the number of ours that decides it.
type claim struct {
	figure, says string
	row          exp.Row
	verdict      exp.Verdict
}

// claim adds a statement and its verdict, judged by the mean of values.
func (s *shown) claim(figure, says, metric, unit string, values []float64, judge exp.Judge) {
	if values == nil {
		return
	}
	row := exp.Over(s.Title, metric, unit, values)
	c := claim{figure: figure, says: says, row: row, verdict: judge(row)}
	c.row.Note = "the paper: " + says + ": " + c.verdict.String()
	s.claims = append(s.claims, c)
}

func claimsTable(list []claim) *report.Table {
	t := &report.Table{
		Title:   "What the paper says in words",
		Columns: []report.Column{{Name: "figure"}, {Name: "verdict"}, {Name: "ours", Right: true}, {Name: "unit"}, {Name: "the paper says"}},
		Note: "Ours: the number that decides, with its 95 % confidence. Confirmed: as the paper says, with all of the interval (or in two thirds of the cases). " +
			"Direction only: the mean is (or more than half of the cases are), or the amount differs. Refuted: it comes out the other way round.",
	}
	for _, c := range list {
		t.Rows = append(t.Rows, []string{c.figure, c.verdict.String(), cell(c.row, 2), c.row.Unit, c.says})
	}
	return t
}
