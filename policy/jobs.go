package policy

import (
	"fmt"
	"slices"

	"muster/model"
)

// A page has 1 << pageBits jobs.
const pageBits = 8

// jobTable keeps the jobs of a state by ID. IDs only grow; when all jobs of a
// page (a range of neighbouring IDs) are over, its memory is reused.
type jobTable struct {
	// pages[i] has the IDs whose upper bits are first+i; nil when all of its
	// jobs are over.
	pages []*jobPage
	first int
	next  JobID // the ID of the next job
	spare *jobPage
}

type jobPage struct {
	list [1 << pageBits]jobEntry
	gone int // the number of jobs in it that are over
}

// goneJob, goneShape and goneEntry stand for jobs that are no longer kept.
var (
	goneJob   = &model.Job{ID: "(gone)"}
	goneShape = &Shape{impossible: "the job is over", nodes: 1}
	goneEntry = jobEntry{job: goneJob, shape: goneShape, slot: -1, status: gone}
)

// at is the entry of a job. For an ID that was never given, and for a job that
// was dropped, it is a new entry with the status gone, and changing it has no
// effect.
func (t *jobTable) at(id JobID) *jobEntry {
	if uint32(id) < uint32(t.next) {
		if i := int(id>>pageBits) - t.first; uint(i) < uint(len(t.pages)) && t.pages[i] != nil {
			return &t.pages[i].list[id&(1<<pageBits-1)]
		}
	}
	return noJob()
}

// noJob is a fresh entry, so that no mistake can change what others see. It is
// rare: callers of at need not have it in their code.
//
//go:noinline
func noJob() *jobEntry {
	e := goneEntry
	return &e
}

// add gives the next ID to a job.
func (t *jobTable) add(e jobEntry) JobID {
	id := t.next
	if id&(1<<pageBits-1) == 0 {
		p := t.spare
		if p == nil {
			p = new(jobPage)
		}
		t.spare = nil
		t.pages = append(t.pages, p)
	}
	t.next++
	*t.at(id) = e
	return id
}

// drop forgets a job that is over.
func (t *jobTable) drop(id JobID) {
	i := int(id>>pageBits) - t.first
	p := t.pages[i]
	p.list[id&(1<<pageBits-1)] = goneEntry
	if p.gone++; p.gone < len(p.list) {
		return
	}
	p.gone = 0
	t.spare, t.pages[i] = p, nil
	for len(t.pages) > 0 && t.pages[0] == nil {
		t.pages = t.pages[1:]
		t.first++
	}
}

// expect reserves memory for the given number of jobs in all.
func (t *jobTable) expect(jobs int) {
	pages := jobs>>pageBits + 1 - t.first
	t.pages = slices.Grow(t.pages, max(0, pages-len(t.pages)))
}

// each calls do for the jobs that are not over, in the order of their IDs.
func (t *jobTable) each(do func(id JobID, e *jobEntry)) {
	for i, p := range t.pages {
		if p == nil {
			continue
		}
		base := JobID(t.first+i) << pageBits
		for k := range p.list {
			if e := &p.list[k]; base+JobID(k) < t.next && e.status != gone && e.status != ended {
				do(base+JobID(k), e)
			}
		}
	}
}

// known is the entry of a job that is not over.
func (s *State) known(id JobID) (*jobEntry, error) {
	e := s.jobs.at(id)
	switch {
	case e.status == ended:
		return nil, fmt.Errorf("job %s is over", e.job.ID)
	case e.status == gone && id >= 0 && id < s.jobs.next:
		return nil, fmt.Errorf("job number %d is over", id)
	case e.status == gone:
		return nil, fmt.Errorf("there is no job number %d", id)
	}
	return e, nil
}

// NextID is the ID that the next job will get.
func (s *State) NextID() JobID { return s.jobs.next }
