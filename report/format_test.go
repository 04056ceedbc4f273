package report

import (
	"math"
	"testing"
	"unicode/utf8"
)

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 480: "480", 1234567: "1,234,567", -1000: "-1,000", 0.5: "0.5", 25.24: "25.24", 123.456: "123.5", 1234.56: "1,235",
		99999.7: "100,000", 0.00012345: "0.0001234", 0.000012345: "1.234e-5", 1.5e20: "1.5e20", -0.25: "-0.25",
		math.NaN(): "–", math.Inf(1): "∞", math.Inf(-1): "-∞",
	} {
		if got := Number(x); got != want {
			t.Errorf("Number(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.0 %", 0.8312: "83.1 %", 1: "100.0 %", -0.2524: "-25.2 %", 0.00042: "0.042 %", 12.34: "1,234 %", math.NaN(): "–",
	} {
		if got := Percent(x); got != want {
			t.Errorf("Percent(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0 s", 20e-6: "20 µs", 0.0015: "1.5 ms", 0.25: "250 ms", 0.9999: "1 s", 4.25: "4.2 s", 42: "42 s", 59.7: "1 min 00 s", 185: "3 min 05 s",
		3599.6: "1 h 00 min", 3720: "1 h 02 min", 86399: "1 d 00 h", 273600: "3 d 04 h", -90: "-1 min 30 s", 86400 * 1234: "1,234 d",
		math.NaN(): "–", math.Inf(1): "–",
	} {
		if got := Duration(x); got != want {
			t.Errorf("Duration(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestTimeTicksOfAnAxis(t *testing.T) {
	for _, c := range []struct {
		lo, hi      float64
		first, last string
		n           int
	}{
		{0, 10, "0", "10 s", 6},
		{0, 0.1, "0", "0.10 s", 6},
		{0, 3600, "0", "60 min", 7},
		{0, 36 * 3600, "0", "36 h", 7},
		{0, 4 * 3600, "0", "04:00 h", 9},
		{0, 4 * 86400, "0", "4 d 00:00", 9},
		{0, 365 * 86400, "0", "350 d", 8},
		{1e6, 1e6 + 60, "11 d 13:46:40", "11 d 13:47:40", 7},
	} {
		a := newAxis(c.lo, c.hi, 9, times, false, false)
		first, last := a.label(a.ticks[0]), a.label(a.ticks[len(a.ticks)-1])
		if first != c.first || last != c.last || len(a.ticks) != c.n {
			t.Errorf("%v to %v: %d ticks %q to %q, want %d ticks %q to %q", c.lo, c.hi, len(a.ticks), first, last, c.n, c.first, c.last)
		}
	}
}

// FuzzAxis looks for ranges that hang, panic or give no usable axis.
func FuzzAxis(f *testing.F) {
	f.Add(0.0, 1.0, uint8(0))
	f.Add(1e18, 1e18+256, uint8(1))
	f.Add(-1e299, 1e299, uint8(2))
	f.Add(5e-324, 1e-323, uint8(4))
	f.Add(1e18, 1e18+256, uint8(15))
	f.Fuzz(func(t *testing.T, lo, hi float64, mode uint8) {
		if !drawable(lo) || !drawable(hi) || lo > hi {
			return
		}
		a := newAxis(lo, hi, 9, unit(mode%3), mode&4 != 0, mode&8 != 0)
		a.from, a.to = 0, 100
		if len(a.ticks) > 40 {
			t.Fatalf("%d ticks", len(a.ticks))
		}
		for _, v := range a.ticks {
			if a.label(v) == "" {
				t.Fatalf("no label for %v", v)
			}
		}
		if !(a.hi > a.lo) {
			t.Fatalf("axis from %v to %v", a.lo, a.hi)
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		c := clean(s)
		if !utf8.ValidString(c) || clean(c) != c {
			t.Fatalf("clean(%q) = %q", s, c)
		}
		for _, r := range c {
			if unprintable(r) {
				t.Fatalf("clean(%q) = %q", s, c)
			}
		}
	})
}

func TestBriefTimes(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    string
	}{{0, "0"}, {0.0125, "12.5ms"}, {0.0999, "99.9ms"}, {3.21, "3.2s"}, {99.94, "99.9s"}, {303, "5m3s"}, {90061, "25h1m1s"}} {
		if got := BriefTime(c.seconds); got != c.want {
			t.Errorf("%v: %q, want %q", c.seconds, got, c.want)
		}
	}
}
