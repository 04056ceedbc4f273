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

// Told is the row of a verdict on a statement, with the numbers behind it. Where says which part of
// the paper makes the statement; "" leaves that out.
func (v Verdict) Told(id, where, says, because string) Row {
	if where != "" {
		where += ", "
	}
	return v.Row(id).Noting("%s%s: %s (%s)", where, v, says, because)
}

// Claim is a statement of a paper, and how it is judged by what was measured.
type Claim[Measured any] struct {
	ID, Where, Says string
	// Judge gives a verdict and the numbers behind it.
	Judge func(Measured) (Verdict, string)
	// Cause is why it comes out otherwise here, as far as it is known.
	Cause string
}

// ClaimRows are the verdicts on statements, as far as what was measured can tell.
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
