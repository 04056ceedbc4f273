package script

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
)

// Common are the settings that every script has.
var Common = []model.Option{
	{Name: "fallback", Default: "easy", Summary: "the policy that decides when the script fails; its settings follow as fallback=easy/depth=10"},
	{Name: "steps", Default: strconv.Itoa(DefaultSteps), Summary: "how many steps one call of the script may take; with the calls of the paper, also all functions of one step together, and 200 more for each event"},
	{Name: "memory", Default: "16M", Summary: "how much memory one call may take; of what it gives up, too"},
	{Name: "seed", Default: "1", Summary: "what random(n) begins with"},
}

// Bounds of what an administrator may allow.
const (
	maxSteps  = 1_000_000_000
	maxMemory = 1 << 30
)

// settings are what a script was given, and what it says that it has.
type settings struct {
	given   model.Settings // those of the script's own
	used    map[string]bool
	own     []model.Option
	loading bool
	random  *rand.Rand
}

// readSettings parts "key=value:key=value" into those that every script has and the
// script's own, which only the script knows.
func readSettings(text string) (common, own model.Settings, err error) {
	own = model.Settings{}
	var rest []string
	for kv := range strings.SplitSeq(text, ":") {
		key, value, ok := strings.Cut(kv, "=")
		switch {
		case kv == "":
		case !ok || key == "":
			return nil, nil, fmt.Errorf("%q is no setting: write it as key=value", kv)
		case slices.ContainsFunc(Common, func(o model.Option) bool { return o.Name == key }):
			rest = append(rest, kv)
		case own[key] != "" || len(own) >= maxArguments:
			return nil, nil, fmt.Errorf("%s is set twice, or there are more than %d settings", key, maxArguments)
		default:
			own[key] = value
		}
	}
	common, err = model.ReadSettings(Common, strings.Join(rest, ":"))
	return common, own, err
}

// apply reads the common settings.
func (in *interp) apply(common model.Settings) error {
	steps, err := strconv.ParseUint(common["steps"], 10, 64)
	if err != nil || steps < 1000 || steps > maxSteps {
		return fmt.Errorf("steps must be a whole number from 1000 to %d, not %q", maxSteps, common["steps"])
	}
	memory, err := units.ParseSize(common["memory"])
	if err != nil || memory < 1<<16 || memory > maxMemory {
		return fmt.Errorf("memory must be a size from 64K to 1G, not %q", common["memory"])
	}
	seed, err := strconv.ParseUint(common["seed"], 10, 64)
	if err != nil {
		return fmt.Errorf("seed must be a whole number from 0 on, not %q", common["seed"])
	}
	in.meter.steps, in.meter.memory = steps, memory
	in.options.random = rand.New(rand.NewPCG(seed, 0))
	return nil
}

// finished checks, after the file has run, that it knows all settings it was given.
func (s *settings) finished() error {
	s.loading = false
	for _, name := range slices.Sorted(mapsKeys(s.given)) {
		if s.used[name] {
			continue
		}
		names := make([]string, 0, len(s.own)+len(Common))
		for _, o := range append(slices.Clone(s.own), Common...) {
			names = append(names, o.Name)
		}
		if near := model.Nearest(name, names); near != "" {
			return fmt.Errorf("%q is no setting of it: did you mean %q?", name, near)
		}
		return fmt.Errorf("%q is no setting of it: it has %s", name, strings.Join(names, ", "))
	}
	return nil
}

func mapsKeys(s model.Settings) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range s {
			if !yield(k) {
				return
			}
		}
	}
}

// constants are the values that every script has.
func constants(in *interp) starlark.StringDict {
	return starlark.StringDict{
		"SECOND": starlark.MakeInt64(int64(time.Second)), "MINUTE": starlark.MakeInt64(int64(time.Minute)),
		"HOUR": starlark.MakeInt64(int64(time.Hour)), "DAY": starlark.MakeInt64(int64(24 * time.Hour)),
		"NEVER": starlark.MakeInt64(int64(policy.Never)),
		"KiB":   starlark.MakeInt64(1 << 10), "MiB": starlark.MakeInt64(1 << 20), "GiB": starlark.MakeInt64(1 << 30),
		"state": in.state,
	}
}

// random are the functions that draw on the interpreter's own: settings and numbers.
func random(in *interp) map[string]function {
	return map[string]function{
		"setting": in.setting,
		"random": func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			var n int64
			if err := starlark.UnpackPositionalArgs("random", args, named, 1, &n); err != nil {
				return nil, err
			}
			if n < 1 {
				return nil, fmt.Errorf("random: %d is no number of possibilities", n)
			}
			return starlark.MakeInt64(in.options.random.Int64N(n)), nil
		},
	}
}

// setting is setting(name, default, summary): what the administrator gave, read as what
// the default is.
func (in *interp) setting(_ *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name, summary string
	var fallback starlark.Value
	if err := starlark.UnpackArgs("setting", args, named, "name", &name, "default", &fallback, "summary?", &summary); err != nil {
		return nil, err
	}
	o := &in.options
	switch {
	case !o.loading:
		return nil, fmt.Errorf("setting: settings are read once: give the value a name outside of functions")
	case o.used[name] || len(o.own) >= maxArguments:
		return nil, fmt.Errorf("setting %q is there twice, or there are more than %d", name, maxArguments)
	case name == "" || strings.ContainsAny(name, ":=/") || slices.ContainsFunc(Common, func(c model.Option) bool { return c.Name == name }):
		return nil, fmt.Errorf("setting %q: choose another name", name)
	}
	o.used[name] = true
	o.own = append(o.own, model.Option{Name: name, Summary: clipped(summary), Default: settingText(fallback)})
	text, given := o.given[name]
	if !given {
		return fallback, nil
	}
	return readSetting(name, text, fallback)
}

// settingText writes a default as an administrator would, so that readSetting reads it back.
func settingText(v starlark.Value) string {
	if s, ok := starlark.AsString(v); ok {
		return s
	}
	if d, ok := wholeSeconds(v); ok {
		text := d.String() // as 1h0m0s
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	}
	if !scalar(v) {
		return ""
	}
	return v.String()
}

// wholeSeconds distinguishes a time from other numbers: times are in nanoseconds, and no other
// number in use is a multiple of a thousand million.
func wholeSeconds(v starlark.Value) (time.Duration, bool) {
	n, ok := v.(starlark.Int)
	if !ok {
		return 0, false
	}
	ns, ok := n.Int64()
	return time.Duration(ns), ok && ns > 0 && ns%int64(time.Second) == 0
}

func readSetting(name, text string, like starlark.Value) (starlark.Value, error) {
	switch like.(type) {
	case starlark.Int:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			if _, time := wholeSeconds(like); time && n%1e9 != 0 {
				return nil, fmt.Errorf("setting %s is a time: say %ss, %sm or %sh, not %s", name, text, text, text, text)
			}
			return starlark.MakeInt64(n), nil
		}
		if d, err := units.ParseDuration(text); err == nil {
			return starlark.MakeInt64(int64(d)), nil
		}
		return nil, fmt.Errorf("setting %s must be a whole number or a time as 30m, not %q", name, text)
	case starlark.Float:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("setting %s must be a number, not %q", name, text)
		}
		return starlark.Float(f), nil
	case starlark.Bool:
		b, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return nil, fmt.Errorf("setting %s must be true or false, not %q", name, text)
		}
		return starlark.Bool(b), nil
	case starlark.String:
		return starlark.String(text), nil
	}
	return nil, fmt.Errorf("setting %s: its default must be a number, a text, or True or False, not %s", name, like.Type())
}
