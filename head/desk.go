package head

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"muster/head/ranking"
	"muster/model"
	"muster/policy"
	"muster/policy/preempt"
	"muster/policy/priority"
	"muster/wire/api"
)

// The head keeps a book of priorities. It tells the book what happens to jobs, and tells the policy
// the ranks that follow. Without a book, jobs stand in the order in which they came, apart from
// nice values and what administrators set. The store has the book as one record, written every
// keepRanking. After a restart, usage since the last write is computed again for jobs that still
// run; that of jobs that ended meanwhile is lost.

// desk is where the policy is served: it has what the policy was told, and what it is to be told next.
type desk struct {
	ground

	spec     string        // the policy, as the administrator named it
	weigh    bool          // the policy chooses among the requests of a job
	state    *policy.State // what the policy knows of the cluster
	numbered map[policy.JobID]*job
	ranking  *ranking.Ranking // nil if the policy alone orders the queue
	booking  bool             // the timer that has the book written is set
	turn     int64            // the latest turn that was given
	// impossible lists waiting jobs that no node could run; jobs that have become possible
	// or ended may still be listed.
	impossible []*job
	retrying   []*job // those of them that may have become possible
	offering   uint64 // from this job on, those that wait are to be submitted to the policy again; 0 if none are
	offerAnew  bool   // then all of them once more
	stepDue    bool
	wake       time.Duration // when the policy wants its next step
	profiles   bool          // the policy wants to know what jobs measured
	watches    bool          // and what is heard of nodes
	classes    bool          // partitions preempt each other
}

func newDesk(on ground, p policy.Policy, spec string) *desk {
	state := policy.NewState(&model.Cluster{Name: on.cfg.Cluster}, p)
	state.SetClock(on.policyClock)
	state.SetNames(on.fleet.readable)
	state.SetRetired(func(n int32) bool { return int(n) < len(on.fleet.nodes) && on.fleet.nodes[n].removed })
	return &desk{ground: on, spec: spec, weigh: p.Traits().Alternatives, state: state, numbered: map[policy.JobID]*job{}, wake: policy.Never, classes: classesOf(on.cfg.Partitions)}
}

// setPolicy makes another policy decide from the next step on.
func (d *desk) setPolicy(p policy.Policy, spec string) {
	d.state.SetPolicy(p)
	d.spec, d.weigh, d.profiles, d.watches = spec, p.Traits().Alternatives, false, false
	d.fleet.unsettleAll()
	d.due()
}

// measured tells the policy what was measured of a job that holds something, if it wants to know. It decides
// nothing because of that.
func (d *desk) measured(j *job) {
	if d.profiles {
		must(d.state.Measure(j.number, j.measured.sum()))
	}
}

// due has the policy decide soon: something has changed.
func (d *desk) due() { d.stepDue = true }

// dueIfHungry has it decide soon if there are more tasks that could start.
func (d *desk) dueIfHungry() { d.stepDue = d.stepDue || len(d.roster.hungry) > 0 }

// leastRest is the least time between two steps that the policy alone asked for.
const leastRest = 100 * time.Millisecond

// step lets the policy decide.
func (d *desk) step() *policy.Plan {
	d.stepDue = false
	d.tellHeard()
	at := d.policyTime(d.now)
	plan := d.state.Step(at)
	d.wake = policy.Never
	if plan.Wake != policy.Never && plan.Wake > at {
		// A policy script may ask for any time, at every step: leastRest keeps it from making the
		// head step without pause.
		d.wake = model.After(max(plan.Wake, at+leastRest), d.began)
	}
	return plan
}

// offerAll has all waiting jobs that choose among nodes submitted to the policy from the first on.
func (d *desk) offerAll() { d.offering = 1 }

// offerAgain has all waiting jobs for which the policy has a list of nodes submitted to it again, because
// the nodes that they may use (mayUse), or their names, have changed. The next steps do that.
func (d *desk) offerAgain() {
	d.offerAnew = d.offering > 0
	d.offering = max(d.offering, 1)
}

// offerSome submits some of these jobs again, and says whether that was all: the policy decides with the
// old names or with the new ones, not with both. If a node has changed meanwhile, it decides once all the
// same, so that nodes which change all the time do not keep it from that.
//
// Before these come jobs that no node could run (retryImpossible): for them the policy does not wait.
func (d *desk) offerSome() bool {
	looked := 0
	for ; len(d.retrying) > 0 && looked < maxLooked; looked += perImpossible {
		j := d.retrying[0]
		d.retrying = d.retrying[1:]
		j.impossible = ""
		if j.state == api.Pending && j.gate == atPolicy && j.number < 0 {
			d.offer(j)
		}
	}
	if d.offering == 0 {
		return true
	}
	for j := range d.roster.from(d.offering) {
		if looked >= maxLooked {
			d.offering = j.id
			return false
		}
		if looked++; j.state != api.Pending || j.number < 0 || !d.fleet.chooses(j) && !d.fleet.parts.ever {
			continue
		}
		looked += perRequest
		d.offerAfresh(j)
	}
	d.offering = 0
	if d.offerAnew {
		d.offerAnew, d.offering = false, 1
	}
	return true
}

// offerAfresh submits a waiting job to the policy again.
func (d *desk) offerAfresh(j *job) {
	if j.number >= 0 {
		must(d.state.Cancel(j.number))
		delete(d.numbered, j.number)
		j.number = -1
	}
	d.offer(j)
}

// retryImpossible has the jobs that no node could run offered to the policy again, by the next steps.
func (d *desk) retryImpossible() {
	d.retrying = append(d.retrying, d.impossible...)
	d.impossible = nil
}

// setRanking makes the book, from the stored document if there is one.
func (d *desk) setRanking(kept *priority.Document) error {
	if d.cfg.Priority == nil {
		return nil
	}
	var err error
	if d.ranking, err = ranking.New(d.cfg.Priority.WithPartitions(d.cfg.Partitions), kept); err != nil {
		return err
	}
	if !d.booking {
		d.booking = true
		d.timers.set(timer{at: d.now + keepRanking, what: ringRanking})
	}
	return nil
}

// setPriority has other priorities order the queue. What users have used is kept.
func (d *desk) setPriority(cfg *priority.Config, parts []model.Partition) error {
	old, oldParts, was := d.cfg.Priority, d.cfg.Partitions, d.ranking
	var kept *priority.Document
	if was != nil {
		document := was.Book.Export()
		kept = &document
	}
	d.cfg.Priority, d.cfg.Partitions, d.ranking = cfg, parts, nil
	if err := d.setRanking(kept); err != nil {
		d.cfg.Priority, d.cfg.Partitions, d.ranking = old, oldParts, was
		return err
	}
	d.clusterChanged()
	for j := range d.roster.from(0) {
		switch {
		case j.alloc != nil && !j.asleep && !j.over():
			d.bookStarted(j, max(d.now, j.start))
		case j.state == api.Pending && j.number >= 0:
			d.bookSubmitted(j)
			d.rank(j)
		}
	}
	d.due()
	return nil
}

// bookSubmitted enters a job that has been offered to the policy.
func (d *desk) bookSubmitted(j *job) {
	d.ranking.Submitted(j.id, d.now, func() priority.Submission { return d.entryOf(j) })
}

// entryOf is what the book needs to know of a job.
func (d *desk) entryOf(j *job) priority.Submission {
	r := &j.said.Request
	return priority.Submission{
		User: j.user, Account: j.said.Account, QOS: j.said.QOS, Partition: j.said.Partition, At: cmp.Or(j.eligible, d.now),
		Nodes: int64(r.Nodes), Asks: priority.AsksOf(d.state.Cluster(), r), Nice: j.nice, Admin: j.priority,
	}
}

func (d *desk) bookStarted(j *job, at time.Duration) {
	if d.ranking == nil {
		return
	}
	if !d.ranking.Knows(j.id) {
		d.bookSubmitted(j)
	}
	d.ranking.Started(j.id, at, priority.HoldsOf(d.state.Cluster(), j.alloc))
}

// mayBook refuses a job that the book would refuse.
func (d *desk) mayBook(j *job) *Refusal {
	if d.ranking == nil {
		return nil
	}
	if err := d.ranking.Book.Possible(priority.Key(j.id), d.entryOf(j)); err != nil {
		return refusal(statusBadRequest, "%v", err)
	}
	return nil
}

// rankAll tells the policy the ranks that have changed.
func (d *desk) rankAll() {
	if d.ranking == nil {
		return
	}
	for _, r := range d.ranking.Book.Due(d.now) {
		if j := d.roster.jobs[uint64(r.Job)]; j != nil && j.number >= 0 && j.state == api.Pending {
			must(d.state.Rank(j.number, d.fleet.parts.rankOf(j.order, r.Rank)))
			d.due()
		}
	}
}

// rank brings a waiting job's rank up to date. The book takes nice value and priority, and rankAll
// hands on what follows; a job that is not in the book is ranked directly.
func (d *desk) rank(j *job) {
	if j.number < 0 || j.state != api.Pending {
		return
	}
	if d.ranking.Adjust(j.id, j.nice, j.priority) {
		return
	}
	must(d.state.Rank(j.number, d.fleet.parts.rankOf(j.order, d.standing(j))))
}

// standing is a job's priority, as users see it. Tasks of an array that the book does not know yet
// have that of those which wait with the policy.
func (d *desk) standing(j *job) int64 {
	if d.ranking != nil {
		if r := cmp.Or(j.of, j); r.rest != nil && r.passed > 0 {
			if o := d.roster.arrays[r.array].ahead(r); o != nil {
				j = o
			}
		}
		if rank, ok := d.ranking.Book.Rank(priority.Key(j.id)); ok {
			return rank
		}
	}
	if j.priority != nil {
		return *j.priority
	}
	return -j.nice
}

// keepBook writes the book to the store, and sets the timer for the next time.
func (d *desk) keepBook() {
	d.booking = d.ranking != nil
	if d.booking {
		d.out.write(Record{Meta, rankingKey, encoded(d.ranking.Book.Export())})
		d.timers.set(timer{at: d.now + keepRanking, what: ringRanking})
	}
}

// clusterChanged tells the book the size of the cluster, and the policy the nodes of the windows.
func (d *desk) clusterChanged() {
	if d.ranking != nil {
		d.ranking.Book.Cluster(int64(len(d.fleet.byName)), priority.WholeOf(d.state.Cluster()))
	}
	d.setWindows()
}

// setWindows tells the policy the windows that are not over, with the numbers of the present nodes.
func (d *desk) setWindows() {
	var list []policy.Window
	for _, w := range d.cfg.Windows {
		p := policy.Window{Name: w.Name, From: d.policyTime(w.From), Until: d.policyTime(w.Until), Users: w.Users, Accounts: w.Accounts}
		if w.Until <= d.now || p.From >= p.Until { // over, or beyond the policy's clock
			continue
		}
		for _, n := range d.fleet.nodes {
			if !n.removed && (len(w.Nodes) == 0 || slices.Contains(w.Nodes, n.name)) {
				p.Nodes = append(p.Nodes, n.number)
			}
		}
		if len(p.Nodes) > 0 {
			list = append(list, p)
		}
	}
	if len(list) == 0 && len(d.state.Windows()) == 0 {
		return
	}
	must(d.state.SetWindows(list))
	d.due()
}

// count says how many tasks of its array a job makes wait with the policy.
func (d *desk) count(j *job, offered bool) {
	if j.array == 0 || j.offered == offered {
		return
	}
	j.offered = offered
	a, u := d.roster.arrays[j.array], d.users.of(j.user)
	if offered {
		a.offered++
		u.offered++
		return
	}
	a.offered--
	u.offered--
	d.roster.hunger(a)
}

// possible refuses a job that none of the known nodes could ever run. A cluster without nodes takes
// every job: nodes will come.
func (d *desk) possible(j *job) *Refusal {
	if len(d.fleet.byName) == 0 || d.fleet.empty(j) != "" {
		return nil
	}
	if err := d.state.Possible(d.model(j)); err != nil {
		return refusal(statusUnprocessableEntity, "it can never run: %v: ask for less, or submit it when more nodes have come (muster nodes lists those that are known)", err)
	}
	return nil
}

// asked is a job as it was submitted.
func (d *desk) asked(j *job) *model.Job {
	m := &model.Job{ID: j.name(), User: j.user, Submit: d.policyTime(max(j.eligible, j.submit)), Turn: j.turn}
	j.said.Apply(m)
	return m
}

// model is the job as the policy sees it.
func (d *desk) model(j *job) *model.Job {
	m := d.asked(j)
	if d.classes {
		m.QOS = m.Queue
	}
	m.Run = aYear
	m.Logged = &model.Logged{Wait: -1, CPUTime: -1, UsedMemory: -1, Executable: j.title()} // policies may recognise programs by name
	if m.WallTime == 0 && !j.said.Unlimited {
		m.WallTime = d.cfg.TimeLimit
	}
	j.goesOnAs(m)
	if d.fleet.chooses(j) {
		d.fleet.limit(m, j)
	}
	return m
}

// offer submits a job to the policy. If no node can run it, the job stays with the head until nodes
// have changed (retryImpossible).
func (d *desk) offer(j *job) {
	if j.turn == 0 {
		d.turn++
		j.turn = d.turn
	}
	d.count(j, true)
	if _, why := d.barred(j); why != "" {
		d.isImpossible(j, errors.New(why))
		return
	}
	id, err := d.state.Submit(d.model(j))
	if err != nil {
		if !errors.Is(err, policy.ErrImpossible) {
			panic("head: " + err.Error()) // Submit has no other error
		}
		d.isImpossible(j, err)
		return
	}
	j.impossible = ""
	j.number = id
	d.numbered[id] = j
	d.bookSubmitted(j)
	d.rank(j)
	d.due()
}

// park tells the policy of a suspended job that it is to leave it alone, if it is: the policy must not resume a
// job while it is saved or stopped, nor one that a user has suspended.
func (d *desk) park(j *job) {
	if j.asleep && (j.byHand || j.passage.wanted || j.stop != nil) {
		must(d.state.Parked(j.number))
		d.due()
	}
}

// isImpossible lists a job that no node can run, once.
func (d *desk) isImpossible(j *job, err error) {
	if j.impossible == "" {
		if len(d.impossible) == cap(d.impossible) { // before growing, drop those that have ended
			d.impossible = slices.DeleteFunc(d.impossible, (*job).over)
			d.impossible = slices.Grow(d.impossible, max(1, len(d.impossible)))
		}
		d.impossible = append(d.impossible, j)
	}
	j.impossible = err.Error()
}

// rankingKey is the key of the book's record.
var rankingKey = []byte("priority")

// keepRanking is how often the book is written.
const keepRanking = 5 * time.Minute

// watch has the policy told what is heard of nodes, or no more.
func (d *desk) watch(yes bool) {
	if d.watches == yes {
		return
	}
	if d.watches = yes; yes {
		for _, n := range d.fleet.nodes {
			d.hear(n)
		}
		d.tellHeard()
	}
}

// tellHeard tells the policy what was heard of nodes since it was told last.
func (d *desk) tellHeard() {
	for _, n := range d.fleet.news {
		n.news = false
		if !d.watches || n.removed {
			continue
		}
		h := policy.Heard{Alive: n.connected(), At: d.policyTime(n.heardAt), Reported: policy.Never}
		if n.load != nil {
			h.Reported, h.Assigned, h.Waiting = d.policyTime(n.loadAt), n.load.Assigned, n.load.Waiting
		}
		must(d.state.Hear(n.number, h))
	}
	d.fleet.news = d.fleet.news[:0]
}

// hear notes that the policy may not know what was heard of a node.
func (d *desk) hear(n *node) {
	if d.watches && !n.news {
		n.news = true
		d.fleet.news = append(d.fleet.news, n)
	}
}

// weightOf is the weight that administrators give to a node; 0 if they give it none.
func (d *desk) weightOf(name string) (weight int) {
	for _, r := range d.cfg.NodeRules {
		if r.Weight != 0 && (len(r.Nodes) == 0 || slices.Contains(r.Nodes, name)) {
			weight = r.Weight
		}
	}
	return weight
}

// featuresOf lists what administrators say that a node has, in order.
func (d *desk) featuresOf(name string) (features []string) {
	for _, r := range d.cfg.NodeRules {
		if len(r.Nodes) == 0 || slices.Contains(r.Nodes, name) {
			features = append(features, r.Features...)
		}
	}
	slices.Sort(features)
	return slices.Compact(features)
}

// describeNodes takes over what administrators say of nodes: the policy is told their weights, and which of them the jobs
// may use that want features.
func (d *desk) describeNodes() {
	changed := false
	for _, n := range d.fleet.nodes {
		if n.removed {
			continue
		}
		must(d.state.Weigh(n.number, d.weightOf(n.name)))
		if has := d.featuresOf(n.name); !slices.Equal(has, n.features) {
			n.features, changed = has, true
		}
	}
	if changed {
		clear(d.fleet.restricted)
		d.offerAgain()
		d.retryImpossible()
	}
}

// wanted is how a node is to serve programs: what the policy says goes before what administrators say, and among
// these the last rule before others.
func (d *desk) wanted(n *node) (s model.NodeSettings) {
	for _, r := range d.cfg.NodeRules {
		if len(r.Nodes) == 0 || slices.Contains(r.Nodes, n.name) {
			s = r.Settings.Over(s)
		}
	}
	return d.state.SettingsOf(n.number).Over(s)
}

// partsNow takes over the partitions of a new configuration. Which of them preempt others the policy was told before: it
// has them as its classes.
func (d *desk) partsNow() {
	was := d.fleet.parts.ever
	d.classes = classesOf(d.cfg.Partitions)
	d.fleet.divide(d.cfg.Partitions)
	if was || d.fleet.parts.ever {
		d.offerAgain()
		d.retryImpossible()
	}
}

// classesOf says whether the partitions preempt each other. Then policies take them as the class of a job.
func classesOf(list []model.Partition) bool { return preempt.FromPartitions(list) != nil }

// barred says why the partition of a job lets it not start, in one of Slurm's words and in a sentence; "" if it
// does.
func (d *desk) barred(j *job) (word, why string) {
	if len(d.fleet.parts.list) == 0 {
		return "", ""
	}
	p, err := model.PartitionOf(d.fleet.parts.list, j.said.Partition)
	switch {
	case err != nil:
		return "PartitionConfig", err.Error() + ": an administrator can add it, or cancel the job and submit it to another"
	case p.State == model.PartitionDown:
		return "PartitionDown", "partition " + p.Name + " is down: its jobs wait until an administrator sets it up"
	case p.State == model.PartitionInactive:
		return "PartitionInactive", "partition " + p.Name + " is inactive: its jobs wait until an administrator sets it up"
	case j.passage.from != "": // it has started already
		return "", ""
	}
	err = p.Exceeded(d.asked(j))
	switch {
	case errors.Is(err, model.ErrPartitionTime):
		return "PartitionTimeLimit", err.Error()
	case err != nil:
		return "PartitionNodeLimit", err.Error()
	}
	return "", ""
}
