package head

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"muster/internal/indexset"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/wire/agent"
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
	return r, a
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

// A key is found until it is too old, or until its user has too many later ones.
func TestKeys(t *testing.T) {
	ks := keys{&outbox{}, &timers{}, map[string]*userKeys{}}
	for i := range MaxKeys + 1 {
		ks.keep("ann", strconv.Itoa(i), keyed{job: uint64(i), at: time.Duration(i)})
	}
	ks.keep("bob", "0", keyed{job: 9})
	if _, known := ks.of["ann"].find("0"); known || len(ks.timers.all) != 2 {
		t.Errorf("the oldest is known: %v; %d timers", known, len(ks.timers.all))
	}
	if k, known := ks.of["bob"].find("0"); !known || k.job != 9 {
		t.Errorf("bob's is %+v, %v", k, known)
	}
	ks.forgetOld("ann", keepKeys+2)
	if _, known := ks.of["ann"].find("2"); known || ks.timers.all[len(ks.timers.all)-1].at != keepKeys+3 || len(ks.of["ann"].order) != MaxKeys-2 {
		t.Errorf("then %v, %+v", known, ks.timers.all)
	}
	if _, known := ks.of["eve"].find("0"); known {
		t.Error("eve has a key")
	}
}

// Timers ring by time, and then in the order in which they were set; those of ended jobs give way.
func TestTimers(t *testing.T) {
	ts := timers{lives: func(job uint64) bool { return job == 2 }}
	for i, at := range []time.Duration{5, 3, 3, 7} {
		ts.set(timer{at: at, job: uint64(i + 1), what: timerKind(i)})
	}
	ts.all = slices.Clip(ts.all)
	ts.set(timer{at: 4, job: 5})
	var rung []uint64
	for {
		x, ok := ts.due(4)
		if !ok {
			break
		}
		rung = append(rung, x.job)
	}
	if !slices.Equal(rung, []uint64{2, 5}) || ts.first() != policy.Never {
		t.Errorf("%v rang, and %v are left", rung, ts.all)
	}
}

// A job may use the nodes that serve its user, that it names and does not exclude, under the policy's
// names; users are told of them by their own.
func TestFleet(t *testing.T) {
	f := newFleet()
	for i, name := range []string{"a", "b", "c", "b"} {
		n := &node{name: name, alias: name, number: int32(i), removed: i == 1, devices: []agent.Device{{Name: "H200", Memory: 1 << 30}}}
		if i == 3 {
			n.alias, n.user = "b~2", "ann"
		}
		f.nodes, f.byName[name], f.aliases[n.alias] = append(f.nodes, n), n, name
	}
	j := &job{order: &order{user: "ann", said: &slurmopt.Options{Exclude: []string{"c"}}}}
	if got := f.mayUse(&model.Request{}, j); !slices.Equal(got, []string{"a", "b~2"}) {
		t.Errorf("ann may use %v", got)
	}
	if j.user = "bob"; !slices.Equal(f.mayUse(&model.Request{NodeList: []string{"b"}}, j), []string{"(one that the job does not exclude)"}) {
		t.Error("bob may use b")
	}
	if f.special = true; f.readable([]string{"a", "b~2"}) != "a,b" || f.readable([]string{"a", "c", "b~2"}) != "" {
		t.Error("the names are not those that users know")
	}
	first, second := f.gpuType(&f.nodes[0].devices[0]), f.gpuType(&agent.Device{Name: "h200", Memory: 2 << 30})
	if first.Name != "h200" || second.Name != "h200-2gib" || f.gpuType(&agent.Device{Name: "H200", Memory: 1 << 30}) != first {
		t.Errorf("the types are %+v and %+v", first, second)
	}
}

// A term has happened, has not yet or cannot, by what is known of the other: in memory, of its array, or
// from the store.
func TestDependencies(t *testing.T) {
	r, a := rosterOf(t)
	asked := 0
	d := dependencies{present: &present{}, roster: r, waits: waitlist{waiters: map[awaited][]*job{}}, names: names{}, pasts: map[uint64]Past{}, stored: func(job uint64) (Past, bool) {
		asked++
		return Past{State: api.Failed}, job == 90
	}}
	a.tally = tally{live: 4, pending: 3}
	r.jobs[3].state = api.Completed
	me := &job{id: 100, task: -1, state: api.Pending}
	for _, tc := range []struct {
		kind string
		job  uint64
		task int64
		want outcome
	}{
		{slurmopt.AfterOK, 1, -1, notYet}, {slurmopt.AfterOK, 2, -1, notYet}, {slurmopt.AfterOK, 2, 11, happened}, {slurmopt.AfterNotOK, 2, 11, cannot},
		{slurmopt.AfterOK, 90, -1, cannot}, {slurmopt.AfterNotOK, 90, -1, happened}, {slurmopt.AfterAny, 91, -1, cannot}, {slurmopt.AfterAny, 100, -1, cannot},
	} {
		if got := d.outcome(me, term{slurmopt.Term{Kind: tc.kind, Job: tc.job, Task: tc.task}}); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
	if asked != 2 {
		t.Errorf("the store was asked %d times about two jobs", asked)
	}
	d.dependOn(me, term{slurmopt.Term{Kind: slurmopt.AfterOK, Job: 2, Task: 13}})
	if len(d.waits.waiters[awaited{job: 5}]) != 1 || !a.watched[3] || len(me.unmet) != 1 {
		t.Errorf("%+v waits under %v", me, d.waits.waiters)
	}
}
