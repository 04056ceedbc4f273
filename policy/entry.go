package policy

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"muster/internal/units"
	"muster/model"
)

// Entry makes a policy known by name. Each policy's package has one; the
// catalogue lists them.
type Entry struct {
	Name    string
	Summary string // one line
	Options []model.Option
	New     func(model.Settings) (Policy, error)
}

// atMost reads a whole number that limits something; 0 means no limit.
func atMost(s model.Settings, name string) (int, error) {
	n, err := strconv.Atoi(s[name])
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s must be a whole number from 0 on, not %q", name, s[name])
	}
	if n == 0 {
		n = math.MaxInt
	}
	return n, nil
}

// within reads a duration that limits something; 0 means no limit.
func within(s model.Settings, name string) (time.Duration, error) {
	d, err := units.ParseDuration(s[name])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if d == 0 {
		d = math.MaxInt64
	}
	return d, nil
}

// BackfillOptions are the settings that backfilling policies share; depth says
// what the depth limits.
func BackfillOptions(depth string) []model.Option {
	return []model.Option{
		{Name: "depth", Default: "100", Summary: depth + "; 0 for all"},
		{Name: "bf_window", Default: "0", Summary: "how far ahead a reservation may lie; 0 for no limit"},
	}
}

// Backfill reads the settings of BackfillOptions.
func Backfill(s model.Settings) (depth int, window time.Duration, err error) {
	if depth, err = atMost(s, "depth"); err != nil {
		return 0, 0, err
	}
	window, err = within(s, "bf_window")
	return depth, window, err
}

// Make reads "key=value:key=value" against the entry's options.
func (e *Entry) Make(spec string) (Policy, error) {
	s, err := model.ReadSettings(e.Options, spec)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", e.Name, err)
	}
	p, err := e.New(s)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", e.Name, err)
	}
	return p, nil
}
