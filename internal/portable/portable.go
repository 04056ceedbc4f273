// Package portable has the functions that random draws need, with bit-identical results on every
// machine. The functions of package math use assembly on some processors, and compilers may fuse
// x*y+z into one rounding; an explicit float64 around each product prevents that.
//
// It knows numbers, and not what they are used for.
package portable

import "math"

// Log is the natural logarithm of a positive, normal number.
func Log(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction *= 2
		exponent--
	}
	// ln m = 2 artanh s, with |s| < 0.172.
	s := (fraction - 1) / (fraction + 1)
	z := float64(s * s)
	return float64(2*float64(s*polynomial(z, artanh[:]))) + float64(float64(exponent)*math.Ln2)
}

// Exp is e to the power of x, for results within the range of float64.
func Exp(x float64) float64 {
	k := math.Floor(float64(x/math.Ln2) + 0.5)
	r := x - float64(k*math.Ln2)
	return math.Ldexp(polynomial(r, inverseFactorials[:]), int(k))
}

// NormalQuantile is the value below which a standard normal variable is with probability p, 0 < p <
// 1 (Wichura's algorithm AS 241).
func NormalQuantile(p float64) float64 {
	q := p - 0.5
	if math.Abs(q) <= 0.425 {
		r := 0.180625 - float64(q*q)
		return float64(q*polynomial(r, centreTop[:])) / polynomial(r, centreBottom[:])
	}
	r := p
	if q > 0 {
		r = 1 - p
	}
	r = math.Sqrt(-Log(r))
	var x float64
	if r <= 5 {
		r -= 1.6
		x = polynomial(r, flankTop[:]) / polynomial(r, flankBottom[:])
	} else {
		r -= 5
		x = polynomial(r, tailTop[:]) / polynomial(r, tailBottom[:])
	}
	if q < 0 {
		return -x
	}
	return x
}

// The first terms of the series of artanh(s)/s in s squared, and of e to the r.
var (
	artanh            = [...]float64{1, 1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15, 1. / 17, 1. / 19, 1. / 21, 1. / 23}
	inverseFactorials = [...]float64{1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880,
		1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800, 1. / 87178291200}
)

// polynomial evaluates a polynomial, whose coefficients begin with the constant.
func polynomial(x float64, coefficients []float64) float64 {
	sum := 0.0
	for i := len(coefficients) - 1; i >= 0; i-- {
		sum = float64(sum*x) + coefficients[i]
	}
	return sum
}

var (
	centreTop = [...]float64{3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
		4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3}
	centreBottom = [...]float64{1, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
		2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3}
	flankTop = [...]float64{1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
		1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4}
	flankBottom = [...]float64{1, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
		1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}
	tailTop = [...]float64{6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1,
		2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7}
	tailBottom = [...]float64{1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
		7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}
)

// Unit converts 64 random bits to a number between 0 and 1, exclusive.
func Unit(bits uint64) float64 {
	return (float64(bits>>12) + 0.5) / (1 << 52)
}

// Exponential converts 64 random bits to a draw from the exponential distribution with mean 1: the
// negative logarithm of Unit. It is several times as fast as Log, with an error in the order of one
// rounding of 1.
func Exponential(bits uint64) float64 {
	// The number is m times a power of two, 1 <= m < 2. The table has the inverse and the logarithm
	// of the middle of the interval in which m lies, so that the rest is a short series.
	number := math.Float64bits(float64(bits>>12) + 0.5)
	middle := &middles[number>>(52-intervalBits)&(1<<intervalBits-1)]
	m := math.Float64frombits(number&(1<<52-1) | 1023<<52)
	r := float64(m*middle.inverse) - 1
	// ln(1+r), with |r| < 0.004.
	r2 := float64(r * r)
	sum := (1. / 3) - float64(r/4) + float64(r2*((1./5)-float64(r/6)))
	log := r - float64(r2/2) + float64(float64(r2*r)*sum)
	exponent := int(number>>52) - 1023
	return max(0, float64(float64(52-exponent)*math.Ln2)-(middle.log+log))
}

const intervalBits = 7

// middles has the inverse and the logarithm of the middles of the intervals into which [1, 2) is
// divided.
var middles = func() (table [1 << intervalBits]struct{ inverse, log float64 }) {
	for i := range table {
		inverse := 1 / (1 + (float64(i)+0.5)/(1<<intervalBits))
		table[i].inverse, table[i].log = inverse, -Log(inverse)
	}
	return table
}()

// Gamma is Euler's gamma function for 1 to 100 (Lanczos's approximation).
func Gamma(x float64) float64 {
	x--
	sum := lanczos[0]
	for i, c := range lanczos[1:] {
		sum += c / (x + float64(i+1))
	}
	t := x + 7.5
	const sqrt2Pi = 2.50662827463100050242
	return float64(float64(sqrt2Pi*sum) * Exp(float64((x+0.5)*Log(t))-t))
}

var lanczos = [...]float64{0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
	12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7}
