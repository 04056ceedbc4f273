package policy

import (
	"math/bits"
	"time"

	"muster/model"
)

// holdings are what jobs hold, proposed ones and suspended ones among them, and when it comes back.
type holdings struct {
	slots   []slot
	vacant  []int32
	inOrder bool // ends is maintained (Traits.Ends)
	ends    ordered
	kept    []int64 // by node: the memory that suspended jobs keep; nil while there are none
	grants  grantStore
}

type slot struct {
	alloc       model.Allocation
	started     time.Duration
	expectedEnd time.Duration
	left        time.Duration // what remains of a suspended job's estimate
	alternative int
	measured    model.Measured // since it was started; see Measured
}

// hold gives a job a slot with a copy of what it holds from started on.
func (h *holdings) hold(id JobID, e *jobEntry, alternative int, a *model.Allocation, started time.Duration) *slot {
	e.slot = h.newSlot()
	sl := &h.slots[e.slot]
	sl.alloc.Parts, sl.alloc.Grants = recycle(&h.grants.parts, a.Parts), recycle(&h.grants.grants, a.Grants)
	sl.started, sl.alternative, sl.measured = started, alternative, model.Measured{}
	sl.expectedEnd = model.After(started, e.job.As(alternative).Estimate())
	h.listEnd(id, sl)
	return sl
}

func (h *holdings) newSlot() int32 {
	if n := len(h.vacant); n > 0 {
		i := h.vacant[n-1]
		h.vacant = h.vacant[:n-1]
		return i
	}
	h.slots = append(h.slots, slot{})
	return int32(len(h.slots) - 1)
}

func (h *holdings) dropSlot(e *jobEntry) {
	sl := &h.slots[e.slot]
	h.grants.giveBack(&sl.alloc)
	h.vacant = append(h.vacant, e.slot)
	e.slot = -1
}

func (h *holdings) listEnd(id JobID, sl *slot) {
	if h.inOrder {
		h.ends.insert(orderedEntry{key: int64(sl.expectedEnd), id: id})
	}
}

func (h *holdings) unlistEnd(id JobID, sl *slot) {
	if h.inOrder {
		h.ends.remove(orderedEntry{key: int64(sl.expectedEnd), id: id})
	}
}

// keep adds to (sign 1) or subtracts from (sign -1) the memory that suspended jobs keep.
func (h *holdings) keep(a *model.Allocation, sign int64, nodes int) {
	if h.kept == nil {
		h.kept = make([]int64, nodes)
	}
	for i := range a.Parts {
		h.kept[a.Parts[i].Node] += sign * a.Parts[i].Memory
	}
}

// grantStore recycles the memory of allocations. Free slices are kept by the
// logarithm of their capacity.
type grantStore struct {
	parts  [32][][]model.Part
	grants [32][][]model.Grant
}

func (g *grantStore) giveBack(a *model.Allocation) {
	discard(&g.parts, a.Parts)
	discard(&g.grants, a.Grants)
	*a = model.Allocation{}
}

func sizeClass(n int) int {
	return bits.Len(uint(n - 1))
}

func recycle[T any](free *[32][][]T, from []T) []T {
	if len(from) == 0 {
		return nil
	}
	c := sizeClass(len(from))
	var to []T
	if l := len(free[c]); l > 0 {
		to = free[c][l-1][:0]
		free[c] = free[c][:l-1]
	} else {
		to = make([]T, 0, 1<<c)
	}
	return append(to, from...)
}

func discard[T any](free *[32][][]T, s []T) {
	if cap(s) > 0 {
		c := sizeClass(cap(s))
		free[c] = append(free[c], s)
	}
}
