package head

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster/head/api"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
)

// keepKeys is how long a submission's key is remembered: a client that repeats a submission with it
// gets the first answer again.
const keepKeys = time.Hour

// The limits of one submission.
const (
	maxKey       = 128
	maxTitle     = 1024      // bytes of a job's name
	maxRecords   = 128 << 20 // bytes of all records of an array, estimated
	maxDirectory = 4096
	maxTerms     = 200_000 // terms of the dependencies of all tasks of an array, in sum
	shownCommand = 1024    // bytes of a job's command that are kept for display
)

func (c *Core) submit(ev Submit) {
	done, err := c.accept(ev)
	if err != nil {
		c.effects.Answers = append(c.effects.Answers, Answer{Request: ev.Request, Err: err})
		return
	}
	c.answer(ev.Request, done)
}

// accept makes jobs of a submission, or says why not. Nothing is changed before all checks have
// passed.
func (c *Core) accept(ev Submit) (*api.Submitted, *Refusal) {
	s := &ev.Submission
	owner := ev.User
	if s.User != "" && s.User != owner {
		if !c.IsAdmin(owner) {
			return nil, refusal(statusForbidden, "only administrators may submit in another's name: leave user out")
		}
		owner = s.User
	}
	if len(s.Key) > maxKey {
		return nil, refusal(statusBadRequest, "a key of %d bytes: give at most %d", len(s.Key), maxKey)
	}
	named := key{owner, s.Key}
	if k := c.keys[named]; s.Key != "" && k != nil {
		again := k.answer
		return &again, nil
	}
	first, tasks, err := c.read(ev, owner)
	if err != nil {
		return nil, err
	}
	if err := c.roomFor(first, max(1, len(tasks)), ev.User); err != nil {
		return nil, err
	}
	if d := first.said.Batch.Dependency; d != nil && len(d.Terms)*len(tasks) > maxTerms {
		return nil, refusal(statusBadRequest, "%d tasks that depend on %d jobs each: let one job depend on those, and the array on it", len(tasks), len(d.Terms))
	}
	if err := c.possible(first); err != nil {
		return nil, err
	}
	if err := c.mayBook(first); err != nil {
		return nil, err
	}
	done := &api.Submitted{Job: first.id, Tasks: len(tasks), Notes: first.said.Notes}
	if len(first.said.Alternatives) > 0 && !c.weigh {
		done.Notes = append(slices.Clone(done.Notes), fmt.Sprintf("policy %s does not weigh alternatives: --or is passed over", c.spec))
	}
	c.enter(first, tasks)
	c.effects.Records = append(c.effects.Records, bulkRecord(first.id, s))
	if s.Key != "" {
		c.keep(named, *done)
	}
	return done, nil
}

// read parses and checks a submission, and makes a job of it. The second result are the task
// numbers of an array.
func (c *Core) read(ev Submit, owner string) (*job, []uint32, *Refusal) {
	bad := func(format string, args ...any) (*job, []uint32, *Refusal) {
		return nil, nil, refusal(statusBadRequest, format, args...)
	}
	s := &ev.Submission
	argv := append([]string{slurmopt.Submit}, s.Options...)
	said, err := slurmopt.Parse(argv)
	if s.Script != "" {
		said, err = slurmopt.ParseScript(s.Script, argv)
	}
	if err != nil {
		return bad("%v", err)
	}
	switch {
	case len(said.Command) > 0:
		return bad("%q is no option: put what the job runs into arguments", said.Command[0])
	case s.Script == "" && len(s.Arguments) == 0:
		return bad("nothing to run: give a script or a command")
	case said.Priority != 0 && !c.IsAdmin(ev.User):
		return bad("--priority is for administrators: use --nice")
	case said.Batch.Nice < 0 && !c.IsAdmin(ev.User):
		return bad("--nice %d: only administrators may go below 0", said.Batch.Nice)
	}
	line, err := said.Format()
	if err != nil {
		return bad("%v", err)
	}
	dir := s.Directory
	if said.Batch.Directory != "" {
		dir = said.Batch.Directory
		if !path.IsAbs(dir) {
			dir = path.Join(s.Directory, dir)
		}
	}
	if !path.IsAbs(dir) || len(dir) > maxDirectory {
		return bad("the directory %.40q is no absolute path", dir)
	}
	for _, list := range [][]string{s.Environment, s.Arguments, {s.Script, dir, s.Key}} {
		for _, text := range list {
			if strings.IndexByte(text, 0) >= 0 {
				return bad("a zero byte in what the job runs")
			}
		}
	}
	for _, v := range s.Environment {
		if strings.IndexByte(v, '=') <= 0 {
			return bad("%.40q is no variable: write NAME=VALUE", v)
		}
	}
	if err := c.mayAvoid(said); err != nil {
		return bad("%v", err)
	}
	if len(said.Name) > maxTitle {
		return bad("a name of %d bytes: give at most %d", len(said.Name), maxTitle)
	}
	j := &job{
		id: c.next, task: -1, user: owner, dir: dir, key: s.Key, secret: ev.Secret, options: strings.TrimSpace(strings.TrimPrefix(line, slurmopt.Submit)), said: said, command: shown(s),
		state: api.Pending, submit: c.now, limit: -1, number: -1, nice: said.Batch.Nice,
	}
	if said.Batch.Hold {
		j.held = heldByUser
	}
	j.setPriority(said.Priority)
	if err := j.model(c).Validate(); err != nil {
		return bad("%v", err)
	}
	var tasks []uint32
	if said.Batch.Array != nil {
		tasks = said.Batch.Array.Tasks
	}
	// Each task has a record of its own, which repeats these texts.
	if each := len(j.options) + len(j.dir) + shownCommand; len(tasks) > 0 && len(tasks) > maxRecords/each {
		return bad("%d tasks with %d bytes of options, directory and command each are too much: shorten these, or submit several arrays", len(tasks), each)
	}
	return j, tasks, nil
}

// shown is the beginning of what a job runs, for display.
func shown(s *api.Submission) []string {
	var words []string
	left := shownCommand
	if s.Script != "" {
		words = append(words, scriptMark)
	}
	for _, a := range s.Arguments {
		if left -= len(a); left < 0 {
			break
		}
		words = append(words, a)
	}
	return words
}

// mayAvoid checks the nodes that a job excludes. They are removed from the job's nodes only when
// the job is offered to the policy (restrict), because nodes come and go until then.
func (c *Core) mayAvoid(said *slurmopt.Options) error {
	if len(said.Exclude) == 0 {
		return nil
	}
	var all []string
	for _, n := range c.nodes {
		if !n.removed {
			all = append(all, n.name)
		}
	}
	trial := *said
	trial.Alternatives = slices.Clone(said.Alternatives)
	return trial.Avoid(all)
}

// roomFor refuses count jobs like j if they exceed the user's limits, and sets j.need.
func (c *Core) roomFor(j *job, count int, asks string) *Refusal {
	limits := c.limits(j.user)
	u := c.user(j.user)
	if limits.Jobs > 0 && u.jobs+count > limits.Jobs {
		return refusal(statusTooManyRequests, "%s has %d jobs, and %d more are over the limit of %d: wait until some have ended", j.user, u.jobs, count, limits.Jobs)
	}
	j.need = needOf(j.said)
	over := func(what string, has, may any) *Refusal {
		return refusal(statusBadRequest, "it asks for %v %s, and %s may have %v at a time", has, what, j.user, may)
	}
	switch {
	case limits.GPUs > 0 && j.need.gpus > limits.GPUs:
		return over("GPUs", j.need.gpus, limits.GPUs)
	case limits.Cores > 0 && j.need.cores > limits.Cores:
		return over("cores", j.need.cores, limits.Cores)
	case limits.Memory > 0 && j.need.memory > limits.Memory:
		return over("of memory", model.FormatSize(j.need.memory), model.FormatSize(limits.Memory))
	}
	return nil
}

// needOf is the most that any of a job's alternatives takes.
func needOf(said *slurmopt.Options) need {
	var n need
	for _, r := range append([]model.Request{said.Request}, said.Alternatives...) {
		n.gpus = max(n.gpus, r.TotalGPUs())
		n.cores = max(n.cores, r.TotalCores())
		nodes, cores := 1, r.TotalCores()
		if r.Nodes > 0 {
			nodes, cores = r.Nodes, r.CoresOnNode()
		}
		n.memory = max(n.memory, int64(nodes)*r.MemoryOnNode(cores))
	}
	return n
}

// possible refuses a job that none of the known nodes could ever run, by submitting it to the
// policy for a moment. A cluster without nodes takes every job: nodes will come.
func (c *Core) possible(j *job) *Refusal {
	if len(c.byName) == 0 {
		return nil
	}
	id, err := c.state.Submit(j.model(c))
	if err != nil {
		return refusal(statusUnprocessableEntity, "it can never run: %v: ask for less, or submit it when more nodes have come (muster nodes lists those that are known)", err)
	}
	if err := c.state.Cancel(id); err != nil {
		panic("head: " + err.Error()) // it was submitted just now
	}
	return nil
}

// model is the job as the policy sees it.
func (j *job) model(c *Core) *model.Job {
	m := &model.Job{ID: j.name(), User: j.user, Submit: c.policyTime(c.now)}
	j.said.Apply(m)
	m.Run = aYear
	m.Logged = &model.Logged{Wait: -1, CPUTime: -1, UsedMemory: -1, Executable: j.title()} // policies may recognise programs by name
	if m.WallTime == 0 && !j.said.Unlimited {
		m.WallTime = c.cfg.TimeLimit
	}
	c.restrict(&m.Request, j)
	if len(m.Alternatives) > 0 {
		m.Alternatives = slices.Clone(m.Alternatives)
		for i := range m.Alternatives {
			c.restrict(&m.Alternatives[i], j)
		}
	}
	return m
}

// restrict limits a request to the nodes that the job does not exclude and whose agents can start
// the user's processes, under the policy's names. If none is left it names a node that cannot
// exist, whose name explains itself in the policy's error: an empty list would mean all nodes.
func (c *Core) restrict(r *model.Request, j *job) {
	exclude := j.said.Exclude
	if !c.special && len(exclude) == 0 {
		return
	}
	var names []string
	for _, n := range c.nodes {
		if n.serves(j.user) && !n.removed && !slices.Contains(exclude, n.name) && (len(r.NodeList) == 0 || slices.Contains(r.NodeList, n.name)) {
			names = append(names, n.alias)
		}
	}
	if len(names) == 0 {
		names = []string{"(one that starts processes of " + j.user + ")"}
		if len(exclude) > 0 {
			names = []string{"(one that the job does not exclude)"}
		}
	}
	r.NodeList = names
}

// enter records new jobs, and advances each to the gate at which it must wait, or to the policy.
// All tasks of an array are inserted before the first advances, so that the array's tally is
// complete.
func (c *Core) enter(first *job, tasks []uint32) {
	all := []*job{first}
	if len(tasks) > 0 {
		a := &array{limit: first.said.Batch.Array.Limit, tasks: tasks}
		c.arrays[first.id] = a
		all = all[:0]
		for i, task := range tasks {
			j := *first
			j.id, j.array, j.task = first.id+uint64(i), first.id, int64(task)
			all = append(all, &j)
		}
	}
	for _, j := range all {
		c.insert(j)
		c.depend(j)
		c.touch(j)
	}
	c.setMeta()
	for _, j := range all {
		c.advanceJob(j)
	}
}

// insert adds a job to the core's maps and counts.
func (c *Core) insert(j *job) {
	c.jobs[j.id] = j
	c.order = append(c.order, j.id)
	c.next = max(c.next, j.id+1)
	c.user(j.user).jobs++
	if j.array != 0 {
		c.arrays[j.array].live++
	}
	c.countPending(j, 1)
	c.nameTaken(j)
	if d := &j.said.Batch.Deadline; d.Set {
		c.timers.set(timer{at: max(c.now, c.moment(d, j)), what: ringDeadline, job: j.id})
	}
}

func (c *Core) keep(k key, answer api.Submitted) {
	c.keys[k] = &keyed{answer, c.now}
	c.timers.set(timer{at: c.now + keepKeys, what: ringKey, key: k})
	c.effects.Records = append(c.effects.Records, keyRecord(k, c.keys[k]))
}

// ---- gates ----

// advanceJob moves a waiting job through the gates as far as it may go, and offers it to the policy
// behind the last. A job that is held goes back to the first gate, even from the policy.
func (c *Core) advanceJob(j *job) {
	if j.state != api.Pending || j.number >= 0 && j.held == 0 {
		return
	}
	was := j.gate
	switch {
	case j.held != 0:
		c.leave(j)
		j.gate = atHold
	case len(j.unmet) > 0 || j.never:
		j.gate = atDependency
	case c.beginOf(j) > c.now:
		if j.gate != atBegin {
			c.timers.set(timer{at: c.beginOf(j), what: ringBegin, job: j.id})
		}
		j.gate = atBegin
	case !c.passArray(j):
		j.gate = atArray
	case !c.passLimit(j):
		j.gate = atLimit
	default:
		if was != atPolicy || j.eligible == 0 {
			j.eligible = c.now
		}
		j.gate = atPolicy
		c.offer(j)
	}
	if was != j.gate {
		c.touch(j)
	}
}

// beginOf is the earliest time at which a job may begin.
func (c *Core) beginOf(j *job) time.Duration {
	b := &j.said.Batch.Begin
	if !b.Set {
		return j.notBefore
	}
	return max(j.notBefore, c.moment(b, j))
}

// moment is the instant that a user's time specification meant when the job was submitted.
func (c *Core) moment(m *slurmopt.Moment, j *job) time.Duration {
	zone := c.cfg.Zone
	if zone == nil {
		zone = time.UTC
	}
	at := m.Time(time.Unix(0, int64(j.submit)).In(zone))
	// Instants are in nanoseconds. Users may write years beyond their range.
	switch seconds := at.Unix(); {
	case seconds <= 0:
		return 0
	case seconds >= int64(policy.Never/time.Second):
		return policy.Never
	}
	return time.Duration(at.UnixNano())
}

// passArray admits a job to its array's limit of running tasks, or makes it wait. A job whose gate
// is atArray is in a.waiting already.
func (c *Core) passArray(j *job) bool {
	if j.array == 0 || j.inArray {
		return true
	}
	a := c.arrays[j.array]
	if a.limit > 0 && a.admitted >= a.limit {
		if j.gate != atArray {
			a.waiting = append(a.waiting, j)
		}
		return false
	}
	a.admitted++
	j.inArray = true
	return true
}

// passLimit admits a job to its user's limits, or makes it wait. Jobs of a user pass in order: one
// that would fit waits behind an earlier one that does not, or large jobs would starve.
func (c *Core) passLimit(j *job) bool {
	if j.inLimit {
		return true
	}
	u, limits := c.user(j.user), c.limits(j.user)
	first := len(u.waiting) == 0 || u.waiting[0] == j
	if !first || !u.fits(j.need, limits) {
		if j.gate != atLimit {
			u.waiting = append(u.waiting, j)
		}
		return false
	}
	u.take(j.need, 1)
	j.inLimit = true
	return true
}

func (u *user) fits(n need, l Limits) bool {
	return (l.Running == 0 || u.admitted < l.Running) &&
		(l.GPUs == 0 || u.taken.gpus+n.gpus <= l.GPUs) &&
		(l.Cores == 0 || u.taken.cores+n.cores <= l.Cores) &&
		(l.Memory == 0 || u.taken.memory+n.memory <= l.Memory)
}

func (u *user) take(n need, sign int) {
	u.admitted += sign
	u.taken.gpus += sign * n.gpus
	u.taken.cores += sign * n.cores
	u.taken.memory += int64(sign) * n.memory
}

// offer submits a job to the policy. If no node can run it, the job stays with the head until nodes
// have changed (retryImpossible).
func (c *Core) offer(j *job) {
	id, err := c.state.Submit(j.model(c))
	if err != nil {
		if !errors.Is(err, policy.ErrImpossible) {
			panic("head: " + err.Error()) // Submit has no other error
		}
		j.impossible = err.Error()
		c.impossible = append(c.impossible, j)
		return
	}
	j.impossible = ""
	j.number = id
	c.numbered[id] = j
	c.bookSubmitted(j)
	c.rank(j)
	c.stepDue = true
}

// leave takes a waiting job back from the policy and from the gates that it has passed.
func (c *Core) leave(j *job) {
	if j.number >= 0 {
		if err := c.state.Cancel(j.number); err != nil {
			panic("head: " + err.Error()) // the policy has it and it waits, so this cannot fail
		}
		delete(c.numbered, j.number)
		j.number = -1
		c.bookStopped(j)
		c.stepDue = true // other jobs may have waited behind it
	}
	c.giveBack(j)
}

// giveBack frees a job's places at the gates, and lets the next jobs pass there.
func (c *Core) giveBack(j *job) {
	if j.inArray {
		j.inArray = false
		a := c.arrays[j.array]
		a.admitted--
		for len(a.waiting) > 0 && a.admitted < a.limit {
			next := a.waiting[0]
			a.waiting = a.waiting[1:]
			if next.gate == atArray && next.state == api.Pending {
				// It has left a.waiting. With the gate before, passArray puts it there again if
				// need be.
				next.gate = atBegin
				c.advanceJob(next)
			}
		}
	}
	if j.inLimit {
		j.inLimit = false
		u := c.user(j.user)
		u.take(j.need, -1)
		c.admitWaiting(u)
	}
}

// admitWaiting lets a user's waiting jobs pass as long as there is room, in their order. A job
// stays at the front of the list while it advances, because passLimit admits only the first.
func (c *Core) admitWaiting(u *user) {
	for len(u.waiting) > 0 {
		next := u.waiting[0]
		if next.gate == atLimit && next.state == api.Pending && next.held == 0 {
			if !u.fits(next.need, c.limits(next.user)) {
				return
			}
			c.advanceJob(next)
		}
		if len(u.waiting) > 0 && u.waiting[0] == next {
			u.waiting = u.waiting[1:]
		}
	}
}
