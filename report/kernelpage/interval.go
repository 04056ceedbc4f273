package kernelpage

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
		mean += v / n
	}
	if len(values) < 2 {
		return Interval{mean, math.NaN()}
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return Interval{mean, student(len(values)-1) * math.Sqrt(squares/(n-1)/n)}
}

// Lo and Hi are the ends.
func (i Interval) Lo() float64 { return i.Mean - i.Half }

// Hi is the upper end.
func (i Interval) Hi() float64 { return i.Mean + i.Half }

// fewSeeds has the 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.
var fewSeeds = [...]float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448}

// student is the quantile for any number of degrees of freedom; from 15 on by the
// first terms of its expansion about the normal one, which are exact to 0.0001 there.
func student(freedom int) float64 {
	if freedom <= len(fewSeeds) {
		return fewSeeds[freedom-1]
	}
	const z = 1.959963984540054
	f := float64(freedom)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*f) + (5*z5+16*z3+3*z)/(96*f*f) + (3*z7+19*z5+17*z3-15*z)/(384*f*f*f)
}
