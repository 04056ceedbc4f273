package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"muster/model"
)

// Entry makes a policy known by name. Each policy's package has one; the
// catalogue lists them.
type Entry struct {
	Name    string
	Summary string // one line
	Options []Option
	New     func(Settings) (Policy, error)
}

// Option is a setting that a policy understands.
type Option struct {
	Name    string
	Summary string
	Default string
}

// Settings are an entry's options with their values.
type Settings map[string]string

// atMost reads a whole number that limits something; 0 is no limit.
func (s Settings) atMost(name string) (int, error) {
	n, err := strconv.Atoi(s[name])
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s must be a whole number from 0 on, not %q", name, s[name])
	}
	if n == 0 {
		n = math.MaxInt
	}
	return n, nil
}

// within reads a span of time that limits something; 0 is no limit.
func (s Settings) within(name string) (time.Duration, error) {
	d, err := model.ParseDuration(s[name])
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
func BackfillOptions(depth string) []Option {
	return []Option{
		{Name: "depth", Default: "100", Summary: depth + "; 0 for all"},
		{Name: "bf_window", Default: "0", Summary: "how far ahead a reservation may lie; 0 for no limit"},
	}
}

// Backfill reads the settings of BackfillOptions.
func (s Settings) Backfill() (depth int, window time.Duration, err error) {
	if depth, err = s.atMost("depth"); err != nil {
		return 0, 0, err
	}
	window, err = s.within("bf_window")
	return depth, window, err
}

// Make reads "key=value:key=value" against the entry's options.
func (e *Entry) Make(spec string) (Policy, error) {
	s, given := Settings{}, map[string]bool{}
	for _, o := range e.Options {
		s[o.Name] = o.Default
	}
	for _, kv := range strings.Split(spec, ":") {
		if kv == "" {
			continue
		}
		key, value, ok := strings.Cut(kv, "=")
		if _, known := s[key]; !known {
			return nil, fmt.Errorf("policy %s: %q is no setting of it%s", e.Name, kv, e.known(key))
		}
		if !ok {
			return nil, fmt.Errorf("policy %s: %s has no value: write it as %s=%s", e.Name, key, key, s[key])
		}
		if given[key] {
			return nil, fmt.Errorf("policy %s: %s is set twice", e.Name, key)
		}
		s[key], given[key] = value, true
	}
	p, err := e.New(s)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", e.Name, err)
	}
	return p, nil
}

// known names the setting that was meant, or lists all.
func (e *Entry) known(meant string) string {
	if len(e.Options) == 0 {
		return ": it has none"
	}
	names, all := make([]string, len(e.Options)), make([]string, len(e.Options))
	for i, o := range e.Options {
		names[i], all[i] = o.Name, o.Name+"="+o.Default
	}
	if near := model.Nearest(meant, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ": it has " + strings.Join(all, ", ")
}
