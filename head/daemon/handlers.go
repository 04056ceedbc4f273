package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/head"
	"muster/head/store"
	"muster/internal/units"
	"muster/model"
	"muster/policy"
	"muster/policy/history"
	"muster/wire/api"
)

// failed replaces an error by the reason for the daemon's end, if the daemon has failed.
func (q *request) failed(err error) error {
	select {
	case <-q.dead:
		return refuse(http.StatusServiceUnavailable, "%v", q.reason)
	default:
		return err
	}
}

// see calls a function with the core, in the loop's goroutine.
func (q *request) see(look func(core *head.Core, now time.Duration)) error {
	if err := q.look(q.r.Context(), q.who.user, func(core *head.Core) { look(core, q.now()) }); err != nil {
		return q.failed(err)
	}
	return nil
}

// one lets the core handle an event, and returns its answer.
func (q *request) one(event func(head.Caller) head.Event) (any, error) {
	answers, err := q.ask(q.r.Context(), q.who.user, func(first head.Request) []head.Event {
		return []head.Event{event(head.Caller{Request: first, User: q.who.user})}
	}, 1)
	if err != nil {
		return nil, q.failed(err)
	}
	if answers[0].Err != nil {
		return nil, answers[0].Err
	}
	return answers[0].Result, nil
}

// body decodes a small document from the request's body.
func (q *request) body(into any) error {
	text, free, err := q.bodies.body(q.w, q.r, q.who.user, maxBody)
	defer free()
	if err != nil {
		return err
	}
	return strictly(text, into)
}

func serveCluster(q *request) (any, error) {
	var info api.Cluster
	err := q.see(func(core *head.Core, now time.Duration) {
		info = core.Info(now)
		info.Admin = core.IsAdmin(q.who.user)
		if names := core.UnknownNodes(); len(names) > 0 {
			info.Problems = []string{fmt.Sprintf("the head's configuration (nodes) names %s, and no node of that name has come", model.CompressNodes(names))}
		}
	})
	info.User, info.Version, info.Up = q.who.user, q.Version, q.Now().Sub(q.began).Seconds()
	info.Problems = append(info.Problems, q.problems()...)
	return info, err
}

func serveSubmit(q *request) (any, error) {
	text, free, err := q.bodies.body(q.w, q.r, q.who.user, maxSubmitBody)
	defer free()
	if err != nil {
		return nil, err
	}
	list, isList, err := submissions(text)
	if err != nil {
		return nil, err
	}
	if q.who.page && slices.ContainsFunc(list, func(s api.Submission) bool { return s.User != "" }) {
		return nil, refuse(http.StatusForbidden, "a page submits jobs of the user who has signed in alone: leave user out, or use the command line")
	}
	answers, err := q.ask(q.r.Context(), q.who.user, func(first head.Request) []head.Event {
		events := make([]head.Event, len(list))
		for i := range list {
			events[i] = head.Submit{Caller: head.Caller{Request: first + head.Request(i), User: q.who.user}, Submission: list[i], Secret: rand.Text()}
		}
		return events
	}, len(list))
	if err != nil {
		return nil, q.failed(err)
	}
	if !isList {
		if answers[0].Err != nil {
			return nil, answers[0].Err
		}
		return answers[0].Result, nil
	}
	done := make([]api.Submitted, len(answers))
	for i, a := range answers {
		switch result := a.Result.(type) {
		case *api.Submitted:
			done[i] = *result
		default:
			done[i].Error = a.Err.Reason
		}
	}
	return done, nil
}

// public removes from jobs what only their users and administrators may see.
func public(jobs []api.Job, user string, admin bool) []api.Job {
	if admin {
		return jobs
	}
	for i := range jobs {
		if jobs[i].User != user {
			jobs[i] = jobs[i].ForOthers()
		}
	}
	return jobs
}

func serveJobs(q *request) (any, error) {
	f := head.Filter{User: q.query.text("user"), States: q.query.states("state"), Node: q.query.text("node"), Name: q.query.text("name"), Account: q.query.text("account")}
	if q.query.err != nil {
		return nil, q.query.err
	}
	if q.query.text("job") != "" {
		return q.someJobs(f)
	}
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	jobs, err := q.jobs(q.r.Context(), q.who.user, f)
	if err != nil {
		return nil, q.failed(err)
	}
	return api.Jobs{Jobs: public(jobs, q.who.user, admin)}, nil
}

// maxNamed is how many jobs a request may name.
const maxNamed = 100

// someJobs lists the jobs that a request names. Other than in a list of all jobs, the policy is
// asked about each of them. Jobs that the core has forgotten are left out.
func (q *request) someJobs(f head.Filter) (any, error) {
	if f.User != "" || f.States != nil || f.Node != "" || f.Name != "" || f.Account != "" {
		return nil, refuse(http.StatusBadRequest, "?job= names jobs, and nothing else can choose among them")
	}
	names := strings.Split(q.query.text("job"), ",")
	if len(names) > maxNamed {
		return nil, refuse(http.StatusBadRequest, "?job= names %d jobs: give at most %d", len(names), maxNamed)
	}
	refs := make([]head.Ref, 0, len(names))
	for _, name := range names {
		named, err := ref(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(refs, named) {
			refs = append(refs, named)
		}
	}
	list := api.Jobs{Jobs: []api.Job{}}
	admin := false
	for _, name := range refs {
		jobs, _, is, err := q.tasksOf(name)
		if err != nil {
			return nil, err
		}
		list.Jobs, admin = append(list.Jobs, jobs...), is
	}
	list.Jobs = public(list.Jobs, q.who.user, admin)
	return list, nil
}

// job parses the job that the path names.
func (q *request) job() (head.Ref, error) { return ref(q.r.PathValue("id")) }

func serveJob(q *request) (any, error) {
	name, err := q.job()
	if err != nil {
		return nil, err
	}
	jobs, known, admin, err := q.tasksOf(name)
	if err != nil {
		return nil, err
	}
	if !known {
		if jobs, err = q.past(name); err != nil {
			return nil, err
		}
	}
	jobs = public(jobs, q.who.user, admin)
	if len(jobs) == 1 {
		return jobs[0], nil
	}
	return api.Jobs{Jobs: jobs}, nil
}

// tasksOf asks the core for a job, or tasks of an array, and whether the user administers the cluster.
// Others have turns with the core in between: it may be a large array.
func (q *request) tasksOf(name head.Ref) (jobs []api.Job, known, admin bool, err error) {
	count := 0
	err = eachPage(func(first uint64) (uint64, error) {
		var some []api.Job // of this page alone: the core may still make it after an error
		var next uint64
		var there, rights bool
		if err := q.see(func(core *head.Core, now time.Duration) {
			some, next, there = core.JobFrom(now, name, first, jobsAtOnce)
			rights = core.IsAdmin(q.who.user)
		}); err != nil {
			return 0, err
		}
		jobs, known, admin = append(jobs, some...), known || there, rights
		count++
		return next, nil
	})
	if count > 1 {
		jobs = once(jobs)
	}
	return jobs, known, admin, err
}

// past looks up a job that the core has forgotten.
func (q *request) past(name head.Ref) ([]api.Job, error) {
	jobs, err := q.store.EndedAll(name.Job, name.Task)
	if errors.Is(err, store.ErrNoSuch) {
		return nil, refuse(http.StatusNotFound, "there is no job %s", q.r.PathValue("id"))
	}
	return jobs, err
}

func serveCancel(q *request) (any, error) {
	name, err := q.job()
	signal := q.query.signal("signal")
	if err = cmp.Or(err, q.query.err); err != nil {
		return nil, err
	}
	return q.one(func(c head.Caller) head.Event { return head.Cancel{Caller: c, Jobs: name, Signal: signal} })
}

// changer serves one of the actions on jobs.
func changer(action head.Action) func(*request) (any, error) {
	return func(q *request) (any, error) {
		name, err := q.job()
		if err != nil {
			return nil, err
		}
		change := head.Change{Jobs: name, Action: action}
		switch action {
		case head.Prioritise:
			err = q.body(&change.Priority)
			if p := change.Priority; err == nil && (p.Priority == nil) == (p.Nice == nil) {
				err = refuse(http.StatusBadRequest, "give priority or nice, one of them")
			}
		case head.LimitDevices:
			limit := api.Limit{Devices: -2}
			err = q.body(&limit)
			if change.Limit = limit.Devices; err == nil && limit.Devices < -1 {
				err = refuse(http.StatusBadRequest, "give devices: how many may be used at a time, or -1 for all")
			}
		}
		if err != nil {
			return nil, err
		}
		return q.one(func(c head.Caller) head.Event { change.Caller = c; return change })
	}
}

func serveKeep(q *request) (any, error) {
	name, err := q.job()
	if err != nil {
		return nil, err
	}
	return q.one(func(c head.Caller) head.Event { return head.Keep{Caller: c, Job: name} })
}

func serveFinish(q *request) (any, error) {
	name, err := q.job()
	if err != nil {
		return nil, err
	}
	done := api.Finished{ExitCode: -1}
	if err := q.body(&done); err != nil {
		return nil, err
	}
	if done.ExitCode < 0 || done.ExitCode > 255 {
		return nil, refuse(http.StatusBadRequest, "give exit_code: an exit status from 0 to 255")
	}
	return q.one(func(c head.Caller) head.Event { return head.Finish{Caller: c, Job: name, Exit: done.ExitCode} })
}

// maxReason is how many bytes the reason for draining a node may have.
const maxReason = 1024

// nodeChanger serves one of the administrators' actions on nodes.
func nodeChanger(action head.NodeAction) func(*request) (any, error) {
	return func(q *request) (any, error) {
		ev := head.Node{Nodes: []string{q.r.PathValue("name")}, Action: action}
		if err := q.nodeChange(&ev); err != nil {
			return nil, err
		}
		answer, err := q.one(func(c head.Caller) head.Event { ev.Caller = c; return ev })
		if err == nil {
			q.log.Info("an administrator has changed a node", "user", q.who.user, "node", ev.Nodes[0], "action", action, "reason", ev.Reason, "name", ev.Name, "labels", ev.Labels, "force", ev.Force)
		}
		return answer, err
	}
}

// nodeChange reads what is said of an action on a node.
func (q *request) nodeChange(ev *head.Node) error {
	switch ev.Action {
	case head.DrainNode:
		var drain api.Drain
		if err := q.body(&drain); err != nil {
			return err
		}
		if drain.Reason == "" || len(drain.Reason) > maxReason {
			return refuse(http.StatusBadRequest, "give a reason, of at most %d bytes: users see it", maxReason)
		}
		ev.Reason = drain.Reason
	case head.RemoveNode:
		if q.r.ContentLength == 0 {
			return nil // it says nothing of force
		}
		var remove api.RemoveNode
		err := q.body(&remove)
		ev.Force = remove.Force
		return err
	case head.RenameNode:
		var rename api.RenameNode
		err := q.body(&rename)
		ev.Name = rename.Name
		return err
	case head.LabelNode:
		var label api.LabelNode
		if err := q.body(&label); err != nil {
			return err
		}
		if ev.Labels = label.Labels; len(ev.Labels) == 0 {
			return refuse(http.StatusBadRequest, "give a label, as {\"labels\": {\"rack\": \"r3\"}}")
		}
	}
	return nil
}

func serveNodes(q *request) (any, error) {
	list := api.Nodes{Nodes: []api.Node{}}
	listed := map[string]int{}
	var asked time.Duration
	err := eachPage(func(first uint64) (uint64, error) {
		var some []api.Node // of this page alone, as in jobs
		var next int
		var at time.Duration
		err := q.see(func(core *head.Core, now time.Duration) {
			some, next = core.NodesFrom(now, int(first), nodesAtOnce)
			at = now
		})
		if err != nil {
			return 0, err
		}
		for _, n := range some {
			if i, twice := listed[n.Name]; twice { // it got another number after it was listed
				list.Nodes[i] = n
				continue
			}
			listed[n.Name] = len(list.Nodes)
			list.Nodes = append(list.Nodes, n)
		}
		asked = at
		return uint64(next), nil
	})
	slices.SortFunc(list.Nodes, func(a, b api.Node) int { return model.CompareNodes(a.Name, b.Name) })
	q.refusals.show(&list, q.Now())
	for i := range list.Nodes {
		if n := &list.Nodes[i]; !n.Connected && n.Reason == "" {
			n.Reason = unheard(max(asked-time.Duration(n.Since*float64(time.Second)), 0), q.cfg.Core.NodeTimeout, n.Left)
		}
	}
	return list, err
}

// unheard is why a node is down that nobody has drained or refuses.
func unheard(since, timeout time.Duration, left string) string {
	reason := "not heard of for " + units.FormatDuration(since.Truncate(time.Second))
	if left != "" {
		reason += ": " + left
	}
	if since < timeout {
		reason += "; its jobs are given up after " + units.FormatDuration(timeout)
	}
	return reason
}

func serveNode(q *request) (any, error) {
	all, err := serveNodes(q)
	if err != nil {
		return nil, err
	}
	nodes, name := all.(api.Nodes).Nodes, q.r.PathValue("name")
	i := slices.IndexFunc(nodes, func(n api.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, refuse(http.StatusNotFound, "there is no node %.80s", name)
	}
	return nodes[i], nil
}

func serveHistory(q *request) (any, error) {
	f := store.Filter{Since: q.query.instant("since"), Until: q.query.instant("until"), User: q.query.text("user")}
	after := q.query.number("after", 0, 1<<63)
	limit := q.query.number("limit", 1000, store.MaxPage)
	if q.query.err != nil {
		return nil, q.query.err
	}
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	jobs, next, err := q.store.History(after, int(limit), f)
	if errors.Is(err, store.ErrNoSuch) {
		return nil, refuse(http.StatusNotFound, "?after=%d: no job of that number has ended", after)
	}
	return api.Jobs{Jobs: public(jobs, q.who.user, admin), Next: next}, err
}

func servePartitions(q *request) (any, error) {
	var list api.Partitions
	err := q.see(func(core *head.Core, _ time.Duration) { list.List = core.Partitions() })
	return list, err
}

func serveUsage(q *request) (any, error) {
	var u api.Usage
	err := q.see(func(core *head.Core, now time.Duration) { u.Lines = core.Usage(now) })
	return u, err
}

func servePriorities(q *request) (any, error) {
	p := api.Priorities{Jobs: []api.JobPriority{}}
	err := eachPage(func(first uint64) (uint64, error) {
		var some []api.JobPriority
		var next uint64
		if err := q.see(func(core *head.Core, _ time.Duration) { some, next = core.Priorities(first, jobsAtOnce) }); err != nil {
			return 0, err
		}
		p.Jobs = append(p.Jobs, some...)
		return next, nil
	})
	return p, err
}

func serveOpenAPI(q *request) (any, error) {
	q.w.Header().Set("Content-Type", "application/json")
	_, _ = q.w.Write(api.OpenAPI)
	return nil, errAnswered
}

// serveBackup writes a copy of the store. The secrets of jobs are in it, so only administrators may
// have it.
func serveBackup(q *request) (any, error) {
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	if !admin {
		return nil, refuse(http.StatusForbidden, "only administrators may copy what the head has on disk")
	}
	q.w.Header().Set("Content-Type", "application/octet-stream")
	q.log.Info("a backup is written", "user", q.who.user)
	if _, err := q.store.WriteTo(&patientWriter{q.w, q.cfg.Connections.Request}); err != nil {
		q.log.Warn("a backup was not written to its end", "user", q.who.user, "error", err)
		panic(http.ErrAbortHandler) // the client must not take it for complete
	}
	return nil, errAnswered
}

// serveSnapshot writes what the policy knows, and what a fresh instance of the policy, which
// remembers nothing, decides on that: one step that can be replayed. The loop only makes the
// snapshot; replaying it happens here, since it may take long.
func serveSnapshot(q *request) (any, error) {
	var known bytes.Buffer
	var at time.Duration
	var failed error
	admin := false
	if err := q.see(func(core *head.Core, now time.Duration) {
		if admin = core.IsAdmin(q.who.user); admin {
			at, failed = core.Snapshot(now, &known, q.header())
		}
	}); err != nil {
		return nil, err
	}
	if !admin {
		return nil, refuse(http.StatusForbidden, "only administrators may have all that the policy knows")
	}
	if failed != nil {
		return nil, failed
	}
	state, err := history.Restore(&known, func(string) (policy.Policy, error) { return q.freshPolicy() })
	if err != nil {
		return nil, fmt.Errorf("the snapshot cannot be played: please report this: %w", err)
	}
	q.w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriter(&patientWriter{q.w, q.cfg.Connections.Request})
	recorder := history.Record(out, q.header(), state)
	state.Step(at)
	if err := cmp.Or(recorder.Err(), out.Flush()); err != nil {
		panic(http.ErrAbortHandler) // the client must not take it for complete
	}
	return nil, errAnswered
}

// patientWriter sets a new deadline for each part of an answer.
type patientWriter struct {
	w        http.ResponseWriter
	patience time.Duration
}

var _ io.Writer = (*patientWriter)(nil)

func (p *patientWriter) Write(b []byte) (int, error) {
	_ = http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.patience))
	return p.w.Write(b)
}
