package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/exp"
	"muster/internal/units"
)

// Flags are the flags shared by experiments that measure on this machine: the folder of the
// programs, the patience (unless its default is ""), and the file that stores the measurements.
// when is put before each description and names the flag that they depend on, as in "with --live:
// "; it may be "".
func Flags(when, patience string) []exp.Flag {
	list := []exp.Flag{{Name: "programs", Summary: when + "the folder of the programs to run (default: examples/ beside this program)"}}
	if patience != "" {
		list = append(list, exp.Flag{Name: "patience", Summary: when + "how long to wait, in all, for a machine that is busy with other things (default " + patience + ")"})
	}
	return append(list,
		exp.Flag{Name: "save", Summary: when + "keep what was measured in this file"},
		exp.Flag{Name: "from", Summary: when + "measure nothing, and show what --save kept in this file"})
}

// Frame is an experiment whose measurements can be stored in a file and shown again.
type Frame[Measured any] struct {
	// Measure makes the measurements. When its context ends, it may return those made so far.
	Measure func(context.Context, exp.Options) (*Measured, error)
	// Check validates measurements that were read from a file.
	Check func(*Measured) error
	// Result turns measurements into a result.
	Result func(*Measured) (*exp.Result, error)
	// Partial, if set, says what is missing from new measurements.
	Partial func(*Measured) string
}

// Run shows the measurements in the file that --from names. Without --from it measures, and stores
// the measurements in the file that --save names.
func (f Frame[Measured]) Run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	if path, given := o.Flags["from"]; given {
		m, err := f.Load(path)
		if err != nil {
			return nil, err
		}
		return f.Result(m)
	}
	path, save := o.Flags["save"]
	if err := Savable(path); err != nil {
		return nil, err
	}
	m, err := f.Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	if save {
		if err := Save(path, m); err != nil {
			return nil, err
		}
	}
	r, err := f.Result(m)
	if err == nil && f.Partial != nil {
		r.Partial = f.Partial(m)
	}
	return r, err
}

// Load reads measurements from a file that --save wrote.
func (f Frame[Measured]) Load(path string) (*Measured, error) {
	m := new(Measured)
	return m, Load(path, m, func() error { return f.Check(m) })
}

// Decode is Load for measurements that are in memory.
func (f Frame[Measured]) Decode(text []byte) (*Measured, error) {
	m := new(Measured)
	return m, Decode(text, m, func() error { return f.Check(m) })
}

// PatienceOf is the total time that an experiment may wait for a quiet machine, by its flags.
func PatienceOf(o exp.Options, unlessSet time.Duration) (time.Duration, error) {
	text, given := o.Flags["patience"]
	if !given {
		return unlessSet, nil
	}
	return Patience(text)
}

// Timing is the time that a measurement took. Outcomes embed it.
type Timing struct {
	Seconds float64 `json:"seconds"`
	// Late is the machine's mean wake-up delay meanwhile, in seconds: how busy it was.
	Late float64 `json:"late"`
}

func (t Timing) timing() Timing { return t }

// timed is an outcome that embeds Timing.
type timed interface{ timing() Timing }

// Record holds the measurements of an experiment, each made once per seed. Experiments embed it in
// the value that they store in a file.
type Record[Outcome timed] struct {
	Version int      `json:"version"`
	Machine string   `json:"machine"` // in a few words
	Figures []string `json:"figures"`
	Seeds   []uint64 `json:"seeds"`
	Missing string   `json:"missing,omitempty"` // what an interrupt prevented

	Outcomes map[string][]Outcome `json:"outcomes"` // one a seed
}

// NewRecord makes a record of this machine, without outcomes.
func NewRecord[Outcome timed](version int, seeds []uint64) Record[Outcome] {
	return Record[Outcome]{Version: version, Machine: Machine(), Seeds: seeds, Outcomes: map[string][]Outcome{}}
}

// checkVersion says whether a record has the expected version and at least one outcome.
func (r *Record[Outcome]) checkVersion(version int) error {
	switch {
	case r.Version != version:
		return fmt.Errorf("version %d: this program reads version %d", r.Version, version)
	case len(r.Seeds) == 0 || len(r.Figures) == 0 || len(r.Outcomes) == 0:
		return errors.New("nothing was measured")
	}
	return nil
}

// Measure makes the measurements named by keys, one after the other, once per seed. one makes a
// single measurement; it gets the index of its key.
func (r *Record[Outcome]) Measure(keys []string, progress func(done, total int64), one func(i int, seed uint64) (Outcome, error)) error {
	done := 0
	for _, seed := range r.Seeds {
		for i, key := range keys {
			out, err := one(i, seed)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", key, seed, err)
			}
			r.Outcomes[key] = append(r.Outcomes[key], out)
			if done++; progress != nil {
				progress(int64(done), int64(len(r.Seeds)*len(keys)))
			}
		}
	}
	return nil
}

// Need is a figure with the keys of all measurements that it shows.
type Need struct {
	Figure string
	Keys   []string
}

// Keep drops the incomplete part of an interrupted record and describes it in Missing. It drops
// first the figures that lack a measurement with the first seed, then the seeds that some remaining
// figure lacks. It returns false if nothing is left.
func (r *Record[Outcome]) Keep(needs []Need) bool {
	var complete, missing, notes []string
	runs, kept := len(r.Seeds), map[string][]Outcome{}
	for _, n := range needs {
		least := len(r.Seeds)
		for _, key := range n.Keys {
			least = min(least, len(r.Outcomes[key]))
		}
		if least == 0 {
			missing = append(missing, n.Figure)
			continue
		}
		complete, runs = append(complete, n.Figure), min(runs, least)
	}
	if len(missing) > 0 {
		notes = append(notes, "figures "+strings.Join(missing, ", "))
	}
	if later := len(r.Seeds) - runs; later > 0 {
		notes = append(notes, "the last "+units.Plural(later, "seed"))
	}
	for _, n := range needs {
		for _, key := range n.Keys {
			if slices.Contains(complete, n.Figure) {
				kept[key] = r.Outcomes[key][:runs]
			}
		}
	}
	r.Figures, r.Outcomes, r.Seeds, r.Missing = complete, kept, r.Seeds[:runs], strings.Join(notes, "; ")
	return len(complete) > 0
}

// Has says whether the record has outcomes for all keys.
func (r *Record[Outcome]) Has(keys ...string) bool {
	for _, key := range keys {
		if len(r.Outcomes[key]) == 0 {
			return false
		}
	}
	return true
}

// Values extracts a number from every run of a measurement.
func (r *Record[Outcome]) Values(key string, of func(*Outcome) float64) []float64 {
	return exp.Values(r.Outcomes[key], of)
}

// Seconds are the times of a measurement, one per seed.
func (r *Record[Outcome]) Seconds(key string) []float64 {
	return r.Values(key, func(o *Outcome) float64 { return (*o).timing().Seconds })
}

// Median is the median time of a measurement.
func (r *Record[Outcome]) Median(key string) float64 { return exp.Median(r.Seconds(key)) }

// Ratios divides the times of two measurements, run by run.
func (r *Record[Outcome]) Ratios(key, over string) []float64 {
	return exp.Ratios(r.Seconds(key), r.Seconds(over))
}

// Ratio is the median of Ratios.
func (r *Record[Outcome]) Ratio(key, over string) float64 { return exp.Median(r.Ratios(key, over)) }

// caveats are notes on measurements that are missing because of an interrupt, and on a machine that
// was busy with other work: one whose mean wake-up delay exceeded tooLate.
func (r *Record[Outcome]) caveats(tooLate float64) []string {
	var list []string
	if tooLate == 0 {
		return nil
	}
	if r.Missing != "" {
		list = append(list, "Interrupted: this is a part of it. Missing: "+r.Missing+".")
	}
	if busy := r.Disturbed(tooLate); busy > 0 {
		list = append(list, fmt.Sprintf("The machine was busy: during %.0f %% of the runs it woke sleepers more than %.1f ms late on average. Measure again when nothing else runs.", 100*busy, 1e3*tooLate))
	}
	return list
}

// Disturbed is the fraction of all runs during which the machine woke sleepers more than tooLate seconds late.
func (r *Record[Outcome]) Disturbed(tooLate float64) float64 {
	count, n := 0, 0
	for _, list := range r.Outcomes {
		for i := range list {
			if n++; list[i].timing().Late > tooLate {
				count++
			}
		}
	}
	return float64(count) / float64(max(1, n))
}
