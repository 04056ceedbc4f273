package exp

import "math"

// halfWidth is that of the 95 % confidence interval of the mean of all values that
// could have come, by Student's t. A single value says nothing of it.
func halfWidth(values []float64, mean float64) (float64, bool) {
	n := float64(len(values))
	if n < 2 {
		return 0, false
	}
	sum := 0.0
	for _, v := range values {
		sum += float64((v - mean) * (v - mean))
	}
	return student95(len(values)-1) * math.Sqrt(sum/(n-1)/n), true
}

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
