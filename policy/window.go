package policy

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
)

// Window keeps nodes for some users, or for none, for a time: Slurm's reservations and maintenance.
// Jobs of other users are placed on the nodes only if their estimate ends before the window begins.
// A job that names the window runs only inside it.
//
// # How it is done
//
// The nodes that a job may use follow from the windows, its estimate and the time. Before each
// step, State gives the jobs for which they have changed another node list, or takes them out of
// the queue if no node is left for them; it tells the policy that they left and arrived again. So
// every policy respects windows without knowing them. Reservations that a policy makes for later
// use the nodes that the job may use now.
type Window struct {
	Name        string
	From, Until time.Duration
	Nodes       []int32
	// Users and Accounts (the groups of jobs) may use the nodes during the window.
	Users, Accounts []string
}

// MaxWindows is the largest number of windows: a set of them is the bits of a uint64.
const MaxWindows = 64

// windows is the list of windows, and what is derived from it.
type windows struct {
	// on says that there are windows that jobs must respect, or jobs that wait for some.
	on    bool
	list  []Window
	clock func(time.Duration) string // see State.SetClock
	// next is when the nodes of some waiting job change by time alone.
	next  time.Duration
	fresh []JobID // jobs that joined the queue and were not examined yet
	held  int     // the number of jobs kept out of the queue
	// names has, by set of windows, the names of the nodes that are in none of them.
	names map[uint64][]string
}

// windowed says how the windows change a waiting job.
type windowed struct {
	base    *model.Job // the job as it was submitted
	blocked uint64     // windows whose nodes it must not use
	inside  int        // the window that it named, or -1
	held    string     // why it is out of the queue; "" if it is not
}

func (ev WindowsSet) apply(s *State) Answer {
	list := ev.Windows
	if len(list) > MaxWindows {
		return refused(fmt.Errorf("%d windows, at most %d are supported", len(list), MaxWindows))
	}
	for i, w := range list {
		switch {
		case w.Name == "" || slices.ContainsFunc(list[:i], func(o Window) bool { return o.Name == w.Name }):
			return refused(fmt.Errorf("window %q is there twice, or has no name", w.Name))
		case w.From >= w.Until:
			return refused(fmt.Errorf("window %s ends at %s, before it begins at %s", w.Name, w.Until, w.From))
		}
		for _, n := range w.Nodes {
			if _, err := s.node(n); err != nil {
				return refused(err)
			}
		}
	}
	if len(list) == 0 && len(s.windows.list) == 0 {
		return Answer{}
	}
	s.windows.list, s.windows.names = slices.Clone(list), map[uint64][]string{}
	s.windows.next = 0
	s.windows.on = true
	return Answer{}
}

// Windows are the windows of the latest SetWindows.
func (s *State) Windows() []Window { return s.windows.list }

// mayUse says whether a job's user or account may use a window's nodes.
func (w *Window) mayUse(j *model.Job) bool {
	return slices.Contains(w.Users, j.User) || slices.Contains(w.Accounts, j.Group)
}

// keepToWindows updates the waiting jobs whose nodes may have changed: all of them if the time next
// has come, otherwise those that have just joined.
func (s *State) keepToWindows(now time.Duration) {
	if !s.windows.on {
		return
	}
	w := &s.windows
	if now >= w.next {
		w.next = Never
		s.jobs.each(func(id JobID, e *jobEntry) {
			if e.status == waiting {
				s.reconsider(id, e, now)
			}
		})
	} else {
		for _, id := range w.fresh {
			if e := s.jobs.at(id); e.status == waiting {
				s.reconsider(id, e, now)
			}
		}
	}
	w.fresh = w.fresh[:0]
	s.windows.on = len(w.list) > 0 || w.held > 0
}

// reconsider gives a waiting job the nodes that it may use now.
func (s *State) reconsider(id JobID, e *jobEntry, now time.Duration) {
	base := e.job
	if e.window != nil {
		base = e.window.base
	}
	want := s.windows.restrict(base, now)
	switch {
	case want == nil && e.window == nil:
		return
	case want != nil && e.window != nil && want.blocked == e.window.blocked && want.inside == e.window.inside && want.held == e.window.held:
		return
	}
	s.leaveQueue(id, e)
	e.job, e.window = base, want
	if want != nil && want.held == "" {
		e.job = s.windows.limited(base, want, s.cluster)
	}
	fresh := s.entryOf(e.job, s.traits.Alternatives)
	e.shape, e.others = fresh.shape, fresh.others
	if want != nil && want.held == "" && e.impossible() != nil {
		want.held = s.windows.tooFew(want.blocked)
		// It is examined again when the set of windows that block it changes.
	}
	if want != nil && want.held != "" {
		s.windows.held++
		return
	}
	s.queue.insert(s.place(id))
	s.view.arrived = append(s.view.arrived, id)
	s.gaveBack()
}

// leaveQueue takes a job out of the queue, and tells the policy unless the job arrived after its
// last step.
func (s *State) leaveQueue(id JobID, e *jobEntry) {
	if e.held() {
		s.windows.held--
		return
	}
	s.queue.remove(s.place(id))
	if i := slices.Index(s.view.arrived, id); i >= 0 {
		s.view.arrived = slices.Delete(s.view.arrived, i, i+1)
		return
	}
	s.view.left = append(s.view.left, id)
	s.view.reshaped = append(s.view.reshaped, id)
	s.view.changes++
}

// Reshaped lists the jobs of Left whose nodes have changed while they waited: their shape is not
// the one under which the policy knows them.
func (v *View) Reshaped() []JobID { return v.reshaped }

// held says that a window keeps a waiting job out of the queue.
func (e *jobEntry) held() bool { return e.window != nil && e.window.held != "" }

func intersection(names []string, has func(string) bool) []string {
	var out []string
	for _, name := range names {
		if has(name) {
			out = append(out, name)
		}
	}
	return out
}

// clockOf formats an instant as the users of this state know it.
func (w *windows) clockOf(t time.Duration) string {
	if w.clock == nil {
		return Clock(t)
	}
	if name := w.clock(t); name != "" {
		return name
	}
	return "a time that is not known"
}

// joined notes a job that has joined the queue, for the next step to examine.
func (w *windows) joined(id JobID, j *model.Job) {
	if j.Reservation != "" {
		w.on = true
	}
	if w.on {
		w.fresh = append(w.fresh, id)
	}
}

// wake is the next instant at which a window begins or ends; Never if none does.
func (w *windows) wake(now time.Duration) time.Duration {
	at := Never
	for _, x := range w.list {
		for _, t := range [...]time.Duration{x.From, x.Until} {
			if t > now {
				at = min(at, t)
			}
		}
	}
	return at
}

// restrict says how the windows change a job now; nil if they do not. It lowers next to the time at which the answer changes.
func (w *windows) restrict(j *model.Job, now time.Duration) *windowed {
	out := &windowed{base: j, inside: -1}
	longest := j.Estimate()
	for i := range j.Alternatives {
		longest = max(longest, j.As(i+1).Estimate())
	}
	end := model.After(now, longest)
	for i := range w.list {
		x := &w.list[i]
		named := x.Name == j.Reservation
		if named {
			out.inside = i
		}
		for _, t := range [...]time.Duration{x.From - longest + 1, x.From, x.Until - longest + 1, x.Until} {
			if t > now {
				w.next = min(w.next, t)
			}
		}
		if !named && !x.mayUse(j) && x.From < end && now < x.Until {
			out.blocked |= 1 << i
		}
	}
	if j.Reservation != "" {
		out.held = w.outside(out.inside, j, now, end)
	}
	if out.blocked == 0 && out.inside < 0 && out.held == "" {
		return nil
	}
	return out
}

// tooFew explains why a job must wait that has too few nodes without those of the windows in
// blocked. It names the window that begins first.
func (w *windows) tooFew(blocked uint64) string {
	first := -1
	for i := range w.list {
		if blocked&(1<<i) != 0 && (first < 0 || w.list[i].From < w.list[first].From) {
			first = i
		}
	}
	if first < 0 {
		return "the nodes that it may use are too few"
	}
	x := &w.list[first]
	return fmt.Sprintf("by its time limit it would run into %s, from %s to %s, and too few nodes are left without it", x.Name, w.clockOf(x.From), w.clockOf(x.Until))
}

// outside says why a job that named a window cannot run in it now.
func (w *windows) outside(i int, j *model.Job, now, end time.Duration) string {
	if i < 0 {
		return fmt.Sprintf("there is no reservation %q", j.Reservation)
	}
	x := &w.list[i]
	switch {
	case !x.mayUse(j) && j.Group == "":
		return fmt.Sprintf("user %s may not use reservation %s", j.User, x.Name)
	case !x.mayUse(j):
		return fmt.Sprintf("user %s and account %s may not use reservation %s", j.User, j.Group, x.Name)
	case now < x.From:
		return fmt.Sprintf("reservation %s begins at %s", x.Name, w.clockOf(x.From))
	case end > x.Until:
		return fmt.Sprintf("reservation %s ends at %s, before the job's estimate", x.Name, w.clockOf(x.Until))
	}
	return ""
}

// limited is a copy of the job with the nodes that it may use as its node list.
func (w *windows) limited(j *model.Job, by *windowed, c *model.Cluster) *model.Job {
	names := w.namesWithout(by.blocked, c)
	if by.inside >= 0 {
		inside := map[string]bool{}
		for _, n := range w.list[by.inside].Nodes {
			inside[c.Nodes[n].Name] = true
		}
		names = intersection(names, func(name string) bool { return inside[name] })
	}
	out := *j
	limit := func(r *model.Request) {
		list := names
		if len(r.NodeList) > 0 {
			list = intersection(names, func(name string) bool { return slices.Contains(r.NodeList, name) })
		}
		if len(list) == 0 {
			list = []string{"(none)"} // no node has this name, so the request is impossible for now
		}
		r.NodeList = list
	}
	limit(&out.Request)
	out.Alternatives = slices.Clone(j.Alternatives)
	for i := range out.Alternatives {
		limit(&out.Alternatives[i])
	}
	return &out
}

// namesWithout lists the nodes that are in none of a set of windows.
func (w *windows) namesWithout(blocked uint64, c *model.Cluster) []string {
	if list, ok := w.names[blocked]; ok {
		return list
	}
	in := make([]bool, len(c.Nodes))
	for i, x := range w.list {
		if blocked>>i&1 != 0 {
			for _, n := range x.Nodes {
				in[n] = true
			}
		}
	}
	var list []string
	for n := range c.Nodes {
		if !in[n] {
			list = append(list, c.Nodes[n].Name)
		}
	}
	w.names[blocked] = list
	return list
}

// checkLenders refuses borrowed devices of nodes that windows keep the job away from: its node list
// restricts only where its processes run.
func (w *windows) checkLenders(e *jobEntry, a *model.Allocation, c *model.Cluster) error {
	if e.window == nil {
		return nil
	}
	for _, g := range a.Grants {
		for i, x := range w.list {
			if e.window.blocked>>i&1 != 0 && slices.Contains(x.Nodes, g.Node) {
				return fmt.Errorf("job %s: node %s is kept for reservation %s", e.job.ID, c.Nodes[g.Node].Name, x.Name)
			}
		}
	}
	return nil
}
