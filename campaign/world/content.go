package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"muster/campaign/content"
	"muster/head"
	"muster/wire/agent"
	"muster/wire/api"
)

// attacker is the user who sends hostile and odd content. Whatever she sends must harm nobody else.
const attacker = "mallory"

// Bounds of what one event may cost the head, whatever it is: the loop serves nobody else meanwhile.
const (
	maxRecords = 4096     // written for one batch of events
	maxBytes   = 32 << 20 // of these
	maxHeld    = 200_000  // records of jobs that have not ended
)

// limitsOfAttacker let her jobs run, and not take the whole cluster.
var limitsOfAttacker = head.Limits{Running: 4, Cores: 8}

// sendOdd sends a piece of content.
func (w *World) sendOdd() {
	if w.quiet {
		return
	}
	w.after(w.delay(time.Duration(float64(time.Hour)/w.Content)), w.sendOdd)
	if len(w.jobs) > 0 {
		id, _ := w.someJob()
		w.odd.Jobs = []uint64{id}
	}
	if w.odd.IntN(6) == 0 {
		w.oddChange()
		return
	}
	kind, doc := w.odd.Submission()
	// The head is told what a decoder of JSON makes of it.
	text, err := json.Marshal(doc)
	var decoded api.Submission
	if err == nil {
		err = json.Unmarshal(text, &decoded)
	}
	if err != nil {
		w.fail("the world cannot encode its own submission: %v", err)
		return
	}
	user := attacker
	if kind == content.Whose && w.odd.IntN(3) == 0 {
		user = "root" // an administrator may submit in others' names
	}
	w.lastOdd = fmt.Sprintf("%s: options %.300q, user %.40q", kind, decoded.Options, decoded.User)
	w.count(kind)
	w.trace("odd content: %s", w.lastOdd)
	w.askOdd(func(r head.Request) head.Event {
		return head.Submit{Caller: head.Caller{Request: r, User: user}, Submission: decoded, Secret: fmt.Sprintf("odd%d", w.result.Submitted)}
	})
}

// oddChange makes the attacker change a job of another user, or one that is not there.
func (w *World) oddChange() {
	ref := head.Ref{Job: uint64(w.odd.Count()), Task: -1}
	kind := content.Number
	if len(w.odd.Jobs) > 0 && w.odd.IntN(2) == 0 {
		kind, ref.Job = content.Whose, w.odd.Jobs[0]
	}
	if w.odd.IntN(3) == 0 {
		ref.Task = w.odd.Count()
	}
	priority, nice := w.odd.Count(), w.odd.Count()
	action := []head.Action{head.Hold, head.Release, head.SuspendJob, head.ResumeJob, head.RequeueJob, head.Prioritise, head.LimitDevices, "odd"}[w.odd.IntN(8)]
	limit, signal := int(w.odd.Count()), int(w.odd.Count())
	w.lastOdd = fmt.Sprintf("%s: %s of job %d_%d", kind, action, ref.Job, ref.Task)
	w.count(kind)
	w.askOdd(func(r head.Request) head.Event {
		caller := head.Caller{Request: r, User: attacker}
		if action == "odd" {
			return head.Cancel{Caller: caller, Jobs: ref, Signal: signal}
		}
		return head.Change{Caller: caller, Jobs: ref, Action: action, Priority: api.Priority{Priority: &priority, Nice: &nice}, Limit: limit}
	})
}

func (w *World) count(k content.Kind) {
	if w.result.Content == nil {
		w.result.Content = map[content.Kind]int{}
	}
	w.result.Content[k]++
}

// askOdd sends a request, and notes what became of it.
func (w *World) askOdd(event func(head.Request) head.Event) {
	w.head.ask(event, func(a head.Answer) {
		if a.Err != nil {
			w.result.Refused++
			w.trace("refused: %.200s", a.Err.Reason)
			return
		}
		w.result.Accepted++
		if done, ok := a.Result.(*api.Submitted); ok {
			w.trace("accepted as job %d (%d tasks)", done.Job, done.Tasks)
			w.oddJobs[done.Job] = true
			// What she has submitted is cancelled after a while, so that the next piece finds room.
			w.after(w.delay(2*time.Minute), func() { w.cancelOdd(done.Job) })
		}
	})
}

// cancelOdd cancels a job of the attacker, and repeats that until it is over.
func (w *World) cancelOdd(id uint64) {
	if !w.oddJobs[id] {
		return
	}
	w.head.ask(func(r head.Request) head.Event {
		return head.Cancel{Caller: head.Caller{Request: r, User: "root"}, Jobs: head.Ref{Job: id, Task: -1}}
	}, func(a head.Answer) {
		if a.Err != nil { // it is over
			delete(w.oddJobs, id)
		}
	})
	w.after(10*time.Minute, func() { w.cancelOdd(id) })
}

// checkWork verifies that a batch of events cost the head a bounded amount of work.
func (w *World) checkWork(e *head.Effects) {
	size := 0
	for _, r := range e.Records {
		size += len(r.Key) + len(r.Value)
	}
	if held := len(w.head.disk[head.Jobs]); len(e.Records) > maxRecords || size > maxBytes || held > maxHeld {
		w.fail("the head writes %d records (%d bytes) at once, and has %d of jobs that have not ended: nobody else is served meanwhile; the last odd content: %s",
			len(e.Records), size, held, w.lastOdd)
	}
}

// toAgent is a message of the head as agents decode it, or nil if the head does not send it: then its
// core is told, as the daemon does. A message that agents cannot read would end their sessions, again
// and again. Worlds without content do without that: nothing in their messages is odd.
func (w *World) toAgent(s head.Session, m agent.ToAgent) agent.ToAgent {
	if w.Content == 0 {
		return m
	}
	text, err := agent.Encode(nil, m)
	if err != nil {
		w.result.Unsent++
		w.trace("unsent: %s %s: %v", m.Kind(), brief(m), err)
		w.head.tell(head.Unsent{Session: s, Message: m, Reason: agent.Reason(err.Error())})
		return nil
	}
	got, err := agent.ReadToAgent(bytes.NewReader(text))
	if err != nil {
		w.unreadable(m.Kind()+" "+brief(m), err)
	}
	return got
}

// toHead is a message of an agent as the head decodes it, or nil if it cannot.
func (w *World) toHead(m agent.ToHead) agent.ToHead {
	if w.Content == 0 {
		return m
	}
	text, err := agent.Encode(nil, m)
	var got agent.ToHead
	if err == nil {
		got, err = agent.ReadToHead(bytes.NewReader(text))
	}
	if err != nil {
		w.unreadable(m.Kind()+" "+brief(m), err)
	}
	return got
}

func (w *World) unreadable(message string, err error) {
	w.fail("a message %s cannot be read by those to whom it is sent, so that their session ends: %v; the last odd content: %s", message, err, w.lastOdd)
}

// WithContent describes a small world with content, by its seed.
func WithContent(seed uint64) Config {
	policies := []string{"fcfs", "easy", "first-fit", "conservative"}
	return Config{Seed: seed, Nodes: 4, Hours: 4, Jobs: 20, Faults: 4, Repeat: 0.02, Reorder: 0.05 * float64(seed%2), Content: 100, Policy: policies[seed%4]}
}

// Injected is the number of faults, pieces of content included.
func (r *Result) Injected() int {
	sum := 0
	for _, n := range r.Crashes {
		sum += n
	}
	for _, n := range r.Content {
		sum += n
	}
	return sum
}

// Line has the figures of worlds with content.
func (r *Result) Line() string {
	var parts []string
	for _, k := range sortedKeys(r.Crashes) {
		parts = append(parts, fmt.Sprintf("%s %d", k, r.Crashes[k]))
	}
	faults := strings.Join(parts, ", ")
	parts = nil
	sent := 0
	for _, k := range sortedKeys(r.Content) {
		parts = append(parts, fmt.Sprintf("%s %d", k, r.Content[k]))
		sent += r.Content[k]
	}
	return fmt.Sprintf("events=%d jobs=%d (completed %d, lost %d, waiting %d) faults (%s) content=%d (%s) accepted=%d refused=%d unsent=%d",
		r.Events, r.Submitted, r.Completed, r.Lost, r.Rest, faults, sent, strings.Join(parts, ", "), r.Accepted, r.Refused, r.Unsent)
}

// Add adds the figures of another run.
func (r *Result) Add(o *Result) {
	r.Events += o.Events
	r.Submitted += o.Submitted
	r.Completed += o.Completed
	r.Lost += o.Lost
	r.Rest += o.Rest
	r.Accepted += o.Accepted
	r.Refused += o.Refused
	r.Unsent += o.Unsent
	if r.Crashes == nil {
		r.Crashes = map[string]int{}
	}
	if r.Content == nil {
		r.Content = map[content.Kind]int{}
	}
	for k, n := range o.Crashes {
		r.Crashes[k] += n
	}
	for k, n := range o.Content {
		r.Content[k] += n
	}
}
