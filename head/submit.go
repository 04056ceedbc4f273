package head

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/indexset"
	"muster/internal/units"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// A client that repeats a submission with its key gets the first answer again. A key is remembered
// for keepKeys, and at most MaxKeys of a user are: the oldest leave first. A key is short (maxKey), and
// nothing else that is remembered with it has a length, so this bounds the bytes as well.
const (
	keepKeys = time.Hour
	MaxKeys  = 4096
)

// The limits of one submission.
const (
	maxKey       = 128
	maxTitle     = 1024     // bytes of the names of a job, its account, partition and so on
	maxComment   = 4096     // bytes
	maxOptions   = 64 << 10 // bytes of a job's options
	maxTerms     = 200_000  // comparisons of the tasks of an array with those of others (aftercorr)
	shownCommand = 1024     // bytes of a job's command that are kept for display
)

func (c *Core) submit(ev Submit) {
	done, err := c.accept(ev)
	if err != nil {
		c.out.answer(ev.Request, nil, err)
		return
	}
	c.out.answer(ev.Request, done, nil)
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
	if k, ok := c.user(owner).keys[s.Key]; ok {
		return c.submitted(k), nil
	}
	first, err := c.read(ev, owner)
	if err != nil {
		return nil, err
	}
	tasks := 0
	if array := first.said.Batch.Array; array != nil {
		tasks = array.Tasks.Len()
	}
	if err := c.roomFor(first, max(1, tasks), ev.User); err != nil {
		return nil, err
	}
	if corr := correlated(first.said.Batch.Dependency); corr*tasks > maxTerms {
		return nil, refusal(statusBadRequest, "%d tasks that each depend on a task of %d arrays: submit smaller arrays", tasks, corr)
	}
	if err := c.mayDepend(first); err != nil {
		return nil, err
	}
	if err := c.possible(first); err != nil {
		return nil, err
	}
	if err := c.mayBook(first); err != nil {
		return nil, err
	}
	done := keyed{job: first.id, tasks: tasks, at: c.now}
	c.enter(first)
	c.out.write(bulkRecord(done.job, s)) // first may be the rest of the array by now, and have another number
	if s.Key != "" {
		c.out.write(keyRecord(owner, s.Key, done))
		c.keep(owner, s.Key, done)
	}
	return c.submitted(done), nil
}

// submitted answers a submission, the first time and again. The job has the notes; when it is
// forgotten, they are, too.
func (c *Core) submitted(k keyed) *api.Submitted {
	answer := &api.Submitted{Job: k.job, Tasks: k.tasks}
	if j := c.roster.anyOf(k.job); j != nil {
		said := j.said
		answer.Notes = said.Notes
		if len(said.Alternatives) > 0 && !c.weigh {
			answer.Notes = append(slices.Clone(answer.Notes), fmt.Sprintf("policy %s does not weigh alternatives: --or is passed over", c.spec))
		}
	}
	return answer
}

// read parses and checks a submission, and makes a job of it.
func (c *Core) read(ev Submit, owner string) (*job, *Refusal) {
	bad := func(format string, args ...any) (*job, *Refusal) {
		return nil, refusal(statusBadRequest, format, args...)
	}
	s := &ev.Submission
	given := 0
	for _, o := range s.Options {
		if given += len(o) + 1; given > maxOptions { // before they are read: each costs the loop time
			return bad("options of more than %d bytes: give fewer", maxOptions)
		}
	}
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
	line, asks, err := written(said)
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
	if !path.IsAbs(dir) {
		return bad("the directory %.40q is no absolute path", dir)
	}
	if err := cmp.Or(c.mayAvoid(said), c.mayReserve(said)); err != nil {
		return bad("%v", err)
	}
	j := &job{
		id: c.next, task: -1, state: api.Pending, submit: c.now, limit: -1, queued: queued{number: -1, nice: said.Batch.Nice},
		order: &order{user: owner, dir: dir, key: s.Key, secret: ev.Secret, options: line, asks: asks, said: said, command: shown(s), need: needOf(said)},
	}
	if err := cmp.Or(j.checkTexts(), checkDevices(said), c.sendable(j, s)); err != nil {
		return bad("%v", err)
	}
	if said.Batch.Hold {
		j.held = heldByUser
	}
	j.setPriority(said.Priority)
	if err := j.model(c).Validate(); err != nil {
		return bad("%v", err)
	}
	// Each job that has not ended is in memory with its options.
	if len(j.options) > maxOptions {
		return bad("options of %d bytes: give at most %d", len(j.options), maxOptions)
	}
	return j, nil
}

// checkTexts refuses names and texts that cannot be shown to people or kept in records, by the
// option that gives them.
func (o *order) checkTexts() error {
	said := o.said
	for _, t := range []struct{ option, text string }{
		{nameOption(said), o.title()}, {"--account", said.Account}, {"--partition", said.Partition}, {"--qos", said.QOS}, {"--reservation", said.Batch.Reservation},
	} {
		err := agent.CheckText(t.text, maxTitle)
		if strange := strings.IndexFunc(t.text, func(r rune) bool { return !unicode.IsPrint(r) }); err == nil && strange >= 0 {
			r, _ := utf8.DecodeRuneInString(t.text[strange:])
			err = fmt.Errorf("it has the character %q, which cannot be shown: remove it", r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.option, err)
		}
	}
	for _, t := range []struct {
		option, text string
		most         int
	}{{"--comment", said.Batch.Comment, maxComment}, {"--export", strings.Join(said.Batch.Export, ","), agent.MaxArguments}, {"key", o.key, maxKey}, {"options", o.options, agent.MaxArguments}} {
		if err := agent.CheckText(t.text, t.most); err != nil {
			return fmt.Errorf("%s: %w", t.option, err)
		}
	}
	return nil
}

// nameOption is what gives a job its name: the option, or else what it runs.
func nameOption(o *slurmopt.Options) string {
	if o.Name == "" {
		return "arguments, which name the job"
	}
	return "--job-name"
}

// checkDevices refuses a job that asks for more GPUs on a node than a program there can have.
func checkDevices(said *slurmopt.Options) error {
	for _, r := range append([]model.Request{said.Request}, said.Alternatives...) {
		remote := 0
		if r.Remote != nil {
			remote = r.Remote.Count
		}
		nodes := max(1, r.Nodes) // cores that are spread may all be on one node
		each := r.GPUs + (remote+nodes-1)/nodes
		switch {
		case each <= grant.MaxDevices:
		case r.GPUs < grant.MaxDevices && remote > 0:
			return fmt.Errorf("--gres: it asks for %d GPUs for the programs of a node, which can have %d: ask for fewer, or for %d nodes with -N", each, grant.MaxDevices, (remote-1)/(grant.MaxDevices-r.GPUs)+1)
		default:
			return fmt.Errorf("--gres: it asks for %d GPUs for the programs of a node, which can have %d: ask for fewer, and for more nodes if the job needs them", each, grant.MaxDevices)
		}
	}
	return nil
}

// fields are the options, or else the members of a submission, that become the fields of a Start.
var fields = map[string]string{
	"name": "--job-name", "account": "--account", "input": "--input", "output": "--output", "error": "--error", "directory": "directory (--chdir)",
	"environment": "environment (--export)", "arguments": "arguments", "script": "script", "user": "user",
}

// sendable refuses a job that agents would refuse to start, by the check with which they do. It
// takes the longest numbers and names that the job and its nodes may have: what is accepted here is
// accepted wherever and whenever the job starts.
func (c *Core) sendable(j *job, s *api.Submission) error {
	trial := *j
	trial.id, trial.nth = math.MaxUint64, 1
	if trial.task >= 0 || j.said.Batch.Array != nil {
		trial.array, trial.task = trial.id, slurmopt.MaxArrayTask
	}
	at := &node{name: strings.Repeat("n", grant.MaxName)}
	trial.tasks, trial.alloc = []task{{node: at}}, &model.Allocation{Parts: []model.Part{{Cores: 1}}}
	start := agent.Start{Task: trial.taskName(0), Incarnation: "x", Spec: c.specOf(&trial, 0)}
	start.Spec.Script, start.Spec.Arguments, start.Spec.Environment = s.Script, s.Arguments, s.Environment
	if j.need.gpus > 0 {
		start.Grant = &grant.Grant{ID: start.Task.String(), User: j.user, Secret: trial.credential(0), Devices: []grant.Device{{Node: at.name}}, Limit: grant.AllDevices}
	}
	err := agent.Check(start)
	var wrong *agent.Wrong
	var refused *agent.Unreadable
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: %s", cmp.Or(fields[wrong.Field], wrong.Field), wrong.Reason)
	case errors.As(err, &refused):
		return refused.Err
	}
	return err
}

// written formats options: all of them, and those that everybody may see.
func written(said *slurmopt.Options) (all, public string, err error) {
	if all, err = said.Format(); err == nil {
		public, err = said.Public().Format()
	}
	plain := func(line string) string { return strings.TrimSpace(strings.TrimPrefix(line, slurmopt.Submit)) }
	return plain(all), plain(public), err
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
// the job is offered to the policy (mayUse), because nodes come and go until then.
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

// mayReserve refuses a job that names a reservation which there is not: it would wait for ever.
func (c *Core) mayReserve(said *slurmopt.Options) error {
	name := said.Batch.Reservation
	if name == "" {
		return nil
	}
	var names []string
	for _, w := range c.cfg.Windows {
		if w.Until > c.now {
			names = append(names, w.Name)
		}
	}
	switch {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("--reservation: there is no reservation %.40q, nor any other: leave it out, or ask an administrator for one (windows in head.yaml)", name)
	}
	return fmt.Errorf("--reservation: there is no reservation %.40q: there are %.200s", name, strings.Join(names, ", "))
}

// roomFor refuses count jobs like j if they exceed the user's limits.
func (c *Core) roomFor(j *job, count int, asks string) *Refusal {
	limits := c.limits(j.user)
	u := c.user(j.user)
	switch most := c.cfg.MaxJobCount; {
	case c.cfg.MaxArraySize > 0 && count > c.cfg.MaxArraySize:
		return refusal(statusBadRequest, "an array of %d tasks: it may have %d (max_array_size): submit several arrays", count, c.cfg.MaxArraySize)
	case limits.Jobs > 0 && u.jobs+count > limits.Jobs:
		return refusal(statusTooManyRequests, "%s has %d jobs that have not ended, and %d more are over the limit of %d (max_submit_jobs): wait until some have ended", j.user, u.jobs, count, limits.Jobs)
	case most > 0 && c.records >= most:
		return refusal(statusTooManyRequests, "the cluster has %d jobs that have not ended, as many as it may have (max_job_count): try again when some have ended", c.records)
	case most > 0 && u.records >= max(1, most/2):
		return refusal(statusTooManyRequests, "%s has %d jobs that have not ended, half of what the cluster may have (max_job_count): wait until some have ended, or submit many as one array (--array)", j.user, u.records)
	}
	over := func(limit, has string, may any) *Refusal {
		return refusal(statusBadRequest, "it asks for %s, over the limit of %v for all jobs of user %s together (%s): ask for less", has, may, j.user, limit)
	}
	switch {
	case limits.GPUs > 0 && j.need.gpus > limits.GPUs:
		return over("gpus", units.Plural(j.need.gpus, "GPU"), limits.GPUs)
	case limits.Cores > 0 && j.need.cores > limits.Cores:
		return over("cores", units.Plural(j.need.cores, "core"), limits.Cores)
	case limits.Memory > 0 && j.need.memory > limits.Memory:
		return over("memory", units.FormatSize(j.need.memory)+" of memory", units.FormatSize(limits.Memory))
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

// possible refuses a job that none of the known nodes could ever run. A cluster without nodes takes
// every job: nodes will come.
func (c *Core) possible(j *job) *Refusal {
	if len(c.byName) == 0 {
		return nil
	}
	if err := c.state.Possible(j.model(c)); err != nil {
		return refusal(statusUnprocessableEntity, "it can never run: %v: ask for less, or submit it when more nodes have come (muster nodes lists those that are known)", err)
	}
	return nil
}

// model is the job as the policy sees it.
func (j *job) model(c *Core) *model.Job {
	m := &model.Job{ID: j.name(), User: j.user, Submit: c.policyTime(max(j.eligible, j.submit)), Turn: j.turn}
	j.said.Apply(m)
	m.Run = aYear
	m.Logged = &model.Logged{Wait: -1, CPUTime: -1, UsedMemory: -1, Executable: j.title()} // policies may recognise programs by name
	if m.WallTime == 0 && !j.said.Unlimited {
		m.WallTime = c.cfg.TimeLimit
	}
	if !c.chooses(j) {
		return m
	}
	of := restricted{said: j.said, user: j.user}
	if len(j.said.Exclude) == 0 && len(m.Request.NodeList) == 0 && len(m.Alternatives) == 0 {
		of.said = nil
	}
	if !c.private {
		of.user = ""
	}
	if c.restricted.lists == nil || c.restricted.said != of.said || c.restricted.user != of.user {
		c.restricted = of
		for _, r := range append([]model.Request{m.Request}, m.Alternatives...) {
			c.restricted.lists = append(c.restricted.lists, c.mayUse(&r, j))
		}
	}
	m.Request.NodeList = c.restricted.lists[0]
	m.Alternatives = slices.Clone(m.Alternatives)
	for i := range m.Alternatives {
		m.Alternatives[i].NodeList = c.restricted.lists[i+1]
	}
	return m
}

// chooses says whether the policy is told which of the nodes a job may use, in the head's words.
func (c *Core) chooses(j *job) bool { return c.special || len(j.said.Exclude) > 0 }

// restricted is the nodes that a job's requests may use (mayUse), for those after it that may use the
// same: there may be very many nodes, and tasks of an array. It holds as long as no node comes, goes or
// changes its user.
type restricted struct {
	said  *slurmopt.Options // nil if the job leaves the nodes to the head
	user  string            // "" if that makes no difference
	lists [][]string
}

// mayUse limits a request to the nodes that the job does not exclude and whose agents can start
// the user's processes, under the policy's names. If none is left it names a node that cannot
// exist, whose name explains itself in the policy's error: an empty list would mean all nodes.
func (c *Core) mayUse(r *model.Request, j *job) (names []string) {
	excluded, named := setOf(j.said.Exclude), setOf(r.NodeList)
	for _, n := range c.nodes {
		if n.serves(j.user) && !n.removed && !excluded[n.name] && (len(named) == 0 || named[n.name]) {
			names = append(names, n.alias)
		}
	}
	if len(names) == 0 {
		names = []string{"(one that starts processes of " + j.user + ")"}
		if len(excluded) > 0 {
			names = []string{"(one that the job does not exclude)"}
		}
	}
	return names
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// readable writes the nodes of a request for users, who know no aliases; "" if they are all that there
// are, to which mayUse limits a job of a user who named none.
func (c *Core) readable(aliases []string) string {
	if !c.special {
		return model.CompressNodes(aliases)
	}
	listed := setOf(aliases)
	all := true
	for _, n := range c.nodes {
		if !n.removed && !listed[n.alias] {
			all = false
		}
	}
	if all {
		return ""
	}
	names := slices.Clone(aliases)
	for i, alias := range names {
		names[i] = c.aliases[alias]
		if names[i] == "" {
			names[i] = alias
		}
	}
	return model.CompressNodes(names)
}

// enter records a new job, or an array as one, and advances it to the gate at which it must wait, or
// to the policy.
func (c *Core) enter(j *job) {
	if array := j.said.Batch.Array; array != nil {
		rest := indexset.Of(0, array.Tasks.Len())
		j.array, j.task, j.rest = j.id, int64(array.Tasks.At(0)), &rest
	}
	c.insert(j)
	c.depend(j)
	c.out.touch(j)
	c.setMeta()
	c.advanceJob(j)
	c.freeFirst(j)
}

// insert adds a job to the core's maps and counts.
func (c *Core) insert(j *job) {
	c.roster.jobs[j.id] = j
	c.user(j.user).jobs += j.size()
	a := c.roster.arrays[j.array]
	if fresh := a == nil; j.array == 0 || fresh {
		if j.array != 0 {
			a = &array{id: j.array, limit: j.said.Batch.Array.Limit, tasks: j.said.Batch.Array.Tasks}
			a.ends.Tasks = a.tasks.String()
			c.roster.arrays[j.array] = a
		}
		c.roster.enlist(j.bulk())
		c.records++
		c.user(j.user).records++
		c.names.taken(j, a)
		if d := &j.said.Batch.Deadline; d.Set {
			c.setTimer(timer{at: max(c.now, c.moment(d, j)), what: ringDeadline, job: j.bulk()})
		}
	}
	c.next = max(c.next, j.id+1)
	if a != nil {
		c.next = max(c.next, a.id+uint64(a.tasks.Len()))
		a.live += j.size()
		a.list(j)
	}
	c.countPending(j, 1)
}

// keep remembers the latest key of a user. The timer is always that of the oldest.
func (c *Core) keep(owner, name string, k keyed) {
	u := c.user(owner)
	if u.keys == nil {
		u.keys = map[string]keyed{}
	}
	u.keys[name] = k
	u.keyed = append(u.keyed, name)
	switch {
	case len(u.keyed) == 1:
		c.timers.set(timer{at: k.at + keepKeys, what: ringKey, user: owner})
	case len(u.keyed) > MaxKeys:
		c.forgetKey(owner, u)
	}
}

// forgetKeys forgets the keys of a user that have become too old.
func (c *Core) forgetKeys(owner string) {
	u := c.user(owner)
	for len(u.keyed) > 0 {
		if at := u.keys[u.keyed[0]].at + keepKeys; at > c.now {
			c.timers.set(timer{at: at, what: ringKey, user: owner})
			return
		}
		c.forgetKey(owner, u)
	}
}

// forgetKey forgets the oldest key of a user.
func (c *Core) forgetKey(owner string, u *user) {
	delete(u.keys, u.keyed[0])
	c.out.write(Record{Bucket: Keys, Key: keyBytes(owner, u.keyed[0])})
	u.keyed = u.keyed[1:]
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
		if at := c.beginOf(j); j.rings != at { // one that was held and released has its timer still
			c.setTimer(timer{at: at, what: ringBegin, job: j.bulk()})
			j.rings = at
		}
		j.gate = atBegin
	case j.rest != nil:
		j.gate = c.pass(j)
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
		c.out.touch(j)
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
	a := c.roster.arrays[j.array]
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

// full says which limit keeps a user's first waiting job, of this need, from starting.
func (u *user) full(n need, l Limits) string {
	reached := func(limit, most string, taken any) string {
		return fmt.Sprintf("its user's limit is %s at a time (%s), of which %v are taken", most, limit, taken)
	}
	switch {
	case l.Running > 0 && u.admitted >= l.Running:
		return reached("running", units.Plural(l.Running, "job"), u.admitted)
	case l.GPUs > 0 && u.taken.gpus+n.gpus > l.GPUs:
		return reached("gpus", units.Plural(l.GPUs, "GPU"), u.taken.gpus)
	case l.Cores > 0 && u.taken.cores+n.cores > l.Cores:
		return reached("cores", units.Plural(l.Cores, "core"), u.taken.cores)
	case l.Memory > 0 && u.taken.memory+n.memory > l.Memory:
		return reached("memory", units.FormatSize(l.Memory)+" of memory", units.FormatSize(u.taken.memory))
	}
	return "jobs of its user before it wait for a limit"
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
	if j.turn == 0 {
		c.turn++
		j.turn = c.turn
	}
	c.count(j, true)
	id, err := c.state.Submit(j.model(c))
	if err != nil {
		if !errors.Is(err, policy.ErrImpossible) {
			panic("head: " + err.Error()) // Submit has no other error
		}
		c.isImpossible(j, err)
		return
	}
	j.impossible = ""
	j.number = id
	c.numbered[id] = j
	c.bookSubmitted(j)
	c.rank(j)
	c.stepDue = true
}

// isImpossible lists a job that no node can run, once.
func (c *Core) isImpossible(j *job, err error) {
	if j.impossible == "" {
		if len(c.impossible) == cap(c.impossible) { // before growing, drop those that have ended
			c.impossible = slices.DeleteFunc(c.impossible, (*job).over)
			c.impossible = slices.Grow(c.impossible, max(1, len(c.impossible)))
		}
		c.impossible = append(c.impossible, j)
	}
	j.impossible = err.Error()
}

// leave takes a waiting job back from the policy, from the gates that it has passed, and from the one
// at which it waits: others may have waited behind it.
func (c *Core) leave(j *job) {
	if j.number >= 0 {
		if err := c.state.Cancel(j.number); err != nil {
			panic("head: " + err.Error()) // the policy has it and it waits, so this cannot fail
		}
		delete(c.numbered, j.number)
		j.number = -1
		c.ranking.stopped(j.id, c.now)
		c.stepDue = true // other jobs may have waited behind it
	}
	j.turn = 0
	c.count(j, false)
	u := c.user(j.user)
	first := len(u.waiting) > 0 && u.waiting[0] == j
	u.waiting = without(u.waiting, j)
	if a := c.roster.arrays[j.array]; a != nil {
		a.waiting = without(a.waiting, j)
	}
	c.giveBack(j)
	if first {
		c.admitWaiting(u)
	}
}

// without removes a job from a list.
func without(list []*job, j *job) []*job {
	return slices.DeleteFunc(list, func(o *job) bool { return o == j })
}

// giveBack frees a job's places at the gates, and lets the next jobs pass there.
func (c *Core) giveBack(j *job) {
	inArray, inLimit := j.passed, j.passed // places at the two gates
	if j.inArray {
		inArray++
	}
	if j.inLimit {
		inLimit++
	}
	j.inArray, j.inLimit, j.passed = false, false, 0
	if inArray > 0 && j.array != 0 {
		a := c.roster.arrays[j.array]
		a.admitted -= inArray
		c.admitTasks(a)
	}
	if inLimit > 0 {
		u := c.user(j.user)
		u.take(j.need, -inLimit)
		c.admitWaiting(u)
	}
}

// admitTasks lets the waiting tasks of an array pass as long as there is room, in their order. A rest
// stays at the front of the list until all its tasks have passed.
func (c *Core) admitTasks(a *array) {
	for len(a.waiting) > 0 && a.admitted < a.limit {
		next := a.waiting[0]
		if next.gate == atArray && next.state == api.Pending {
			if next.rest == nil {
				// With the gate before, passArray puts it there again if need be.
				next.gate = atBegin
			}
			c.advanceJob(next)
			if next.rest != nil && next.gate == atArray {
				return
			}
		}
		if len(a.waiting) > 0 && a.waiting[0] == next {
			a.waiting = a.waiting[1:]
		}
	}
}

// admitWaiting lets a user's waiting jobs pass as long as there is room, in their order. A job
// stays at the front of the list while it advances, because passLimit admits only the first, and a
// rest until all its tasks have passed.
func (c *Core) admitWaiting(u *user) {
	for len(u.waiting) > 0 {
		next := u.waiting[0]
		if next.gate == atLimit && next.state == api.Pending && next.held == 0 {
			if !u.fits(next.need, c.limits(next.user)) {
				return
			}
			c.advanceJob(next)
			if next.rest != nil && next.gate == atLimit {
				return
			}
		}
		if len(u.waiting) > 0 && u.waiting[0] == next {
			u.waiting = u.waiting[1:]
		}
	}
}
