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
	"strconv"
	"strings"

	"muster/internal/misuse"
	"muster/report"
)

// Experiment is the reproduction of one paper.
type Experiment struct {
	Name    string
	Title   string
	Summary string
	// Runs is how many seeds are tried unless Options says otherwise.
	Runs int
	// Figures names the parts that the user can ask for one by one; nil if there are none.
	Figures []string
	// Flags are the options of this experiment beyond those that all experiments share.
	Flags []Flag
	// Run runs the experiment. When the context ends, an experiment that supports partial results
	// returns what it has so far, with Result.Partial set; the others return the context's error.
	Run func(context.Context, Options) (*Result, error)
}

// Flag is an option of an experiment. Its value is one of Values, or several of them separated by
// commas. If Values is empty, any text is accepted.
type Flag struct {
	Name    string
	Summary string
	Values  []string
	// Switch marks a flag that takes no value. If the user gives it, its value is On.
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
	// Flags holds the values of the experiment's own flags. A flag that the user did not give has
	// no entry.
	Flags map[string]string
	// Workers is how many tasks run at the same time. The result does not depend on it.
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

// Chosen lists the elements of all that the user selected with a flag of the experiment, or all of
// them if the flag was not given. The order is that of all.
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

// Without returns an error if one of the flags was given although the flag that they modify (other)
// was not.
func (o Options) Without(other string, flags []Flag) error {
	for _, flag := range flags {
		if _, given := o.Flags[flag.Name]; given {
			return misuse.Errorf("--%s is for --%s: give that, too", flag.Name, other)
		}
	}
	return nil
}

// Wants says whether the user asked for a part.
func (o Options) Wants(figure string) bool {
	return len(o.Figures) == 0 || slices.Contains(o.Figures, figure)
}

// Number reads a number from a flag into at, if the user gave the flag.
func (o Options) Number(name string, least, most float64, at *float64) error {
	text, given := o.Flags[name]
	if !given {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= least && n <= most) {
		return misuse.Errorf("--%s %s: give a number from %v to %v", name, text, least, most)
	}
	*at = n
	return nil
}

// Whole is Number for whole numbers.
func (o Options) Whole(name string, least, most int, at *int) error {
	text, given := o.Flags[name]
	if !given {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return misuse.Errorf("--%s %s: give a number from %d to %d", name, text, least, most)
	}
	*at = n
	return nil
}

// ChosenFigures lists the parts that the user asked for, in the order of all.
func (o Options) ChosenFigures(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !o.Wants(name) })
}

// Result is what an experiment found.
type Result struct {
	Name string `json:"name"`
	Rows []Row  `json:"rows"`
	// Notes are paragraphs about the method, the differences from the paper, and their reasons.
	Notes []string `json:"notes"`
	// Partial says what is missing where the experiment was interrupted.
	Partial string `json:"partial,omitempty"`
	// Tables, if any, replace the rows in a terminal. Experiments set them when there are too many
	// rows to read.
	Tables []*report.Table `json:"-"`
	// Page is the HTML page of the result, with charts.
	Page *report.Page `json:"-"`
}

// Row is one number of a paper, beside ours.
type Row struct {
	// Part is the part of the paper that the row belongs to.
	Part   string `json:"part"`
	Metric string `json:"metric"`
	// Paper is nil where the paper gives no number. PaperHigh is set where the paper gives a range:
	// Paper is then its lower end.
	Paper     *float64 `json:"paper"`
	PaperHigh *float64 `json:"paper_high,omitempty"`
	// Ours is the mean over the seeds, Low and High the least and the most.
	Ours float64 `json:"ours"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// HalfWidth is half the 95 % confidence interval of the mean, by Student's t: the mean over an
	// unlimited number of seeds would lie within Ours ± HalfWidth, with that confidence. It is nil
	// for a single seed.
	HalfWidth *float64 `json:"ci95,omitempty"`
	Unit      string   `json:"unit"`
	Note      string   `json:"note,omitempty"`
}

// Ratio is our number divided by the paper's; false if the paper has none, a zero or a range.
func (r *Row) Ratio() (float64, bool) {
	if r.Paper == nil || *r.Paper == 0 || r.PaperHigh != nil {
		return 0, false
	}
	return r.Ours / *r.Paper, true
}

// Over makes the row of a metric from its values, one per seed.
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

// Single is the row of a metric that has one value, whatever the number of seeds.
func Single(part, metric, unit string, value float64) Row {
	return Over(part, metric, unit, []float64{value})
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

// Check says whether a result can be shown: there are rows, every number is finite, and no metric
// occurs twice.
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
