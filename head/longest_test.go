package head_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/internal/cputime"
	"muster/wire/agent"
	"muster/wire/api"
)

// longest measures what each kind of event costs the core, and keeps the least of several rounds.
type longest struct {
	*live
	now   time.Duration
	least map[string]time.Duration
	what  map[string]string
}

// that measures one event as the daemon's loop has it: the event, the policy's step, and the effects. Of
// what the core left for later, the longest turn counts, if it takes longer.
func (m *longest) that(name string, do func()) {
	longest, what := m.turn(do)
	all, turns := longest, 1
	for ; turns < 2000 && m.core.Next() <= m.now; turns++ {
		took, later := m.turn(func() { m.core.Handle(m.now, head.Tick{}) })
		if all += took; took > longest {
			longest, what = took, "later: "+later
		}
	}
	if turns > 1 {
		what = fmt.Sprintf("%d turns, in all %.0f ms; %s", turns, ms(all), what)
	}
	if least, known := m.least[name]; !known || longest < least {
		m.least[name], m.what[name] = longest, what
	}
}

// turn measures one turn of the daemon's loop. The agents answer outside of it.
func (m *longest) turn(do func()) (time.Duration, string) {
	at := cputime.OfThread()
	do()
	handled := cputime.OfThread()
	m.core.Step(m.now)
	stepped := cputime.OfThread()
	e := m.core.Take()
	took := cputime.OfThread()
	bytes, trouble := 0, ""
	for _, r := range e.Records {
		bytes += len(r.Key) + len(r.Value)
	}
	for _, a := range e.Answers {
		if a.Err != nil {
			trouble = a.Err.Reason
		}
	}
	m.carryOut(m.now, e)
	return took - at, fmt.Sprintf("event %4.1f step %4.1f take %4.1f: %d records, %d bytes, %d changes %.90s", ms(handled-at), ms(stepped-handled), ms(took-stepped), len(e.Records), bytes, len(e.Changes), trouble)
}

// rest lets the core do what it left for later.
func (m *longest) rest() {
	for range 2000 {
		if m.core.Next() > m.now {
			break
		}
		m.settle(m.now)
	}
}

// look measures a look at the core.
func (m *longest) look(name string, do func()) {
	at := cputime.OfThread()
	do()
	if took := cputime.OfThread() - at; m.least[name] == 0 || took < m.least[name] {
		m.least[name] = took
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (m *longest) change(name string, action head.Action, tasks string) {
	ref := head.Ref{Job: 1, Task: -1, Tasks: tasks}
	nice := int64(len(name) + len(m.least)%50)
	m.that(name, func() {
		m.core.Handle(m.now, head.Change{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: ref, Action: action, Priority: api.Priority{Nice: &nice}})
	})
}

func (m *longest) submits(name string, options ...string) {
	m.that("submit "+name, func() { m.submit(m.now, "alice", options...) })
}

// manyRuns is a list of tasks that is as long as options may be, of runs of one or two.
func manyRuns() string {
	random := rand.New(rand.NewPCG(1, 2))
	var list []string
	for i, n := 0, 0; n < 60_000 && i < 100_000; i += 2 + random.IntN(20) {
		list = append(list, fmt.Sprint(i))
		n += len(list[len(list)-1]) + 1
	}
	return strings.Join(list, ",")
}

// play lets every kind of event happen to an array of 100,000 tasks.
func (m *longest) play(of string, parts, nodes int, array string) {
	m.now = began
	m.greet(nodes)
	m.submits(of+" of 100,000", "-n1", "--array="+array)
	m.rest()
	for i := range 10_000 {
		m.submit(m.now, fmt.Sprintf("user%d", i%100), fmt.Sprint("-n", 1+i%40), fmt.Sprint("-t", 30+i%600))
		if i%1000 == 0 {
			m.settle(m.now)
		}
	}
	m.rest()
	for i := range parts {
		n := int64(i)
		ref := head.Ref{Job: 1, Task: -1, Tasks: fmt.Sprintf("%d-99999:%d", 10_000+i, parts+1)}
		m.core.Handle(m.now, head.Change{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: ref, Action: head.Prioritise, Priority: api.Priority{Nice: &n}})
		m.settle(m.now)
	}
	m.rest()
	for _, r := range []struct{ name, tasks string }{
		{"a range", "20000-90000"}, {"every second", "20001-90000:2"}, {"every third", "20000-90000:3"}, {"a sparse list", manyRuns()}, {"one of many", "77777"}, {"none", "1000000-1000100"},
	} {
		name := of + " " + r.name
		m.change(name+" hold", head.Hold, r.tasks)
		m.change(name+" release", head.Release, r.tasks)
		m.change(name+" nice", head.Prioritise, r.tasks)
		m.change(name+" requeue", head.RequeueJob, r.tasks)
		m.change(name+" suspend", head.SuspendJob, r.tasks)
		m.change(name+" limit", head.LimitDevices, r.tasks)
		m.that(name+" signal", func() {
			m.core.Handle(m.now, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: 1, Task: -1, Tasks: r.tasks}, Signal: 10})
		})
		m.look(name+" look", func() { m.core.JobFrom(m.now, head.Ref{Job: 1, Task: -1, Tasks: r.tasks}, 0, 500) })
		m.look(name+" look further", func() { m.core.JobFrom(m.now, head.Ref{Job: 1, Task: -1, Tasks: r.tasks}, 50_000, 500) })
	}
	m.change(of+" all hold", head.Hold, "")
	m.change(of+" all release", head.Release, "")
	m.change(of+" all nice", head.Prioritise, "")
	m.change(of+" all requeue", head.RequeueJob, "")
	m.look(of+" look all", func() { m.core.JobFrom(m.now, head.Ref{Job: 1, Task: -1}, 0, 500) })
	m.look(of+" look one", func() { m.core.Job(m.now, head.Ref{Job: 1, Task: 99_999}) })
	for _, f := range []head.Filter{{}, {User: "alice"}, {States: []api.State{api.Running}}, {Node: "n00000"}, {Name: "x"}} {
		for next, page := uint64(0), 0; page == 0 || next > 0 && page < 5; page++ {
			m.look(fmt.Sprintf("%s list %v %d", of, f, page), func() { _, next = m.core.JobsFrom(m.now, f, next, 500) })
		}
	}
	m.look(of+" priorities", func() { m.core.Priorities(0, 500) })
	m.look(of+" nodes", func() { m.core.NodesFrom(m.now, 0, 1000) })
	m.look(of+" usage", func() { m.core.Usage(m.now) })
	m.look(of+" picture", func() { m.core.Picture(m.now) })
	m.that("greet", func() { m.greetOne("new", 32) })
	m.that("greet again", func() { m.greetOne("new", 32) })
	m.that("greet changed", func() { m.greetOne("new", 31) })
	m.that("greet one user's", func() { m.greetOne("alice's", 31) })
	m.that("hung up", func() { m.core.Handle(m.now, head.HungUp{Session: 1}) })
	m.that("drain", func() {
		m.core.Handle(m.now, head.Node{Caller: head.Caller{Request: 1, User: "root"}, Nodes: []string{"n00001"}, Action: head.DrainNode})
	})
	for job, tasks := range m.running {
		for _, s := range tasks {
			m.that(of+" a task ends", func() {
				m.core.Handle(m.now, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
			})
		}
		delete(m.running, job)
		if len(m.running)%50 == 0 {
			break
		}
	}
	hundred := "0-99999"
	m.submits("after "+of, "-n1", "--dependency=after:1")
	m.submits("array after "+of, "-n1", "--array="+hundred, "--dependency=afterok:1")
	m.submits("array aftercorr "+of, "-n1", "--array="+hundred, "--dependency=aftercorr:1")
	m.submits("shifted array aftercorr "+of, "-n1", "--array=1-100000", "--dependency=aftercorr:1")
	m.submits("stepped array aftercorr "+of, "-n1", "--array=0-199998:2", "--dependency=aftercorr:1")
	m.submits("sparse array aftercorr "+of, "-n1", "--array="+manyRuns(), "--dependency=aftercorr:1")
	m.submits("twice aftercorr "+of, "-n1", "--array="+hundred, "--dependency=aftercorr:1,aftercorr:1")
	m.submits("singleton array", "-n1", "-Jx", "--array="+hundred, "--dependency=singleton")
	m.submits("limited array", "-n1", "--array="+hundred+"%3")
	m.submits("sparse array", "-n1", "--array="+manyRuns())
	m.submits("array with begin", "-n1", "--array="+hundred, "--begin=now+1hour")
	m.submits("array with deadline", "-n1", "--array="+hundred, "--deadline=now+2hour", "-t1")
	m.submits("options repeated", slices.Repeat([]string{"-k"}, 20_000)...)
	m.submits("dependencies", "-n1", "--dependency=afterany"+strings.Repeat(":2", 30_000))
	m.submits("dependencies on tasks", "-n1", "--dependency=afterany"+terms(6000))
	m.submits("array with dependencies on tasks", "-n1", "--array=0-9", "--dependency=afterok"+terms(6000))
	m.submits("exclude all", "-n1", "--exclude="+everyNode(nodes, 1))
	m.submits("exclude half", "-n1", "--exclude="+everyNode(nodes, 2))
	m.submits("array exclude half", "-n1", "--array="+hundred, "--exclude="+everyNode(nodes, 2))
	m.submits("nodelist half", fmt.Sprint("-N", nodes/2), "--nodelist="+everyNode(nodes, 2))
	m.submits("exclude one often", "-n1", "--exclude="+strings.Repeat("n00001,", 9000)+"n00001")
	m.submits("alternatives", append([]string{"-n1"}, slices.Repeat([]string{"--or", "-n2"}, 10)...)...)
	m.that("task of it ends after that", func() {
		for job, tasks := range m.running {
			for _, s := range tasks {
				m.core.Handle(m.now, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
			}
			delete(m.running, job)
			break
		}
	})
	m.now += time.Hour
	m.that("begin time of an array", func() { m.core.Handle(m.now, head.Tick{}) })
	m.now += time.Hour
	m.that("deadline of an array", func() { m.core.Handle(m.now, head.Tick{}) })
	cancel := func(name, tasks string) {
		m.that(of+" cancel "+name, func() {
			m.core.Handle(m.now, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: 1, Task: -1, Tasks: tasks}})
		})
	}
	cancel("one", "60000")
	cancel("few", "60010-60020")
	cancel("third", "60000-70000:3")
	cancel("sparse", manyRuns())
	cancel("range", "20000-50000")
	cancel("every second", "0-99999:2")
	cancel("all", "")
	m.now += time.Hour
	m.that("forget", func() { m.core.Handle(m.now, head.Tick{}) })
}

func (m *longest) greetOne(name string, cores int) {
	hello := agent.Hello{Version: agent.Version, Node: name, Incarnation: "1", Cores: cores, Memory: 128 << 30, Gateway: "g:1"}
	if name == "alice's" {
		hello.User = "alice"
	}
	m.core.Handle(m.now, head.Greeted{Session: head.Session(1_000_000 + cores), Hello: hello})
}

func terms(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ":1_%d", 90_000+i)
	}
	return b.String()
}

func everyNode(nodes, step int) string {
	var list []string
	for i := 0; i < nodes && len(list) < 6000; i += step {
		list = append(list, fmt.Sprintf("n%05d", i))
	}
	return strings.Join(list, ",")
}

// BenchmarkEvents prints what the longest events cost.
func BenchmarkEvents(b *testing.B) {
	for _, scene := range []struct {
		of           string
		parts, nodes int
	}{{"one part", 0, 100}, {"900 parts", 900, 100}, {"900 parts on few nodes", 900, 4}, {"many nodes", 0, 10_000}} {
		b.Run(strings.ReplaceAll(scene.of, " ", "-"), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			m := &longest{least: map[string]time.Duration{}, what: map[string]string{}}
			for b.Loop() {
				m.live = newLive(b, "easy")
				m.play(scene.of, scene.parts, scene.nodes, "0-99999")
			}
			names := make([]string, 0, len(m.least))
			for name := range m.least {
				names = append(names, name)
			}
			slices.SortFunc(names, func(x, y string) int { return int(m.least[y] - m.least[x]) })
			for _, name := range names[:min(40, len(names))] {
				fmt.Printf("%7.2f ms %s (%s)\n", ms(m.least[name]), name, m.what[name])
			}
			b.ReportMetric(ms(m.least[names[0]]), "ms-longest")
		})
	}
}
