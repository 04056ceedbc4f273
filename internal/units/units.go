// Package units reads and writes sizes, bandwidths, durations and counts of things as people write
// them. It knows nothing of Muster.
package units

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// ErrUnlimited is returned by ParseDuration for INFINITE and UNLIMITED. Callers that accept "no
// limit" check for it with errors.Is.
var ErrUnlimited = errors.New("no limit is allowed here: give a time")

const sizeHelp = "write it as 4GiB, 22GB, 512M or plain bytes"

// ParseSize parses a number of bytes. KB, MB, GB, TB, PB and EB are decimal; KiB, MiB and so on are
// binary, and so are the bare letters K, M, G, T, P and E, as in Slurm. Fractions are rounded to
// the nearest byte.
func ParseSize(s string) (int64, error) {
	number, unit := splitNumber(s)
	if strings.HasPrefix(unit, "-") {
		return 0, fmt.Errorf("size %q: %w: %s", s, errNegative, sizeHelp)
	}
	scale, ok := byteUnit(unit)
	if !ok {
		if ambiguousBit(unit) {
			return 0, fmt.Errorf("size %q: %s may mean bits or bytes: write %cB for bytes", s, unit, unit[0])
		}
		return 0, fmt.Errorf("size %q: %s", s, sizeHelp)
	}
	n, err := scaleDecimal(number, scale)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w: %s", s, err, sizeHelp)
	}
	return n, nil
}

// LacksUnit says whether a size of memory is so small that its author probably forgot the unit: no
// node, GPU or job has less than 1 MiB.
func LacksUnit(bytes int64) bool { return bytes > 0 && bytes < 1<<20 }

// FormatSize writes a number of bytes exactly, with the largest unit that
// needs no fraction, so that ParseSize reads the same number back.
func FormatSize(n int64) string {
	number, unit := n, "B"
	if n != 0 {
		for i, prefix := range "KMGTPE" {
			for _, u := range []struct {
				scale int64
				name  string
			}{
				{int64(math.Pow10(3 * (i + 1))), string(prefix) + "B"},
				{1 << (10 * (i + 1)), string(prefix) + "iB"},
			} {
				if q := n / u.scale; n%u.scale == 0 && abs(q) < abs(number) {
					number, unit = q, u.name
				}
			}
		}
	}
	return strconv.FormatInt(number, 10) + unit
}

// BriefSize writes a number of bytes for people, in at most four digits: 1.5 GiB.
func BriefSize(n uint64) string {
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	value, unit := float64(n), -1
	for value >= 1023.5 && unit < 5 {
		value /= 1024
		unit++
	}
	digits := 0
	if value < 9.95 {
		digits = 1
	}
	text := strconv.FormatFloat(value, 'f', digits, 64)
	if digits == 1 && text[len(text)-1] == '0' {
		text = text[:len(text)-2]
	}
	return text + " " + string("KMGTPE"[unit]) + "iB"
}

func abs(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

const bandwidthHelp = "write it as 10GB/s, 1GiB/s, 100Gbit/s or plain bytes per second"

// ParseBandwidth parses a number of bytes per second: "10GB/s", "1GiB/s", a bit rate such as
// "100Gbit/s", or plain bytes. Bare letters are refused, because "10G" is ambiguous between bits
// and bytes.
func ParseBandwidth(s string) (int64, error) {
	number, unit := splitNumber(s)
	if strings.HasPrefix(unit, "-") {
		return 0, fmt.Errorf("bandwidth %q: %w: %s", s, errNegative, bandwidthHelp)
	}
	unit, perSecond := strings.CutSuffix(unit, "/s")
	var scale uint64
	per := uint64(1)
	ok := true
	switch {
	case unit == "" && !perSecond:
		scale = 1
	case !perSecond:
		ok = false
	case strings.HasSuffix(unit, "bit"):
		scale, ok = bitUnit(strings.TrimSuffix(unit, "bit"))
		per = 8
	case strings.HasSuffix(strings.ToUpper(unit), "B"):
		scale, ok = byteUnit(unit)
	default:
		ok = false
	}
	if !ok {
		return 0, fmt.Errorf("bandwidth %q: %s", s, bandwidthHelp)
	}
	// Every bit prefix is a multiple of 8, but a bare "bit/s" is not.
	if scale%per == 0 {
		scale, per = scale/per, 1
	}
	n, err := scaleDecimal(number, scale)
	if err != nil {
		return 0, fmt.Errorf("bandwidth %q: %w: %s", s, err, bandwidthHelp)
	}
	return n / int64(per), nil
}

// FormatBandwidth writes bytes per second exactly, as ParseBandwidth reads them.
func FormatBandwidth(n int64) string { return FormatSize(n) + "/s" }

// splitNumber splits a text into its leading digits and dots, and the unit after them.
func splitNumber(s string) (number, unit string) {
	s = strings.TrimSpace(s)
	i := 0
	for i < len(s) && (isDigit(s[i]) || s[i] == '.') {
		i++
	}
	return s[:i], strings.TrimSpace(s[i:])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// byteUnit is the size of a unit, in any case, except for "Gb" and the like, which may mean bits.
func byteUnit(unit string) (uint64, bool) {
	if ambiguousBit(unit) {
		return 0, false
	}
	upper := strings.ToUpper(unit)
	if upper == "" || upper == "B" {
		return 1, true
	}
	i := strings.IndexByte("KMGTPE", upper[0]) + 1
	if i == 0 {
		return 0, false
	}
	switch upper[1:] {
	case "", "IB":
		return 1 << (10 * i), true
	case "B":
		return uint64(math.Pow10(3 * i)), true
	}
	return 0, false
}

func ambiguousBit(unit string) bool {
	return len(unit) == 2 && 'A' <= unit[0] && unit[0] <= 'Z' && unit[1] == 'b'
}

func bitUnit(prefix string) (uint64, bool) {
	if prefix == "" {
		return 1, true
	}
	return byteUnit(strings.ToUpper(prefix) + "B")
}

var (
	errNoNumber = errors.New("there is no number")
	errNegative = errors.New("it is negative")
	errTooLarge = errors.New("it is too large")
	errTooFine  = errors.New("it has more than 18 digits after the point")
)

// scaleDecimal multiplies a decimal such as "1.5" by an integer, exactly, and rounds to the nearest
// integer.
func scaleDecimal(number string, scale uint64) (int64, error) {
	whole, frac, point := strings.Cut(number, ".")
	if whole == "" || (point && frac == "") || strings.Contains(frac, ".") {
		return 0, errNoNumber
	}
	w, err := parseDigits(whole)
	if err != nil {
		return 0, err
	}
	hi, lo := bits.Mul64(w, scale)
	if hi != 0 {
		return 0, errTooLarge
	}
	if frac = strings.TrimRight(frac, "0"); frac != "" {
		if len(frac) > 18 {
			return 0, errTooFine
		}
		f, err := parseDigits(frac)
		if err != nil {
			return 0, err
		}
		ten := uint64(math.Pow10(len(frac)))
		fhi, flo := bits.Mul64(f, scale)
		quotient, rest := bits.Div64(fhi, flo, ten) // f < ten, so it fits
		if rest >= ten-rest {
			quotient++
		}
		var carry uint64
		if lo, carry = bits.Add64(lo, quotient, 0); carry != 0 {
			return 0, errTooLarge
		}
	}
	if lo > math.MaxInt64 {
		return 0, errTooLarge
	}
	return int64(lo), nil
}

func parseDigits(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errTooLarge
	case err != nil || !isDigit(s[0]):
		return 0, errNoNumber
	}
	return n, nil
}

const durationHelp = "write it as 90 (seconds), 1:30:00, 2-12:00:00, 90m, 1d12h or 1.2ms"

// ParseDuration parses a time as people and schedulers write it: plain seconds ("90", "0.5"),
// Slurm's colons (minutes:seconds, hours:minutes:seconds, days-hours:minutes:seconds and forms
// shortened from the right), or numbers with units from d to ns ("1d12h", "1.2ms"). The result is
// never negative. For INFINITE and UNLIMITED it returns ErrUnlimited.
func ParseDuration(s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	var ns int64
	var err error
	switch {
	case strings.EqualFold(t, "INFINITE") || strings.EqualFold(t, "UNLIMITED"):
		return 0, fmt.Errorf("time %q: %w", s, ErrUnlimited)
	case strings.HasPrefix(t, "-"):
		err = errNegative
	case strings.ContainsAny(t, "-:"):
		ns, err = parseClock(t)
	default:
		ns, err = parseUnits(t)
	}
	if err != nil {
		return 0, fmt.Errorf("time %q: %w: %s", s, err, durationHelp)
	}
	return time.Duration(ns), nil
}

const day = 24 * time.Hour

// parseClock reads [days-]hours:minutes:seconds and its short forms.
func parseClock(s string) (int64, error) {
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "", s
	}
	fields := strings.Split(clock, ":")
	if len(fields) > 3 {
		return 0, errors.New("it has too many colons")
	}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	if !hasDays {
		units = units[3-len(fields):] // without days the last field is the seconds
	}
	var sum int64
	if hasDays {
		n, err := scaleWhole(days, day)
		if err != nil {
			return 0, err
		}
		sum = n
	}
	for i, f := range fields {
		n, err := scaleWhole(f, units[i])
		if units[i] == time.Second {
			n, err = scaleDecimal(f, uint64(time.Second))
		}
		if err != nil {
			return 0, err
		}
		if first := i == 0 && !hasDays; !first {
			larger := 60 * units[i]
			if units[i] == time.Hour {
				larger = day
			}
			if n >= int64(larger) {
				return 0, fmt.Errorf("%s is past the end of its field", f)
			}
		}
		if sum, err = addTime(sum, n); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

func scaleWhole(number string, unit time.Duration) (int64, error) {
	if strings.Contains(number, ".") {
		return 0, errors.New("only seconds may have a fraction")
	}
	return scaleDecimal(number, uint64(unit))
}

func addTime(a, b int64) (int64, error) {
	if a > math.MaxInt64-b {
		return 0, errTooLarge
	}
	return a + b, nil
}

var timeUnits = map[string]time.Duration{
	"d": day, "h": time.Hour, "m": time.Minute, "min": time.Minute, "s": time.Second, "ms": time.Millisecond,
	"us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond, "ns": 1,
}

// parseUnits reads plain seconds, or numbers with units, largest first.
func parseUnits(s string) (int64, error) {
	number, rest := splitNumber(s)
	if rest == "" {
		return scaleDecimal(number, uint64(time.Second))
	}
	var sum int64
	last := time.Duration(math.MaxInt64)
	for {
		end := strings.IndexAny(rest, "0123456789.")
		if end < 0 {
			end = len(rest)
		}
		name := strings.TrimSpace(rest[:end])
		unit, ok := timeUnits[name]
		switch {
		case number == "":
			return 0, errNoNumber
		case !ok:
			return 0, fmt.Errorf("%q is no unit of time", name)
		case unit >= last:
			return 0, errors.New("its units must go from large to small")
		}
		last = unit
		n, err := scaleDecimal(number, uint64(unit))
		if err != nil {
			return 0, err
		}
		if sum, err = addTime(sum, n); err != nil {
			return 0, err
		}
		if rest = rest[end:]; rest == "" {
			return sum, nil
		}
		number, rest = splitNumber(rest)
	}
}

// FormatDuration writes a time as Slurm does, "1-02:03:04" or "02:03:04", with a fraction of a
// second only if necessary. ParseDuration reads it back.
func FormatDuration(d time.Duration) string {
	ns := abs(int64(d))
	seconds := ns / 1e9
	var b strings.Builder
	if d < 0 {
		b.WriteByte('-')
	}
	if days := seconds / 86400; days > 0 {
		fmt.Fprintf(&b, "%d-", days)
	}
	fmt.Fprintf(&b, "%02d:%02d:%02d", seconds/3600%24, seconds/60%60, seconds%60)
	if frac := ns % 1e9; frac != 0 {
		b.WriteString(strings.TrimRight(fmt.Sprintf(".%09d", frac), "0"))
	}
	return b.String()
}

// Plural writes a number of things, as "1 job" or "7 jobs".
func Plural(n int, noun string) string { return fmt.Sprintf("%d %s", n, Plurals(n, noun)) }

// Plurals is the noun alone, in the form that matches the number.
func Plurals(n int, noun string) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	}
	return noun + "s"
}
