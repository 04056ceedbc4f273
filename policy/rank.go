package policy

import (
	"slices"
	"sort"
)

func (ev Ranked) apply(s *State) Answer {
	id, rank := ev.Job, ev.Rank
	e, err := s.known(id)
	if err != nil || e.rank == rank {
		return refused(err)
	}
	if e.status != waiting || e.held() {
		e.rank, s.ranked = rank, true
		return Answer{}
	}
	s.queue.remove(s.place(id))
	e.rank, s.ranked = rank, true
	s.queue.insert(s.place(id))
	if id < s.seen { // the policy has not put later jobs into any order yet
		s.view.ranked = true
	}
	return Answer{}
}

// Reordered says whether the rank of a waiting job has changed since the last
// step. A policy that keeps jobs in a list of its own must sort it again.
func (v *View) Reordered() bool { return v.ranked }

// Rank is the rank of a job: jobs with larger ranks are first in the queue.
func (v *View) Rank(id JobID) int64 { return v.state.jobs.at(id).rank }

// LowestRank is the smallest rank in the queue; 0 if the queue is empty.
func (v *View) LowestRank() int64 {
	if v.state.queue.n == 0 {
		return 0
	}
	return v.state.queue.last().rank
}

// Precedes says whether job a is before job b in the queue, or would be if both
// waited: by rank, then by the policy's order, then by turn, then by submission.
func (v *View) Precedes(a, b JobID) bool {
	if s := v.state; s.ranked || s.turned || s.traits.Order != nil {
		return s.precedes(a, b)
	}
	return a < b
}

func (s *State) precedes(a, b JobID) bool {
	x, y := s.place(a), s.place(b)
	return x.before(&y)
}

// StandsBefore says whether a job is before a place in the queue.
func (v *View) StandsBefore(id JobID, p Place) bool {
	x, y := v.state.place(id), orderedEntry{rank: p.rank, key: p.key, turn: p.turn, id: p.id}
	return x.before(&y)
}

// PlaceIn is the index at which a job belongs in a list that is in the order of
// the queue.
func (v *View) PlaceIn(list []JobID, id JobID) int {
	if n := len(list); n == 0 || v.Precedes(list[n-1], id) {
		return n // the usual case: it belongs at the end
	}
	return sort.Search(len(list), func(i int) bool { return v.Precedes(id, list[i]) })
}

// Find is the index of a job in a list that is in the order of the queue, or
// was until ranks changed; -1 if it is not there.
func (v *View) Find(list []JobID, id JobID) int {
	if v.ranked {
		return slices.Index(list, id)
	}
	if len(list) == 0 || v.Precedes(id, list[0]) {
		return -1 // the usual case: the job started long ago
	}
	at := sort.Search(len(list), func(i int) bool { return !v.Precedes(list[i], id) })
	if at < len(list) && list[at] == id {
		return at
	}
	return -1
}

// Sort puts a list of jobs into the order of the queue.
func (v *View) Sort(list []JobID) {
	sort.Slice(list, func(i, k int) bool { return v.Precedes(list[i], list[k]) })
}
