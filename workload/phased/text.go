package phased

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// Unit is the unit of a distribution's numbers.
type Unit uint8

// The units.
const (
	Nanoseconds Unit = iota
	Bytes
)

// family is the syntax of a kind of distribution: its name, then values with units, then an
// optional number. Each may be given by name or in this order.
type family struct {
	kind    Kind
	name    string
	values  []string // the names of the values; none for any number of values
	number  string   // the name of the number, if there is one
	example [2]string
	make    func(v []int64, x float64) Dist
}

var families = []family{
	{Constant, "constant", []string{"value"}, "", [2]string{"constant(750ms)", "constant(22.5MB)"},
		func(v []int64, _ float64) Dist { return ConstantOf(v[0]) }},
	{Exponential, "exponential", []string{"mean"}, "", [2]string{"exponential(750ms)", "exponential(22.5MB)"},
		func(v []int64, _ float64) Dist { return ExponentialOf(v[0]) }},
	{Uniform, "uniform", []string{"low", "high"}, "", [2]string{"uniform(1ms, 5ms)", "uniform(1MB, 5MB)"},
		func(v []int64, _ float64) Dist { return UniformOf(v[0], v[1]) }},
	{Erlang, "erlang", []string{"mean"}, "stages", [2]string{"erlang(mean=2s, stages=4)", "erlang(mean=2MB, stages=4)"},
		func(v []int64, x float64) Dist { return Dist{Kind: Erlang, Mean: float64(v[0]), a: x} }},
	{Hyperexponential, "hyperexponential", []string{"mean"}, "cv", [2]string{"hyperexponential(mean=2s, cv=3)", "hyperexponential(mean=2MB, cv=3)"},
		func(v []int64, x float64) Dist { return HyperexponentialOf(v[0], x) }},
	{Lognormal, "lognormal", []string{"mean"}, "cv", [2]string{"lognormal(mean=2s, cv=1.5)", "lognormal(mean=2MB, cv=1.5)"},
		func(v []int64, x float64) Dist { return LognormalOf(v[0], x) }},
	{Weibull, "weibull", []string{"mean"}, "shape", [2]string{"weibull(mean=2s, shape=0.7)", "weibull(mean=2MB, shape=0.7)"},
		func(v []int64, x float64) Dist { return WeibullOf(v[0], x) }},
	{Pareto, "pareto", []string{"low", "high"}, "shape", [2]string{"pareto(low=1ms, high=10s, shape=1.1)", "pareto(low=1KB, high=1GB, shape=1.1)"},
		func(v []int64, x float64) Dist { return ParetoOf(v[0], v[1], x) }},
	{Empirical, "empirical", nil, "", [2]string{"empirical(1ms, 1ms, 20ms)", "empirical(1MB, 1MB, 20MB)"},
		func(v []int64, _ float64) Dist { return EmpiricalOf(v...) }},
}

// Families are examples of all distributions in their syntax.
func Families(unit Unit) []string {
	examples := make([]string, len(families))
	for i := range families {
		examples[i] = families[i].example[unit]
	}
	return examples
}

// ParseDist parses a distribution, such as exponential(750ms), or a plain value for a constant.
func ParseDist(text string, unit Unit) (Dist, error) {
	name, rest, hasArguments := strings.Cut(strings.TrimSpace(text), "(")
	if !hasArguments {
		if i := familyNamed(name); i >= 0 {
			return Dist{}, fmt.Errorf("%s has no brackets: write %s", name, families[i].example[unit])
		}
		v, err := unit.parse(name)
		if err != nil {
			if near := nearFamily(name); near != "" {
				return Dist{}, fmt.Errorf("%w, or as a distribution: did you mean %s?", err, near)
			}
			return Dist{}, fmt.Errorf("%w, or as a distribution: %s", err, families[Exponential].example[unit])
		}
		d := ConstantOf(v)
		return d, d.validate()
	}
	name = strings.TrimSpace(name)
	i := familyNamed(name)
	if i < 0 {
		if near := nearFamily(name); near != "" {
			return Dist{}, fmt.Errorf("there is no distribution %q: did you mean %s?", name, near)
		}
		return Dist{}, fmt.Errorf("there is no distribution %q: write one of %s", name, strings.Join(Families(unit), ", "))
	}
	f := &families[i]
	inside, closed := strings.CutSuffix(rest, ")")
	if !closed {
		return Dist{}, fmt.Errorf("%q does not end with a bracket: write %s, in quotes where it stands between braces", text, f.example[unit])
	}
	d, err := f.parse(inside, unit)
	if err == nil {
		err = d.validate()
	}
	if err != nil {
		return Dist{}, fmt.Errorf("%s: %w: write it as %s", text, err, f.example[unit])
	}
	return d, nil
}

func familyNamed(name string) int {
	return slices.IndexFunc(families, func(f family) bool { return f.name == name })
}

func nearFamily(name string) string {
	names := make([]string, len(families))
	for i := range families {
		names[i] = families[i].name
	}
	return model.Nearest(name, names)
}

// parse parses the text between the brackets.
func (f *family) parse(inside string, unit Unit) (Dist, error) {
	arguments := strings.Split(inside, ",")
	if f.values == nil {
		if len(arguments) > maxValues {
			return Dist{}, fmt.Errorf("it has more than %d values", maxValues)
		}
		values := make([]int64, len(arguments))
		for i, a := range arguments {
			var err error
			if values[i], err = unit.parse(a); err != nil {
				return Dist{}, err
			}
		}
		return f.make(values, 0), nil
	}
	names := f.values
	if f.number != "" {
		names = append(slices.Clone(names), f.number)
	}
	values, number, given := make([]int64, len(f.values)), 0.0, make([]bool, len(names))
	for i, a := range arguments {
		at := i
		if key, value, named := strings.Cut(a, "="); named {
			if at = slices.Index(names, strings.TrimSpace(key)); at < 0 {
				return Dist{}, fmt.Errorf("%q is nothing that it has", strings.TrimSpace(key))
			}
			a = value
		} else if i > 0 && strings.Contains(arguments[i-1], "=") {
			return Dist{}, fmt.Errorf("%q has no name, and stands behind one that has", strings.TrimSpace(a))
		}
		if at >= len(names) {
			return Dist{}, errors.New("it has too many values")
		}
		if given[at] {
			return Dist{}, fmt.Errorf("%s is given twice", names[at])
		}
		given[at] = true
		var err error
		if at < len(values) {
			values[at], err = unit.parse(a)
		} else {
			number, err = parseNumber(a)
		}
		if err != nil {
			return Dist{}, fmt.Errorf("%s: %w", names[at], err)
		}
	}
	if i := slices.Index(given, false); i >= 0 {
		return Dist{}, fmt.Errorf("%s is missing", names[i])
	}
	return f.make(values, number), nil
}

func parseNumber(s string) (float64, error) {
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%q is no number", strings.TrimSpace(s))
	}
	return x, nil
}

func (u Unit) parse(s string) (int64, error) {
	if u == Bytes {
		return units.ParseSize(s)
	}
	t, err := units.ParseDuration(s)
	return int64(t), err
}

func (u Unit) format(x float64) string {
	if u == Bytes {
		return units.FormatSize(int64(x))
	}
	return time.Duration(x).String()
}

// Text writes the distribution in the syntax of ParseDist.
func (d *Dist) Text(unit Unit) string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	name := families[d.Kind].name
	switch d.Kind {
	case Constant:
		return unit.format(d.Mean)
	case Exponential:
		return fmt.Sprintf("%s(%s)", name, unit.format(d.Mean))
	case Uniform:
		return fmt.Sprintf("%s(%s, %s)", name, unit.format(d.a), unit.format(d.b))
	case Pareto:
		return fmt.Sprintf("%s(low=%s, high=%s, shape=%s)", name, unit.format(d.a), unit.format(d.b), number(d.c))
	case Empirical:
		values := make([]string, len(d.values)/8)
		for i := range values {
			values[i] = unit.format(d.value(i))
		}
		return fmt.Sprintf("%s(%s)", name, strings.Join(values, ", "))
	}
	return fmt.Sprintf("%s(mean=%s, %s=%s)", name, unit.format(d.Mean), families[d.Kind].number, number(d.a))
}

// ParseTime reads a distribution of times.
func ParseTime(text string) (Time, error) {
	d, err := ParseDist(text, Nanoseconds)
	return Time{d}, err
}

func (t Time) String() string { return t.Text(Nanoseconds) }

// perTime are the time units that may follow the slash of a size, with the number of decimal digits
// by which each is smaller than a second.
var perTime = []struct {
	name   string
	digits int
}{{"us", 6}, {"ms", 3}, {"s", 0}}

// ParseSize parses an amount of data: 10KB/ms (per millisecond of the kernel), 22.5MB, or a
// distribution of sizes.
func ParseSize(text string) (Size, error) {
	amount, per, proportional := strings.Cut(text, "/")
	if !proportional {
		d, err := ParseDist(text, Bytes)
		if err != nil {
			return Size{}, fmt.Errorf("%w, or as 10KB/ms, for each millisecond of the kernel", err)
		}
		return Size{Bytes: d}, nil
	}
	for _, p := range perTime {
		if strings.TrimSpace(per) != p.name {
			continue
		}
		n, err := units.ParseSize(shiftPoint(strings.TrimSpace(amount), p.digits))
		if err != nil || n > maxPerSecond {
			break
		}
		return Size{PerSecond: n}, nil
	}
	return Size{}, fmt.Errorf("%q is no amount of data for each time of the kernel: write it as 10KB/ms, 5MB/s or 1KB/us", text)
}

// shiftPoint moves the decimal point of the number at the start of a text to the right.
func shiftPoint(text string, digits int) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(text)
	}
	whole, fraction, _ := strings.Cut(text[:end], ".")
	if whole == "" || strings.Contains(fraction, ".") || (fraction == "" && strings.Contains(text[:end], ".")) {
		return text // it is not a number; the parser reports that
	}
	for range digits {
		next := "0"
		if fraction != "" {
			next, fraction = fraction[:1], fraction[1:]
		}
		whole += next
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole + text[end:]
}

func (z Size) String() string {
	switch {
	case z.PerSecond == 0:
		return z.Bytes.Text(Bytes)
	case z.PerSecond%1000 == 0:
		return units.FormatSize(z.PerSecond/1000) + "/ms"
	}
	return units.FormatSize(z.PerSecond) + "/s"
}
