package world

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"muster/head"
	"muster/head/record"
	"muster/wire/agent"
	"muster/wire/api"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func sortedTasks[V any](m map[agent.Task]V) []agent.Task {
	return slices.SortedFunc(maps.Keys(m), func(a, b agent.Task) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Part, b.Part))
	})
}

// brief describes a message in a word.
func brief(m any) string {
	switch m := m.(type) {
	case agent.Start:
		return m.Task.String()
	case agent.Stop:
		return fmt.Sprintf("%v %s", m.Task, m.Cause)
	case agent.Done:
		return m.Task.String()
	case agent.Suspend:
		return m.Task.String()
	case agent.Resume:
		return m.Task.String()
	case agent.Report:
		return fmt.Sprintf("%v %s", m.Task, m.State)
	case agent.Lend:
		return m.Loan.ID
	case agent.Unlend:
		return m.ID
	case agent.Lent:
		return m.ID + " " + m.Error
	case agent.Hello:
		return fmt.Sprintf("%s %d tasks %d loans", m.Incarnation, len(m.Tasks), len(m.Loans))
	}
	return ""
}

// check verifies that no machine uses more than it has.
func (w *World) check() {
	for _, h := range w.changed {
		h.changed = false
		used := map[int]agent.Task{}
		for id, s := range h.supervisors {
			if s.suspended || !s.began {
				continue
			}
			for _, c := range s.cores {
				if other, taken := used[c]; taken {
					w.fail("%s: core %d has tasks %v and %v", h.name, c, id, other)
				}
				used[c] = id
			}
		}
		if len(used) > h.cores {
			w.fail("%s: %d cores of %d are used", h.name, len(used), h.cores)
		}
		w.checkLoans(h)
	}
	w.changed = w.changed[:0]
}

// checkLoans verifies that a whole device is lent only once, and that shares do not exceed the
// device.
func (w *World) checkLoans(h *host) {
	whole, shares := map[int]string{}, map[int]uint64{}
	for id, l := range h.served {
		if l.Limit == 0 {
			continue // a suspended job's; others may use the devices
		}
		for _, d := range l.Devices {
			if l.Home != "" && d.IsBorrowed() {
				continue
			}
			if d.Memory > 0 {
				shares[d.Device] += d.Memory
				continue
			}
			if other, taken := whole[d.Device]; taken {
				w.fail("%s: device %d is lent to %s and %s", h.name, d.Device, id, other)
			}
			whole[d.Device] = id
		}
	}
	for d, sum := range shares {
		if whole[d] != "" || sum > uint64(h.devices[d].Memory) {
			w.fail("%s: device %d has shares of %d bytes, and is lent to %q", h.name, d, sum, whole[d])
		}
	}
}

// past tells the core how a job ended, as the store does.
func (h *headHost) past(job uint64) (head.Past, bool) {
	past, known, err := head.PastOf(job, h.record)
	if err != nil {
		h.w.fail("the record of job %d: %v", job, err)
	}
	return past, known
}

func (h *headHost) record(b head.Bucket, number uint64) []byte {
	return h.disk[b][string(head.Number(number))]
}

// checkEnd checks a world in which everything should be over.
func (w *World) checkEnd() {
	for _, id := range sortedKeys(w.jobs) {
		for i := range w.jobs[id].tasks {
			w.checkJob(id, i)
		}
	}
	w.checkKnown()
	for _, b := range []head.Bucket{head.Jobs, head.Bulk} {
		for _, k := range sortedKeys(w.head.disk[b]) {
			if !w.waitsForEver(k) {
				w.fail("%x is left in %s: %s", k, b, w.head.disk[b][k])
				return
			}
		}
	}
	if left := len(w.head.asked); left > 0 {
		w.fail("%d requests were never answered", left)
	}
	for _, h := range w.hosts {
		if len(h.supervisors)+len(h.tasks)+len(h.loans)+len(h.served) > 0 {
			w.fail("%s has %d supervisors, %d tasks in its spool %v, %d loans and serves %d, and all is over", h.name,
				len(h.supervisors), len(h.tasks), sortedTasks(h.tasks), len(h.loans), len(h.served))
		}
	}
}

// checkKnown verifies that users know all jobs that ran in their names: a submission that was
// repeated is one job.
func (w *World) checkKnown() {
	for _, key := range sortedKeys(w.head.disk[head.Ended]) {
		var doc api.Job
		if err := json.Unmarshal(w.head.disk[head.Ended][key], &doc); err != nil {
			w.fail("the record of job %x: %v", key, err)
			return
		}
		id := doc.ID
		if doc.ArrayJob != 0 { // a task, or tasks that ended together
			id = doc.ArrayJob
		}
		if doc.Directory == home && w.jobs[id] == nil {
			w.fail("job %d of %s has ended, and nobody was told of it: one submission became two jobs", id, doc.User)
			return
		}
	}
}

// waitsForEver says whether a job may be left over: it depends on something that cannot happen, or
// on a job that itself may be left over.
func (w *World) waitsForEver(key string) bool {
	if w.head.core == nil {
		return false
	}
	var id uint64
	for _, b := range []byte(key) {
		id = id<<8 | uint64(b)
	}
	docs, _, ok := w.head.core.JobFrom(w.now, head.Ref{Job: id, Task: -1}, 0, math.MaxInt)
	return ok && slices.ContainsFunc(docs, func(d api.Job) bool { return d.State == api.Pending && strings.HasPrefix(d.Reason, "Dependency") })
}

// checkJob verifies that an accepted job has ended, and ran as often as its record says.
func (w *World) checkJob(array uint64, place int) {
	id := array + uint64(place)
	doc, err := w.ended(array, place)
	if err != nil {
		w.fail("the record of job %d: %v", id, err)
		return
	}
	if doc == nil {
		if !w.waitsForEver(string(head.Number(id))) {
			docs, _, _ := w.head.core.JobFrom(w.now, head.Ref{Job: id, Task: -1}, 0, math.MaxInt)
			w.fail("job %d was accepted and has not ended: %+v", id, docs)
		}
		w.result.Rest++
		return
	}
	// The number of complete runs of the last attempt: exactly one if the job is completed.
	ran := w.ran[agent.Task{Job: id, Attempt: doc.Attempt}.String()]
	switch doc.State {
	case api.Completed:
		w.result.Completed++
		if ran != 1 || doc.ExitCode != 0 {
			w.fail("job %d is complete, and part 0 of attempt %d ran to its end %d times", id, doc.Attempt, ran)
		}
	case api.NodeFail:
		w.result.Lost++
	case api.Failed:
		// By its own exit status, or because a spool was full.
		if doc.ExitCode != 1 && !strings.Contains(doc.Why, "no space") {
			w.fail("job %d failed with status %d: %s", id, doc.ExitCode, doc.Why)
		}
	}
	if doc.Attempt > 1+doc.Requeues {
		w.fail("job %d had %d attempts and was requeued %d times", id, doc.Attempt, doc.Requeues)
	}
}

// ended reads the document of a job, or of a task of an array; nil if it has not ended.
func (w *World) ended(array uint64, place int) (*api.Job, error) {
	past, known, err := head.PastOf(array, w.head.record)
	switch {
	case !known || err != nil:
		return nil, err
	case past.Ends != nil:
		ended, err := past.Ends.Ended(array, place, w.head.record)
		if ended == nil || err != nil {
			return nil, err
		}
		return ended.Document(), nil
	}
	ended, err := record.ReadEnded(w.head.record(head.Ended, array))
	return ended.Document(), err
}
