package exp

// Verdict is what our runs say about a claim of a paper.
type Verdict int

const (
	// Unknown: nothing was run that could decide it.
	Unknown Verdict = iota
	// Refuted: the effect is the opposite, or absent.
	Refuted
	// Direction: the mean agrees with the paper, but not significantly, or the amount differs.
	Direction
	// Confirmed: the whole confidence interval agrees with the paper.
	Confirmed
)

func (v Verdict) String() string {
	return [...]string{"unknown", "refuted", "direction only", "confirmed"}[v]
}

// Judge maps one of our numbers to a verdict.
type Judge func(Row) Verdict

// Above expects a number above a limit. If the whole confidence interval is above it, the claim is
// confirmed; if only the mean is, the direction alone holds.
func Above(limit float64) Judge {
	return func(r Row) Verdict { return Graded(r.Ours > limit, r.Ours-r.half() > limit) }
}

// Below is the opposite of Above.
func Below(limit float64) Judge {
	return func(r Row) Verdict { return Graded(r.Ours < limit, r.Ours+r.half() < limit) }
}

// AtLeast is Above, but a number equal to the limit passes.
func AtLeast(limit float64) Judge {
	return func(r Row) Verdict { return Graded(r.Ours >= limit, r.Ours-r.half() >= limit) }
}

// AtMost is Below, but a number equal to the limit passes.
func AtMost(limit float64) Judge {
	return func(r Row) Verdict { return Graded(r.Ours <= limit, r.Ours+r.half() <= limit) }
}

// Mostly judges a claim that a paper makes about most or nearly all of some cases. The row counts
// the cases in which it holds: two thirds confirm the claim, and more than half have its direction.
func Mostly(cases int) Judge {
	return func(r Row) Verdict { return Graded(2*r.Ours > float64(cases), 3*r.Ours >= 2*float64(cases)) }
}

// Graded is the verdict of a statement with an amount: it is confirmed if that agrees as well as the direction.
func Graded(direction, amount bool) Verdict {
	switch {
	case direction && amount:
		return Confirmed
	case direction:
		return Direction
	}
	return Refuted
}

// half is half the width of the confidence interval; 0 for a single seed.
func (r *Row) half() float64 {
	if r.HalfWidth == nil {
		return 0
	}
	return *r.HalfWidth
}
