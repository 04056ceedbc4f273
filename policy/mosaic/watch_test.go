package mosaic_test

import (
	"slices"
	"time"

	"muster/model"
)

// watcher notes where and when jobs start.
type watcher struct {
	out    []placed
	allocs map[int]model.Allocation
}

func (w *watcher) Started(now time.Duration, job int, a *model.Allocation) {
	if w.allocs == nil {
		w.allocs = map[int]model.Allocation{}
	}
	w.allocs[job] = model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
	w.out[job] = placed{int(now / time.Second), int(a.Parts[0].Node), int(a.Parts[len(a.Parts)-1].Node)}
}

func (w *watcher) Ended(time.Duration, int) {}
