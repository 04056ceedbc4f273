// Package preempt lets classes of jobs stop running jobs of lower classes, under
// any policy. It wraps the policy: jobs of classes that may stop others are
// looked at first, as in Slurm; the inner policy decides about all else.
//
// # A step
//
//  1. Preemptors. Waiting jobs whose class may stop others are taken in order:
//     higher classes first, within a class as the queue has them. Each is started
//     if it fits; otherwise the fewest, lowest and youngest jobs are stopped whose
//     place lets it start, and it has a claim: until it has started, what is free of
//     that place is hidden from all but higher classes. If stopping does not
//     help either, its class is done for this step: no job of it is preferred.
//  2. Suspended jobs are resumed where their place is free, higher classes first. What
//     is free of the places of the others is hidden from the inner policy, so
//     that new jobs do not keep them from running for ever.
//  3. The inner policy has its step.
//
// # Why nothing goes to and fro
//
// A job is only stopped for one of a higher class, whose place is kept for it until
// it has started or a still higher one has taken it. So every stop leads to a start
// of a job that no job of the stopped one's class can stop again.
package preempt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/model"
	"muster/policy"
)

// Class is a kind of jobs, by the name of their QOS.
type Class struct {
	Name string
	// Stops names the classes whose jobs may be stopped for one of this class. They
	// must be lower: stand before it in the rules.
	Stops []string
	// How jobs of this class are stopped; unless Fixed, which are not stopped at all.
	How   policy.How
	Fixed bool
}

// Rules are the classes, the lowest first. A job whose QOS is none of them is of
// the lowest.
type Rules []Class

// Check reports the first thing that makes no sense.
func (r Rules) Check() error {
	if len(r) > maxClasses {
		return fmt.Errorf("there are %d classes, at most %d are supported", len(r), maxClasses)
	}
	level := map[string]int{}
	for i, c := range r {
		if _, twice := level[c.Name]; twice || c.Name == "" {
			return fmt.Errorf("class %q is there twice, or has no name", c.Name)
		}
		if strings.ContainsAny(c.Name, "<:/|") { // they part the classes in a text
			return fmt.Errorf("class %q: a name must be without any of < : / |", c.Name)
		}
		for _, name := range c.Stops {
			if _, lower := level[name]; !lower {
				return fmt.Errorf("class %s stops %q, which is no lower class", c.Name, name)
			}
		}
		level[c.Name] = i
	}
	return nil
}

// maxClasses is what the upper bits of a key in the queue can tell apart.
const maxClasses = 63

// ParseRules reads the classes from the lowest to the highest, as "low<normal<high":
// each stops all before it, in the same way.
func ParseRules(classes, how string) (Rules, error) {
	h, err := parseHow(how)
	if err != nil {
		return nil, err
	}
	var rules Rules
	var lower []string
	for name := range strings.SplitSeq(classes, "<") {
		rules = append(rules, Class{Name: name, Stops: slices.Clone(lower), How: h})
		lower = append(lower, name)
	}
	if len(rules) < 2 {
		return nil, fmt.Errorf("qos=%s: name two or more, the lowest first, as qos=low<normal<high", classes)
	}
	return rules, rules.Check()
}

// String writes rules as ReadRules reads them: the classes from the lowest to the
// highest, each with how its jobs are stopped and whom it stops, as
// "low/suspend<high/fixed/low".
func (r Rules) String() string {
	var b strings.Builder
	for i, c := range r {
		if i > 0 {
			b.WriteByte('<')
		}
		how := fixedWord
		if !c.Fixed {
			how = c.How.String()
		}
		b.WriteString(c.Name + "/" + how)
		if len(c.Stops) > 0 {
			b.WriteString("/" + strings.Join(c.Stops, "|"))
		}
	}
	return b.String()
}

// fixedWord stands for how jobs are stopped that are not.
const fixedWord = "fixed"

// ReadRules reads what String writes.
func ReadRules(text string) (Rules, error) {
	var rules Rules
	for class := range strings.SplitSeq(text, "<") {
		name, rest, _ := strings.Cut(class, "/")
		word, stops, _ := strings.Cut(rest, "/")
		c := Class{Name: name, Fixed: word == fixedWord}
		if !c.Fixed {
			var err error
			if c.How, err = parseHow(word); err != nil {
				return nil, fmt.Errorf("preempt_classes=%s: class %q: %w, or fixed for jobs that nobody stops", text, name, err)
			}
		}
		if stops != "" {
			c.Stops = strings.Split(stops, "|")
		}
		rules = append(rules, c)
	}
	return rules, rules.Check()
}

func parseHow(text string) (policy.How, error) {
	for h := policy.Suspend; h <= policy.Cancel; h++ {
		if h.String() == text {
			return h, nil
		}
	}
	return 0, fmt.Errorf("preempt=%s: use suspend, move, requeue or cancel", text)
}

// Wrap lets classes preempt each other under a policy.
func Wrap(inner policy.Policy, rules Rules) (policy.Policy, error) {
	if err := rules.Check(); err != nil {
		return nil, err
	}
	p := &preempt{inner: inner, rules: rules, level: map[string]int{}, waiting: map[policy.JobID]bool{}}
	for i, c := range rules {
		p.level[c.Name] = i
	}
	p.stops = make([]uint64, len(rules))
	for i, c := range rules {
		for _, name := range c.Stops {
			if l := p.level[name]; !rules[l].Fixed {
				p.stops[i] |= 1 << l
			}
		}
	}
	p.mode = inner.Traits().Mode
	return p, nil
}

// Wraps says whether a policy is one that Wrap made: it lets suspended jobs go on by itself.
func Wraps(p policy.Policy) bool {
	_, ok := p.(*preempt)
	return ok
}

type preempt struct {
	inner policy.Policy
	rules Rules
	level map[string]int
	stops []uint64 // by class: the set of those that it may stop
	mode  policy.Mode

	waiting map[policy.JobID]bool // jobs in the queue whose class may stop others
	claims  []claim
	hidden  []policy.JobID // whose places were hidden in the last step
	idle    bool           // the last look at the preemptors found nothing to do
}

// claim is a job that waits for others to make way.
type claim struct {
	job     policy.JobID
	place   model.Allocation
	victims []policy.Stop
}

var (
	_ policy.Policy    = (*preempt)(nil)
	_ policy.Explainer = (*preempt)(nil)
)

// keyBits are left of a policy's own key beside the class.
const keyBits = 57

// Traits are the inner policy's, with the queue in order of classes first.
func (p *preempt) Traits() policy.Traits {
	t := p.inner.Traits()
	own := t.Order
	t.Order = func(j *model.Job) int64 {
		key := int64(0)
		if own != nil {
			key = min(max(own(j), -1<<(keyBits-1)), 1<<(keyBits-1)-1)
		}
		return -int64(p.classOf(j))<<keyBits + key
	}
	return t
}

func (p *preempt) classOf(j *model.Job) int { return p.level[j.QOS] }

func (p *preempt) Step(v *policy.View, plan *policy.Plan) {
	p.notice(v)
	p.preemptors(v, plan)
	p.hide(v, p.resume(v, plan))
	p.inner.Step(v, plan)
	v.Release()
	plan.Skipped = plan.Skipped && len(plan.Starts)+len(plan.Stops)+len(plan.Resumes) == 0
}

// notice updates the list of waiting jobs from what the view says has arrived
// and left.
func (p *preempt) notice(v *policy.View) {
	for _, id := range v.Left() {
		delete(p.waiting, id)
	}
	came := false
	for _, id := range v.Arrived() {
		if p.stops[p.classOf(v.Job(id))] != 0 {
			p.waiting[id] = true
			came = true
		}
	}
	if came || v.Freed() || v.Reordered() || len(v.Left()) > 0 {
		p.idle = false
	}
}

// preemptors looks at the waiting jobs that may stop others, in order.
func (p *preempt) preemptors(v *policy.View, plan *policy.Plan) {
	if len(p.waiting) == 0 || p.idle && len(p.claims) == 0 {
		return
	}
	old := p.claims
	list := p.inOrder(v)
	p.claims, p.idle = nil, true
	blocked := uint64(0) // classes
	for _, id := range list {
		class := p.classOf(v.Job(id))
		if p.keep(v, plan, claimOf(old, id)) || blocked>>class&1 != 0 || v.ShapeAs(id, 0) == nil {
			continue // a job that only its alternatives can serve is the inner policy's
		}
		if !p.start(v, plan, id) && !p.claim(v, plan, id, class, old) {
			blocked |= 1 << class
		}
	}
}

// keep starts the job of a claim if its place is free, and keeps the claim
// while other jobs are being stopped for it. It returns false if there is no
// claim, or if the claim cannot come true: a higher class has the place, or a
// job that was to be stopped was not.
func (p *preempt) keep(v *policy.View, plan *policy.Plan, c *claim) bool {
	switch {
	case c == nil:
		return false
	case v.Holds(&c.place) && plan.StartAhead(c.job, &c.place, policy.Reason{Code: policy.InTurn}):
		delete(p.waiting, c.job)
		return true
	case slices.ContainsFunc(c.victims, func(s policy.Stop) bool { return v.Stopping(s.Job) }):
		v.Withhold(&c.place)
		p.claims = append(p.claims, *c)
		return true
	}
	return false
}

// inOrder lists the waiting preemptors: higher classes first, within a class those
// with a claim, then as the queue has them.
func (p *preempt) inOrder(v *policy.View) []policy.JobID {
	list := make([]policy.JobID, 0, len(p.waiting))
	for id := range p.waiting {
		if v.Waits(id) {
			list = append(list, id)
		} else {
			delete(p.waiting, id) // the inner policy has started it
		}
	}
	claims := func(id policy.JobID) int {
		if claimOf(p.claims, id) != nil {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b policy.JobID) int {
		if c := cmp.Or(cmp.Compare(p.classOf(v.Job(b)), p.classOf(v.Job(a))), cmp.Compare(claims(a), claims(b))); c != 0 {
			return c
		}
		if v.Precedes(a, b) {
			return -1
		}
		return 1
	})
	return list
}

func claimOf(claims []claim, id policy.JobID) *claim {
	for i := range claims {
		if claims[i].job == id {
			return &claims[i]
		}
	}
	return nil
}

func (p *preempt) start(v *policy.View, plan *policy.Plan, id policy.JobID) bool {
	sh := v.Shape(id)
	if !v.MayFit(sh, p.mode) {
		return false
	}
	a := v.Place(sh, p.mode)
	if a == nil || !plan.StartAhead(id, a, policy.Reason{Code: policy.InTurn}) {
		return false
	}
	delete(p.waiting, id)
	return true
}

// claim stops the jobs whose place lets a job start, if there are such. The jobs that
// are being stopped already, for old claims or new ones, are taken for gone.
func (p *preempt) claim(v *policy.View, plan *policy.Plan, id policy.JobID, class int, old []claim) bool {
	sh := v.Shape(id)
	candidates := p.candidates(v, class)
	leaving := leavers(v, old, p.claims)
	if len(candidates)+len(leaving) == 0 {
		return false
	}
	fits := func(stops []policy.Stop) *model.Allocation {
		stops = slices.Concat(stops, leaving)
		var taken []*model.Allocation
		for i := range p.claims {
			taken = append(taken, &p.claims[i].place)
		}
		v.Release()
		a := v.Suppose(stops, taken, sh, p.mode)
		for i := range p.claims {
			v.Withhold(&p.claims[i].place)
		}
		return a
	}
	if fits(candidates) == nil {
		return false
	}
	victims := fewest(candidates, fits)
	a := fits(victims)
	c := claim{job: id, victims: slices.Concat(victims, leaving), place: model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}}
	for i := range victims {
		victims[i].For = id
		plan.Stop(victims[i].Job, victims[i].How, id)
	}
	p.claims = append(p.claims, c)
	v.Withhold(&c.place)
	return true
}

// leavers lists the jobs that are being stopped for claims.
func leavers(v *policy.View, lists ...[]claim) (list []policy.Stop) {
	seen := map[policy.JobID]bool{}
	for _, claims := range lists {
		for i := range claims {
			for _, s := range claims[i].victims {
				if v.Stopping(s.Job) && !seen[s.Job] {
					seen[s.Job] = true
					list = append(list, s)
				}
			}
		}
	}
	return list
}

// candidates lists the running jobs that a class may stop, in the order in which
// they are stopped: lower classes first, then the youngest.
func (p *preempt) candidates(v *policy.View, class int) []policy.Stop {
	var list []policy.Stop
	for _, id := range v.Running() {
		c := p.classOf(v.Job(id))
		if p.stops[class]>>c&1 != 0 && !v.Stopping(id) && v.CanStop(id) {
			list = append(list, policy.Stop{Job: id, How: p.rules[c].How})
		}
	}
	slices.SortFunc(list, func(a, b policy.Stop) int {
		return cmp.Or(cmp.Compare(p.classOf(v.Job(a.Job)), p.classOf(v.Job(b.Job))),
			cmp.Compare(v.StartedAt(b.Job), v.StartedAt(a.Job)), cmp.Compare(b.Job, a.Job))
	})
	return list
}

// fewest drops candidates until none can be spared: first the whole tail of those
// that are dear, then one by one from the dearest on.
func fewest(candidates []policy.Stop, fits func([]policy.Stop) *model.Allocation) []policy.Stop {
	lo, hi := 0, len(candidates)
	for lo < hi {
		mid := (lo + hi) / 2
		if fits(candidates[:mid]) != nil {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if hi < len(candidates) && fits(candidates[:hi]) == nil {
		hi = len(candidates) // more room does not always help: take them all
	}
	chosen := slices.Clone(candidates[:hi])
	for i := len(chosen) - 1; i >= 0; i-- {
		without := slices.Delete(slices.Clone(chosen), i, i+1)
		if fits(without) != nil {
			chosen = without
		}
	}
	return chosen
}

// resume lets suspended jobs run again whose place is free, and lists the others. It leaves parked ones alone:
// others may have their places.
func (p *preempt) resume(v *policy.View, plan *policy.Plan) (still []policy.JobID) {
	list := slices.DeleteFunc(v.StandStill(), v.Parked)
	slices.SortFunc(list, func(a, b policy.JobID) int {
		return cmp.Or(cmp.Compare(p.classOf(v.Job(b)), p.classOf(v.Job(a))), cmp.Compare(v.StartedAt(a), v.StartedAt(b)), cmp.Compare(a, b))
	})
	for _, id := range list {
		if !plan.Resume(id) {
			still = append(still, id)
		}
	}
	return still
}

// hide keeps the places of suspended jobs from the inner policy, and tells it when
// others than before are hidden.
func (p *preempt) hide(v *policy.View, still []policy.JobID) {
	for _, id := range still {
		a := *v.Held(id)
		a.Parts = slices.Clone(a.Parts)
		for i := range a.Parts {
			a.Parts[i].Memory = 0 // it has kept that
		}
		v.Withhold(&a)
	}
	hidden := still
	for i := range p.claims {
		hidden = append(hidden, p.claims[i].job)
	}
	if !slices.Equal(hidden, p.hidden) {
		v.Redraw()
	}
	p.hidden = hidden
}

func (p *preempt) Why(v *policy.View, id policy.JobID) string {
	c := claimOf(p.claims, id)
	if c == nil {
		return p.inner.Why(v, id)
	}
	names := make([]string, len(c.victims))
	for i, s := range c.victims {
		names[i] = v.Job(s.Job).ID
	}
	return "it waits for jobs of lower classes to make way: " + strings.Join(names, ", ")
}

// Explain is the inner policy's account.
func (p *preempt) Explain(v *policy.View) *policy.Explanation {
	if e, ok := p.inner.(policy.Explainer); ok {
		return e.Explain(v)
	}
	return nil
}
