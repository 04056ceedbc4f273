package sim

import (
	"fmt"
	"slices"
	"time"

	"muster/internal/units"
	"muster/policy"
)

// Moment names a step of a run: by its number, from 1, or, if that is 0, as the first step at At or
// later.
type Moment struct {
	Step int
	At   time.Duration
}

// Explained is the explanation of a step.
type Explained struct {
	Step int
	At   time.Duration
	*policy.Explanation
}

// ExplainedAt is the explanation of the step that m names, or nil if the run had no such step or
// was not asked to explain it.
func (r *Result) ExplainedAt(m Moment) *Explained {
	for i := range r.Explained {
		// Explained is in the order of the steps, so the first one at At or later is the one that m
		// names.
		if e := &r.Explained[i]; m.Step == e.Step || m.Step == 0 && e.At >= m.At {
			return e
		}
	}
	return nil
}

// Unexplained finds the first of the moments that one of the runs was over before. It returns its index
// and what that run had instead, or -1 if all runs explain all moments.
func Unexplained(runs []RunOf, moments []Moment) (int, string) {
	for i, m := range moments {
		for _, r := range runs {
			switch {
			case r.ExplainedAt(m) != nil:
			case r.Steps == 0:
				return i, fmt.Sprintf("the run of %s had no step", r.Policy)
			default:
				return i, fmt.Sprintf("the run of %s had %s, the last at %s", r.Policy, units.Plural(r.Steps, "step"), policy.Clock(r.LastStep))
			}
		}
	}
	return -1, ""
}

// explain keeps an explanation of the step just made, if it was asked for.
func (r *run) explain(plan *policy.Plan) {
	step, last := r.result.Steps, r.result.LastStep
	r.result.LastStep = r.now
	for _, m := range r.Explain {
		meant := m.Step == step
		if m.Step == 0 {
			meant = r.now >= m.At && (step == 1 || last < m.At)
		}
		if !meant {
			continue
		}
		r.result.Explained = append(r.result.Explained, Explained{step, r.now, r.account(plan)})
		return
	}
}

// maxAccounted limits the number of waiting jobs in an explanation.
const maxAccounted = 100

// account is the policy's own explanation, if it has one, followed for every policy by what
// started, and why the other jobs wait.
func (r *run) account(plan *policy.Plan) *policy.Explanation {
	v := plan.View()
	started := policy.ExplanationTable{Title: "Started", Columns: []string{"job", "asks for", "nodes", "why"}}
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			started.Rows = append(started.Rows, []string{
				v.Job(st.Job).ID, v.ShapeAs(st.Job, st.Alternative).String(), NodesOf(r.Cluster, st.Alloc), st.Reason.Text(v),
			})
		}
	}
	waiting := policy.ExplanationTable{Title: "Waiting, in the order of the queue", Columns: []string{"job", "asks for", "why"}}
	for c := v.Queue(); len(waiting.Rows) < maxAccounted; {
		id, _, ok := c.Next()
		if !ok {
			break
		}
		waiting.Rows = append(waiting.Rows, []string{v.Job(id).ID, v.Shape(id).String(), r.state.Why(id)})
	}
	if all := r.state.Waiting(); all > len(waiting.Rows) {
		waiting.Title += fmt.Sprintf(": the first %d of %d", len(waiting.Rows), all)
	}
	e := r.state.Explain()
	if e == nil {
		e = &policy.Explanation{Lead: fmt.Sprintf("Jobs started: %d. Jobs that wait: %d.", len(started.Rows), r.state.Waiting())}
	}
	e.Tables = append(e.Tables, started, waiting)
	e.Tables = slices.DeleteFunc(e.Tables, func(t policy.ExplanationTable) bool { return len(t.Rows) == 0 })
	return e
}
