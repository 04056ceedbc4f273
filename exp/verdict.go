package exp

// Verdict is what runs say of a statement of a paper.
type Verdict int

const (
	// Unknown: nothing was run that could tell.
	Unknown Verdict = iota
	// Refuted: it comes out the other way round, or not at all.
	Refuted
	// Direction: as the paper says on average, but not beyond chance, or by another amount.
	Direction
	// Confirmed: as the paper says, with all of the confidence interval.
	Confirmed
)

func (v Verdict) String() string {
	return [...]string{"unknown", "refuted", "direction only", "confirmed"}[v]
}

// Judge gives the verdict on a number of ours.
type Judge func(Row) Verdict

// Above wants a number beyond a limit: confirmed with all of its interval, direction only where
// the mean is.
func Above(limit float64) Judge {
	return func(r Row) Verdict { return graded(r.Ours > limit, r.Ours-r.half() > limit) }
}

// Below is the opposite of Above.
func Below(limit float64) Judge {
	return func(r Row) Verdict { return graded(r.Ours < limit, r.Ours+r.half() < limit) }
}

// AtLeast is Above where the limit itself will do.
func AtLeast(limit float64) Judge {
	return func(r Row) Verdict { return graded(r.Ours >= limit, r.Ours-r.half() >= limit) }
}

// AtMost is Below where the limit itself will do.
func AtMost(limit float64) Judge {
	return func(r Row) Verdict { return graded(r.Ours <= limit, r.Ours+r.half() <= limit) }
}

// Mostly judges in how many of some cases a statement holds that a paper makes of most or of
// nearly all of them: two thirds confirm it, and more than half are its direction.
func Mostly(cases int) Judge {
	return func(r Row) Verdict { return graded(2*r.Ours > float64(cases), 3*r.Ours >= 2*float64(cases)) }
}

func graded(direction, confirmed bool) Verdict {
	switch {
	case confirmed:
		return Confirmed
	case direction:
		return Direction
	}
	return Refuted
}

// half is half of the confidence interval; 0 for a single seed.
func (r *Row) half() float64 {
	if r.HalfWidth == nil {
		return 0
	}
	return *r.HalfWidth
}
