package head_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/policy/catalog"
	"muster/wire/agent"
	"muster/wire/api"
)

// work is what an event makes the head do, in numbers that do not depend on the machine.
type work struct{ records, bytes, changes int }

func (l *live) work(do func()) (w work) {
	do()
	l.core.Step(began)
	e := l.core.Take()
	w.records, w.changes = len(e.Records), len(e.Changes)
	for _, r := range e.Records {
		w.bytes += len(r.Key) + len(r.Value)
	}
	l.keep(e.Records)
	return w
}

// listed is how many lines a list of all jobs has.
func (l *live) listed() int { return len(l.core.JobList(began, head.Filter{})) }

// keep writes records to the disk, if there is one.
func (l *live) keep(records []head.Record) {
	for _, r := range records {
		switch {
		case l.disk == nil:
			return
		case l.disk[r.Bucket] == nil:
			l.disk[r.Bucket] = map[string][]byte{}
		}
		if l.disk[r.Bucket][string(r.Key)] = r.Value; r.Value == nil {
			delete(l.disk[r.Bucket], string(r.Key))
		}
	}
}

// TestLargeArrays: whatever happens to an array of 100,000 tasks makes the head do as much as a few
// hundred jobs do, and its waiting tasks need next to no memory.
func TestLargeArrays(t *testing.T) {
	const tasks, most = 100_000, 600 // jobs' worth of work in one event
	l := newLive(t, "easy")
	l.disk = map[head.Bucket]map[string][]byte{}
	l.greet(4)
	ask := func(ev head.Event) func() { return func() { l.core.Handle(began, ev) } }
	alice := head.Caller{Request: 1, User: "alice"}
	all := head.Ref{Job: 1, Task: -1}
	array := fmt.Sprintf("--array=0-%d", tasks-1)
	for _, event := range []struct {
		name string
		do   func()
	}{
		{"submit", func() { l.submit(began, "alice", "-n1", array) }},
		{"an array that depends on it", func() { l.submit(began, "alice", "-n1", array, "--dependency=afterok:1") }},
		{"one whose tasks depend on its tasks", func() { l.submit(began, "alice", "-n1", array, "--dependency=aftercorr:1") }},
		{"singletons", func() { l.submit(began, "alice", "-n1", "-Jx", array, "--dependency=singleton") }},
		{"at most some at a time", func() { l.submit(began, "alice", "-n1", array+"%2") }},
		{"hold", ask(head.Change{Caller: alice, Jobs: all, Action: head.Hold})},
		{"release", ask(head.Change{Caller: alice, Jobs: all, Action: head.Release})},
		{"nice", ask(head.Change{Caller: alice, Jobs: all, Action: head.Prioritise, Priority: api.Priority{Nice: new(int64)}})},
		{"cancel one", ask(head.Cancel{Caller: alice, Jobs: head.Ref{Job: 1, Task: 70_000}})},
		{"cancel some", ask(head.Cancel{Caller: alice, Jobs: head.Ref{Job: 1, Task: -1, Tasks: "60000-80000:2"}})},
		{"restart", func() { l.restart(t) }},
		{"cancel", ask(head.Cancel{Caller: alice, Jobs: all})},
		{"forget", ask(head.Tick{})},
	} {
		if w := l.work(event.do); w.records > most || w.changes > most || l.listed() > 2*most || w.bytes > most*2000 {
			t.Errorf("%s: %+v, and %d are listed", event.name, w, l.listed())
		}
	}
	runtime.KeepAlive(l)
}

// TestMemoryOfArrays: 14 arrays of 100,000 tasks took more memory than a head has.
func TestMemoryOfArrays(t *testing.T) {
	l := newLive(t, "easy")
	l.greet(4)
	before := memory()
	const arrays, tasks = 14, 100_000
	for range arrays {
		l.submit(began, "alice", "-n1", fmt.Sprintf("--array=0-%d", tasks-1))
	}
	for range 20 {
		l.core.Step(began)
		l.core.Take()
	}
	each := float64(memory()-before) / arrays / tasks
	t.Logf("%.1f bytes a task", each)
	if each > 20 {
		t.Errorf("each waiting task of an array takes %.0f bytes", each)
	}
	runtime.KeepAlive(l)
}

// restart replaces the core by one that continues from the disk.
func (l *live) restart(t *testing.T) {
	p, err := catalog.New("easy")
	if err != nil {
		t.Fatal(err)
	}
	core, err := head.Restore(head.Config{Cluster: "test", NodeTimeout: time.Minute, Silence: time.Minute, Grace: time.Second, Keep: time.Minute}, p, "easy", func(visit func(head.Record) error) error {
		for _, b := range []head.Bucket{head.Meta, head.Nodes, head.Jobs, head.Keys} {
			for _, k := range slices.Sorted(keysOf(l.disk[b])) {
				if err := visit(head.Record{Bucket: b, Key: []byte(k), Value: l.disk[b][k]}); err != nil {
					return err
				}
			}
		}
		return nil
	}, began)
	if err != nil {
		t.Fatal(err)
	}
	l.core = core
	l.core.SetPast(func(job uint64) (head.Past, bool) {
		past, known, _ := head.PastOf(job, func(b head.Bucket, number uint64) []byte { return l.disk[b][string(head.Number(number))] })
		return past, known
	})
}

// TestEagerRecords: a head continues from the records of one that had a record of each task, in the
// memory of an array.
func TestEagerRecords(t *testing.T) {
	l := newLive(t, "easy")
	l.disk = map[head.Bucket]map[string][]byte{}
	l.greet(1)
	l.work(func() { l.submit(began, "alice", "-n32", "-t10", "--array=0-2999") })
	var rest string
	for key, value := range l.disk[head.Jobs] {
		if strings.Contains(string(value), `"rest"`) {
			rest = string(value)
			delete(l.disk[head.Jobs], key)
		}
	}
	for i := 2; i < 3000; i++ { // the first runs, the second waits with the policy
		record := strings.Replace(rest, `"rest":"2-2999",`, "", 1)
		record = strings.Replace(record, `"job":3,`, fmt.Sprintf(`"job":%d,`, 1+i), 1)
		record = strings.Replace(record, `"task":2,`, fmt.Sprintf(`"task":%d,`, i), 1)
		l.disk[head.Jobs][string(head.Number(uint64(1+i)))] = []byte(record)
	}
	l.work(func() { l.restart(t) })
	if info := l.core.Info(began); info.Pending != 2999 || info.Running != 1 || l.listed() > 10 || len(l.disk[head.Jobs]) > 10 {
		t.Errorf("%d wait and %d run; %d are listed, and %d records left", info.Pending, info.Running, l.listed(), len(l.disk[head.Jobs]))
	}
}

// TestJobsAreBounded: beyond the limits submissions are refused, and others are not harmed.
func TestJobsAreBounded(t *testing.T) {
	p := newPlayer()
	p.cfg.MaxJobCount, p.cfg.MaxArraySize, p.cfg.Limits.Jobs = 6, 100, 150
	for _, line := range []string{
		"node n1 cores=1", "alice submit -n1 --array=0-100", "alice submit -n1 --array=0-99", "alice submit -n1 --array=0-50",
		"alice submit -n1", "alice submit -n1", "alice submit -n1", "bob submit -n1", "carol submit -n1", "bob submit -n1", "bob submit -n1",
		"alice cancel 1", "bob submit -n1", "alice submit -n1 --array=0-90",
	} {
		if err := p.play(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, line := range strings.Split(p.out.String(), "\n") {
		if before, _, ok := strings.Cut(line, " tasks "); ok {
			got = append(got, strings.TrimSpace(before))
		} else if strings.Contains(line, "(max_") {
			_, line, _ = strings.Cut(line, "(")
			got = append(got, strings.Split(line, ")")[0])
		}
	}
	want := "max_array_size, submitted 1, 100, max_submit_jobs, submitted 101, 0, submitted 102, 0, max_job_count, submitted 103, 0, submitted 104, 0, submitted 105, 0, max_job_count, submitted 106, 0, max_job_count"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
}

// TestManyThatWait: when a job ends for which very many wait, each event lets only some of them look.
func TestManyThatWait(t *testing.T) {
	l := newLive(t, "fcfs")
	l.greet(1)
	l.submit(began, "alice", "-n32")
	for range 3000 {
		l.submit(began, "bob", "-n1", "--dependency=afterany:1")
	}
	l.settle(began)
	s := l.running[1][0]
	l.core.Handle(began, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
	woken := 0
	for l.core.Next() <= began && woken < 6000 {
		l.core.Step(began)
		n := len(l.core.Take().Records)
		if n > 1000 {
			t.Fatalf("%d records in one event", n)
		}
		woken += n
	}
	if left := l.core.JobList(began, head.Filter{States: []api.State{api.Pending}}); len(left) != 3000-32 || left[0].Reason != "Resources" || left[len(left)-1].Reason != "Resources" {
		t.Errorf("%d wait, the last because of %q", len(left), left[len(left)-1].Reason)
	}
}

// BenchmarkArray measures events that concern an array of 100,000 tasks.
func BenchmarkArray(b *testing.B) {
	alice := head.Caller{Request: 1, User: "alice"}
	all := head.Ref{Job: 1, Task: -1}
	for b.Loop() {
		l := newLive(b, "easy")
		l.greet(100)
		for _, event := range []struct {
			name string
			do   func()
		}{
			{"submit", func() { l.submit(began, "alice", "-n1", "--array=0-99999") }},
			{"corr", func() { l.submit(began, "alice", "-n1", "--array=0-99999", "--dependency=aftercorr:1") }},
			{"list", func() { l.core.JobList(began, head.Filter{}) }},
			{"hold", func() { l.core.Handle(began, head.Change{Caller: alice, Jobs: all, Action: head.Hold}) }},
			{"release", func() { l.core.Handle(began, head.Change{Caller: alice, Jobs: all, Action: head.Release}) }},
			{"cancel", func() { l.core.Handle(began, head.Cancel{Caller: alice, Jobs: all}) }},
		} {
			at := time.Now()
			event.do()
			l.core.Step(began)
			l.core.Take()
			b.ReportMetric(float64(time.Since(at).Microseconds())/1000, "ms-"+event.name)
		}
	}
}
