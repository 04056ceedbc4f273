package report

import (
	"math"
	"strconv"
)

// unit is the unit in which the values of an axis are written.
type unit uint8

const (
	numbers unit = iota
	times        // seconds
	percents
)

func (u unit) format(x float64) string {
	switch u {
	case times:
		return Duration(x)
	case percents:
		return Percent(x)
	}
	return Number(x)
}

// axis maps values to positions in the drawing, and has the ticks.
type axis struct {
	lo, hi   float64 // values
	from, to float64 // positions; from is larger than to on an axis that points up
	log      bool
	unit     unit
	step     float64 // between ticks; 0 on a log axis
	ticks    []float64
}

// describe is the label of an axis, with a note if the axis is logarithmic.
func (a *axis) describe(label string) string {
	switch {
	case !a.log:
		return label
	case label == "":
		return "logarithmic"
	}
	return label + ", logarithmic"
}

// newAxis makes an axis for the range from lo to hi with about want ticks. With round, the range is
// extended to whole ticks.
func newAxis(lo, hi float64, want int, u unit, log, round bool) axis {
	a := axis{lo: lo, hi: hi, log: log, unit: u}
	if log {
		a.logTicks(round)
		return a
	}
	// Widen a range that is so narrow, relative to its values, that its ticks would not be
	// distinct.
	if far := math.Max(math.Abs(a.lo), math.Abs(a.hi)); !(a.hi-a.lo > far*1e-9) {
		pad := math.Max(far*0.1, 0.5)
		a.lo, a.hi = a.lo-pad, a.hi+pad
	}
	a.step = niceStep((a.hi-a.lo)/float64(want), u)
	first, last := math.Ceil(a.lo/a.step-1e-9), math.Floor(a.hi/a.step+1e-9)
	if round {
		first, last = math.Floor(a.lo/a.step+1e-9), math.Ceil(a.hi/a.step-1e-9)
		a.lo, a.hi = first*a.step, last*a.step
	}
	for k := first; k <= last; k++ {
		a.ticks = append(a.ticks, k*a.step)
	}
	return a
}

// at is the position of a value.
func (a *axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(math.Max(v, a.lo))
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
}

// label writes the value of a tick.
func (a *axis) label(v float64) string {
	switch {
	case a.log:
		return a.unit.format(v)
	case a.unit == times:
		return timeTick(v, a.step, math.Max(math.Abs(a.lo), math.Abs(a.hi)))
	case a.unit == percents:
		return fixed(v*100, a.step*100) + " %"
	}
	return fixed(v, a.step)
}

// fixed writes a tick with as many digits as its step needs.
func fixed(v, step float64) string {
	if a := math.Abs(v); a >= 1e7 || (a > 0 && a < 1e-4) {
		return sign(v) + scientific(a)
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	return sign(v) + group(strconv.FormatFloat(math.Abs(v), 'f', digits, 64))
}

// logTicks places ticks at powers of ten or, for times, at round times.
func (a *axis) logTicks(round bool) {
	if !(a.lo > 0) {
		a.lo = 1
	}
	a.lo = math.Max(a.lo, 1e-300)
	if !(a.hi > a.lo*(1+1e-6)) {
		a.hi = a.lo * 10
	}
	marks := decades
	if a.unit == times {
		marks = timeMarks
	}
	if round {
		a.lo, a.hi = marks(a.lo, false), marks(a.hi, true)
	}
	for v := marks(a.lo, true); v <= a.hi*(1+1e-9); v = marks(v*1.5, true) {
		a.ticks = append(a.ticks, v)
	}
	if len(a.ticks) < 3 && a.unit != times {
		a.ticks = between(a.lo, a.hi)
	}
	for len(a.ticks) > 12 {
		a.ticks = everySecond(a.ticks)
	}
}

// between lists the powers of ten and their multiples by 2 and 5.
func between(lo, hi float64) []float64 {
	var ticks []float64
	for p := decades(lo, false); p <= hi; p *= 10 {
		for _, v := range []float64{p, 2 * p, 5 * p} {
			if v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

func everySecond(ticks []float64) []float64 {
	var kept []float64
	for i := 0; i < len(ticks); i += 2 {
		kept = append(kept, ticks[i])
	}
	return kept
}

// decades is the next power of ten above or below v, or v itself.
func decades(v float64, up bool) float64 {
	e := math.Log10(v)
	if up {
		return math.Pow(10, math.Ceil(e-1e-9))
	}
	return math.Pow(10, math.Floor(e+1e-9))
}

// timeMarks is decades for times: 1 s, 10 s, 1 min, 10 min, 1 h, 10 h, 1 d, 10 d ...
func timeMarks(v float64, up bool) float64 {
	marks := []float64{1, 10, 60, 600, 3600, 36000, 86400}
	const day = 86400
	switch {
	case v > day*(1+1e-9):
		return day * decades(v/day, up)
	case v < 1-1e-9:
		return decades(v, up)
	}
	below := marks[0]
	for _, m := range marks {
		if m >= v*(1-1e-9) {
			if up || m <= v*(1+1e-9) {
				return m
			}
			return below
		}
		below = m
	}
	return day
}

// niceStep rounds a step up to a round number of its unit.
func niceStep(raw float64, u unit) float64 {
	if u == times && raw > 1 {
		for _, s := range []float64{2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400} {
			if raw <= s*(1+1e-9) {
				return s
			}
		}
		return 86400 * niceStep(raw/86400, numbers)
	}
	if !(raw > 0) || math.IsInf(raw, 0) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*p*(1+1e-9) {
			return m * p
		}
	}
	return 10 * p
}

// timeTick writes the time of a tick in seconds. If one unit suits the whole axis it uses that, and
// otherwise days and hours:minutes[:seconds]. extent is the largest time on the axis.
func timeTick(t, step, extent float64) string {
	minus, t := sign(t), math.Abs(math.Round(t/step)*step)
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	switch {
	case t == 0:
		return "0"
	case step >= 86400:
		return minus + Number(math.Round(t/86400)) + " d"
	case step >= 3600 && extent <= 72*3600:
		return minus + whole(t/3600) + " h"
	case step >= 60 && extent <= 2*3600:
		return minus + whole(t/60) + " min"
	case extent <= 300:
		return minus + strconv.FormatFloat(t, 'f', digits, 64) + " s"
	}
	days := math.Floor(t / 86400)
	rest := t - days*86400
	hours := math.Floor(rest / 3600)
	minutes := math.Floor((rest - hours*3600) / 60)
	clock := two(hours) + ":" + two(minutes)
	if step < 60 {
		clock += ":" + pad(strconv.FormatFloat(rest-hours*3600-minutes*60, 'f', digits, 64), digits)
	}
	if extent >= 86400 {
		return minus + Number(days) + " d " + clock
	}
	return minus + clock + " h"
}

func two(x float64) string { return pad(whole(x), 0) }

// pad writes seconds with two digits before the point.
func pad(s string, digits int) string {
	width := 2
	if digits > 0 {
		width = 3 + digits
	}
	for len(s) < width {
		s = "0" + s
	}
	return s
}

// span is the range of the finite values that were added.
type span struct {
	lo, hi float64
	any    bool
}

func (s *span) add(v float64) {
	if !drawable(v) {
		return
	}
	if !s.any {
		s.lo, s.hi, s.any = v, v, true
		return
	}
	s.lo, s.hi = math.Min(s.lo, v), math.Max(s.hi, v)
}

// startsNearZero says whether a time axis should begin at 0.
func startsNearZero(s span) bool { return s.lo > 0 && s.lo < 0.1*s.hi }

// drawable excludes NaN, infinities, and values whose difference could overflow.
func drawable(v float64) bool { return math.Abs(v) < 1e300 }
