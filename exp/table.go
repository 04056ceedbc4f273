package exp

import (
	"fmt"
	"slices"
	"strconv"

	"muster/report"
)

// Parts lists the parts of the rows, in their order.
func Parts(rows []Row) []string {
	var parts []string
	for _, r := range rows {
		if !slices.Contains(parts, r.Part) {
			parts = append(parts, r.Part)
		}
	}
	return parts
}

// Table shows the rows of a part.
func Table(rows []Row, part string) *report.Table {
	t := &report.Table{
		Title: part,
		Columns: []report.Column{
			{Name: "metric"},
			{Name: "paper", Right: true, Help: "What the paper says; a dash where it has no number."},
			{Name: "ours", Right: true, Help: "The mean over all seeds."},
			{Name: "±95 %", Right: true, Help: "Half of the 95 % confidence interval of the mean (Student's t); a dash for a single seed."},
			{Name: "spread", Right: true, Help: "The least and the most of all seeds."},
			{Name: "unit"},
			{Name: "ratio", Right: true, Help: "Ours over the paper's; for a range, whether ours lies within."},
		},
	}
	for _, r := range rows {
		if r.Part != part {
			continue
		}
		t.Rows = append(t.Rows, []string{
			r.Metric, r.paper(), report.Number(r.Ours), r.halfWidth(), report.Number(r.Low) + " to " + report.Number(r.High), r.Unit, r.ratio(),
		})
	}
	return t
}

// TableWithNotes shows the rows of a part with their remarks, under a heading of
// the page that names the part.
func TableWithNotes(rows []Row, part string) *report.Table {
	t := Table(rows, part)
	t.Title = ""
	t.Columns = append(t.Columns, report.Column{Name: "note"})
	i := 0
	for _, r := range rows {
		if r.Part == part {
			t.Rows[i] = append(t.Rows[i], r.Note)
			i++
		}
	}
	return t
}

func (r *Row) paper() string {
	switch {
	case r.Paper == nil:
		return "-"
	case r.PaperHigh != nil:
		return report.Number(*r.Paper) + " to " + report.Number(*r.PaperHigh)
	}
	return report.Number(*r.Paper)
}

// halfWidth writes the half-width with two significant digits; more would suggest a precision that
// a confidence interval does not have.
func (r *Row) halfWidth() string {
	if r.HalfWidth == nil {
		return "-"
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(*r.HalfWidth, 'e', 1, 64), 64)
	if err != nil {
		return "-"
	}
	return report.Number(rounded)
}

// ratio says how the paper's number and ours compare.
func (r *Row) ratio() string {
	if r.PaperHigh != nil {
		switch {
		case r.Ours < *r.Paper:
			return "below"
		case r.Ours > *r.PaperHigh:
			return "above"
		}
		return "within"
	}
	ratio, ok := r.Ratio()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}
