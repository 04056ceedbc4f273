package head_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/internal/need"
	"muster/wire/agent"
	"muster/wire/api"
)

// twins are two heads to which the same happens. One is sent arrays; the other, in place of each, one
// job per task, which then has the same number. Whoever looks at a task must not see a difference.
type twins struct {
	arrays, singles *player
	random          *rand.Rand
	size            map[uint64]int // tasks by array, or 1
	owner           []uint64       // by job number: its array
	log             []string
	// apart says that single tasks are held, released and ranked, too. Then the order of the tasks of an
	// array is not always that of their numbers, and only counts are compared.
	apart bool
}

func newTwins(t *testing.T, seed uint64) *twins {
	// Job 1 is cancelled, so that what waits for its success waits in vain.
	w := &twins{random: rand.New(rand.NewPCG(seed, 7)), size: map[uint64]int{1: 1}, owner: []uint64{0, 1}, apart: seed%4 == 3}
	for _, p := range []**player{&w.arrays, &w.singles} {
		*p = newPlayer()
		(*p).policy = []string{"fcfs", "easy", "first-fit"}[seed%3]
		if seed%2 == 0 {
			(*p).cfg.Limits.Running = 4
		}
		for _, line := range []string{"node n1 cores=4", "node n2 cores=2", "root submit -n1 --hold", "root cancel 1"} {
			if err := (*p).play(strings.Fields(line)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// any chooses an array or single job; 0 if there is none.
func (w *twins) any() uint64 {
	if len(w.owner) == 1 {
		return 0
	}
	return w.owner[1+w.random.IntN(len(w.owner)-1)]
}

// dependency is a dependency on an array or job, as an array has it and as its task i alone has it.
func (w *twins) dependency(array bool) (whole string, each func(i int) string) {
	on := w.any()
	if on == 0 || w.random.IntN(3) > 0 {
		return "", func(int) string { return "" }
	}
	kind := []string{"afterok", "afterany", "afternotok", "after", "aftercorr"}[w.random.IntN(5)]
	if kind == "aftercorr" && (!array || w.size[on] == 1) {
		kind = "afterany"
	}
	return fmt.Sprintf("--dependency=%s:%d", kind, on), func(i int) string {
		if kind == "aftercorr" {
			if i >= w.size[on] {
				return "--dependency=afterok:1"
			}
			return fmt.Sprintf("--dependency=afterok:%d", on+uint64(i))
		}
		text := "--dependency=" + kind
		if kind == "afternotok" { // one of them
			text = "--dependency=afternotok"
		}
		for k := range w.size[on] {
			text += fmt.Sprintf(":%d", on+uint64(k))
		}
		return text
	}
}

func (w *twins) submit() {
	n := 1
	array := w.random.IntN(3) > 0
	options := []string{"-n" + fmt.Sprint(1+w.random.IntN(2)), "-t" + fmt.Sprint(1+w.random.IntN(3))}
	user := []string{"alice", "bob"}[w.random.IntN(2)]
	switch w.random.IntN(6) {
	case 0:
		options = append(options, "--hold")
	case 1:
		options = append(options, "--begin=now+1minute")
	case 2:
		options = append(options, "--dependency=singleton", "-Jone")
	}
	whole, each := "", func(int) string { return "" }
	if len(options) == 2 {
		whole, each = w.dependency(array)
		if strings.Contains(whole, "afternotok") && w.size[w.owner[len(w.owner)-1]] > 0 {
			whole, each = "", func(int) string { return "" } // of several jobs each must fail, of an array one
		}
	}
	id := uint64(len(w.owner))
	all := options
	if array {
		if n = 2 + w.random.IntN(12); strings.Contains(whole, "aftercorr") && !w.apart {
			n = min(n, 3) // all of them wait with the policy: later ones would join those in the queue
		}
		all = append(all, fmt.Sprintf("--array=0-%d", n-1))
	}
	if whole != "" {
		all = append(all, whole)
	}
	w.note("%s submit %s", user, strings.Join(all, " "))
	_ = w.arrays.user(user, "submit", all)
	for i := range n {
		one := options
		if text := each(i); text != "" {
			one = append(one[:len(one):len(one)], text)
		}
		_ = w.singles.user(user, "submit", one)
		w.owner = append(w.owner, id)
	}
	w.size[id] = n
}

func (w *twins) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// change does something to an array, or to one of its tasks.
func (w *twins) change() {
	id := w.any()
	if id == 0 {
		return
	}
	verb := []string{"cancel", "requeue", "hold", "release", "nice"}[w.random.IntN(5)]
	more := []string{}
	if verb == "nice" {
		more = []string{fmt.Sprint(w.random.IntN(3))}
	}
	from, to := 0, w.size[id]
	name := fmt.Sprint(id)
	if w.random.IntN(2) == 0 && (w.apart || verb == "cancel" || verb == "requeue") {
		from = w.random.IntN(to)
		to = from + 1
		if name = fmt.Sprint(id + uint64(from)); from == 0 && w.size[id] > 1 || w.size[id] > 1 && w.random.IntN(2) == 0 {
			name = fmt.Sprintf("%d_%d", id, from) // its number names it, too, unless that is the array's
		}
	}
	w.note("root %s %s %v", verb, name, more)
	_ = w.arrays.user("root", verb, append([]string{name}, more...))
	for i := from; i < to; i++ {
		_ = w.singles.user("root", verb, append([]string{fmt.Sprint(id + uint64(i))}, more...))
	}
}

func (w *twins) both(line string) {
	w.note("%s", line)
	for _, p := range []*player{w.arrays, w.singles} {
		if err := p.play(strings.Fields(line)); err != nil {
			panic(err)
		}
	}
}

func (w *twins) step() {
	switch w.random.IntN(12) {
	case 0, 1, 2:
		w.submit()
	case 3, 4, 5:
		w.change()
	case 6:
		w.both("restart")
		w.both("node n1")
		w.both("node n2")
	case 7:
		w.both(fmt.Sprintf("at %.3f", (w.arrays.now-began).Seconds()+float64(w.random.IntN(100))))
	default:
		if running := w.arrays.sorted(); len(running) > 0 {
			w.both(fmt.Sprintf("ends %d exit=%d", running[w.random.IntN(len(running))].Job, w.random.IntN(4)/3))
		}
	}
	w.arrays.now, w.singles.now = w.arrays.now+time.Millisecond, w.singles.now+time.Millisecond
	w.arrays.settle()
	w.singles.settle()
}

// seen is what users see of a job.
func seen(p *player, id uint64) string {
	docs, ok := p.core.Job(p.now, head.Ref{Job: id, Task: -1})
	for _, d := range docs {
		if d.ID == id && d.ArrayTasks == "" || len(docs) == 1 {
			return shown(&d)
		}
	}
	return fmt.Sprint(ok)
}

func shown(d *api.Job) string {
	eligible := d.Eligible
	if d.Reason != "Resources" { // single jobs keep when they were eligible last
		eligible = 0
	}
	return fmt.Sprintf("%s %s held %v start %.3f end %.3f on %s requeued %d priority %d eligible %.3f", d.State, d.Reason, d.Held, d.Start, d.End, d.NodeList, d.Requeues, d.Priority, eligible)
}

// count looks at every task, and compares what it finds with the head's own counts.
func (w *twins) count() string {
	pending, running := 0, 0
	for id := uint64(1); id < uint64(len(w.owner)); id++ {
		ref := head.Ref{Job: w.owner[id], Task: int64(id - w.owner[id])}
		if w.size[ref.Job] == 1 {
			ref.Task = -1
		}
		docs, _ := w.arrays.core.Job(w.arrays.now, ref)
		past := w.past(id)
		switch {
		case len(docs) == 0 && past == "", len(docs) > 1, len(docs) == 1 && docs[0].State.Over() != (past != ""):
			return fmt.Sprintf("job %d: %+v, and the store has %q", id, docs, past)
		case len(docs) == 1 && docs[0].State == api.Pending:
			pending++
		case len(docs) == 1 && !docs[0].State.Over():
			running++
		}
	}
	listed := 0
	for _, d := range w.arrays.core.JobList(w.arrays.now, head.Filter{States: []api.State{api.Pending}}) {
		listed += max(1, d.ArrayCount)
	}
	if info := w.arrays.core.Info(w.arrays.now); info.Pending != pending || info.Running != running || listed != pending {
		return fmt.Sprintf("%d jobs wait and %d run, and the head says %d and %d, and lists %d", pending, running, info.Pending, info.Running, listed)
	}
	return ""
}

func (w *twins) differ() string {
	if w.apart {
		return w.count()
	}
	for id := uint64(1); id < uint64(len(w.owner)); id++ {
		array := w.owner[id]
		got, want := "", seen(w.singles, id)
		if w.size[array] == 1 {
			got = seen(w.arrays, id)
		} else {
			docs, _ := w.arrays.core.Job(w.arrays.now, head.Ref{Job: array, Task: int64(id - array)})
			got = "false"
			if len(docs) == 1 {
				got = shown(&docs[0])
			}
		}
		if got != want {
			return fmt.Sprintf("job %d, of %d: %s, and as a single job: %s", id, array, got, want)
		}
	}
	a, b := w.arrays.core.Info(w.arrays.now), w.singles.core.Info(w.singles.now)
	if a.Pending != b.Pending || a.Running != b.Running {
		return fmt.Sprintf("%d jobs wait and %d run; of the single ones %d and %d", a.Pending, a.Running, b.Pending, b.Running)
	}
	return ""
}

// ended compares what the stores have of the jobs that have ended.
func (w *twins) ended() string {
	for id := uint64(1); id < uint64(len(w.owner)); id++ {
		var single api.Job
		want := ""
		if value := w.singles.disk[head.Ended][string(head.Number(id))]; json.Unmarshal(value, &single) == nil {
			want = fmt.Sprint(single.State, " ", single.End)
		}
		got, array := w.past(id), w.owner[id]
		if got != want {
			return fmt.Sprintf("job %d, of %d: the store has %q, and of the single job %q", id, array, got, want)
		}
	}
	return ""
}

// past is how a job ended, as the store of the head with arrays has it; "" if it has not.
func (w *twins) past(id uint64) string {
	get := func(b head.Bucket, number uint64) []byte { return w.arrays.disk[b][string(head.Number(number))] }
	array := w.owner[id]
	if past, known, _ := head.PastOf(array, get); known && past.Ends != nil {
		if d, _ := past.Ends.Ended(array, int(id-array), get); d != nil {
			return fmt.Sprint(d.State, " ", d.End)
		}
		return ""
	}
	var single api.Job
	if json.Unmarshal(get(head.Ended, id), &single) == nil {
		return fmt.Sprint(single.State, " ", single.End)
	}
	return ""
}

// TestArraysAreTheirTasks holds arrays, whose tasks become jobs when they can start, to single jobs.
func TestArraysAreTheirTasks(t *testing.T) {
	seeds := uint64(need.Rounds(12, 24))
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		w := newTwins(t, seed)
		for range 60 {
			w.step()
			if trouble := w.differ(); trouble != "" {
				t.Fatalf("seed %d: %s\n%s", seed, trouble, strings.Join(w.log, "\n"))
			}
		}
		if trouble := w.ended(); trouble != "" && !w.apart {
			t.Fatalf("seed %d: %s\n%s", seed, trouble, strings.Join(w.log, "\n"))
		}
	}
}

// The parts of an array that were held one by one end together without each task being written down.
func TestManyRestsEndTogether(t *testing.T) {
	const rests = 300
	l := newLive(t, "fcfs")
	l.submit(began, "alice", "-n1", "--hold", "--array=0-9999")
	for i := range rests {
		some := head.Ref{Job: 1, Task: -1, Tasks: fmt.Sprintf("%d-9999:%d", i, rests)}
		l.core.Handle(began, head.Change{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: some, Action: head.Hold})
	}
	l.core.Take()
	l.core.Handle(began, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: 1, Task: -1}})
	if e := l.core.Take(); len(e.Records) > 5000 {
		t.Errorf("%d records", len(e.Records))
	}
	if left := l.core.JobList(began, head.Filter{States: []api.State{api.Pending}}); len(left) > 0 {
		t.Errorf("%d jobs wait still", len(left))
	}
}

// Agents are told what the tasks of an array run, also if the first of them is a job of its own at once.
func TestArraysOfOneNameRun(t *testing.T) {
	p := newPlayer()
	starts := 0
	p.sent = func(s head.Send) {
		if m, ok := s.Message.(agent.Start); ok {
			starts++
			if err := head.FillIn(&m, func(job uint64) ([]byte, error) { return p.disk[head.Bulk][string(head.Number(job))], nil }); err != nil || len(m.Spec.Arguments) == 0 {
				t.Errorf("task %v: %v", m.Task, err)
			}
		}
	}
	for _, line := range []string{"node n1 cores=4", "alice submit -n1 -Jx --array=0-2 --dependency=singleton", "ends 1", "ends 2"} {
		if err := p.play(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	if starts != 3 {
		t.Errorf("%d tasks were started", starts)
	}
}
