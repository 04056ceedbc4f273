package head

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"muster/internal/indexset"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// A request may name 100,000 jobs. The core carries it out in slices, so that nobody waits long for
// the next event: the first slice belongs to the event itself, each step does another, and the answer
// follows the last. What a job has become meanwhile counts when its slice comes: one that has ended is
// left out, and so is one that started after a request that is for running jobs.
//
// Requests for the same array are carried out one after another, in the order in which they came.
// Until the last is done, the policy is offered no more tasks of the array. Users take turns, slice by
// slice.

// maxLoad is how much is changed between two calls of Take: a job or a message to an agent is 1, and
// long options (perOptions) are more. A step always does a little (leastLoad). maxLooked is how many
// jobs a slice looks at. Tests make them smaller.
var (
	maxLoad   = 512
	leastLoad = 32
	maxLooked = 5000
)

const (
	perOptions    = 2000 // as many bytes take as long to write as a job
	perRequest    = 10   // a refusal and the end of a request count as as many jobs that are looked at
	perPlaces     = 16   // as many tasks of a rest count as one job
	perImpossible = 25   // a job that the policy refuses counts as as many jobs that are looked at
	perMoved      = 500  // as many that move because another joins the list before them do
)

// maxChores is how many requests of one user may be carried out at a time: who sends one may hang up
// before it is done, and send another.
const maxChores = 256

// chores are the requests that are being carried out.
type chores struct {
	budget *budget
	roster *roster
	byUser map[string][]*chore // in order
	turns  []string            // users who have some
	lines  map[uint64][]*chore // by array or job
}

// chore is a request that is being carried out.
type chore struct {
	user   string // who waits in turn
	ref    Ref
	passes []pass
	visit  func(*job) bool // deals with one of the jobs, and says whether to go on
	finish func(*Refusal)

	starts  int64  // how many jobs had been started when the request came
	line    uint64 // the array or job of which it names something
	walk    *walk  // nil if it has not begun
	found   int    // jobs that were visited
	first   *job   // the first of them
	changed []uint64
}

// pass is which of the jobs that a reference names a walk visits.
type pass uint8

const (
	allJobs     pass = iota
	restsOnly        // rests, the largest first
	waitingOnly      // jobs that wait, without rests
	jobsOnly         // all but rests
	untilNone        // all, and again those that have come to wait since, until there is none
)

func (p pass) takesRests() bool { return p != waitingOnly && p != jobsOnly }

func (p pass) takes(j *job) bool { return p != waitingOnly || j.state == api.Pending }

// walk goes through the jobs that a reference names, in the order of their numbers. It sees what they
// are when it comes to them.
type walk struct {
	one  *job // the only one; nil if the reference names tasks of an array
	a    *array
	runs []run  // the places that are named
	open []bool // by place: the task has not been visited

	pass   int // index in chore.passes
	begun  bool
	run    int      // index in runs
	place  int      // of the task that comes next
	at     int      // index in a.members where that is likely to be
	rests  []restAt // those that come next in this pass
	made   int      // array.made when they were listed
	waited bool     // this pass has visited a job that waited
}

// run is the places [from, to).
type run struct{ from, to int }

// restAt is a rest, and the number that it had when the pass began.
type restAt struct {
	rest   *job
	number uint64
}

// do carries out a request, or as much of it as belongs to this event.
func (cs *chores) do(ch *chore) {
	ch.starts, ch.line = cs.roster.starts, cs.roster.lineOf(ch.ref)
	if len(cs.lines[ch.line]) > 0 || !cs.mayBegin(ch) {
		ch.walk = nil
	} else if cs.slice(ch) {
		return
	}
	cs.lines[ch.line] = append(cs.lines[ch.line], ch)
	if len(cs.byUser[ch.user]) == 0 {
		cs.turns = append(cs.turns, ch.user)
	}
	cs.byUser[ch.user] = append(cs.byUser[ch.user], ch)
}

// mayBegin says whether a request may begin before others of its user that wait: a large one may not,
// since a walk that is under way takes memory.
func (cs *chores) mayBegin(ch *chore) bool {
	a := cs.roster.arrayOf(ch.ref.Job)
	return len(cs.byUser[ch.user]) == 0 || a == nil || ch.ref.Task >= 0 || a.tasks.Len() <= maxLoad
}

// doSome carries out slices of the requests that wait, a user at a time.
func (cs *chores) doSome() {
	for blocked := 0; blocked < len(cs.turns) && !cs.budget.spent(); {
		user := cs.turns[0]
		cs.turns = append(cs.turns[:0], cs.turns[1:]...)
		ch := cs.byUser[user][0]
		if cs.lines[ch.line][0] != ch {
			blocked++ // by an earlier request of somebody else
		} else if blocked = 0; cs.slice(ch) {
			cs.done(ch)
		}
		if len(cs.byUser[user]) > 0 {
			cs.turns = append(cs.turns, user)
		}
	}
}

// done removes a request that has been carried out.
func (cs *chores) done(ch *chore) {
	if cs.byUser[ch.user] = cs.byUser[ch.user][1:]; len(cs.byUser[ch.user]) == 0 {
		delete(cs.byUser, ch.user)
	}
	if cs.lines[ch.line] = cs.lines[ch.line][1:]; len(cs.lines[ch.line]) > 0 {
		return
	}
	delete(cs.lines, ch.line)
	if a := cs.roster.arrays[ch.line]; a != nil {
		cs.roster.hunger(a)
	}
}

// slice carries out a request as far as is allowed, and says whether it is done.
func (cs *chores) slice(ch *chore) bool {
	var err *Refusal
	if ch.walk == nil {
		ch.walk, err = cs.walkOf(ch.ref)
	}
	for err == nil {
		j, over := cs.walkOn(ch.walk, ch.passes)
		if j == nil && !over {
			return false
		}
		if j == nil {
			break
		}
		if ch.found++; ch.first == nil {
			ch.first = j
		}
		if !ch.visit(j) {
			break
		}
	}
	if err == nil && ch.found == 0 {
		err = notThere(ch.ref)
	}
	cs.budget.looked += perRequest
	ch.finish(err)
	return true
}

// walkOf begins a walk through the jobs that a reference names.
func (cs *chores) walkOf(ref Ref) (*walk, *Refusal) {
	a := cs.roster.arrayOf(ref.Job)
	if ref.Tasks == "" && (a == nil || ref.Task >= 0) {
		j, err := cs.roster.findOne(ref)
		return &walk{one: j}, err
	}
	w := &walk{a: a}
	if ref.Tasks == "" {
		w.runs = []run{{0, a.tasks.Len()}}
	} else {
		tasks, err := slurmopt.ParseTasks(ref.Tasks)
		if err != nil {
			return nil, refusal(statusBadRequest, "%v", err)
		}
		if a != nil {
			var named indexset.Set
			a.tasks.Common(tasks, named.AddRange)
			named.Each(func(from, to int) { w.runs = append(w.runs, run{from, to}) })
		}
		if len(w.runs) == 0 {
			return nil, notThere(ref)
		}
	}
	w.open = make([]bool, w.runs[len(w.runs)-1].to)
	for _, x := range w.runs {
		for place := x.from; place < x.to; place++ {
			w.open[place] = true
		}
	}
	return w, nil
}

// walkOn finds the next job; nil if the walk is over or, without over, the slice. A rest of which only
// some tasks are named is shown as one of these (stand).
func (cs *chores) walkOn(w *walk, passes []pass) (j *job, over bool) {
	for ; w.pass < len(passes); w.pass++ {
		p := passes[w.pass]
		for {
			if !w.begun {
				w.begin(p)
			}
			if j, over := cs.nextOf(w, p); j != nil || !over {
				return j, over
			}
			if w.begun = false; p != untilNone || !w.waited {
				break
			}
		}
	}
	return nil, true
}

func (w *walk) begin(p pass) {
	w.begun, w.run, w.place, w.at, w.waited, w.rests = true, 0, 0, 0, false, nil
	if w.a != nil && p.takesRests() {
		w.list(p)
	}
}

// list lists the rests of the array.
func (w *walk) list(p pass) {
	w.made = w.a.made
	for _, r := range w.a.rests {
		w.rests = append(w.rests, restAt{r, r.id})
	}
	slices.SortFunc(w.rests, func(a, b restAt) int {
		if p == restsOnly { // the largest first: fewer tasks become jobs
			return cmp.Or(b.rest.size()-a.rest.size(), cmp.Compare(a.number, b.number))
		}
		return cmp.Compare(a.number, b.number)
	})
}

// nextOf finds the next job of a pass.
func (cs *chores) nextOf(w *walk, p pass) (j *job, over bool) {
	if w.a == nil {
		j, w.one = w.one, nil
		return j, true
	}
	for {
		if cs.budget.spent() {
			return nil, false
		}
		var m *job
		if p != restsOnly {
			if m, over = cs.nextMember(w); !over && m == nil {
				return nil, false
			}
		}
		if len(w.rests) > 0 && (m == nil || w.rests[0].number <= m.id) {
			r := w.rests[0].rest
			w.rests = w.rests[1:]
			if j := cs.partOf(w, r); j != nil {
				return j, false
			}
			continue
		}
		switch {
		case m != nil:
		case p.takesRests() && w.made != w.a.made: // between two slices, tasks may leave a rest for one of their own
			w.list(p)
			continue
		default:
			return nil, true
		}
		if w.place++; w.open[w.place-1] && p.takes(m) {
			w.open[w.place-1] = false
			return m, false
		}
	}
}

// nextMember finds the next job, from w.place on, that is no rest and named; nil and true if there is
// none, nil and false if the slice is over.
func (cs *chores) nextMember(w *walk) (j *job, over bool) {
	all := w.a.members
	for w.run < len(w.runs) {
		x := w.runs[w.run]
		if w.place = max(w.place, x.from); w.place >= x.to {
			w.run++
			continue
		}
		if cs.budget.looked++; cs.budget.looked > maxLooked {
			return nil, false
		}
		number := w.a.id + uint64(w.place)
		for range 8 { // the usual case: it is near
			if w.at < len(all) && all[w.at].id < number {
				w.at++
			}
		}
		if w.at > len(all) || w.at > 0 && all[w.at-1].id >= number || w.at < len(all) && all[w.at].id < number {
			w.at = sort.Search(len(all), func(i int) bool { return all[i].id >= number })
		}
		for w.at+1 < len(all) && all[w.at].gone && all[w.at+1].id == all[w.at].id {
			w.at++
		}
		if w.at == len(all) {
			break
		}
		j := all[w.at]
		if w.place = int(j.id - w.a.id); w.place >= x.to {
			continue
		}
		if !j.gone && j.rest == nil {
			return j, false
		}
		w.place++
	}
	w.run = len(w.runs)
	return nil, true
}

// partOf is a rest, or those of its tasks that are named and have not been visited; nil if there are
// none. They count as visited.
func (cs *chores) partOf(w *walk, r *job) *job {
	if r.gone || r.rest == nil { // it is a single job by now, or was forgotten
		return nil
	}
	cs.budget.looked += 1 + r.size()/perPlaces
	var some indexset.Set
	r.rest.Each(func(from, to int) {
		for place := from; place < min(to, len(w.open)); place++ {
			if w.open[place] {
				w.open[place] = false
				some.Add(place)
			}
		}
	})
	switch some.Len() {
	case 0:
		return nil
	case r.size():
		return r
	}
	j := cs.roster.stand(r, some.First())
	j.rest = &some
	return j
}

// some lists most of the jobs of a walk from a number on, for those who look at them, and says at which
// number to go on; 0 at the end.
func (cs *chores) some(w *walk, first uint64, most int) (found []*job, next uint64) {
	looked, mayLoad := cs.budget.looked, cs.budget.mayLoad
	cs.budget.looked, cs.budget.mayLoad = math.MinInt, math.MaxInt
	defer func() { cs.budget.looked, cs.budget.mayLoad = looked, mayLoad }()
	w.begin(allJobs)
	if w.a != nil && first > w.a.id {
		w.place = int(first - w.a.id)
		w.rests = slices.DeleteFunc(w.rests, func(r restAt) bool { return r.number < first })
	}
	for {
		number := uint64(0)
		if len(w.rests) > 0 {
			number = w.rests[0].number
		}
		left := len(w.rests)
		j, _ := cs.walkOn(w, []pass{allJobs})
		if j == nil {
			return found, 0
		}
		if left == len(w.rests) {
			number = j.id
		}
		if len(found) == most {
			return found, number
		}
		found = append(found, j)
	}
}

// doTo does something to a job or all tasks of an array, in its user's turn.
func (cs *chores) doTo(id uint64, ch *chore) {
	ch.ref = Ref{Job: id, Task: -1}
	w, err := cs.walkOf(ch.ref)
	switch {
	case err != nil:
		return
	case w.a != nil:
		ch.user = w.a.members[0].user
	default:
		ch.user = w.one.user
	}
	cs.do(ch)
}
