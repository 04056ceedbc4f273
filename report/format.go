package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/units"
)

// missing stands for a missing value.
const missing = "–"

// page.js implements Number, Percent, Duration and timeTick again, for the values under the
// pointer. The browser test checks that both give the same text.

// Number writes x with up to four significant digits, but all digits before the point, and with
// commas between thousands. NaN becomes a dash.
func Number(x float64) string {
	a := math.Abs(x)
	switch {
	case math.IsNaN(x):
		return missing
	case math.IsInf(x, 0):
		return sign(x) + "∞"
	case x == math.Trunc(x) && a < 1e15:
		return sign(x) + group(strconv.FormatFloat(a, 'f', 0, 64))
	case a >= 1e15 || a < 1e-4:
		return sign(x) + scientific(a)
	}
	return sign(x) + group(trimZeros(strconv.FormatFloat(a, 'f', decimals(a, 4), 64)))
}

// Percent writes a fraction as a percentage: 0.8312 is "83.1 %".
func Percent(fraction float64) string {
	p := fraction * 100
	a := math.Abs(p)
	switch {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return missing
	case a >= 999.95:
		return sign(p) + group(strconv.FormatFloat(a, 'f', 0, 64)) + " %"
	case a >= 0.1 || a == 0:
		return sign(p) + strconv.FormatFloat(a, 'f', 1, 64) + " %"
	}
	return Number(significant(p, 2)) + " %"
}

// Duration writes seconds in the two largest units that matter, as "42 s", "3 min 05 s", "1 h 02
// min" or "3 d 04 h".
func Duration(seconds float64) string {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return missing
	}
	s := math.Abs(seconds)
	minus := sign(seconds)
	switch {
	case s == 0:
		return "0 s"
	case s < 0.9995e-3:
		return minus + Number(significant(s*1e6, 3)) + " µs"
	case s < 0.9995:
		return minus + Number(significant(s*1e3, 3)) + " ms"
	case s < 9.95:
		return minus + Number(significant(s, 2)) + " s"
	}
	if t := math.Round(s); t < 60 {
		return minus + whole(t) + " s"
	} else if t < 3600 {
		return minus + pair(t, 60, "min", "s")
	}
	if m := math.Round(s / 60); m < 24*60 {
		return minus + pair(m, 60, "h", "min")
	}
	h := math.Round(s / 3600)
	if h >= 24*1000 {
		return minus + Number(math.Round(s/86400)) + " d"
	}
	return minus + pair(h, 24, "d", "h")
}

// pair writes n small units as big ones, of size small units each, and the rest.
func pair(n, size float64, big, small string) string {
	rest := whole(math.Mod(n, size))
	if len(rest) < 2 {
		rest = "0" + rest
	}
	return whole(math.Floor(n/size)) + " " + big + " " + rest + " " + small
}

func whole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

func sign(x float64) string {
	if x < 0 {
		return "-"
	}
	return ""
}

// decimals is the number of digits after the point that show n significant digits of a > 0.
func decimals(a float64, n int) int {
	return max(0, n-1-int(math.Floor(math.Log10(a))))
}

// significant rounds x to n significant digits.
func significant(x float64, n int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64)
	if err != nil {
		return x
	}
	return r
}

func scientific(a float64) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(a, 'e', 3, 64), "e")
	exponent = strings.TrimPrefix(exponent, "+")
	if strings.HasPrefix(exponent, "-0") {
		exponent = "-" + exponent[2:]
	}
	return trimZeros(mantissa) + "e" + exponent
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// group puts commas between the thousands of a number without a sign.
func group(s string) string {
	head, tail, _ := strings.Cut(s, ".")
	var b strings.Builder
	for i, d := range head {
		if i > 0 && (len(head)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	if tail != "" {
		b.WriteString("." + tail)
	}
	return b.String()
}

// clean makes a string safe to print anywhere: one line, valid UTF-8, and no character that
// controls a terminal, reverses the writing direction or is forbidden in XML.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unprintable(r):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// cleanPair cleans a line in which a tab may separate name and value. The tab stays.
func cleanPair(line string) string {
	name, value, split := strings.Cut(line, "\t")
	if !split {
		return clean(line)
	}
	return clean(name) + "\t" + clean(value)
}

func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] >= 0x7f {
			return utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0
		}
	}
	return true
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == 0xFFFE || r == 0xFFFF
}

// FirstOf names the first size and seed, which pictures show; "" if there is only one of each.
func FirstOf(nodes []int, seeds []uint64) string {
	var words []string
	if len(nodes) > 1 {
		words = append(words, fmt.Sprintf("on %d nodes", nodes[0]))
	}
	if len(seeds) > 1 {
		words = append(words, fmt.Sprintf("with seed %d", seeds[0]))
	}
	return strings.Join(words, " ")
}

// Plural writes a number of things, as "1 job" or "12,000 jobs".
func Plural(n int, noun string) string {
	return Number(float64(n)) + " " + units.Plurals(n, noun)
}

// Printable removes control characters from foreign text, such as a log, so that it cannot control
// the terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Short cuts a text to a width.
func Short(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// BriefTime writes seconds in a few characters: 12.5 ms, 3.2 s, 5m3s.
func BriefTime(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d == 0:
		return "0"
	case d < 100*time.Millisecond:
		return strconv.FormatFloat(seconds*1e3, 'f', 1, 64) + "ms"
	case d < 100*time.Second:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}
