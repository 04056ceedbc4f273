package exp

import "muster/report"

// Holds is the verdict of a statement without an amount.
func Holds(yes bool) Verdict { return Graded(yes, yes) }

// AboveOne judges the claim that a ratio is above 1, for which the paper's text gives no number.
// The claim is confirmed if the whole confidence interval of the mean is above 1. If only the mean
// is, the direction alone holds.
func AboveOne(ratios []float64) Verdict {
	i := report.IntervalOf(ratios)
	return Graded(i.Mean > 1, len(ratios) == 1 || i.Mean-i.Half > 1)
}

// nearly is the tolerance of Amount: a gain counts as equal to the paper's if it is at most this
// fraction smaller, or at most twice this fraction larger.
const nearly = 0.1

// Amount judges a gain, as a ratio, against the paper's. A gain above 1 has the paper's direction;
// one within the tolerance of the paper's number confirms it.
func Amount(ours, paper float64) Verdict {
	return Graded(ours > 1, ours >= (1-nearly)*paper && ours <= (1+2*nearly)*paper)
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

// Measurements can say which of them there are, by their keys.
type Measurements interface{ Has(keys ...string) bool }

// Claim is a statement of a paper, with the function that judges it by the measurements.
type Claim[Measured Measurements] struct {
	ID, Where, Says string
	// Needs are the keys of the measurements without which nothing can be said.
	Needs []string
	// Judge gives a verdict and the numbers behind it.
	Judge func(Measured) (Verdict, string)
	// Cause explains why our result differs from the paper's, as far as we know.
	Cause string
}

// Verdict judges the claim. It is Unknown if a measurement that it needs is missing.
func (c *Claim[Measured]) Verdict(m Measured) (Verdict, string) {
	if !m.Has(c.Needs...) {
		return Unknown, ""
	}
	return c.Judge(m)
}

// About lists claims of one place of the paper that need the same measurements.
func About[Measured Measurements](where string, needs []string, claims ...Claim[Measured]) []Claim[Measured] {
	for i := range claims {
		claims[i].Where, claims[i].Needs = where, needs
	}
	return claims
}

// ClaimRows are the verdicts on the claims that the measurements can decide.
func ClaimRows[Measured Measurements](claims []Claim[Measured], m Measured) []Row {
	var rows []Row
	for _, c := range claims {
		v, because := c.Verdict(m)
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
