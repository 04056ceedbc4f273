// Package exp is the contract of the experiments: each reproduces a paper and
// sets its numbers beside Muster's own. The experiments themselves stand in the
// folders below; this package knows none of them, and no command line.
package exp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"muster/report"
)

// Experiment is one paper, made again.
type Experiment struct {
	Name    string
	Title   string
	Summary string
	// Runs is how many seeds are tried unless Options says otherwise.
	Runs int
	// Figures are the parts that can be had alone; nil if there are none.
	Figures []string
	// Flags are options that this experiment has beside those of all.
	Flags []Flag
	// Run makes it. When the context ends, an experiment that can gives what it
	// has, with Result.Partial; the others give the context's error.
	Run func(context.Context, Options) (*Result, error)
}

// Flag is an option of an experiment. Its value is one of Values, or several
// with commas between; without Values anything will do.
type Flag struct {
	Name    string
	Summary string
	Values  []string
	// Switch says that it stands alone, without a value: it is On then.
	Switch bool
}

// On is the value of a switch that was given.
const On = "true"

// Check says whether the flag can have this value.
func (f *Flag) Check(value string) error {
	if f.Switch && value != On {
		return fmt.Errorf("--%s %s: give it alone", f.Name, value)
	}
	if f.Values == nil {
		return nil
	}
	for one := range strings.SplitSeq(value, ",") {
		if !slices.Contains(f.Values, one) {
			return fmt.Errorf("--%s %s: give one of %s, or several with commas between", f.Name, value, strings.Join(f.Values, ", "))
		}
	}
	return nil
}

// UsageError says that options make no sense together, or for an experiment.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// Options are what a caller may choose.
type Options struct {
	// Seed is the first seed; the others follow it.
	Seed uint64
	// Runs is how many seeds are tried; 0 leaves it to the experiment.
	Runs int
	// Days shortens the log that an experiment generates; 0 is its full length.
	// What comes out is no longer what the paper measured.
	Days int
	// Figures are the parts that are wanted; nil for all.
	Figures []string
	// Flags are the values of the experiment's own flags; those not given are not there.
	Flags map[string]string
	// Workers run at the same time; the result is the same with any number.
	Workers int
	// Progress is told now and then how much of the work is done. It may be nil.
	Progress func(done, total int64)
}

// Seeds lists the seeds to try.
func (o Options) Seeds(unlessSet int) []uint64 {
	n := o.Runs
	if n <= 0 {
		n = unlessSet
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = o.Seed + uint64(i)
	}
	return seeds
}

// Chosen lists what was asked for with a flag of the experiment: all of it,
// unless the flag was given. The order is that of all.
func (o Options) Chosen(flag string, all []string) []string {
	value, given := o.Flags[flag]
	if !given {
		return all
	}
	asked := strings.Split(value, ",")
	var list []string
	for _, one := range all {
		if slices.Contains(asked, one) {
			list = append(list, one)
		}
	}
	return list
}

// Without refuses flags that mean something only beside another one, which was not given.
func (o Options) Without(other string, flags []Flag) error {
	for _, flag := range flags {
		if _, given := o.Flags[flag.Name]; given {
			return UsageError("--" + flag.Name + " is for --" + other + ": give that, too")
		}
	}
	return nil
}

// Wants says whether a part was asked for.
func (o Options) Wants(figure string) bool {
	return len(o.Figures) == 0 || slices.Contains(o.Figures, figure)
}

// Result is what an experiment found.
type Result struct {
	Name string `json:"name"`
	Rows []Row  `json:"rows"`
	// Notes are paragraphs: how it was done, what differs, and why.
	Notes []string `json:"notes"`
	// Partial says what is missing where the experiment was interrupted.
	Partial string `json:"partial,omitempty"`
	// Tables, where there are some, are shown to people instead of the rows, of
	// which there may be too many to read.
	Tables []*report.Table `json:"-"`
	// Page shows all of it with pictures.
	Page *report.Page `json:"-"`
}

// Row is one number of a paper beside ours.
type Row struct {
	// Part is the part of the paper that the row belongs to.
	Part   string `json:"part"`
	Metric string `json:"metric"`
	// Paper is nil where the paper has no number; PaperHigh is set where it
	// has a range that begins with Paper.
	Paper     *float64 `json:"paper"`
	PaperHigh *float64 `json:"paper_high,omitempty"`
	// Ours is the mean over the seeds, Low and High the least and the most.
	Ours float64 `json:"ours"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// HalfWidth is that of the 95 % confidence interval of the mean, by Student's t: were there
	// seeds without end, their mean would lie within Ours ± HalfWidth. It is nil for a single seed.
	HalfWidth *float64 `json:"ci95,omitempty"`
	Unit      string   `json:"unit"`
	Note      string   `json:"note,omitempty"`
}

// Ratio is ours over the paper's; false where there is nothing to divide by.
func (r *Row) Ratio() (float64, bool) {
	if r.Paper == nil || *r.Paper == 0 || r.PaperHigh != nil {
		return 0, false
	}
	return r.Ours / *r.Paper, true
}

// Over makes the row of a metric from its values, one a seed.
func Over(part, metric, unit string, values []float64) Row {
	i := report.IntervalOf(values)
	r := Row{Part: part, Metric: metric, Unit: unit, Ours: i.Mean, Low: math.Inf(1), High: math.Inf(-1)}
	for _, v := range values {
		r.Low, r.High = math.Min(r.Low, v), math.Max(r.High, v)
	}
	if len(values) > 1 {
		r.HalfWidth = &i.Half
	}
	return r
}

// Against sets the paper's number beside ours.
func (r Row) Against(paper float64) Row {
	r.Paper = &paper
	return r
}

// AgainstRange sets the range of the paper beside ours.
func (r Row) AgainstRange(low, high float64) Row {
	r.Paper, r.PaperHigh = &low, &high
	return r
}

// Noting adds a remark to the row.
func (r Row) Noting(format string, args ...any) Row {
	r.Note = fmt.Sprintf(format, args...)
	return r
}

// Check says whether a result can be shown: its numbers are numbers, and no
// metric stands twice.
func (r *Result) Check() error {
	if len(r.Rows) == 0 {
		return errors.New("an experiment without rows")
	}
	seen := map[string]bool{}
	for _, row := range r.Rows {
		switch {
		case row.Metric == "" || row.Part == "":
			return fmt.Errorf("a row without a metric or a part: %+v", row)
		case seen[row.Metric]:
			return fmt.Errorf("metric %s stands twice", row.Metric)
		case math.IsNaN(row.Ours) || math.IsInf(row.Low, 0) || math.IsInf(row.High, 0) || row.HalfWidth != nil && math.IsNaN(*row.HalfWidth):
			return fmt.Errorf("metric %s is not a number", row.Metric)
		}
		seen[row.Metric] = true
	}
	return nil
}
