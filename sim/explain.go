package sim

import (
	"fmt"
	"time"

	"muster/policy"
)

// Moment names a step of a run: by its number, from 1, or, where that is 0, as
// the first step at At or later.
type Moment struct {
	Step int
	At   time.Duration
}

// Explained is a step that was asked for.
type Explained struct {
	Step int
	At   time.Duration
	*policy.Explanation
}

// explain keeps an account of the step just made, if it was asked for.
func (r *run) explain(plan *policy.Plan) {
	for _, m := range r.Explain {
		step := r.result.Steps
		if m.Step > 0 && m.Step != step || m.Step == 0 && (r.now < m.At || step > 1 && r.lastStep >= m.At) {
			continue
		}
		e := r.state.Explain()
		if e == nil {
			e = r.account(plan)
		}
		r.result.Explained = append(r.result.Explained, Explained{step, r.now, e})
	}
	r.lastStep = r.now
}

// maxAccounted bounds the waiting jobs that an account tells of.
const maxAccounted = 100

// account is for policies that keep none of their own: what started, and why
// the others wait.
func (r *run) account(plan *policy.Plan) *policy.Explanation {
	started := policy.ExplanationTable{Title: "Started", Columns: []string{"job", "asks for", "nodes", "why"}}
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			v := plan.View()
			started.Rows = append(started.Rows, []string{
				v.Job(st.Job).ID, v.Shape(st.Job).String(), NodesOf(r.Cluster, st.Alloc), st.Reason.Text(v),
			})
		}
	}
	waits := policy.ExplanationTable{Title: "Waiting, in the order of the queue", Columns: []string{"job", "asks for", "why"}}
	v := plan.View()
	for c := v.Queue(); len(waits.Rows) < maxAccounted; {
		id, _, ok := c.Next()
		if !ok {
			break
		}
		waits.Rows = append(waits.Rows, []string{v.Job(id).ID, v.Shape(id).String(), r.state.Why(id)})
	}
	lead := fmt.Sprintf("%d jobs started, %d wait.", len(started.Rows), r.state.Waiting())
	if r.state.Waiting() > len(waits.Rows) {
		lead += fmt.Sprintf(" The first %d of these are listed.", len(waits.Rows))
	}
	return &policy.Explanation{Lead: lead, Tables: []policy.ExplanationTable{started, waits}}
}
