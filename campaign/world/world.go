package world

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"muster/campaign/content"
	"muster/head"
	"muster/policy/catalog"
	"muster/wire/api"
)

// Config describes one run.
type Config struct {
	Seed  uint64
	Nodes int
	// Hours is the time during which there are faults and submissions.
	Hours float64
	// Jobs is the mean number of submissions per hour, by all users together.
	Jobs float64
	// Faults is the mean number of faults per hour.
	Faults float64
	// Repeat is the fraction of messages that arrive twice.
	Repeat float64
	// Reorder is the fraction of messages that may overtake others or be overtaken. Real
	// connections keep the order; the cores depend on it only for loans.
	Reorder float64
	// Content is the mean number of pieces of hostile and odd content per hour. A world with
	// content has more GPUs than a grant holds devices.
	Content float64
	Pieces  []content.Kind // kinds of content; nil for all
	Policy  string
	// Trace, if set, receives a line for each event.
	Trace func(string)
}

// Result is the outcome of a run.
type Result struct {
	Events                           int
	Submitted, Completed, Lost, Rest int
	Crashes                          map[string]int
	Content                          map[content.Kind]int
	Accepted, Refused                int // of Content
	Unsent                           int // messages that the head did not send, because agents would refuse them
}

// home is the directory of all jobs but the attacker's.
const home = "/home"

// start is the Unix time at which the world begins. It is not 0, so that uninitialized times are
// noticed.
const start = time.Duration(1_700_000_000) * time.Second

// World is the state of a cluster.
type World struct {
	Config
	rng    *rand.Rand
	now    time.Duration
	events eventHeap
	turn   uint64
	err    error

	head    *headHost
	changed []*host // hosts that changed since the last check
	hosts   []*host
	users   []string
	jobs    map[uint64]*submitted // acknowledged jobs
	keys    map[string]uint64     // the job of each submission, by the submission's key
	began   map[string]int        // how often each task's processes were started
	ran     map[string]int        // how often they ran to their end
	result  Result
	quiet   bool // there are no more faults

	odd     *content.Source
	oddJobs map[uint64]bool // accepted jobs of the attacker that may not be over
	lastOdd string
}

// submitted is a job that its user knows about.
type submitted struct {
	user  string
	tasks int
}

type event struct {
	at   time.Duration
	turn uint64
	do   func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].turn < h[j].turn
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// after schedules an event.
func (w *World) after(d time.Duration, do func()) {
	w.turn++
	heap.Push(&w.events, event{w.now + d, w.turn, do})
}

// delay draws a random time with the given mean.
func (w *World) delay(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}

func (w *World) chance(p float64) bool { return w.rng.Float64() < p }

// trace reports an event to Trace.
func (w *World) trace(format string, args ...any) {
	if w.Trace != nil {
		w.Trace(fmt.Sprintf("%12.3f ", (w.now-start).Seconds()) + fmt.Sprintf(format, args...))
	}
}

// fail records the first violation.
func (w *World) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("seed %d, at %.3f s: %s", w.Seed, (w.now - start).Seconds(), fmt.Sprintf(format, args...))
		w.trace("FAILED: %v", w.err)
	}
}

// Run plays a world, and returns the first violation as an error.
func Run(cfg Config) (*Result, error) {
	w := &World{
		Config: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6d7573746572)), now: start,
		jobs: map[uint64]*submitted{}, keys: map[string]uint64{}, began: map[string]int{}, ran: map[string]int{},
		users: []string{"alice", "bob", "carol"}, odd: content.New(cfg.Seed, 1), oddJobs: map[uint64]bool{},
	}
	w.odd.Most, w.odd.Only = 64<<10, cfg.Pieces
	w.result.Crashes = map[string]int{}
	if _, err := catalog.New(cfg.Policy); err != nil {
		return nil, err
	}
	w.head = newHeadHost(w)
	for i := range cfg.Nodes {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	w.head.boot()
	for _, h := range w.hosts {
		h := h
		w.after(w.delay(time.Second), h.boot)
	}
	w.after(w.delay(time.Second), w.submitSome)
	w.after(w.delay(time.Minute), w.someFault)
	if cfg.Content > 0 {
		w.after(w.delay(time.Minute), w.sendOdd)
	}
	end := start + time.Duration(cfg.Hours*float64(time.Hour))
	w.run(end)
	w.quiet = true
	w.trace("quiet")
	for _, h := range w.hosts {
		h.heal()
	}
	w.head.heal()
	for _, id := range sortedKeys(w.oddJobs) {
		w.cancelOdd(id)
	}
	w.run(end + calmTime)
	if w.err == nil {
		w.checkEnd()
	}
	return &w.result, w.err
}

// calmTime is the time for the world to become quiet at the end. It is longer than the longest job,
// and than a node may be away.
const calmTime = 40 * time.Hour

func (w *World) run(until time.Duration) {
	for w.err == nil && len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.result.Events++
		w.guard(e.do)
		w.check()
	}
	w.now = max(w.now, until)
}

// guard turns a panic into a violation.
func (w *World) guard(do func()) {
	defer func() {
		if r := recover(); r != nil {
			w.fail("panic: %v\n%s", r, stack())
		}
	}()
	do()
}

// ---- users ----

func (w *World) submitSome() {
	if w.quiet {
		return
	}
	w.after(w.delay(time.Duration(float64(time.Hour)/w.Jobs)), w.submitSome)
	user := w.users[w.rng.IntN(len(w.users))]
	if w.chance(0.15) && len(w.jobs) > 0 {
		w.meddle(user)
		return
	}
	w.submit(user, w.submission(), fmt.Sprintf("key%d", w.rng.Uint64()))
}

// submission draws a user's submission.
func (w *World) submission() api.Submission {
	pick := func(choices ...string) string { return choices[w.rng.IntN(len(choices))] }
	options := []string{"-n" + pick("1", "1", "2", "4"), "--time=" + pick("10", "60", "240")}
	switch w.rng.IntN(8) {
	case 0:
		options = append(options, "--gres=gpu:1")
	case 1:
		options = append(options, "--gres=rgpu:"+pick("1", "2"))
	case 2:
		options = append(options, "--gres=rgpu:1:1G", "--rcuda-mode=shar")
	case 3:
		options = append(options, "-N"+pick("2", "3"))
	case 4:
		options = append(options, "--array=0-"+pick("3", "7")+"%2")
	}
	if w.chance(0.2) {
		options = append(options, "--requeue")
	}
	if w.chance(0.1) {
		options = append(options, "--hold")
	}
	if id, ok := w.someJob(); ok && w.chance(0.1) {
		options = append(options, fmt.Sprintf("--dependency=%s:%d", pick("afterok", "afterany", "afternotok", "after"), id))
	}
	s := api.Submission{Options: options, Directory: home}
	run := fmt.Sprintf("%d", 1+w.rng.IntN(3600))
	exit := pick("0", "0", "0", "1")
	if w.chance(0.3) {
		s.Script, s.Arguments = "#!/bin/sh\nrun\n", []string{run, exit}
	} else {
		s.Arguments = []string{run, exit}
	}
	return s
}

func (w *World) someJob() (uint64, bool) {
	if len(w.jobs) == 0 {
		return 0, false
	}
	ids := sortedKeys(w.jobs)
	return ids[len(ids)-1-w.rng.IntN(min(len(ids), 20))], true
}

// submit repeats a submission until the head answers. Its key prevents duplicates.
func (w *World) submit(user string, s api.Submission, key string) {
	s.Key = key
	answered := false
	w.head.ask(func(r head.Request) head.Event {
		return head.Submit{Caller: head.Caller{Request: r, User: user}, Submission: s, Secret: fmt.Sprintf("secret%d", w.rng.Uint64())}
	}, func(a head.Answer) {
		if !w.quiet && w.chance(w.Repeat) {
			return // the answer is lost, and the user repeats the submission
		}
		answered = true
		if a.Err != nil {
			w.trace("refused: %s", a.Err.Reason)
			return
		}
		done := a.Result.(*api.Submitted)
		if old := w.keys[key]; old != 0 && old != done.Job {
			w.fail("one submission became jobs %d and %d", old, done.Job)
		}
		w.keys[key] = done.Job
		if old := w.jobs[done.Job]; old == nil {
			w.jobs[done.Job] = &submitted{user, max(1, done.Tasks)}
			w.result.Submitted += max(1, done.Tasks)
		} else if old.user != user {
			w.fail("job %d was given to two users", done.Job)
		}
		w.trace("%s submitted job %d (%d tasks): %s", user, done.Job, done.Tasks, strings.Join(s.Options, " "))
		if slices.Contains(s.Options, "--hold") { // a held job is released eventually, so that it can end
			w.after(w.delay(time.Hour), func() { w.insist(head.Ref{Job: done.Job, Task: -1}, head.Release) })
		}
	})
	w.after(10*time.Second, func() {
		if !answered {
			w.submit(user, s, key)
		}
	})
}

// meddle makes a user change a job, which may be another user's.
func (w *World) meddle(user string) {
	id, _ := w.someJob()
	ref := head.Ref{Job: id, Task: -1}
	what := w.rng.IntN(7)
	w.trace("%s meddles with job %d: %d", user, id, what)
	w.head.ask(func(r head.Request) head.Event {
		caller := head.Caller{Request: r, User: user}
		switch what {
		case 0, 1:
			return head.Cancel{Caller: caller, Jobs: ref}
		case 2:
			return head.Change{Caller: caller, Jobs: ref, Action: head.Hold}
		case 3:
			return head.Change{Caller: caller, Jobs: ref, Action: head.SuspendJob}
		case 4:
			return head.Change{Caller: caller, Jobs: ref, Action: head.ResumeJob}
		case 5:
			return head.Change{Caller: caller, Jobs: ref, Action: head.RequeueJob}
		}
		return head.Change{Caller: caller, Jobs: ref, Action: head.LimitDevices, Limit: w.rng.IntN(3) - 1}
	}, func(head.Answer) {})
	if what == 2 { // a held job is released eventually, so that it can end
		w.after(w.delay(time.Hour), func() { w.insist(ref, head.Release) })
	}
	if what == 3 {
		w.after(w.delay(time.Hour), func() { w.insist(ref, head.ResumeJob) })
	}
}

// insist repeats a request until nothing of the job is held or suspended any longer.
func (w *World) insist(ref head.Ref, action head.Action) {
	w.head.ask(func(r head.Request) head.Event {
		return head.Change{Caller: head.Caller{Request: r, User: "root"}, Jobs: ref, Action: action}
	}, func(head.Answer) {})
	w.after(time.Minute, func() {
		if w.head.core == nil {
			w.insist(ref, action)
			return
		}
		docs, _, _ := w.head.core.JobFrom(w.now, ref, 0, math.MaxInt)
		if slices.ContainsFunc(docs, func(d api.Job) bool { return d.Held || d.State == api.Suspended }) {
			w.insist(ref, action)
		}
	})
}

// ---- faults ----

func (w *World) someFault() {
	if w.quiet {
		return
	}
	w.after(w.delay(time.Duration(float64(time.Hour)/w.Faults)), w.someFault)
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	down := w.delay(5 * time.Minute)
	if w.chance(0.1) {
		down = w.delay(2 * time.Hour)
	}
	what := ""
	switch w.rng.IntN(11) {
	case 10:
		what = "link half-open"
		h.halfOpen()
	case 0:
		what = "head killed"
		w.head.crash()
		w.after(w.delay(20*time.Second), w.head.boot)
	case 1:
		what = "head's disk fails"
		w.head.diskFails = true
	case 2, 3:
		what = "link cut"
		h.cut(down)
	case 4:
		what = "connection broken"
		h.breakConnection()
	case 5, 6:
		what = "agent killed"
		h.crash()
		w.after(w.delay(10*time.Second), h.boot)
	case 7:
		what = "machine dies"
		h.die()
		w.after(down, h.boot)
	case 8:
		what = "supervisor killed"
		h.killSupervisor()
	case 9:
		what = "spool lost"
		if !w.chance(0.3) {
			what = "device drained"
			h.flipDevice()
			break
		}
		h.die()
		h.wipe()
		w.after(down, h.boot)
	}
	w.trace("fault: %s (%s)", what, h.name)
	w.result.Crashes[what]++
}
