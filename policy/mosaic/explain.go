package mosaic

import (
	"fmt"
	"strings"
	"time"

	"muster/internal/units"
	"muster/policy"
	"muster/policy/prices"
)

// maxTold is the largest number of jobs that an explanation lists.
const maxTold = 100

// Explain describes the latest step: the prices behind the plan, the jobs
// started, and the jobs planned next.
func (p *mosaic) Explain(v *policy.View) *policy.Explanation {
	e := &policy.Explanation{
		Lead: fmt.Sprintf("Jobs started: %d. Planned: %d, by plan %d. Not modelled, so that they start wherever they fit: %d.",
			len(p.begun), len(p.due), p.planner.plans, len(p.elsewhere)),
		Won: "started", Lost: "planned",
	}
	if p.guard > 0 {
		e.Lead += fmt.Sprintf(" One of these has waited too long: nothing starts that runs beyond %s.", v.Clock(p.guard))
	}
	if p.planner.table != nil {
		e.Tables = append(e.Tables, p.priceTable())
	}
	row := int32(0)
	for _, id := range p.begun {
		a := v.Held(id)
		if a == nil || len(a.Parts) == 0 {
			continue
		}
		from, to := a.Parts[0].Node, a.Parts[len(a.Parts)-1].Node
		e.Bars = append(e.Bars, policy.ExplanationBar{Row: row, From: from, To: to, Won: true, Label: "job " + v.Job(id).ID + " started"})
		row++
	}
	next := policy.ExplanationTable{Title: "Planned next", Columns: []string{"job", "asks for", "at", "nodes"}}
	for _, id := range p.due {
		if len(next.Rows) == maxTold {
			e.Lead += fmt.Sprintf(" The first %d of the plan are listed.", maxTold)
			break
		}
		j := p.job(id)
		from, to := block(j.pieces)
		next.Rows = append(next.Rows, []string{v.Job(id).ID, v.Shape(id).String(), v.Clock(j.start), p.names(v, from, to)})
		e.Bars = append(e.Bars, policy.ExplanationBar{Row: row, From: from, To: to - 1, Label: "job " + v.Job(id).ID + " at " + v.Clock(j.start)})
		row++
	}
	e.Tables = append(e.Tables, next)
	return e
}

// priceTable shows what a node's time was worth when the plan was made.
func (p *mosaic) priceTable() policy.ExplanationTable {
	q := &p.planner
	t := policy.ExplanationTable{
		Title:   "What the waiting work makes of a node",
		Columns: []string{"work", "hours asked for", "price of a node's part", "which means"},
	}
	dearest := int64(1)
	for _, w := range q.table.Node {
		dearest = max(dearest, w)
	}
	for i, w := range q.works {
		note := ""
		if w.Demand == 0 {
			continue
		}
		if q.table.Kind[i] < cheap {
			note = "fits beside the others"
		}
		t.Rows = append(t.Rows, []string{
			amount(w.Cores, w.GPUs), fmt.Sprintf("%.2f", float64(w.Demand)/float64(time.Hour/time.Millisecond)),
			fmt.Sprintf("%.3f", float64(q.table.Kind[i])/float64(dearest)), note,
		})
	}
	for i, n := range p.machine.nodes {
		t.Rows = append(t.Rows, []string{
			"a node of " + amount(n.Cores, n.GPUs), fmt.Sprintf("%d such", n.Count),
			fmt.Sprintf("%.3f", float64(q.table.Node[i])/float64(dearest)), "at best " + q.mixture(n),
		})
	}
	return t
}

// mixture describes a most valuable way to fill a node.
func (q *planner) mixture(n prices.Nodes) string {
	var list []string
	for i, count := range q.table.Configuration(q.works, n) {
		if count > 0 {
			list = append(list, fmt.Sprintf("%d x (%s)", count, amount(q.works[i].Cores, q.works[i].GPUs)))
		}
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, " and ")
}

func amount(cores, gpus int32) string {
	return units.Plural(int(cores), "core") + ", " + units.Plural(int(gpus), "GPU")
}

// block is the range of nodes that a job's processes use: the first, and the
// one after the last.
func block(pieces []piece) (from, to int32) {
	from = -1
	for i := range pieces {
		if pieces[i].cores > 0 {
			if from < 0 {
				from, to = pieces[i].from, pieces[i].to
			}
			from, to = min(from, pieces[i].from), max(to, pieces[i].to)
		}
	}
	return from, to
}

func (p *mosaic) names(v *policy.View, from, to int32) string {
	nodes := v.Cluster().Nodes
	if to-from == 1 {
		return nodes[from].Name
	}
	return nodes[from].Name + " to " + nodes[to-1].Name
}
