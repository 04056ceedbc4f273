package head

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster/head/record"
	"muster/model"
	"muster/wire/agent"
	"muster/wire/api"
)

// passage is a job's way from one place to another with what it has done so far. A job that is to move is
// suspended, and its agent saves its processes in a folder that other nodes have, too (agent.Checkpoint).
// When that is on the head's disk its task is stopped, and the job waits in the queue; its next attempt
// begins from the folder. Until its task is stopped, the job is a suspended one like others, and if it cannot
// be saved it stays that.
type passage struct {
	// wanted says that it is to be saved as soon as it is suspended.
	wanted bool
	// stays is why it could not be moved when that was last tried; "" if it could, or was not.
	stays string
	// saves counts how often it was to be saved. Each time has a folder of its own: that of the time before may
	// still be about to be removed.
	saves int

	// from is the folder in which it was saved, "" if it is in none, and shared what its nodes call the
	// folder where that lies (agent.Hello.Checkpoints).
	from, shared string
	// used is a folder of no use any more, as one from which it went on. It is removed at once, and in case nobody
	// heard that, again when the job's node greets and when the job has ended.
	used    string
	attempt uint32        // the attempt that was saved; 0 if none was
	ran     time.Duration // how long it had run then
	granted int           // which of its requests it was started with
	origin  string        // the node of its first attempt, after which its files are named
	before  []string      // the nodes where it was, the first one first
	// not are nodes where it could not go on. It avoids them until retry (0 if there are none), as what was in its
	// way there may have passed by then. rounds counts how often that was.
	not    []string
	retry  time.Duration
	rounds int
}

func (p *passage) record() *record.Passage {
	if !p.wanted && p.stays == "" && p.attempt == 0 && p.saves == 0 {
		return nil
	}
	return &record.Passage{
		Wanted: p.wanted, Stays: p.stays, Saves: p.saves, From: p.from, Used: p.used, Shared: p.shared, Attempt: p.attempt, Ran: p.ran, Granted: p.granted, Origin: p.origin, Before: p.before, Not: p.not, Retry: p.retry, Rounds: p.rounds,
	}
}

func passageOf(r *record.Passage) (p passage) {
	if r == nil {
		return p
	}
	return passage{
		wanted: r.Wanted, stays: r.Stays, saves: r.Saves, from: r.From, used: r.Used, shared: r.Shared, attempt: r.Attempt, ran: r.Ran, granted: r.Granted, origin: r.Origin, before: r.Before, not: r.Not, retry: r.Retry, rounds: r.Rounds,
	}
}

// isSaved says whether the job's present attempt, or its last if it waits, was saved, and is only to end.
func (j *job) isSaved() bool { return j.passage.from != "" && j.passage.attempt == j.nth }

// folder is what the job's present attempt is saved under. Clusters may share the place, and nobody is to
// guess the name.
func (j *job) folder() string {
	return fmt.Sprintf("%d.%d.%d-%x", j.id, j.nth, j.passage.saves, []byte(j.credential(0))[:8])
}

// onNode is the node after which the job's files are named.
func (j *job) onNode(now string) string {
	if j.passage.origin != "" {
		return j.passage.origin
	}
	return now
}

// hasRun is for how long a job has run, in all places.
func (j *job) hasRun(now time.Duration) time.Duration {
	if j.isSaved() { // its present attempt is counted
		return j.passage.ran
	}
	return j.passage.ran + j.elapsed(now)
}

// left is what is left of a job's time limit when it goes on from where it was saved.
func (j *job) left(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return max(time.Second, limit-j.passage.ran)
}

// goesOnAs makes the policy's job what a saved one can go on as: it has the rest of its time, and what it was
// granted when it was started, on one node.
func (j *job) goesOnAs(m *model.Job) {
	if j.passage.attempt == 0 {
		return
	}
	m.Alternatives = slices.Clone(m.Alternatives)
	if j.passage.from != "" {
		m.Request, m.Alternatives = *j.asked(j.passage.granted), nil
		if r := &m.Request; r.Nodes == 0 { // it ran on one, as only what does can be saved
			r.Nodes, r.CoresPerNode, r.CoresPerProcess = 1, 0, 0
		}
	}
	m.WallTime, m.Request.WallTime = j.left(m.WallTime), j.left(m.Request.WallTime)
	for i := range m.Alternatives {
		m.Alternatives[i].WallTime = j.left(m.Alternatives[i].WallTime)
	}
}

// grantedAs is which of its requests a job has that the policy starts with one of those that it was told: of a
// saved job it was told one.
func (j *job) grantedAs(alternative int) int {
	if j.passage.from != "" {
		return j.passage.granted
	}
	return alternative
}

// move has a job go on elsewhere: one that runs is suspended first.
func (run *runner) move(j *job) {
	if !j.passage.wanted {
		j.passage.saves++
	}
	j.passage.wanted, j.passage.stays = true, ""
	run.out.touch(j)
	if !j.suspend {
		run.suspendJob(j)
		return
	}
	run.desk.park(j)
	run.save(j)
}

// save has the agent of a suspended job that is to move save it. It may be told twice.
func (run *runner) save(j *job) {
	if !j.passage.wanted || j.state != api.Suspended || j.stop != nil {
		return
	}
	n, why := j.tasks[0].node, j.cannotMove()
	switch {
	case why != "":
		run.stays(j, why)
		return
	case n.session == 0: // it is told when its agent greets
		return
	}
	run.out.post(n, agent.Checkpoint{Task: j.taskName(0), Folder: j.folder()})
}

// cannotMove says why an active job cannot be saved, as far as that is known before its agent tries; "" if
// nothing is known that is in the way.
func (j *job) cannotMove() string {
	n, processes := j.tasks[0].node, j.perNode()[0]
	switch {
	case j.allocation():
		return "it is an allocation, and the command that it belongs to would lose its processes"
	case len(j.tasks) > 1:
		return "it runs on several nodes, and only the processes of one can be saved together"
	case processes > 1 && !j.script():
		return fmt.Sprintf("it has %d processes that were started side by side, and only one with its descendants can be saved", processes)
	case slices.ContainsFunc(j.loans, func(l loan) bool { return l.node != n }):
		return "it uses a GPU of another node, whose contents cannot be saved with it"
	case n.session != 0 && n.checkpoints == "":
		return n.says(n.noCheckpoints)
	}
	return ""
}

// stays notes that a job which was to move cannot: it stays suspended where it is.
func (run *runner) stays(j *job, why string) {
	j.passage.wanted, j.passage.stays = false, "it cannot be moved: "+why
	must(run.desk.state.Stays(j.number))
	run.desk.park(j)
	run.desk.due()
	run.out.touch(j)
}

// saved takes an agent's answer: the job is in the folder, and makes way, or it stays where it is. What
// nobody wants any more is removed.
func (run *runner) saved(n *node, m agent.Checkpointed) {
	j := run.roster.jobs[m.Task.Job]
	mine := j != nil && j.active() && m.Task == j.taskName(0) && j.tasks[0].node == n && m.Folder == j.folder()
	switch {
	case mine && j.isSaved():
	case !mine || !j.passage.wanted || j.state != api.Suspended || j.stop != nil:
		if m.Error == "" {
			run.out.post(n, agent.Discard{Folder: m.Folder})
		}
	case m.Error != "":
		run.stays(j, n.says(m.Error))
	default:
		p := &j.passage
		p.wanted, p.from, p.shared, p.attempt = false, m.Folder, n.checkpoints, j.nth
		p.ran += j.elapsed(run.now)
		p.granted = j.alternative
		p.origin, p.before, p.rounds = j.onNode(n.name), append(p.before, n.name), 0
		run.stopJob(j, stop{Cause: agent.Stopped, Reason: "it was saved, and goes on elsewhere", Requeue: true})
	}
}

// arrived notes that a job goes on that was saved, and has begun where it is now: what was saved is of no use any more.
func (a *agents) arrived(j *job) {
	if j.passage.from == "" || j.isSaved() {
		return
	}
	j.passage.from, j.passage.used, j.passage.stays = "", j.passage.from, ""
	j.passage.tryAll()
	a.fleet.discard(a.out, j)
	a.out.touch(j)
}

// comesBack decides about a job whose attempt is over that was to begin from where it was saved: it waits
// again, and for a time avoids a node where it could not go on.
func (d *desk) comesBack(j *job) {
	p := &j.passage
	if p.from == "" || j.isSaved() || len(j.tasks) == 0 {
		return
	}
	t := &j.tasks[0]
	p.wanted, p.stays = false, t.node.says(t.end.Reason)
	if t.end.Cause != agent.NotReady && t.end.Cause != agent.NotBegun {
		return
	}
	p.not = append(p.not, t.node.name)
	if p.retry == 0 {
		p.retry = d.now + min(time.Minute<<min(p.rounds, 10), time.Hour)
		d.timers.set(timer{at: p.retry, what: ringRetry, job: j.id})
	}
}

// retry has a saved job avoid no node any more.
func (d *desk) retry(j *job) {
	p := &j.passage
	if p.retry == 0 || p.retry > d.now {
		return
	}
	p.tryAll()
	p.rounds++
	d.out.touch(j)
	if j.state == api.Pending && j.gate == atPolicy {
		d.offerAfresh(j)
		d.due()
	}
}

// tryAll forgets where it could not go on.
func (p *passage) tryAll() { p.not, p.retry = nil, 0 }

// forget has a job begin from the beginning. What lies in folders is still to be removed.
func (p *passage) forget() {
	*p = passage{used: cmp.Or(p.from, p.used), shared: p.shared, saves: p.saves}
}

// unwanted has a job stay where it is that was to move. It may have been saved, and nobody may hear of that.
func (j *job) unwanted() {
	p := &j.passage
	if p.wanted && j.asleep {
		p.used, p.shared = j.folder(), j.tasks[0].node.checkpoints
	}
	p.wanted, p.stays = false, ""
}

// startOver has a waiting job forget what was saved of it: it begins from the beginning.
func (act *actions) startOver(j *job) {
	act.fleet.discard(act.out, j)
	j.passage.forget()
	act.desk.offerAfresh(j)
	act.desk.due()
	act.out.touch(j)
}

// discard has a node that has a job's folders remove them, its own if that is one: it hears so again when it
// greets. If none is there, they are left.
func (f *fleet) discard(out *outbox, j *job) {
	p := &j.passage
	if p.from == "" && p.used == "" {
		return
	}
	has := func(n *node) bool { return n.session != 0 && n.checkpoints == p.shared }
	var by *node
	if len(j.tasks) > 0 && has(j.tasks[0].node) {
		by = j.tasks[0].node
	} else if at := slices.IndexFunc(f.nodes, has); at >= 0 {
		by = f.nodes[at]
	} else {
		return
	}
	for _, folder := range []string{p.from, p.used} {
		if folder != "" {
			out.post(by, agent.Discard{Folder: folder})
		}
	}
}

// says is a reason of the node's.
func (n *node) says(why string) string { return fmt.Sprintf("node %s: %s", n.name, why) }

// mayHave says whether a node can have a job that was saved.
func (n *node) mayHave(j *job) bool {
	p := &j.passage
	return p.from == "" || n.checkpoints == p.shared && !slices.Contains(p.not, n.name)
}
