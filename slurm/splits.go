package slurm

import (
	"slices"

	"muster/model"
)

// The policies give every node of a job the same number of processors, as many as its largest share
// needs, and the placement pins that (MinCPUsNode): nothing else of a division can be said to Slurm
// after the submission. What Slurm does with tasks that cannot be divided equally differs by
// release. In 22.05 each node gives what was pinned: 5 tasks on 2 nodes get 3 and 3 processors.
// From 24.11 on Slurm requires that much to be free and takes less: 3 and 2, the first nodes in its
// order having one task more. From the placement on, the book has what Slurm will take (trim).
//
// A job that asks for more processors than a node has, and for nothing else of nodes, may have them
// wherever they are free. Nothing is pinned then: of the nodes that it is given, Slurm takes
// everything that is free on the first one in its order, then on the next, and leaves one task's
// worth for each of the rest.

// spreads says whether a job that asks only for processors may have them on any number of nodes.
// Some releases do not distinguish it from a job that asks for a minimum number of nodes
// (release.TellsOpenNodes).
func (rd *reader) spreads(f *Job, r *model.Request, borrower bool) bool {
	switch {
	case rd.fleet.largest == 0, f.CPUs <= rd.fleet.largest, f.MinNodes > (f.CPUs+rd.fleet.largest-1)/rd.fleet.largest, f.MaxNodes != 0 && f.MaxNodes != f.Tasks:
		return false
	case r.Exclusive, r.Contiguous, f.Required != "", f.TasksPerNode > 0, borrower, max(1, f.CPUsPerTask)*f.Tasks != f.CPUs, rd.fleet.threads > 1:
		return false
	case r.GPUs > 0, rd.cfg.Memory && f.MemoryPerNode == 0: // memory is allocated by processor
		return false
	}
	return true
}

// greedy sets what each node gives to a job that spreads to what Slurm will take there. A node's
// room is what the part has already plus what is free.
func (l *ledger) greedy(f *Job, parts []model.Part) bool {
	slices.SortFunc(parts, func(a, b model.Part) int { return int(a.Node - b.Node) })
	per, rest := max(1, f.CPUsPerTask), f.CPUs
	for i := range parts {
		room := int(parts[i].Cores + l.book.state.View().FreeCores(parts[i].Node))
		give := min(room, rest-per*(len(parts)-1-i)) / per * per
		if give < per {
			return false
		}
		parts[i].Cores = int32(give)
		rest -= give
	}
	return rest == 0
}

// Slurm takes what is free in its own books, and a job that was placed and has not started has
// nothing there yet. A job that spreads would take what is meant for the other, which would then
// wait for long. So neither kind is placed on a node of the other until that has started.

// startsFirst names a node on which another job must start before this one is placed there; "" if
// there is none.
func (l *ledger) startsFirst(j *job, a *model.Allocation) string {
	const some, spread = 1, 2
	if l.open == nil {
		l.open = map[int32]int{}
		for _, o := range l.roster.jobs {
			if o.number < 0 || o.phase != placing && o.phase != placed {
				continue
			}
			for _, p := range l.book.state.Allocation(o.number).Parts {
				l.open[p.Node] |= some
				if o.spread {
					l.open[p.Node] |= spread
				}
			}
		}
	}
	j.spread = j.spec.Request.Nodes == 0 && j.before == nil // an alternative never spreads
	mark := some
	if j.spread {
		mark |= spread
	}
	for i := range a.Parts {
		if is := l.open[a.Parts[i].Node]; is&spread != 0 || is != 0 && j.spread {
			return l.fleet.nodes[a.Parts[i].Node].Name
		}
	}
	for i := range a.Parts {
		l.open[a.Parts[i].Node] |= mark
	}
	return ""
}

// trim corrects the book to what Slurm will take of an allocation that was just made for a job.
func (l *ledger) trim(j *job, a *model.Allocation) {
	parts := slices.Clone(a.Parts)
	if j.spread {
		if !l.greedy(&j.fact, parts) {
			return
		}
	} else if !l.split(j, parts) {
		return
	}
	grants := l.grantsOf(j)
	if j.borrower {
		for i := range parts {
			parts[i].GPUs = 0 // they are among the grants
		}
	}
	before := j.number
	if must(l.book.state.End(before)); !l.adoptWhole(j, parts, grants) {
		panic("slurm: what Slurm will take of nodes does not fit what is free there")
	}
	delete(l.book.numbered, before)
	l.book.due()
}

// split sets what each node gives to what Slurm will take there. It is false if that is what was
// pinned, or if it cannot be predicted: the book is then corrected when the job starts.
func (l *ledger) split(j *job, parts []model.Part) bool {
	f, n := &j.fact, len(parts)
	switch {
	case !l.cfg.Balanced, n < 2, parts[0].Exclusive, f.Tasks%n == 0, f.TasksPerNode > 0, j.before != nil:
		return false
	case l.cfg.Memory && f.MemoryPerNode == 0: // memory is allocated by processor
		return false
	}
	slices.SortFunc(parts, func(a, b model.Part) int { return int(a.Node - b.Node) })
	threads, changed := max(1, l.fleet.threads), false
	for i := range parts {
		tasks := f.Tasks / n
		if i < f.Tasks%n {
			tasks++
		}
		cpus := (tasks*max(1, f.CPUsPerTask) + threads - 1) / threads * threads
		if cpus > int(parts[i].Cores) {
			return false // the job asks for more than its tasks need: not predictable
		}
		changed = changed || cpus < int(parts[i].Cores)
		parts[i].Cores = int32(cpus)
	}
	return changed
}
