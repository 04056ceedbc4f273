package head

import (
	"slices"
	"testing"
	"time"

	"muster/internal/indexset"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/policy/priority"
	"muster/wire/api"
)

// rosterOf has job 1, and array 2 with the tasks 10 to 13 (jobs 2 to 5), of which 11 has a job of its
// own.
func rosterOf(t *testing.T) (*roster, *array) {
	t.Helper()
	tasks, err := slurmopt.ParseTasks("10-13")
	if err != nil {
		t.Fatal(err)
	}
	r := newRoster()
	a := &array{id: 2, tasks: tasks}
	rest := indexset.Of(2, 4)
	rest.Add(0)
	r.arrays[2] = a
	for _, j := range []*job{{id: 1, task: -1}, {id: 2, array: 2, task: 10, rest: &rest}, {id: 3, array: 2, task: 11}} {
		j.order = &order{user: "ann"}
		j.state = api.Pending
		r.jobs[j.id] = j
		if j.array == 0 || j.id == j.array {
			r.enlist(j.id)
		}
		if j.array != 0 {
			a.list(j)
		}
	}
	return &r, a
}

// A job is found by its number, by array and task, and as the task of a rest that has no job of its own.
func TestRosterFinds(t *testing.T) {
	r, a := rosterOf(t)
	for _, tc := range []struct {
		ref  Ref
		want string
	}{
		{Ref{Job: 1, Task: -1}, "1"}, {Ref{Job: 2, Task: 11}, "2_11"}, {Ref{Job: 3, Task: -1}, "2_11"},
		{Ref{Job: 2, Task: 13}, "2_13"}, {Ref{Job: 5, Task: -1}, "2_13"}, {Ref{Job: 2, Task: 14}, ""}, {Ref{Job: 6, Task: -1}, ""}, {Ref{Job: 1, Task: 0}, ""},
	} {
		j, err := r.findOne(tc.ref)
		if (err != nil) != (tc.want == "") || err == nil && (j.name() != tc.want || j.rest != nil) {
			t.Errorf("%+v: %+v, %v, want %s", tc.ref, j, err, tc.want)
		}
	}
	if text := r.restName(r.jobs[2]); text != "2_[10,12-13]" {
		t.Errorf("the rest is %s", text)
	}
	if got := r.lineOf(Ref{Job: 4, Task: -1}); got != 2 {
		t.Errorf("job 4 is of array %d", got)
	}
	var seen []uint64
	for j := range r.from(2) {
		seen = append(seen, j.id)
	}
	if !slices.Equal(seen, []uint64{2, 3}) || a.firstLive() != r.jobs[2] {
		t.Errorf("from 2 on: %v", seen)
	}
}

// Ended jobs are forgotten when their time is over, an array with the last of its jobs.
func TestRosterForgets(t *testing.T) {
	r, a := rosterOf(t)
	if !r.keepEnded(r.jobs[1], time.Minute) || r.keepEnded(r.jobs[3], 2*time.Minute) {
		t.Error("the first has a timer, and the second none")
	}
	if next, some := r.forgetEnded(time.Minute); !some || next != 2*time.Minute || r.jobs[1] != nil || r.jobs[3] == nil {
		t.Errorf("then %v, %v", next, some)
	}
	delete(r.arrays, a.id)
	r.over[a.id], a.last = a, 2
	r.keepEnded(r.jobs[2], 2*time.Minute)
	if _, some := r.forgetEnded(time.Hour); some || len(r.jobs) != 0 || r.arrayOf(2) != nil || r.kept != 0 {
		t.Errorf("still there: %v, %d", r.jobs, r.kept)
	}
}

// Those who wait for a job look once; a rest that has many tasks to look at looks at all of them.
func TestWaitlist(t *testing.T) {
	l := waitlist{waiters: map[awaited][]*job{}}
	one, rest := &job{id: 1, state: api.Pending}, &job{id: 2, state: api.Pending}
	whole, each := awaited{job: 7, whole: true}, awaited{job: 7, each: true}
	l.add(whole, one)
	l.add(whole, one)
	l.add(each, rest)
	l.wake(whole, -1, true)
	l.wake(whole, -1, true)
	if len(l.waking) != 1 || l.next().job != one || len(l.waking) != 0 {
		t.Errorf("%+v", l.waking)
	}
	for task := range int64(maxLooks + 5) {
		l.wake(each, task, false)
	}
	if n := len(l.waking); n != maxLooks+1 || l.waking[n-1].task != -1 || rest.looks != n {
		t.Errorf("the rest looks %d times, last %+v", n, l.waking[n-1])
	}
	l.next()
	if l.wake(each, 99, true); rest.looks != maxLooks+1 || len(l.waiters) != 0 {
		t.Errorf("the rest is to look %d times, and %d wait", rest.looks, len(l.waiters))
	}
}

// scribe writes what an outbox leaves open.
type scribe struct{ written []uint64 }

func (s *scribe) record(j *job) []Record {
	s.written = append(s.written, j.id)
	return []Record{{Bucket: Jobs, Key: Number(j.id)}}
}
func (*scribe) document(j *job) api.Job { return api.Job{ID: j.id} }
func (*scribe) endsNow(*array) *Ends    { return &Ends{Tasks: "0"} }
func (*scribe) isThere(n uint64) bool   { return n == 4 }

// A job that changes several times is written and published once, and again when it changes again.
func TestOutbox(t *testing.T) {
	var o outbox
	s := &scribe{}
	a, b := &job{id: 1, order: &order{}}, &job{id: 2, order: &order{}}
	o.touch(a)
	o.touch(a)
	o.show(b)
	o.show(a)
	o.ended(&array{id: 9})
	o.vacate(3)
	o.vacate(4)
	if o.full() != 2 {
		t.Errorf("it has %d to write", o.full())
	}
	e := o.take(s)
	if len(e.Records) != 3 || len(e.Changes) != 2 || e.Changes[1].At != 2 || !slices.Equal(s.written, []uint64{1}) || o.full() != 0 {
		t.Errorf("%+v, written %v", e, s.written)
	}
	o.touch(a)
	if e := o.take(s); len(e.Records) != 1 || e.Changes[0].At != 3 {
		t.Errorf("then %+v", e)
	}
}

// The book hears of each job once, and of nothing that it does not rank; without a book nothing happens.
func TestRanking(t *testing.T) {
	var none *ranking
	none.submitted(1, 0, nil)
	none.started(1, 0, priority.TRES{})
	none.stopped(1, 0)
	none.gone(1, 0)
	if none.adjust(1, 5, nil) || none.due() != policy.Never || none.knows(1) {
		t.Error("without a book, a job is ranked")
	}
	cfg := priority.Defaults()
	r, err := newRanking(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	entry := func() priority.Submission { asked++; return priority.Submission{User: "ann"} }
	r.submitted(1, 0, entry)
	r.submitted(1, 0, entry)
	r.submitted(2, 0, entry)
	r.stopped(3, 0)
	if asked != 2 || !r.adjust(1, 5, nil) || r.adjust(3, 5, nil) || r.due() == policy.Never {
		t.Errorf("asked %d times about %v", asked, r.in)
	}
	r.started(1, time.Second, priority.TRES{})
	if r.adjust(1, 6, nil) {
		t.Error("a running job has a place in the queue")
	}
	r.submitted(1, time.Minute, entry) // requeued
	r.gone(2, time.Minute)
	document := r.book.Export()
	again, err := newRanking(cfg, &document)
	if err != nil || asked != 2 || !again.knows(1) || again.knows(2) || again.wrote != time.Minute {
		t.Errorf("from its document: %+v, %v", again, err)
	}
	if again.compare(func(uint64) bool { return false }); again.knows(1) || again.book.Waiting() != 0 {
		t.Error("a job that is not there any more is ranked")
	}
}
