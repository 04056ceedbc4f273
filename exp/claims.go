package exp

import "muster/report"

// Holds is the verdict of a statement without an amount.
func Holds(yes bool) Verdict {
	if yes {
		return Confirmed
	}
	return Refuted
}

// AboveOne judges a statement that a ratio is above 1, of which the paper's text has no number: it
// is confirmed where the interval of its mean is, too.
func AboveOne(ratios []float64) Verdict {
	i := report.IntervalOf(ratios)
	switch {
	case i.Mean <= 1:
		return Refuted
	case len(ratios) > 1 && i.Mean-i.Half <= 1:
		return Direction
	}
	return Confirmed
}

// nearly is by how much a gain may fall short of the paper's and count as the same; it may exceed
// it by twice as much.
const nearly = 0.1

// Amount judges a gain against the paper's: above 1 is its direction, and about as much confirms
// it.
func Amount(ours, paper float64) Verdict {
	switch {
	case ours <= 1:
		return Refuted
	case ours >= (1-nearly)*paper && ours <= (1+2*nearly)*paper:
		return Confirmed
	}
	return Direction
}

// ClaimsPart is the part that the rows of verdicts belong to.
const ClaimsPart = "Statements: 1 is confirmed, 0.5 in its direction only, 0 is refuted"

// Row is the row of a verdict; the caller notes what it is on.
func (v Verdict) Row(id string) Row {
	return Over(ClaimsPart, "claim_"+id, "confirmed", []float64{float64(v-Refuted) / 2}).Against(1)
}
