package head

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster/model/slurmopt"
	"muster/wire/agent"
	"muster/wire/api"
)

// actions is what users do to jobs that are there.
type actions struct {
	ground
	desk    *desk
	chores  *chores
	queue   *queue
	lending *lending
	runner  *runner
}

// cancel ends jobs, or sends them a signal. Jobs for which that is impossible are skipped; if the
// request names one job or array, and that is impossible for all of it, it is refused.
func (act *actions) cancel(ev Cancel) {
	w, err := act.mayDo(ev.Caller, ev.Jobs)
	if err != nil {
		act.out.answer(ev.Request, nil, err)
		return
	}
	reason := "cancelled by " + ev.User
	ch := act.ending(ev.User, ev.Jobs, func(j *job) { act.runner.cancelJob(j, reason) })
	ch.walk = w
	if ev.Signal != 0 {
		ch.passes = []pass{allJobs}
		ch.visit = func(j *job) bool {
			if j.active() && j.starts <= ch.starts {
				ch.changed = append(ch.changed, j.id)
				act.runner.signal(j, ev.Signal)
			}
			return true
		}
	}
	ch.finish = func(err *Refusal) {
		if err == nil && len(ch.changed) == 0 {
			err = act.nothingTo(ev.Jobs, ch.first, ev.Signal != 0)
		}
		act.answerChanged(ev.Request, ch, err)
	}
	act.chores.do(ch)
}

// ending is a request that ends jobs. Those that wait come first, so that none of them starts in the
// place of one that is being stopped.
func (act *actions) ending(user string, ref Ref, end func(*job)) *chore {
	ch := &chore{user: user, ref: ref, passes: []pass{restsOnly, waitingOnly, untilNone}, finish: func(*Refusal) {}}
	ch.visit = func(j *job) bool {
		if j.of != nil && !j.over() {
			j = act.queue.own(j)
		}
		if j == nil || j.over() {
			return true
		}
		ch.walk.waited = ch.walk.waited || j.state == api.Pending
		ch.changed = j.numbers(ch.changed)
		end(j)
		return true
	}
	return ch
}

// answerChanged answers a request with the numbers of the jobs that it has changed, or refuses it.
func (act *actions) answerChanged(r Request, ch *chore, err *Refusal) {
	if !slices.IsSorted(ch.changed) {
		slices.Sort(ch.changed)
	}
	act.out.answer(r, &api.Changed{Jobs: append([]uint64{}, slices.Compact(ch.changed)...)}, err) // one that has come to wait again was visited twice
}

// nothingTo refuses a request for a job or array that has ended, or with signal one that does not run.
func (act *actions) nothingTo(ref Ref, found *job, signal bool) *Refusal {
	switch name := act.roster.nameOf(ref); {
	case name == "":
		return refusal(statusConflict, "job %s is %s", found.name(), found.state)
	case signal:
		return refusal(statusConflict, "no task of job %s is running", name)
	default:
		return refusal(statusConflict, "all tasks of job %s have ended", name)
	}
}

// mayDo refuses a request that names jobs which there are not, or which the user may not touch, or if too
// many of the user's are under way: before anything is changed. It begins the walk through the jobs.
func (act *actions) mayDo(caller Caller, ref Ref) (*walk, *Refusal) {
	if len(act.chores.byUser[caller.User]) >= maxChores {
		return nil, refusal(statusTooManyRequests, "%d requests of %s are being carried out: send the next ones when some are answered", maxChores, caller.User)
	}
	w, err := act.chores.walkOf(ref)
	if err != nil {
		return nil, err
	}
	j := w.one
	if j == nil { // the tasks of an array are all one user's
		o := w.a.members[0]
		j = &job{order: o.order, array: o.array, task: int64(w.a.tasks.At(w.runs[0].from))}
	}
	return w, act.mayTouch(caller.User, j)
}

// change applies one of the other actions to jobs. If several are named, such as the tasks of an
// array, it changes those that it can, and refuses only if it can change none.
func (act *actions) change(ev Change) {
	w, err := act.mayDo(ev.Caller, ev.Jobs)
	if err != nil {
		act.out.answer(ev.Request, nil, err)
		return
	}
	ch := &chore{user: ev.User, ref: ev.Jobs, passes: []pass{allJobs}}
	ch.walk = w
	if ev.Action == Hold {
		ch.passes = []pass{restsOnly, jobsOnly}
	}
	forRunning := ev.Action == SuspendJob || ev.Action == MoveJob || ev.Action == RequeueJob || ev.Action == LimitDevices
	var trouble *Refusal
	ch.visit = func(j *job) (more bool) {
		switch {
		case j.over(), forRunning && j.starts > ch.starts:
			return true
		// The other actions are for jobs that have started, and refused.
		case j.of != nil && (ev.Action == Hold || ev.Action == Release || ev.Action == Prioritise):
			a := act.roster.arrays[j.array]
			if a.apart++; a.apart > maxApart {
				trouble = refusal(statusConflict, "%d tasks of job %d were changed one by one before they started: change the whole array", maxApart, a.id)
				return false
			}
			if j = act.queue.own(j); j == nil {
				return true
			}
		}
		if err := act.changeJob(j, &ev); err == nil {
			ch.changed = j.numbers(ch.changed)
		} else {
			trouble = cmp.Or(trouble, err)
			act.budget.looked += perRequest
		}
		return true
	}
	ch.finish = func(err *Refusal) {
		switch {
		case err != nil || len(ch.changed) > 0:
		case trouble != nil:
			err = trouble
		case ch.found == 1 && ch.first.over():
			err = act.changeJob(ch.first, &ev)
		default:
			err = act.nothingTo(ev.Jobs, ch.first, false)
		}
		act.answerChanged(ev.Request, ch, err)
	}
	act.chores.do(ch)
}

func (act *actions) changeJob(j *job, ev *Change) *Refusal {
	wrong := func(what string) *Refusal {
		return refusal(statusConflict, "job %s is %s: %s", j.name(), j.state, what)
	}
	if j.over() {
		return wrong("nothing can be changed about it")
	}
	admin := act.IsAdmin(ev.User)
	switch ev.Action {
	case Hold:
		j.held |= by(admin, j, ev.User)
		act.out.touch(j)
		act.queue.advanceJob(j)
	case Release:
		if j.held&heldByAdmin != 0 && !admin {
			return refusal(statusForbidden, "job %s is held by an administrator", j.name())
		}
		j.held = 0
		act.out.touch(j)
		act.queue.advanceJob(j)
	case Prioritise:
		return act.prioritise(j, ev, admin)
	case SuspendJob:
		if j.state != api.Running || j.lending {
			return wrong("only running jobs are suspended")
		}
		j.byHand = true
		act.runner.suspendJob(j)
	case MoveJob:
		if j.state != api.Running && j.state != api.Suspended || j.lending {
			return wrong("only running and suspended jobs are moved")
		}
		if why := j.cannotMove(); why != "" {
			return wrong("it cannot be moved: " + why)
		}
		j.byHand = j.byHand || !j.suspend // if its agent cannot save it, it stays suspended
		act.runner.move(j)
	case ResumeJob:
		if !j.suspend || j.state != api.Running && j.state != api.Suspended {
			return wrong("it is not suspended")
		}
		if !act.runner.resumeJob(j) {
			return refusal(statusConflict, "job %s cannot go on yet: others have its cores or GPUs", j.name())
		}
	case RequeueJob:
		if j.state == api.Pending && j.passage.from != "" {
			act.startOver(j)
			break
		}
		switch {
		case j.state != api.Running && j.state != api.Suspended:
			return wrong("only running and suspended jobs are requeued")
		case j.allocation():
			return wrong("an allocation ends with the command that it belongs to, and is not started anew")
		}
		act.runner.stopJob(j, stop{Cause: agent.Stopped, Reason: "requeued by " + ev.User, Requeue: true})
	case LimitDevices:
		if ev.Limit < -1 || !j.active() {
			return wrong("a limit is a number of devices of a running job, or -1")
		}
		j.limit = ev.Limit
		act.out.touch(j)
		act.lending.sendLimits(j)
	default:
		return refusal(statusBadRequest, "%q is nothing that can be done to a job", ev.Action)
	}
	return nil
}

// by says as whom a user holds a job. An administrator who holds his own job holds it as its user,
// so that he may release it as a user.
func by(admin bool, j *job, user string) heldBy {
	if admin && user != j.user {
		return heldByAdmin
	}
	return heldByUser
}

func (act *actions) prioritise(j *job, ev *Change, admin bool) *Refusal {
	if p := ev.Priority.Priority; p != nil {
		if !admin {
			return refusal(statusForbidden, "priorities are for administrators: use a nice value")
		}
		if *p < 0 || *p > slurmopt.MaxPriority {
			return refusal(statusBadRequest, "%d is no priority: give a number from 1 to %d, or 0 for the priority that the head computes", *p, slurmopt.MaxPriority)
		}
	}
	if n := ev.Priority.Nice; n != nil {
		if *n < 0 && !admin {
			return refusal(statusForbidden, "a nice value below 0 is for administrators")
		}
		if *n < -slurmopt.MaxNice || *n > slurmopt.MaxNice {
			return refusal(statusBadRequest, "%d is no nice value: give a number from -%[2]d to %[2]d", *n, slurmopt.MaxNice)
		}
	}
	if p := ev.Priority.Priority; p != nil {
		j.setPriority(*p)
	}
	if n := ev.Priority.Nice; n != nil {
		j.nice = *n
	}
	act.out.touch(j)
	act.desk.rank(j)
	act.desk.due()
	return nil
}

// nodeAction performs an administrator's action on nodes.
func (a *agents) nodeAction(ev Node) *Refusal {
	if !a.IsAdmin(ev.User) {
		return refusal(statusForbidden, "only administrators may %s nodes; user %s is not one", ev.Action, ev.User)
	}
	var nodes []*node
	for _, name := range ev.Nodes {
		n := a.fleet.byName[name]
		if n == nil {
			return refusal(statusNotFound, "there is no node %.64q", name)
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := a.mayChange(n, &ev); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		switch ev.Action {
		case DrainNode:
			n.drained, n.reason = true, ev.Reason
		case ResumeNode:
			n.drained, n.reason = false, ""
		case LabelNode:
			n.label(ev.Labels)
		case RenameNode:
			a.rename(n, ev.Name)
		case RemoveNode:
			a.remove(n, ev.User)
			continue
		default:
			return refusal(statusBadRequest, "%q is nothing that can be done to a node", ev.Action)
		}
		a.setNodeState(n)
		a.touchNode(n)
	}
	return nil
}

// mayChange refuses what cannot be done to a node as it is.
func (a *agents) mayChange(n *node, ev *Node) *Refusal {
	switch ev.Action {
	case RemoveNode:
		if !ev.Force && (n.session != 0 || a.isNeeded(n)) {
			return refusal(statusConflict, "node %s is connected or has jobs: stop it there, and wait until it is down; with force its jobs are lost", n.name)
		}
	case RenameNode:
		if n.session != 0 || len(n.jobs) > 0 {
			return refusal(statusConflict, "node %s is connected or has jobs: drain it, wait for its jobs, and stop it; then rename it, and start it under its new name", n.name)
		}
		if err := agent.CheckNodeName(ev.Name); err != nil {
			return refusal(statusBadRequest, "%v", err)
		}
		if a.fleet.byName[ev.Name] != nil {
			return refusal(statusConflict, "there is a node %s already: remove it first if that is the same machine", ev.Name)
		}
	case LabelNode:
		if err := checkLabels(n.labels, ev.Labels); err != nil {
			return refusal(statusBadRequest, "node %s: %v", n.name, err)
		}
	}
	return nil
}

// remove forgets a node. Its jobs, if it has any, are lost, as those of a node that does not come back.
func (a *agents) remove(n *node, user string) {
	reason := fmt.Sprintf("%s removed node %s", user, n.name)
	if n.session != 0 {
		a.out.hangUp(n.session)
		a.fleet.close(n, a.now, reason)
	}
	n.down = true
	a.loseTasks(n, reason)
	a.retire(n)
	a.forgetLoans(n)
	a.desk.clusterChanged()
}

// rename gives a node that is away, and has no jobs, another name. The policy goes on with the old one until the
// head starts again, so from now on it is told which nodes jobs may use.
func (a *agents) rename(n *node, name string) {
	delete(a.fleet.byName, n.name)
	n.name = name
	a.fleet.byName[name], a.fleet.aliases[n.alias] = n, name
	a.fleet.special = true
	clear(a.fleet.restricted)
	a.desk.describeNodes()
	a.desk.offerAll()
	a.desk.offerAgain()
	a.desk.retryImpossible()
	a.desk.clusterChanged()
	a.fleet.unsettle(n)
}

// isNeeded says whether a node has jobs that cannot do without it.
func (a *agents) isNeeded(n *node) bool {
	return slices.ContainsFunc(n.activeJobs(), func(id uint64) bool {
		j := a.roster.jobs[id]
		return !n.down || j.suspend || slices.ContainsFunc(j.tasks, func(t task) bool { return t.node == n }) ||
			slices.ContainsFunc(j.loans, func(l loan) bool { return l.node == n && !a.lending.canDoWithout(j, &l) })
	})
}

// forgetLoans drops what a node that was removed lends.
func (a *agents) forgetLoans(n *node) {
	for _, id := range n.activeJobs() {
		j := a.roster.jobs[id]
		if j.stop == nil {
			j.loans = slices.DeleteFunc(j.loans, func(l loan) bool { return l.node == n })
			delete(n.jobs, id)
		}
		a.out.touch(j)
	}
}

// ---- allocations ----

// An allocation is a job that runs nothing by itself: its nodes hold what it was given for the
// commands that its user starts there. It lasts as long as the user's command that it belongs to
// (muster alloc, or muster submit --pty), which says again and again that it is there (Keep), and at
// last how it ended (Finish). If it says nothing for Config.InactiveLimit, the allocation is
// cancelled, whether it waits or runs: so a machine that vanishes holds nothing. A head that starts
// gives every such command that time anew.

// allocationMark stands in for what runs in job.command.
const allocationMark = "<allocation>"

func (o *order) allocation() bool { return len(o.command) > 0 && o.command[0] == allocationMark }

// expect sets the timer that cancels an allocation of which nothing is heard.
func (in *intake) expect(j *job) {
	if j.heard = in.now; in.cfg.InactiveLimit > 0 {
		in.timers.set(timer{at: in.now + in.cfg.InactiveLimit, what: ringInactive, job: j.id})
	}
}

// inactive cancels an allocation whose command was not heard of for too long.
func (act *actions) inactive(j *job) {
	lapses := j.heard + act.cfg.InactiveLimit
	switch {
	case act.cfg.InactiveLimit <= 0:
	case act.now < lapses:
		act.timers.set(timer{at: lapses, what: ringInactive, job: j.id})
	default:
		act.runner.cancelJob(j, fmt.Sprintf("the command that it belongs to was not heard of for %v (inactive_limit)", act.cfg.InactiveLimit))
	}
}

// allocated finds an allocation that has not ended, for the user whose command speaks of it.
func (act *actions) allocated(caller Caller, ref Ref) (*job, *Refusal) {
	w, err := act.mayDo(caller, ref)
	switch {
	case err != nil:
		return nil, err
	case w.one == nil || !w.one.allocation():
		return nil, refusal(statusConflict, "job %d is no allocation: muster alloc and muster submit --pty make them", ref.Job)
	case w.one.over():
		return nil, refusal(statusConflict, "job %s is %s", w.one.name(), w.one.state)
	}
	return w.one, nil
}

// keep notes that the command of an allocation is there.
func (act *actions) keep(ev Keep) {
	j, err := act.allocated(ev.Caller, ev.Job)
	if err == nil {
		j.heard = act.now
	}
	act.out.answer(ev.Request, &api.Kept{Lapses: act.cfg.InactiveLimit.Seconds()}, err)
}

// finishAllocation ends an allocation as its command ended.
func (act *actions) finishAllocation(ev Finish) {
	j, err := act.allocated(ev.Caller, ev.Job)
	switch {
	case err != nil:
	case !j.active():
		act.runner.cancelJob(j, "its command has ended")
	default:
		outcome := api.Completed
		if ev.Exit != 0 {
			outcome = api.Failed
		}
		act.runner.stopJob(j, stop{Cause: agent.Stopped, Outcome: outcome, Exit: ev.Exit})
	}
	act.out.answer(ev.Request, &api.Changed{Jobs: []uint64{ev.Job.Job}}, err)
}

// DefaultInactiveLimit is the InactiveLimit of a head whose configuration says nothing.
const DefaultInactiveLimit = time.Minute
