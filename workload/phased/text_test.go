package phased

import (
	"strings"
	"testing"
	"time"
)

func TestParseDist(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		text string
		unit Unit
		want Dist
		form string // in canonical form; "" if it is the same as the input
	}{
		{"750ms", Nanoseconds, ConstantOf(750 * ms), ""},
		{"constant( 750ms )", Nanoseconds, ConstantOf(750 * ms), "750ms"},
		{"90", Nanoseconds, ConstantOf(90 * time.Second), "1m30s"},
		{" exponential (2.25s)", Nanoseconds, ExponentialOf(2250 * ms), "exponential(2.25s)"},
		{"exponential(mean=750ms)", Nanoseconds, ExponentialOf(750 * ms), "exponential(750ms)"},
		{"uniform(1ms, 5ms)", Nanoseconds, UniformOf(ms, 5*ms), ""},
		{"uniform(high=5ms,low=1ms)", Nanoseconds, UniformOf(ms, 5*ms), "uniform(1ms, 5ms)"},
		{"erlang(mean=2s, stages=4)", Nanoseconds, ErlangOf(2*time.Second, 4), ""},
		{"erlang(2s, 4)", Nanoseconds, ErlangOf(2*time.Second, 4), "erlang(mean=2s, stages=4)"},
		{"hyperexponential(mean=2s, cv=3)", Nanoseconds, HyperexponentialOf(2*time.Second, 3), ""},
		{"lognormal(mean=2s, cv=1.5)", Nanoseconds, LognormalOf(2*time.Second, 1.5), ""},
		{"lognormal(2s, cv=1.5)", Nanoseconds, LognormalOf(2*time.Second, 1.5), "lognormal(mean=2s, cv=1.5)"},
		{"weibull(mean=1us, shape=0.7)", Nanoseconds, WeibullOf(time.Microsecond, 0.7), "weibull(mean=1µs, shape=0.7)"},
		{"pareto(low=1ms, high=10s, shape=1.1)", Nanoseconds, ParetoOf(ms, 10_000*ms, 1.1), ""},
		{"empirical(1ms, 1ms, 20ms)", Nanoseconds, EmpiricalOf(ms, ms, 20*ms), ""},
		{"empirical(5ms)", Nanoseconds, EmpiricalOf(5 * ms), ""},
		{"exponential(22.5MB)", Bytes, ExponentialOf[int64](22_500_000), "exponential(22500KB)"},
		{"4MiB", Bytes, ConstantOf[int64](4 << 20), ""},
	} {
		got, err := ParseDist(c.text, c.unit)
		if err != nil || got != c.want {
			t.Errorf("ParseDist(%q) = %+v, %v, want %+v", c.text, got, err, c.want)
			continue
		}
		form := c.form
		if form == "" {
			form = c.text
		}
		if again := got.Text(c.unit); again != form {
			t.Errorf("%q is written as %q, want %q", c.text, again, form)
		}
	}
}

func TestParseDistErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		unit Unit
		want string
	}{
		{"", Nanoseconds, "there is no number: write it as 90 (seconds), 1:30:00, 2-12:00:00, 90m, 1d12h or 1.2ms, or as a distribution: exponential(750ms)"},
		{"exponental", Nanoseconds, "or as a distribution: did you mean exponential?"},
		{"exponential", Nanoseconds, "exponential has no brackets: write exponential(750ms)"},
		{"exponential", Bytes, "exponential has no brackets: write exponential(22.5MB)"},
		{"exponental(1s)", Nanoseconds, `there is no distribution "exponental": did you mean exponential?`},
		{"qqqqqqqqqqq(1s)", Nanoseconds, `there is no distribution "qqqqqqqqqqq": write one of constant(750ms), exponential(750ms), uniform(1ms, 5ms)`},
		{"uniform(1ms", Nanoseconds, `"uniform(1ms" does not end with a bracket: write uniform(1ms, 5ms), in quotes where it stands between braces`},
		{"uniform(1ms) 5", Nanoseconds, "does not end with a bracket"},
		{"uniform(1ms)", Nanoseconds, "uniform(1ms): high is missing: write it as uniform(1ms, 5ms)"},
		{"uniform(5ms, 1ms)", Nanoseconds, "a uniform distribution goes from a lower to a higher value: write it as uniform(1ms, 5ms)"},
		{"uniform(1ms, 2ms, 3ms)", Nanoseconds, "it has too many values"},
		{"uniform(low=1ms, 2ms)", Nanoseconds, `"2ms" has no name, and stands behind one that has`},
		{"uniform(1ms, low=2ms)", Nanoseconds, "low is given twice"},
		{"exponential(rate=5)", Nanoseconds, `"rate" is nothing that it has: write it as exponential(750ms)`},
		{"exponential()", Nanoseconds, "mean: time \"\": there is no number"},
		{"exponential(-1s)", Nanoseconds, "it is negative"},
		{"exponential(12d)", Nanoseconds, "from 0 to 10^15 (11 days, a petabyte)"},
		{"exponential(5MB)", Nanoseconds, `"MB" is no unit of time`},
		{"exponential(5ms)", Bytes, "write it as 4GiB, 22GB, 512M or plain bytes"},
		{"lognormal(mean=2s)", Nanoseconds, "cv is missing: write it as lognormal(mean=2s, cv=1.5)"},
		{"lognormal(mean=2s, cv=0)", Nanoseconds, "cv must be above 0 and at most 100, not 0"},
		{"lognormal(mean=2s, cv=NaN)", Nanoseconds, `cv: "NaN" is no number`},
		{"lognormal(mean=2s, cv=x)", Nanoseconds, `cv: "x" is no number`},
		{"hyperexponential(mean=2s, cv=0.5)", Nanoseconds, "cv must be from 1 to 100, not 0.5: below 1 take erlang or lognormal"},
		{"erlang(mean=2s, stages=1.5)", Nanoseconds, "stages must be a whole number from 1 to 1000, not 1.5"},
		{"weibull(mean=2s, shape=0.01)", Nanoseconds, "shape must be from 0.1 to 100, not 0.01"},
		{"pareto(low=0s, high=1s, shape=1)", Nanoseconds, "a pareto distribution goes from a low value above 0 to a higher one"},
		{"pareto(low=1s, high=2s, shape=0)", Nanoseconds, "shape must be from 0.1 to 100, not 0"},
		{"empirical()", Nanoseconds, "there is no number"},
		{"empirical(1s,,2s)", Nanoseconds, "there is no number"},
	} {
		if d, err := ParseDist(c.text, c.unit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseDist(%q) = %+v, %v\nwant ...%s...", c.text, d, err, c.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"10KB/ms":             {PerSecond: 10_000_000},
		"0.5B/ms":             {PerSecond: 500},
		"1.2345KB/us":         {PerSecond: 1_234_500_000},
		"5 MB / s":            {PerSecond: 5_000_000},
		"1KiB/ms":             {PerSecond: 1_024_000},
		"3B/s":                {PerSecond: 3},
		"0":                   {},
		"0KB/ms":              {},
		"22.5MB":              {Bytes: ConstantOf[int64](22_500_000)},
		"exponential(22.5MB)": {Bytes: ExponentialOf[int64](22_500_000)},
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which reads as %+v, %v", text, got, again, err)
		}
	}
	if got := (Size{PerSecond: 10_000_000}).String(); got != "10KB/ms" {
		t.Errorf("10 KB a ms is written as %q", got)
	}
	for text, want := range map[string]string{
		"10KB/h":   "write it as 10KB/ms, 5MB/s or 1KB/us",
		"x/ms":     "write it as 10KB/ms",
		"1.2.3/ms": "write it as 10KB/ms",
		"1./ms":    "write it as 10KB/ms",
		"/ms":      "write it as 10KB/ms",
		"1EB/ms":   "write it as 10KB/ms",
		"10ms":     "or as 10KB/ms, for each millisecond of the kernel",
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %+v, %v, want ...%s...", text, got, err, want)
		}
	}
}

func FuzzParseDist(f *testing.F) {
	for _, unit := range []Unit{Nanoseconds, Bytes} {
		for _, text := range Families(unit) {
			f.Add(text, unit == Bytes)
		}
	}
	f.Add("uniform(high=5ms,low=1ms)", false)
	f.Add("10KB/ms", true)
	f.Fuzz(func(t *testing.T, text string, bytes bool) {
		unit := Nanoseconds
		if bytes {
			unit = Bytes
			if z, err := ParseSize(text); err == nil {
				if again, err := ParseSize(z.String()); err != nil || again != z {
					t.Fatalf("%q is written as %q, which reads as %+v, %v", text, z, again, err)
				}
			}
		}
		d, err := ParseDist(text, unit)
		if err != nil {
			return
		}
		if again, err := ParseDist(d.Text(unit), unit); err != nil || again != d {
			t.Fatalf("%q is written as %q, which reads as %+v, %v", text, d.Text(unit), again, err)
		}
		w := Workload{Apps: []App{{Name: "a", Nodes: 1, Iterations: 1, Steps: []Step{{GPU: Time{d}, In: Size{Bytes: d}}}}}}
		s := w.Sources(1).Of(0, 0)
		for range 20 {
			if x := s.Next(); x.GPU < 0 || x.GPU > 1<<60 || x.In < 0 || x.In > 1<<60 {
				t.Fatalf("%q draws %+v", text, x)
			}
		}
	})
}
