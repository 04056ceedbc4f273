package report

import "math"

// Interval is the mean of some values, and how far on either side of it the true
// mean lies with a confidence of 95 %: Student's t times the standard error. Of a
// single value nothing can be said, and Half is NaN.
type Interval struct{ Mean, Half float64 }

// IntervalOf gives that of independent values.
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
		squares += float64((v - mean) * (v - mean)) // the same bits on every machine
	}
	return Interval{mean, student95(len(values)-1) * math.Sqrt(squares/(n-1)/n)}
}

// Lo is the lower end.
func (i Interval) Lo() float64 { return i.Mean - i.Half }

// Hi is the upper end.
func (i Interval) Hi() float64 { return i.Mean + i.Half }

// studentTable has what a t with 1, 2 ... degrees of freedom exceeds, on both
// sides together, in 5 % of all cases.
var studentTable = [...]float64{
	12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
	2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
}

// student95 continues the table by the expansion in one over the degrees of freedom,
// which is right to five digits there.
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
