package head

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/internal/units"
	"muster/mapping"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// intake takes submissions, or refuses them.
type intake struct {
	ground
	keys   *keys
	deps   *dependencies
	desk   *desk
	queue  *queue
	runner *runner
}

// correlated counts the terms that let each task of an array wait for another one.
func correlated(d *slurmopt.Dependency) (n int) {
	if d == nil {
		return 0
	}
	for _, t := range d.Terms {
		if t.Kind == slurmopt.AfterCorr && t.Task < 0 {
			n++
		}
	}
	return n
}

// The limits of one submission.
const (
	maxKey       = 128
	maxTitle     = 1024     // bytes of the names of a job, its account, partition and so on
	maxComment   = 4096     // bytes
	maxOptions   = 64 << 10 // bytes of a job's options
	maxTerms     = 200_000  // comparisons of the tasks of an array with those of others (aftercorr)
	shownCommand = 1024     // bytes of a job's command that are kept for display
)

// accept makes jobs of a submission, or says why not. Nothing is changed before all checks have
// passed.
func (in *intake) accept(ev Submit) (*api.Submitted, *Refusal) {
	s := &ev.Submission
	owner := ev.User
	if s.User != "" && s.User != owner {
		if !in.IsAdmin(owner) {
			return nil, refusal(statusForbidden, "only administrators may submit in another's name: leave user out")
		}
		owner = s.User
	}
	if len(s.Key) > maxKey {
		return nil, refusal(statusBadRequest, "a key of %d bytes: give at most %d", len(s.Key), maxKey)
	}
	if k, ok := in.keys.of[owner].find(s.Key); ok {
		return in.submitted(k), nil
	}
	first, err := in.read(ev, owner)
	if err != nil {
		return nil, err
	}
	tasks := 0
	if array := first.said.Batch.Array; array != nil {
		tasks = array.Tasks.Len()
	}
	if err := in.roomFor(first, max(1, tasks), ev.User); err != nil {
		return nil, err
	}
	if corr := correlated(first.said.Batch.Dependency); corr*tasks > maxTerms {
		return nil, refusal(statusBadRequest, "%d tasks that each depend on a task of %d arrays: submit smaller arrays", tasks, corr)
	}
	if err := in.deps.mayDepend(first); err != nil {
		return nil, err
	}
	if err := in.desk.possible(first); err != nil {
		return nil, err
	}
	if err := in.desk.mayBook(first); err != nil {
		return nil, err
	}
	done := keyed{job: first.id, tasks: tasks, at: in.now}
	in.queue.enter(first)
	if first.allocation() {
		in.expect(first)
	}
	in.out.write(bulkRecord(done.job, s)) // first may be the rest of the array by now, and have another number
	if s.Key != "" {
		in.out.write(keyRecord(owner, s.Key, done))
		in.keys.keep(owner, s.Key, done)
	}
	return in.submitted(done), nil
}

// submitted answers a submission, the first time and again. The job has the notes; when it is
// forgotten, they are, too.
func (in *intake) submitted(k keyed) *api.Submitted {
	answer := &api.Submitted{Job: k.job, Tasks: k.tasks}
	if j := in.roster.anyOf(k.job); j != nil {
		said := j.said
		answer.Notes = said.Notes
		if len(said.Alternatives) > 0 && !in.desk.weigh {
			answer.Notes = append(slices.Clone(answer.Notes), fmt.Sprintf("policy %s does not weigh alternatives: --or is passed over", in.desk.spec))
		}
	}
	return answer
}

// read parses and checks a submission, and makes a job of it.
func (in *intake) read(ev Submit, owner string) (*job, *Refusal) {
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
	var said *slurmopt.Options
	var err error
	if argv := append([]string{slurmopt.Submit}, s.Options...); s.Script != "" {
		said, err = slurmopt.ParseScript(s.Script, argv)
	} else {
		said, err = slurmopt.Parse(argv)
	}
	if err != nil {
		return bad("%v", err)
	}
	switch {
	case len(said.Command) > 0:
		return bad("%q is no option: put what the job runs into arguments", said.Command[0])
	case s.Allocation && s.Script != "":
		return bad("an allocation runs no script: leave script or allocation out")
	case s.Allocation && (said.Batch.Array != nil || said.Batch.Requeue || said.Batch.Output != "" || said.Batch.Error != "" || said.Batch.Input != ""):
		return bad("an allocation is no array, is not started anew and has no files of its own: leave --array, --requeue, --output, --error and --input out")
	case !s.Allocation && s.Script == "" && len(s.Arguments) == 0:
		return bad("nothing to run: give a script or a command")
	case !s.Allocation && s.Script == "" && (s.Arguments[0] == allocationMark || s.Arguments[0] == scriptMark):
		return bad("%s is no command: give its path", s.Arguments[0])
	case said.Priority != 0 && !in.IsAdmin(ev.User):
		return bad("--priority is for administrators: use --nice")
	case said.Batch.Nice < 0 && !in.IsAdmin(ev.User):
		return bad("--nice %d: only administrators may go below 0", said.Batch.Nice)
	}
	j := &job{
		id: in.roster.next, task: -1, state: api.Pending, submit: in.now, limit: -1, queued: queued{number: -1, nice: said.Batch.Nice},
		order: &order{user: owner, key: s.Key, secret: ev.Secret, said: said, command: shown(s), need: needOf(said)},
	}
	if err := cmp.Or(in.divide(j), in.mayCharge(said)); err != nil {
		return bad("%v", err)
	}
	if j.options, j.asks, err = written(said); err != nil {
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
	if err := cmp.Or(in.fleet.mayAvoid(said), in.mayReserve(said), in.mayConstrain(said), in.mayLicense(said), checkMapping(said.GPU.Mapping), in.mayTurn(ev.User, owner, said)); err != nil {
		return bad("%v", err)
	}
	j.dir = dir
	if err := cmp.Or(j.checkTexts(), checkDevices(said), in.sendable(j, s)); err != nil {
		return bad("%v", err)
	}
	if said.Batch.Hold {
		j.held = heldByUser
	}
	j.setPriority(said.Priority)
	if err := in.desk.model(j).Validate(); err != nil {
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

// mayTurn refuses a class or weight that jobs of an owner may not have. Administrators give any.
func (in *intake) mayTurn(user, owner string, said *slurmopt.Options) error {
	if in.IsAdmin(user) {
		return nil
	}
	return in.users.limits(owner).mayTurn(owner, said.GPU.Turns)
}

// mayCharge refuses an account or QOS that there is not, if the administrator has named any.
func (in *intake) mayCharge(said *slurmopt.Options) error {
	c := in.cfg.Priority
	if c == nil {
		return nil
	}
	var classes []string
	for _, q := range c.QOS {
		classes = append(classes, q.Name)
	}
	for _, t := range []struct {
		option, what, name string
		known              []string
	}{{"--account", "account", said.Account, c.AccountNames()}, {"--qos", "QOS", said.QOS, classes}} {
		if t.name != "" && len(t.known) > 0 && !slices.Contains(t.known, t.name) {
			return fmt.Errorf("%s: there is no %s %.40q: there are %.200s", t.option, t.what, t.name, strings.Join(t.known, ", "))
		}
	}
	return nil
}

// checkMapping refuses mappers that nodes do not have.
func checkMapping(spec string) error {
	if spec == "" {
		return nil
	}
	if err := mapping.CheckSetting(spec); err != nil {
		return fmt.Errorf("--mapping: %w", err)
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
func (in *intake) sendable(j *job, s *api.Submission) error {
	trial := *j
	trial.id, trial.nth = math.MaxUint64, 1
	if trial.task >= 0 || j.said.Batch.Array != nil {
		trial.array, trial.task = trial.id, slurmopt.MaxArrayTask
	}
	at := &node{name: strings.Repeat("n", grant.MaxName)}
	trial.tasks, trial.alloc = []task{{node: at}}, &model.Allocation{Parts: []model.Part{{Cores: 1}}}
	start := agent.Start{Task: trial.taskName(0), Incarnation: "x", Spec: in.runner.specOf(&trial, 0)}
	start.Spec.Script, start.Spec.Arguments, start.Spec.Environment = s.Script, s.Arguments, append(slices.Clone(s.Environment), start.Spec.Environment...)
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
	switch {
	case s.Script != "":
		words = append(words, scriptMark)
	case s.Allocation:
		words = append(words, allocationMark)
	}
	for _, a := range s.Arguments {
		if left -= len(a); left < 0 {
			break
		}
		words = append(words, a)
	}
	return words
}

// mayConstrain refuses a job that wants a feature which no node has: it would wait for ever.
func (in *intake) mayConstrain(said *slurmopt.Options) error {
	c := said.Batch.Constraint
	var known []string
	for _, r := range in.cfg.NodeRules {
		known = append(known, r.Features...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	switch word := c.Unknown(func(word string) bool { return slices.Contains(known, word) }); {
	case word != "" && len(known) == 0:
		return fmt.Errorf("--constraint: no node has the feature %q, nor any other: leave it out, or ask an administrator for it (features of nodes in head.yaml)", word)
	case word != "":
		return fmt.Errorf("--constraint: no node has the feature %q: there are %.200s", word, strings.Join(known, ", "))
	case c == nil || !c.Same || len(c.Any) == 1:
		return nil
	}
	for _, r := range append([]model.Request{said.Request}, said.Alternatives...) {
		if r.Nodes != 1 {
			return fmt.Errorf("--constraint=%s: the same one of several features on all nodes is supported for jobs of one node (-N 1): for more, name one feature", c)
		}
	}
	return nil
}

// mayLicense refuses a job that wants licences which there are not, or more of one than there are.
func (in *intake) mayLicense(said *slurmopt.Options) error {
	for _, l := range said.Batch.Licenses {
		switch has, known := in.cfg.Licenses[l.Name]; {
		case !known:
			return fmt.Errorf("--licenses: there is no licence %q: leave it out, or ask an administrator for it (licenses in head.yaml)", l.Name)
		case l.Count > has:
			return fmt.Errorf("--licenses=%s:%d: the cluster has %d: ask for less", l.Name, l.Count, has)
		}
	}
	return nil
}

// mayReserve refuses a job that names a reservation which there is not: it would wait for ever.
func (in *intake) mayReserve(said *slurmopt.Options) error {
	name := said.Batch.Reservation
	if name == "" {
		return nil
	}
	var names []string
	for _, w := range in.cfg.Windows {
		if w.Until > in.now {
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
func (in *intake) roomFor(j *job, count int, asks string) *Refusal {
	u := in.users.of(j.user)
	switch most := in.cfg.MaxJobCount; {
	case in.cfg.MaxArraySize > 0 && count > in.cfg.MaxArraySize:
		return refusal(statusBadRequest, "an array of %d tasks: it may have %d (max_array_size): submit several arrays", count, in.cfg.MaxArraySize)
	case most > 0 && in.roster.records >= most:
		return refusal(statusTooManyRequests, "the cluster has %d jobs that have not ended, as many as it may have (max_job_count): try again when some have ended", in.roster.records)
	case most > 0 && u.records >= max(1, most/2):
		return refusal(statusTooManyRequests, "%s has %d jobs that have not ended, half of what the cluster may have (max_job_count): wait until some have ended, or submit many as one array (--array)", j.user, u.records)
	}
	for _, b := range in.users.bounds(j.order) {
		if err := b.mayHave(b.need, count); err != nil {
			return err
		}
	}
	return nil
}

// mayHave refuses count jobs of a need if they exceed a limit, or one of them can never be within it.
func (b *bound) mayHave(n need, count int) *Refusal {
	over := func(limit, has string, may any) *Refusal {
		return refusal(statusBadRequest, "it asks for %s, over the limit of %v for all jobs of %s %s together (%s): ask for less", has, may, b.of, b.name, limit)
	}
	limits := &b.Limits
	switch {
	case limits.Jobs > 0 && b.jobs+count > limits.Jobs:
		return refusal(statusTooManyRequests, "%s has %d jobs that have not ended, and %d more are over the limit of %d (max_submit_jobs): wait until some have ended", b.who(), b.jobs, count, limits.Jobs)
	case limits.GPUs > 0 && n.gpus > limits.GPUs:
		return over("gpus", units.Plural(n.gpus, "GPU"), limits.GPUs)
	case limits.Cores > 0 && n.cores > limits.Cores:
		return over("cores", units.Plural(n.cores, "core"), limits.Cores)
	case limits.Memory > 0 && n.memory > limits.Memory:
		return over("memory", units.FormatSize(n.memory)+" of memory", units.FormatSize(limits.Memory))
	case limits.Deny:
		if _, full := b.full(n, b.Limits); full != "" {
			return refusal(statusTooManyRequests, "the limit of %s %s is %s, and jobs beyond it are refused (deny_on_limit): submit it when some have ended", b.of, b.name, full)
		}
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

// divide has a job join its partition, or refuses it as the partition does.
func (in *intake) divide(j *job) error {
	list := in.fleet.parts.list
	p, err := model.PartitionOf(list, j.said.Partition)
	if err != nil || p == nil {
		return err
	}
	j.said.Partition = p.Name
	if j.said.Time == 0 && !j.said.Unlimited {
		j.said.Time = p.UsualTime()
	}
	account := j.said.Account
	if account == "" && in.desk.ranking != nil {
		account = in.desk.ranking.Book.AccountOf(j.user, "")
	}
	if err := p.Admits(j.user, account, j.said.QOS); err != nil {
		return err
	}
	return p.Exceeded(in.desk.asked(j))
}
