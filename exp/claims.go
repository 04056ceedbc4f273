package exp

import "muster/report"

// Holds is the verdict of a statement without an amount.
func Holds(yes bool) Verdict {
	if yes {
		return Confirmed
	}
	return Refuted
}

// AboveOne judges the claim that a ratio is above 1, for which the paper's text gives no number.
// The claim is confirmed if the whole confidence interval of the mean is above 1. If only the mean
// is, the direction alone holds.
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

// nearly is the tolerance of Amount: a gain counts as equal to the paper's if it is at most this
// fraction smaller, or at most twice this fraction larger.
const nearly = 0.1

// Amount judges a gain, as a ratio, against the paper's. A gain above 1 has the paper's direction;
// one within the tolerance of the paper's number confirms it.
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

// Row is a verdict as a row of the result. The caller adds a note that names the claim.
func (v Verdict) Row(id string) Row {
	return Over(ClaimsPart, "claim_"+id, "confirmed", []float64{float64(v-Refuted) / 2}).Against(1)
}

// Told is a verdict as a row whose note states the claim and the numbers behind the verdict. where
// names the section or figure of the paper that makes the claim; "" omits it.
func (v Verdict) Told(id, where, says, because string) Row {
	if where != "" {
		where += ", "
	}
	return v.Row(id).Noting("%s%s: %s (%s)", where, v, says, because)
}

// Claim is a statement of a paper, with the function that judges it by the measurements.
type Claim[Measured any] struct {
	ID, Where, Says string
	// Judge gives a verdict and the numbers behind it.
	Judge func(Measured) (Verdict, string)
	// Cause explains why our result differs from the paper's, as far as we know.
	Cause string
}

// ClaimRows are the verdicts on the claims that the measurements can decide.
func ClaimRows[Measured any](claims []Claim[Measured], m Measured) []Row {
	var rows []Row
	for _, c := range claims {
		v, because := c.Judge(m)
		if v == Unknown {
			continue
		}
		r := v.Told(c.ID, c.Where, c.Says, because)
		if v != Confirmed && c.Cause != "" {
			r.Note += ". " + c.Cause
		}
		rows = append(rows, r)
	}
	return rows
}
