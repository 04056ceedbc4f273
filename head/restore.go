package head

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"muster/head/record"
	"muster/internal/indexset"
	"muster/internal/strictjson"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
)

// Restore rebuilds the core from the records that another one wrote. All nodes are away at first:
// those whose agents do not greet within NodeTimeout are given up. Nodes are restored before jobs,
// and in the order of their numbers, because the policy numbers nodes as they are added, and jobs
// refer to them by number.
func Restore(cfg Config, p policy.Policy, spec string, each func(visit func(Record) error) error, now time.Duration) (*Core, error) {
	c := New(cfg, p, spec)
	c.now = now
	var nodes []record.Node
	var jobs []record.Job
	var keys []keyRead
	var kept *priority.Document
	err := each(func(r Record) error {
		var err error
		switch r.Bucket {
		case Meta:
			if bytes.Equal(r.Key, rankingKey) {
				kept = &priority.Document{}
				err = strictjson.Decode(r.Value, kept)
				break
			}
			var m record.Meta
			err = strictjson.Decode(r.Value, &m)
			c.began, c.roster.next = m.Began, max(1, m.Next)
		case Nodes:
			var n record.Node
			err = strictjson.Decode(r.Value, &n)
			nodes = append(nodes, n)
		case Jobs:
			var j record.Job
			if err = strictjson.Decode(r.Value, &j); err == nil {
				jobs, err = c.gather(jobs, &j)
			}
		case Keys:
			var k keyRead
			k, err = readKey(r)
			keys = append(keys, k)
		}
		if err != nil {
			return fmt.Errorf("record %x of %s: %w", r.Key, r.Bucket, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c.began == 0 {
		c.began = now
		c.out.write(metaRecord(c.began, c.roster.next))
	}
	if kept != nil && cfg.Priority != nil {
		c.now = max(c.now, kept.Now)
	}
	if err := c.desk.setRanking(kept); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b record.Node) int { return int(a.Number - b.Number) })
	for i := range nodes {
		if err := c.restoreNode(&nodes[i]); err != nil {
			return nil, err
		}
	}
	c.restoreJobs(jobs)
	slices.SortStableFunc(keys, func(a, b keyRead) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.job, b.job)) })
	for _, k := range keys {
		c.keys.keep(k.owner, k.name, k.keyed)
	}
	return c, nil
}

// gather appends a record to those that were read before. Tasks of an array that have not started and
// differ in nothing else become one rest: those that waited with the policy, and all tasks in the
// records of heads that knew no rests, which would need very much memory.
func (c *Core) gather(jobs []record.Job, r *record.Job) ([]record.Job, error) {
	if n := len(jobs); n > 0 && jobs[n-1].Job >= r.Job {
		return nil, fmt.Errorf("it stands behind that of job %d", jobs[n-1].Job)
	}
	if r.Array == 0 || r.State != string(api.Pending) || r.Attempt > 0 {
		return append(jobs, *r), nil
	}
	if r.Rest == nil {
		one := indexset.Of(int(r.Job-r.Array), int(r.Job-r.Array)+1)
		r.Rest = &one
	}
	like := *r
	for i := len(jobs) - 1; i >= max(0, len(jobs)-maxAlike) && jobs[i].Array == r.Array; i-- {
		if jobs[i].Rest == nil {
			continue
		}
		like.Job, like.Task, like.Rest, like.Eligible, like.Of = jobs[i].Job, jobs[i].Task, jobs[i].Rest, jobs[i].Eligible, jobs[i].Of
		if reflect.DeepEqual(like, jobs[i]) {
			jobs[i].Rest.AddAll(r.Rest)
			c.out.vacate(r.Job)
			return jobs, nil
		}
	}
	return append(jobs, *r), nil
}

// maxAlike is among how many records gather looks for one that is like another.
const maxAlike = 100

// keyRead is the record of a key, as it was read.
type keyRead struct {
	owner, name string
	keyed
}

func readKey(r Record) (keyRead, error) {
	var v record.Key
	owner, name, ok := bytes.Cut(r.Key, []byte{0})
	if err := strictjson.Decode(r.Value, &v); err != nil || !ok {
		return keyRead{}, errors.Join(err, errors.New("it is no key of a submission"))
	}
	return keyRead{string(owner), string(name), keyed{v.Answer.Job, v.Answer.Tasks, v.At}}, nil
}

func (c *Core) restoreNode(r *record.Node) error {
	n := &node{
		name: r.Name, incarnation: r.Incarnation, user: r.User, cores: r.Cores, memory: r.Memory, gateway: r.Gateway,
		down: r.Down, drain: drain{r.Drained, r.Reason, r.Labels}, removed: r.Removed, since: c.now,
	}
	for _, d := range r.Devices {
		n.devices = append(n.devices, agent.Device(d))
	}
	if r.Down {
		n.since = r.Since
	}
	n.usable = usableThen(r)
	if err := c.agents.join(n); err != nil {
		return err
	}
	if n.number != r.Number {
		return fmt.Errorf("node %s has number %d, and its record %d: a record is missing", n.name, n.number, r.Number)
	}
	if n.removed {
		c.agents.retire(n)
		return nil
	}
	for i := range n.devices {
		must(c.desk.state.SetDevice(n.number, int32(i), n.devices[i].Up))
	}
	c.agents.setNodeState(n)
	if !n.down {
		c.timers.set(timer{at: model.After(c.now, c.cfg.NodeTimeout), what: ringNode, node: n})
	}
	return nil
}

// parsed is a job's options.
type parsed struct {
	said *slurmopt.Options
	asks string
}

func parse(options string) (parsed, error) {
	said, err := slurmopt.ParseSubmitted(options)
	if err != nil {
		return parsed{}, fmt.Errorf("its options: %w", err)
	}
	_, asks, err := written(said)
	return parsed{said, asks}, err
}

// restoreJobs restores jobs. Those that cannot be restored fail (failDoomed): the head comes up for the
// others.
func (c *Core) restoreJobs(records []record.Job) {
	arrays := map[uint64]parsed{} // the tasks of an array share their options
	for i := range records {
		if r := &records[i]; r.Array != 0 && arrays[r.Array].said == nil {
			if options, err := parse(r.Options); err == nil {
				arrays[r.Array] = options
			}
		}
	}
	for i := range records {
		r := &records[i]
		options, err := arrays[r.Array], error(nil)
		if options.said == nil {
			options, err = parse(r.Options)
		}
		if err == nil {
			err = c.restorable(r, options.said)
		}
		if err != nil {
			c.restoreDoomed(r, options, err)
			continue
		}
		c.restoreJob(r, options)
	}
	// Tasks of live arrays without a record have ended; the store is asked about them when needed.
	for _, a := range c.roster.arrays {
		a.unread = a.live < a.tasks.Len()
		a.told = a.news()
	}
	// Jobs that are asleep come first: those that run in their place fit only when the policy knows
	// that the cores of the sleeping ones are free.
	for _, asleep := range []bool{true, false} {
		for j := range c.roster.from(0) {
			if j.alloc != nil && j.asleep == asleep {
				if err := c.adopt(j); err != nil {
					c.doomed = append(c.doomed, doomed{j, err})
				}
			}
		}
	}
	for j := range c.roster.from(0) {
		if j.state == api.Pending && !slices.ContainsFunc(c.doomed, func(d doomed) bool { return d.job == j }) {
			if c.queue.advanceJob(j); len(j.unmet) > 0 { // it looks at them when the store can be asked
				c.deps.waits.lookAt(j)
			}
		}
	}
	c.desk.clusterChanged()
	c.compareBook()
}

// restorable refuses a record that does not fit the others.
func (c *Core) restorable(r *record.Job, said *slurmopt.Options) error {
	if r.Array != 0 && (!isTask(r, said) || r.Rest != nil && (r.Rest.First() != int(r.Job-r.Array) || r.Rest.Last() >= said.Batch.Array.Tasks.Len())) {
		return errors.New("it is no task of its array")
	}
	if _, err := holdsOf(r.Usual); err != nil {
		return fmt.Errorf("how it has its GPUs: %w", err)
	}
	for _, p := range r.Parts {
		if p.Node < 0 || int(p.Node) >= len(c.fleet.nodes) {
			return fmt.Errorf("it has a part on node %d, of which there is no record", p.Node)
		}
	}
	for _, g := range r.Grants {
		if g.Node < 0 || int(g.Node) >= len(c.fleet.nodes) || g.For < 0 || int(g.For) >= len(r.Parts) {
			return fmt.Errorf("it borrows from node %d, of which there is no record", g.Node)
		}
	}
	return nil
}

// isTask says whether a record's number is one of its array.
func isTask(r *record.Job, said *slurmopt.Options) bool {
	return said != nil && said.Batch.Array != nil && r.Job >= r.Array && r.Job-r.Array < uint64(said.Batch.Array.Tasks.Len())
}

// doomed is a job that cannot go on as its record says.
type doomed struct {
	job *job
	why error
}

// restoreDoomed makes a job of a record that cannot be restored, so that it fails. It has none of what
// the record says of its nodes: agents are told to stop its tasks when they greet.
func (c *Core) restoreDoomed(r *record.Job, options parsed, why error) {
	bare := *r
	bare.Rest, bare.Parts, bare.Grants, bare.Unmet, bare.State = nil, nil, nil, nil, string(api.Pending)
	if !isTask(r, options.said) {
		bare.Array, bare.Task = 0, -1
	}
	if options.said == nil {
		options.said = &slurmopt.Options{}
	}
	c.restoreJob(&bare, options)
	c.doomed = append(c.doomed, doomed{c.roster.jobs[r.Job], why})
}

// failDoomed fails the jobs that cannot go on: before anything else happens, and when the store can be
// asked about the other tasks of their arrays.
func (c *Core) failDoomed() {
	for _, d := range c.doomed {
		j := d.job
		if j.active() {
			c.runner.release(j)
			c.roster.running--
		} else {
			c.roster.countPending(j, -1)
		}
		j.state, j.reason, j.end = api.Failed, fmt.Sprintf("the head could not restore it when it started: %v: submit it again, and tell the administrator", d.why), c.now
		if j.number >= 0 {
			must(c.desk.state.End(j.number))
		}
		c.queue.settleEnded(j)
	}
	c.doomed = nil
}

func (c *Core) restoreJob(r *record.Job, options parsed) {
	usual, _ := holdsOf(r.Usual) // restorable has read it
	j := &job{
		id: r.Job, array: r.Array, task: r.Task, state: api.State(r.State), submit: r.Submit, requeues: r.Requeues, limit: r.Limit,
		order: &order{
			user: r.User, dir: r.Dir, key: r.Key, secret: r.Secret, options: r.Options, asks: options.asks, said: options.said, command: r.Command, need: needOf(options.said),
		},
		queued: queued{held: heldBy(r.Held), priority: r.Priority, nice: r.Nice, eligible: r.Eligible, never: r.Never, notBefore: r.NotBefore, number: -1},
		attempt: attempt{
			nth: r.Attempt, start: r.Start, alternative: r.Alternative, lending: r.Lending, suspend: r.Suspend, byHand: r.ByHand, asleep: r.Asleep, stop: stopOf(r.Stop), usual: usual,
			suspended: r.Suspended, suspendedSince: r.SuspendedSince, cpu: r.CPU, peak: r.Peak,
		},
		passage:   passageOf(r.Passage),
		preempted: r.Preempted,
	}
	if j.rest = r.Rest; j.rest != nil {
		c.out.touch(j) // gather may have added tasks to it
	}
	c.queue.insert(j)
	if j.allocation() {
		c.intake.expect(j)
	}
	if at := j.passage.retry; at > 0 {
		c.timers.set(timer{at: at, what: ringRetry, job: j.id})
	}
	for _, t := range r.Unmet {
		c.deps.dependOn(j, term{slurmopt.Term(t)})
	}
	if len(r.Parts) == 0 {
		return
	}
	c.roster.countPending(j, -1)
	c.roster.running++
	j.alloc = &model.Allocation{}
	for _, p := range r.Parts {
		n := c.fleet.nodes[p.Node]
		j.alloc.Parts = append(j.alloc.Parts, model.Part{Node: p.Node, Cores: p.Cores, Memory: p.Memory, GPUs: p.GPUs, Exclusive: p.Exclusive})
		j.tasks = append(j.tasks, task{node: n, incarnation: p.Incarnation, state: agent.State(p.State), end: endOf(p.End)})
		n.add(j)
	}
	for _, g := range r.Grants {
		j.alloc.Grants = append(j.alloc.Grants, model.Grant(g))
	}
	for _, l := range r.Relays {
		j.relays = append(j.relays, relay(l))
	}
	c.lending.listLoans(j)
	for i := range j.loans {
		l := &j.loans[i]
		l.node.add(j)
		// Which nodes had confirmed their loan is not recorded: lendAgain finds out when each
		// greets.
		l.lent = !r.Lending || l.node == j.tasks[l.part].node && !l.home
	}
	j.lending = r.Lending
}

// adopt tells the policy of a job that has an allocation.
func (c *Core) adopt(j *job) error {
	c.desk.turn++
	j.turn = c.desk.turn
	m := c.desk.model(j)
	c.allowWhere(m, j)
	as := j.alternative
	if j.passage.from != "" {
		as = 0 // see goesOnAs
	}
	id, err := c.desk.state.Adopt(m, as, j.alloc, c.policyTime(j.start))
	if err != nil {
		return err
	}
	j.number, j.gate = id, atPolicy
	c.desk.numbered[id] = j
	c.runner.setSignal(j)
	c.runner.awaitLoans(j)
	if j.array != 0 {
		c.roster.arrays[j.array].admitted++
		j.inArray = true
	}
	c.users.take(j.order, 1)
	j.inLimit = true
	if !j.asleep {
		return nil
	}
	if err := c.desk.state.Suspended(id); err != nil {
		return err
	}
	if j.passage.stays != "" {
		must(c.desk.state.Stays(id))
	}
	c.desk.park(j)
	return nil
}

// allowWhere adds the nodes on which a job runs to those that it may use. They may no longer be
// among those: the agent may have come back as one that starts only another user's processes. The
// tasks run there all the same, and if the policy refused the job here, the head could not start.
func (c *Core) allowWhere(m *model.Job, j *job) {
	r := &m.Request
	if j.alternative > 0 && j.alternative <= len(m.Alternatives) {
		m.Alternatives = slices.Clone(m.Alternatives)
		r = &m.Alternatives[j.alternative-1]
	}
	r.Lenders = nil
	if len(r.NodeList) == 0 {
		return
	}
	r.NodeList = slices.DeleteFunc(slices.Clone(r.NodeList), func(name string) bool { return c.fleet.aliases[name] == "" })
	for i := range j.alloc.Parts {
		if name := c.fleet.nodes[j.alloc.Parts[i].Node].alias; !slices.Contains(r.NodeList, name) {
			r.NodeList = append(r.NodeList, name)
		}
	}
}

// compareBook reconciles a book from the store with the present jobs.
func (c *Core) compareBook() {
	if c.desk.ranking == nil {
		return
	}
	c.desk.ranking.Compare(c.roster.isThere)
	for j := range c.roster.from(0) {
		switch {
		case j.alloc != nil && !j.asleep:
			c.desk.bookStarted(j, max(c.desk.ranking.Wrote, j.start))
		case j.number < 0, j.asleep: // it stands still, or at a gate
			c.desk.ranking.Stopped(j.id, c.now)
		}
	}
}
