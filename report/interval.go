package report

import "math"

// Interval is the mean of some values with its 95 % confidence interval: with that confidence the
// true mean is within Half of Mean. Half is Student's t times the standard error. It is NaN for a
// single value.
type Interval struct{ Mean, Half float64 }

// IntervalOf computes the interval of independent values.
func IntervalOf(values []float64) Interval {
	n := float64(len(values))
	mean := 0.0
	for _, v := range values {
		mean += v
	}
	mean /= n
	if len(values) < 2 {
		return Interval{mean, math.NaN()}
	}
	squares := 0.0
	for _, v := range values {
		squares += float64((v - mean) * (v - mean)) // the conversion prevents a fused multiply-add, so that every machine computes the same
	}
	return Interval{mean, student95(len(values)-1) * math.Sqrt(squares/(n-1)/n)}
}

// Lo is the lower end.
func (i Interval) Lo() float64 { return i.Mean - i.Half }

// Hi is the upper end.
func (i Interval) Hi() float64 { return i.Mean + i.Half }

// studentTable has, for 1, 2 ... degrees of freedom, the value that |t| exceeds in 5 % of all
// cases.
var studentTable = [...]float64{
	12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
	2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
}

// student95 is the table, continued by the asymptotic expansion in the reciprocal of the degrees of
// freedom, which is exact to five digits there.
func student95(freedom int) float64 {
	if freedom <= len(studentTable) {
		return studentTable[freedom-1]
	}
	const (
		z      = 1.959964
		first  = (z*z*z + z) / 4
		second = (5*z*z*z*z*z + 16*z*z*z + 3*z) / 96
		third  = (3*z*z*z*z*z*z*z + 19*z*z*z*z*z + 17*z*z*z - 15*z) / 384
	)
	n := float64(freedom)
	return z + first/n + second/(n*n) + third/(n*n*n)
}
