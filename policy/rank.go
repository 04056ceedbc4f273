package policy

// Rank moves a job in the queue: jobs with larger ranks stand before all others,
// whatever the policy orders by. Jobs start with rank 0. A job that runs keeps its
// rank for when it is requeued.
func (s *State) Rank(id JobID, rank int64) error {
	e, err := s.known(id)
	if err != nil || e.rank == rank {
		return err
	}
	if e.status != waiting || e.held() {
		e.rank, s.ranked = rank, true
		return nil
	}
	s.queue.remove(s.place(id))
	e.rank, s.ranked = rank, true
	s.queue.insert(s.place(id))
	if id < s.seen { // a policy has not put the others anywhere yet
		s.view.ranked = true
	}
	return nil
}

// Reordered says whether a waiting job has got another rank since the last step.
// A policy that keeps jobs in an order of its own sorts them again.
func (v *View) Reordered() bool { return v.ranked }

// Rank is the rank of a job: larger ones stand first in the queue.
func (v *View) Rank(id JobID) int64 { return v.state.jobs.at(id).rank }

// LowestRank is the smallest rank in the queue; 0 if nobody waits.
func (v *View) LowestRank() int64 {
	if v.state.queue.n == 0 {
		return 0
	}
	return v.state.queue.last().rank
}

// Precedes says whether job a stands before job b in the queue, or would: by
// rank, then as the policy orders, then by submission.
func (v *View) Precedes(a, b JobID) bool {
	s := v.state
	if !s.ranked && s.traits.Order == nil {
		return a < b
	}
	x, y := s.place(a), s.place(b)
	return x.before(&y)
}

// StandsBefore says whether a job stands before a place in the queue.
func (v *View) StandsBefore(id JobID, p Place) bool {
	x, y := v.state.place(id), orderedEntry{rank: p.rank, key: p.key, id: p.id}
	return x.before(&y)
}
